//! A grid of 2 by N/2 blocks, each with ghost cells around it in memory.

use h5logfs_writer::{DatasetSpec, MemorySpace, Selection, Writer};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

use crate::Result;

/// Inner cells of a rank: rows and columns.
const INNER: [u64; 2] = [3, 5];
/// Ghost cells on each side.
const GHOSTS: u64 = 2;

pub fn write(mut file: Writer, world: &SimpleCommunicator) -> Result {
    let (rank, ranks) = (world.rank() as u64, world.size() as u64);
    let [rows, columns] = INNER;
    let whole = [2 * rows, ranks / 2 * columns];
    let corner = [rank % 2 * rows, rank / 2 * columns];
    let with_ghosts = [rows + 2 * GHOSTS, columns + 2 * GHOSTS];
    let cells = cells(rank, with_ghosts);

    let field = file.dataset("/field", DatasetSpec::new::<f64>(&whole))?;
    let inner = MemorySpace {
        dims: &with_ghosts,
        selection: Selection::block(&[GHOSTS, GHOSTS], &INNER),
    };
    file.write_from(field, Selection::block(&corner, &INNER), inner, &cells)?;

    // Three more datasets: one with filters, one whose data are lent, and one that gets every second column only.
    let spec = DatasetSpec::new::<f64>(&whole).chunk(&[2, 4]).deflate(6);
    let filtered = file.dataset("/filtered", spec)?;
    let lent = file.dataset("/lent", DatasetSpec::new::<f64>(&whole))?;
    let coarse = file.dataset("/coarse", DatasetSpec::new::<f64>(&[ranks, rows, 3]))?;
    let mut batch = file.batch();
    for dataset in [filtered, lent] {
        batch.write_from(dataset, Selection::block(&corner, &INNER), inner, &cells)?;
    }
    let each_second = MemorySpace {
        dims: &with_ghosts,
        selection: Selection::Hyperslab {
            start: &[GHOSTS, GHOSTS],
            stride: &[1, 2],
            count: &[rows, 3],
            block: &[1, 1],
        },
    };
    let plane = ([rank, 0, 0], [1, rows, 3]);
    batch.write_from(
        coarse,
        Selection::block(&plane.0, &plane.1),
        each_second,
        &cells,
    )?;
    batch.close()?;
    Ok(())
}

/// Each inner cell tells its place in the whole grid; ghost cells are -1.
fn cells(rank: u64, dims: [u64; 2]) -> Vec<f64> {
    let place = |index: u64| {
        let inner = |at: u64, d: usize| {
            let at = at.checked_sub(GHOSTS);
            at.filter(|at| *at < INNER[d])
        };
        let row = inner(index / dims[1], 0)? + rank % 2 * INNER[0];
        let column = inner(index % dims[1], 1)? + rank / 2 * INNER[1];
        Some((1000 * row + column) as f64)
    };
    (0..dims[0] * dims[1])
        .map(|i| place(i).unwrap_or(-1.0))
        .collect()
}
