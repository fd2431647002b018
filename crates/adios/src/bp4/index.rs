//! The rows of `md.idx` (section 4.1).

use crate::Files;
use crate::fields::Fields;
use crate::header::Header;
use crate::{Bytes, Result};

/// Bytes of a row.
pub(super) const ROW: usize = 64;

/// Rows that are read at a time.
const ROWS: usize = 1024;

/// Offset of ADIOS2's version in the header: three numbers as characters, where `:` is 10.
const VERSION_AT: u64 = 32;

/// The first version of ADIOS2 whose operators have the header of section 5.
const HEADERS_SINCE: [u8; 3] = [2, 8, 0];

/// The places of the metadata of all steps.
#[derive(Debug)]
pub struct Index {
    pub(super) is_big_endian: bool,
    /// Blocks with an operator lack the header of section 5 (section 4.7).
    pub(super) has_bare_operators: bool,
    rows: Vec<Row>,
    problems: Vec<String>,
}

/// The place of one step's metadata in `md.0`. The indices of a step are contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    /// Number of the step, from 0. An empty step may have no row.
    pub step: usize,
    /// Start of the process groups.
    pub begin: u64,
    pub variables: u64,
    pub attributes: u64,
    pub end: u64,
}

impl Index {
    /// Reads the rows of `md.idx`, up to the first row that is incomplete or has incomplete metadata.
    pub fn open(files: Files<'_>, header: Header) -> Result<Self> {
        let index = files.index;
        let mut version = [0; 3];
        index.read_exact_at(&mut version, VERSION_AT)?;
        let mut this = Index {
            is_big_endian: header.is_big_endian,
            has_bare_operators: version.map(|digit| digit.wrapping_sub(b'0')) < HEADERS_SINCE,
            rows: Vec::new(),
            problems: Vec::new(),
        };
        let len = files.metadata.len();
        let mut at = Header::LEN as u64;
        let mut rows = vec![0; ROW * ROWS];
        loop {
            let left = (index.len().saturating_sub(at) / ROW as u64).min(ROWS as u64) as usize;
            let rows = &mut rows[..left * ROW];
            index.read_exact_at(rows, at)?;
            at += rows.len() as u64;
            let is_whole = rows.chunks_exact(ROW).all(|row| this.add(row, len));
            if !is_whole {
                return Ok(this);
            }
            if left == 0 {
                break;
            }
        }
        let rest = index.len().saturating_sub(at);
        if rest > 0 && !header.is_active {
            let problem = format!("md.idx: its last {rest} bytes are an incomplete row");
            this.problems.push(problem);
        }
        Ok(this)
    }

    /// Adds a row if it is valid and an `md.0` of `len` bytes has its step. Returns whether it was added.
    fn add(&mut self, row: &[u8], len: u64) -> bool {
        let step = self.steps();
        match Row::read(Fields::new(row, self.is_big_endian), step, len) {
            Ok(row) => self.rows.push(row),
            Err(reason) => self.problems.push(format!(
                "step {step} and those after it are not there: {reason}"
            )),
        }
        self.problems.is_empty()
    }

    /// Number of rows of an `md.idx`.
    pub fn steps_of(index: &dyn Bytes) -> Result<usize> {
        let len = index.len().saturating_sub(Header::LEN as u64);
        Ok(usize::try_from(len / ROW as u64)?)
    }

    /// Number of complete steps, including those without a row.
    pub fn steps(&self) -> usize {
        self.rows.last().map_or(0, |row| row.step.saturating_add(1))
    }

    /// The steps that have rows.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        self.rows.iter().map(|row| row.step)
    }

    /// The first row, of the first step into which anything was put.
    pub(super) fn first(&self) -> Option<&Row> {
        self.rows.first()
    }

    /// Bytes of metadata of a step; 0 without a row.
    pub fn metadata_len(&self, step: usize) -> u64 {
        let row = self.row(step).ok().flatten();
        row.map_or(0, |row| row.end - row.begin)
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
    }

    /// Reasons why the list of steps ends before `md.idx` does.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The largest number of writers of a step. It changes only where a program appends, so the first and last step
    /// are read.
    pub fn writers(&self, metadata: &dyn Bytes) -> Result<u64> {
        let mut most = 0;
        for row in self.rows.first().into_iter().chain(self.rows.last()) {
            let mut count = [0; 8];
            metadata.read_exact_at(&mut count, row.begin)?;
            most = most.max(Fields::new(&count, self.is_big_endian).u64()?);
        }
        Ok(most)
    }

    /// The row of a step; `None` if it has none. Fails where there is no such step.
    pub(super) fn row(&self, step: usize) -> Result<Option<&Row>> {
        if step >= self.steps() {
            return Err(format!("there is no step {step}").into());
        }
        let place = self.rows.binary_search_by_key(&step, |row| row.step);
        Ok(place.ok().and_then(|place| self.rows.get(place)))
    }
}

