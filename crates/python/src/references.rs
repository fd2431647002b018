//! Where the chunks of an open log lie in its files, as plain data. `_zarr.py` turns them into references.

use h5logfs_arrays::Placed as Dataset;
use h5logfs_view::Form;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrays::Objects;
use crate::error::unlocked_log;
use crate::file::OpenFile;

/// A chunk that is one piece of a file: file number, byte offset, number of bytes, and their form.
type Piece = (u16, u64, u64, &'static str);

/// Paths of the files that hold the bytes of the log, by number.
#[pyfunction]
pub fn source_files(file: &OpenFile) -> PyResult<Vec<String>> {
    let log = file.log();
    let log = log.ok_or_else(|| PyValueError::new_err("the file is not a log"))?;
    let paths = log
        .view()
        .files()
        .map(|(_, file)| match file.path().to_str() {
            Some(path) => Ok(path.to_owned()),
            None => Err(PyValueError::new_err(format!(
                "{}: a path that is not UTF-8 cannot be a URL",
                file.path().display()
            ))),
        });
    paths.collect()
}

/// A dataset whose elements lie outside of the canonical file's metadata.
#[pyclass(frozen, module = "h5logfs._native")]
pub struct Placed(Dataset);

#[pymethods]
impl Placed {
    /// The dataset whose object header has this address, as h5py reports it. None where the elements lie in metadata.
    #[staticmethod]
    fn at(py: Python<'_>, objects: &Objects, address: u64) -> PyResult<Option<Self>> {
        let found = unlocked_log(py, || objects.log().placed(address))?;
        Ok(found.map(Placed))
    }

    /// The shape of a chunk; the extent without chunks.
    #[getter]
    fn chunk(&self) -> Vec<u64> {
        self.0.chunk().to_vec()
    }

    /// The filters: numbers and parameters.
    #[getter]
    fn filters(&self) -> Vec<(i32, Vec<u32>)> {
        let filters = self.0.filters().iter();
        filters.map(|f| (f.id, f.values.clone())).collect()
    }

    /// The value of unwritten elements, as one element; empty for zeros. It may differ from the fill value in the
    /// metadata.
    #[getter]
    fn fill<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.fill())
    }

    /// The written chunks: number in the grid, and the piece, or None where the chunk is not in one piece. LogError
    /// where elements cannot be read.
    fn references(&self, py: Python<'_>) -> PyResult<Vec<(u64, Option<Piece>)>> {
        let found = unlocked_log(py, || self.0.references())?;
        let pieces = found.into_iter().map(|(chunk, reference)| {
            let piece = reference.map(|r| (r.source, r.offset, r.len, name(r.form)));
            (chunk, piece)
        });
        Ok(pieces.collect())
    }

    /// The elements of a chunk. Those past the edge of the dataset are arbitrary. With `filtered`, the bytes after
    /// the dataset's filters.
    fn chunk_bytes<'py>(
        &self,
        py: Python<'py>,
        chunk: u64,
        filtered: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let made = unlocked_log(py, || self.0.bytes(chunk, filtered))?;
        Ok(PyBytes::new(py, &made))
    }
}

fn name(form: Form) -> &'static str {
    match form {
        Form::Elements => "elements",
        Form::Swapped => "swapped",
        Form::Filtered => "filtered",
        Form::Deflated => "deflated",
    }
}
