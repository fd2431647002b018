#!/usr/bin/env python3
"""scorpio DIR FIRST [COUNT]: makes random SCORPIO directories. Program N, with the seed FIRST + N, writes DIR/N.nc.bp, the link
DIR/N.nc, and DIR/N.expected.nc, the netCDF-4 file that a reader must see.

The tested reader plays no part in the expectation: a program knows what its processes put, and which place each element has. It
is written by the rules of docs/formats/scorpio-bp.md. One process writes what all put, in the order of writers and puts: a
reader does not ask for the names of writers (section 4). Needs the packages adios2 and netCDF4.
"""
import math
import os
import random
import sys

import numpy as np

ROOT = "/__pio__/"
#: Numbers of netCDF's types, and how ADIOS2 stores them.
TYPES = {1: "i1", 2: "S1", 3: "i2", 4: "i4", 5: "f4", 6: "f8", 7: "u1", 8: "u2", 9: "u4", 10: "i8", 11: "u8"}
#: `def/adiostype`.
MEMORY = {"f4": 1, "f8": 2, "i1": 5, "i2": 6, "i4": 7, "i8": 8, "u1": 9, "u2": 10, "u4": 11, "u8": 12}
FILLS = {"i1": -127, "S1": b"\0", "i2": -32767, "i4": -2147483647, "f4": 9.969209968386869e36, "f8": 9.969209968386869e36,
         "u1": 255, "u2": 65535, "u4": 4294967295, "i8": -9223372036854775806, "u8": 18446744073709551614}
NAMES = ["T", "PS", "b v", "v-1", "y.z", "def", "größe", "dims", "nctype", "U", "area", "track"]
ATTRIBUTES = ["units", "long_name", "def", "a b", "nctype", "valid.range", "übrig", "ndims", "decomp"]
TEXTS = ["K", "", "größer als", "days since 2000-01-01 00:00:00", "x" * 300, "a\nb"]
#: Entries of a block of `track` (section 2).
TRACKED = 144


def stored(kind):
    """How ADIOS2 stores a type."""
    return "i1" if kind == "S1" else kind


def convert(values, kind):
    """As netCDF does, in range."""
    return values.astype("i1").view("S1") if kind == "S1" else values.astype(kind)


# --- decompositions -------------------------------------------------------------------------------

class Decomposition:
    """For each process a place for each of its elements, from 0 on, or -1; `written` is what the file says of them."""

    def __init__(self, program, number, shape):
        pick = program.pick
        self.number, self.shape, self.size = number, shape, math.prod(shape)
        self.is_stored = False
        self.piotype = pick.choice(list(TYPES))
        while True:
            self.places = self.some_places(program)
            self.base = 1
            every = [place for part in self.places for place in part]
            if pick.random() < 0.15 and all(len(part) > 1 for part in self.places) and self.can_begin_at_0(every):
                self.base = 0
            # The rule of the contiguous rearranger (6.2) must not take it for its own.
            padding = sum(max(0, 2 - len(part)) for part in self.places)
            written = sorted([place + 1 for place in every] + [0] * padding)
            if self.base == 0 or written != list(range(self.size)):
                break
        counts = [program.some_writers(group) for group in program.groups]
        parts = [self.padded(part) for part in self.places]
        self.sequences, self.counts = program.blocks([parts], [counts]), counts

    def can_begin_at_0(self, every):
        """What the rule of 6.2 understands."""
        return sorted(every) == list(range(self.size)) or (-1 in every and every.count(0) <= 1)

    def padded(self, part):
        written = [place + self.base if place >= 0 else self.base - 1 for place in part]
        return np.array(written + [0] * (2 - len(part)), "i8")

    def some_places(self, program):
        pick, count = program.pick, program.count
        every = list(range(self.size))
        way = pick.choice(["random", "cyclic", "blocks", "one has all"])
        if way == "random":
            pick.shuffle(every)
        ends = sorted(pick.randint(0, self.size) for _ in range(count - 1)) + [self.size]
        if way == "cyclic":
            parts = [every[rank::count] for rank in range(count)]
        elif way == "one has all":
            parts = [[] for _ in range(count)]
            parts[pick.randrange(count)] = every
        else:
            parts = [every[begin:end] for begin, end in zip([0] + ends, ends)]
        if pick.random() < 0.3:
            parts = [[place for place in part if pick.random() < 0.8] for part in parts]
        if pick.random() < 0.3:
            for part in parts:
                for _ in range(pick.randint(0, 3)):
                    part.insert(pick.randint(0, len(part)), -1)
        if pick.random() < 0.3:
            for part in parts:
                for _ in range(pick.randint(0, 3)):
                    part.insert(pick.randint(0, len(part)), pick.randrange(self.size))
        return parts


