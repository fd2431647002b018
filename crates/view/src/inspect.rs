//! Questions about a view that are not reads of its bytes: the blocks of a chunk, the written share of a dataset, the
//! damaged chunks.

use std::ops::ControlFlow;

use serde::Serialize;

use super::gaps::{self, Gap};
use super::{ChunkId, View};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::Objects;
use h5logfs_log::hdf5_bytes::is_bare_dimension;
use h5logfs_log::snapshot::Content;

/// Budgets of a count of elements. One is for a user who asks for a count, the other for a program that may ask for
/// many logs. A run of elements costs 1, and a chunk [`CHUNK_COST`].
const USER_BUDGET: u64 = 1 << 26;
const PROGRAM_BUDGET: u64 = 1 << 22;
const CHUNK_COST: u64 = 16;
/// Bytes of record tables up to which a program gets a count. Indexes of larger tables take long to make.
const PROGRAM_TABLE_BYTES: usize = 16 << 20;

/// Bytes of a read that only checks whether the data can be read.
const CHECK_STEP: u64 = 1 << 20;

/// A block of a record that a chunk takes elements from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredBlock {
    /// Number of the source file that holds the record.
    pub source: u16,
    /// Offset of the stored record in the source file, in bytes.
    pub offset: u64,
    /// Length of the stored record in bytes.
    pub stored: u64,
    /// First element of the part of the block that lies in the chunk, in coordinates of the dataset. Later blocks may
    /// override elements of this part.
    pub start: Vec<u64>,
    /// Number of the part's elements along each dimension.
    pub count: Vec<u64>,
}

/// Numbers of written elements and of all elements. Lost elements are not written.
#[derive(Debug, Default, Clone, Copy)]
struct Coverage {
    written: u128,
    /// Includes those that were written, are lost, and have no place in a dataset.
    total: u128,
}

impl Coverage {
    /// These elements, and as many others that are lost.
    fn with(self, lost: u64) -> Self {
        Coverage {
            total: self.total + u128::from(lost),
            ..self
        }
    }

    /// Share of the written elements, from 0 to 1. A dataset without elements is covered completely.
    fn share(self) -> f64 {
        match self.total {
            0 => 1.0,
            total => self.written as f64 / total as f64,
        }
    }
}

/// Questions of people about a view: its gaps, and the places of its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Inspection<'a> {
    view: &'a View,
}

impl<'a> Inspection<'a> {
    #[inline]
    pub(super) fn new(view: &'a View) -> Self {
        Inspection { view }
    }

    /// Offset of a chunk in the canonical file, and number of its stored bytes.
    pub fn chunk_place(self, id: ChunkId) -> Result<(u64, u64)> {
        let place = &self.view.map.datasets[id.dataset];
        let index = self
            .view
            .chunks()
            .index_of_filtered(&self.view.task(None), id.dataset)?;
        let stored = self.view.chunks().len_as_stored(index.as_deref(), id);
        let user_block = self.view.snapshot.user_block;
        let address = user_block + place.chunk_address(id.number);
        Ok((address, stored.unwrap_or(place.stored)))
    }

    /// The blocks from which a read of a chunk of a logged dataset takes elements, in the order in which they apply.
    /// Fails where the chunk cannot be read.
    pub fn chunk_blocks(self, id: ChunkId) -> Result<Vec<StoredBlock>> {
        let index = self.view.indexes().of_chunk(&self.view.task(None), id)?;
        let resolver = self.view.chunks().checked_resolver(&index, id)?;
        let mut blocks = Vec::new();
        let resolved = resolver.runs(&self.view.task(None), |record, block, _| {
            if let Some(reason) = record.fault {
                return Err(reason.into());
            }
            let common = block.bounds().intersection(&resolver.bounds);
            let block = common.map(|common| StoredBlock {
                source: record.stored.source,
                offset: record.stored.offset,
                stored: record.stored.len,
                count: common.count().collect(),
                start: common.start,
            });
            // The runs of one block follow each other.
            if block.as_ref() != blocks.last() {
                blocks.extend(block);
            }
            Ok(())
        });
        resolved.map_err(|fault| self.view.bad_chunk(id, fault))?;
        blocks.reverse();
        Ok(blocks)
    }

