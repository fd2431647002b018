//! Existing files under the name of a new log, and whether the new log may replace them.
//!
//! Files are left alone unless an option allows their loss. The lock of the journal shows whether a job still writes
//! the log. The journal of a job that did not close the log lists its flushes.
//!
//! Other jobs may create or close a log of this name at the same time. A look may then find a state that never existed,
//! such as the old file beside the new subfiles. So a look counts only if the names lead to the same files before and
//! after it.

use std::ffi::OsStr;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::FaultResult;
use crate::found::FoundLog;
use crate::options::{Options, Subfiles as SubfileOption};
use h5logfs_common::error::Error;
use h5logfs_common::fault::Fault;
use h5logfs_log::file_id::FileId;
use h5logfs_log::find_signature;
use h5logfs_log::front::FRONT;
use h5logfs_log::journal::fresh::refresh;
use h5logfs_log::journal::held::longest_beside;
use h5logfs_log::journal::parent;
use h5logfs_log::journal::{self, Beside, HeldFile, JobState, Recorded, Unflushed};
use h5logfs_log::log_dir;
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::logvol::names::{base_of, spill_dir, subfile_dir, subfile_number};
use h5logfs_log::own_parts::OwnDir;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::{Individual, SourceFile, individual};
use h5logfs_log::walk::{OthersMay, walk};
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

/// The log under the name of a new one. Its journal is locked, so that neither a job nor `h5logfs recover` starts work on it.
pub(crate) struct Existing {
    path: PathBuf,
    file: Option<LogFile>,
    journal: Option<OldJournal>,
    /// The directory of the subfiles.
    subfiles: Below,
    /// The directory of the files into which ranks have spilled.
    spills: Below,
}

/// A part of a log that gets another name, and may then be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub path: PathBuf,
    /// `None` for a file.
    pub dir: Option<OwnDir>,
}

/// The content of a directory beside a log.
#[derive(Default)]
struct Below {
    /// The directory, and the rule that tells parts of the log. `None` if it cannot hold a part.
    dir: Option<(PathBuf, OwnDir)>,
    /// Parts of the log.
    own: Vec<PathBuf>,
    /// All other files.
    others: Vec<PathBuf>,
}

/// The file of an earlier log, or any other file.
struct LogFile {
    id: Option<FileId>,
    unclosed: bool,
    /// Whether the file has bytes after its front.
    has_data: bool,
}

/// A file to be read further, with its directory. Opening it again costs some twenty calls of the file system.
pub(crate) struct Opened {
    pub dir: SourceDir,
    /// Name of the file in the directory.
    pub name: PathBuf,
    pub file: SourceFile,
}

impl Opened {
    /// Opens the file at `path`.
    pub fn at(path: &Path) -> Result<Self, Error> {
        let (dir, name) = SourceDir::of_file(path)?;
        let file = SourceFile::open(&dir, &name)?;
        Ok(Opened { dir, name, file })
    }
}

struct OldJournal {
    held: HeldFile,
    state: JobState,
    says: Says,
}

/// The statement of a file with the name of a journal.
enum Says {
    /// The records of the journal.
    Recorded(Box<Recorded>),
    /// Nothing: the log of its name is closed, or no line of the journal reached the disk.
    Nothing,
    /// The journal cannot be read, for this reason.
    Unknown(Fault),
    /// The file is no journal.
    Else,
}

impl Existing {
    /// Looks at the existing files. Fails if they may not be replaced, with advice.
    pub fn look(path: &Path, options: &Options) -> FaultResult<Self> {
        check_name(path)?;
        check_directory(parent(path))?;
        when_still(&names_of(path), |[file, journal, ..]| {
            // The journal comes first: its lock holds off processes that would change the rest.
            let journal = OldJournal::find(path, journal, TO_REPLACE)?;
            Existing::beside(path, file, journal, options)
        })
    }

    /// Looks again, now that the journal of the new log keeps other jobs away. There was no journal before, so a job may have
    /// created and closed a log since.
    pub fn look_again(path: &Path, options: &Options) -> FaultResult<Self> {
        Existing::beside(path, &at_name(path), None, options)
    }

    /// Looks at the files besides this journal. Fails if they may not be replaced.
    fn beside(
        path: &Path,
        file: &AtName,
        journal: Option<OldJournal>,
        options: &Options,
    ) -> FaultResult<Self> {
        let is_there = file_at(path, file)?.is_some();
        let file = is_there.then(|| LogFile::read(path)).transpose()?;
        let from_journal = || journal.as_ref().and_then(OldJournal::recorded);
        let id = match &file {
            Some(file) => file.id,
            None => from_journal().map(|recorded| recorded.id),
        };
        let existing = Existing {
            path: path.to_owned(),
            subfiles: Below::subfiles(path, id)?,
            spills: Below::spills(path)?,
            journal,
            file,
        };
        existing.check(options)?;
        Ok(existing)
    }

    /// Looks at a log to be opened again. Also returns its file, which is locked. Fails if there is none, or if a job still
    /// writes it.
    pub fn to_append(path: &Path) -> FaultResult<(Self, FoundLog)> {
        check_name(path)?;
        let names = [path.to_owned(), journal::path_of(path)];
        when_still(&names, |[file, journal]| {
            let journal = OldJournal::find(path, journal, TO_APPEND)?;
            let Some(file) = file_at(path, file)? else {
                return Err(Fault::Refused(format!(
                    "{}: there is no such file",
                    path.display()
                )));
            };
            check_appends(file.uid())?;
            let log = FoundLog::locked(path)?;
            Ok((Existing::appendable(path, &log, journal)?, log))
        })
    }

