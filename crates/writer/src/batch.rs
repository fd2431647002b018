//! Writes without copies.

use std::borrow::Cow;

use hdf5::H5Type;

use super::appends::Rows;
use super::flushing::Lent;
use super::memory::Source;
use super::{Dataset, Error, MemorySpace, Result, Selection, Writer, form_of, info_of};
use h5logfs_output::{Blocks, stored};

/// Writes that borrow their data until [`Batch::flush`] has written them to the file. They follow the buffered writes.
///
/// If a batch is dropped without a flush, its data are copied to the writer's buffer, regardless of the buffer limit.
/// Filtered data, and types with padding, are always copied.
///
/// ```compile_fail
/// # fn example(file: &mut h5logfs_writer::Writer, dataset: h5logfs_writer::Dataset)
/// # -> Result<(), h5logfs_writer::Error> {
/// use h5logfs_writer::Selection;
/// let mut field = vec![0.0f64; 100];
/// let mut batch = file.batch();
/// batch.write(dataset, Selection::All, &field)?;
/// field[0] = 1.0; // the batch still borrows it
/// batch.flush()
/// # }
/// ```
pub struct Batch<'w, 'd> {
    writer: &'w mut Writer,
    contents: Contents<'d>,
}

/// The contents of a batch.
#[derive(Default)]
pub(crate) struct Contents<'d> {
    records: Vec<BatchRecord<'d>>,
    rows: Vec<Rows<'d>>,
}

/// A record whose data are not in the writer's buffer.
struct BatchRecord<'d> {
    dataset: Dataset,
    blocks: Blocks,
    bytes: Cow<'d, [u8]>,
}

impl<'w, 'd> Batch<'w, 'd> {
    pub(super) fn new(writer: &'w mut Writer) -> Self {
        Self::from_contents(writer, Contents::default())
    }

