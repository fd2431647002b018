//! `h5logfs export` and `compact`: the places to which they write, and the files that they never overwrite.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::amount::each_variant;
use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::people::{ALICE, copy, corpus};
use crate::common::unclosed;
use crate::common::{Mounted, PROGRAM, User, can_mount, is_root, messages, names_in};

/// The state of all files below a directory: their paths, inodes and bytes.
type State = Vec<(PathBuf, u64, Vec<u8>)>;

fn state(dir: &Path) -> State {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let about = path.symlink_metadata().unwrap();
        if about.is_dir() {
            found.extend(state(&path));
        } else {
            let is_file = about.is_file();
            let bytes = is_file.then(|| fs::read(&path).unwrap());
            found.push((path, about.ino(), bytes.unwrap_or_default()));
        }
    }
    found.sort();
    found
}

/// The commands that make a file from a log.
const COMMANDS: [&str; 2] = ["export", "compact"];

fn make(command: &str, arguments: &[&Path]) -> Command {
    let mut program = Command::new(PROGRAM);
    program.arg(command).args(arguments);
    program
}

/// Logs of all layouts with several files, and two of one file.
const LOGS: [&str; 7] = [
    "corpus/fill.log.h5",
    "corpus/nd.log.h5",
    "corpus/subfile.log.h5",
    "corpus/subfile.log.h5.subfiles",
    "corpus-pnetcdf/records-cdf1-np1/file.nc",
    "corpus-pnetcdf/records-cdf1-np1/file.nc_0_0.data",
    "corpus-pnetcdf/records-cdf1-np1/file.nc_0_0.meta",
];

/// A directory with copies of files of the corpus.
fn logs(names: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let from = corpus(name);
        copy(&from, &dir.path().join(from.file_name().unwrap()));
    }
    dir
}

/// The export must fail with these words, and leave all files below `dir` unchanged.
#[track_caller]
fn assert_refused(dir: &Path, command: &mut Command, words: &str) {
    let before = state(dir);
    let output = command.output().unwrap();
    let said = messages(&output);
    assert!(!output.status.success(), "it was not refused");
    assert!(said.contains(words), "no \"{words}\" in: {said}");
    assert!(output.stdout.is_empty());
    assert!(state(dir) == before, "files were changed");
}

const REPLACE: &str = "--force";
const IS_READ: &str = "is the input, so it is not overwritten";

#[test]
fn no_command_replaces_its_own_log() {
    let dir = logs(&LOGS);
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("below")).unwrap();
    let unclosed = unclosed::Log::usual(&at("run.h5"));
    let own = [
        ("fill.log.h5", "fill.log.h5"),
        ("subfile.log.h5", "subfile.log.h5"),
        ("subfile.log.h5", "subfile.log.h5.subfiles/subfile.log.h5.1"),
        ("file.nc", "file.nc"),
        ("file.nc", "file.nc_0_0.data"),
        ("file.nc", "file.nc_0_0.meta"),
        ("run.h5", "run.h5"),
        ("run.h5", "run.h5.h5logfs-journal"),
    ];
    symlink(dir.path(), at("below/link")).unwrap();
    for (command, (log, target)) in COMMANDS.iter().flat_map(|c| own.map(|own| (*c, own))) {
        let refuse = |target: &Path, words: &str| {
            let mut command = make(command, &[&at(log), target]);
            assert_refused(dir.path(), command.arg(REPLACE), words);
        };
        refuse(&at(target), IS_READ);
        refuse(&at("below/..").join(target), IS_READ);
        refuse(&at("below/link").join(target), IS_READ);
        fs::hard_link(at(target), at("other")).unwrap();
        refuse(&at("other"), IS_READ);
        fs::remove_file(at("other")).unwrap();
        symlink(at(target), at("other")).unwrap();
        refuse(&at("other"), "is a symbolic link");
        fs::remove_file(at("other")).unwrap();
        // A relative path, and another name of the log.
        fs::hard_link(at(log), at("again")).unwrap();
        let mut again = make(command, &[Path::new(log), Path::new("again")]);
        again.arg(REPLACE).current_dir(dir.path());
        assert_refused(dir.path(), &mut again, IS_READ);
        fs::remove_file(at("again")).unwrap();
        // An open file.
        let open = OpenOptions::new().read(true).write(true).open(at(target));
        let mut held = make(command, &[&at(log), Path::new("/proc/self/fd/0")]);
        held.arg(REPLACE).stdin(open.unwrap());
        assert_refused(dir.path(), &mut held, "is a symbolic link");
    }
    for command in COMMANDS {
        let other = make(command, &[&at("fill.log.h5"), &at(command)]).output();
        let other = other.unwrap();
        assert!(other.status.success(), "{}", messages(&other));
    }
    drop(unclosed);
}

