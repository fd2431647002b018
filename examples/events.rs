//! A table of events. The number of rows differs from rank to rank and from round to round; all rows
//! go to one dataset that grows.
//!
//! ```text
//! mpirun -n 4 target/release/examples/events events.h5
//! ```

use std::error::Error;

use h5logfs_writer::{DatasetSpec, Options, Selection, Writer};
use hdf5::H5Type;
use mpi::collective::SystemOperation;
use mpi::traits::*;

#[derive(H5Type, Clone, Copy)]
#[repr(u8)]
enum Kind {
    Hit = 1,
    Miss = 2,
}

#[derive(H5Type, Clone, Copy)]
#[repr(C)]
struct Event {
    rank: u32,
    round: u32,
    energy: f64,
    kind: Kind,
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or("events.h5".into());
    let universe = mpi::initialize().ok_or("MPI is initialised already")?;
    let world = universe.world();
    let rank = world.rank() as u32;

    let options = Options {
        overwrite: true,
        ..Options::default()
    };
    let mut file = Writer::create(&path, &world, options)?;
    let spec = DatasetSpec::new::<Event>(&[0]).unlimited(0);
    let events = file.dataset("/run/events", spec.chunk(&[4096]).shuffle().deflate(4))?;
    let mut rows = 0u64;
    for round in 0..8 {
        let found = measure(rank, round);
        // The writer does not assign rows to ranks: the program does that itself, once a round.
        let (mine, mut before, mut all) = (found.len() as u64, 0u64, 0u64);
        world.exclusive_scan_into(&mine, &mut before, SystemOperation::sum());
        world.all_reduce_into(&mine, &mut all, SystemOperation::sum());
        let before = if rank == 0 { 0 } else { before };
        file.extend(events, &[rows + all])?;
        file.write(events, Selection::block(&[rows + before], &[mine]), &found)?;
        file.flush()?;
        rows += all;
    }
    file.attribute("/run/events", "rounds", 8u32)?;
    file.close()?;
    Ok(())
}

/// The number of events varies; in some rounds there are none.
fn measure(rank: u32, round: u32) -> Vec<Event> {
    let number = (rank * 7 + round * 13) % 50 * 20;
    let event = |i| Event {
        rank,
        round,
        energy: f64::from(i) * 0.5 + f64::from(rank),
        kind: if i % 3 == 0 { Kind::Hit } else { Kind::Miss },
    };
    (0..number).map(event).collect()
}
