#!/usr/bin/env python3
"""scorpiosame [--plain | --nco | --cdo | --engine] GOT EXPECTED [GOT EXPECTED]...: do the two files of each pair say the same in
netCDF's data model?

A file NAME.refused.txt beside NAME.expected.nc names variables of GOT that must not be readable. Compared: dimensions with their
lengths and whether they are unlimited; variables with their types and dimensions; attributes with their types, where a char is
no string; the bits of all values. Not compared: orders, chunks, filters, and how HDF5 stores it. h5py reads each file as HDF5
(docs/formats/scorpio-bp.md, section 12), and then the package netCDF4 does, ncdump, and xarray with its engines netcdf4 and
h5netcdf. With --plain only h5py and netCDF4 read them: names and attributes may be such that others refuse them. With --nco NCO
copies both files, and the copies are compared; with --cdo CDO compares them. With --engine xarray reads the first file with the
engine of the package h5logfs.

Prints the differences; exit status 1 if there are any.
"""
import os
import subprocess
import sys
import tempfile

import h5py
import numpy as np

PLACEHOLDER = b"This is a netCDF dimension but not a netCDF variable."
NON_COORDINATE = "_nc4_non_coord_"
#: Attributes that spell netCDF in HDF5, and those that tell what a log has lost.
SPELLING = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict",
            "_NCProperties"}
LOSSES = {"_h5logfs_incomplete", "adios2_problems"}
#: netCDF's fill values, by type.
FILLS = {"i1": -127, "S1": b"\0", "i2": -32767, "i4": -2147483647, "f4": 9.969209968386869e36, "f8": 9.969209968386869e36,
         "u1": 255, "u2": 65535, "u4": 4294967295, "i8": -9223372036854775806, "u8": 18446744073709551614}

# A file is `dimensions`, `attributes` and `variables`, all by name. A dimension is its length and whether it is unlimited, an
# attribute its type and bytes, a variable its type, dimensions, attributes, and values.


def native(values):
    values = np.asarray(values)
    return values.astype(values.dtype.newbyteorder("="))


def fill_value(kind, attributes):
    """What elements without a value hold, by the attribute `_FillValue`, if it has the type of the variable."""
    given = attributes.get("_FillValue")
    if given and kind == "S1" and given[0] == "char":
        return np.frombuffer((given[1] or b"\0")[:1], "S1")[0]
    if given and given[0] == kind:
        return np.frombuffer(given[1], kind)[0]
    return np.array(FILLS[kind]).astype(kind)[()]


# --- HDF5 -----------------------------------------------------------------------------------------

def attribute(of, name):
    about = of.attrs.get_id(name)
    kind = about.get_type()
    value = of.attrs[name]
    if kind.get_class() == h5py.h5t.STRING:
        if kind.is_variable_str():
            return ("string", tuple(str(text) for text in np.atleast_1d(value)))
        if isinstance(value, h5py.Empty):
            return ("char", b"")
        value = np.asarray(value)
        if value.shape == () or value.shape == (1,):
            return ("char", value.reshape(())[()].rstrip(b"\0"))
        return ("array of char", value.tolist())
    if about.shape is None or len(about.shape) != 1:
        return (f"shape {about.shape}", np.asarray(value).tolist())
    value = native(value)
    return (value.dtype.str[1:], value.tobytes())


def attributes(of):
    return {name: attribute(of, name) for name in of.attrs if name not in SPELLING | LOSSES}


def text_of(of, name):
    value = of.attrs.get(name, b"")
    return value.encode() if isinstance(value, str) else bytes(value)


def is_scale(dataset):
    return text_of(dataset, "CLASS").rstrip(b"\0") == b"DIMENSION_SCALE"


def is_placeholder(dataset):
    return is_scale(dataset) and text_of(dataset, "NAME").startswith(PLACEHOLDER)


def names_of_dimensions(file, name, dataset, by_id):
    if is_scale(dataset):
        if dataset.ndim == 1:
            return (name,)
        return tuple(by_id[int(number)] for number in dataset.attrs["_Netcdf4Coordinates"])
    if dataset.ndim == 0:
        return ()
    return tuple(file[scales[0]].name.strip("/") for scales in dataset.attrs["DIMENSION_LIST"])


def refuse(name, read):
    """Fails where a variable can be read that must not."""
    try:
        read()
    except (OSError, RuntimeError):
        return
    raise AssertionError(f"{name} is not refused")


