#!/usr/bin/env python3
"""late.py KIND FILE FOLDER RANKS: reads FILE, which a job writes, on a file system that shows writes late.

KIND: `pattern` for a job of tests/programs/pattern.rs, `rows` for one of tests/common/rows.rs. After each complete read it
prints a line: `flush N of M`, where N is the flush that FILE shows, and M the last one in FOLDER/acknowledged before the
read; `mixed` and the fault, if it is no flush; `error` and the reason, if FILE could not be read. Continues until FOLDER/stop
has the number of a flush that FILE shows.
"""
import os
import sys
import time

import h5py
import numpy as np
from follow import acknowledged
from pattern import check

# The daemon remembers a failed open for ten seconds.
PATIENCE = 15


def check_rows(file, ranks):
    """The flush that the file shows, by all of its elements."""
    if not len(file):
        return 0
    rows, now = file["rows"], file["now"]
    flush, columns = rows.shape
    elements = np.arange(columns) + 1_000_000 * np.arange(1, flush + 1)[:, None]
    assert (rows[()] == elements).all(), f"rows are not those of flush {flush}"
    assert (now[()] == elements[-1]).all(), f"the last row is not that of flush {flush}"
    return flush


CHECKS = {"pattern": check, "rows": check_rows}


def look(kind, path, ranks):
    """The content of the file as text."""
    try:
        with h5py.File(path, "r") as file:
            return f"flush {CHECKS[kind](file, ranks)}"
    except AssertionError as wrong:
        return f"mixed: {wrong}"
    # A visit of all objects reports a failed read as the latter.
    except (OSError, RuntimeError) as error:
        return f"error: {error}"


def main():
    kind, path, folder, ranks = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    parent, late = os.getppid(), None
    while os.getppid() == parent:
        last = None
        if os.path.exists(f"{folder}/stop"):
            with open(f"{folder}/stop") as stop:
                last = int(stop.read())
            late = late or time.monotonic() + PATIENCE
        before = acknowledged(folder)
        shown = look(kind, path, ranks)
        print(shown.replace("\n", " "), "of", before, flush=True)
        if last is not None and (shown == f"flush {last}" or time.monotonic() > late):
            break
        time.sleep(0.02)


if __name__ == "__main__":
    main()
