//! Properties of new datasets, values of attributes, and the datatypes of Rust types.

use std::any::TypeId;
use std::borrow::Cow;

use hdf5::H5Type;
use hdf5::types::{FloatSize, IntSize, TypeDescriptor};

use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::filters::{DEFLATE, FLETCHER32, Filter, OPTIONAL, SHUFFLE};
use h5logfs_log::journal::datatype::Datatype;
use h5logfs_log::journal::definition::DatasetLayout;
use h5logfs_log::journal::value::Value;
use h5logfs_log::journal::words::dimensions;

/// The datatype of a Rust type in memory.
pub fn datatype_of<T: H5Type>() -> Result<Datatype, Fault> {
    from_descriptor(&T::type_descriptor())
}

fn from_descriptor(descriptor: &TypeDescriptor) -> Result<Datatype, Fault> {
    let small = |n: usize| {
        u32::try_from(n).map_err(|_| {
            Fault::Refused(format!(
                "a datatype with {n} bytes or elements is too large"
            ))
        })
    };
    Ok(match descriptor {
        TypeDescriptor::Integer(size) => Datatype::integer(int_size(*size), true),
        TypeDescriptor::Unsigned(size) => Datatype::integer(int_size(*size), false),
        TypeDescriptor::Float(size) => Datatype::float(match size {
            FloatSize::U4 => 4,
            FloatSize::U8 => 8,
        }),
        TypeDescriptor::Boolean => Datatype::boolean(),
        TypeDescriptor::Enum(of) => {
            let members = of.members.iter();
            Datatype::Enumeration {
                base: Box::new(Datatype::integer(int_size(of.size), of.signed)),
                members: members.map(|m| (m.name.clone(), m.value as i64)).collect(),
            }
        }
        TypeDescriptor::Compound(of) => {
            let mut members = Vec::with_capacity(of.fields.len());
            for field in &of.fields {
                let datatype = from_descriptor(&field.ty)?;
                members.push((field.name.clone(), small(field.offset)?, datatype));
            }
            Datatype::compound(small(of.size)?, members)
        }
        TypeDescriptor::FixedArray(of, len) => Datatype::Array {
            base: Box::new(from_descriptor(of)?),
            dims: vec![small(*len)?],
        },
        TypeDescriptor::FixedAscii(size) => Datatype::Text {
            size: small(*size)?,
            utf8: false,
        },
        TypeDescriptor::FixedUnicode(size) => Datatype::Text {
            size: small(*size)?,
            utf8: true,
        },
        other => {
            return Err(Fault::Refused(format!(
                "elements of type {other} cannot be logged: their size varies"
            )));
        }
    })
}

fn int_size(size: IntSize) -> u32 {
    size as u32
}

/// A datatype in the program's memory. The file stores it without padding.
#[derive(Debug, Clone)]
pub(super) struct MemoryType {
    pub datatype: Datatype,
    /// Size of an element in memory, in bytes.
    pub size: usize,
    /// Offset and length of each run of bytes without padding. Empty if there is no padding.
    runs: Vec<(usize, usize)>,
    /// The last Rust type found to have this datatype.
    rust: Option<TypeId>,
    /// Whether the program has stated this datatype. Otherwise it is that of the file.
    is_stated: bool,
}

impl MemoryType {
    pub fn new(datatype: Datatype) -> Result<Self, Fault> {
        datatype.check()?;
        let (size, mut runs) = (datatype.size() as usize, datatype.runs());
        if runs == [(0, size)] {
            runs.clear();
        }
        Ok(MemoryType {
            datatype,
            size,
            runs,
            rust: None,
            is_stated: true,
        })
    }

    /// The memory type of a dataset whose layout in memory the program has not stated yet.
    pub fn of_file(datatype: &Datatype) -> Result<Self, Fault> {
        Ok(MemoryType {
            is_stated: false,
            ..Self::new(datatype.clone())?
        })
    }

