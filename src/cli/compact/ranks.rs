//! The command for a job: its ranks share the chunks. Only the program `h5logfs-compact-mpi` calls it, because only that has
//! MPI.
//!
//! Each step, of one rank or of all, ends with a call in which all ranks learn its outcome. So no rank waits for one that has
//! given up.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::{Command, CommandFactory, Parser};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use super::watch::Watch;
use super::{CompactArgs, count, report};
use crate::cli::examples;
use crate::cli::log_bytes;
use crate::cli::missing::{LostData, Made};
use crate::cli::progress::{Lines, Summary};
use crate::cli::shared;
use crate::cli::target::{NewFile, TemporaryName, open_made};
use crate::cli::{LogScanner, Scanned};
use h5logfs_common::fault::{Fault, Kind};
use h5logfs_convert::compact::Source;
use h5logfs_convert::compact::ranks;
use h5logfs_convert::compact::sequence::Compacted;
use h5logfs_log::scan::Choice;
use h5logfs_output::ranks::{JobError, Ranks};

/// Name of the program.
pub const NAME: &str = "h5logfs-compact-mpi";

/// Make an ordinary, small HDF5 file from a log, with all processes of an MPI job
///
/// It makes the same file as h5logfs compact. Start it with mpirun, or another launcher of the MPI that it was built with.
/// All processes share the chunks, and need access to the log and to the directory of OUT.
#[derive(Debug, Clone, Parser)]
#[command(
    name = NAME,
    version,
    override_usage = "mpirun … h5logfs-compact-mpi [OPTIONS] FILE OUT\n       mpirun … h5logfs-compact-mpi [OPTIONS] FILE -o OUT",
    mut_arg("out", |out| out.help("The file to write, which appears when it is complete")),
    mut_arg("jobs", |jobs| jobs.help("Number of threads of each process that read and compress; one if not given")),
)]
pub struct JobArgs {
    #[command(flatten)]
    pub compact: CompactArgs,
}

/// The command line with examples.
pub fn command_line() -> Command {
    examples::add_own_to(shared::add_own_to(JobArgs::command()))
}

/// Fails if the processes of a job have different arguments. Collective.
pub fn check_arguments(ranks: &Ranks) -> Result<(), JobError> {
    let mut hasher = DefaultHasher::new();
    let arguments = std::env::args_os().skip(1);
    arguments.for_each(|argument| argument.hash(&mut hasher));
    let hash = hasher.finish();
    if ranks.largest(hash) == !ranks.largest(!hash) {
        return Ok(());
    }
    Err(JobError::new(
        "the processes of the job have different arguments",
    ))
}

/// Makes the file. Returns whether it lacks lost data, in which all ranks agree. Collective.
pub fn run(args: &JobArgs, ranks: &Ranks) -> Result<Result<(), LostData>, JobError> {
    let args = &args.compact;
    let job = Job {
        args,
        ranks,
        jobs: args.jobs.map_or(1, |jobs| jobs.get().into()),
    };
    let place = job.place()?;
    let source = job.source()?;
    let name = args.paths.out().display().to_string();
    let summary = Summary::begin(log_bytes(&source.view));
    let written = job.write(&source, place.as_ref());
    let compacted = written.map_err(|e| e.about(format!("cannot write {name}")))?;
    if let Some(compacted) = &compacted {
        summary.print(&name, compacted.file.len);
    }
    let left_out = compacted.map_or_else(Vec::new, |compacted| compacted.left_out);
    ranks.led(report(&left_out))?;
    // All ranks have the snapshot of the first one.
    let made = Made {
        log: &args.paths.file,
        snapshot: source.view.snapshot(),
        name: &name,
        left_out: ranks.sum(count(&left_out)),
    };
    let told = ranks.is_root().then(|| made.warn());
    ranks.led(told.unwrap_or(Ok(())))?;
    Ok(made.end(&args.losses))
}

struct Job<'a> {
    args: &'a CompactArgs,
    ranks: &'a Ranks,
    /// Number of threads of each rank.
    jobs: usize,
}

