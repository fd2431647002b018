//! The objects of an open log, and the elements of its datasets, without HDF5. `_arrays.py` turns them into groups
//! and arrays.

use std::sync::atomic::{AtomicBool, Ordering};
use std::vec;

use h5logfs_arrays::objects::{Attribute, Dataspace, Link, LinkTarget, ObjectKind, Place};
use h5logfs_arrays::{Axis, Dataset, Log, Object, Reading, Selection};
use h5logfs_common::error::Error;
use parking_lot::Mutex;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::buffer::WritableBuffer;
use crate::error::unlocked_log;
use crate::file::OpenFile;
use crate::plain::{described, plain_values, text};
use crate::watched::{self, LONG, may_be_interrupted};

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

    /// "group", "dataset" or "datatype"; "outside" where the path leads out of the log; None where it leads to no
    /// object.
    fn kind(&self, py: Python<'_>, path: &str) -> PyResult<Option<&'static str>> {
        unlocked_log(py, || match self.0.place_of(path)? {
            Place::Object(address) => Ok(Some(kind_name(self.0.kind_at(path, address)?))),
            Place::Nowhere => Ok(None),
            Place::Outside(_) => Ok(Some("outside")),
        })
    }

    /// Whether there is a link at a path, wherever it leads.
    fn has_link(&self, py: Python<'_>, path: &str) -> PyResult<bool> {
        unlocked_log(py, || self.0.has_link(path))
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

    /// A dataset, or "group" or "datatype" for another object. KeyError where there is none in the log.
    fn object<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyAny>> {
        let found = unlocked_log(py, || match self.0.place_of(path)? {
            Place::Object(address) => self.0.object_at(path, address).map(Ok),
            Place::Nowhere => Ok(Err(path.to_owned())),
            Place::Outside(reason) => Ok(Err(format!("{path}: {reason}"))),
        })?;
        match found {
            Ok(Object::Dataset(dataset)) => Elements::from(dataset).into_bound_py_any(py),
            Ok(Object::Group) => kind_name(ObjectKind::Group).into_bound_py_any(py),
            Ok(Object::Datatype(_)) => kind_name(ObjectKind::Datatype).into_bound_py_any(py),
            Err(reason) => Err(PyKeyError::new_err(reason)),
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
            Object::Dataset(dataset) => Some(Elements::from(dataset)),
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
                LinkTarget::Soft(_) => match self.log.place_of(&path())? {
                    Place::Object(address) => Some(self.log.object_at(&path(), address)?),
                    Place::Nowhere | Place::Outside(_) => None,
                },
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
pub struct Elements {
    dataset: Dataset,
    /// Whether elements were read. The first read may have to make an index.
    was_read: AtomicBool,
}

impl From<Box<Dataset>> for Elements {
    fn from(dataset: Box<Dataset>) -> Self {
        Elements {
            dataset: *dataset,
            was_read: AtomicBool::new(false),
        }
    }
}

impl Elements {
    /// Bytes of the box around a selection, in whole chunks. A read looks at no more than this.
    fn most_touched(&self, selection: &Selection) -> u64 {
        let element = u64::from(self.dataset.info().datatype.size);
        let chunk = self.dataset.chunk().unwrap_or_default();
        let in_chunks = |d: usize, len: u64| {
            let side = chunk.get(d).copied().unwrap_or(1).max(1);
            len.div_ceil(side).saturating_add(1).saturating_mul(side)
        };
        match selection {
            Selection::All => u64::MAX,
            Selection::Axes(axes) => {
                let sides = axes.iter().zip(self.dataset.shape()).enumerate();
                let sides = sides.map(|(d, (axis, side))| in_chunks(d, span(axis)).min(*side));
                sides.fold(element, u64::saturating_mul)
            }
            Selection::Points { coordinates, .. } => {
                let one = chunk
                    .iter()
                    .fold(element, |n, side| n.saturating_mul(*side));
                one.saturating_mul(coordinates.len() as u64)
            }
        }
    }
}

/// Number of indices from the first to the last one.
fn span(axis: &Axis) -> u64 {
    match axis {
        Axis::Range { count, step, .. } => count.saturating_mul(*step),
        Axis::List(indices) => {
            let (least, most) = (indices.iter().min(), indices.iter().max());
            most.zip(least).map_or(0, |(most, least)| most - least + 1)
        }
    }
}

#[pymethods]
impl Elements {
    /// The extent; None for a dataset without a dataspace.
    #[getter]
    fn shape(&self) -> Option<Vec<u64>> {
        shape(&self.dataset.info().space)
    }

    /// The largest extent; None for an unlimited dimension.
    #[getter]
    fn maxshape(&self) -> Option<Vec<Option<u64>>> {
        match &self.dataset.info().space {
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
        described(py, &self.dataset.info().datatype)
    }

    /// The shape of a chunk; None without chunks.
    #[getter]
    fn chunks(&self) -> Option<Vec<u64>> {
        self.dataset.chunk().map(<[u64]>::to_vec)
    }

    /// The filters: numbers and parameters.
    #[getter]
    fn filters(&self) -> Vec<(i32, Vec<u32>)> {
        let filters = self.dataset.filters().iter();
        filters
            .map(|filter| (filter.id, filter.values.clone()))
            .collect()
    }

    /// The bytes of the fill value; None for the default.
    #[getter]
    fn fill_value<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let fill = self.dataset.info().fill.as_ref();
        fill.map(|fill| PyBytes::new(py, fill))
    }

    /// The address of the object header, which references name.
    #[getter]
    fn address(&self) -> u64 {
        self.dataset.address()
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
        let is_short = bytes.len() < LONG
            && self.was_read.load(Ordering::Relaxed)
            && self.most_touched(&selection) < LONG as u64;
        let reading = Reading::of(threads);
        if progress.is_none() && (is_short || !may_be_interrupted(py)?) {
            unlocked_log(py, || self.dataset.read_bytes(&selection, reading, bytes))?;
        } else {
            watched::read(py, progress.as_ref(), |told, stop| {
                let reading = Reading {
                    progress: Some(told),
                    stop: Some(stop),
                    ..reading
                };
                self.dataset.read_bytes(&selection, reading, bytes)
            })?;
        }
        self.was_read.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Why the elements cannot be read, as far as this is known without reading; None if there is no reason.
    fn refusal(&self, py: Python<'_>) -> PyResult<Option<String>> {
        unlocked_log(py, || self.dataset.refusal())
    }

    /// All elements as plain values, in row-major order. Meant for elements of variable length.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let values = watched::read(py, None, |told, stop| {
            self.dataset.values(Reading {
                progress: Some(told),
                stop: Some(stop),
                ..Reading::default()
            })
        })?;
        plain_values(py, &values)
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
