#!/usr/bin/env bash
# The wheel of netCDF4 loses its own filters (zstd, bzip2, Blosc) where HDF5_PLUGIN_PATH is set.
#
# Versions: netCDF4 1.7.5.1.post1, numpy 2.4.6.
#
# The wheel brings plug-ins for compression in a directory of its own, netCDF4/plugins. When it is imported, it sets
# HDF5_PLUGIN_PATH to that directory, but only if the variable is not set. If it is, reads of such variables fail with "undefined
# filter". With the directory of the wheel added to the variable they work.
#
# Why it matters: on clusters a module sets HDF5_PLUGIN_PATH for everybody, for a plug-in that has nothing to do with netCDF4.
# Files that users could read before then cannot be read, with a message that names neither the variable nor the plug-in.
#
# Needs python3 (3.10 or later) with venv, and PyPI.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: netCDF4==1.7.5.1.post1 numpy==2.4.6

cat >filters.py <<'PY'
import os
import sys

import netCDF4

for name in ["zlib", "zstd", "bzip2", "blosc_lz4"]:
    if "write" in sys.argv:
        with netCDF4.Dataset(f"{name}.nc", "w") as file:
            file.createDimension("x", 1000)
            file.createVariable("v", "i4", ("x",), compression=name)[:] = range(1000)
    try:
        with netCDF4.Dataset(f"{name}.nc") as file:
            found = f"sum {file['v'][:].sum()}"
    except Exception as error:
        found = f"{type(error).__name__}"
        found += ": undefined filter" if "filter" in str(error).lower() else f": {error}"
    print(f"{sys.argv[1]}: {name}: {found}")
PY
mkdir site
plugins=$(echo "$folder"/venv/lib/python3*/site-packages/netCDF4/plugins)
{
    env -u HDF5_PLUGIN_PATH venv/bin/python filters.py "variable not set" write
    HDF5_PLUGIN_PATH=$folder/site venv/bin/python filters.py "variable names an empty directory"
    HDF5_PLUGIN_PATH=$folder/site:$plugins venv/bin/python filters.py "variable names the wheel's directory, too"
} | tee seen

cat >expected <<'TXT'
variable not set: zlib: sum 499500
variable not set: zstd: sum 499500
variable not set: bzip2: sum 499500
variable not set: blosc_lz4: sum 499500
variable names an empty directory: zlib: sum 499500
variable names an empty directory: zstd: RuntimeError: undefined filter
variable names an empty directory: bzip2: RuntimeError: undefined filter
variable names an empty directory: blosc_lz4: RuntimeError: undefined filter
variable names the wheel's directory, too: zlib: sum 499500
variable names the wheel's directory, too: zstd: sum 499500
variable names the wheel's directory, too: bzip2: sum 499500
variable names the wheel's directory, too: blosc_lz4: sum 499500
TXT
if ! diff expected seen; then
    echo "changed: < was seen before, > is seen now"
    exit 1
fi
echo "as seen"
