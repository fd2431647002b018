//! Compaction by several processes: the ranks of a job, each of which writes its own parts to one file.
//!
//! The ranks work in rounds, which bound the memory. In a round each rank makes a few parts, every n-th one, and
//! sends their outlines to the first rank. The first rank knows the order and places the parts; each rank writes its
//! own there. The first rank keeps the addresses of chunks, and writes everything after the parts.
//!
//! All ranks read the same log, so all know the parts. An error on one rank ends the work of all at the end of the
//! round.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};

use h5logfs_common::fault::{Fault, Kind};
use h5logfs_common::parallel;
use h5logfs_output::ranks::{JobError, Ranks};
use serde::{Deserialize, Serialize};

use super::Source;
use super::making::{Made, Outline, Spare};
use super::parts::{Part, Parts};
use super::sequence::{Compacted, Sequence};
use super::verify::{Compared, Share, check_metadata, compare};
use crate::error::{Error, Result};

/// Parts per thread in a round.
const PARTS_EACH: usize = 4;
/// Bytes of an offset.
const OFFSET: usize = size_of::<u64>();

/// Writes the file of `source`, which each rank has open as `file`, with `threads` threads a rank. `progress` takes,
/// on the first rank, the number of bytes done, of [`Source::total`]. Returns the result on the first rank.
/// Collective.
pub fn write(
    source: &Source,
    ranks: &Ranks,
    file: &File,
    jobs: usize,
    progress: &dyn Fn(u64),
) -> Result<Option<Compacted>, JobError> {
    let mut work = Work {
        source,
        ranks,
        jobs,
        spare: Spare::of_parts(PARTS_EACH * jobs),
        parts: Parts::new(source),
        seen: DefaultHasher::new(),
        sequence: Sequence::new(source),
    };
    let mut written = Ok(());
    loop {
        let round = work.next_round();
        let len = round.as_ref().map_or(0, |round| round.len);
        // A failed write is reported in the next round.
        let made = written.and(round).and_then(|round| work.make(&round.own));
        let made = made.map_err(Fault::from);
        let offsets = work.place(&made, len)?;
        if len == 0 {
            break;
        }
        progress(work.sequence.done());
        let made = made.map_err(Error::from);
        written = made.and_then(|made| work.write(made, &offsets, file));
    }
    let ended = || -> Result<()> {
        file.sync_data()?;
        Ok(source.view.references().check_sources()?)
    };
    ranks.all(ended())?;
    let is_root = ranks.is_root();
    let Work {
        parts, sequence, ..
    } = work;
    let finished = is_root.then(|| sequence.finish(parts, file));
    ranks.led(finished.transpose())
}

struct Work<'a> {
    source: &'a Source,
    ranks: &'a Ranks,
    jobs: usize,
    spare: Spare,
    parts: Parts<'a>,
    /// Hash of all parts so far.
    seen: DefaultHasher,
    /// Only on the first rank.
    sequence: Sequence<'a>,
}

/// The parts made at one time.
struct Round {
    /// Number of parts on all ranks.
    len: usize,
    /// Parts of this rank.
    own: Vec<Part>,
}

/// A rank's report on a round.
#[derive(Serialize, Deserialize)]
struct Told<P> {
    /// Hash of all parts so far. It is equal on ranks that see the same log.
    seen: u64,
    /// The rank's parts, or its failure: the number of a [`Kind`], and a text.
    parts: Result<Vec<P>, (i32, String)>,
}

