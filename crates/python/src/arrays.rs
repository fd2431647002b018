//! The objects of an open log, and the elements of its datasets, without HDF5. `_arrays.py` turns them into groups
//! and arrays.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use std::vec;

use h5logfs_arrays::objects::{Attribute, Dataspace, Link, LinkTarget, ObjectKind};
use h5logfs_arrays::{Axis, Dataset, Log, Object, Reading, Selection};
use h5logfs_common::error::Error;
use parking_lot::{Condvar, Mutex};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::buffer::WritableBuffer;
use crate::error::{exception, unlocked, unlocked_log};
use crate::file::OpenFile;
use crate::plain::{described, plain_values, text};

/// Time between checks for signals, and between calls of `progress`.
const STEP: Duration = Duration::from_millis(100);
/// Reads of fewer bytes need no supervising thread.
const LONG: usize = 4 << 20;

/// The objects of one state of a log, which threads may share.
#[pyclass(frozen, module = "h5logfs._native")]
pub struct Objects(Log);

impl Objects {
    /// The log of the objects.
    pub fn log(&self) -> &Log {
        &self.0
    }
}

#[pymethods]
impl Objects {
    /// The objects of a file that is a log.
    #[new]
    fn new(py: Python<'_>, file: &OpenFile) -> PyResult<Self> {
        let log = file.shared_log();
        let log = log.ok_or_else(|| PyValueError::new_err("the file is not a log"))?;
        unlocked_log(py, || Log::of(log).map(Objects))
    }

    /// "group", "dataset" or "datatype"; None where the path leads to no object.
    fn kind(&self, py: Python<'_>, path: &str) -> PyResult<Option<&'static str>> {
        let found = unlocked_log(py, || self.0.kind_of(path))?;
        Ok(found.map(kind_name))
    }

    /// The address of the object at a path; None where there is none. All links to an object share its address.
    fn address(&self, py: Python<'_>, path: &str) -> PyResult<Option<u64>> {
        unlocked_log(py, || self.0.address_of(path))
    }

    /// The links of a group, by name: name; creation order if recorded; "hard", "soft", "external" or "other";
    /// target; and the kind of a hard link's object.
    fn links<'py>(&self, py: Python<'py>, group: &str) -> PyResult<Bound<'py, PyList>> {
        let found = unlocked_log(py, || {
            let kinds = self.0.links(group)?.into_iter().map(|link| {
                let kind = self.0.kind(&link)?;
                Ok((link, kind.map(kind_name)))
            });
            kinds.collect::<Result<Vec<_>, Error>>()
        })?;
        let list = PyList::empty(py);
        for (link, kind) in found {
            let none = || py.None().into_bound(py);
            let (class, target) = match &link.target {
                LinkTarget::Hard(address) => ("hard", address.into_bound_py_any(py)?),
                LinkTarget::Soft(path) => ("soft", text(py, path)?),
                LinkTarget::External { file, path } => {
                    let target = (text(py, file)?, text(py, path)?);
                    ("external", target.into_bound_py_any(py)?)
                }
                LinkTarget::Other(_) => ("other", none()),
            };
            list.append((text(py, &link.name)?, link.order, class, target, kind))?;
        }
        Ok(list)
    }

    /// The groups and datasets in a group, in creation order if recorded, else by name.
    fn members(&self, py: Python<'_>, group: &str) -> PyResult<Members> {
        let log = self.0.clone();
        let links = unlocked_log(py, || {
            let mut links = log.links(group)?;
            if links.iter().all(|link| link.order.is_some()) {
                links.sort_by_key(|link| link.order);
            }
            Ok(links)
        })?;
        let mut prefix = group.trim_end_matches('/').to_owned();
        prefix.push('/');
        Ok(Members {
            log,
            prefix,
            links: Mutex::new(links.into_iter()),
        })
    }

    /// The attributes of an object: name, datatype, shape (None without a dataspace), and the bytes of the elements,
    /// or a list of values for variable-length types.
    fn attributes<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyList>> {
        let attributes = unlocked_log(py, || {
            let found = self.0.attributes(path)?.into_iter().map(|attribute| {
                let is_elsewhere = attribute.datatype.has_heap_values();
                let values = is_elsewhere.then(|| self.0.values(&attribute));
                Ok((values.transpose()?, attribute))
            });
            found.collect::<Result<Vec<_>, Error>>()
        })?;
        let list = PyList::empty(py);
        for (values, attribute) in attributes {
            let elements = match values {
                Some(values) => plain_values(py, &values)?,
                None => PyBytes::new(py, &attribute.bytes).into_any(),
            };
            let Attribute {
                name,
                datatype,
                space,
                ..
            } = &attribute;
            list.append((
                text(py, name)?,
                described(py, datatype)?,
                shape(space),
                elements,
            ))?;
        }
        Ok(list)
    }

    /// A dataset, or "group" or "datatype" for another object. KeyError where there is none.
    fn object<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyAny>> {
        match unlocked_log(py, || self.0.object(path))? {
            Some(Object::Dataset(dataset)) => Elements(*dataset).into_bound_py_any(py),
            Some(Object::Group) => kind_name(ObjectKind::Group).into_bound_py_any(py),
            Some(Object::Datatype(_)) => kind_name(ObjectKind::Datatype).into_bound_py_any(py),
            None => Err(PyKeyError::new_err(path.to_owned())),
        }
    }

    /// The datatype at a path. KeyError where there is none.
    fn datatype<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyAny>> {
        match unlocked_log(py, || self.0.object(path))? {
            Some(Object::Datatype(datatype)) => described(py, &datatype),
            _ => Err(PyKeyError::new_err(path.to_owned())),
        }
    }
}

