#!/usr/bin/env bash
# VirtualiZarr's parser for HDF5 takes no notice of the filter masks of chunks: it shows wrong numbers, or none.
#
# Versions: virtualizarr 2.5.1, zarr 3.1.6, h5py 3.16.0 (HDF5 2.0.0).
#
# Each chunk of an HDF5 file has a mask of those filters of its dataset that it did not go through. HDF5 sets it by itself where an
# optional filter did not make a chunk smaller (szip, LZF), and programs set it when they write stored chunks. The parser gives
# all chunks of an array the codecs of the dataset. Where shuffle was left out, the numbers are other ones, and nothing says so;
# where deflate was left out, the read raises an error. h5py reads all of them.
#
# Why it matters: a file for such readers cannot leave filters out by its masks, although that is valid HDF5.
#
# Needs python3 (3.11 or later) with venv, and PyPI.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: virtualizarr==2.5.1 \
    zarr==3.1.6 h5py==3.16.0 numpy==2.4.6 numcodecs==0.16.6 xarray==2026.9.0 obstore==0.12.1 obspec-utils==0.9.0

cat >masks.py <<'PY'
import pathlib
import warnings

import h5py
import numpy as np
import zarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr.parsers import HDFParser

warnings.simplefilter("ignore")
VALUES = np.arange(8, dtype="<i4")

# The first chunk goes through the filters, the second one does not.
path = pathlib.Path("masks.h5").resolve()
with h5py.File(path, "w") as file:
    for name, options, mask in [("shuffle", {}, 1), ("shuffle and gzip", {"compression": "gzip"}, 3)]:
        dataset = file.create_dataset(name, (8,), "<i4", chunks=(4,), shuffle=True, **options)
        dataset[:4] = VALUES[:4]
        dataset.id.write_direct_chunk((4,), VALUES[4:].tobytes(), filter_mask=mask)

registry = ObjectStoreRegistry({"file://": LocalStore()})
group = zarr.open_group(HDFParser()(url=path.as_uri(), registry=registry), mode="r", zarr_format=3)
with h5py.File(path) as file:
    for name, dataset in file.items():
        print(f"{name}, h5py:", dataset[:].tolist())
        for part in [slice(0, 4), slice(4, 8)]:
            try:
                found = group[name][part].tolist()
            except Exception as error:
                found = f"error of {type(error).__module__}"
            print(f"{name}, VirtualiZarr, elements {part.start} to {part.stop - 1}:", found)
PY
venv/bin/python masks.py | tee seen

cat >expected <<'TXT'
shuffle, h5py: [0, 1, 2, 3, 4, 5, 6, 7]
shuffle, VirtualiZarr, elements 0 to 3: [0, 1, 2, 3]
shuffle, VirtualiZarr, elements 4 to 7: [117835012, 0, 0, 0]
shuffle and gzip, h5py: [0, 1, 2, 3, 4, 5, 6, 7]
shuffle and gzip, VirtualiZarr, elements 0 to 3: [0, 1, 2, 3]
shuffle and gzip, VirtualiZarr, elements 4 to 7: error of zlib
TXT
if ! diff expected seen; then
    echo "changed: < was seen before, > is seen now"
    exit 1
fi
echo "as seen"
