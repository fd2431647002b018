//! HDF5 programs with the VOL connector: random ones (`tests/c/random`), and one that reports its progress
//! (`tests/c/connector/flushes.c`).

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::amount::{cases, first_seed};
use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::hosts::Hdf5;
use crate::common::killed::{Places, RANKS, Shown, Victim};
use crate::common::mpirun::{DEADLINE, Job, Mpi};
use crate::common::nodes::Place;
use crate::common::numbers::Numbers;
use crate::common::readers::Python;
use crate::common::twice::{Twice, Variable, command_by_ranks};

/// Random programs whose sessions write the same files, with these numbers of ranks; 0 is a program without MPI.
/// Their files with the connector equal those without it.
#[track_caller]
pub fn programs(place: &Place, sessions: &[u32], usual: usize) {
    programs_of(place, sessions, seeds(usual));
}

/// The programs of these seeds.
#[track_caller]
pub fn programs_of(place: &Place, sessions: &[u32], seeds: Range<u64>) {
    let twice = Twice::new();
    if run(place, &twice, sessions, seeds) {
        twice.compare();
    }
}

/// The seeds of a test that usually has `usual` programs.
pub fn seeds(usual: usize) -> Range<u64> {
    first_seed()..first_seed() + cases(usual) as u64
}

/// Runs programs with and without the connector. `false` where they cannot run here.
///
/// Programs that parallel HDF5 itself runs incorrectly are not compared: with HDF5 1.14.6 some of them hang, or read
/// what was not written. With the connector all must end well, and each checks what it reads.
#[track_caller]
pub fn run(place: &Place, twice: &Twice, sessions: &[u32], seeds: Range<u64>) -> bool {
    let Some(hdf5) = Hdf5::find() else {
        return false;
    };
    let program = hdf5.compiled_from("random", &["-lhdf5", "-lz"]);
    let random = Random {
        place,
        program,
        sessions,
    };
    for seed in seeds.clone() {
        random.run_natively(&twice.native(), seed);
    }
    random
        .run(&twice.logged(), seeds, &twice.variables(), DEADLINE)
        .unwrap_or_else(|reason| panic!("{reason}"));
    true
}

/// The random program, and the way its sessions run.
struct Random<'a> {
    place: &'a Place,
    program: PathBuf,
    sessions: &'a [u32],
}

impl Random<'_> {
    /// Runs natively. Leaves no file where HDF5 itself fails with several ranks.
    #[track_caller]
    fn run_natively(&self, dir: &Path, seed: u64) {
        const PATIENCE: Duration = Duration::from_secs(30);
        let Err(reason) = self.run(dir, seed..seed + 1, &[], PATIENCE) else {
            return;
        };
        let are_parallel = self.sessions.iter().any(|ranks| *ranks > 1);
        assert!(are_parallel, "{reason}");
        eprintln!("program {seed} is not compared, because HDF5 itself fails: {reason}");
        let _ = fs::remove_file(dir.join(format!("{seed}.h5")));
    }

    /// Runs all sessions, each with this time limit.
    fn run(
        &self,
        dir: &Path,
        seeds: Range<u64>,
        variables: &[Variable],
        patience: Duration,
    ) -> Result<(), String> {
        // The final session reads everything.
        let last = self.sessions.last().unwrap();
        let ranks: Vec<String> = self.sessions.iter().map(u32::to_string).collect();
        for (number, ranks_of) in self.sessions.iter().chain([last]).enumerate() {
            let mut arguments = vec![dir.to_str().unwrap().to_owned()];
            arguments.extend([seeds.start, seeds.end - seeds.start].map(|n| n.to_string()));
            arguments.push(number.to_string());
            arguments.extend(ranks.clone());
            let mut command = command_by_ranks(self.place, *ranks_of, &self.program, variables);
            command.args(arguments);
            Job::launch(command).outcome(patience)?;
        }
        Ok(())
    }
}

