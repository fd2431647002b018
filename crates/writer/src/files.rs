//! The files of a log that is being written: where the next flush goes, the journal, and the close.

use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::complete;
use super::error::{Error, Result};
use super::options::{Fsync, Options, Subfiles};
use super::parallel::{Outcome, Ranks, SharedFile, Verdict};
use h5logfs_core::journal::definition::{Definition, Outline};
use h5logfs_core::journal::extent::{FRONT, MOST_EXTENTS, unclosed_front};
use h5logfs_core::journal::{self, Commit, FileId, Header, Journal, Line};
use h5logfs_core::log::logvol::names::{subfile, subfile_dir};
use h5logfs_core::log::logvol::{ENCODED, SHARED};
use h5logfs_core::log::window::Piece;
use h5logfs_scan::closing::{Role, parent, sync, write_front, write_objects};

/// The data file that this rank writes to, and what the first rank of the job has besides.
pub(super) struct Files {
    path: PathBuf,
    header: Header,
    id: FileId,
    /// The data file, its number, and the ranks that share it.
    data_path: PathBuf,
    number: usize,
    sharing: Ranks,
    shared: SharedFile,
    /// Where the last complete flush ended, in each data file.
    ends: Vec<u64>,
    flushes: u64,
    /// On the first rank.
    root: Option<Root>,
}

struct Root {
    journal: Journal,
    /// All that the journal says.
    definitions: Vec<Definition>,
}

impl Files {
    /// Makes the files. Collective; leaves nothing behind where it fails.
    pub fn create(path: &Path, ranks: &Ranks, options: &Options) -> Result<Self> {
        let mut same = DefaultHasher::new();
        options.hash(&mut same);
        let mut made = Made {
            sync: options.fsync == Fsync::Flush,
            ..Made::default()
        };
        let verdict = ranks.agree_on(Outcome::Good, same.finish(), &mut []);
        created(ranks, verdict, &mut made)?;
        let subfiles = match options.subfiles {
            Subfiles::None => 0,
            Subfiles::Number(n) => n.clamp(1, ranks.size()),
            Subfiles::PerNode => ranks.nodes(),
        };
        let subfiles = subfiles.min(journal::MOST_SUBFILES);
        let mut config = 0;
        config |= if options.encode_selections {
            ENCODED
        } else {
            0
        };
        config |= if options.share_selections { SHARED } else { 0 };
        let mut id = FileId::default();
        let chosen = if ranks.is_root() {
            random(&mut id.0)
        } else {
            Ok(())
        };
        ranks.broadcast(&mut id.0);
        let header = Header::new(&id, ranks.size(), subfiles, config);
        let hints_good = if options
            .hints
            .iter()
            .any(|(k, v)| (k.clone() + v).contains('\0'))
        {
            Err("a hint with a zero byte".to_owned())
        } else {
            Ok(())
        };
        let journal = if ranks.is_root() {
            hints_good
                .and(chosen.map_err(|e| e.to_string()))
                .and_then(|()| made.master(path, &header, &id, options.overwrite))
                .map(Some)
        } else {
            hints_good.map(|()| None)
        };
        let (outcome, journal) = told(journal);
        created(ranks, ranks.agree(outcome), &mut made)?;

        // The layout's own rule (section 10), by which it finds a rank's file again.
        let number =
            u64::from(ranks.rank()) * u64::from(header.data_files()) / u64::from(ranks.size());
        let sharing = ranks.split(number as u32);
        let data_path = match subfiles {
            0 => path.to_owned(),
            _ => subfile(path, number as u32),
        };
        let subfile_made = if subfiles > 0 && sharing.is_root() {
            made.file(&data_path, &id, true).map_err(|e| e.to_string())
        } else {
            Ok(())
        };
        created(ranks, ranks.agree(told(subfile_made).0), &mut made)?;

        let (probed, own) = told(SharedFile::probe(&data_path));
        created(ranks, ranks.agree(probed), &mut made)?;
        // All ranks have it, or none is here.
        let own = own.ok_or(Error::Closed)?;
        let named = (&*data_path, own);
        let opened = SharedFile::open(&sharing, named, &options.hints, options.collective);
        let (outcome, shared) = told(opened);
        let verdict = ranks.agree(outcome);
        let shared = match (created(ranks, verdict, &mut made), shared) {
            (Ok(()), Some(shared)) => shared,
            // Some ranks may have it open; to close it they would need the others.
            (Err(e), shared) => {
                std::mem::forget(shared);
                return Err(e);
            }
            (Ok(()), None) => return Err(Error::Closed),
        };
        let data_files = header.data_files() as usize;
        Ok(Files {
            path: path.to_owned(),
            header,
            id,
            data_path,
            number: number as usize,
            sharing,
            shared,
            ends: vec![FRONT; data_files],
            flushes: 0,
            root: journal.flatten().map(|journal| Root {
                journal,
                definitions: Vec::new(),
            }),
        })
    }