#[test]
fn no_command_replaces_a_part_of_another_log() {
    let dir = logs(&LOGS);
    let at = |name: &str| dir.path().join(name);
    unclosed::Log::usual(&at("run.h5"));
    let log = at("fill.log.h5");
    let parts = [
        ("run.h5", "run.h5.h5logfs-journal is part of it"),
        ("run.h5.h5logfs-journal", "a file of the log"),
        ("subfile.log.h5", "subfile.log.h5.0 is part of it"),
        (
            "subfile.log.h5.subfiles/subfile.log.h5.0",
            "a file of the log",
        ),
        ("subfile.log.h5.subfiles/new", "a file of the log"),
        ("file.nc", "file.nc_0_0.data is part of it"),
        ("file.nc_0_0.meta", "a file of the log"),
        ("file.nc_0_1.meta", "a file of the log"),
        ("nd.log.h5.h5logfs-journal", "a file of the log"),
    ];
    for command in COMMANDS {
        for (target, words) in parts {
            let mut command = make(command, &[&log, &at(target)]);
            assert_refused(dir.path(), command.arg(REPLACE), words);
        }
    }
    fs::rename(at("run.h5.h5logfs-journal"), at("elsewhere")).unwrap();
    for command in COMMANDS {
        let mut over = make(command, &[&log, &at("run.h5")]);
        assert_refused(dir.path(), over.arg(REPLACE), "was not closed");
        // A closed log of one file is a file that the user has named.
        copy(&corpus("corpus/nd.log.h5"), &at("nd.log.h5"));
        let mut over = make(command, &[&log, &at("nd.log.h5")]);
        assert_refused(dir.path(), &mut over, "exists already");
        let output = over.arg(REPLACE).output().unwrap();
        assert!(output.status.success(), "{}", messages(&output));
        assert!(fs::read(at("nd.log.h5")).unwrap().starts_with(b"\x89HDF"));
    }
}

/// Runs a script as root in its own mount namespace; `None` where this is impossible.
fn in_namespace(dir: &Path, script: &str) -> Option<Output> {
    if !is_root() {
        eprintln!("skipped: only root can make bind mounts");
        return None;
    }
    let run = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=private", "sh", "-c", script]);
        command.current_dir(dir).env("PROGRAM", PROGRAM);
        command.output().unwrap()
    };
    if !run("mount --bind . .").status.success() {
        eprintln!("skipped: no bind mount can be made");
        return None;
    }
    Some(run(script))
}

#[test]
fn no_command_replaces_its_log_by_a_bind_mount() {
    let dir = logs(&["corpus/fill.log.h5"]);
    fs::create_dir(dir.path().join("bound")).unwrap();
    File::create(dir.path().join("file")).unwrap();
    let before = state(dir.path());
    for (bind, target) in [
        (". bound", "bound/fill.log.h5"),
        ("fill.log.h5 file", "file"),
    ] {
        for command in COMMANDS {
            let script =
                format!("mount --bind {bind} && $PROGRAM {command} --force fill.log.h5 {target}");
            let Some(output) = in_namespace(dir.path(), &script) else {
                return;
            };
            let said = messages(&output);
            assert!(!output.status.success() && said.contains(IS_READ), "{said}");
            assert!(state(dir.path()) == before);
        }
    }
}

#[test]
fn nothing_is_written_to_a_mount_or_over_what_one_shows() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = logs(&[
        "corpus/fill.log.h5",
        "corpus-pnetcdf/records-cdf1-np1/file.nc",
    ]);
    let at = |name: &str| dir.path().join(name);
    fs::write(at("plain"), "text").unwrap();
    // Without logs it is shown unchanged.
    let options = if is_root() { "allow_other" } else { "" };
    let mounted = Mounted::new(dir.path(), options);
    for command in COMMANDS {
        for target in ["new.h5", "fill.log.h5", "plain"] {
            let mut command = make(command, &[&at("fill.log.h5"), &mounted.join(target)]);
            command.arg(REPLACE);
            assert_refused(dir.path(), &mut command, "where nothing can be written");
        }
        let mut command = make(command, &[&mounted.join("file.nc"), &at("file.nc")]);
        command.args([REPLACE, "--option", "netcdf=hdf5"]);
        assert_refused(dir.path(), &mut command, IS_READ);
    }
}