impl Row {
    /// Reads a row. `least` is the smallest step number that it can have, because numbers ascend.
    fn read(mut fields: Fields<'_>, least: usize, len: u64) -> Result<Self> {
        let (step, _rank) = (fields.u64()?, fields.u64()?);
        // Metadata stores the number in four bytes.
        let step = u32::try_from(step)
            .ok()
            .and_then(|step| usize::try_from(step.checked_sub(1)?).ok());
        let row = Row {
            step: step
                .filter(|step| *step >= least)
                .ok_or("its row in md.idx has no sound number")?,
            begin: fields.u64()?,
            variables: fields.u64()?,
            attributes: fields.u64()?,
            end: fields.u64()?,
        };
        let places = [
            ROW as u64,
            row.begin,
            row.variables,
            row.attributes,
            row.end,
        ];
        if !places.is_sorted() {
            return Err("its row in md.idx has no sound places".into());
        }
        if row.end > len {
            return Err(format!("md.0 has {len} bytes and ends before the metadata do").into());
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index of these rows and of an incomplete one, where `md.0` has `len` bytes.
    fn open(rows: &[[u64; 6]], version: &[u8; 3], len: usize) -> Index {
        let mut bytes = vec![0; 64];
        bytes[..10].copy_from_slice(b"ADIOS-BP v");
        bytes[32..35].copy_from_slice(version);
        (bytes[37], bytes[38]) = (4, 1);
        for row in rows {
            bytes.extend(row.iter().chain(&[0; 2]).flat_map(|n| n.to_le_bytes()));
        }
        bytes.extend([1; 63]);
        let files = Files {
            index: &bytes,
            metadata: &vec![0; len],
            formats: None,
        };
        Index::open(files, Header::read(&bytes).unwrap()).unwrap()
    }

    #[test]
    fn what_is_not_complete_ends_the_list() {
        let rows = [[1, 0, 64, 80, 90, 100], [2, 0, 100, 120, 130, 140]];
        let whole = open(&rows, b"2:0", 140);
        assert_eq!((whole.steps(), whole.problems().len()), (2, 0));
        let short = open(&rows, b"2:0", 139);
        assert_eq!((short.steps(), short.problems().len()), (1, 1));
        assert!(short.problems()[0].starts_with("step 1 and those after it"));
    }

    #[test]
    fn a_row_with_places_out_of_order_ends_the_list() {
        let row = |number| [number, 0, 64, 80, 90, 100];
        for bad in [[2, 0, 64, 80, 79, 100], [2, 0, 63, 80, 90, 100], [0; 6]] {
            let read = open(&[row(1), bad, row(3)], b"2:0", 100);
            assert_eq!((read.steps(), read.problems().len()), (1, 1));
        }
    }

    #[test]
    fn a_row_with_a_number_out_of_order_ends_the_list() {
        let row = |number| [number, 0, 64, 80, 90, 100];
        for bad in [0, 1, 1 << 32, u64::MAX] {
            let read = open(&[row(1), row(bad), row(2)], b"2:0", 100);
            assert_eq!((read.steps(), read.problems().len()), (1, 1), "{bad}");
        }
    }

    #[test]
    fn many_rows_are_read_in_parts() {
        let count = 2 * ROWS as u64 + 1;
        let rows: Vec<_> = (1..=count).map(|step| [step, 0, 64, 64, 64, 64]).collect();
        assert_eq!(open(&rows, b"2:0", 64).steps(), rows.len());
    }

    #[test]
    fn steps_into_which_nothing_was_put_have_no_rows() {
        let rows = [1, 2, 4].map(|step| [step, 0, 64, 64, 64, 64]);
        let read = open(&rows, b"2:0", 64);
        assert_eq!(read.steps(), 4);
        assert_eq!(read.numbers().collect::<Vec<_>>(), [0, 1, 3]);
        let row = |step| read.row(step).unwrap().map(|row| row.step);
        assert_eq!([0, 1, 2, 3].map(row), [Some(0), Some(1), None, Some(3)]);
        assert!(read.row(4).is_err());
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let is_old = |version| open(&[], version, 64).has_bare_operators;
        assert!(is_old(b"273"));
        assert!(
            [b"280", b"2:0", b"300"]
                .into_iter()
                .all(|version| !is_old(version))
        );
    }
}
