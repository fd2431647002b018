#!/usr/bin/env python3
"""adioswriter DIR: writes directories of BP4 and BP5 from docs/formats/adios-bp.md alone, in both byte orders, and BP5 with
pointers of four bytes as well. What a reader must see of DIR/NAME.bp is DIR/NAME.h5. No real ones of such processors were seen.

Two processes write two steps: a global array in blocks, once as it is and once through operators, a global array whose shape
changes, local arrays, local and global values, texts, and attributes.
"""
import bz2
import os
import struct
import sys

import h5py
import numpy as np

WRITERS, STEPS = 2, 2
#: Numbers that stand for no size.
LOCAL_VALUE = (1 << 64) - 3
#: Numbers of types in BP4 and BP5.
TYPES = {"i1": (0, 1), "i2": (1, 2), "i4": (2, 3), "i8": (4, 4), "u1": (50, 5), "u2": (51, 6), "u4": (52, 7), "u8": (54, 8),
         "f4": (5, 9), "f8": (6, 10), "c8": (10, 12), "c16": (11, 13), "text": (9, 14)}
TEXTS_BP4 = 12
ARRAY_BP5 = 18
#: An operator by number: none, bzip2, or no change.
BZIP2, NULL = 1, 127


class Block:
    """What a process puts: elements, and where they lie in `shape`; no start in local arrays."""

    def __init__(self, values, shape=None, start=None):
        self.values, self.shape, self.start = values, shape, start


def puts(step, order):
    """Kind, type, operator and blocks of the processes, by the name of the variable."""
    found = {}
    field = np.arange(24.0).reshape(4, 6) + 100 * step
    for name, operator in ("field", None), ("packed", BZIP2), ("same", NULL):
        blocks = [Block(field[2 * rank:2 * rank + 2], [4, 6], [2 * rank, 0]) for rank in range(WRITERS)]
        found[name] = ("G", "f8", operator, blocks)
    for kind in "i1 i2 i4 i8 u1 u2 u4 u8 f4 c8 c16".split():
        grows = (np.arange(3 + step) + 1).astype(kind)
        found[f"g/{kind}"] = ("G", kind, None, [Block(grows, list(grows.shape), [0]), None])
        found[f"g/one_{kind}"] = ("g", kind, None, [Block(np.array(7 + step, kind)), None])
    found["local"] = ("L", "i2", None, [Block(np.arange(2 + rank) - rank, None, None) for rank in range(WRITERS)])
    found["ranks"] = ("l", "i4", None, [Block(np.array(1000 + rank)) for rank in range(WRITERS)])
    found["note"] = ("g", "text", None, [Block(f"Größe {step}"), None])
    for _, kind, _, blocks in found.values():
        for block in filter(None, blocks):
            if kind != "text":
                block.values = np.asarray(block.values, order + kind)
    return found


def attributes(order):
    numbers = {f"field/{kind}": np.array([1, 2, 3], order + kind) for kind in ["i2", "i8", "u4", "f4", "f8", "c16"]}
    return numbers | {"number": np.array(-5, f"{order}i4"), "g/title": "Größe", "g/names": ["a", "", "cde"]}


def stored(values, operator, order):
    """The bytes of a block (section 5)."""
    plain = np.ascontiguousarray(values).tobytes()
    if operator is None:
        return plain
    head = struct.pack(order + "BBHQ", operator, 1, 0, len(plain))
    if operator == NULL:
        return head + plain
    half = len(plain) // 2
    streams = [bz2.compress(plain[:half]), bz2.compress(plain[half:])]
    first = len(head) + 8 + 2 * 16
    begins = [(0, half, first, len(streams[0])), (half, len(plain) - half, first + len(streams[0]), len(streams[1]))]
    return head + struct.pack(order + "Q8I", 2, *begins[0], *begins[1]) + b"".join(streams)


