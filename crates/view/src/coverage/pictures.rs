//! Pictures of several datasets of one log. Variables of a model share their decompositions, so their records have the
//! same selections in other places of the log. One picture then serves all of them.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use super::super::{Grid, View};
use super::{BOX_ELEMENTS, BUDGET, BUDGET_OF_PART, CellGrid, CoverageMap, Limits, Wanted, picture};
use crate::index::doubt;
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::error::Result;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::DatasetRecords;
use h5logfs_log::model::Selection;
use h5logfs_log::origins::Origins;

/// Bytes of selections that are kept, so that other datasets need not decode them again.
const MOST_KEPT: usize = 64 << 20;
/// The least blocks of a record, on average, that make a comparison worth it. Fewer blocks are painted as fast as they
/// are compared.
const WORTH_COMPARING: u64 = 8;

/// Makes pictures of the datasets of one log.
pub struct Pictures<'a> {
    view: &'a View,
    origins: &'a Origins,
    hashers: [RandomState; 2],
    known: HashMap<Key, CoverageMap>,
    kept: Vec<Arc<Reserved<Selection>>>,
    kept_bytes: usize,
}

/// A hash of everything that decides a picture. A file cannot foresee its 128 bits.
pub(super) type Key = [u64; 2];

impl<'a> Pictures<'a> {
    /// `origins` are those of the log, see [`Indexes::origins`](crate::Indexes::origins).
    pub(crate) fn new(view: &'a View, origins: &'a Origins) -> Self {
        Pictures {
            view,
            origins,
            hashers: [RandomState::new(), RandomState::new()],
            known: HashMap::new(),
            kept: Vec::new(),
            kept_bytes: 0,
        }
    }

    /// A picture of a logged dataset. Fails where records cannot be found. A dataset whose elements cannot be read
    /// still has a picture.
    pub fn of(&mut self, number: usize, wanted: &Wanted) -> Result<CoverageMap> {
        let snapshot = &self.view.snapshot;
        let left_out = snapshot.left_out_of(&snapshot.datasets[number].name);
        let mut map = self.of_records(number, wanted)?;
        if map.records == 0 && self.view.inspection().is_bare_dimension(number)? {
            map.cells.iter_mut().for_each(|cell| cell.elements = 0);
        }
        Ok(CoverageMap { left_out, ..map })
    }

    /// The picture of the records of a dataset.
    fn of_records(&mut self, number: usize, wanted: &Wanted) -> Result<CoverageMap> {
        let task = self.view.task(None);
        if let Some(map) = self.of_one_row(&task, number, wanted)? {
            return Ok(map);
        }
        let found = self.view.indexes().records_for(&task, number, None)?;
        let key = key(
            &self.hashers,
            &found,
            self.view.grid(number),
            self.origins,
            wanted,
        );
        if let Some(known) = key.and_then(|key| self.known.get(&key)) {
            return Ok(known.clone());
        }
        if key.is_some() {
            self.keep(&found);
        }
        let map = self.picture((&task, number), found, self.view.grid(number), wanted)?;
        if let Some(key) = key {
            self.known.insert(key, map.clone());
        }
        Ok(map)
    }

    /// A picture of a dataset whose rows are equal, made from one of them. `None` where they are not, or where rows of cells would
    /// lie along them.
    fn of_one_row(
        &self,
        task: &Task,
        number: usize,
        wanted: &Wanted,
    ) -> Result<Option<CoverageMap>> {
        let whole = self.view.grid(number);
        let has_equal_rows = self.view.inspection().has_equal_rows(number);
        let cells = CellGrid::new(&whole.dims, &whole.chunk, wanted);
        let axes = [cells.row_axis(), cells.column_axis()];
        let mut axes = axes.into_iter().flatten();
        let lie_along = axes.any(|axis| axis.dimension == 0 && axis.cells > 1);
        let rows = whole.dims.first().copied().unwrap_or(0);
        // Rows differ where a member of a set ends too early.
        let has_equal_rows = has_equal_rows && !self.view.snapshot.has_unreadable;
        if !has_equal_rows || lie_along || rows < 2 || whole.chunk.first() != Some(&1) {
            return Ok(None);
        }
        let dims = [&[1], &whole.dims[1..]].concat();
        let Some(grid) = Grid::new(&dims, &whole.chunk) else {
            return Ok(None);
        };
        let found = self.view.indexes().records_for(task, number, Some(0..1))?;
        let one = self.picture((task, number), found, &grid, wanted)?;
        Ok(Some(one.times(rows, cells)))
    }

    /// A picture of the records of a dataset, or of a part of it with this grid.
    fn picture(
        &self,
        (task, number): (&Task, usize),
        mut found: DatasetRecords,
        grid: &Grid,
        wanted: &Wanted,
    ) -> Result<CoverageMap> {
        let element = self.view.snapshot.datasets[number].element_size;
        doubt(&mut found, &self.view.sources, element);
        let failed = |fault: Fault| self.view.bad_data(number, "all of it".into(), fault);
        let limits = Limits {
            adding: BUDGET,
            counting: BUDGET_OF_PART,
            box_elements: BOX_ELEMENTS
                .min(self.view.budget.limits().cache_size)
                .max(1),
        };
        let map = picture(task, found, grid, self.origins, wanted, limits);
        let mut map = map.map_err(failed)?;
        let table = self.view.indexes().table(task)?;
        let unreadable = |d: &&Diagnostic| d.severity == Severity::Unreadable;
        map.faults
            .extend(table.diagnostics().iter().filter(unreadable).cloned());
        self.view.check_unchanged(0..self.view.sources.len())?;
        Ok(map)
    }

    fn keep(&mut self, found: &DatasetRecords) {
        for (_, selection) in found.records.selections() {
            if self.kept_bytes + selection.bytes() <= MOST_KEPT {
                self.kept_bytes += selection.bytes();
                self.kept.push(Arc::clone(selection));
            }
        }
    }
}

/// The key of a picture. `None` where a comparison is not worth it, or would miss something.
pub(super) fn key(
    hashers: &[RandomState; 2],
    found: &DatasetRecords,
    grid: &Grid,
    origins: &Origins,
    wanted: &Wanted,
) -> Option<Key> {
    let records = &found.records;
    let blocks = records.map(|record| record.blocks() as u64);
    let blocks = blocks.fold(0, u64::saturating_add);
    let is_whole =
        records.base().is_none() && found.diagnostics.is_empty() && records.faults().is_empty();
    if !is_whole || blocks < (records.len() as u64).saturating_mul(WORTH_COMPARING) {
        return None;
    }
    Some(hashers.each_ref().map(|state| {
        let mut hasher = state.build_hasher();
        (&grid.dims, &grid.chunk).hash(&mut hasher);
        (wanted.rows, wanted.columns, wanted.axes).hash(&mut hasher);
        let mut cells = Vec::new();
        for number in 0..records.len() {
            let record = records.get(number, &mut cells);
            let selection = records.selection_of(number).map(|(id, _)| *id);
            let (start, count) = (record.start, record.count);
            (start, count, record.has_lead, selection).hash(&mut hasher);
            let stored = record.stored;
            let span = origins.of(stored.source, stored.offset);
            let origin = span.map(|span| (span.rank, span.flush));
            (stored.len, origin).hash(&mut hasher);
        }
        hasher.finish()
    }))
}
