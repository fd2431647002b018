#!/usr/bin/env python3
"""Batches of samples out of a log, in random order, made by several processes: what a data loader does.

    python batches.py LOG DATASET [BATCH_SIZE]

A sample is a row of the dataset. An array of h5logfs is small when it is pickled, and each process that gets one opens the log by its
path. So it is given to the workers as it is.

With PyTorch, the same is a `Dataset`:

    class Samples(torch.utils.data.Dataset):
        def __init__(self, path, name):
            self.array = h5logfs.Log(path, threads=1)[name]     # the workers share the cores

        def __len__(self):
            return len(self.array)

        def __getitems__(self, rows):                           # one read for a batch
            return list(torch.from_numpy(self.array[rows]))

    samples = Samples("run42/output.h5", "physics/T")
    for batch in torch.utils.data.DataLoader(samples, batch_size=32, shuffle=True, num_workers=4):
        ...
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from collections.abc import Iterator
from itertools import repeat

import h5logfs
import numpy as np

WORKERS = 2


def load(array: h5logfs.Array, rows: np.ndarray) -> np.ndarray:
    """One batch. The workers share the cores, so each reads with one thread."""
    return array.read(rows, threads=1)


def batches(array: h5logfs.Array, size: int, seed: int = 0) -> Iterator[np.ndarray]:
    """All rows once, `size` at a time."""
    order = np.random.default_rng(seed).permutation(len(array))
    parts = [order[at : at + size] for at in range(0, len(order), size)]
    with ProcessPoolExecutor(WORKERS) as pool:
        yield from pool.map(load, repeat(array), parts)


def main() -> None:
    path, name = sys.argv[1:3]
    size = int(sys.argv[3]) if len(sys.argv) > 3 else 32
    array = h5logfs.Log(path)[name]
    samples, count, total = 0, 0, 0.0
    for batch in batches(array, size):
        samples, count, total = samples + len(batch), count + 1, total + float(batch.sum(dtype=float))
    print(f"{samples} samples in {count} batches, mean {total / array.size:.6g}")


if __name__ == "__main__":
    main()
