#!/usr/bin/env python3
"""whole.py: reads all of the given files, like programs that know nothing of them.

Each line of standard input is the path of a file, each line of standard output its answer: the number of objects, of unreadable
ones, and of chunks in their indexes. Of a dataset of more than some MB only the first and the last element are read: no program
could read everything that a damaged file claims. With options as an argument, the Python package opens the files with them.
"""
import sys

import h5py
import numpy as np

#: Limit, in bytes, of datasets that are read as a whole.
MOST_BYTES = 4 << 20


def look(item, found):
    found["objects"] += 1
    try:
        for name in item.attrs:
            item.attrs[name]
        # This walks the whole chunk index, like h5ls and h5stat.
        h5py.h5o.get_info(item.id)
        if not isinstance(item, h5py.Dataset) or item.shape is None:
            return
        item.id.get_storage_size()
        if item.chunks and hasattr(item.id, "get_num_chunks"):
            found["chunks"] += item.id.get_num_chunks()
        if np.prod(item.shape, dtype=float) * item.dtype.itemsize <= MOST_BYTES:
            item[()]
        else:
            item[(0,) * item.ndim]
            item[tuple(n - 1 for n in item.shape)]
    except Exception:  # noqa: BLE001 - an error is an answer
        found["failed"] += 1


def walk(group, found, seen):
    for name in group:
        try:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            item = group[name]
            key = h5py.h5g.get_objinfo(item.id).objno
        except Exception:  # noqa: BLE001
            found["failed"] += 1
            continue
        if key in seen:
            continue
        seen.add(key)
        look(item, found)
        if isinstance(item, h5py.Group):
            walk(item, found, seen)


def opened(path, options):
    if options is None:
        return h5py.File(path, "r")
    import h5logfs

    return h5py.File(h5logfs.open(path, **options), "r")


def read(path, options):
    found = {"objects": 0, "failed": 0, "chunks": 0}
    try:
        with opened(path, options) as file:
            look(file, found)
            walk(file, found, set())
    except Exception:  # noqa: BLE001
        found["failed"] += 1
    return found


def main():
    options = dict(option.split("=") for option in sys.argv[1].split(",")) if sys.argv[1:] else None
    for line in sys.stdin:
        found = read(line.rstrip("\n"), options)
        print("{objects} objects, {failed} failed, {chunks} chunks".format(**found), flush=True)


if __name__ == "__main__":
    main()