# --- variables ------------------------------------------------------------------------------------

class Variable:
    """`events` are its puts, in their order, each with its step; `whole` is what it holds in the end."""

    def __init__(self, program, name, number, dims):
        self.program, self.name, self.number, self.dims = program, name, number, dims
        self.kind = TYPES[number]
        self.attributes = {}
        self.how, self.adiostype = None, None
        self.events, self.cells, self.records = [], [], 0
        self.first = program.some_step(0) if program.pick.random() < 0.3 else 0
        if program.pick.random() < 0.3:
            self.attributes["_FillValue"] = program.values(self.kind, (1,))

    def has_records(self):
        return bool(self.dims) and self.program.is_unlimited(self.dims[0])

    def fixed(self):
        """Lengths of the dimensions that are limited."""
        return [self.program.dims[name] for name in self.dims if not self.program.is_unlimited(name)]

    def put(self, where, values):
        """Notes that these indices have values now."""
        self.cells.append((where, values))

    def whole(self):
        fill = np.array(FILLS[self.kind]).astype(self.kind)
        if "_FillValue" in self.attributes:
            fill = self.attributes["_FillValue"][0]
        shape = [self.program.length(name) for name in self.dims]
        whole = np.full(shape, fill, self.kind)
        for where, values in self.cells:
            whole[where] = values
        return whole

    def steps(self, count):
        """Steps of so many events, in order."""
        return sorted(self.program.some_step(self.first) for _ in range(count))


class Scalar(Variable):
    """put_var without dimensions: one in a step."""

    def __init__(self, program, name, number):
        super().__init__(program, name, number, ())
        self.how = "put_var"
        memory = "i1" if self.kind == "S1" else program.pick.choice(list(MEMORY))
        self.adiostype = MEMORY[memory]
        for step in sorted(set(self.steps(program.pick.randint(1, 3)))):
            value = program.small(memory)
            self.events.append((step, value))
            self.put((), convert(value.reshape(1), self.kind)[0])


class Puts(Variable):
    """put_var with start and count."""

    def __init__(self, program, name, number, dims):
        super().__init__(program, name, number, dims)
        self.how, self.memory = "put_var", "i1" if self.kind == "S1" else program.pick.choice(list(MEMORY))
        self.adiostype = MEMORY[self.memory]
        for step in self.steps(program.pick.randint(1, 6)):
            self.events.append((step, self.some_put()))

    def some_put(self):
        pick, lengths = self.program.pick, self.fixed()
        start = [pick.randrange(length) for length in lengths]
        count = [pick.randint(1, length - at) for at, length in zip(start, lengths)]
        if pick.random() < 0.3:
            start, count = [0] * len(lengths), lengths
        records, said = [], 1
        if self.has_records():
            record = pick.choice([0, self.records, self.records, pick.randint(0, 5)])
            # Of several records the writer stores the first one; of none, nothing is written.
            said = pick.choice([1] * 12 + [0, 3])
            records = [record]
        head = [records + start, [said] * len(records) + count]
        values = self.program.small(self.memory, count)
        # The forms without a start or a count.
        if pick.random() < 0.15:
            head[0] = [-1] * len(head[0])
            start, records = [0] * len(start), records and [0]
            count = [min(n, length) for n, length in zip(count, lengths)]
        if pick.random() < 0.15 and not any(start):
            head[1] = [-1] * len(head[1])
            count, said = lengths, 1
            values = self.program.small(self.memory, count)
        if said:
            self.records = max([self.records] + [record + said for record in records])
            box = tuple(slice(at, at + n) for at, n in zip(start, count))
            self.put(tuple(records) + box, convert(values.reshape(-1), self.kind).reshape(count))
        return np.concatenate([np.array(head, "i8").reshape(-1).view("u1"), np.ascontiguousarray(values).reshape(-1).view("u1")])


