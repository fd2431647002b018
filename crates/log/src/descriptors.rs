//! The limit of file descriptors. Each open log file takes one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Largest number of files that the process may have open.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit as far as the system permits: a log may have one file for each process of a job.
pub fn raise_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(e) = setrlimit(Resource::Nofile, raised) {
        log::debug!("cannot raise the limit of open files: {e}");
    }
}