    /// Records the datatype that a program states for a dataset of type `file`. It never changes afterwards, because pointers
    /// to such elements may exist.
    pub fn state(&mut self, given: MemoryType, file: &Datatype) -> Result<(), Fault> {
        if given.datatype.packed() != *file {
            return Err(Fault::Refused(format!(
                "its elements are {}, and it was opened with {}",
                file.short(),
                given.datatype.short()
            )));
        }
        if !self.is_stated {
            *self = given;
        } else if self.datatype != given.datatype {
            let reason = "it was made or opened before with members at other places in memory";
            return Err(Fault::Refused(reason.into()));
        }
        Ok(())
    }

    /// Whether `T` has this datatype. Each write asks, so the answer is cached.
    pub fn is<T: H5Type>(&mut self) -> bool {
        let rust = TypeId::of::<T>();
        if self.rust == Some(rust) {
            return true;
        }
        let same = datatype_of::<T>().is_ok_and(|d| d == self.datatype);
        if same {
            self.rust = Some(rust);
        }
        same
    }

    /// The bytes of elements without padding.
    ///
    /// # Safety
    /// `data` points to `count` elements of this datatype. Padding need not be initialised.
    pub unsafe fn packed<'d>(&self, data: *const u8, count: usize) -> Cow<'d, [u8]> {
        if self.runs.is_empty() {
            // SAFETY: there are this many bytes, and none of them is padding.
            return Cow::Borrowed(unsafe { std::slice::from_raw_parts(data, count * self.size) });
        }
        let mut bytes = Vec::with_capacity(self.packed_size() * count);
        // SAFETY: promised by the caller.
        unsafe { self.append_packed(data, count, &mut bytes) };
        Cow::Owned(bytes)
    }

    /// Size of an element without padding, in bytes.
    pub fn packed_size(&self) -> usize {
        if self.runs.is_empty() {
            return self.size;
        }
        self.runs.iter().map(|r| r.1).sum()
    }

    /// Appends the bytes of elements without padding.
    ///
    /// # Safety
    /// See [`MemoryType::packed`].
    pub unsafe fn append_packed(&self, data: *const u8, count: usize, bytes: &mut Vec<u8>) {
        if self.runs.is_empty() {
            // SAFETY: there are this many bytes, and none of them is padding.
            let elements = unsafe { std::slice::from_raw_parts(data, count * self.size) };
            return bytes.extend_from_slice(elements);
        }
        for element in 0..count {
            for (offset, len) in &self.runs {
                // SAFETY: runs lie within an element and contain no padding.
                bytes.extend_from_slice(unsafe {
                    std::slice::from_raw_parts(data.add(element * self.size + offset), *len)
                });
            }
        }
    }
}

/// The properties of a new dataset.
#[derive(Debug, Clone)]
pub struct DatasetSpec {
    /// The datatype of the elements in memory.
    pub(super) memory: Datatype,
    /// The last error of a call. `layout` reports it.
    error: Option<Fault>,
    layout: DatasetLayout,
    shuffle: bool,
    deflate: Option<u32>,
    fletcher32: bool,
}

impl DatasetSpec {
    /// A dataset of elements of type `T` with a fixed extent. Without dimensions it is a scalar.
    pub fn new<T: H5Type>(dims: &[u64]) -> Self {
        match datatype_of::<T>() {
            Ok(datatype) => Self::of(datatype, dims),
            Err(reason) => DatasetSpec {
                error: Some(reason),
                ..Self::of(Datatype::integer(1, false), dims)
            },
        }
    }

    /// A dataset with a datatype known only at run time.
    pub fn of(memory: Datatype, dims: &[u64]) -> Self {
        DatasetSpec {
            layout: DatasetLayout::fixed(memory.packed(), dims),
            memory,
            error: None,
            shuffle: false,
            deflate: None,
            fletcher32: false,
        }
    }

    /// Sets the largest extent. `None`: unlimited.
    pub fn max_dims(mut self, max_dims: &[Option<u64>]) -> Self {
        self.layout.max_dims = max_dims.to_vec();
        self
    }

    /// Makes one dimension unlimited.
    pub fn unlimited(mut self, dimension: usize) -> Self {
        match self.layout.max_dims.get_mut(dimension) {
            Some(max) => *max = None,
            None => {
                let there = dimensions(self.layout.dims.len());
                self.error = Some(Fault::Refused(format!(
                    "dimension {dimension} cannot be unlimited: the dataset has {there}, counted from 0"
                )));
            }
        }
        self
    }

