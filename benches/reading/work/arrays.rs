//! Arrays of numpy straight from logs, in the jobs of other workloads.

use anyhow::Result;

use super::{climate, filtered, slabs, small};
use crate::bench::Bench;
use crate::report::Outcome;

/// Their logs, with arrays in place of the mount and its like.
const JOBS: [fn(&Bench, &mut Outcome) -> Result<()>; 7] = [
    slabs::whole,
    slabs::hyperslabs,
    slabs::columns,
    filtered::whole_chunks,
    filtered::parts_of_chunks,
    small::ten_floats,
    climate::generated,
];

pub fn all(bench: &Bench, out: &mut Outcome) -> Result<()> {
    if !bench.has_package {
        out.skipped = Some("the interpreter has no package h5logfs: make python".into());
        return Ok(());
    }
    bench.only_arrays.set(true);
    let done = JOBS.iter().try_for_each(|job| job(bench, out));
    bench.only_arrays.set(false);
    done
}
