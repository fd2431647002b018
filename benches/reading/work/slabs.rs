//! One large dataset that several writers have logged in slabs of whole rows, and several ways to read it.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

use crate::bench::{Bench, Job, Per, Prepared, Size, Turn, Wanted};
use crate::client::{Clients, Read, Timed};
use crate::generate::values::random;
use crate::generate::{Blocks, Dataset, Element, Entry, Plan, Section, Stored};
use crate::report::{Goal, Outcome};

const WRITERS: u64 = 4;
/// Rows of a slab.
const ROWS: u64 = 8;
const READERS: u64 = 8;

pub struct Slabs {
    dataset: Dataset,
    /// Number of times that the whole dataset is written. The last time counts.
    times: u64,
    flushes: u64,
}

/// 1 GiB, written once.
pub fn once(size: Size) -> Slabs {
    Slabs::new(size.pick([512, 1024], [8192, 16384]), 1)
}

/// An eighth of [`once`], written eight times.
pub fn eight_times(size: Size) -> Slabs {
    Slabs::new(size.pick([512, 1024], [1024, 16384]), 8)
}

impl Slabs {
    fn new(dims: [u64; 2], times: u64) -> Self {
        Slabs {
            dataset: Dataset::new("field", 0, Element::F64, &dims),
            times,
            flushes: 16,
        }
    }
}

impl Plan for Slabs {
    fn datasets(&self) -> Vec<Dataset> {
        vec![self.dataset.clone()]
    }

    fn ranks(&self) -> u64 {
        WRITERS
    }

    /// Writes the slabs of a rank. Each flush has some consecutive slabs, which go to the writers in turn.
    fn write(&self, rank: u64, section: &mut Section<'_>) -> Result<()> {
        let [rows, columns] = self.dataset.dims[..] else {
            return Ok(());
        };
        let slabs = rows / ROWS / self.flushes;
        for flush in 0..self.times * self.flushes {
            let counts = flush >= (self.times - 1) * self.flushes;
            for slab in (rank..slabs).step_by(WRITERS as usize) {
                let first = (flush % self.flushes * slabs + slab) * ROWS;
                let blocks = Blocks::one(&[first, 0], &[ROWS, columns]);
                section.write(&Entry {
                    stored: if counts {
                        Stored::Elements
                    } else {
                        Stored::Stale
                    },
                    ..Entry::new(&self.dataset, &blocks)
                })?;
            }
            section.flush();
        }
        Ok(())
    }
}

/// The log of slabs. The first workload that needs the log writes it.
fn prepared(bench: &Bench, out: &mut Outcome) -> Result<Rc<Prepared>> {
    if let Some(prepared) = &*bench.slabs.borrow() {
        return Ok(Rc::clone(prepared));
    }
    let prepared = Rc::new(bench.prepare("slabs", &once(bench.size), out)?);
    *bench.slabs.borrow_mut() = Some(Rc::clone(&prepared));
    Ok(prepared)
}

pub fn dataset(prepared: &Prepared) -> Result<&Dataset> {
    prepared.datasets.first().context("a dataset")
}

pub fn whole(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let prepared = prepared(bench, out)?;
    let job = Job {
        what: "whole dataset",
        reads: vec![Read::whole(dataset(&prepared)?)?],
        per: Per::Job,
        goals: [bench.goal(Goal::Ratio(0.8)), bench.goal(Goal::Ratio(0.95))],
        driver: Wanted::Ratio(0.95),
    };
    bench.compare(&prepared, &job, true, out)
}

pub fn rewritten(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let plan = eight_times(bench.size);
    let prepared = bench.prepare("rewritten", &plan, out)?;
    let job = Job {
        what: "whole dataset",
        reads: vec![Read::whole(&plan.dataset)?],
        per: Per::Job,
        goals: [None; 2],
        driver: Wanted::Nothing,
    };
    bench.compare(&prepared, &job, false, out)
}