def by_h5py(path, refused=()):
    """A file without the variables that are to be refused."""
    with h5py.File(path, "r") as file:
        datasets = {name: file[name] for name in file}
        others = [name for name, item in datasets.items() if not isinstance(item, h5py.Dataset)]
        assert not others, f"{others} are no datasets"
        scales = {name: dataset for name, dataset in datasets.items() if is_scale(dataset)}
        by_id = {int(scale.attrs["_Netcdf4Dimid"]): name for name, scale in scales.items() if "_Netcdf4Dimid" in scale.attrs}
        shown = {name: dataset for name, dataset in datasets.items() if not is_placeholder(dataset)}
        dims = {name: names_of_dimensions(file, name, dataset, by_id) for name, dataset in shown.items()}
        lengths = {name: scale.shape[0] for name, scale in scales.items()}
        unlimited = {name for name, scale in scales.items() if scale.maxshape[0] is None}
        # netCDF takes the longest of an unlimited dimension.
        for name, dataset in shown.items():
            for dimension, length, most in zip(dims[name], dataset.shape, dataset.maxshape):
                assert (most is None) == (dimension in unlimited), f"{name}: maximum shape {dataset.maxshape}"
                if dimension in unlimited:
                    lengths[dimension] = max(lengths[dimension], length)
        variables = {}
        for name, dataset in shown.items():
            if name in refused:
                refuse(name, lambda: dataset[()])
            else:
                variables[name.replace(NON_COORDINATE, "", 1)] = variable(dataset, dims[name], lengths)
        return {
            "dimensions": {name: (length, name in unlimited) for name, length in lengths.items()},
            "attributes": attributes(file),
            "variables": variables,
        }


def variable(dataset, dimensions, lengths):
    kind = native(np.empty(0, dataset.dtype)).dtype.str[1:]
    own = attributes(dataset)
    # `astype` of a string of one byte loses nothing, and h5py gives an array of objects of no other type here.
    stored = native(dataset[()])
    whole = np.full([lengths[name] for name in dimensions], fill_value(kind, own), kind)
    whole[tuple(slice(length) for length in stored.shape)] = stored
    return (kind, dimensions, own, whole)


# --- netCDF ---------------------------------------------------------------------------------------

def netcdf_attributes(of):
    found = {}
    for name in of.ncattrs():
        value = of.getncattr(name)
        if name in LOSSES:
            continue
        if isinstance(value, (str, list)):
            texts = [value] if isinstance(value, str) else value
            found[name] = ("text", tuple(texts))
        else:
            value = np.atleast_1d(native(value))
            # The fill value of a char.
            is_char = value.dtype.kind == "S"
            found[name] = ("text", (value[0].decode(),)) if is_char else (value.dtype.str[1:], value.tobytes())
    return found


def by_netcdf4(path, refused=()):
    import netCDF4

    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        file.set_auto_chartostring(False)
        assert not file.groups, f"{list(file.groups)} are groups"
        variables = {}
        for name, v in file.variables.items():
            if name in refused:
                refuse(name, lambda: v[...])
                continue
            kind = native(np.empty(0, v.dtype)).dtype.str[1:]
            variables[name] = (kind, v.dimensions, netcdf_attributes(v), native(np.asarray(v[...])))
        return {
            "dimensions": {name: (len(of), of.isunlimited()) for name, of in file.dimensions.items()},
            "attributes": netcdf_attributes(file),
            "variables": variables,
        }


def loosened(file):
    """As the package netCDF4 sees it: all text is one type."""

    def loose(attributes):
        found = {}
        for name, (kind, value) in attributes.items():
            if kind == "char":
                kind, value = "text", (value.decode("utf-8", "surrogateescape"),)
            found[name] = ("text", value) if kind == "string" else (kind, value)
        return found

    variables = {name: (kind, dims, loose(own), values) for name, (kind, dims, own, values) in file["variables"].items()}
    return {"dimensions": file["dimensions"], "attributes": loose(file["attributes"]), "variables": variables}


# --- differences ----------------------------------------------------------------------------------

def short(value):
    text = str(value)
    return text if len(text) < 200 else text[:200] + "..."


def missing(what, got, expected):
    for name in sorted(expected.keys() - got.keys()):
        yield f"{what} {name} is not there"
    for name in sorted(got.keys() - expected.keys()):
        yield f"{what} {name} should not be there"


def unequal(what, got, expected):
    yield from missing(what, got, expected)
    for name in sorted(got.keys() & expected.keys()):
        if got[name] != expected[name]:
            yield f"{what} {name} is {short(got[name])}, expected {short(expected[name])}"


def unequal_values(name, got, expected):
    if got.shape != expected.shape:
        yield f"variable {name}: shape {got.shape}, expected {expected.shape}"
        return
    size = expected.dtype.itemsize
    ours, theirs = (np.frombuffer(values.tobytes(), np.uint8).reshape(-1, size) for values in (got, expected))
    bad = np.flatnonzero((ours != theirs).any(axis=1))
    if len(bad):
        at = tuple(int(number) for number in np.unravel_index(bad[0], expected.shape))
        yield (f"variable {name}: {len(bad)} of {expected.size} values differ, the first at {at}: {got[at]!r}, "
               f"expected {expected[at]!r}")