    fn appendable(path: &Path, log: &FoundLog, journal: Option<OldJournal>) -> FaultResult<Self> {
        let existing = Existing {
            path: path.to_owned(),
            journal,
            file: Some(LogFile::of(log)),
            subfiles: Below::default(),
            spills: Below::default(),
        };
        if log.id().is_none() {
            return Err(Fault::Refused(format!(
                "{}: this is not a log of h5logfs: only logs of its writer or its VOL connector can be opened again",
                path.display()
            )));
        }
        existing.check_journal()?;
        match existing.why_to_keep_file() {
            Some(reason) => Err(Fault::Refused(format!("{}: {reason}", path.display()))),
            None => Ok(existing),
        }
    }

    /// The records of an unclosed log; `None` for a closed one. Fails if the journal cannot be read, or belongs to another
    /// file.
    pub fn recorded(&self) -> FaultResult<Option<&Recorded>> {
        let Some(journal) = &self.journal else {
            return Ok(None);
        };
        let recorded = match &journal.says {
            Says::Recorded(recorded) => recorded,
            Says::Nothing => return Ok(None),
            Says::Unknown(reason) => return Err(reason.clone()),
            Says::Else => return Err(self.foreign(journal.held.path())),
        };
        if self.file.as_ref().and_then(|file| file.id) == Some(recorded.id) {
            return Ok(Some(recorded));
        }
        Err(Fault::Refused(format!(
            "{} is the journal of another log: move it to that log",
            journal.held.path().display()
        )))
    }

    /// Whether the existing log is to be kept under another name.
    pub fn is_kept(&self, options: &Options) -> bool {
        let may_be_lost = || self.why_to_keep().is_some() || self.has_unflushed();
        options.keep_unclosed && !options.discard_unclosed && may_be_lost()
    }

    /// Whether a job that did not close the log may have written data that no flush covers.
    fn has_unflushed(&self) -> bool {
        let file = self.file.as_ref().filter(|file| file.unclosed);
        file.is_some_and(|file| file.has_data || !self.subfiles.own.is_empty())
    }

    pub fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// The parts: the file, its journal, the directory of its subfiles, and the directory of spilled data. Directories come
    /// last, as they cannot have two names: the log is complete under the old name until the subfiles move, and under the new
    /// name from then on.
    pub fn parts(&self) -> Vec<Part> {
        let of_file = |path: &Path| Part {
            path: path.to_owned(),
            dir: None,
        };
        let file = self.file.as_ref().map(|_| of_file(&self.path));
        let journal = self.journal.as_ref().map(|j| of_file(j.held.path()));
        let parts = [file, journal, self.subfiles.part(), self.spills.part()];
        parts.into_iter().flatten().collect()
    }

    fn check(&self, options: &Options) -> FaultResult {
        self.check_journal()?;
        let shown = self.path.display();
        let may_go = options.overwrite && (options.discard_unclosed || options.keep_unclosed);
        if !may_go && let Some(reason) = self.why_to_keep() {
            return Err(Fault::Refused(format!(
                "{shown}: {reason}. Or choose another name. Only the options `overwrite` and `discard_unclosed` \
                 together destroy it; with `keep_unclosed` in place of the latter it gets another name"
            )));
        }
        if !options.overwrite {
            self.check_absent()?;
        }
        let parts = self.parts();
        let first = parts.first();
        first.map_or(Ok(()), |part| check_others(&part.path))?;
        parts.iter().try_for_each(|part| check_owner(&part.path))?;
        if self.file.is_some() {
            log_dir::check_change_for(&self.path, "choose another name")?;
            check_writable(&self.path)?;
        }
        self.check_alone(&self.spills)?;
        self.check_alone(&self.subfiles)?;
        self.check_subfiles(options)
    }

    fn check_absent(&self) -> FaultResult {
        let shown = self.path.display();
        match (&self.file, &self.journal) {
            (None, None) => match self.spills.own.first() {
                None => Ok(()),
                Some(first) => Err(Fault::Refused(format!(
                    "{shown}: ranks of a log of this name have left files, such as {}, but the log itself is not there. Move or \
                     remove them, choose another name, or set the option `overwrite`",
                    first.display()
                ))),
            },
            (None, Some(journal)) => Err(Fault::Refused(format!(
                "{shown}: its journal {} is there, without the file and without a flush: a job ended while it created \
                 the file. Remove the journal, choose another name, or set the option `overwrite`",
                journal.held.path().display()
            ))),
            (Some(_), _) => Err(Fault::Refused(format!(
                "{shown}: it exists already: choose another name, or set the option `overwrite` to replace it"
            ))),
        }
    }

    /// The reason why the option `overwrite` alone does not replace the files, with advice on keeping them. They may
    /// hold flushes of a job that did not close the log.
    fn why_to_keep(&self) -> Option<String> {
        let journal = self.journal.as_ref();
        let from_journal = journal.and_then(|journal| self.why_to_keep_flushes(journal));
        from_journal.or_else(|| self.why_to_keep_file().filter(|_| !self.is_only_begun()))
    }

    /// Whether a job and its node died before any byte of the journal or of data reached the disk.
    fn is_only_begun(&self) -> bool {
        let says_nothing = (self.journal.as_ref()).is_some_and(|j| matches!(j.says, Says::Nothing));
        let has_data = self.file.as_ref().is_some_and(|file| file.has_data);
        says_nothing && !has_data && self.subfiles.own.is_empty()
    }

