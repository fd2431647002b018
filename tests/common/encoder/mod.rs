//! Writes log files as `docs/formats/logvol.md` and `logvol-extensions.md` describe them (section numbers are those
//! of the former), and gives the content of their datasets. It is written from these pages alone, and shares no code
//! with the tested crate.

pub mod filter;
pub mod raw;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use h5logfs_common::error::{Error, Result};
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::snapshot::{Content, Snapshot};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_scan::scan;
use h5logfs_view::ChunkId;
use h5logfs_view::cache::{Budget, MemoryLimits};
use h5logfs_view::{Form, View};

use hdf5_metno_sys::h5p::*;
use hdf5_metno_sys::h5t::*;

pub use filter::Filter;
use raw::{Id, call};

/// A datatype whose elements are plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    I8,
    U8,
    I16,
    I16Be,
    U16,
    U16Be,
    I32,
    I32Be,
    U32,
    U32Be,
    I64,
    I64Be,
    U64,
    U64Be,
    F32,
    F32Be,
    F64,
    F64Be,
    Bits8,
    String5,
    Enum,
    Opaque3,
    /// Two 16-bit integers.
    Array,
    /// A byte and a double, without padding.
    Compound,
    /// A byte and a double, with padding.
    Padded,
    ObjectReference,
}

impl Type {
    pub const ALL: [Type; 25] = [
        Type::U8,
        Type::I32,
        Type::F64,
        Type::I8,
        Type::I16,
        Type::I16Be,
        Type::U16,
        Type::U16Be,
        Type::I32Be,
        Type::U32,
        Type::U32Be,
        Type::I64,
        Type::I64Be,
        Type::U64,
        Type::U64Be,
        Type::F32,
        Type::F32Be,
        Type::F64Be,
        Type::Bits8,
        Type::String5,
        Type::Enum,
        Type::Opaque3,
        Type::Array,
        Type::Compound,
        Type::Padded,
    ];

    pub fn create(self) -> Id {
        let compound = |size, offset| {
            let (first, second) = (raw::standard(H5T_STD_U8LE), raw::standard(H5T_IEEE_F64LE));
            raw::compound_type(size, &[("a", 0, &first), ("b", offset, &second)])
        };
        match self {
            Type::I8 => raw::standard(H5T_STD_I8LE),
            Type::U8 => raw::standard(H5T_STD_U8LE),
            Type::I16 => raw::standard(H5T_STD_I16LE),
            Type::I16Be => raw::standard(H5T_STD_I16BE),
            Type::U16 => raw::standard(H5T_STD_U16LE),
            Type::U16Be => raw::standard(H5T_STD_U16BE),
            Type::I32 => raw::standard(H5T_STD_I32LE),
            Type::I32Be => raw::standard(H5T_STD_I32BE),
            Type::U32 => raw::standard(H5T_STD_U32LE),
            Type::U32Be => raw::standard(H5T_STD_U32BE),
            Type::I64 => raw::standard(H5T_STD_I64LE),
            Type::I64Be => raw::standard(H5T_STD_I64BE),
            Type::U64 => raw::standard(H5T_STD_U64LE),
            Type::U64Be => raw::standard(H5T_STD_U64BE),
            Type::F32 => raw::standard(H5T_IEEE_F32LE),
            Type::F32Be => raw::standard(H5T_IEEE_F32BE),
            Type::F64 => raw::standard(H5T_IEEE_F64LE),
            Type::F64Be => raw::standard(H5T_IEEE_F64BE),
            Type::Bits8 => raw::standard(H5T_STD_B8LE),
            Type::String5 => raw::string_type(5),
            Type::Enum => raw::enum_type(),
            Type::Opaque3 => raw::opaque_type(3, "three"),
            Type::Array => raw::array_type(&raw::standard(H5T_STD_I16LE), &[2]),
            Type::Compound => compound(9, 1),
            Type::Padded => compound(16, 8),
            Type::ObjectReference => raw::standard(H5T_STD_REF_OBJ),
        }
    }

    pub fn size(self) -> usize {
        raw::type_size(&self.create())
    }
}

/// A user's dataset.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Path below the root group; its groups must exist.
    pub name: String,
    pub id: i32,
    pub datatype: Type,
    pub dims: Vec<u64>,
    /// Maximum extent; `None` for an unlimited dimension.
    pub max: Vec<Option<u64>>,
    pub fill: Option<Vec<u8>>,
    /// Extensions: the recorded chunk shape and filter pipeline.
    pub chunk: Option<Vec<u64>>,
    pub filters: Option<Vec<Filter>>,
}

