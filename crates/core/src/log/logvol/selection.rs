//! Decodes the blocks of one entry, in all encodings of the connector (section 6).

use std::borrow::Cow;
use std::io::Read;

use super::flags::{DEFL, ENC, MUL};
use super::table::{EntryHeader, i32_at, i64_at, selection_size};
use crate::log::Logged;
use crate::log::deflate::{inflate, largest_inflated};
use crate::log::model::Selection;

/// A way to read a body. Most bodies allow only one; for the others the size of the data decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SelectionEncoding {
    /// Section 6.1 or 6.2, with encoded counts of 1 or more.
    Usual,
    /// Encoded counts, decoded by plain division. This is right for blocks with a count of zero.
    Division,
    /// A merged entry: starts and counts alternate (section 6.6).
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
    /// Starts and counts of `rank` values of 8 bytes each. `merged`: they may alternate.
    Plain { bytes: Cow<'a, [u8]>, merged: bool },
    Encoded {
        steps: Vec<i64>,
        starts: Vec<i64>,
        counts: Vec<i64>,
    },
}

type Lists = (Vec<u64>, Vec<u64>);

impl<'a> Blocks<'a> {
    /// `rank`: of the dataset, less one where the entry carries a record number. `may_be_merged`:
    /// the file was written with merging on.
    pub fn parse(
        head: &EntryHeader,
        body: &'a [u8],
        rank: usize,
        may_be_merged: bool,
    ) -> Result<Self, String> {
        let (count, bytes) = unpack(head, body, rank)?;
        // Encoded coordinates are smaller than decoded ones.
        let decoded = selection_size(rank as u64, count, false);
        if matches!(bytes, Cow::Owned(_)) && decoded > LARGEST_UNPACKED {
            return Err(format!(
                "a deflated selection of {decoded} bytes, more than {LARGEST_UNPACKED}"
            ));
        }
        let size = bytes.len() as u64;
        let merged = may_be_merged && head.has(MUL) && head.record.is_none();
        let fits = |encoded| size == selection_size(rank as u64, count, encoded);
        let coordinates = if head.has(ENC) && fits(true) {
            let values = numbers(&bytes);
            let (steps, lists) = values.split_at(rank.saturating_sub(1));
            let (starts, counts) = lists.split_at(count as usize);
            Coordinates::Encoded {
                steps: steps.to_vec(),
                starts: starts.to_vec(),
                counts: counts.to_vec(),
            }
        } else if (merged || !head.has(ENC)) && fits(false) {
            Coordinates::Plain { bytes, merged }
        } else {
            return Err(format!(
                "{size} bytes of selection for {count} blocks of rank {rank}"
            ));
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

    /// Chooses the encoding whose elements take `data_size` bytes of the dataset. `drop`: leading dimensions of
    /// the blocks that the record number of the sharing entry replaces.
    pub fn choose(
        &mut self,
        dataset: &Logged<'_>,
        data_size: i64,
        drop: usize,
    ) -> Result<(), String> {
        let fits = |s: SelectionEncoding| {
            let (_, counts) = self.lists(s).ok()?;
            let elements = match self.rank {
                0 => self.count as u64,
                rank => elements(&counts, rank, drop)?,
            };
            let bytes = i128::from(elements) * i128::from(dataset.element_size);
            Some(bytes == i128::from(data_size))
        };
        // Without coordinates only the data bound the number of blocks.
        let stored = u64::try_from(data_size).unwrap_or(0);
        let least = (self.count as u64).saturating_mul(dataset.element_size);
        if self.rank == drop && least > largest_inflated(stored) {
            return Err(format!("{} blocks in {stored} bytes of data", self.count));
        }
        match &self.coordinates {
            Coordinates::Encoded { .. } => {
                if fits(SelectionEncoding::Usual) != Some(true)
                    && fits(SelectionEncoding::Division) == Some(true)
                {
                    self.spelling = SelectionEncoding::Division;
                }
                Ok(())
            }
            Coordinates::Plain { merged: true, .. } if self.count > 1 => {
                let inside = |s: &SelectionEncoding| self.is_inside(*s, dataset);
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
                    _ => return Err("a merged entry that cannot be told apart".into()),
                };
                Ok(())
            }
            Coordinates::Plain { .. } => Ok(()),
        }
    }

    /// Whether all blocks have elements and lie within the extent of the dataset.
    fn is_inside(&self, spelling: SelectionEncoding, dataset: &Logged<'_>) -> bool {
        let Ok((starts, counts)) = self.lists(spelling) else {
            return false;
        };
        let dims = dataset.dims.iter().cycle();
        starts
            .iter()
            .zip(&counts)
            .zip(dims)
            .all(|((s, c), dim)| *c > 0 && s.checked_add(*c).is_some_and(|end| end <= *dim))
    }

    /// The selection, without the first `drop` dimensions.
    pub fn selection(&self, drop: usize) -> Result<Selection, String> {
        let (rank, own) = (self.rank - drop, self.rank);
        if let Coordinates::Plain { bytes, .. } = &self.coordinates
            && self.spelling == SelectionEncoding::Usual
        {
            check_signs(bytes)?;
            let at = |number: usize| i64_at(bytes, 8 * number) as u64;
            let counts = self.count * own;
            return Selection::new(
                rank,
                self.count,
                |block, d| at(block * own + drop + d),
                |block, d| at(counts + block * own + drop + d),
            );
        }
        let (starts, counts) = self.lists(self.spelling)?;
        let at = |list: &[u64], block: usize, d: usize| list[block * own + drop + d];
        Selection::new(
            rank,
            self.count,
            |block, d| at(&starts, block, d),
            |block, d| at(&counts, block, d),
        )
    }

    /// Starts and counts of all blocks, `rank` values each.
    fn lists(&self, spelling: SelectionEncoding) -> Result<Lists, String> {
        match &self.coordinates {
            Coordinates::Plain { bytes, .. } => {
                check_signs(bytes)?;
                let values = numbers(bytes).into_iter().map(|v| v as u64);
                let values: Vec<u64> = values.collect();
                Ok(match spelling {
                    SelectionEncoding::Pairs => unzip(&values, self.rank),
                    _ => {
                        let (starts, counts) = values.split_at(values.len() / 2);
                        (starts.to_vec(), counts.to_vec())
                    }
                })
            }
            Coordinates::Encoded {
                steps,
                starts,
                counts,
            } => decode(steps, starts, counts, spelling),
        }
    }
}

/// Little-endian numbers of 8 bytes.
fn numbers(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|b| i64_at(b, 0)).collect()
}

