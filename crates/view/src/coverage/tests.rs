//! Pictures of random records, compared with a model that paints every element.

use std::collections::hash_map::RandomState;
use std::sync::{Arc, OnceLock};

use proptest::prelude::*;

use super::*;
use h5logfs_log::lattice::Lattice;
use h5logfs_log::model::{Encoding, Selection, StoredBytes};
use h5logfs_log::origins::Span;

/// Bytes of each record of the model in the log.
const EACH: u64 = 10;

/// Elements that one record writes.
#[derive(Debug, Clone)]
enum Write {
    Block(Vec<u64>, Vec<u64>),
    Listed(Vec<(Vec<u64>, Vec<u64>)>),
    Strided(Vec<u64>, Vec<u64>, Vec<u64>),
}

impl Write {
    fn elements(&self) -> Vec<Vec<u64>> {
        let of_box = |start: &[u64], count: &[u64], stride: &[u64]| {
            let mut all = vec![Vec::new()];
            for d in 0..start.len() {
                let next = |at: &Vec<u64>| {
                    let at = at.clone();
                    (0..count[d])
                        .map(move |k| [at.clone(), vec![start[d] + k * stride[d]]].concat())
                };
                all = all.iter().flat_map(next).collect();
            }
            all
        };
        let ones = |start: &[u64]| vec![1; start.len()];
        match self {
            Write::Block(start, count) => of_box(start, count, &ones(start)),
            Write::Listed(blocks) => {
                let of = |(start, count): &(Vec<u64>, Vec<u64>)| of_box(start, count, &ones(start));
                blocks.iter().flat_map(of).collect()
            }
            Write::Strided(start, count, stride) => of_box(start, count, stride),
        }
    }

    fn blocks(&self) -> Vec<(Vec<u64>, Vec<u64>)> {
        match self {
            Write::Block(start, count) => vec![(start.clone(), count.clone())],
            Write::Listed(blocks) => blocks.clone(),
            Write::Strided(..) => Vec::new(),
        }
    }
}

#[derive(Debug, Clone)]
struct Case {
    dims: Vec<u64>,
    chunk: Vec<u64>,
    writes: Vec<Write>,
    rows: usize,
    columns: usize,
}

fn side() -> impl Strategy<Value = (u64, u64, u64)> {
    (0u64..9, 1u64..6, 1u64..4)
}

