#!/usr/bin/env python3
"""adiossame GOT EXPECTED [GOT EXPECTED]...: does each GOT show what a user must see of an ADIOS2 directory?

EXPECTED is a file of tests/corpus-adios. The rules of its README.md decide: objects, shapes, maximum shapes, types, values,
labels of dimensions and attributes must be equal. Text is compared by value, not by storage. Chunks and filters may differ.
Each program reports in its own words what a damaged directory lacks. Prints differences; exit status 1 if there are any.

With --scalars, attributes of one element may be scalars: BP4 does not distinguish them.
"""
import argparse
import sys

import h5py
import numpy as np

# Attributes about missing parts and the time of creation, and those that h5py shows as labels.
OTHERS = {"adios2_problems", "_h5logfs_incomplete", "date", "DIMENSION_LABELS"}


def text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def is_text(dtype):
    return dtype.kind == "S" or h5py.check_string_dtype(dtype) is not None


def shown(dtype, shape, values):
    """Values in a comparable form."""
    values = np.asarray(values)
    if is_text(dtype):
        return "text", shape, [text(value) for value in values.reshape(-1)]
    if dtype.kind == "f" and dtype.itemsize == 16:
        # 6 of the 16 bytes of a long double are padding.
        return dtype.str, shape, [str(value) for value in values.reshape(-1)]
    if dtype.names:
        # Bytes between and after members are padding.
        members = [(name, *dtype.fields[name]) for name in dtype.names]
        return str(members), shape, [values[name].tobytes() for name in dtype.names]
    return dtype.str, shape, values.tobytes()


def names(datatype):
    """Names of an enumeration. openPMD-api takes one for a boolean only with its own order."""
    return [datatype.get_member_name(number).decode() for number in range(datatype.get_nmembers())]


def attributes(path, item, found):
    for name in item.attrs:
        if name not in OTHERS:
            about = item.attrs.get_id(name)
            found[f"{path}@{name}"] = shown(about.dtype, about.shape, item.attrs[name])
            if about.get_type().get_class() == h5py.h5t.ENUM:
                found[f"{path}@{name} names"] = names(about.get_type())


def load(path):
    found = {}
    with h5py.File(path, "r") as file:

        def visit(name, item):
            path = f"/{name}"
            found[path] = "group"
            if isinstance(item, h5py.Dataset):
                labels = [dimension.label for dimension in item.dims]
                found[path] = (item.maxshape, labels, shown(item.dtype, item.shape, item[()]))
            attributes(path, item, found)

        attributes("/", file, found)
        file.visititems(visit)
    return found


def as_array(value):
    """An attribute of one element as an array."""
    kind, shape, values = value
    return kind, shape or (1,), values


def differences(got, expected, scalars):
    for name in sorted(got.keys() | expected.keys()):
        ours, theirs = got.get(name), expected.get(name)
        if ours == theirs:
            continue
        if scalars and "@" in name and ours and theirs and as_array(ours) == as_array(theirs):
            continue
        yield f"{name}: {str(ours)[:300]}, expected {str(theirs)[:300]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scalars", action="store_true")
    parser.add_argument("files", nargs="+", metavar="GOT EXPECTED", help="pairs of files")
    args = parser.parse_args()
    found = 0
    for got, expected in zip(args.files[::2], args.files[1::2]):
        for difference in differences(load(got), load(expected), args.scalars):
            print(f"{got}: {difference}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
