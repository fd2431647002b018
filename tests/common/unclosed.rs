//! Unclosed logs, made byte by byte from `docs/formats/journal.md`, without the writer.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes before the first flush.
pub const FRONT: usize = 8192;
const ID: &[u8; 16] = b"0123456789abcdef";

/// A growing log of one unlimited dataset of bytes, `/d`.
pub struct Log {
    path: PathBuf,
    pub journal: String,
    /// The checksum over the lines of the journal so far.
    pub said: Crc,
    pub data: Vec<u8>,
    flush: u64,
    /// How much of data and journal is in the files.
    saved: (usize, usize),
}

/// One write of bytes.
pub struct Block {
    /// Number of the dataset.
    pub dataset: i32,
    pub start: Vec<u64>,
    pub count: Vec<u64>,
    pub values: Vec<u8>,
}

/// The definition of `/d`.
const BYTES: &str = r#"{"path":"/d","layout":{"datatype":{"integer":{"size":1,"signed":false}},"dims":[0],"max_dims":[null]}}"#;

impl Log {
    pub fn begin(path: &Path) -> Self {
        Log::of_datasets(path, &[BYTES.to_owned()])
    }

    /// A log of datasets with these definitions.
    pub fn of_datasets(path: &Path, definitions: &[String]) -> Self {
        let mut data = vec![0; FRONT];
        data[..64]
            .copy_from_slice(b"h5logfs log that was not closed. Its journal lies beside it.  \n\n");
        data[8160..8176].copy_from_slice(b"h5logfs-file-id\n");
        data[8176..8192].copy_from_slice(ID);
        let mut log = Log {
            path: path.to_owned(),
            journal: String::new(),
            said: Crc::default(),
            data,
            flush: 0,
            saved: (0, 0),
        };
        let id: String = ID.iter().map(|b| format!("{b:02x}")).collect();
        log.line(&format!(
            r#"{{"journal":1,"file":"{id}","writer":"a test","ranks":2,"subfiles":0,"config":10}}"#
        ));
        for definition in definitions {
            log.line(&format!(r#"{{"define":{{"dataset":{definition}}}}}"#));
        }
        log.save();
        log
    }

    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    pub fn journal_path(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".h5logfs-journal");
        path.into()
    }

    /// Rewrites both files.
    pub fn save(&mut self) {
        self.saved = (0, 0);
        self.append();
    }

    /// Appends what is new, as a job does.
    fn append(&mut self) {
        // In place: a job does not rename its files either.
        let write = |path: PathBuf, bytes: &[u8], saved: usize| {
            let file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)
                .unwrap();
            file.write_all_at(&bytes[saved..], saved as u64).unwrap();
            file.set_len(bytes.len() as u64).unwrap();
        };
        write(self.path(), &self.data, self.saved.0);
        write(self.journal_path(), self.journal.as_bytes(), self.saved.1);
        self.saved = (self.data.len(), self.journal.len());
    }

    pub fn line(&mut self, text: &str) {
        self.said.update(text.as_bytes());
        self.journal += &format!("{:08x} {text}\n", self.said.sum());
    }

    /// Adds an extent of one rank to the next flush: values at positions of `/d`.
    pub fn extent(&mut self, rank: u32, writes: &[(u64, &[u8])]) {
        let blocks: Vec<_> = writes
            .iter()
            .map(|(start, values)| Block {
                dataset: 0,
                start: vec![*start],
                count: vec![values.len() as u64],
                values: values.to_vec(),
            })
            .collect();
        self.extent_of(rank, &blocks);
    }

    /// Adds an extent of one rank to the next flush: blocks of any rank, in any dataset.
    pub fn extent_of(&mut self, rank: u32, blocks: &[Block]) {
        let size = |block: &Block| 28 + 16 * block.start.len();
        let entries_len: usize = blocks.iter().map(size).sum();
        let data_len: usize = blocks.iter().map(|block| block.values.len()).sum();
        let mut offset = self.data.len() + 64 + entries_len;
        let mut entries = Vec::new();
        for block in blocks {
            for word in [size(block) as i32, block.dataset, 0] {
                entries.extend(word.to_le_bytes());
            }
            let len = block.values.len();
            let place = [offset as u64, len as u64];
            for word in place.iter().chain(&block.start).chain(&block.count) {
                entries.extend(word.to_le_bytes());
            }
            offset += len;
        }
        let mut header = b"h5lgxtnt".to_vec();
        header.extend(rank.to_le_bytes());
        header.extend(crc32(&entries).to_le_bytes());
        header.extend((self.flush + 1).to_le_bytes());
        header.extend((entries_len as u64).to_le_bytes());
        header.extend((data_len as u64).to_le_bytes());
        header.resize(60, 0);
        header.extend(crc32(&header).to_le_bytes());
        self.data.extend(header);
        self.data.extend(entries);
        for block in blocks {
            self.data.extend_from_slice(&block.values);
        }
    }

    pub fn extend(&mut self, len: u64) {
        self.line(&format!(
            r#"{{"define":{{"extent":{{"dataset":0,"dims":[{len}]}}}}}}"#
        ));
    }

    pub fn commit(&mut self) {
        self.commit_line();
        self.save();
    }

    /// Commits a flush, and writes only what is new.
    pub fn flush(&mut self) {
        self.commit_line();
        self.append();
    }

    fn commit_line(&mut self) {
        self.flush += 1;
        let (flush, end) = (self.flush, self.data.len());
        self.line(&format!(
            r#"{{"commit":{{"flush":{flush},"ends":[{end}]}}}}"#
        ));
    }

    /// A log of two flushes of two ranks and the start of a third: `aabbaa`, `cc`, and data that no reader sees.
    pub fn usual(path: &Path) -> Self {
        let mut log = Log::begin(path);
        log.extend(6);
        log.extent(0, &[(0, b"aaaaaa")]);
        log.extent(1, &[(2, b"bb")]);
        log.commit();
        log.extend(8);
        log.extent(1, &[(6, b"cc")]);
        log.commit();
        log.extend(20);
        log.extent(0, &[(0, b"xxxxxxxx"), (8, b"yyyy")]);
        log.save();
        log
    }
}

/// A checksum over pieces of text, computed bit by bit with the polynomial of zip and PNG.
pub struct Crc(u32);

impl Default for Crc {
    fn default() -> Self {
        Crc(!0)
    }
}

impl Crc {
    fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
            })
        });
    }

    fn sum(&self) -> u32 {
        !self.0
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc::default();
    crc.update(bytes);
    crc.sum()
}
