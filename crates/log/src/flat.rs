//! A file whose bytes lie unchanged in other files, its members: in stripes that go around the members.
//!
//! Byte `a` of the file is in stripe `a / stripe`. Stripe `k` is in member `k % members`, and is stripe `k / members`
//! there. Members whose bytes follow each other are a special case: each member holds one stripe.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

use crate::source_file::SourceFile;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::HeaderBytes;

/// The places of the bytes of such a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flat {
    /// Bytes of the file.
    pub len: u64,
    /// Bytes before address 0 of the file's metadata.
    pub user_block: u64,
    /// Number of bytes that the members must have. Bytes after them may be holes.
    pub promised: u64,
    /// Bytes of a stripe.
    pub stripe: u64,
    /// All members, in the order of the stripes.
    pub members: Vec<FlatMember>,
    /// Bytes that replace those of the members, by ascending offsets.
    pub patches: Vec<Patch>,
}

/// A file that holds stripes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlatMember {
    /// Number of the source; `None` where it is missing.
    pub source: Option<u16>,
    /// Name of the member, for messages.
    pub name: String,
}

/// Bytes of the file that its members lack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patch {
    /// Offset in the file.
    pub at: u64,
    /// The bytes.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// Contiguous bytes of the file in one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Number of the member.
    pub member: usize,
    /// Offset in the member.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

/// The largest number of members.
pub const MOST_MEMBERS: usize = u16::MAX as usize;

impl Flat {
    /// Fails with the reason where the value contradicts itself, in a log of `sources` source files.
    pub fn check(&self, sources: usize) -> Result<(), Fault> {
        let members = self.members.len();
        if self.stripe == 0 || members == 0 || members > MOST_MEMBERS {
            let stripe = self.stripe;
            return Err(format!("stripes of {stripe} bytes in {members} members").into());
        }
        if self.len > i64::MAX as u64 || self.promised > self.len || self.user_block > self.len {
            return Err(format!("a file of {} bytes", self.len).into());
        }
        let mut numbers = self.members.iter().filter_map(|member| member.source);
        if numbers.any(|number| usize::from(number) >= sources) {
            return Err("members that are no source".into());
        }
        let mut end = 0;
        for patch in &self.patches {
            let after = patch.at.checked_add(patch.bytes.len() as u64);
            match after.filter(|after| patch.at >= end && *after <= self.len) {
                Some(after) => end = after,
                None => return Err("patches that make no sense".into()),
            }
        }
        Ok(())
    }

    /// The longest piece from `offset` on that lies in one member, of at most `len` bytes.
    pub fn piece(&self, offset: u64, len: u64) -> Piece {
        let members = self.members.len().max(1) as u64;
        let stripe = self.stripe.max(1);
        let (number, within) = (offset / stripe, offset % stripe);
        if members == 1 {
            let member = 0;
            return Piece {
                member,
                offset,
                len,
            };
        }
        // The bytes of a member are fewer than those of the file, so this does not overflow.
        let row = number / members;
        Piece {
            member: (number % members) as usize,
            offset: row.saturating_mul(stripe).saturating_add(within),
            len: len.min(stripe - within),
        }
    }

