#!/usr/bin/env python3
"""adios make DIR RANKS FIRST COUNT: runs random ADIOS2 programs. Program N, with the seed FIRST + N, writes DIR/N.bp.
adios check DIR RANKS SHOWN FIRST COUNT: does SHOWN/N.bp, an HDF5 file, have what program N has put?

If RANKS is more than 1, as many MPI processes make the programs together, with an ADIOS2 that has MPI.

The tested reader plays no part in the expectation: programs are made again from their seeds, and their puts are laid out by the
rules of docs/formats/adios-bp.md, section 8. The reader of ADIOS2 must agree with that, unless it has a fault (section 7).

Prints a line for each difference; exit status 1 where something differs. Needs the package adios2.
"""
import math
import os
import random
import sys

import numpy as np
from adios2 import LocalValueDim
from adios2 import bindings as adios2

# The bindings of 2.10 lack this name.
JoinedDim = LocalValueDim + 1

TYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16"]
NAMES = ["x", "density", "g/y", "g/h/z", "/rooted/u", "time", "particles/electrons/w"]
KINDS = ["global array"] * 3 + ["local array", "joined array", "global value", "local value", "text"]


class Program:
    """A program: `steps` has, for each step and variable, the puts in the order of ranks, and for each rank in its own order."""

    def __init__(self, seed, ranks=1):
        self.ranks = ranks
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.engine = self.random.choice(["BP4", "BP5"])
        count = self.random.choice([1, 1, 2, 3, 5])
        self.opened_again = {n for n in range(1, count) if self.random.random() < 0.2}
        self.has_empty = not self.opened_again and self.random.random() < 0.2
        self.variables = [Variable(self, name) for name in self.random.sample(NAMES, self.random.randint(1, 5))]
        self.steps = [self.step() for _ in range(count)]
        if not any(self.steps):
            self.steps = [self.step(is_full=True)]
            self.opened_again = set()
        self.attributes = self.some_attributes()
        self.is_column_major = ranks == 1 and self.random.random() < 0.25
        self.parameters = self.some_parameters() if ranks > 1 else {}

    def step(self, is_full=False):
        if self.has_empty and not is_full and self.random.random() < 0.4:
            return {}
        puts = {v: v.puts() for v in self.variables if is_full or v.is_always_there or self.random.random() < 0.6}
        # An empty step would be another case.
        return puts or {self.variables[0]: self.variables[0].puts()}

    def values(self, type, shape):
        """Any bits except NaN: ADIOS2 keeps least and greatest values."""
        if type == "c8" or type == "c16":
            part = f"f{int(type[1:]) // 2}"
            return (self.values(part, shape) + 1j * self.values(part, shape)).astype(type)
        if type[0] == "f":
            return self.numbers.normal(size=shape).astype(type)
        limits = np.iinfo(type)
        return self.numbers.integers(limits.min, limits.max, size=shape, dtype=type, endpoint=True)

    def some_attributes(self):
        """Name, and an array, a number, a text, or several."""
        attributes = {}
        for name in self.random.sample(["title", "a/b", "deep/er/c"] + [f"{v.name}/units" for v in self.variables], 3):
            type = self.random.choice([t for t in TYPES if t[0] != "c"])
            attributes[name] = self.random.choice([
                self.values(type, (self.random.randint(1, 4),)), "a text", "", "größer", ["one", "", "three"],
            ])
        return attributes

    def some_parameters(self):
        """The assignment of ranks' data to files."""
        parameters = {"NumAggregators": str(self.random.randint(1, self.ranks))}
        if self.engine == "BP5":
            ways = ["EveryoneWrites", "EveryoneWritesSerial", "TwoLevelShm"]
            parameters["AggregationType"] = self.random.choice(ways)
        return parameters

    def adios(self, comm):
        """The object that makes engines, and must be kept alive."""
        if comm is not None:
            return adios2.ADIOS(comm)
        if self.is_column_major:
            import adiosfortran

            return adiosfortran.ADIOS()
        return adios2.ADIOS()

    def write(self, path, comm=None):
        """Writes the part of one rank, or everything."""
        rank = comm.rank if comm is not None else 0
        adios = self.adios(comm)
        io = adios.DeclareIO("random")
        io.SetEngine(self.engine)
        if self.parameters:
            io.SetParameters(self.parameters)
        engine = io.Open(path, adios2.Mode.Write)
        for name, value in self.attributes.items():
            if isinstance(value, np.ndarray):
                io.DefineAttribute(name, value)
            else:
                io.DefineAttribute(name, value, "", "/")
        handles = {}
        for number, step in enumerate(self.steps):
            if number in self.opened_again:
                engine.Close()
                engine = io.Open(path, adios2.Mode.Append)
            engine.BeginStep()
            for variable, puts in step.items():
                own = variable.of_rank(puts, rank)
                if own and variable not in handles:
                    handles[variable] = variable.define(io, own[0])
                if own:
                    variable.put(engine, handles[variable], own)
                if self.engine == "BP5" and self.random.random() < 0.2:
                    engine.PerformDataWrite()
            engine.EndStep()
        engine.Close()

    def shown_steps(self):
        """Number of steps in the file: BP4 has none after the last non-empty one."""
        full = [number for number, step in enumerate(self.steps) if step]
        return full[-1] + 1 if self.engine == "BP4" else len(self.steps)

    def may_be_read_by_adios2(self):
        """Whether the reader has a fault: it crashes on a BP4 file with an empty step, and on some BP5 files that several
        processes have reopened. It finds no shape of a Fortran joined array in BP5."""
        if self.engine == "BP4":
            return all(self.steps)
        if self.ranks > 1 and self.opened_again:
            return False
        return not self.is_column_major or all(variable.kind != "joined array" for variable in self.variables)


