//! Logs of up to 10^8 blocks: how long until the first value can be read, and what memory the index
//! takes. No native file is made.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::bench::{Bench, Prepared, Scale, Size, into_page_cache};
use crate::client::Read;
use crate::generate::blocks::{Runs, share};
use crate::generate::{Blocks, Dataset, Element, Entry, Plan, Section};
use crate::report::{Goal, Outcome, Row, Unit};

use super::climate::{self, Climate};

/// What such logs are mounted with, in place of the default of 256M.
const OPTIONS: &str = "cache_size=2G";

/// One dataset of runs of 1 to 3 elements, dealt out to the ranks at random.
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
    // As many distinct blocks as one decomposition has are needed for one variable.
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
    /// Bytes, the daemon's peak.
    peak: Option<Goal>,
    /// Blocks a second and processor.
    rate: Option<Goal>,
    /// Bytes a block.
    memory: Option<Goal>,
}

/// One figure a round.
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

/// `blocks`: distinct ones in the index of the dataset that is read, the last one.
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
    let mut figures = Figures::default();
    for round in 0..=bench.rounds {
        bench.say(name, &format!("round {round}"));
        take_turn(bench, &prepared, blocks, round == 0, &mut figures, out)?;
    }
    let row = |what: &str, unit, figures: &[f64]| Row::new(what, "mounted", unit, figures);
    let seconds = |what: &str, figures: &[f64]| row(what, Unit::Seconds, figures);
    out.row(seconds("mount to the first value", &figures.first).map(|r| r.goal(goals.first)));
    out.row(seconds("the same dataset whole", &figures.whole));
    out.row(seconds("and once more", &figures.again));
    let rate = row(
        "blocks indexed a second and core",
        Unit::Number,
        &figures.rate,
    );
    out.row(rate.map(|r| r.goal(goals.rate)));
    let grown = row("memory for the index, a block", Unit::Bytes, &figures.grown);
    out.row(grown.map(|r| r.goal(goals.memory)));
    let peak = row("the daemon's peak", Unit::Bytes, &figures.peak);
    out.row(peak.map(|r| r.goal(goals.peak)));
    let reopened = seconds("kept index: mount to the first value", &figures.reopened);
    out.row(reopened.map(|r| r.goal(bench.goal(Goal::AtMost(0.1)))));
    out.row(row("size of the kept index", Unit::Bytes, &figures.kept));
    out.note(format!(
        "Mounted with {OPTIONS}. The rate is that of all that opening the file and reading the first \
         value takes, on all processors; memory for the index is what the daemon's resident set grew \
         by meanwhile, for {blocks} blocks."
    ));
    if !bench.keeps_indexes {
        out.note("Kept index: n/a, the mount has no option index_dir.");
    }
    Ok(())
}

/// One fresh mount; one more that finds the index of the first where indexes are kept.
fn take_turn(
    bench: &Bench,
    prepared: &Prepared,
    blocks: u64,
    check: bool,
    figures: &mut Figures,
    out: &mut Outcome,
) -> Result<()> {
    let dataset = prepared.datasets.last().context("a dataset")?;
    let value = [middle(dataset)?];
    let along = value[0].start.iter().zip(&dataset.dims);
    let place = along.fold(0, |place, (start, dim)| place * dim + start);
    let expected = f64::from(dataset.values(bench.size.seed).at(place));
    let indexes = bench.scratch.path().join("kept");
    let options = match bench.keeps_indexes {
        true => format!("{OPTIONS},index_dir={}", indexes.display()),
        false => OPTIONS.to_owned(),
    };
    let mut client = bench.clients.take()?;
    into_page_cache(&prepared.log())?;
    let start = Instant::now();
    let mut mount = bench.mount(&prepared.log_folder(), &options)?;
    let path = mount.join(prepared.name());
    let before = mount.memory("VmRSS")?;
    let first = client.time(&path, &value)?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(
        first.first == [expected],
        "{:?} is not {expected}",
        first.first
    );
    let grown = mount.memory("VmRSS")?.saturating_sub(before);
    let whole = [Read::whole(dataset)?];
    figures.whole.push(client.time(&path, &whole)?.seconds());
    figures.again.push(client.time(&path, &whole)?.seconds());
    if prepared.datasets.len() > 1 {
        let cells = prepared.datasets.iter().map(middle);
        let cells = cells.collect::<Result<Vec<_>>>()?;
        figures.cells.push(client.time(&path, &cells)?.seconds());
    }
    if check {
        let last = std::slice::from_ref(dataset);
        out.contents(&client.check(&path, last, bench.size.seed)?);
    }
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    figures.first.push(seconds);
    figures
        .rate
        .push(blocks as f64 / first.seconds() / cores as f64);
    figures.grown.push(grown as f64 / blocks as f64);
    figures.peak.push(mount.memory("VmHWM")? as f64);
    drop(mount);
    if bench.keeps_indexes {
        figures.kept.push(bytes_below(&indexes)? as f64);
        let start = Instant::now();
        let mount = bench.mount(&prepared.log_folder(), &options)?;
        let again = client.time(&mount.join(prepared.name()), &value)?;
        figures.reopened.push(start.elapsed().as_secs_f64());
        ensure!(
            again.first == [expected],
            "{:?} is not {expected}",
            again.first
        );
        drop(mount);
        fs::remove_dir_all(&indexes)?;
    }
    bench.clients.give_back(client);
    Ok(())
}

/// The element in the middle of a dataset.
fn middle(dataset: &Dataset) -> Result<Read> {
    let middle: Vec<u64> = dataset.dims.iter().map(|n| n / 2).collect();
    Read::block(dataset, &middle, &vec![1; middle.len()])
}

fn bytes_below(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => bytes_below(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}
