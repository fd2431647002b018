#!/usr/bin/env python3
"""flushing.py FILE SEED FLUSHES [COPIES]: a random program that flushes FLUSHES times and ends without a close.

With COPIES, a directory, it copies the file there after each flush: for a native HDF5 file."""
import os
import random
import shutil
import sys

import h5py
import numpy as np

TYPES = ["u1", "i4", ">i8", "f4", "f8", "S5"]


class Program:
    def __init__(self, path, seed):
        self.random = random.Random(seed)
        # With old or new object headers. Later formats mark an open file, so that a copy cannot be opened.
        self.file = h5py.File(path, "w", libver=self.random.choice(["earliest", ("v108", "v108")]))
        self.groups, self.datasets, self.count, self.flushes = ["/"], [], 0, 0

    def name(self):
        self.count += 1
        return f"{self.random.choice(self.groups).rstrip('/')}/x{self.count}"

    def values(self, shape, dtype):
        numbers = np.arange(int(np.prod(shape))) * self.random.randrange(1, 50) + self.random.randrange(100)
        if dtype.startswith("S"):
            return (numbers % 100000).astype(dtype).reshape(shape)
        return (numbers % 120).astype(dtype).reshape(shape)

    def group(self):
        name = self.name()
        self.file.create_group(name)
        self.groups.append(name)

    def dataset(self):
        name, dtype = self.name(), self.random.choice(TYPES)
        rows, columns = self.random.randrange(0, 9), self.random.randrange(1, 30)
        filters = self.random.choice([{}, {}, {"compression": "gzip"}, {"shuffle": True, "fletcher32": True}])
        chunks = (self.random.randrange(1, 5), self.random.randrange(1, columns + 1))
        self.file.create_dataset(name, (rows, columns), dtype, maxshape=(None, columns), chunks=chunks, **filters)
        self.datasets.append(name)

    def fixed(self):
        dtype = self.random.choice(TYPES)
        shape = (self.random.randrange(1, 40),)
        self.file.create_dataset(self.name(), data=self.values(shape, dtype))

    def append(self):
        dataset = self.file[self.random.choice(self.datasets)]
        before, more = len(dataset), self.random.randrange(1, 6)
        dataset.resize(before + more, axis=0)
        dataset[before:] = self.values((more, dataset.shape[1]), dataset.dtype.str.replace("|", ""))

    def write(self):
        dataset = self.file[self.random.choice(self.datasets)]
        if not len(dataset):
            return
        first = self.random.randrange(len(dataset))
        step = self.random.randrange(1, 3)
        rows = len(range(first, len(dataset), step))
        left = self.random.randrange(dataset.shape[1])
        part = self.values((rows, dataset.shape[1] - left), dataset.dtype.str.replace("|", ""))
        dataset[first::step, left:] = part

    def shrink(self):
        dataset = self.file[self.random.choice(self.datasets)]
        dataset.resize(self.random.randrange(len(dataset) + 1), axis=0)

    def attribute(self):
        owner = self.file[self.random.choice(self.groups + self.datasets)]
        owner.attrs[f"a{self.random.randrange(5)}"] = self.random.choice(
            [self.random.randrange(1000), self.random.random(), "text " * self.random.randrange(1, 9), np.arange(self.random.randrange(1, 9))]
        )

    def link(self):
        target = self.random.choice(self.groups + self.datasets)
        self.file[self.name()] = h5py.SoftLink(target)

    def remove(self):
        if len(self.datasets) > 1:
            name = self.datasets.pop(self.random.randrange(len(self.datasets)))
            del self.file[name]

    def run(self):
        steps = [self.group, self.dataset, self.fixed, self.attribute, self.link, self.remove]
        steps += 3 * [self.append, self.write, self.attribute] + [self.shrink]
        for _ in range(self.random.randrange(1, 12)):
            self.random.choice(steps if self.datasets else [self.dataset, self.group])()
        # A flush without new data does not reach the log, so an attribute changes each time.
        self.flushes += 1
        self.file.attrs["flushes"] = self.flushes
        self.file.flush()


def main():
    path, seed, flushes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    program = Program(path, seed)
    for flush in range(1, flushes + 1):
        program.run()
        if len(sys.argv) > 4:
            shutil.copy(path, os.path.join(sys.argv[4], f"{flush}.h5"))
    sys.stdout.flush()
    os._exit(0)


main()
