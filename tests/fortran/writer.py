"""Checks the file that tests/fortran/writer.F90 has written on a number of ranks. Fortran arrays have their dimensions in
reverse order here."""

import sys

import h5py
import numpy

ranks = int(sys.argv[2])
cells, steps = 5, 3


def each(values):
    return numpy.concatenate([values(rank) for rank in range(ranks)])


with h5py.File(sys.argv[1]) as log:
    pressure = log["air/pressure"]
    assert pressure.maxshape == (None, cells * ranks) and pressure.chunks == (2, cells)
    assert pressure.compression_opts == 3 and pressure.shuffle
    assert pressure.attrs["units"] == "Pa"
    for step in range(steps):
        assert (pressure[step] == each(lambda rank: numpy.full(cells, 100 * (step + 1) + rank))).all(), step
    assert pressure.dims[0].label == "time" and pressure.dims[1][0] == log["x"]
    assert (log["x"][()] == 0.5 * numpy.arange(1, cells * ranks + 1)).all()
    air = log["air"].attrs
    assert list(air["axes"]) == ["time", "x"]
    assert air["levels"].tolist() == [[1, 2], [3, 4], [5, 6]] and air["one"] == 42
    for rank in range(ranks):
        ten = 10 * rank
        assert log["slabs"][rank].tolist() == [0, 1 + ten, 0, 2 + ten, 0, 3 + ten]
        assert log["points"][rank].tolist() == [8 + ten, 0, 0, 7 + ten]
        blocks = log["blocks"][:, 2 * rank : 2 * rank + 2] - ten
        assert (blocks[0, :, :2] == [[1, 2], [3, 4]]).all() and (blocks[1, :, 2:] == [[5, 6], [7, 8]]).all()
        inner = log["inner"][2 * rank : 2 * rank + 2]
        assert (inner == 100 * rank + numpy.array([[10], [20]]) + numpy.arange(1, cells + 1)).all()
        particle = log["particles"][rank]
        assert particle["number"] == rank and particle["place"].tolist() == [0.5 + rank, 1.5 + rank, 2.5 + rank]
    assert log["whole"][()] == 99
    assert (log["events"][()] == each(lambda rank: numpy.array([[rank, -1]] * (rank + 1)))).all()
    assert log["colour"][()] == 2 and h5py.check_enum_dtype(log["colour"].dtype) == {"RED": 1, "GREEN": 2}
