//! Decodes the blocks of an entry, in all encodings of the connector (section 6).

use std::io::Read;
use std::ops::Deref;

use super::entries::{EntryHeader, i32_at, i64_at, selection_size};
use super::flags::{DEFL, ENC, MUL};
use crate::model::Logged;
use crate::model::Selection;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::{Reservation, Reserved};
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::deflate::{inflate, largest_inflated};

/// The encoding of a body. Most bodies allow only one encoding. For the others, the size of the data decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SelectionEncoding {
    /// The encoding of section 6.1, or of section 6.2 with encoded counts of 1 or more.
    Usual,
    /// Counts decoded by plain division, which is right for blocks with a count of zero.
    Division,
    /// Alternating starts and counts of a merged entry (section 6.6).
    Pairs,
}

/// The undecoded coordinates of an entry's blocks.
pub(super) struct Blocks<'a> {
    /// Number of dimensions of the coordinates.
    rank: usize,
    count: usize,
    coordinates: Coordinates<'a>,
    spelling: SelectionEncoding,
}

enum Coordinates<'a> {
    /// Starts and counts of `rank` values of 8 bytes each. They may alternate if `merged`.
    Plain { bytes: Bytes<'a>, merged: bool },
    /// `rank - 1` steps, then a start and a count per block, of 8 bytes each.
    Encoded(Bytes<'a>),
}

/// Bytes of an entry.
enum Bytes<'a> {
    AsStored(&'a [u8]),
    Inflated(Reserved<Vec<u8>>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::AsStored(bytes) => bytes,
            Bytes::Inflated(bytes) => bytes,
        }
    }
}

/// Starts and counts of all blocks, `rank` values each, and their memory.
struct Lists {
    starts: Vec<u64>,
    counts: Vec<u64>,
    _reservation: Reservation,
}

impl Lists {
    /// Empty lists with capacity for `values` values each.
    fn with_room(task: &Task, values: usize) -> Result<Self, Fault> {
        let mut reservation = task.reservation();
        let (mut starts, mut counts) = (Vec::new(), Vec::new());
        reservation.make_room(&mut starts, values)?;
        reservation.make_room(&mut counts, values)?;
        Ok(Lists {
            starts,
            counts,
            _reservation: reservation,
        })
    }
}

impl<'a> Blocks<'a> {
    /// Parses the blocks of an entry. `rank` is the rank of the dataset, less one for an entry with a record number.
    /// `may_be_merged`: the file was written with merging on.
    pub fn parse(
        task: &Task,
        head: &EntryHeader,
        body: &'a [u8],
        rank: usize,
        may_be_merged: bool,
    ) -> Result<Self, Fault> {
        let (count, bytes) = unpack(task, head, body, rank)?;
        // Encoded coordinates are smaller than decoded ones.
        let decoded = selection_size(rank as u64, count, false);
        if matches!(bytes, Bytes::Inflated(_)) && decoded > LARGEST_UNPACKED {
            return Err(format!(
                "a deflated selection of {decoded} bytes, more than {LARGEST_UNPACKED}"
            )
            .into());
        }
        let size = bytes.len() as u64;
        let merged = may_be_merged && head.has(MUL) && head.record.is_none();
        let fits = |encoded| size == selection_size(rank as u64, count, encoded);
        let coordinates = if head.has(ENC) && fits(true) {
            Coordinates::Encoded(bytes)
        } else if (merged || !head.has(ENC)) && fits(false) {
            Coordinates::Plain { bytes, merged }
        } else {
            return Err(
                format!("{size} bytes of selection for {count} blocks of rank {rank}").into(),
            );
        };
        Ok(Blocks {
            rank,
            count: count as usize,
            coordinates,
            spelling: SelectionEncoding::Usual,
        })
    }

    pub fn spelling(&self) -> SelectionEncoding {
        self.spelling
    }

