#!/usr/bin/env python3
"""objects make DIR: makes HDF5 files with objects of every kind in DIR.
objects large DIR: makes files with very many links and attributes.
objects samples DIR: makes the small files that fuzzing begins with (fuzz/samples/objects-*.h5).
objects show FILE...: prints what h5py sees of files, as JSON: one line per object, and an empty one after each file.

Texts are shown with a character for each byte, integers as decimal texts, and floating-point numbers by the bits of a double.
tests/library/objects.rs shows the same without libhdf5.
"""
import json
import os
import struct
import sys

import h5py
import numpy as np
from h5py import h5a, h5d, h5o, h5p, h5s, h5t

# --- making -------------------------------------------------------------------------------------


def text_type(size, pad, cset=h5t.CSET_ASCII):
    tid = h5t.C_S1.copy()
    tid.set_size(size)
    tid.set_strpad(pad)
    tid.set_cset(cset)
    return tid


def numbers():
    """Values of all types of numbers, with names."""
    for order in "<>":
        for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"):
            info = np.iinfo(code)
            yield order + code, np.array([info.min, info.max, 0, 1, 7], order + code)
        for code in ("f2", "f4", "f8"):
            tiny = np.finfo(code).smallest_subnormal
            yield order + code, np.array([0.1, -2.5, np.inf, tiny, -0.0, np.nan], order + code)
        for code in ("c8", "c16"):
            yield order + code, np.array([1 + 2j, -0.5j], order + code)
    yield "long double", np.array([0.1, 1 / 3, -1e300], np.longdouble)
    yield "bool", np.array([True, False])


def structures():
    inner = np.dtype([("x", "<i2"), ("y", ">f8")])
    outer = np.dtype([("a", "u1"), ("inner", inner), ("array", "<i4", (2, 3)), ("text", "S5"), ("many", inner, 2)], align=True)
    value = np.zeros(3, outer)
    value["a"] = [1, 2, 3]
    value["inner"]["y"] = 2.5
    value["array"] = np.arange(18).reshape(3, 2, 3)
    value["text"] = [b"ab", b"", b"12345"]
    value["many"]["x"] = [[1, 2], [3, 4], [5, 6]]
    yield "compound", value
    yield "scalar compound", value[0]
    wide = np.zeros((), [(f"member {i}", "<f4") for i in range(100)])
    wide["member 70"] = 7
    yield "wide", wide


def choice():
    return h5py.enum_dtype({"RED": -1, "GREEN": 0, "BLUE": 1000}, basetype=">i2")


def special(f, add):
    """Values of all other types. `add` takes a name, values and a type."""
    add("choice", np.array([-1, 1000], ">i2"), choice())
    add("texts", np.array(["a", "", "größer", "x" * 300], object), h5py.string_dtype())
    add("ascii", np.array([b"a", b"bc"], object), h5py.string_dtype("ascii"))
    fixed = h5py.string_dtype("utf-8", 6)
    add("fixed", np.array([b"a", b"bcd"], fixed), fixed)
    lists = np.empty(3, object)
    lists[:] = [np.arange(3, dtype="<i4"), np.array([], "<i4"), np.arange(1000, dtype="<i4")]
    add("lists", lists, h5py.vlen_dtype("<i4"))
    structs = np.empty(2, object)
    pair = np.dtype([("a", "<i4"), ("b", "<f8")])
    structs[:] = [np.array([(1, 2.5), (3, 4)], pair), np.array([], pair)]
    add("lists of compounds", structs, h5py.vlen_dtype(pair))
    mixed = np.dtype([("n", "<i4"), ("text", h5py.string_dtype()), ("ref", h5py.ref_dtype)])
    add("mixed", np.array([(1, "one", f.ref), (2, "", f["data"].ref)], mixed), mixed)
    refs = np.array([f.ref, f["data"].ref, h5py.Reference()], object)
    add("references", refs, h5py.ref_dtype)
    regions = np.array([f["data"].regionref[2:5], f["data"].regionref[0:1]], object)
    add("regions", regions, h5py.regionref_dtype)
    add("array", np.arange(24).reshape(2, 3, 4), np.dtype(("<i8", (3, 4))))


