#!/usr/bin/env python3
"""judge.py LIBRARY DIRECTORY [CASE…]: makes files with all kinds of types and properties with a libhdf5, as plain files and
as logs, and prints a table of the differences: what a program of this libhdf5 is told of the log otherwise than of the plain
file.

A case is a type or a property, tried with the default bounds of the format and with the latest ones. The environment makes the
plug-ins known; each way of opening the log sets further variables. `judge.py list LIBRARY` prints the cases. Needs only ctypes.
"""
import ctypes
import json
import os
import subprocess
import sys

import libhdf5

I = ctypes.c_int64
UNLIMITED = 2**64 - 1
# Functions that return an identifier; all others return a status or a number.
IDENTIFIERS = """H5Fcreate H5Fopen H5Gcreate2 H5Gopen2 H5Dcreate2 H5Dopen2 H5Oopen H5Acreate2 H5Aopen H5Aopen_by_idx H5Aget_type H5Aget_space
H5Dget_type H5Dget_space H5Dget_create_plist H5Gget_create_plist H5Tget_create_plist H5Tcreate H5Tcopy H5Tarray_create2 H5Tvlen_create
H5Tenum_create H5Tcomplex_create H5Tget_super H5Tget_member_type H5Screate H5Screate_simple H5Pcreate H5Scopy H5Ropen_object""".split()


class Hdf5Error(Exception):
    """The first message of the error stack."""


class Sequence(ctypes.Structure):
    """hvl_t."""
    _fields_ = [("length", ctypes.c_size_t), ("at", ctypes.c_void_p)]


LINK = ctypes.CFUNCTYPE(ctypes.c_int, I, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)


class Hdf5:
    """The functions of a libhdf5. They take integers of any size, bytes and arrays, and raise on failure."""

    def __init__(self, path):
        self._lib = libhdf5.load(path)
        self._lib.H5Eset_auto2(0, None, None)
        # Object references of a program, which must stay in memory.
        self.kept = []

    def has(self, name):
        return hasattr(self._lib, name)

    def id(self, name):
        """The identifier in a variable of the library."""
        return I.in_dll(self._lib, name + "_g").value

    def __getattr__(self, name):
        function = getattr(self._lib, name)
        function.restype = I if name in IDENTIFIERS else ctypes.c_int
        function.argtypes = None

        def call(*arguments):
            result = function(*(I(a) if isinstance(a, int) else a for a in arguments))
            if result < 0:
                raise Hdf5Error(f"{name}: {libhdf5.reason(self._lib)}")
            return result
        return call

    def size_of(self, datatype):
        self._lib.H5Tget_size.restype = ctypes.c_size_t
        return self._lib.H5Tget_size(I(datatype))

    def text(self, name, *arguments):
        """A text allocated by the library."""
        function = getattr(self._lib, name)
        function.restype = ctypes.c_void_p
        at = function(*(I(a) for a in arguments))
        if not at:
            return None
        text = ctypes.string_at(at)
        self._lib.H5free_memory(ctypes.c_void_p(at))
        return text.decode()


def sizes(*numbers):
    return (ctypes.c_uint64 * len(numbers))(*numbers)


# --- types ------------------------------------------------------------------------------------------


def predefined(name):
    return lambda h: h.H5Tcopy(h.id(name))


def of_17_bits(h):
    made = h.H5Tcopy(h.id("H5T_STD_I32LE"))
    h.H5Tset_precision(made, 17)
    h.H5Tset_offset(made, 3)
    return made


def float_of_24_bits(h):
    made = h.H5Tcopy(h.id("H5T_IEEE_F32LE"))
    h.H5Tset_fields(made, 23, 15, 8, 0, 15)
    h.H5Tset_offset(made, 0)
    h.H5Tset_precision(made, 24)
    h.H5Tset_size(made, 3)
    return made


def compound(h, *members, size=None):
    at, placed = 0, []
    for name, datatype in members:
        placed.append((name, at, datatype))
        at += h.size_of(datatype)
    made = h.H5Tcreate(6, size or at)
    for name, offset, datatype in placed:
        h.H5Tinsert(made, name.encode(), offset, datatype)
    return made


def nested(h):
    inner = compound(h, ("x", h.id("H5T_IEEE_F32LE")), ("n", h.id("H5T_STD_I16BE")), size=12)
    array = h.H5Tarray_create2(inner, 1, sizes(2))
    return compound(h, ("id", h.id("H5T_STD_U8LE")), ("pair", array), ("name", string(h, 5)), size=40)


