//! Many small blocks in random order, as adaptive and unstructured codes write them.

use anyhow::Result;

use crate::bench::{Bench, Job, Per, Prepared, Size, Wanted};
use crate::client::Read;
use crate::generate::blocks::{Runs, share};
use crate::generate::values::random;
use crate::generate::{Blocks, Dataset, Element, Entry, Plan, Section, Spelling};
use crate::report::{Goal, Outcome};

const WRITERS: u64 = 4;

/// A dataset that runs along each dimension cut into boxes. Each box belongs to a random writer.
pub struct Small {
    dataset: Dataset,
    runs: Vec<Runs>,
    /// Number of runs along each dimension.
    counts: Vec<u64>,
    /// Blocks of an entry.
    together: u64,
    seed: u64,
}

impl Small {
    /// `sizes` has the least and the largest number of elements of a block along each dimension.
    fn new(counts: &[u64], sizes: &[(u64, u64)], together: u64, seed: u64) -> Self {
        let runs: Vec<Runs> = (seed..)
            .zip(sizes)
            .map(|(seed, &(least, most))| Runs { least, most, seed })
            .collect();
        let dims: Vec<u64> = runs.iter().zip(counts).map(|(r, n)| r.extent(*n)).collect();
        Small {
            dataset: Dataset::new("field", 0, Element::F32, &dims),
            runs,
            counts: counts.to_vec(),
            together,
            seed,
        }
    }

    fn push(&self, mut number: u64, blocks: &mut Blocks) {
        let rank = self.counts.len();
        let (mut start, mut count) = (vec![0; rank], vec![0; rank]);
        for d in (0..rank).rev() {
            let run = self.runs[d].get(number % self.counts[d]);
            number /= self.counts[d];
            (start[d], count[d]) = (run.start, run.end - run.start);
        }
        blocks.push(&start, &count);
    }
}

impl Plan for Small {
    fn datasets(&self) -> Vec<Dataset> {
        vec![self.dataset.clone()]
    }

    fn ranks(&self) -> u64 {
        WRITERS
    }

    fn write(&self, rank: u64, section: &mut Section<'_>) -> Result<()> {
        let mut blocks = Blocks::new(self.counts.len());
        let mut mine = share(self.counts.iter().product(), WRITERS, rank, self.seed).peekable();
        while let Some(number) = mine.next() {
            self.push(number, &mut blocks);
            if blocks.len() == self.together || mine.peek().is_none() {
                let encode = blocks.rank() > 1 && blocks.len() > 1;
                section.write(&Entry {
                    spelling: if encode {
                        Spelling::Encoded
                    } else {
                        Spelling::Plain
                    },
                    ..Entry::new(&self.dataset, &blocks)
                })?;
                blocks = Blocks::new(self.counts.len());
            }
        }
        Ok(())
    }
}

/// 10^6 blocks of 1 to 100 elements.
pub fn in_one_dimension(size: Size) -> Small {
    let blocks = size.pick(4_000, 1_000_000);
    Small::new(&[blocks], &[(1, 100)], 1000, size.seed)
}

/// 10^6 blocks of 1 to 90 elements.
pub fn in_three_dimensions(size: Size) -> Small {
    let side = size.pick(16, 100);
    let sizes = [(1, 3), (1, 5), (1, 6)];
    Small::new(&[side; 3], &sizes, 1000, size.seed)
}

/// 400,000 blocks of ten floats, an entry each.
pub fn of_ten_floats(size: Size) -> Small {
    let blocks = size.pick(4_000, 400_000);
    Small::new(&[blocks], &[(10, 10)], 1, size.seed)
}

pub fn one_dimension(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let plan = in_one_dimension(bench.size);
    whole(bench, "blocks-1d", &plan, None, out).map(drop)
}

pub fn three_dimensions(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let plan = in_three_dimensions(bench.size);
    whole(bench, "blocks-3d", &plan, None, out).map(drop)
}

/// Writes the log, and measures reading the whole dataset.
fn whole(
    bench: &Bench,
    name: &str,
    plan: &Small,
    goal: Option<Goal>,
    out: &mut Outcome,
) -> Result<Prepared> {
    let prepared = bench.prepare(name, plan, out)?;
    let job = Job {
        what: "whole dataset",
        reads: vec![Read::whole(&plan.dataset)?],
        per: Per::Job,
        goals: [goal; 2],
        driver: Wanted::AsMounted,
    };
    bench.compare(&prepared, &job, false, out)?;
    Ok(prepared)
}

pub fn ten_floats(bench: &Bench, out: &mut Outcome) -> Result<()> {
    const SLICE: u64 = 1000;
    let plan = of_ten_floats(bench.size);
    let goal = bench.goal(Goal::Ratio(0.3));
    let prepared = whole(bench, "ten-floats", &plan, goal, out)?;
    out.note("The Log VOL connector takes 1.67 s for the whole, and 10 ms for a slice.");
    let slice = |number: u64| {
        let start = random(bench.size.seed, number) % (plan.dataset.elements() - SLICE);
        Read::block(&plan.dataset, &[start], &[SLICE])
    };
    let slices = Job {
        what: "slice of 1000 elements",
        reads: (0..200).map(slice).collect::<Result<_>>()?,
        per: Per::Read,
        goals: [bench.goal(Goal::AtMost(1e-4)); 2],
        driver: Wanted::AsMounted,
    };
    bench.compare(&prepared, &slices, false, out)
}
