//! The parts of a file in order: the place of each, and totals.

use std::fs::File;

use super::Source;
use super::left_out::LeftOut;
use super::making::Outline;
use super::parts::Parts;
use super::placing::{Complete, Placer};
use crate::error::Result;

/// A written file.
#[derive(Debug)]
pub struct Compacted {
    /// The file.
    pub file: Complete,
    /// Data missing from the file.
    pub left_out: Vec<LeftOut>,
}

/// Takes parts in order.
#[derive(Debug)]
pub struct Sequence<'a> {
    source: &'a Source,
    placer: Placer<'a>,
    left_out: Vec<LeftOut>,
    /// Dataset of the last part, and bytes of the elements of earlier datasets.
    dataset: usize,
    before: u64,
    /// Bytes of the elements up to the end of the last part.
    done: u64,
}

impl<'a> Sequence<'a> {
    /// A sequence without parts.
    pub fn new(source: &'a Source) -> Self {
        Sequence {
            source,
            placer: Placer::new(source),
            left_out: Vec::new(),
            dataset: 0,
            before: 0,
            done: 0,
        }
    }

    /// The file offset of the next part.
    pub fn add(&mut self, part: &mut Outline) -> Result<u64> {
        let offset = self.placer.place(part)?;
        for left_out in part.left_out.drain(..) {
            left_out.add_to(&mut self.left_out);
        }
        while self.dataset < part.number {
            let elements = self.source.elements_len(self.dataset);
            self.before = self.before.saturating_add(elements);
            self.dataset += 1;
        }
        self.done = self.before.saturating_add(part.passed);
        Ok(offset)
    }

    /// Bytes placed, of [`Source::total`].
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Writes everything but the parts. `parts` must be exhausted.
    pub fn finish(self, parts: Parts<'_>, file: &File) -> Result<Compacted> {
        let mut left_out = parts.left_out;
        left_out.extend(self.left_out);
        // The sort is stable: chunks of a dataset stay in order.
        left_out.sort_by_key(|left_out| left_out.number);
        Ok(Compacted {
            file: self.placer.finish(file)?,
            left_out,
        })
    }
}