class Variable:
    def __init__(self, program, name):
        pick = program.random
        self.program, self.name = program, name
        self.kind, self.type = pick.choice(KINDS), pick.choice(TYPES)
        self.is_always_there = pick.random() < 0.6
        self.changes = pick.random() < 0.2
        self.rank = pick.randint(1, 3)
        self.joined = pick.randrange(self.rank)
        self.shape = self.any_shape()
        self.cut = pick.choice(["whole", "tiles", "boxes"])
        self.blocks = self.any_number()
        # The ends of each rank's puts: any rank may have none.
        self.ends = sorted(pick.random() for _ in range(program.ranks - 1)) + [1]

    def any_number(self):
        """The number of blocks."""
        return self.program.random.randint(1, 3 * self.program.ranks)

    def of_rank(self, puts, rank):
        """The puts of one rank."""
        ends = [0] + [round(end * len(puts)) for end in self.ends]
        if self.kind == "local value":
            ends = range(len(puts) + 1)
        return puts[ends[rank]:ends[rank + 1]]

    def any_shape(self):
        return [self.program.random.randint(1, 6) for _ in range(self.rank)]

    def puts(self):
        """The puts of one step: shape, start, and values."""
        pick, values = self.program.random, self.program.values
        if self.changes:
            self.shape, self.blocks = self.any_shape(), self.any_number()
        if self.kind == "text":
            return [([], [], pick.choice(["", "text", "größer", "x" * 300]))]
        if self.kind == "local value":
            return [([], [], values(self.type, (1,))) for _ in range(self.program.ranks)]
        if self.kind == "global value":
            return [([], [], values(self.type, (1,)))]
        if self.kind == "local array":
            puts = [([], [], values(self.type, self.shape)) for _ in range(self.blocks)]
            if self.changes:
                puts.append(([], [], values(self.type, self.any_shape())))
            return puts
        if self.kind == "joined array":
            shapes = [list(self.shape) for _ in range(self.blocks)]
            for shape in shapes:
                shape[self.joined] = pick.randint(1, 4) if self.changes else self.shape[self.joined]
            return [([], [], values(self.type, shape)) for shape in shapes]
        return [(self.shape, start, values(self.type, count)) for start, count in self.boxes()]

    def boxes(self):
        """Start and count of a global array's blocks: all of it, tiles, or boxes that leave holes and overlap."""
        pick, shape = self.program.random, self.shape
        if self.cut == "whole":
            return [([0] * self.rank, shape)]
        if self.cut == "tiles":
            cuts = sorted({0, shape[0], *(pick.randint(0, shape[0]) for _ in range(1 + self.program.ranks))})
            return [([a] + [0] * (self.rank - 1), [b - a] + shape[1:]) for a, b in zip(cuts, cuts[1:])]
        boxes = []
        for _ in range(self.blocks):
            start = [pick.randrange(side) for side in shape]
            boxes.append((start, [pick.randint(1, side - at) for side, at in zip(shape, start)]))
        return boxes

    def define(self, io, put):
        shape, start, values = put
        if self.kind == "text":
            return io.DefineVariable(self.name)
        if self.kind == "local value":
            return io.DefineVariable(self.name, values, [LocalValueDim], [], [], False)
        if self.kind == "global value":
            return io.DefineVariable(self.name, values, [], [], [], False)
        count = list(values.shape)
        if self.kind == "joined array":
            shape = [JoinedDim if n == self.joined else side for n, side in enumerate(values.shape)]
        return io.DefineVariable(self.name, values, shape, start, count, False)

    def put(self, engine, handle, puts):
        for shape, start, values in puts:
            if self.kind == "text":
                engine.Put(handle, values)
                continue
            if self.kind == "global array":
                handle.SetShape(shape)
            if self.kind == "joined array":
                handle.SetShape([JoinedDim if n == self.joined else side for n, side in enumerate(values.shape)])
            if "array" in self.kind:
                handle.SetSelection([start, list(values.shape)])
            engine.Put(handle, values, adios2.Mode.Sync)

    def value(self, puts):
        """What a reader sees of one step, and where there is a value."""
        if self.kind == "text":
            return puts[0][2], None
        if self.kind == "global value":
            return puts[0][2].reshape(()), None
        if self.kind == "local value":
            return np.concatenate([values for _, _, values in puts]), None
        if self.kind == "local array":
            return [values for _, _, values in puts], None
        if self.kind == "joined array":
            return np.concatenate([values for _, _, values in puts], self.joined), None
        whole = np.zeros(puts[-1][0], self.type)
        is_there = np.zeros(whole.shape, bool)
        for _, start, values in puts:
            box = tuple(slice(at, at + side) for at, side in zip(start, values.shape))
            whole[box] = values
            is_there[box] = True
        return whole, is_there


