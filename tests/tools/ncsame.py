#!/usr/bin/env python3
"""ncsame GOT EXPECTED [GOT EXPECTED]...: are the two files of each pair the same to netCDF readers?

Compares what the netCDF4 package sees (dimensions in order, groups, variables in order, types,
attributes, raw data), then what xarray sees (coordinates, decoded values). Prints what differs;
exit status 1 where something does. With --structure no data are compared, and EXPECTED may be a netCDF
classic file.
"""
import argparse
import sys

import netCDF4
import numpy as np
import xarray


def attributes(x):
    return [(n, type(x.getncattr(n)).__name__, np.asarray(x.getncattr(n)).tolist()) for n in x.ncattrs()]


def native(dtype):
    """A type without its byte order, which netCDF classic files do not choose."""
    return np.dtype(dtype).newbyteorder("=").str


def describe(group, data):
    """A group as plain values, in file order."""
    return {
        "attributes": attributes(group),
        "dimensions": [(n, len(d), d.isunlimited()) for n, d in group.dimensions.items()],
        "variables": [
            (n, str(v.dtype) if data else native(v.dtype), v.dimensions, v.shape, attributes(v))
            + ((np.asarray(v[...]).tobytes(),) if data else ())
            for n, v in group.variables.items()
        ],
        "groups": [(n, describe(g, data)) for n, g in group.groups.items()],
    }


def as_netcdf(path, data):
    with netCDF4.Dataset(path) as f:
        f.set_auto_maskandscale(False)
        return describe(f, data)


def plain(attributes):
    return sorted((n, np.asarray(a).tolist()) for n, a in attributes.items())


def in_xarray(path, engine):
    """What xarray sees except data."""
    with xarray.open_dataset(path, engine=engine, decode_cf=False) as d:
        return {
            "dimensions": sorted(d.sizes.items()),
            "coordinates": sorted(d.coords),
            "attributes": plain(d.attrs),
            "variables": sorted((n, v.dims, v.shape, native(v.dtype), plain(v.attrs)) for n, v in d.variables.items()),
        }


def differ(where, got, expected):
    if got == expected:
        return 0
    if isinstance(expected, dict):
        return sum(differ(f"{where}/{k}", got.get(k), v) for k, v in expected.items())
    print(f"{where}: {str(got)[:300]}\n  expected {str(expected)[:300]}")
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--structure", action="store_true")
    parser.add_argument("files", nargs="+", metavar="GOT EXPECTED", help="pairs of files")
    args = parser.parse_args()
    pairs = list(zip(args.files[::2], args.files[1::2], strict=True))
    return 1 if sum(compare(*pair, not args.structure) for pair in pairs) else 0


def compare(got, expected, data):
    """Prints the differences of two files, below the name of the first; returns their number."""
    print(f"{got}:", flush=True)
    found = differ("", as_netcdf(got, data), as_netcdf(expected, data))
    for engine in ("netcdf4", "h5netcdf"):
        if not data:
            found += differ(f"xarray with {engine}", in_xarray(got, engine), in_xarray(expected, "netcdf4"))
            continue
        with xarray.open_dataset(got, engine=engine) as a, xarray.open_dataset(expected, engine=engine) as b:
            if not a.identical(b):
                print(f"xarray with {engine} sees a difference:\n{a}\n{b}")
                found += 1
    return found


if __name__ == "__main__":
    sys.exit(main())
