//! `own PATH WORK NUMBER`: what `hdf5.c` does, in the writer's own API. It prints the same figures.

use std::error::Error;

use h5logfs_writer::{Dataset, DatasetSpec, Options, Selection, Writer};
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use rustix::time::{ClockId, clock_gettime};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The time since the last step, from the first rank that began to the last one that was done.
struct Steps<'a> {
    world: &'a SimpleCommunicator,
    begun: f64,
}

fn now() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + 1e-9 * now.tv_nsec as f64
}

impl Steps<'_> {
    fn next(&mut self) -> f64 {
        let mut bounds = [0.0; 2];
        let largest = SystemOperation::max();
        self.world
            .all_reduce_into(&[-self.begun, now()], &mut bounds, largest);
        self.world.barrier();
        self.begun = now();
        bounds[1] + bounds[0]
    }
}

/// The largest resident set of this process in KiB.
fn memory() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

fn write(
    writer: &mut Writer,
    dataset: Dataset,
    world: &SimpleCommunicator,
    pieces: u64,
    elements: u64,
) -> Result<()> {
    let own = pieces / world.size() as u64;
    let values: Vec<f32> = (0..elements).map(|i| i as f32).collect();
    for i in 0..own {
        let start = [(world.rank() as u64 * own + i) * elements];
        writer.write(dataset, Selection::block(&start, &[elements]), &values)?;
    }
    Ok(())
}

fn run(world: &SimpleCommunicator) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, work, number] = arguments.as_slice() else {
        return Err("PATH WORK NUMBER".into());
    };
    let number: u64 = number.parse()?;
    let elements = if work == "large" { 1 << 18 } else { 10 };
    let mut steps = Steps {
        world,
        begun: now(),
    };
    steps.next();
    let mut writer = Writer::create(path, world, Options::default())?;
    let mut figures = vec![steps.next()];
    let mut values = None;
    if work == "datasets" {
        for i in 0..number {
            let name = format!("/group_{:02}/variable_{i:05}", i % 16);
            writer.dataset(&name, DatasetSpec::new::<f64>(&[1024, 1024]))?;
        }
    } else {
        values = Some(writer.dataset("/values", DatasetSpec::new::<f32>(&[number * elements]))?);
    }
    figures.push(steps.next());
    if let Some(dataset) = values {
        write(&mut writer, dataset, world, number, elements)?;
    }
    figures.push(steps.next());
    writer.flush()?;
    figures.push(steps.next());
    writer.close()?;
    figures.push(steps.next());
    let mut most = 0;
    world.all_reduce_into(&memory(), &mut most, SystemOperation::max());
    if world.rank() == 0 {
        let figures: Vec<String> = figures.iter().map(|f| format!("{f:.6}")).collect();
        println!("{} {most}", figures.join(" "));
    }
    Ok(())
}

fn main() {
    let Some(universe) = mpi::initialize() else {
        eprintln!("own: MPI cannot be initialised");
        std::process::exit(1);
    };
    let world = universe.world();
    if let Err(e) = run(&world) {
        eprintln!("own: rank {}: {e}", world.rank());
        world.abort(1);
    }
}
