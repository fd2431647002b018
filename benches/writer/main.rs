//! Compares the writer with the libraries below it: `make bench-writer`, or
//!
//! ```text
//! mpirun -n 4 target/release/examples/bench_writer --help
//! ```
//!
//! `make` sets what Open MPI wants to be told before it starts programs for root, or more of them than there are cores:
//! `OMPI_ALLOW_RUN_AS_ROOT=1`, `OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1` and `OMPI_MCA_rmaps_base_oversubscribe=1`.
//!
//! Other work disturbs the measurements. So the contestants of a comparison take turns within one run,
//! with fresh files in each round, and the result is the median of the ratios of each round. The first
//! round does not count, because its caches are cold. `docs/performance.md` has figures and says how
//! reliable they are.

mod datasets;
mod flush;
mod followers;
mod metadata;
mod report;
mod small;

use std::error::Error;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use rustix::time::{ClockId, clock_gettime};

use report::Report;

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Measures the writer against raw MPI-IO, plain pwrite, and serial libhdf5.
#[derive(Parser)]
struct Arguments {
    /// Directory for the files that are written; /dev/shm takes the disk out of it.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Rounds that count.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Bytes per rank and flush, up to 1 GiB; K and M are understood.
    #[arg(long, value_delimiter = ',', default_value = "64K,1M,16M,64M", value_parser = parse_size)]
    sizes: Vec<usize>,
    /// Only these parts.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Datasets of the part that creates many.
    #[arg(long, default_value_t = 16384)]
    datasets: u32,
    /// Print one JSON object in place of tables.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Flush bandwidth.
    Flush,
    /// Buffered writes of 64 bytes.
    Small,
    /// Creation of many datasets.
    Datasets,
    /// Bytes and time that the entries of scattered selections take.
    Metadata,
    /// Flushes while others follow the log.
    Followers,
}

fn parse_size(text: &str) -> std::result::Result<usize, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((end, 'K')) => (&text[..end], 1 << 10),
        Some((end, 'M')) => (&text[..end], 1 << 20),
        _ => (text, 1),
    };
    let size = digits.parse::<usize>().map_err(|e| e.to_string())?;
    let size = size.checked_mul(unit).unwrap_or(0);
    match size {
        8..=0x4000_0000 if size.is_multiple_of(8) => Ok(size),
        _ => Err("a multiple of 8, up to 1024M".into()),
    }
}

/// The state that all parts share.
pub struct Bench {
    pub world: SimpleCommunicator,
    /// The directory of the files, the same on all ranks. It is removed at the end.
    pub dir: PathBuf,
    pub rounds: u32,
}

impl Bench {
    pub fn rank(&self) -> u64 {
        self.world.rank() as u64
    }

    pub fn ranks(&self) -> u64 {
        self.world.size() as u64
    }

    pub fn is_root(&self) -> bool {
        self.world.rank() == 0
    }

    /// Seconds from the moment the first rank begins until the last rank is done. Collective. The time of
    /// one rank is not enough: if ranks share processors, one may begin after another is done.
    pub fn timed<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
        self.world.barrier();
        let begun = seconds(ClockId::Monotonic);
        let done = work()?;
        let ended = seconds(ClockId::Monotonic);
        let mut bounds = [0.0; 2];
        let largest = SystemOperation::max();
        self.world
            .all_reduce_into(&[-begun, ended], &mut bounds, largest);
        Ok((bounds[1] + bounds[0], done))
    }

    /// The mean of the ranks' values. Collective.
    pub fn mean(&self, value: f64) -> f64 {
        let mut sum = 0.0;
        self.world
            .all_reduce_into(&value, &mut sum, SystemOperation::sum());
        sum / self.ranks() as f64
    }

    /// Removes the file of a contestant. Collective, so that the removal disturbs no later measurement.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.world.barrier();
        if self.is_root() {
            std::fs::remove_file(self.dir.join(name))?;
            let subfiles = self.dir.join(format!("{name}.subfiles"));
            if subfiles.exists() {
                std::fs::remove_dir_all(subfiles)?;
            }
        }
        self.world.barrier();
        Ok(())
    }

    /// Runs all contestants in each round, in a new order each time. The first round, which does not
    /// count, has the number `None`.
    pub fn in_rounds(
        &self,
        contestants: usize,
        mut run: impl FnMut(Option<usize>, usize) -> Result<()>,
    ) -> Result<()> {
        let mut random = Random(0);
        for round in 0..=self.rounds as usize {
            for contestant in random.order(contestants) {
                run(round.checked_sub(1), contestant)?;
            }
        }
        Ok(())
    }
}

/// Random numbers that are the same on all ranks.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        // Knuth's generator; its low bits are poor.
        let product = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = product.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// The numbers below `number` in random order. With a fixed order, each contestant would always find
    /// the caches as the same other one left them.
    pub fn order(&mut self, number: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..number).collect();
        for last in (1..number).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }
}

/// The time of a clock.
pub fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + 1e-9 * now.tv_nsec as f64
}

fn main() {
    let arguments = Arguments::parse();
    let Some(universe) = mpi::initialize() else {
        eprintln!("bench_writer: MPI cannot be initialised");
        std::process::exit(1);
    };
    let world = universe.world();
    if let Err(e) = run(&arguments, &world) {
        eprintln!("bench_writer: rank {}: {e}", world.rank());
        world.abort(1);
    }
}

fn run(arguments: &Arguments, world: &SimpleCommunicator) -> Result<()> {
    let neighbours = world.split_shared(world.rank());
    if neighbours.size() < world.size() {
        return Err("all ranks must be on one node, for they compare their clocks".into());
    }
    let mut temporary = None;
    let mut dir = String::new();
    if world.rank() == 0 {
        let made = temporary.insert(tempfile::tempdir_in(&arguments.dir)?);
        dir = made.path().to_string_lossy().into_owned();
    }
    let bench = Bench {
        world: world.duplicate(),
        dir: broadcast(world, dir).into(),
        rounds: arguments.rounds,
    };
    let has = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let mut report = Report::new(&bench)?;
    if has(Part::Flush) {
        for size in &arguments.sizes {
            report.flush.push(flush::measure(&bench, *size)?);
        }
    }
    if has(Part::Small) {
        report.small = small::measure(&bench)?;
    }
    if has(Part::Datasets) {
        report.datasets = datasets::measure(&bench, arguments.datasets)?;
    }
    if has(Part::Metadata) {
        report.metadata = Some(metadata::measure(&bench)?);
    }
    if has(Part::Followers) {
        report.followers = followers::measure(&bench)?;
    }
    world.barrier();
    if bench.is_root() {
        if arguments.json {
            println!("{}", serde_json::to_string_pretty(&report)?)
        } else {
            print!("{report}")
        }
    }
    Ok(())
}

/// Sends the first rank's text to all ranks.
fn broadcast(world: &SimpleCommunicator, text: String) -> String {
    let root = world.process_at_rank(0);
    let mut bytes = text.into_bytes();
    let mut len = bytes.len() as u64;
    root.broadcast_into(&mut len);
    bytes.resize(len as usize, 0);
    root.broadcast_into(&mut bytes[..]);
    String::from_utf8_lossy(&bytes).into_owned()
}
