//! The creation of a log, on all ranks or on none.
//!
//! The first rank looks for existing files, and then takes the name by creating the journal, which only one process can do.
//! Then it looks again, because another job may have come in between, unless it holds the old journal. Files that an option
//! lets it replace get a second name, and each new file takes the place of the old one in one step. When all ranks have the
//! new file open, the old one is removed. If any rank fails, the old one is restored.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::aside::Aside;
use crate::check_outcome;
use crate::error::{Error, FaultResult, Result};
use crate::existing::{Existing, Opened};
use crate::options::{Fsync, Options};
use crate::ranks::{GlobalOutcome, LocalOutcome, Ranks};
use h5logfs_common::fault::Fault;
use h5logfs_log::file_id::FileId;
use h5logfs_log::front::unclosed_front;
use h5logfs_log::journal::{self, Header, HeldFile, Journal, parent, sync};
use h5logfs_log::logvol::names::subfile_dir;

/// The files that this rank has created and moved aside.
pub(crate) struct Creation {
    /// The log file.
    path: PathBuf,
    id: FileId,
    /// Sync each file after its creation. With fsync at each flush, readers need the front of every file, even of one that no
    /// flush writes to. With checksums the file system may show writes late, and ranks on other nodes must find the front
    /// when they open the file.
    sync: bool,
    /// On the first rank: the new journal. Its lock and name keep other jobs away until the creation is complete or undone.
    journal: Option<Journal>,
    files: Vec<PathBuf>,
    dir: Option<PathBuf>,
    aside: Aside,
    /// On the first rank: the previous files. The old journal stays locked.
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
            aside: Aside::until_made(path, &id),
            existing: None,
        }
    }

    /// On the first rank: creates the journal, the directory of the subfiles, and the log file, and returns the log file.
    pub fn begin(&mut self, header: &Header, options: &Options) -> FaultResult<HeldFile> {
        let existing = Existing::look(&self.path, options)?;
        self.take_name(existing, header, options)?;
        if header.subfiles > 0 {
            self.create_dir(&subfile_dir(&self.path))?;
        }
        self.create_file(&self.path.clone())
    }

    /// Creates the journal, and moves existing files aside. They move only while a journal keeps other jobs away: the locked
    /// old one, or the new one.
    fn take_name(&mut self, existing: Existing, header: &Header, options: &Options) -> FaultResult {
        if existing.has_journal() {
            self.keep_aside(existing, options)?;
            return self.create_journal(header);
        }
        self.create_journal(header)?;
        self.keep_aside(Existing::look_again(&self.path, options)?, options)
    }

    fn keep_aside(&mut self, existing: Existing, options: &Options) -> FaultResult {
        if existing.is_kept(options) {
            self.aside = Aside::for_good(&self.path)?;
        }
        let parts = self.existing.insert(existing).parts();
        parts.iter().try_for_each(|part| self.aside.keep(part))?;
        if parts.is_empty() {
            return Ok(());
        }
        // The new files take their names next.
        Ok(sync(parent(&self.path))?)
    }

    fn create_journal(&mut self, header: &Header) -> FaultResult {
        let path = journal::path_of(&self.path);
        let replace = self.aside.has(&path);
        let journal = Journal::create(&path, header, replace);
        let journal = journal.map_err(|e| match e {
            h5logfs_common::error::Error::Io { path, cause } => failed(&path, cause),
            e => e.into(),
        })?;
        self.journal = Some(journal);
        Ok(())
    }

    /// Creates the directory of the subfiles. It may exist if it is empty, because a user may have prepared it with special
    /// properties.
    fn create_dir(&mut self, dir: &Path) -> FaultResult {
        match std::fs::create_dir(dir) {
            Ok(()) => self.dir = Some(dir.to_owned()),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                // Readers do not follow a symbolic link to it.
                if !dir.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                    return Err(Fault::Refused(format!(
                        "{}: the subfiles need a directory of this name, but this is none: move it away, or choose another name",
                        dir.display()
                    )));
                }
            }
            Err(e) => return Err(failed(dir, e)),
        }
        Ok(())
    }

    /// Creates an empty data file, or the log file.
    pub fn create_file(&mut self, path: &Path) -> FaultResult<HeldFile> {
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

    /// Fails if this rank does not find the file at `path` that another rank has created.
    pub fn check_seen(&self, path: &Path, opened: io::Result<File>) -> FaultResult<File> {
        let checked = opened.and_then(|file| self.id.check(&file).map(|()| file));
        checked.map_err(|e| {
            let dir = std::env::current_dir().unwrap_or_default();
            Fault::from(e).of_file(path).with(format_args!(
                "The first rank has just created it, and this rank, in the directory {}, must be able to open it: do all \
                 ranks have the same working directory, and the same file systems?",
                dir.display()
            ))
        })
    }

    /// If any rank has failed, removes the new files and restores the old ones. Collective.
    pub fn keep_if(&mut self, outcome: GlobalOutcome, ranks: &Ranks) -> Result<()> {
        let mut result = check_outcome(&self.path, "create", outcome);
        if let Err(Error::Failed { reason, .. }) = &mut result {
            let left = self.undo(ranks);
            if !left.is_empty() {
                *reason = reason.with(left);
            }
        }
        result
    }

    /// Undoes the creation. Returns a text about parts that could not be restored. Collective.
    fn undo(&mut self, ranks: &Ranks) -> String {
        let files = std::mem::take(&mut self.files);
        let created = files.into_iter().rev();
        for path in created.filter(|path| !self.aside.has(path) && self.is_new(path)) {
            let _ = std::fs::remove_file(path);
        }
        // The directory is empty when all ranks have removed their files in it.
        ranks.wait();
        if let Some(dir) = self.dir.take() {
            let _ = std::fs::remove_dir(dir);
        }
        let id = self.id;
        let left = self.aside.put_back(|path| is_new(path, &id));
        if self.existing.is_some() {
            // If this fails, the outcome is the same as after a crash of the system.
            let _ = sync(parent(&self.path));
        }
        // If the old journal has its name back, the new one has lost it, and this does nothing.
        if let Some(journal) = self.journal.take() {
            let _ = journal.remove();
        }
        ranks.broadcast_text(0, left)
    }

    /// Inode number of the journal on the first rank; 0 on others.
    pub fn journal_number(&self) -> u64 {
        let journal = self.journal.as_ref();
        journal.map_or(0, |journal| journal.held().number())
    }

    /// Whether the file at `path` belongs to the new log.
    fn is_new(&self, path: &Path) -> bool {
        is_new(path, &self.id)
    }

    /// Removes the previous files, once all ranks have the new log open. Returns, on the first rank, the journal, and the path of
    /// the previous log if that was kept.
    pub fn complete(mut self) -> (Option<Journal>, Option<PathBuf>) {
        let kept = self.aside.log_that_stays().map(Path::to_owned);
        self.aside.remove();
        (self.journal, kept)
    }
}

