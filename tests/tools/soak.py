#!/usr/bin/env python3
"""soak.py SECONDS SEED FILE...: repeatedly reads the dataset `data` of random files that appear and disappear.

Each element tells the state of its file, and its place (see tests/soak/main.rs), so a read must return a single state. Prints
one line of JSON: the number of right reads, and of failures by reason. Errors in the content go to standard error, with exit
status 1.
"""
import collections
import errno
import json
import random
import re
import sys
import time

import h5py
import numpy as np

# By file suffix: bits of an element for its place, and the rows and columns.
FORMS = {"h5": (32, lambda state: 256 + 64 * (state % 5), 256), "nc": (12, lambda state: 8 + 8 * (state % 5), 64)}


class Wrong(Exception):
    pass


def read(path, numbers):
    bits, rows_of, columns = FORMS[path.rsplit(".", 1)[1]]
    with h5py.File(path, "r") as file:
        data = file["data"]
        if data.shape is None or len(data.shape) != 2 or data.shape[1] != columns:
            raise Wrong(f"the shape is {data.shape}")
        rows = data.shape[0]
        first, last = sorted(numbers.randrange(rows) for _ in range(2))
        if numbers.random() < 0.3:
            first, last = 0, rows - 1
        got = data[first : last + 1].astype("u8")
        state = int(got.flat[0]) >> bits
        places = np.arange(first * columns, (last + 1) * columns, dtype="u8")
        if rows != rows_of(state):
            raise Wrong(f"{rows} rows, data of state {state}")
        if not np.array_equal(got.reshape(-1), (np.uint64(state << bits) + places)):
            raise Wrong(f"rows {first} to {last} are not of state {state} altogether")


def reason(error):
    number = getattr(error, "errno", None)
    if number is None:
        found = re.search(r"errno = (\d+)", str(error))
        number = int(found.group(1)) if found else None
    if number:
        return errno.errorcode.get(number, str(number))
    # libhdf5's message about a file that it cannot interpret.
    return re.sub(r"[0-9]+", "N", str(error))


def main():
    end = time.monotonic() + float(sys.argv[1])
    numbers = random.Random(int(sys.argv[2]))
    files = sys.argv[3:]
    right, failed = 0, collections.Counter()
    wrong = 0
    while time.monotonic() < end:
        path = numbers.choice(files)
        try:
            read(path, numbers)
            right += 1
        except Wrong as what:
            wrong += 1
            print(f"{path}: {what}", file=sys.stderr)
        except (OSError, KeyError, RuntimeError) as error:
            failed[reason(error)] += 1
            # A missing file fails fast, and is not the subject of the test.
            time.sleep(0.01)
    print(json.dumps({"right": right, "failed": failed}))
    sys.exit(1 if wrong else 0)


main()