    /// Sets the chunk shape that readers see. By default the view chooses it, unless there are filters.
    pub fn chunk(mut self, shape: &[u64]) -> Self {
        self.layout.chunk = Some(shape.to_vec());
        self
    }

    /// Adds the deflate filter, with a level from 0 to 9. A level compresses about as well as zlib's, and takes less time.
    pub fn deflate(mut self, level: u32) -> Self {
        if level > 9 {
            let reason = format!("deflate has no level {level}: 0 to 9 are possible");
            self.error = Some(Fault::Refused(reason));
        }
        self.deflate = Some(level);
        self
    }

    /// Adds the shuffle filter, which makes deflate more effective.
    pub fn shuffle(mut self) -> Self {
        self.shuffle = true;
        self
    }

    /// Adds the Fletcher-32 filter, a checksum of stored data.
    pub fn fletcher32(mut self) -> Self {
        self.fletcher32 = true;
        self
    }

    /// Sets the value of elements that are never written. The default is zero.
    pub fn fill<T: H5Type>(self, value: T) -> Self {
        self.set_fill(|memory| {
            if memory.is::<T>() {
                // SAFETY: a `T` has this datatype.
                Ok(unsafe { memory.packed((&raw const value).cast(), 1) }.into_owned())
            } else {
                Err(Fault::Refused(format!(
                    "the fill value is of type {}, the elements are {}",
                    std::any::type_name::<T>(),
                    memory.datatype.short()
                )))
            }
        })
    }

    /// Sets the fill value from the bytes of an element in memory.
    pub fn fill_bytes(self, value: &[u8]) -> Self {
        self.set_fill(|memory| {
            if value.len() == memory.size {
                // SAFETY: these are the bytes of one element.
                Ok(unsafe { memory.packed(value.as_ptr(), 1) }.into_owned())
            } else {
                Err(Fault::Refused(format!(
                    "the fill value has {} bytes, an element ({}) has {}",
                    value.len(),
                    memory.datatype.short(),
                    memory.size
                )))
            }
        })
    }

    fn set_fill(mut self, value: impl FnOnce(&mut MemoryType) -> Result<Vec<u8>, Fault>) -> Self {
        let filled = MemoryType::new(self.memory.clone()).and_then(|mut memory| value(&mut memory));
        match filled {
            Ok(bytes) => self.layout.fill = bytes,
            Err(error) => self.error = Some(error),
        }
        self
    }

    /// The layout for the journal.
    pub(super) fn layout(mut self) -> Result<DatasetLayout, Fault> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let element = self.layout.datatype.size();
        let filter = |id, flags, values| Filter { id, flags, values };
        let filters = &mut self.layout.filters;
        if self.shuffle {
            filters.push(filter(SHUFFLE, OPTIONAL, vec![element]));
        }
        if let Some(level) = self.deflate {
            filters.push(filter(DEFLATE, OPTIONAL, vec![level]));
        }
        if self.fletcher32 {
            filters.push(filter(FLETCHER32, 0, Vec::new()));
        }
        if !filters.is_empty() && self.layout.chunk.is_none() {
            let (dims, max) = (&self.layout.dims, &self.layout.max_dims);
            if dims.is_empty() {
                let reason = "a scalar has no chunks, and so no filters";
                return Err(Fault::Refused(reason.into()));
            }
            self.layout.chunk = Some(h5logfs_log::scan::shape::choose(
                dims,
                max,
                u64::from(element),
            ));
        }
        Ok(self.layout)
    }
}

/// The value of an attribute: a row-major array of a datatype known only at run time. `bytes` are its elements in memory.
pub fn elements_value(datatype: Datatype, dims: &[u64], bytes: &[u8]) -> Result<Value, Fault> {
    let memory = MemoryType::new(datatype)?;
    if !bytes.len().is_multiple_of(memory.size) {
        return Err(Fault::Refused(format!(
            "the value has {} bytes, which is no whole number of elements of {} bytes ({})",
            bytes.len(),
            memory.size,
            memory.datatype.short()
        )));
    }
    // SAFETY: the bytes are this many elements.
    let packed = unsafe { memory.packed(bytes.as_ptr(), bytes.len() / memory.size) };
    Ok(Value::Elements {
        datatype: memory.datatype.packed(),
        dims: dims.to_vec(),
        bytes: packed.into_owned(),
    })
}