def raw_attribute(obj, name, tid, dims, data):
    """An attribute with these bytes as elements."""
    space = h5s.create_simple(dims)
    aid = h5a.create(obj.id, name, tid, space)
    values = np.frombuffer(data, f"V{tid.get_size()}").reshape(dims).copy()
    aid.write(values, mtype=tid)


def bare(obj):
    """Types that numpy lacks."""
    bits = h5t.STD_B16BE.copy()
    raw_attribute(obj, b"bits", bits, (2,), b"\x12\x34\x56\x78")
    some = h5t.STD_I32LE.copy()
    some.set_precision(11)
    some.set_offset(5)
    some.set_sign(h5t.SGN_2)
    raw_attribute(obj, b"some bits", some, (2,), struct.pack("<II", 0xFFE0, 0x0FE0))
    tagged = h5t.create(h5t.OPAQUE, 5)
    tagged.set_tag(b"a tag")
    raw_attribute(obj, b"tagged", tagged, (2,), b"0123456789")
    for name, pad in [(b"terminated", h5t.STR_NULLTERM), (b"zeros", h5t.STR_NULLPAD), (b"spaces", h5t.STR_SPACEPAD)]:
        raw_attribute(obj, name, text_type(4, pad), (2,), b"ab\0\0cde\0" if pad != h5t.STR_SPACEPAD else b"ab  cdef")


def attributes(f, obj):
    for name, value in [*numbers(), *structures()]:
        obj.attrs[name] = value
    special(f, lambda name, value, dtype: obj.attrs.create(name, value, dtype=dtype))
    obj.attrs["empty"] = h5py.Empty("f4")
    obj.attrs["empty text"] = h5py.Empty("S3")
    obj.attrs["none"] = np.zeros((2, 0, 3), "<i4")
    obj.attrs["text"] = "a text"
    obj.attrs["cube"] = np.arange(24, dtype="<i2").reshape(2, 3, 4)
    bare(obj)


def layouts(f):
    g = f.create_group("layouts")
    g.create_dataset("contiguous", data=np.arange(10.0))
    g.create_dataset("unwritten", (3, 4), "<i4")
    g.create_dataset("filled", (3, 4), "<i4", fillvalue=-7)
    g.create_dataset("scalar", data=5)
    g.create_dataset("null", data=h5py.Empty("<f8"))
    g.create_dataset("nothing", (0, 3), "<f8", maxshape=(None, 5))
    g.create_dataset("text", data="a text of variable length")
    space = h5s.create_simple((4,))
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_layout(h5d.COMPACT)
    h5d.create(g.id, b"compact", h5t.STD_I16BE, space, plist).write(h5s.ALL, h5s.ALL, np.arange(4, dtype="<i2"))
    for name, options in {
        "plain": {},
        "gzip": {"compression": "gzip", "compression_opts": 5, "shuffle": True, "fletcher32": True},
        "lzf": {"compression": "lzf"},
        "scaleoffset": {"scaleoffset": 4},
    }.items():
        data = np.arange(200, dtype="<i4").reshape(20, 10)
        g.create_dataset(f"chunked {name}", data=data, chunks=(3, 4), maxshape=(None, 10), **options)
    some = g.create_dataset("some chunks", (1000, 1000), "<f4", chunks=(10, 10), fillvalue=1.5)
    some[500, 500] = 1
    some[3, 999] = 2
    # The kinds of chunk indexes, with missing blocks and pages. Where another dimension than the first is unlimited,
    # HDF5 reports wrong places of chunks.
    for name, maxshape in {"fixed": (40, 30), "both": (None, None)}.items():
        for kind, options in {"plain": {}, "gzip": {"compression": "gzip"}}.items():
            data = np.arange(200, dtype="<i4").reshape(20, 10)
            g.create_dataset(f"{name} {kind}", data=data, chunks=(3, 4), maxshape=maxshape, **options)
    long = g.create_dataset("long", (300_000,), "<i2", chunks=(1,), maxshape=(None,))
    for at in (0, 5, 70, 9_000, 140_000, 200_000, 299_999):
        long[at] = at % 1000
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk((3, 4))
    plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    early = h5d.create(g.id, b"early", h5t.STD_I32LE, h5s.create_simple((10, 9)), plist)
    early.write(h5s.ALL, h5s.ALL, np.arange(90, dtype="<i4").reshape(10, 9))
    g.create_dataset("no chunk", (10,), "<f4", chunks=(10,))
    g.create_dataset("one chunk", data=np.arange(10), chunks=(10,))
    g.create_dataset("one filtered chunk", data=np.arange(10), chunks=(10,), compression="gzip")
    record = np.array((1, 2.5), [("a", "<i4"), ("b", "<f8")])
    g.create_dataset("record", (3,), record.dtype, fillvalue=record)
    g.create_dataset("elsewhere", (4,), "<i4", external=[("elsewhere.bin", 0, 16)])
    layout = h5py.VirtualLayout((10,), "<f8")
    layout[:] = h5py.VirtualSource("other.h5", "x", (10,))
    if f.libver[0] not in ("earliest", "v108"):
        g.create_virtual_dataset("virtual", layout)


