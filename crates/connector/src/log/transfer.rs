//! `H5Dwrite` and `H5Dread` of logged datasets.

use std::borrow::Cow;
use std::ffi::{CStr, c_uint, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use h5logfs_host::Kind;
use h5logfs_host::lists::BlockList;
use h5logfs_host::types::Id;
use h5logfs_log::boxes::Bounds;
use h5logfs_output::automatic::Call;
use h5logfs_output::reading::{Placed, Readable, Reader, Written};
use h5logfs_output::{Blocks, Selection};

use super::dataset::{Dataset, FoundExtent};
use super::elements::{Conversion, Memory, are_equal};
use super::expression;
use super::selection::{Place, Room, dataset_blocks, listed_blocks, memory_place};
use super::{State, WrittenLog};
use crate::below::Below;
use crate::library::{Functions, Library};
use h5logfs_common::fault::Fault;

/// The selection of a transfer, in the dataset and in memory.
#[derive(Debug, Clone, Copy)]
pub enum Selected<'a> {
    /// Two dataspaces. `H5S_ALL` is 0.
    Spaces { memory: Id, file: Id },
    /// A list of blocks. Their elements lie in one piece in memory.
    List(&'a BlockList),
}

/// A transfer of one dataset.
#[derive(Debug)]
pub struct Transfer<'a, B> {
    /// The dataset in the metadata image.
    pub below: &'a Below,
    /// The dataset in the log.
    pub dataset: &'a Dataset,
    /// The datatype in memory.
    pub memory_type: Id,
    /// The selected elements.
    pub selected: Selected<'a>,
    /// The data transfer property list.
    pub dxpl: Id,
    /// The buffer: `*mut c_void` for a read, `*const c_void` for a write.
    pub buf: B,
}

/// State that one call keeps for the next, since programs make very many small writes.
#[derive(Debug, Default)]
pub struct Kept {
    extent: FoundExtent,
    room: Room,
}

/// Blocks and their elements, in the file type.
type Filled<'r, 'a> = (&'r Blocks, Cow<'a, [u8]>);

/// A dataset of a write of several datasets, ready to be logged.
struct Ready<'a> {
    /// The number of the transfer.
    at: usize,
    /// The extent when the call began.
    dims: Arc<[u64]>,
    blocks: Blocks,
    /// The elements in the file type.
    elements: Cow<'a, [u8]>,
}

/// Resolves the selection of a transfer in a dataset of extent `dims`: blocks of the dataset, and as many elements in memory. The
/// latter is `None` if nothing is selected.
#[inline]
fn select<'r, B>(
    f: &Functions,
    transfer: &Transfer<'_, B>,
    dims: &[u64],
    buf: *const c_void,
    room: &'r mut Room,
) -> Result<(&'r Blocks, Option<Memory>), Fault> {
    let size = if is_same_type(transfer.dataset, transfer.memory_type) {
        transfer.dataset.element
    } else {
        type_size(f, transfer.memory_type)?
    };
    let Room { selections, bounds } = room;
    let (blocks, place) = match transfer.selected {
        Selected::Spaces { memory, file } => {
            let blocks = dataset_blocks(f, file, dims, selections, bounds)?;
            let place = memory_place(f, (memory, file), blocks.elements, bounds)?;
            (blocks, place)
        }
        Selected::List(list) => {
            // SAFETY: whoever gives a list guarantees the sizes that its type documents for this dataset.
            let blocks = unsafe { listed_blocks(list, dims, &mut selections.lists) }?;
            (blocks, Place::From(0))
        }
    };
    if blocks.elements == 0 {
        return Ok((blocks, None));
    }
    let memory = Memory {
        buf,
        datatype: transfer.memory_type,
        size,
        place,
        count: usize::try_from(blocks.elements)?,
    };
    Ok((blocks, Some(memory)))
}

/// The size of an element in memory, in bytes. Fails for an identifier that is not a datatype.
fn type_size(f: &Functions, datatype: Id) -> Result<usize, Fault> {
    // SAFETY: the library checks any identifier; the size of one that is not a datatype is 0.
    match unsafe { (f.H5Tget_size)(datatype) } {
        0 => Err(
            "the identifier given as the type of the elements in memory is not a datatype".into(),
        ),
        size => Ok(size),
    }
}

/// Whether a type was found equal to the file type, and cannot have changed since. Valid identifiers are positive.
fn is_same_type(dataset: &Dataset, datatype: Id) -> bool {
    datatype > 0 && dataset.same_type.load(Ordering::Relaxed) == datatype
}

