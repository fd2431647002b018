//! Logs with a metadata image, as an HDF5 program defines them: a journal with the image of an HDF5 file, and data
//! files. They are put together from types of the core, without a writer.

use std::fs;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use h5logfs_log::file_id::FileId;
use h5logfs_log::front::{FRONT, unclosed_front};
use h5logfs_log::journal::metadata_image::{LoggedDataset, image_lines};
use h5logfs_log::journal::{Append, Commit, Header, Journal, Line, path_of};
use h5logfs_log::logvol::extent::{self, ExtentHeader};
use h5logfs_log::logvol::names::{subfile, subfile_dir};
use serde_json::Value;

use super::readers::{Python, said};

const ID: FileId = FileId(*b"0123456789abcdef");

/// A write of a block.
#[derive(Debug, Clone)]
pub struct Write {
    pub id: u32,
    pub start: Vec<u64>,
    pub count: Vec<u64>,
    /// The elements as stored in the file.
    pub bytes: Vec<u8>,
}

/// A log and the job that writes it.
pub struct ImageLog {
    path: PathBuf,
    journal: Journal,
    /// The data files and their bytes. With subfiles the master is not among them.
    data: Vec<(PathBuf, Vec<u8>)>,
    image: Vec<u8>,
    lines: Vec<Line>,
    flush: u64,
}

impl ImageLog {
    pub fn begin(path: &Path) -> Self {
        Self::with_subfiles(path, 0)
    }

    /// A log with subfiles.
    pub fn with_subfiles(path: &Path, subfiles: u32) -> Self {
        let header = Header::new(&ID, 2, subfiles, 0);
        let journal = Journal::create(&path_of(path), &header, false).unwrap();
        let front = unclosed_front(&ID);
        let mut files: Vec<_> = (0..subfiles).map(|n| subfile(path, n)).collect();
        if files.is_empty() {
            files.push(path.to_owned());
        } else {
            fs::create_dir(subfile_dir(path)).unwrap();
            fs::write(path, &front).unwrap();
        }
        let log = ImageLog {
            path: path.to_owned(),
            journal,
            data: files
                .into_iter()
                .map(|file| (file, front.clone()))
                .collect(),
            image: Vec::new(),
            lines: Vec::new(),
            flush: 0,
        };
        log.save();
        log
    }

    /// Reopens a log of one data file with `flush` flushes before `end`. `begin` is its state.
    pub fn append(path: &Path, flush: u64, end: u64, begin: Vec<Line>) -> Self {
        let header = Header {
            append: Some(Append { flush }),
            ..Header::new(&ID, 1, 0, 0)
        };
        let ends = vec![end];
        let commit = Line::Commit(Commit::new(flush, ends));
        let lines = [begin, vec![commit]].concat();
        let journal = Journal::create_with(&path_of(path), &header, &lines, true, true).unwrap();
        let mut data = fs::read(path).unwrap();
        data.truncate(end as usize);
        data[..FRONT as usize].copy_from_slice(&unclosed_front(&ID));
        let log = ImageLog {
            path: path.to_owned(),
            journal,
            data: vec![(path.to_owned(), data)],
            image: Vec::new(),
            lines: Vec::new(),
            flush,
        };
        log.save();
        log
    }

    fn save(&self) {
        for (path, bytes) in &self.data {
            fs::write(path, bytes).unwrap();
        }
    }

    /// Sets the metadata image from the next flush on.
    pub fn set_image(&mut self, image: &[u8]) {
        self.lines.extend(image_lines(&self.image, image).unwrap());
        self.image = image.to_vec();
    }

    pub fn set_logged(&mut self, id: u32, header: Option<u64>) {
        self.lines.push(Line::Logged(LoggedDataset { id, header }));
    }

