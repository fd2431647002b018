//! The records that touch a chunk, in the order in which they apply. [`saved`] and [`store`] keep indexes on disk.
//! [`layers`] are for logs that grow.

pub mod layers;
pub mod saved;
pub mod store;

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use foldhash::fast::RandomState;

use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::parallel;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::deflate::largest_inflated;
use h5logfs_log::base::Base;
use h5logfs_log::boxes::packed::{PackedBoxes, Row, Rows};
use h5logfs_log::boxes::{Bounds, Order};
use h5logfs_log::model::{Record, Selections};
use h5logfs_log::records::{Numbered, RecordList, SELECTION, Shared, VALUES};
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::{DatasetRecords, RecordTable};
use saved::IndexInputs;

/// Bytes of a small block. Smaller ones lie closer together in the log, on average, than it pays to skip.
pub const SMALL_BLOCK: u64 = 4 << 10;

/// Number of records that are worth several threads. Tests have few.
const MANY: usize = if cfg!(debug_assertions) { 20 } else { 1 << 15 };

/// The records of one dataset, for look-ups by box. A record is left out if a later one with the same blocks hides it.
#[derive(Debug)]
pub struct DatasetIndex {
    /// The box of each record, with the values of [`PackedRecords`].
    records: PackedBoxes,
    /// Lists that the records refer to, and the data below all records.
    shared: Shared,
    /// Reasons why no element of the dataset can be read, wherever it lies.
    diagnostics: Vec<Diagnostic>,
    /// Bytes of the selections that no other dataset had before.
    decoded: usize,
    /// Bytes that one query takes.
    query_memory: u64,
    /// The memory of everything but the selections, which have their own.
    reservation: Reservation,
}

impl DatasetIndex {
    /// Decodes and indexes the records of `dataset`. `selections` are those of the log that are in use. Fails where the
    /// files cannot be read, where there is no memory, and where `task` stops.
    pub fn build(
        task: &Task,
        table: &dyn RecordTable,
        inputs: IndexInputs<'_>,
        selections: &Selections,
    ) -> Result<Self, Fault> {
        let IndexInputs {
            sources, dataset, ..
        } = inputs;
        let found = match inputs.strip {
            None => table.records(task, sources, dataset, selections)?,
            Some(strip) => {
                let rows = strip.first..strip.end();
                table.records_of_rows(task, sources, dataset, selections, rows)?
            }
        };
        Self::build_of(task, found, table, inputs)
    }

    /// [`DatasetIndex::build`] for records that were found with the table.
    pub fn build_of(
        task: &Task,
        mut found: DatasetRecords,
        table: &dyn RecordTable,
        inputs: IndexInputs<'_>,
    ) -> Result<Self, Fault> {
        doubt(&mut found, inputs.sources, inputs.dataset.element_size);
        Self::of(task, found, table.diagnostics())
    }

    /// Indexes records that were found. `of_log` has the diagnostics of the whole log.
    pub(crate) fn of(
        task: &Task,
        found: DatasetRecords,
        of_log: &[Diagnostic],
    ) -> Result<Self, Fault> {
        let unreadable = |d: &&Diagnostic| d.severity == Severity::Unreadable;
        let mut diagnostics: Vec<_> = of_log.iter().filter(unreadable).cloned().collect();
        diagnostics.extend(found.diagnostics);
        let list = &found.records;
        let hidden = |may_be_alike| hidden(task, list, may_be_alike);
        let rows = PackedRecords(list);
        let (records, mut reservation) = PackedBoxes::build_without(task, &rows, hidden)?;
        let (shared, of_shared) = found.records.into_shared();
        reservation.absorb(of_shared);
        let mut index = DatasetIndex {
            decoded: found.decoded,
            query_memory: query_memory(&records, &shared),
            records,
            shared,
            diagnostics,
            reservation,
        };
        index.reserve_rest()?;
        Ok(index)
    }