/// Reads and writes of the logged datasets of a log.
#[derive(Debug, Clone, Copy)]
pub struct Transfers<'a> {
    log: &'a WrittenLog,
}

impl<'a> Transfers<'a> {
    #[inline]
    pub(super) fn new(log: &'a WrittenLog) -> Self {
        Transfers { log }
    }

    /// Begins a call that writes. Flushes if that is due, and returns its failure. Also returns the state that the previous call
    /// kept. Collective if the call is.
    #[inline]
    pub fn begin(self, call: Call, is_changed: &AtomicBool) -> (Box<Kept>, Result<(), Fault>) {
        let mut state = self.log.state.lock();
        let flushed = state.flush_if_due(&self.log.metadata_image, call, is_changed);
        (state.kept.take().unwrap_or_default(), flushed)
    }

    /// Logs elements of one dataset. Local.
    ///
    /// A conversion between types may run functions of the program. They may read, write and flush this log, and extend this
    /// dataset. So elements are prepared without a lock, and are logged with the extent that the dataset had when the call began.
    /// Returns whether to [warn the program](Transfers::warn_of_spill) at the end of the call.
    pub fn write(
        self,
        transfer: &Transfer<'_, *const c_void>,
        mut kept: Box<Kept>,
    ) -> Result<bool, Fault> {
        let Kept { extent, room } = &mut *kept;
        let dims = transfer.dataset.found_dims(extent);
        let written = self.elements_to_write(transfer, dims, room);
        let mut state = self.log.state.lock();
        let logged = match written {
            Ok(Some((blocks, elements))) => {
                state.log_quietly(transfer.dataset, dims, blocks, elements)
            }
            Ok(None) => Ok(false),
            Err(reason) => Err(reason),
        };
        state.kept = Some(kept);
        logged
    }

    /// Logs elements of several datasets in one call. All selections are resolved before any element is logged, and all elements
    /// are logged together. Local. A fault comes with the number of its transfer. See [`Transfers::write`].
    pub fn write_all(
        self,
        transfers: &[Transfer<'_, *const c_void>],
        mut kept: Box<Kept>,
    ) -> Result<bool, (usize, Fault)> {
        /// The limit for copies of elements that a call holds, in bytes. Beyond it, the call logs its elements in parts.
        const MOST_COPIED: usize = 64 << 20;
        let f = self.log.library.functions();
        let mut parts = Vec::with_capacity(transfers.len());
        for (at, transfer) in transfers.iter().enumerate() {
            let dims = transfer.dataset.dims();
            let selected = select(f, transfer, &dims, transfer.buf, &mut kept.room);
            let (blocks, memory) = selected.map_err(|e| (at, e))?;
            let blocks = blocks.clone();
            parts.push((at, dims, blocks, memory));
        }
        let (mut ready, mut copied, mut is_to_warn) = (Vec::new(), 0, false);
        for (at, dims, blocks, memory) in parts {
            let transfer = &transfers[at];
            let elements = self.elements_of(transfer, &dims, memory, &blocks);
            let Some(elements) = elements.map_err(|e| (at, e))? else {
                continue;
            };
            if let Cow::Owned(copy) = &elements {
                copied += copy.len();
            }
            ready.push(Ready {
                at,
                dims,
                blocks,
                elements,
            });
            if copied > MOST_COPIED {
                is_to_warn |= self.log_parts(transfers, &mut ready)?;
                copied = 0;
            }
        }
        is_to_warn |= self.log_parts(transfers, &mut ready)?;
        self.log.state.lock().kept = Some(kept);
        Ok(is_to_warn)
    }

    /// Logs the prepared part of a call, and empties the list.
    fn log_parts(
        self,
        transfers: &[Transfer<'_, *const c_void>],
        ready: &mut Vec<Ready<'_>>,
    ) -> Result<bool, (usize, Fault)> {
        let mut state = self.log.state.lock();
        let mut is_to_warn = false;
        for part in ready.drain(..) {
            let dataset = transfers[part.at].dataset;
            let logged = state.log_quietly(dataset, &part.dims, &part.blocks, part.elements);
            is_to_warn |= logged.map_err(|e| (part.at, e))?;
        }
        Ok(is_to_warn)
    }

    /// Warns a program that has never flushed and whose elements spill to disk, once. Comes last in a call, since calls of
    /// libhdf5 may clear the warning.
    pub fn warn_of_spill(self) {
        self.log.state.lock().warn_of_spill();
    }

    /// Reads elements of one dataset. Elements of this rank, and of other ranks on this node, are read as written; those of all
    /// other ranks as of the last flush. Local. Functions of the program may run, as in [`Transfers::write`].
    pub fn read(self, transfer: &Transfer<'_, *mut c_void>) -> Result<(), Fault> {
        let kept = self.log.state.lock().kept.take();
        let mut kept = kept.unwrap_or_default();
        let read = self.read_with(transfer, &mut kept.room);
        self.log.state.lock().kept = Some(kept);
        read
    }

    /// The blocks and elements that a write logs. `None` if nothing is selected.
    #[inline]
    fn elements_to_write<'t, 'r>(
        self,
        transfer: &Transfer<'t, *const c_void>,
        dims: &[u64],
        room: &'r mut Room,
    ) -> Result<Option<Filled<'r, 't>>, Fault> {
        let f = self.log.library.functions();
        let (blocks, memory) = select(f, transfer, dims, transfer.buf, room)?;
        if let Some(memory) = &memory
            && self.log.is_default_transfer(transfer.dxpl)
            && is_same_type(transfer.dataset, memory.datatype)
            // SAFETY: the program guarantees that the buffer holds its selection, and that it does not change during the call.
            && let Some(elements) = unsafe { memory.as_they_lie() }
        {
            return Ok(Some((blocks, Cow::Borrowed(elements))));
        }
        let elements = self.elements_of(transfer, dims, memory, blocks)?;
        Ok(elements.map(|elements| (blocks, elements)))
    }

    /// The elements that a write logs, from a resolved selection.
    fn elements_of<'t>(
        self,
        transfer: &Transfer<'t, *const c_void>,
        dims: &[u64],
        memory: Option<Memory>,
        blocks: &Blocks,
    ) -> Result<Option<Cow<'t, [u8]>>, Fault> {
        let library = &self.log.library;
        let dataset = transfer.dataset;
        let Some(memory) = memory else {
            self.check_conversion(dataset, transfer.memory_type, transfer.dxpl)?;
            return Ok(None);
        };
        // SAFETY: the program guarantees that the buffer holds its selection, and that it does not change during the call.
        let elements = unsafe { memory.gathered(library) }?;
        let conversion = Conversion {
            from: memory.datatype,
            to: dataset.file_type.id,
            from_size: memory.size,
            to_size: dataset.element,
            dxpl: transfer.dxpl,
        };
        if self.has_expression(transfer.dxpl) {
            let info = &transfer.below.info;
            let changed = expression::written(info, &conversion, &elements, memory.count)?;
            return Ok(Some(Cow::Owned(changed)));
        }
        if self.is_type_of_file(dataset, memory.datatype) {
            return Ok(Some(elements));
        }
        let mut background = self.background_of_write(dataset, dims, memory, blocks)?;
        let converted =
            conversion.apply(library, elements, memory.count, background.as_deref_mut())?;
        Ok(Some(Cow::Owned(converted)))
    }

