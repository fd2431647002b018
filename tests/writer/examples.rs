//! The examples in Rust and in C: their output, and the resubmission of a job as in the user guide.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::capi::{Bench, has_cxx};
use crate::common::amount::each_variant;
use crate::common::mpirun::{Job, Mpi, program};
use crate::common::readers::{Python, project, said};
use crate::common::{PROGRAM, names_in, wait_until};

const RANKS: u32 = 4;

/// Enough steps that a job still runs after a few frames.
const STEPS: &str = "4000";
const FRAMES: u64 = 200;

// --- arguments -----------------------------------------------------------------------------------

/// Runs an example in an empty directory, where it must create nothing. Returns whether it succeeded, and its output.
fn says(program: &Path, arguments: &[&str]) -> (bool, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut script = Mpi::of_build().run(2, program);
    script.args(arguments).current_dir(&dir);
    let mut job = Job::launch(script);
    let status = job.wait();
    assert_eq!(
        names_in(dir.path()),
        [""; 0],
        "{arguments:?}: {}",
        job.said()
    );
    (status.success(), job.said())
}

fn check_arguments(program: &Path, name: &str) {
    let usage = format!("Usage: {name} ");
    let (succeeded, said) = says(program, &["--help"]);
    assert!(succeeded && said.starts_with(&usage), "{said}");
    assert_eq!(said.matches("Usage").count(), 1, "{said}");
    let wrong = [&[][..], &["one.h5", "two.h5"], &["--force", "one.h5"]];
    each_variant(&wrong, |wrong| {
        let (succeeded, said) = says(program, wrong);
        assert!(!succeeded && said.contains(&usage), "{wrong:?}: {said}");
        assert_eq!(said.matches("Usage").count(), 1, "{said}");
    });
    // One rank reports what all know.
    let (succeeded, said) = says(program, &["missing/one.h5"]);
    assert!(
        !succeeded && said.contains("missing does not exist"),
        "{said}"
    );
    assert_eq!(said.matches("does not exist").count(), 1, "{said}");
}

#[test]
fn examples_check_their_arguments() {
    for name in ["heat", "events"] {
        check_arguments(&program(name), name);
    }
}

#[test]
fn examples_in_c_and_cxx_check_their_arguments() {
    let sources = ["c/heat.c", "c/events.c", "cxx/heat.cpp"];
    each_variant(&sources, |source| {
        if source.starts_with("cxx") && !has_cxx() {
            return;
        }
        let bench = Bench::new(&format!("examples/{source}"));
        let name = Path::new(source).file_stem().unwrap();
        check_arguments(&bench.program, name.to_str().unwrap());
    });
}

/// A job appends to the log of another one, with other numbers of ranks.
#[test]
fn events_go_on_in_the_log_of_an_earlier_job() {
    let bench = Bench::new("examples/c/events.c");
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("events.h5");
    let log = log.to_str().unwrap();
    Job::start(4, &program("events"), &[log]).succeed();
    Job::start(3, &program("events"), &["--continue", log]).succeed();
    Job::start(1, &bench.program, &["--continue", log]).succeed();
    let shown = dir.path().join("shown.h5");
    let mut export = Command::new(PROGRAM);
    let output = export.arg("export").arg(log).arg(&shown).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let check = "
import sys, h5py
with h5py.File(sys.argv[1], 'r') as f:
    events = f['run/events']
    wanted = [(r, n) for ranks in (4, 3, 1) for n in range(8) for r in range(ranks)
              for _ in range((r * 7 + n * 13) % 50 * 20)]
    assert list(zip(events['rank'].tolist(), events['round'].tolist())) == wanted
    assert events.attrs['thresholds'].tolist() == [0.5, 2]
";
    for python in Python::all() {
        python.run(check, &[&shown]);
    }
}

// --- submitting again ----------------------------------------------------------------------------

