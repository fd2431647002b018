//! Closes a log whose job died before it could close it: `h5logfs recover`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::front::Role;
use super::refusal;
use super::{write_front, write_objects};
use h5logfs_core::error::{Error, Result};
use h5logfs_core::journal::extent::{FRONT, check_id, file_id, sections};
use h5logfs_core::journal::{self, FileId, Recorded, Torn};
use h5logfs_core::journal::{parent, sync};
use h5logfs_core::log::log_files::LogFiles;
use h5logfs_core::log::logvol::Section;
use h5logfs_core::log::source_dir::{SourceDir, SourcePath};
use h5logfs_core::log::source_file::{Identity, SourceFile};
use h5logfs_core::log::window::Piece;

/// What was recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Flushes that the file has now.
    pub flushes: u64,
    pub datasets: usize,
    /// What was dropped from the end of the journal.
    pub torn: Option<Torn>,
}

/// A data file of the log, with its records up to the last flush that is kept.
struct DataFile {
    path: PathBuf,
    sections: Vec<Section>,
    /// Where its data end.
    end: u64,
}

/// Closes the log at `path` from its journal. Keeps the flushes up to `last` (or all that were complete), and nothing
/// else. If it is interrupted, it can be repeated. `None`: the log is closed already.
pub fn recover(path: &Path, last: Option<u64>) -> Result<Option<Recovered>> {
    let (dir, name) = refusal::open_directory(path)?;
    let master = SourceFile::open(&dir, &name)?;
    let files = LogFiles::of(&dir, &name, &master);
    let path = &dir.full_path(&name);
    let journal_path = journal::path_of(path);
    if refusal::is_closed(&files, &master)? {
        return nothing_to_do(path, last);
    }
    // The lock holds until the log is closed.
    let lock = lock(path, &files)?;
    let Some((_, all)) = journal::of_file(&files, &master)? else {
        // The job has closed it meanwhile.
        return nothing_to_do(path, last);
    };
    check_locked(&lock, &all).map_err(|e| Error::io(&journal_path, e))?;
    let flushes = all.flushes();
    let kept = choose_flushes(path, &files, all, last)?;
    // First all reads, because they can fail, then the writes.
    let data_files = read_data_files(&files, &kept)?;
    if kept.flushes() < flushes {
        for file in &data_files {
            copy_anew(file, &kept.id).map_err(|e| Error::io(&file.path, e))?;
        }
    }
    write_closed(path, &data_files, &kept)?;
    sync_all(path, &data_files)?;
    std::fs::remove_file(&journal_path).map_err(|e| Error::io(&journal_path, e))?;
    sync(parent(path))?;
    Ok(Some(Recovered {
        flushes: kept.flushes(),
        datasets: kept.outline.datasets.len(),
        torn: kept.torn,
    }))
}

/// Closes a log to which the caller has appended: its earlier entries are in the data files only. The caller has the lock
/// of the journal, which has so many flushes, and removes it. With `force` all is on the disk then. If it is interrupted,
/// it can be repeated.
pub fn close_again(path: &Path, flushes: u64, force: bool) -> Result<()> {
    let (dir, name) = SourceDir::of_file(path)?;
    let master = SourceFile::open(&dir, &name)?;
    let files = LogFiles::of(&dir, &name, &master);
    let Some((_, journal)) = journal::of_file(&files, &master)? else {
        return Err(Error::bad_file(path, "its journal is not there"));
    };
    if journal.flushes() != flushes {
        let there = journal.flushes();
        let reason = format!("its journal was damaged: it has {there} flushes, and had {flushes}");
        return Err(Error::bad_file(path, reason));
    }
    let data_files = read_data_files(&files, &journal)?;
    write_closed(path, &data_files, &journal)?;
    if force {
        sync_all(path, &data_files)?;
    }
    Ok(())
}

/// Makes HDF5 files of the files of a log. Only the journal is left.
fn write_closed(path: &Path, data_files: &[DataFile], journal: &Recorded) -> Result<()> {
    for file in data_files {
        let data = Piece {
            offset: FRONT,
            len: file.end - FRONT,
        };
        let table = write_table(file, &journal.id).map_err(|e| Error::io(&file.path, e))?;
        write_front_of(&file.path, journal, Role::Log { data, table })?;
    }
    if journal.header.subfiles > 0 {
        write_front_of(path, journal, Role::Master)?;
    }
    let datasets = &journal.outline.datasets;
    write_objects(path, &journal.id, &journal.definitions, datasets)
}

/// Forces what was written to the disk.
fn sync_all(path: &Path, data_files: &[DataFile]) -> Result<()> {
    data_files.iter().try_for_each(|file| sync(&file.path))?;
    sync(path)
}

/// The outcome for a log that is closed already.
fn nothing_to_do(path: &Path, last: Option<u64>) -> Result<Option<Recovered>> {
    if last.is_none() {
        return Ok(None);
    }
    let reason = "it is closed already, and a closed log has no flushes that could be dropped";
    Err(Error::bad_file(path, reason))
}