    /// Whether an expression (`H5Pset_data_transform`) applies to the transfer.
    fn has_expression(self, dxpl: Id) -> bool {
        if self.log.is_default_transfer(dxpl) {
            return false;
        }
        // SAFETY: the list belongs to this library, and nothing is written. Without an expression the call fails.
        let length = self
            .log
            .library
            .nested(|f| unsafe { (f.H5Pget_data_transform)(dxpl, ptr::null_mut(), 0) });
        length > 0
    }

    /// Fails if the types cannot be converted. libhdf5 refuses such a transfer even without selected elements.
    fn check_conversion(self, dataset: &Dataset, datatype: Id, dxpl: Id) -> Result<(), Fault> {
        if self.is_type_of_file(dataset, datatype) {
            return Ok(());
        }
        let conversion = Conversion {
            from: datatype,
            to: dataset.file_type.id,
            from_size: type_size(self.log.library.functions(), datatype)?,
            to_size: dataset.element,
            dxpl,
        };
        // libhdf5 requires a background for compound types, even for no elements.
        let mut background = vec![0; dataset.element];
        let converted = conversion.apply(
            &self.log.library,
            Cow::Borrowed(&[]),
            0,
            Some(&mut background),
        );
        converted.map(drop)
    }

    /// Whether the type in memory equals the file type.
    fn is_type_of_file(self, dataset: &Dataset, datatype: Id) -> bool {
        if is_same_type(dataset, datatype) {
            return true;
        }
        let is_same = are_equal(self.log.library.functions(), datatype, dataset.file_type.id);
        // Only a predefined type is remembered: a program may change its own types under the same identifiers.
        if is_same && self.log.constants.predefined.contains(&datatype) {
            dataset.same_type.store(datatype, Ordering::Relaxed);
        }
        is_same
    }

