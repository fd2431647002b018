#!/usr/bin/env python3
"""metadata_image.py DIR earliest|v110|large: an HDF5 program's files, made twice, for tests of logs with a metadata image.

DIR/native.h5 is the file as HDF5 writes it. DIR/image.h5 is the metadata image: the same objects without the elements of
logged datasets. "large" is the format v110, with an additional dataset that a view reads in place in a closed log.
DIR/log.json lists the logged datasets: the address of each in the image, and the writes to it, whose bytes are contiguous in
DIR/raw. An ID without an address is that of a deleted dataset.
"""
import json
import os
import sys

import h5py
import numpy as np

# h5py before 3.7 cannot read committed compound types with references; both have the types used here.
REF, REGION = h5py.ref_dtype, h5py.regionref_dtype


class Maker:
    """Makes one of the two files."""

    def __init__(self, path, form, is_native):
        # In the newer format, the root group tracks the creation order of its links and attributes.
        libver = "earliest" if form == "earliest" else "v110"
        self.file = h5py.File(path, "w", libver=(libver, "v110"), track_order=libver == "v110")
        self.contiguous = 20_000 if form == "large" else 5_000
        self.is_native = is_native
        self.writes = []
        # Names of the logged datasets, in the order of IDs.
        self.names = []

    def logged(self, dataset, *writes):
        """A logged dataset, and its writes: pairs of a start and an array."""
        number = len(self.names)
        self.names.append(dataset.name)
        for start, values in writes:
            values = np.asarray(values)
            if self.is_native:
                where = tuple(slice(s, s + n) for s, n in zip(start, values.shape))
                dataset[where] = values
            self.writes.append((number, list(start), list(values.shape)))
        return dataset

    def make(self):
        f = self.file
        # Not in alphabetical order.
        for name in ("zebra", "_hidden", "apple", "__twice", "_LOG"):
            g = f.create_group(name)
            g.attrs["_own"] = name
        f.attrs["title"] = "ein Text äöü"
        f.attrs["_NCProperties"] = "version=2"
        f.attrs["empty"] = h5py.Empty("f4")
        f.attrs["texts"] = np.array(["a", "", "ccc"], dtype=h5py.string_dtype())
        f.attrs["fixed"] = np.array([b"ab", b"c"], dtype="S4")
        f.attrs["numbers"] = np.arange(6, dtype=">i2").reshape(2, 3)
        f.attrs["ragged"] = np.array([np.arange(2, dtype="i4"), np.arange(3, dtype="i4")],
                                     dtype=h5py.vlen_dtype("i4"))[:1]
        h5py.h5o.set_comment(f.id, b"a comment", obj_name=b"zebra")
        self.types(f)
        self.plain(f)
        self.datasets(f)
        self.scales(f)
        self.links(f)
        self.references(f)
        f.close()

    def types(self, f):
        f["named"] = np.dtype([("a", "<i4"), ("b", ">f8", (2,))])
        f["named"].attrs["unit"] = "K"

    def datasets(self, f):
        """The logged datasets."""
        self.logged(f.create_dataset("line", (1000,), "<f8"), ((0,), np.arange(1000) / 7))
        part = f.create_dataset("partly", (6, 8), "<i2", chunks=(2, 4), maxshape=(None, 8), fillvalue=-7)
        self.logged(part, ((1, 2), np.arange(12).reshape(3, 4)), ((2, 0), np.full((1, 8), 99)))
        filtered = f.create_dataset("g/deep/filtered", (50, 20), ">u4", chunks=(10, 20), shuffle=True, compression=4,
                                    fletcher32=True)
        self.logged(filtered, ((0, 0), np.arange(1000).reshape(50, 20)))
        lzf = f.create_dataset("lzf", (40,), "<i8", chunks=(8,), compression="lzf", shuffle=True)
        self.logged(lzf, ((0,), np.arange(40)))
        self.logged(f.create_dataset("scalar", (), "<f4"), ((), np.float32(2.5)))
        compound = np.dtype([("name", "S5"), ("value", "<f8"), ("kind", h5py.enum_dtype({"A": 1, "B": 5}, "u1"))])
        rows = np.array([(b"one", 1.5, 1), (b"two", 2.5, 5)], dtype=compound)
        self.logged(f.create_dataset("g/_table", (2,), compound), ((0,), rows))
        self.logged(f.create_dataset("apple/of_named", (3,), f["named"]),
                    ((0,), np.array([(i, (i / 2, -i)) for i in range(3)], dtype=f["named"].dtype)))
        self.logged(f.create_dataset("never", (5,), "<i4", fillvalue=3))
        self.logged(f.create_dataset("none", (0, 4), "<i4", maxshape=(None, 4)))
        # A deleted dataset: its entries stay in the log.
        self.logged(f.create_dataset("gone", (4,), "<i4"), ((0,), np.arange(4)))
        del f["gone"]
        timed = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        timed.set_obj_track_times(True)
        space = h5py.h5s.create_simple((3,))
        timed = h5py.h5d.create(f["zebra"].id, b"timed", h5py.h5t.STD_I32LE, space, timed)
        self.logged(h5py.Dataset(timed), ((0,), np.arange(3)))
        for number in range(20):
            f["line"].attrs[f"attribute {number:02} of many"] = number
        # Links of such a group are messages, or lie in a heap.
        for name in ("a b", "..", "100 %d", "back\\slash", "new\nline", "température", "日本/語", "long" * 250):
            self.logged(f.create_dataset(f"names/{name}", (2,), "<i4"), ((0,), np.arange(2)))
        large = f.create_dataset("large_attribute", (1,), "u1", track_order=True)
        large.attrs["large"] = np.arange(10_000, dtype="<f8")
        self.logged(large, ((0,), np.array([1])))

    def plain(self, f):
        """The datasets whose elements stay in the metadata image."""
        f["plain/texts"] = np.array([f"text {i}" * i for i in range(50)], dtype=h5py.string_dtype())
        ragged = f.create_dataset("plain/ragged", (4,), h5py.vlen_dtype("<i4"), chunks=(2,), maxshape=(None,))
        for i in range(4):
            ragged[i] = np.arange(i)
        f.create_dataset("plain/scaled", data=np.arange(5000).reshape(100, 50), chunks=(10, 50), scaleoffset=0)
        f.create_dataset("plain/null", data=h5py.Empty("i4"))
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((7,))
        compact = h5py.h5d.create(f["plain"].id, b"compact", h5py.h5t.STD_I16LE, space, creation)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(7, dtype="<i2"))
        mixed = np.dtype([("text", h5py.string_dtype()), ("number", "<i4")])
        f.create_dataset("plain/mixed", data=np.array([("x", 1), ("yy", 2)], dtype=mixed))
        f.create_dataset("plain/contiguous", data=np.arange(self.contiguous, dtype="<f8"))
        f.create_dataset("plain/unwritten", (3,), h5py.string_dtype())
        f.create_dataset("plain/__escaped", data=np.arange(3))

    def scales(self, f):
        for name, size in (("x", 4), ("y", 3)):
            scale = self.logged(f.create_dataset(name, (size,), "<f4"), ((0,), np.arange(size)))
            scale.make_scale(f"the {name} axis")
        grid = self.logged(f.create_dataset("grid", (3, 4), "<f4"), ((0, 0), np.ones((3, 4))))
        grid.dims[0].attach_scale(f["y"])
        grid.dims[1].attach_scale(f["x"])
        grid.dims[1].label = "easting"

    def links(self, f):
        f["apple/alias"] = f["line"]
        f["apple/group alias"] = f["g/deep"]
        f["soft"] = h5py.SoftLink("/g/deep/filtered")
        f["_soft"] = h5py.SoftLink("/g/_table")
        f["dangling"] = h5py.SoftLink("/nowhere")
        f["external"] = h5py.ExternalLink("other.h5", "/x")

    def references(self, f):
        attributes = f["g"].attrs
        attributes.create("one", f["line"].ref, dtype=REF)
        attributes.create("list", [f["g/_table"].ref, f["zebra"].ref, f["named"].ref], dtype=REF)
        attributes.create("region", f["grid"].regionref[0:2, 1:3], dtype=REGION)
        attributes.create("of plain", f["plain/contiguous"].regionref[5:10], dtype=REGION)
        pair = np.dtype([("to", REF), ("weight", "<f4")])
        attributes.create("pairs", np.array([(f["x"].ref, 0.5), (f["plain/ragged"].ref, 0.25)], dtype=pair))
        to = f.create_dataset("plain/references", (3,), REF)
        to[0], to[1] = f["grid"].ref, f["/"].ref
        regions = f.create_dataset("plain/regions", (2,), REGION)
        regions[0] = f["partly"].regionref[1:3, 2:5]
        regions[1] = f["line"].regionref[10:20:3]
        f.create_dataset("plain/pairs", data=np.array([(f["y"].ref, 1.0)], dtype=pair))


