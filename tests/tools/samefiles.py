#!/usr/bin/env python3
"""samefiles.py GOT EXPECTED: is each HDF5 file below the directory EXPECTED the same to a reader as that of GOT?

Compares as h5same.py does, with the shapes of chunks and the order of attributes.
Ends with 'same', or with exit code 1 and what differs.
"""
import argparse
import contextlib
import io
import os
import sys

import h5py

import h5same

OPTIONS = argparse.Namespace(as_logged=False, chunks=True, plist=False, no_data=False, whole=True, most=10)


class Comparer(h5same.Comparer):
    def whole(self, where, g, e):
        """Times differ between files, and objects with several links do not keep the order of links."""
        self.same(where, "order of attributes", list(g.attrs), list(e.attrs))


def differences(got, expected):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            with h5py.File(got, "r") as g, h5py.File(expected, "r") as e:
                comparer = Comparer(g, e, OPTIONS)
                root = h5py.h5o.get_info(e.id).addr
                comparer.group("/", g, e, {root: (h5py.h5o.get_info(g.id).addr, "/")})
        except OSError as error:
            print(error)
            return said.getvalue()
    return said.getvalue() if comparer.diffs else ""


def main():
    got, expected = sys.argv[1:]
    bad = 0
    names = sorted(os.listdir(expected))
    assert names, f"there is nothing in {expected}"
    for name in names:
        found = differences(os.path.join(got, name), os.path.join(expected, name))
        if found:
            bad += 1
            print(f"{name}:\n{found}")
    print("same" if not bad else f"{bad} of {len(names)} files differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
