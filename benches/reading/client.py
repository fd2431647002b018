"""Reads HDF5 files for the benchmark, as any h5py program would, and takes the time.

client.py: opens files by their paths. HDF5_DRIVER in the environment says how libhdf5 does that.
client.py OPTIONS: opens them with the Python package h5logfs, with these options as `mount -o` takes them, and reads
them through the file object.
client.py OPTIONS READER: reads them as arrays, without HDF5. READER is a number of threads (0: one on each core) of that package;
hidefix, which reads native files; adios2 and openpmd_api, which read ADIOS2 directories; zarr, or zarr with the codecs of zarrs, which read references to the log.

One request a line on standard input, one answer a line on standard output, both JSON. The interpreter
and the libraries are loaded before the first request; the memory that is read into is allocated, and
touched, before the clock starts.
"""

import hashlib
import json
import sys
import time

import h5py
import numpy
from h5py import h5d, h5f, h5s

PIECE = 64 << 20
GOLDEN = numpy.uint64(0x9E3779B97F4A7C15)
MIX = numpy.uint64(0x94D049BB133111EB)

memory = numpy.zeros(0, numpy.uint8)

if len(sys.argv) > 1:
    OPTIONS = dict(option.split("=", 1) for option in sys.argv[1].split(",") if option)

READER = sys.argv[2] if len(sys.argv) > 2 else None

if READER == "adios2":
    import adios2
elif READER == "openpmd_api":
    import openpmd_api
elif len(sys.argv) > 1:
    import h5logfs

    if READER is not None and READER.isdigit():
        h5logfs.Array  # Loads what reads arrays.


def opened(path):
    """The identifier of an open file."""
    if len(sys.argv) > 1:
        return h5py.File(h5logfs.open(path, **OPTIONS)).id
    return h5f.open(path.encode(), h5f.ACC_RDONLY)


def room(read):
    """Where the elements of a read go, as an array of their type."""
    global memory
    dtype = numpy.dtype(read["type"])
    count = read["count"]
    size = int(numpy.prod(count, dtype=numpy.int64)) * dtype.itemsize
    if memory.size < size:
        memory = numpy.zeros(size, numpy.uint8)
        memory[::4096] = 1
    return memory[:size].view(dtype).reshape(count)


class Hidefix:
    """The arrays of a native file."""

    def __init__(self, path):
        import hidefix

        self.index = hidefix.Index(path)

    def __getitem__(self, name):
        return self.index.dataset(name)


class Adios:
    """The variables of an ADIOS2 directory. With several steps, the first dimension is that of the steps, as in the canonical file."""

    def __init__(self, path):
        self.file = adios2.FileReader(path)
        self.steps = self.file.num_steps()

    def __iter__(self):
        return iter(self.file.available_variables())

    def __getitem__(self, name):
        return AdiosVariable(self, name)


class AdiosVariable:
    """One of its variables."""

    def __init__(self, of, name):
        self.engine, self.has_steps = of.file.engine, of.steps > 1
        self.variable = of.file.inquire_variable(name)

    def read_direct(self, target, key):
        start, count = [k.start for k in key], [k.stop - k.start for k in key]
        if self.has_steps:
            self.variable.set_step_selection([start.pop(0), count.pop(0)])
        self.variable.set_selection([start, count])
        self.engine.get(self.variable, target, adios2.bindings.Mode.Sync)


class OpenPmd:
    """The meshes of an iteration of an openPMD series, by their paths."""

    def __init__(self, path):
        self.series = openpmd_api.Series(path, openpmd_api.Access.read_only)

    def __getitem__(self, name):
        _, iteration, _, mesh, component = name.split("/")
        return OpenPmdMesh(self.series, self.series.iterations[int(iteration)].meshes[mesh][component])


class OpenPmdMesh:
    """A component of one of its meshes."""

    def __init__(self, series, component):
        self.series, self.component = series, component

    def read_direct(self, target, key):
        start, count = [k.start for k in key], [k.stop - k.start for k in key]
        self.component.load_chunk(target, start, count)
        self.series.flush()


def zarr_group(path):
    """The references of a log as a group of Zarr."""
    import fsspec
    import zarr

    if READER == "zarrs":
        zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    fs = fsspec.filesystem(
        "reference", fo=h5logfs.references(path, **OPTIONS), remote_protocol="file", asynchronous=True,
        remote_options={"asynchronous": True},
    )
    return zarr.open_group(zarr.storage.FsspecStore(fs, read_only=True, path=""), mode="r", zarr_format=2)


def opened_arrays(path):
    """What gives arrays by their names."""
    if READER == "hidefix":
        return Hidefix(path)
    if READER == "adios2":
        return Adios(path)
    if READER == "openpmd_api":
        return OpenPmd(path)
    if READER in ("zarr", "zarrs"):
        return zarr_group(path)
    return h5logfs.Log(path, threads=int(READER), **OPTIONS)


def arrays(reads, targets):
    """What opens a log, and gives what does one of the reads from its arrays, what closes it, and what lists its names."""
    keys = [tuple(slice(s, s + n) for s, n in zip(read["start"], read["count"])) for read in reads]

    def open_log(path):
        log, found = opened_arrays(path), {}

        def read(number):
            name = reads[number]["dataset"]
            array = found.get(name)
            if array is None:
                array = found[name] = log[name]
            if hasattr(array, "read_direct"):
                array.read_direct(targets[number], keys[number])
            else:
                targets[number] = array[keys[number]]

        return read, found.clear, lambda: names_in(log)

    return open_log


