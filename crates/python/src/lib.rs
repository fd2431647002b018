//! The native module of the Python package.

use pyo3::prelude::*;

/// The native module of the package `h5logfs`.
#[pymodule]
fn _native(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