#[test]
fn standard_output_gets_the_same_file() {
    let dir = logs(&["corpus/fill.log.h5", "corpus/nd.log.h5"]);
    let at = |name: &str| dir.path().join(name);
    for command in COMMANDS {
        for log in ["fill.log.h5", "nd.log.h5"].map(at) {
            let plain = at("plain.h5");
            let written = make(command, &[&log, &plain]).arg(REPLACE).status();
            assert!(written.unwrap().success());
            let piped = make(command, &[&log, Path::new("-")]).output().unwrap();
            assert!(piped.status.success() && piped.stderr.is_empty());
            assert!(piped.stdout == fs::read(&plain).unwrap());
        }
        // `./-` is a file of that name, not the standard output.
        let mut other = make(command, &[Path::new("fill.log.h5"), Path::new("./-")]);
        let output = other.current_dir(dir.path()).output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty());
        assert!(at("-").is_file());
        fs::remove_file(at("-")).unwrap();
    }
}

/// Results that cannot be a pipe.
#[test]
fn what_cannot_go_through_a_pipe_is_refused_with_a_reason() {
    let dir = logs(&["corpus/fill.log.h5"]);
    let log = dir.path().join("fill.log.h5");
    let pipe = dir.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for command in COMMANDS {
        let refuse = |arguments: &[&Path], words: &str| {
            let mut program = make(command, arguments);
            let standard_input = File::open(&log).unwrap();
            assert_refused(dir.path(), program.stdin(standard_input), words);
        };
        refuse(&[Path::new("-"), Path::new("-")], "from a pipe");
        refuse(&[&log, &pipe], "direct standard output there");
    }
    let nowhere = dir.path().join("nowhere");
    let mut command = make("compact", &[&log, Path::new("-")]);
    assert_refused(
        dir.path(),
        command.env("TMPDIR", nowhere),
        "which TMPDIR names",
    );
}

#[test]
fn a_full_device_is_an_error() {
    let log = corpus("corpus/fill.log.h5");
    for command in COMMANDS {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = make(command, &[&log, Path::new("-")]);
        let output = command
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let said = messages(&output);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("standard output: No space left"), "{said}");
    }
}

#[test]
fn standard_output_must_not_lead_into_the_log() {
    let dir = logs(&["corpus/fill.log.h5", "corpus/nd.log.h5"]);
    let log = dir.path().join("fill.log.h5");
    let run = dir.path().join("run.h5");
    unclosed::Log::usual(&run);
    let journal = dir.path().join("run.h5.h5logfs-journal");
    let to_stdout = |command: &str, log: &Path, file: File| {
        let mut command = make(command, &[log, Path::new("-")]);
        let command = command.stdout(file).stderr(Stdio::piped());
        command.output().unwrap()
    };
    for command in COMMANDS {
        for (log, target) in [(&log, &log), (&run, &run), (&run, &journal)] {
            for append in [true, false] {
                let mut open = OpenOptions::new();
                let file = open.read(true).write(true).append(append).open(target);
                let before = state(dir.path());
                let output = to_stdout(command, log, file.unwrap());
                let said = messages(&output);
                assert!(!output.status.success() && said.contains(IS_READ), "{said}");
                assert!(state(dir.path()) == before);
            }
        }
        // The user may choose any other file.
        let other = File::create(dir.path().join("other")).unwrap();
        assert!(to_stdout(command, &log, other).status.success());
    }
}

#[test]
fn a_terminal_gets_no_file() {
    let log = corpus("corpus/fill.log.h5");
    for command in COMMANDS {
        let command = format!("{PROGRAM} {command} {} -", log.display());
        let script = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .output();
        let Ok(output) = script else {
            eprintln!("skipped: script(1) is not installed");
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            !output.status.success() && said.contains("a terminal cannot show HDF5"),
            "{said}"
        );
        assert!(!said.contains("HDF\r"), "{said}");
    }
}

/// The reader of the pipe may end early, as `head` does.
#[test]
fn a_pipe_may_be_closed() {
    let log = corpus("corpus/fill.log.h5");
    for command in COMMANDS {
        let mut command = make(command, &[&log, Path::new("-")]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{}",
            messages(&output)
        );
    }
}

// --- signals -------------------------------------------------------------------------------------

/// Nobody knows whether the writer of a directory that was not closed will still write what is missing.
#[test]
fn what_an_unclosed_directory_lacks_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (log, made) = (dir.path().join("x.nc.bp"), dir.path().join("made.nc"));
    copy(&corpus("corpus-scorpio/killed_r2.nc.bp"), &log);
    let data = File::options().write(true).open(log.join("data.0"));
    let data = data.unwrap();
    data.set_len(data.metadata().unwrap().len() / 2).unwrap();
    let output = make("export", &[&log, &made]).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", messages(&output));
    let told = messages(&output);
    assert!(
        told.contains("left out, because its bytes are not there"),
        "{told}"
    );
}

