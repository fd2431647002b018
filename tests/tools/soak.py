#!/usr/bin/env python3
"""soak.py SECONDS SEED FILE...: reads the dataset `data` of random files again and again, as they come
and go.

Each element says which state of its file it belongs to, and where it stands (see tests/soak/main.rs), so
what is read must belong to one state altogether. Prints one line of JSON: how many reads were right,
and how many failed, by reason; what was wrong goes to standard error, and the exit status is 1.
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

# By the ending of the file: bits of an element that say where it stands, its rows and columns.
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
    # What libhdf5 says of a file that it cannot make anything of.
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
            # A file that is gone costs nothing, and is not what is to be tried.
            time.sleep(0.01)
    print(json.dumps({"right": right, "failed": failed}))
    sys.exit(1 if wrong else 0)


main()