def hdf5(reads, targets):
    """The same with HDF5."""
    spaces = [h5s.create_simple(tuple(read["count"])) for read in reads]
    names = [read["dataset"].encode() for read in reads]
    blocks = [(tuple(read["start"]), tuple(read["count"])) for read in reads]

    def open_file(path):
        file, datasets = opened(path), {}

        def read(number):
            name = names[number]
            dataset = datasets.get(name)
            if dataset is None:
                dataset = datasets[name] = h5d.open(file, name)
            space = dataset.get_space()
            space.select_hyperslab(*blocks[number])
            dataset.read(spaces[number], space, targets[number])

        def close():
            datasets.clear()
            file.close()

        def listed():
            found = []
            h5py.h5o.visit(file, found.append)
            return found

        return read, close, listed

    return open_file


def timed(request):
    """Opens the file, does the reads one after the other, closes it."""
    reads = request["reads"]
    targets = [room(read) for read in reads]
    # The memory may have moved while it grew.
    targets = [room(read) for read in reads]
    open_file = (hdf5 if READER is None else arrays)(reads, targets)
    each = [0.0] * len(reads)
    if "begin" in request:
        time.sleep(max(0.0, request["begin"] - time.clock_gettime(time.CLOCK_MONOTONIC)))
    begun = time.clock_gettime(time.CLOCK_MONOTONIC)
    read, close, listed = open_file(request["path"])
    if request.get("names"):
        listed()
    last = time.perf_counter()
    opening = time.clock_gettime(time.CLOCK_MONOTONIC) - begun
    for number in range(len(reads)):
        read(number)
        now = time.perf_counter()
        each[number] = now - last
        last = now
    # What is closed may have to be read again: that is part of what the next reader pays.
    ended = time.clock_gettime(time.CLOCK_MONOTONIC)
    first = targets[0].reshape(-1)[:1].astype(float).tolist() if reads else []
    close()
    return {"begun": begun, "ended": ended, "open": opening, "each": each, "first": first}


def described(request):
    """All datasets of numbers that have elements."""
    found = []

    def note(name, item):
        if isinstance(item, h5py.Dataset) and item.size and item.dtype.kind in "iuf" and item.ndim:
            found.append({"dataset": name, "type": item.dtype.str, "count": item.shape})

    with h5py.File(opened(request["path"])) as file:
        file.visititems(note)
    return {"datasets": found}


def pieces(dataset):
    """The elements in row-major order, some rows at a time: place of the first one, and all of them."""
    if dataset.ndim == 0:
        yield 0, numpy.asarray(dataset[()])
        return
    row = int(numpy.prod(dataset.shape[1:], dtype=numpy.int64))
    step = max(1, PIECE // max(1, row * dataset.dtype.itemsize))
    for first in range(0, dataset.shape[0], step):
        yield first * row, dataset[first : first + step]


def arrays_below(group, path=""):
    """All arrays of a log, with their paths."""
    for name, item in group.items():
        if isinstance(item, h5logfs.Group):
            yield from arrays_below(item, f"{path}{name}/")
        else:
            yield path + name, item


def names_in(log):
    """The names of all arrays."""
    return list(log) if READER == "adios2" else [name for name, _ in arrays_below(log)]


def digested(request):
    """A digest of the elements of each dataset."""
    found = {}

    def note(name, item):
        if not isinstance(item, h5py.Group) and item.shape is not None:
            digest = hashlib.sha256(repr((item.dtype.str, tuple(item.shape))).encode())
            for _, elements in pieces(item):
                digest.update(numpy.ascontiguousarray(elements).tobytes())
            found[name] = digest.hexdigest()

    if READER is not None and READER.isdigit():
        for name, array in arrays_below(opened_arrays(request["path"])):
            note(name, array)
        return {"digests": found}
    with h5py.File(opened(request["path"])) as file:
        file.visititems(note)
    return {"digests": found}


def expected(pattern, key, first, count):
    """What `generate/values.rs` says."""
    places = numpy.arange(first, first + count, dtype=numpy.uint64)
    mixed = places * GOLDEN + numpy.uint64(key)
    noise = (mixed ^ mixed >> numpy.uint64(32)) * MIX >> numpy.uint64(40)
    if pattern == "noise":
        return noise
    slow = (places >> numpy.uint64(6)) & numpy.uint64(0xFFF)
    return slow << numpy.uint64(12) | noise >> numpy.uint64(12)


def checked(request):
    """The elements that are not what was generated: how many of each dataset, and the first of them."""
    wrong = []
    with h5py.File(opened(request["path"])) as file:
        for wanted in request["datasets"]:
            dataset = file[wanted["dataset"]]
            bad, where = 0, None
            for first, elements in pieces(dataset):
                elements = elements.reshape(-1)
                want = expected(wanted["pattern"], wanted["key"], first, elements.size)
                differ = numpy.flatnonzero(elements != want.astype(dataset.dtype))
                if differ.size and where is None:
                    at = int(differ[0])
                    where = f"element {first + at} is {elements[at]}, not {want[at]}"
                bad += int(differ.size)
            if bad:
                wrong.append(f"{wanted['dataset']}: {bad} of {dataset.size} elements, {where}")
    return {"wrong": wrong}


def versions(request):
    return {"versions": f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}"}


DO = {"time": timed, "describe": described, "digest": digested, "check": checked, "versions": versions}

if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = DO[request["do"]](request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