impl Work<'_> {
    fn size(&self) -> usize {
        self.ranks.size() as usize
    }

    fn rank(&self) -> usize {
        self.ranks.rank() as usize
    }

    /// Part `p` of a round belongs to rank `p` mod the number of ranks.
    fn next_round(&mut self) -> Result<Round> {
        let most = PARTS_EACH * self.jobs * self.size();
        let mut round = Round {
            len: 0,
            own: Vec::new(),
        };
        while round.len < most {
            let Some(part) = self.parts.next_part()? else {
                break;
            };
            part.hash(&mut self.seen);
            if round.len % self.size() == self.rank() {
                round.own.push(part);
            }
            round.len += 1;
        }
        Ok(round)
    }

    fn make(&self, own: &[Part]) -> Result<Vec<Made>> {
        let threads = self.jobs.min(own.len()).max(1);
        let source = self.source;
        let spare = &self.spare;
        let make = |part| source.make(&source.view.task(None), part, spare);
        let shares = parallel::share(threads, |first| -> Result<Vec<Made>> {
            own.iter().skip(first).step_by(threads).map(make).collect()
        });
        let shares: Vec<Vec<Made>> = shares.into_iter().collect::<Result<_>>()?;
        Ok(in_turn(shares))
    }

    /// The offsets of all `len` parts of a round. Collective.
    fn place(&mut self, made: &Result<Vec<Made>, Fault>, len: usize) -> Result<Vec<u64>, JobError> {
        let parts = match made {
            Ok(made) => Ok(made.iter().map(|made| &made.outline).collect()),
            Err(e) => Err((e.kind().number(), e.to_string())),
        };
        let seen = self.seen.finish();
        // This cannot run out of memory. If it did, the first rank would notice the missing report.
        let told = postcard::to_stdvec(&Told { seen, parts }).unwrap_or_default();
        // A rank that finishes early yields its processor to the others.
        self.ranks.wait();
        let told = self.ranks.gather_bytes(&told);
        let is_root = self.ranks.is_root();
        let placed = is_root.then(|| self.place_all(&told, len));
        let placed = self.ranks.led(placed.transpose())?;
        let mut bytes = placed.unwrap_or_else(|| vec![0; len * OFFSET]);
        self.ranks.broadcast(&mut bytes);
        let (offsets, _) = bytes.as_chunks::<OFFSET>();
        Ok(offsets
            .iter()
            .map(|bytes| u64::from_le_bytes(*bytes))
            .collect())
    }

    /// The offsets as bytes.
    fn place_all(&mut self, told: &[Vec<u8>], len: usize) -> Result<Vec<u8>, Fault> {
        let mut parts = Vec::new();
        for (rank, told) in told.iter().enumerate() {
            let of_rank = |fault: Fault| fault.at(format_args!("rank {rank}"));
            let told = postcard::from_bytes::<Told<Outline>>(told);
            let told = told.map_err(|e| of_rank(e.to_string().into()))?;
            let failed = |(kind, words): (i32, String)| of_rank(Kind::of_number(kind).told(words));
            parts.push(told.parts.map_err(failed)?);
            if told.seen != self.seen.finish() {
                return Err(of_rank(
                    "it does not see the log as the first rank does".into(),
                ));
            }
        }
        let mut offsets = Vec::with_capacity(len * OFFSET);
        for mut part in in_turn(parts) {
            let offset = self.sequence.add(&mut part)?;
            offsets.extend(offset.to_le_bytes());
        }
        if offsets.len() == len * OFFSET {
            return Ok(offsets);
        }
        Err("ranks have made other parts than they were to".into())
    }

    fn write(&self, made: Vec<Made>, offsets: &[u64], file: &File) -> Result<()> {
        let own = offsets.iter().skip(self.rank()).step_by(self.size());
        for (made, offset) in made.into_iter().zip(own) {
            made.write(file, *offset, &self.spare)?;
        }
        Ok(())
    }
}

/// The first item of each list, the second of each, and so on.
fn in_turn<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let len = lists.iter().map(Vec::len).sum();
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::with_capacity(len);
    while all.len() < len {
        all.extend(lists.iter_mut().filter_map(Iterator::next));
    }
    all
}

/// Fails where the elements of the file differ from those of the log, except those left out. Each rank compares a
/// share, and has the file open for reading. `compacted` is the result of [`write()`]. Collective.
pub fn verify(
    source: &Source,
    ranks: &Ranks,
    file: &File,
    compacted: Option<&Compacted>,
    jobs: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), JobError> {
    let checked = compacted.map_or(Ok(()), |c| check_metadata(source, file, &c.file));
    ranks.led(checked)?;
    let len = ranks.sum(compacted.map_or(0, |c| c.file.len));
    let size = u64::from(ranks.size());
    let share = Share {
        first: ranks.rank().into(),
        step: size,
    };
    // Ranks are taken to be equally fast.
    let progress = |done: u64| progress(done.saturating_mul(size));
    let compared = compare(source, file, len, share, jobs, &progress);
    let own = ranks.all(compared)?;
    let all = Compared {
        stored: own.stored,
        found: ranks.sum(own.found),
        left_out: ranks.sum(own.left_out),
    };
    ranks.led(compacted.map_or(Ok(()), |c| all.check(&c.left_out)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_ranks_are_taken_in_turn() {
        assert_eq!(
            in_turn(vec![vec![0, 3, 6], vec![1, 4], vec![2, 5]]),
            [0, 1, 2, 3, 4, 5, 6]
        );
        assert_eq!(in_turn(vec![vec![0], vec![], vec![]]), [0]);
        assert!(in_turn::<u8>(vec![]).is_empty());
    }
}