    /// Ends the borrow of the writer, for a caller that cannot keep it until the flush.
    pub(crate) fn into_contents(mut self) -> Contents<'d> {
        std::mem::take(&mut self.contents)
    }

    /// Restores a batch. The contents must be of the same writer.
    pub(crate) fn from_contents(writer: &'w mut Writer, contents: Contents<'d>) -> Self {
        Batch { writer, contents }
    }

    /// Logs elements, row-major over the selection. Local.
    pub fn write<T: H5Type>(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        data: &'d [T],
    ) -> Result<()> {
        let added = self.writer.check_type::<T>(dataset).and_then(|()| {
            // SAFETY: a `T` has the datatype of the dataset, and the data outlive `'d`.
            unsafe { self.add(dataset, selection, Source::of(data)) }
        });
        self.writer.remember_refusal(added)
    }

    /// Logs a selected part of a larger array: see [`Writer::write_from`]. The selected elements are copied unless they are
    /// contiguous. Local.
    pub fn write_from<T: H5Type>(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        space: MemorySpace<'_>,
        data: &'d [T],
    ) -> Result<()> {
        let added = self.writer.check_type::<T>(dataset).and_then(|()| {
            let source = Source::of(data).within(space);
            // SAFETY: a `T` has the datatype of the dataset, and the data outlive `'d`.
            unsafe { self.add(dataset, selection, source) }
        });
        self.writer.remember_refusal(added)
    }

    /// Logs elements of a type known only at run time. Local.
    ///
    /// # Safety
    /// `data` points to `count` elements of the dataset's datatype in memory, which do not change
    /// during `'d`.
    pub unsafe fn write_raw(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        data: *const u8,
        count: usize,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.write_elements(dataset, selection, Source::new(data, count)) }
    }

    /// # Safety
    /// `source` has elements of the dataset's datatype, which do not change during `'d`.
    pub(crate) unsafe fn write_elements(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        source: Source<'_>,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        let added = unsafe { self.add(dataset, selection, source) };
        self.writer.remember_refusal(added)
    }

    /// # Safety
    /// See [`Batch::write_elements`].
    unsafe fn add(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        source: Source<'_>,
    ) -> Result<()> {
        self.writer.select(dataset, selection, &source)?;
        let memory = &self.writer.memory[dataset.0 as usize];
        let layout = &self.writer.outline.datasets[dataset.0 as usize].layout;
        // SAFETY: promised by the caller.
        let bytes: Cow<'d, [u8]> = unsafe { source.packed(memory, &self.writer.memory_blocks) };
        let records = &mut self.contents.records;
        let log = self.writer.log.as_ref();
        stored::records(
            form_of(layout),
            log.map_or(1, |log| log.options().threads),
            self.writer.lists.blocks(),
            bytes,
            &mut |blocks, bytes| {
                records.push(BatchRecord {
                    dataset,
                    blocks: blocks.clone(),
                    bytes,
                });
            },
        );
        Ok(())
    }

    /// Appends rows as [`Writer::append`] does, after the copied rows. Local.
    pub fn append<T: H5Type>(&mut self, dataset: Dataset, rows: &'d [T]) -> Result<()> {
        let appended = self.writer.check_type::<T>(dataset).and_then(|()| {
            // SAFETY: a `T` has the datatype of the dataset, and the data outlive `'d`.
            unsafe { self.add_rows(dataset, Source::of(rows)) }
        });
        self.writer.remember_refusal(appended)
    }

    /// Appends rows of a type known only at run time. Local.
    ///
    /// # Safety
    /// `data` points to `count` elements of the dataset's datatype in memory, which do not change
    /// during `'d`.
    pub unsafe fn append_raw(
        &mut self,
        dataset: Dataset,
        data: *const u8,
        count: usize,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        let appended = unsafe { self.add_rows(dataset, Source::new(data, count)) };
        self.writer.remember_refusal(appended)
    }

    /// # Safety
    /// `source` has elements of the dataset's datatype, which do not change during `'d`.
    unsafe fn add_rows(&mut self, dataset: Dataset, source: Source<'_>) -> Result<()> {
        // SAFETY: promised by the caller.
        let rows = unsafe { self.writer.rows(dataset, source) }?;
        if rows.number > 0 {
            self.contents.rows.push(rows);
        }
        Ok(())
    }

    /// Flushes the writer and the batch. After an error the writer's buffer has copies of the data. Collective.
    pub fn flush(mut self) -> Result<()> {
        self.flush_lent()
    }

    /// Flushes as [`Batch::flush`] does, and closes the file. The errors are those of
    /// [`Writer::close`]. Collective.
    pub fn close(mut self) -> Result<()> {
        if self.writer.check_process().is_err() {
            return self.writer.close();
        }
        let flushed = self.flush_lent();
        self.writer.finish(flushed)
    }

    fn flush_lent(&mut self) -> Result<()> {
        let Contents { records, rows } = std::mem::take(&mut self.contents);
        let data = &self.add_entries(&records)[..];
        let flushed = self.writer.flush_with(Lent { data, rows: &rows });
        if let Err(Error::Failed { .. } | Error::Closed { .. } | Error::Forked { .. }) = flushed {
            self.copy(data, rows);
        }
        flushed
    }

    /// Copies data whose entries the writer has, and rows, to its buffer.
    fn copy(&mut self, data: &[&[u8]], rows: Vec<Rows<'d>>) {
        if let Some(log) = &mut self.writer.log {
            data.iter().for_each(|piece| log.push_data(piece));
        }
        for rows in rows {
            self.writer.appends.push(rows);
        }
    }

    /// Moves the entries of the records to the writer. Returns their data.
    fn add_entries<'r>(&mut self, records: &'r [BatchRecord<'d>]) -> Vec<&'r [u8]> {
        let Writer { log, outline, .. } = &mut *self.writer;
        // A closed file has no entries.
        let Some(log) = log else {
            return Vec::new();
        };
        let mut offset = log.data_len();
        let mut pieces = Vec::with_capacity(records.len());
        for record in records {
            let dataset = record.dataset.0;
            let layout = &outline.datasets[dataset as usize].layout;
            let len = record.bytes.len() as u64;
            log.push_entry(info_of(dataset, layout), &record.blocks, offset, len);
            offset += len;
            pieces.push(&record.bytes[..]);
        }
        pieces
    }
}

impl Drop for Batch<'_, '_> {
    fn drop(&mut self) {
        let Contents { records, rows } = std::mem::take(&mut self.contents);
        let data = self.add_entries(&records);
        self.copy(&data, rows);
    }
}
