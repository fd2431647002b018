#!/usr/bin/env python3
"""adioskill PROGRAM DIR FIRST COUNT: kills ADIOS2 programs at random times, and exports what they leave with PROGRAM.

Every step that a program had ended must be there with all of its values, and no other value may be shown. Prints a line for
each difference, and the number of steps; exit status 1 where something differs. Needs the package adios2.
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import time

SIZE = 20000


def write(path, engine):
    """Writes steps without end, and prints the number of each that has ended."""
    import adios2
    import numpy as np

    io = adios2.Adios().declare_io("out")
    io.set_engine(engine)
    with adios2.Stream(io, path, "w") as out:
        number = 0
        while True:
            out.begin_step()
            out.write("field", np.arange(SIZE, dtype="f8") + number, [SIZE], [0], [SIZE])
            out.write("number", number)
            if number % 3 == 0:
                out.write("sometimes", np.full(7, number, "i4"), [7], [0], [7])
            out.end_step()
            os.write(1, b"%d\n" % number)
            number += 1


def killed(path, engine, wait):
    """Runs a program for this many seconds after its first step. Returns the number of steps that it had ended."""
    writer = subprocess.Popen([sys.executable, __file__, "write", path, engine], stdout=subprocess.PIPE)
    ended = len(writer.stdout.readline().splitlines())
    time.sleep(wait)
    writer.send_signal(signal.SIGKILL)
    ended += len(writer.stdout.read().splitlines())
    writer.wait()
    return ended


def differences(program, path, out, ended):
    """The faults of the file made from a directory, and the number of its steps."""
    import h5py
    import numpy as np

    run = subprocess.run([program, "export", path, out], capture_output=True, text=True)
    if run.returncode:
        return [f"export: {run.stderr}"], 0
    with h5py.File(out) as file:
        numbers = file["number"][()].reshape(-1)
        field = file["field"][()].reshape(-1, SIZE)
        sometimes = file["sometimes"][()].reshape(-1, 7)
    os.unlink(out)
    steps = np.arange(len(numbers))
    found = []
    if len(numbers) < ended:
        found.append(f"{len(numbers)} steps, where {ended} had ended")
    if len(field) != len(numbers) or not (numbers == steps).all():
        found.append(f"{len(field)} rows of steps {numbers}")
    if not (field == np.arange(SIZE) + np.arange(len(field))[:, None]).all():
        found.append("values of field are wrong")
    if not (sometimes == steps[::3, None]).all():
        found.append("values of sometimes are wrong")
    return found, len(numbers)


def main():
    if sys.argv[1] == "write":
        return write(*sys.argv[2:])
    program, dir, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    path, out = os.path.join(dir, "run.bp"), os.path.join(dir, "out.h5")
    wrong, all_steps = 0, []
    for number in range(first, first + count):
        chance = random.Random(number)
        engine = chance.choice(["BP4", "BP5"])
        ended = killed(path, engine, chance.random() * 0.15)
        found, steps = differences(program, path, out, ended)
        for text in found:
            print(f"kill {number} ({engine}): {text}")
        wrong += bool(found)
        all_steps.append(steps)
        shutil.rmtree(path)
    print(f"{count} kills, {wrong} wrong; {min(all_steps)} to {max(all_steps)} steps")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
