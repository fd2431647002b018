#!/usr/bin/env python3
"""scorpiokill PROGRAM DIR FIRST COUNT: kills programs that write SCORPIO's structure at random times, and exports what they
leave with PROGRAM.

A program writes 20 frames of a field and of the time, each in a step. Every frame whose step had ended must be there with all of
its values, no other value may be shown, and `inspect` and `check` must say that the directory was not closed. Prints a line for
each difference, and the number of frames; exit status 1 where something differs. Needs the packages adios2 and h5py.
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np

import scorpio

FRAMES, PLACES, PROCESSES = 20, 3000, 3
ROOT = scorpio.ROOT


def field(frame):
    return np.arange(PLACES) + 10000.5 * (frame + 1)


def puts(frame):
    """What a step has, and its attributes."""
    parts = [np.arange(rank, PLACES, PROCESSES) for rank in range(PROCESSES)]
    head = np.array([frame, 1], "i8").view("u1")
    found = {f"{ROOT}var/field": [np.concatenate([field(frame)[part] for part in parts])],
             f"{ROOT}var/time": [np.concatenate([head, np.array([0.25 * frame]).view("u1")])]}
    for name, value in ("frame_id", frame), ("decomp_id", -512), ("num_data_block_writers", 1):
        found[f"{ROOT}track/{name}/field"] = [np.array([value], "i4")]
    if frame:
        return found, {}
    found |= {f"{ROOT}info/nproc": np.array(PROCESSES, "i4"), f"{ROOT}info/block_nprocs": np.array(PROCESSES, "i4"),
              f"{ROOT}info/block_list": [np.arange(PROCESSES, dtype="i4")],
              f"{ROOT}dim/time": np.array(0, "u8"), f"{ROOT}dim/x": np.array(PLACES, "u8"),
              f"{ROOT}decomp/512": [np.concatenate(parts) + 1],
              f"{ROOT}track/num_decomp_block_writers/512": [np.array([1], "i4")]}
    attributes = {}
    for name, dims, more in ("field", ["time", "x"], {"ncop": "darray"}), ("time", ["time"], {"ncop": "put_var", "adiostype": 2}):
        about = {"nctype": 6, "ndims": len(dims), "dims": dims} | more
        attributes |= {f"{ROOT}var/{name}/def/{key}": value for key, value in about.items()}
    attributes |= {f"{ROOT}decomp/512/piotype": 6, f"{ROOT}decomp/512/ndims": 1, f"{ROOT}decomp/512/dimlen": PLACES}
    return found, attributes


def write(path, engine):
    """Writes the frames, and prints the number of each whose step has ended, then `closed`."""
    from adios2 import bindings as adios2

    adios = adios2.ADIOS()
    io = adios.DeclareIO("out")
    io.SetEngine(engine)
    out = io.Open(path, adios2.Mode.Write)
    for frame in range(FRAMES):
        found, attributes = puts(frame)
        for name, value in attributes.items():
            if isinstance(value, int):
                io.DefineAttribute(name, np.array([value], "i4"))
            else:
                io.DefineAttribute(name, value, "", "/")
        out.BeginStep()
        for name, value in found.items():
            scorpio.put(adios2, io, out, name, value)
        out.EndStep()
        os.write(1, b"%d\n" % frame)
        time.sleep(0.002)
    out.Close()
    os.write(1, b"closed\n")


def killed(path, engine, wait):
    """Runs a program for this many seconds after its first step. Returns the number of steps that it had ended, and whether it
    had closed the directory."""
    writer = subprocess.Popen([sys.executable, __file__, "write", path, engine], stdout=subprocess.PIPE)
    said = writer.stdout.readline()
    time.sleep(wait)
    writer.send_signal(signal.SIGKILL)
    said += writer.stdout.read()
    writer.wait()
    lines = said.splitlines()
    return len([line for line in lines if line != b"closed"]), b"closed" in lines


def differences(program, path, out, ended, is_closed):
    """The faults of the file made from a directory, and the number of its frames."""
    import h5py

    # Some releases tell a loss by the exit status of an export that has all the rest.
    run = subprocess.run([program, "export", path, out], capture_output=True, text=True)
    if not os.path.exists(out):
        return [f"export: {run.stderr}"], 0
    with h5py.File(out) as file:
        times, fields = file["time"][()], file["field"][()]
    os.unlink(out)
    found, count = [], len(times)
    if count < ended or count > FRAMES:
        found.append(f"{count} frames, where {ended} had ended")
    if fields.shape != (count, PLACES) or not (fields == [field(frame) for frame in range(count)]).all():
        found.append(f"values of field {fields.shape} are wrong")
    if not (times == 0.25 * np.arange(count)).all():
        found.append(f"times are {times}")
    for command in "check", "inspect":
        told = subprocess.run([program, command, path], capture_output=True, text=True)
        says = "not closed" in told.stdout + told.stderr or "open" in told.stdout + told.stderr
        # It was killed between the close and its message.
        if says == is_closed and count < FRAMES:
            found.append(f"{command} of a directory {'closed' if is_closed else 'not closed'}: {told.stdout}{told.stderr}")
    return found, count


def main():
    if sys.argv[1] == "write":
        return write(*sys.argv[2:])
    program, dir, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    path, out = os.path.join(dir, "run.nc.bp"), os.path.join(dir, "out.nc")
    wrong, all_frames = 0, []
    for number in range(first, first + count):
        chance = random.Random(number)
        engine = chance.choice(["BP4", "BP5"])
        ended, is_closed = killed(path, engine, chance.random() * 0.07)
        found, frames = differences(program, path, out, ended, is_closed)
        for text in found:
            print(f"kill {number} ({engine}): {text}")
        wrong += bool(found)
        all_frames.append(frames)
        shutil.rmtree(path)
    print(f"{count} kills, {wrong} wrong; {min(all_frames)} to {max(all_frames)} frames")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
