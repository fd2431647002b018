#!/usr/bin/env python3
"""watch.py WAY FILE RANKS CLOSED: watches FILE, which a job of tests/programs/pattern.rs writes, until the log is closed.

WAY: `open` repeatedly opens FILE with h5py, by a mount or by the file driver, until the file CLOSED exists; `h5logfs.follow`
and `h5logfs.xarray.follow` use these functions. Prints the number of each flush, and the time at which it was seen, in
seconds since 1970; then it checks that FILE shows everything of the flush, and nothing of another one. The close leaves a
last flush. The closed log may show the same flush as the last state before.
"""
import os
import sys
import time

import h5py
import numpy as np
from follow import equal, look
from pattern import BULK, SCATTERED, STATE, check, value

PAUSE = 0.01


def opened(path, ranks, closed):
    last = 0
    while True:
        is_closed = os.path.exists(closed)
        with h5py.File(path, "r") as file:
            flush, seen = len(file["steps"]), time.time()
            if flush != last:
                print(flush, seen, flush=True)
                assert look(file, ranks) == flush
                last = flush
            if is_closed:
                assert check(file, ranks) == flush
                return
        time.sleep(PAUSE)


def followed(path, ranks, _):
    import h5logfs

    last = 0
    for log in h5logfs.follow(path, timeout=60):
        with log.file() as file:
            flush, seen = len(file["steps"]), time.time()
            if not log.closed or flush != last:
                print(flush, seen, flush=True)
            assert (check if log.closed else look)(file, ranks) == flush
            assert log.closed or log.flush.number == flush, f"{log.flush} shows {flush}"
            last = flush


def datasets(path, ranks, _):
    from h5logfs.xarray import follow

    last, is_closed = 0, False
    for dataset in follow(path, timeout=60, phony_dims="access"):
        assert not is_closed, f"flush {last} came twice"
        with dataset:
            flush, seen = dataset["steps"].size, time.time()
            is_closed = flush == last
            if not is_closed:
                print(flush, seen, flush=True)
            check_dataset(dataset, ranks, flush)
            last = flush


def check_dataset(dataset, ranks, flush):
    everyone = np.arange(ranks)[:, None]
    # Every thirteenth flush has only definitions.
    data = flush - (flush % 13 == 0)
    equal("steps", dataset["steps"].values[data - 1], data * data, flush)
    equal("state", dataset["state"].values, value(data, everyone, range(STATE)), flush)
    places = np.arange(data % 2, SCATTERED, 2)
    equal("scattered", dataset["_scattered"].values[:, places], value(data, everyone, places) & 0xFFFF, flush)
    assert len(dataset["bulk"]) == flush // 8
    if flush >= 8:
        wanted = value(flush // 8 * 8, everyone, range(BULK)).ravel() & 0xFF
        equal("bulk", dataset["bulk"][-1].values, wanted, flush)


WAYS = {"open": opened, "h5logfs.follow": followed, "h5logfs.xarray.follow": datasets}

if __name__ == "__main__":
    WAYS[sys.argv[1]](sys.argv[2], int(sys.argv[3]), sys.argv[4])
