//! The rows of `md.idx` (section 4.1).

use crate::fields::Fields;
use crate::{Bytes, Result};

/// Bytes of the header, and of each row behind it.
const ROW: usize = 64;

/// Rows that are read at a time.
const ROWS: usize = 1024;

/// The first version of ADIOS2 whose operators have the header of section 5.
const HEADERS_SINCE: [u8; 3] = [2, 8, 0];

/// Where the metadata of all steps lie.
#[derive(Debug)]
pub struct Index {
    pub(super) is_big_endian: bool,
    /// Blocks with an operator have no header of section 5 (section 4.7).
    pub(super) has_bare_operators: bool,
    rows: Vec<Row>,
    problems: Vec<String>,
}

/// Where the metadata of one step lie in `md.0`: its indices follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    /// Of process groups.
    pub begin: u64,
    pub variables: u64,
    pub attributes: u64,
    pub end: u64,
}

impl Index {
    /// Reads the rows of `md.idx`. The first one that is not complete, or breaks the rules, ends the list.
    pub fn open(index: &dyn Bytes) -> Result<Self> {
        let mut header = [0; ROW];
        index.read_exact_at(&mut header, 0)?;
        let version = [header[32], header[33], header[34]].map(|n| n.wrapping_sub(b'0'));
        let mut this = Index {
            is_big_endian: header[36] == 1,
            has_bare_operators: version < HEADERS_SINCE,
            rows: Vec::new(),
            problems: Vec::new(),
        };
        let mut at = ROW as u64;
        let mut rows = vec![0; ROW * ROWS];
        loop {
            let left = (index.len().saturating_sub(at) / ROW as u64).min(ROWS as u64) as usize;
            let rows = &mut rows[..left * ROW];
            index.read_exact_at(rows, at)?;
            at += rows.len() as u64;
            let is_whole = rows.chunks_exact(ROW).all(|row| this.add(row));
            if left == 0 || !is_whole {
                return Ok(this);
            }
        }
    }

    /// Adds a row. Returns whether it keeps to the rules.
    fn add(&mut self, row: &[u8]) -> bool {
        let row = Row::read(Fields::new(row, self.is_big_endian));
        match row {
            Ok(row) => self.rows.push(row),
            Err(fault) => self.cut(self.rows.len(), &fault.to_string()),
        }
        self.problems.is_empty()
    }

    /// Ends the list with the last step whose metadata lie in the first `len` bytes of `md.0`.
    pub fn limit(&mut self, len: u64) {
        if let Some(step) = self.rows.iter().position(|row| row.end > len) {
            self.cut(
                step,
                &format!("md.0 has {len} bytes and ends before the metadata do"),
            );
        }
    }

    /// Drops all steps from this one on.
    fn cut(&mut self, step: usize, reason: &str) {
        self.rows.truncate(step);
        let problem = format!("step {step} and those after it are not there: {reason}");
        self.problems = vec![problem];
    }

    /// Number of complete steps.
    pub fn steps(&self) -> usize {
        self.rows.len()
    }

    /// Why the list of steps ends, where it is not the end of `md.idx`.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The most writers of a step. Their number changes where a program appends: the first and the last step are asked.
    pub fn writers(&self, metadata: &dyn Bytes) -> Result<u64> {
        let mut most = 0;
        for row in self.rows.first().into_iter().chain(self.rows.last()) {
            let mut count = [0; 8];
            metadata.read_exact_at(&mut count, row.begin)?;
            most = most.max(Fields::new(&count, self.is_big_endian).u64()?);
        }
        Ok(most)
    }

    pub(super) fn row(&self, step: usize) -> Result<&Row> {
        self.rows
            .get(step)
            .ok_or_else(|| format!("there is no step {step}").into())
    }
}

impl Row {
    fn read(mut fields: Fields<'_>) -> Result<Self> {
        let (step, _rank) = (fields.u64()?, fields.u64()?);
        let row = Row {
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
        if step == 0 || !places.is_sorted() {
            return Err("its row in md.idx has no sound places".into());
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(rows: &[[u64; 6]]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[32..35].copy_from_slice(b"2:0");
        for row in rows {
            bytes.extend(row.iter().chain(&[0; 2]).flat_map(|n| n.to_le_bytes()));
        }
        bytes
    }

    #[test]
    fn what_is_not_complete_ends_the_list() {
        let rows = [[1, 0, 64, 80, 90, 100], [2, 0, 100, 120, 130, 140]];
        let mut bytes = index(&rows);
        bytes.extend([1; 63]);
        let mut read = Index::open(&bytes).unwrap();
        assert_eq!((read.steps(), read.problems().len()), (2, 0));
        read.limit(140);
        assert_eq!(read.steps(), 2);
        read.limit(139);
        assert_eq!((read.steps(), read.problems().len()), (1, 1));
        assert!(read.problems()[0].starts_with("step 1 and those after it"));
    }

    #[test]
    fn a_row_with_places_out_of_order_ends_the_list() {
        let sound = [1, 0, 64, 80, 90, 100];
        for bad in [[2, 0, 64, 80, 79, 100], [2, 0, 63, 80, 90, 100], [0; 6]] {
            let read = Index::open(&index(&[sound, bad, sound])).unwrap();
            assert_eq!((read.steps(), read.problems().len()), (1, 1));
        }
    }

    #[test]
    fn many_rows_are_read_in_parts() {
        let rows = vec![[1, 0, 64, 64, 64, 64]; 2 * ROWS + 1];
        assert_eq!(Index::open(&index(&rows)).unwrap().steps(), rows.len());
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let old = |version: &[u8; 3]| {
            let mut bytes = index(&[]);
            bytes[32..35].copy_from_slice(version);
            Index::open(&bytes).unwrap().has_bare_operators
        };
        assert!(old(b"273"));
        assert!(!old(b"280"));
        assert!(!old(b"2:0"));
        assert!(!old(b"300"));
    }
}