impl Dataset {
    pub fn new(name: &str, id: i32, datatype: Type, dims: &[u64]) -> Self {
        Dataset {
            name: name.into(),
            id,
            datatype,
            dims: dims.to_vec(),
            max: dims.iter().map(|d| Some(*d)).collect(),
            fill: None,
            chunk: None,
            filters: None,
        }
    }

    pub fn chunked(mut self, chunk: &[u64]) -> Self {
        self.chunk = Some(chunk.to_vec());
        self
    }

    pub fn filtered(mut self, filters: &[Filter]) -> Self {
        self.filters = Some(filters.to_vec());
        self
    }

    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Creates the dataset (section 2).
    pub fn create(&self, file: &Id) -> Id {
        let creation = raw::dataset_properties();
        let datatype = self.datatype.create();
        if let Some(fill) = &self.fill {
            assert_eq!(fill.len(), raw::type_size(&datatype));
            call!(H5Pset_fill_value(
                creation.get(),
                datatype.get(),
                fill.as_ptr().cast()
            ));
        }
        let stub_dataset =
            raw::create_dataset(file, &self.name, &datatype, &raw::null_space(), &creation);
        self.mark(&stub_dataset);
        stub_dataset
    }

    /// Adds the attributes that turn a dataset with a null dataspace into a stub dataset.
    pub fn mark(&self, stub_dataset: &Id) {
        let dims: Vec<i64> = self.dims.iter().map(|d| *d as i64).collect();
        let max = self.max.iter().map(|m| m.map_or(-1, |m| m as i64));
        raw::attribute_i64(stub_dataset, "_dims", &dims);
        raw::attribute_i64(stub_dataset, "_mdims", &max.collect::<Vec<_>>());
        raw::attribute_i32(stub_dataset, "_ID", &[self.id]);
        if let Some(chunk) = &self.chunk {
            let chunk: Vec<i64> = chunk.iter().map(|c| *c as i64).collect();
            raw::attribute_i64(stub_dataset, "_h5logfs_chunk", &chunk);
        }
        if let Some(filters) = &self.filters {
            let words: Vec<u32> = filters.iter().flat_map(Filter::words).collect();
            raw::attribute_u32(stub_dataset, "_h5logfs_filters", &words);
        }
    }
}

/// Start and count of a block of elements along each dimension.
pub type Block = (Vec<u64>, Vec<u64>);

pub fn block_elements((_, count): &Block) -> u64 {
    count.iter().product()
}

/// The encoding of an entry's selection (section 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spelling {
    /// One block in plain coordinates.
    One,
    /// MUL: any number of blocks.
    Many,
    /// MUL and ENC, by the extent at the time of the write.
    Encoded { extent: Vec<u64> },
    /// MUL, ENC and DEFL, or MUL and DEFL; see [`Deflated`].
    Deflated {
        extent: Option<Vec<u64>>,
        form: Deflated,
    },
    /// REF: the selection of the entry with this index in the section.
    Shared { target: usize },
    /// Arbitrary bytes after the record number, with these flags.
    Bytes { flags: i32, body: Vec<u8> },
}

/// Deflated selections (6.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deflated {
    /// The flag is set, but nothing is compressed.
    Not,
    /// The number of blocks is not compressed.
    AfterCount,
    /// The number of blocks is compressed as well.
    Whole,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub dataset: i32,
    /// Record number: the coordinates lack the first dimension.
    pub record: Option<i64>,
    /// Blocks in the dataset's rank, or one less with a record number. Their meaning for [`Spelling::Shared`] and
    /// [`Spelling::Bytes`] is up to the caller.
    pub blocks: Vec<Block>,
    pub spelling: Spelling,
    /// The `_ld_N` that gets the data, and the sort key among the data of that flush, before the order of entries.
    pub flush: usize,
    pub place: u32,
    /// The data as stored.
    pub data: Vec<u8>,
    /// False claims about the place and size of the data.
    pub claims: Option<(i64, i64)>,
}

impl Entry {
    /// A single block.
    pub fn one(dataset: i32, start: &[u64], count: &[u64], data: Vec<u8>) -> Self {
        Entry::many(dataset, vec![(start.to_vec(), count.to_vec())], data).spelled(Spelling::One)
    }

