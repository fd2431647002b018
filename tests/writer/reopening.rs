//! Reopened files: their content, the programs that see it, and refused operations.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::mpirun::{Job, program};
use crate::common::numbers::Numbers;
use crate::common::readers::{Python, project, said};
use crate::common::{Mounted, PROGRAM, User, can_mount, is_root};

/// Bytes before the data of a log.
const FRONT: usize = 8192;

/// A directory for one test with a log.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    /// A directory with a file of the project.
    fn with(source: &str) -> Self {
        let place = Self::new();
        fs::copy(project().join(source), place.log()).unwrap();
        place
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    fn log(&self) -> PathBuf {
        self.dir().join("log.h5")
    }

    fn journal(&self) -> PathBuf {
        self.dir().join("log.h5.h5logfs-journal")
    }

    fn start(&self, ranks: u32, what: &str) -> Job {
        let log = self.log();
        Job::start(
            ranks,
            &program("writer-port"),
            &[what, log.to_str().unwrap()],
        )
    }

    /// A log of `writer-pattern`, unclosed or closed.
    fn of_pattern(flushes: u32, subfiles: u32, closed: bool) -> Self {
        let place = Self::new();
        let notes = tempfile::tempdir().unwrap();
        let numbers = [flushes, subfiles].map(|n| n.to_string());
        let log = place.log();
        let arguments = [log.to_str().unwrap(), notes.path().to_str().unwrap()];
        let arguments = [&arguments[..], &[&numbers[0], &numbers[1]]].concat();
        Job::start(2, &program("writer-pattern"), &arguments).succeed();
        if !closed {
            place.start(1, "leave").succeed();
        }
        place
    }

    /// All files with their content.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        Self::files_in(self.dir())
    }

    fn files_in(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        let mut dirs = vec![dir.to_owned()];
        while let Some(dir) = dirs.pop() {
            for path in fs::read_dir(dir)
                .unwrap()
                .map(|entry| entry.unwrap().path())
            {
                if path.is_dir() {
                    dirs.push(path);
                } else {
                    let bytes = fs::read(&path).unwrap();
                    files.push((path, bytes));
                }
            }
        }
        files.sort();
        files
    }

    /// Checks that the log is not reopened, for a reason with these words, and nothing changes.
    #[track_caller]
    fn refuses(&self, words: &[&str]) {
        let before = self.files();
        let said = self.start(2, "open").fail();
        for word in words.iter().chain(&["log.h5", "open failed on rank 0"]) {
            assert!(said.contains(word), "no {word:?} in: {said}");
        }
        assert!(self.files() == before, "something has changed");
    }

    fn h5logfs(&self, command: &str) -> String {
        let output = Command::new(PROGRAM).arg(command).arg(self.log()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", said(&output));
        said(&output)
    }
}

/// The content after `writer-port reopening` on four ranks.
const CONTINUED: &str = "
import sys, h5py
with h5py.File(sys.argv[1], 'r') as f:
    series, ranks = f['air/series'], 4
    # The last job had two ranks.
    wanted = [[s * 100. + r if s < 6 or r < 2 else 0 for r in range(ranks)] for s in range(9)]
    assert series[:].tolist() == wanted, series[:].tolist()
    wanted = [(r, s) for s in range(9) for r in range(ranks if s < 6 else 2) for _ in range(r)]
    assert [tuple(e) for e in f['events'][:].tolist()] == wanted, f['events'][:]
    assert f['events'].chunks == (8,) and f['events'].compression == 'gzip'
    assert h5py.h5ds.is_scale(f['events'].id) and f['events'].attrs['NAME'] == b'event'
    assert f['air/limits'][:].tolist() == [0, 0] and f['air/limits'].attrs['units'] == 'Pa'
    assert dict(f.attrs) == {'title': 'begun'}, dict(f.attrs)
";

#[test]
fn a_log_goes_on_where_earlier_jobs_ended() {
    let place = Place::new();
    place.start(4, "reopening").succeed();
    assert!(!place.journal().exists());
    assert!(place.h5logfs("check").contains("good"));
    let shown = place.dir().join("shown.h5");
    let mut export = Command::new(PROGRAM);
    let output = export.arg("export").arg(place.log()).arg(&shown).output();
    assert!(output.unwrap().status.success());
    for python in Python::all() {
        python.run(CONTINUED, &[&shown]);
    }
}

