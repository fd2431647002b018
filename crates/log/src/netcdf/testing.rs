//! Builds logs with fields of any value for tests, and reads the elements of their records.

use std::ops::ControlFlow;
use std::path::Path;

use super::{ProcessLog, Tables, Variable};
use crate::arrangement::Arrangement;
use crate::boxes::Bounds;
use crate::layout::{Layout, RecordTable};
use crate::model::Logged;
use crate::model::{Encoding, Record, Selections};
use crate::numbers::NumberType;
use crate::source_dir::SourceDir;
use crate::source_file::SourceFile;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::task::Task;

#[path = "../../../../tests/common/burst/bytes.rs"]
mod bytes;

pub use bytes::HOST;
use bytes::{Head, Header, Order};

/// The two files of a log.
#[derive(Debug, Clone)]
pub struct LogBytes {
    pub big_endian: bool,
    pub path: String,
    pub ranks: i64,
    pub rank: i64,
    pub num_entries: i64,
    /// The header's field `entry_begin`; `None` writes the number of entries there.
    pub entry_begin: Option<i64>,
    pub entries: Vec<Vec<u8>>,
    pub data: Vec<u8>,
}

impl LogBytes {
    pub fn new(big_endian: bool) -> Self {
        LogBytes {
            big_endian,
            path: "/data/run/file.nc".into(),
            ranks: 1,
            rank: 0,
            num_entries: 0,
            entry_begin: None,
            entries: Vec::new(),
            data: bytes::MAGIC.to_vec(),
        }
    }

    fn order(&self) -> Order {
        Order {
            big_endian: self.big_endian,
        }
    }

    pub fn word(&self, number: i64) -> [u8; 8] {
        self.order().word(number)
    }

    /// Adds an entry with these index arrays. Its payload is appended to the data log.
    pub fn put(
        &mut self,
        call: i32,
        kind: i32,
        variable: i32,
        rank: i32,
        words: &[i64],
        payload: &[u8],
    ) {
        let head = Head {
            call,
            memory: kind,
            variable,
            rank,
            offset: self.data.len() as i64,
            len: payload.len() as i64,
        };
        let entry = bytes::entry(self.order(), head, words);
        self.entries.push(entry);
        self.data.extend(payload);
    }

    /// Overwrites bytes of the last entry with numbers in the log's byte order.
    pub fn bend(&mut self, at: usize, number: &[u8]) {
        let last = self.entries.last_mut().unwrap();
        last[at..at + number.len()].copy_from_slice(number);
    }

    pub fn header_len(&self) -> usize {
        bytes::header_len(&self.path)
    }

    pub fn metadata(&self) -> Vec<u8> {
        let header = Header {
            path: &self.path,
            ranks: self.ranks,
            rank: self.rank,
            num_entries: self.num_entries,
            entry_begin: self.entry_begin.unwrap_or(self.entries.len() as i64),
        };
        let mut metadata = header.bytes(self.order());
        metadata.extend(self.entries.concat());
        metadata
    }
}

/// Source files with the given bytes.
pub fn sources(files: &[&[u8]]) -> (tempfile::TempDir, Vec<SourceFile>) {
    let dir = tempfile::tempdir().unwrap();
    let numbered = files.iter().enumerate();
    let opened = numbered.map(|(number, bytes)| rewritten(&dir, number, bytes));
    let opened = opened.collect();
    (dir, opened)
}

/// A source file whose bytes are replaced.
pub fn rewritten(dir: &tempfile::TempDir, number: usize, bytes: &[u8]) -> SourceFile {
    let name = format!("file{number}");
    std::fs::write(dir.path().join(&name), bytes).unwrap();
    let held = SourceDir::open(dir.path()).unwrap();
    SourceFile::open(&held, Path::new(&name)).unwrap()
}

/// A netCDF file with these bytes, and its logs. Each log has two sources, from number 1 on.
pub fn with_logs(
    master: &[u8],
    logs: &[LogBytes],
) -> (tempfile::TempDir, Vec<SourceFile>, Vec<ProcessLog>) {
    let metadata: Vec<Vec<u8>> = logs.iter().map(LogBytes::metadata).collect();
    let of_logs = logs.iter().zip(&metadata);
    let files = of_logs.flat_map(|(log, metadata)| [metadata.as_slice(), &log.data]);
    let files: Vec<&[u8]> = std::iter::once(master).chain(files).collect();
    let (dir, mut opened) = sources(&files);
    let first = opened.remove(0).arranged(Arrangement::ZerosAfter).unwrap();
    opened.insert(0, first);
    let named = logs.iter().zip(0u16..).map(|(log, number)| ProcessLog {
        metadata: 2 * number + 1,
        data: Some(2 * number + 2),
        generation: 0,
        rank: log.rank as u64,
    });
    (dir, opened, named.collect())
}