    /// The reason to keep a file without a journal: nothing lists the flushes of an unclosed file.
    fn why_to_keep_file(&self) -> Option<String> {
        let file = self.file.as_ref().filter(|file| file.unclosed)?;
        let journal = self.journal.as_ref().and_then(OldJournal::recorded);
        if journal.is_some_and(|journal| file.id == Some(journal.id)) {
            return None;
        }
        Some(format!(
            "it was not closed, and its journal is not there, so its flushes are unknown. If its journal was moved, \
             move it back to {}, and let `h5logfs recover {}` close the file",
            journal::path_of(&self.path).display(),
            self.path.display()
        ))
    }

    fn why_to_keep_flushes(&self, journal: &OldJournal) -> Option<String> {
        let shown = self.path.display();
        let recorded = match &journal.says {
            Says::Recorded(recorded) => recorded,
            // A file that is no journal is never replaced.
            Says::Nothing | Says::Else => return None,
            Says::Unknown(reason) => {
                return Some(format!(
                    "its journal cannot be read, so its flushes are unknown ({reason})"
                ));
            }
        };
        let may_run = journal.state == JobState::Unknown;
        let is_own = self.file.as_ref().and_then(|file| file.id) == Some(recorded.id);
        let unflushed = is_own.then(|| self.unflushed(recorded)).flatten();
        let flushes = match (recorded.flushes(), unflushed) {
            (0, Some(unflushed)) => unflushed,
            (0, None) if !may_run => return None,
            (1, _) => "1 flush".to_owned(),
            (n, _) => format!("{n} flushes"),
        };
        let job = recorded.header.job.as_ref();
        let who = job.map_or("a job".to_owned(), |job| format!("a job ({job})"));
        let name = journal.held.path().display();
        let reason = match &self.file {
            Some(file) if file.id == Some(recorded.id) => format!(
                "{who} did not close it and left {flushes} in it. `h5logfs recover {shown}` closes it, so that they \
                 are kept; after that, `overwrite` replaces it"
            ),
            Some(_) => format!(
                "{name} is the journal of another log, which {who} did not close, with {flushes}. Move it to that log"
            ),
            None => format!(
                "{name} is the journal of a log that {who} did not close, with {flushes}, but the log is not there. \
                 If it was moved, move its journal to it"
            ),
        };
        let warning = "It may still run: this file system has no locks to show that. ";
        Some(if may_run {
            format!("{warning}{reason}")
        } else {
            reason
        })
    }

    /// Fails if the file with the name of the journal is no journal.
    fn check_journal(&self) -> FaultResult {
        match &self.journal {
            Some(journal) if matches!(journal.says, Says::Else) => {
                Err(self.foreign(journal.held.path()))
            }
            _ => Ok(()),
        }
    }

    /// Fails if a directory holds anything besides parts of the log, because it is renamed as a whole.
    fn check_alone(&self, below: &Below) -> FaultResult {
        match below.others.first() {
            Some(other) if !below.own.is_empty() => Err(self.foreign(other)),
            _ => Ok(()),
        }
    }

    fn foreign(&self, other: &Path) -> Fault {
        Fault::Refused(format!(
            "{}: {} does not belong to the log of this name, and nothing replaces it. Move or remove it, or choose another \
             name",
            self.path.display(),
            other.display()
        ))
    }

    /// A text about data that no flush covers; `None` without any.
    fn unflushed(&self, recorded: &Recorded) -> Option<String> {
        let find = || {
            let (dir, name) = SourceDir::of_file(&self.path)?;
            let file = SourceFile::open(&dir, &name)?;
            Unflushed::of(&LogFiles::of(&dir, &name, &file), recorded, false)
        };
        match find() {
            Ok(found) if found.is_empty() => None,
            Ok(found) => Some(found.summary().to_string()),
            Err(e) => Some(format!("unflushed data that cannot be read ({e})")),
        }
    }

    /// Fails if subfiles have lost their log, or if other files have the names of the new ones.
    fn check_subfiles(&self, options: &Options) -> FaultResult {
        let log = self.path.file_name().unwrap_or_default();
        let is_named = |path: &&PathBuf| {
            let name = path.file_name().unwrap_or_default();
            subfile_number(log, name).is_some()
        };
        let mut named = self.subfiles.others.iter().filter(is_named);
        if options.subfiles != SubfileOption::None
            && let Some(named) = named.next()
        {
            return Err(self.foreign(named));
        }
        if self.file.is_some() || self.journal.is_some() {
            return Ok(());
        }
        match named.find(|path| is_subfile(path)) {
            Some(subfile) => Err(Fault::Refused(format!(
                "{}: there are subfiles of a log, such as {}, but the log itself is not there. Move or remove them, or choose \
                 another name",
                self.path.display(),
                subfile.display()
            ))),
            None => Ok(()),
        }
    }
}

impl Below {
    /// The directory of the subfiles of the log with identifier `id`. Other writers, such as the Log VOL connector, give
    /// their files no identifier: nothing proves that such files belong to a log.
    fn subfiles(log: &Path, id: Option<FileId>) -> FaultResult<Self> {
        let dir = subfile_dir(log);
        let paths = list(&dir)?;
        let names: Vec<&OsStr> = paths.iter().filter_map(|path| path.file_name()).collect();
        let own = log.file_name().unwrap_or_default();
        let base = base_of(own, &names).unwrap_or(own).to_owned();
        let kind = id.map(|id| OwnDir::Subfiles { base, id });
        Self::sorted(dir, kind, paths)
    }

