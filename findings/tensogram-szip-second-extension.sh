#!/usr/bin/env bash
# The crate tensogram-szip decodes valid szip chunks to other numbers than libaec does, without an error.
#
# Versions: tensogram-szip 0.24.0. The chunks come from h5py 3.16.0 (HDF5 2.0.0 with libaec); rust-aec 0.1.1 decodes all of them.
#
# AEC codes each block of samples by one of several options. The second-extension option codes pairs of samples. In the first block
# of a reference interval, the reference stands for the first sample of the first pair. tensogram-szip begins the pairs behind
# the reference, so each interval whose first block has this option gets other numbers. All other intervals are right, also
# those with pairs in later blocks.
#
# Why it matters: szip of HDF5 and packing 5.42 of GRIB2 store this code, and data that change slowly begin with such blocks. The
# crate stands in for libaec. Its own encoder never uses the option there, so a test that packs and unpacks with it finds nothing.
#
# Needs cargo, python3 with venv, crates.io and PyPI.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: h5py==3.16.0 numpy==2.4.6

# Chunks of 64 bytes, each of one interval. Every second one begins with steps of any size. A file has elements, then stream.
cat >chunks.py <<'PY'
import pathlib

import h5py
import numpy as np

random = np.random.default_rng(1)
folder = pathlib.Path("chunks")
folder.mkdir()
with h5py.File("szip.h5", "w") as file:
    for number in range(200):
        steps = random.integers(-1, 2, 64) * (random.random(64) < 0.45)
        values = (60 + np.cumsum(steps)).astype("u1")
        if number % 2:
            values[:8] = random.integers(0, 256, 8)
        dataset = file.create_dataset(str(number), data=values, chunks=(64,), compression="szip", compression_opts=("nn", 8))
        file.flush()
        assert (dataset[:] == values).all()
        mask, chunk = dataset.id.read_direct_chunk((0,))
        assert mask == 0
        # HDF5 puts the number of bytes in front. Of samples with 8 bits, 0001 says "second extension".
        stream = chunk[4:]
        option = "second-extension" if stream[0] >> 4 == 1 else "other-option"
        (folder / f"{number}.{option}").write_bytes(values.tobytes() + stream)
PY
venv/bin/python chunks.py

mkdir -p decode/src
cat >decode/Cargo.toml <<'TOML'
[package]
name = "decode"
version = "0.0.0"
edition = "2021"

[dependencies]
rust-aec = "=0.1.1"
tensogram-szip = "=0.24.0"

[workspace]
TOML
cat >decode/src/main.rs <<'RS'
use std::collections::BTreeMap;
use std::fs;

use rust_aec::{AecFlags, AecParams};

const SAMPLES: usize = 64;

fn main() {
    let params = tensogram_szip::AecParams {
        bits_per_sample: 8,
        block_size: 8,
        rsi: 8,
        flags: tensogram_szip::AEC_DATA_PREPROCESS,
    };
    let mut counts = BTreeMap::new();
    for file in fs::read_dir("../chunks").unwrap() {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let (wanted, stream) = bytes.split_at(SAMPLES);
        let other = rust_aec::decode(stream, AecParams::new(8, 8, 8, AecFlags::DATA_PREPROCESS), SAMPLES).ok();
        let found = tensogram_szip::aec_decompress(stream, SAMPLES, &params).ok();
        let own = tensogram_szip::aec_compress_no_offsets(wanted, &params).unwrap();
        let own_again = tensogram_szip::aec_decompress(&own, SAMPLES, &params).ok();
        let own_other = rust_aec::decode(&own, AecParams::new(8, 8, 8, AecFlags::DATA_PREPROCESS), SAMPLES).ok();
        let begins = path.extension().unwrap().to_str().unwrap().to_owned();
        let decoded = [
            ("libaec encodes, rust-aec decodes", other),
            ("libaec encodes, tensogram-szip decodes", found),
            ("tensogram-szip encodes, rust-aec decodes", own_other),
            ("tensogram-szip encodes and decodes", own_again),
        ];
        for (name, found) in decoded {
            let result = match found {
                Some(found) if found == wanted => "same numbers",
                Some(_) => "other numbers",
                None => "error",
            };
            *counts.entry((begins.clone(), name, result)).or_insert(0) += 1;
        }
    }
    for ((begins, name, result), count) in counts {
        println!("{begins} first, {name}: {result} in {count}");
    }
}
RS
(cd decode && CARGO_TARGET_DIR="$folder/target" cargo run --quiet) | tee seen

cat >expected <<'TXT'
other-option first, libaec encodes, rust-aec decodes: same numbers in 162
other-option first, libaec encodes, tensogram-szip decodes: same numbers in 162
other-option first, tensogram-szip encodes and decodes: same numbers in 162
other-option first, tensogram-szip encodes, rust-aec decodes: same numbers in 162
second-extension first, libaec encodes, rust-aec decodes: same numbers in 38
second-extension first, libaec encodes, tensogram-szip decodes: other numbers in 38
second-extension first, tensogram-szip encodes and decodes: same numbers in 38
second-extension first, tensogram-szip encodes, rust-aec decodes: same numbers in 38
TXT
if ! diff expected seen; then
    echo "changed: < was seen before, > is seen now"
    exit 1
fi
echo "as seen"
