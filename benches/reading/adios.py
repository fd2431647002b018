"""Writes ADIOS2 directories for the benchmark, and copies them as a program without h5logfs would.

adios.py steps STEPS ROWS COLUMNS PATH: one variable of doubles in many steps.
adios.py variables NUMBER PATH: one step of many small variables, in 100 groups.
adios.py blocks STEPS BLOCKS PATH: one variable of many blocks of ten floats in each step.
adios.py zfp BLOCKS ROWS COLUMNS KEY VALUE PATH: one field of doubles in blocks of zfp, written by openPMD-api.
adios.py copy PATH FILE: to an HDF5 file, step by step; prints how many seconds that took.
"""

import json
import sys
import time

import adios2
import adios2.bindings
import numpy


ADIOS = adios2.Adios()


def bp5():
    io = ADIOS.declare_io("out")
    io.set_engine("BP5")
    return io


def steps(steps, rows, columns, path):
    shape = [int(rows), int(columns)]
    values = numpy.arange(shape[0] * shape[1], dtype=numpy.float64).reshape(shape)
    with adios2.Stream(bp5(), path, "w") as out:
        for step in out.steps(int(steps)):
            out.write("T", values + step.current_step(), shape, [0, 0], shape)


def variables(number, path):
    with adios2.Stream(bp5(), path, "w") as out:
        out.begin_step()
        for variable in range(int(number)):
            values = numpy.full(100, variable, numpy.float64)
            out.write(f"group{variable % 100}/v{variable}", values, [100], [0], [100])
        out.end_step()


def blocks(steps, blocks, path):
    # The lower interface: the other one defines the variable once more for each block.
    modes = adios2.bindings.Mode
    adios = adios2.bindings.ADIOS()
    io = adios.DeclareIO("out")
    io.SetEngine("BP5")
    values = numpy.arange(int(blocks) * 10, dtype=numpy.float32)
    variable = io.DefineVariable("T", values, [values.size], [0], [10], False)
    engine = io.Open(path, modes.Write)
    for _ in range(int(steps)):
        engine.BeginStep()
        for first in range(0, values.size, 10):
            variable.SetSelection([[first], [10]])
            engine.Put(variable, values[first : first + 10], modes.Sync)
        engine.EndStep()
    engine.Close()


def zfp(blocks, rows, columns, key, value, path):
    import openpmd_api

    blocks, rows, columns = int(blocks), int(rows), int(columns)
    dataset = {"operators": [{"type": "zfp", "parameters": {key: value}}]}
    config = {"adios2": {"engine": {"type": "bp5"}, "dataset": dataset}}
    series = openpmd_api.Series(path, openpmd_api.Access.create, json.dumps(config))
    field = series.iterations[0].meshes["v"]["x"]
    field.reset_dataset(openpmd_api.Dataset(numpy.dtype("f8"), [blocks * rows, columns]))
    across = numpy.sin(numpy.arange(columns) * 0.01) * 100
    for block in range(blocks):
        down = numpy.cos(numpy.arange(block * rows, (block + 1) * rows) * 0.003) * 50
        values = numpy.add.outer(down, across) + numpy.outer(down, across) * 0.01
        field.store_chunk(values, [block * rows, 0], [rows, columns])
        series.flush()
    series.close()


def copy(path, target):
    import h5py

    begun = time.perf_counter()
    with adios2.Stream(path, "r") as source, h5py.File(target, "w") as file:
        for step in source.steps():
            for name in step.available_variables():
                values = step.read(name)
                dataset = file.get(name)
                if dataset is None:
                    limits = (None, *values.shape)
                    dataset = file.create_dataset(
                        name, (0, *values.shape), values.dtype, maxshape=limits, chunks=(1, *values.shape)
                    )
                dataset.resize(dataset.shape[0] + 1, axis=0)
                dataset[-1] = values
    print(time.perf_counter() - begun)


if __name__ == "__main__":
    {"steps": steps, "variables": variables, "blocks": blocks, "zfp": zfp, "copy": copy}[sys.argv[1]](*sys.argv[2:])