    pub fn many(dataset: i32, blocks: Vec<Block>, data: Vec<u8>) -> Self {
        Entry {
            dataset,
            record: None,
            blocks,
            spelling: Spelling::Many,
            flush: 0,
            place: 0,
            data,
            claims: None,
        }
    }

    pub fn spelled(mut self, spelling: Spelling) -> Self {
        self.spelling = spelling;
        self
    }

    pub fn record(mut self, record: i64) -> Self {
        self.record = Some(record);
        self
    }

    pub fn flush(mut self, flush: usize) -> Self {
        self.flush = flush;
        self
    }

    pub fn claiming(mut self, offset: i64, size: i64) -> Self {
        self.claims = Some((offset, size));
        self
    }
}

const MUL: i32 = 0x01;
const ENC: i32 = 0x04;
const DEFL: i32 = 0x08;
const REF: i32 = 0x10;
const REC: i32 = 0x20;
const HEADER: usize = 28;

/// The entries of one process.
pub type Section = Vec<Entry>;

/// A log: the master, or one of its subfiles. `tables[m][p]` is the section of process p in `_md_m`.
#[derive(Debug, Clone, Default)]
pub struct Log {
    pub tables: Vec<Vec<Section>>,
}

/// A whole log file.
#[derive(Debug, Clone)]
pub struct LogFile {
    pub user_block: Vec<u8>,
    /// Uses the newest format that libhdf5 knows.
    pub latest: bool,
    /// Later `_ld_N` get lower addresses.
    pub reversed: bool,
    pub datasets: Vec<Dataset>,
    /// One log, or one per subfile.
    pub logs: Vec<Log>,
    pub subfiled: bool,
    /// Element 3 of `_int_att`, without the bit for subfiling.
    pub config: i32,
}

impl LogFile {
    pub fn new(datasets: Vec<Dataset>) -> Self {
        LogFile {
            user_block: Vec::new(),
            latest: false,
            reversed: false,
            datasets,
            logs: vec![Log::default()],
            subfiled: false,
            config: 0x00a,
        }
    }

    /// A log of one process with these entries.
    pub fn with(datasets: Vec<Dataset>, entries: Section) -> Self {
        let mut file = LogFile::new(datasets);
        file.logs[0].tables = vec![vec![entries]];
        file
    }

    pub fn write(&self, path: &Path) {
        self.write_with(path, |_| {});
    }

    /// Writes the file. `more` adds to it before the logs are written.
    pub fn write_with(&self, path: &Path, more: impl FnOnce(&Id)) {
        let file = raw::create_file(path, self.user_block.len() as u64, self.latest);
        for dataset in &self.datasets {
            dataset.create(&file);
        }
        more(&file);
        let ids = self.datasets.iter().map(|d| d.id + 1).max().unwrap_or(0);
        if self.subfiled {
            let count = self.logs.len() as i32;
            int_att(&file, [ids, 0, 0, self.config | 0x200, count]);
            self.write_subfiles(path, ids);
        } else {
            self.write_log(&file, &self.logs[0], ids, 1);
        }
        drop(file);
        if !self.user_block.is_empty() {
            let mut bytes = fs::read(path).unwrap();
            bytes[..self.user_block.len()].copy_from_slice(&self.user_block);
            fs::write(path, bytes).unwrap();
        }
    }

    /// Writes subfiles (section 10).
    fn write_subfiles(&self, path: &Path, ids: i32) {
        let dir = subfile_dir(path);
        fs::create_dir_all(&dir).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        for (number, log) in self.logs.iter().enumerate() {
            let path = dir.join(format!("{name}.{number}"));
            let file = raw::create_file(&path, 0, self.latest);
            self.write_log(&file, log, ids, self.logs.len() as i32);
        }
    }

    /// Writes `_int_att` and the group `/_LOG` (section 1).
    fn write_log(&self, file: &Id, log: &Log, ids: i32, subfiles: i32) {
        let group = raw::create_group(file, "_LOG");
        let places = self.write_data(&group, log);
        let mut tables = 0;
        for (number, sections) in log.tables.iter().enumerate() {
            let bytes = encode_table(sections, &places[number]);
            // A dataset with only a header is never created.
            if bytes.len() > 8 * (sections.len() + 1) {
                let dataset = log_dataset(&group, &format!("_md_{tables}"), bytes.len());
                raw::write(&dataset, &bytes);
                tables += 1;
            }
        }
        let flushes = flushes(log).len() as i32;
        int_att(file, [ids, flushes, tables, self.config, subfiles]);
    }

