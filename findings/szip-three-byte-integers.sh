#!/usr/bin/env bash
# HDF5's szip filter loses every fourth byte of integers of three bytes. Neither the write nor the read fails.
#
# Versions: h5py 3.16.0 (its wheel has HDF5 2.0.0, with libaec as szip), numpy 2.4.6.
#
# Szip in HDF5 is for 1 to 24, 32 and 64 bits per pixel, and the filter sets 24 for an integer of three bytes. libaec takes samples
# of 17 to 24 bits from four bytes each, unless it is told that they have three, and its interface for szip does not tell so.
# Thus it takes the elements of a chunk for samples of four bytes, and drops the one above the 24 bits. That byte is not in the
# stored chunk: no reader can restore it. With differences of neighbours (`nn`) other bytes are wrong, too. Integers of 24 bits
# in four bytes are kept.
#
# Why it matters: seismic and audio data have samples of 24 bits, and HDF5 has integers of any size. A reader that finds odd numbers
# there is not at fault. A writer does better to refuse szip for such types.
#
# Needs python3 with venv, and PyPI.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: h5py==3.16.0 numpy==2.4.6

cat >three.py <<'PY'
import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t, h5z

VALUES = np.arange(64, dtype="<u4") * 37 + 0x010203


def stored(size, bits, coding):
    """Writes the values as integers of so many bytes. Returns the bits per pixel of the filter, and what is read back."""
    kind = h5t.STD_U32LE.copy()
    kind.set_precision(bits)
    kind.set_size(size)
    with h5py.File("szip.h5", "w") as file:
        properties = h5p.create(h5p.DATASET_CREATE)
        properties.set_chunk(VALUES.shape)
        properties.set_szip(coding, 8)
        dataset = h5d.create(file.id, b"x", kind, h5s.create_simple(VALUES.shape), properties)
        dataset.write(h5s.ALL, h5s.ALL, VALUES, h5t.NATIVE_UINT32)
    with h5py.File("szip.h5") as file:
        dataset = file["x"].id
        assert dataset.get_chunk_info(0).filter_mask == 0, "stored without szip"
        found = np.empty((len(VALUES), size), "u1")
        dataset.read(h5s.ALL, h5s.ALL, found, dataset.get_type())
        return dataset.get_create_plist().get_filter(0)[2][2], found


for size, coding, name in [
    (3, h5z.SZIP_EC_OPTION_MASK, "ec"),
    (3, h5z.SZIP_NN_OPTION_MASK, "nn"),
    (4, h5z.SZIP_EC_OPTION_MASK, "ec"),
    (4, h5z.SZIP_NN_OPTION_MASK, "nn"),
]:
    pixel, found = stored(size, 24, coding)
    wanted = VALUES.view("u1").reshape(-1, 4)[:, :size]
    elements = int((found != wanted).any(axis=1).sum())
    wrong = np.flatnonzero(found.ravel() != wanted.ravel())
    text = f"24 bits in {size} bytes, {name}, {pixel} bits per pixel: "
    if not elements:
        text += "all elements are right"
    elif name == "nn":
        text += "elements are wrong"
    else:
        text += f"{elements} of 64 elements are wrong; each wrong byte is zero: {not found.ravel()[wrong].any()}"
        text += f", and the last of four: {(wrong % 4 == 3).all()}"
    print(text)
PY
venv/bin/python three.py | tee seen

cat >expected <<'TXT'
24 bits in 3 bytes, ec, 24 bits per pixel: 48 of 64 elements are wrong; each wrong byte is zero: True, and the last of four: True
24 bits in 3 bytes, nn, 24 bits per pixel: elements are wrong
24 bits in 4 bytes, ec, 24 bits per pixel: all elements are right
24 bits in 4 bytes, nn, 24 bits per pixel: all elements are right
TXT
if ! diff expected seen; then
    echo "changed: < was seen before, > is seen now"
    exit 1
fi
echo "as seen"