/// Locks the journal of the log at `path`. Fails if the job still runs, which holds the lock, and if the journal belongs
/// to another user.
fn lock(path: &Path, files: &LogFiles<'_>) -> Result<File> {
    let place = SourcePath::below(journal::path_of(files.log()));
    let journal_path = files.full_path(&place);
    // NFS locks only files that are open for writing.
    let opened = files.open_file(&place, OFlags::RDWR);
    let file = opened.map_err(|e| refusal::without_journal(files, e))?;
    journal::lock(&file).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => Error::bad_file(path, refusal::running(files)),
        _ => Error::io(&journal_path, e),
    })?;
    Ok(file)
}

/// Fails where the journal that was read is not the one that is locked: a new job has replaced the log in between.
fn check_locked(lock: &File, journal: &Recorded) -> io::Result<()> {
    let (locked, read) = (Identity::from(&lock.metadata()?), journal.identity);
    if (locked.device, locked.inode) == (read.device, read.inode) {
        return Ok(());
    }
    Err(io::Error::other("another file has taken its name"))
}

/// The journal up to the flush `last`, or all of it. A damaged journal is read up to `last` only.
fn choose_flushes(
    path: &Path,
    files: &LogFiles<'_>,
    all: Recorded,
    last: Option<u64>,
) -> Result<Recorded> {
    let flushes = all.flushes();
    match (last, all.torn) {
        (Some(last), _) if last > flushes => {
            let reason = format!("it has {flushes} flushes, not {last}");
            Err(Error::bad_file(path, reason))
        }
        (Some(last), _) => {
            let journal = files.open(&SourcePath::below(journal::path_of(files.log())))?;
            Recorded::read_until(&journal, last)
        }
        (None, Some(torn)) if torn.hides_flushes() => {
            let reason = format!("{torn}; `--last-flush {flushes}` drops them");
            Err(Error::bad_file(path, reason))
        }
        (None, _) => Ok(all),
    }
}

fn read_data_files(files: &LogFiles<'_>, journal: &Recorded) -> Result<Vec<DataFile>> {
    let subfiles = journal.header.subfiles_of(files)?;
    let sources = if subfiles.is_empty() {
        vec![SourceFile::open(files.dir(), files.log())?]
    } else {
        let open = |place| files.open(place);
        subfiles.iter().map(open).collect::<Result<_>>()?
    };
    let read = |(number, source): (usize, SourceFile)| {
        let path = source.path().to_owned();
        if file_id(&source)? != Some(journal.id) {
            return Err(Error::bad_file(path, "it belongs to another log"));
        }
        let (sections, diagnostics) = sections(&source, number as u16, journal.ends(number))?;
        if let Some(diagnostic) = diagnostics.first() {
            return Err(Error::bad_file(&path, diagnostic));
        }
        Ok(DataFile {
            path,
            sections,
            end: journal.end(number),
        })
    };
    sources.into_iter().enumerate().map(read).collect()
}

fn write_front_of(path: &Path, journal: &Recorded, role: Role) -> Result<()> {
    let datasets = journal.outline.datasets.len();
    write_front(path, &journal.header, &journal.id, datasets, role)
}

/// Replaces a data file by a new one with its first `end` bytes. A program that has the old file open keeps reading
/// the dropped flushes. In the same file it would read other bytes in their place, and not notice.
fn copy_anew(data_file: &DataFile, id: &FileId) -> io::Result<()> {
    let path = &data_file.path;
    let old = File::open(path)?;
    check_id(&old, id)?;
    let stat = old.metadata()?;
    let mut new = tempfile::NamedTempFile::new_in(parent(path))?;
    io::copy(&mut old.take(data_file.end), new.as_file_mut())?;
    new.as_file().set_permissions(stat.permissions())?;
    // Only root may give a file away. Otherwise it belongs to the user who recovers it.
    let _ = fchown(new.as_file(), Some(stat.uid()), Some(stat.gid()));
    new.as_file().sync_all()?;
    new.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Writes the table of a data file behind its data (`docs/formats/logvol.md`, section 4): one section for each rank.
fn write_table(data_file: &DataFile, id: &FileId) -> io::Result<Piece> {
    let (sections, end) = (&data_file.sections, data_file.end);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).open(&data_file.path)?;
    check_id(&file, id)?;
    file.set_len(end)?;
    if sections.is_empty() {
        return Ok(Piece {
            offset: end,
            len: 0,
        });
    }
    // The number of sections, and where each ends.
    let head_len = 8 * (sections.len() as u64 + 1);
    let mut head = vec![sections.len() as u64];
    let mut at = head_len;
    for section in sections {
        at += section.pieces.iter().map(|p| p.len).sum::<u64>();
        head.push(at);
    }
    let head: Vec<u8> = head.iter().flat_map(|n| n.to_le_bytes()).collect();
    file.write_all_at(&head, end)?;
    let mut to = end + head_len;
    for piece in sections.iter().flat_map(|s| &s.pieces) {
        copy(&file, *piece, to)?;
        to += piece.len;
    }
    Ok(Piece {
        offset: end,
        len: at,
    })
}

fn copy(file: &File, piece: Piece, mut to: u64) -> io::Result<()> {
    const STEP: u64 = 1 << 20;
    let mut buffer = vec![0; STEP.min(piece.len) as usize];
    let mut at = 0;
    while at < piece.len {
        let part = &mut buffer[..STEP.min(piece.len - at) as usize];
        file.read_exact_at(part, piece.offset + at)?;
        file.write_all_at(part, to)?;
        at += part.len() as u64;
        to += part.len() as u64;
    }
    Ok(())
}