    /// Writes the `_ld_N`. Returns the offset of each entry's data, by table, section and entry.
    fn write_data(&self, group: &Id, log: &Log) -> Vec<Vec<Vec<u64>>> {
        let mut places: Vec<Vec<Vec<u64>>> = log
            .tables
            .iter()
            .map(|t| t.iter().map(|s| vec![0; s.len()]).collect())
            .collect();
        let flushes = flushes(log);
        let mut numbers: Vec<usize> = (0..flushes.len()).collect();
        if self.reversed {
            numbers.reverse();
        }
        let mut datasets: Vec<(usize, Id)> = numbers
            .into_iter()
            .map(|number| {
                let len = flushes[number].iter().map(|e| e.data(log).len()).sum();
                (number, log_dataset(group, &format!("_ld_{number}"), len))
            })
            .collect();
        datasets.sort_by_key(|(number, _)| *number);
        for ((_, dataset), entries) in datasets.iter().zip(&flushes) {
            let mut bytes = Vec::new();
            for entry in entries {
                places[entry.table][entry.section][entry.entry] =
                    raw::dataset_offset(dataset) + bytes.len() as u64;
                bytes.extend_from_slice(entry.data(log));
            }
            raw::write(dataset, &bytes);
        }
        places
    }

    /// The content of a dataset in row-major order: section 7 for overlaps, section 8 for the rest. Entries with
    /// [`Spelling::Bytes`] are taken to cover their `blocks`.
    pub fn contents(&self, dataset: &Dataset) -> Vec<u8> {
        let size = dataset.datatype.size();
        let fill = dataset.fill.clone().unwrap_or_else(|| vec![0; size]);
        let mut contents = fill.repeat(dataset.elements() as usize);
        for log in &self.logs {
            for number in flushes(log).iter().flatten() {
                let section = &log.tables[number.table][number.section];
                let entry = &section[number.entry];
                if entry.dataset == dataset.id {
                    let blocks = meant_blocks(section, number.entry);
                    let elements: u64 = blocks.iter().map(block_elements).sum();
                    let raw = raw_data(dataset, &entry.data, elements as usize * size);
                    paint(&mut contents, &dataset.dims, size, &blocks, &raw);
                }
            }
        }
        contents
    }
}

pub fn subfile_dir(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".subfiles");
    name.into()
}

pub fn int_att(file: &Id, values: [i32; 5]) {
    raw::attribute_i32(file, "_int_att", &values);
}

/// Creates a log dataset (1.2).
pub fn log_dataset(group: &Id, name: &str, len: usize) -> Id {
    let creation = raw::dataset_properties();
    raw::allocate_early(&creation);
    let datatype = raw::standard(H5T_STD_B8LE);
    raw::create_dataset(
        group,
        name,
        &datatype,
        &raw::space(&[len as u64]),
        &creation,
    )
}

/// Identifies an entry of a log.
#[derive(Debug, Clone, Copy)]
struct Number {
    table: usize,
    section: usize,
    entry: usize,
}

impl Number {
    fn get(self, log: &Log) -> &Entry {
        &log.tables[self.table][self.section][self.entry]
    }

    fn data(self, log: &Log) -> &[u8] {
        &self.get(log).data
    }
}

/// The entries of each flush with data, in the order of their data.
fn flushes(log: &Log) -> Vec<Vec<Number>> {
    let mut flushes: Vec<Vec<Number>> = Vec::new();
    // Within a flush by process, then in the order of writes.
    for (table, sections) in log.tables.iter().enumerate() {
        for (section, entries) in sections.iter().enumerate() {
            for (entry, e) in entries.iter().enumerate() {
                if flushes.len() <= e.flush {
                    flushes.resize(e.flush + 1, Vec::new());
                }
                flushes[e.flush].push(Number {
                    table,
                    section,
                    entry,
                });
            }
        }
    }
    for entries in &mut flushes {
        entries.sort_by_key(|n| n.get(log).place);
    }
    let has_data = |entries: &Vec<Number>| entries.iter().any(|n| !n.data(log).is_empty());
    flushes.into_iter().filter(has_data).collect()
}

