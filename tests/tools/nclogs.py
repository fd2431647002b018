#!/usr/bin/env python3
"""nclogs [--ways WAY,..] <JOBS: do views of netCDF files hold what they should, to many readers?

JOBS is a list in JSON. Each job has `name`, `got` (the view), and `expect`:

* `same`: `got` is what `expected`, a netCDF classic file, is; variables in `undefined` may hold anything.
* `partial`: each record of each variable is that of `expected`, or cannot be read. What `expected` does not
  have must not be readable.
* `refuse`: something of `got` cannot be read.

A job that has `without` leaves these ways out. Where `filled` is false, the fill values in HDF5 may be any.

WAY is how files are compared where they are to be the same: netcdf4, ncdump, xarray, h5netcdf, and h5py,
which compares with `nccopy`, the form of `expected` that `nccopy -k nc4` makes. A job without `nccopy` is
left out there. Usual are all but h5py; with h5py alone nothing but h5py is needed, of any version.

Prints a line for each difference, with the name of its job, and then a summary; exit status 1 where
something differs.
"""
import argparse
import json
import subprocess
import sys

import h5py
import numpy as np

PLACEHOLDER = b"This is a netCDF dimension but not a netCDF variable."
DEFAULT_FILLS = {
    "S1": b"", "i1": -127, "u1": 255, "i2": -32767, "u2": 65535, "i4": -2147483647, "u4": 4294967295,
    "i8": -9223372036854775806, "u8": 18446744073709551614,
    "f4": 9.9692099683868690e36, "f8": 9.9692099683868690e36,
}
# Attributes that say how netCDF is spelled in HDF5, and that a file may have or not.
OPTIONAL = {"_NCProperties", "_nc3_strict", "_Netcdf4Coordinates"}


# --- values ---------------------------------------------------------------------------------------

def native(values):
    """An array in native byte order."""
    values = np.asarray(values)
    return values.astype(values.dtype.newbyteorder("="))


