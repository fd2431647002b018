//! The programs of docs/writing.md. A test compares them line by line.

use h5logfs_writer::Dataset;
use h5logfs_writer::{DatasetSpec, Options, Selection, Writer};
use mpi::traits::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let universe = mpi::initialize().ok_or("MPI is already running")?;
    let world = universe.world();
    let (rank, ranks) = (world.rank() as u64, world.size() as u64);
    const CELLS: u64 = 1000;

    let mut file = Writer::create("run.h5", &world, Options::default())?;
    let spec = DatasetSpec::new::<f64>(&[0, ranks * CELLS]).unlimited(0);
    let pressure = file.dataset("/air/pressure", spec)?;
    file.attribute("/air/pressure", "units", "Pa")?;

    for step in 0..10 {
        let values = [1e5 + step as f64; CELLS as usize];
        file.extend(pressure, &[step + 1, ranks * CELLS])?;
        let (start, count) = ([step, rank * CELLS], [1, CELLS]);
        file.write(pressure, Selection::block(&start, &count), &values)?;
        file.flush()?;
    }
    file.close()?;
    Ok(())
}

#[allow(dead_code)]
fn write_without_copies(
    file: &mut Writer,
    pressure: Dataset,
    (start, count): ([u64; 2], [u64; 2]),
    values: [f64; 1000],
) -> Result<(), h5logfs_writer::Error> {
    let mut batch = file.batch();
    batch.write(pressure, Selection::block(&start, &count), &values)?;
    batch.flush()?; // values may be changed again
    Ok(())
}
