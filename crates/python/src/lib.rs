//! The native module of the Python package `h5logfs`: open files, and errors as Python exceptions.
//!
//! | module | what it does |
//! |---|---|
//! | `file` | an open log or plain file, read at offsets without the interpreter's lock |
//! | `arrays` | the objects of an open log, and the elements of its datasets, read by several threads |
//! | `plain` | HDF5 datatypes and values as plain Python objects |
//! | `buffer` | memory of Python objects, into which files are read |
//! | `changes` | detects changes of a log |
//! | `references` | where the chunks of an open log lie in its files |
//! | `watched` | reads that Ctrl-C ends |
//! | `error` | errors as Python exceptions |
//!
//! The rest of the package is written in Python: `python/h5logfs`.

mod arrays;
mod buffer;
mod changes;
mod error;
mod file;
mod plain;
mod references;
mod watched;

use pyo3::prelude::*;

/// The native module of the package `h5logfs`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<file::OpenFile>()?;
    module.add_class::<changes::Changes>()?;
    module.add_class::<arrays::Objects>()?;
    module.add_class::<arrays::Members>()?;
    module.add_class::<arrays::Elements>()?;
    module.add_class::<references::Placed>()?;
    module.add_function(wrap_pyfunction!(file::open, module)?)?;
    module.add_function(wrap_pyfunction!(file::is_log, module)?)?;
    module.add_function(wrap_pyfunction!(file::sets_in, module)?)?;
    module.add_function(wrap_pyfunction!(file::check_options, module)?)?;
    module.add_function(wrap_pyfunction!(references::source_files, module)?)?;
    module.add("LogError", module.py().get_type::<error::LogError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
