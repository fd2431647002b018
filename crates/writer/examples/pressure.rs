//! Each rank logs its part of a dataset that grows.

use h5logfs_writer::{DatasetSpec, Options, Selection, Writer};
use mpi::traits::*;

fn main() -> Result<(), h5logfs_writer::Error> {
    let universe = mpi::initialize().expect("MPI runs once in a process");
    let world = universe.world();
    let (rank, ranks) = (world.rank() as u64, world.size() as u64);

    let mut file = Writer::create("run.h5", &world, Options::default())?;
    let spec = DatasetSpec::new::<f64>(&[0, ranks * 100]).unlimited(0);
    let pressure = file.dataset("/air/pressure", spec)?;
    file.attribute("/air/pressure", "units", "Pa")?;
    for step in 0..10 {
        file.extend(pressure, &[step + 1, ranks * 100])?;
        let (start, count) = ([step, rank * 100], [1, 100]);
        file.write(pressure, Selection::block(&start, &count), &[1e5; 100])?;
        file.flush()?;
    }
    file.close()?;
    Ok(())
}