    /// Adds an extent of a rank to the next flush. A rank may have several; without writes it is a gap. Each rank has
    /// its own subfile.
    pub fn extent(&mut self, rank: u32, writes: &[Write]) {
        let number = (rank as usize).min(self.data.len() - 1);
        let data = &mut self.data[number].1;
        let entry_len = |w: &Write| 28 + 16 * w.start.len();
        let entries_len: usize = writes.iter().map(entry_len).sum();
        let mut at = (data.len() + ExtentHeader::SIZE as usize + entries_len) as u64;
        let (mut entries, mut bytes) = (Vec::new(), Vec::new());
        for write in writes {
            let head = [entry_len(write) as u32, write.id, 0];
            entries.extend(head.iter().flat_map(|n| n.to_le_bytes()));
            let len = write.bytes.len() as u64;
            let numbers = [at, len].into_iter().chain(write.start.iter().copied());
            let numbers = numbers.chain(write.count.iter().copied());
            entries.extend(numbers.flat_map(u64::to_le_bytes));
            bytes.extend_from_slice(&write.bytes);
            at += len;
        }
        if writes.is_empty() {
            bytes = vec![0xee; 1000];
        }
        let header = ExtentHeader {
            rank,
            flush: self.flush + 1,
            entries: entries.len() as u64,
            data: bytes.len() as u64,
            entries_crc: extent::crc32(&entries),
            seal: None,
            proof: None,
        };
        data.extend(header.to_bytes());
        data.extend(entries);
        data.extend(bytes);
        self.save();
    }

    pub fn flush(&mut self) {
        self.flush += 1;
        self.lines
            .push(Line::Commit(Commit::new(self.flush, self.ends())));
        let lines = std::mem::take(&mut self.lines);
        self.journal.append_lines(&lines, false).unwrap();
    }

    /// Tells which image the journal has.
    pub fn continue_with(&mut self, image: &[u8]) {
        self.image = image.to_vec();
    }

    /// Another descriptor of the open journal, as in a forked process.
    pub fn lock(&self) -> OwnedFd {
        let inode = fs::metadata(path_of(&self.path)).unwrap().ino();
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let mut numbers = descriptors.filter_map(|entry| {
            let is_journal = fs::metadata(entry.path()).ok()?.ino() == inode;
            let number = entry.file_name().to_str()?.parse().ok()?;
            is_journal.then_some(number)
        });
        let number: i32 = numbers.next().unwrap();
        // SAFETY: the journal stays open during this call.
        let journal = unsafe { BorrowedFd::borrow_raw(number) };
        journal.try_clone_to_owned().unwrap()
    }

    /// Ends the job and releases the lock.
    pub fn unlock(self) {
        self.journal.unlock();
    }

    /// Present end of the log in each data file.
    fn ends(&self) -> Vec<u64> {
        self.data
            .iter()
            .map(|(_, bytes)| bytes.len() as u64)
            .collect()
    }
}

/// The output of `tests/tools/metadata image.py`.
pub struct Made {
    pub native: PathBuf,
    pub image: Vec<u8>,
    /// Addresses of the logged datasets, by ID.
    pub headers: Vec<Option<u64>>,
    pub writes: Vec<Write>,
}

impl Made {
    pub fn by(python: &Python, dir: &Path, format: &str) -> Self {
        let made: Output = python
            .tool("metadata_image.py")
            .arg(dir)
            .arg(format)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", said(&made));
        let log: Value = serde_json::from_slice(&fs::read(dir.join("log.json")).unwrap()).unwrap();
        let raw = fs::read(dir.join("raw")).unwrap();
        let list = |value: &Value| value.as_array().unwrap().clone();
        let numbers = |value: &Value| list(value).iter().map(|n| n.as_u64().unwrap()).collect();
        let mut at = 0;
        let mut write = |value: &Value| {
            let len = value["len"].as_u64().unwrap() as usize;
            at += len;
            Write {
                id: value["id"].as_u64().unwrap() as u32,
                start: numbers(&value["start"]),
                count: numbers(&value["count"]),
                bytes: raw[at - len..at].to_vec(),
            }
        };
        Made {
            native: dir.join("native.h5"),
            image: fs::read(dir.join("image.h5")).unwrap(),
            headers: list(&log["headers"]).iter().map(Value::as_u64).collect(),
            writes: list(&log["writes"]).iter().map(&mut write).collect(),
        }
    }

    /// Adds the lines that list the logged datasets.
    pub fn set_logged(&self, log: &mut ImageLog) {
        for (id, header) in (0..).zip(&self.headers) {
            log.set_logged(id, *header);
        }
    }

    /// A log of this content in two flushes. The second one brings the new parts of the image.
    pub fn log(&self, path: &Path) -> ImageLog {
        self.fill(ImageLog::begin(path))
    }

    /// Fills a log that has just begun.
    pub fn fill(&self, mut log: ImageLog) -> ImageLog {
        log.set_image(&self.image);
        self.set_logged(&mut log);
        let (one, other) = self.writes.split_at(self.writes.len() / 2);
        log.extent(0, one);
        log.flush();
        log.extent(1, &other[..1]);
        log.extent(0, &[]);
        log.extent(1, &other[1..]);
        log.flush();
        log
    }
}