/// A directory of logs.
struct Place {
    dir: TempDir,
    heat: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let heat = program("heat");
        Place { dir, heat }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&self, name: &str) -> Job {
        let path = self.path(name);
        let arguments = ["--steps", STEPS, path.to_str().unwrap()];
        Job::start(RANKS, &self.heat, &arguments)
    }

    /// Waits until the job has flushed some frames, and stops it.
    fn stop_midway(&self, job: &mut Job, name: &str) {
        wait_until("the job has flushed", || {
            assert!(!job.has_ended(), "{}", job.said());
            self.flushes(name) >= 3
        });
        job.stop(&self.heat);
        while self.is_in_flush(name) {
            let flushes = self.flushes(name);
            job.signal(&self.heat, Signal::CONT);
            wait_until("the job has flushed again", || {
                assert!(!job.has_ended(), "{}", job.said());
                self.flushes(name) > flushes
            });
            job.stop(&self.heat);
        }
    }

    /// Whether the log has data after its last commit. `recover` would keep them in a file of their own.
    fn is_in_flush(&self, name: &str) -> bool {
        let [log, journal] = self.bytes(name);
        let journal = String::from_utf8(journal).unwrap();
        let (_, last) = journal.rsplit_once(r#""ends":["#).unwrap();
        let end = last.split(']').next().unwrap();
        log.len() as u64 != end.parse::<u64>().unwrap()
    }

    /// Kills a job midway. Returns the number of its flushes.
    fn killed(&self, name: &str) -> u64 {
        let mut job = self.start(name);
        self.stop_midway(&mut job, name);
        job.signal(&self.heat, Signal::KILL);
        job.wait_for_killed();
        let flushes = self.flushes(name);
        assert!((3..FRAMES).contains(&flushes));
        flushes
    }

    /// Number of commits in a journal.
    fn flushes(&self, name: &str) -> u64 {
        let journal = fs::read_to_string(self.path(&format!("{name}.h5logfs-journal")));
        let lines = journal.unwrap_or_default();
        let is_commit = |line: &&str| line.contains(r#"{"commit""#);
        lines.lines().filter(is_commit).count() as u64
    }

    fn bytes(&self, name: &str) -> [Vec<u8>; 2] {
        ["", ".h5logfs-journal"]
            .map(|suffix| fs::read(self.path(&format!("{name}{suffix}"))).unwrap())
    }

    fn recover(&self, name: &str) -> String {
        let recovery = Command::new(PROGRAM)
            .arg("recover")
            .arg(self.path(name))
            .output();
        said(&recovery.unwrap())
    }

    /// Checks that a file holds exactly these frames, complete.
    #[track_caller]
    fn shows(&self, name: &str, frames: u64) {
        let plain = self.path(&format!("{name}.plain"));
        let export = Command::new(PROGRAM)
            .arg("export")
            .args([self.path(name), plain.clone()])
            .output()
            .unwrap();
        assert!(export.status.success(), "{}", said(&export));
        let check = "
import sys, h5py
file = h5py.File(sys.argv[1], 'r')
time, frames = file['time'][:], file['temperature']
assert len(time) == len(frames) and (time == [20.0 * (i + 1) for i in range(len(time))]).all()
assert (frames[:] >= 273).all()
print(len(time))
";
        for python in Python::all() {
            assert_eq!(python.run(check, &[&plain]).trim(), frames.to_string());
        }
        fs::remove_file(plain).unwrap();
    }

    /// Runs examples/resubmit.sh as a user with the programs in the path.
    fn submit(&self) -> Job {
        let mut path = OsString::new();
        for program in [&self.heat, Path::new(PROGRAM)] {
            path.push(program.parent().unwrap());
            path.push(":");
        }
        path.push(Mpi::of_build().search_path());
        let mut script = Command::new("sh");
        script
            .arg(project().join("examples/resubmit.sh"))
            .arg(self.dir.path());
        script.env("PATH", path);
        Job::launch(script)
    }
}

#[test]
fn a_killed_job_that_is_submitted_again_loses_nothing() {
    let place = Place::new();
    let flushes = place.killed("heat.h5");
    let before = place.bytes("heat.h5");
    let said = place.start("heat.h5").fail();
    let path = place.path("heat.h5");
    for words in [
        format!("left {flushes} flushes in it"),
        format!("`h5logfs recover {}`", path.display()),
        "create failed on rank 0: a job (process ".to_owned(),
    ] {
        assert_eq!(said.matches(&words).count(), 1, "{words:?} in: {said}");
    }
    assert!(place.bytes("heat.h5") == before, "the log has changed");
    assert_eq!(
        names_in(place.dir.path()),
        ["heat.h5", "heat.h5.h5logfs-journal"]
    );
    let said = place.recover("heat.h5");
    assert!(
        said.contains(&format!("recovered {flushes} flushes")),
        "{said}"
    );
    place.shows("heat.h5", flushes);
    // The file still exists.
    let said = place.start("heat.h5").fail();
    assert!(said.contains("it exists already"), "{said}");
    place.start("again.h5").succeed();
    place.shows("again.h5", FRAMES);
    place.shows("heat.h5", flushes);
}

#[test]
fn a_job_that_is_submitted_while_it_runs_goes_on() {
    let place = Place::new();
    let mut job = place.start("heat.h5");
    place.stop_midway(&mut job, "heat.h5");
    let before = place.bytes("heat.h5");
    let said = place.start("heat.h5").fail();
    assert_eq!(
        said.matches("another job writes it: process ").count(),
        1,
        "{said}"
    );
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(said.contains(&format!(" on {}", host.trim())), "{said}");
    assert!(place.bytes("heat.h5") == before, "the log has changed");
    job.signal(&place.heat, Signal::CONT);
    job.succeed();
    assert_eq!(names_in(place.dir.path()), ["heat.h5"]);
    place.shows("heat.h5", FRAMES);
}

#[test]
fn the_script_of_the_guide_may_be_submitted_any_number_of_times() {
    let place = Place::new();
    place.submit().succeed();
    let flushes = place.killed("heat-2.h5");
    place.submit().succeed();
    let logs = ["heat-1.h5", "heat-2.h5", "heat-3.h5"];
    assert_eq!(names_in(place.dir.path()), logs);
    // While a job runs, the script ends and starts no other one.
    let mut job = place.start("heat-4.h5");
    place.stop_midway(&mut job, "heat-4.h5");
    let said = place.submit().fail();
    assert!(
        said.contains("heat-4.h5") && said.contains("running"),
        "{said}"
    );
    assert_eq!(names_in(place.dir.path()).len(), 5);
    job.signal(&place.heat, Signal::CONT);
    job.succeed();
    for (name, frames) in [("heat-1.h5", 10), ("heat-2.h5", flushes), ("heat-3.h5", 10)] {
        place.shows(name, frames);
    }
    place.shows("heat-4.h5", FRAMES);
}
