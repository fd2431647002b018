#!/usr/bin/env python3
"""serial.py PROGRAM.json FLUSHES OUT ...: the meaning of a random program of the writer, as one plain HDF5 file.

Reads programs drawn by tests/programs/random, and writes with libhdf5 alone what their first FLUSHES rounds leave: flush by
flush, first the definitions, then the writes rank by rank, those of a rank in its order. The writer's own code has no part in
it: types are made with gaps as in the programs' memory, and selections are libhdf5's hyperslabs and points.
"""
import ctypes
import json
import os
import re
import sys

import h5py
import numpy as np
from h5py import h5a, h5d, h5f, h5p, h5s, h5t


def libhdf5():
    """The library that h5py has loaded, which has calls that h5py lacks."""
    with open("/proc/self/maps") as maps:
        names = {line.split()[-1] for line in maps if re.search(r"/libhdf5[^/]*\.so", line)}
    path = next(n for n in sorted(names) if "_hl" not in os.path.basename(n))
    library = ctypes.CDLL(path)
    hid = ctypes.c_int64
    library.H5Pset_fill_value.argtypes = [hid, hid, ctypes.c_char_p]
    library.H5Awrite.argtypes = [hid, hid, ctypes.c_char_p]
    return library


LIBRARY = libhdf5()


def datatype(form, packed=False):
    """A datatype. packed: without gaps, as in the file."""
    if form == "variable_text":
        return h5t.py_create(h5py.string_dtype(), logical=True)
    (kind, of), = form.items()
    if kind in ("integer", "float", "bitfield"):
        order = "BE" if of.get("big_endian") else "LE"
        name = {"float": "IEEE_F", "bitfield": "STD_B"}.get(kind) or ("STD_I" if of["signed"] else "STD_U")
        return getattr(h5t, f"{name}{8 * of['size']}{order}").copy()
    if kind == "opaque":
        made = h5t.create(h5t.OPAQUE, of["size"])
        made.set_tag(of["tag"].encode())
        return made
    if kind == "text":
        made = h5t.C_S1.copy()
        made.set_size(of["size"])
        made.set_strpad(h5t.STR_NULLPAD)
        made.set_cset(h5t.CSET_UTF8 if of["utf8"] else h5t.CSET_ASCII)
        return made
    if kind == "enumeration":
        made = h5t.enum_create(datatype(of["base"]))
        for name, value in of["members"]:
            made.enum_insert(name.encode(), value)
        return made
    if kind == "array":
        return h5t.array_create(datatype(of["base"], packed), tuple(of["dims"]))
    assert kind == "compound", kind
    members = [(m["name"], m["offset"], datatype(m["datatype"], packed)) for m in of["members"]]
    size = sum(m.get_size() for _, _, m in members) if packed else of["size"]
    made = h5t.create(h5t.COMPOUND, size)
    end = 0
    for name, offset, member in members:
        made.insert(name.encode(), end if packed else offset, member)
        end += member.get_size()
    return made


def space(dims, max_dims=None):
    if not dims:
        return h5s.create(h5s.SCALAR)
    limits = tuple(h5s.UNLIMITED if m is None else m for m in (dims if max_dims is None else max_dims))
    return h5s.create_simple(tuple(dims), limits)


def named():
    link = h5p.create(h5p.LINK_CREATE)
    link.set_create_intermediate_group(True)
    link.set_char_encoding(h5t.CSET_UTF8)
    return link