    /// The source with the `len` bytes of the file from `offset` on, and their offset there. `None` where they lie in
    /// several pieces or where the file has other bytes than its members.
    pub fn one_piece(&self, offset: u64, len: u64) -> Option<(u16, u64)> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len)?;
        let is_patched = |patch: &Patch| {
            patch.at < end && offset < patch.at.saturating_add(patch.bytes.len() as u64)
        };
        let piece = self.piece(offset, len);
        if piece.len < len || self.patches.iter().any(is_patched) {
            return None;
        }
        Some((self.members.get(piece.member)?.source?, piece.offset))
    }

    /// Bytes of member `number` in a file of `len` bytes.
    pub fn part_of(&self, number: usize, len: u64) -> u64 {
        part(self.stripe, self.members.len(), number, len)
    }

    /// Bytes that member `number` must have.
    pub fn promised_by(&self, number: usize) -> u64 {
        self.part_of(number, self.promised)
    }

    /// Fills `buf` with the bytes from `offset` on. `buf` must not reach past the end of the file. `sources` are the
    /// source files of the log; errors name the first. Fails where a member lacks promised bytes. Other bytes that a
    /// member lacks are holes.
    pub fn read<S: Borrow<SourceFile>>(
        &self,
        sources: &[S],
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let piece = self.piece(at, (buf.len() - done) as u64);
            let end = done + piece.len as usize;
            self.read_piece(sources, at, piece, &mut buf[done..end])?;
            done = end;
        }
        self.patch(offset, buf);
        Ok(())
    }

    fn read_piece<S: Borrow<SourceFile>>(
        &self,
        sources: &[S],
        at: u64,
        piece: Piece,
        buf: &mut [u8],
    ) -> Result<()> {
        let member = self.members.get(piece.member);
        let number = member.and_then(|member| member.source);
        let source = number.and_then(|number| sources.get(usize::from(number)));
        let source = source.map(S::borrow);
        let len = source.map_or(0, SourceFile::len);
        let there = len.saturating_sub(piece.offset).min(piece.len);
        let is_promised = piece.offset + there < self.promised_by(piece.member);
        if there < piece.len && is_promised {
            return Err(self.lack(sources, at + there, piece.member, len));
        }
        let (there, behind) = buf.split_at_mut(there as usize);
        behind.fill(0);
        let Some(source) = source.filter(|_| !there.is_empty()) else {
            return Ok(());
        };
        source.read_exact_at(there, piece.offset)?;
        source.check_unchanged()
    }

    /// The error where member `number`, of `len` bytes, does not have byte `at` of the file.
    fn lack<S: Borrow<SourceFile>>(
        &self,
        sources: &[S],
        at: u64,
        number: usize,
        len: u64,
    ) -> Error {
        let path = sources.first().map(|log| log.borrow().path().to_owned());
        let member = self.members.get(number);
        let name = member.map_or("", |member| &member.name);
        let why = match member.and_then(|member| member.source) {
            None => "is missing".to_owned(),
            Some(_) => format!(
                "has {len} bytes, where it should have {}",
                self.promised_by(number)
            ),
        };
        let reason = format!("the bytes from {at} on are in {name}, which {why}");
        Error::of(path.unwrap_or_default(), reason)
    }

    /// Applies the patches to `buf`, which holds the bytes of the members from `offset` on.
    pub fn patch(&self, offset: u64, buf: &mut [u8]) {
        for patch in &self.patches {
            let end = offset.saturating_add(buf.len() as u64);
            let from = patch.at.max(offset);
            let to = patch.at.saturating_add(patch.bytes.len() as u64).min(end);
            if from < to {
                let len = (to - from) as usize;
                let (into, of) = ((from - offset) as usize, (from - patch.at) as usize);
                buf[into..into + len].copy_from_slice(&patch.bytes[of..of + len]);
            }
        }
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        let names = self.members.iter().map(|member| member.name.len());
        let patches = self.patches.iter().map(|patch| patch.bytes.len());
        size_of_val(self.members.as_slice()) + names.sum::<usize>() + patches.sum::<usize>()
    }
}

/// The bytes after the user block, for code that reads HDF5 structures.
#[derive(Debug, Clone, Copy)]
pub struct FlatFile<'a> {
    /// The places of the bytes.
    pub flat: &'a Flat,
    /// The files of the log.
    pub sources: &'a [&'a SourceFile],
}

impl HeaderBytes for FlatFile<'_> {
    fn size(&self) -> u64 {
        self.flat.len.saturating_sub(self.flat.user_block)
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let end = at.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.size()) {
            return Err("an address past the end".into());
        }
        let offset = self.flat.user_block + at;
        let read = self.flat.read(self.sources, offset, buf);
        read.map_err(Fault::from)
    }
}

/// Bytes of member `number` of `members`, in a file of `len` bytes.
pub fn part(stripe: u64, members: usize, number: usize, len: u64) -> u64 {
    let (stripe, members) = (u128::from(stripe.max(1)), members.max(1) as u128);
    let row = stripe * members;
    let (rows, rest) = (u128::from(len) / row, u128::from(len) % row);
    let last = rest.saturating_sub(stripe * number as u128).min(stripe);
    // The sum is at most `len`.
    u64::try_from(rows * stripe + last).unwrap_or(len)
}

