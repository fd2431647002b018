"""Writes sets of netCDF files, one for each process of a model, for the benchmark, and checks what is shown of them.

tiles.py fields KIND SHARE PATH: 8 x 8 members of one variable of four records of twenty levels, 500 MB divided by SHARE, in the
files PATH.0000 and so on. KIND: classic, or deflated (netCDF-4).
tiles.py many MEMBERS PATH: so many members of 30 variables with 365 records, without bytes on the disk.
tiles.py check SHARE PATH: prints what is wrong in a file that shows the first one.
"""

import os
import sys

import netCDF4
import numpy

TILES, RECORDS, LEVELS = 8, 4, 20


def sides(share):
    """Points along y and x of one member."""
    return 135, 180 // share


def smooth(share):
    """A smooth field with noise in the last digits, which deflate halves."""
    high, wide = (TILES * side for side in sides(share))
    y, x = numpy.arange(high)[:, None], numpy.arange(wide)[None, :]
    field = 15 + 10 * numpy.sin(y / 90) * numpy.cos(x / 140)
    noise = numpy.random.default_rng(1).normal(0, 0.05, (high, wide))
    return (numpy.round(100 * (field + noise)) / 100).astype("f4")


def values(base, record, level):
    return base + numpy.float32(record + level / 4)


def member(path, kind, number, share, base):
    high, wide = sides(share)
    row, column = divmod(number, TILES)
    form = {"classic": "NETCDF3_64BIT_OFFSET", "deflated": "NETCDF4"}[kind]
    with netCDF4.Dataset(f"{path}.{number:04}", "w", format=form) as out:
        out.set_fill_off()
        out.NumFilesInSet = numpy.int32(TILES * TILES)
        for name, length in (("x", wide), ("y", high), ("z", LEVELS), ("time", None)):
            out.createDimension(name, length)
        for name, side, at in (("x", wide, column), ("y", high, row)):
            axis = out.createVariable(name, "f8", (name,))
            axis.domain_decomposition = numpy.array([1, TILES * side, at * side + 1, (at + 1) * side], "i4")
            axis[...] = at * side + numpy.arange(side)
        out.createVariable("time", "f8", ("time",))
        storage = {}
        if kind == "deflated":
            storage = {"compression": "zlib", "complevel": 2, "shuffle": True, "chunksizes": (1, 1, high, wide)}
        field = out.createVariable("temp", "f4", ("time", "z", "y", "x"), **storage)
        own = base[row * high : (row + 1) * high, column * wide : (column + 1) * wide]
        for record in range(RECORDS):
            out["time"][record] = record
            field[record] = numpy.stack([values(own, record, level) for level in range(LEVELS)])


def fields(kind, share, path):
    base = smooth(share)
    for number in range(TILES * TILES):
        member(path, kind, number, share, base)


def many(members, path):
    """All members have one header but for their places, so each is a patched copy of the first."""
    columns = 100
    side, records, first = 10, 365, f"{path}.0000"
    with netCDF4.Dataset(first, "w", format="NETCDF3_64BIT_OFFSET") as out:
        out.set_fill_off()
        out.NumFilesInSet = numpy.int32(members)
        for name, length in (("x", side), ("y", side), ("time", None)):
            out.createDimension(name, length)
        for name, whole in (("x", columns * side), ("y", members // columns * side)):
            out.createVariable(name, "f8", (name,)).domain_decomposition = numpy.array([1, whole, 1000001, 1000002], "i4")
        out.createVariable("time", "f8", ("time",))
        for number in range(30):
            out.createVariable(f"v{number}", "f4", ("time", "y", "x"))
        out["time"][records - 1] = 0
    header, size = open(first, "rb").read(16384), os.path.getsize(first)
    places = [number.to_bytes(4, "big") for number in (1000001, 1000002)]
    marks = header.find(b"".join(places)), header.rfind(b"".join(places))
    for number in range(members):
        row, column = divmod(number, columns)
        own = bytearray(header)
        for mark, at in zip(marks, (column, row)):
            own[mark : mark + 8] = b"".join(n.to_bytes(4, "big") for n in (at * side + 1, (at + 1) * side))
        with open(f"{path}.{number:04}", "wb") as out:
            out.write(own[:size])
            out.truncate(size)


def check(share, path):
    import h5py

    base = smooth(share)
    with h5py.File(path, "r") as file:
        got = file["temp"]
        if got.shape != (RECORDS, LEVELS, *base.shape):
            print(f"temp: {got.shape}")
        for record in range(RECORDS):
            for level in range(LEVELS):
                if not (got[record, level] == values(base, record, level)).all():
                    print(f"temp: record {record}, level {level}")


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    if what == "fields":
        fields(given[0], int(given[1]), given[2])
    else:
        {"many": many, "check": check}[what](int(given[0]), given[1])