    /// Reads all data of a dataset in the log, and passes each error to `report` until that breaks off. For a logged
    /// dataset this makes each chunk that some record touches. `seen` gets the offset in the canonical file up to which
    /// all was read.
    pub fn check_dataset(
        self,
        number: usize,
        seen: &dyn Fn(u64),
        report: &mut impl FnMut(Error) -> ControlFlow<()>,
    ) {
        let checked = match self.view.snapshot.datasets[number].content {
            Content::Logged { .. } => self.check_chunks(number, seen, report),
            Content::Extent { len, .. } => self.check_contiguous(number, len),
            Content::Unreadable(_) => self
                .view
                .chunks()
                .check(&self.view.task(None), ChunkId::new(number, 0)),
        };
        if let Err(e) = checked {
            let _ = report(e);
        }
    }

    /// Reads all bytes of files that the canonical file has as they are, and passes each error to `report` until that
    /// breaks off. Bytes that the files lack are known without this.
    pub fn check_flat(self, report: &mut impl FnMut(Error) -> ControlFlow<()>) {
        if self.view.snapshot.log.layout().flat().is_none() {
            return;
        }
        let mut buf = vec![0; CHECK_STEP as usize];
        for source in &self.view.sources {
            let mut at = 0;
            while at < source.len() {
                let len = CHECK_STEP.min(source.len() - at);
                let read = source.read_exact_at(&mut buf[..len as usize], at);
                if let Err(e) = read.and_then(|()| source.check_unchanged())
                    && report(e).is_break()
                {
                    return;
                }
                at += len;
            }
        }
    }

