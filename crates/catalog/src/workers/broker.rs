//! The broker of one scan: it opens files for a worker, but only those of one log, and checks the snapshot that the
//! worker sends.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, PathBuf};
use std::time::Instant;

use rustix::fs::OFlags;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::part_names;
use h5logfs_log::scan::protocol::{Channel, Direction, Request, Response, ScanTask, Wait, poll};
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::SourcePath;

/// The most bytes of a message besides metadata.
const MAX_OVERHEAD: u64 = 1 << 20;

/// The most messages of one worker: several for each file that a log can have.
const MAX_MESSAGES: usize = 4 << 16;

/// Why there is no snapshot.
#[derive(Debug)]
pub enum NoSnapshot {
    /// The worker reported an error of the scan.
    Failed(Error),
    /// The worker died, or closed its socket.
    WorkerGone,
    /// The scan took too long.
    TimedOut,
    /// The worker sent a message against the protocol.
    BadMessage(String),
}

/// One scan, seen from the daemon.
#[derive(Debug)]
pub struct Broker<'a> {
    request: ScanRequest<'a>,
    /// The largest snapshot that is accepted, in bytes.
    max_snapshot: u64,
    /// The owner of the log file.
    owner: u32,
    /// The companion files of the request. A log may have ten thousand.
    companions: HashSet<&'a SourcePath>,
    files: LogFiles<'a>,
}

struct Until(Instant);

impl Wait for Until {
    fn wait(&self, socket: BorrowedFd<'_>, to: Direction) -> io::Result<()> {
        if poll(socket, to, Some(self.0))? {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

impl From<io::Error> for NoSnapshot {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::TimedOut => NoSnapshot::TimedOut,
            io::ErrorKind::InvalidData => NoSnapshot::BadMessage(e.to_string()),
            _ => NoSnapshot::WorkerGone,
        }
    }
}

fn refused() -> io::Error {
    rustix::io::Errno::ACCESS.into()
}

impl<'a> Broker<'a> {
    /// `max_snapshot` is in bytes. `owner` is that of the log file.
    pub fn new(request: ScanRequest<'a>, max_snapshot: u64, owner: u32) -> Self {
        let is_root = |user: u32| user == 0;
        let reads_more = is_root(rustix::process::geteuid().as_raw()) && !is_root(owner);
        let files = LogFiles::of_owner(request.dir, request.relative, owner);
        Broker {
            request,
            max_snapshot,
            owner,
            companions: request.companions.unwrap_or_default().iter().collect(),
            // The snapshot may contain bytes of each file that the worker reads. All users who may read the files that
            // it names can see it.
            files: if reads_more {
                files.only_public()
            } else {
                files
            },
        }
    }

    /// Sends the worker its task, and opens the files that it asks for until it is done. Returns the bytes of a
    /// snapshot.
    pub fn serve(
        &self,
        task: &Task,
        socket: BorrowedFd<'_>,
        until: Instant,
    ) -> Result<Reserved<Vec<u8>>, NoSnapshot> {
        let max_len = usize::try_from(self.max_snapshot.saturating_add(MAX_OVERHEAD));
        let max_len = max_len.unwrap_or(usize::MAX);
        let worker = Channel::new(socket, Until(until));
        worker.send(&self.task(), None)?;
        for _ in 0..MAX_MESSAGES {
            // A worker that sends without a pause never runs into the timeout of a wait.
            if Instant::now() > until {
                return Err(NoSnapshot::TimedOut);
            }
            let mut reservation = task.reservation();
            let received = worker.receive_request(max_len, &mut reservation);
            let ask = received.map_err(|e| self.no_snapshot(e))?;
            let answer = match ask {
                Request::Done(outcome) => {
                    let bytes = outcome.into_result().map_err(NoSnapshot::Failed)?;
                    reservation.shrink_to(bytes.capacity() as u64);
                    return Ok(Reserved::new(bytes, reservation));
                }
                Request::Open(place) => {
                    self.open(&place).map(|file| (Response::Opened, Some(file)))
                }
                Request::List(place) => self
                    .list(&place)
                    .map(|names| (Response::Listed(names), None)),
            };
            let (answer, file) = answer.unwrap_or_else(|e| (Response::from(&e), None));
            let file = file.as_ref().map(AsFd::as_fd);
            worker.send(&answer, file)?;
        }
        Err(NoSnapshot::BadMessage("too many questions".into()))
    }