    /// Chooses the encoding whose elements take `data_size` bytes. The record number of the sharing entry replaces the
    /// first `drop` dimensions.
    pub fn choose(
        &mut self,
        task: &Task,
        dataset: &Logged<'_>,
        data_size: i64,
        drop: usize,
    ) -> Result<(), Fault> {
        let fits = |s: SelectionEncoding| {
            let lists = self.lists(task, s).ok()?;
            let elements = match self.rank {
                0 => self.count as u64,
                rank => elements(&lists.counts, rank, drop)?,
            };
            let bytes = i128::from(elements) * i128::from(dataset.element_size);
            Some(bytes == i128::from(data_size))
        };
        // Without coordinates, only the size of the data limits the number of blocks.
        let stored = u64::try_from(data_size).unwrap_or(0);
        let least = (self.count as u64).saturating_mul(dataset.element_size);
        if self.rank == drop && least > largest_inflated(stored) {
            return Err(format!("{} blocks in {stored} bytes of data", self.count).into());
        }
        match &self.coordinates {
            Coordinates::Encoded(_) => {
                if fits(SelectionEncoding::Usual) != Some(true)
                    && fits(SelectionEncoding::Division) == Some(true)
                {
                    self.spelling = SelectionEncoding::Division;
                }
                Ok(())
            }
            Coordinates::Plain { merged: true, .. } if self.count > 1 => {
                let inside = |s: &SelectionEncoding| self.is_inside(task, *s, dataset);
                let possible: Vec<SelectionEncoding> =
                    [SelectionEncoding::Pairs, SelectionEncoding::Usual]
                        .into_iter()
                        .filter(inside)
                        .collect();
                let fitting: Vec<SelectionEncoding> = possible
                    .iter()
                    .copied()
                    .filter(|s| fits(*s) == Some(true))
                    .collect();
                self.spelling = match (fitting.as_slice(), possible.as_slice()) {
                    ([one], _) | ([], [one]) => *one,
                    _ => return Err("an ambiguous merged entry".into()),
                };
                Ok(())
            }
            Coordinates::Plain { .. } => Ok(()),
        }
    }

    /// Whether all blocks have elements and lie within the extent of the dataset.
    fn is_inside(&self, task: &Task, spelling: SelectionEncoding, dataset: &Logged<'_>) -> bool {
        let Ok(lists) = self.lists(task, spelling) else {
            return false;
        };
        let dims = dataset.dims.iter().cycle();
        lists
            .starts
            .iter()
            .zip(&lists.counts)
            .zip(dims)
            .all(|((s, c), dim)| *c > 0 && s.checked_add(*c).is_some_and(|end| end <= *dim))
    }

    /// The selection, without the first `drop` dimensions.
    pub fn selection(&self, task: &Task, drop: usize) -> Result<Reserved<Selection>, Fault> {
        let (rank, own) = (self.rank - drop, self.rank);
        if let Coordinates::Plain { bytes, .. } = &self.coordinates
            && self.spelling == SelectionEncoding::Usual
        {
            check_signs(bytes)?;
            let at = |number: usize| i64_at(bytes, 8 * number) as u64;
            let counts = self.count * own;
            return Selection::new(
                task,
                rank,
                self.count,
                |block, d| at(block * own + drop + d),
                |block, d| at(counts + block * own + drop + d),
            );
        }
        let lists = self.lists(task, self.spelling)?;
        let at = |list: &[u64], block: usize, d: usize| list[block * own + drop + d];
        Selection::new(
            task,
            rank,
            self.count,
            |block, d| at(&lists.starts, block, d),
            |block, d| at(&lists.counts, block, d),
        )
    }

    fn lists(&self, task: &Task, spelling: SelectionEncoding) -> Result<Lists, Fault> {
        let mut lists = Lists::with_room(task, self.count * self.rank)?;
        match &self.coordinates {
            Coordinates::Plain { bytes, .. } => {
                check_signs(bytes)?;
                let values = numbers(bytes).map(|v| v as u64);
                match spelling {
                    SelectionEncoding::Pairs => unzip(values, self.rank, &mut lists),
                    _ => {
                        let half = self.count * self.rank;
                        lists.starts.extend(values.clone().take(half));
                        lists.counts.extend(values.skip(half));
                    }
                }
            }
            Coordinates::Encoded(bytes) => {
                let steps: Vec<i64> = numbers(bytes).take(self.rank.saturating_sub(1)).collect();
                let starts = numbers(bytes).skip(steps.len()).take(self.count);
                let counts = numbers(bytes).skip(steps.len() + self.count);
                decode(&steps, starts.zip(counts), spelling, &mut lists)?;
            }
        }
        Ok(lists)
    }
}