impl Job<'_> {
    /// The place of the new file, on the first rank.
    fn place(&self) -> Result<Option<NewFile>, JobError> {
        if self.args.paths.is_stdout() {
            return Err(JobError::new(
                "several processes cannot write to standard output: give the name of a file, or use h5logfs compact",
            ));
        }
        let place = || self.args.paths.new_file(&self.args.view.settings()?);
        let place = self.ranks.is_root().then(place);
        self.ranks.led(told(place.transpose()))
    }

    fn source(&self) -> Result<Source, JobError> {
        let scanner = self.ranks.is_root().then(|| self.args.view.scanner());
        let scanner = self.ranks.led(told(scanner.transpose()))?;
        let scans = self
            .args
            .scans(|choice| self.scan(scanner.as_ref(), choice))?;
        self.ranks.all(told(self.args.source(scans)))
    }

    /// The first rank, which has the scanner, scans for all.
    fn scan(&self, scanner: Option<&LogScanner<'_>>, choice: Choice) -> Result<Scanned, JobError> {
        let view = &self.args.view;
        let file = &self.args.paths.file;
        let own = scanner.map(|scanner| scanner.scan(file, choice));
        let own = self.ranks.led(told(own.transpose()))?;
        let bytes = own.as_ref().map(|own| own.snapshot.to_bytes());
        let bytes = self.ranks.led(bytes.transpose())?;
        let bytes = self.ranks.broadcast_bytes(0, bytes.unwrap_or_default());
        let elsewhere = || view.scanned_elsewhere(file, &bytes);
        self.ranks.all(told(own.map_or_else(elsewhere, Ok)))
    }

    /// Writes the file. Returns the summary on the first rank.
    fn write(
        &self,
        source: &Source,
        place: Option<&NewFile>,
    ) -> Result<Option<Compacted>, JobError> {
        let shared = self.create(place)?;
        let progress = self.progress(source);
        let compacted = ranks::write(source, self.ranks, &shared.file, self.jobs, &progress)?;
        if self.args.verify {
            self.verify(source, &shared, compacted.as_ref())?;
        }
        let finish = || -> Result<()> {
            match (place, shared.temporary, &compacted) {
                (Some(place), Some(temporary), Some(compacted)) => {
                    place.finish(temporary, compacted.file.len)
                }
                _ => Ok(()),
            }
        };
        self.ranks.led(told(finish()))?;
        Ok(compacted)
    }

    /// Creates the temporary file. Each rank first starts a process that removes it, so it disappears whichever rank dies.
    fn create(&self, place: Option<&NewFile>) -> Result<Shared, JobError> {
        let name = TemporaryName::new();
        let path = place.map(|place| place.path_of(&name).into_os_string().into_vec());
        let path = self.ranks.broadcast_bytes(0, path.unwrap_or_default());
        let path = PathBuf::from(OsString::from_vec(path));
        let watch = self.ranks.all(Watch::start(&path))?;
        let temporary = place.map(|place| place.create(&name)).transpose();
        let temporary = self.ranks.led(told(temporary))?;
        // The file is open for writing only: NFS would otherwise read a page to change a part of it, and write the whole
        // page, over what another node has written there.
        let file = open(&path, File::options().write(true));
        Ok(Shared {
            file: self.ranks.all(told(file))?,
            path,
            temporary,
            _watch: watch,
        })
    }

    fn verify(
        &self,
        source: &Source,
        shared: &Shared,
        compacted: Option<&Compacted>,
    ) -> Result<(), JobError> {
        // Other nodes open the file only after its data are written.
        let synced = compacted.map_or(Ok(()), |_| shared.file.sync_data());
        self.ranks.led(synced)?;
        let file = self
            .ranks
            .all(told(open(&shared.path, File::options().read(true))))?;
        let progress = self.progress(source);
        ranks::verify(source, self.ranks, &file, compacted, self.jobs, &progress)
    }

    /// Reports progress, on the first rank.
    fn progress(&self, source: &Source) -> impl Fn(u64) + Sync {
        let is_root = self.ranks.is_root();
        let lines = is_root.then(|| Lines::new(NAME, source.total()));
        move |done| {
            if let Some(lines) = &lines {
                lines.set_position(done);
            }
        }
    }
}

/// The fault that a rank sends to the others: its text, and the kind of the first cause that has one.
fn told<T>(own: Result<T>) -> Result<T, Fault> {
    own.map_err(|error| {
        let words = format!("{error:#}");
        let error = match error.downcast::<h5logfs_common::error::Error>() {
            Ok(error) => return Fault::from(error).told(words),
            Err(other) => other,
        };
        let mut causes = error.chain();
        let cause = causes.find_map(|cause| cause.downcast_ref().and_then(Errno::from_io_error));
        cause.map_or(Kind::Damage, Kind::Io).told(words)
    })
}

/// The file that all ranks write.
struct Shared {
    path: PathBuf,
    file: File,
    /// The file on the first rank. A drop removes it.
    temporary: Option<NamedTempFile>,
    _watch: Watch,
}

/// Opens the file that the first rank has made.
fn open(path: &Path, how: &OpenOptions) -> Result<File> {
    let path_shown = path.display();
    open_made(path, how).map_err(|e| match e.downcast_ref::<io::Error>() {
        Some(e) if e.kind() == io::ErrorKind::NotFound => anyhow!(
            "{path_shown} is missing on this node, although the first rank has created it: all nodes of the job must \
             share its directory"
        ),
        _ => anyhow!("{path_shown}: {e}"),
    })
}