class Distributed(Variable):
    """darray."""

    def __init__(self, program, name, number, dims):
        super().__init__(program, name, number, dims)
        pick = program.pick
        self.how = "darray"
        self.has_frames = self.has_records() or (len(dims) > 1 and pick.random() < 0.5)
        if len(dims) == 1:
            self.has_frames = False
        self.part = self.some_part()
        self.has_doubles = pick.random() < 0.1 and self.kind != "S1"
        count = pick.randint(1, 6) if self.has_frames else pick.randint(1, 2)
        steps = self.steps(count)
        if pick.random() < 0.03:
            steps += [steps[-1]] * pick.randint(TRACKED, 2 * TRACKED + 5)
        for step in steps:
            self.events.append((step, self.some_frame()))

    def some_part(self):
        """The shape of its decompositions. It is one for all frames, so that a frame written again has no other parts."""
        pick = self.program.pick
        lengths = [self.program.dims[name] for name in self.dims]
        if self.has_frames:
            lengths = lengths[1:]
        elif self.has_records():
            lengths = [pick.randint(1, 6)]
            self.records = lengths[0]
        if pick.random() < 0.15 and not (self.has_records() and not self.has_frames):
            lengths = [pick.randint(1, length) for length in lengths]
        return lengths

    def some_frame(self):
        program, pick = self.program, self.program.pick
        number = -1
        if self.has_frames:
            number = pick.randint(0, 5) if self.has_records() else pick.randrange(program.dims[self.dims[0]])
            if self.has_records() and pick.random() < 0.1:
                number = -1
        elif len(self.dims) == 1 and pick.random() < 0.3:
            number = pick.randint(0, 9)
        decomposition = program.decomposition(self.part)
        fill = program.values(self.kind, (1,))[0] if pick.random() < 0.5 else None
        if fill is not None and self.has_doubles:
            fill = program.small("i1").astype(self.kind) if self.kind[0] != "u" else program.small("u1").astype(self.kind)
        none = FILLS[self.kind] if fill is None else fill
        values = np.full(decomposition.size, none, self.kind)
        parts = []
        for places in decomposition.places:
            part = program.values(self.kind, (max(2, len(places)),))
            for place, value in zip(places, part):
                if place >= 0:
                    values[place] = value
            parts.append(part)
        front = ()
        if self.has_frames:
            front = (max(number, 0),)
            if self.has_records():
                self.records = max(self.records, front[0] + 1)
        box = tuple(slice(length) for length in self.part)
        self.put(front + box, values.reshape(self.part))
        return number, decomposition, fill, parts


# --- programs -------------------------------------------------------------------------------------