/// Encodes a table (section 4).
fn encode_table(sections: &[Section], places: &[Vec<u64>]) -> Vec<u8> {
    let mut ends = Vec::new();
    let mut body = Vec::new();
    let head = 8 * (sections.len() + 1);
    for (section, places) in sections.iter().zip(places) {
        let start = body.len();
        let mut positions = Vec::new();
        for (entry, place) in section.iter().zip(places) {
            positions.push(body.len() - start);
            let bytes = encode_entry(entry, *place, &positions, section);
            body.extend_from_slice(&bytes);
        }
        ends.push((head + body.len()) as i64);
    }
    let mut bytes = (sections.len() as i64).to_le_bytes().to_vec();
    bytes.extend(ends.iter().flat_map(|e| e.to_le_bytes()));
    bytes.extend(body);
    bytes
}

/// Encodes an entry (sections 5 and 6). `positions` has those of the section so far, including this entry.
fn encode_entry(entry: &Entry, place: u64, positions: &[usize], section: &[Entry]) -> Vec<u8> {
    let (mut flags, body) = match &entry.spelling {
        Spelling::One => {
            assert_eq!(entry.blocks.len(), 1);
            (0, plain(&entry.blocks))
        }
        Spelling::Many => (MUL, counted(&entry.blocks, plain(&entry.blocks))),
        Spelling::Encoded { extent } => (
            MUL | ENC,
            counted(&entry.blocks, encoded(extent, &entry.blocks)),
        ),
        Spelling::Deflated { extent, form } => {
            let (bits, coordinates) = match extent {
                Some(extent) => (MUL | ENC | DEFL, encoded(extent, &entry.blocks)),
                None => (MUL | DEFL, plain(&entry.blocks)),
            };
            let body = match form {
                Deflated::Not => counted(&entry.blocks, coordinates),
                Deflated::AfterCount => counted(&entry.blocks, filter::deflate(&coordinates)),
                Deflated::Whole => filter::deflate(&counted(&entry.blocks, coordinates)),
            };
            (bits, body)
        }
        Spelling::Shared { target } => {
            let here = positions[positions.len() - 1] as i64;
            let back = positions[*target] as i64 - here;
            // The flags of the replaced selection stay.
            let kept = flags_of(&section[*target].spelling);
            (REF | kept, back.to_le_bytes().to_vec())
        }
        Spelling::Bytes { flags, body } => (*flags, body.clone()),
    };
    let mut tail = Vec::new();
    if let Some(record) = entry.record {
        flags |= REC;
        tail.extend_from_slice(&record.to_le_bytes());
    }
    tail.extend(body);
    let size = (HEADER + tail.len()) as i32;
    let (offset, stored) = entry
        .claims
        .unwrap_or((place as i64, entry.data.len() as i64));
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(&entry.dataset.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&stored.to_le_bytes());
    bytes.extend(tail);
    bytes
}

fn flags_of(spelling: &Spelling) -> i32 {
    match spelling {
        Spelling::Many => MUL,
        Spelling::Encoded { .. } => MUL | ENC,
        _ => 0,
    }
}

/// Plain coordinates (6.1): all starts, then all counts.
pub fn plain(blocks: &[Block]) -> Vec<u8> {
    let starts = blocks.iter().flat_map(|(start, _)| start);
    let counts = blocks.iter().flat_map(|(_, count)| count);
    starts.chain(counts).flat_map(|v| v.to_le_bytes()).collect()
}

pub fn counted(blocks: &[Block], coordinates: Vec<u8>) -> Vec<u8> {
    let mut bytes = (blocks.len() as i32).to_le_bytes().to_vec();
    bytes.extend(coordinates);
    bytes
}

/// Encoded coordinates (6.2). `extent` has the rank of the blocks.
pub fn encoded(extent: &[u64], blocks: &[Block]) -> Vec<u8> {
    assert!(
        extent.len() >= 2,
        "only combined with two dimensions and more"
    );
    let mut steps = vec![1u64; extent.len()];
    for d in (0..extent.len() - 1).rev() {
        steps[d] = steps[d + 1] * extent[d + 1];
    }
    let number = |v: &[u64]| -> u64 { v.iter().zip(&steps).map(|(v, s)| v * s).sum() };
    let starts = blocks.iter().map(|(start, _)| number(start));
    let counts = blocks.iter().map(|(_, count)| number(count));
    let head = steps[..steps.len() - 1].iter().copied();
    head.chain(starts)
        .chain(counts)
        .flat_map(|v| v.to_le_bytes())
        .collect()
}