/// The value of an attribute: a row-major array of elements.
pub fn array_value<T: H5Type>(values: &[T], dims: &[u64]) -> Result<Value, Fault> {
    let memory = MemoryType::new(datatype_of::<T>()?)?;
    // SAFETY: a `T` has this datatype.
    let bytes = unsafe { memory.packed(values.as_ptr().cast(), values.len()) };
    Ok(Value::Elements {
        datatype: memory.datatype.packed(),
        dims: dims.to_vec(),
        bytes: bytes.into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(H5Type, Clone, Copy)]
    #[repr(C)]
    struct Event {
        id: u32,
        time: f64,
        hit: bool,
    }

    #[test]
    fn rust_types_are_datatypes() {
        let event = datatype_of::<Event>().unwrap();
        assert_eq!((event.size(), event.packed().size()), (24, 13));
        assert_eq!(event.check(), Ok(()));
        assert_eq!(datatype_of::<[f32; 3]>().unwrap().size(), 12);
        assert!(datatype_of::<hdf5::types::VarLenUnicode>().is_err());
    }

    #[test]
    fn gaps_stay_behind() {
        let events = [1, 2].map(|id| Event {
            id,
            time: 0.5,
            hit: true,
        });
        let mut memory = MemoryType::new(datatype_of::<Event>().unwrap()).unwrap();
        assert!(memory.is::<Event>() && !memory.is::<f64>());
        // SAFETY: the values have the datatype.
        let bytes = unsafe { memory.packed(events.as_ptr().cast(), 2) };
        let mut wanted = Vec::new();
        for id in [1u32, 2] {
            wanted.extend(id.to_ne_bytes());
            wanted.extend(0.5f64.to_ne_bytes());
            wanted.push(1);
        }
        assert_eq!(bytes, wanted);
    }

    /// The file has no padding, so it does not describe the layout of members in memory.
    #[test]
    fn a_program_says_once_how_elements_lie_in_memory() {
        let file = datatype_of::<Event>().unwrap().packed();
        let stated = |datatype: Datatype| MemoryType::new(datatype).unwrap();
        let mut memory = MemoryType::of_file(&file).unwrap();
        let other = memory.state(stated(Datatype::float(8)), &file);
        assert!(
            other
                .unwrap_err()
                .to_string()
                .ends_with("was opened with f64")
        );
        memory
            .state(stated(datatype_of::<Event>().unwrap()), &file)
            .unwrap();
        assert!(memory.is::<Event>());
        memory
            .state(stated(datatype_of::<Event>().unwrap()), &file)
            .unwrap();
        let packed = memory.state(stated(file.clone()), &file);
        assert!(packed.unwrap_err().to_string().contains("other places"));
    }

    #[test]
    fn a_spec_says_what_is_wrong_with_it() {
        let of = |spec: DatasetSpec| spec.layout();
        let list = || DatasetSpec::new::<f64>(&[3]);
        let cases = [
            (
                list().unlimited(1),
                "dimension 1 cannot be unlimited: the dataset has 1 dimension, counted from 0",
            ),
            (
                list().deflate(10),
                "deflate has no level 10: 0 to 9 are possible",
            ),
            (
                list().fill(0f32),
                "the fill value is of type f32, the elements are f64",
            ),
            (
                list().fill_bytes(&[0; 3]),
                "the fill value has 3 bytes, an element (f64) has 8",
            ),
            (
                DatasetSpec::new::<f64>(&[]).deflate(1),
                "a scalar has no chunks, and so no filters",
            ),
        ];
        for (spec, words) in cases {
            assert_eq!(of(spec), Err(Fault::Refused(words.into())));
        }
        let packed = of(DatasetSpec::new::<f64>(&[3]).deflate(1).shuffle()).unwrap();
        assert_eq!(packed.chunk, Some(vec![3]));
        assert_eq!(packed.filters[0].id, SHUFFLE);
        assert_eq!(packed.filters[1].values, [1]);
    }
}
