//! Datasets of a log, and their elements. `virtuals` handles virtual datasets.

mod virtuals;

use std::sync::{Arc, OnceLock};

use super::element::Element;
use super::log::{Inner, Log, Metadata, Object};
use super::parts::Layout;
use super::reading::{self, Reading, Source};
use super::selection::Selection;
use super::stored::Reader;
use bytemuck::allocation::try_zeroed_vec;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::{Fault, Shortage};
use h5logfs_common::parallel;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_hdf5_format::{self as objects, Class, DatasetInfo, Dataspace, Datatype, Value};
use h5logfs_log::boxes::Bounds;
use h5logfs_log::numbers::{NumberFormat, NumberType};
use h5logfs_log::snapshot;
use h5logfs_log::stored::{Stored, bytes_of};
use h5logfs_view::Hyperslabs;
use ndarray::{ArrayD, IxDyn};
use virtuals::Virtual;

/// A dataset of an open log.
pub struct Dataset {
    log: Arc<Inner>,
    path: String,
    address: u64,
    info: DatasetInfo,
    dims: Vec<u64>,
    /// Storage in the canonical file, for datasets whose elements the snapshot does not have. Looked up once.
    stored: OnceLock<Stored>,
    /// Mappings of a virtual dataset, or the reason why they are unknown.
    made_of: Option<std::result::Result<Virtual, Fault>>,
    /// Number of virtual datasets that led here.
    depth: u8,
}

impl Dataset {
    /// The dataset. `depth` is the number of virtual datasets that led to it.
    pub(crate) fn new(
        log: Arc<Inner>,
        path: &str,
        address: u64,
        info: DatasetInfo,
        depth: u8,
    ) -> Self {
        let dims = match &info.space {
            Dataspace::Simple { dims, .. } => dims.clone(),
            Dataspace::Null => Vec::new(),
        };
        let is_virtual = matches!(info.layout, objects::Layout::Virtual(_));
        let mut dataset = Dataset {
            made_of: is_virtual.then(|| Virtual::new(log.objects().mappings(&info)?)),
            log,
            path: path.to_owned(),
            address,
            info,
            dims,
            stored: OnceLock::new(),
            depth,
        };
        dataset.find_extent();
        dataset
    }

    /// Finds the extent, which may depend on sources of a virtual dataset. If it is unknown, the file's extent stays
    /// and no element can be read.
    fn find_extent(&mut self) {
        let Some(Ok(made_of)) = &self.made_of else {
            return;
        };
        match made_of.dims(self) {
            Ok(found) => {
                if let Dataspace::Simple { dims, .. } = &mut self.info.space {
                    dims.clone_from(&found);
                }
                self.dims = found;
            }
            Err(error) => self.made_of = Some(Err(error.to_string().into())),
        }
    }

    /// A task for reading.
    pub(crate) fn task(&self) -> Task {
        self.log.open.view().task(None)
    }

    /// Number of virtual datasets that led here.
    pub(crate) fn depth(&self) -> u8 {
        self.depth
    }

    /// The log of the dataset, as its program opens it.
    pub(crate) fn own_log(&self) -> Log {
        Log {
            inner: Arc::clone(&self.log),
        }
    }

    /// The log of the dataset.
    pub(crate) fn log(&self) -> &Inner {
        &self.log
    }

    /// The path by which the dataset was found.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The address of the object header, which references name.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The extent; empty for a scalar, and for a dataset without elements ([`Dataspace::Null`]).
    pub fn shape(&self) -> &[u64] {
        &self.dims
    }

    /// Dataspace, datatype, fill value and filters.
    pub fn info(&self) -> &DatasetInfo {
        &self.info
    }

    /// The shape of a chunk; `None` where the dataset has no chunks.
    pub fn chunk(&self) -> Option<&[u64]> {
        match &self.info.layout {
            objects::Layout::Chunked { chunk, .. } => Some(chunk),
            _ => None,
        }
    }

