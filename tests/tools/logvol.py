#!/usr/bin/env python3
"""logvol.py [--foreign] FILE EXPECTED ...: is each FILE a closed log by docs/formats/logvol.md, and does it hold EXPECTED?

A decoder written from the page alone, which shares no code with this project's reader. Section numbers are those of the page.
The rules of section 13 for writers are checked, too. EXPECTED is a plain HDF5 file; `-` skips the data. --foreign: the files
were made by another program than this project's writer.
"""
import os
import struct
import sys
import zlib

import h5py
import numpy as np
from h5py import h5d, h5s, h5t

from meant import Comparer, fill_value

MUL, ENC, DEFL, REF, REC = 1, 4, 8, 16, 32
HEADER = struct.Struct("<iiiqq")
INTERNAL = {"_dims", "_mdims", "_ID", "_h5logfs_chunk", "_h5logfs_filters"}


class Fault(Exception):
    pass


def need(holds, what):
    if not holds:
        raise Fault(what)


def numbers(on, name, datatype, length=None):
    """The values of an internal attribute, which must be a list of exactly this type."""
    attribute = h5py.h5a.open(on.id, name.encode())
    need(attribute.get_type().equal(datatype), f"{on.name}: type of {name}")
    need(attribute.get_space().get_simple_extent_type() == h5s.SIMPLE, f"{on.name}: {name} is no list")
    need(len(attribute.shape) == 1, f"{on.name}: shape of {name} is {attribute.shape}")
    need(length in (None, attribute.shape[0]), f"{on.name}: length of {name} is {attribute.shape}")
    out = np.zeros(attribute.shape, datatype.dtype)
    if out.size:
        attribute.read(out)
    return [int(v) for v in out]


def presented(name, internal, where):
    """The user's name for a stored name (section 1.3); None for one of the layout's own."""
    if name in internal:
        return None
    need(not name.startswith("_") or name.startswith("__"), f"{where}: {name!r} is not escaped")
    return name[1:] if name.startswith("__") else name


class Anchor:
    """An anchor dataset: section 2, and the extensions."""

    def __init__(self, dataset, path):
        self.path, self.dataset = path, dataset
        space = dataset.id.get_space()
        creation = dataset.id.get_create_plist()
        need(creation.get_layout() == h5d.CONTIGUOUS, f"{path}: it is not contiguous")
        need(dataset.id.get_storage_size() == 0 and dataset.id.get_offset() is None, f"{path}: it has storage")
        need(creation.get_nfilters() == 0, f"{path}: it has filters")
        self.dims = numbers(dataset, "_dims", h5t.STD_I64LE)
        self.rank = len(self.dims)
        if dataset.attrs.get("CLASS") == b"DIMENSION_SCALE":
            stub = (0,) * max(self.rank, 1)
            need(space.get_simple_extent_dims() == stub, f"{path}: a scale of {space.get_simple_extent_dims()}, not {stub}")
        else:
            need(space.get_simple_extent_type() == h5s.NULL, f"{path}: its dataspace is not null")
        self.max_dims = numbers(dataset, "_mdims", h5t.STD_I64LE, self.rank)
        self.id, = numbers(dataset, "_ID", h5t.STD_I32LE, 1)
        limits = zip(self.dims, self.max_dims)
        need(all(d >= 0 and (m == -1 or m >= d) for d, m in limits), f"{path}: {self.dims} of {self.max_dims}")
        self.chunk, self.filters = None, []
        if "_h5logfs_chunk" in dataset.attrs:
            self.chunk = numbers(dataset, "_h5logfs_chunk", h5t.STD_I64LE, self.rank)
            need(all(c > 0 for c in self.chunk), f"{path}: chunks of {self.chunk}")
        if "_h5logfs_filters" in dataset.attrs:
            words = numbers(dataset, "_h5logfs_filters", h5t.STD_U32LE)
            while words:
                filter_id, _flags, n = words[:3]
                self.filters.append((filter_id, words[3:3 + n]))
                need(len(words) >= 3 + n, f"{path}: its filters are cut short")
                words = words[3 + n:]
        self.size = dataset.id.get_type().get_size()
        self.entries = []


