#!/usr/bin/env python3
"""steps.py show MODE FILE ...: the steps of tests/c/steps in each FILE, as a line of JSON per pair.

`rows`: the extent of the dataset, null without the file or dataset. `ranks`: the number of complete steps of each rank, from
the first one on. Exit code 1: the content is impossible. MODE: `whole` for a flush between two calls of a program that makes
all calls on all ranks; `parts` where ranks may be at different steps; `marks` is `whole` for a program that makes a group
with every fourth step.

steps.py write FILE NOTES [EXIT]: one process writes the same steps with h5py and never flushes them, until it is killed, or
exits after EXIT steps. NOTES tells when each step was written, as in tests/c/steps/notes.c.
"""
import itertools
import json
import os
import sys
import time

import h5py
import numpy as np

WIDTH = 1200


def check_marks(file, steps):
    """The group of the last step may lack its attribute, or be missing."""
    marks = {name for name in file if name.startswith("g")}
    for step in range(3, steps - 1, 4):
        assert file[f"g{step}"].attrs["step"] == step, f"group {step} of {steps}"
    assert marks <= {f"g{step}" for step in range(3, steps, 4)}, f"{marks} with {steps} steps"


def shown(mode, path):
    nothing = {"rows": None, "ranks": []}
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        return {**nothing, "reason": str(error)}
    with file:
        if "history" not in file:
            return nothing
        rows = file["history"][...]
        if mode == "marks":
            check_marks(file, len(rows))
    wanted = 1000 * np.arange(len(rows))[:, None] + np.arange(rows.shape[1])
    is_right = rows == wanted
    wrong = np.argwhere(~is_right & (rows != 0))
    assert not len(wrong), f"{path}: {len(wrong)} elements are wrong, the first at {wrong[0]}"
    steps = is_right.reshape(len(rows), rows.shape[1] // WIDTH, WIDTH).all(axis=2)
    if mode != "parts":
        # A flush may happen between the new extent and the write.
        whole = steps[:-1] if len(rows) and not rows[-1].any() else steps
        assert whole.all(), f"{path}: {len(rows)} rows, and not whole are {np.argwhere(~whole)[:5].tolist()}"
    first_missing = [int(np.argmin(own)) if not own.all() else len(own) for own in steps.T]
    return {"rows": len(rows), "ranks": first_missing}


def write(path, notes, last=None):
    with open(os.path.join(notes, "pid.0"), "w") as pid:
        pid.write(str(os.getpid()))
    told = os.open(os.path.join(notes, "steps.0"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with open(os.path.join(notes, "acknowledged"), "w") as ready:
        ready.write("ready\n")
    file = h5py.File(path, "w")
    history = file.create_dataset("history", (0, WIDTH), "<i4", maxshape=(None, WIDTH), chunks=(1, WIDTH))
    for step in itertools.count():
        begun = time.time()
        history.resize(step + 1, axis=0)
        history[step] = step * 1000 + np.arange(WIDTH)
        if step % 4 == 3:
            file.create_group(f"g{step}").attrs["step"] = step
        os.write(told, f"{step} {begun:.6f} {time.time():.6f}\n".encode())
        if last is not None and step == int(last):
            sys.exit(0)
        time.sleep(0.01)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(*sys.argv[2:])
    for mode, path in zip(sys.argv[2::2], sys.argv[3::2]):
        print(json.dumps(shown(mode, path)))
