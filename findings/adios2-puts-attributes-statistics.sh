#!/usr/bin/env bash
# ADIOS2 for Python: BP4 and BP5 make different things of the same calls, and both ignore some of them.
#
# Versions: adios2 2.12.1.1001, formats BP4 and BP5, numpy 2.4.6.
#
# * A deferred put of an array whose elements change before the end of the step: BP4 stores the new ones. BP5 stores the old ones
#   of a small array, which it copies at once, and the new ones of a large array (8 MB here).
# * `write_attribute` for a name that the writer has given before does nothing, and there is no error: the first value stays.
# * `minmax()` of an array that was written with StatsLevel=0 gives the greatest and the least number of the type in BP5, INT_MAX
#   and INT_MIN for int32. In BP4 it gives 0 and 0. `available_variables()` says 0 and 0 in both.
# * The parameter AppendAfterSteps=1 lets BP5 drop all steps but the first one before it appends. BP4 ignores it, and keeps all.
#
# Why it matters: who converts a writer from BP4 to BP5 gets other values from the same program; a plot whose range comes from
# minmax() is empty; a job that starts again from a step leaves the steps after it in BP4.
#
# Needs python3 with venv, and PyPI.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: adios2==2.12.1.1001 numpy==2.4.6

cat >tried.py <<'PY'
import adios2
import adios2.bindings as low
import numpy as np

LARGE = 1 << 20


def io_of(engine, **parameters):
    io = adios2.Adios().declare_io("output")
    io.set_engine(engine)
    for name, value in parameters.items():
        io.set_parameter(name, value)
    return io


def puts(engine):
    path = f"puts.{engine}"
    adios = low.ADIOS()
    io = adios.DeclareIO("output")
    io.SetEngine(engine)
    arrays = {"small": np.zeros(2), "large": np.zeros(LARGE)}
    with_places = {name: (values, [values.size], [0], [values.size], True) for name, values in arrays.items()}
    variables = {name: io.DefineVariable(name, *place) for name, place in with_places.items()}
    output = io.Open(path, low.Mode.Write)
    output.BeginStep()
    for name, values in arrays.items():
        output.Put(variables[name], values, low.Mode.Deferred)
        values[:] = 1
    output.EndStep()
    output.Close()
    with adios2.FileReader(path) as file:
        print(engine, "deferred:", {name: int(file.read(name)[-1]) for name in arrays})


def attributes(engine):
    path = f"attributes.{engine}"
    with adios2.Stream(io_of(engine), path, "w") as stream:
        for step in stream.steps(2):
            stream.write("x", 1.0)
            stream.write_attribute("a", stream.current_step())
            stream.write_attribute("a", 10)
    with adios2.FileReader(path) as file:
        print(engine, "attribute:", int(file.read_attribute("a")))


def statistics(engine):
    path = f"statistics.{engine}"
    with adios2.Stream(io_of(engine, StatsLevel="0"), path, "w") as stream:
        for _ in stream.steps(1):
            stream.write("x", np.arange(1, 5, dtype="i4"), [4], [0], [4])
    with adios2.FileReader(path) as file:
        told = file.available_variables()["x"]
        print(engine, "minmax:", [int(value) for value in file.minmax("x")], "told:", told["Min"], told["Max"])


def appends(engine):
    path = f"appends.{engine}"
    for mode, first, parameters in ("w", 0, {}), ("a", 10, {"AppendAfterSteps": "1"}):
        with adios2.Stream(io_of(engine, **parameters), path, mode) as stream:
            for step, _ in enumerate(stream.steps(2)):
                stream.write("x", np.array([first + step]), [1], [0], [1])
    with adios2.FileReader(path) as file:
        print(engine, "appended after 1:", [int(file.read("x", step_selection=[step, 1])[0]) for step in range(file.num_steps())])


for engine in ["BP4", "BP5"]:
    for tried in [puts, attributes, statistics, appends]:
        tried(engine)
PY
venv/bin/python tried.py | tee seen

cat >expected <<'TXT'
BP4 deferred: {'small': 1, 'large': 1}
BP4 attribute: 0
BP4 minmax: [0, 0] told: 0 0
BP4 appended after 1: [0, 1, 10, 11]
BP5 deferred: {'small': 0, 'large': 1}
BP5 attribute: 0
BP5 minmax: [2147483647, -2147483648] told: 0 0
BP5 appended after 1: [0, 10, 11]
TXT
if ! diff expected seen; then
    echo "changed: < was seen before, > is seen now"
    exit 1
fi
echo "as seen"
