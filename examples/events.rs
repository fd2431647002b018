//! A table of events. The number of rows differs from rank to rank and from round to round; all rows
//! go to one dataset that grows.
//!
//! ```text
//! mpirun -n 4 target/release/examples/events events.h5
//! mpirun -n 3 target/release/examples/events --continue events.h5
//! ```

use std::process::ExitCode;

use h5logfs_writer::{Dataset, DatasetSpec, Error, Options, Writer};
use hdf5::H5Type;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

const USAGE: &str = "\
Usage: events [--continue] FILE

Logs a table of events to the new log FILE. A file of that name is an error. See resubmit.sh for jobs
that are submitted again.

Options:
  --continue   adds to the log FILE of an earlier job, whether it has closed it or not
  -h, --help   prints this text";

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

fn main() -> ExitCode {
    let Some(universe) = mpi::initialize() else {
        eprintln!("events: MPI is initialised already");
        return ExitCode::FAILURE;
    };
    let world = universe.world();
    // All ranks have the same arguments, so one of them speaks for all.
    let is_first = world.rank() == 0;
    let given: Vec<String> = std::env::args().skip(1).collect();
    let (path, is_new) = match &given[..] {
        [help] if help == "-h" || help == "--help" => {
            if is_first {
                println!("{USAGE}");
            }
            return ExitCode::SUCCESS;
        }
        [path] if !path.starts_with('-') => (path, true),
        [option, path] if option == "--continue" && !path.starts_with('-') => (path, false),
        _ => {
            if is_first {
                eprintln!("events: it takes one file\n\n{USAGE}");
            }
            return ExitCode::from(2);
        }
    };
    match run(path, is_new, &world) {
        Ok(()) => ExitCode::SUCCESS,
        // All ranks have the same error of a collective call.
        Err(error @ (Error::Failed { .. } | Error::Refused { .. })) => {
            if is_first {
                eprintln!("events: {error}");
            }
            ExitCode::FAILURE
        }
        // The other ranks do not know of it, and would wait for this one.
        Err(error) => {
            eprintln!("events: {error}");
            world.abort(1)
        }
    }
}

fn run(path: &str, is_new: bool, world: &SimpleCommunicator) -> Result<(), Error> {
    let rank = world.rank() as u32;
    let (mut file, events) = if is_new {
        create(path, world)?
    } else {
        let mut file = Writer::open(path, world, Options::default())?;
        let events = file.open_dataset::<Event>("/run/events")?;
        (file, events)
    };
    for round in 0..8 {
        // The flush counts the rows of all ranks, and extends the dataset.
        file.append(events, &measure(rank, round))?;
        file.flush()?;
    }
    file.close()?;
    Ok(())
}

fn create(path: &str, world: &SimpleCommunicator) -> Result<(Writer, Dataset), Error> {
    let mut file = Writer::create(path, world, Options::default())?;
    let spec = DatasetSpec::new::<Event>(&[0]).unlimited(0);
    let events = file.dataset("/run/events", spec.chunk(&[4096]).shuffle().deflate(4))?;
    file.attribute("/run/events", "thresholds", [0.5, 2.0])?;
    Ok((file, events))
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
