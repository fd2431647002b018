#!/usr/bin/env python3
"""pattern.py FILE RANKS [LOG]: which flush of tests/programs/pattern.rs did FILE end with?

Prints its number, after checking that FILE holds exactly what the flushes up to it leave. Exits with 1 where it holds anything
else, 3 where it cannot be opened. LOG: the log file that FILE is a view of; it must be closed.
"""
import sys

import h5py
import numpy as np

COLUMNS, STATE, SCATTERED, BULK = 16, 300, 64, 1 << 16
EVENT = np.dtype([("flush", "<u4"), ("rank", "<u4"), ("number", "<u8")])


def value(flush, rank, places):
    return flush * 1_000_003 + rank * 10_007 + np.asarray(places, np.int64) * 31


def meant(ranks, last):
    """Datasets and attributes that the flushes up to `last` leave, by path."""
    steps = np.zeros(last, "<i8")
    field = np.zeros((last, ranks * COLUMNS), "<f8")
    state = np.zeros((ranks, STATE), "<u4")
    scattered = np.zeros((ranks, SCATTERED), "<u2")
    bulk = np.zeros((last // 8, ranks * BULK), "u1")
    events, late, attributes = [], {}, {"/": {}}
    for flush in range(1, last + 1):
        if flush % 8 == 0:
            bulk[flush // 8 - 1] = np.concatenate([value(flush, r, range(BULK)) for r in range(ranks)]) & 0xff
        if flush % 13 == 0:
            attributes["/"][f"empty{flush}"] = flush
            continue
        steps[flush - 1] = flush * flush
        for rank in range(ranks):
            columns = slice(rank * COLUMNS, (rank + 1) * COLUMNS)
            field[flush - 1, columns] = value(flush, rank, range(COLUMNS))
            state[rank] = value(flush, rank, range(STATE))
            places = np.arange(flush % 2, SCATTERED, 2)
            scattered[rank, places] = value(flush, rank, places) & 0xffff
            number = (flush * 7 + rank * 3) % 11
            events += [(flush, rank, value(flush, rank, i)) for i in range(number)]
        if flush % 5 == 0:
            made = np.full((ranks, 8), -1, "<i4")
            for rank in range(0, ranks, 2):
                made[rank] = value(flush, rank, range(8))
            late[f"/late/{flush}"] = made
            attributes[f"/late/{flush}"] = {"made": flush, "note": f"made by flush {flush}"}
    datasets = {"/steps": steps, "/air/field": field, "/state": state, "/_scattered": scattered,
                "/run/events": np.array(events, EVENT), "/bulk": bulk, **late}
    return datasets, attributes


def check(file, ranks):
    """The last flush in the file; fails where anything else is."""
    found, groups = {}, set()
    file.visititems(lambda name, o: (found.update({f"/{name}": o}) if isinstance(o, h5py.Dataset)
                                     else groups.add(f"/{name}")) and None)
    if not found:
        assert not groups and not file.attrs, "objects, but no datasets"
        return 0
    last = found["/steps"].shape[0]
    datasets, attributes = meant(ranks, last)
    assert set(found) == set(datasets), f"datasets {sorted(set(found) ^ set(datasets))} of flush {last}"
    assert groups == {path[:path.rindex("/")] for path in datasets} - {""}, f"groups {groups}"
    for path, wanted in datasets.items():
        got = found[path]
        assert got.dtype == wanted.dtype, f"{path}: type {got.dtype}"
        assert got.shape == wanted.shape, f"{path}: shape {got.shape} in flush {last}"
        bad = np.argwhere(got[()] != wanted)
        assert not len(bad), f"{path}: wrong at {bad[0]} and {len(bad) - 1} more places in flush {last}"
    for path in ["/", *sorted(groups), *found]:
        got = {name: v if isinstance(v, str) else int(v) for name, v in file[path].attrs.items()}
        assert got == attributes.get(path, {}), f"{path}: attributes {got} in flush {last}"
    return last


def main():
    path, ranks = sys.argv[1], int(sys.argv[2])
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        print(error)
        return 3
    with file:
        last = check(file, ranks)
    if len(sys.argv) > 3:
        import logvol
        logvol.check(sys.argv[3], "-")
    print(last)
    return 0


if __name__ == "__main__":
    sys.exit(main())
