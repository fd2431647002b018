#!/usr/bin/env python3
"""openpmdtrees make DIR: openpmd-api, of any release from 0.15.2 on, writes each series twice: DIR/NAME.h5 with its HDF5
backend, DIR/NAME.ENCODING.ENGINE with its ADIOS2 backend.
openpmdtrees same DIR SHOWN: is the tree of SHOWN/NAME.ENCODING.ENGINE.h5 that of DIR/NAME.h5? The rules are those of adiossame.py.

Prints a line for each difference, and how much was compared; exit status 1 where something differs, or nothing was compared.
"""
import os
import sys

import numpy as np

STEPS = [10, 250]
#: Iterations, by the name of the series. A job that only sets up writes none.
SERIES = {"series": STEPS, "none": []}
ENGINES = ["bp4", "bp5"]
NUMBERS = "i2 i4 i8 u2 u4 u8 f4 f8 c8 c16".split()


def encodings(io):
    return {"group": io.Iteration_Encoding.group_based, "variable": io.Iteration_Encoding.variable_based}


# --- writing --------------------------------------------------------------------------------------

def put(component, values):
    import openpmd_api as io

    component.reset_dataset(io.Dataset(values.dtype, values.shape))
    component.store_chunk(values, [0] * values.ndim, values.shape)


def constant(component, shape, value):
    import openpmd_api as io

    component.reset_dataset(io.Dataset(np.dtype("f8"), shape))
    component.make_constant(value)


def write(path, encoding, steps):
    import openpmd_api as io

    # Releases before 0.17 write with `create` what is called linear since.
    series = io.Series(path, getattr(io.Access, "create_linear", io.Access.create))
    series.iteration_encoding = encoding
    series.author = "Größe & co"
    series.set_date("2026-01-01 00:00:00 +0000")
    series.set_attribute("on", True)
    series.set_attribute("off", False)
    for number in NUMBERS:
        series.set_attribute(f"one_{number}", np.dtype(number).type(3))
    for number in ["i1", "u1", *NUMBERS]:
        series.set_attribute(f"many_{number}", np.array([1, 2, 3], number))
        series.set_attribute(f"array_of_one_{number}", np.array([7], number))
    series.set_attribute("texts", ["a", "bcd", ""])
    series.set_attribute("text", ["alone"])
    series.set_attribute("nothing", "")
    iterations = series.write_iterations() if steps else {}
    for step in steps:
        iteration = iterations[step]
        iteration.set_time(0.5 * step).set_dt(0.5).set_time_unit_SI(1e-15)
        iteration.set_attribute("last", step == STEPS[-1])
        fields(iteration, step)
        particles(iteration, step)
        iteration.close()
    series.close()


def fields(iteration, step):
    import openpmd_api as io

    field = iteration.meshes["E"]
    field.set_attribute("periodic", True)
    field.axis_labels = ["y", "x"]
    field.grid_spacing = [0.5, 0.25]
    field.unit_dimension = {io.Unit_Dimension.M: 1}
    for axis in "xy":
        field[axis].set_attribute("ghosts", axis == "x")
        field[axis].position = [0.5, 0.0]
        put(field[axis], np.arange(12.0).reshape(3, 4) + step)
    scalar = iteration.meshes["rho"]
    scalar.set_attribute("smooth", False)
    put(scalar[io.Mesh_Record_Component.SCALAR], np.arange(5, dtype="f4"))
    constant(iteration.meshes["B"]["z"], [3, 4], 0.25)
    iteration.meshes["B"]["z"].set_attribute("external", True)
    if step == STEPS[0]:
        put(iteration.meshes["rare"]["x"], np.zeros(2))


def particles(iteration, step):
    import openpmd_api as io

    # Their number changes.
    count = 4 + step // 10
    electrons = iteration.particles["e"]
    electrons.set_attribute("tracked", True)
    put(electrons["position"]["x"], np.arange(float(count)))
    constant(electrons["positionOffset"]["x"], [count], 0.0)
    put(electrons["id"][io.Record_Component.SCALAR], np.arange(count, dtype="u8"))
    constant(electrons["mass"][io.Record_Component.SCALAR], [count], 9.1e-31)


def make(directory):
    import openpmd_api as io

    for name, steps in SERIES.items():
        write(os.path.join(directory, f"{name}.h5"), io.Iteration_Encoding.group_based, steps)
        for encoding, value in encodings(io).items():
            for engine in ENGINES:
                write(os.path.join(directory, f"{name}.{encoding}.{engine}"), value, steps)


# --- comparing ------------------------------------------------------------------------------------

def apart(directory, shown):
    """Number of compared items, and of differences."""
    import adiossame

    items, different = 0, 0
    for name in SERIES:
        expected = adiossame.load(os.path.join(directory, f"{name}.h5"))
        for encoding in ["group", "variable"]:
            for engine in ENGINES:
                got = adiossame.load(os.path.join(shown, f"{name}.{encoding}.{engine}.h5"))
                items += len(expected)
                for difference in adiossame.differences(got, expected, scalars=engine == "bp4"):
                    print(f"{name}.{encoding}.{engine}: {difference}")
                    different += 1
    return items, different


def main():
    command, directory, *shown = sys.argv[1:]
    if command == "make":
        return make(directory)
    items, different = apart(directory, *shown)
    print(f"{items} items, {different} differ")
    return different > 0 or items == 0


if __name__ == "__main__":
    sys.exit(main())