class Program:
    def __init__(self, seed):
        self.pick, self.numbers = random.Random(seed), np.random.default_rng(seed)
        pick = self.pick
        self.engine = pick.choice(["BP4", "BP5"])
        # In 1.3.1 members of a group may put blocks of their own.
        self.is_old = self.engine == "BP4" and pick.random() < 0.6
        self.count = pick.choice([1, 2, 2, 3, 4, 6])
        each = pick.randint(1, self.count)
        self.groups = [list(range(begin, min(begin + each, self.count))) for begin in range(0, self.count, each)]
        self.step_count = pick.choice([1, 1, 1, 2, 3, 5])
        self.is_closed = pick.random() < 0.8
        self.dims = {name: pick.randint(1, 7) for name in ("x", "y", "lev", "chars", "b c", "alone")}
        for name in ["time"] * (pick.random() < 0.85) + ["other"] * (pick.random() < 0.1):
            self.dims[name] = 0
        self.decompositions = {}
        self.attributes = self.some_attributes()
        self.variables = [self.variable(name) for name in self.some_names()]
        for variable in self.variables:
            variable.attributes |= self.some_attributes()
        self.place_maps()

    # what a program has

    def some_names(self):
        """Some variables have the name of a dimension: of their first one, or of none of theirs."""
        return self.pick.sample(NAMES, self.pick.randint(1, 7)) + self.pick.sample(list(self.dims), self.pick.randint(0, 3))

    def some_step(self, first):
        return self.pick.randint(first, self.step_count - 1)

    def is_unlimited(self, name):
        return self.dims[name] == 0

    def length(self, name):
        if not self.is_unlimited(name):
            return self.dims[name]
        return max([v.records for v in self.variables if v.dims and v.dims[0] == name], default=0)

    def some_dims(self, name):
        pick = self.pick
        limited = [dim for dim in self.dims if not self.is_unlimited(dim) and dim != "alone"]
        dims = pick.sample(limited, pick.randint(0, 3))
        unlimited = [dim for dim in self.dims if self.is_unlimited(dim)]
        if unlimited and pick.random() < 0.5:
            dims = [pick.choice(unlimited)] + dims
        if name in self.dims and pick.random() < 0.7:
            dims = [name] + [dim for dim in dims if dim != name and not self.is_unlimited(dim)]
        return tuple(dims)

    def variable(self, name):
        pick, number = self.pick, self.pick.choice(list(TYPES))
        dims = self.some_dims(name)
        if pick.random() < 0.1:
            return Variable(self, name, number, dims)
        if not dims:
            return Scalar(self, name, number)
        return (Puts if pick.random() < 0.35 else Distributed)(self, name, number, dims)

    def some_attributes(self):
        found = {}
        for name in self.pick.sample(ATTRIBUTES, self.pick.randint(0, 3)):
            kind = self.pick.choice([kind for kind in TYPES.values() if kind != "S1"])
            found[name] = self.values(kind, (self.pick.choice([1, 1, 2, 5]),))
            if self.pick.random() < 0.4:
                found[name] = self.pick.choice(TEXTS)
        return found

    def decomposition(self, shape):
        """One that fits, of those that are there or a new one."""
        shape = [1] * (self.pick.choice([0] * 8 + [1, 2])) + shape
        fitting = [one for one in self.decompositions.values() if one.shape == shape]
        if fitting and self.pick.random() < 0.7:
            return self.pick.choice(fitting)
        number = 512 + len(self.decompositions)
        self.decompositions[number] = Decomposition(self, number, shape)
        return self.decompositions[number]

    def place_maps(self):
        """The step of each map: that of its first use, rarely another one."""
        self.maps = {}
        for variable in self.variables:
            if variable.how == "darray":
                for step, (_, decomposition, _, _) in variable.events:
                    number = decomposition.number
                    self.maps[number] = min(step, self.maps.get(number, step))
        for number in self.maps:
            if self.pick.random() < 0.15:
                self.maps[number] = self.some_step(0)

    # values

    def values(self, kind, shape):
        """Any bits except NaN; letters and zeros as text."""
        if kind == "S1":
            return self.numbers.choice(np.frombuffer(b"abcXYZ \0", "S1"), shape)
        if kind[0] == "f":
            return self.numbers.normal(size=shape).astype(kind)
        limits = np.iinfo(kind)
        return self.numbers.integers(limits.min, limits.max, size=shape, dtype=kind, endpoint=True)

    def small(self, kind, shape=()):
        """What fits into every type."""
        values = self.numbers.integers(0, 120, size=shape)
        return np.asarray(values + 0.75 if kind[0] == "f" else values).astype(kind)

    # blocks

    def some_writers(self, group):
        return len(group) if self.is_old and self.pick.random() < 0.4 else 1

    def blocks(self, frames, counts):
        """The blocks of the parts of all processes for each frame, in the order of writers and puts (section 4)."""
        found = []
        for rank in range(self.count):
            number, members = next((n, group) for n, group in enumerate(self.groups) if rank in group)
            i = members.index(rank)
            for parts, of_groups in zip(frames, counts):
                if i < of_groups[number]:
                    # A root that writes alone gathers what its members have.
                    mine = [rank] if of_groups[number] > 1 else members
                    found.append(np.concatenate([parts[member] for member in mine]))
        return found

    # writing

    def puts(self, step):
        """Values and lists of blocks of a step, by name, and attributes."""
        found, attributes = {}, {}
        if step == 0:
            found[f"{ROOT}info/nproc"] = np.array(self.count, "i4")
            found[f"{ROOT}info/block_nprocs"] = np.array(len(self.groups[0]), "i4")
            found[f"{ROOT}info/block_list"] = [np.array(group, "i4") for group in self.groups]
            if self.count % 2:
                found[f"{ROOT}info/decomp_stored"] = np.array(1, "i4")
            attributes |= {f"{ROOT}global/{name}": value for name, value in self.attributes.items()}
        for name, length in self.dims.items():
            if step == self.step_of_dimension(name):
                found[f"{ROOT}dim/{name}"] = np.array(length, "u8")
        for number, at in self.maps.items():
            if at == step:
                self.put_map(self.decompositions[number], found, attributes)
        for variable in self.variables:
            if variable.first == step:
                attributes |= self.definition(variable)
            events = [event for at, event in variable.events if at == step]
            if events:
                self.put_variable(variable, events, found)
        if step == self.step_count - 1:
            found[f"{ROOT}info/testing"] = np.array(self.count, "i4")
            if self.is_closed:
                attributes[f"{ROOT}fillmode"] = np.array([256], "i4")
        return found, attributes

    def step_of_dimension(self, name):
        return min((v.first for v in self.variables if name in v.dims), default=0)

    def put_map(self, decomposition, found, attributes):
        number = decomposition.number
        found[f"{ROOT}decomp/{number}"] = decomposition.sequences
        found[f"{ROOT}track/num_decomp_block_writers/{number}"] = [np.array([n], "i4") for n in decomposition.counts]
        attributes[f"{ROOT}decomp/{number}/piotype"] = np.array([decomposition.piotype], "i4")
        attributes[f"{ROOT}decomp/{number}/ndims"] = np.array([len(decomposition.shape)], "i4")
        attributes[f"{ROOT}decomp/{number}/dimlen"] = np.array(decomposition.shape, "i4")

    def definition(self, variable):
        prefix = f"{ROOT}var/{variable.name}"
        about = {"nctype": np.array([variable.number], "i4"), "ndims": np.array([len(variable.dims)], "i4")}
        if variable.dims:
            about["dims"] = list(variable.dims)
        if variable.how:
            about["ncop"] = variable.how
        if variable.how == "darray":
            about["decomp"] = str(variable.events[0][1][1].number)
        if variable.adiostype is not None:
            about["adiostype"] = np.array([variable.adiostype], "i4")
        own = {name: value if isinstance(value, str) or value.dtype != "S1" else value[0].decode()
               for name, value in variable.attributes.items()}
        return {f"{prefix}/def/{name}": value for name, value in about.items()} | {
            f"{prefix}/{name}": value for name, value in own.items()}

    def put_variable(self, variable, events, found):
        name = f"{ROOT}var/{variable.name}"
        if not isinstance(variable, Distributed):
            found[name] = events[-1] if isinstance(variable, Scalar) else events
            return
        counts = [[self.some_writers(group) for group in self.groups] for _ in events]
        kind = stored(variable.kind)
        found[name] = [block.view(kind) for block in self.blocks([event[3] for event in events], counts)]
        track = f"{ROOT}track/{{}}/{variable.name}".format
        found[track("frame_id")] = tracked([number for number, *_ in events], "i4")
        signed = [one.number if fill is not None else -one.number for _, one, fill, _ in events]
        found[track("decomp_id")] = tracked(signed, "i4")
        fills = [fill for _, _, fill, _ in events if fill is not None]
        if fills:
            fills = np.array(fills, variable.kind).view(kind)
            found[track("fillval_id")] = tracked(fills, "f8" if variable.has_doubles else kind)
        writers = [tracked([frame[group] for frame in counts], "i4") for group in range(len(self.groups))]
        found[track("num_data_block_writers")] = [block for of_group in writers for block in of_group]

    def write(self, path):
        from adios2 import bindings as adios2

        adios = adios2.ADIOS()
        io = adios.DeclareIO("random")
        io.SetEngine(self.engine)
        engine = io.Open(path, adios2.Mode.Write)
        for step in range(self.step_count):
            found, attributes = self.puts(step)
            for name in self.pick.sample(list(attributes), len(attributes)):
                value = attributes[name]
                io.DefineAttribute(name, value, "", "/") if isinstance(value, (str, list)) else io.DefineAttribute(name, value)
            # The library ends a step because of frames, and ADIOS2 crashes on an empty one of BP4.
            if not found:
                continue
            engine.BeginStep()
            for name in self.pick.sample(list(found), len(found)):
                put(adios2, io, engine, name, found[name])
            engine.EndStep()
        engine.Close()

    def write_expected(self, path):
        import netCDF4

        with netCDF4.Dataset(path, "w") as file:
            for name, length in self.dims.items():
                file.createDimension(name, length or None)
            set_attributes(file, self.attributes)
            for variable in self.variables:
                own = dict(variable.attributes)
                fill = own.pop("_FillValue", None)
                fill = None if fill is None else fill[0]
                made = file.createVariable(variable.name, variable.kind, variable.dims, fill_value=fill)
                set_attributes(made, own)
                made.set_auto_maskandscale(False)
                made.set_auto_chartostring(False)
                whole = variable.whole()
                if whole.size:
                    made[tuple(slice(length) for length in whole.shape)] = whole


