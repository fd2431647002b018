//! Plans: the elements of records that make up a chunk, worked out once for all chunks that are made up alike.
//!
//! Variables that share a decomposition, and the time steps of a variable, have records with the same selections. To find
//! the runs of a chunk among many blocks takes far longer than to copy them. So the first chunk of its kind leaves a list of
//! moves, and the others follow it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::cache::scratch::Scratch;
use super::cache::{Budget, Generation};
use super::moves::{LARGE_LOT, MOST_PLACES, Move, PackedMove, gather, pack};
use super::pieces::{GAP, SPAN, range};
use super::resolve::{BoxRecords, Run};
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;
use h5logfs_log::conversion::{Constant, Conversion};
use h5logfs_log::model::{Encoding, StoredBytes};
use h5logfs_log::source_file::SourceFile;

/// The most records of a plan.
const MOST_RECORDS: usize = 4096;
/// The least number of blocks of a selection, or of rows of a chunk, that is worth a plan. Selections of tests have few.
const LEAST_BLOCKS: usize = if cfg!(debug_assertions) { 2 } else { 32 };
/// The gap between two moves at which a span ends, in elements of 8 bytes.
const FAR: u64 = GAP / 8;
/// The most elements of a span, of 8 bytes each.
const LONG: u64 = SPAN / 8;
/// The most elements of a chunk with a plan. Some moves of a larger chunk would not fit into 4 bytes.
const MOST_ELEMENTS: u64 = MOST_PLACES / 2;

/// The plans of a view.
#[derive(Clone, Copy)]
pub struct Plans<'a> {
    pub budget: &'a Budget,
    pub generation: Generation,
}

impl Plans<'_> {
    /// The plan of a chunk, made where it is missing. `None` where there can be none.
    pub fn of(
        &self,
        task: &Task,
        chunk: &BoxRecords<'_>,
        touching: &Touching,
    ) -> Result<Option<Arc<GatherPlan>>, Fault> {
        let make = || GatherPlan::of(task, chunk, touching);
        self.budget.plan(task, self.generation, &touching.key, make)
    }
}

/// The make-up of a chunk. Chunks of one log with equal keys have equal plans.
pub type PlanKey = Arc<[u64]>;

/// The records that touch a chunk, from the last to the first.
pub struct Touching {
    pub key: PlanKey,
    records: Vec<StoredBytes>,
    /// The value of all elements that no record moves, where it is not the fill value of the dataset.
    pub below: Option<Constant>,
}

impl Touching {
    /// The records of a chunk. `None` where a record is not raw, which a plan needs. `None` also where no other chunk
    /// may be made up alike, because a plan is then not worth it.
    pub fn of(chunk: &BoxRecords<'_>) -> Option<Self> {
        let (&[index], bounds) = (chunk.indexes, chunk.bounds) else {
            return None;
        };
        let rank = bounds.start.len();
        if index.has_base() || !index.has_selections() || rank == 0 {
            return None;
        }
        let repeats = index.repeats_selections();
        let (mut of_records, mut records) = (Vec::new(), Vec::new());
        let (mut is_worth_it, mut all_have_lead) = (false, true);
        let mut below = None;
        // A block of several rows has a run in each.
        let rows = bounds.count().take(rank - 1).fold(1, u64::saturating_mul);
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let visited = index.visit_numbered(bounds, |record, selection| {
            if let Some(constant) = record.conversion.and_then(Conversion::constant) {
                // It hides the records before it.
                let covers = record.selection.is_none() && record.bounds().contains(bounds);
                below = covers.then_some(*constant);
                of_records.push(2);
                return ControlFlow::Break(());
            }
            let is_raw = record.stored.encoding == Encoding::Raw;
            if !is_raw || record.fault.is_some() || records.len() == MOST_RECORDS {
                return ControlFlow::Break(());
            }
            match selection {
                Some((number, selection)) => {
                    let is_shared = Arc::strong_count(selection) > 1 || record.has_lead && repeats;
                    is_worth_it |= is_shared && selection.blocks().max(rows) >= LEAST_BLOCKS;
                    all_have_lead &= record.has_lead;
                    let lead = record.start[0].wrapping_sub(bounds.start[0]);
                    let lead = if record.has_lead { lead } else { u64::MAX };
                    of_records.extend([1, *number, lead]);
                }
                None => {
                    of_records.push(0);
                    let starts = record.start.iter().zip(&bounds.start);
                    of_records.extend(starts.map(|(start, origin)| start.wrapping_sub(*origin)));
                    of_records.extend(record.count);
                }
            }
            records.push(record.stored);
            ControlFlow::Continue(())
        });
        if visited.is_break() && below.is_none() || !is_worth_it {
            return None;
        }
        // A selection counts from the begin of the dataset, except along the first dimension where that is no part of
        // it.
        let mut key = vec![rank as u64];
        let from = usize::from(all_have_lead);
        key.extend(chunk.sides);
        key.extend(bounds.count());
        key.push(from as u64);
        key.extend(&bounds.start[from..]);
        key.append(&mut of_records);
        Some(Touching {
            key: key.into(),
            records,
            below,
        })
    }
}

