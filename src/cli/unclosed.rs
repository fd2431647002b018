//! An unclosed log: whether its job still runs, and advice if not.
//!
//! A command asks after it has opened the view. A snapshot may be older than the end of the job.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use h5logfs_common::error::Result;
use h5logfs_log::journal::unflushed::{Summary, Unflushed};
use h5logfs_log::journal::{self, Job, JobState};
use h5logfs_log::log_dir;
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::SourceFile;
use h5logfs_view::View;

/// The state of a log's job. Its text is a note for a person.
#[derive(Debug, Serialize)]
pub struct Unclosed {
    /// The last complete flush.
    flush: u64,
    /// The last flush that the program asked for, if later ones are automatic; 0 without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<u64>,
    state: JobState,
    /// The job; left out if the journal does not name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<Job>,
    /// Data that no flush covers; left out without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    unflushed: Option<Summary>,
    /// The user's name for the log.
    #[serde(skip)]
    file: PathBuf,
}

impl Unclosed {
    /// The state; `None` if the log is closed, or if its layout has no journal with a job.
    pub fn of(file: &Path, view: &View) -> Option<Self> {
        let snapshot = view.snapshot();
        if !snapshot.tells_job() {
            return None;
        }
        let place = &snapshot.journal.as_ref()?.place;
        // The job may have closed the log meanwhile.
        let journal = open(file, place).ok();
        Some(Unclosed {
            flush: snapshot.flushes,
            asked: (snapshot.asked < snapshot.flushes).then_some(snapshot.asked),
            state: state_of(journal.as_ref()),
            job: journal.as_ref().and_then(journal::job_of),
            // The scan has already reported damage of the files.
            unflushed: (journal.as_ref())
                .filter(|_| snapshot.flushes == snapshot.newest)
                .and_then(|journal| unflushed(file, snapshot, journal).unwrap_or_default()),
            file: file.to_owned(),
        })
    }

    /// Data that no flush covers; `None` without any.
    pub fn unflushed(&self) -> Option<&Summary> {
        self.unflushed.as_ref()
    }

    /// Whether the job still runs.
    pub fn state(&self) -> JobState {
        self.state
    }

    /// Whether the job ran on another node. Not every file system shows its lock here.
    fn was_elsewhere(&self) -> bool {
        let here = Job::of_this_process().host;
        self.job.as_ref().is_some_and(|job| job.host != here)
    }
}

/// Whether the job that writes the log `file` still runs. `journal` is the place of its journal.
pub fn job_state(file: &Path, journal: &SourcePath) -> JobState {
    state_of(open(file, journal).ok().as_ref())
}

fn state_of(journal: Option<&SourceFile>) -> JobState {
    let descriptor = journal.and_then(SourceFile::descriptor);
    descriptor.map_or(JobState::Unknown, JobState::of)
}

/// Data that no flush of a log covers. The journal is not read here: a hostile one takes much memory, and the scan has read
/// it.
fn unflushed(file: &Path, snapshot: &Snapshot, journal: &SourceFile) -> Result<Option<Summary>> {
    let (dir, name) = log_dir::walk_to(file)?;
    let log = SourceFile::open(&dir, &name)?;
    let files = LogFiles::of(&dir, &name, &log);
    let Some(header) = journal::header_of(journal) else {
        return Ok(None);
    };
    let Some(flushed) = snapshot.flushed(&files, &header)? else {
        return Ok(None);
    };
    let summary = Unflushed::behind(&files, &flushed, false)?.summary();
    Ok(Some(summary).filter(|summary| !summary.is_empty()))
}

/// Opens the journal beside the log. Its place in a view may be relative to a listed directory above.
fn open(file: &Path, journal: &SourcePath) -> Result<SourceFile> {
    let (dir, name) = log_dir::walk_to(file)?;
    let log = SourceFile::open(&dir, &name)?;
    let beside = SourcePath::below(journal.path.file_name().unwrap_or_default());
    LogFiles::of(&dir, &name, &log).open(&beside)
}

impl fmt::Display for Unclosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let job = self.job.as_ref();
        let job = job.map_or(String::new(), |job| format!(" ({job})"));
        let recover = format!("`h5logfs recover {}` closes it", self.file.display());
        if let Some(summary) = &self.unflushed {
            write!(f, "{summary}; ")?;
        }
        match self.state {
            JobState::Running => write!(f, "its job is running{job}"),
            JobState::Ended if self.was_elsewhere() => write!(
                f,
                "its job seems to have ended{job}, unless locks of that node are not visible here: {recover}"
            ),
            JobState::Ended => write!(f, "its job has ended{job}: {recover}"),
            JobState::Unknown => write!(
                f,
                "its job may still be running{job}, which cannot be seen from here: if it has ended, {recover}"
            ),
        }
    }
}
