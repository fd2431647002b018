#!/usr/bin/env python3
"""ncsame GOT EXPECTED: are two files the same to netCDF readers?

Compares what the netCDF4 package sees (dimensions in order, groups, variables in order, types,
attributes, raw data), then what xarray sees (coordinates, decoded values). Prints what differs;
exit status 1 where something does.
"""
import sys

import netCDF4
import numpy as np
import xarray


def attributes(x):
    return [(n, type(x.getncattr(n)).__name__, np.asarray(x.getncattr(n)).tolist()) for n in x.ncattrs()]


def describe(group):
    """A group as plain values, in the order in which the file has them."""
    return {
        "attributes": attributes(group),
        "dimensions": [(n, len(d), d.isunlimited()) for n, d in group.dimensions.items()],
        "variables": [
            (n, str(v.dtype), v.dimensions, v.shape, attributes(v), np.asarray(v[...]).tobytes())
            for n, v in group.variables.items()
        ],
        "groups": [(n, describe(g)) for n, g in group.groups.items()],
    }


def as_netcdf(path):
    with netCDF4.Dataset(path) as f:
        f.set_auto_maskandscale(False)
        return describe(f)


def differ(where, got, expected):
    if got == expected:
        return 0
    if isinstance(expected, dict):
        return sum(differ(f"{where}/{k}", got.get(k), v) for k, v in expected.items())
    print(f"{where}: {str(got)[:300]}\n  expected {str(expected)[:300]}")
    return 1


def main():
    got, expected = sys.argv[1:]
    found = differ("", as_netcdf(got), as_netcdf(expected))
    for engine in ("netcdf4", "h5netcdf"):
        with xarray.open_dataset(got, engine=engine) as a, xarray.open_dataset(expected, engine=engine) as b:
            if not a.identical(b):
                print(f"xarray with {engine} sees a difference:\n{a}\n{b}")
                found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