class Serial:
    def __init__(self, path):
        self.file = h5py.File(path, "w")
        self.datasets = []

    def define(self, kind, of):
        if kind == "group":
            self.file.require_group(of["path"])
        elif kind == "dataset":
            self.dataset(of)
        elif kind == "attribute":
            self.attribute(of)
        elif kind == "extend":
            data, _ = self.datasets[of["dataset"]]
            if of["dims"] and tuple(of["dims"]) != data.shape:
                data.set_extent(tuple(of["dims"]))

    def dataset(self, of):
        dims, max_dims = of["dims"], of["max_dims"]
        creation = h5p.create(h5p.DATASET_CREATE)
        filtered = of["shuffle"] or of["deflate"] is not None or of["fletcher32"]
        if of["chunk"] or filtered or dims != max_dims:
            limit = lambda d, m: min(max(d, 1), 16, 16 if m is None else max(m, 1))  # noqa: E731
            creation.set_chunk(tuple(of["chunk"] or map(limit, dims, max_dims)))
        if of["shuffle"]:
            creation.set_shuffle()
        if of["deflate"] is not None:
            creation.set_deflate(of["deflate"])
        if of["fletcher32"]:
            creation.set_fletcher32()
        # Otherwise libhdf5 leaves arbitrary disk content in unwritten parts of contiguous datasets.
        creation.set_fill_time(h5d.FILL_TIME_ALLOC)
        memory = datatype(of["element"])
        if of["fill"] is not None:
            done = LIBRARY.H5Pset_fill_value(creation.id, memory.id, bytes.fromhex(of["fill"]))
            assert done >= 0
        where = self.file.id
        made = h5d.create(where, of["path"].encode(), datatype(of["element"], True), space(dims, max_dims),
                          creation, named())
        self.datasets.append((made, memory))

    def attribute(self, of):
        (kind, value), = of["value"].items()
        name, on = of["name"], self.file[of["object"]]
        if kind == "text":
            on.attrs.create(name, value, dtype=h5py.string_dtype())
        elif kind == "texts":
            on.attrs.create(name, np.array(value, dtype=object), shape=(len(value),), dtype=h5py.string_dtype())
        else:
            memory, data = datatype(value["datatype"]), bytes.fromhex(value["data"])
            stored, shape = datatype(value["datatype"], True), space(value["dims"])
            made = h5a.create(on.id, name.encode(), stored, shape)
            if data:
                assert LIBRARY.H5Awrite(made.id, memory.id, data) >= 0

    def write(self, of):
        dataset, memory = self.datasets[of["dataset"]]
        data = np.frombuffer(bytes.fromhex(of["data"]), np.uint8)
        size, at = memory.get_size(), 0
        for selected, count in self.selections(dataset, of["region"]):
            if count > 0:
                part = data[at:at + size * count].copy()
                dataset.write(h5s.create_simple((count,)), selected, part, mtype=memory)
                at += size * count
        assert at == len(data), of

    def append(self, of):
        dataset, memory = self.datasets[of["dataset"]]
        rows = dataset.shape[0]
        count = tuple(of["dims"])
        if count[0] == 0:
            return
        dataset.set_extent((rows + count[0],) + dataset.shape[1:])
        target = dataset.get_space()
        target.select_hyperslab((rows,) + (0,) * (len(count) - 1), count)
        data = np.frombuffer(bytes.fromhex(of["data"]), np.uint8).copy()
        dataset.write(h5s.create_simple((int(np.prod(count)),)), target, data, mtype=memory)

    @staticmethod
    def selections(dataset, region):
        """Selections and their elements; several if their order matters."""
        (kind, of), = region.items()
        target = dataset.get_space()
        if not dataset.shape:
            yield target, 1
        elif kind == "all":
            target.select_hyperslab((0,) * len(of["dims"]), tuple(of["dims"]))
            yield target, int(np.prod(of["dims"], dtype=np.int64))
        elif kind == "block":
            target.select_hyperslab(tuple(of["start"]), tuple(of["count"]))
            yield target, int(np.prod(of["count"], dtype=np.int64))
        elif kind == "hyperslab":
            count = int(np.prod(of["count"], dtype=np.int64) * np.prod(of["block"], dtype=np.int64))
            if count > 0:
                terms = (tuple(of[t]) for t in ("start", "count", "stride", "block"))
                target.select_hyperslab(*terms)
            yield target, count
        elif kind == "blocks":
            rank = of["rank"]
            for i in range(0, len(of["starts"]), rank):
                start, count = of["starts"][i:i + rank], of["counts"][i:i + rank]
                target = dataset.get_space()
                target.select_hyperslab(tuple(start), tuple(count))
                yield target, int(np.prod(count, dtype=np.int64))
        else:
            points = np.array(of["points"], np.uint64).reshape(-1, of["rank"])
            # If a point occurs twice, the later one counts. libhdf5 does not promise that.
            for point in points:
                target = dataset.get_space()
                target.select_elements(point.reshape(1, -1))
                yield target, 1


def build(program, flushes, out):
    serial = Serial(out)
    for taken in program["rounds"][:flushes]:
        steps = [next(iter(step.items())) for step in taken["steps"]]
        for kind, of in steps:
            serial.define(kind, of)
        for rank in range(program["ranks"]):
            for kind, of in steps:
                if kind == "writes":
                    for write in of[rank]["list"]:
                        serial.write(write)
        # The flush puts them after everything that the round has written.
        for rank in range(program["ranks"]):
            for kind, of in steps:
                if kind == "appends":
                    for append in of[rank]["list"]:
                        serial.append(append)
    serial.file.close()


def main():
    jobs = sys.argv[1:]
    for program, flushes, out in zip(jobs[::3], jobs[1::3], jobs[2::3]):
        with open(program) as text:
            build(json.load(text), int(flushes), out)


if __name__ == "__main__":
    main()