def tracked(values, kind):
    """Blocks of `track`."""
    values = np.asarray(values).astype(kind)
    return [values[at:at + TRACKED] for at in range(0, len(values), TRACKED)]


def put(adios2, io, engine, name, value):
    handle = io.InquireVariable(name)
    if not isinstance(value, list):
        handle = handle or io.DefineVariable(name, value, [], [], [], False)
        engine.Put(handle, value, adios2.Mode.Sync)
        return
    handle = handle or io.DefineVariable(name, value[0], [], [], list(value[0].shape), False)
    for block in value:
        handle.SetSelection([[], list(block.shape)])
        engine.Put(handle, np.ascontiguousarray(block), adios2.Mode.Sync)


def set_attributes(of, attributes):
    for name, value in attributes.items():
        # Bytes are an array of char, what Python takes for text may be a string.
        of.setncattr(name, value.encode() if isinstance(value, str) else value)


def main():
    directory, first, *count = sys.argv[1:]
    for number in range(int(count[0]) if count else 1):
        program, path = Program(int(first) + number), os.path.join(directory, f"{number}.nc")
        program.write(f"{path}.bp")
        os.symlink(f"{number}.nc.bp/md.0", path)
        program.write_expected(path.replace(".nc", ".expected.nc"))


if __name__ == "__main__":
    main()
