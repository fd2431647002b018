//! Closing a log whose job died before it could: `h5logfs recover`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, fchown};
use std::path::Path;

use super::front::Role;
use super::{parent, sync, write_front, write_objects};
use h5logfs_core::error::{Error, Result};
use h5logfs_core::journal::extent::{FRONT, file_id, sections};
use h5logfs_core::journal::{self, Recorded, Torn};
use h5logfs_core::log::logvol::Section;
use h5logfs_core::log::source_dir::SourceDir;
use h5logfs_core::log::source_file::SourceFile;
use h5logfs_core::log::window::Piece;

/// What was recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Flushes that are in the file now.
    pub flushes: u64,
    pub datasets: usize,
    /// What the journal had besides.
    pub torn: Option<Torn>,
}

/// Closes the log at `path` by its journal. All that the flushes up to `last` (or all that returned)
/// wrote is kept, and nothing else. Interrupted at any point, it can be done again.
pub fn recover(path: &Path, last: Option<u64>) -> Result<Recovered> {
    let journal = journal::path_of(path);
    let refused = |e: io::Error| Error::io(&journal, e);
    // Open for writing: else NFS would not lock it.
    let locked = OpenOptions::new().read(true).write(true).open(&journal);
    let locked = locked.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound if path.exists() => Error::bad_file(
            path,
            "it has no journal: it is closed already, or its journal is lost",
        ),
        _ => refused(e),
    })?;
    journal::lock(&locked).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => {
            Error::bad_file(path, "the job that writes it is still running")
        }
        _ => Error::io(&journal, e),
    })?;
    let (dir, name) = SourceDir::of_file(path)?;
    let master = SourceFile::open(&dir, &name)?;
    let Some((_, found)) = journal::of_file(&dir, &name, &master)? else {
        let reason = format!("{} does not belong to it", journal.display());
        return Err(Error::bad_file(path, reason));
    };
    let all = found.flushes();
    let found = match last {
        Some(last) if last > found.flushes() => {
            let reason = format!("it has {} flushes, not {last}", found.flushes());
            return Err(Error::bad_file(path, reason));
        }
        Some(last) => {
            Recorded::read_until(&SourceFile::open(&dir, &journal::path_of(&name))?, last)?
        }
        None => match found.torn {
            Some(torn) if torn.damaged => {
                let reason = format!("{torn}; `--last-flush {}` drops them", found.flushes());
                return Err(Error::bad_file(path, reason));
            }
            _ => found,
        },
    };
    // First all of the reading, which can fail, then the writing.
    let mut logs = Vec::new();
    let mut files = found.header.subfile_paths(&dir, &name)?;
    if files.is_empty() {
        files.push(name);
    }
    for (number, file) in files.into_iter().enumerate() {
        let source = SourceFile::open(&dir, &file)?;
        let file = source.path().to_owned();
        if file_id(&source)? != Some(found.id) {
            return Err(Error::bad_file(file, "it belongs to another log"));
        }
        let (sections, diagnostics) = sections(&source, number as u16, found.ends(number))?;
        if let Some(diagnostic) = diagnostics.first() {
            return Err(Error::bad_file(&file, diagnostic));
        }
        logs.push((file, sections, found.end(number)));
    }
    for (file, sections, end) in &logs {
        if found.flushes() < all {
            renew(file, *end).map_err(|e| Error::io(file, e))?;
        }
        let table = write_table(file, sections, *end).map_err(|e| Error::io(file, e))?;
        let data = Piece {
            offset: FRONT,
            len: end - FRONT,
        };
        let role = Role::Log { data, table };
        let datasets = found.outline.datasets.len();
        write_front(file, (&found.header, &found.id), datasets, role)?;
    }
    let datasets = &found.outline.datasets;
    if found.header.subfiles > 0 {
        write_front(
            path,
            (&found.header, &found.id),
            datasets.len(),
            Role::Master,
        )?;
    }
    write_objects(path, &found.id, &found.definitions, datasets)?;
    for (file, ..) in &logs {
        sync(file)?;
    }
    sync(path)?;
    std::fs::remove_file(&journal).map_err(refused)?;
    sync(parent(path))?;
    Ok(Recovered {
        flushes: found.flushes(),
        datasets: datasets.len(),
        torn: found.torn,
    })
}

/// Puts the first `end` bytes of a data file into a new file of its name. Who has the old one open goes
/// on to read the flushes that are dropped; other bytes in their place would not be noticed.
fn renew(path: &Path, end: u64) -> io::Result<()> {
    let old = File::open(path)?;
    let about = old.metadata()?;
    let mut new = tempfile::NamedTempFile::new_in(parent(path))?;
    io::copy(&mut old.take(end), new.as_file_mut())?;
    new.as_file().set_permissions(about.permissions())?;
    // Who may not give files away leaves it to be the own one.
    let _ = fchown(new.as_file(), Some(about.uid()), Some(about.gid()));
    new.as_file().sync_all()?;
    new.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Writes the table of a data file behind its data (`docs/formats/logvol.md`, section 4): one section
/// a rank.
fn write_table(path: &Path, sections: &[Section], end: u64) -> io::Result<Piece> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    file.set_len(end)?;
    if sections.is_empty() {
        return Ok(Piece {
            offset: end,
            len: 0,
        });
    }
    let head = 8 * (sections.len() as u64 + 1);
    let mut words = vec![sections.len() as u64];
    let mut at = head;
    for section in sections {
        at += section.pieces.iter().map(|p| p.len).sum::<u64>();
        words.push(at);
    }
    let words: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    file.write_all_at(&words, end)?;
    let mut to = end + head;
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
