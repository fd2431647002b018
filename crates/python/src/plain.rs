//! HDF5 datatypes and values as plain Python objects.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use h5logfs_arrays::objects::{Class, Datatype, Padding, ReferenceKind, Value};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

/// A datatype as nested tuples: name of the class, bytes of an element, and details of the class. `_types.py` turns
/// them into numpy types.
pub fn described<'py>(py: Python<'py>, datatype: &Datatype) -> PyResult<Bound<'py, PyAny>> {
    let size = datatype.size;
    match &datatype.class {
        Class::Integer {
            signed, big_endian, ..
        } if datatype.is_plain_number() => {
            ("integer", size, *signed, *big_endian).into_bound_py_any(py)
        }
        Class::Float { big_endian, .. } if datatype.is_plain_number() => {
            ("float", size, *big_endian).into_bound_py_any(py)
        }
        Class::Bitfield { big_endian, .. } => ("bitfield", size, *big_endian).into_bound_py_any(py),
        Class::Time { big_endian } => ("time", size, *big_endian).into_bound_py_any(py),
        Class::Text { padding, utf8 } => {
            ("text", size, *utf8, *padding == Padding::SpacePadded).into_bound_py_any(py)
        }
        Class::VariableText { utf8, .. } => ("variable_text", size, *utf8).into_bound_py_any(py),
        Class::Opaque { tag } => ("opaque", size, text(py, tag)?).into_bound_py_any(py),
        Class::Reference(kind) => {
            let kind = match kind {
                ReferenceKind::Object => "object",
                ReferenceKind::Region => "region",
                ReferenceKind::Other(_) => "other",
            };
            ("reference", size, kind).into_bound_py_any(py)
        }
        Class::Enumeration { base, members } => {
            let members = members.iter().map(|(name, value)| {
                (text(py, name)?, PyBytes::new(py, value)).into_bound_py_any(py)
            });
            let members = PyList::new(py, members.collect::<PyResult<Vec<_>>>()?)?;
            ("enumeration", size, described(py, base)?, members).into_bound_py_any(py)
        }
        Class::Compound { members } => {
            let members = members.iter().map(|member| {
                let datatype = described(py, &member.datatype)?;
                (text(py, &member.name)?, member.offset, datatype).into_bound_py_any(py)
            });
            let members = PyList::new(py, members.collect::<PyResult<Vec<_>>>()?)?;
            ("compound", size, members).into_bound_py_any(py)
        }
        Class::Array { base, dims } => {
            let dims = PyTuple::new(py, dims)?;
            ("array", size, described(py, base)?, dims).into_bound_py_any(py)
        }
        Class::VariableList { base } => {
            ("variable_list", size, described(py, base)?).into_bound_py_any(py)
        }
        Class::Complex { base } => ("complex", size, described(py, base)?).into_bound_py_any(py),
        Class::Float { big_endian, format } if format.is_x87() => {
            ("extended", size, *big_endian).into_bound_py_any(py)
        }
        Class::Integer { .. } => {
            ("other", size, "an integer with unused bits").into_bound_py_any(py)
        }
        Class::Float { .. } => (
            "other",
            size,
            "a floating-point number that is not of IEEE 754",
        )
            .into_bound_py_any(py),
        Class::Other(reason) => ("other", size, reason).into_bound_py_any(py),
    }
}

/// Values as a list: numbers, texts as bytes, object addresses or None, and nested lists.
pub fn plain_values<'py>(py: Python<'py>, values: &[Value]) -> PyResult<Bound<'py, PyAny>> {
    let values = values.iter().map(|value| plain_value(py, value));
    let list = PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?;
    Ok(list.into_any())
}

fn plain_value<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Integer(number) => number.into_bound_py_any(py),
        Value::Float(number) => number.into_bound_py_any(py),
        Value::Text(bytes) | Value::Bytes(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
        Value::Reference(address) => address.into_bound_py_any(py),
        Value::Region(region) => {
            let dataset = region.as_ref().map(|region| region.dataset);
            dataset.into_bound_py_any(py)
        }
        Value::List(values) | Value::Compound(values) => plain_values(py, values),
    }
}

/// A name as text. Bytes that are not UTF-8 become surrogates, as in Python's file names.
pub fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    OsStr::from_bytes(bytes).into_bound_py_any(py)
}