    /// The reason why the elements cannot be read, as far as it is known without reading; `None` if there is none.
    /// Fails where the chunks cannot be looked up.
    pub fn refusal(&self) -> Result<Option<String>> {
        if let Some(Err(fault)) = &self.made_of {
            return Ok(Some(fault.to_string()));
        }
        if let Some(number) = self.log.number(self.address) {
            let datasets = &self.log.open.view().snapshot().datasets;
            return Ok(datasets
                .get(number)
                .and_then(|dataset| match &dataset.content {
                    snapshot::Content::Unreadable(reason) => Some(reason.clone()),
                    _ => None,
                }));
        }
        if let objects::Layout::Other(reason) = &self.info.layout {
            return Ok(Some(reason.clone()));
        }
        let unknown = |filter: &&Filter| !filter.can_undo();
        if self.info.filters.iter().find(unknown).is_none() {
            return Ok(None);
        }
        let _inside = self.log.enter()?;
        let Stored::Chunks(chunks) = self.reader(&self.task())?.stored else {
            return Ok(None);
        };
        let mut applied = (chunks.found.iter()).flat_map(|chunk| chunk.filters(&self.info.filters));
        let number = applied.find(unknown).map(|filter| filter.id);
        Ok(number
            .map(|id| format!("its chunks went through filter {id}, which h5logfs cannot undo")))
    }

    /// The filter pipeline of the chunks.
    pub fn filters(&self) -> &[Filter] {
        &self.info.filters
    }

    /// Reads a selection as an array of numbers, with all cores. Fails where elements are not numbers.
    pub fn read<T: Element>(&self, selection: &Selection) -> Result<ArrayD<T>> {
        let shape = self.shape_of(selection)?;
        let mut numbers: Vec<T> = self.zeroed(bytes_of(&shape, 1))?;
        self.read_into(selection, Reading::default(), &mut numbers)?;
        // The product fits, so each side does.
        let shape: Vec<usize> = shape.iter().map(|side| *side as usize).collect();
        ArrayD::from_shape_vec(IxDyn(&shape), numbers)
            .map_err(|e| self.failed(e.to_string().into()))
    }

    /// Zeroed memory for `len` numbers; `None` stands for a number that overflowed.
    fn zeroed<T: Element>(&self, len: Option<u64>) -> Result<Vec<T>> {
        let len = len.and_then(|len| usize::try_from(len).ok());
        let len = len.ok_or_else(|| self.failed("more elements than can be counted".into()))?;
        try_zeroed_vec(len).map_err(|()| {
            let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
            self.failed(Shortage::System { bytes }.into())
        })
    }

    /// Reads a selection into memory of the caller, in row-major order. The caller gives as many numbers as
    /// [`Selection::shape`] says. After a failure they are arbitrary.
    pub fn read_into<T: Element>(
        &self,
        selection: &Selection,
        reading: Reading<'_>,
        out: &mut [T],
    ) -> Result<()> {
        let format = number_format(&self.info.datatype);
        let format = format.ok_or_else(|| self.failed("its elements are not numbers".into()))?;
        let out = bytemuck::cast_slice_mut(out);
        if format == T::FORMAT {
            return self.read_bytes(selection, reading, out);
        }
        self.check(selection, size_of::<T>() as u64, out)?;
        if out.is_empty() {
            return Ok(());
        }
        self.with_source(reading, |source| {
            let converted = Converted {
                source,
                element: size_of::<T>() as u64,
                convert: |from: &[u8], to: &mut [u8]| T::convert(format, from, to),
            };
            reading::read(&converted, selection, reading, out)
        })
    }

    /// Reads a selection as bytes: elements in the file's datatype, in row-major order. After a failure they are
    /// arbitrary.
    pub fn read_bytes(
        &self,
        selection: &Selection,
        reading: Reading<'_>,
        out: &mut [u8],
    ) -> Result<()> {
        self.check(selection, self.element(), out)?;
        if out.is_empty() {
            return Ok(());
        }
        self.with_source(reading, |source| {
            reading::read(source, selection, reading, out)
        })
    }