def differences(got, expected):
    yield from unequal("dimension", got["dimensions"], expected["dimensions"])
    yield from unequal("attribute", got["attributes"], expected["attributes"])
    yield from missing("variable", got["variables"], expected["variables"])
    for name, (kind, dims, own, values) in expected["variables"].items():
        if name not in got["variables"]:
            continue
        our_kind, our_dims, our_own, our_values = got["variables"][name]
        yield from unequal(f"attribute {name}:", our_own, own)
        if (our_kind, our_dims) != (kind, dims):
            yield f"variable {name} is {our_kind} {our_dims}, expected {kind} {dims}"
        else:
            yield from unequal_values(name, our_values, values)


def refused_of(expected):
    """Names of variables that GOT must refuse."""
    path = expected.replace(".expected.nc", ".refused.txt")
    if path == expected or not os.path.exists(path):
        return []
    with open(path) as file:
        return file.read().split()


def compare(got, expected):
    """Differences of two files, as h5py sees them."""
    yield from differences(by_h5py(got, refused_of(expected)), by_h5py(expected))


# --- netCDF programs ------------------------------------------------------------------------------

def dump(path, names):
    """The lines of ncdump, in order: those of variables may be in another one."""
    said = subprocess.run(["ncdump", "-p", "9,17", "-v", ",".join(names), path], capture_output=True)
    if said.returncode or said.stderr:
        return [f"fails: {said.stderr.decode(errors='replace')}"]
    lines = said.stdout.decode(errors="surrogateescape").splitlines()[1:]
    return sorted(line for line in lines if not any(f":{name} =" in line for name in LOSSES))


def by_ncdump(got, expected):
    # It takes a backslash in front of these.
    names = ["".join(f"\\{c}" if c in " ," else c for c in name) for name in by_h5py(expected)["variables"]]
    if refused_of(expected):
        return
    ours, theirs = dump(got, names), dump(expected, names)
    for line in sorted(set(ours) ^ set(theirs)):
        yield f"ncdump: {'no' if line in theirs else 'the'} line {short(line)!r}"
    if len(ours) != len(theirs):
        yield f"ncdump: {len(ours)} lines, expected {len(theirs)}"


def with_text(of):
    """Makes its attributes comparable. netCDF-C marks all text as ASCII, of which h5netcdf makes surrogates of other bytes."""
    plain = lambda value: value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    of.attrs = {name: plain(value) for name, value in of.attrs.items() if name not in LOSSES}


def by_xarray(got, expected):
    for engine in "netcdf4", "h5netcdf":
        yield from by_engines(got, expected, engine, engine)


def by_own_engine(got, expected):
    yield from by_engines(got, expected, "h5logfs", "h5netcdf")


def by_engines(got, expected, engine, native):
    """What xarray sees of the first file with one engine, and of the second one with another."""
    import xarray

    for how in {}, {"decode_cf": False}:
        with xarray.open_dataset(got, engine=engine, **how) as ours, \
                xarray.open_dataset(expected, engine=native, **how) as theirs:
            ours = ours.drop_vars(refused_of(expected), errors="ignore")
            for of in ours, theirs, *ours.variables.values(), *theirs.variables.values():
                with_text(of)
            if not ours.identical(theirs):
                yield f"xarray, {engine}, {how}: {ours} is not {theirs}"
            if ours.encoding.get("unlimited_dims") != theirs.encoding.get("unlimited_dims"):
                yield f"xarray, {engine}: unlimited {ours.encoding.get('unlimited_dims')}"


def by_nco(got, expected):
    with tempfile.TemporaryDirectory() as directory:
        copies = [os.path.join(directory, name) for name in ("got.nc", "expected.nc")]
        for path, copied in zip((got, expected), copies):
            # -h: no attribute about the copy.
            said = subprocess.run(["ncks", "-h", "-O", path, copied], capture_output=True, text=True)
            if said.returncode:
                yield f"ncks: {said.stderr}"
                return
        yield from (f"ncks: {text}" for text in compare(*copies))


def by_cdo(got, expected):
    said = subprocess.run(["cdo", "-s", "--sortname", "diffv", got, expected], capture_output=True, text=True)
    if said.returncode or said.stdout.strip():
        yield f"cdo: {said.stdout}{said.stderr}"


def as_all_see(got, expected):
    yield from as_plain_readers_see(got, expected)
    yield from by_ncdump(got, expected)
    yield from by_xarray(got, expected)


def as_plain_readers_see(got, expected):
    yield from (f"h5py: {text}" for text in compare(got, expected))
    netcdf = differences(by_netcdf4(got, refused_of(expected)), loosened(by_h5py(expected)))
    yield from (f"netCDF4: {text}" for text in netcdf)


WAYS = {"--plain": as_plain_readers_see, "--nco": by_nco, "--cdo": by_cdo, "--engine": by_own_engine}


def main():
    way = WAYS.get(sys.argv[1], as_all_see)
    paths = sys.argv[1 + (sys.argv[1] in WAYS):]
    found = 0
    for got, expected in zip(paths[::2], paths[1::2], strict=True):
        try:
            texts = list(way(got, expected))
        except Exception as error:  # noqa: BLE001 - any failure to read is a difference
            texts = [f"{type(error).__name__}: {error}"]
        for text in texts:
            print(f"{got}: {text}")
            found += 1
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