/// The end of a file whose members have these lengths; `None` where no file can be so long.
pub fn end_of(stripe: u64, lens: &[u64]) -> Option<u64> {
    let members = lens.len() as u64;
    let mut end = 0;
    for (number, len) in lens.iter().enumerate() {
        let Some(last) = len.checked_sub(1) else {
            continue;
        };
        let stripes = (last / stripe).checked_mul(members)?;
        let start = stripes.checked_add(number as u64)?.checked_mul(stripe)?;
        end = end.max(start.checked_add(last % stripe)?.checked_add(1)?);
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn flat(stripe: u64, members: usize, len: u64) -> Flat {
        let member = |number| FlatMember {
            source: Some(number as u16),
            name: String::new(),
        };
        Flat {
            len,
            user_block: 0,
            promised: len,
            stripe,
            members: (0..members).map(member).collect(),
            patches: Vec::new(),
        }
    }

    #[test]
    fn lengths_are_those_of_the_format_page() {
        let lens = |stripe, members, len| {
            let part = |number| part(stripe, members, number, len);
            (0..members).map(part).collect::<Vec<_>>()
        };
        assert_eq!(lens(4096, 2, 123_680), [62_240, 61_440]);
        let odd = [20_000, 19_898, 15_000, 15_000, 15_000, 15_000];
        assert_eq!(lens(5000, 6, 99_898), odd);
        assert_eq!(end_of(4096, &[62_240, 61_440]), Some(123_680));
        assert_eq!(end_of(4096, &[60_920, 57_344]), Some(118_264));
        let of_two = flat(4096, 2, 123_680);
        let piece = |offset| of_two.piece(offset, u64::MAX);
        let (member, offset) = (0, 11_808);
        assert_eq!(
            (piece(20_000).member, piece(20_000).offset),
            (member, offset)
        );
        assert_eq!(piece(123_679).offset, 62_239);
    }

    proptest! {
        /// A model that deals out one byte at a time.
        #[test]
        fn each_byte_lies_where_a_naive_writer_puts_it(
            stripe in 1u64..40, members in 1usize..7, len in 0u64..600,
        ) {
            let flat = flat(stripe, members, len);
            let mut lens = vec![0; members];
            for at in 0..len {
                let member = (at / stripe) as usize % members;
                let piece = flat.piece(at, len - at);
                prop_assert_eq!((piece.member, piece.offset), (member, lens[member]));
                prop_assert!(piece.len >= 1 && piece.len <= len - at);
                prop_assert_eq!(flat.one_piece(at, piece.len), Some((member as u16, piece.offset)));
                prop_assert_eq!(flat.one_piece(at, piece.len + 1), None);
                lens[member] += 1;
            }
            let parts: Vec<_> = (0..members).map(|number| flat.part_of(number, len)).collect();
            prop_assert_eq!(&parts, &lens);
            prop_assert_eq!(end_of(stripe, &lens), Some(len));
        }

        #[test]
        fn no_numbers_overflow(
            stripe in 1u64.., members in 1usize..=MOST_MEMBERS, len in 0u64..=i64::MAX as u64, at: u64,
        ) {
            let flat = flat(stripe, members, len);
            prop_assert!(flat.check(members).is_ok());
            prop_assert!(members == 1 || flat.piece(at, len).len <= stripe);
            prop_assert!(flat.part_of(0, len) <= len);
            let _ = end_of(stripe, &[len, at]);
        }

        #[test]
        fn patches_are_seen_through_any_window(at in 0u64..30, from in 0u64..40, len in 0usize..40) {
            let mut flat = flat(8, 2, 100);
            let patch = Patch { at, bytes: vec![1; 5] };
            flat.patches.push(patch);
            let mut buf = vec![0; len];
            flat.patch(from, &mut buf);
            for (offset, byte) in (from..).zip(buf) {
                let is_patched = offset >= at && offset < at + 5;
                prop_assert_eq!(byte == 1, is_patched);
                prop_assert_eq!(flat.one_piece(offset, 1).is_none(), is_patched);
            }
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let damaged = |damage: &dyn Fn(&mut Flat)| {
            let mut flat = flat(8, 2, 100);
            damage(&mut flat);
            flat.check(2)
        };
        assert_eq!(damaged(&|_| ()), Ok(()));
        assert!(damaged(&|f| f.stripe = 0).is_err());
        assert!(damaged(&|f| f.members.clear()).is_err());
        assert!(damaged(&|f| f.len = u64::MAX).is_err());
        assert!(damaged(&|f| f.promised = 101).is_err());
        assert!(damaged(&|f| f.members[1].source = Some(2)).is_err());
        let patch = |at, len| Patch {
            at,
            bytes: vec![0; len],
        };
        assert!(damaged(&|f| f.patches = vec![patch(0, 5), patch(5, 95)]).is_ok());
        assert!(damaged(&|f| f.patches = vec![patch(0, 5), patch(4, 1)]).is_err());
        assert!(damaged(&|f| f.patches = vec![patch(u64::MAX, 1)]).is_err());
    }
}