/// Fails unless the files equal those of the same log after a close by another process.
fn same_but_times(files: &[(PathBuf, Vec<u8>)], others: &[(PathBuf, Vec<u8>)], about: &str) {
    assert_eq!(files.len(), others.len(), "{about}");
    for ((path, bytes), (_, others)) in files.iter().zip(others) {
        let about = format!("{about}: {}", path.display());
        assert_eq!(bytes.len(), others.len(), "{about}");
        let differ = (0..bytes.len()).filter(|at| bytes[*at] != others[*at]);
        // The seal of the close has a sum over the front, and its own checksum.
        let is_sum = |at: &usize| (4064..4072).contains(at) || (4092..4096).contains(at);
        let differ: Vec<usize> = differ.filter(|at| !is_sum(at)).collect();
        // The front contains the times of `_ld_0` and `_md_0`, of 4 bytes.
        let times = differ.len() <= 8 && differ.iter().all(|at| *at < FRONT);
        assert!(times, "{about} at {differ:?}");
    }
}

/// A file as a crash may leave it after a close has begun: a front, and any sectors of a part of what follows the
/// data.
fn half_closed(before: &[u8], closed: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut left = before.to_vec();
    if numbers.one_in(2) {
        left[..FRONT].copy_from_slice(&closed[..FRONT]);
    }
    let end = before.len() + numbers.index(closed.len() - before.len() + 1);
    left.extend(&closed[before.len()..end]);
    for sector in left[before.len()..].chunks_mut(512) {
        if numbers.one_in(3) {
            sector.fill(0);
        }
    }
    left
}

/// All ranks of a job close a log with data of earlier jobs: files with several of its ranks, one, or none.
#[test]
fn ranks_close_a_log_as_one_process_does() {
    let mut numbers = Numbers(7);
    for (ranks, what) in [
        (4, "again"),
        (7, "again"),
        (4, "again-subfiles"),
        (7, "again-subfiles"),
    ] {
        let place = Place::new();
        place.start(ranks, what).succeed();
        assert!(!place.journal().exists());
        assert!(place.h5logfs("check").contains("good"));
        // The files before the close.
        let copy = Place(tempfile::tempdir().unwrap());
        let before = Place::files_in(&place.dir().join("copy"));
        fs::remove_dir_all(place.dir().join("copy")).unwrap();
        let closed = place.files();
        for turn in 0..6 {
            for (path, bytes) in &before {
                let name = path.strip_prefix(place.dir().join("copy")).unwrap();
                let path = copy.dir().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let closed = closed.iter().find(|(path, _)| path.ends_with(name));
                let left = match closed {
                    Some((_, closed)) if turn > 0 => half_closed(bytes, closed, &mut numbers),
                    _ => bytes.clone(),
                };
                fs::write(path, left).unwrap();
            }
            assert!(copy.h5logfs("check").contains("good"));
            let said = copy.h5logfs("recover");
            // The close may be complete.
            let is_closed =
                said.contains("recovered 13 flushes") || said.contains("removed its journal");
            assert!(is_closed, "{said}");
            let about = format!("{what} of {ranks} ranks, turn {turn}");
            same_but_times(&copy.files(), &closed, &about);
        }
    }
}

#[test]
fn what_the_writer_did_not_make_is_refused() {
    let other = "this is not a log of h5logfs";
    // A log of the Log VOL connector, plain HDF5, and nothing.
    Place::with("tests/corpus/records.log.h5").refuses(&[other]);
    Place::with("tests/corpus/records.expected.h5").refuses(&[other]);
    Place::new().refuses(&["there is no such file"]);
}

#[test]
fn what_an_hdf5_program_has_added_since_stays() {
    let Some(python) = Python::new() else {
        return;
    };
    let place = Place::of_pattern(3, 0, true);
    let change = "
import sys, h5py
with h5py.File(sys.argv[1], 'r+') as f:
    f['air/again'] = h5py.SoftLink('/steps')
    f['air'].attrs['steps'] = f['steps'].ref
";
    python.run(change, &[&place.log()]);
    place.start(2, "open").succeed();
    assert!(!place.journal().exists());
    assert!(place.h5logfs("check").contains("good"));
    let look = "
import sys, h5py
with h5py.File(sys.argv[1], 'r') as f:
    assert f['air'].get('again', getlink=True).path == '/steps'
    assert f[f['air'].attrs['steps']] == f['steps']
";
    python.run(look, &[&place.log()]);
}