/// The members of a group. Each is looked up when the iterator reaches it.
#[pyclass(frozen, module = "h5logfs._native")]
pub struct Members {
    log: Log,
    /// Prefix of the members' paths.
    prefix: String,
    links: Mutex<vec::IntoIter<Link>>,
}

#[pymethods]
impl Members {
    fn __iter__(of: PyRef<'_, Self>) -> PyRef<'_, Self> {
        of
    }

    /// A name with a dataset, or with `None` for a group.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Member<'py>>> {
        let Some((name, object)) = unlocked_log(py, || self.next())? else {
            return Ok(None);
        };
        let dataset = match object {
            Object::Dataset(dataset) => Some(Elements(*dataset)),
            Object::Group | Object::Datatype(_) => None,
        };
        Ok(Some((text(py, &name)?, dataset)))
    }
}

type Member<'py> = (Bound<'py, PyAny>, Option<Elements>);

impl Members {
    fn next(&self) -> Result<Option<(Vec<u8>, Object)>, Error> {
        loop {
            let Some(link) = self.links.lock().next() else {
                return Ok(None);
            };
            let path = || format!("{}{}", self.prefix, String::from_utf8_lossy(&link.name));
            let found = match link.target {
                LinkTarget::Hard(address) => Some(self.log.object_at(&path(), address)?),
                LinkTarget::Soft(_) => self.log.object(&path())?,
                LinkTarget::External { .. } | LinkTarget::Other(_) => None,
            };
            if let Some(object @ (Object::Group | Object::Dataset(_))) = found {
                return Ok(Some((link.name, object)));
            }
        }
    }
}

/// A dataset of a log.
#[pyclass(frozen, module = "h5logfs._native")]
pub struct Elements(Dataset);

#[pymethods]
impl Elements {
    /// The extent; None for a dataset without a dataspace.
    #[getter]
    fn shape(&self) -> Option<Vec<u64>> {
        shape(&self.0.info().space)
    }

    /// The largest extent; None for an unlimited dimension.
    #[getter]
    fn maxshape(&self) -> Option<Vec<Option<u64>>> {
        match &self.0.info().space {
            Dataspace::Simple { max_dims, .. } => {
                let sides = max_dims
                    .iter()
                    .map(|side| Some(*side).filter(|side| *side < u64::MAX));
                Some(sides.collect())
            }
            Dataspace::Null => None,
        }
    }

    /// The datatype, as nested tuples.
    #[getter]
    fn datatype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        described(py, &self.0.info().datatype)
    }

    /// The shape of a chunk; None without chunks.
    #[getter]
    fn chunks(&self) -> Option<Vec<u64>> {
        self.0.chunk().map(<[u64]>::to_vec)
    }

    /// The filters: numbers and parameters.
    #[getter]
    fn filters(&self) -> Vec<(i32, Vec<u32>)> {
        let filters = self.0.filters().iter();
        filters
            .map(|filter| (filter.id, filter.values.clone()))
            .collect()
    }

    /// The bytes of the fill value; None for the default.
    #[getter]
    fn fill_value<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let fill = self.0.info().fill.as_ref();
        fill.map(|fill| PyBytes::new(py, fill))
    }

    /// The address of the object header, which references name.
    #[getter]
    fn address(&self) -> u64 {
        self.0.address()
    }

    /// Reads a selection into the memory of `out`. The selection is `None`, or a list with an axis per dimension, or
    /// a tuple of the rank and the bytes of points' coordinates. An axis is a tuple (start, count, step) or the bytes
    /// of 64-bit indices. `threads`: 0 for one per core. `progress` is called with the number of bytes read; reading
    /// stops where it raises.
    #[pyo3(signature = (selection, out, threads=0, progress=None))]
    fn read(
        &self,
        py: Python<'_>,
        selection: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        threads: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let selection = selected(selection)?;
        let mut out = WritableBuffer::of(out)?;
        let bytes = out.bytes();
        let reading = Reading::of(threads);
        if bytes.len() < LONG && progress.is_none() {
            return unlocked_log(py, || self.0.read_bytes(&selection, reading, bytes));
        }
        watched(py, progress.as_ref(), |tell| {
            let progress: &(dyn Fn(u64) -> ControlFlow<()> + Sync) = tell;
            let reading = Reading {
                progress: Some(progress),
                ..reading
            };
            let read = self.0.read_bytes(&selection, reading, bytes);
            read.map_err(|e| exception(&e))
        })
    }

    /// Why the elements cannot be read, as far as this is known without reading; None if there is no reason.
    fn refusal(&self, py: Python<'_>) -> PyResult<Option<String>> {
        unlocked_log(py, || self.0.refusal())
    }

    /// All elements as plain values, in row-major order. Meant for elements of variable length.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let values = unlocked_log(py, || self.0.values())?;
        plain_values(py, &values)
    }
}