    fn no_snapshot(&self, error: io::Error) -> NoSnapshot {
        if error.kind() == io::ErrorKind::OutOfMemory {
            return NoSnapshot::Failed(Error::of(self.path(), error));
        }
        error.into()
    }

    /// The path of the log file, as a user knows it.
    pub fn path(&self) -> PathBuf {
        self.request.dir.full_path(self.request.relative)
    }

    fn task(&self) -> ScanTask {
        let ScanRequest {
            dir,
            relative,
            companions,
            settings,
            known,
        } = self.request;
        ScanTask {
            relative: relative.to_owned(),
            dir: dir.path().to_owned(),
            companions: companions.map(<[SourcePath]>::to_vec),
            settings: Settings {
                log_dirs: dir.all().skip(1).map(|f| f.path().to_owned()).collect(),
                most: settings.most.min(self.max_snapshot),
                ..settings.clone()
            },
            known,
        }
    }

    fn open(&self, place: &SourcePath) -> io::Result<OwnedFd> {
        if !self.may_open(place) {
            return Err(refused());
        }
        if *place != SourcePath::below(self.request.relative) {
            return Ok(self.files.open_file(place, OFlags::RDONLY)?.into());
        }
        let file = self.request.dir.open_file(&place.path)?;
        // Another file may have taken the name.
        if file.metadata()?.uid() == self.owner {
            Ok(file.into())
        } else {
            Err(refused())
        }
    }

    fn list(&self, place: &SourcePath) -> io::Result<Vec<OsString>> {
        if place.dir == 0 && part_names::is_own_dir(self.request.relative, &place.path) {
            self.files.list(place)
        } else {
            Err(refused())
        }
    }

    /// Whether a file can belong to the log by its name. This can be the log file, its journal, a subfile, a file of
    /// the directory that is the log, or a companion file that the daemon has found.
    fn may_open(&self, place: &SourcePath) -> bool {
        let relative = self.request.relative;
        let is_own = || place.dir == 0 && part_names::may_be_read(relative, &place.path);
        let mut parts = place.path.components();
        let goes_down = parts.all(|part| matches!(part, Component::Normal(_)));
        goes_down && (self.companions.contains(place) || is_own())
    }