def enumeration(base, *values):
    def make(h):
        made = h.H5Tenum_create(h.id(base))
        for name, value in values:
            h.H5Tenum_insert(made, name.encode(), ctypes.c_char_p(value))
        return made
    return make


def string(h, size, padding=0, characters=0):
    made = h.H5Tcopy(h.id("H5T_C_S1"))
    h.H5Tset_size(made, size)
    h.H5Tset_strpad(made, padding)
    h.H5Tset_cset(made, characters)
    return made


def opaque(h):
    made = h.H5Tcreate(5, 7)
    h.H5Tset_tag(made, b"seven bytes")
    return made


TYPES = {
    "int8": predefined("H5T_STD_I8LE"), "uint8": predefined("H5T_STD_U8BE"), "int16": predefined("H5T_STD_I16LE"),
    "int32 big endian": predefined("H5T_STD_I32BE"), "uint64": predefined("H5T_STD_U64LE"), "int64 big endian": predefined("H5T_STD_I64BE"),
    "int of 17 bits": of_17_bits, "float16": predefined("H5T_IEEE_F16LE"), "float32 big endian": predefined("H5T_IEEE_F32BE"),
    "float64": predefined("H5T_IEEE_F64LE"), "long double": predefined("H5T_NATIVE_LDOUBLE"), "float of 24 bits": float_of_24_bits,
    "bfloat16": predefined("H5T_FLOAT_BFLOAT16LE"), "float8 e4m3": predefined("H5T_FLOAT_F8E4M3"),
    "float8 e5m2": predefined("H5T_FLOAT_F8E5M2"), "complex64": predefined("H5T_COMPLEX_IEEE_F32LE"),
    "complex128 big endian": predefined("H5T_COMPLEX_IEEE_F64BE"),
    "complex of its own base": lambda h: h.H5Tcomplex_create(h.id("H5T_IEEE_F16BE")),
    "time": predefined("H5T_UNIX_D32LE"), "bitfield": predefined("H5T_STD_B16BE"), "opaque": opaque,
    "compound": lambda h: compound(h, ("a", h.id("H5T_STD_I8LE")), ("b", h.id("H5T_IEEE_F64LE"))), "compound, nested": nested,
    "compound with complex": lambda h: compound(h, ("z", h.id("H5T_COMPLEX_IEEE_F32LE")), ("n", h.id("H5T_STD_I8LE"))),
    "enumeration": enumeration("H5T_STD_I8LE", ("NO", b"\0"), ("YES", b"\1")),
    "enumeration, big endian": enumeration("H5T_STD_U32BE", ("A", b"\0\0\0\7"), ("B", b"\xff\0\0\0")),
    "array": lambda h: h.H5Tarray_create2(h.id("H5T_STD_I16LE"), 2, sizes(2, 3)),
    "string, null terminated": lambda h: string(h, 6), "string, null padded": lambda h: string(h, 6, 1),
    "string, space padded": lambda h: string(h, 6, 2), "string, UTF-8": lambda h: string(h, 9, 0, 1),
    "string of any length": lambda h: string(h, UNLIMITED - 2**64), "string of any length, UTF-8": lambda h: string(h, UNLIMITED - 2**64, 0, 1),
    "sequence": lambda h: h.H5Tvlen_create(h.id("H5T_STD_I32LE")),
    "sequence of compounds": lambda h: h.H5Tvlen_create(compound(h, ("a", h.id("H5T_STD_I8LE")), ("b", h.id("H5T_IEEE_F32LE")))),
    "compound with a text": lambda h: compound(h, ("n", h.id("H5T_STD_I64LE")), ("s", string(h, UNLIMITED - 2**64))),
    "reference to an object": predefined("H5T_STD_REF_OBJ"), "reference to a region": predefined("H5T_STD_REF_DSETREG"),
    "reference": predefined("H5T_STD_REF"),
}
COUNT = 6