    /// Reads a selection as bytes of the same type, or of another number type, converted as HDF5 does. Fails for any
    /// other type.
    pub(crate) fn read_as(
        &self,
        datatype: &Datatype,
        selection: &Selection,
        reading: Reading<'_>,
        out: &mut [u8],
    ) -> Result<()> {
        if self.info.datatype == *datatype {
            return self.read_bytes(selection, reading, out);
        }
        let formats = number_format(&self.info.datatype).zip(number_format(datatype));
        let Some((_, to)) = formats else {
            return Err(self.failed(
                "its elements have another type than those of the virtual dataset".into(),
            ));
        };
        match to.kind {
            NumberType::I8 => self.read_converted::<i8>(to, selection, reading, out),
            NumberType::U8 => self.read_converted::<u8>(to, selection, reading, out),
            NumberType::I16 => self.read_converted::<i16>(to, selection, reading, out),
            NumberType::U16 => self.read_converted::<u16>(to, selection, reading, out),
            NumberType::I32 => self.read_converted::<i32>(to, selection, reading, out),
            NumberType::U32 => self.read_converted::<u32>(to, selection, reading, out),
            NumberType::I64 => self.read_converted::<i64>(to, selection, reading, out),
            NumberType::U64 => self.read_converted::<u64>(to, selection, reading, out),
            NumberType::F32 => self.read_converted::<f32>(to, selection, reading, out),
            NumberType::F64 => self.read_converted::<f64>(to, selection, reading, out),
        }
    }

    fn read_converted<T: Element>(
        &self,
        format: NumberFormat,
        selection: &Selection,
        reading: Reading<'_>,
        out: &mut [u8],
    ) -> Result<()> {
        let mut numbers: Vec<T> = self.zeroed(Some((out.len() / size_of::<T>()) as u64))?;
        self.read_into(selection, reading, &mut numbers)?;
        out.copy_from_slice(bytemuck::cast_slice(&numbers));
        if format.big_endian != T::FORMAT.big_endian {
            out.chunks_exact_mut(size_of::<T>())
                .for_each(<[u8]>::reverse);
        }
        Ok(())
    }

    /// Fills memory with the fill value.
    pub(crate) fn fill(&self, out: &mut [u8]) {
        match &self.info.fill {
            Some(fill) => {
                let each = out.chunks_exact_mut(fill.len().max(1));
                each.for_each(|to| to.copy_from_slice(fill));
            }
            None => out.fill(0),
        }
    }

    /// The mappings of a virtual dataset.
    fn made_of(&self) -> Result<Option<&Virtual>> {
        let made_of = self.made_of.as_ref().map(std::result::Result::as_ref);
        made_of
            .transpose()
            .map_err(|fault| self.failed(fault.clone()))
    }