/// Little-endian numbers of 8 bytes.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = i64> + Clone {
    bytes.chunks_exact(8).map(|b| i64_at(b, 0))
}

fn check_signs(bytes: &[u8]) -> Result<(), Fault> {
    let signs = bytes.chunks_exact(8).fold(0, |signs, b| signs | b[7]);
    match signs & 0x80 {
        0 => Ok(()),
        _ => Err("a negative coordinate".into()),
    }
}

/// The largest size of an inflated selection, and of its decoded coordinates.
const LARGEST_UNPACKED: u64 = 64 << 20;

/// The number of blocks, and the bytes of the coordinates, inflated if necessary (section 6.4). No known writer
/// deflates them. The two descriptions of the format disagree on the place of the number.
fn unpack<'a>(
    task: &Task,
    head: &EntryHeader,
    body: &'a [u8],
    rank: usize,
) -> Result<(u64, Bytes<'a>), Fault> {
    let wanted = |count| selection_size(rank as u64, count, head.has(ENC));
    let outside = split_count(head, body);
    if !head.has(DEFL) {
        return outside.map(|(count, rest)| (count, Bytes::AsStored(rest)));
    }
    if let Ok((count, rest)) = outside {
        let plain = selection_size(rank as u64, count, false);
        if [wanted(count), plain].contains(&(rest.len() as u64)) {
            return Ok((count, Bytes::AsStored(rest)));
        }
        if wanted(count) <= LARGEST_UNPACKED {
            let reservation = task.reserve(wanted(count))?;
            if let Ok(bytes) = inflate(rest, wanted(count)) {
                return Ok((count, Bytes::Inflated(Reserved::new(bytes, reservation))));
            }
        }
    }
    // The number is deflated, too.
    let (mut whole, reservation) = inflate_whole(task, body)?.into_parts();
    let (count, rest) = split_count(head, &whole)?;
    whole.drain(..whole.len() - rest.len());
    Ok((count, Bytes::Inflated(Reserved::new(whole, reservation))))
}

/// Inflates at most [`LARGEST_UNPACKED`] bytes, reserving memory step by step.
fn inflate_whole(task: &Task, body: &[u8]) -> Result<Reserved<Vec<u8>>, Fault> {
    let mut reservation = task.reservation();
    let (mut whole, mut piece) = (Vec::new(), [0; 1 << 12]);
    let mut inflated = flate2::read::ZlibDecoder::new(body).take(LARGEST_UNPACKED);
    loop {
        let read = inflated.read(&mut piece);
        match read.map_err(|e| Fault::from(e).at("a deflated selection that cannot be inflated"))? {
            0 => return Ok(Reserved::new(whole, reservation)),
            len => reservation.extend(&mut whole, &piece[..len])?,
        }
    }
}

fn split_count<'a>(head: &EntryHeader, body: &'a [u8]) -> Result<(u64, &'a [u8]), Fault> {
    if !head.has(MUL) {
        return Ok((1, body));
    }
    if body.len() < 4 {
        return Err("too short for a number of blocks".into());
    }
    let (count, rest) = body.split_at(4);
    let count = i32_at(count, 0);
    match u64::try_from(count) {
        Ok(n) if n > 0 => Ok((n, rest)),
        _ => Err(format!("{count} blocks").into()),
    }
}