def elements(h, file, datatype, count):
    """Memory with values of a type, and everything that must live as long."""
    size, kind = h.size_of(datatype), h.H5Tget_class(datatype)
    if kind == 9:
        base = h.H5Tget_super(datatype)
        held = [elements(h, file, base, n)[0] for n in range(1, count + 1)]
        parts = [Sequence(n + 1, ctypes.cast(part, ctypes.c_void_p)) for n, part in enumerate(held)]
        return (Sequence * count)(*parts), held
    if kind == 3 and h.H5Tis_variable_str(datatype):
        held = [ctypes.create_string_buffer("ä".encode() * n + b"text") for n in range(count)]
        return (ctypes.c_void_p * count)(*(ctypes.addressof(text) for text in held)), held
    if kind == 7:
        return references(h, file, datatype, count, size), None
    if kind == 6 and any(h.H5Tget_member_class(datatype, n) == 3 for n in range(h.H5Tget_nmembers(datatype))) and size == 16:
        texts = elements(h, file, h.H5Tget_member_type(datatype, 1), count)
        both = (ctypes.c_uint64 * (2 * count))()
        for n in range(count):
            both[2 * n], both[2 * n + 1] = n, texts[0][n]
        return both, texts
    raw = bytes((n * 37 + 11) % 120 + 1 for n in range(size * count))
    if kind == 8:
        values = [ctypes.create_string_buffer(size) for _ in range(h.H5Tget_nmembers(datatype))]
        for n, value in enumerate(values):
            h.H5Tget_member_value(datatype, n, value)
        raw = b"".join(values[n % len(values)].raw for n in range(count))
    return ctypes.create_string_buffer(raw, len(raw)), None


def references(h, file, datatype, count, size):
    made = ctypes.create_string_buffer(size * count)
    for n in range(count):
        at = ctypes.byref(made, n * size)
        if size == 64:
            # It keeps its file open until it is destroyed.
            h.H5Rcreate_object(file, b"group", 0, at)
            h.kept.append((made, n * size))
        elif size == 8:
            h.H5Rcreate(at, file, b"group", 0, -1)
        else:
            space = h.H5Screate_simple(1, sizes(COUNT), None)
            h.H5Sselect_hyperslab(space, 0, sizes(n % COUNT), None, sizes(1), None)
            h.H5Rcreate(at, file, b"target", 1, space)
    return made


def case_of_type(make):
    def case(h, file):
        h.H5Gcreate2(file, b"group", 0, 0, 0)
        space = h.H5Screate_simple(1, sizes(COUNT), None)
        write(h, h.H5Dcreate2(file, b"target", h.id("H5T_STD_I32LE"), space, 0, 0, 0), file)
        datatype = make(h)
        dataset = h.H5Dcreate2(file, b"d", datatype, space, 0, 0, 0)
        write(h, dataset, file)
        attribute = h.H5Acreate2(dataset, b"a", datatype, space, 0, 0)
        values, _held = elements(h, file, datatype, COUNT)
        h.H5Awrite(attribute, datatype, values)
        h.H5Tcommit2(file, b"named", datatype, 0, 0, 0)
        write(h, h.H5Dcreate2(file, b"of_named", datatype, space, 0, 0, 0), file)
    return case


def write(h, dataset, file, count=COUNT):
    datatype = h.H5Dget_type(dataset)
    values, _held = elements(h, file, datatype, count)
    h.H5Dwrite(dataset, datatype, 0, 0, 0, values)


# --- properties -------------------------------------------------------------------------------------


def dataset_with(*settings, dims=(6, 4), most=None, kind="H5T_STD_I32LE", writes=True):
    """A dataset case, given functions that set properties in its list."""
    def case(h, file):
        dcpl = h.H5Pcreate(h.id("H5P_CLS_DATASET_CREATE_ID"))
        for setting in settings:
            setting(h, dcpl)
        space = h.H5Screate_simple(len(dims), sizes(*dims), most and sizes(*most))
        dataset = h.H5Dcreate2(file, b"d", h.id(kind), space, 0, dcpl, 0)
        number = 1
        for dim in dims:
            number *= dim
        if writes and number:
            write(h, dataset, file, number)
        return dataset
    return case


def setting(function, *arguments):
    return lambda h, dcpl: getattr(h, function)(dcpl, *arguments)


def fill(value):
    def set_fill(h, dcpl):
        h.H5Pset_fill_value(dcpl, h.id("H5T_STD_I32LE"), None if value is None else ctypes.byref(ctypes.c_int32(value)))
    return set_fill


CHUNKS = setting("H5Pset_chunk", 2, sizes(4, 3))


def layout(number):
    return setting("H5Pset_layout", number)


def alloc(number):
    return setting("H5Pset_alloc_time", number)


def partly(*settings, **more):
    """Some elements are written, and some chunks not at all."""
    def case(h, file):
        dataset = dataset_with(*settings, writes=False, **more)(h, file)
        space = h.H5Dget_space(dataset)
        h.H5Sselect_hyperslab(space, 0, sizes(1, 1), None, sizes(1, 2), None)
        memory = h.H5Screate_simple(1, sizes(2), None)
        h.H5Dwrite(dataset, h.id("H5T_NATIVE_INT"), memory, space, 0, (ctypes.c_int * 2)(5, 6))
        return dataset
    return case


