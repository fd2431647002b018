#!/usr/bin/env python3
"""flushes.py FILE: prints the flush of tests/c/connector/flushes.c that FILE shows, and checks that it shows nothing of any
other.

Exit code 3: it cannot be opened. Exit code 1: it shows a mixture.
"""
import sys

import h5py
import numpy as np

WIDTH = 10000


def values(flush, ranks):
    return np.tile(flush * 1000 + np.arange(WIDTH), ranks)


def main():
    try:
        file = h5py.File(sys.argv[1], "r")
    except OSError as error:
        print(error)
        return 3
    with file:
        if "flush" not in file.attrs:
            # Before the first flush.
            print(0)
            return 0
        flush = int(file.attrs["flush"])
        history, last = file["history"], file["last"]
        ranks = last.shape[0] // WIDTH
        assert history.shape == (flush, ranks * WIDTH), f"flush {flush}, {history.shape}"
        for row in range(flush):
            assert (history[row] == values(row + 1, ranks)).all(), f"flush {flush}, row {row}"
        expected = values(flush, ranks) if flush else 0
        assert (last[...] == expected).all(), f"flush {flush}, last is {last[:3]}"
        groups = {name for name in file if name.startswith("g")}
        assert groups == {f"g{number + 1}" for number in range(flush)}, f"flush {flush}, {sorted(groups)}"
    print(flush)
    return 0


if __name__ == "__main__":
    sys.exit(main())
