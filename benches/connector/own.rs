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

const COLUMNS: u64 = 109;
const LEVELS: u64 = 72;

/// What a rank owns of a variable of columns, or of levels and columns: see `hdf5.c`.
struct Part {
    levels: u64,
    starts: Vec<u64>,
    counts: Vec<u64>,
    values: Vec<f64>,
}

impl Part {
    fn of(world: &SimpleCommunicator, levels: u64) -> Self {
        let (rank, ranks) = (world.rank() as u64, world.size() as u64);
        let owner = |column: &u64| {
            let which = u64::from(b"02020011"[(column % 8) as usize] - b'0');
            (which.min(ranks - 1) + column / 8) % ranks
        };
        let columns: Vec<u64> = (0..COLUMNS).collect();
        let runs = columns.chunk_by(|one, next| owner(one) == owner(next));
        let own: Vec<&[u64]> = runs.filter(|run| owner(&run[0]) == rank).collect();
        let mut part = Part {
            levels,
            starts: Vec::new(),
            counts: Vec::new(),
            values: Vec::new(),
        };
        for level in 0..levels {
            for run in &own {
                part.starts.push(0);
                part.counts.push(1);
                if levels > 1 {
                    part.starts.push(level);
                    part.counts.push(1);
                }
                part.starts.push(run[0]);
                part.counts.push(run.len() as u64);
                part.values.extend(run.iter().map(|column| *column as f64));
            }
        }
        part
    }

    fn dims(&self, records: u64) -> Vec<u64> {
        match self.levels {
            1 => vec![records, COLUMNS],
            levels => vec![records, levels, COLUMNS],
        }
    }
}

fn all_variables(parts: &[Part; 2]) -> impl Iterator<Item = &Part> {
    let [flat, deep] = parts;
    std::iter::repeat_n(flat, 321).chain(std::iter::repeat_n(deep, 63))
}

fn write_records(
    writer: &mut Writer,
    variables: &[Dataset],
    parts: &mut [Part; 2],
    records: u64,
) -> Result<()> {
    for record in 0..records {
        for part in &mut *parts {
            let rank = part.dims(0).len();
            part.starts
                .iter_mut()
                .step_by(rank)
                .for_each(|s| *s = record);
        }
        for (variable, part) in variables.iter().zip(all_variables(parts)) {
            writer.extend(*variable, &part.dims(record + 1))?;
            let (starts, counts) = (&part.starts, &part.counts);
            writer.write(
                *variable,
                Selection::Blocks { starts, counts },
                &part.values,
            )?;
        }
    }
    Ok(())
}

/// Elements of a rank in a row.
const ROW: u64 = 1000;

/// Opens the file for each row, and returns that of the last one.
fn add_rows(path: &str, world: &SimpleCommunicator, rows: u64) -> Result<Writer> {
    let (rank, ranks) = (world.rank() as u64, world.size() as u64);
    let values: Vec<f64> = (0..ROW).map(|i| i as f64).collect();
    let add = |row: u64| -> Result<Writer> {
        let mut writer = Writer::open(path, world, Options::default())?;
        let rows = writer.open_dataset::<f64>("/rows")?;
        writer.extend(rows, &[row + 1, ranks * ROW])?;
        writer.write(
            rows,
            Selection::block(&[row, rank * ROW], &[1, ROW]),
            &values,
        )?;
        Ok(writer)
    };
    for row in 1..rows {
        add(row - 1)?.close()?;
    }
    add(rows.saturating_sub(1))
}

fn run(world: &SimpleCommunicator) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, work, number] = arguments.as_slice() else {
        return Err("PATH WORK NUMBER".into());
    };
    let number: u64 = number.parse()?;
    let elements = if work == "large" { 1 << 18 } else { 10 };
    let climate = (work == "climate").then(|| [Part::of(world, 1), Part::of(world, LEVELS)]);
    let mut steps = Steps {
        world,
        begun: now(),
    };
    steps.next();
    let mut writer = Writer::create(path, world, Options::default())?;
    let mut figures = vec![steps.next()];
    let (mut values, mut variables) = (None, Vec::new());
    if let Some(parts) = &climate {
        for (number, part) in all_variables(parts).enumerate() {
            let spec = DatasetSpec::new::<f64>(&part.dims(0)).unlimited(0);
            let name = format!("/variable_{number:03}");
            variables.push(writer.dataset(&name, spec.chunk(&part.dims(1)))?);
        }
    } else if work == "reopen" {
        let spec = DatasetSpec::new::<f64>(&[0, world.size() as u64 * ROW]).unlimited(0);
        writer.dataset("/rows", spec.chunk(&[1, world.size() as u64 * ROW]))?;
    } else if work == "datasets" {
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
    if work == "reopen" {
        writer.close()?;
        writer = add_rows(path, world, number)?;
    }
    if let Some(mut parts) = climate {
        write_records(&mut writer, &variables, &mut parts, number)?;
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
