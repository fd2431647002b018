//! Deflated data, in records that are whole chunks, and in records that are parts of chunks.

use anyhow::Result;

use crate::bench::{Bench, Job, Per, Size, Wanted};
use crate::client::Read;
use crate::generate::{Blocks, Dataset, Element, Entry, Plan, Section, Stored};
use crate::report::{Goal, Outcome};

const WRITERS: u64 = 4;

/// `parts` is the number of records of a chunk, one above the other.
pub struct Filtered {
    dataset: Dataset,
    parts: u64,
}

impl Plan for Filtered {
    fn datasets(&self) -> Vec<Dataset> {
        vec![self.dataset.clone()]
    }

    fn ranks(&self) -> u64 {
        WRITERS
    }

    fn write(&self, rank: u64, section: &mut Section<'_>) -> Result<()> {
        let (Some([height, width]), [rows, columns]) =
            (self.dataset.chunk.as_deref(), &self.dataset.dims[..])
        else {
            return Ok(());
        };
        let (height, across) = (height / self.parts, columns / width);
        let records = rows / height * across;
        for record in (rank..records).step_by(WRITERS as usize) {
            let start = [record / across * height, record % across * width];
            let blocks = Blocks::one(&start, &[height, *width]);
            section.write(&Entry {
                stored: Stored::Deflated,
                ..Entry::new(&self.dataset, &blocks)
            })?;
        }
        Ok(())
    }
}

/// For `parts` see [`Filtered`].
pub fn plan(size: Size, parts: u64) -> Filtered {
    let (side, chunk) = size.pick((512, [64, 128]), (8192, [256, 512]));
    let dataset = Dataset::new("field", 0, Element::F64, &[side, side]).filtered(&chunk);
    Filtered { dataset, parts }
}

pub fn whole_chunks(bench: &Bench, out: &mut Outcome) -> Result<()> {
    read(bench, "gzip-chunks", 1, 1.0, out)
}

pub fn parts_of_chunks(bench: &Bench, out: &mut Outcome) -> Result<()> {
    read(bench, "gzip-parts", 4, 1.5, out)
}

fn read(bench: &Bench, name: &str, parts: u64, ratio: f64, out: &mut Outcome) -> Result<()> {
    let plan = plan(bench.size, parts);
    // An export of partial records would have chunks that are not deflated.
    let chunks = self::plan(bench.size, 1);
    let prepared = bench.prepare_against(&chunks, name, &plan, out)?;
    out.note("The native file is that of records which are whole chunks: all of it is deflated.");
    let job = Job {
        what: "whole dataset",
        reads: vec![Read::whole(&plan.dataset)?],
        per: Per::Job,
        goals: [bench.goal(Goal::Ratio(ratio)); 2],
        driver: Wanted::AsMounted,
    };
    bench.compare(&prepared, &job, false, out)
}
