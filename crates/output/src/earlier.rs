//! The table of a data file that earlier jobs have written to (`docs/formats/journal.md`, section 5).
//!
//! A rank knows its own entries. Entries of earlier jobs are in the file. The first of the ranks that share the file
//! reads the headers of the extents, finds the place of each section, and distributes the entries to all ranks. Each
//! rank copies a share. So one process reads headers, 64 bytes an extent, and all copy entries.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use h5logfs_log::front::FRONT;
use h5logfs_log::logvol::extent::entries_by_rank;
use h5logfs_log::logvol::table_head;
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::window::Piece;

use crate::error::FaultResult;
use crate::flushed::Flushed;
use crate::late::patiently;
use crate::ranks::Ranks;

/// Number of extents whose entries are distributed at once. It is small in tests, so that they reach it.
const AT_ONCE: usize = if cfg!(debug_assertions) { 16 } else { 1 << 16 };

/// A data file that existed when this job opened its log.
pub(crate) struct DataFile<'a> {
    pub path: &'a Path,
    pub file: &'a Arc<File>,
    /// The ranks of this job that share the file.
    pub ranks: &'a Ranks,
    /// Last flush of earlier jobs, and the end of their extents.
    pub flush: u64,
    pub begin: u64,
    /// End of all extents.
    pub end: u64,
}

/// The entries that a rank of this job has written to the file.
#[derive(Clone, Copy, Default)]
pub(crate) struct Own {
    /// Number of the rank in the job.
    pub rank: u32,
    /// Bytes of its entries.
    pub entries: u64,
}

/// The layout of the new table of a data file.
pub(crate) struct Plan {
    pub table: Piece,
    /// Position for the entries of this rank.
    pub own: u64,
    /// On the first rank: sections by the number of the rank that wrote them.
    sections: BTreeMap<u32, Section>,
}

impl DataFile<'_> {
    /// Writes the head of the table, and assigns places to all entries. Fails on all ranks or on none. Collective.
    pub fn plan(&self, own: Own) -> FaultResult<Plan> {
        let ranks = self.ranks.gather(own.rank.into());
        let entries = self.ranks.gather(own.entries);
        let owns = ranks.into_iter().zip(entries);
        let owns = owns.map(|(rank, entries)| Own {
            rank: rank as u32,
            entries,
        });
        let owns: Vec<Own> = owns.collect();
        let begun = self.ranks.is_root().then(|| self.begin(&owns)).transpose();
        let begun = self.ranks.led(begun)?;
        let (sections, len) = begun.unwrap_or_default();

        let of = |own: &Own| sections.get(&own.rank).map_or(0, Section::own);
        let numbers = [len].into_iter().chain(owns.iter().map(of));
        let numbers = self.ranks.broadcast_bytes(0, to_bytes(numbers));
        let number = |at: usize| {
            numbers
                .as_chunks()
                .0
                .get(at)
                .copied()
                .map(u64::from_le_bytes)
        };
        let numbers = number(0).zip(number(1 + self.ranks.rank() as usize));
        let (len, own) = numbers.ok_or("the first rank did not say where entries go")?;
        Ok(Plan {
            table: Piece {
                offset: self.end,
                len,
            },
            own,
            sections,
        })
    }

    /// On the first rank: writes the head of the table. Returns the sections, and the size of the table.
    fn begin(&self, owns: &[Own]) -> FaultResult<(BTreeMap<u32, Section>, u64)> {
        let earlier = patiently(self.file, || {
            let file = self.file.try_clone();
            let file = file.and_then(|file| SourceFile::new(file, self.path.to_owned()))?;
            entries_by_rank(&file, FRONT..self.begin, self.flush)
        });
        let mut sections = BTreeMap::<u32, Section>::new();
        for (rank, pieces) in earlier? {
            sections.entry(rank).or_default().earlier = pieces;
        }
        for own in owns.iter().filter(|own| own.entries > 0) {
            sections.entry(own.rank).or_default().own_len = own.entries;
        }
        if sections.is_empty() {
            return Ok((sections, 0));
        }
        let head = table_head(sections.values().map(Section::len));
        self.file.write_all_at(&head, self.end)?;
        let mut at = self.end + head.len() as u64;
        for section in sections.values_mut() {
            section.at = at;
            at += section.len();
        }
        Ok((sections, at - self.end))
    }

    /// Copies the entries of earlier jobs into the table; each rank copies a share. Collective.
    pub fn copy(&self, plan: Plan) -> FaultResult {
        let mut moves = plan.sections.into_values().flat_map(Section::moves);
        let mut copied = Ok(());
        loop {
            let some = moves.by_ref().take(AT_ONCE).flat_map(Move::numbers);
            let some = self.ranks.broadcast_bytes(0, to_bytes(some));
            let some: Vec<Move> = some.as_chunks().0.iter().map(Move::from_bytes).collect();
            if some.is_empty() {
                return copied;
            }
            let own = share(&some, self.ranks.rank(), self.ranks.size());
            // Collective: a rank that has failed must take part in the rest, too.
            copied = copied.and_then(|()| self.copy_share(&own));
        }
    }

    fn copy_share(&self, moves: &[Move]) -> FaultResult {
        moves
            .chunk_by(|one, next| one.to + one.len == next.to)
            .try_for_each(|run| patiently(self.file, || self.copy_run(run))?)
    }

    /// Copies entries that are adjacent in the table. The outer result fails if they cannot be read. The inner one is the
    /// outcome of the writes, which are not repeated.
    fn copy_run(&self, run: &[Move]) -> FaultResult<FaultResult> {
        let mut entries = Flushed::new(Arc::clone(self.file));
        run.iter().for_each(|part| entries.add(part.from, part.len));
        let (mut reader, mut to, mut buffer) = (entries.reader(), run[0].to, Vec::new());
        loop {
            reader.next(&mut buffer)?;
            if buffer.is_empty() {
                return Ok(Ok(()));
            }
            if let Err(e) = self.file.write_all_at(&buffer, to) {
                return Ok(Err(e.into()));
            }
            to += buffer.len() as u64;
        }
    }
}