/// The blocks of an entry in the dataset's rank (6.3 for shared ones).
pub fn meant_blocks(section: &[Entry], number: usize) -> Vec<Block> {
    let entry = &section[number];
    let spelled = match entry.spelling {
        Spelling::Shared { target } => &section[target],
        _ => entry,
    };
    let lead = entry.record.or(spelled.record);
    let replaces = spelled.record.is_none();
    let with_lead = |(start, count): &Block| -> Block {
        let Some(lead) = lead else {
            return (start.clone(), count.clone());
        };
        let rest = usize::from(replaces);
        let start = [&[lead as u64], &start[rest..]].concat();
        let count = [&[1], &count[rest..]].concat();
        (start, count)
    };
    spelled.blocks.iter().map(with_lead).collect()
}

/// The bytes of the elements, from the stored bytes (section 9 and the extension).
fn raw_data(dataset: &Dataset, stored: &[u8], size: usize) -> Vec<u8> {
    if stored.len() == size {
        return stored.to_vec();
    }
    let raw = match &dataset.filters {
        Some(filters) => filter::undo(filters, stored),
        None => filter::inflate(stored),
    };
    assert_eq!(raw.len(), size, "an entry that does not fit its selection");
    raw
}

/// Copies blocks, contiguous in `data`, over the content. Elements outside of the extent are dropped.
fn paint(contents: &mut [u8], dims: &[u64], size: usize, blocks: &[Block], data: &[u8]) {
    let mut elements = data.chunks_exact(size);
    for (start, count) in blocks {
        for at in coordinates(count) {
            let element = elements.next().unwrap();
            let at: Vec<u64> = at.iter().zip(start).map(|(a, s)| a + s).collect();
            if at.iter().zip(dims).all(|(a, d)| a < d) {
                let linear = at.iter().zip(dims).fold(0, |n, (a, d)| n * d + a) as usize;
                contents[linear * size..(linear + 1) * size].copy_from_slice(element);
            }
        }
    }
    assert!(elements.next().is_none());
}

/// All coordinates below `count`, in row-major order.
pub fn coordinates(count: &[u64]) -> impl Iterator<Item = Vec<u64>> {
    let count = count.to_vec();
    let total: u64 = count.iter().product();
    (0..total).map(move |mut linear| {
        let mut at = vec![0; count.len()];
        for (a, c) in at.iter_mut().zip(&count).rev() {
            *a = linear % c;
            linear /= c;
        }
        at
    })
}

// --- opening -------------------------------------------------------------------------------------

/// Memory budget of the tests.
pub const BUDGET: u64 = 64 << 20;

pub fn scan_file(path: &Path) -> Result<Snapshot> {
    let (dir, name) = SourceDir::of_file(path)?;
    scan(ScanRequest::alone(&dir, &name, &Settings::default()))
}

pub fn open_view(path: &Path) -> Result<Arc<View>> {
    open_view_within(path, BUDGET)
}

pub fn open_view_within(path: &Path, budget: u64) -> Result<Arc<View>> {
    let (dir, name) = SourceDir::of_file(path)?;
    let snapshot = scan(ScanRequest::alone(&dir, &name, &Settings::default()))?;
    View::open(
        &dir,
        snapshot,
        Arc::new(Budget::new(MemoryLimits::each(budget))),
        None,
    )
}

/// The index of the dataset that the view shows at this path.
pub fn number_of(view: &View, name: &str) -> usize {
    let datasets = &view.snapshot().datasets;
    let found = datasets.iter().position(|d| d.name == name);
    found.unwrap_or_else(|| panic!("no dataset {name}"))
}

/// The filters of a dataset in the view, for the tests' own decoder.
pub fn filters_of(view: &View, number: usize) -> Vec<Filter> {
    let filters = view.snapshot().datasets[number].filters.iter();
    let own = filters.map(|f| Filter {
        id: f.id,
        flags: f.flags,
        values: f.values.clone(),
    });
    own.collect()
}

