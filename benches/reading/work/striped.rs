//! One large dataset in a file that is striped over subfiles.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use anyhow::Result;

use super::slabs;
use crate::bench::{Bench, Job, Per, Prepared, Wanted};
use crate::client::Read;
use crate::report::{Goal, Outcome};

const SUBFILES: usize = 8;
/// Bytes of a superblock of version 0.
const SUPERBLOCK: usize = 96;
/// Offset of the end-of-file address in the superblock. The address of the driver information follows it.
const END: u64 = 40;

pub fn whole(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let stripe = bench.size.pick(64 << 10, 32 << 20);
    let plan = slabs::once(bench.size);
    let prepared = bench.prepare_as("striped", &plan, out, |prepared, _| put(prepared, stripe))?;
    let dataset = slabs::dataset(&prepared)?;
    let whole = Job {
        what: "whole dataset",
        reads: vec![Read::whole(dataset)?],
        per: Per::Job,
        goals: [bench.goal(Goal::Ratio(0.8)), bench.goal(Goal::Ratio(0.95))],
        driver: Wanted::Ratio(0.95),
    };
    bench.compare(&prepared, &whole, true, out)?;
    let first = Job {
        what: "open, and one element",
        reads: vec![Read::block(dataset, &[0, 0], &[1, 1])?],
        per: Per::Job,
        goals: [None, None],
        driver: Wanted::Nothing,
    };
    bench.compare(&prepared, &first, false, out)
}

/// Replaces the log by the native file in stripes.
fn put(prepared: &Prepared, stripe: usize) -> Result<()> {
    add_driver_information(prepared, stripe)?;
    let contents = fs::read(prepared.native())?;
    let stub = prepared.log();
    fs::write(&stub, &contents[..SUPERBLOCK])?;
    let name = format!("{}.subfile_{}", prepared.name(), fs::metadata(&stub)?.ino());
    for number in 0..SUBFILES {
        let subfile = format!("{name}_{}_of_{SUBFILES}", number + 1);
        let mut out = BufWriter::new(File::create(stub.with_file_name(subfile))?);
        for stripe in contents.chunks(stripe).skip(number).step_by(SUBFILES) {
            out.write_all(stripe)?;
        }
        out.flush()?;
    }
    let config = format!("stripe_size={stripe}\naggregator_count=1\nsubfile_count={SUBFILES}\n");
    fs::write(stub.with_file_name(format!("{name}.config")), config)?;
    Ok(())
}

/// Adds the driver information to the native file (`docs/formats/hdf5-subfiling.md`, section 4). Readers without the
/// driver ignore it.
fn add_driver_information(prepared: &Prepared, stripe: usize) -> Result<()> {
    let file = File::options().write(true).open(prepared.native())?;
    let end = file.metadata()?.len();
    let numbers = [0xfed0_1331u32, 1, 1].map(u32::to_le_bytes);
    let geometry = [stripe as u64, SUBFILES as u64, 0].map(u64::to_le_bytes);
    let information = [numbers.as_flattened(), geometry.as_flattened()].concat();
    let mut block = vec![0; 4];
    block.extend((information.len() as u32).to_le_bytes());
    block.extend(b"Subfilin");
    block.extend(information);
    file.write_all_at(&block, end)?;
    let places = [end + block.len() as u64, end].map(u64::to_le_bytes);
    file.write_all_at(places.as_flattened(), END)?;
    Ok(())
}