def raw(dataset, start, count):
    """The bytes of a block, in the file's datatype."""
    datatype = dataset.id.get_type()
    space = dataset.id.get_space()
    values = np.zeros(tuple(count), f"V{datatype.get_size()}")
    if count:
        space.select_hyperslab(tuple(start), tuple(count))
    memory = h5py.h5s.create_simple(tuple(count)) if count else h5py.h5s.create(h5py.h5s.SCALAR)
    dataset.id.read(memory, space, values, mtype=datatype)
    return values.tobytes()


def main():
    directory, form = sys.argv[1:]
    at = lambda name: os.path.join(directory, name)  # noqa: E731
    for name in ("image", "native"):
        maker = Maker(at(f"{name}.h5"), form, name == "native")
        maker.make()
    names = maker.names
    with h5py.File(at("image.h5"), "r") as image:
        headers = [h5py.h5o.get_info(image[n].id).addr if n in image else None for n in names]
    writes = []
    with h5py.File(at("native.h5"), "r") as native, open(at("raw"), "wb") as out:
        for number, start, count in maker.writes:
            data = bytes(16) if headers[number] is None else raw(native[names[number]], start, count)
            writes.append({"id": number, "start": start, "count": count, "len": len(data)})
            out.write(data)
    with open(at("log.json"), "w") as out:
        json.dump({"headers": headers, "writes": writes}, out)


if __name__ == "__main__":
    main()