    /// The directory of the files into which ranks of the log have spilled.
    fn spills(log: &Path) -> FaultResult<Self> {
        let dir = spill_dir(log);
        let paths = list(&dir)?;
        Self::sorted(dir, Some(OwnDir::Spilled), paths)
    }

    fn sorted(dir: PathBuf, kind: Option<OwnDir>, paths: Vec<PathBuf>) -> FaultResult<Self> {
        let mut below = Below::default();
        for path in paths {
            let found = kind.as_ref().map_or(Ok(false), |kind| kind.has(&path));
            if found.map_err(|e| Fault::from(e).of_file(&path))? {
                below.own.push(path);
            } else {
                below.others.push(path);
            }
        }
        below.dir = kind.map(|kind| (dir, kind));
        Ok(below)
    }

    /// The directory as a part, if it holds parts of the log.
    fn part(&self) -> Option<Part> {
        let (path, dir) = self.dir.clone().filter(|_| !self.own.is_empty())?;
        Some(Part {
            path,
            dir: Some(dir),
        })
    }
}

/// Whether a file may be a subfile of some log: of our writers, or of the Log VOL connector, whose subfiles are HDF5 files.
fn is_subfile(path: &Path) -> bool {
    let opened = Opened::at(path);
    opened.is_ok_and(|Opened { file, .. }| {
        matches!(file.file_id(), Ok(Some(_))) || matches!(find_signature(&file), Ok(Some(_)))
    })
}

/// The names of a log's files and directories.
fn names_of(log: &Path) -> [PathBuf; 4] {
    [
        log.to_owned(),
        journal::path_of(log),
        subfile_dir(log),
        spill_dir(log),
    ]
}

/// The result of `stat` for a name; `None` if nothing has this name.
type AtName = FaultResult<Option<Metadata>>;

fn at_name(path: &Path) -> AtName {
    match path.symlink_metadata() {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Fault::from(e).of_file(path)),
    }
}

/// The identities of the files with these names.
fn individuals<const N: usize>(found: &[AtName; N]) -> [Option<Individual>; N] {
    found.each_ref().map(|found| match found {
        Ok(Some(found)) => Some(individual(found)),
        Ok(None) | Err(_) => None,
    })
}

/// Repeats `look` until none of these names changes during the look. The first name is that of the log. `look` takes
/// the state of the names before it.
fn when_still<T, const N: usize>(
    names: &[PathBuf; N],
    mut look: impl FnMut(&[AtName; N]) -> FaultResult<T>,
) -> FaultResult<T> {
    // A job that creates or closes a log changes some names within a moment, and its lock is visible meanwhile.
    const LOOKS: u32 = 100;
    for _ in 0..LOOKS {
        let at_names = || names.each_ref().map(|name| at_name(name));
        let before = at_names();
        let found = look(&before);
        if individuals(&at_names()) == individuals(&before) {
            return found;
        }
    }
    Err(Fault::Refused(format!(
        "{}: other programs create and remove files of this name without a pause: end them, or choose another name",
        names[0].display()
    )))
}

impl LogFile {
    fn read(path: &Path) -> FaultResult<Self> {
        Ok(LogFile::of(&FoundLog::at(path)?))
    }

    fn of(found: &FoundLog) -> Self {
        LogFile {
            id: found.id(),
            unclosed: found.is_unclosed(),
            has_data: found.len() > FRONT,
        }
    }
}

impl OldJournal {
    /// Locks the journal of the log at `log`, if there is one.
    fn find(log: &Path, journal: &AtName, what_to_do: &str) -> FaultResult<Option<Self>> {
        let path = journal::path_of(log);
        let is_there = file_at(&path, journal)?.is_some();
        is_there
            .then(|| Self::open(log, path, what_to_do))
            .transpose()
    }

    /// Locks the journal of the log at `log`. Fails if a job holds it; the message contains `what_to_do`.
    fn open(log: &Path, path: PathBuf, what_to_do: &str) -> FaultResult<Self> {
        let failed = |e: io::Error| Fault::from(e).of_file(&path);
        // NFS locks only files that are open for writing.
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(failed)?;
        let state = match journal::lock(&file) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                return Err(Fault::Refused(in_use(log, &path, what_to_do)));
            }
            state => state.map_err(failed)?,
        };
        // Lines that are not visible yet would be lost.
        refresh(&file);
        let held = HeldFile::new(file, path.clone()).map_err(failed)?;
        // Another job may have put its own journal there before this process got the lock.
        if held.check_name().is_err() {
            return Err(Fault::Refused(in_use(log, &path, what_to_do)));
        }
        Ok(OldJournal {
            says: Says::of(log, &path),
            held,
            state,
        })
    }

    fn recorded(&self) -> Option<&Recorded> {
        match &self.says {
            Says::Recorded(recorded) => Some(recorded),
            Says::Nothing | Says::Unknown(_) | Says::Else => None,
        }
    }
}