    /// Adjusts the reservation to the final size of the index.
    fn reserve_rest(&mut self) -> Result<(), Fault> {
        let all = (self.bytes() - self.decoded) as u64;
        let more = all.saturating_sub(self.reservation.bytes());
        self.reservation.grow(more)?;
        self.reservation.shrink_to(all);
        Ok(())
    }

    /// Makes the memory count for no user from now on: see [`Reservation::release_share`].
    pub fn unowned(self) -> Self {
        self.reservation.release_share();
        for (_, selection) in &self.shared.selections {
            selection.release_share();
        }
        self
    }

    /// The most bytes of memory that one look-up takes.
    pub fn query_memory(&self) -> u64 {
        self.query_memory
    }

    /// Reasons why no element of the dataset can be read. Empty where elements can be read.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Fails with the first diagnostic, if there is one.
    pub fn check(&self) -> std::result::Result<(), Fault> {
        match self.diagnostics.first() {
            Some(reason) => Err(reason.to_string().into()),
            None => Ok(()),
        }
    }

    /// Passes the records whose boxes touch `query` to `visit`, from the one that applies last to the first, and then
    /// the data below all records, until it breaks off.
    pub fn visit_back<B>(
        &self,
        query: &Bounds,
        visit: impl FnMut(&Record<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.visit(query, Order::Back, visit)
    }

    /// [`DatasetIndex::visit_back`] with the records in this order.
    pub fn visit<B>(
        &self,
        query: &Bounds,
        order: Order,
        mut visit: impl FnMut(&Record<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.records
            .visit(query, order, |row| visit(&self.record(row)))?;
        match &self.shared.base {
            Some(base) => base.visit_back(query, visit),
            None => ControlFlow::Continue(()),
        }
    }

    /// [`DatasetIndex::visit_back`] without the data below the records. `visit` gets each record with its selection and
    /// the number of the selection.
    pub fn visit_numbered<B>(
        &self,
        query: &Bounds,
        mut visit: impl FnMut(&Record<'_>, Option<&Numbered>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.records.visit(query, Order::Back, |row| {
            visit(&self.record(row), self.shared.selection(row))
        })
    }

    /// Returns `false` if no single record, and no data below the records, has all of `query`. Looks at no record.
    pub fn may_cover(&self, query: &Bounds) -> bool {
        self.has_base() || self.records.may_cover(query)
    }

    /// Whether records and blocks are stored in the order in which they apply. A query then need not sort its results.
    pub fn is_in_order(&self) -> bool {
        self.query_memory == 0
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.rows()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether some record has several blocks.
    pub fn has_selections(&self) -> bool {
        !self.shared.selections.is_empty()
    }

    /// Whether several records have the same selection.
    pub fn repeats_selections(&self) -> bool {
        self.records.rows() > self.shared.selections.len()
    }

    /// Whether blocks are small and lie in no order. A read of some elements then reads most of what a read of their neighbours
    /// reads, too. Selections that are written again and again count as order: chunks have plans of them. `bytes` is the size of
    /// the dataset.
    pub fn is_scattered(&self, bytes: u64) -> bool {
        if self.is_in_order() {
            return false;
        }
        let listed = &self.shared.selections;
        let is_shared = listed
            .iter()
            .any(|(_, selection)| Arc::strong_count(selection) > 1);
        if is_shared || !listed.is_empty() && self.repeats_selections() {
            return false;
        }
        let blocks = listed
            .iter()
            .map(|(_, selection)| selection.blocks() as u64);
        let blocks = blocks.fold(0, u64::saturating_add);
        let each = blocks.div_ceil(listed.len().max(1) as u64).max(1);
        bytes / SMALL_BLOCK < (self.len() as u64).saturating_mul(each)
    }

    /// Whether there are data below all records.
    pub fn has_base(&self) -> bool {
        self.shared.base.is_some()
    }

    /// Whether some record has a block in `query`, or there is data below all records.
    pub fn is_touched(&self, query: &Bounds) -> bool {
        let touches = |row: Row<'_>| self.record(row).touches(query);
        let has_base = |base: &Base| base.touches(query);
        self.shared.base.as_ref().is_some_and(has_base) || self.records.any(query, touches)
    }

    /// Whether some record has a block in `query`, or data below all records reach into it. `lens` tells the lengths of
    /// the sources. Data past the end of a file do not count, because they are not there.
    pub fn is_stored(&self, query: &Bounds, lens: impl Fn(u16) -> u64) -> bool {
        let touches = |row: Row<'_>| self.record(row).touches(query);
        let is_there =
            |base: &Base| base.touches(query) && base.begins_before(query, lens(base.source()));
        self.shared.base.as_ref().is_some_and(is_there) || self.records.any(query, touches)
    }

    /// Whether data below the records have all of `query`, and no record over them is lost.
    pub fn base_covers(&self, query: &Bounds) -> bool {
        let covers = |base: &Base| base.covers(query);
        self.shared.faults.is_empty() && self.shared.base.as_ref().is_some_and(covers)
    }

    fn record<'a>(&'a self, row: Row<'a>) -> Record<'a> {
        self.shared.record(row)
    }

    /// Bytes of memory of the index and all its selections, including those that other datasets share.
    pub fn bytes_with_selections(&self) -> usize {
        let selections = self.shared.selections.iter();
        let selections: usize = selections.map(|(_, s)| s.bytes()).sum();
        self.bytes() - self.decoded + selections
    }

    /// Bytes of memory. Shared selections count for the dataset that decoded them.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.decoded
            + self.records.bytes()
            + self.shared.bytes()
            + self
                .diagnostics
                .iter()
                .map(Diagnostic::bytes)
                .sum::<usize>()
    }
}

/// Adds a diagnostic if the data of a record cannot be had and it claims more elements than all files of the log could
/// hold. Its selection cannot be believed either, and a walk through all of its chunks would have no end.
pub(crate) fn doubt(found: &mut DatasetRecords, sources: &[SourceFile], element: u64) {
    let stored = sources.iter().map(SourceFile::len);
    let most = largest_inflated(stored.fold(0, u64::saturating_add));
    if found.records.faults().is_empty() {
        return;
    }
    let claim = |record: &Record<'_>| {
        let fault = record.fault?;
        let claims_more = record.elements().saturating_mul(element) > most;
        claims_more.then(|| format!("{fault}: it claims more than the log could hold"))
    };
    let first = found.records.map(claim).find(Option::is_some).flatten();
    if let Some(fault) = first {
        found.add_diagnostic(Diagnostic::unreadable(fault));
    }
}