    fn check_chunks(
        self,
        number: usize,
        seen: &dyn Fn(u64),
        report: &mut impl FnMut(Error) -> ControlFlow<()>,
    ) -> Result<()> {
        let place = &self.view.map.datasets[number];
        for chunk in self.view.holes().touched(number, 0)? {
            seen(
                self.view
                    .snapshot
                    .user_block
                    .saturating_add(place.chunk_address(chunk)),
            );
            if let Err(e) = self
                .view
                .chunks()
                .check(&self.view.task(None), ChunkId::new(number, chunk))
                && report(e).is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn check_contiguous(self, number: usize, len: u64) -> Result<()> {
        let mut buf = vec![0; CHECK_STEP.min(len) as usize];
        let mut at = 0;
        while at < len {
            at += self
                .view
                .regions()
                .read_data(&self.view.task(None), number, at, &mut buf)? as u64;
        }
        Ok(())
    }

    /// Whether the records of each row of a logged dataset are known to be those of the others, in other places of the log.
    pub fn has_equal_rows(self, number: usize) -> bool {
        let snapshot = self.view.snapshot();
        let logged = snapshot.datasets[number].logged();
        logged.is_some_and(|of| snapshot.log.layout().has_equal_rows(of.id))
    }

    /// Share of a logged dataset's elements that some record wrote or that lie below the records, from 0 to 1. Lost elements do not
    /// count, and those that were left out of the dataset count as elements of it. `None` where they lie in too many chunks or runs
    /// to be counted.
    pub fn covered(self, number: usize) -> Result<Option<f64>> {
        let counted = self.count_written(&self.view.task(None), number, &mut { USER_BUDGET })?;
        let snapshot = &self.view.snapshot;
        let left_out = snapshot.left_out_of(&snapshot.datasets[number].name);
        Ok(counted.map(|counted| counted.with(left_out).share()))
    }

    /// [`Inspection::covered`] of all logged datasets together, counted once for each view. `None` where the count
    /// would take more than some seconds, or where data are lost and nothing tells how many.
    pub fn covered_in_all(self, task: &Task) -> Result<Option<f64>> {
        if let Some(known) = self.view.covered.get() {
            return Ok(*known);
        }
        let is_wanted = || task.stopped().is_none();
        let _flight = self.view.counting.take_while((), is_wanted);
        if let Some(known) = self.view.covered.get() {
            return Ok(*known);
        }
        let stopped = |reason| Error::of(self.view.path(), reason);
        task.check().map_err(stopped)?;
        let counted = self.count_all_written(task)?.map(Coverage::share);
        Ok(*self.view.covered.get_or_init(|| counted))
    }

    fn count_all_written(self, task: &Task) -> Result<Option<Coverage>> {
        if !self.view.snapshot.are_losses_counted() {
            return Ok(None);
        }
        if self.view.indexes().table_bytes(task)? > PROGRAM_TABLE_BYTES {
            return Ok(None);
        }
        let mut budget = PROGRAM_BUDGET;
        let left_out = self.view.snapshot.left_out.iter();
        let left_out = left_out.map(|lost| u128::from(lost.elements));
        let mut all = Coverage {
            written: 0,
            total: left_out.sum(),
        };
        for (number, dataset) in self.view.snapshot.datasets.iter().enumerate() {
            if dataset.logged().is_none() {
                continue;
            }
            let Some(own) = self.count_written(task, number, &mut budget)? else {
                return Ok(None);
            };
            all.written += own.written;
            all.total += own.total;
        }
        Ok(Some(all))
    }

    /// Whether a dataset only stands for a dimension, and no record has written to it. Nobody writes its elements: it has
    /// none that could be missing.
    pub fn is_bare_dimension(self, number: usize) -> Result<bool> {
        let view = self.view;
        let index = view.indexes().of_dataset(&view.task(None), number)?;
        if !index.is_empty() || index.has_base() {
            return Ok(false);
        }
        let name = Objects::open(view.metadata())
            .and_then(|objects| objects.attribute(view.snapshot.datasets[number].header, "NAME"));
        let name = name.ok().flatten();
        Ok(name.is_some_and(|name| is_bare_dimension(&name.bytes)))
    }

    /// Counts the written elements. `None` where the count would take more than is left of `budget`.
    fn count_written(
        self,
        task: &Task,
        number: usize,
        budget: &mut u64,
    ) -> Result<Option<Coverage>> {
        let index = self.view.indexes().of_dataset(task, number)?;
        let grid = self.view.grid(number);
        let mut coverage = Coverage::default();
        if grid.is_empty() || self.is_bare_dimension(number)? {
            // The product of its dimensions need not fit into 64 bits.
            return Ok(Some(coverage));
        }
        if self.view.holes().is_sparse(number) && index.check().is_err() {
            // An entry may claim more chunks than can be looked at.
            return Ok(None);
        }
        // An option bounds the memory of a bitmap, whatever chunk shape a file asks for.
        let max_elements = self.view.budget.limits().cache_size;
        coverage.total = grid.dims.iter().product::<u64>().into();
        for chunk in grid.matching(0, |bounds| index.is_touched(bounds)) {
            let Some(left) = budget.checked_sub(CHUNK_COST) else {
                return Ok(None);
            };
            *budget = left;
            let id = ChunkId::new(number, chunk);
            let stopped = |why| self.view.bad_chunk(id, why);
            task.check().map_err(stopped)?;
            let resolver = self.view.chunks().resolver(&index, id);
            match resolver.count_written(task, budget, max_elements) {
                Some(count) => coverage.written += u128::from(count.written),
                None => {
                    task.check().map_err(stopped)?;
                    return Ok(None);
                }
            }
        }
        Ok(Some(coverage))
    }

    /// Passes the gaps of a logged dataset along one of its dimensions to `see`. The time grows with the number of
    /// pieces that records leave of each other. There may be as many pieces as elements. Fails where a chunk is larger
    /// than `cache_size`.
    pub fn gaps(
        self,
        number: usize,
        dimension: usize,
        see: &mut dyn FnMut(Gap) -> ControlFlow<()>,
    ) -> Result<()> {
        if self.is_bare_dimension(number)? {
            return Ok(());
        }
        gaps::find(self.view, number, dimension, see)
    }
}