def links(f):
    g = f.create_group("links")
    g["hard"] = f["data"]
    g["root"] = f["/"]
    g["soft"] = h5py.SoftLink("/data")
    g["relative"] = h5py.SoftLink("deeper/./x")
    g["dangling"] = h5py.SoftLink("/nowhere/at/all")
    g["loop"] = h5py.SoftLink("/links/loop")
    g["long"] = h5py.SoftLink("/" + "long/" * 100)
    g["external"] = h5py.ExternalLink("other.h5", "/x/y")
    g["größer"] = h5py.SoftLink("größer")
    g.create_group("deeper")["x"] = 1
    f.create_group("empty")


def committed(f):
    g = f.create_group("committed")
    g["number"] = np.dtype(">f4")
    pair = np.dtype([("a", "<i4"), ("b", "<f8")])
    g["pair"] = pair
    g["number"].attrs["unit"] = "m"
    g.create_dataset("data", (5,), g["pair"])
    for i in range(3):
        g.attrs.create(f"attribute {i}", np.zeros(2, pair), dtype=g["pair"])
    for i in range(20):
        g["data"].attrs.create(f"attribute {i}", np.float32(i), dtype=g["number"])


def ordered(f):
    for count in (3, 30):
        g = f.create_group(f"ordered {count}", track_order=True)
        for i in range(count):
            g.create_group(f"{(i * 7) % count:02}", track_order=True)
            g.attrs[f"{(i * 11) % count:02}"] = i
        d = g.create_dataset("data", (2,), "<f4", track_order=True)
        for i in range(count):
            d.attrs[f"{(i * 11) % count:02}"] = i


def extent(value, dtype):
    """The extent of values, without the dimensions of an array type."""
    return value.shape[: value.ndim - len(np.dtype(dtype).shape)]


def add_dataset(f, name, value, dtype):
    f.create_dataset(f"datasets/{name}", extent(value, dtype), dtype)[...] = value


def make_one(path, libver, **options):
    with h5py.File(path, "w", libver=libver, **options) as f:
        f["data"] = np.arange(10)
        for name, value in [*numbers(), *structures()]:
            f.create_dataset(f"datasets/{name}", data=value)
        special(f, lambda *given: add_dataset(f, *given))
        attributes(f, f.create_group("attributes"))
        few = f.create_group("few")
        few.attrs["b"], few.attrs["a"] = 1, 2
        layouts(f)
        links(f)
        committed(f)
        ordered(f)


