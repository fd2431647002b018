//! Metadata logs and data logs (sections 1, 2, 3 and 5).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::Classic;
use super::bytes::{Head, Header, MAGIC, Order, header_len};

/// Stripes of shared logs (section 5).
pub const STRIPE: u64 = 8 << 20;

/// Types in a program's memory, by code (2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    Text = 1,
    SChar,
    UChar,
    Short,
    UShort,
    Int,
    UInt,
    Float,
    Double,
    LongLong,
    ULongLong,
    /// 8 bytes.
    Long = 13,
    /// 4 bytes, with the code of `Long`.
    ShortLong = 113,
}

impl Memory {
    pub const NUMBERS: [Memory; 12] = [
        Memory::SChar,
        Memory::UChar,
        Memory::Short,
        Memory::UShort,
        Memory::Int,
        Memory::UInt,
        Memory::Float,
        Memory::Double,
        Memory::LongLong,
        Memory::ULongLong,
        Memory::Long,
        Memory::ShortLong,
    ];

    fn code(self) -> u32 {
        self as u32 % 100
    }

    pub fn size(self) -> usize {
        match self {
            Memory::Text | Memory::SChar | Memory::UChar => 1,
            Memory::Short | Memory::UShort => 2,
            Memory::Int | Memory::UInt | Memory::Float | Memory::ShortLong => 4,
            Memory::Double | Memory::LongLong | Memory::ULongLong | Memory::Long => 8,
        }
    }

    /// The least and the greatest integer.
    pub fn range(self) -> Option<(i128, i128)> {
        let bits = 8 * self.size() as u32;
        match self {
            Memory::Text | Memory::Float | Memory::Double => None,
            Memory::UChar | Memory::UShort | Memory::UInt | Memory::ULongLong => {
                Some((0, (1 << bits) - 1))
            }
            _ => Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
        }
    }
}

/// A value of a program; text as its code, real numbers as their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    Text(u8),
    Integer(i128),
    Single(u32),
    Double(u64),
}

impl Value {
    fn bytes(self, memory: Memory, big_endian: bool) -> Vec<u8> {
        let number = match self {
            Value::Text(code) => u128::from(code),
            Value::Integer(number) => number as u128,
            Value::Single(bits) => u128::from(bits),
            Value::Double(bits) => u128::from(bits),
        };
        let mut bytes = number.to_le_bytes()[..memory.size()].to_vec();
        if big_endian {
            bytes.reverse();
        }
        bytes
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    Vara,
    Vars,
    /// With counts, or single elements without them.
    Varn {
        counted: bool,
    },
}

/// Start, count and stride of a piece along a dimension.
pub type Side = (u64, u64, u64);

#[derive(Debug, Clone)]
pub struct Entry {
    pub variable: usize,
    pub request: Request,
    /// One piece, except for varn.
    pub pieces: Vec<Vec<Side>>,
    pub memory: Memory,
    pub values: Vec<Value>,
}

/// Number of elements of a piece.
pub fn elements(piece: &[Side]) -> u64 {
    piece.iter().map(|side| side.1).product()
}

/// The bytes of a log, or of a channel of a shared log.
struct Bytes {
    metadata: Vec<u8>,
    data: Vec<u8>,
}

/// The content written by one process.
#[derive(Debug, Clone)]
pub struct Channel {
    pub rank: u64,
    pub entries: Vec<Entry>,
    /// Entries after the counted ones.
    pub uncounted: Vec<Entry>,
    /// Number of bytes cut off the last entry, which keeps at least one.
    pub torn: u64,
    /// Entries of an earlier log, below all others.
    pub stale: Vec<Entry>,
    /// Nothing was put or flushed yet: the count holds the length of the header.
    pub fresh: bool,
    /// The program left define mode once more (2.2).
    pub redefined: bool,
}

impl Channel {
    pub fn new(rank: u64, entries: Vec<Entry>) -> Self {
        Channel {
            rank,
            entries,
            uncounted: Vec::new(),
            torn: 0,
            stale: Vec::new(),
            fresh: false,
            redefined: false,
        }
    }
}

/// The logs of one generation: of one time that the file was open.
#[derive(Debug, Clone)]
pub struct Generation {
    pub number: u32,
    /// Age in seconds.
    pub age: u64,
    pub big_endian: bool,
    /// Processes by node. Several on one node share their logs.
    pub nodes: Vec<Vec<Channel>>,
}

struct Writer {
    order: Order,
}

impl Writer {
    /// Writes the header (2.1). `count` is `None` where nothing was counted yet.
    fn header(&self, path: &str, ranks: u64, channel: &Channel, count: Option<u64>) -> Vec<u8> {
        let header = Header {
            path,
            ranks: ranks as i64,
            rank: channel.rank as i64,
            num_entries: 0,
            entry_begin: count.unwrap_or(header_len(path) as u64) as i64,
        };
        let mut bytes = header.bytes(self.order);
        if channel.redefined && !self.order.big_endian {
            bytes[55] = 2;
        }
        bytes
    }