/// Starts a job that flushes its file `flushes` times, and closes and reopens it after each `cycle` of them.
pub fn flushing(
    place: &Place,
    hdf5: &Hdf5,
    flushes: u64,
    cycle: u64,
    variables: Vec<Variable>,
) -> Victim {
    let places = Places::new(place);
    let program = hdf5.compiled("connector", "flushes");
    let mut mpirun = Mpi::of_build().run_at(place, RANKS, &program);
    mpirun
        .args([&places.log(), places.notes.path()])
        .args([flushes, cycle].map(|number| number.to_string()));
    mpirun.envs(variables);
    Victim {
        job: Job::launch(mpirun),
        places,
    }
}

/// The command that reads its file and prints the flush that it shows.
pub fn reading(python: &Python, file: &Path) -> Command {
    let mut tool = python.tool("flushes.py");
    tool.arg(file);
    tool
}

/// The content of its file.
pub fn shown(python: &Python, file: &Path) -> Shown {
    Shown::by(&reading(python, file).output().unwrap())
}

/// Recovers its file, which showed `before`. Afterwards a log is an ordinary one with the same content.
pub fn recover(places: &Places, before: Shown, python: &Python, about: &str) {
    let (good, said) = places.h5logfs("recover");
    // An incomplete creation may lack what a recovery needs.
    assert!(good || before == Shown::Nothing, "{about}: {said}");
    if good {
        let now = shown(python, &places.log());
        let empty = before == Shown::Nothing && now == Shown::Flush(0);
        assert!(now == before || empty, "{about}; recovered, then {now:?}");
    }
}

/// Kills one job and checks the rest. Returns a line about what happened.
fn kill_once(place: &Place, seed: u64, hdf5: &Hdf5, python: &Python) -> String {
    let mut numbers = Numbers(seed);
    let flushes = 10 + numbers.below(40);
    let cycle = 1 + numbers.below(8);
    let flush = 1 + numbers.below(flushes);
    let closed = (flush / cycle * cycle).max(cycle.min(flushes));
    let connector = Connector::new();
    let mut variables = connector.used();
    if seed.is_multiple_of(3) {
        // Less than a rank writes between two flushes.
        variables.push(("H5LOGFS_BUFFER_LIMIT", "64K".into()));
    }
    let mut victim = flushing(place, hdf5, flushes, cycle, variables);
    // Close and append are short, so kills aim at them.
    let (point, most) = match seed % 6 {
        0 => ("ready".to_owned(), 20_000),
        1 => ("ready".to_owned(), 400_000),
        2 => (format!("closing {closed}"), 40_000),
        3 => (format!("closed {closed}"), 10_000),
        _ => (flush.to_string(), 6_000),
    };
    let mut ranks = victim.ranks();
    victim.wait_for(&point);
    let delay = Duration::from_micros(numbers.below(most));
    thread::sleep(delay);
    victim.kill(&mut ranks, numbers.below(u64::from(RANKS)));

    let places = &victim.places;
    let acknowledged = places.acknowledged();
    let shown = shown(python, &places.log());
    let about = format!(
        "seed {seed}: killed {delay:?} after {point}, {acknowledged} of {flushes} acknowledged, {shown:?}"
    );
    match shown {
        Shown::Flush(shown) => {
            assert!(
                (acknowledged..=acknowledged + 1).contains(&shown),
                "{about}"
            );
            let (good, said) = places.h5logfs("check");
            assert!(good, "{about}: {said}");
        }
        Shown::Nothing => assert_eq!(acknowledged, 0, "{about}"),
    }
    recover(places, shown, python, &about);
    about
}

/// Kills `number` of these jobs.
pub fn kill_at_random(place: &Place, number: usize) {
    let driver = Driver::new();
    let (Some(hdf5), Some(python)) = (Hdf5::find(), driver.python()) else {
        return;
    };
    let first = first_seed();
    for seed in first..first + cases(number) as u64 {
        eprintln!("{}", kill_once(place, seed, hdf5, &python));
    }
}