def make(dir):
    make_one(os.path.join(dir, "earliest.h5"), ("earliest", "latest"))
    make_one(os.path.join(dir, "latest.h5"), "latest")
    make_one(os.path.join(dir, "v108.h5"), ("v108", "v108"), track_order=True)
    make_one(os.path.join(dir, "block.h5"), ("earliest", "v110"), userblock_size=1024)
    with h5py.File(os.path.join(dir, "names.h5"), "w", libver="earliest") as f:
        for i in range(300):
            f[f"{i * 7 % 300:03}"] = h5py.SoftLink(f"/{i:03}")


def large(dir):
    for name, libver in [("old", "earliest"), ("new", "latest")]:
        with h5py.File(os.path.join(dir, f"{name}.h5"), "w", libver=libver) as f:
            f["data"] = 1
            for order in (False, True):
                g = f.create_group(f"many {order}", track_order=order)
                for i in range(10_000):
                    g[f"link {i * 7919 % 10_000}"] = f["data"]
                for i in range(3000):
                    f["data"].attrs[f"{order} {i * 7919 % 3000}"] = i
            if libver == "latest":
                for i in range(9):
                    f.attrs[f"large {i}"] = np.arange(9000 + i)
                f.attrs["largest"] = np.arange(500_000)


def samples(dir):
    with h5py.File(os.path.join(dir, "objects-old.h5"), "w", libver="earliest") as f:
        f["data"] = np.arange(4)
        # Fuzzing does not take long files.
        special(f, lambda name, value, dtype: f.attrs.create(name, value[:2], dtype=dtype))
        f.attrs["compound"] = next(structures())[1]
        bare(f)
    with h5py.File(os.path.join(dir, "objects-new.h5"), "w", libver="latest") as f:
        f["data"] = np.arange(4)
        f["type"] = np.dtype([("a", "<i4"), ("b", ">f8")])
        for i in range(12):
            f.attrs[f"attribute {i}"] = i
        f.attrs.create("pairs", np.zeros(2, f["type"].dtype), dtype=f["type"])
        f["data"].attrs["one"] = "text"
        f.create_dataset("chunks", data=np.arange(20), chunks=(3,), compression="gzip")
    with h5py.File(os.path.join(dir, "objects-links.h5"), "w", libver="latest", track_order=True) as f:
        for i in range(40):
            f[f"a longer name {i}"] = h5py.SoftLink("/a/b")
        f["group/x"] = 1
        f["group/soft"] = h5py.SoftLink("x")
        f["group/external"] = h5py.ExternalLink("file", "/path")


# --- showing ------------------------------------------------------------------------------------


def text(value):
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    return bytes(value).decode("latin-1")


ORDERS = {h5t.ORDER_LE: False, h5t.ORDER_BE: True}


def bits(t):
    return [t.get_offset(), t.get_precision()]


def is_variable(t):
    """Whether elements of a type have bytes elsewhere."""
    kind = t.get_class()
    if kind == h5t.STRING:
        return t.is_variable_str()
    if kind == h5t.COMPOUND:
        return any(is_variable(t.get_member_type(i)) for i in range(t.get_nmembers()))
    return kind == h5t.VLEN or kind == h5t.ARRAY and is_variable(t.get_super())


