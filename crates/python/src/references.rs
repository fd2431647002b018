//! Where the chunks of an open log lie in its files, as plain data. `_zarr.py` makes references of it.

use h5logfs_catalog::direct::OpenLog;
use h5logfs_view::ChunkId;
use h5logfs_view::Form;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::{exception, unlocked};
use crate::file::OpenFile;

/// A chunk that is one piece of a file: number of the file, byte offset, bytes, and what these are.
type Piece = (u16, u64, u64, &'static str);

/// Paths of the files that hold the bytes of the log, by number.
#[pyfunction]
pub fn source_files(file: &OpenFile) -> PyResult<Vec<String>> {
    let view = log(file)?.view();
    let paths = view.files().map(|(_, file)| match file.path().to_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(PyValueError::new_err(format!(
            "{}: a path that is no UTF-8 text cannot be a URL",
            file.path().display()
        ))),
    });
    paths.collect()
}

/// The datasets whose elements lie outside the metadata of the canonical file, by number. `fill` is what was never written,
/// as one element, or nothing for zeros. The fill value that the metadata tell can be another one.
#[pyfunction]
pub fn datasets<'py>(py: Python<'py>, file: &OpenFile) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let view = log(file)?.view();
    let datasets = view.snapshot().datasets.iter().enumerate();
    let described = datasets.map(|(number, dataset)| {
        let described = PyDict::new(py);
        described.set_item("address", dataset.header)?;
        described.set_item("chunk", view.grid(number).chunk.clone())?;
        let filters = dataset.filters.iter();
        let filters: Vec<_> = filters.map(|f| (f.id, f.values.clone())).collect();
        described.set_item("filters", filters)?;
        described.set_item("fill", PyBytes::new(py, &dataset.fill))?;
        Ok(described)
    });
    described.collect()
}

/// The chunks of a dataset that were written, each with its number in the grid and its piece, which is None where it is
/// not in one piece. LogError where elements cannot be read.
#[pyfunction]
pub fn chunk_references(
    py: Python<'_>,
    file: &OpenFile,
    number: usize,
) -> PyResult<Vec<(u64, Option<Piece>)>> {
    let log = log(file)?;
    checked(file, number)?;
    unlocked(py, || {
        let _inside = log.enter().map_err(|e| exception(&e))?;
        let view = log.view();
        let chunks = view.references(number).map_err(|e| exception(&e))?;
        let found = chunks.map(|found| {
            let (chunk, reference) = found.map_err(|e| exception(&e))?;
            let piece = reference.map(|r| (r.source, r.offset, r.len, name(r.form)));
            Ok((chunk, piece))
        });
        let found: PyResult<Vec<_>> = found.collect();
        view.check_sources().map_err(|e| exception(&e))?;
        found
    })
}

/// The elements of a chunk, with fill values past the edge of its dataset. With `filtered`, as the filters of the dataset
/// make them.
#[pyfunction]
pub fn chunk<'py>(
    py: Python<'py>,
    file: &OpenFile,
    number: usize,
    chunk: u64,
    filtered: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let log = log(file)?;
    let view = log.view();
    checked(file, number)?;
    if chunk >= view.grid(number).len() {
        return Err(PyValueError::new_err(format!("there is no chunk {chunk}")));
    }
    let made = unlocked(py, || {
        let _inside = log.enter().map_err(|e| exception(&e))?;
        let made = if filtered {
            view.compressed_chunk(ChunkId::new(number, chunk))
        } else {
            view.chunk_elements(ChunkId::new(number, chunk))
        };
        made.map_err(|e| exception(&e))
    })?;
    Ok(PyBytes::new(py, &made))
}

fn log(file: &OpenFile) -> PyResult<&OpenLog> {
    file.log()
        .ok_or_else(|| PyValueError::new_err("the file is no log"))
}

fn checked(file: &OpenFile, number: usize) -> PyResult<()> {
    if number < log(file)?.view().snapshot().datasets.len() {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "there is no dataset {number}"
    )))
}

fn name(form: Form) -> &'static str {
    match form {
        Form::Elements => "elements",
        Form::Swapped => "swapped",
        Form::Filtered => "filtered",
        Form::Deflated => "deflated",
    }
}