def header(order, version):
    """Section 1.1."""
    found = bytearray(64)
    found[:27] = b"ADIOS-BP v2.<.1 Index Table"
    found[32:35] = b"2<1"
    found[36] = order == ">"
    found[37] = version
    if version == 5:
        found[38], found[40] = 2, ord("n")
    return bytes(found)


def save(directory, **files):
    os.mkdir(directory)
    for name, content in files.items():
        with open(os.path.join(directory, name.replace("_", ".")), "wb") as file:
            file.write(content)


# --- BP5 ------------------------------------------------------------------------------------------

class Record:
    """A record of md.0: a structure, and what its pointers refer to (section 3.5)."""

    def __init__(self, order, pointer):
        self.order, self.pointer, self.base, self.places, self.behind = order, "Q" if pointer == 8 else "I", b"", [], []

    def align(self, size):
        self.base += bytes(-len(self.base) % size)

    def number(self, value):
        self.align(8)
        self.base += struct.pack(self.order + "Q", value)

    def refer(self, content):
        """A pointer to bytes, or to another record's structure; none where there is nothing."""
        size = struct.calcsize(self.pointer)
        self.align(size)
        if content:
            self.places.append((len(self.base), content))
        self.base += bytes(size)

    def bytes(self, at=0):
        """The structure and what it refers to, where it begins `at` the base of all."""
        self.align(8)
        found, rest = bytearray(self.base), b""
        for place, content in self.places:
            begin = at + len(found) + len(rest)
            struct.pack_into(self.order + self.pointer, found, place, begin)
            rest += content.bytes(begin) if isinstance(content, Record) else content
            rest += bytes(-len(rest) % 8)
        return bytes(found) + rest