class Entry:
    """An entry: sections 5 and 6. `blocks`: a list of (start, count)."""

    def __init__(self, at, did, flag, foff, fsize):
        self.at, self.did, self.flag, self.foff, self.fsize = at, did, flag, foff, fsize
        self.record, self.body, self.blocks = None, b"", None

    def spell(self, anchor):
        """Decodes the selection for a dataset."""
        k = anchor.rank - (self.record is not None)
        body, n = self.body, 1
        if self.flag & MUL:
            n, = struct.unpack_from("<i", body)
            need(n > 1, f"{n} blocks in an entry of several")
            body = body[4:]
        if self.flag & ENC:
            starts, counts = self.encoded(body, n, k, anchor)
        else:
            need(len(body) == 16 * k * n, f"{len(body)} bytes for {n} blocks of {k} dimensions")
            values = np.frombuffer(body, "<i8").reshape(2, n, k)
            starts, counts = values.tolist()
        if self.record is not None:
            starts = [[self.record] + s for s in starts]
            counts = [[1] + c for c in counts]
        for start, count in zip(starts, counts):
            inside = all(s >= 0 and c > 0 and s + c <= d for s, c, d in zip(start, count, anchor.dims))
            need(inside, f"a block at {start} of {count} in {anchor.dims}")
        return list(zip(starts, counts))

    def encoded(self, body, n, k, anchor):
        """Decodes section 6.2. All counts must be below the sides implied by the steps, so that both decodings agree. If a
        count is a whole dimension, the steps are those of dimensions longer by one."""
        need(self.flag & MUL and k >= 2, "an encoded entry without several blocks and dimensions")
        need(len(body) == 8 * (k - 1 + 2 * n), f"{len(body)} bytes for {n} encoded blocks")
        words = np.frombuffer(body, "<i8").tolist()
        steps = words[:k - 1] + [1]
        final = anchor.dims[anchor.rank - k:]
        sides = [None] + [steps[i] // steps[i + 1] for i in range(k - 1)]
        for i in range(1, k):
            need(steps[i - 1] == steps[i] * sides[i] and 0 < sides[i] <= final[i] + 1, f"steps {steps} in {final}")
        sides[0] = final[0] + 1

        def digits(value):
            found = []
            for step in steps:
                found.append(value // step)
                value %= step
            return found

        starts = [digits(s) for s in words[k - 1:k - 1 + n]]
        encoded = words[k - 1 + n:]
        counts = [digits(c) for c in encoded]
        other = [[d + 1 for d in digits(c - sum(steps))] for c in encoded]
        need(counts == other, f"counts {counts} that readers decode in two ways")
        for count in counts:
            need(all(0 < c < d for c, d in zip(count, sides)), f"an encoded count of {count} in {sides}")
        return starts, counts


def section(data, anchors):
    """The entries of one section, each with its blocks."""
    at, found = 0, {}
    while at < len(data):
        need(at + HEADER.size <= len(data), "an entry that is cut short")
        size, did, flag, foff, fsize = HEADER.unpack_from(data, at)
        need(size >= HEADER.size and at + size <= len(data), f"an entry of {size} bytes")
        need(flag & ~(MUL | ENC | REF | REC) == 0, f"flags {flag:#x}")
        need(did in anchors, f"no dataset has the ID {did}")
        anchor, entry = anchors[did], Entry(at, did, flag, foff, fsize)
        body = data[at + HEADER.size:at + size]
        if flag & REC:
            need(anchor.max_dims and anchor.max_dims[0] == -1, f"{anchor.path}: a record of a fixed dimension")
            entry.record, = struct.unpack_from("<q", body)
            body = body[8:]
        if flag & REF:
            need(len(body) == 8, f"a reference of {len(body)} bytes")
            target = found.get(at + struct.unpack("<q", body)[0])
            need(target is not None, "a reference to no earlier entry of the section")
            need(not target.flag & REF, "a reference to a reference")
            need(target.flag & (REC | MUL | ENC) == flag & (REC | MUL | ENC), "a reference to an entry of other form")
            need(len(target.body) > 8, "a reference to a selection that is too short to share")
            entry.body = target.body
        else:
            entry.body = body
        try:
            entry.blocks = entry.spell(anchor)
        except Fault as fault:
            raise Fault(f"{anchor.path}: {fault}") from None
        found[at] = entry
        at += size
    return list(found.values())


class Log:
    """A file with a `/_LOG` (sections 1.2 and 4), read byte by byte except for the addresses."""

    def __init__(self, path, file, anchors, numbers_of_logs):
        group = file["_LOG"]
        need(not group.attrs, "_LOG has attributes")
        logs, tables = numbers_of_logs
        names = {"_ld_%d" % i for i in range(logs)} | {"_md_%d" % i for i in range(tables)}
        need(set(group) == names, f"_LOG holds {sorted(group)}, but _int_att says {numbers_of_logs}")
        need(logs == tables and logs <= 1, f"{logs} data logs and {tables} tables")
        self.entries, self.sections = [], 0
        if not logs:
            return
        with open(path, "rb") as raw:
            self.raw = raw.read()
        start, end = self.extent(group["_ld_0"])
        table_start, table_end = self.extent(group["_md_0"])
        need(end <= table_start or table_end <= start, "_ld_0 and _md_0 overlap")
        table = self.raw[table_start:table_end]
        count, = struct.unpack_from("<q", table)
        need(count >= 1 and len(table) > 8 * (count + 1), f"a table of {count} sections and {len(table)} bytes")
        ends = struct.unpack_from(f"<{count}q", table, 8)
        need(ends[-1] == len(table), f"the last section ends at {ends[-1]} of {len(table)}")
        self.sections, at = count, 8 * (count + 1)
        for section_end in ends:
            need(section_end >= at, "sections that end before they begin")
            self.entries += section(table[at:section_end], anchors)
            at = section_end
        self.check_ranges(start, end)

    def extent(self, dataset):
        creation, name = dataset.id.get_create_plist(), dataset.name
        need(dataset.id.get_type().equal(h5t.STD_B8LE), f"{name}: type")
        need(len(dataset.shape) == 1 and dataset.maxshape == dataset.shape, f"{name}: shape")
        need(creation.get_layout() == h5d.CONTIGUOUS and creation.get_nfilters() == 0, f"{name}: layout")
        need(creation.get_alloc_time() == h5d.ALLOC_TIME_EARLY, f"{name}: allocation time")
        need(not dataset.attrs, f"{name}: it has attributes")
        start = dataset.id.get_offset()
        end = start + dataset.shape[0]
        need(end <= len(self.raw), f"{name}: it ends past the file")
        return start, end

    def check_ranges(self, start, end):
        at = start
        for entry in sorted(self.entries, key=lambda e: e.foff):
            need(entry.fsize > 0, "an entry without data")
            need(entry.foff >= at, f"the data of two entries overlap at {entry.foff}")
            at = entry.foff + entry.fsize
        need(at <= end, "data that end past _ld_0")


def unfiltered(stored, filters):
    for filter_id, values in reversed(filters):
        if filter_id == 1:
            stored = zlib.decompress(stored)
        elif filter_id == 2:
            size = values[0]
            whole = len(stored) // size * size
            planes = np.frombuffer(stored[:whole], np.uint8).reshape(size, -1)
            stored = planes.T.tobytes() + stored[whole:]
        else:
            need(filter_id == 3, f"filter {filter_id}")
            stored = without_checksum(stored)
    return stored


def without_checksum(stored):
    """Fletcher's checksum over big-endian words of 16 bits, as in libhdf5, stored little-endian."""
    data, given = stored[:-4], struct.unpack("<I", stored[-4:])[0]
    words = np.frombuffer(data[:len(data) // 2 * 2], ">u2").tolist()
    if len(data) % 2:
        words.append(data[-1] << 8)
    low = high = 0
    for word in words:
        low += word
        high += low

    def folded(total):
        # Sums that are a multiple of 65535 stay 65535; only the sum of no data is 0.
        return (total - 1) % 65535 + 1 if total else 0

    need((folded(high) << 16 | folded(low)) == given, "a wrong checksum")
    return data


def contents(anchor, logs):
    """All elements of a dataset as bytes. Section 7 gives the order in which entries apply."""
    size = anchor.size
    fill = np.frombuffer(fill_value(anchor.dataset), np.uint8)
    out = np.empty(tuple(anchor.dims) + (size,), np.uint8)
    out[...] = fill
    for log in logs:
        for entry in sorted((e for e in log.entries if e.did == anchor.id), key=lambda e: e.foff):
            raw_size = size * sum(int(np.prod(count, dtype=np.int64)) for _, count in entry.blocks)
            stored = log.raw[entry.foff:entry.foff + entry.fsize]
            if entry.fsize != raw_size:
                need(anchor.filters, f"{anchor.path}: {entry.fsize} bytes for {raw_size}")
                need(entry.fsize < raw_size, f"{anchor.path}: filters made more of it")
                stored = unfiltered(stored, anchor.filters)
                need(len(stored) == raw_size, f"{anchor.path}: {len(stored)} bytes behind the filters")
            at = 0
            for start, count in entry.blocks:
                part = size * int(np.prod(count, dtype=np.int64))
                place = tuple(slice(s, s + c) for s, c in zip(start, count))
                block = np.frombuffer(stored[at:at + part], np.uint8)
                out[place] = block.reshape(tuple(count) + (size,))
                at += part
    return out


def anchors_of(file):
    found = []

    def walk(group, path, internal, attributes):
        for name in group.attrs:
            presented(name, attributes, path or "/")
        for name in group:
            seen = presented(name, internal, path or "/")
            if seen is None:
                continue
            child, below = group[name], f"{path}/{seen}"
            if isinstance(child, h5py.Group):
                walk(child, below, set(), set())
            else:
                for attribute in child.attrs:
                    presented(attribute, INTERNAL, below)
                found.append(Anchor(child, below))

    walk(file, "", {"_LOG"}, {"_int_att", "_h5logfs_writer"})
    return found


def check_writer(file):
    name = h5py.h5a.open(file.id, b"_h5logfs_writer")
    datatype = name.get_type()
    need(isinstance(datatype, h5t.TypeStringID) and not datatype.is_variable_str(), "type of _h5logfs_writer")
    text = file.attrs["_h5logfs_writer"]
    need(text.startswith(b"h5logfs ") and b"This is an h5logfs log" in text, "value of _h5logfs_writer")


def check(path, expected, foreign=False):
    with h5py.File(path, "r") as file:
        if not foreign:
            check_writer(file)
        datasets, logs, tables, config, subfiles = numbers(file, "_int_att", h5t.STD_I32LE, 5)
        anchors = anchors_of(file)
        need(sorted(a.id for a in anchors) == list(range(datasets)), f"IDs of {datasets} datasets")
        need(config & ~0x20a == 0, f"config bits {config:#x}")
        by_id = {a.id: a for a in anchors}
        if config & 0x200:
            # Section 10.
            need(logs == tables == 0 and "_LOG" not in file, "a master with a log of its own")
            found = [subfile(path, i, by_id, [datasets, config & ~0x200, subfiles]) for i in range(subfiles)]
        else:
            need(subfiles == 1, f"{subfiles} subfiles of a log that has none")
            found = [Log(path, file, by_id, (logs, tables))]
        if not config & 8:
            need(not any(e.flag & REF for log in found for e in log.entries), "a reference, though none are shared")
        if not config & 2:
            need(not any(e.flag & ENC for log in found for e in log.entries), "an encoded entry, though none are")
        if expected != "-":
            compare(anchors, found, expected)
        return [e.flag for log in found for e in log.entries]


def subfile(master, number, anchors, wanted):
    path = os.path.join(master + ".subfiles", f"{os.path.basename(master)}.{number}")
    with h5py.File(path, "r") as file:
        check_writer(file)
        datasets, logs, tables, config, subfiles = numbers(file, "_int_att", h5t.STD_I32LE, 5)
        need([datasets, config, subfiles] == wanted, f"{path}: _int_att")
        need(set(file) == {"_LOG"} and set(file.attrs) == {"_int_att", "_h5logfs_writer"}, f"{path}: more than a log")
        return Log(path, file, anchors, (logs, tables))


def compare(anchors, logs, expected):
    with h5py.File(expected, "r") as plain:
        paths = []
        plain.visititems(lambda name, o: paths.append("/" + name) if isinstance(o, h5py.Dataset) else None)
        need(sorted(paths) == sorted(a.path for a in anchors), f"datasets {[a.path for a in anchors]}")
        for anchor in anchors:
            meant = Comparer.slab(plain[anchor.path], ())
            found = contents(anchor, logs)
            need(found.shape == meant.shape, f"{anchor.path}: {found.shape} instead of {meant.shape}")
            need(found.tobytes() == meant.tobytes(), f"{anchor.path}: other data")


def main():
    bad, flags = 0, {}
    foreign = sys.argv[1:2] == ["--foreign"]
    files = sys.argv[1 + foreign:]
    for path, expected in zip(files[::2], files[1::2]):
        try:
            for flag in check(path, expected, foreign):
                flags[flag] = flags.get(flag, 0) + 1
        except (Fault, OSError, KeyError, struct.error, zlib.error) as fault:
            print(f"{path}: {fault}")
            bad += 1
    print("entries by flags:", " ".join(f"{flag:02x}:{n}" for flag, n in sorted(flags.items())))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
