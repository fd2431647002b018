#!/usr/bin/env python3
"""make.py DIR: makes b4_names, b5_names, b4_dims32, b5_dims32 and b5_moves anew in DIR, with ADIOS2 2.12, and their expected files.

The expected files follow the rules of docs/formats/adios-bp.md, section 8, and hold what was put, not what h5logfs shows."""
import os
import shutil
import struct
import sys

import adios2
import h5py
import numpy as np

# The name of each variable of `names`, and its path. The number of a variable is its value.
NAMES = [
    ("a b", "a b"),
    ("dots..", "dots.."),
    ("..", ".."),
    (".hidden", ".hidden"),
    ("100 %d", "100 %d"),
    ("back\\slash", "back\\slash"),
    ("new\nline", "new\nline"),
    ("température", "température"),
    ("日本/語", "日本/語"),
    ("日本/a", "日本/a"),
    ("日本/b", "日本/b"),
    ("日本/c", "日本/c"),
    ("g/é", "g/é"),
    ("g/a", "g/a"),
    ("g/b", "g/b"),
    ("g/h/plain", "g/h/plain"),
    ("g/h/other", "g/h/other"),
    ("long" * 200, "long" * 200),
    ("é" * 500, "é" * 500),
    ("_slash", "_slash"),
    ("", "_empty"),
    ("/", "_slash_2"),
    ("//", "_slash_slash"),
    (".", "_dot"),
]
ATTRIBUTES = [("/", "", "_slash"), ("é/u", "é", "u"), ("g/é/unité", "g/é", "unité"), ("x y", "", "x y")]


def write(path, engine, steps):
    """Each step is a list of puts: name, array or number, and the arguments of a place."""
    io = adios2.Adios().declare_io("out")
    io.set_engine(engine)
    shutil.rmtree(path, ignore_errors=True)
    with adios2.Stream(io, path, "w") as out:
        for puts, attributes in steps:
            out.begin_step()
            for name, value, *place in puts:
                out.write(name, value, *place)
            for name, value in attributes:
                out.write_attribute(name, value)
            out.end_step()
    if os.path.exists(f"{path}/profiling.json"):
        os.remove(f"{path}/profiling.json")


def names(path, engine):
    puts = [(name, np.array([number], "i4")) for number, (name, _) in enumerate(NAMES)]
    write(f"{path}.bp", engine, [(puts, [(name, 7) for name, *_ in ATTRIBUTES])])
    with h5py.File(f"{path}.expected.h5", "w") as file:
        for number, (name, place) in enumerate(NAMES):
            file[place] = np.array([number], "i4")
            if name != place:
                file[place].attrs["adios2_name"] = name
        for _, owner, name in ATTRIBUTES:
            (file[owner] if owner in file else file.create_group(owner) if owner else file).attrs[name] = np.int64(7)


def dims32(path, engine):
    """Arrays of 31 and of 32 dimensions in two steps."""
    shapes = {"x31": [2] * 3 + [1] * 28, "x32": [2] * 3 + [1] * 29}
    steps = [{name: np.arange(8, dtype="f8").reshape(shape) + 10 * step for name, shape in shapes.items()} for step in range(2)]
    puts = [[(name, data, data.shape, [0] * data.ndim, data.shape) for name, data in of.items()] for of in steps]
    write(f"{path}.bp", engine, [(of, []) for of in puts])
    with h5py.File(f"{path}.expected.h5", "w") as file:
        data = np.stack([of["x31"] for of in steps])
        file.create_dataset("x31", data=data, maxshape=(None, *data.shape[1:]), chunks=data.shape)
        file["x31"].dims[0].label = "step"
        file.create_group("x32").attrs["adios2_shape"] = "32 dimensions in each step"
        for number, of in enumerate(steps):
            file["x32"][f"step_{number:05}"] = of["x32"]


def moves(path):
    """b5_mpi_agg2 as a writer makes it that chooses the file of each process anew in each step: see section 3.1."""
    of = os.path.join(os.path.dirname(__file__), "b5_mpi_agg2")
    files = [[0, 0, 1, 1], [1, 2, 0, 1], [2, 1, 1, 0]]
    shutil.rmtree(f"{path}.bp", ignore_errors=True)
    shutil.copytree(f"{of}.bp", f"{path}.bp")
    shutil.copy(f"{of}.expected.h5", f"{path}.expected.h5")
    old = [open(f"{of}.bp/data.{number}", "rb").read() for number in range(2)]
    new = [bytearray() for _ in range(3)]
    with open(f"{of}.bp/md.idx", "rb") as file:
        index = file.read()
    made, at, map, steps = bytearray(index[:64]), 64, None, 0
    while at < len(index):
        kind, length = index[at : at + 1], int.from_bytes(index[at + 1 : at + 9], "little")
        numbers = list(struct.unpack_from(f"<{length // 8}Q", index, at + 9))
        at += 9 + length
        if kind == b"w":
            map = numbers
            continue
        # Without flushes: begin, length, 0, and an offset for each process.
        for process, begin in enumerate(numbers[3:]):
            ends = [b for p, b in enumerate(numbers[3:]) if map[3 + p] == map[3 + process] and b > begin] or [begin + 1000]
            target = new[files[steps][process]]
            target += bytes(-len(target) % 64)
            numbers[3 + process] = len(target)
            target += old[map[3 + process]][begin : min(ends)]
        for kind, numbers in ((b"w", [4, 3, 3, *files[steps]]), (b"s", numbers)):
            made += kind + struct.pack(f"<{1 + len(numbers)}Q", 8 * len(numbers), *numbers)
        steps += 1
    for name, data in [("md.idx", made)] + [(f"data.{number}", data) for number, data in enumerate(new)]:
        with open(f"{path}.bp/{name}", "wb") as file:
            file.write(data)


def main():
    moves(os.path.join(sys.argv[1], "b5_moves"))
    for engine in ("BP4", "BP5"):
        for make in (names, dims32):
            make(os.path.join(sys.argv[1], f"b{engine[2]}_{make.__name__}"), engine)


if __name__ == "__main__":
    main()