class Bp5:
    def __init__(self, order, pointer):
        self.order, self.pointer = order, pointer
        self.index, self.metadata, self.formats, self.data = header(order, 5), b"", b"", b""
        self.known = {}
        self.words(b"w", WRITERS, 1, 1, *[0] * WRITERS)

    def pack(self, form, *values):
        return struct.pack(self.order + form, *values)

    def words(self, kind, *values):
        self.index += kind + self.pack("Q", 8 * len(values)) + self.pack(f"{len(values)}Q", *values)

    def format(self, structs):
        """The id of a format (section 3.4). Its description of a field: name, type, bytes of an element, offset."""
        key = repr(structs)
        if key not in self.known:
            body = b"".join(self.description(*one) for one in structs)
            whole = len(body) + 8
            self.known[key] = struct.pack(">BBHQ", 2, 0, whole // 4, len(self.known) + 1)
            head = struct.pack(">HBBBBH", whole & 0xffff, self.order == ">", 2, len(structs) - 1, 0, whole >> 16)
            self.formats += self.pack("QQ", 12, whole) + self.known[key] + head + body
        return self.known[key]

    def description(self, name, size, fields):
        texts, begin = b"", 28 + 16 * len(fields)
        places = []
        for text in [name, *[text for field in fields for text in field[:2]]]:
            places.append(begin + len(texts))
            texts += text.encode() + b"\0"
        rows = b"".join(self.pack("IIii", places[1 + 2 * number], places[2 + 2 * number], *field[2:])
                        for number, field in enumerate(fields))
        # What has no meaning for a reader of ADIOS2 ends with twelve zeros.
        options = begin + len(texts) + -(begin + len(texts)) % 4
        whole = options + 12 + -(options + 12) % 8
        texts += bytes(whole - begin - len(texts))
        is_big = self.order == ">"
        head = struct.pack(">HBB", whole & 0xffff, 2, is_big) + self.pack("III", places[0], len(fields), size)
        head += self.pack("BBHHBB", self.pointer, 28, 1 if is_big else 2, options, 0, 8) + struct.pack(">HH", whole >> 16, 0)
        return head + rows + texts

    def array_struct(self, has_operator):
        names = ["Shape", "Count", "Offset", "DataBlockLocation"] + ["DataBlockSize"] * has_operator
        counts = ["Dims", "DBCount", "DBCount", "BlockCount", "BlockCount"]
        fields = [(name, "integer", 8, 8 * number) for number, name in enumerate(["Dims", "BlockCount", "DBCount"])]
        for number, (name, count) in enumerate(zip(names, counts)):
            fields.append((name, f"integer[{count}]", 8, 24 + number * self.pointer))
        size = 24 + len(names) * self.pointer
        return ("MetaArrayOp" if has_operator else "MetaArray", size + -size % 8, fields)

    def record(self, id, made):
        body = made.bytes()
        return id + self.pack("Q", len(body)) + bytes(4) + body

    def variables(self, rank, found, begin):
        """The record of the variables of a process, whose bytes begin there in data.0."""
        made, location = Record(self.order, self.pointer), 0
        fields = [("BitFieldCount", "integer", 8, 0), ("BitField", "integer[BitFieldCount]", 8, 8)]
        fields.append(("DataBlockSize", "integer", 8, 16))
        bits = sum(1 << number for number, (*_, blocks) in enumerate(found.values()) if blocks[rank])
        made.number(1)
        made.refer(self.pack("Q", bits))
        made.number(0)
        for name, (form, kind, operator, blocks) in found.items():
            block, size = blocks[rank], 8 if kind == "text" else np.dtype(kind).itemsize
            if form in "gl":
                made.align(min(size, 8))
                names = {"i": "integer", "u": "unsigned integer", "f": "float"}
                ffs = {"text": "string", "c8": "complex4", "c16": "complex8"}.get(kind) or names[kind[0]]
                fields.append((f"BP{form}_{name}", ffs, self.pointer if kind == "text" else size, len(made.base)))
                if kind == "text":
                    made.refer(block and block.values.encode() + b"\0")
                else:
                    made.base += block.values.tobytes() if block else bytes(size)
                continue
            made.align(8)
            struct_name, length, _ = self.array_struct(operator is not None)
            fields.append((f"BP{form}_{size}_{TYPES[kind][1]}_{name}", struct_name, length, len(made.base)))
            if not block:
                made.base += bytes(length)
                continue
            content = stored(block.values, operator, self.order)
            dimensions = block.values.ndim
            for number in [dimensions, 1, dimensions]:
                made.number(number)
            for numbers in [block.shape, block.values.shape, block.start, [location]] + [[len(content)]] * (operator is not None):
                made.refer(numbers and self.pack(f"{len(numbers)}Q", *numbers))
            made.align(8)
            self.data += content
            location += len(content)
        made.align(8)
        top = ("MetaData", len(made.base), fields)
        used = {field[1] for field in fields}
        parts = [self.array_struct(False), self.array_struct(True)]
        # A complex number is two floats.
        parts += [(f"complex{size}", 2 * size, [("real", "float", size, 0), ("imag", "float", size, size)]) for size in (4, 8)]
        return self.record(self.format([top, *[part for part in parts if part[0] in used]]), made)

    def attributes(self, found):
        """Section 3.8."""
        size, lists = self.pointer, {False: [], True: []}
        for name, value in found.items():
            is_text = isinstance(value, (str, list))
            is_array = not isinstance(value, str) and np.ndim(value) > 0
            kind = "text" if is_text else value.dtype.str[1:]
            mark = chr(ord("0") + TYPES[kind][1] + ARRAY_BP5 * is_array)
            item = Record(self.order, size)
            item.refer((mark + name).encode() + b"\0")
            texts = [value] if isinstance(value, str) else value
            item.number(len(texts) if is_text else value.nbytes)
            if is_text:
                pointers = Record(self.order, size)
                for text in texts:
                    pointers.refer(text.encode() + b"\0")
                item.refer(pointers)
            else:
                item.refer(value.tobytes())
            item.align(8)
            lists[is_text].append(item)
        made, length = Record(self.order, size), 16 + size + -size % 8
        for items in lists.values():
            all_items = Record(self.order, size)
            for item in items:
                at = len(all_items.base)
                all_items.base += item.base
                all_items.places += [(at + place, content) for place, content in item.places]
            made.number(len(items))
            made.refer(all_items)
        made.align(8)
        others = []
        for name, count, value, each in ("PrimAttr", "TotalElementSize", "char", 1), ("StrAttr", "ElementCount", "string", size):
            values = ("Values", f"{value}[{count}]", each, 16)
            others.append((name, length, [("name", "string", size, 0), (count, "integer", 8, 8), values]))
        top = ("GenericAttributes", len(made.base), [
            ("PrimAttrCount", "integer", 8, 0), ("PrimAttrs", "PrimAttr[PrimAttrCount]", length, 8),
            ("StrAttrCount", "integer", 8, 16), ("StrAttrs", "StrAttr[StrAttrCount]", length, 24)])
        return self.record(self.format([top, *others]), made)

    def step(self, found, attributes):
        begins, records = [], []
        for rank in range(WRITERS):
            begins.append(len(self.data))
            records.append(self.variables(rank, found, begins[-1]))
        # One process has the attributes of all.
        records += [self.attributes(attributes) if attributes else b""] + [b""] * (WRITERS - 1)
        sizes = [len(record) for record in records]
        section = self.pack(f"{len(sizes)}Q", *sizes) + b"".join(records)
        begin = len(self.metadata)
        self.metadata += self.pack("Q", len(section)) + section
        self.words(b"s", begin, len(section) + 8, 0, *begins)

    def save(self, directory):
        save(directory, md_idx=self.index, md_0=self.metadata, mmd_0=self.formats, data_0=self.data)


# --- BP4 ------------------------------------------------------------------------------------------

class Bp4:
    def __init__(self, order):
        self.order = order
        self.index = self.metadata = self.data = header(order, 4)
        self.steps = 0

    def pack(self, form, *values):
        return struct.pack(self.order + form, *values)

    def text(self, text):
        return self.pack("H", len(text.encode())) + text.encode()

    def items(self, dimensions, more):
        """A set of characteristics (section 4.3)."""
        numbers = [number for dimension in dimensions for number in dimension]
        dims = self.pack("BBH", 4, len(dimensions), 24 * len(dimensions)) + self.pack(f"{len(numbers)}Q", *numbers)
        items = [self.pack("BI", 8, self.steps + 1), self.pack("BI", 7, 0), dims, *more]
        whole = b"".join(items)
        return self.pack("BI", len(items), len(whole)) + whole

    def block(self, form, kind, operator, block):
        values = block.values
        if form in "gl":
            value = self.text(values) if kind == "text" else values.tobytes()
            return self.items([(1, LOCAL_VALUE, 0)] if form == "l" else [], [b"\0" + value])
        shape, start = block.shape or [0] * values.ndim, block.start or [0] * values.ndim
        content, more = stored(values, operator, self.order), []
        if operator is not None:
            name = {BZIP2: b"bzip2", NULL: b"null"}[operator]
            more.append(self.pack("BB", 11, len(name)) + name + self.pack("BBH", TYPES[kind][0], values.ndim, 24 * values.ndim)
                        + bytes(24 * values.ndim) + self.pack("HQQ", 16, values.nbytes, len(content)))
        more.append(self.pack("BQ", 6, len(self.data)))
        self.data += content
        return self.items(list(zip(values.shape, shape, start)), more)

    def entry(self, number, *parts):
        whole = self.pack("I", number) + self.text("") + b"".join(parts)
        return self.pack("I", len(whole)) + whole

    def attribute(self, number, name, value):
        is_text = isinstance(value, (str, list))
        kind = TEXTS_BP4 if isinstance(value, list) else TYPES["text" if is_text else value.dtype.str[1:]][0]
        texts = [value] if isinstance(value, str) else value
        many = [(len(texts) if is_text else np.size(value), 0, 0)]
        content = b"".join(self.text(text) for text in texts) if is_text else value.tobytes()
        return self.entry(number, self.text(name), self.text(""), self.pack("BQ", kind, 1), self.items(many, [b"\0" + content]))

    def step(self, found, attributes):
        groups = b""
        for rank in range(WRITERS):
            group = self.text("group") + b"n" + self.pack("I", rank) + self.text(str(self.steps + 1))
            group += self.pack("IQ", self.steps + 1, 64)
            groups += self.pack("H", len(group)) + group
        variables = []
        for number, (name, (form, kind, operator, blocks)) in enumerate(found.items()):
            sets = [self.block(form, kind, operator, block) for block in blocks if block]
            head = self.text(name) + b"K\0" + self.pack("BQ", TYPES[kind][0], len(sets))
            variables.append(self.entry(number, head, *sets))
        others = [self.attribute(number, *item) for number, item in enumerate(attributes.items())]
        offsets = [len(self.metadata)]
        lists = ("Q", [WRITERS, groups]), ("I", [len(variables), b"".join(variables)]), ("I", [len(others), b"".join(others)])
        for form, (count, whole) in lists:
            self.metadata += self.pack(form + "Q", count, len(whole)) + whole
            offsets.append(len(self.metadata))
        self.steps += 1
        self.index += self.pack("8Q", self.steps, 0, *offsets, 0, 0)

    def save(self, directory):
        save(directory, md_idx=self.index, md_0=self.metadata, data_0=self.data)


# --- what a reader must see -----------------------------------------------------------------------

def expected(path, order):
    steps = [puts(step, order) for step in range(STEPS)]
    with h5py.File(path, "w") as file:
        for name, (form, kind, _, blocks) in steps[0].items():
            each = [[block.values for block in step[name][3] if block] for step in steps]
            if form == "L":
                file.create_group(name).attrs["adios2_shape"] = "local array"
                for number in range(WRITERS):
                    grown(file, f"{name}/block_{number:05}", [values[number] for values in each])
            elif name.startswith("g/") and form == "G":
                file.create_group(name).attrs["adios2_shape"] = "changes with the step"
                for step, values in enumerate(each):
                    file[f"{name}/step_{step:05}"] = values[0]
            elif kind == "text":
                grown(file, name, [values[0] for values in each], h5py.string_dtype())
            elif form == "g":
                grown(file, name, [values[0] for values in each])
            else:
                # What numpy puts together has the byte order of this machine.
                whole = [np.concatenate([np.atleast_1d(part) for part in values]) for values in each]
                grown(file, name, whole, each[0][0].dtype)
        for name, value in attributes(order).items():
            host, _, name = name.rpartition("/")
            # A number that is native in Python keeps its byte order here.
            kind = h5py.string_dtype() if isinstance(value, (str, list)) else value.dtype
            (file[host] if host else file).attrs.create(name, value, dtype=kind)


def grown(file, name, each, dtype=None):
    """A dataset whose first dimension is that of the steps."""
    dtype = dtype or each[0].dtype
    made = file.create_dataset(name, (len(each), *np.shape(each[0])), dtype, maxshape=(None, *np.shape(each[0])))
    for step, values in enumerate(each):
        made[step] = values
    made.dims[0].label = "step"


def main():
    (directory,) = sys.argv[1:]
    for word, order in ("little", "<"), ("big", ">"):
        for name, made in ("bp4", Bp4(order)), ("bp5", Bp5(order, 8)), ("bp5-32", Bp5(order, 4)):
            for step in range(STEPS):
                made.step(puts(step, order), {} if step else attributes(order))
            path = os.path.join(directory, f"{name}-{word}")
            made.save(f"{path}.bp")
            expected(f"{path}.h5", order)


if __name__ == "__main__":
    main()
