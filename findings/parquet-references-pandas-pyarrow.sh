#!/usr/bin/env bash
# With pandas 3 and pyarrow together, Parquet references to a dataset that lacks a chunk cannot be read.
#
# Versions: fsspec 2026.9.0 with fastparquet 2026.9.0, pandas 3.1.1 and pyarrow 26.0.1; kerchunk 0.2.10 and virtualizarr 2.5.1 write
# the references, xarray 2026.9.0 and zarr 3.1.6 read them. With pandas 2.3.3, or without pyarrow, they are read.
#
# A row of these files has the URL of a chunk, or null where there is none. fsspec tells a missing chunk by None. Where pyarrow is
# installed, pandas 3 reads the column as `str`, in which null is NaN. fsspec takes NaN for a URL: TypeError. pyarrow is not what
# reads the file here, fastparquet does. The same references as JSON are read, with the fill value.
#
# Why it matters: references to HDF5 files stop being read when a package is added or updated that the error does not name. What
# writes them can give the column a type that pandas leaves alone.
#
# Needs python3 (3.11) with venv, and PyPI.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
install() {
    venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: fsspec==2026.9.0 fastparquet==2026.9.0 \
        kerchunk==0.2.10 virtualizarr==2.5.1 xarray==2026.9.0 zarr==3.1.6 h5py==3.16.0 numpy==2.4.6 numcodecs==0.16.6 \
        obstore==0.12.1 obspec-utils==0.9.0 cramjam==2.14.0 "$@"
}

cat >references.py <<'PY'
import pathlib
import sys
import warnings

import h5py
import kerchunk.df
import kerchunk.hdf
import pandas
import virtualizarr
import xarray
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr.parsers import HDFParser

warnings.simplefilter("ignore")
packages = f"pandas {pandas.__version__} {sys.argv[1]}"
here = pathlib.Path(packages.replace(" ", "-")).resolve()
here.mkdir()
path = here / "half.h5"
with h5py.File(path, "w") as file:
    file.create_dataset("values", (4,), "<i4", chunks=(2,), fillvalue=7)[:2] = 1

references = kerchunk.hdf.SingleHdf5ToZarr(str(path), inline_threshold=0).translate()
kerchunk.df.refs_to_dataframe(references, str(here / "kerchunk.parquet"))
registry = ObjectStoreRegistry({"file://": LocalStore()})
with virtualizarr.open_virtual_dataset(path.as_uri(), registry, parser=HDFParser()) as virtual:
    virtual.vz.to_kerchunk(str(here / "virtualizarr.json"), format="json")
    virtual.vz.to_kerchunk(str(here / "virtualizarr.parquet"), format="parquet")

for name in ["kerchunk.parquet", "virtualizarr.parquet", "virtualizarr.json"]:
    try:
        with xarray.open_dataset(str(here / name), engine="kerchunk", mask_and_scale=False) as dataset:
            found = dataset["values"].values.tolist()
    except Exception as error:
        found = type(error).__name__
    print(f"{packages}, {name}: {found}")
PY
{
    install pandas==3.1.1
    venv/bin/python references.py without-pyarrow
    install pandas==2.3.3 pyarrow==26.0.1
    venv/bin/python references.py with-pyarrow
    install pandas==3.1.1 pyarrow==26.0.1
    venv/bin/python references.py with-pyarrow
} | tee seen

cat >expected <<'TXT'
pandas 3.1.1 without-pyarrow, kerchunk.parquet: [1, 1, 7, 7]
pandas 3.1.1 without-pyarrow, virtualizarr.parquet: [1, 1, 7, 7]
pandas 3.1.1 without-pyarrow, virtualizarr.json: [1, 1, 7, 7]
pandas 2.3.3 with-pyarrow, kerchunk.parquet: [1, 1, 7, 7]
pandas 2.3.3 with-pyarrow, virtualizarr.parquet: [1, 1, 7, 7]
pandas 2.3.3 with-pyarrow, virtualizarr.json: [1, 1, 7, 7]
pandas 3.1.1 with-pyarrow, kerchunk.parquet: TypeError
pandas 3.1.1 with-pyarrow, virtualizarr.parquet: TypeError
pandas 3.1.1 with-pyarrow, virtualizarr.json: [1, 1, 7, 7]
TXT
if ! diff expected seen; then
    echo "changed: < was seen before, > is seen now"
    exit 1
fi
echo "as seen"
