#!/usr/bin/env bash
# openPMD-api: what its backends write and read of the same series is not what one would guess.
#
# Versions: openpmd-api 0.17.1.post4, h5py 3.16.0, adios2 2.12.1.1001, numpy 2.4.6.
#
# * Its HDF5 backend chunks a dataset of 1000 × 1000 floats as (512, 256), of double as well, without being asked.
# * Its ADIOS2 backend writes a table of groups, attributes below `__openPMD_groups`, for series of all encodings, not only where
#   iterations are variable-based.
# * A boolean is an enumeration in HDF5, for h5py and openPMD-api. h5py names FALSE first. openPMD-api takes it only with TRUE
#   first: the other is an error, "Unsupported attribute enumeration".
# * With variable-based iterations in ADIOS2, an attribute that one iteration alone has is there in all later ones, too. In HDF5
#   it is not.
# * Two sessions write the same iteration, group-based. Its HDF5 backend shows what the last one wrote. In ADIOS2, random access
#   shows the arrays of the first session with the attributes of the last, and linear access all of the first.
#
# Why it matters: files that were converted between the two formats, or made with h5py, differ where programs compare them; a
# restart that writes its first iteration again is read in two ways.
#
# Needs python3 with venv, and PyPI.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
    openpmd-api==0.17.1.post4 h5py==3.16.0 adios2==2.12.1.1001 numpy==2.4.6

cat >tried.py <<'PY'
import adios2
import h5py
import numpy as np
import openpmd_api as io

GROUP, VARIABLE = io.Iteration_Encoding.group_based, io.Iteration_Encoding.variable_based


def opened(path, access=io.Access.create_linear, encoding=GROUP):
    series = io.Series(path, access)
    series.iteration_encoding = encoding
    return series


def put(iteration, values):
    component = iteration.meshes["E"]["x"]
    component.reset_dataset(io.Dataset(values.dtype, values.shape))
    component.store_chunk(values)
    iteration.close()


def chunks():
    for kind in ["f4", "f8"]:
        series = opened(f"{kind}.h5")
        put(series.write_iterations()[0], np.zeros((1000, 1000), kind))
        series.close()
        with h5py.File(f"{kind}.h5") as file:
            print("chunks", kind, file["data/0/meshes/E/x"].chunks)


def groups():
    for engine in ["bp4", "bp5"]:
        series = opened(f"groups.{engine}")
        put(series.write_iterations()[0], np.zeros(2))
        series.close()
        with adios2.FileReader(f"groups.{engine}") as file:
            print("groups", engine, [name for name in file.available_attributes() if name.startswith("__openPMD_groups/d")])


def booleans():
    opened("plain.h5").close()
    for by, path in ("openPMD-api", "own.h5"), ("h5py", "plain.h5"):
        if by == "h5py":
            with h5py.File(path, "r+") as file:
                file.attrs["flag"] = True
        else:
            series = opened(path)
            series.set_attribute("flag", True)
            series.close()
        with h5py.File(path) as file:
            datatype = file.attrs.get_id("flag").get_type()
            names = [datatype.get_member_name(number).decode() for number in range(2)]
        try:
            series = io.Series(path, io.Access.read_only)
            read = series.get_attribute("flag")
            series.close()
        except Exception as error:
            read = "Unsupported attribute enumeration" if "Unsupported attribute enumeration" in str(error) else error
        print("boolean of", by, names, read)


def rare():
    for path, encoding in ("rare.h5", GROUP), ("rare.bp5", VARIABLE):
        series = opened(path, encoding=encoding)
        for step in range(3):
            iteration = series.write_iterations()[step]
            if step == 1:
                iteration.set_attribute("rare", 1)
            put(iteration, np.zeros(2))
        series.close()
        series = io.Series(path, io.Access.read_linear)
        steps = [step.iteration_index for step in series.read_iterations() if "rare" in step.attributes]
        print("iterations with it", path, steps)
        series.close()


def twice():
    for path in ["twice.h5", "twice.bp4", "twice.bp5"]:
        for session, access in (1, io.Access.create_linear), (2, io.Access.append):
            series = opened(path, access)
            iteration = series.write_iterations()[0]
            iteration.time = float(session)
            put(iteration, np.full(2, float(session)))
            series.close()
        for access in io.Access.read_only, io.Access.read_linear:
            series = io.Series(path, access)
            for iteration in series.read_iterations():
                values = iteration.meshes["E"]["x"].load_chunk()
                time = iteration.time
                iteration.close()
                told = f"session of the array: {int(values[0])} of the attribute: {int(time)}"
                print("twice", path, access.name, told)
            series.close()


for tried in [chunks, groups, booleans, rare, twice]:
    tried()
PY
# The backend warns about group-based series.
venv/bin/python tried.py 2>warned >seen || { cat warned; exit 1; }
cat seen

cat >expected <<'TXT'
chunks f4 (512, 256)
chunks f8 (512, 256)
groups bp4 ['__openPMD_groups/data', '__openPMD_groups/data/0', '__openPMD_groups/data/0/meshes', '__openPMD_groups/data/0/meshes/E']
groups bp5 ['__openPMD_groups/data', '__openPMD_groups/data/0', '__openPMD_groups/data/0/meshes', '__openPMD_groups/data/0/meshes/E']
boolean of openPMD-api ['TRUE', 'FALSE'] True
boolean of h5py ['FALSE', 'TRUE'] Unsupported attribute enumeration
iterations with it rare.h5 [1]
iterations with it rare.bp5 [1, 2]
twice twice.h5 read_only session of the array: 2 of the attribute: 2
twice twice.h5 read_linear session of the array: 2 of the attribute: 2
twice twice.bp4 read_only session of the array: 1 of the attribute: 2
twice twice.bp4 read_linear session of the array: 1 of the attribute: 1
twice twice.bp5 read_only session of the array: 1 of the attribute: 2
twice twice.bp5 read_linear session of the array: 1 of the attribute: 1
TXT
if ! diff expected seen; then
    echo "changed: < was seen before, > is seen now"
    exit 1
fi
echo "as seen"
