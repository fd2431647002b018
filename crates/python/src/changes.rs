//! Detects changes of a log.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use h5logfs_catalog::changes::{self, FollowedState};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{of_plain_file, unlocked};
use crate::file::OpenFile;

/// Watches the files of a log, for one thread.
#[pyclass(module = "h5logfs._native")]
pub struct Changes(changes::Changes);

#[pymethods]
impl Changes {
    /// Starts from the present state of the log at `path`.
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let changes = changes::Changes::of(&path);
        changes.map(Changes).map_err(|e| of_plain_file(&path, e))
    }

    /// Whether the log has changed since the last look.
    fn look(&mut self) -> bool {
        self.0.look()
    }

    /// Takes the paths of the log's files from this state. From now on changes in any of them are noticed.
    fn learn(&mut self, file: &OpenFile) {
        if let Some(log) = file.log() {
            self.0.learn(&FollowedState::in_view(log.view()));
        }
    }

    /// Whether the log lay beside a file when last seen, and only that file remains once it is closed.
    #[getter]
    fn lies_beside(&self) -> bool {
        self.0.lies_beside()
    }

    /// Waits until the log changes, for at most `seconds`. Returns whether it has changed.
    fn wait(&mut self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let time = Duration::try_from_secs_f64(seconds);
        let time = time.map_err(|e| PyValueError::new_err(format!("{seconds} seconds: {e}")))?;
        let until = Instant::now().checked_add(time);
        unlocked(py, || Ok(self.0.wait(until)))
    }
}