    /// The background of a conversion to the file type: the present values of members that the program does not write.
    fn background_of_write(
        self,
        dataset: &Dataset,
        dims: &[u64],
        memory: Memory,
        blocks: &Blocks,
    ) -> Result<Option<Vec<u8>>, Fault> {
        if !dataset.has_members {
            return Ok(None);
        }
        if has_all_members(&self.log.library, memory.datatype, dataset.file_type.id) {
            return Ok(Some(vec![0; memory.count * dataset.element]));
        }
        self.read_selected(dataset, dims, blocks).map(Some)
    }

    fn read_with(self, transfer: &Transfer<'_, *mut c_void>, room: &mut Room) -> Result<(), Fault> {
        let library = &self.log.library;
        let dataset = transfer.dataset;
        let dims = dataset.dims();
        let (blocks, memory) = select(library.functions(), transfer, &dims, transfer.buf, room)?;
        let Some(memory) = memory else {
            return self.check_conversion(dataset, transfer.memory_type, transfer.dxpl);
        };
        if memory.buf.is_null() {
            return Err("no buffer was given".into());
        }
        let is_changed = self.has_expression(transfer.dxpl);
        let is_same = !is_changed && self.is_type_of_file(dataset, memory.datatype);
        if is_same && let Some(place) = memory.in_one_piece() {
            let bytes = memory.count * memory.size;
            // SAFETY: the program guarantees that the buffer has room for its selection, and that nothing else uses it.
            let out = unsafe { std::slice::from_raw_parts_mut(place, bytes) };
            let mut state = self.log.state.lock();
            return state.read_blocks(dataset, &dims, blocks, out);
        }
        let elements = self.read_selected(dataset, &dims, blocks)?;
        let conversion = Conversion {
            from: dataset.file_type.id,
            to: memory.datatype,
            from_size: dataset.element,
            to_size: memory.size,
            dxpl: transfer.dxpl,
        };
        let elements = if is_same {
            elements
        } else if is_changed {
            expression::read(&transfer.below.info, &conversion, &elements, memory.count)?
        } else {
            let mut background = if dataset.has_members {
                // SAFETY: as above.
                Some(unsafe { memory.gathered(library) }?.into_owned())
            } else {
                None
            };
            conversion.apply(
                library,
                elements.into(),
                memory.count,
                background.as_deref_mut(),
            )?
        };
        // SAFETY: as above.
        unsafe { memory.scatter(library, &elements) }
    }

    /// Reads the elements of some blocks, in the file type.
    fn read_selected(
        self,
        dataset: &Dataset,
        dims: &[u64],
        blocks: &Blocks,
    ) -> Result<Vec<u8>, Fault> {
        let bytes = usize::try_from(blocks.elements).ok();
        let bytes = bytes.and_then(|n| n.checked_mul(dataset.element));
        let bytes = bytes.ok_or("more elements than memory can hold")?;
        let mut out = vec![0; bytes];
        let mut state = self.log.state.lock();
        state.read_blocks(dataset, dims, blocks, &mut out)?;
        Ok(out)
    }
}

impl State {
    /// Logs elements in the file type, for a selection of a dataset of this extent.
    pub(super) fn log(
        &mut self,
        dataset: &Dataset,
        dims: &[u64],
        selection: &Selection<'_>,
        elements: Cow<'_, [u8]>,
    ) -> Result<(), Fault> {
        let mut blocks = Blocks::default();
        blocks.set(selection, dims)?;
        if self.log_quietly(dataset, dims, &blocks, elements)? {
            self.warn_of_spill();
        }
        Ok(())
    }

    /// Logs elements without a warning. Returns whether there should be one.
    #[inline]
    fn log_quietly(
        &mut self,
        dataset: &Dataset,
        dims: &[u64],
        blocks: &Blocks,
        elements: Cow<'_, [u8]>,
    ) -> Result<bool, Fault> {
        let path = &self.path;
        let writer = self.writer.as_mut();
        let writer = writer.ok_or_else(|| format!("{}: the file is closed", path.display()))?;
        writer.push(dataset.info(dims), dataset.form(), blocks, elements)?;
        dataset.set_written();
        let files = writer.files();
        Ok(!self.is_warned && !files.has_flushed() && !files.spilled().is_empty())
    }

    /// Warns a program that has never flushed and whose elements spill to disk.
    fn warn_of_spill(&mut self) {
        self.is_warned = true;
        let path = self.path.display();
        let sentence = format!(
            "{path}: elements went to the disk before the first flush of this program. If it is killed before that, they \
             are kept, but no reader sees them, and those of new datasets are lost. H5Fflush makes them safe, and so do \
             the options flush_every and flush_bytes"
        );
        self.library.push(Kind::Write, &sentence);
    }

