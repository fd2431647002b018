//! `own PATH WORK NUMBER [blob]` does the work of `hdf5.c` in the writer's own API, and prints the same figures. With
//! `blob` each rank writes the same bytes with one `pwrite`, which is the limit.

use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;

use h5logfs_writer::{Dataset, DatasetSpec, Options, Selection, Writer};
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use rustix::time::{ClockId, clock_gettime};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A clock for steps. A step begins with the first rank that begins it, and ends with the last rank that has done it.
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

/// A rank's part of the variables of one kind: see `e3sm.txt`.
struct Part {
    variables: usize,
    layers: u64,
    columns: u64,
    width: u64,
    starts: Vec<u64>,
    counts: Vec<u64>,
    values: Vec<f64>,
}

impl Part {
    /// The parts of a rank in a case of E3SM.
    fn all(world: &SimpleCommunicator, case: &str) -> Vec<Part> {
        let mut repeats = 0;
        let mut parts = Vec::new();
        for line in include_str!("e3sm.txt").lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["case", name, number] => {
                    repeats = if name == case {
                        number.parse().unwrap_or(0)
                    } else {
                        0
                    };
                }
                [number, layers, width, owners] if repeats > 0 => {
                    let [number, layers, width] =
                        [number, layers, width].map(|n| n.parse::<u64>().unwrap_or(1));
                    let owners = owners.repeat(repeats);
                    let each = owners.len() / repeats;
                    parts.push(Part::of(
                        world,
                        number as usize,
                        [layers, width],
                        &owners,
                        each,
                    ));
                }
                _ => {}
            }
        }
        parts
    }

    fn of(
        world: &SimpleCommunicator,
        variables: usize,
        [layers, width]: [u64; 2],
        owners: &str,
        each: usize,
    ) -> Self {
        let (rank, ranks) = (world.rank() as usize, world.size() as usize);
        let owner = |(column, owner): (usize, char)| {
            let owner = owner.to_digit(10)? as usize;
            Some((owner * ranks / 4 + column / each) % ranks)
        };
        let owners: Vec<Option<usize>> = owners.chars().enumerate().map(owner).collect();
        let mut part = Part {
            variables,
            layers,
            columns: owners.len() as u64,
            width,
            starts: Vec::new(),
            counts: Vec::new(),
            values: Vec::new(),
        };
        for layer in 0..layers {
            let mut column = 0;
            for run in owners.chunk_by(|one, next| one == next) {
                let number = run.len() as u64;
                if run[0] == Some(rank) {
                    part.starts.extend(part.place(0, layer, column, 0));
                    part.counts.extend(part.place(1, 1, number, width));
                    let values = (0..number * width).map(|i| i as f64);
                    part.values.extend(values);
                }
                column += number;
            }
        }
        part
    }

    /// Start of a block. The dimensions that have one element in all variables of the kind are left out.
    fn place(&self, record: u64, layer: u64, column: u64, within: u64) -> Vec<u64> {
        let layers = (self.layers > 1).then_some(layer);
        let width = (self.width > 1).then_some(within);
        let sides = [Some(record), layers, Some(column), width];
        sides.into_iter().flatten().collect()
    }

    fn dims(&self, records: u64) -> Vec<u64> {
        self.place(records, self.layers, self.columns, self.width)
    }
}

fn all_variables(parts: &[Part]) -> impl Iterator<Item = &Part> {
    parts
        .iter()
        .flat_map(|part| std::iter::repeat_n(part, part.variables))
}

fn write_records(
    writer: &mut Writer,
    variables: &[Dataset],
    parts: &mut [Part],
    records: u64,
) -> Result<()> {
    for record in 0..records {
        for part in &mut *parts {
            let rank = part.dims(0).len();
            let records = part.starts.iter_mut().step_by(rank);
            records.for_each(|start| *start = record);
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

/// Bytes that a rank writes in all records.
fn bytes_of(parts: &[Part], records: u64) -> usize {
    let values = all_variables(parts).map(|part| part.values.len());
    values.sum::<usize>() * size_of::<f64>() * records as usize
}

/// Writes all bytes of each rank at once.
fn write_blob(path: &str, world: &SimpleCommunicator, bytes: usize) -> Result<Vec<f64>> {
    let (mut before, rank) = (0u64, world.rank());
    world.exclusive_scan_into(&(bytes as u64), &mut before, SystemOperation::sum());
    let before = if rank == 0 { 0 } else { before };
    let values: Vec<u8> = (0..bytes).map(|i| i as u8).collect();
    let mut steps = Steps {
        world,
        begun: now(),
    };
    steps.next();
    let options = || File::options().write(true).create(true).to_owned();
    let file = options().open(path)?;
    let mut figures = vec![steps.next(), 0.0];
    file.write_all_at(&values, before)?;
    figures.extend([steps.next(), 0.0]);
    drop(file);
    figures.push(steps.next());
    Ok(figures)
}

/// Elements of a rank in a row.
const ROW: u64 = 1000;

/// Opens the file for each row, and returns the writer of the last one.
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
    let ([path, work, number], more) = arguments.split_first_chunk().ok_or("PATH WORK NUMBER")?;
    let number: u64 = number.parse()?;
    let elements = if work == "large" { 1 << 18 } else { 10 };
    let climate = (work.len() == 1).then(|| Part::all(world, work));
    if let (Some(parts), [how]) = (&climate, more)
        && how == "blob"
    {
        let figures = write_blob(path, world, bytes_of(parts, number))?;
        say(world, &figures);
        return Ok(());
    }
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
    say(world, &figures);
    Ok(())
}

fn say(world: &SimpleCommunicator, figures: &[f64]) {
    let mut most = 0;
    world.all_reduce_into(&memory(), &mut most, SystemOperation::max());
    if world.rank() == 0 {
        let figures: Vec<String> = figures.iter().map(|f| format!("{f:.6}")).collect();
        println!("{} {most}", figures.join(" "));
    }
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