/// A file that lacks what the log has lost is not made in silence, and has a status of its own.
#[test]
fn what_a_log_has_lost_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (log, made) = (dir.path().join("run.bp"), dir.path().join("made.h5"));
    copy(&corpus("corpus-adios/b5_steps.bp"), &log);
    let data = File::options().write(true).open(log.join("data.0"));
    let data = data.unwrap();
    // Two of four steps of /fields/rho are gone.
    data.set_len(data.metadata().unwrap().len() / 2).unwrap();
    for command in COMMANDS {
        let allowed = [REPLACE, "--allow-incomplete"];
        for (options, status) in [(&allowed[..1], 4), (&allowed[..], 0)] {
            let output = make(command, &[&log, &made]).args(options).output();
            let output = output.unwrap();
            let told = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(status), "{command}: {told}");
            let counts = "lacks: 2 findings, 30 elements of 1 dataset left out";
            assert!(told.contains(counts), "{command}: {told}");
            assert!(told.contains("data.0 ends at byte"), "{command}: {told}");
            assert_eq!(told.matches("warning").count(), 1, "{command}: {told}");
            assert!(made.exists());
        }
        fs::remove_file(&made).unwrap();
    }
    // Other datasets are whole.
    let whole = ["--dataset", "/coords/x"];
    let output = make("compact", &[&log, &made]).args(whole).output();
    let output = output.unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    let says = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).args(arguments).arg(&log).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let listed = says(&["ls"]);
    // 44 of 74 elements.
    assert!(listed.contains("59.4 %"), "{listed}");
    assert!(listed.contains("variable fields/rho: 2 steps"), "{listed}");
    let inspected = says(&["inspect"]);
    assert!(inspected.contains("50.0 %"), "{inspected}");
    assert!(
        inspected.contains("5 logged datasets, 1 incomplete"),
        "{inspected}"
    );
    let incomplete = says(&["inspect", "--incomplete"]);
    assert!(
        incomplete.contains("lost: 2 steps from 2 to 3"),
        "{incomplete}"
    );
}

/// A lost file takes only its own blocks away. They count as lost, and not as written.
#[test]
fn blocks_of_a_lost_file_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (log, made) = (dir.path().join("run.bp"), dir.path().join("made.h5"));
    copy(&corpus("corpus-adios/b5_mpi_agg2.bp"), &log);
    fs::remove_file(log.join("data.1")).unwrap();
    let says = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).args(arguments).arg(&log).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let incomplete = says(&["inspect", "--incomplete"]);
    assert!(incomplete.contains("data.1 is not there"), "{incomplete}");
    let half = "0 to 2: 50.0 % lost, 50.0 % written";
    assert!(incomplete.contains(half), "{incomplete}");
    assert!(
        incomplete.contains("/only_last: lost: step 1"),
        "{incomplete}"
    );
    assert!(!says(&["ls"]).contains("100.0 %"));
    let skip = ["--skip-damaged", "--allow-incomplete"];
    for (options, status) in [(&skip[..1], 4), (&skip[..], 0)] {
        let output = make("compact", &[&log, &made])
            .args(options)
            .arg(REPLACE)
            .output();
        let output = output.unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{told}");
        assert!(told.contains("parts of datasets cannot be read"), "{told}");
    }
}

/// A log of 128 MB, which takes long enough for a signal to come before the end.
fn long_log(path: &Path) {
    let (rows, columns) = (256, 1 << 16);
    let dataset = Dataset::new("d", 0, Type::F64, &[rows, columns]).chunked(&[1, columns]);
    let row = |row: u64| {
        let values = (0..columns).map(|n| (n * row % 1000) as f64);
        let bytes = values.flat_map(f64::to_le_bytes).collect();
        Entry::one(0, &[row, 0], &[1, columns], bytes)
    };
    LogFile::with(vec![dataset], (0..rows).map(row).collect()).write(path);
}

/// Waits until a command has begun to write its file in a directory.
fn wait_for_unfinished(child: &mut Child, dir: &Path) {
    let is_begun = || {
        let names = names_in(dir);
        let unfinished = names.iter().find(|n| n.starts_with(".h5logfs-unfinished-"));
        unfinished.is_some_and(|name| dir.join(name).metadata().is_ok_and(|m| m.len() > 0))
    };
    while !is_begun() {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "it ended before it could be interrupted");
    }
}

