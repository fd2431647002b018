//! ADIOS2 directories, read by ADIOS2's own reader and by h5logfs, and copied to ordinary files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::bench::{Bench, DRIVER, Size, all_into_page_cache};
use crate::client::{Clients, Read, Timed, Way};
use crate::mounts::Scratch;
use crate::report::{Goal, Outcome, Row, Unit};

/// The modules that read ADIOS2 directories. The readers have the same names in `client.py`.
pub const MODULES: [&str; 2] = [ADIOS2, OPENPMD];
pub const ADIOS2: &str = "adios2";
/// Its wheel has an ADIOS2 with zfp, which the wheel of ADIOS2 lacks.
const OPENPMD: &str = "openpmd_api";
const ARRAYS: [&str; 2] = ["arrays, 1 thread", ALL_CORES];
const ALL_CORES: &str = "arrays, all cores";

/// A directory, and the read to measure.
struct Job {
    what: &'static str,
    /// The module whose reader stands for the native file.
    against: &'static str,
    /// Arguments of `adios.py` for writing the directory.
    written: Vec<String>,
    /// Whether all names are requested before the read.
    lists: bool,
    read: Read,
    /// Whether the directory is copied to an ordinary file, too.
    is_copied: bool,
    /// How many times as fast as that reader the arrays by all cores, and the driver, are to be.
    goals: Goals,
}

#[derive(Clone, Copy)]
struct Goals {
    all_cores: f64,
    driver: f64,
}

/// As fast as the reader.
const EQUAL: Goals = Goals {
    all_cores: 1.0,
    driver: 1.0,
};

impl Goals {
    fn of(self, who: &str) -> f64 {
        match who {
            ALL_CORES => self.all_cores,
            DRIVER => self.driver,
            _ => 1.0,
        }
    }
}

pub fn all(bench: &Bench, out: &mut Outcome) -> Result<()> {
    let has = |wanted| bench.modules.iter().any(|module| module == wanted);
    if !has(ADIOS2) {
        out.skipped = Some(format!("the interpreter has no module {ADIOS2}"));
        return Ok(());
    }
    for job in jobs(bench.size) {
        if !has(job.against) {
            let (what, module) = (job.what, job.against);
            out.note(format!(
                "{what}: left out, the interpreter has no module {module}"
            ));
            continue;
        }
        let scratch = Scratch::new(bench.scratch.path())?;
        let directory = scratch.path().join("run.bp");
        bench.say(out.name, &format!("{}: writing the directory", job.what));
        let written = job.written.iter().map(String::as_str);
        script(bench, written.chain([utf8(&directory)?]))?;
        bench.let_settle();
        compare(bench, &directory, &job, out)?;
        if job.is_copied {
            copy(bench, &directory, out)?;
        }
    }
    out.note(
        "In place of the native file it is ADIOS2's own reader, for zfp the one in openPMD-api. Each read is done by a new \
         process. The first one finds no kept index. Of two or more elements the first one is compared.",
    );
    Ok(())
}

fn jobs(size: Size) -> Vec<Job> {
    let texts = |words: &[&str], numbers: &[u64]| {
        let words = words.iter().map(|word| (*word).to_owned());
        words
            .chain(numbers.iter().map(u64::to_string))
            .collect::<Vec<_>>()
    };
    let read = |dataset: &str, element: &str, start: &[u64], count: &[u64]| Read {
        dataset: dataset.to_owned(),
        element: element.to_owned(),
        start: start.to_vec(),
        count: count.to_vec(),
    };
    let (steps, rows, columns) = size.pick((4, 16, 32), (64, 1024, 2048));
    let (times, side) = size.pick((20, 8), (1000, 128));
    let variables = size.pick(100, 10_000);
    let (passes, blocks) = size.pick((4, 50), (100, 10_000));
    let (fields, side_of_block) = size.pick((4, 64), (64, 1024));
    let zfp = |what, key: &str, value: &str| {
        let mut written = texts(&["zfp"], &[fields, side_of_block, side_of_block]);
        written.extend([key.to_owned(), value.to_owned()]);
        let dims = [fields * side_of_block, side_of_block];
        Job {
            what,
            against: OPENPMD,
            written,
            lists: false,
            read: read("data/0/meshes/v/x", "<f8", &[0; 2], &dims),
            is_copied: false,
            goals: Goals {
                all_cores: 2.5,
                driver: 1.2,
            },
        }
    };
    vec![
        Job {
            what: "all steps whole",
            against: ADIOS2,
            written: texts(&["steps"], &[steps, rows, columns]),
            lists: false,
            read: read("T", "<f8", &[0; 3], &[steps, rows, columns]),
            is_copied: true,
            goals: EQUAL,
        },
        Job {
            what: "one cell through all steps",
            against: ADIOS2,
            written: texts(&["steps"], &[times, side, side]),
            lists: false,
            read: read("T", "<f8", &[0, 5, 5], &[times, 1, 1]),
            is_copied: false,
            goals: EQUAL,
        },
        Job {
            what: "many variables listed, the first value",
            against: ADIOS2,
            written: texts(&["variables"], &[variables]),
            lists: true,
            read: read("group0/v0", "<f8", &[0], &[1]),
            is_copied: false,
            goals: EQUAL,
        },
        Job {
            what: "one element of many blocks",
            against: ADIOS2,
            written: texts(&["blocks"], &[passes, blocks]),
            lists: false,
            read: read("T", "<f4", &[passes / 2, 7], &[1, 1]),
            is_copied: false,
            goals: EQUAL,
        },
        zfp("zfp, rate 16", "rate", "16"),
        zfp("zfp, accuracy 0.001", "accuracy", "0.001"),
    ]
}

