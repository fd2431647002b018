//! The HDF5 part of a log file, which libhdf5 writes: stub datasets, `_int_att`, and the log's own datasets
//! without their contents. It uses the calls of the tests' log writer, which panic on errors.

// The tests use all of it.
#[allow(dead_code, unused_imports)]
#[path = "../../../tests/common/encoder/raw.rs"]
mod raw;

use std::path::Path;

use anyhow::{Context, Result};
use hdf5_metno_sys::h5t::{H5T_IEEE_F32LE, H5T_IEEE_F64LE, H5T_STD_B8LE};

use super::values::Element;
use super::{Dataset, LEVEL};
use raw::Id;

/// Encoded and shared selections (section 1.1).
const CONFIG: i32 = 0x002 | 0x008;

/// Identifier, flag "optional", number of values, values.
const SHUFFLE: [u32; 3] = [2, 1, 1];
const DEFLATE: [u32; 4] = [1, 1, 1, LEVEL];

/// Offsets in the file.
pub struct Logs {
    /// Offset of each `_ld_N`.
    pub data: Vec<u64>,
    /// Offset of `_md_0`.
    pub metadata: u64,
}

/// Creates a file with space for flushes of these lengths and for a table of `metadata` bytes.
pub fn make(path: &Path, datasets: &[Dataset], data: &[u64], metadata: u64) -> Result<Logs> {
    let file = raw::create_file(path, 0, true);
    for dataset in datasets {
        stub_dataset(&file, dataset)?;
    }
    let group = raw::create_group(&file, "_LOG");
    let place = |name: &str, len| raw::dataset_offset(&log_dataset(&group, name, len));
    let logs = Logs {
        data: (0..)
            .zip(data)
            .map(|(n, len)| place(&format!("_ld_{n}"), *len))
            .collect(),
        metadata: place("_md_0", metadata),
    };
    let ids = i32::try_from(datasets.len()).context("too many datasets")?;
    let flushes = i32::try_from(data.len()).context("too many flushes")?;
    raw::attribute_i32(&file, "_int_att", &[ids, flushes, 1, CONFIG, 1]);
    Ok(logs)
}

/// Section 2.
fn stub_dataset(file: &Id, dataset: &Dataset) -> Result<()> {
    let datatype = raw::standard(match dataset.element {
        Element::F32 => H5T_IEEE_F32LE,
        Element::F64 => H5T_IEEE_F64LE,
    });
    let creation = raw::dataset_properties();
    let space = raw::null_space();
    let stub_dataset = raw::create_dataset(file, &dataset.name, &datatype, &space, &creation);
    let dims = signed(&dataset.dims)?;
    let mut most = dims.clone();
    if let Some(first) = most.first_mut().filter(|_| dataset.unlimited) {
        *first = -1;
    }
    raw::attribute_i64(&stub_dataset, "_dims", &dims);
    raw::attribute_i64(&stub_dataset, "_mdims", &most);
    raw::attribute_i32(&stub_dataset, "_ID", &[i32::try_from(dataset.id)?]);
    if let Some(chunk) = &dataset.chunk {
        raw::attribute_i64(&stub_dataset, "_h5logfs_chunk", &signed(chunk)?);
    }
    if dataset.filtered {
        let shuffle = SHUFFLE
            .iter()
            .copied()
            .chain([dataset.element.size() as u32]);
        let words: Vec<u32> = shuffle.chain(DEFLATE).collect();
        raw::attribute_u32(&stub_dataset, "_h5logfs_filters", &words);
    }
    Ok(())
}

fn signed(numbers: &[u64]) -> Result<Vec<i64>> {
    let signed = numbers.iter().map(|n| i64::try_from(*n));
    signed.collect::<Result<_, _>>().context("a dimension")
}

/// Section 1.2.
fn log_dataset(group: &Id, name: &str, len: u64) -> Id {
    let creation = raw::dataset_properties();
    raw::allocate_early(&creation);
    let datatype = raw::standard(H5T_STD_B8LE);
    raw::create_dataset(group, name, &datatype, &raw::space(&[len]), &creation)
}