/// Progress of a read, and whether it is to continue.
#[derive(Default)]
struct Watched {
    done: AtomicU64,
    is_stopped: AtomicBool,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// Reads in a thread of its own, and meanwhile checks for signals and calls `progress`. Code inside the log must not
/// wait for the interpreter's lock: a forking thread holds the lock and waits for those inside.
fn watched(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    read: impl FnOnce(&(dyn Fn(u64) -> ControlFlow<()> + Sync)) -> PyResult<()> + Send,
) -> PyResult<()> {
    let state = &Watched::default();
    thread::scope(|scope| {
        let reader = thread::Builder::new().spawn_scoped(scope, move || {
            let _ended = Ended(state);
            read(&|done| {
                state.done.fetch_max(done, Ordering::Relaxed);
                if state.is_stopped.load(Ordering::Relaxed) {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })
        })?;
        let mut raised = None;
        while !py.detach(|| state.has_ended_within(STEP)) {
            let done = state.done.load(Ordering::Relaxed);
            let told = py.check_signals().and_then(|()| match progress {
                Some(progress) if raised.is_none() && done > 0 => {
                    progress.call1(py, (done,)).map(drop)
                }
                _ => Ok(()),
            });
            if let Err(error) = told {
                raised.get_or_insert(error);
                state.is_stopped.store(true, Ordering::Relaxed);
            }
        }
        let outcome = unlocked(py, || {
            let outcome = reader.join();
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        if let Some(error) = raised {
            return Err(error);
        }
        outcome?;
        // Reports reads shorter than a step, too.
        let done = state.done.load(Ordering::Relaxed);
        let told = progress.map(|progress| progress.call1(py, (done,)));
        told.transpose().map(drop)
    })
}

impl Watched {
    fn has_ended_within(&self, time: Duration) -> bool {
        let mut has_ended = self.has_ended.lock();
        if !*has_ended {
            self.ended.wait_for(&mut has_ended, time);
        }
        *has_ended
    }
}

/// Signals the end of a read, also after a panic.
struct Ended<'a>(&'a Watched);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        *self.0.has_ended.lock() = true;
        self.0.ended.notify_all();
    }
}

fn selected(selection: &Bound<'_, PyAny>) -> PyResult<Selection> {
    if selection.is_none() {
        return Ok(Selection::All);
    }
    if let Ok((rank, points)) = selection.extract::<(usize, Vec<u8>)>() {
        let coordinates = indices(&points);
        return Ok(Selection::Points { rank, coordinates });
    }
    let axes = selection.cast::<PyList>()?.iter().map(|axis| {
        if let Ok((start, count, step)) = axis.extract() {
            return Ok(Axis::Range { start, count, step });
        }
        Ok(Axis::List(indices(axis.cast::<PyBytes>()?.as_bytes())))
    });
    axes.collect::<PyResult<Vec<_>>>().map(Selection::Axes)
}

fn indices(bytes: &[u8]) -> Vec<u64> {
    let each = bytes.as_chunks().0.iter();
    each.map(|bytes| u64::from_ne_bytes(*bytes)).collect()
}

fn kind_name(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Group => "group",
        ObjectKind::Dataset => "dataset",
        ObjectKind::Datatype => "datatype",
    }
}

fn shape(space: &Dataspace) -> Option<Vec<u64>> {
    match space {
        Dataspace::Null => None,
        Dataspace::Simple { dims, .. } => Some(dims.clone()),
    }
}
