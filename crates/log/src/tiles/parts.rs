//! The part of a variable that one member has, and its records.

use std::ops::Range;

use super::chunks::Hdf5Members;
use super::{Axis, Member, Variable};
use crate::conversion::Constant;
use crate::layout::DatasetRecords;
use crate::model::{Encoding, StoredBytes};
use crate::numbers::NumberConversion;
use crate::part::Part;
use crate::source_file::SourceFile;
use crate::stored::bytes_of;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;

/// The most records into which an array with a halo is cut.
const MOST_CUTS: u64 = 1 << 12;

/// The rows of a variable whose records are asked for.
pub(super) struct Whole<'a> {
    pub of: &'a Variable,
    /// Number of the variable.
    pub number: usize,
    /// Its extent.
    pub dims: &'a [u64],
    /// The rows along the first dimension; of a scalar, any.
    pub rows: Range<u64>,
}

/// The part of a member, along each dimension.
pub(super) struct MemberPart {
    pub own: Vec<OwnRange>,
}

/// The part of a member along one dimension.
#[derive(Debug, Clone)]
pub(super) struct OwnRange {
    /// Indexes in the whole.
    pub shown: Range<u64>,
    /// The first of them in the member.
    pub first: u64,
    /// Points in the member.
    pub all: u64,
}

impl OwnRange {
    pub fn len(&self) -> u64 {
        self.shown.end - self.shown.start
    }

    /// Leaves out what lies before an index of the whole.
    pub fn skip_to(&mut self, index: u64) {
        let skipped = index.clamp(self.shown.start, self.shown.end) - self.shown.start;
        self.shown.start += skipped;
        self.first += skipped;
    }

    /// Whether it is all that the member has.
    fn is_all(&self) -> bool {
        self.first == 0 && self.len() == self.all
    }
}

impl Whole<'_> {
    /// The first index and the number of elements along each dimension.
    pub fn all(&self) -> (Vec<u64>, Vec<u64>) {
        let (mut start, mut count) = (vec![0; self.dims.len()], self.dims.to_vec());
        if let Some(first) = self.dims.first() {
            let rows = self.rows.start.min(*first)..self.rows.end.min(*first);
            (start[0], count[0]) = (rows.start, rows.end.saturating_sub(rows.start));
        }
        (start, count)
    }

    /// An element for places that cannot be read.
    pub fn zero(&self) -> Result<Constant, Fault> {
        let zero = Constant::new(&[0; 8][..self.of.kind.size()]);
        Ok(zero.ok_or("elements of no bytes")?)
    }

    /// The part of a member. `None` where it has nothing in these rows.
    pub fn part_of(&self, member: &Member) -> Option<MemberPart> {
        let mut own = Vec::with_capacity(self.dims.len());
        for (d, axis) in self.of.dims.iter().enumerate() {
            let whole = self.dims[d];
            let (at, len, before, all) = match *axis {
                Axis::Whole => (0, whole, 0, whole),
                Axis::Cut(number) => {
                    let span = member.spans[usize::from(number)];
                    (span.at, span.len, span.before, span.all)
                }
                Axis::Records(number) => {
                    let records = member.records[usize::from(number)];
                    (0, records, 0, records)
                }
            };
            let rows = if d == 0 { self.rows.clone() } else { 0..whole };
            let end = (at + len).min(whole).min(rows.end);
            let start = at.max(rows.start);
            if start >= end {
                return None;
            }
            own.push(OwnRange {
                shown: start..end,
                first: before + (start - at),
                all,
            });
        }
        Some(MemberPart { own })
    }
}

impl MemberPart {
    pub fn start(&self) -> Vec<u64> {
        self.own.iter().map(|own| own.shown.start).collect()
    }

    pub fn count(&self) -> Vec<u64> {
        self.own.iter().map(OwnRange::len).collect()
    }
}

/// Adds the records of members.
pub(super) struct Adder<'a> {
    pub task: &'a Task,
    pub sources: &'a [SourceFile],
    pub hdf5: &'a Hdf5Members,
    pub found: &'a mut DatasetRecords,
}

/// An array that lies in a member as it is.
pub(super) struct Piece<'a> {
    /// Number of the member.
    pub member: usize,
    /// Offset of its first byte.
    pub offset: u64,
    /// Its part, with the sides of the array.
    pub own: &'a [OwnRange],
    /// The conversion of its elements, if they have another byte order than the variable.
    pub conversion: Option<&'a NumberConversion>,
}