def shown_type(t):
    kind = t.get_class()
    if kind == h5t.INTEGER:
        return ["integer", t.get_size(), t.get_sign() == h5t.SGN_2, ORDERS[t.get_order()], bits(t)]
    if kind == h5t.FLOAT:
        return ["float", t.get_size(), ORDERS[t.get_order()], bits(t), list(t.get_fields()), t.get_ebias()]
    if kind == h5t.BITFIELD:
        return ["bits", t.get_size()]
    if kind == h5t.STRING:
        size = None if t.is_variable_str() else t.get_size()
        return ["text", size, t.get_strpad(), t.get_cset() == h5t.CSET_UTF8]
    if kind == h5t.OPAQUE:
        return ["opaque", t.get_size(), text(t.get_tag())]
    if kind == h5t.COMPOUND:
        each = range(t.get_nmembers())
        # Values of variable length have another size in memory, which libhdf5 reports.
        known = not any(is_variable(t.get_member_type(i)) for i in each)
        members = [[text(t.get_member_name(i)), t.get_member_offset(i) if known else None, shown_type(t.get_member_type(i))] for i in each]
        return ["compound", t.get_size() if known else None, members]
    if kind == h5t.ENUM:
        members = [[text(t.get_member_name(i)), str(t.get_member_value(i))] for i in range(t.get_nmembers())]
        return ["enum", shown_type(t.get_super()), members]
    if kind == h5t.ARRAY:
        return ["array", list(t.get_array_dims()), shown_type(t.get_super())]
    if kind == h5t.VLEN:
        return ["list", shown_type(t.get_super())]
    if kind == h5t.REFERENCE:
        return ["reference", t.get_size()]
    return ["other", kind]


def shown_space(s):
    if s.get_simple_extent_type() == h5s.NULL:
        return None
    dims = s.get_simple_extent_dims()
    most = s.get_simple_extent_dims(True)
    return [list(dims), [None if m == h5s.UNLIMITED else m for m in most]]


class Values:
    """Shows the values of a file."""

    def __init__(self, f, paths):
        self.f, self.paths = f, paths

    def path(self, ref):
        if not ref:
            return None
        obj = h5py.h5r.dereference(ref, self.f.id)
        return self.paths.get(h5o.get_info(obj).addr, "?")

    def one(self, value):
        if isinstance(value, (h5py.Reference, h5py.RegionReference)):
            return self.path(value)
        if isinstance(value, (str, bytes)):
            return text(value)
        if isinstance(value, np.ndarray):
            return [self.one(v) for v in value.ravel()]
        if isinstance(value, np.void):
            if value.dtype.names is None:
                return text(value.tobytes())
            return [self.one(value[name]) for name in value.dtype.names]
        if isinstance(value, (complex, np.complexfloating)):
            return [self.one(value.real), self.one(value.imag)]
        if isinstance(value, (float, np.floating)):
            return "nan" if np.isnan(value) else struct.pack(">d", float(value)).hex()
        if isinstance(value, (int, np.integer, bool, np.bool_)):
            return str(int(value))
        raise TypeError(f"{type(value)}: {value}")

    def all(self, obj):
        """The elements of an attribute or dataset."""
        space, tid = obj.get_space(), obj.get_type()
        if space.get_simple_extent_type() == h5s.NULL:
            return []
        dtype, mtype, shape = obj.dtype, None, obj.shape
        is_bare = tid.get_class() in (h5t.OPAQUE, h5t.BITFIELD)
        if is_bare:
            dtype, mtype = np.dtype(f"V{tid.get_size()}"), tid
        rank = len(shape)
        subtype = dtype.subdtype
        if subtype:
            dtype, more = subtype
            shape = shape + more
        values = np.zeros(shape, dtype)
        if mtype is None:
            mtype = h5t.py_create(obj.dtype)
        if isinstance(obj, h5a.AttrID):
            obj.read(values, mtype=mtype)
        else:
            obj.read(h5s.ALL, h5s.ALL, values, mtype=mtype)
        if tid.get_class() == h5t.BITFIELD:
            order = "big" if tid.get_order() == h5t.ORDER_BE else "little"
            return [str(int.from_bytes(v.tobytes(), order)) for v in values.ravel()]
        elements = values.reshape((-1,) + values.shape[rank:])
        return [self.one(v) for v in elements]


def links_of(group):
    """Links by name, with h5py's description."""
    names = []
    group.id.links.iterate(lambda name: names.append(name))
    return [(name, group.id.links.get_info(name)) for name in names]


