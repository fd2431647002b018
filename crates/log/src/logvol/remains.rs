//! Describes a file that the connector never closed (section 12): elements, without any HDF5 metadata. If the program
//! has read from the file, the file ends with a table of its writes.

use std::collections::BTreeSet;
use std::fmt;

use crate::source_file::SourceFile;
use h5logfs_common::fault::Fault;

/// Bytes that are examined at the start, for the end of the zeros, and at the end, for a table.
const MOST_LOOKED_AT: u64 = 16 << 20;
/// The most positions that are tried for a table, because elements may look like the start of one.
const MOST_TRIES: usize = 64;
/// The most sections in a table. There is one for each process.
const MOST_SECTIONS: usize = 1 << 20;
/// Bytes of an entry before its selection (section 5).
const HEADER: usize = 28;

/// The description of such a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Remains {
    /// Number of leading zeros: space that the close would have filled.
    zeros: u64,
    /// Length of the file.
    len: u64,
    table: Option<Writes>,
}

/// The table of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Writes {
    /// Offset in the file.
    begin: u64,
    writes: u64,
    datasets: usize,
    /// Bytes of elements in all writes.
    bytes: u64,
}

impl Remains {
    /// Describes a file without an HDF5 signature. `None` if it is not the connector's: the connector reserves space
    /// for a superblock.
    pub fn of(file: &SourceFile) -> Result<Option<Self>, Fault> {
        const ROOM: u64 = 512;
        let len = file.len();
        let zeros = zeros(file)?;
        if zeros < ROOM.min(len) || len == 0 {
            return Ok(None);
        }
        let begin = len - len.min(MOST_LOOKED_AT);
        let mut end = vec![0; (len - begin) as usize];
        file.read_exact_at(&mut end, begin)?;
        Ok(Some(Remains {
            zeros,
            len,
            table: find_table(&end, begin),
        }))
    }
}

impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "it has no metadata of HDF5. The Log VOL connector leaves such a file when its job ends before the close, which \
             writes them. ",
        )?;
        let Remains { zeros, len, table } = self;
        if zeros == len {
            return write!(
                f,
                "All of its {len} bytes are zeros: there is nothing to recover"
            );
        }
        write!(
            f,
            "Behind {zeros} zeros it then has elements, in the order of the flushes and of the ranks in each. Names, types and \
             extents of the datasets were in the memory of the job"
        )?;
        match table {
            None => write!(
                f,
                ", and so was which elements are whose. {} bytes are there, and nothing says what they mean: they cannot \
                 be recovered",
                len - zeros
            ),
            Some(found) => write!(
                f,
                ". Its last {} bytes, from byte {} on, are a table of {} writes to {} datasets, {} bytes of elements: it \
                 has the number of the dataset, the blocks and the place of each write (docs/formats/logvol.md, section \
                 4). With types from the program's source a script can take them out; h5logfs cannot show them",
                len - found.begin,
                found.begin,
                found.writes,
                found.datasets,
                found.bytes
            ),
        }
    }
}

/// Number of zeros at the start of a file, within the examined part.
fn zeros(file: &SourceFile) -> Result<u64, Fault> {
    const STEP: u64 = 64 << 10;
    let most = file.len().min(MOST_LOOKED_AT);
    let mut buffer = vec![0; STEP.min(most) as usize];
    let mut at = 0;
    while at < most {
        let part = &mut buffer[..STEP.min(most - at) as usize];
        file.read_exact_at(part, at)?;
        if let Some(other) = part.iter().position(|byte| *byte != 0) {
            return Ok(at + other as u64);
        }
        at += part.len() as u64;
    }
    Ok(most)
}

/// Finds the table at the end of a file. `bytes` are the last bytes of the file, and `offset` is their position.
fn find_table(bytes: &[u8], offset: u64) -> Option<Writes> {
    let number = |at: usize| Some(i64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    // The last section ends at the end of the file.
    let is_head = |at: &usize| {
        let sections = number(*at).and_then(|n| usize::try_from(n).ok());
        let sections = sections.filter(|n| (1..=MOST_SECTIONS).contains(n));
        let last = sections.and_then(|n| number(at + 8 * n));
        last.is_some_and(|last| usize::try_from(last) == Ok(bytes.len() - at))
    };
    let heads = (0..bytes.len()).filter(is_head).take(MOST_TRIES);
    heads
        .into_iter()
        .find_map(|at| writes(&bytes[at..], offset + at as u64))
}

/// The contents of a table at offset `begin` of the file. `None` if it is not a table.
fn writes(table: &[u8], begin: u64) -> Option<Writes> {
    let (sections, rest) = table.split_first_chunk()?;
    let sections = usize::try_from(i64::from_le_bytes(*sections)).ok()?;
    let (ends, _) = rest.get(..8 * sections)?.as_chunks();
    let mut at = 8 + 8 * sections;
    let (mut found, mut datasets, mut bytes) = (0, BTreeSet::new(), 0u64);
    for end in ends {
        let end = usize::try_from(i64::from_le_bytes(*end)).ok()?;
        let mut section = table.get(at..end)?;
        while !section.is_empty() {
            let entry = section.first_chunk::<HEADER>()?;
            let (small, large) = (entry[..12].as_chunks().0, entry[12..].as_chunks().0);
            let size = usize::try_from(i32::from_le_bytes(small[0])).ok()?;
            let [place, stored] = [large[0], large[1]].map(u64::from_le_bytes);
            let is_before = place.checked_add(stored).is_some_and(|end| end <= begin);
            if size < HEADER || !is_before {
                return None;
            }
            section = section.get(size..)?;
            datasets.insert(i32::from_le_bytes(small[1]));
            bytes = bytes.checked_add(stored)?;
            found += 1;
        }
        at = end;
    }
    (found > 0).then_some(Writes {
        begin,
        writes: found,
        datasets: datasets.len(),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(dataset: i32, place: u64, stored: u64) -> Vec<u8> {
        let numbers = [36i32, dataset, 0].map(i32::to_le_bytes).concat();
        let places = [place, stored, 0].map(u64::to_le_bytes).concat();
        [numbers, places].concat()
    }

    #[test]
    fn a_table_is_found_where_it_ends_the_file() {
        let elements: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let entries = [entry(0, 10, 20), entry(1, 30, 40), entry(0, 70, 930)].concat();
        // Three processes. The second one wrote nothing.
        let ends = [3u64, 68, 68, 140].map(u64::to_le_bytes).concat();
        let table = [ends, entries].concat();
        let bytes = [&elements[..], &table].concat();
        let found = find_table(&bytes, 5000).unwrap();
        let expected = Writes {
            begin: 6000,
            writes: 3,
            datasets: 2,
            bytes: 990,
        };
        assert_eq!(found, expected);
        assert_eq!(find_table(&bytes[..bytes.len() - 1], 5000), None);
        let mut behind = bytes.clone();
        // Elements after the table.
        behind[1000 + 32 + 12..][..8].copy_from_slice(&6001u64.to_le_bytes());
        assert_eq!(find_table(&behind, 5000), None);
        assert_eq!(find_table(&[], 0), None);
    }
}
