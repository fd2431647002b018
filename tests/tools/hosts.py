#!/usr/bin/env python3
"""hosts.py WAY EXPECTED LOG…: a Python program that reads logs with h5py in one of the usual ways.

fork, spawn: processes of multiprocessing; with fork, logs are open before. threads: eight threads, with children forked in
between. dask-threads, dask-processes: dask arrays. both: h5py and netCDF4 in one process, which forks. rank: this process of an
MPI job reads its share. Each log must have the content of the expected file. Nothing is printed.
"""
import multiprocessing
import os
import sys
import threading

import h5py
import numpy as np


def numbers(file):
    """Paths of the numeric datasets."""
    found = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    return [name for name in found if file[name].dtype.kind in "iuf" and file[name].size]


def contents(file):
    return {name: file[name][()].tobytes() for name in numbers(file)}


def contents_of(path):
    with h5py.File(path) as file:
        return contents(file)


def require(condition, what):
    if not condition:
        raise SystemExit(f"not so: {what}")


# Objects that children inherit by a fork.
held = []


def check_held(expected):
    return all(contents(file) == expected for file in held)


def check_path(job):
    path, expected = job
    return contents_of(path) == expected


def check_both_kinds(job):
    return check_held(job[1]) and check_path(job)


def fork(expected, logs):
    held.extend(h5py.File(log) for log in logs)
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        waiting = pool.map_async(check_both_kinds, [(log, expected) for log in logs * 3])
        while not waiting.ready():
            require(check_held(expected), "the parent reads while its children do")
        require(all(waiting.get()), "children read what the parent had open, and what they open")
    require(check_held(expected), "the parent reads after its children")


def spawn(expected, logs):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        require(all(pool.map(check_path, [(log, expected) for log in logs])), "children read")


def threads(expected, logs):
    wrong, stop = [], threading.Event()

    def read(first):
        while not stop.is_set():
            for log in logs[first:] + logs[:first]:
                if contents_of(log) != expected:
                    wrong.append(log)

    readers = [threading.Thread(target=read, args=(i % len(logs),)) for i in range(8)]
    for reader in readers:
        reader.start()
    for _ in range(10):
        child = os.fork()
        if child == 0:
            os._exit(0 if all(check_path((log, expected)) for log in logs) else 1)
        require(os.waitpid(child, 0)[1] == 0, "a child that was forked between the threads reads")
    stop.set()
    for reader in readers:
        reader.join()
    require(not wrong, f"threads read {wrong}")


def with_dask(expected, logs, scheduler, **settings):
    import dask

    jobs = [dask.delayed(check_path)((log, expected)) for log in logs * 2]
    require(all(dask.compute(*jobs, scheduler=scheduler, **settings)), "dask reads")


def dask_threads(expected, logs):
    with_dask(expected, logs, "threads", num_workers=4)


def dask_processes(expected, logs):
    with_dask(expected, logs, "processes", num_workers=2)


def both(expected, logs):
    """The two wheels have a libhdf5 each."""
    import netCDF4

    def check():
        for file in foreign:
            for name, variable in file.variables.items():
                require(np.asarray(variable[...]).tobytes() == expected[name], f"netCDF4 reads {name}")
        require(check_held(expected), "h5py reads")

    held.extend(h5py.File(log) for log in logs)
    foreign = [netCDF4.Dataset(log) for log in logs]
    for file in foreign:
        file.set_auto_maskandscale(False)
        require(file.variables, "netCDF4 has variables")
    child = os.fork()
    check()
    if child == 0:
        os._exit(0)
    require(os.waitpid(child, 0)[1] == 0, "a child reads with both")


def rank(expected, logs):
    # The names in Open MPI and in MPICH.
    prefix = "OMPI_COMM_WORLD" if "OMPI_COMM_WORLD_RANK" in os.environ else "PMI"
    number, count = (int(os.environ[f"{prefix}_{name}"]) for name in ("RANK", "SIZE"))
    for log in logs:
        with h5py.File(log) as file:
            for name, whole in expected.items():
                dataset = file[name]
                rows = dataset.shape[0] if dataset.shape else 1
                first, after = rows * number // count, rows * (number + 1) // count
                wanted = np.frombuffer(whole, dataset.dtype).reshape(dataset.shape)
                if dataset.shape:
                    require(np.array_equal(dataset[first:after], wanted[first:after], equal_nan=True), f"{name} of {log}")
                else:
                    require(dataset[()].tobytes() == whole, f"{name} of {log}")


WAYS = {
    "fork": fork,
    "spawn": spawn,
    "threads": threads,
    "dask-threads": dask_threads,
    "dask-processes": dask_processes,
    "both": both,
    "rank": rank,
}


def main():
    way, expected, logs = sys.argv[1], contents_of(sys.argv[2]), sys.argv[3:]
    require(expected and logs, "there is something to read")
    WAYS[way](expected, logs)


if __name__ == "__main__":
    main()