def paths_of(f):
    """A path for each object, and the objects in the order of a walk by name."""
    root = h5o.open(f.id, b"/")
    paths, objects = {h5o.get_info(root).addr: "/"}, [("/", root)]
    for path, oid in objects:
        if not isinstance(oid, h5py.h5g.GroupID):
            continue
        for name, info in links_of(h5py.Group(oid)):
            if info.type != h5py.h5l.TYPE_HARD:
                continue
            child = h5o.open(oid, name)
            address = h5o.get_info(child).addr
            if address not in paths:
                paths[address] = path.rstrip("/") + "/" + text(name)
                objects.append((paths[address], child))
    return paths, objects


def shown_link(oid, name, info, paths):
    links = oid.links
    if info.type == h5py.h5l.TYPE_HARD:
        target = ["hard", paths[h5o.get_info(h5o.open(oid, name)).addr]]
    elif info.type == h5py.h5l.TYPE_SOFT:
        target = ["soft", text(links.get_val(name))]
    else:
        target = ["external", *map(text, links.get_val(name))]
    return [text(name), info.corder if info.corder_valid else None, *target]


def shown_dataset(f, did, values):
    plist = did.get_create_plist()
    kind = plist.get_layout()
    shown = {
        "type": shown_type(did.get_type()),
        "space": shown_space(did.get_space()),
        "filters": [[code, flags, list(numbers)] for code, flags, numbers, _ in map(plist.get_filter, range(plist.get_nfilters()))],
        "layout": {h5d.COMPACT: "compact", h5d.CONTIGUOUS: "contiguous", h5d.CHUNKED: "chunked"}.get(kind, "other"),
        "fill": None,
    }
    if plist.get_external_count():
        shown["layout"] = "other"
    if plist.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED and not is_variable(did.get_type()):
        fill = np.zeros((), did.dtype)
        plist.get_fill_value(fill)
        shown["fill"] = values.one(fill[()])
    if kind == h5d.CHUNKED:
        shown["chunk"] = list(plist.get_chunk())
        block = f.id.get_create_plist().get_userblock()
        chunks = [did.get_chunk_info(i) for i in range(did.get_num_chunks())]
        shown["chunks"] = sorted([list(c.chunk_offset), c.byte_offset - block, c.size, c.filter_mask] for c in chunks)
    elif shown["layout"] != "other":
        shown["values"] = values.all(did)
    return shown


def attributes_of(oid, values):
    plist = oid.get_create_plist() if not isinstance(oid, h5t.TypeID) else None
    ordered = plist is not None and plist.get_attr_creation_order() & h5p.CRT_ORDER_TRACKED
    index = h5py.h5.INDEX_CRT_ORDER if ordered else h5py.h5.INDEX_NAME
    names = []
    h5a.iterate(oid, lambda name, *_: names.append(name), index_type=index)
    shown = []
    for name in names:
        aid = h5a.open(oid, name)
        shown.append([text(name), shown_type(aid.get_type()), shown_space(aid.get_space()), values.all(aid)])
    return shown


def show(path):
    with h5py.File(path, "r") as f:
        paths, objects = paths_of(f)
        values = Values(f, paths)
        for where, oid in objects:
            shown = {"path": where, "attributes": attributes_of(oid, values)}
            if isinstance(oid, h5py.h5g.GroupID):
                shown["links"] = [shown_link(oid, name, info, paths) for name, info in links_of(h5py.Group(oid))]
            elif isinstance(oid, h5d.DatasetID):
                shown.update(shown_dataset(f, oid, values))
            else:
                shown["type"] = shown_type(oid)
            print(json.dumps(shown, sort_keys=True))
    print()


def main():
    commands = {"make": make, "large": large, "samples": samples, "show": show}
    command, *arguments = sys.argv[1:]
    for argument in arguments:
        commands[command](argument)


if __name__ == "__main__":
    main()