    /// Decodes the snapshot from the worker. Fails if the snapshot contradicts itself or belongs to another log.
    pub fn check(&self, task: &Task, bytes: &[u8]) -> Result<Reserved<Snapshot>> {
        let path = self.path();
        let bad = |fault: Fault| match fault.into_damage() {
            Ok(reason) => Error::ScanDied {
                path: path.clone(),
                reason: format!("the worker sent an invalid snapshot: {reason}"),
            },
            Err(fault) => Error::of(&path, fault),
        };
        let snapshot = Snapshot::from_bytes(task, bytes).map_err(bad)?;
        snapshot.check().map_err(bad)?;
        let is_set = self.request.members().is_some();
        if snapshot.joined.is_some() != is_set || !snapshot.is_at(self.request.relative) {
            return Err(bad("it is of another file".into()));
        }
        let mut files = snapshot.sources.iter().chain(&snapshot.journal);
        match files.find(|file| !self.may_open(&file.place)) {
            Some(file) => {
                let file = file.place.path.display();
                Err(bad(format!("{file} is not part of the log").into()))
            }
            None => Ok(snapshot),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use h5logfs_log::snapshot::Source;
    use h5logfs_log::source_dir::SourceDir;
    use h5logfs_log::source_file::SourceFile;

    #[test]
    fn a_worker_gets_files_of_its_log_only() {
        let source = tempfile::tempdir().unwrap();
        let below = |name: &str| source.path().join(name);
        std::fs::create_dir(below("a.h5.subfiles")).unwrap();
        std::fs::create_dir(below("b.h5.subfiles")).unwrap();
        let files = [
            "a.h5",
            "b.h5",
            "a.h5.h5logfs-journal",
            "a.h5.subfiles/a.h5.0",
            "b.h5.subfiles/b.h5.0",
            "a.h5_0_1.meta",
            "a.h5_1_1.meta",
        ];
        for file in files {
            std::fs::write(below(file), file).unwrap();
        }
        let dir = SourceDir::open(source.path()).unwrap();
        let settings = Settings::default();
        let companions = [SourcePath::below("a.h5_0_1.meta")];
        let request = ScanRequest {
            dir: &dir,
            relative: Path::new("a.h5"),
            companions: Some(&companions),
            settings: &settings,
            known: None,
        };
        let own = rustix::process::geteuid().as_raw();
        let broker = Broker::new(request, 1 << 20, own);
        let gets = |path: &str| broker.open(&SourcePath::below(path)).is_ok();
        for own in [
            "a.h5",
            "a.h5.h5logfs-journal",
            "a.h5.subfiles/a.h5.0",
            "a.h5_0_1.meta",
        ] {
            assert!(gets(own), "{own}");
        }
        for other in [
            "b.h5",
            "a.h5_1_1.meta",
            "b.h5.subfiles/b.h5.0",
            "a.h5.subfiles/../b.h5",
            "a.h5.subfiles/..",
            "a.h5.subfiles",
            "/etc/passwd",
            "../a.h5",
            "",
        ] {
            assert!(!gets(other), "{other}");
        }
        let elsewhere = SourcePath {
            dir: 1,
            path: "a.h5".into(),
        };
        assert!(broker.open(&elsewhere).is_err());
        let lists = |path: &str| broker.list(&SourcePath::below(path)).is_ok();
        assert!(lists("a.h5.subfiles"));
        assert!(!lists("b.h5.subfiles") && !lists("") && !lists("."));
    }

    #[test]
    fn the_snapshot_of_a_set_begins_with_one_of_its_members() {
        let source = tempfile::tempdir().unwrap();
        for file in ["x.nc.0000", "x.nc.0001", "x.nc.0002"] {
            std::fs::write(source.path().join(file), file).unwrap();
        }
        let dir = SourceDir::open(source.path()).unwrap();
        let settings = Settings::default();
        let companions = ["x.nc.0000", "x.nc.0001"].map(SourcePath::below);
        let request = ScanRequest {
            companions: Some(&companions),
            ..ScanRequest::alone(&dir, Path::new("x.nc"), &settings)
        };
        let broker = Broker::new(request, 1 << 20, rustix::process::geteuid().as_raw());
        let gets = |path: &str| broker.open(&SourcePath::below(path)).is_ok();
        assert!(gets("x.nc.0001") && !gets("x.nc.0002"));
        let accepts = |joined: Option<&str>, first: &str| {
            let place = SourcePath::below(first);
            let found = SourceFile::open_at(&dir, &place).map(|file| file.identity());
            let snapshot = Snapshot {
                sources: vec![Source::whole(place, found.unwrap())],
                joined: joined.map(PathBuf::from),
                ..Snapshot::default()
            };
            let bytes = snapshot.to_bytes().unwrap();
            broker.check(&Task::unlimited(), &bytes).is_ok()
        };
        assert!(accepts(Some("x.nc"), "x.nc.0001"));
        assert!(!accepts(Some("x.nc"), "x.nc.0002"));
        assert!(!accepts(Some("y.nc"), "x.nc.0001"));
        assert!(!accepts(None, "x.nc.0001"));
    }

    #[test]
    fn a_log_gets_no_private_files_of_others() {
        let source = tempfile::tempdir().unwrap();
        let below = |name: &str| source.path().join(name);
        let (log, part) = ("a.nc", "a.nc_0_1.meta");
        for file in [log, part] {
            std::fs::write(below(file), file).unwrap();
        }
        let dir = SourceDir::open(source.path()).unwrap();
        let request = ScanRequest {
            dir: &dir,
            relative: Path::new(log),
            companions: Some(&[SourcePath::below(part)]),
            settings: &Settings::default(),
            known: None,
        };
        let own = rustix::process::geteuid().as_raw();
        let gets = |owner, path, mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(below(path), permissions).unwrap();
            let broker = Broker {
                files: LogFiles::of_owner(&dir, request.relative, owner).only_public(),
                ..Broker::new(request, 1 << 20, owner)
            };
            broker.open(&SourcePath::below(path)).is_ok()
        };
        // The owner of the directory has the part, and nobody else may write there.
        assert!(gets(own, part, 0o600));
        assert!(!gets(own + 1, part, 0o600) && !gets(own + 1, part, 0o640));
        assert!(gets(own + 1, part, 0o604));
        // Another file has taken the name of the log during the scan.
        assert!(gets(own, log, 0o600) && !gets(own + 1, log, 0o604));
    }
}