    fn with_source(
        &self,
        reading: Reading<'_>,
        read: impl FnOnce(&Elements<'_>) -> Result<()>,
    ) -> Result<()> {
        let task = reading.stopping(self.task());
        let _inside = self.log.enter()?;
        let view = self.log.open.view();
        let is_filtered = !self.info.filters.is_empty();
        if let Some(made_of) = self.made_of()? {
            return read(&Elements {
                dataset: self,
                chunk: self.dims.clone(),
                is_whole: is_filtered,
                content: Content::Virtual(made_of),
            });
        }
        let elements = match self.log.number(self.address) {
            Some(number) => {
                let slabs = view.hyperslabs(&task, number)?;
                Elements {
                    dataset: self,
                    chunk: view.grid(number).chunk.clone(),
                    is_whole: is_filtered || slabs.has_encoded_records(),
                    content: Content::Log(slabs),
                }
            }
            None => {
                let reader = self.reader(&task)?;
                Elements {
                    dataset: self,
                    chunk: match reader.stored {
                        Stored::Chunks(chunks) => chunks.sides.clone(),
                        _ => self.dims.clone(),
                    },
                    is_whole: is_filtered,
                    content: Content::File(reader),
                }
            }
        };
        // A reader does not wait until indexes are kept, which serves later readers only.
        let done = if view.indexes().has_unkept() {
            parallel::beside(|| view.indexes().keep(&task), || read(&elements))
        } else {
            read(&elements)
        };
        view.indexes().keep(&task);
        done
    }

    /// The sides of what any read has to decode as a whole: of a chunk with filters, or with blocks that went through an
    /// operator. `None` where a read takes just the elements asked for.
    pub(crate) fn decoded_at_once(&self) -> Result<Option<Vec<u64>>> {
        let mut sides = None;
        self.with_source(Reading::default(), |elements| {
            sides = elements.is_whole.then(|| elements.chunk.clone());
            Ok(())
        })?;
        Ok(sides)
    }

    /// The largest index of the first dimension at which something is written; `None` where nothing is, and for a
    /// scalar. Where the file does not tell, this is the last index.
    pub fn last_written(&self) -> Result<Option<u64>> {
        let Some(last) = self.dims.first().and_then(|side| side.checked_sub(1)) else {
            return Ok(None);
        };
        let _inside = self.log.enter()?;
        let view = self.log.open.view();
        let number = self.log.number(self.address);
        let logged = number.filter(|number| {
            let dataset = view.snapshot().datasets.get(*number);
            dataset.is_some_and(|dataset| dataset.logged().is_some())
        });
        if let Some(number) = logged {
            let index = view.indexes().of(number)?;
            let mut from = Bounds {
                start: vec![0; self.dims.len()],
                end: self.dims.clone(),
            };
            if !index.is_touched(&from) {
                return Ok(None);
            }
            // Something lies at `low` or behind it, and nothing at `high` or behind it.
            let (mut low, mut high) = (0, last + 1);
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                from.start[0] = middle;
                if index.is_touched(&from) {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            return Ok(Some(low));
        }
        if number.is_some() || self.made_of.is_some() {
            return Ok(Some(last));
        }
        let task = view.task(None);
        Ok(match self.reader(&task)?.stored {
            Stored::Nowhere => None,
            Stored::Chunks(chunks) => chunks.found.last().map(|chunk| {
                let origin = chunks.origin(chunk.number, &self.dims);
                let side = chunks.sides.first().copied().unwrap_or(1);
                let behind = origin.first().copied().unwrap_or(0).saturating_add(side);
                behind.saturating_sub(1).min(last)
            }),
            Stored::Here(_) | Stored::Piece { .. } => Some(last),
        })
    }

    /// A reader for elements that the snapshot does not have.
    pub(crate) fn reader(&self, task: &Task) -> Result<Reader<'_, Metadata>> {
        let objects = self.log.objects();
        let stored = match self.stored.get() {
            Some(stored) => stored,
            None => {
                let found = task.retry(|| Stored::of(objects, &self.info, &self.dims, task));
                let found = found.map_err(|fault| self.failed(fault))?;
                self.stored.get_or_init(|| found)
            }
        };
        Ok(Reader {
            objects,
            dataset: &self.info,
            dims: &self.dims,
            stored,
        })
    }

    /// All elements as plain values, in row-major order. This is meant for variable-length types. Other types need less
    /// conversion when read as bytes. `reading` tells about the read of the bytes.
    pub fn values(&self, reading: Reading<'_>) -> Result<Vec<Value>> {
        self.shape_of(&Selection::All)?;
        let most = self.log.open.view().budget().limits().cache_size;
        let len = bytes_of(&self.dims, self.element());
        if len.is_none_or(|len| len > most) && self.log.number(self.address).is_none() {
            // A few bytes of a file may declare any number of elements.
            return Err(self.failed("its elements are more than cache_size allows".into()));
        }
        if let Some(made_of) = self.made_of()? {
            let fill = vec![0; self.info.datatype.size as usize];
            let fill = self.log.with(&self.path, |objects| {
                objects.values(
                    &self.info.datatype,
                    self.info.fill.as_deref().unwrap_or(&fill),
                )
            })?;
            let fill = fill
                .first()
                .ok_or_else(|| self.failed("no fill value".into()))?;
            return made_of.values(self, fill, reading);
        }
        let mut bytes = self.zeroed(len)?;
        self.read_bytes(&Selection::All, reading, &mut bytes)?;
        self.log.with(&self.path, |objects| {
            let task = reading.stopping(self.task());
            objects.values_while(&self.info.datatype, &bytes, || Ok(task.check()?))
        })
    }

    /// Bytes of an element.
    fn element(&self) -> u64 {
        u64::from(self.info.datatype.size)
    }

    fn shape_of(&self, selection: &Selection) -> Result<Vec<u64>> {
        if matches!(self.info.space, Dataspace::Null) {
            return Err(self.failed("it has no dataspace".into()));
        }
        selection
            .shape(&self.dims)
            .map_err(|fault| self.failed(fault))
    }

    /// Fails where a selection does not fit the dataset, or `out` does not have its length.
    fn check(&self, selection: &Selection, element: u64, out: &[u8]) -> Result<()> {
        let shape = self.shape_of(selection)?;
        if bytes_of(&shape, element) == Some(out.len() as u64) {
            return Ok(());
        }
        Err(self.failed(format!("{shape:?} elements in a buffer of {} bytes", out.len()).into()))
    }

    pub(crate) fn failed(&self, fault: Fault) -> Error {
        self.log.failed(&self.path, fault)
    }
}

/// The source of a dataset's elements.
struct Elements<'a> {
    dataset: &'a Dataset,
    content: Content<'a>,
    chunk: Vec<u64>,
    /// See [`Layout::is_whole`].
    is_whole: bool,
}