impl Says {
    /// The statement of the journal at `path` about the log at `log`.
    fn of(log: &Path, path: &Path) -> Self {
        let beside = SourceDir::of_file(log).and_then(|(dir, name)| {
            let file = SourceFile::open(&dir, &name)?;
            Beside::of(&LogFiles::of(&dir, &name, &file), &file)
        });
        match beside {
            Ok(Beside::Journal(_, recorded)) => return Says::Recorded(recorded),
            Ok(Beside::Stale(_)) => return Says::Nothing,
            // There is no log of ours, or the journal does not belong to it.
            Ok(Beside::Nothing) | Err(_) => {}
        }
        let read = open(path).and_then(|source| {
            if !journal::is_journal(&source)? {
                return Ok(Says::Else);
            }
            if is_blank(&source)? {
                return Ok(Says::Nothing);
            }
            Ok(Says::Recorded(Box::new(Recorded::read(&source)?)))
        });
        read.unwrap_or_else(|e| Says::Unknown(e.into()))
    }
}

/// Whether no byte of a journal reached the disk. Any other content may be a file of the user.
fn is_blank(journal: &SourceFile) -> Result<bool, Error> {
    const MOST: u64 = 64 << 10;
    let mut bytes = vec![0; journal.len().min(MOST) as usize];
    journal.read_exact_at(&mut bytes, 0)?;
    Ok(journal.len() <= MOST && bytes.iter().all(|byte| *byte == 0))
}

/// Advice about a job that writes the file.
const TO_REPLACE: &str =
    "No option replaces a file in use: wait for that job, end it, or choose another name";
const TO_APPEND: &str = "Wait for that job, or end it";

/// The message for a log that a job writes.
fn in_use(log: &Path, path: &Path, what_to_do: &str) -> String {
    let shown = log.display();
    let job = open(path).ok().and_then(|source| journal::job_of(&source));
    let who = match job {
        Some(job) => format!("another job writes it: {job}"),
        None => "another job writes it".to_owned(),
    };
    format!(
        "{shown}: {who}. The lock of {} shows it. {what_to_do}. If that job is dead, `h5logfs recover` is working on the \
         file",
        path.display()
    )
}

/// Fails if a path does not end with a file name, or if the name is too long for the names derived from it.
fn check_name(path: &Path) -> FaultResult {
    /// Names up to this length, in bytes, are never too long.
    const SHORT: usize = 64;
    let bytes = path.as_os_str().as_encoded_bytes();
    let Some(name) = path
        .file_name()
        .filter(|n| bytes.ends_with(n.as_encoded_bytes()))
    else {
        return Err(Fault::Refused(format!(
            "{}: the path does not end with the name of a file",
            path.display()
        )));
    };
    if name.len() <= SHORT {
        return Ok(());
    }
    let longest = longest_beside(path);
    let probed = rustix::fs::lstat(&longest);
    if probed.err() != Some(Errno::NAMETOOLONG) {
        return Ok(());
    }
    let more = longest.file_name().unwrap_or_default().len() - name.len();
    Err(Fault::Refused(format!(
        "{}: its name of {} bytes is too long for a log: files beside a log have its name in theirs, and {more} bytes more. \
         Choose a shorter name",
        path.display(),
        name.len()
    )))
}

/// Fails if a file may not be replaced although its directory is writable: in a sticky directory, such as /tmp, only the
/// owner may replace it.
fn check_owner(path: &Path) -> FaultResult {
    const STICKY: u32 = 0o1000;
    let failed = |e: io::Error| Fault::from(e).of_file(path);
    let dir = parent(path).metadata().map_err(failed)?;
    let owner = path.symlink_metadata().map_err(failed)?.uid();
    let user = rustix::process::geteuid();
    let may = [owner, dir.uid()].contains(&user.as_raw()) || user.is_root();
    if may || dir.mode() & STICKY == 0 {
        return Ok(());
    }
    Err(Fault::Refused(format!(
        "{}: user {owner} owns it, and only the owner can replace a file in {}: choose another name or directory",
        path.display(),
        parent(path).display()
    )))
}

/// Fails if this user may write to the directory, but not to the file: a program that overwrote the file would be refused.
fn check_writable(path: &Path) -> FaultResult {
    let may_write = rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS);
    match may_write {
        Err(e @ (Errno::ACCESS | Errno::PERM)) => {
            let fault = Fault::from(io::Error::from(e)).of_file(path);
            Err(fault.told(format!(
                "{}: it may not be written to, so it is not replaced: {}",
                path.display(),
                io::Error::from(e)
            )))
        }
        _ => Ok(()),
    }
}

/// Fails if readers would not accept this user's journal for a log that `owner` owns.
fn check_appends(owner: u32) -> FaultResult {
    let user = rustix::process::geteuid();
    if owner == user.as_raw() || user.is_root() {
        return Ok(());
    }
    Err(Fault::Refused(format!(
        "user {owner} owns it: only that user can append to it, because journals of other users do not count"
    )))
}

/// Fails if root would replace a file that another user could exchange at any time, for example for a link to the directory
/// of a third user.
fn check_others(path: &Path) -> FaultResult {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let found = walk(path)?;
    if found.is_none_or(|found| found.others < OthersMay::Replace) {
        return Ok(());
    }
    Err(Fault::Refused(format!(
        "{}: root replaces nothing in a directory where other users may rename files: run the job as the owner of that \
         directory, remove the file first, or choose another name",
        path.display()
    )))
}

/// Fails if a new file cannot be created in `dir`.
fn check_directory(dir: &Path) -> FaultResult {
    match dir.metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Fault::Refused(format!(
            "{} is not a directory",
            dir.display()
        ))),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(Fault::from(e).told(format!(
            "the directory {} does not exist: create it before the job begins",
            dir.display()
        ))),
        Err(e) => Err(Fault::from(e).of_file(dir)),
    }
}

