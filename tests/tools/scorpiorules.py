#!/usr/bin/env python3
"""scorpiorules DIRECTORY EXPECTED [DIRECTORY EXPECTED]...: is each SCORPIO directory the netCDF file EXPECTED?

A decoder after docs/formats/scorpio-bp.md alone. It reads with the package adios2, holds all in memory, and goes element by
element. It is slow, and nothing of it is in the reader under test. Section numbers are those of the page.

A variable that cannot be understood is refused: EXPECTED must not have it. Prints the differences; exit status 1 if there are
any.
"""
import math
import os
import sys

import numpy as np
from adios2 import bindings as adios2

import scorpiosame

ROOT = "/__pio__/"
NETCDF = {1: "i1", 2: "S1", 3: "i2", 4: "i4", 5: "f4", 6: "f8", 7: "u1", 8: "u2", 9: "u4", 10: "i8", 11: "u8"}
#: Types in memory, by `def/adiostype`.
MEMORY = {1: "f4", 2: "f8", 5: "i1", 6: "i2", 7: "i4", 8: "i8", 9: "u1", 10: "u2", 11: "u4", 12: "u8"}
ADIOS = {"float": "f4", "double": "f8", "int8_t": "i1", "int16_t": "i2", "int32_t": "i4", "int64_t": "i8", "uint8_t": "u1",
         "uint16_t": "u2", "uint32_t": "u4", "uint64_t": "u8", "char": "i1"}


class Refused(Exception):
    """What a variable lacks."""


# --- ADIOS2 ---------------------------------------------------------------------------------------

def blocks_of(engine, variable):
    """All blocks of a local array in the open step, in the order of writers and puts. The list that the package gives of them
    cannot be had of negative numbers of one byte."""
    found = []
    while True:
        try:
            variable.SetBlockSelection(len(found))
            values = np.zeros(variable.SelectionSize(), ADIOS[variable.Type()])
            engine.Get(variable, values, adios2.Mode.Sync)
        except (ValueError, RuntimeError):
            break
        found.append(values)
    variable.SetBlockSelection(0)
    return found


def value_of(attribute):
    return attribute.DataString() if attribute.Type() == "string" else np.atleast_1d(attribute.Data())


def read(path):
    """The variables of each step by name, as a value or a list of blocks, and all attributes."""
    adios = adios2.ADIOS()
    io = adios.DeclareIO("scorpio")
    with open(os.path.join(path, "md.idx"), "rb") as index:
        io.SetEngine("BP4" if index.read(64)[37] == 4 else "BP5")
    # A directory that was never closed would be waited for.
    engine = io.Open(path, adios2.Mode.Read)
    steps, attributes = [], {}
    while engine.BeginStep(adios2.StepMode.Read, 0.0) == adios2.StepStatus.OK:
        step = {}
        for name in io.AvailableVariables():
            variable = io.InquireVariable(name)
            if variable.ShapeID() == adios2.ShapeID.LocalArray:
                step[name] = blocks_of(engine, variable)
            else:
                value = np.zeros(1, ADIOS[variable.Type()])
                engine.Get(variable, value, adios2.Mode.Sync)
                step[name] = value[0]
        attributes |= {name: value_of(io.InquireAttribute(name)) for name in io.AvailableAttributes()}
        engine.EndStep()
        steps.append(step)
    engine.Close()
    return steps, attributes


# --- groups (4) -----------------------------------------------------------------------------------

class Groups:
    def __init__(self, first):
        self.members = [list(block) for block in first[f"{ROOT}info/block_list"]]
        self.place = {rank: (group, i) for group, members in enumerate(self.members) for i, rank in enumerate(members)}
        assert len(self.place) == first[f"{ROOT}info/nproc"], "ranks are missing"

    def counts(self, blocks):
        """For each group and frame how many members wrote a block."""
        each = len(blocks) // len(self.members)
        if each * len(self.members) != len(blocks):
            raise Refused("num_block_writers")
        return [np.concatenate(blocks[group * each:(group + 1) * each]) for group in range(len(self.members))]

    def sequences(self, blocks, counts, frames):
        """The elements of each group for each frame."""
        parts, at = {}, 0
        for rank in sorted(self.place):
            group, i = self.place[rank]
            for frame in range(frames):
                if i < counts[group][frame]:
                    parts[frame, group, i] = blocks[at] if at < len(blocks) else None
                    at += 1
        if at != len(blocks):
            raise Refused(f"{len(blocks)} blocks, {at} counted")
        return [[np.concatenate([parts[frame, group, i] for i in range(counts[group][frame])])
                 for group in range(len(self.members))] for frame in range(frames)]