/// A signal leaves neither a temporary file nor a part of the result. Old files stay.
#[test]
fn a_signal_leaves_nothing_of_a_result() {
    let (logs, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let log = logs.path().join("log.h5");
    long_log(&log);
    let old = dir.path().join("old.h5");
    fs::write(&old, "a file of the user").unwrap();
    let before = state(dir.path());
    for command in COMMANDS {
        each_variant(&[Signal::INT, Signal::TERM, Signal::HUP], |signal| {
            for target in [&old, &dir.path().join("new.h5")] {
                let mut child = make(command, &[&log, target])
                    .arg(REPLACE)
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
                wait_for_unfinished(&mut child, dir.path());
                kill_process(Pid::from_child(&child), *signal).unwrap();
                let status = child.wait().unwrap();
                let about = format!("{command} and {signal:?}: {status}");
                assert_eq!(status.signal(), Some(signal.as_raw()), "{about}");
                assert!(state(dir.path()) == before, "{about}");
            }
        });
    }
    // Without a signal it finishes.
    assert!(
        make("export", &[&log, &old])
            .arg(REPLACE)
            .status()
            .unwrap()
            .success()
    );
}

/// A file made from logs is readable by those who may read all of them, and by nobody else.
#[test]
fn a_file_that_is_made_gives_no_wider_rights() {
    let dir = logs(&["corpus/fill.log.h5", "corpus/nd.log.h5"]);
    let [log, other, out] = ["fill.log.h5", "nd.log.h5", "out"].map(|name| dir.path().join(name));
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let mode = || out.metadata().unwrap().mode() & 0o777;
    let report = || {
        let mut report = Command::new(PROGRAM);
        report
            .arg("report")
            .args([&log, &other])
            .arg("-o")
            .arg(&out);
        report
    };
    let run = |mut command: Command| {
        // Group and others may read files of this program.
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 022 && exec \"$@\"", "sh"]);
        shell.arg(command.get_program()).args(command.get_args());
        command = shell;
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", messages(&output));
    };
    let owned_by_others = is_root();
    set(&other, 0o644);
    for (given, expected) in [
        (0o600, 0o600),
        (0o640, 0o640),
        (0o644, 0o644),
        (0o604, 0o604),
    ] {
        set(&log, given);
        for command in COMMANDS {
            run(make(command, &[&log, &out]));
            assert_eq!(mode(), expected, "{command} of {given:o}");
            fs::remove_file(&out).unwrap();
        }
        run(report());
        assert_eq!(mode(), expected, "report of {given:o}");
        fs::remove_file(&out).unwrap();
    }
    // Root's group differs from the user's.
    if owned_by_others {
        chown(&log, Some(ALICE.uid), Some(ALICE.gid)).unwrap();
        for (given, expected) in [
            (0o600, 0o600),
            (0o640, 0o600),
            (0o660, 0o600),
            (0o644, 0o644),
        ] {
            set(&log, given);
            run(make("export", &[&log, &out]));
            assert_eq!(mode(), expected, "{given:o}");
            fs::remove_file(&out).unwrap();
        }
    }
    // A replaced file may be as private as its owner wants.
    set(&log, 0o644);
    fs::write(&out, "").unwrap();
    set(&out, 0o600);
    run(make("export", &[Path::new("--force"), &log, &out]));
    assert_eq!(mode(), 0o600);
}

/// `-o` names the output, as in other programs. Options of layouts follow `--option`.
#[test]
fn the_output_may_follow_o() {
    let dir = tempfile::tempdir().unwrap();
    let log = corpus("corpus/fill.log.h5");
    for command in ["export", "compact"] {
        let at = |name: &str| dir.path().join(format!("{command}-{name}"));
        let run = |arguments: &[&Path]| make(command, arguments).output().unwrap();
        let (usual, after_o) = (at("usual.h5"), at("after-o.h5"));
        let o = Path::new("-o");
        for output in [run(&[&log, &usual]), run(&[&log, o, &after_o])] {
            assert!(output.status.success(), "{}", messages(&output));
        }
        assert!(fs::read(&usual).unwrap() == fs::read(&after_o).unwrap());
        let both = run(&[&log, &at("new.h5"), o, "subfile_dir=.".as_ref()]);
        assert_eq!(both.status.code(), Some(2));
        let tip = "options of layouts follow --option: `--option subfile_dir=.`";
        assert!(messages(&both).contains(tip), "{}", messages(&both));
    }
}