/// The regular file at a path, if there is one. Fails if something else has the name.
fn file_at<'f>(path: &Path, found: &'f AtName) -> FaultResult<Option<&'f Metadata>> {
    let Some(file) = found.as_ref().map_err(Fault::clone)? else {
        return Ok(None);
    };
    let (shown, found) = (path.display(), file.file_type());
    if found.is_file() {
        Ok(Some(file))
    } else if found.is_symlink() {
        Err(Fault::Refused(format!(
            "{shown}: a symbolic link of this name is in the way: give the path to which it leads"
        )))
    } else {
        let what = if found.is_dir() {
            "directory"
        } else {
            "device, pipe or socket"
        };
        Err(Fault::Refused(format!(
            "{shown}: a {what} of this name is in the way: choose another name"
        )))
    }
}

/// The entries of a directory, sorted. Readers do not follow a symbolic link, so nothing is listed behind one.
pub(crate) fn list(dir: &Path) -> FaultResult<Vec<PathBuf>> {
    let list = || {
        if dir.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            return Ok(Vec::new());
        }
        let entries = match fs::read_dir(dir) {
            Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => {
                return Ok(Vec::new());
            }
            entries => entries?,
        };
        let paths = entries.map(|entry| Ok(entry?.path()));
        let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    };
    list().map_err(|e: io::Error| Fault::from(e).of_file(dir))
}

