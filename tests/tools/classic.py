#!/usr/bin/env python3
"""classic.py [--bad NAME | --long] SEED FILE EXPECTED: makes a random log of the classic layout, and its canonical HDF5 file.

Written from docs/formats/logvol-classic.md alone; shares no code with the reader. --bad names a kind of damage (--list-bad
lists them). EXPECTED is then the content of the sound part, and one line of JSON on standard output has the position that a
message must name, and "who" is affected: "all" datasets of the log, the "victim" (a dataset), "elements" of it, or, for a
"complaint", none.
--long: a log of very many small chunks.
With several triples SEED FILE EXPECTED all are made.
"""
import argparse
import itertools
import json
import random
import struct
import sys
import zlib

import h5py
import numpy as np

LITTLE, BIG = "<", ">"


# --- datatypes and values -----------------------------------------------------------------------
def compound(order):
    return np.dtype([("a", order + "i2"), ("b", order + "f8"), ("c", "S3")])


def enumeration():
    return h5py.special_dtype(enum=("i4", {"RED": 0, "GREEN": 1, "BLUE": 2}))


def datatypes():
    numbers = [o + k for o in (LITTLE, BIG) for k in ("i2", "i4", "i8", "u2", "u4", "u8", "f4", "f8")]
    return [np.dtype(n) for n in numbers + ["i1", "u1", "S1", "S7"]] + [compound(LITTLE), compound(BIG), enumeration()]


def values(rng, dtype, count):
    """Elements, mostly of few different bytes, so that they compress well."""
    if h5py.check_dtype(enum=dtype):
        return np.array([rng.randrange(3) for _ in range(count)], dtype)
    few = rng.choice([2, 5, 256])
    raw = bytearray(rng.randrange(few) for _ in range(count * dtype.itemsize))
    elements = np.frombuffer(bytes(raw), dtype)
    if dtype.kind == "S":
        # numpy drops zeros at the end of a string, which are in the file.
        raw = bytes(97 + b % 26 for b in raw)
        elements = np.frombuffer(raw, dtype)
    return elements.copy()


def block(start, count):
    """The places of a block in row-major order."""
    return list(itertools.product(*(range(s, s + c) for s, c in zip(start, count))))