# --- what is to be shown --------------------------------------------------------------------------

def parts(name):
    return "/".join(part for part in name.split("/") if part and part != ".")


def shape_of(value):
    return [block.shape for block in value] if isinstance(value, list) else np.shape(value)


def expected(program):
    """The datasets of section 8: value and steps by path; steps are `None` if all have it."""
    shown = {}
    for variable in program.variables:
        there = [(n, variable.value(step[variable])[0]) for n, step in enumerate(program.steps) if variable in step]
        if not there:
            continue
        numbers = [n for n, _ in there]
        steps = None if numbers == list(range(program.shown_steps())) else numbers
        path, values = parts(variable.name), [value for _, value in there]
        if any(shape_of(value) != shape_of(values[0]) for value in values):
            for number, value in there:
                put(shown, f"{path}/step_{number:05}", value, None)
        elif variable.kind == "local array":
            for block in range(len(values[0])):
                stacked = [value[block] for value in values]
                shown[f"{path}/block_{block:05}"] = (stack(stacked), steps)
        else:
            shown[path] = (stack(values), steps)
    return shown


def stack(values):
    return values[0] if len(values) == 1 else np.stack([np.asarray(value, object if isinstance(value, str) else None)
                                                          for value in values])


def put(shown, path, value, steps):
    if isinstance(value, list):
        for number, block in enumerate(value):
            shown[f"{path}/block_{number:05}"] = (block, steps)
    else:
        shown[path] = (value, steps)


# --- comparisons ----------------------------------------------------------------------------------

def native(value):
    """A value of h5py or of a program in a common form."""
    value = np.asarray(value)
    if value.dtype.names:
        value = np.ascontiguousarray(value).view(f"c{value.dtype.itemsize}")
    if value.dtype.kind in "OSU":
        texts = [text.decode() if isinstance(text, bytes) else str(text) for text in value.ravel().tolist()]
        return ("text", value.shape, texts)
    return (value.dtype.str, value.shape, value.tobytes())