impl Adder<'_> {
    /// Adds the records of a classic member, whose data begin at `place`.
    pub fn classic(
        &mut self,
        whole: &Whole<'_>,
        part: &MemberPart,
        member: usize,
        (place, record_size): (u64, u64),
    ) -> Result<(), Fault> {
        if !matches!(whole.of.dims.first(), Some(Axis::Records(_))) {
            let piece = Piece {
                member,
                offset: place,
                own: &part.own,
                conversion: None,
            };
            return self.piece(whole, piece);
        }
        let records = &part.own[0];
        for number in 0..records.len() {
            let at = records.first + number;
            let offset = at
                .checked_mul(record_size)
                .and_then(|skipped| place.checked_add(skipped));
            let mut own = part.own.clone();
            let shown = records.shown.start + number;
            own[0] = OwnRange {
                shown: shown..shown + 1,
                first: 0,
                all: 1,
            };
            let piece = Piece {
                member,
                offset: offset.ok_or("a record past 2^64")?,
                own: &own,
                conversion: None,
            };
            self.piece(whole, piece)?;
        }
        Ok(())
    }

    /// Adds an array without filters. Of an array with a halo each layer that has all of its last dimensions is a record, so a
    /// reader of one does not read all.
    pub fn piece(&mut self, whole: &Whole<'_>, piece: Piece<'_>) -> Result<(), Fault> {
        let own = piece.own;
        let layers = own.iter().position(|own| !own.is_all()).unwrap_or(0);
        let cuts = own[..layers]
            .iter()
            .fold(1u64, |all, own| all.saturating_mul(own.len()));
        if layers == 0 || cuts > MOST_CUTS {
            return self.array(whole, &piece);
        }
        let element = whole.of.kind.size() as u64;
        let sides: Vec<u64> = own[layers..].iter().map(|own| own.all).collect();
        let bytes = bytes_of(&sides, element);
        let bytes = bytes.ok_or("an array of too many bytes")?;
        for cut in 0..cuts {
            let mut layer = own.to_vec();
            let mut left = cut;
            for own in layer[..layers].iter_mut().rev() {
                let index = own.shown.start + left % own.len();
                left /= own.all;
                *own = OwnRange {
                    shown: index..index + 1,
                    first: 0,
                    all: 1,
                };
            }
            let skipped = cut
                .checked_mul(bytes)
                .and_then(|skipped| piece.offset.checked_add(skipped));
            let one = Piece {
                member: piece.member,
                offset: skipped.ok_or("an array past 2^64")?,
                own: &layer,
                conversion: piece.conversion,
            };
            self.array(whole, &one)?;
        }
        Ok(())
    }

    /// Adds an array as one record.
    fn array(&mut self, whole: &Whole<'_>, piece: &Piece<'_>) -> Result<(), Fault> {
        let element = whole.of.kind.size() as u64;
        let part = Part {
            sides: piece.own.iter().map(|own| own.all).collect(),
            start: piece.own.iter().map(|own| own.first).collect(),
            filters: Vec::new(),
        };
        let len = bytes_of(&part.sides, element);
        let stored = StoredBytes {
            source: u16::try_from(piece.member)?,
            offset: piece.offset,
            len: len.ok_or("an array of too many bytes")?,
            encoding: Encoding::Raw,
        };
        let start: Vec<u64> = piece.own.iter().map(|own| own.shown.start).collect();
        let count: Vec<u64> = piece.own.iter().map(OwnRange::len).collect();
        let order = order_of(piece.member);
        let records = &mut self.found.records;
        if count == part.sides {
            records.push_block(stored, order, &start, &count)?;
        } else {
            records.push_part(stored, order, (&start, &count), &part)?;
        }
        if let Some(conversion) = piece.conversion {
            records.convert_last(&(*conversion).into())?;
        }
        self.check_there(stored)
    }

    /// Makes the last record unreadable if its member ends before its data do.
    pub fn check_there(&mut self, stored: StoredBytes) -> Result<(), Fault> {
        let Some(file) = self.sources.get(usize::from(stored.source)) else {
            return Err("a member without a file".into());
        };
        if file.has(stored.offset, stored.len) {
            return Ok(());
        }
        let end = stored.offset.saturating_add(stored.len);
        let name = name_of(file);
        let reason = format!(
            "{name} ends at byte {}, and its data at byte {end}",
            file.len()
        );
        self.found.records.spoil_last(reason)
    }
}

/// The place of a member's elements in the order of application. The constant below them has the number before.
pub(super) fn order_of(member: usize) -> u64 {
    2 * member as u64 + 2
}

/// The name of a member.
pub(super) fn name_of(file: &SourceFile) -> String {
    let name = file.path().file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