pub fn variable(kind: NumberType, dims: &[u64]) -> Variable {
    Variable {
        kind,
        is_text: false,
        is_record: dims.first() == Some(&0),
        dims: dims.to_vec(),
        begin: 1 << 20,
        fill: [0xee; 8],
    }
}

/// A variable as a reader would see it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ShownVariable {
    /// Elements in row-major order, little-endian; zeros for elements without a record.
    pub bytes: Vec<u8>,
    /// The reasons why elements cannot be read. They are zeros here.
    pub lost: Vec<String>,
    pub diagnostics: Vec<String>,
}

/// The elements of a variable's records, as a reader sees them.
pub fn shown(sources: &[SourceFile], tables: &Tables, id: usize, dims: &[u64]) -> ShownVariable {
    let table = tables
        .read_tables(&Task::unlimited(), sources, &[])
        .unwrap();
    shown_by(&*table, sources, tables, id, dims)
}

fn shown_by(
    table: &dyn RecordTable,
    sources: &[SourceFile],
    tables: &Tables,
    id: usize,
    dims: &[u64],
) -> ShownVariable {
    let element = tables.variables[id].kind.size();
    let dataset = Logged {
        id: id as i64,
        dims,
        element_size: element as u64,
        filtered: false,
    };
    let found = table
        .records(
            &Task::unlimited(),
            sources,
            &dataset,
            &Selections::default(),
        )
        .unwrap();
    let all = Bounds {
        start: vec![0; dims.len()],
        end: dims.to_vec(),
    };
    let elements: u64 = dims.iter().product();
    let mut shown = ShownVariable {
        bytes: vec![0; elements as usize * element],
        lost: Vec::new(),
        diagnostics: table
            .diagnostics()
            .iter()
            .chain(&found.diagnostics)
            .map(Diagnostic::to_string)
            .collect(),
    };
    if let Some(base) = found.records.base() {
        let mut pieces = Vec::new();
        let _ = base.visit_back(&all, |record| {
            pieces.push((record.bounds(), read(sources, record)));
            ControlFlow::<()>::Continue(())
        });
        for (bounds, bytes) in pieces.into_iter().rev() {
            put(&mut shown.bytes, dims, element, &bounds, &bytes.unwrap());
        }
    }
    let mut cells = Vec::new();
    for number in 0..found.records.len() {
        let record = found.records.get(number, &mut cells);
        let bytes = match read(sources, &record) {
            Ok(bytes) => bytes,
            Err(reason) => {
                shown.lost.push(reason);
                vec![0; record.elements() as usize * element]
            }
        };
        let mut blocks = Vec::new();
        let _ = record.visit_back(&all, |block| {
            blocks.push((block.bounds(), block.elements_before as usize * element));
            ControlFlow::<()>::Continue(())
        });
        for (bounds, at) in blocks.into_iter().rev() {
            put(&mut shown.bytes, dims, element, &bounds, &bytes[at..]);
        }
    }
    shown
}

/// All elements of a record, or the reason why they are lost.
fn read(sources: &[SourceFile], record: &Record<'_>) -> Result<Vec<u8>, String> {
    if let Some(fault) = record.fault {
        return Err(fault.into());
    }
    let mut stored = vec![0; record.stored.len as usize];
    let source = &sources[usize::from(record.stored.source)];
    source
        .read_exact_at(&mut stored, record.stored.offset)
        .unwrap();
    let Some(conversion) = record.conversion else {
        assert_eq!(record.stored.encoding, Encoding::Raw);
        return Ok(stored);
    };
    assert_eq!(record.stored.encoding, Encoding::Converted);
    let mut converted = vec![0; record.elements() as usize * conversion.shown_size()];
    conversion.convert(&stored, &mut converted);
    Ok(converted)
}

/// Copies the elements of a block to their places, one by one.
fn put(to: &mut [u8], dims: &[u64], element: usize, block: &Bounds, bytes: &[u8]) {
    let mut bytes = bytes.chunks_exact(element);
    let mut index = block.start.clone();
    if index.iter().zip(&block.end).any(|(at, end)| at >= end) {
        return;
    }
    loop {
        let at = index.iter().zip(dims).fold(0, |at, (i, dim)| at * dim + i) as usize;
        let own = bytes.next().unwrap();
        to[at * element..][..element].copy_from_slice(own);
        let Some(d) = (0..dims.len()).rposition(|d| index[d] + 1 < block.end[d]) else {
            return;
        };
        index[d] += 1;
        index[d + 1..].copy_from_slice(&block.start[d + 1..]);
    }
}
