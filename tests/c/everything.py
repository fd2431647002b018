"""everything.py FILE RANKS: is FILE what tests/c/everything.c has to write?"""
import sys

import h5py
import numpy as np

ranks = int(sys.argv[2])
f = h5py.File(sys.argv[1], "r")
each = np.arange(ranks)


def same(name, got, wanted):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.shape == wanted.shape and (got == wanted).all(), f"{name}: {got!r}, not {wanted!r}"


def text(value):
    return value.decode() if isinstance(value, bytes) else value


for name in "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float double".split():
    d = f["atomic"][name]
    dtype = {"float": "float32", "double": "float64"}.get(name, name)
    assert d.dtype == np.dtype(dtype), (name, d.dtype)
    same(name, d[:], (each + 1).astype(dtype))
assert f["atomic/bool"].dtype == np.dtype(bool)
same("bool", f["atomic/bool"][:], [True] * ranks)

t = f["types"]
assert t["big"].dtype == np.dtype(">i4")
same("big", t["big"][:], 256 + each)
same("array", t["array"][:], [[[1, 2, 3], [4, 5, r]] for r in each])
assert t["text"].dtype.itemsize == 8
assert [text(v) for v in t["text"][:]] == [f"hät {r}" for r in each]
assert h5py.h5t.check_string_dtype(t["text"].dtype).encoding == "utf-8"
raw = np.empty(ranks, "V3")
t["opaque"].id.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, mtype=t["opaque"].id.get_type())
assert raw.tobytes() == b"".join(bytes([7, 8, r]) for r in each)
assert t["opaque"].id.get_type().get_tag() == b"three bytes"
assert isinstance(t["bits"].id.get_type(), h5py.h5t.TypeBitfieldID)
bits = np.empty(ranks, "u2")
t["bits"].id.read(h5py.h5s.ALL, h5py.h5s.ALL, bits, mtype=t["bits"].id.get_type())
same("bits", bits, 0x8001 + each)
assert h5py.check_enum_dtype(t["enum"].dtype) == {"LOW": -1, "HIGH": 100}
same("enum", t["enum"][:], [-1] + [100] * (ranks - 1))
c = t["compound"]
assert c.dtype.itemsize == 1 + 2 * 10 + 5, c.dtype
assert c.dtype.names == ("tag", "pair", "name"), c.dtype
for r in each:
    row = c[r]
    assert row["tag"] == r and row["name"] == b"abc"
    assert row["pair"].tolist() == [(1, 0.5), (2, r + 0.25)]
(row,) = t.attrs["compound"]
assert row["tag"] == 9 and row["pair"].tolist() == [(1, 0.5), (2, 1.5)] and row["name"] == b"abc"

d = f["described"]
same("matrix", d["deep"].attrs["matrix"], [[1.0, 2.0], [3.0, 4.0]])
assert f.attrs["answer"] == 42 and f.attrs["answer"].dtype == np.int32
assert text(d.attrs["title"]) == "Wärme"
assert [text(v) for v in d.attrs["colours"]] == ["red", "grün", ""]

data = lambda r: 100.0 * (r + 1) + np.arange(24)
for folder in f["written"], f["lent"]:
    wanted = {name: np.zeros((2 * ranks, 12)) for name in ["block", "hyperslab", "blocks", "points"]}
    for r in each:
        rows = slice(2 * r, 2 * r + 2)
        wanted["block"][rows, 3:7] = data(r)[:8].reshape(2, 4)
        columns = [1, 2, 3, 6, 7, 8]
        wanted["hyperslab"][rows, columns] = data(r)[:12].reshape(2, 6)
        wanted["hyperslab"][rows, 11] = data(r)[12:14]
        wanted["blocks"][2 * r, :3] = data(r)[:3]
        wanted["blocks"][2 * r + 1, 10:] = data(r)[3:5]
        wanted["blocks"][rows, 1] = data(r)[5:7]
        wanted["points"][2 * r + 1, 7], wanted["points"][2 * r, 2], wanted["points"][2 * r, 3] = data(r)[:3]
    for name, value in wanted.items():
        same(f"{folder.name}/{name}", folder[name][:], value)
    same(f"{folder.name}/all", folder["all"][:], data(ranks - 1))

s = f["shapes"]
wanted = np.full((2 * ranks, 5), -7)
wanted[::2] = each[:, None]
same("grown", s["grown"][:], wanted)
assert s["grown"].maxshape == (None, 6) and s["grown"].chunks == (2, 4) and s["grown"].fillvalue == -7
assert s["grown"].compression_opts == 6 and s["grown"].shuffle and s["grown"].fletcher32
assert s["scalar"].shape == () and s["scalar"][()] == 3.25
same("order", s["order"][:], [[5, 5, 6]] * ranks)
same("rows", f["rows"][:], [row for r in each for row in [[r, n] for n in range(r)] + [[r, -1]]])
same("late", f["late"][:], [1.5, 2.5, 3.5])