fn open(path: &Path) -> Result<SourceFile, Error> {
    Opened::at(path).map(|opened| opened.file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_log::front::unclosed_front;
    use h5logfs_log::journal::{Commit, Header, Job, Journal, Line};
    use h5logfs_log::logvol::names::subfile;
    use std::fs::File;
    use std::os::unix::fs::symlink;

    const ID: FileId = FileId([1; 16]);
    const OTHER: FileId = FileId([2; 16]);

    /// The options `overwrite` and `discard_unclosed`.
    const CAREFUL: [bool; 2] = [false, false];
    const REPLACE: [bool; 2] = [true, false];
    const DISCARD: [bool; 2] = [true, true];

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Place(tempfile::tempdir().unwrap())
        }

        fn log(&self) -> PathBuf {
            self.0.path().join("a.h5")
        }

        fn file(&self, id: &FileId) {
            fs::write(self.log(), unclosed_front(id)).unwrap();
        }

        /// Makes a closed file, or any other.
        fn other_file(&self) {
            fs::write(self.log(), "text").unwrap();
        }

        fn journal(&self, id: &FileId, flushes: u64) -> Journal {
            let header = Header {
                job: Some(Job {
                    host: "node12".into(),
                    pid: 4711,
                    ..Job::default()
                }),
                ..Header::new(id, 1, 0, 0)
            };
            let mut journal =
                Journal::create(&journal::path_of(&self.log()), &header, false).unwrap();
            for flush in 1..=flushes {
                let ends = vec![FRONT + flush];
                let commit = Line::Commit(Commit::new(flush, ends));
                journal.append_lines(&[commit], false).unwrap();
            }
            journal
        }

        fn subfile(&self, number: u32, id: &FileId) {
            fs::create_dir_all(subfile_dir(&self.log())).unwrap();
            fs::write(subfile(&self.log(), number), unclosed_front(id)).unwrap();
        }

        fn look(&self, [overwrite, discard_unclosed]: [bool; 2]) -> FaultResult<Existing> {
            let options = Options {
                overwrite,
                discard_unclosed,
                ..Options::default()
            };
            Existing::look(&self.log(), &options)
        }

        /// The parts that are renamed.
        fn parts(&self, options: [bool; 2]) -> Vec<PathBuf> {
            let parts = self.look(options).unwrap().parts();
            parts.into_iter().map(|part| part.path).collect()
        }

        /// Checks that the log is refused with these options and with fewer, with a message of these words, and
        /// accepted with more.
        #[track_caller]
        fn refuses(&self, up_to: [bool; 2], words: &[&str]) {
            for options in [CAREFUL, REPLACE, [false, true], DISCARD] {
                let looked = self.look(options).map(drop);
                let is_refused = options
                    .iter()
                    .zip(up_to)
                    .all(|(option, up_to)| *option <= up_to)
                    || !options[0];
                assert_eq!(looked.is_err(), is_refused, "{options:?}: {looked:?}");
            }
            let reason = self.look(up_to).map(drop).unwrap_err().to_string();
            for word in words {
                assert!(reason.contains(word), "no {word:?} in: {reason}");
            }
        }
    }

    #[test]
    fn what_no_file_has_is_free() {
        let place = Place::new();
        assert!(place.look(CAREFUL).is_ok());
        // The user has prepared the directory, with special properties.
        fs::create_dir(subfile_dir(&place.log())).unwrap();
        assert!(place.parts(CAREFUL).is_empty());
    }

    #[test]
    fn a_file_is_replaced_if_an_option_says_so() {
        let place = Place::new();
        place.other_file();
        place.refuses(
            CAREFUL,
            &["it exists already", "another name", "`overwrite`"],
        );
        assert_eq!(place.parts(REPLACE), [place.log()]);
    }

    #[test]
    fn flushes_are_lost_only_if_two_options_say_so() {
        let place = Place::new();
        place.file(&ID);
        drop(place.journal(&ID, 19));
        place.refuses(
            REPLACE,
            &[
                "node12",
                "4711",
                "left 19 flushes",
                &format!("`h5logfs recover {}`", place.log().display()),
                "`discard_unclosed`",
            ],
        );
        fs::remove_file(journal::path_of(&place.log())).unwrap();
        place.refuses(REPLACE, &["was not closed", "journal is not there"]);
        drop(place.journal(&ID, 0));
        // The journal belongs to the file, and records no flush.
        place.refuses(CAREFUL, &["it exists already"]);
        place.file(&OTHER);
        place.refuses(REPLACE, &["was not closed", "journal is not there"]);
        place.file(&ID);
        fs::write(journal::path_of(&place.log()), "01234567 {\"journal\":1,").unwrap();
        place.refuses(REPLACE, &["journal cannot be read", "a.h5.h5logfs-journal"]);
        // Nothing of the journal reached the disk. Data may have.
        fs::write(journal::path_of(&place.log()), [0; 99]).unwrap();
        place.refuses(CAREFUL, &["it exists already"]);
        fs::write(place.log(), [unclosed_front(&ID), vec![1]].concat()).unwrap();
        place.refuses(REPLACE, &["was not closed", "a.h5.h5logfs-journal"]);
    }

    #[test]
    fn flushes_are_kept_elsewhere_if_an_option_says_so() {
        let place = Place::new();
        place.file(&ID);
        drop(place.journal(&ID, 1));
        let options = |overwrite, discard_unclosed| Options {
            overwrite,
            discard_unclosed,
            keep_unclosed: true,
            ..Options::default()
        };
        let is_kept = |options: Options| {
            let looked = Existing::look(&place.log(), &options);
            looked.map(|existing| existing.is_kept(&options)).ok()
        };
        assert_eq!(is_kept(options(false, false)), None);
        assert_eq!(is_kept(options(true, false)), Some(true));
        assert_eq!(is_kept(options(true, true)), Some(false));
        // There is no flush, but there are data.
        fs::remove_file(journal::path_of(&place.log())).unwrap();
        drop(place.journal(&ID, 0));
        assert_eq!(is_kept(options(true, false)), Some(false));
        fs::write(place.log(), [unclosed_front(&ID), vec![1]].concat()).unwrap();
        assert_eq!(is_kept(options(true, false)), Some(true));
        // There is nothing to lose.
        fs::remove_file(journal::path_of(&place.log())).unwrap();
        place.other_file();
        assert_eq!(is_kept(options(true, false)), Some(false));
    }

    #[test]
    fn a_job_that_runs_keeps_its_file() {
        let place = Place::new();
        place.file(&ID);
        let job = place.journal(&ID, 0);
        for options in [CAREFUL, REPLACE, DISCARD] {
            let reason = place.look(options).map(drop).unwrap_err().to_string();
            let words = ["another job writes it: process 4711", "node12", "No option"];
            assert!(words.iter().all(|word| reason.contains(word)), "{reason}");
        }
        drop(job);
        // This process holds the lock while it replaces the file.
        let existing = place.look(REPLACE).unwrap();
        assert!(place.look(DISCARD).is_err());
        drop(existing);
        assert!(place.look(REPLACE).is_ok());
    }

    #[test]
    fn what_another_job_does_during_a_look_is_not_taken_for_what_is_there() {
        let place = Place::new();
        place.other_file();
        place.subfile(0, &ID);
        let mut job = None;
        let looked = when_still(&names_of(&place.log()), |[file, journal, ..]| {
            let journal = OldJournal::find(&place.log(), journal, TO_REPLACE)?;
            // The other job takes the name, and moves the subfiles away.
            if job.is_none() {
                job = Some(place.journal(&OTHER, 0));
                place.file(&OTHER);
                fs::remove_dir_all(subfile_dir(&place.log())).unwrap();
            }
            Existing::beside(&place.log(), file, journal, &Options::default())
        });
        let reason = looked.map(drop).unwrap_err().to_string();
        assert!(reason.contains("another job writes it"), "{reason}");
        drop(job);
    }

    #[test]
    fn a_name_that_never_rests_is_told() {
        let place = Place::new();
        let mut looks = 0;
        let found = when_still(&names_of(&place.log()), |_| {
            looks += 1;
            // Both files exist, so their numbers differ.
            let next = place.log().with_extension("next");
            fs::write(&next, "").unwrap();
            fs::rename(next, place.log()).unwrap();
            Ok(())
        });
        let reason = found.unwrap_err().to_string();
        assert!(
            looks > 1 && reason.contains("a.h5: other programs"),
            "{reason}"
        );
    }

    #[test]
    fn a_journal_of_another_log_is_kept() {
        let place = Place::new();
        drop(place.journal(&ID, 2));
        place.refuses(REPLACE, &["2 flushes", "the log is not there"]);
        place.other_file();
        place.refuses(REPLACE, &["the journal of another log", "2 flushes"]);
        place.file(&OTHER);
        place.refuses(REPLACE, &["the journal of another log"]);
    }

    #[test]
    fn a_job_that_ended_before_it_made_the_file_leaves_a_journal() {
        let place = Place::new();
        drop(place.journal(&ID, 0));
        place.refuses(
            CAREFUL,
            &[
                "a.h5.h5logfs-journal is there, without the file",
                "Remove the journal",
            ],
        );
        let journal = journal::path_of(&place.log());
        assert_eq!(place.parts(REPLACE), [journal]);
    }

    #[test]
    fn a_path_ends_with_a_name() {
        let dir = tempfile::tempdir().unwrap();
        for end in ["a.h5/", "a.h5/.", "..", "a.h5//"] {
            let path = dir.path().join(end);
            let reason = Existing::look(&path, &Options::default()).map(drop);
            let reason = reason.unwrap_err().to_string();
            assert!(
                reason.ends_with("does not end with the name of a file"),
                "{reason}"
            );
        }
        assert!(Existing::look(Path::new(""), &Options::default()).is_err());
    }

    #[test]
    fn only_files_are_replaced() {
        for name in ["a.h5", "a.h5.h5logfs-journal"] {
            let place = Place::new();
            let path = place.0.path().join(name);
            let refused = |words: &str| {
                for options in [CAREFUL, REPLACE, DISCARD] {
                    let reason = place.look(options).map(drop).unwrap_err().to_string();
                    assert!(reason.contains(words) && reason.contains(name), "{reason}");
                }
            };
            fs::create_dir(&path).unwrap();
            refused("a directory of this name is in the way");
            fs::remove_dir(&path).unwrap();
            symlink("elsewhere", &path).unwrap();
            refused("a symbolic link of this name is in the way");
        }
        let place = Place::new();
        let below = |dir: &str| {
            let log = place.0.path().join(dir).join("a.h5");
            Existing::look(&log, &Options::default())
                .map(drop)
                .unwrap_err()
                .to_string()
        };
        assert!(
            below("missing").ends_with("missing does not exist: create it before the job begins")
        );
        File::create(place.0.path().join("file")).unwrap();
        assert!(below("file").ends_with("file is not a directory"));
    }

    #[test]
    fn subfiles_are_replaced_with_their_log() {
        let place = Place::new();
        for number in [0, 1, 10] {
            place.subfile(number, &ID);
        }
        // Without their log, nothing identifies the subfiles.
        for options in [CAREFUL, REPLACE, DISCARD] {
            let reason = place.look(options).map(drop).unwrap_err().to_string();
            assert!(
                reason.contains("a.h5.subfiles/a.h5.0") && reason.contains("not there"),
                "{reason}"
            );
        }
        drop(place.journal(&ID, 1));
        place.refuses(REPLACE, &["1 flush,"]);
        place.file(&ID);
        place.refuses(REPLACE, &["left 1 flush "]);
        let foreign = |words: &str| {
            let reason = place.look(DISCARD).map(drop).unwrap_err().to_string();
            assert!(
                reason.contains(words) && reason.contains("does not belong"),
                "{reason}"
            );
        };
        for stranger in [
            "a.h5.11",
            "a.h5.",
            "a.h5.02",
            "notifications.2024",
            "b.h5.0",
        ] {
            let path = subfile_dir(&place.log()).join(stranger);
            let id = [ID, OTHER][usize::from(stranger == "a.h5.11")];
            fs::write(&path, unclosed_front(&id)).unwrap();
            foreign(stranger);
            fs::remove_file(path).unwrap();
        }
        let (log, parts) = (place.log(), place.parts(DISCARD));
        assert_eq!(
            parts,
            [log.clone(), journal::path_of(&log), subfile_dir(&log)]
        );
    }

    /// A user's files, with names like those of parts of a log.
    const STRANGERS: [&str; 9] = [
        "a.h5.subfiles/a.h5.0",
        "a.h5.subfiles/a.h5.1",
        "a.h5.subfiles/notifications.2024",
        "a.h5.subfiles/result.001",
        "a.h5.subfiles/thoughts.",
        "a.h5.h5logfs-spill/0.1",
        "a.h5.h5logfs-spill/notifications.2024",
        "a.h5.h5logfs-unflushed",
        ".a.h5.h5logfs-new-01010101",
    ];

    #[test]
    fn what_only_has_the_name_of_a_part_is_none() {
        for id in [None, Some(ID), Some(OTHER)] {
            let place = Place::new();
            for name in STRANGERS {
                let path = place.0.path().join(name);
                fs::create_dir_all(parent(&path)).unwrap();
                let front = id.filter(|_| name.ends_with("a.h5.0"));
                let front = front.map(|id| unclosed_front(&id));
                fs::write(path, front.unwrap_or(b"notifications".to_vec())).unwrap();
            }
            // A subfile names its log, and a file that is no log has none.
            place.other_file();
            assert_eq!(place.parts(REPLACE), [place.log()]);
            // The new subfiles would have these names.
            let options = Options {
                overwrite: true,
                subfiles: SubfileOption::Number(2),
                ..Options::default()
            };
            let refused = Existing::look(&place.log(), &options).map(drop);
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("a.h5.0 does not belong"), "{refused}");
        }
    }

    #[test]
    fn a_file_that_is_no_journal_is_kept_whatever_its_name() {
        let place = Place::new();
        let notifications = journal::path_of(&place.log());
        for text in ["notifications\n", "0123 notifications", "{\"journal\":1}"] {
            fs::write(&notifications, text).unwrap();
            for make in [|_: &Place| {}, Place::other_file, |p: &Place| p.file(&ID)] {
                make(&place);
                for options in [CAREFUL, REPLACE, DISCARD] {
                    let refused = place.look(options).map(drop).unwrap_err().to_string();
                    assert!(
                        refused.contains("h5logfs-journal does not belong"),
                        "{refused}"
                    );
                }
            }
            fs::remove_file(place.log()).unwrap();
        }
    }
}
