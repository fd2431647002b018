"""Writes directories as SCORPIO leaves them, for the benchmark, and checks what is shown of them.

scorpio.py fields SHARE PATH: 300 variables with six records and three decompositions, 500 MB divided by SHARE, in one step.
scorpio.py frames FRAMES STEPS PATH: so many frames of one small variable.
scorpio.py check SHARE PATH: prints what is wrong in a file that shows the first one.

Four processes in two groups, as docs/formats/scorpio-bp.md says; one process writes the blocks of both.
"""

import sys

import numpy

ROOT = "/__pio__/"
RECORDS, PROCESSES = 6, 4
#: Members of the groups.
GROUPS = [[0, 1], [2, 3]]
FLOAT, DOUBLE = 5, 6
#: How many variables there are of each kind: name, type, and the number of their decomposition.
KINDS = [(60, "levels", FLOAT, 512), (120, "cyclic", FLOAT, 513), (120, "rows", DOUBLE, 514)]
DTYPES = {FLOAT: "<f4", DOUBLE: "<f8"}


def shape(share):
    return 10, 120 // share, 180


def decompositions(share):
    """The shape of each, and the places of each process: boxes of a grid with levels, cyclic, and some rows."""
    lev, lat, lon = shape(share)
    three = numpy.arange(lev * lat * lon).reshape(lev, lat, lon)
    two = numpy.arange(lat * lon).reshape(lat, lon)
    boxes = [half.reshape(-1) for rows in numpy.array_split(three, 2, 1) for half in numpy.array_split(rows, 2, 2)]
    cyclic = [two.reshape(-1)[rank::PROCESSES] for rank in range(PROCESSES)]
    rows = [part.reshape(-1) for part in numpy.array_split(two, PROCESSES)]
    return {512: ([lev, lat, lon], boxes), 513: ([lat, lon], cyclic), 514: ([lat, lon], rows)}


def variables():
    """Names, with type and decomposition."""
    found = []
    for count, name, kind, decomposition in KINDS:
        found += [(f"{name}_{number:03}", kind, decomposition) for number in range(count)]
    return found


def values(number, frame, places):
    """Whole numbers that a float holds."""
    return (places + 37 * number + 11 * frame) % 65521


class Writer:
    """A directory of BP5 with an open step."""

    def __init__(self, path):
        import adios2.bindings

        self.modes = adios2.bindings.Mode
        self.adios = adios2.bindings.ADIOS()
        self.io = self.adios.DeclareIO("out")
        self.io.SetEngine("BP5")
        self.engine = self.io.Open(path, self.modes.Write)
        self.engine.BeginStep()

    def next_step(self):
        self.engine.EndStep()
        self.engine.BeginStep()

    def close(self):
        self.value("info/testing", PROCESSES)
        self.attribute("fillmode", 256)
        self.engine.EndStep()
        self.engine.Close()

    def value(self, name, value, dtype="i4"):
        value = numpy.array(value, dtype)
        name = ROOT + name
        handle = self.io.InquireVariable(name) or self.io.DefineVariable(name, value, [], [], [], False)
        self.engine.Put(handle, value, self.modes.Sync)

    def blocks(self, name, blocks):
        name = ROOT + name
        handle = self.io.InquireVariable(name)
        for block in blocks:
            block = numpy.ascontiguousarray(block)
            handle = handle or self.io.DefineVariable(name, block, [], [], [block.size], False)
            handle.SetSelection([[], [block.size]])
            self.engine.Put(handle, block, self.modes.Sync)

    def attribute(self, name, value):
        if isinstance(value, (str, list)) and not isinstance(value[0], int):
            self.io.DefineAttribute(ROOT + name, value, "", "/")
        else:
            self.io.DefineAttribute(ROOT + name, numpy.atleast_1d(numpy.array(value, "i4")))

    def begin(self, dims):
        self.value("info/nproc", PROCESSES)
        self.value("info/decomp_stored", 1)
        self.value("info/block_nprocs", len(GROUPS[0]))
        self.blocks("info/block_list", [numpy.array(group, "i4") for group in GROUPS])
        for name, length in dims.items():
            self.value(f"dim/{name}", length, "u8")

    def decomposition(self, number, dims, places, kind):
        self.blocks(f"decomp/{number}", gathered([part + 1 for part in places]))
        self.blocks(f"track/num_decomp_block_writers/{number}", [numpy.array([1], "i4")] * len(GROUPS))
        self.attribute(f"decomp/{number}/piotype", kind)
        self.attribute(f"decomp/{number}/ndims", len(dims))
        self.attribute(f"decomp/{number}/dimlen", dims)

    def define(self, name, kind, dims, how, **more):
        about = {"nctype": kind, "ndims": len(dims), "dims": dims, "ncop": how} | more
        for key, value in about.items():
            self.attribute(f"var/{name}/def/{key}", value)

    def track(self, name, frames, decomposition):
        ones = numpy.ones(len(frames), "i4")
        self.blocks(f"track/frame_id/{name}", [numpy.array(frames, "i4")])
        self.blocks(f"track/decomp_id/{name}", [-decomposition * ones])
        self.blocks(f"track/num_data_block_writers/{name}", [ones] * len(GROUPS))

    def times(self, records):
        """put_var of one double for each record."""
        puts = [numpy.concatenate([numpy.array([n, 1], "i8").view("u1"), numpy.array([0.25 * n]).view("u1")]) for n in records]
        self.blocks("var/time", puts)