def resized(*steps):
    def case(h, file):
        dataset = dataset_with(CHUNKS, fill(-7), most=(UNLIMITED, 9))(h, file)
        for step in steps:
            h.H5Dset_extent(dataset, sizes(*step))
    return case


def chunk_as_stored(h, file):
    dataset = dataset_with(setting("H5Pset_chunk", 2, sizes(3, 4)), writes=False)(h, file)
    chunk = (ctypes.c_int32 * 12)(*range(12))
    h.H5Dwrite_chunk(dataset, 0, 0, sizes(3, 0), 48, chunk)


def of_no_elements(kind):
    def case(h, file):
        space = h.H5Screate(kind)
        h.H5Acreate2(h.H5Dcreate2(file, b"d", h.id("H5T_STD_I32LE"), space, 0, 0, 0), b"a", h.id("H5T_STD_I8LE"), space, 0, 0)
    return case


def scalar(h, file):
    dataset = h.H5Dcreate2(file, b"d", h.id("H5T_STD_I32LE"), h.H5Screate(0), 0, 0, 0)
    write(h, dataset, file, 1)


def attributes(number, *settings):
    def case(h, file):
        dataset = dataset_with(*settings)(h, file)
        space = h.H5Screate_simple(1, sizes(2), None)
        for n in range(number):
            attribute = h.H5Acreate2(dataset, b"a%03d" % (number - n), h.id("H5T_STD_I16LE"), space, 0, 0)
            h.H5Awrite(attribute, h.id("H5T_STD_I16LE"), (ctypes.c_int16 * 2)(n, -n))
    return case


def groups(*settings, number=3):
    def case(h, file):
        gcpl = h.H5Pcreate(h.id("H5P_CLS_GROUP_CREATE_ID"))
        for setting in settings:
            setting(h, gcpl)
        group = h.H5Gcreate2(file, b"g", 0, gcpl, 0)
        for n in range(number):
            h.H5Gcreate2(group, b"m%02d" % (number - n), 0, 0, 0)
        h.H5Oset_comment(group, b"a comment")
    return case


def links(h, file):
    dataset_with()(h, file)
    h.H5Gcreate2(file, b"g", 0, 0, 0)
    h.H5Lcreate_hard(file, b"d", file, b"g/hard", 0, 0)
    h.H5Lcreate_soft(b"/g/hard", file, b"soft", 0, 0)
    h.H5Lcreate_soft(b"/nowhere", file, b"dangling", 0, 0)
    h.H5Lcreate_external(b"other.h5", b"/x", file, b"external", 0, 0)


def untimed(h, file):
    """Objects of all kinds without times, and between them a group and a dataset with times."""
    def list_for(objects):
        made = h.H5Pcreate(h.id(f"H5P_CLS_{objects}_CREATE_ID"))
        h.H5Pset_obj_track_times(made, 0)
        return made
    datatype = h.H5Tcopy(h.id("H5T_STD_I32LE"))
    h.H5Tcommit2(file, b"named", datatype, 0, list_for("DATATYPE"), 0)
    group = h.H5Gcreate2(file, b"group", 0, list_for("GROUP"), 0)
    h.H5Gcreate2(group, b"timed", 0, 0, 0)
    space = h.H5Screate_simple(2, sizes(6, 4), None)
    kinds = {b"contiguous": [], b"another": [], b"chunked": [CHUNKS], b"compact": [layout(0)]}
    for parent in (file, group):
        for name, settings in kinds.items():
            dcpl = list_for("DATASET")
            for setting in settings:
                setting(h, dcpl)
            write(h, h.H5Dcreate2(parent, name, h.id("H5T_STD_I32LE"), space, 0, dcpl, 0), file, 24)
        others = {b"variable": h.H5Tvlen_create(h.id("H5T_STD_I32LE")), b"of_named": datatype}
        for name, kind in others.items():
            write(h, h.H5Dcreate2(parent, name, kind, space, 0, list_for("DATASET"), 0), file, 24)
        write(h, h.H5Dcreate2(parent, b"between", datatype, space, 0, 0, 0), file, 24)


def external(h, file):
    name = os.path.join(os.getcwd(), "external.raw").encode()
    dataset_with(setting("H5Pset_external", name, 0, UNLIMITED - 2**64))(h, file)


