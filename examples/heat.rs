//! A heat equation on a square plate. The plate is cut into strips of rows, one strip for each rank.
//! Every few steps, each rank logs its strip of the frame, and then all ranks flush the log together.
//!
//! ```text
//! mpirun -n 4 target/release/examples/heat heat.h5
//! h5logfs mount . /mnt && h5dump -d /temperature -s 3,0,0 -c 1,4,8 /mnt/heat.h5
//! ```

use std::process::ExitCode;

use h5logfs_writer::{DatasetSpec, Error, Options, Selection, Writer};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

const USAGE: &str = "\
Usage: heat [--steps NUMBER] FILE

Computes a heat equation, and logs a frame every 20 steps to the new log FILE. A file of that name is
an error. See resubmit.sh for jobs that are submitted again.

Options:
  --steps NUMBER   the number of steps (200)
  -h, --help       prints this text";

const SIDE: u64 = 128;
const STEPS_PER_FRAME: u64 = 20;
const DIFFUSIVITY: f64 = 0.2;

struct Arguments {
    path: String,
    steps: u64,
}

/// The rows of one rank, with a row of each neighbour around them.
struct Strip {
    first: u64,
    rows: u64,
    cells: Vec<f64>,
}

fn main() -> ExitCode {
    let Some(universe) = mpi::initialize() else {
        eprintln!("heat: MPI is initialised already");
        return ExitCode::FAILURE;
    };
    let world = universe.world();
    // All ranks have the same arguments, so one of them speaks for all.
    let is_first = world.rank() == 0;
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            if is_first {
                println!("{USAGE}");
            }
            return ExitCode::SUCCESS;
        }
        Err(reason) => {
            if is_first {
                eprintln!("heat: {reason}\n\n{USAGE}");
            }
            return ExitCode::from(2);
        }
    };
    match run(&arguments, &world) {
        Ok(()) => ExitCode::SUCCESS,
        // All ranks have the same error of a collective call.
        Err(error @ (Error::Failed { .. } | Error::Refused { .. })) => {
            if is_first {
                eprintln!("heat: {error}");
            }
            ExitCode::FAILURE
        }
        // The other ranks do not know of it, and would wait for this one.
        Err(error) => {
            eprintln!("heat: {error}");
            world.abort(1)
        }
    }
}

/// `None`: the user asks for help.
fn parse(mut given: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let (mut path, mut steps) = (None, 200);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "-h" | "--help" => return Ok(None),
            "--steps" => {
                let number = given.next().and_then(|number| number.parse().ok());
                steps = number.ok_or("--steps needs a number")?;
            }
            other if other.starts_with('-') => return Err(format!("unknown option {other}")),
            _ if path.is_some() => return Err("more than one file".into()),
            _ => path = Some(argument),
        }
    }
    let path = path.ok_or("the name of the file is missing")?;
    Ok(Some(Arguments { path, steps }))
}

fn run(arguments: &Arguments, world: &SimpleCommunicator) -> Result<(), Error> {
    let mut file = Writer::create(&arguments.path, world, Options::default())?;
    file.attribute("/", "title", "heat on a plate")?;
    let spec = DatasetSpec::new::<f64>(&[0, SIDE, SIDE]).unlimited(0);
    let temperature = file.dataset("/temperature", spec.chunk(&[1, SIDE, SIDE]))?;
    file.attribute("/temperature", "units", "K")?;
    file.attribute("/temperature", "diffusivity", DIFFUSIVITY)?;
    let time = file.dataset("/time", DatasetSpec::new::<f64>(&[0]).unlimited(0))?;

    let mut strip = Strip::new(world);
    for step in 0..arguments.steps {
        strip.exchange(world);
        strip.step();
        if (step + 1) % STEPS_PER_FRAME == 0 {
            let frame = step / STEPS_PER_FRAME;
            file.extend(temperature, &[frame + 1, SIDE, SIDE])?;
            file.extend(time, &[frame + 1])?;
            let (start, count) = ([frame, strip.first, 0], [1, strip.rows, SIDE]);
            file.write(temperature, Selection::block(&start, &count), strip.own())?;
            if world.rank() == 0 {
                let now = (step + 1) as f64;
                file.write(time, Selection::block(&[frame], &[1]), &[now])?;
            }
            // Once this returns, the frame stays in the log, even if the job is killed.
            file.flush()?;
        }
    }
    file.close()?;
    Ok(())
}

impl Strip {
    fn new(world: &SimpleCommunicator) -> Self {
        let (rank, ranks) = (world.rank() as u64, world.size() as u64);
        let first = SIDE * rank / ranks;
        let rows = SIDE * (rank + 1) / ranks - first;
        let mut cells = vec![273.0; ((rows + 2) * SIDE) as usize];
        for row in 0..rows {
            for column in 0..SIDE {
                let (y, x) = (first + row, column);
                if (48..80).contains(&y) && (48..80).contains(&x) {
                    cells[((row + 1) * SIDE + x) as usize] = 373.0;
                }
            }
        }
        Strip { first, rows, cells }
    }

    fn own(&self) -> &[f64] {
        &self.cells[SIDE as usize..((self.rows + 1) * SIDE) as usize]
    }

    /// Receives the neighbours' rows next to this strip. A strip at the edge has one neighbour only.
    fn exchange(&mut self, world: &SimpleCommunicator) {
        let side = SIDE as usize;
        let (rank, last) = (world.rank(), world.size() - 1);
        let own = side..self.cells.len() - side;
        let (top, bottom) = (
            self.cells[own.start..own.start + side].to_vec(),
            self.cells[own.end - side..own.end].to_vec(),
        );
        mpi::request::scope(|scope| {
            let mut sends = Vec::new();
            if rank > 0 {
                let up = world.process_at_rank(rank - 1);
                sends.push(up.immediate_send(scope, &top[..]));
            }
            if rank < last {
                let down = world.process_at_rank(rank + 1);
                sends.push(down.immediate_send(scope, &bottom[..]));
            }
            if rank > 0 {
                let up = world.process_at_rank(rank - 1);
                up.receive_into(&mut self.cells[..side]);
            }
            if rank < last {
                let down = world.process_at_rank(rank + 1);
                down.receive_into(&mut self.cells[own.end..]);
            }
            for send in sends {
                send.wait_without_status();
            }
        });
    }

    fn step(&mut self) {
        let side = SIDE as usize;
        let old = self.cells.clone();
        for y in 1..=self.rows as usize {
            for x in 1..side - 1 {
                let (row, above, below) = (
                    self.first as usize + y - 1,
                    old[(y - 1) * side + x],
                    old[(y + 1) * side + x],
                );
                if row == 0 || row == side - 1 {
                    continue;
                }
                let here = old[y * side + x];
                let around = above + below + old[y * side + x - 1] + old[y * side + x + 1];
                self.cells[y * side + x] = here + DIFFUSIVITY * (around - 4.0 * here);
            }
        }
    }
}