pub fn hyperslabs(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let prepared = prepared(bench, out)?;
    let field = dataset(&prepared)?;
    let reads = (0..bench.size.pick(16, 64)).map(|number| random_box(bench, field, number));
    let job = Job {
        what: "random hyperslabs",
        reads: reads.collect::<Result<_>>()?,
        per: Per::Job,
        goals: [bench.goal(Goal::Ratio(0.8)); 2],
        driver: Wanted::Ratio(0.9),
    };
    bench.compare(&prepared, &job, true, out)
}

/// A box of 4 KiB to 4 MiB with random proportions. All orders of magnitude are equally likely.
fn random_box(bench: &Bench, field: &Dataset, number: u64) -> Result<Read> {
    let draw = |what: u64, below: u64| random(bench.size.seed ^ what, number) % below;
    let elements = (4096 / field.element.size()) << draw(1, 11);
    let columns = (1 << draw(2, elements.ilog2().into())).min(field.dims[1]);
    let count = [(elements / columns).clamp(1, field.dims[0]), columns];
    let start = [
        draw(3, field.dims[0] - count[0] + 1),
        draw(4, field.dims[1] - count[1] + 1),
    ];
    Read::block(field, &start, &count)
}

pub fn columns(bench: &Bench, out: &mut Outcome) -> Result<()> {
    const COLUMNS: u64 = 64;
    let prepared = prepared(bench, out)?;
    let field = dataset(&prepared)?;
    let strip = |number: u64| {
        let first = random(bench.size.seed, number) % (field.dims[1] - COLUMNS);
        Read::block(field, &[0, first], &[field.dims[0], COLUMNS])
    };
    let job = Job {
        what: "3 strips of 64 columns",
        reads: (0..3).map(strip).collect::<Result<_>>()?,
        per: Per::Job,
        goals: [bench.goal(Goal::Ratio(0.8)); 2],
        driver: Wanted::Ratio(0.9),
    };
    bench.compare(&prepared, &job, true, out)
}

/// Several processes read at the same time. Each reads its own part in pieces.
pub fn readers(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let prepared = prepared(bench, out)?;
    let field = dataset(&prepared)?;
    let parts = (0..READERS)
        .map(|reader| part(field, reader))
        .collect::<Result<Vec<_>>>()?;
    let job = Job {
        what: "8 processes, an eighth each",
        reads: Vec::new(),
        per: Per::Job,
        goals: [None; 2],
        driver: Wanted::Nothing,
    };
    let mut pass = |turn: &Turn<'_>| at_once(turn.clients(), &turn.path, &parts);
    bench.compare_by(&prepared, &job, true, &mut pass, out)
}

/// The pieces of one reader.
fn part(field: &Dataset, reader: u64) -> Result<Vec<Read>> {
    let rows = field.dims[0] / READERS;
    let step = 8 * ROWS;
    let firsts = (reader * rows..(reader + 1) * rows).step_by(step as usize);
    firsts
        .map(|first| Read::block(field, &[first, 0], &[step, field.dims[1]]))
        .collect()
}

/// Seconds from the moment the first client begins until the last one is done.
fn at_once(clients: &Clients, path: &Path, parts: &[Vec<Read>]) -> Result<Vec<f64>> {
    let taken = parts.iter().map(|_| clients.take());
    let mut readers = taken.collect::<Result<Vec<_>>>()?;
    let now = clock_gettime(ClockId::Monotonic);
    // The clients get the request in this time.
    let begin = now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9 + 0.1;
    for (client, reads) in readers.iter_mut().zip(parts) {
        client.time_from(begin, path, reads)?;
    }
    let mut timed = Vec::new();
    for mut client in readers {
        timed.push(client.fetch::<Timed>()?);
        clients.give_back(client);
    }
    let begun = timed.iter().map(|t| t.begun).fold(f64::INFINITY, f64::min);
    let ended = timed.iter().map(|t| t.ended).fold(0.0, f64::max);
    Ok(vec![ended - begun])
}