def plain(value):
    """A value in a form that can be compared and printed: type, shape, bytes of the elements."""
    if isinstance(value, (str, bytes)):
        # netCDF marks all text as ASCII, and readers return other bytes differently.
        return ("text", value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape"))
    value = native(value)
    if value.dtype.kind == "O":
        return ("objects", value.tolist())
    # Readers return a single number as an array of one, or as a scalar.
    return (str(value.dtype), value.size, value.tobytes())


def show(value):
    text = str(value)
    return text if len(text) < 200 else text[:200] + "..."


def unequal(where, got, expected):
    """The difference between two values, if any."""
    if got != expected:
        yield f"{where} is {show(got)}, expected {show(expected)}"


def unequal_data(where, got, expected):
    """The difference between two arrays, bit for bit."""
    got, expected = native(got), native(expected)
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        yield f"{where}: {got.dtype} {got.shape}, expected {expected.dtype} {expected.shape}"
    elif got.tobytes() != expected.tobytes():
        size = expected.dtype.itemsize
        a, b = (np.frombuffer(x.tobytes(), np.uint8).reshape(-1, size) for x in (got, expected))
        bad = np.flatnonzero((a != b).any(axis=1))
        at = tuple(int(i) for i in np.unravel_index(bad[0], expected.shape))
        yield (f"{where}: {len(bad)} of {expected.size} elements differ, the first at {at}: "
               f"{got[at]!r}, expected {expected[at]!r}")


# --- ways to compare ------------------------------------------------------------------------------

def open_netcdf(path):
    import netCDF4

    file = netCDF4.Dataset(path)
    file.set_auto_maskandscale(False)
    file.set_auto_chartostring(False)
    return file


def by_netcdf4(job):
    attributes = lambda x: [(n, plain(x.getncattr(n))) for n in x.ncattrs()]
    facts = {
        "attributes": attributes,
        "dimensions": lambda f: [(n, len(d), d.isunlimited()) for n, d in f.dimensions.items()],
        "groups": lambda f: list(f.groups),
        "variables": lambda f: [
            (n, str(v.dtype.newbyteorder("=")), v.dimensions) for n, v in f.variables.items()
        ],
    }
    with open_netcdf(job["got"]) as got, open_netcdf(job["expected"]) as expected:
        for what, of in facts.items():
            yield from unequal(what, of(got), of(expected))
        for name, variable in expected.variables.items():
            if name not in got.variables:
                continue
            other = got.variables[name]
            yield from unequal(f"attributes of {name}", attributes(other), attributes(variable))
            if name not in job["undefined"]:
                yield from unequal_data(name, other[...], variable[...])


def by_ncdump(job):
    defined = []
    if job["undefined"]:
        with open_netcdf(job["expected"]) as f:
            defined = ["-v", ",".join(n for n in f.variables if n not in job["undefined"])]

    def lines(path):
        # -p: all digits, so that different numbers look different.
        dump = subprocess.run(["ncdump", "-p", "9,17", *defined, path], capture_output=True)
        if dump.returncode != 0 or dump.stderr:
            return ["", f"fails: {dump.stderr.decode(errors='replace')}"]
        # The first line has the name of the file.
        return dump.stdout.decode(errors="surrogateescape").splitlines()[1:]

    got, expected = lines(job["got"]), lines(job["expected"])
    for number, (a, b) in enumerate(zip(got, expected), 2):
        if a != b:
            yield f"line {number} is {show(a)!r}, expected {show(b)!r}"
            return
    yield from unequal("number of lines", len(got), len(expected))


def by_xarray(job):
    import xarray

    def facts(dataset):
        spelled = {}
        for name, v in dataset.variables.items():
            fill = v.encoding.get("_FillValue")
            spelled[name] = (
                str(native(np.empty(0, v.dtype)).dtype),
                v.dims,
                None if fill is None else plain(fill),
                # decoded attributes hide here
                {k: plain(v.encoding[k]) for k in ("scale_factor", "add_offset", "units") if k in v.encoding},
            )
        return {
            "dimensions": dict(dataset.sizes),
            "unlimited dimensions": set(dataset.encoding.get("unlimited_dims", ())),
            "coordinates": list(dataset.coords),
            "variables": list(dataset.variables),
            "types": spelled,
        }

    for engine in ("netcdf4", "h5netcdf"):
        for decoded in (True, False):
            how = {"decode_cf": decoded}
            with xarray.open_dataset(job["got"], engine=engine, **how) as got, \
                    xarray.open_dataset(job["expected"], engine="netcdf4", **how) as expected:
                got, expected = got.drop_vars(job["undefined"]), expected.drop_vars(job["undefined"])
                said = f"{engine}, {'decoded' if decoded else 'raw'}"
                for what, value in facts(expected).items():
                    yield from unequal(f"{said}: {what}", facts(got)[what], value)
                if got.identical(expected):
                    continue
                yield f"{said}: not identical"
                for name, variable in expected.variables.items():
                    if name in got.variables and not got.variables[name].identical(variable):
                        yield f"{said}: {name}: {show(got.variables[name])}\n  expected {show(variable)}"


def by_h5netcdf(job):
    import h5netcdf

    def attributes(of):
        return [(n, plain(of.attrs[n])) for n in of.attrs]

    with h5netcdf.File(job["got"], "r") as got, open_netcdf(job["expected"]) as expected:
        with_empty = lambda pairs: {n: v for n, v in pairs}
        own = lambda x: with_empty((n, plain(x.getncattr(n))) for n in x.ncattrs())
        # In the order in which their datasets were made, which is arbitrary.
        yield from unequal(
            "dimensions",
            sorted((n, d.size, d.isunlimited()) for n, d in got.dimensions.items()),
            sorted((n, len(d), d.isunlimited()) for n, d in expected.dimensions.items()),
        )
        yield from unequal("variables", list(got.variables), list(expected.variables))
        yield from unequal("attributes", with_empty(attributes(got)), own(expected))
        for name, variable in expected.variables.items():
            if name not in got.variables:
                continue
            other = got.variables[name]
            yield from unequal(f"dimensions of {name}", other.dimensions, variable.dimensions)
            yield from unequal(f"attributes of {name}", with_empty(attributes(other)), own(variable))
            if name not in job["undefined"]:
                yield from unequal_data(name, other[...], variable[...])


def is_placeholder(dataset):
    """Whether a dataset stands for a dimension without a variable."""
    return bytes(dataset.attrs.get("NAME", b"")).startswith(PLACEHOLDER)


def fill_of(dataset):
    """The fill value of a file that netCDF wrote in fill mode, so that readers mask the same elements."""
    kind = native(np.empty(0, dataset.dtype)).dtype
    if "_FillValue" in dataset.attrs:
        return np.asarray(native(dataset.attrs["_FillValue"])[0])
    return np.array(DEFAULT_FILLS[kind.str[1:]], kind)


def by_h5py(job):
    """The representation of netCDF in HDF5, compared with nccopy's."""
    if "nccopy" not in job:
        return

    def spelled(file, of):
        found = {}
        for name in of.attrs:
            value = of.attrs[name]
            if name in OPTIONAL:
                continue
            if name == "DIMENSION_LIST":
                found[name] = [[file[r].name for r in sequence] for sequence in value]
            elif name == "REFERENCE_LIST":
                found[name] = sorted((file[r].name, int(d)) for r, d in value)
            elif name == "NAME" and is_placeholder(of):
                found[name] = PLACEHOLDER  # the number behind it is not interpreted
            elif isinstance(value, h5py.Empty):
                found[name] = ("empty", str(value.dtype.newbyteorder("=")))
            else:
                kind = of.attrs.get_id(name).get_type()
                # nccopy marks all text as ASCII.
                size = kind.get_size() if isinstance(kind, h5py.h5t.TypeStringID) else None
                found[name] = (np.shape(value), plain(value), size)
        return found

    with h5py.File(job["got"], "r") as got, h5py.File(job["nccopy"], "r") as expected:
        yield from unequal("objects", sorted(got), sorted(expected))
        yield from unequal("attributes", spelled(got, got), spelled(expected, expected))
        for name in set(expected) & set(got):
            a, b = got[name], expected[name]
            for attribute in spelled(expected, b).keys() | spelled(got, a).keys():
                said = f"{name}@{attribute}"
                yield from unequal(said, spelled(got, a).get(attribute), spelled(expected, b).get(attribute))
            yield from unequal(f"maximum shape of {name}", a.maxshape, b.maxshape)
            if is_placeholder(b):
                # No reader interprets its elements; the extent of an unlimited one may be that of the records.
                if None not in b.maxshape:
                    yield from unequal(f"shape of {name}", a.shape, b.shape)
                continue
            if job.get("filled", True):
                fill = fill_of(b)
                got_fill = np.asarray(a.fillvalue).astype(fill.dtype)
                yield from unequal_data(f"fill value of {name}", got_fill, fill)
            if name not in job["undefined"]:
                yield from unequal_data(name, a[()], b[()])


WAYS = {
    "netcdf4": by_netcdf4,
    "ncdump": by_ncdump,
    "xarray": by_xarray,
    "h5netcdf": by_h5netcdf,
    "h5py": by_h5py,
}


# --- what is damaged ------------------------------------------------------------------------------

def variables_of(file):
    """Variables by netCDF name, without the datasets of dimensions that are no variables."""
    found = {}
    for name, dataset in file.items():
        if not is_placeholder(dataset):
            found[name.removeprefix("_nc4_non_coord_")] = dataset
    return found


def all_but_lost(job):
    # netCDF-C 4.10 reads the first 4 MiB of a file before it opens it: nothing may be lost there.
    with h5py.File(job["got"], "r") as file, open_netcdf(job["got"]) as got, \
            open_netcdf(job["expected"]) as expected:
        for reader, variables in (("h5py", variables_of(file)), ("netcdf4", got.variables)):
            for difference in found_of(variables, expected.variables, job["undefined"]):
                yield f"{reader}: {difference}"


def found_of(got, expected, undefined):
    yield from unequal("variables", sorted(got), sorted(expected))
    for name, variable in expected.items():
        if name not in got or name in undefined:
            continue
        other = got[name]
        # A scalar as a whole, others by netCDF record.
        for part in range(other.shape[0]) if other.shape else [...]:
            try:
                read = other[part]
            except (OSError, RuntimeError):
                continue
            if other.shape and part >= variable.shape[0]:
                yield f"{name}: record {part} should not be readable"
            else:
                yield from unequal_data(f"{name}, record {part}", read, variable[part])
        if other.shape and other.shape[0] < variable.shape[0]:
            yield f"{name} has {other.shape[0]} records, expected {variable.shape[0]}"


def nothing_or_errors(job):
    try:
        with h5py.File(job["got"], "r") as file:
            for dataset in variables_of(file).values():
                dataset[()]
    except OSError:
        try:
            with open(job["got"], "rb") as file:
                beginning = file.read()[:8]
        except OSError:
            return
        if not beginning.startswith(b"\x89HDF"):
            yield f"is shown as it lies in its directory, beginning with {beginning}"
        return
    yield "was read without an error"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", default="netcdf4,ncdump,xarray,h5netcdf")
    ways = {way: WAYS[way] for way in parser.parse_args().ways.split(",")}
    found = compared = 0
    for job in json.load(sys.stdin):
        job.setdefault("undefined", [])
        checks = {"same": ways, "partial": {"damaged": all_but_lost}, "refuse": {"damaged": nothing_or_errors}}
        for way, check in checks[job["expect"]].items():
            if way in job.get("without", ()):
                continue
            compared += 1
            try:
                differences = list(check(job))
            except Exception as e:  # noqa: BLE001 - any failure to read is a difference
                differences = [f"{type(e).__name__}: {e}"]
            for difference in differences[:8]:
                print(f"{job['name']}, {way}: {difference}")
            found += bool(differences)
    print(f"{compared} comparisons, {found} found differences")
    return 1 if found or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