def differences(program, path):
    """The datasets of the HDF5 file at `path`."""
    import h5py

    wanted, found = expected(program), {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: item}) if isinstance(item, h5py.Dataset) else None)
        for name in sorted(wanted.keys() ^ found.keys()):
            yield f"{name} is {'missing' if name in wanted else 'one too many'}"
        for name in wanted.keys() & found.keys():
            value, steps = wanted[name]
            got = native(found[name][()])
            if got != native(value):
                yield f"{name} is {str(got)[:200]}, expected {str(native(value))[:200]}"
            got = found[name].attrs.get("adios2_steps")
            got = list(got) if got is not None else group_steps(file, name)
            if got != steps:
                yield f"{name} is of steps {got}, expected {steps}"
        yield from attribute_differences(program, file)


def group_steps(file, name):
    """The steps of a block, which may be on its group."""
    steps = file[name].parent.attrs.get("adios2_steps")
    return None if steps is None else list(steps)


def attribute_differences(program, file):
    for name, value in program.attributes.items():
        path, _, last = parts(name).rpartition("/")
        item = file.get(path or "/")
        got = None if item is None else item.attrs.get(last)
        if got is None:
            yield f"attribute {name} is missing"
            continue
        if isinstance(value, np.ndarray) and len(value) == 1 and program.engine == "BP4":
            value = value.reshape(())
        if native(got) != native(np.asarray(value, object) if isinstance(value, list) else value):
            yield f"attribute {name} is {got!r}, expected {value!r}"


def reader_differences(program, path):
    """The datasets according to the reader of ADIOS2."""
    adios = adios2.ADIOS()
    io = adios.DeclareIO("reading")
    # Its threads copy overlapping blocks in any order.
    io.SetParameter("Threads", "1")
    io.SetEngine(program.engine)
    engine = io.Open(path, adios2.Mode.Read)
    for number, step in enumerate(program.steps[:program.shown_steps()]):
        if engine.BeginStep(adios2.StepMode.Read, 10.0) != adios2.StepStatus.OK:
            yield f"step {number} is not there"
            break
        names = {variable.name for variable in step}
        if set(io.AvailableVariables()) != names:
            yield f"step {number} has {sorted(io.AvailableVariables())}, expected {sorted(names)}"
        for variable, puts in step.items():
            handle = io.InquireVariable(variable.name)
            value, is_there = variable.value(puts)
            got = read(engine, handle, variable, value)
            if is_there is not None:
                value, got = value[is_there], got[is_there]
            same = [native(a) == native(b) for a, b in zip(got, value)] if isinstance(value, list) else [
                native(got) == native(value)]
            if not all(same):
                yield f"step {number}: {variable.name} is {got}, expected {value}"
        engine.EndStep()
    engine.Close()


def read(engine, handle, variable, value):
    """The values of a variable in the open step."""
    if variable.kind == "text":
        return engine.Get(handle)
    blocks = []
    for number, block in enumerate(value if isinstance(value, list) else [value]):
        out = np.zeros(np.shape(block) or (1,), variable.type)
        if isinstance(value, list):
            handle.SetBlockSelection(number)
        elif variable.kind != "global value":
            handle.SetSelection([[0] * out.ndim, list(out.shape)])
        engine.Get(handle, out, adios2.Mode.Sync)
        blocks.append(out.reshape(np.shape(block)))
    if isinstance(value, list):
        # Without this, listing the variables of the next step fails if that has fewer blocks.
        handle.SetBlockSelection(0)
    return blocks if isinstance(value, list) else blocks[0]


def main():
    command, made, ranks, *rest = sys.argv[1:]
    first, count = map(int, rest[-2:])
    comm = None
    if command == "make" and int(ranks) > 1:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        assert comm.size == int(ranks), f"{comm.size} processes, not {ranks}"
    different = 0
    for number in range(count):
        program, path = Program(first + number, int(ranks)), os.path.join(made, f"{number}.bp")
        if command == "make":
            program.write(path, comm)
            continue
        found = list(differences(program, os.path.join(rest[0], f"{number}.bp")))
        if program.may_be_read_by_adios2():
            found += [f"ADIOS2: {text}" for text in reader_differences(program, path)]
        for text in found:
            print(f"program {first + number} ({program.engine}): {text}")
        different += bool(found)
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
