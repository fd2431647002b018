//! An open log, or a plain file, which is read unchanged.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use h5logfs_arrays::StopFlag;
use h5logfs_catalog::changes::is_settled;
use h5logfs_catalog::direct::{self, OpenLog, Opened, Options};
use h5logfs_common::error::Error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::WritableBuffer;
use crate::error::{exception, of_plain_file, unlocked, unlocked_log};
use crate::watched::{self, LONG, may_be_interrupted};

/// An open file that threads may share: no read waits for another one or holds the interpreter's lock. There is no
/// mutex, so a process forked while a thread reads can use the file, too.
#[pyclass(frozen, module = "h5logfs._native")]
pub struct OpenFile {
    path: PathBuf,
    content: Content,
    /// Offset of the next `readinto`, in bytes.
    position: AtomicU64,
}

enum Content {
    Plain(File),
    Log(Arc<OpenLog>),
}

/// Opens the file at `path`. `options` are spelled as for `mount -o`; ValueError for unknown ones.
#[pyfunction]
pub fn open(py: Python<'_>, path: PathBuf, options: OsString) -> PyResult<OpenFile> {
    let options = parsed(&options)?;
    unlocked(py, || {
        let content = Content::open(&path, &options)?;
        let position = AtomicU64::new(0);
        Ok(OpenFile {
            path,
            content,
            position,
        })
    })
}

/// The sets of netCDF files in a directory: the name of the file that each makes up, and the names of its members.
#[pyfunction]
pub fn sets_in(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<(OsString, Vec<OsString>)>> {
    unlocked(py, || {
        direct::sets_in(&directory).map_err(|e| of_plain_file(&directory, e))
    })
}

/// Whether there is a log at `path`, even one that cannot be presented.
#[pyfunction]
pub fn is_log(py: Python<'_>, path: PathBuf, options: OsString) -> PyResult<bool> {
    let options = parsed(&options)?;
    unlocked(py, || match direct::open(&path, &options) {
        Ok(opened) => Ok(matches!(opened, Opened::Log(_))),
        Err(error) if is_about_a_log(&error) => Ok(true),
        Err(error) => Err(exception(&error)),
    })
}

fn is_about_a_log(error: &Error) -> bool {
    match error {
        Error::Remembered(error) => is_about_a_log(error),
        error => matches!(error, Error::BadFile { .. } | Error::NoFlush { .. }),
    }
}

/// Raises ValueError unless [`open`] takes these options.
#[pyfunction]
pub fn check_options(options: OsString) -> PyResult<()> {
    parsed(&options).map(drop)
}

fn parsed(options: &OsStr) -> PyResult<Options> {
    match Options::parse(options) {
        // A program may have hundreds of logs open.
        Ok(options) => Ok(Options {
            on_demand: true,
            ..options
        }),
        Err(fault) => Err(PyValueError::new_err(fault.to_string())),
    }
}

impl Content {
    fn open(path: &Path, options: &Options) -> PyResult<Self> {
        match direct::open(path, options).map_err(|e| exception(&e))? {
            Opened::Log(log) => Ok(Content::Log(Arc::new(log))),
            Opened::Plain => match open_plain(path) {
                Ok(file) => Ok(Content::Plain(file)),
                Err(e) => Err(of_plain_file(path, e)),
            },
        }
    }
}

fn open_plain(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    // A directory can be opened but not read.
    if file.metadata()?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    Ok(file)
}

#[pymethods]
impl OpenFile {
    /// Whether this is a log, read as its canonical file. Otherwise the bytes are those of the file.
    #[getter]
    fn is_log(&self) -> bool {
        matches!(self.content, Content::Log(_))
    }

    /// Whether this is an ordinary HDF5 file made by settling a log.
    fn is_settled(&self, py: Python<'_>) -> PyResult<bool> {
        let Content::Plain(file) = &self.content else {
            return Ok(false);
        };
        unlocked(py, || {
            is_settled(file).map_err(|e| of_plain_file(&self.path, e))
        })
    }

    /// Whether the log is closed in this state. True for a file that is no longer a log.
    #[getter]
    fn is_closed(&self) -> bool {
        (self.log()).is_none_or(|log| log.view().snapshot().is_closed())
    }

    /// The flush that left the present state: its number, its completion time in milliseconds since 1970 if the
    /// journal has it, and whether it was automatic. None for a closed log, a log without a journal, and a plain
    /// file.
    #[getter]
    fn flush(&self) -> Option<(u64, Option<i64>, bool)> {
        let snapshot = self.log()?.view().snapshot();
        let journal = snapshot.journal.as_ref();
        let automatic = snapshot.asked < snapshot.flushes;
        journal.map(|_| (snapshot.flushes, snapshot.flushed_at, automatic))
    }

    /// A second handle of the same content, with its own position.
    fn again(&self) -> PyResult<Self> {
        let content = match &self.content {
            Content::Log(log) => Content::Log(Arc::clone(log)),
            Content::Plain(file) => match file.try_clone() {
                Ok(file) => Content::Plain(file),
                Err(e) => return Err(of_plain_file(&self.path, e)),
            },
        };
        Ok(OpenFile {
            path: self.path.clone(),
            content,
            position: AtomicU64::new(0),
        })
    }

    /// Closes the descriptors of a log until it is read again.
    fn release(&self, py: Python<'_>) {
        if let Content::Log(log) = &self.content {
            py.detach(|| log.release());
        }
    }

    /// Whether both are the same state of one log. Plain files have no states.
    fn is_same(&self, other: &OpenFile) -> bool {
        let states = self.log().zip(other.log());
        states.is_some_and(|(own, other)| own.state() == other.state())
    }

    /// Length in bytes. A plain file's may change.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        match &self.content {
            Content::Log(log) => Ok(log.len()),
            Content::Plain(file) => unlocked(py, || match file.metadata() {
                Ok(metadata) => Ok(metadata.len()),
                Err(e) => Err(of_plain_file(&self.path, e)),
            }),
        }
    }

    /// Offset of the next `read` or `readinto`, in bytes.
    #[getter]
    fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_position(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    /// Reads up to `size` bytes at the position and advances it. Fewer only at the end of the file.
    fn read<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let (begin, taken) = self.advance(py, size)?;
        let outcome = self.bytes(py, begin, taken);
        outcome.inspect_err(|_| self.go_back(begin, taken))
    }

    /// Fills the contiguous memory of `buffer` from the position and advances it. Returns the number of bytes: less
    /// than the buffer's only at the end of the file.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut buffer = WritableBuffer::of(buffer)?;
        let bytes = buffer.bytes();
        let (begin, taken) = self.advance(py, bytes.len())?;
        let outcome = self.fill(py, begin, &mut bytes[..taken]);
        outcome.inspect_err(|_| self.go_back(begin, taken))
    }

    /// Reads up to `size` bytes at `offset`. Fewer only at the end of the file.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        size: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let size = self.there(py, offset, size)?;
        self.bytes(py, offset, size)
    }

    /// Fills the contiguous memory of `buffer` from `offset`. Returns the number of bytes: less than the buffer's
    /// only at the end of the file.
    fn readinto_at(
        &self,
        py: Python<'_>,
        offset: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        let mut buffer = WritableBuffer::of(buffer)?;
        self.fill(py, offset, buffer.bytes())
    }
}