    fn read_blocks(
        &mut self,
        dataset: &Dataset,
        dims: &[u64],
        blocks: &Blocks,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let mut rest = out;
        for number in 0..blocks.number {
            let (start, count) = (blocks.start(number), blocks.count(number));
            let bytes = count.iter().product::<u64>() as usize * dataset.element;
            let (part, after) = rest.split_at_mut(bytes);
            rest = after;
            self.read_box(dataset, dims, Region { start, count }, part)?;
        }
        Ok(())
    }

    /// Reads a box of elements, in the file type.
    pub(super) fn read_box(
        &mut self,
        dataset: &Dataset,
        dims: &[u64],
        region: Region<'_>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let (reader, written) = self.reader()?;
        let read = reader.read(
            &written,
            &readable(dataset, dims),
            region.start,
            region.count,
            out,
        );
        self.writer()?.check_read()?;
        read
    }

    /// Whether any element of a box was written.
    pub(super) fn is_logged(
        &mut self,
        dataset: &Dataset,
        dims: &[u64],
        region: Region<'_>,
    ) -> Result<bool, Fault> {
        let bounds = bounds_of(region);
        let (reader, written) = self.reader()?;
        reader.is_written(&written, &readable(dataset, dims), &bounds)
    }

    /// The place of a box of elements in the log file. `None` unless the box lies there in one piece. Spills the buffer first, so
    /// that all elements are in the file. With several ranks or files, the places of other ranks' elements are unknown, so there
    /// is no answer.
    pub(super) fn place(
        &mut self,
        dataset: &Dataset,
        dims: &[u64],
        region: Region<'_>,
    ) -> Result<Option<Placed>, Fault> {
        let writer = self.writer()?;
        let files = writer.files();
        if writer.ranks().size() > 1 || files.header().subfiles > 0 || !files.spills_in_place() {
            return Ok(None);
        }
        if writer.buffered() > 0 {
            writer.spill(&[])?;
        }
        let wanted = bounds_of(region);
        let (reader, written) = self.reader()?;
        reader.place(&written, &readable(dataset, dims), &wanted)
    }

    /// The reader, with the data that it reads.
    fn reader(&mut self) -> Result<(&mut Reader, Written<'_>), Fault> {
        let path = &self.path;
        let writer = self.writer.as_mut();
        let writer = writer.ok_or_else(|| format!("{}: the file is closed", path.display()))?;
        writer.check_read()?;
        Ok((&mut self.reader, writer.written()))
    }
}

fn bounds_of(region: Region<'_>) -> Bounds {
    let ends = region.start.iter().zip(region.count).map(|(s, c)| s + c);
    Bounds {
        start: region.start.to_vec(),
        end: ends.collect(),
    }
}

/// The properties of a dataset that the reader needs, with this extent.
fn readable<'a>(dataset: &'a Dataset, dims: &'a [u64]) -> Readable<'a> {
    Readable {
        id: dataset.id,
        dims,
        chunk: dataset.form().chunk,
        element: dataset.element as u64,
        fill: &dataset.fill,
        filters: &dataset.filters,
    }
}

/// A box of elements.
#[derive(Debug, Clone, Copy)]
pub struct Region<'a> {
    /// The coordinates of the first element.
    pub start: &'a [u64],
    /// The number of elements in each dimension.
    pub count: &'a [u64],
}

/// Whether a compound type in memory has all members of the file type, so that a write replaces elements as a whole.
fn has_all_members(library: &Library, memory: Id, file: Id) -> bool {
    const COMPOUND: i32 = 6;
    library.nested(|f| {
        // SAFETY (all calls here): the library checks any identifier; the names that it returns are freed.
        if unsafe { (f.H5Tget_class)(file) } != COMPOUND {
            return false;
        }
        let members = unsafe { (f.H5Tget_nmembers)(file) };
        (0..members.max(0) as c_uint).all(|n| {
            let class = unsafe { (f.H5Tget_member_class)(file, n) };
            let name = unsafe { (f.H5Tget_member_name)(file, n) };
            if name.is_null() {
                return false;
            }
            let is_there =
                unsafe { (f.H5Tget_member_index)(memory, CStr::from_ptr(name).as_ptr()) } >= 0;
            unsafe { (f.H5free_memory)(name.cast()) };
            // A nested compound member may lack members, so it does not count.
            is_there && class < COMPOUND
        })
    })
}