def virtual(h, file):
    space = h.H5Screate_simple(1, sizes(COUNT), None)
    source = h.H5Dcreate2(file, b"source", h.id("H5T_STD_I32LE"), space, 0, 0, 0)
    write(h, source, file)
    dcpl = h.H5Pcreate(h.id("H5P_CLS_DATASET_CREATE_ID"))
    h.H5Pset_virtual(dcpl, space, b".", b"source", space)
    h.H5Dcreate2(file, b"d", h.id("H5T_STD_I32LE"), space, 0, dcpl, 0)


DEFLATE = setting("H5Pset_deflate", 6)
PROPERTIES = {
    "compact": dataset_with(layout(0)), "contiguous": dataset_with(layout(1)), "contiguous, allocated early": dataset_with(layout(1), alloc(1)),
    "contiguous, never written": dataset_with(layout(1), writes=False), "contiguous, partly written": partly(layout(1)),
    "chunked": dataset_with(CHUNKS), "chunked, allocated early": dataset_with(CHUNKS, alloc(1)),
    "chunked, allocated late": dataset_with(CHUNKS, alloc(2)), "chunked, never written": dataset_with(CHUNKS, writes=False),
    "chunked, partly written": partly(CHUNKS, fill(-7)), "one chunk": dataset_with(setting("H5Pset_chunk", 2, sizes(6, 4))),
    "unlimited": dataset_with(CHUNKS, most=(UNLIMITED, 4)), "unlimited in both": dataset_with(CHUNKS, most=(UNLIMITED, UNLIMITED)),
    "grown": resized((9, 4)), "shrunk": resized((3, 2)), "shrunk and grown": resized((3, 2), (7, 5)),
    "fill value": partly(CHUNKS, fill(-7)), "fill value, undefined": dataset_with(CHUNKS, fill(None)),
    "fill value, never": dataset_with(CHUNKS, fill(-7), setting("H5Pset_fill_time", 1)),
    "fill value, when allocated": partly(CHUNKS, fill(-7), setting("H5Pset_fill_time", 0)),
    "deflate": dataset_with(CHUNKS, DEFLATE), "deflate, partly written": partly(CHUNKS, DEFLATE, fill(-7)),
    "shuffle and deflate": dataset_with(CHUNKS, setting("H5Pset_shuffle"), DEFLATE),
    "fletcher32": dataset_with(CHUNKS, setting("H5Pset_fletcher32")), "nbit": dataset_with(CHUNKS, setting("H5Pset_nbit")),
    "scale-offset": dataset_with(CHUNKS, setting("H5Pset_scaleoffset", 2, 0)), "szip": dataset_with(CHUNKS, setting("H5Pset_szip", 32, 4)),
    "filter that may be left out": dataset_with(CHUNKS, setting("H5Pset_filter", 1, 1, 1, (ctypes.c_uint * 1)(9))),
    "chunks at edges not filtered": dataset_with(CHUNKS, DEFLATE, setting("H5Pset_chunk_opts", 2)),
    "chunk as it is stored": chunk_as_stored, "no times": dataset_with(CHUNKS, setting("H5Pset_obj_track_times", 0)),
    "times": dataset_with(CHUNKS, setting("H5Pset_obj_track_times", 1)), "no times, objects of all kinds": untimed,
    "null dataspace": of_no_elements(2), "scalar": scalar,
    "no elements": dataset_with(dims=(0, 4)), "no elements, unlimited": dataset_with(CHUNKS, dims=(0, 4), most=(UNLIMITED, 4)),
    "few attributes": attributes(3), "many attributes": attributes(40),
    "attributes in order": attributes(3, setting("H5Pset_attr_creation_order", 3)),
    "attributes elsewhere": attributes(3, setting("H5Pset_attr_phase_change", 0, 0)),
    "group": groups(), "group in order": groups(setting("H5Pset_link_creation_order", 3)),
    "group of many links": groups(setting("H5Pset_link_phase_change", 2, 1), number=12),
    "links": links, "external storage": external, "virtual dataset": virtual,
}
CASES = {**{name: case_of_type(make) for name, make in TYPES.items()}, **PROPERTIES}
BOUNDS = ("default", "latest")


# --- what a program is told -------------------------------------------------------------------------


