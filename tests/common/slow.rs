//! Logs whose few bytes demand very much work.

use std::fs;
use std::iter;
use std::path::Path;

use super::encoder::{Block, Dataset, Deflated, Entry, LogFile, Spelling, Type};

/// A log with expensive chunks. Each entry lists one column again and again, another one than all other entries. So
/// an entry is small, none hides another, and every element of every block must be examined.
#[derive(Debug, Clone, Copy)]
pub struct SlowLog {
    pub chunks: u64,
    /// Rows of a chunk.
    pub rows: u64,
    pub columns: u64,
    /// Number of times that an entry lists its column.
    pub repeated: u64,
}

impl SlowLog {
    pub fn write(self, path: &Path) {
        let dims = [self.chunks * self.rows, self.columns];
        let dataset = Dataset::new("slow", 0, Type::U8, &dims).chunked(&[self.rows, self.columns]);
        let len = (dims[0] * self.repeated) as usize;
        // All entries claim the data of the first one, whose place is known after a first write of the file.
        let write = |place: Option<usize>| {
            let entry = |column: u64| {
                let block: Block = (vec![0, column], vec![dims[0], 1]);
                let blocks = vec![block; self.repeated as usize];
                let data = if column == 0 {
                    vec![MARK; len]
                } else {
                    Vec::new()
                };
                let spelling = Spelling::Deflated {
                    extent: Some(dims.to_vec()),
                    form: Deflated::AfterCount,
                };
                let entry = Entry::many(0, blocks, data).spelled(spelling);
                entry.claiming(place.unwrap_or(0) as i64, len as i64)
            };
            // The last column stays unwritten.
            let entries = (0..self.columns - 1).map(entry);
            LogFile::with(vec![dataset.clone()], entries.collect()).write(path);
        };
        write(None);
        let bytes = fs::read(path).unwrap();
        let mark: Vec<u8> = iter::repeat_n(MARK, 64).collect();
        write(bytes.windows(64).position(|part| part == mark));
    }
}

/// The value of all data of a slow log.
const MARK: u8 = 0xa7;