fn write(rank: usize) -> impl Strategy<Value = Write> {
    let block = || {
        prop::collection::vec(side(), rank).prop_map(|sides| {
            let start = sides.iter().map(|s| s.0).collect::<Vec<_>>();
            (start, sides.iter().map(|s| s.1).collect::<Vec<_>>())
        })
    };
    prop_oneof![
        block().prop_map(|(start, count)| Write::Block(start, count)),
        prop::collection::vec(block(), 2..5).prop_map(Write::Listed),
        prop::collection::vec(side(), rank).prop_map(|sides| Write::Strided(
            sides.iter().map(|s| s.0).collect(),
            sides.iter().map(|s| s.1).collect(),
            sides.iter().map(|s| s.2).collect(),
        )),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    (0usize..4).prop_flat_map(|rank| {
        let dims = prop::collection::vec((1u64..14, 1u64..6), rank);
        // A scalar has one block in each record.
        let writes = prop::collection::vec(write(rank), 0..8);
        (dims, writes, 1usize..7, 1usize..9).prop_map(move |(dims, mut writes, rows, columns)| {
            if rank == 0 {
                let block = |_: &Write| Write::Block(Vec::new(), Vec::new());
                writes = writes.iter().map(block).collect();
            }
            Case {
                chunk: dims.iter().map(|d| d.1).collect(),
                dims: dims.iter().map(|d| d.0).collect(),
                writes,
                rows,
                columns,
            }
        })
    })
}

/// Whether the bytes of a record are lost.
fn is_lost(number: usize) -> bool {
    number % 3 == 2
}

fn spoil(records: &mut RecordList, number: usize) {
    if is_lost(number) {
        records.spoil_last("its bytes are lost".to_owned()).unwrap();
    }
}

impl Case {
    /// The records in their order. Record `n` lies at byte `n * EACH` of the log.
    fn records(&self, task: &Task) -> DatasetRecords {
        let rank = self.dims.len();
        let mut found = DatasetRecords::none(task, rank).unwrap();
        for (number, write) in self.writes.iter().enumerate() {
            let stored = StoredBytes {
                source: 0,
                offset: number as u64 * EACH,
                len: write.elements().len() as u64,
                encoding: Encoding::Raw,
            };
            let records = &mut found.records;
            let order = number as u64;
            let selection = match write {
                Write::Block(start, count) => {
                    records.push_block(stored, order, start, count).unwrap();
                    spoil(records, number);
                    continue;
                }
                Write::Listed(blocks) => Selection::new(
                    task,
                    rank,
                    blocks.len(),
                    |block, d| blocks[block].0[d],
                    |block, d| blocks[block].1[d],
                )
                .unwrap(),
                Write::Strided(start, count, stride) => {
                    let lattice = Lattice::new(start.clone(), count.clone(), stride.clone());
                    let selection = Selection::strided(lattice.unwrap());
                    selection.reserved(task).unwrap()
                }
            };
            let numbered = (order, Arc::new(selection));
            records
                .push_selection(stored, order, numbered, None)
                .unwrap();
            spoil(records, number);
        }
        found.records.put_in_order().unwrap();
        found
    }

    fn picture(&self, limits: Limits) -> CoverageMap {
        let wanted = Wanted {
            rows: self.rows,
            columns: self.columns,
            axes: None,
        };
        let grid = Grid::new(&self.dims, &self.chunk).unwrap();
        let task = Task::unlimited();
        picture(
            &task,
            self.records(&task),
            &grid,
            &self.origins(),
            &wanted,
            limits,
        )
        .unwrap()
    }

    /// Three ranks that take turns in writing records. Two records are a flush.
    fn origins(&self) -> Origins {
        let mut origins = Origins::default();
        for number in 0..self.writes.len() as u64 {
            let span = Span {
                source: 0,
                start: number * EACH,
                end: number * EACH + EACH,
                rank: Some(number as u32 % 3),
                flush: Some(number / 2),
            };
            origins.push(span).unwrap();
        }
        origins
    }

    /// The cells, painted element by element.
    fn model(&self, grid: &CellGrid) -> Vec<Cell> {
        let whole = Write::Block(vec![0; self.dims.len()], self.dims.clone());
        let mut cells = vec![Cell::default(); grid.rows() * grid.columns()];
        let on = |axis: Option<Axis>, at: &[u64]| {
            axis.map_or(0, |axis| (at[axis.dimension] / axis.side) as usize)
        };
        let cell =
            |at: &[u64]| on(grid.row_axis(), at) * grid.columns() + on(grid.column_axis(), at);
        for at in whole.elements() {
            cells[cell(&at)].elements += 1;
        }
        let mut last = std::collections::HashMap::new();
        for (number, write) in self.writes.iter().enumerate() {
            for at in write.elements() {
                if at.iter().zip(&self.dims).any(|(at, dim)| at >= dim) {
                    continue;
                }
                let cell = &mut cells[cell(&at)];
                cell.logged += 1;
                cell.rank = Some(number as u32 % 3);
                cell.flush = Some(number as u64 / 2);
                last.insert(at, number);
            }
        }
        for (at, number) in last {
            let cell = &mut cells[cell(&at)];
            if is_lost(number) {
                cell.lost += 1;
            } else {
                cell.written += 1;
            }
        }
        cells
    }

    /// Pieces of each chunk, where no record is strided.
    fn pieces(&self) -> Pieces {
        let grid = Grid::new(&self.dims, &self.chunk).unwrap();
        let mut pieces = Pieces::default();
        for chunk in 0..grid.len() {
            let bounds = grid.bounds(chunk);
            let touches = |(start, count): &(Vec<u64>, Vec<u64>)| {
                (0..start.len())
                    .all(|d| start[d] < bounds.end[d] && bounds.start[d] < start[d] + count[d])
            };
            let blocks = self.writes.iter().flat_map(Write::blocks);
            let n = blocks.filter(touches).count() as u64;
            pieces.touched += u64::from(n > 0);
            pieces.all += n;
            pieces.most = pieces.most.max(n);
        }
        pieces
    }
}

const AMPLE: Limits = Limits {
    adding: 1 << 40,
    counting: 1 << 40,
    box_elements: 1 << 20,
};

proptest! {
    #[test]
    fn a_picture_has_what_a_model_paints(case in case(), box_elements in 1u64..200) {
        let map = case.picture(Limits { box_elements, ..AMPLE });
        prop_assert!(map.grid.rows() <= case.rows && map.grid.columns() <= case.columns);
        prop_assert!(!map.is_estimate() && !map.is_spread);
        prop_assert_eq!(&map.cells, &case.model(&map.grid));
        prop_assert_eq!(map.records, case.writes.len() as u64);
        prop_assert_eq!(map.sizes.iter().sum::<u64>(), map.records);
        if !case.writes.iter().any(|write| matches!(write, Write::Strided(..))) {
            prop_assert_eq!(map.pieces, Some(case.pieces()));
        }
    }

    /// Whatever the budget is, a cell that was not counted says so, and has an upper bound.
    #[test]
    fn a_picture_without_budget_is_marked(case in case(), adding in 0u64..300, counting in 0u64..300) {
        let limits = Limits { adding, counting, box_elements: 50 };
        let map = case.picture(limits);
        let model = case.model(&map.grid);
        for (cell, exact) in map.cells.iter().zip(&model) {
            prop_assert_eq!(cell.elements, exact.elements);
            prop_assert!(cell.written + cell.lost <= cell.elements);
            if !cell.is_estimate {
                prop_assert_eq!((cell.written, cell.lost), (exact.written, exact.lost));
            }
            if !map.is_spread {
                prop_assert!(cell.written >= exact.written);
                prop_assert_eq!(cell.logged, exact.logged);
            }
        }
    }
}

#[test]
fn the_two_largest_dimensions_are_axes_and_others_can_be_chosen() {
    let grid = |dims: &[u64], axes| {
        let chunk = vec![1; dims.len()];
        let wanted = Wanted {
            rows: 10,
            columns: 20,
            axes,
        };
        let grid = CellGrid::new(dims, &chunk, &wanted);
        let axis = |axis: Option<Axis>| axis.map(|a| (a.dimension, a.side, a.cells));
        (axis(grid.row_axis()), axis(grid.column_axis()))
    };
    assert_eq!(grid(&[], None), (None, None));
    assert_eq!(grid(&[7], None), (None, Some((0, 1, 7))));
    assert_eq!(grid(&[1, 7, 1], None), (None, Some((1, 1, 7))));
    assert_eq!(
        grid(&[30, 3, 100], None),
        (Some((0, 3, 10)), Some((2, 5, 20)))
    );
    let chosen = grid(&[30, 3, 100], Some((2, 1)));
    assert_eq!(chosen, (Some((2, 10, 10)), Some((1, 1, 3))));
    // Axes that do not exist cannot be chosen.
    assert_eq!(grid(&[30, 3, 100], Some((2, 3))), grid(&[30, 3, 100], None));
}

#[test]
fn cells_end_where_chunks_end() {
    let side = |extent, chunk, most| {
        let wanted = Wanted {
            rows: 1,
            columns: most,
            axes: None,
        };
        let grid = CellGrid::new(&[extent], &[chunk], &wanted);
        let axis = grid.column_axis().unwrap();
        assert!(axis.cells <= most, "{axis:?}");
        axis.side
    };
    assert_eq!(side(1000, 10, 100), 10);
    assert_eq!(side(1010, 10, 100), 20);
    assert_eq!(side(1000, 100, 50), 20);
    assert_eq!(side(1000, 1000, 7), 200);
    assert_eq!(side(13, 13, 5), 3);
    assert_eq!(side(u64::MAX >> 1, 1 << 40, 200), {
        let chunks = (u64::MAX >> 1).div_ceil(1 << 40);
        (1 << 40) * chunks.div_ceil(200)
    });
    // 127 divides it.
    assert_eq!(
        side(u64::MAX >> 1, u64::MAX >> 1, 200),
        (u64::MAX >> 1) / 127
    );
}

#[test]
fn a_dataset_without_elements_has_no_cells() {
    let case = Case {
        dims: vec![0, 5],
        chunk: vec![2, 5],
        writes: vec![Write::Block(vec![0, 0], vec![1, 5])],
        rows: 10,
        columns: 10,
    };
    let map = case.picture(AMPLE);
    assert!(map.cells.is_empty() && map.grid.is_empty());
    assert_eq!((map.covered(), map.records), (1.0, 1));
}

/// Two selections of ten blocks each, in this order, by ranks that begin with `rank`.
fn repeated(order: [u64; 2], columns: usize, rank: u32, spoil: bool) -> Option<pictures::Key> {
    static HASHERS: OnceLock<[RandomState; 2]> = OnceLock::new();
    let hashers = HASHERS.get_or_init(|| [RandomState::new(), RandomState::new()]);
    let task = Task::unlimited();
    let mut found = DatasetRecords::none(&task, 1).unwrap();
    let mut origins = Origins::default();
    for (number, id) in (0u64..).zip(order) {
        let start = |block: usize, _: usize| 3 * block as u64 + id;
        let selection = Selection::new(&task, 1, 10, start, |_, _| 1).unwrap();
        let stored = StoredBytes {
            source: 0,
            offset: number * EACH,
            len: EACH,
            encoding: Encoding::Raw,
        };
        let selection = (id, Arc::new(selection));
        found
            .records
            .push_selection(stored, number, selection, None)
            .unwrap();
        let span = Span {
            source: 0,
            start: number * EACH,
            end: number * EACH + EACH,
            rank: Some(rank + number as u32),
            flush: None,
        };
        origins.push(span).unwrap();
    }
    if spoil {
        found.records.spoil_last("a fault".into()).unwrap();
    }
    found.records.put_in_order().unwrap();
    let grid = Grid::new(&[40], &[10]).unwrap();
    let wanted = Wanted {
        rows: 1,
        columns,
        axes: None,
    };
    pictures::key(hashers, &found, &grid, &origins, &wanted)
}

/// Each change of a picture changes its key.
#[test]
fn datasets_share_a_picture_where_all_is_the_same() {
    let key = repeated([0, 1], 9, 0, false);
    assert!(key.is_some());
    assert_eq!(key, repeated([0, 1], 9, 0, false));
    for other in [
        repeated([1, 0], 9, 0, false),
        repeated([0, 2], 9, 0, false),
        repeated([0, 1], 8, 0, false),
        repeated([0, 1], 9, 1, false),
    ] {
        assert!(other.is_some() && other != key);
    }
    assert_eq!(repeated([0, 1], 9, 0, true), None);
}