    /// Writes an entry (2.3).
    fn entry(&self, bytes: &mut Vec<u8>, entry: &Entry, data: (usize, usize)) {
        let mut rows: Vec<i64> = Vec::new();
        let mut row = |of: fn(&Side) -> u64| {
            rows.extend(entry.pieces.iter().flatten().map(|side| of(side) as i64));
        };
        row(|side| side.0);
        if entry.request != (Request::Varn { counted: false }) {
            row(|side| side.1);
        }
        match entry.request {
            Request::Vara => row(|_| 0),
            Request::Vars => row(|side| side.2),
            Request::Varn { .. } => {}
        }
        let head = Head {
            call: match entry.request {
                Request::Vara => -3,
                Request::Vars => -4,
                Request::Varn { .. } => entry.pieces.len() as i32,
            },
            memory: entry.memory.code() as i32,
            variable: entry.variable as i32,
            rank: entry.pieces[0].len() as i32,
            offset: data.0 as i64,
            len: data.1 as i64,
        };
        bytes.extend(super::bytes::entry(self.order, head, &rows));
    }

    /// Entries without a header, and the data log.
    fn entries<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> Bytes {
        let (mut metadata, mut data) = (Vec::new(), MAGIC.to_vec());
        for entry in entries {
            let start = data.len();
            for value in &entry.values {
                data.extend(value.bytes(entry.memory, self.order.big_endian));
            }
            self.entry(&mut metadata, entry, (start, data.len() - start));
        }
        Bytes { metadata, data }
    }

    fn channel(&self, path: &str, ranks: u64, channel: &Channel) -> Bytes {
        let stale = self.entries(channel.stale.iter());
        let mut new = self.entries(channel.entries.iter().chain(&channel.uncounted));
        new.metadata
            .truncate(new.metadata.len() - channel.torn as usize);
        let count = (!channel.fresh).then_some(channel.entries.len() as u64);
        let mut metadata = self.header(path, ranks, channel, count);
        metadata.extend(over(stale.metadata, &new.metadata));
        Bytes {
            metadata,
            data: over(stale.data, &new.data),
        }
    }
}

/// The content of a longer file that is overwritten without truncation.
fn over(mut old: Vec<u8>, new: &[u8]) -> Vec<u8> {
    old.resize(old.len().max(new.len()), 0);
    old[..new.len()].copy_from_slice(new);
    old
}

impl Generation {
    fn ranks(&self) -> u64 {
        self.nodes.iter().map(|node| node.len() as u64).sum()
    }

    /// Channels by rank.
    pub fn channels(&self) -> Vec<&Channel> {
        let mut channels: Vec<&Channel> = self.nodes.iter().flatten().collect();
        channels.sort_by_key(|channel| channel.rank);
        channels
    }

    /// Writes the logs of the netCDF file `name` into `directory`, with `path` in their headers. Returns their
    /// metadata and data logs, in the order of nodes.
    pub fn write(&self, dir: &Path, name: &str, path: &str) -> Vec<(PathBuf, PathBuf)> {
        let writer = Writer {
            order: Order {
                big_endian: self.big_endian,
            },
        };
        let mut files = Vec::new();
        for node in &self.nodes {
            let stem = format!("{name}_{}_{}", self.number, node[0].rank);
            let metadata = dir.join(format!("{stem}.meta"));
            let data = dir.join(format!("{stem}.data"));
            let (to_metadata, to_data) = (
                File::create(&metadata).unwrap(),
                File::create(&data).unwrap(),
            );
            for (number, channel) in node.iter().enumerate() {
                let bytes = writer.channel(path, self.ranks(), channel);
                let place = (number as u64, node.len() as u64);
                write_striped(&to_metadata, &bytes.metadata, place);
                write_striped(&to_data, &bytes.data, place);
            }
            for file in [to_metadata, to_data] {
                let modified = SystemTime::now() - Duration::from_secs(self.age);
                file.set_modified(modified).unwrap();
            }
            files.push((metadata, data));
        }
        files
    }
}

/// Writes a channel into a shared log (section 5), given its number and the number of channels.
fn write_striped(file: &File, bytes: &[u8], (channel, channels): (u64, u64)) {
    for (number, stripe) in bytes.chunks(STRIPE as usize).enumerate() {
        let at = (number as u64 * channels + channel) * STRIPE;
        file.write_all_at(stripe, at).unwrap();
    }
}

/// Number of a channel's entries within the first `len` bytes of its metadata log.
pub fn complete(channel: &Channel, path: &str, len: u64) -> usize {
    let order = Order { big_endian: false };
    let writer = Writer { order };
    let mut end = header_len(path) as u64;
    let fits = |entry: &&Entry| {
        let mut bytes = Vec::new();
        writer.entry(&mut bytes, entry, (0, 0));
        end += bytes.len() as u64;
        end <= len
    };
    channel.entries.iter().take_while(fits).count()
}

/// A netCDF file and its logs.
#[derive(Debug, Clone)]
pub struct Job {
    pub classic: Classic,
    /// The netCDF file as the program left it.
    pub base: Vec<u8>,
    pub generations: Vec<Generation>,
}

impl Job {
    /// Writes the file into `directory`, and its logs into `logs`.
    pub fn write(
        &self,
        dir: &Path,
        name: &str,
        logs: &Path,
        path: &str,
    ) -> Vec<(PathBuf, PathBuf)> {
        let file = dir.join(name);
        std::fs::write(&file, &self.base).unwrap();
        let oldest = SystemTime::now() - Duration::from_secs(1_000_000);
        let file = File::options().write(true).open(file).unwrap();
        file.set_modified(oldest).unwrap();
        let generations = self.generations.iter();
        generations
            .flat_map(|g| g.write(logs, name, path))
            .collect()
    }
}