/// The entries of one rank number in the table: first those of earlier jobs, then those of this job.
#[derive(Default)]
struct Section {
    earlier: Vec<Piece>,
    own_len: u64,
    /// Start in the file.
    at: u64,
}

impl Section {
    fn earlier_len(&self) -> u64 {
        self.earlier.iter().map(|piece| piece.len).sum()
    }

    fn len(&self) -> u64 {
        self.earlier_len() + self.own_len
    }

    /// Position for the entries of this job.
    fn own(&self) -> u64 {
        self.at + self.earlier_len()
    }

    fn moves(self) -> impl Iterator<Item = Move> {
        self.earlier.into_iter().scan(self.at, |to, piece| {
            let part = Move {
                from: piece.offset,
                len: piece.len,
                to: *to,
            };
            *to += piece.len;
            Some(part)
        })
    }
}

/// Entries of one extent, to be copied into the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Move {
    from: u64,
    len: u64,
    to: u64,
}

impl Move {
    fn numbers(self) -> [u64; 3] {
        [self.from, self.len, self.to]
    }

    fn from_bytes(bytes: &[u8; 24]) -> Self {
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        Move {
            from: number(0),
            len: number(8),
            to: number(16),
        }
    }
}

fn to_bytes(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    numbers.flat_map(u64::to_le_bytes).collect()
}

/// The moves of rank `rank` of `ranks`: consecutive ones, and about as many bytes for each rank.
fn share(moves: &[Move], rank: u32, ranks: u32) -> Vec<Move> {
    let all: u128 = moves.iter().map(|part| u128::from(part.len)).sum();
    let mut before = 0;
    let is_own = |part: &&Move| {
        let copied_by = before * u128::from(ranks) / all;
        before += u128::from(part.len);
        copied_by == rank.into()
    };
    moves.iter().filter(is_own).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(lens: &[u64]) -> Vec<Move> {
        let part = |(from, len): (u64, &u64)| Move {
            from,
            len: *len,
            to: from,
        };
        (0..).zip(lens).map(part).collect()
    }

    #[test]
    fn each_part_is_copied_once_and_ranks_have_about_as_much() {
        for lens in [&[5; 40][..], &[1], &[100, 1, 1], &[1, u64::MAX, 1], &[]] {
            let moves = moves(lens);
            for ranks in [1, 2, 3, 7, 50] {
                let shares = (0..ranks).map(|rank| share(&moves, rank, ranks));
                let shares: Vec<_> = shares.collect();
                assert_eq!(shares.concat(), moves);
                let most = shares.iter().map(Vec::len).max().unwrap();
                assert!(lens.len() < 40 || most <= 40usize.div_ceil(ranks as usize));
            }
        }
    }

    #[test]
    fn moves_survive() {
        let moves = moves(&[1, u64::MAX / 2, 3]);
        let bytes = to_bytes(moves.iter().copied().flat_map(Move::numbers));
        let read: Vec<_> = bytes.as_chunks().0.iter().map(Move::from_bytes).collect();
        assert_eq!(read, moves);
    }
}