def type_text(h, datatype):
    kind = h.H5Tget_class(datatype)
    said = [kind, h.size_of(datatype)]
    if kind in (0, 1, 2, 4):
        offset = h.H5Tget_offset(datatype)
        said += [h.H5Tget_order(datatype), h.H5Tget_precision(datatype), offset]
    if kind == 0:
        said.append(h.H5Tget_sign(datatype))
    elif kind == 1:
        fields = (ctypes.c_size_t * 5)()
        h.H5Tget_fields(datatype, *(ctypes.byref(fields, n * 8) for n in range(5)))
        said += [list(fields), h.H5Tget_norm(datatype), h.H5Tget_inpad(datatype)]
    elif kind == 3:
        said += [h.H5Tis_variable_str(datatype), h.H5Tget_strpad(datatype), h.H5Tget_cset(datatype)]
    elif kind == 5:
        said.append(h.text("H5Tget_tag", datatype))
    elif kind == 6:
        for n in range(h.H5Tget_nmembers(datatype)):
            said.append([h.text("H5Tget_member_name", datatype, n), h.H5Tget_member_offset(datatype, n),
                         type_text(h, h.H5Tget_member_type(datatype, n))])
    elif kind == 7:
        said.append(h.H5Tequal(datatype, h.id("H5T_STD_REF_OBJ")))
    elif kind == 8:
        value = ctypes.create_string_buffer(h.size_of(datatype))
        for n in range(h.H5Tget_nmembers(datatype)):
            h.H5Tget_member_value(datatype, n, value)
            said.append([h.text("H5Tget_member_name", datatype, n), value.raw.hex()])
    elif kind == 10:
        dims = sizes(*[0] * h.H5Tget_array_ndims(datatype))
        h.H5Tget_array_dims2(datatype, dims)
        said.append(list(dims))
    if kind in (8, 9, 10, 11):
        said.append(type_text(h, h.H5Tget_super(datatype)))
    return said


def space_text(h, space):
    rank = h.H5Sget_simple_extent_ndims(space)
    dims, most = sizes(*[0] * rank), sizes(*[0] * rank)
    if rank:
        h.H5Sget_simple_extent_dims(space, dims, most)
    return [h.H5Sget_simple_extent_type(space), list(dims), list(most)]


def value_text(h, file, datatype, at, count):
    """The meaning of elements in memory."""
    size, kind = h.size_of(datatype), h.H5Tget_class(datatype)
    said = []
    for n in range(count):
        here = at + n * size
        if kind == 9:
            sequence = Sequence.from_address(here)
            said.append(value_text(h, file, h.H5Tget_super(datatype), sequence.at, sequence.length))
        elif kind == 3 and h.H5Tis_variable_str(datatype):
            text = ctypes.c_void_p.from_address(here).value
            said.append(text and ctypes.string_at(text).decode())
        elif kind == 7:
            said.append(target_text(h, file, here, size))
        elif kind == 6:
            said.append([value_text(h, file, h.H5Tget_member_type(datatype, m), here + h.H5Tget_member_offset(datatype, m), 1)
                         for m in range(h.H5Tget_nmembers(datatype))])
        else:
            said.append(ctypes.string_at(here, size).hex())
    return said


def target_text(h, file, at, size):
    """The name of a reference's target."""
    name = ctypes.create_string_buffer(100)
    if size == 64:
        h.H5Rget_obj_name(ctypes.c_void_p(at), 0, name, 100)
        h.H5Rdestroy(ctypes.c_void_p(at))
    else:
        h.H5Rget_name(file, 0 if size == 8 else 1, ctypes.c_void_p(at), name, 100)
    return name.value.decode()


def read_text(h, file, thing, datatype, space, read):
    number = max(1, h.H5Sget_simple_extent_npoints(space))
    memory = ctypes.create_string_buffer(number * h.size_of(datatype))
    if h.H5Sget_simple_extent_type(space) == 2 or not h.H5Sget_simple_extent_npoints(space):
        return []
    read(memory)
    return value_text(h, file, datatype, ctypes.addressof(memory), number)


def number_from(function, dcpl, kind=ctypes.c_uint):
    place = kind()
    function(dcpl, ctypes.byref(place))
    return place.value


def properties_text(h, dcpl, rank):
    said = {"layout": h.H5Pget_layout(dcpl)}
    if said["layout"] == 2:
        chunk = sizes(*[0] * rank)
        h.H5Pget_chunk(dcpl, rank, chunk)
        said["chunk"] = list(chunk)
        said["edges"] = number_from(h.H5Pget_chunk_opts, dcpl)
    said["filters"] = []
    for n in range(h.H5Pget_nfilters(dcpl)):
        flags, count, values = ctypes.c_uint(), ctypes.c_size_t(20), (ctypes.c_uint * 20)()
        number = h.H5Pget_filter2(dcpl, n, ctypes.byref(flags), ctypes.byref(count), values, 0, None, None)
        said["filters"].append([number, flags.value, list(values[:count.value])])
    defined = number_from(h.H5Pfill_value_defined, dcpl, ctypes.c_int)
    said["fill value"] = [defined, None]
    if defined == 2:
        said["fill value"][1] = number_from(lambda list, at: h.H5Pget_fill_value(list, h.id("H5T_STD_I32LE"), at), dcpl, ctypes.c_int32)
    said["fill time"] = number_from(h.H5Pget_fill_time, dcpl, ctypes.c_int)
    said["allocation time"] = number_from(h.H5Pget_alloc_time, dcpl, ctypes.c_int)
    said["external files"] = h.H5Pget_external_count(dcpl)
    if said["layout"] == 3:
        said["virtual"] = number_from(h.H5Pget_virtual_count, dcpl, ctypes.c_size_t)
    return {**said, **object_text(h, dcpl)}