def gathered(parts):
    """The block of each group's root."""
    return [numpy.concatenate([parts[member] for member in group]) for group in GROUPS]


def fields(share, path):
    out, (lev, lat, lon) = Writer(path), shape(share)
    out.begin({"time": 0, "lev": lev, "lat": lat, "lon": lon})
    out.define("time", DOUBLE, ["time"], "put_var", adiostype=2)
    out.times(range(RECORDS))
    maps = decompositions(share)
    for number, (dims, places) in maps.items():
        out.decomposition(number, dims, places, DOUBLE)
    for number, (name, kind, decomposition) in enumerate(variables()):
        dims, places = maps[decomposition]
        out.define(name, kind, ["time"] + ["lev", "lat", "lon"][-len(dims) :], "darray", decomp=f"{decomposition}")
        out.attribute(f"var/{name}/units", "1")
        out.track(name, range(RECORDS), decomposition)
        frames = [gathered([values(number, frame, part).astype(DTYPES[kind]) for part in places]) for frame in range(RECORDS)]
        # The blocks of a writer come one after the other.
        out.blocks(f"var/{name}", [frame[group] for group in range(len(GROUPS)) for frame in frames])
    out.close()


def frames(count, steps, path):
    out, places = Writer(path), [numpy.arange(rank, 24, PROCESSES) for rank in range(PROCESSES)]
    out.begin({"time": 0, "x": 24})
    out.define("time", DOUBLE, ["time"], "put_var", adiostype=2)
    out.define("T", FLOAT, ["time", "x"], "darray", decomp="512")
    out.decomposition(512, [24], places, FLOAT)
    for step, records in enumerate(numpy.array_split(numpy.arange(count), steps)):
        if step:
            out.next_step()
        out.times(records)
        out.track("T", records, 512)
        each = [gathered([values(0, frame, part).astype("f4") for part in places]) for frame in records]
        out.blocks("var/T", [frame[group] for group in range(len(GROUPS)) for frame in each])
    out.close()


def check(share, path):
    import h5py

    maps = decompositions(share)
    with h5py.File(path, "r") as file:
        if not (file["time"][()] == 0.25 * numpy.arange(RECORDS)).all():
            print("time")
        for number, (name, kind, decomposition) in enumerate(variables()):
            dims = maps[decomposition][0]
            every = numpy.arange(numpy.prod(dims))
            want = numpy.array([values(number, frame, every) for frame in range(RECORDS)], DTYPES[kind])
            got = file[name][()]
            if got.dtype != want.dtype or got.tobytes() != want.tobytes():
                print(f"{name}: {got.dtype} {got.shape}")


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    {"fields": fields, "frames": frames, "check": check}[what](*map(int, given[:-1]), given[-1])