fn check_signs(bytes: &[u8]) -> Result<(), String> {
    let signs = bytes.chunks_exact(8).fold(0, |signs, b| signs | b[7]);
    match signs & 0x80 {
        0 => Ok(()),
        _ => Err("a negative coordinate".into()),
    }
}

/// The most bytes of a selection that is inflated, and of its decoded coordinates.
const LARGEST_UNPACKED: u64 = 64 << 20;

/// The number of blocks, and the bytes of the coordinates, inflated where they are deflated (section 6.4). No known
/// writer deflates them, and the two descriptions of the format differ on the place of the count.
fn unpack<'a>(
    head: &EntryHeader,
    body: &'a [u8],
    rank: usize,
) -> Result<(u64, Cow<'a, [u8]>), String> {
    let wanted = |count| selection_size(rank as u64, count, head.has(ENC));
    let outside = split_count(head, body);
    if !head.has(DEFL) {
        return outside.map(|(count, rest)| (count, Cow::Borrowed(rest)));
    }
    if let Ok((count, rest)) = outside {
        let plain = selection_size(rank as u64, count, false);
        if [wanted(count), plain].contains(&(rest.len() as u64)) {
            return Ok((count, Cow::Borrowed(rest)));
        }
        if wanted(count) <= LARGEST_UNPACKED
            && let Ok(bytes) = inflate(rest, wanted(count))
        {
            return Ok((count, Cow::Owned(bytes)));
        }
    }
    // The count is deflated, too.
    let mut whole = Vec::new();
    flate2::read::ZlibDecoder::new(body)
        .take(LARGEST_UNPACKED)
        .read_to_end(&mut whole)
        .map_err(|e| format!("a deflated selection that does not inflate: {e}"))?;
    let (count, rest) = split_count(head, &whole)?;
    Ok((count, Cow::Owned(rest.to_vec())))
}

fn split_count<'a>(head: &EntryHeader, body: &'a [u8]) -> Result<(u64, &'a [u8]), String> {
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
        _ => Err(format!("{count} blocks")),
    }
}

/// Section 6.2.
fn decode(
    steps: &[i64],
    starts: &[i64],
    counts: &[i64],
    spelling: SelectionEncoding,
) -> Result<Lists, String> {
    if steps.iter().any(|s| *s <= 0) {
        // Only a dataset without elements has such steps, and no block of it has elements.
        return Err(format!("encoding steps {steps:?}"));
    }
    let of_ones: i128 = steps.iter().map(|s| i128::from(*s)).sum::<i128>() + 1;
    let steps: Vec<u64> = steps.iter().map(|s| *s as u64).collect();
    let rank = steps.len() + 1;
    let mut lists = (
        Vec::with_capacity(starts.len() * rank),
        Vec::with_capacity(counts.len() * rank),
    );
    for (start, count) in starts.iter().zip(counts) {
        if *start < 0 || *count < 0 {
            return Err("a negative coordinate".into());
        }
        digits(*start as u64, &steps, 0, &mut lists.0);
        let over_ones = i128::from(*count) - of_ones;
        if spelling == SelectionEncoding::Division || over_ones < 0 {
            digits(*count as u64, &steps, 0, &mut lists.1);
        } else {
            digits(over_ones as u64, &steps, 1, &mut lists.1);
        }
    }
    Ok(lists)
}

/// Appends the mixed-radix digits of `value`, each increased by `add`.
fn digits(mut value: u64, steps: &[u64], add: u64, out: &mut Vec<u64>) {
    for step in steps {
        out.push(value / step + add);
        value %= step;
    }
    out.push(value + add);
}

fn unzip(values: &[u64], rank: usize) -> Lists {
    let mut lists = (Vec::new(), Vec::new());
    for pair in values.chunks_exact((2 * rank).max(1)) {
        lists.0.extend_from_slice(&pair[..rank]);
        lists.1.extend_from_slice(&pair[rank..]);
    }
    lists
}

/// Elements of all blocks without their first `drop` dimensions; `None` where they overflow.
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

    #[test]
    fn a_count_that_equals_its_dimension_is_not_carried() {
        // Section 6.2: extent (16,10), count (1,10) gives 20, which plain division reads as (2,0).
        let usual = decode(&[10], &[0], &[20], SelectionEncoding::Usual).unwrap();
        assert_eq!(usual.1, [1, 10]);
        let division = decode(&[10], &[0], &[20], SelectionEncoding::Division).unwrap();
        assert_eq!(division.1, [2, 0]);
    }

    #[test]
    fn a_step_of_zero_is_refused() {
        assert!(decode(&[0], &[1], &[13], SelectionEncoding::Usual).is_err());
        assert!(decode(&[i64::MIN], &[1], &[13], SelectionEncoding::Usual).is_err());
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
            let lists = decode(&steps, &[encode(starts.clone())], &[encode(counts.clone())], SelectionEncoding::Usual);
            prop_assert_eq!(lists.unwrap(), (starts, counts));
        }
    }
}
