#!/usr/bin/env python3
"""unasked.py FILE: how many steps of tests/c/connector/unasked.c, or of this script with `write`, FILE shows, each of them whole.

unasked.py write FILE NOTES: one process writes the same steps, and never flushes them, until it is killed.
Exit code 3: it cannot be opened. Exit code 1: it shows part of a step.
"""
import itertools
import os
import sys

import h5py
import numpy as np

WIDTH = 1200


def values(step, width):
    return step * 1000 + np.arange(width)


def show(path):
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        print(error)
        return 3
    with file:
        if "history" not in file:
            print(0)
            return 0
        history = file["history"]
        steps, width = history.shape
        # A process alone may be flushed between the extent and the row.
        if steps and not history[steps - 1].any():
            steps -= 1
        for step in range(steps):
            assert (history[step] == values(step, width)).all(), f"step {step} of {steps}: {history[step]}"
        for step in range(3, steps - 1, 4):
            assert file[f"g{step}"].attrs["step"] == step, f"group {step} of {steps}"
    print(steps)
    return 0


def write(path, notes):
    with open(os.path.join(notes, "acknowledged"), "w", buffering=1) as noted:
        file = h5py.File(path, "w")
        history = file.create_dataset("history", (0, WIDTH), "<i4", maxshape=(None, WIDTH), chunks=(1, WIDTH))
        for step in itertools.count():
            history.resize(step + 1, axis=0)
            history[step] = values(step, WIDTH)
            if step % 4 == 3:
                file.create_group(f"g{step}").attrs["step"] = step
            noted.write(f"{step}\n")


if __name__ == "__main__":
    sys.exit(write(*sys.argv[2:]) if sys.argv[1] == "write" else show(sys.argv[1]))