    /// Flushes that are complete.
    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Fails where a reader of the journal could not keep one more flush in mind.
    pub fn check_room(&self) -> std::result::Result<(), String> {
        let extents = (self.flushes + 1).saturating_mul(u64::from(self.sharing.size()));
        let ends = (self.flushes + 1).saturating_mul(self.ends.len() as u64);
        if extents <= MOST_EXTENTS as u64 && ends <= journal::MOST_ENDS as u64 {
            Ok(())
        } else {
            Err(format!(
                "after {} flushes of {} ranks the file has to be closed",
                self.flushes, self.header.ranks
            ))
        }
    }

    /// Where this rank's `len` bytes go in its data file. Collective.
    pub fn place(&self, len: u64) -> u64 {
        self.ends[self.number] + self.sharing.sum_before(len)
    }

    /// Where the data files end if this rank's end at `end`, as far as this rank knows: other ranks
    /// may know of more.
    pub fn ends_with(&self, end: u64) -> Vec<u64> {
        let mut ends = self.ends.clone();
        ends[self.number] = end;
        ends
    }

    /// Writes this rank's part of a flush. Collective over the ranks that share the file.
    pub fn write(
        &self,
        offset: u64,
        pieces: &[&[u8]],
        fsync: Fsync,
    ) -> std::result::Result<(), String> {
        let written = self.shared.write(offset, pieces);
        // Collective, so that also a rank whose write failed has to take part.
        let synced = match fsync {
            Fsync::Flush => self.shared.sync(),
            Fsync::None | Fsync::Close => Ok(()),
        };
        let about = |e: String| format!("{}: {e}", self.data_path.display());
        written.and(synced).map_err(about)
    }

    /// Makes a flush last that all ranks have written, up to `ends`: the first rank's work.
    pub fn commit(
        &mut self,
        ends: &[u64],
        defined: &[Definition],
        fsync: Fsync,
    ) -> std::result::Result<(), String> {
        let Some(root) = &mut self.root else {
            return Ok(());
        };
        let ends = ends.to_vec();
        let mut lines: Vec<Line> = defined.iter().cloned().map(Line::Define).collect();
        let flush = self.flushes + 1;
        lines.push(Line::Commit(Commit { flush, ends }));
        let at_once = fsync == Fsync::Flush;
        // The journal is worth nothing if its name, or that of a data file, can be lost.
        let named = if at_once && self.flushes == 0 {
            sync_names(&self.path, &self.header)
        } else {
            Ok(())
        };
        named
            .and_then(|()| root.journal.append_lines(&lines, at_once))
            .map_err(|e| e.to_string())
    }

    /// All ranks know that the flush lasts.
    pub fn set_committed(&mut self, ends: Vec<u64>, defined: &mut Vec<Definition>) {
        self.ends = ends;
        self.flushes += 1;
        if let Some(root) = &mut self.root {
            // The outcome of extents is in the outline.
            let lasting = |d: &Definition| !matches!(d, Definition::Extent { .. });
            root.definitions.extend(defined.drain(..).filter(lasting));
        }
    }

    /// Makes HDF5 files of the data files, and removes the journal. Collective. Interrupted or failed
    /// at any point, it can be done again.
    pub fn finish(
        &mut self,
        ranks: &Ranks,
        section: &[u8],
        outline: &Outline,
        fsync: Fsync,
    ) -> Result<()> {
        let finished = |outcome| {
            ranks.wait();
            complete("close", ranks.agree(outcome))
        };
        let (table, written) = self.write_table(section);
        // Collective, so that also a rank whose write failed has to take part.
        let synced = match fsync {
            Fsync::None => Ok(()),
            Fsync::Close | Fsync::Flush => self.shared.sync(),
        };
        let about = |e: String| format!("{}: {e}", self.data_path.display());
        finished(told(written.and(synced).map_err(about)).0)?;

        let datasets = outline.datasets.len();
        let fronted = if self.sharing.is_root() {
            let data = Piece {
                offset: FRONT,
                len: self.ends[self.number] - FRONT,
            };
            let role = Role::Log { data, table };
            write_front(&self.data_path, &self.header, &self.id, datasets, role)
        } else {
            Ok(())
        };
        let fronted = fronted.and_then(|()| {
            if self.sharing.is_root() && fsync != Fsync::None {
                sync(&self.data_path)
            } else {
                Ok(())
            }
        });
        finished(told(fronted.map_err(|e| e.to_string())).0)?;

        let closed = self.finish_master(outline, fsync);
        finished(told(closed.map_err(|e| e.to_string())).0)
    }

    /// Writes the table of entries behind the data: one section a rank. Collective over the ranks
    /// that share the file.
    fn write_table(&self, section: &[u8]) -> (Piece, std::result::Result<(), String>) {
        let len = section.len() as u64;
        let before = self.sharing.sum_before(len);
        let total = self.sharing.sum(len);
        let lens = self.sharing.gather(len);
        let mut table = Piece {
            offset: self.ends[self.number],
            len: 0,
        };
        if total == 0 {
            return (table, Ok(()));
        }
        let head = 8 * (u64::from(self.sharing.size()) + 1);
        table.len = head + total;
        if !self.sharing.is_root() {
            let offset = table.offset + head + before;
            return (table, self.shared.write(offset, &[section]));
        }
        let mut words = u64::from(self.sharing.size()).to_le_bytes().to_vec();
        let mut at = head;
        for len in lens {
            at += len;
            words.extend_from_slice(&at.to_le_bytes());
        }
        let written = self.shared.write(table.offset, &[&words, section]);
        (table, written)
    }

