#!/usr/bin/env bash
# ADIOS2 for Python reads too few elements of a variable that grows, and its steps are those that have the variable.
#
# Versions: adios2 2.12.1.1001, formats BP4 and BP5, numpy 2.4.6.
#
# A global array may have another shape in each step. A read without start and count keeps the selection that the variable has, the
# shape in its first step. So `FileReader.read(name, step_selection=[k, 1])` gives as many elements of step k as the first step
# has, without an error. So does `Stream.read(name)` in BP4, but not in BP5. With start and count all elements come.
# And k counts the steps that have the variable, not those of the file: where step 1 lacks it, `[1, 1]` is step 2.
#
# Why it matters: particles and adaptive meshes are such variables. What shows steps as a dimension cannot be checked against these
# calls as they are, and who joins two variables by k joins values of different steps.
#
# Needs python3 with venv, and PyPI.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: adios2==2.12.1.1001 numpy==2.4.6

cat >steps.py <<'PY'
import adios2
import numpy as np

SIZES = [2, 3, 4]


def whole(values):
    return [int(value) for value in values]


for engine in ["BP4", "BP5"]:
    path = f"{engine}.bp"
    io = adios2.Adios().declare_io("output")
    io.set_engine(engine)
    with adios2.Stream(io, path, "w") as stream:
        for step, _ in enumerate(stream.steps(len(SIZES))):
            size = SIZES[step]
            stream.write("grows", np.arange(size) + 10 * step, [size], [0], [size])
            if step != 1:
                stream.write("pauses", np.full(2, 10 * step), [2], [0], [2])

    with adios2.Stream(path, "r") as stream:
        print(engine, "stream:", [whole(stream.read("grows")) for _ in stream.steps()])
    with adios2.FileReader(path) as file:
        print(engine, "file:", [whole(file.read("grows", step_selection=[step, 1])) for step in range(3)])
    with adios2.FileReader(path) as file:
        parts = [whole(file.read("grows", [0], [size], step_selection=[step, 1])) for step, size in enumerate(SIZES)]
        print(engine, "file, with start and count:", parts)
        print(engine, "file, at 1 of the variable that step 1 lacks:", whole(file.read("pauses", step_selection=[1, 1])))
PY
venv/bin/python steps.py | tee seen

cat >expected <<'TXT'
BP4 stream: [[0, 1], [10, 11], [20, 21]]
BP4 file: [[0, 1], [10, 11], [20, 21]]
BP4 file, with start and count: [[0, 1], [10, 11, 12], [20, 21, 22, 23]]
BP4 file, at 1 of the variable that step 1 lacks: [20, 20]
BP5 stream: [[0, 1], [10, 11, 12], [20, 21, 22, 23]]
BP5 file: [[0, 1], [10, 11], [20, 21]]
BP5 file, with start and count: [[0, 1], [10, 11, 12], [20, 21, 22, 23]]
BP5 file, at 1 of the variable that step 1 lacks: [20, 20]
TXT
if ! diff expected seen; then
    echo "changed: < was seen before, > is seen now"
    exit 1
fi
echo "as seen"