/// The moves of a chunk's elements from its records.
#[derive(Debug)]
pub struct GatherPlan {
    parts: Vec<Part>,
    spans: Vec<Span>,
    moves: Vec<PackedMove>,
    /// Whether each element of the chunk moves.
    is_whole: bool,
    /// The key of the plan. It counts as the plan's own memory.
    key: PlanKey,
    reservation: Reservation,
}

/// Spans that are in memory at one time, and the moves of their elements in the order of the chunk.
#[derive(Debug)]
struct Part {
    /// The ends of the part's spans and moves in the lists.
    spans: usize,
    moves: usize,
    /// Number of elements in all its spans.
    len: u64,
}

/// Elements of a record that are read at once.
#[derive(Debug)]
struct Span {
    /// Number of the record among those that touch the chunk.
    record: u32,
    /// First element, counted from the start of the record.
    start: u64,
    /// Number of elements.
    len: u64,
}

impl GatherPlan {
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.moves.capacity() * size_of::<PackedMove>()
            + self.spans.capacity() * size_of::<Span>()
            + self.parts.capacity() * size_of::<Part>()
            + self.key.len() * size_of::<u64>()
    }

    /// Whether each element of the chunk moves, so that none keeps a fill value.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Makes a plan from the runs of a chunk. `None` where the chunk has too many elements for a plan, or the index
    /// contradicts itself.
    pub fn of(
        task: &Task,
        chunk: &BoxRecords<'_>,
        touching: &Touching,
    ) -> Result<Option<Self>, Fault> {
        let elements = chunk.sides.iter().product::<u64>();
        Self::with_scratch(task, chunk, touching, elements.max(LONG))
    }

    /// [`GatherPlan::of`] with at most `scratch` elements, or one span, that are read before they move.
    fn with_scratch(
        task: &Task,
        chunk: &BoxRecords<'_>,
        touching: &Touching,
        scratch: u64,
    ) -> Result<Option<Self>, Fault> {
        let elements = chunk.sides.iter().product::<u64>();
        if elements > MOST_ELEMENTS {
            return Ok(None);
        }
        let mut reservation = task.reservation();
        let mut found: Vec<(u32, Run)> = Vec::new();
        let mut record = 0;
        chunk.runs(task, |of, _, run| {
            if of.is_constant() {
                return Ok(());
            }
            // Records come in the same order. A record without a run is passed over.
            let after = touching.records[record..].iter();
            let skipped = after.take_while(|stored| **stored != of.stored).count();
            record += skipped;
            if record == touching.records.len() {
                return Err("records that change".into());
            }
            Ok(reservation.push(&mut found, (record as u32, run))?)
        })?;
        found.sort_unstable_by_key(|(record, run)| (*record, run.in_record));
        if !are_apart(&found) {
            return Ok(None);
        }
        let moved: u64 = found.iter().map(|(_, run)| run.len).sum();
        let mut plan = GatherPlan {
            parts: Vec::new(),
            spans: Vec::new(),
            moves: Vec::new(),
            is_whole: moved == elements,
            key: Arc::clone(&touching.key),
            reservation: task.reservation(),
        };
        let mut rest = &found[..];
        while !rest.is_empty() {
            let taken = plan.add_part(task, rest, scratch)?;
            rest = &rest[taken..];
        }
        plan.moves.shrink_to_fit();
        plan.spans.shrink_to_fit();
        plan.parts.shrink_to_fit();
        let bytes = plan.bytes() as u64;
        let reservation = &mut plan.reservation;
        reservation.grow(bytes.saturating_sub(reservation.bytes()))?;
        reservation.shrink_to(bytes);
        // The plan is kept for all users.
        reservation.release_share();
        Ok(Some(plan))
    }

    /// Adds a part with as many of the first runs as may be in memory at one time. Returns their number.
    fn add_part(&mut self, task: &Task, runs: &[(u32, Run)], scratch: u64) -> Result<usize, Fault> {
        let reservation = &mut self.reservation;
        let (mut taken, mut len) = (0, 0);
        let mut of_part = task.reservation();
        let mut moves: Vec<Move> = Vec::new();
        while taken < runs.len() {
            let rest = &runs[taken..];
            let rest = &rest[..span(rest)];
            let (record, first) = rest[0];
            let (_, last) = rest[rest.len() - 1];
            let of_span = last.in_record + last.len - first.in_record;
            if len > 0 && len + of_span > scratch {
                break;
            }
            let start = first.in_record;
            for (_, run) in rest {
                let one = Move {
                    from: len + (run.in_record - start),
                    to: run.in_chunk,
                    len: run.len,
                };
                of_part.push(&mut moves, one)?;
            }
            let read = Span {
                record,
                start,
                len: of_span,
            };
            reservation.push(&mut self.spans, read)?;
            len += of_span;
            taken += rest.len();
        }
        moves.sort_unstable_by_key(|one| one.to);
        pack(&moves, |one| Ok(reservation.push(&mut self.moves, one)?))?;
        let part = Part {
            spans: self.spans.len(),
            moves: self.moves.len(),
            len,
        };
        reservation.push(&mut self.parts, part)?;
        Ok(taken)
    }

    /// Moves the elements of these records into a chunk of fill values. Returns the source files that were read.
    pub fn apply(
        &self,
        task: &Task,
        touching: &Touching,
        sources: &[SourceFile],
        element: u64,
        scratch: &Scratch,
        chunk: &mut [u8],
    ) -> Result<BTreeSet<usize>, Fault> {
        let past = || "elements past 2^64 bytes".to_owned();
        let mut used = BTreeSet::new();
        let longest = self.parts.iter().map(|part| part.len).max().unwrap_or(0);
        let len = longest.checked_mul(element).ok_or_else(past)?;
        // The last move reads a whole lot, too.
        let mut scratch = scratch.take(task, len as usize + LARGE_LOT)?;
        let (mut first_span, mut first_move) = (0, 0);
        for part in &self.parts {
            let mut at = 0;
            for span in &self.spans[first_span..part.spans] {
                task.check()?;
                let stored = touching.records[span.record as usize];
                let source = usize::from(stored.source);
                let start = span.start.checked_mul(element);
                let start = start.and_then(|start| stored.offset.checked_add(start));
                let bytes = range(at, span.len * element).ok_or_else(past)?;
                at = bytes.end as u64;
                let read =
                    sources[source].read_exact_at(&mut scratch[bytes], start.ok_or_else(past)?);
                read?;
                used.insert(source);
            }
            let moves = &self.moves[first_move..part.moves];
            let moved = gather(moves, &scratch, chunk, element as usize);
            moved.ok_or("a move out of its chunk")?;
            (first_span, first_move) = (part.spans, part.moves);
        }
        Ok(used)
    }
}