# --- the file -------------------------------------------------------------------------------------

class Scorpio:
    def __init__(self, path):
        self.steps, self.all_attributes = read(path)
        first = self.steps[0]
        assert f"{ROOT}info/nproc" in first, "no directory of SCORPIO"
        self.groups = Groups(first)
        self.has_maps = first.get(f"{ROOT}info/decomp_stored", 1) == 1
        self.dims = {}
        for step in self.steps:
            self.dims |= {name[len(ROOT) + 4:]: int(value) for name, value in step.items() if name.startswith(f"{ROOT}dim/")}
        self.unlimited = {name for name, length in self.dims.items() if length == 0}
        self.refused = {}
        names = [name.split("/")[3] for name in self.all_attributes
                 if name.startswith(f"{ROOT}var/") and name.endswith("/def/nctype") and name.count("/") == 5]
        variables = {}
        for name in sorted(names):
            try:
                variables[name] = Variable(self, name)
            except Refused as refused:
                self.refused[name] = str(refused)
        for name in self.unlimited:
            of = [v.records for v in variables.values() if v.dims and v.dims[0] == name]
            self.dims[name] = max(of, default=0)
        self.netcdf = {
            "dimensions": {name: (length, name in self.unlimited) for name, length in self.dims.items()},
            "attributes": self.attributes(f"{ROOT}global/"),
            "variables": {name: (v.kind, v.dims, v.attributes, v.values()) for name, v in variables.items()},
        }

    def attribute(self, name):
        return self.all_attributes.get(name)

    def number(self, name):
        return int(self.all_attributes[name][0])

    def attributes(self, prefix):
        """Section 7."""
        found = {}
        for name, value in self.all_attributes.items():
            rest = name[len(prefix):]
            if not name.startswith(prefix) or "/" in rest:
                continue
            if isinstance(value, list):
                found[rest] = ("char", value[0].encode())
            else:
                found[rest] = (value.dtype.str[1:], value.tobytes())
        return found

    def decomposition(self, number):
        """The places of each group, from 0 on and -1 for none, and the shape over which they count (6.2)."""
        name = f"{ROOT}decomp/{number}"
        found = [step for step in self.steps if name in step]
        if not self.has_maps or not found:
            raise Refused(f"decomposition {number} is not in the file")
        counts = self.groups.counts(found[0][f"{ROOT}track/num_decomp_block_writers/{number}"])
        (places,) = self.groups.sequences(found[0][name], counts, 1)
        shape = [int(length) for length in self.attribute(f"{name}/dimlen")]
        size = math.prod(shape)
        every = np.concatenate(places)
        if (every < 0).any() and (every == 0).sum() > 1:
            raise Refused(f"decomposition {number} cannot be understood")
        if (every < 0).any() or sorted(every) == list(range(size)):
            every = [group.copy() for group in places]
        else:
            every = [group - 1 for group in places]
        if any((group >= size).any() for group in every):
            raise Refused(f"decomposition {number}: a place beyond {size}")
        return every, shape


