#!/usr/bin/env bash
# pyfive raises KeyError where a read touches a chunk that was never written; libhdf5 gives the fill value.
#
# Versions: pyfive 1.3.0, h5py 3.16.0 (HDF5 2.0.0), numpy 2.4.6.
#
# HDF5 makes the chunks of a dataset when they are written. The others are not in the index, and their elements are the fill value.
# pyfive takes one that is missing for an error. It reads a dataset without any chunk, and a selection of chunks that are there.
# So whether a dataset can be read depends on which of its elements were written.
#
# Why it matters: sparse output, runs that stopped, and datasets that were extended lack chunks, and pyfive reads HDF5 in object
# stores without libhdf5. A file that is made for it needs each chunk, also those with fill values only. The file here has the
# oldest format of HDF5, which is h5py's default.
#
# Needs python3 (3.10 or later) with venv, and PyPI.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: pyfive==1.3.0 h5py==3.16.0 numpy==2.4.6

cat >missing.py <<'PY'
import h5py
import pyfive

with h5py.File("missing.h5", "w") as file:
    for name, written in [("whole", slice(0, 6)), ("half", slice(0, 3)), ("none", slice(0, 0))]:
        dataset = file.create_dataset(name, (6,), "<i4", chunks=(3,), fillvalue=7)
        if written.stop:
            dataset[written] = 1

with h5py.File("missing.h5") as wanted, pyfive.File("missing.h5") as file:
    for name in wanted:
        for part in [slice(0, 3), slice(0, 6)]:
            try:
                found = file[name][part].tolist()
            except Exception as error:
                found = type(error).__name__
            print(f"{name} written, elements 0 to {part.stop - 1}: h5py {wanted[name][part].tolist()}, pyfive {found}")
PY
venv/bin/python missing.py | tee seen

cat >expected <<'TXT'
half written, elements 0 to 2: h5py [1, 1, 1], pyfive [1, 1, 1]
half written, elements 0 to 5: h5py [1, 1, 1, 7, 7, 7], pyfive KeyError
none written, elements 0 to 2: h5py [7, 7, 7], pyfive [7, 7, 7]
none written, elements 0 to 5: h5py [7, 7, 7, 7, 7, 7], pyfive [7, 7, 7, 7, 7, 7]
whole written, elements 0 to 2: h5py [1, 1, 1], pyfive [1, 1, 1]
whole written, elements 0 to 5: h5py [1, 1, 1, 1, 1, 1], pyfive [1, 1, 1, 1, 1, 1]
TXT
if ! diff expected seen; then
    echo "changed: < was seen before, > is seen now"
    exit 1
fi
echo "as seen"