/// The records of a list, as rows of a table of boxes.
struct PackedRecords<'a>(&'a RecordList);

impl Rows for PackedRecords<'_> {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn rows(&self) -> usize {
        self.0.len()
    }
    fn values(&self) -> usize {
        VALUES
    }
    fn start(&self, row: usize, dim: usize) -> u64 {
        self.0.cell(row, dim)
    }
    fn count(&self, row: usize, dim: usize) -> u64 {
        self.0.cell(row, self.0.rank() + dim)
    }
    fn value(&self, row: usize, value: usize) -> u64 {
        match value {
            0 => row as u64,
            _ => self.0.cell(row, 2 * self.0.rank() + value),
        }
    }
    fn same(&self, column: usize) -> Option<u64> {
        let is_number = column == 2 * self.0.rank();
        self.0.same(column).filter(|_| !is_number)
    }
}

/// The blocks of a record: its box, and the number of its selection.
struct Blocks<'a> {
    list: &'a RecordList,
    number: u32,
}

impl Blocks<'_> {
    fn cells(&self) -> impl Iterator<Item = u64> {
        let sides = 2 * self.list.rank();
        let columns = (0..sides).chain([sides + SELECTION]);
        columns.map(|column| self.list.cell(self.number as usize, column))
    }
}

impl PartialEq for Blocks<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cells().eq(other.cells())
    }
}