/// Whether no two runs of a record share elements. This holds in all logs, but an index from the disk may be damaged.
fn are_apart(runs: &[(u32, Run)]) -> bool {
    let mut end = (0, 0);
    runs.iter().all(|(record, run)| {
        let is_behind = end.0 != *record || end.1 <= run.in_record;
        let next = run.in_record.checked_add(run.len);
        end = (*record, next.unwrap_or(0));
        is_behind && next.is_some()
    })
}

/// The number of first runs that are read at once. They are near each other in one record.
fn span(runs: &[(u32, Run)]) -> usize {
    let (record, first) = runs[0];
    let mut end = first.in_record + first.len;
    let more = runs[1..].iter().take_while(|(of, run)| {
        let is_near = *of == record
            && run.in_record - end <= FAR
            && run.in_record + run.len - first.in_record <= LONG;
        end = run.in_record + run.len;
        is_near
    });
    1 + more.count()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ops::Range;

    use proptest::prelude::*;

    use super::*;
    use crate::Grid;
    use crate::index::DatasetIndex;
    use h5logfs_log::DatasetRecords;
    use h5logfs_log::boxes::Bounds;
    use h5logfs_log::model::{Selection, Selections};
    use h5logfs_log::records::RecordList;
    use h5logfs_log::source_dir::SourceDir;

    const DIMS: [u64; 2] = [7, 40];

    /// Elements that a record covers. Selections are given by their numbers.
    #[derive(Debug, Clone)]
    enum Covered {
        Step { selection: usize, lead: u64 },
        Blocks { selection: usize },
        Box { start: [u64; 2], count: [u64; 2] },
    }

    type Sides = ([u64; 2], [u64; 2]);

    /// Blocks within a part of the dataset that does not go to its end, so that chunks differ in their blocks.
    fn blocks() -> impl Strategy<Value = Vec<Sides>> {
        let block = (0..DIMS[0] - 1, 0..DIMS[1] - 8, 1u64..3, 1u64..9);
        let block = block.prop_map(|(row, column, rows, columns)| ([row, column], [rows, columns]));
        prop::collection::vec(block, 2..9)
    }

    fn covered() -> impl Strategy<Value = Covered> {
        prop_oneof![
            (0usize..2, 0..DIMS[0]).prop_map(|(selection, lead)| Covered::Step { selection, lead }),
            (2usize..4).prop_map(|selection| Covered::Blocks { selection }),
            blocks().prop_map(|blocks| {
                let (start, count) = blocks[0];
                Covered::Box { start, count }
            }),
        ]
    }

    /// The elements of a record, in the order of the log.
    fn elements(covered: &Covered, selections: &[Vec<Sides>]) -> Vec<[u64; 2]> {
        let rows = |rows: Range<u64>, start: u64, count: u64| -> Vec<[u64; 2]> {
            let row = |row| (start..start + count).map(move |column| [row, column]);
            rows.flat_map(row).collect()
        };
        let block = |([row, column], [of_rows, of_columns]): &Sides| {
            rows(*row..row + of_rows, *column, *of_columns)
        };
        match covered {
            Covered::Step { selection, lead } => selections[*selection]
                .iter()
                .flat_map(|(start, count)| rows(*lead..lead + 1, start[1], count[1]))
                .collect(),
            Covered::Blocks { selection } => {
                selections[*selection].iter().flat_map(block).collect()
            }
            Covered::Box { start, count } => block(&(*start, *count)),
        }
    }

    fn stored(offset: u64, len: usize) -> StoredBytes {
        StoredBytes {
            source: 0,
            offset,
            len: len as u64,
            encoding: Encoding::Raw,
        }
    }

    /// A dataset whose records have these elements, one record behind the other from a byte of the file on.
    fn dataset(
        records: &[Covered],
        selections: &[Vec<Sides>],
        known: &Selections,
        element: u64,
        mut offset: u64,
    ) -> (DatasetIndex, Vec<Option<u64>>) {
        let task = &Task::unlimited();
        let mut list = RecordList::new(task, 2, records.len()).unwrap();
        let mut model = vec![None; (DIMS[0] * DIMS[1]) as usize];
        for (order, covered) in records.iter().enumerate() {
            let elements = elements(covered, selections);
            let stored = stored(offset, elements.len() * element as usize);
            let order = order as u64;
            let numbered = |number: usize, rank: usize| {
                let blocks = &selections[number];
                let skip = 2 - rank;
                let selection = Selection::new(
                    task,
                    rank,
                    blocks.len(),
                    |b, d| blocks[b].0[skip + d],
                    |b, d| blocks[b].1[skip + d],
                );
                (
                    number as u64,
                    known.keep(number as u64, selection.unwrap()).0,
                )
            };
            match covered {
                Covered::Step { selection, lead } => {
                    list.push_selection(stored, order, numbered(*selection, 1), Some(*lead))
                }
                Covered::Blocks { selection } => {
                    list.push_selection(stored, order, numbered(*selection, 2), None)
                }
                Covered::Box { start, count } => list.push_block(stored, order, start, count),
            }
            .unwrap();
            for (number, [row, column]) in elements.iter().enumerate() {
                model[(row * DIMS[1] + column) as usize] = Some(offset + number as u64 * element);
            }
            offset += stored.len;
        }
        list.put_in_order().unwrap();
        let found = DatasetRecords {
            records: list,
            diagnostics: Vec::new(),
            decoded: 0,
        };
        (DatasetIndex::of(task, found, &[]).unwrap(), model)
    }

    /// The bytes of a chunk of zeros, from the bytes of the log.
    fn wanted(
        grid: &Grid,
        bounds: &Bounds,
        model: &[Option<u64>],
        log: &[u8],
        element: usize,
    ) -> Vec<u8> {
        let mut chunk = vec![0; grid.elements() as usize * element];
        for row in bounds.start[0]..bounds.end[0] {
            for column in bounds.start[1]..bounds.end[1] {
                let place = (row - bounds.start[0]) * grid.chunk[1] + column - bounds.start[1];
                if let Some(offset) = model[(row * DIMS[1] + column) as usize] {
                    let from = offset as usize..offset as usize + element;
                    let place = place as usize * element;
                    chunk[place..place + element].copy_from_slice(&log[from]);
                }
            }
        }
        chunk
    }

    proptest! {
        /// Two datasets have records of the same selections in other places. All their chunks share plans.
        #[test]
        fn chunks_with_equal_keys_are_made_up_alike(
            selections in prop::collection::vec(blocks(), 4),
            records in prop::collection::vec(covered(), 1..7),
            element in prop::sample::select(&[1u64, 2, 3, 4, 8][..]),
            sides in (1u64..4, 3u64..41),
            scratch in 1u64..80,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let log: Vec<u8> = (0..60_000u32).map(|n| (n * 31 % 251) as u8).collect();
            std::fs::write(dir.path().join("log"), &log).unwrap();
            let held = SourceDir::open(dir.path()).unwrap();
            let sources = [SourceFile::open(&held, "log".as_ref()).unwrap()];
            let (known, task) = (Selections::default(), &Task::unlimited());
            let datasets = [5, 30_000].map(|at| dataset(&records, &selections, &known, element, at));
            let grid = Grid::new(&DIMS, &[sides.0, sides.1]).unwrap();
            let (mut plans, memory) = (HashMap::new(), Scratch::default());
            for (index, model) in &datasets {
                for number in 0..grid.len() {
                    let bounds = grid.bounds(number);
                    let chunk = BoxRecords { indexes: &[index], bounds: &bounds, sides: &grid.chunk };
                    let Some(touching) = Touching::of(&chunk) else {
                        continue;
                    };
                    let plan = plans.entry(touching.key.clone()).or_insert_with(|| {
                        let plan = GatherPlan::with_scratch(task, &chunk, &touching, scratch);
                        plan.unwrap().unwrap()
                    });
                    let mut made = vec![0; grid.elements() as usize * element as usize];
                    plan.apply(task, &touching, &sources, element, &memory, &mut made).unwrap();
                    let wanted = wanted(&grid, &bounds, model, &log, element as usize);
                    prop_assert_eq!(made, wanted, "chunk {} of {:?}", number, grid);
                }
            }
        }
    }

    #[test]
    fn a_record_gives_each_element_once() {
        let run = |record, in_record, len| {
            let run = Run {
                in_record,
                in_chunk: 0,
                len,
            };
            (record, run)
        };
        assert!(are_apart(&[
            run(0, 0, 3),
            run(0, 3, 1),
            run(1, 2, 5),
            run(3, 0, 1)
        ]));
        assert!(!are_apart(&[run(0, 0, 3), run(0, 2, 1)]));
        assert!(!are_apart(&[run(0, u64::MAX, 2)]));
    }

    #[test]
    fn steps_share_a_plan_and_other_chunks_do_not() {
        let blocks = |columns: [u64; 2]| columns.map(|column| ([0, column], [1, 2])).to_vec();
        let selections = [blocks([1, 5]), blocks([2, 9])];
        let step = |selection, lead| Covered::Step { selection, lead };
        let records = [step(0, 0), step(0, 3), step(0, 5), step(1, 6)];
        let known = Selections::default();
        let (index, _) = dataset(&records, &selections, &known, 1, 0);
        let key = |row: u64, rows: u64| {
            let bounds = Bounds {
                start: vec![row, 0],
                end: vec![row + rows, 40],
            };
            let sides = [rows, 40];
            let chunk = BoxRecords {
                indexes: &[&index],
                bounds: &bounds,
                sides: &sides,
            };
            Touching::of(&chunk).map(|touching| touching.key)
        };
        assert_eq!(key(0, 1), key(3, 1));
        assert_ne!(key(5, 1), key(6, 1));
        // In the second row of the chunk, not in the first.
        assert_ne!(key(0, 2), key(2, 2));
        assert!(key(0, 1).is_some() && key(1, 1).is_none());
    }
}
