#!/usr/bin/env python3
"""cases.py [--package] <JOBS: does each job's file `got` hold what its case means? All in one process.

JOBS is a list in JSON. A job has `name`, `got`, `judge`, and what the judge needs:

* `hdf5`: `expected` is the same file (h5same.py); `logged`: but for what a log does not record.
* `adios`: `expected` is the same file (adiossame.py); `scalars`: attributes of one element may be scalars.
* `array`: the elements of `dataset` are those of `expected`, a file of numpy.
* `netcdf`: `nccopy` is the same netCDF file (nclogs.py); variables in `undefined` may hold anything.
* `scorpio`: `expected` is the same netCDF file in netCDF's data model (scorpiosame.py).
* `pattern`: the file is what `flush` of tests/programs/pattern.rs left on `ranks` ranks (pattern.py).

With --package the package h5logfs opens `got`, with `options`. Prints a JSON value on a line for each job: its name and the
differences.
"""
import contextlib
import io
import json
import sys

import h5py

NATIVE = h5py.File


def by_package(options, got):
    """What stands for h5py.File: `got` alone is a log."""
    import h5logfs

    given = dict(option.split("=", 1) for option in options.split(",") if option)
    return lambda path, mode="r", **more: NATIVE(h5logfs.open(path, **given) if path == got else path, mode, **more)


def hdf5(job):
    import h5same

    sys.argv = ["h5same", *(["--as-logged"] if job["logged"] else []), job["got"], job["expected"]]
    return h5same.main() == 0


def adios(job):
    import adiossame

    sys.argv = ["adiossame", *(["--scalars"] if job["scalars"] else []), job["got"], job["expected"]]
    return adiossame.main() == 0


def array(job):
    import numpy

    expected = numpy.load(job["expected"])
    with h5py.File(job["got"], "r") as file:
        got = file[job["dataset"]][()]
    is_same = (got.dtype, got.shape, got.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
    print("" if is_same else f"{got.dtype} {got.shape}, {numpy.count_nonzero(got != expected)} elements differ")
    return is_same


def netcdf(job):
    import nclogs

    differences = list(nclogs.by_h5py(job))
    print(*differences, sep="\n")
    return not differences


def scorpio(job):
    import scorpiosame

    differences = list(scorpiosame.compare(job["got"], job["expected"]))
    print(*differences, sep="\n")
    return not differences


def pattern(job):
    import pattern as program

    with h5py.File(job["got"], "r") as file:
        flush = program.check(file, job["ranks"])
    print(f"it shows flush {flush}")
    return flush == job["flush"]


JUDGES = {"hdf5": hdf5, "adios": adios, "array": array, "netcdf": netcdf, "pattern": pattern, "scorpio": scorpio}


def main():
    for job in json.load(sys.stdin):
        if "--package" in sys.argv[1:]:
            h5py.File = by_package(job["options"], job["got"])
        arguments, said = sys.argv, io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                is_same = JUDGES[job["judge"]](job)
        except Exception as error:  # noqa: BLE001 - any failure to read is a difference
            is_same = False
            said.write(f"{type(error).__name__}: {error}")
        sys.argv = arguments
        print(json.dumps([job["name"], "" if is_same else said.getvalue().strip() or "it differs"]), flush=True)


if __name__ == "__main__":
    main()