#[test]
fn a_job_that_runs_keeps_its_log() {
    let place = Place::new();
    let notes = tempfile::tempdir().unwrap();
    let log = place.log();
    let arguments = [
        log.to_str().unwrap(),
        notes.path().to_str().unwrap(),
        "1000000",
    ];
    let mut job = Job::start(1, &program("writer-pattern"), &arguments);
    let acknowledged = notes.path().join("acknowledged");
    crate::common::wait_until("the job has flushed", || {
        fs::read_to_string(&acknowledged).is_ok_and(|said| said.contains("\n3\n"))
    });
    let pid = fs::read_to_string(notes.path().join("pid.0")).unwrap();
    let said = place.start(2, "open").fail();
    let words = format!("another job writes it: process {pid} ");
    assert!(said.contains(&words), "{said}");
    job.kill();
    // Now the lock is free.
    place.start(2, "open").succeed();
    assert!(place.h5logfs("check").contains("good"));
}

#[test]
fn a_log_that_cannot_be_trusted_is_refused() {
    // A damaged line hides flushes.
    let place = Place::of_pattern(3, 0, false);
    let mut journal = fs::read_to_string(place.journal()).unwrap();
    journal.push_str("00000000 {}\n00000000 {\"commit\":{\"flush\":9,\"ends\":[9999]}}\n");
    fs::write(place.journal(), &journal).unwrap();
    place.refuses(&["is damaged", "`h5logfs recover --last-flush"]);
    // Without the journal the flushes are unknown.
    fs::remove_file(place.journal()).unwrap();
    place.refuses(&["it was not closed", "its journal is not there"]);
    // A part of the data is missing.
    let place = Place::of_pattern(3, 2, false);
    let subfile = place.dir().join("log.h5.subfiles/log.h5.1");
    let file = fs::File::options().write(true).open(&subfile).unwrap();
    file.set_len(9000).unwrap();
    place.refuses(&["log.h5.1", "9000 bytes"]);
    fs::remove_file(&subfile).unwrap();
    place.refuses(&["log.h5.1"]);
    // Extents that cannot be followed.
    let place = Place::of_pattern(3, 0, true);
    let mut bytes = fs::read(place.log()).unwrap();
    bytes[8192] ^= 1;
    fs::write(place.log(), bytes).unwrap();
    place.refuses(&["no extent", "byte 8192"]);
}

/// Its new flushes would go into files with the new name, while the old ones keep theirs.
#[test]
fn a_renamed_log_with_subfiles_is_refused() {
    let place = Place::of_pattern(3, 2, true);
    let renamed = place.dir().join("log.h5.subfiles");
    for number in [0, 1] {
        let subfile = |base: &str| renamed.join(format!("{base}.{number}"));
        fs::rename(subfile("log.h5"), subfile("old.h5")).unwrap();
    }
    assert!(place.h5logfs("check").contains("good"));
    place.refuses(&["log.h5.subfiles/log.h5.0"]);
}

/// Readers do not use the journal of another user, so the job must not either.
#[test]
fn a_journal_of_another_user_is_refused() {
    if !is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let place = Place::of_pattern(3, 0, false);
    chown(place.journal(), Some(1), None).unwrap();
    place.refuses(&["log.h5.h5logfs-journal", "user 1"]);
}

/// Reads rows of a dataset: the first ones before the file is reopened, the others afterwards.
const READS: &str = "
import sys, h5py
file = h5py.File(sys.argv[1], 'r')
steps = file['steps']
print(len(steps), flush=True)
sys.stdin.readline()
try:
    print(steps[:].tolist() == [0 if s % 13 == 0 else s * s for s in range(1, len(steps) + 1)])
except OSError as error:
    print(error)
";

/// The output of a program that has the log open through a mount while the log is reopened.
fn read_across(place: &Place, python: &Python) -> String {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    let mounted = Mounted::new(place.dir(), "");
    let mut reader = python.command();
    let reader = reader.args(["-c", READS]).arg(mounted.join("log.h5"));
    let mut reader = reader
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(reader.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "4\n");
    place.start(2, "open").succeed();
    reader.stdin.take().unwrap().write_all(b"\n").unwrap();
    line.clear();
    output.read_line(&mut line).unwrap();
    assert!(reader.wait().unwrap().success());
    line
}

#[test]
fn open_views_go_on() {
    let Some(python) = Python::new().or_else(Python::old) else {
        return;
    };
    if !can_mount(User::Caller) {
        return;
    }
    // Bytes before the last flush do not change.
    let unclosed = Place::of_pattern(3, 0, false);
    assert_eq!(read_across(&unclosed, &python), "True\n");
    // The table of the closed log is gone: its content is found in the extents.
    let closed = Place::of_pattern(3, 0, true);
    assert_eq!(read_across(&closed, &python), "True\n");
}