impl OpenFile {
    /// The log; `None` for a plain file.
    pub fn log(&self) -> Option<&OpenLog> {
        match &self.content {
            Content::Log(log) => Some(log),
            Content::Plain(_) => None,
        }
    }

    /// A shared handle of the log; `None` for a plain file.
    pub fn shared_log(&self) -> Option<Arc<OpenLog>> {
        match &self.content {
            Content::Log(log) => Some(Arc::clone(log)),
            Content::Plain(_) => None,
        }
    }

    /// Number of bytes, of `wanted`, that exist at `offset`.
    fn there(&self, py: Python<'_>, offset: u64, wanted: usize) -> PyResult<usize> {
        let left = self.size(py)?.saturating_sub(offset);
        Ok(usize::try_from(left).map_or(wanted, |left| left.min(wanted)))
    }

    /// Reserves the next `wanted` bytes, or as many as exist, for one reader. Returns their offset and number.
    fn advance(&self, py: Python<'_>, wanted: usize) -> PyResult<(u64, usize)> {
        let mut begin = self.position.load(Ordering::Relaxed);
        loop {
            let taken = self.there(py, begin, wanted)?;
            let end = begin + taken as u64;
            match self.exchange(begin, end) {
                Ok(_) => return Ok((begin, taken)),
                Err(now) => begin = now,
            }
        }
    }

    /// Restores the position after a failure, unless another thread has moved it.
    fn go_back(&self, begin: u64, taken: usize) {
        let _ = self.exchange(begin + taken as u64, begin);
    }

    fn exchange(&self, from: u64, to: u64) -> Result<u64, u64> {
        let order = Ordering::Relaxed;
        self.position.compare_exchange(from, to, order, order)
    }

    fn bytes<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        len: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut filled = 0;
        let bytes = PyBytes::new_with(py, len, |buf| {
            filled = self.fill(py, offset, buf)?;
            Ok(())
        })?;
        match bytes.as_bytes().get(..filled) {
            // The file has shrunk.
            Some(start) if filled < len => Ok(PyBytes::new(py, start)),
            _ => Ok(bytes),
        }
    }

    /// Fills `buf` from `offset` without the interpreter's lock. Returns the number of bytes.
    fn fill(&self, py: Python<'_>, offset: u64, buf: &mut [u8]) -> PyResult<usize> {
        if buf.len() >= LONG && may_be_interrupted(py)? {
            return watched::read(py, None, |_, stop| self.fill_until(Some(stop), offset, buf));
        }
        unlocked_log(py, || self.fill_until(None, offset, buf))
    }

    fn fill_until(
        &self,
        stop: Option<&StopFlag>,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize, Error> {
        match (&self.content, stop) {
            (Content::Log(log), None) => log.read_at(offset, buf),
            (Content::Log(log), Some(stop)) => log.read_until(stop, offset, buf),
            (Content::Plain(file), stop) => {
                let filled = fill_plain(file, stop, offset, buf);
                filled.map_err(|e| Error::io(&self.path, e))
            }
        }
    }
}

fn fill_plain(
    file: &File,
    stop: Option<&StopFlag>,
    offset: u64,
    buf: &mut [u8],
) -> io::Result<usize> {
    let is_stopped = || stop.is_some_and(|stop| stop.stopped().is_some());
    let mut filled = 0;
    while filled < buf.len() && !is_stopped() {
        let end = buf.len().min(filled + LONG);
        match file.read_at(&mut buf[filled..end], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}