def object_text(h, list):
    phase = (ctypes.c_uint * 2)()
    h.H5Pget_attr_phase_change(list, phase, ctypes.byref(phase, 4))
    return {"times": number_from(h.H5Pget_obj_track_times, list, ctypes.c_bool),
            "order of attributes": number_from(h.H5Pget_attr_creation_order, list), "phase change": phase[:]}


def attributes_text(h, file, thing):
    said = {}
    number = h.H5Aget_num_attrs(thing)
    for n in range(number):
        attribute = h.H5Aopen_by_idx(thing, b".", 0, 0, n, 0, 0)
        name = ctypes.create_string_buffer(50)
        h.H5Aget_name(attribute, 50, name)
        datatype, space = h.H5Aget_type(attribute), h.H5Aget_space(attribute)
        said[name.value.decode()] = [type_text(h, datatype), space_text(h, space), read_text(
            h, file, attribute, datatype, space, lambda memory: h.H5Aread(attribute, datatype, memory))]
        h.H5Aclose(attribute)
    return said


def group_text(h, group):
    gcpl = h.H5Gget_create_plist(group)
    said = {"order of links": number_from(h.H5Pget_link_creation_order, gcpl), **object_text(h, gcpl)}
    comment = ctypes.create_string_buffer(50)
    h.H5Oget_comment(group, comment, 50)
    said["comment"] = comment.value.decode()
    return said


def links_of(h, group):
    names = []

    @LINK
    def visit(_group, name, info, _data):
        # H5L_info2_t begins with the type of the link.
        names.append((name, ctypes.c_int.from_address(info).value))
        return 0
    h.H5Literate2(group, 0, 0, None, visit, None)
    return names


def file_text(h, file):
    """Everything that a program is told: for each object its parts by name."""
    said, seen = {}, [(b"/", file)]
    while seen:
        path, parent = seen.pop()
        group = h.H5Gopen2(parent, path, 0)
        said[path.decode()] = {**group_text(h, group), "attributes": attributes_text(h, file, group)}
        for name, kind in links_of(h, group):
            whole = os.path.join(path, name)
            if kind:
                said[whole.decode()] = {"link": kind}
                continue
            thing = h.H5Oopen(group, name, 0)
            kind = h.H5Iget_type(thing)
            if kind == 2:
                seen.append((whole, file))
                continue
            text = {"kind": kind, "attributes": attributes_text(h, file, thing)}
            if kind == 3:
                text["type"] = type_text(h, thing)
                text.update(object_text(h, h.H5Tget_create_plist(thing)))
            else:
                datatype, space = h.H5Dget_type(thing), h.H5Dget_space(thing)
                text["type"], text["space"] = type_text(h, datatype), space_text(h, space)
                text["committed"] = h.H5Tcommitted(datatype)
                text.update(properties_text(h, h.H5Dget_create_plist(thing), h.H5Sget_simple_extent_ndims(space)))
                text["elements"] = read_text(h, file, thing, datatype, space, lambda memory: h.H5Dread(thing, datatype, 0, 0, 0, memory))
            said[whole.decode()] = text
            h.H5Oclose(thing)
        h.H5Gclose(group)
    return said


# --- processes --------------------------------------------------------------------------------------


def access_list(h, bounds):
    fapl = h.H5Pcreate(h.id("H5P_CLS_FILE_ACCESS_ID"))
    if bounds == "latest":
        # H5F_LIBVER_LATEST: 1.8, 1.10, 1.12, 1.14 and 2.0 are 1 to 5.
        latest = 5
        while True:
            try:
                h.H5Pset_libver_bounds(fapl, latest, latest)
                break
            except Hdf5Error:
                latest -= 1
    return fapl


