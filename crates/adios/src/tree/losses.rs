//! The blocks whose bytes are lost.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::steps::Steps;
use super::{Loss, Presence};
use crate::model::{Block, File, Place, Step};

/// The blocks whose bytes are lost, by the file that should have them.
#[derive(Debug, Default)]
pub struct Losses(BTreeMap<File, LostBlocks>);

/// The blocks whose bytes a file should have, but has not.
#[derive(Debug)]
struct LostBlocks {
    /// Why they are lost.
    loss: Loss,
    /// The number of blocks.
    blocks: u64,
    /// The variables that they belong to.
    variables: HashSet<Arc<str>>,
    /// The steps that they belong to.
    steps: Steps,
}

impl Losses {
    /// Whether no block is lost.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the lost blocks of a variable in a step.
    pub fn add(&mut self, step: u64, variable: &Arc<str>, absent: Absent) {
        for (file, loss) in absent.lost {
            let lost = self.0.entry(file).or_insert_with(|| LostBlocks {
                loss,
                blocks: 0,
                variables: HashSet::new(),
                steps: Steps::default(),
            });
            lost.blocks += 1;
            lost.steps.push(step);
            if !lost.variables.contains(variable) {
                lost.variables.insert(variable.clone());
            }
        }
    }

    /// For each file what it lacks.
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(|(file, lost)| lost.text(*file)).collect()
    }
}

/// The blocks of a variable in a step whose bytes are not there.
#[derive(Default)]
pub struct Absent {
    /// For each lost block the file that should have it, and why it has not.
    pub lost: Vec<(File, Loss)>,
    /// Some of the bytes may still come.
    pub is_awaited: bool,
}

impl Absent {
    /// Looks at the blocks of a variable in one step.
    pub fn of(blocks: &[Block], presence: &dyn Fn(&Place) -> Presence) -> Self {
        let mut absent = Absent::default();
        for run in runs(blocks).filter(|run| !run.is_there(presence)) {
            for block in run.blocks {
                match presence(&block.place) {
                    Presence::There => {}
                    Presence::Lost(loss) => absent.lost.push((block.place.file, loss)),
                    Presence::Awaited => absent.is_awaited = true,
                }
            }
        }
        absent
    }
}

/// Whether all stored bytes of a step are there.
pub fn is_complete(step: &Step, presence: &dyn Fn(&Place) -> Presence) -> bool {
    let variables = step.variables.iter();
    let mut runs = variables.flat_map(|variable| runs(&variable.blocks));
    runs.all(|run| run.is_there(presence))
}

/// Neighbouring blocks, which are mostly in one file: `presence` is asked once for all of them.
struct Run<'a> {
    blocks: &'a [Block],
    /// The end of the last one; `None` if it overflows.
    end: Option<u64>,
}

fn runs(blocks: &[Block]) -> impl Iterator<Item = Run<'_>> {
    let runs = blocks.chunk_by(|a, b| a.place.file == b.place.file);
    runs.map(|blocks| {
        let last = |last: u64, block: &Block| block.place.end().map(|end| last.max(end));
        let end = blocks.iter().try_fold(0, last);
        Run { blocks, end }
    })
}

impl Run<'_> {
    fn is_there(&self, presence: &dyn Fn(&Place) -> Presence) -> bool {
        let (Some(first), Some(len)) = (self.blocks.first(), self.end) else {
            return false;
        };
        let file = first.place.file;
        let all = Place {
            file,
            offset: 0,
            len,
        };
        presence(&all) == Presence::There
    }
}

/// Words for steps; `None` if there are none.
pub(super) fn named(steps: &Steps) -> Option<String> {
    let (first, last) = (steps.get(0)?, steps.last()?);
    Some(match steps.len() {
        1 => format!("step {first}"),
        many => format!("{many} steps from {first} to {last}"),
    })
}

impl LostBlocks {
    /// The file, what it lacks, and why.
    fn text(&self, file: File) -> String {
        let count = |count: u64, of: &str| match count {
            1 => format!("1 {of}"),
            many => format!("{many} {of}s"),
        };
        let blocks = count(self.blocks, "block");
        let variables = count(self.variables.len() as u64, "variable");
        let steps = named(&self.steps).unwrap_or_default();
        let loss = &self.loss;
        format!("{file} {loss}: {blocks} of {variables} in {steps} cannot be read")
    }
}