class Variable:
    def __init__(self, file, name):
        self.file, self.name, self.records = file, name, 0
        prefix = f"{ROOT}var/{name}"
        self.kind = NETCDF[file.number(f"{prefix}/def/nctype")]
        self.dims = tuple(file.attribute(f"{prefix}/def/dims") or ())
        assert len(self.dims) == file.number(f"{prefix}/def/ndims")
        self.attributes = file.attributes(f"{prefix}/")
        self.fill = scorpiosame.fill_value(self.kind, self.attributes)
        self.default = scorpiosame.fill_value(self.kind, {})
        self.elements = {}
        how = file.attribute(f"{prefix}/def/ncop")
        if how == ["put_var"]:
            self.read_puts()
        elif how == ["darray"]:
            for step in file.steps:
                if prefix in step:
                    self.read_frames(step, prefix)

    def has_records(self):
        return bool(self.dims) and self.dims[0] in self.file.unlimited

    def shape(self):
        return [self.file.dims[name] for name in self.dims]

    def values(self):
        whole = np.full(self.shape(), self.fill, self.kind)
        for at, value in self.elements.items():
            whole[at] = value
        return whole

    def put(self, at, value):
        self.elements[at] = value
        if self.has_records():
            self.records = max(self.records, at[0] + 1)

    def converted(self, values):
        if self.kind == "S1":
            return values.astype("i1").view("S1")
        return values.astype(self.kind)

    # put_var (5)

    def read_puts(self):
        name = f"{ROOT}var/{self.name}"
        for step in self.file.steps:
            found = step.get(name, [])
            if isinstance(found, list):
                for block in found:
                    self.read_put(block)
            else:
                self.put((), self.converted(np.atleast_1d(found))[0])

    def read_put(self, block):
        head = 16 * len(self.dims)
        start, count = np.frombuffer(block[:head].tobytes(), "i8").reshape(2, -1).tolist()
        values = np.frombuffer(block[head:].tobytes(), MEMORY[self.file.number(f"{ROOT}var/{self.name}/def/adiostype")])
        if start[0] == -1:
            start = [0] * len(start)
        if count[0] == -1:
            count = [1 if name in self.file.unlimited else self.file.dims[name] for name in self.dims]
        if self.has_records():
            if count[0] == 0:
                return
            self.records = max(self.records, start[0] + count[0])
            count[0] = 1
        if len(values) != math.prod(count):
            raise Refused(f"a put of {len(values)} elements, not of {count}")
        for at, value in zip(np.ndindex(*count), self.converted(values), strict=True):
            self.put(tuple(a + b for a, b in zip(start, at)), value)

    # darray (6)

    def read_frames(self, step, name):
        track = f"{ROOT}track/{{}}/{self.name}".format
        numbers = np.concatenate(step[track("frame_id")]).tolist()
        decompositions = np.concatenate(step[track("decomp_id")]).tolist()
        fills = iter(np.concatenate(step.get(track("fillval_id")) or [[]]))
        counts = self.file.groups.counts(step[track("num_data_block_writers")])
        if len(numbers) != len(decompositions):
            raise Refused("frame_id and decomp_id")
        sequences = self.file.groups.sequences(step[name], counts, len(numbers))
        for number, decomposition, groups in zip(numbers, decompositions, sequences):
            places, dimlen = self.file.decomposition(abs(decomposition))
            none = next(fills, self.default) if decomposition > 0 else self.default
            if self.kind == "S1" and decomposition > 0:
                none = np.array(none).view("S1")[()]
            self.read_frame(number, places, dimlen, none, groups)

    def read_frame(self, number, places, dimlen, none, groups):
        is_part = len(self.dims) > 1 and (self.has_records() or number >= 0)
        front = (max(number, 0),) if is_part else ()
        lengths = self.shape()[len(front):]
        if self.has_records() and not is_part:
            lengths = [dimlen[-1]]
        while len(dimlen) > len(lengths) and dimlen[0] == 1:
            dimlen = dimlen[1:]
        if len(dimlen) != len(lengths) or any(a > b for a, b in zip(dimlen, lengths)):
            raise Refused(f"shape {dimlen} in {lengths}")
        if is_part and not self.has_records() and number >= self.shape()[0]:
            raise Refused(f"frame {number}")
        frame = np.full(math.prod(dimlen), none, self.kind)
        for of_map, of_data in zip(places, groups, strict=True):
            if len(of_map) != len(of_data):
                raise Refused(f"frame {number}: {len(of_data)} elements, {len(of_map)} places")
            for place, value in zip(of_map.tolist(), of_data):
                if place >= 0:
                    frame[place] = value if self.kind != "S1" else np.array(value).view("S1")[()]
        for at, value in zip(np.ndindex(*dimlen), frame):
            self.put(front + at, value)


def main():
    paths, found = sys.argv[1:], 0
    for path, expected in zip(paths[::2], paths[1::2], strict=True):
        file = Scorpio(path)
        for text in scorpiosame.differences(file.netcdf, scorpiosame.by_h5py(expected)):
            print(f"{path}: {text}")
            found += 1
        for name, reason in file.refused.items():
            print(f"{path}: {name} is refused: {reason}", file=sys.stderr)
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