# --- the file -----------------------------------------------------------------------------------
class Log:
    """The two log datasets, written piece by piece with other objects between, so that their chunks scatter."""

    def __init__(self, file, rng):
        self.file, self.rng = file, rng
        chunk = rng.choice([16, 64, 100, 4096, 1 << 16])
        self.logs = {name: file.create_dataset(name, (0,), "u1", maxshape=(None,), chunks=(chunk,))
                     for name in ("_metadata_log", "_data_log")}
        #: Gaps of each log, in order.
        self.gaps = {}
        self.between = 0

    def write(self, name, content, unused=0):
        log = self.logs[name]
        step = max(1, self.rng.choice([len(content), len(content) // 3, len(content) // 20]))
        for at in range(0, len(content), step):
            piece = np.frombuffer(content[at:at + step], "u1")
            log.resize((at + len(piece),))
            # Chunks that lie in gaps are never written.
            begin = at
            for gap, end in self.gaps.get(name, []) + [(at + len(piece),) * 2]:
                gap, end = (min(max(n, begin), at + len(piece)) for n in (gap, end))
                if begin < gap:
                    log[begin:gap] = piece[begin - at:gap - at]
                begin = end
            log.flush()
            if self.rng.random() < 0.3:
                yield
        # Unwritten space after the last chunk has no chunks.
        log.resize((len(content) + unused,))

    def write_all(self, contents, unused):
        """Writes all logs at once, in turns."""
        writers = [self.write(name, contents[name], unused) for name in contents]
        while writers:
            self.rng.shuffle(writers)
            if next(writers[0], 0) == 0:
                writers.pop(0)
            elif self.between < 5:
                self.between += 1
                plain = self.rng.randbytes(50) if hasattr(self.rng, "randbytes") else b"x" * 50
                for f in (self.file, self.expected):
                    f["between%d" % self.between] = np.frombuffer(plain, "u1")


class Dataset:
    def __init__(self, rng, number, id):
        self.rng, self.id = rng, id
        rank = rng.choice([0, 1, 1, 2, 2, 3, 4])
        most = {0: 0, 1: 60, 2: 14, 3: 7, 4: 5}[rank]
        self.dims = tuple(0 if rng.random() < 0.03 else rng.randint(1, most) for _ in range(rank))
        self.dtype = rng.choice(datatypes())
        self.path = rng.choice(["", "group/", "group/deep/", "_other/"]) + "%s%d" % (rng.choice(["d", "_d", "__d"]), number)
        self.fill = values(rng, self.dtype, 1)[0] if rng.random() < 0.4 and self.dtype.kind in "iuf" else None
        self.attributes = {"units": "m/s", "_x": np.arange(3)} if rng.random() < 0.5 else {}
        empty = np.zeros(self.dims, self.dtype)
        if self.fill is not None:
            empty[...] = self.fill
        self.content = empty
        #: Start of each entry, and its places.
        self.entries = []

    def selection(self):
        """A random selection: kind, encoding in the entry, and the places of its elements."""
        rng, dims = self.rng, self.dims
        if rng.random() < 0.6 or 0 in dims:
            start = [rng.randint(0, d) for d in dims]
            count = [rng.randint(0 if rng.random() < 0.1 else min(1, d - s), d - s) for s, d in zip(start, dims)]
            return 0, start + count, block(start, count)
        number = rng.choice([0, 1, 2, 7, 30])
        points = [[rng.randrange(d) for d in dims] for _ in range(number)]
        return 1, [number] + [c for p in points for c in p], [tuple(p) for p in points]

    def apply(self, places, elements):
        """Writes naively, element by element."""
        for place, element in zip(places, elements):
            self.content[place] = element


class Maker:
    def __init__(self, seed, bad):
        self.rng = random.Random(seed)
        rng = self.rng
        self.bad = bad
        ids = rng.sample([0, 1, 2, 3, 7, 100, 1 << 40], 5)
        number = rng.randint(1, 5)
        self.datasets = [Dataset(rng, n, ids[n]) for n in range(number)]
        if bad:
            # A dataset that every kind of damage applies to, and another one.
            for n, dims in enumerate([(6, 5), (40,)]):
                steady = Dataset(rng, 90 + n, 90 + n)
                steady.dims, steady.dtype, steady.fill = dims, np.dtype("<i4"), None
                steady.content = np.zeros(dims, "<i4")
                self.datasets.append(steady)
            self.victim, self.other = self.datasets[-2:]
            self.victim.path, self.other.path = "victim", "other"
        self.metadata, self.data = bytearray(28), bytearray()
        self.data += b"logvol_data" + rng.choice(b"0123456789.").to_bytes(1, "little")
        self.count = 0
        self.next_at = {}
        self.damage = {}
        self.orders = []
        self.gaps = []

    # --- entries ---
    def entry(self, dataset, chosen=None, order=None, zipped=None, **fields):
        """Appends an entry and its data. `fields` replace parts of the entry."""
        rng = self.rng
        kind, spelled, places = chosen or dataset.selection()
        elements = values(rng, dataset.dtype, len(places))
        order = order or rng.choice([LITTLE, LITTLE, BIG])
        self.orders.append(order)
        raw = elements.tobytes()
        zipped = rng.random() < 0.4 if zipped is None else zipped
        stored = zlib.compress(raw, rng.choice([0, 1, 9])) if zipped else raw
        stored = fields.get("stored", stored)
        if rng.random() < 0.1 and not fields:
            gap = len(self.data)
            self.data += bytes(rng.choice([20, 200, 9000]))
            self.gaps.append((gap, len(self.data)))
        at = len(self.metadata)
        said = dict(id=dataset.id, kind=kind, spelled=spelled, filter=int(zipped), pointer=len(self.data))
        said.update(fields)
        flag = struct.pack(rng.choice(["<i", ">i"]), 1 if order == BIG else 0)
        self.metadata += said.get("flag", flag)
        self.metadata += struct.pack(order + "qi", said["id"], said["kind"])
        self.metadata += struct.pack("%s%dq" % (order, len(said["spelled"])), *said["spelled"])
        self.metadata += struct.pack(order + "iqq", said["filter"], said["pointer"], -1)
        self.count += 1
        self.data += stored
        if rng.random() < 0.2 and not fields:
            self.data += bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
        # The chain.
        if dataset.entries:
            self.set_next(dataset.entries[-1], at)
        dataset.entries.append((at, order, len(self.metadata)))
        if not fields:
            dataset.apply(places, elements)
        return at

    def set_next(self, entry, to):
        at, order, end = entry
        self.metadata[end - 8:end] = struct.pack(order + "q", to)

    def fill(self):
        rng = self.rng
        order = LITTLE if rng.random() < 0.6 else BIG
        # The format of the data log, in the order of the file's first entry.
        self.data += struct.pack(order + "i", 1)
        entries = rng.choice([0, 1, 5, 25]) if not self.bad else 8
        for number in range(entries):
            self.entry(rng.choice(self.datasets), order=order if number == 0 else None)
        if self.bad:
            for _ in range(2):
                self.entry(self.victim, self.whole(self.victim))
                self.entry(self.other, self.whole(self.other))
            self.damage.update(BAD[self.bad](self) or {})
        self.header(self.orders[0] if self.orders else LITTLE)

    @staticmethod
    def whole(dataset):
        dims = list(dataset.dims)
        return 0, [0] * len(dims) + dims, block([0] * len(dims), dims)

    def header(self, order):
        version = self.rng.choice("0123456789.").encode()
        start = b"logvol_metadata" + version + struct.pack(order + "iq", 1, self.count)
        self.metadata[:28] = start
        for at, patch in self.damage.pop("patches", []):
            self.metadata[at:at + len(patch)] = patch
        for at, patch in self.damage.pop("data_patches", []):
            self.data[at:at + len(patch)] = patch

    # --- the files ---
    def write(self, path, expected_path):
        rng = self.rng
        self.fill()
        user_block = rng.choice([0, 0, 512])
        # The newest format that the oldest reader knows.
        libver = rng.choice(["earliest", ("v110", "v110")])
        options = dict(libver=libver)
        if user_block:
            options["userblock_size"] = user_block
        with h5py.File(path, "w", **options) as f, h5py.File(expected_path, "w") as e:
            log = Log(f, rng)
            log.expected = e
            log.gaps["_data_log"] = self.gaps
            for other in (f, e):
                other.attrs["title"] = "a file"
                other["plain"] = np.arange(20, dtype=">i4").reshape(4, 5)
                other["plain"].attrs["of"] = "nobody's log"
                other.create_group("empty")
            first = rng.random() < 0.5
            if first:
                self.anchors(f)
            unused = rng.choice([0, 0, 7, 5000])
            log.write_all({"_metadata_log": bytes(self.metadata), "_data_log": bytes(self.data)},
                          0 if self.bad else unused)
            if not first:
                self.anchors(f)
            for d in self.datasets:
                made = e.create_dataset(d.path, data=d.content, fillvalue=d.fill) if d.fill is not None \
                    else e.create_dataset(d.path, data=d.content)
                made.attrs.update(d.attributes)
            if self.bad:
                FILE_DAMAGE.get(self.bad, lambda *_: None)(self, f)
        if self.bad:
            print(json.dumps(self.damage))

    def anchors(self, f):
        for d in self.datasets:
            creation = dict(fillvalue=d.fill) if d.fill is not None else {}
            anchor = f.create_dataset(d.path, (), d.dtype, **creation)
            anchor.attrs.update(d.attributes)
            anchor.attrs.create("_classic_id", d.id, dtype="<i8")
            if d.dims or self.rng.random() < 0.5:
                anchor.attrs.create("_classic_dims", np.array(d.dims, "<i8"))
            first = d.entries[0][0] if d.entries else -1
            anchor.attrs.create("_classic_first", d.first if hasattr(d, "first") else first, dtype="<i8")


# --- damage ---------------------------------------------------------------------------------------
# Each function damages a log, and returns the output of --bad.
def of_entry(at, who="victim"):
    return {"position": "byte %d" % at, "who": who}


def wrong_entry(who, **fields):
    def damage(maker):
        spelled = fields.get("spelled")
        chosen = (fields.get("kind", 0), spelled, [(0, 0)]) if spelled else maker.whole(maker.victim)
        at = maker.entry(maker.victim, chosen, zipped=fields.get("filter") == 1, **fields)
        return of_entry(at, who)
    return damage


def bad_count(maker):
    return {"patches": [(20, struct.pack(maker.orders[0] + "q", -3))], "position": "byte 20", "who": "all"}


def too_many(maker):
    maker.count += 1
    return of_entry(len(maker.metadata), "all")


def unknown_id(maker):
    at = maker.entry(maker.victim, maker.whole(maker.victim), id=555)
    maker.victim.entries.pop()
    maker.set_next(maker.victim.entries[-1], -1)
    return of_entry(at, "all")


def past_the_end(maker):
    # The last entry claims more points than bytes.
    at = maker.entry(maker.victim, (1, [1, 2, 2], [(2, 2)]), spelled=[1 << 40, 2, 2])
    return of_entry(at, "all")


def stream(change):
    def damage(maker):
        dims = maker.victim.dims
        raw = np.arange(int(np.prod(dims)), dtype="<i4").tobytes()
        at = len(maker.data)
        maker.entry(maker.victim, maker.whole(maker.victim), zipped=True, stored=change(raw), filter=1)
        # Bytes that cannot be the rest of a stream.
        maker.data += b"\xff" * 200
        return {"position": "byte %d" % at, "who": "elements"}
    return damage


def last_stream_cut(maker):
    at = len(maker.data)
    dims = maker.victim.dims
    raw = np.random.RandomState(1).randint(0, 1 << 30, dims).astype("<i4").tobytes()
    maker.entry(maker.victim, maker.whole(maker.victim), zipped=True, stored=zlib.compress(raw)[:-7], filter=1)
    while not maker.data.endswith(zlib.compress(raw)[:-7]):
        maker.data.pop()
    return {"position": "byte %d" % at, "who": "elements"}


def data_past_the_end(maker):
    at = maker.entry(maker.victim, maker.whole(maker.victim), zipped=False, pointer=len(maker.data) + 1)
    return of_entry(at, "elements")


def cycle(maker):
    entries = maker.victim.entries
    maker.set_next(entries[-1], entries[-2][0])
    return of_entry(entries[-1][0])


def bad_next(maker):
    last = maker.victim.entries[-1]
    maker.set_next(last, -5)
    return of_entry(last[0])


def other_chain(maker):
    first, *rest = maker.victim.entries
    maker.victim.first = rest[-1][0]
    maker.set_next(rest[-1], first[0])
    maker.set_next(rest[-2] if len(rest) > 1 else first, -1)
    return {"position": "byte %d" % maker.victim.first, "who": "complaint"}


def short_chain(maker):
    maker.set_next(maker.victim.entries[0], -1)
    return {"position": "byte %d" % maker.victim.entries[0][0], "who": "complaint"}


def hole(maker):
    # Its chunk is not allocated: see FILE_DAMAGE.
    at = maker.entry(maker.victim, maker.whole(maker.victim), zipped=False, pointer=1 << 20)
    del at
    return {"position": "%d" % (1 << 20), "who": "elements"}


def make_hole(maker, f):
    f["_data_log"].resize(((1 << 20) + 4096,))


BAD = {
    "metadata-magic": lambda m: {"patches": [(3, b"X")], "position": "byte 0", "who": "all"},
    "metadata-version": lambda m: {"patches": [(15, b"x")], "position": "byte 0", "who": "all"},
    "metadata-format": lambda m: {"patches": [(16, b"\2\0\0\0")], "position": "byte 16", "who": "all"},
    "data-magic": lambda m: {"data_patches": [(0, b"X")], "position": "byte 0", "who": "all"},
    "data-format": lambda m: {"data_patches": [(12, b"\0\0\0\0")], "position": "byte 12", "who": "all"},
    "negative-count-of-entries": bad_count,
    "too-few-entries": too_many,
    "entry-past-the-end": past_the_end,
    "byte-order": wrong_entry("all", flag=b"\2\0\0\0"),
    "unknown-id": unknown_id,
    "unknown-selection": wrong_entry("all", kind=2),
    "negative-points": wrong_entry("all", kind=1, spelled=[-1]),
    "negative-start": wrong_entry("victim", spelled=[0, -1, 1, 1]),
    "negative-block": wrong_entry("victim", spelled=[0, 0, -1, 1]),
    "block-outside": wrong_entry("victim", spelled=[5, 0, 2, 1]),
    "start-outside": wrong_entry("victim", spelled=[0, 6, 1, 1]),
    "point-outside": wrong_entry("victim", kind=1, spelled=[1, 6, 0]),
    "negative-point": wrong_entry("victim", kind=1, spelled=[1, -1, 0]),
    "unknown-filter": wrong_entry("elements", filter=2),
    "data-in-header": wrong_entry("elements", pointer=15),
    "negative-data": wrong_entry("elements", pointer=-16),
    "data-past-the-end": data_past_the_end,
    "hole": hole,
    "stream-short": stream(lambda raw: zlib.compress(raw[:-4])),
    "stream-long": stream(lambda raw: zlib.compress(raw + b"1234")),
    "stream-broken": stream(lambda raw: zlib.compress(raw)[:20] + b"\xff" * 40),
    "stream-checksum": stream(lambda raw: zlib.compress(raw)[:-1] + bytes([zlib.compress(raw)[-1] ^ 1])),
    "stream-past-the-end": last_stream_cut,
    "cycle": cycle,
    "negative-next": bad_next,
    "other-chain": other_chain,
    "short-chain": short_chain,
}

FILE_DAMAGE = {"hole": make_hole}


# Damage to an existing file.
def negative_dims(maker, f):
    f["victim"].attrs.create("_classic_dims", [-6, 5], dtype="<i8")


def float_id(maker, f):
    f["victim"].attrs.create("_classic_first", 0.5)


def no_scalar(maker, f):
    attributes = dict(f["victim"].attrs)
    del f["victim"]
    f.create_dataset("victim", (2,), "<i4").attrs.update(attributes)


def twin(maker, f):
    f.copy("victim", "twin")


for name, damage in [("anchor-dims", negative_dims), ("anchor-first", float_id), ("anchor-shape", no_scalar),
                     ("anchor-twice", twin)]:
    BAD[name] = lambda m: {"position": "dataset /victim", "who": "victim"}
    FILE_DAMAGE[name] = damage


def write_long(seed, path, expected_path):
    """A data log of more small chunks than the first parts of any index hold, many of them unwritten."""
    libver = ["earliest", ("v110", "v110")][seed % 2]
    near, far, number = 16, 2600000, 1000000
    entry = struct.Struct("<iqiqqiqq")
    metadata = b"logvol_metadata1" + struct.pack("<iq", 1, 2)
    metadata += entry.pack(0, 0, 0, 0, number, 0, near, -1) + entry.pack(0, 1, 0, 0, number, 0, far, -1)
    with h5py.File(path, "w", libver=libver) as f, h5py.File(expected_path, "w") as e:
        f.create_dataset("_metadata_log", data=np.frombuffer(metadata, "u1"), maxshape=(None,), chunks=(1024,))
        log = f.create_dataset("_data_log", (far + number,), "u1", maxshape=(None,), chunks=(16,))
        log[:16] = np.frombuffer(b"logvol_data1" + struct.pack("<i", 1), "u1")
        for id, at in enumerate([near, far]):
            content = np.random.RandomState(seed + id).randint(0, 256, number).astype("u1")
            log[at:at + number] = content
            e["d%d" % id] = content
            anchor = f.create_dataset("d%d" % id, (), "u1")
            for name, value in [("id", id), ("dims", [number]), ("first", 28 + id * entry.size)]:
                anchor.attrs.create("_classic_" + name, value, dtype="<i8")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bad", choices=sorted(BAD), action="append", metavar="NAME", help="once for each case, if at all")
    p.add_argument("--long", action="store_true")
    p.add_argument("--list-bad", action="store_true")
    p.add_argument("cases", nargs="*", metavar="SEED FILE EXPECTED")
    opts = p.parse_args()
    if opts.list_bad:
        print("\n".join(BAD))
        return 0
    cases = [opts.cases[n:n + 3] for n in range(0, len(opts.cases), 3)]
    for (seed, path, expected), bad in zip(cases, opts.bad or [None] * len(cases), strict=True):
        if opts.long:
            write_long(int(seed), path, expected)
        else:
            Maker(int(seed), bad).write(path, expected)
    return 0


if __name__ == "__main__":
    sys.exit(main())
