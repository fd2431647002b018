//! Logs of up to 10^8 blocks, with two measurements: the time to the first value, and the memory of the index. There is
//! no native file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bench::{Bench, MOUNTED, Prepared, Scale, Size, into_page_cache};
use crate::client::{Client, Read, Timed};
use crate::generate::blocks::{Runs, share};
use crate::generate::{Blocks, Dataset, Element, Entry, Plan, Section};
use crate::mounts::Mount;
use crate::report::{Goal, Outcome, Row, Unit};

use super::climate::{self, Climate};

/// The indexes of these logs are larger than the default of 256M.
const OPTIONS: &str = "index_memory=1G";

/// One dataset of runs of 1 to 3 elements. Each run belongs to a random rank.
pub struct Distinct {
    dataset: Dataset,
    runs: Runs,
    blocks: u64,
    ranks: u64,
}

impl Distinct {
    fn new(blocks: u64, seed: u64) -> Self {
        let runs = Runs {
            least: 1,
            most: 3,
            seed,
        };
        Distinct {
            dataset: Dataset::new("field", 0, Element::F32, &[runs.extent(blocks)]),
            runs,
            blocks,
            ranks: 16,
        }
    }
}

impl Plan for Distinct {
    fn datasets(&self) -> Vec<Dataset> {
        vec![self.dataset.clone()]
    }

    fn ranks(&self) -> u64 {
        self.ranks
    }

    fn write(&self, rank: u64, section: &mut Section<'_>) -> Result<()> {
        const TOGETHER: u64 = 10_000;
        let mut blocks = Blocks::new(1);
        let mut mine = share(self.blocks, self.ranks, rank, self.runs.seed).peekable();
        while let Some(number) = mine.next() {
            let run = self.runs.get(number);
            blocks.push(&[run.start], &[run.end - run.start]);
            if blocks.len() == TOGETHER || mine.peek().is_none() {
                section.write(&Entry::new(&self.dataset, &blocks))?;
                blocks = Blocks::new(1);
            }
        }
        Ok(())
    }
}

/// 100 variables of 10^6 blocks each, in three decompositions.
pub fn in_patterns(size: Size) -> Climate {
    Climate {
        variables: size.pick(12, 100),
        ..climate::plan(size)
    }
}

/// 10^7 or 10^8 blocks.
pub fn all_distinct(size: Size) -> Distinct {
    let blocks = match size.scale {
        Scale::Small => 20_000,
        Scale::Full => 10_000_000,
        Scale::Huge => 100_000_000,
    };
    Distinct::new(blocks, size.seed)
}

pub fn shared(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let plan = in_patterns(bench.size);
    let goals = Goals {
        first: bench.goal(Goal::AtMost(10.0)),
        peak: bench.goal(Goal::AtMost(2_147_483_648.0)),
        rate: None,
        memory: None,
    };
    // One variable needs only the distinct blocks of its own decomposition.
    measure(bench, "shared-patterns", &plan, plan.blocks, &goals, out)
}

pub fn distinct(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let goals = Goals {
        first: None,
        peak: None,
        rate: bench.goal(Goal::AtLeast(20e6)),
        memory: bench.goal(Goal::AtMost(12.0)),
    };
    let plan = all_distinct(bench.size);
    measure(bench, "distinct-blocks", &plan, plan.blocks, &goals, out)
}

struct Goals {
    /// Seconds to the first value.
    first: Option<Goal>,
    /// Bytes of the daemon at its peak.
    peak: Option<Goal>,
    /// Blocks per second and processor.
    rate: Option<Goal>,
    /// Bytes per block.
    memory: Option<Goal>,
}

/// One figure for each round.
#[derive(Default)]
struct Figures {
    first: Vec<f64>,
    whole: Vec<f64>,
    cells: Vec<f64>,
    again: Vec<f64>,
    rate: Vec<f64>,
    grown: Vec<f64>,
    peak: Vec<f64>,
    reopened: Vec<f64>,
    kept: Vec<f64>,
}

/// Measures a log. `blocks` is the number of distinct blocks in the index of the last dataset, which is read.
fn measure(
    bench: &Bench,
    name: &str,
    plan: &dyn Plan,
    blocks: u64,
    goals: &Goals,
    out: &mut Outcome,
) -> Result<()> {
    let prepared = bench.generate(name, plan)?;
    prepared.written.iter().for_each(|w| out.log(w));
    bench.let_settle();
    let measurement = Measurement::new(bench, &prepared)?;
    bench.with_client(|client| measurement.check(client, out))?;
    let mut figures = Figures::default();
    for round in 0..=bench.rounds {
        bench.say(name, &format!("round {round}"));
        bench.with_client(|client| measurement.fresh(blocks, client, &mut figures))?;
        if bench.keeps_indexes {
            bench.with_client(|client| measurement.reopened(client, &mut figures))?;
        }
    }
    figures.report(bench, blocks, goals, out);
    Ok(())
}