/// All elements of a dataset, chunk by chunk, decoded by the tests' own filters.
pub fn read_by_chunks(view: &View, number: usize) -> Result<Vec<u8>> {
    let dataset = &view.snapshot().datasets[number];
    let size = dataset.element_size as usize;
    let filters = filters_of(view, number);
    let grid = view.grid(number);
    let mut contents = vec![0xa5; dataset.elements().unwrap() as usize * size];
    for chunk in 0..grid.len() {
        let (offset, len) = view.inspection().chunk_place(ChunkId::new(number, chunk))?;
        // A chunk read at an offset may be made by other code than one that is kept.
        let mut placed = vec![0x5a; len as usize];
        view.read_for(&view.task(None).for_keeper(), offset, &mut placed)?;
        let stored = view.chunks().stored(ChunkId::new(number, chunk))?;
        assert_eq!(len, stored.len() as u64);
        assert!(placed[..] == stored[..], "chunk {chunk} where it is placed");
        // The reader must verify a chunk that is served from the log.
        let raw = filter::try_undo(&filters, &stored)
            .filter(|raw| raw.len() as u64 == grid.elements() * dataset.element_size)
            .ok_or_else(|| Error::of(view.path(), "its reader finds a chunk damaged"))?;
        let block = (grid.origin(chunk), grid.chunk.clone());
        paint(&mut contents, &dataset.dims, size, &[block], &raw);
    }
    Ok(contents)
}

/// Reads a dataset's chunks through the view's references into the log's files, as a reader without h5logfs does.
/// Each chunk must have the elements of the view, and each chunk without a reference the fill value. Returns the
/// forms of the referenced bytes, and the number of chunks that only the view can supply.
pub fn follow_references(view: &View, number: usize) -> Result<(Vec<Form>, usize)> {
    let dataset = &view.snapshot().datasets[number];
    let grid = view.grid(number);
    let size = dataset.element_size as usize;
    let bounds_of = |chunk| {
        let bounds = grid.bounds(chunk);
        let count: Vec<u64> = bounds.count().collect();
        (bounds.start, count)
    };
    let filters = filters_of(view, number);
    let mut listed = BTreeSet::new();
    let (mut forms, mut assembled) = (Vec::new(), 0);
    for found in view.references().of(number)? {
        let (chunk, reference) = found?;
        assert!(listed.insert(chunk), "chunk {chunk} twice");
        let Some(reference) = reference else {
            assembled += 1;
            continue;
        };
        forms.push(reference.form);
        let source = view.files().nth(usize::from(reference.source)).unwrap().1;
        let mut bytes = vec![0; reference.len as usize];
        let file = fs::File::open(source.path()).unwrap();
        file.read_exact_at(&mut bytes, reference.offset).unwrap();
        let raw = match reference.form {
            Form::Elements => bytes,
            Form::Swapped => {
                bytes.chunks_mut(size).for_each(<[u8]>::reverse);
                bytes
            }
            Form::Filtered => filter::undo(&filters, &bytes),
            Form::Deflated => filter::inflate(&bytes),
        };
        assert_eq!(raw.len() as u64, grid.elements() * dataset.element_size);
        let mut expected = vec![0; raw.len()];
        let stored = match dataset.content {
            Content::Extent { .. } => {
                let address = view
                    .inspection()
                    .chunk_place(ChunkId::new(number, chunk))?
                    .0;
                view.read_at(address, &mut expected)?;
                expected
            }
            _ => filter::undo(
                &filters,
                &view.chunks().stored(ChunkId::new(number, chunk))?,
            ),
        };
        let (start, count) = bounds_of(chunk);
        let inside = |bytes: &[u8]| {
            if count == grid.chunk {
                return bytes.to_vec();
            }
            let mut own = vec![0; count.iter().product::<u64>() as usize * size];
            let block = (vec![0; count.len()], grid.chunk.clone());
            paint(&mut own, &count, size, &[block], bytes);
            own
        };
        assert!(inside(&raw) == inside(&stored), "chunk at {start:?}");
    }
    for chunk in (0..grid.len()).filter(|chunk| !listed.contains(chunk)) {
        let raw = filter::undo(
            &filters,
            &view.chunks().stored(ChunkId::new(number, chunk))?,
        );
        let filled = match dataset.fill.as_slice() {
            [] => vec![0; raw.len()],
            fill => fill.repeat(raw.len() / size),
        };
        assert!(raw == filled, "chunk {chunk}");
    }
    view.references().check_sources()?;
    Ok((forms, assembled))
}

/// All bytes of the canonical file.
pub fn read_whole(view: &View) -> Result<Vec<u8>> {
    let mut bytes = vec![0; view.len() as usize];
    assert_eq!(view.read_at(0, &mut bytes)?, bytes.len());
    Ok(bytes)
}

/// Writes the canonical file.
pub fn export(view: &View, path: &Path) {
    fs::write(path, read_whole(view).unwrap()).unwrap();
}
