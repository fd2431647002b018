//! The job that writes a log: its identity, from the first line of the journal, and whether it still runs, from the
//! lock of the journal.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Deserializer, Serialize};

/// Variables in which batch systems put the ID of a job: Slurm, PBS and Torque, LSF, Flux, Cobalt, Fujitsu's, OAR,
/// Grid Engine.
const BATCH_VARIABLES: [&str; 8] = [
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "COBALT_JOBID",
    "PJM_JOBID",
    "OAR_JOB_ID",
    "JOB_ID",
];

/// The longest text about a job, in bytes.
const LONGEST_TEXT: usize = 255;

/// The first process of a job that writes a log. It only tells a user where to look: a user may write anything into a
/// journal. Unknown texts are empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    /// Name of the node.
    #[serde(deserialize_with = "short_text")]
    pub host: String,
    /// Number of the process on that node.
    pub pid: u32,
    /// Name of the user, or else the user number.
    #[serde(deserialize_with = "short_text")]
    pub user: String,
    /// The ID in the batch system, as in `SLURM_JOB_ID=4711`.
    #[serde(deserialize_with = "short_text")]
    pub batch: String,
    /// Time of the file's creation, in seconds since 1970.
    pub since: u64,
}

impl Job {
    /// The job of this process.
    pub fn of_this_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let batch = |name: &&str| variable(name).map(|value| format!("{name}={value}"));
        let batch = BATCH_VARIABLES.iter().find_map(batch);
        let user = variable("LOGNAME").or_else(|| variable("USER"));
        let user = user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Job {
            host: shortened(host()),
            pid: std::process::id(),
            user: shortened(&user),
            batch: shortened(&batch.unwrap_or_default()),
            since: now.map_or(0, |now| now.as_secs()),
        }
    }
}

/// The name of this node. It is looked up once, because a program may open a log for each step.
fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    let read = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    HOST.get_or_init(read).trim()
}

impl Display for Job {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        let is_number = self.user.bytes().all(|b| b.is_ascii_digit());
        let of = if is_number { "of user" } else { "of" };
        for (word, text) in [(of, &self.user), ("on", &self.host)] {
            if !text.is_empty() {
                write!(f, " {word} {text}")?;
            }
        }
        if !self.batch.is_empty() {
            write!(f, " ({})", self.batch)?;
        }
        write!(f, ", since {}", Utc(self.since))
    }
}

/// A text from a journal, which may hold anything.
fn short_text<'d, D: Deserializer<'d>>(input: D) -> Result<String, D::Error> {
    Ok(shortened(&String::deserialize(input)?))
}

/// The start of a text, without characters that a terminal would obey.
fn shortened(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    text.chars().take(LONGEST_TEXT).map(plain).collect()
}

/// A time in seconds since 1970, as `2026-11-22 08:00:00 UTC`.
struct Utc(u64);

impl Display for Utc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = self.0;
        let time = i64::try_from(seconds).map(Timestamp::from_second);
        match time {
            Ok(Ok(time)) => write!(f, "{}", time.strftime("%Y-%m-%d %H:%M:%S UTC")),
            // A journal may have any number here.
            _ => write!(f, "{seconds} seconds after 1970-01-01 UTC"),
        }
    }
}

/// Whether the job that writes a log still runs, according to the lock of its journal.
///
/// The lock is that of `flock`. The file system decides whether another node sees it. NFS since version 4, GPFS,
/// GlusterFS, and Lustre mounted with `flock` show it. Lustre mounted with `localflock` and most file systems in user
/// space do not: there a job on another node seems to have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Another process holds the lock: the job, or `h5logfs recover`.
    Running,
    /// No process holds the lock.
    Ended,
    /// The file system has no locks, or does not tell.
    Unknown,
}

impl JobState {
    /// The state of the job with this open journal. It takes a shared lock briefly; [`lock`] waits for this. A job
    /// locks its journal before the journal has its name.
    pub fn of(journal: impl AsFd) -> Self {
        let journal = journal.as_fd();
        match flock(journal, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _ = flock(journal, FlockOperation::Unlock);
                JobState::Ended
            }
            Err(Errno::WOULDBLOCK) => JobState::Running,
            Err(_) => JobState::Unknown,
        }
    }
}

/// Takes the lock of a running job. Fails with [`io::ErrorKind::WouldBlock`] where another process holds it.
/// `Unknown`: the file system has no locks, so it is unclear whether a job runs.
pub fn lock(journal: impl AsFd) -> io::Result<JobState> {
    const PATIENCE: u32 = 1000;
    let journal = journal.as_fd();
    for _ in 0..PATIENCE {
        match flock(journal, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(JobState::Ended),
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK) => return Ok(JobState::Unknown),
            Err(Errno::WOULDBLOCK) if JobState::of(journal) == JobState::Running => break,
            // Other processes have just asked for the state.
            Err(Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(e.into()),
        }
    }
    Err(Errno::WOULDBLOCK.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (1_795_334_400, "2026-11-22 08:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(Utc(seconds).to_string(), text);
        }
        // Numbers in a journal are hostile.
        for seconds in [1 << 40, i64::MAX as u64, 1 << 63, u64::MAX] {
            let text = format!("{seconds} seconds after 1970-01-01 UTC");
            assert_eq!(Utc(seconds).to_string(), text);
        }
    }

    #[test]
    fn a_job_is_told_in_one_line() {
        let job = Job {
            host: "node12".into(),
            pid: 4711,
            user: "anna".into(),
            batch: "SLURM_JOB_ID=88123".into(),
            since: 0,
        };
        assert_eq!(
            job.to_string(),
            "process 4711 of anna on node12 (SLURM_JOB_ID=88123), since 1970-01-01 00:00:00 UTC"
        );
        let job = Job {
            user: "1001".into(),
            ..job
        };
        assert!(job.to_string().starts_with("process 4711 of user 1001 on "));
        let job = Job::default();
        assert_eq!(job.to_string(), "process 0, since 1970-01-01 00:00:00 UTC");
        let own = Job::of_this_process();
        assert!(own.pid == std::process::id() && own.since > 1_700_000_000);
        assert!(!own.host.is_empty() && !own.user.is_empty());
    }

    #[test]
    fn texts_of_a_journal_are_short_and_plain() {
        let long = "x".repeat(100_000);
        let text = serde_json::json!({"host": long, "user": "\u{1b}[31mroot\n", "more": [1]});
        let job: Job = serde_json::from_value(text).unwrap();
        assert_eq!(job.host.len(), LONGEST_TEXT);
        assert_eq!(job.user, "?[31mroot?");
        assert_eq!((job.pid, job.since), (0, 0));
    }

    #[test]
    fn the_lock_tells_the_state() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let (job, other) = (open(), open());
        assert_eq!(JobState::of(&other), JobState::Ended);
        assert_eq!(lock(&job).unwrap(), JobState::Ended);
        assert_eq!(JobState::of(&other), JobState::Running);
        assert_eq!(lock(&other).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // The query has not taken the lock away.
        assert_eq!(JobState::of(open()), JobState::Running);
        drop(job);
        assert_eq!(JobState::of(&other), JobState::Ended);
    }

    #[test]
    fn a_job_gets_the_lock_though_others_ask_for_the_state() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (open, done) = (|| File::open(file.path()).unwrap(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let asks = open();
                    while !done.load(Ordering::Relaxed) {
                        JobState::of(&asks);
                    }
                });
            }
            let locked = (0..100).try_for_each(|_| lock(open()).map(drop));
            done.store(true, Ordering::Relaxed);
            locked.unwrap();
        });
    }
}
