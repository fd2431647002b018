//! Writes without copies.

use hdf5::H5Type;

use super::{Cow, Dataset, Error, Records, Result, Selection, Target, Writer, stored};

/// Writes whose data are not copied but lent, until [`Batch::flush`] has written them to the file.
/// They come behind what was written before the batch was begun.
///
/// A batch that is dropped without a flush hands copies of its data to the writer's buffer, whatever
/// its limit. Data that have to be changed on their way (filtered, or of a type with gaps) are copied
/// in any case.
///
/// ```compile_fail
/// # fn example(file: &mut h5logfs_writer::Writer, dataset: h5logfs_writer::Dataset)
/// # -> Result<(), h5logfs_writer::Error> {
/// use h5logfs_writer::Selection;
/// let mut field = vec![0.0f64; 100];
/// let mut batch = file.batch();
/// batch.write(dataset, Selection::All, &field)?;
/// field[0] = 1.0; // the batch still has it
/// batch.flush()
/// # }
/// ```
pub struct Batch<'w, 'd> {
    writer: &'w mut Writer,
    records: Records<'d>,
}

/// The writes of a batch that was put aside: see [`Batch::suspend`].
#[derive(Default)]
pub(crate) struct Suspended<'d>(Records<'d>);

impl<'w, 'd> Batch<'w, 'd> {
    pub(super) fn new(writer: &'w mut Writer) -> Self {
        Self::resume(writer, Suspended::default())
    }

    /// Puts the writes aside, for a caller that cannot hold on to the writer until the flush.
    pub(crate) fn suspend(mut self) -> Suspended<'d> {
        Suspended(std::mem::take(&mut self.records))
    }

    /// Goes on with writes that were put aside; they must be of the same writer.
    pub(crate) fn resume(writer: &'w mut Writer, writes: Suspended<'d>) -> Self {
        Batch {
            writer,
            records: writes.0,
        }
    }

    /// Logs elements, row-major over the selection. Local.
    pub fn write<T: H5Type>(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        data: &'d [T],
    ) -> Result<()> {
        let taken = self.writer.check_type::<T>(dataset).and_then(|()| {
            // SAFETY: a `T` has the datatype of the dataset, and the data live as long as `'d`.
            unsafe { self.take(dataset, selection, data.as_ptr().cast(), data.len()) }
        });
        self.writer.note(taken)
    }

    /// Logs elements of a type that is known only when the program runs. Local.
    ///
    /// # Safety
    /// `data` points to `count` elements of the dataset's datatype, as the program has it in memory,
    /// which nobody changes while `'d` lasts.
    pub unsafe fn write_raw(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        data: *const u8,
        count: usize,
    ) -> Result<()> {
        // SAFETY: as the caller says.
        let taken = unsafe { self.take(dataset, selection, data, count) };
        self.writer.note(taken)
    }

    /// # Safety
    /// As of [`Batch::write_raw`].
    unsafe fn take(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        data: *const u8,
        count: usize,
    ) -> Result<()> {
        self.writer.select(dataset, selection, count)?;
        let memory = &self.writer.memory[dataset.0 as usize];
        let layout = &self.writer.outline.datasets[dataset.0 as usize].layout;
        // SAFETY: as the caller says.
        let bytes: Cow<'d, [u8]> = unsafe { memory.packed(data, count) };
        let records = &mut self.records;
        stored::records(layout, &self.writer.blocks, bytes, &mut |blocks, bytes| {
            records.push((dataset, blocks.clone(), bytes));
        });
        Ok(())
    }

    /// Flushes the writer, and with it the batch. Collective. After an error the data are the
    /// writer's, as copies.
    pub fn flush(mut self) -> Result<()> {
        self.flush_lent()
    }

    /// Flushes as [`Batch::flush`] does, and closes the file. Collective. The errors are those of
    /// [`Writer::close`].
    pub fn close(mut self) -> Result<()> {
        let flushed = self.flush_lent();
        self.writer.finish(flushed)
    }

    fn flush_lent(&mut self) -> Result<()> {
        let records = std::mem::take(&mut self.records);
        let pieces = self.enter(&records);
        let flushed = self.writer.flush_with(&pieces);
        if let Err(Error::Failed { .. } | Error::Closed) = flushed {
            for piece in pieces {
                self.writer.data.extend_from_slice(piece);
            }
        }
        flushed
    }

    /// Adds the entries of the records to the writer's; returns the data that belong to them.
    fn enter<'r>(&mut self, records: &'r Records<'d>) -> Vec<&'r [u8]> {
        let mut offset = self.writer.data.len() as u64;
        let mut pieces = Vec::with_capacity(records.len());
        for (dataset, blocks, bytes) in records {
            let layout = &self.writer.outline.datasets[dataset.0 as usize].layout;
            let target = Target::new(dataset.0, layout);
            let section = &mut self.writer.section;
            section.push(target, blocks, offset, bytes.len() as u64);
            offset += bytes.len() as u64;
            pieces.push(&bytes[..]);
        }
        pieces
    }
}

impl Drop for Batch<'_, '_> {
    fn drop(&mut self) {
        let records = std::mem::take(&mut self.records);
        for piece in self.enter(&records) {
            self.writer.data.extend_from_slice(piece);
        }
    }
}
