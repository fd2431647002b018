//! Many variables that share a few decompositions, as E3SM writes them with PIO.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::bench::{Bench, Job, Per, Prepared, Size, Wanted};
use crate::client::{Described, Read};
use crate::generate::blocks::{Runs, share};
use crate::generate::{Blocks, Dataset, Element, Entry, Plan, Section, Spelling};
use crate::report::Outcome;

/// Number of levels in the decompositions that have levels.
const LEVELS: u64 = 8;

pub struct Climate {
    pub variables: u32,
    pub ranks: u64,
    /// Blocks of each decomposition on all ranks together.
    pub blocks: u64,
    pub seed: u64,
}

/// The distribution of a variable over the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decomposition {
    /// (time, column).
    Surface,
    /// (time, level, column).
    Levels,
    /// (level, column), without time.
    Fixed,
}

const DECOMPOSITIONS: [Decomposition; 3] = [
    Decomposition::Surface,
    Decomposition::Levels,
    Decomposition::Fixed,
];

impl Decomposition {
    fn of(variable: u32) -> Self {
        DECOMPOSITIONS[variable as usize % DECOMPOSITIONS.len()]
    }

    fn has_time(self) -> bool {
        self != Decomposition::Fixed
    }
}

impl Climate {
    fn runs(&self) -> Runs {
        Runs {
            least: 1,
            most: 3,
            seed: self.seed,
        }
    }

    fn dataset(&self, variable: u32) -> Dataset {
        let (columns, across) = (self.runs().extent(self.blocks), self.across());
        let dims = match Decomposition::of(variable) {
            Decomposition::Surface => vec![1, columns],
            Decomposition::Levels => vec![1, LEVELS, across],
            Decomposition::Fixed => vec![LEVELS, across],
        };
        let name = format!("variable_{variable:03}");
        let dataset = Dataset::new(&name, variable, Element::F32, &dims);
        if Decomposition::of(variable).has_time() {
            dataset.unlimited()
        } else {
            dataset
        }
    }

    /// Columns of a variable with levels.
    fn across(&self) -> u64 {
        self.runs().extent(self.blocks / LEVELS)
    }

    /// A rank's blocks, sorted as in a dataspace.
    fn selection(&self, decomposition: Decomposition, rank: u64) -> Blocks {
        let seed = self.seed ^ decomposition as u64;
        let mut mine: Vec<u64> = share(self.blocks, self.ranks, rank, seed).collect();
        mine.sort_unstable();
        let runs = self.runs();
        if decomposition == Decomposition::Surface {
            let mut blocks = Blocks::new(1);
            for run in mine {
                let run = runs.get(run);
                blocks.push(&[run.start], &[run.end - run.start]);
            }
            return blocks;
        }
        let in_a_level = self.blocks / LEVELS;
        let mut blocks = Blocks::new(2);
        for number in mine {
            let run = runs.get(number % in_a_level);
            blocks.push(&[number / in_a_level, run.start], &[1, run.end - run.start]);
        }
        blocks
    }
}

impl Plan for Climate {
    fn datasets(&self) -> Vec<Dataset> {
        (0..self.variables).map(|v| self.dataset(v)).collect()
    }

    fn ranks(&self) -> u64 {
        self.ranks
    }

    /// Writes one variable after the other. Only the first one of a decomposition stores the selection.
    fn write(&self, rank: u64, section: &mut Section<'_>) -> Result<()> {
        let selections = DECOMPOSITIONS.map(|d| self.selection(d, rank));
        let mut known = [None; DECOMPOSITIONS.len()];
        for variable in 0..self.variables {
            let decomposition = Decomposition::of(variable);
            let blocks = &selections[decomposition as usize];
            let known = &mut known[decomposition as usize];
            let spelling = match (*known, blocks.rank()) {
                (Some(position), _) => Spelling::Shared(position),
                (None, 1) => Spelling::Plain,
                (None, _) => Spelling::Encoded,
            };
            let position = section.write(&Entry {
                record: decomposition.has_time().then_some(0),
                spelling,
                ..Entry::new(&self.dataset(variable), blocks)
            })?;
            known.get_or_insert(position);
        }
        Ok(())
    }
}

/// 400 variables, three decompositions of 10^6 blocks.
pub fn plan(size: Size) -> Climate {
    Climate {
        variables: size.pick(12, 400),
        ranks: size.pick(4, 64),
        blocks: size.pick(2_000, 1_000_000),
        seed: size.seed,
    }
}

pub fn generated(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let plan = plan(bench.size);
    let prepared = bench.prepare("climate", &plan, out)?;
    read(bench, &prepared, "", out)
}

/// The small files of real runs.
pub fn real(bench: &Bench, out: &mut Outcome) -> Result<()> {
    const CASES: [&str; 3] = ["e3sm_f", "e3sm_g", "e3sm_i"];
    let cases = bench.size.pick(&CASES[1..2], &CASES[..]);
    let path = |case: &str| -> PathBuf { bench.corpus.join(format!("{case}.log.h5")) };
    let there: Vec<&str> = cases
        .iter()
        .copied()
        .filter(|c| path(c).is_file())
        .collect();
    if there.is_empty() {
        let dir = bench.corpus.display();
        out.skipped = Some(format!("no e3sm_*.log.h5 in {dir}; --corpus says where"));
        return Ok(());
    }
    for case in there {
        let prepared = bench.adopt(&path(case), out)?;
        read(bench, &prepared, &format!("{case}: "), out)?;
    }
    Ok(())
}

/// Reads one variable, all variables, and one cell of all variables.
fn read(bench: &Bench, prepared: &Prepared, case: &str, out: &mut Outcome) -> Result<()> {
    let variables = bench.with_client(|client| client.describe(&prepared.native()))?;
    let largest = variables
        .iter()
        .max_by_key(|v| v.count.iter().product::<u64>());
    let cell = |v: &Described| -> Read {
        let middle: Vec<u64> = v.count.iter().map(|n| n / 2).collect();
        v.read(&middle, &vec![1; v.count.len()])
    };
    let jobs = [
        (
            "one variable",
            vec![largest.context("no variables")?.whole()],
        ),
        (
            "all variables",
            variables.iter().map(Described::whole).collect(),
        ),
        (
            "one cell of all variables",
            variables.iter().map(cell).collect(),
        ),
    ];
    for (what, reads) in jobs {
        let job = Job {
            what: &format!("{case}{what}"),
            reads,
            per: Per::Job,
            goals: [None; 2],
            driver: Wanted::AsMounted,
        };
        bench.compare(prepared, &job, false, out)?;
    }
    Ok(())
}
