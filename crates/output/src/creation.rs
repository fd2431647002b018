//! The creation of a log: all of it on all ranks, or nothing.
//!
//! The first rank looks what is there, and then takes the name by creating the journal, of which there can be one. What
//! an option lets it replace gets a second name, and each new file takes the place of the old one in one step. When all
//! ranks have the new file open, the old one is removed. If any of them fails, it is put back.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::aside::Aside;
use crate::check_outcome;
use crate::error::{Error, Result};
use crate::existing::Existing;
use crate::options::{Fsync, Options};
use crate::ranks::{GlobalOutcome, LocalOutcome, Ranks};
use h5logfs_core::journal::extent::{check_id, unclosed_front};
use h5logfs_core::journal::parent;
use h5logfs_core::journal::{self, FileId, Header, HeldFile, Journal};
use h5logfs_core::log::logvol::names::subfile_dir;

type StringResult<T = ()> = std::result::Result<T, String>;

/// What this rank has created and moved aside so far.
pub(crate) struct Creation {
    /// The log file.
    path: PathBuf,
    id: FileId,
    /// Sync each file when it is created. With fsync at each flush, readers need the front of every
    /// file, even of one that no flush writes to. With checksums the file system may show writes late, and the ranks on
    /// other nodes must find the front when they open the file.
    sync: bool,
    /// On the first rank. Its lock and its name keep other jobs away until all is done, or undone.
    journal: Option<Journal>,
    files: Vec<PathBuf>,
    dir: Option<PathBuf>,
    aside: Aside,
    /// On the first rank: what was there. It keeps the old journal locked.
    existing: Option<Existing>,
}

impl Creation {
    pub fn new(path: &Path, id: FileId, options: &Options) -> Self {
        Creation {
            path: path.to_owned(),
            id,
            sync: options.fsync == Fsync::Flush || options.checksums,
            journal: None,
            files: Vec::new(),
            dir: None,
            aside: Aside::default(),
            existing: None,
        }
    }

    /// On the first rank: creates the journal, the directory of the subfiles, and the log file, which it returns.
    pub fn begin(&mut self, header: &Header, options: &Options) -> StringResult<HeldFile> {
        let path = self.path.clone();
        let existing = Existing::look(&path, options)?;
        let is_locked = existing.has_journal();
        let existing = self.existing.insert(existing).parts();
        // What is there moves only while a journal keeps other jobs away: the old one, which is locked, or the new one.
        if is_locked {
            self.keep_aside(&existing)?;
        }
        self.create_journal(header)?;
        if !is_locked {
            self.keep_aside(&existing)?;
        }
        if header.subfiles > 0 {
            self.create_dir(&subfile_dir(&path))?;
        }
        self.create_file(&path)
    }

    fn keep_aside(&mut self, existing: &[PathBuf]) -> StringResult {
        let mut parts = existing.iter();
        parts.try_for_each(|part| self.aside.keep(&self.path, part, &self.id))
    }

    fn create_journal(&mut self, header: &Header) -> StringResult {
        let path = journal::path_of(&self.path);
        let replace = self.aside.has(&path);
        let journal = Journal::create(&path, header, replace);
        let journal = journal.map_err(|e| match e {
            h5logfs_core::error::Error::Io { path, cause } => failed(&path, cause),
            e => e.to_string(),
        })?;
        self.journal = Some(journal);
        Ok(())
    }