impl Eq for Blocks<'_> {}

impl Hash for Blocks<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.cells().for_each(|cell| state.write_u64(cell));
    }
}

/// Numbers of the records that a later one with the same blocks hides, in ascending order. Programs write the same part
/// of a dataset again and again. Other hidden records are found when a chunk is made. `may_be_alike` has the records
/// that may share their blocks with others, where that is known.
#[expect(
    clippy::mutable_key_type,
    reason = "only the user for whom the memory of a list counts may change"
)]
fn hidden(
    task: &Task,
    list: &RecordList,
    may_be_alike: Option<Vec<u32>>,
) -> Result<Vec<u32>, Fault> {
    let mut reservation = task.reservation();
    let mut compared = match may_be_alike {
        Some(known) => {
            reservation.grow((known.capacity() * size_of::<u32>()) as u64)?;
            known
        }
        None if begin_in_order(list) => return Ok(Vec::new()),
        None => alike_by_hash(task, list, &mut reservation)?,
    };
    let state = RandomState::default();
    reservation.grow((compared.len() * 2 * size_of::<Blocks<'_>>()) as u64)?;
    let mut seen = HashSet::with_capacity_and_hasher(compared.len(), state);
    // Goes from the last record to the first, and keeps those that a later one hides.
    compared.reverse();
    compared.retain(|&number| !seen.insert(Blocks { list, number }));
    compared.reverse();
    Ok(compared)
}

/// Numbers of the records that may share their blocks with others. A small table of hashes finds them, because most
/// records have blocks of their own.
fn alike_by_hash(
    task: &Task,
    list: &RecordList,
    reservation: &mut Reservation,
) -> Result<Vec<u32>, Fault> {
    // A slot of 4 bytes and two bit sets of at most 32 bits for each record.
    let _tables = task.reserve(list.len() as u64 * (4 + 8))?;
    let state = RandomState::default();
    let most = (16 * list.len()).next_power_of_two() - 1;
    let (mut once, mut again) = (BitSet::new(most + 1), BitSet::new(most + 1));
    let mut slots = vec![0; list.len()];
    let shares = if list.len() > MANY {
        parallel::shares()
    } else {
        1
    };
    parallel::fill(shares, &mut slots, |first, part| {
        for (number, slot) in (first as u32..).zip(part) {
            // More than 2^28 records share slots more often.
            *slot = (state.hash_one(Blocks { list, number }) as usize & most) as u32;
        }
    });
    for slot in &slots {
        if once.set(*slot as usize) {
            again.set(*slot as usize);
        }
    }
    let mut alike = Vec::new();
    for (number, slot) in slots.into_iter().enumerate() {
        if again.has(slot as usize) {
            reservation.push(&mut alike, number as u32)?;
        }
    }
    Ok(alike)
}

/// Whether each record begins behind the one before, in row-major order. No two records then have the same blocks.
fn begin_in_order(list: &RecordList) -> bool {
    let start = |number| (0..list.rank()).map(move |dim| list.cell(number, dim));
    (1..list.len()).all(|number| start(number - 1).lt(start(number)))
}

/// Bytes of memory of one query of all records, and of the selection of one of them.
fn query_memory(records: &PackedBoxes, shared: &Shared) -> u64 {
    let selections = shared.selections.iter().map(|(_, s)| s.query_memory());
    records.query_memory() + selections.max().unwrap_or(0)
}

struct BitSet(Vec<u64>);

impl BitSet {
    fn new(bits: usize) -> Self {
        BitSet(vec![0; bits.div_ceil(64)])
    }

    fn has(&self, bit: usize) -> bool {
        self.0[bit / 64] >> (bit % 64) & 1 != 0
    }

    /// Sets a bit. Returns whether it was set before.
    fn set(&mut self, bit: usize) -> bool {
        let had = self.has(bit);
        self.0[bit / 64] |= 1 << (bit % 64);
        had
    }
}