/// Decodes the coordinates of section 6.2. `blocks` lists the start and count of each block.
fn decode(
    steps: &[i64],
    blocks: impl Iterator<Item = (i64, i64)>,
    spelling: SelectionEncoding,
    lists: &mut Lists,
) -> Result<(), Fault> {
    if steps.iter().any(|s| *s <= 0) {
        // Only a dataset without elements has such steps, and its blocks have no elements.
        return Err(format!("encoding steps {steps:?}").into());
    }
    let of_ones: i128 = steps.iter().map(|s| i128::from(*s)).sum::<i128>() + 1;
    let steps: Vec<u64> = steps.iter().map(|s| *s as u64).collect();
    for (start, count) in blocks {
        if start < 0 || count < 0 {
            return Err("a negative coordinate".into());
        }
        digits(start as u64, &steps, 0, &mut lists.starts);
        let over_ones = i128::from(count) - of_ones;
        if spelling == SelectionEncoding::Division || over_ones < 0 {
            digits(count as u64, &steps, 0, &mut lists.counts);
        } else {
            digits(over_ones as u64, &steps, 1, &mut lists.counts);
        }
    }
    Ok(())
}

/// Appends the mixed-radix digits of `value`, each increased by `add`.
fn digits(mut value: u64, steps: &[u64], add: u64, out: &mut Vec<u64>) {
    for step in steps {
        out.push(value / step + add);
        value %= step;
    }
    out.push(value + add);
}

/// Splits alternating groups of `rank` starts and `rank` counts.
fn unzip(values: impl Iterator<Item = u64>, rank: usize, lists: &mut Lists) {
    for (at, value) in values.enumerate() {
        if at % (2 * rank) < rank {
            lists.starts.push(value);
        } else {
            lists.counts.push(value);
        }
    }
}

/// Number of elements of all blocks without their first `drop` dimensions; `None` on overflow.
fn elements(counts: &[u64], rank: usize, drop: usize) -> Option<u64> {
    counts.chunks_exact(rank).try_fold(0u64, |total, block| {
        let product = block[drop..]
            .iter()
            .try_fold(1u64, |p, c| p.checked_mul(*c))?;
        total.checked_add(product)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Starts and counts of a single block.
    fn decoded(
        steps: &[i64],
        block: (i64, i64),
        spelling: SelectionEncoding,
    ) -> Result<(Vec<u64>, Vec<u64>), Fault> {
        let mut lists = Lists::with_room(&Task::unlimited(), steps.len() + 1)?;
        decode(steps, [block].into_iter(), spelling, &mut lists)?;
        Ok((lists.starts, lists.counts))
    }

    #[test]
    fn a_count_that_equals_its_dimension_is_not_carried() {
        // Section 6.2: extent (16,10), count (1,10) gives 20, which plain division reads as (2,0).
        let usual = decoded(&[10], (0, 20), SelectionEncoding::Usual).unwrap();
        assert_eq!(usual.1, [1, 10]);
        let division = decoded(&[10], (0, 20), SelectionEncoding::Division).unwrap();
        assert_eq!(division.1, [2, 0]);
    }

    #[test]
    fn a_step_of_zero_is_refused() {
        assert!(decoded(&[0], (1, 13), SelectionEncoding::Usual).is_err());
        assert!(decoded(&[i64::MIN], (1, 13), SelectionEncoding::Usual).is_err());
    }

    proptest! {
        #[test]
        fn what_the_writer_encodes_decodes(
            block in prop::collection::vec((1u64..9).prop_flat_map(|dim| {
                (Just(dim), 0..dim).prop_flat_map(|(dim, start)| (Just(dim), Just(start), 1..=dim - start))
            }), 2..5)
        ) {
            let dims: Vec<u64> = block.iter().map(|b| b.0).collect();
            let steps: Vec<i64> = (0..dims.len() - 1)
                .map(|i| dims[i + 1..].iter().product::<u64>() as i64)
                .collect();
            let encode = |values: Vec<u64>| -> i64 {
                let last = values[values.len() - 1] as i64;
                values.iter().zip(&steps).map(|(v, s)| *v as i64 * s).sum::<i64>() + last
            };
            let starts: Vec<u64> = block.iter().map(|b| b.1).collect();
            let counts: Vec<u64> = block.iter().map(|b| b.2).collect();
            let block = (encode(starts.clone()), encode(counts.clone()));
            let lists = decoded(&steps, block, SelectionEncoding::Usual);
            prop_assert_eq!(lists.unwrap(), (starts, counts));
        }
    }
}