    /// Creates the directory of the subfiles. An empty one may be there, made with properties that the user wants.
    fn create_dir(&mut self, dir: &Path) -> StringResult {
        match std::fs::create_dir(dir) {
            Ok(()) => self.dir = Some(dir.to_owned()),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                // Readers follow no symbolic link to it.
                if !dir.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                    return Err(format!(
                        "{}: the subfiles need a directory of this name, and what has the name is none: move it away, \
                         or choose another name",
                        dir.display()
                    ));
                }
            }
            Err(e) => return Err(failed(dir, e)),
        }
        Ok(())
    }

    /// Creates an empty data file, or the log file.
    pub fn create_file(&mut self, path: &Path) -> StringResult<HeldFile> {
        let front = unclosed_front(&self.id);
        let begin = |file: &File| {
            file.write_all_at(&front, 0)?;
            if self.sync { file.sync_all() } else { Ok(()) }
        };
        let replace = self.aside.has(path);
        let created = HeldFile::create(path, &self.id.number(), replace, begin);
        let created = created.map_err(|e| failed(path, e))?;
        self.files.push(path.to_owned());
        Ok(created)
    }

    /// Fails where this rank does not find the file at `path` that another rank has created.
    pub fn check_seen(&self, path: &Path, opened: io::Result<File>) -> StringResult<File> {
        let checked = opened.and_then(|file| check_id(&file, &self.id).map(|()| file));
        checked.map_err(|e| {
            let shown = path.display();
            let dir = std::env::current_dir().unwrap_or_default();
            format!(
                "{shown}: {e}. The first rank has just created it, and this rank, in the directory {}, must be able to \
                 open it: do all ranks have the same working directory, and the same file systems?",
                dir.display()
            )
        })
    }

    /// If any rank has failed, removes what was created, and puts back what was there before. Collective.
    pub fn keep_if(&mut self, outcome: GlobalOutcome, ranks: &Ranks) -> Result<()> {
        let mut result = check_outcome(&self.path, "create", outcome);
        if let Err(Error::Failed { reason, .. }) = &mut result {
            let left = self.undo(ranks);
            if !left.is_empty() {
                *reason = format!("{reason}. {left}");
            }
        }
        result
    }

    /// Returns what could not be put back, in words. Collective.
    fn undo(&mut self, ranks: &Ranks) -> String {
        let created = self.files.drain(..).rev();
        for path in created.filter(|path| !self.aside.has(path)) {
            let _ = std::fs::remove_file(path);
        }
        // The directory is empty when all ranks have removed their files in it.
        ranks.wait();
        if let Some(dir) = self.dir.take() {
            let _ = std::fs::remove_dir(dir);
        }
        let left = self.aside.put_back();
        // Where the old journal is back, the new one has lost its name, and this does nothing.
        if let Some(journal) = self.journal.take() {
            let _ = journal.remove();
        }
        ranks.broadcast_text(0, left)
    }

    /// All ranks have the new log open: removes what was there before. Returns the journal on the first rank.
    pub fn complete(mut self) -> Option<Journal> {
        self.aside.remove();
        self.journal
    }
}

fn failed(path: &Path, error: io::Error) -> String {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{shown}: another process has just created it: choose another name")
        }
        io::ErrorKind::PermissionDenied => format!(
            "{shown}: {error}: this user needs the right to write to {}",
            parent(path).display()
        ),
        _ => format!("{shown}: {error}"),
    }
}

/// Fails on each rank whose path or options are not those of the first one. Collective.
pub fn check_same(path: &Path, options: &Options, ranks: &Ranks) -> LocalOutcome {
    let options = options
        .texts()
        .map(|(name, value)| (format!("option `{name}`"), value));
    let mut own = vec![("path".to_owned(), format!("{path:?}"))];
    own.extend(options);
    // No value has a line end: they are escaped.
    let lines: Vec<&str> = own.iter().map(|(_, value)| value.as_str()).collect();
    let first = ranks.broadcast_text(0, lines.join("\n"));
    let differs = own
        .iter()
        .zip(first.lines())
        .find(|((_, own), first)| own != first);
    let Some(((name, own), first)) = differs else {
        return LocalOutcome::Good;
    };
    LocalOutcome::Failed(format!(
        "its {name} is {own}, and that of rank 0 is {first}: all ranks must give the same path and the same options"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_the_right_to_write_is_named() {
        let message = failed(
            Path::new("/runs/a.h5"),
            io::ErrorKind::PermissionDenied.into(),
        );
        assert!(message.starts_with("/runs/a.h5: "), "{message}");
        assert!(message.ends_with("write to /runs"), "{message}");
    }
}