    /// On the first rank: the user's objects, and the end of the journal.
    fn finish_master(
        &mut self,
        outline: &Outline,
        fsync: Fsync,
    ) -> h5logfs_core::error::Result<()> {
        let Some(root) = &self.root else {
            return Ok(());
        };
        let datasets = &outline.datasets;
        if self.header.subfiles > 0 {
            let role = Role::Master;
            write_front(&self.path, &self.header, &self.id, datasets.len(), role)?;
        }
        write_objects(&self.path, &self.id, &root.definitions, datasets)?;
        if fsync != Fsync::None {
            sync(&self.path)?;
            sync_names(&self.path, &self.header)?;
        }
        root.journal.remove()
    }

    /// Lets go of the data file. Collective.
    pub fn close(self) {
        if let Err(e) = self.shared.close() {
            // The file is complete: there is nothing that anybody could do about it.
            log::warn!("{}: {e}", self.data_path.display());
        }
    }

    /// Gives up what only collective calls could free.
    pub fn leak(self) {
        std::mem::forget(self.shared);
        self.sharing.leak();
    }
}

fn told<T>(result: std::result::Result<T, String>) -> (Outcome, Option<T>) {
    match result {
        Ok(value) => (Outcome::Good, Some(value)),
        Err(reason) => (Outcome::Failed(reason), None),
    }
}

/// Removes what a failed creation made.
fn created(ranks: &Ranks, verdict: Verdict, made: &mut Made) -> Result<()> {
    let result = complete("create", verdict);
    if result.is_err() {
        made.remove_files();
        // The directory can go when all ranks have removed what they made in it.
        ranks.sum(0);
        made.remove_dir();
    }
    result
}

/// What this rank has made of a new file, to be removed if the others fail.
#[derive(Default)]
struct Made {
    /// No flush comes to a file that its ranks write nothing to; yet a reader wants its front.
    sync: bool,
    files: Vec<PathBuf>,
    dir: Option<PathBuf>,
}

impl Made {
    /// The journal, the file itself, and the directory for its subfiles.
    fn master(
        &mut self,
        path: &Path,
        header: &Header,
        id: &FileId,
        overwrite: bool,
    ) -> std::result::Result<Journal, String> {
        let mut attempt = || -> h5logfs_core::error::Result<Journal> {
            let io = |e| h5logfs_core::error::Error::io(path, e);
            let journal_path = journal::path_of(path);
            // A journal alone may be what is left of a log that was moved.
            for there in [path, &journal_path] {
                if !overwrite && there.symlink_metadata().is_ok() {
                    let exists = io::ErrorKind::AlreadyExists.into();
                    return Err(h5logfs_core::error::Error::io(there, exists));
                }
            }
            let dir = subfile_dir(path);
            if header.subfiles > 0 {
                match std::fs::create_dir(&dir) {
                    Ok(()) => self.dir = Some(dir.clone()),
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
                    Err(e) => return Err(h5logfs_core::error::Error::io(dir, e)),
                }
            }
            let journal = Journal::create(journal_path.clone(), header)?;
            self.files.push(journal_path);
            self.file(path, id, overwrite).map_err(io)?;
            if overwrite {
                remove_subfiles(path).map_err(|e| h5logfs_core::error::Error::io(&dir, e))?;
            }
            Ok(journal)
        };
        attempt().map_err(|e| e.to_string())
    }

    /// A data file, or a master, with nothing in it yet. A file that has the name is unlinked, not
    /// cut short: who reads it shall not see it end.
    fn file(&mut self, path: &Path, id: &FileId, overwrite: bool) -> io::Result<()> {
        if overwrite {
            match std::fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        self.files.push(path.to_owned());
        file.write_all_at(&unclosed_front(id), 0)?;
        if self.sync { file.sync_all() } else { Ok(()) }
    }

    fn remove_files(&mut self) {
        for path in self.files.drain(..) {
            let _ = std::fs::remove_file(path);
        }
    }

    fn remove_dir(&mut self) {
        if let Some(dir) = self.dir.take() {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Removes the subfiles that an earlier file of the name left.
fn remove_subfiles(path: &Path) -> io::Result<()> {
    let mut number = 0;
    loop {
        match std::fs::remove_file(subfile(path, number)) {
            Ok(()) => number += 1,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}

/// Waits until the names of all files of the log are on the disk.
fn sync_names(path: &Path, header: &Header) -> h5logfs_core::error::Result<()> {
    if header.subfiles > 0 {
        sync(&subfile_dir(path))?;
    }
    sync(parent(path))
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}