impl Figures {
    fn report(&self, bench: &Bench, blocks: u64, goals: &Goals, out: &mut Outcome) {
        let row = |what: &str, unit, figures: &[f64]| Row::new(what, MOUNTED, unit, figures);
        let seconds = |what: &str, figures: &[f64]| row(what, Unit::Seconds, figures);
        out.row(seconds("mount to the first value", &self.first).map(|r| r.goal(goals.first)));
        out.row(seconds("the same dataset whole", &self.whole));
        out.row(seconds("and once more", &self.again));
        out.row(seconds("a value of each dataset", &self.cells));
        let rate = row("blocks indexed a second and core", Unit::Number, &self.rate);
        out.row(rate.map(|r| r.goal(goals.rate)));
        let grown = row("memory for the index, a block", Unit::Bytes, &self.grown);
        out.row(grown.map(|r| r.goal(goals.memory)));
        let peak = row("the daemon's peak", Unit::Bytes, &self.peak);
        out.row(peak.map(|r| r.goal(goals.peak)));
        let reopened = seconds("kept index: mount to the first value", &self.reopened);
        out.row(reopened.map(|r| r.goal(bench.goal(Goal::AtMost(0.1)))));
        out.row(row("size of the kept index", Unit::Bytes, &self.kept));
        out.note(format!(
        "Mounted with {OPTIONS}. The rate is that of all that opening the file and reading the first \
         value takes, on all processors; memory for the index is what the daemon's resident set grew \
         by meanwhile, for {blocks} blocks."
    ));
        if !bench.keeps_indexes {
            out.note("Kept index: n/a, the mount has no option index_dir.");
        }
    }
}

/// The reads of the last dataset of a log in each round.
struct Measurement<'a> {
    bench: &'a Bench,
    prepared: &'a Prepared,
    dataset: &'a Dataset,
    /// The element in the middle of the dataset.
    value: [Read; 1],
    expected: f64,
    /// The index directory of the reopened mounts.
    indexes: PathBuf,
}

impl<'a> Measurement<'a> {
    fn new(bench: &'a Bench, prepared: &'a Prepared) -> Result<Self> {
        let dataset = prepared.datasets.last().context("a dataset")?;
        let value = [middle(dataset)?];
        let along = value[0].start.iter().zip(&dataset.dims);
        let place = along.fold(0, |place, (start, dim)| place * dim + start);
        Ok(Measurement {
            bench,
            prepared,
            dataset,
            value,
            expected: dataset.values(bench.size.seed).at(place).into(),
            indexes: bench.scratch.path().join("kept"),
        })
    }

    fn mount(&self) -> Result<Mount> {
        let options = if self.bench.keeps_indexes {
            format!("{OPTIONS},index_dir={}", self.indexes.display())
        } else {
            OPTIONS.to_owned()
        };
        self.bench.mount(&self.prepared.log_dir(), &options)
    }

    fn first_value(&self, mount: &Mount, client: &mut Client) -> Result<Timed> {
        let timed = client.time(&mount.join(self.prepared.name()), &self.value)?;
        ensure!(
            timed.first == [self.expected],
            "{:?} is not {}",
            timed.first,
            self.expected
        );
        Ok(timed)
    }

    /// Measures a mount without any index.
    fn fresh(&self, blocks: u64, client: &mut Client, figures: &mut Figures) -> Result<()> {
        into_page_cache(&self.prepared.log())?;
        let start = Instant::now();
        let mut mount = self.mount()?;
        let mounted = start.elapsed().as_secs_f64();
        let before = mount.memory("VmRSS")?;
        let start = Instant::now();
        let first = self.first_value(&mount, client)?;
        figures.first.push(mounted + start.elapsed().as_secs_f64());
        let grown = mount.memory("VmRSS")?.saturating_sub(before);
        figures.grown.push(grown as f64 / blocks as f64);
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let rate = blocks as f64 / first.seconds() / cores as f64;
        figures.rate.push(rate);
        let path = mount.join(self.prepared.name());
        let whole = [Read::whole(self.dataset)?];
        figures.whole.push(client.time(&path, &whole)?.seconds());
        figures.again.push(client.time(&path, &whole)?.seconds());
        if self.prepared.datasets.len() > 1 {
            let cells = self.prepared.datasets.iter().map(middle);
            let cells = cells.collect::<Result<Vec<_>>>()?;
            figures.cells.push(client.time(&path, &cells)?.seconds());
        }
        figures.peak.push(mount.memory("VmHWM")? as f64);
        Ok(())
    }

    /// Measures a mount that finds the index of the fresh one.
    fn reopened(&self, client: &mut Client, figures: &mut Figures) -> Result<()> {
        figures.kept.push(bytes_below(&self.indexes)? as f64);
        let start = Instant::now();
        let mount = self.mount()?;
        self.first_value(&mount, client)?;
        figures.reopened.push(start.elapsed().as_secs_f64());
        drop(mount);
        Ok(fs::remove_dir_all(&self.indexes)?)
    }

    /// Checks that all elements have the generated values.
    fn check(&self, client: &mut Client, out: &mut Outcome) -> Result<()> {
        let mount = self.bench.mount(&self.prepared.log_dir(), OPTIONS)?;
        let path = mount.join(self.prepared.name());
        let dataset = std::slice::from_ref(self.dataset);
        out.contents(&client.check(&path, dataset, self.bench.size.seed)?);
        Ok(())
    }
}

/// The element in the middle of a dataset.
fn middle(dataset: &Dataset) -> Result<Read> {
    let middle: Vec<u64> = dataset.dims.iter().map(|n| n / 2).collect();
    Read::block(dataset, &middle, &vec![1; middle.len()])
}

fn bytes_below(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() {
            bytes_below(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
    }
    Ok(bytes)
}
