#!/usr/bin/env python3
"""follow.py FILE FOLDER RANKS PAUSE: repeatedly reads FILE, which a job of tests/programs/pattern.rs writes.

Each time FILE must show one flush and nothing of a later one. The flush must be at least the last one acknowledged in FOLDER
before the open, and the last one seen. Ends when FOLDER/stop exists and all of the closed file was checked; prints the number
of opens, the number of flushes seen, and the last one. PAUSE: seconds between two looks. Prints "two" when two flushes were
seen.
"""
import os
import sys
import time

import h5py
import numpy as np
from pattern import BULK, COLUMNS, SCATTERED, STATE, check, value


def acknowledged(folder):
    """The last flush that has returned on all ranks."""
    try:
        with open(f"{folder}/acknowledged") as notes:
            text = notes.read()
    except FileNotFoundError:
        return 0
    # The last line may be incomplete.
    return max([int(line) for line in text[:text.rfind("\n") + 1].split("\n") if line.isdigit()], default=0)


def equal(path, got, wanted, last):
    assert (got == wanted).all(), f"{path} is not that of flush {last}"


def look(file, ranks):
    """The flush that the file shows, by the parts that each flush rewrites."""
    if "steps" not in file:
        assert not len(file), f"objects, but not those of a flush: {list(file)}"
        return 0
    last = len(file["steps"])
    # Every thirteenth flush has only definitions.
    data = last - (last % 13 == 0)
    everyone = np.arange(ranks)[:, None]
    equal("steps", file["steps"][data - 1], data * data, last)
    assert file["air/field"].shape == (last, ranks * COLUMNS)
    equal("field", file["air/field"][data - 1], value(data, everyone, range(COLUMNS)).ravel(), last)
    equal("state", file["state"][()], value(data, everyone, range(STATE)), last)
    places = np.arange(data % 2, SCATTERED, 2)
    equal("scattered", file["_scattered"][()][:, data % 2::2], value(data, everyone, places) & 0xffff, last)
    numbers = [(flush * 7 + rank * 3) % 11 for flush in range(1, last + 1) if flush % 13 for rank in range(ranks)]
    assert file["run/events"].shape == (sum(numbers),), f"events in flush {last}"
    assert len(file["bulk"]) == last // 8, f"bulk in flush {last}"
    if last >= 8:
        wanted = value(last // 8 * 8, everyone, range(BULK)).ravel() & 0xff
        equal("bulk", file["bulk"][-1], wanted, last)
    late = [int(name) for name in file["late"]] if "late" in file else []
    assert sorted(late) == [f for f in range(5, last + 1, 5) if f % 13], f"late datasets in flush {last}"
    return last


def main():
    path, folder, ranks, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    opens, seen, flushes, before = 0, -1, 0, 0
    while True:
        done = os.path.exists(f"{folder}/stop")
        before = acknowledged(folder)
        try:
            file = h5py.File(path, "r")
        except OSError as error:
            # The creation is not complete yet.
            assert seen < 0 and not before and not done, f"flush {seen} was seen, {before} acknowledged: {error}"
            time.sleep(pause)
            continue
        with file:
            shown = check(file, ranks) if done else look(file, ranks)
        opens += 1
        assert shown >= before, f"flush {shown} is shown, though {before} was acknowledged"
        assert shown >= seen, f"flush {shown} is shown after flush {seen}"
        if shown > seen:
            flushes += 1
            if flushes == 2:
                print("two", flush=True)
        seen = shown
        if done:
            break
        time.sleep(pause)
    print(opens, flushes, seen)


if __name__ == "__main__":
    main()