/// The figures of one contestant by round: those of first reads, and those of second reads.
#[derive(Default)]
struct Passes([Vec<f64>; 2]);

/// Measures a read by all contestants, in another order each round.
fn compare(bench: &Bench, directory: &Path, job: &Job, out: &mut Outcome) -> Result<()> {
    let mut names = vec![job.against];
    if bench.has_package {
        names.extend(ARRAYS);
    }
    names.extend(bench.plugins.is_some().then_some(DRIVER));
    let mut found: Vec<_> = names.iter().map(|_| Passes::default()).collect();
    let mut values = Vec::new();
    for round in 0..=bench.rounds {
        bench.say(out.name, &format!("{}, round {round}", job.what));
        for turn in 0..names.len() {
            let who = (turn + round) % names.len();
            all_into_page_cache(directory)?;
            let scratch = Scratch::new(bench.scratch.path())?;
            for pass in &mut found[who].0 {
                let clients = clients(bench, names[who], &scratch.path().join("indexes"))?;
                let timed = read_once(&clients, directory, job)?;
                pass.push(timed.seconds());
                values.push((names[who], timed.first));
            }
        }
    }
    let expected = values.iter().find(|(who, _)| *who == job.against);
    let expected = expected.map(|(_, value)| value.clone());
    let wrong = values
        .iter()
        .filter(|(_, value)| Some(value) != expected.as_ref());
    let wrong: Vec<_> = wrong
        .map(|(who, value)| format!("{}: {who}: {value:?} is not {expected:?}", job.what))
        .collect();
    out.contents(&wrong);
    for (pass, which) in ["first read", "second read"].into_iter().enumerate() {
        let theirs = &found[0].0[pass];
        for (name, own) in names.iter().zip(&found).skip(1) {
            let own = &own.0[pass];
            let row = Row::new(format!("{}, {which}", job.what), name, Unit::Seconds, own);
            let goal = bench.goal(Goal::Ratio(job.goals.of(name)));
            out.row(row.map(|row| row.against(theirs, own).goal(goal)));
        }
    }
    Ok(())
}

fn clients(bench: &Bench, who: &str, indexes: &Path) -> Result<Clients> {
    if let Some(reader) = MODULES.into_iter().find(|module| *module == who) {
        return Ok(bench.clients.with_way(Way::Arrays {
            options: String::new(),
            reader,
        }));
    }
    bench.clients_without_mount(who, indexes)
}

fn read_once(clients: &Clients, directory: &Path, job: &Job) -> Result<Timed> {
    let reads = std::slice::from_ref(&job.read);
    clients.with(|client| {
        if job.lists {
            client.time_with_names(directory, reads)
        } else {
            client.time(directory, reads)
        }
    })
}

/// Measures `h5logfs compact` against a program that reads step by step with ADIOS2 and writes with h5py.
fn copy(bench: &Bench, directory: &Path, out: &mut Outcome) -> Result<()> {
    let scratch = Scratch::new(bench.scratch.path())?;
    let target = scratch.path().join("copy.h5");
    let (mut theirs, mut own) = (Vec::new(), Vec::new());
    for round in 0..=bench.rounds {
        bench.say(out.name, &format!("compact, round {round}"));
        all_into_page_cache(directory)?;
        let seconds = script(bench, ["copy", utf8(directory)?, utf8(&target)?])?;
        theirs.push(seconds.trim().parse().context("no time of the copy")?);
        fs::remove_file(&target)?;
        let begun = Instant::now();
        let mut compact = Command::new(&bench.program);
        done(compact.arg("compact").args([directory, &target]))?;
        own.push(begun.elapsed().as_secs_f64());
        ensure!(target.is_file(), "h5logfs compact has written nothing");
        fs::remove_file(&target)?;
    }
    let row = Row::new("compact", "h5logfs compact", Unit::Seconds, &own);
    let goal = bench.goal(Goal::Ratio(3.0));
    out.row(row.map(|row| row.against(&theirs, &own).goal(goal)));
    out.note("compact: against a program that reads each step with ADIOS2 and writes it with h5py, without its start.");
    Ok(())
}

/// Runs `adios.py`, and returns its output.
fn script<'a>(bench: &Bench, arguments: impl IntoIterator<Item = &'a str>) -> Result<String> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/reading/adios.py");
    done(
        Command::new(bench.clients.python())
            .arg(script)
            .args(arguments),
    )
}

/// The output of a program, which must succeed.
pub fn done(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        let messages = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}", messages.trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

pub fn utf8(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}