enum Content<'a> {
    Log(Hyperslabs<'a>),
    File(Reader<'a, Metadata>),
    Virtual(&'a Virtual),
}

impl Source for Elements<'_> {
    fn layout(&self) -> Layout<'_> {
        Layout {
            dims: &self.dataset.dims,
            chunk: &self.chunk,
            is_whole: self.is_whole,
            has_small_records: match &self.content {
                Content::Log(slabs) => slabs.has_small_records(),
                Content::File(_) | Content::Virtual(_) => false,
            },
            element: self.dataset.element(),
        }
    }

    fn task(&self) -> Task {
        self.dataset.task()
    }

    fn read(&self, task: &Task, wanted: &Bounds, out: &mut [u8]) -> Result<()> {
        match &self.content {
            Content::Log(slabs) => slabs.read(task, wanted, out),
            Content::File(reader) => {
                let read = reader.read(task, wanted, out);
                read.map_err(|fault| self.dataset.failed(fault))
            }
            Content::Virtual(made_of) => made_of.read(self.dataset, task, wanted, out),
        }
    }

    fn failed(&self, fault: Fault) -> Error {
        self.dataset.failed(fault)
    }
}

/// A source whose elements are converted after reading.
struct Converted<'a, S, C> {
    source: &'a S,
    /// Bytes of a converted element.
    element: u64,
    convert: C,
}

impl<S: Source, C: Fn(&[u8], &mut [u8]) + Sync> Source for Converted<'_, S, C> {
    fn layout(&self) -> Layout<'_> {
        Layout {
            element: self.element,
            ..self.source.layout()
        }
    }

    fn task(&self) -> Task {
        self.source.task()
    }

    fn read(&self, task: &Task, wanted: &Bounds, out: &mut [u8]) -> Result<()> {
        let bytes = out.len() / self.element as usize * self.source.layout().element as usize;
        let mut reservation = task.reservation();
        let found = reservation.filled(bytes);
        let mut found: Vec<u8> = found.map_err(|e| self.failed(e.into()))?;
        self.source.read(task, wanted, &mut found)?;
        (self.convert)(&found, out);
        Ok(())
    }

    fn failed(&self, fault: Fault) -> Error {
        self.source.failed(fault)
    }
}

/// The number format of elements with a Rust type; `None` for others.
pub(crate) fn number_format(datatype: &Datatype) -> Option<NumberFormat> {
    let (kind, big_endian) = match (&datatype.class, datatype.size) {
        (Class::Enumeration { base, .. }, _) => return number_format(base),
        _ if !datatype.is_plain_number() => return None,
        (
            Class::Integer {
                signed, big_endian, ..
            },
            size,
        ) => {
            let kind = match (size, signed) {
                (1, true) => NumberType::I8,
                (1, false) => NumberType::U8,
                (2, true) => NumberType::I16,
                (2, false) => NumberType::U16,
                (4, true) => NumberType::I32,
                (4, false) => NumberType::U32,
                (8, true) => NumberType::I64,
                (8, false) => NumberType::U64,
                _ => return None,
            };
            (kind, *big_endian)
        }
        (Class::Float { big_endian, .. }, 4) => (NumberType::F32, *big_endian),
        (Class::Float { big_endian, .. }, 8) => (NumberType::F64, *big_endian),
        _ => return None,
    };
    // A single byte has no order.
    let big_endian = match datatype.size {
        1 => cfg!(target_endian = "big"),
        _ => big_endian,
    };
    Some(NumberFormat { kind, big_endian })
}