/// Whether the file at `path` belongs to the log with identifier `id`, or is its journal.
fn is_new(path: &Path, id: &FileId) -> bool {
    let opened = Opened::at(path);
    opened.is_ok_and(|opened| {
        let of_file = opened.file.file_id().ok().flatten();
        let of_journal = || journal::header_of(&opened.file).and_then(|header| header.file_id());
        of_file.or_else(of_journal) == Some(*id)
    })
}

fn failed(path: &Path, error: io::Error) -> Fault {
    let (shown, kind) = (path.display(), error.kind());
    let fault = Fault::from(error).of_file(path);
    match kind {
        io::ErrorKind::AlreadyExists => fault.told(format!(
            "{shown}: another process has just created it: choose another name"
        )),
        io::ErrorKind::PermissionDenied => fault.told(format!(
            "{fault}: this user needs the right to write to {}",
            parent(path).display()
        )),
        _ => fault,
    }
}

/// Fails on each rank whose path or options differ from those of the first rank. Collective.
pub fn check_same(path: &Path, options: &Options, ranks: &Ranks) -> LocalOutcome {
    let options = options
        .texts()
        .map(|(name, value)| (format!("option `{name}`"), value));
    let mut own = vec![("path".to_owned(), format!("{path:?}"))];
    own.extend(options);
    // Values contain no newline: it is escaped.
    let lines: Vec<&str> = own.iter().map(|(_, value)| value.as_str()).collect();
    let first = ranks.broadcast_text(0, lines.join("\n"));
    let differs = own
        .iter()
        .zip(first.lines())
        .find(|((_, own), first)| own != first);
    let Some(((name, own), first)) = differs else {
        return LocalOutcome::Good;
    };
    LocalOutcome::Failed(Fault::Refused(format!(
        "its {name} is {own}, and that of rank 0 is {first}: all ranks must give the same path and the same options"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use crate::options::Subfiles;
    use h5logfs_log::logvol::names::subfile;
    use std::fs;
    use std::sync::Barrier;
    use std::thread;

    const ID: FileId = FileId([1; 16]);
    const OTHER: FileId = FileId([2; 16]);

    fn replacing() -> Options {
        Options {
            overwrite: true,
            ..Options::default()
        }
    }

    /// A closed log, with subfiles.
    fn file_with_subfiles(log: &Path) {
        let mut front = vec![1; 8192];
        OTHER.mark(&mut front);
        fs::write(log, &front).unwrap();
        fs::create_dir(subfile_dir(log)).unwrap();
        fs::write(subfile(log, 0), &front).unwrap();
    }

    /// Another job, without subfiles, creates a log and closes it.
    fn another_job(log: &Path) {
        let options = replacing();
        let mut creation = Creation::new(log, OTHER, &options);
        let header = Header::new(&OTHER, 1, 0, 0);
        drop(creation.begin(&header, &options).unwrap());
        let journal = creation.complete().0.unwrap();
        fs::write(log, "closed").unwrap();
        journal.remove().unwrap();
    }

    /// A job looks, another one comes in between, and the first one goes on.
    fn late(log: &Path, options: &Options) -> (FaultResult, Creation) {
        let existing = Existing::look(log, options).unwrap();
        another_job(log);
        let mut creation = Creation::new(log, ID, options);
        let taken = creation.take_name(existing, &Header::new(&ID, 1, 0, 0), options);
        (taken, creation)
    }

    fn names(dir: &Path) -> Vec<String> {
        let found = fs::read_dir(dir).unwrap().flatten();
        let names = found.map(|entry| entry.file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_made_since_the_look_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.h5");
        let (taken, mut creation) = late(&log, &Options::default());
        let reason = taken.unwrap_err().to_string();
        assert!(
            reason.contains("it exists already: choose another name"),
            "{reason}"
        );
        assert_eq!(creation.undo(&Ranks::one()), "");
        assert_eq!(names(dir.path()), ["a.h5"]);
        assert_eq!(fs::read_to_string(&log).unwrap(), "closed");
    }

    #[test]
    fn what_was_made_since_the_look_is_replaced_where_an_option_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.h5");
        file_with_subfiles(&log);
        let (taken, mut creation) = late(&log, &replacing());
        // The subfiles are gone with their file.
        taken.unwrap();
        assert!(creation.aside.has(&log));
        assert_eq!(creation.undo(&Ranks::one()), "");
        assert_eq!(names(dir.path()), ["a.h5"]);
        assert_eq!(fs::read_to_string(&log).unwrap(), "closed");
    }

    #[test]
    fn of_jobs_that_create_a_log_at_once_one_has_it_and_the_others_are_told() {
        const JOBS: usize = 4;
        for round in 0..150 {
            let dir = tempfile::tempdir().unwrap();
            let log = dir.path().join("a.h5");
            if round % 3 > 0 {
                file_with_subfiles(&log);
            }
            let options = Options {
                subfiles: [Subfiles::None, Subfiles::Number(1)][round % 2],
                ..replacing()
            };
            let (start, made) = (Barrier::new(JOBS), Barrier::new(JOBS));
            let job = || {
                start.wait();
                let files = Files::create(&log, &Ranks::one(), &options);
                made.wait();
                files.map(drop).map_err(|e| e.to_string())
            };
            let created: Vec<Result<(), String>> = thread::scope(|scope| {
                let jobs: Vec<_> = (0..JOBS).map(|_| scope.spawn(job)).collect();
                jobs.into_iter().map(|job| job.join().unwrap()).collect()
            });
            let failures: Vec<String> = created.into_iter().filter_map(Result::err).collect();
            assert_eq!(failures.len(), JOBS - 1, "{round}: {failures:?}");
            for failure in failures {
                assert!(failure.contains("hoose another name"), "{round}: {failure}");
            }
            let others = names(dir.path());
            assert!(
                others.iter().all(|name| name.starts_with("a.h5")),
                "{others:?}"
            );
        }
    }

    #[test]
    fn a_directory_without_the_right_to_write_is_named() {
        let message = failed(
            Path::new("/runs/a.h5"),
            io::ErrorKind::PermissionDenied.into(),
        );
        let message = message.to_string();
        assert!(message.starts_with("/runs/a.h5: "), "{message}");
        assert!(message.ends_with("write to /runs"), "{message}");
    }
}