def make(h, path, name, bounds, ending):
    """Makes a file, and prints what a program is told while it is open."""
    try:
        file = h.H5Fcreate(path.encode(), 2, 0, access_list(h, bounds))
        CASES[name](h, file)
    except (Hdf5Error, ValueError, AttributeError) as error:
        return {"error": str(error)}
    text = described(h, file)
    if ending == "flush":
        h.H5Fflush(file, 1)
    else:
        for memory, at in h.kept:
            h.H5Rdestroy(ctypes.byref(memory, at))
        h.kept.clear()
        # Everything with an identifier, so that the file is closed.
        number = h.H5Fget_obj_count(file, 0x1f)
        ids = (I * number)()
        h.H5Fget_obj_ids(file, 0x1e, number, ids)
        for id in ids:
            if id:
                h.H5Idec_ref(id)
        try:
            h.H5Fclose(file)
        except Hdf5Error as error:
            return {"error": str(error)}
    return text


def described(h, file):
    try:
        return file_text(h, file)
    except Hdf5Error as error:
        return {"error": str(error)}


def read(h, path):
    try:
        file = h.H5Fopen(path.encode(), 0, 0)
    except Hdf5Error as error:
        return {"error": str(error)}
    return described(h, file)


def work(library, what, *jobs):
    """The work of a process for the table: one line of JSON per job."""
    h = Hdf5(library)
    for job in jobs:
        path, name, bounds = job.split("|")
        text = read(h, path) if what == "read" else make(h, path, name, bounds, what)
        print(json.dumps(text), flush=True)
    sys.stdout.flush()
    # A log that was only flushed stays unclosed.
    os._exit(0)


WAYS = ("open", "connector", "driver", "settled", "killed")
CONNECTOR = {"HDF5_VOL_CONNECTOR": "h5logfs"}


def run(library, what, variables, jobs):
    """The output of jobs, run in another process. If the process dies, the rest has no output."""
    command = [sys.executable, __file__, "work", library, what, *("|".join(job) for job in jobs)]
    process = subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE)
    texts = [json.loads(line) for line in process.stdout.splitlines()]
    died = {"error": f"the process has ended with {process.returncode}"}
    return texts + [died] * (len(jobs) - len(texts))


def differences(told, expected):
    """The names of the parts that differ."""
    if "error" in told and "error" in expected:
        return set()
    if "error" in told:
        return {"an error"}
    if "error" in expected:
        return {"no error where a plain file has one"}
    found = set()
    for path in told.keys() | expected.keys():
        one, other = told.get(path), expected.get(path)
        if one is None or other is None:
            found.add(f"object {path}")
            continue
        found |= {part for part in one.keys() | other.keys() if one.get(part) != other.get(part)}
    return found


def table(library, directory, names):
    os.chdir(directory)
    jobs = {kind: [(f"{kind}-{bounds}-{n}.h5", name, bounds) for n, name in enumerate(names) for bounds in BOUNDS]
            for kind in ("plain", "log", "settled", "killed")}
    plain = run(library, "close", {}, jobs["plain"])
    read_plain = run(library, "read", {}, jobs["plain"])
    told = {"open": run(library, "close", CONNECTOR, jobs["log"])}
    settled = {"HDF5_VOL_CONNECTOR": "h5logfs settle=yes"}
    made = run(library, "close", settled, jobs["settled"])
    killed = run(library, "flush", CONNECTOR, jobs["killed"])
    told["connector"] = run(library, "read", CONNECTOR, jobs["log"])
    told["driver"] = run(library, "read", {"HDF5_DRIVER": "h5logfs"}, jobs["log"])
    told["settled"] = run(library, "read", {}, jobs["settled"])
    told["killed"] = run(library, "read", {"HDF5_DRIVER": "h5logfs"}, jobs["killed"])
    expected = {way: plain if way == "open" else read_plain for way in WAYS}
    for n, name in enumerate(names):
        print(name)
        if "error" in plain[2 * n]:
            print(f"    {'unknown':<12}same")
            continue
        for way in WAYS:
            cells = [differences(told[way][2 * n + b], expected[way][2 * n + b]) for b in range(len(BOUNDS))]
            both = set.intersection(*cells)
            # Differences with some bounds only.
            parts = sorted(both) + [f"{part} ({bounds})" for cell, bounds in zip(cells, BOUNDS) for part in sorted(cell - both)]
            print(f"    {way:<12}{', '.join(parts) or 'same'}")
    del made, killed


if sys.argv[1] == "work":
    work(*sys.argv[2:])
elif sys.argv[1] == "list":
    print(*CASES, sep="\n")
else:
    table(sys.argv[1], sys.argv[2], sys.argv[3:] or list(CASES))
