//! Notices that a log has changed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use h5logfs_catalog::changes::{self, Found};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{of_plain_file, unlocked};
use crate::file::OpenFile;

/// Looks at the files of a log. One thread uses it.
#[pyclass(module = "h5logfs._native")]
pub struct Changes(changes::Changes);

#[pymethods]
impl Changes {
    /// The log at `path` as it is now.
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let changes = changes::Changes::of(&path);
        changes.map(Changes).map_err(|e| of_plain_file(&path, e))
    }

    /// Whether the log has changed since the last look.
    fn look(&mut self) -> bool {
        self.0.look()
    }

    /// Learns what there is to know of the log in this state. From now on it is looked at wherever it changes.
    fn learn(&mut self, file: &OpenFile) {
        if let Some(log) = file.log() {
            self.0.learn(&Found::in_view(log.view()));
        }
    }

    /// Whether the log was last seen beside a file, of which nothing but that is left when it is closed.
    #[getter]
    fn lies_beside(&self) -> bool {
        self.0.lies_beside()
    }

    /// Looks until the log has changed, for so many seconds at most. Returns whether it has.
    fn wait(&mut self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let time = Duration::try_from_secs_f64(seconds);
        let time = time.map_err(|e| PyValueError::new_err(format!("{seconds} seconds: {e}")))?;
        let until = Instant::now().checked_add(time);
        unlocked(py, || Ok(self.0.wait(until)))
    }
}
