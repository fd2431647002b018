//! Logs that are directories: their form in a mount, and their names in commands.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::io::Errno;
use tempfile::TempDir;

use crate::common::people::*;
use crate::common::readers::said;
use crate::common::{Mounted, PROGRAM, User, can_mount, errno, names_in, wait_until};

const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

/// A source with the log `run.bp` and an ordinary directory.
fn source() -> TempDir {
    let source = open_source();
    make(&source.path().join("run.bp"));
    fs::create_dir(source.path().join("other.bp")).unwrap();
    fs::write(source.path().join("other.bp/file"), "text").unwrap();
    source
}

fn make(directory: &Path) {
    copy(&corpus("corpus-adios/b5_steps.bp"), directory);
}

/// The bytes of a view.
#[track_caller]
pub fn view(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    assert!(bytes.windows(8).take(4096).any(|b| b == SIGNATURE));
    bytes
}

/// All paths below a directory, with a letter for the kind of each.
pub fn tree(root: &Path) -> Vec<String> {
    let mut find = Command::new("find");
    let output = find
        .arg(root)
        .args(["-mindepth", "1", "-printf", "%y %P\\n"]);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut paths: Vec<String> = text.lines().map(str::to_owned).collect();
    paths.sort();
    paths
}

pub fn output(program: &str, arguments: &[&OsStr]) -> Output {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", said(&output));
    output
}

#[test]
fn a_log_directory_is_a_file_with_a_second_name() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source();
    symlink("run.bp", source.path().join("link.bp")).unwrap();
    let mounted = Mounted::new(source.path(), "index_dir=none");
    let listed = ["d other.bp", "f other.bp/file", "f run.bp", "l link.bp"];
    assert_eq!(tree(mounted.path()), listed);
    let bytes = view(&mounted.join("run.bp"));
    for name in ["run.bp.h5", "link.bp"] {
        assert!(view(&mounted.join(name)) == bytes, "{name}");
    }
    let (shown, index) = (
        mounted.join("run.bp").metadata().unwrap(),
        source.path().join("run.bp/md.idx").metadata().unwrap(),
    );
    assert_eq!(shown.len(), bytes.len() as u64);
    assert_eq!(shown.mode(), index.mode());
    assert_eq!(shown.mtime(), index.mtime());
    for below in ["run.bp/md.idx", "run.bp/md.0", "run.bp/none"] {
        assert_eq!(errno(fs::read(mounted.join(below))), Some(Errno::NOTDIR));
    }
    for none in ["other.bp.h5", "run.bp.h5.h5", ".h5", "run.h5"] {
        assert_eq!(errno(fs::read(mounted.join(none))), Some(Errno::NOENT));
    }
    let layout = rustix::fs::getxattr(
        mounted.join("run.bp"),
        "user.h5logfs.layout",
        &mut [0; 64][..],
    );
    assert!(layout.is_ok_and(|len| len > 0));
    // An existing file keeps its name.
    fs::write(source.path().join("run.bp.h5"), "another file").unwrap();
    let shown = || fs::read(mounted.join("run.bp.h5")).unwrap();
    wait_until("the file has its name", || shown() == b"another file");

    let target = tempfile::tempdir().unwrap();
    let copied = target.path().join("copy");
    output(
        "cp",
        &["-a".as_ref(), mounted.path().as_ref(), copied.as_ref()],
    );
    assert!(fs::read(copied.join("run.bp")).unwrap() == bytes);
    output("du", &["-s".as_ref(), mounted.path().as_ref()]);
    output("ls", &["-lR".as_ref(), mounted.path().as_ref()]);
}

#[test]
fn a_log_directory_is_shown_as_it_is_beside_its_file() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source();
    make(&source.path().join("taken.bp"));
    fs::write(source.path().join("taken.bp.h5"), "another file").unwrap();
    let mounted = Mounted::new(source.path(), "index_dir=none,bp=directory");
    let mut expected = tree(source.path());
    expected.push("f run.bp.h5".to_owned());
    expected.sort();
    assert_eq!(tree(mounted.path()), expected);
    view(&mounted.join("run.bp.h5"));
    assert_eq!(
        fs::read(mounted.join("taken.bp.h5")).unwrap(),
        b"another file"
    );
    for name in names_in(&source.path().join("run.bp")) {
        let name = Path::new("run.bp").join(name);
        let raw = fs::read(source.path().join(&name)).unwrap();
        assert!(fs::read(mounted.join(&name)).unwrap() == raw, "{name:?}");
    }
}

/// More names than fit into one page. A page may end between a directory and its file.
#[test]
fn long_listings_have_each_name_once() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = open_source();
    let mut expected = Vec::new();
    for number in 0..150 {
        let name = format!("{number:0width$}.bp", width = 5 + number % 61);
        make(&source.path().join(&name));
        expected.extend([format!("{name}.h5"), name]);
    }
    expected.sort();
    let mounted = Mounted::new(source.path(), "index_dir=none,bp=directory");
    assert_eq!(names_in(mounted.path()), expected);
    expected.retain(|name| !name.ends_with(".h5"));
    let mounted = Mounted::new(source.path(), "index_dir=none");
    assert_eq!(names_in(mounted.path()), expected);
    let is_file = |name: &String| mounted.join(name).metadata().unwrap().is_file();
    assert!(expected.iter().all(is_file));
}

#[test]
fn directories_that_become_logs_or_cease_to_be_ones_are_noticed() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source();
    let at = |name: &str| source.path().join(name);
    let mounted = Mounted::new(source.path(), "index_dir=none");
    let is_file = |name: &str| {
        mounted
            .join(name)
            .metadata()
            .is_ok_and(|found| found.is_file())
    };
    let is_dir = |name: &str| {
        mounted
            .join(name)
            .metadata()
            .is_ok_and(|found| found.is_dir())
    };
    assert!(is_file("run.bp") && is_dir("other.bp"));
    // The index is written when the first step is complete.
    fs::rename(at("run.bp/md.idx"), at("index")).unwrap();
    wait_until("a directory without index", || is_dir("run.bp"));
    assert!(mounted.join("run.bp/md.0").exists());
    fs::rename(at("index"), at("run.bp/md.idx")).unwrap();
    wait_until("a log again", || is_file("run.bp"));
    view(&mounted.join("run.bp"));
    fs::rename(at("run.bp"), at("moved.bp")).unwrap();
    wait_until("another name", || is_file("moved.bp") && !is_file("run.bp"));
    view(&mounted.join("moved.bp"));
    fs::write(at("run.bp"), "text").unwrap();
    wait_until("a file in its place", || {
        fs::read(mounted.join("run.bp")).is_ok_and(|b| b == b"text")
    });
    fs::remove_dir_all(at("moved.bp")).unwrap();
    wait_until("nothing is left", || !mounted.join("moved.bp").exists());
}

/// The records of a BP5 index (`docs/formats/adios-bp.md`, §3.1): type, numbers, and end offset.
fn records(index: &[u8]) -> Vec<(u8, Vec<u64>, usize)> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    let (mut records, mut at) = (Vec::new(), HEADER);
    while at < index.len() {
        let body = at + 9;
        let end = body + number(&index[at + 1..body]) as usize;
        let numbers = index[body..end].chunks_exact(8).map(number);
        records.push((index[at], numbers.collect(), end));
        at = end;
    }
    records
}

const HEADER: usize = 64;
/// Offset of the header byte that is 1 while a job writes (§1.1).
const ACTIVE: usize = 39;

/// A job appends the data of a step, then its metadata, then its record in the index.
#[test]
fn a_log_directory_that_grows_shows_the_steps_that_are_complete() {
    if !can_mount(User::Caller) {
        return;
    }
    let whole = corpus("corpus-adios/b5_steps.bp");
    let read = |name: &str| fs::read(whole.join(name)).unwrap();
    let (mut index, metadata, data) = (read("md.idx"), read("md.0"), read("data.0"));
    let steps: Vec<_> = records(&index)
        .into_iter()
        .filter(|(kind, ..)| *kind == b's')
        .collect();
    index[ACTIVE] = 1;
    let source = open_source();
    let run = source.path().join("run.bp");
    copy(&whole, &run);
    let write = |name: &str, bytes: &[u8]| fs::write(run.join(name), bytes).unwrap();
    let append = |name: &str, bytes: &[u8]| {
        let mut file = fs::File::options()
            .append(true)
            .open(run.join(name))
            .unwrap();
        file.write_all(bytes).unwrap();
    };
    write("md.idx", &index[..HEADER]);
    for name in ["md.0", "data.0"] {
        write(name, b"");
    }
    let mounted = Mounted::new(source.path(), "index_dir=none");
    let shown = mounted.join("run.bp");
    let mut held: Vec<(fs::File, Vec<u8>)> = Vec::new();
    let (mut index_end, mut metadata_end, mut data_end) = (HEADER, 0, 0);
    for (number, (_, numbers, end)) in steps.iter().enumerate() {
        let next = steps
            .get(number + 1)
            .map(|(_, numbers, _)| numbers[3] as usize);
        let next = next.unwrap_or(data.len());
        append("data.0", &data[data_end..next]);
        let next_metadata = (numbers[0] + numbers[1]) as usize;
        append("md.0", &metadata[metadata_end..next_metadata]);
        append("md.idx", &index[index_end..*end]);
        (index_end, metadata_end, data_end) = (*end, next_metadata, next);
        wait_until("the step is shown", || {
            steps_shown(&run) == number as u64 + 1
        });
        // The length may stay: steps are smaller than the alignment.
        wait_until("the file shows it", || {
            held.last()
                .is_none_or(|(_, before)| *before != view(&shown))
        });
        held.push((fs::File::open(&shown).unwrap(), view(&shown)));
    }
    // Programs with an earlier state open can still read it.
    for (mut file, bytes) in held {
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert!(read == bytes);
    }
    index[ACTIVE] = 0;
    write("md.idx", &index);
    let complete = TempDir::new().unwrap();
    let expected = complete.path().join("expected.h5");
    output(
        PROGRAM,
        &["export".as_ref(), whole.as_ref(), expected.as_ref()],
    );
    let expected = fs::read(expected).unwrap();
    assert_eq!(view(&shown).len(), expected.len());
}

/// Number of steps of the variable `time` in a log.
fn steps_shown(log: &Path) -> u64 {
    let inspected = Command::new(PROGRAM)
        .args(["inspect", "--json"])
        .arg(log)
        .output();
    let report: serde_json::Value = serde_json::from_slice(&inspected.unwrap().stdout).unwrap();
    let datasets = report["datasets"].as_array().unwrap();
    let time = datasets.iter().find(|dataset| dataset["name"] == "/time");
    time.map_or(0, |time| time["shape"][0].as_u64().unwrap_or(1))
}

#[test]
fn the_directory_of_a_log_decides_who_may_read_it() {
    if !ready() {
        return;
    }
    let source = source();
    let index = source.path().join("run.bp/md.idx");
    for part in fs::read_dir(source.path().join("run.bp")).unwrap() {
        ALICE.owns(&part.unwrap().path(), 0o644);
    }
    ALICE.owns(&source.path().join("run.bp"), 0o711);
    let mounted = mount_for_all(source.path());
    let shown = mounted.join("run.bp");
    assert_eq!(shown.metadata().unwrap().uid(), ALICE.uid);
    let bytes = view(&shown);
    // Permission to search the directory is enough.
    assert!(BOB.read(&shown).is_some_and(|read| read == bytes));
    ALICE.owns(&source.path().join("run.bp"), 0o700);
    for name in ["run.bp", "run.bp.h5"] {
        assert!(BOB.read(&mounted.join(name)).is_none(), "{name}");
        assert!(ALICE.read(&mounted.join(name)).is_some(), "{name}");
    }
    ALICE.owns(&source.path().join("run.bp"), 0o755);
    ALICE.owns(&index, 0o600);
    assert!(BOB.read(&shown).is_none() && ALICE.read(&shown).is_some());
    // The log that the index belongs to is not the log of a link.
    let elsewhere = tempfile::tempdir().unwrap();
    make(elsewhere.path().join("run.bp").as_path());
    symlink(
        elsewhere.path().join("run.bp"),
        source.path().join("out.bp"),
    )
    .unwrap();
    fs::create_dir(source.path().join("linked.bp")).unwrap();
    symlink(
        elsewhere.path().join("run.bp/md.idx"),
        source.path().join("linked.bp/md.idx"),
    )
    .unwrap();
    assert!(mounted.join("linked.bp").metadata().unwrap().is_dir());
    assert_eq!(
        errno(fs::read(mounted.join("out.bp.h5"))),
        Some(Errno::NOENT)
    );
}

#[test]
fn a_single_log_directory_can_be_mounted() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source();
    let run = source.path().join("run.bp");
    let mounted = Mounted::new(&run, "index_dir=none");
    assert_eq!(names_in(mounted.path()), ["run.bp"]);
    assert!(view(&mounted.join("run.bp")) == view(&mounted.join("run.bp.h5")));
    assert_eq!(
        errno(fs::read(mounted.join("other.bp/file"))),
        Some(Errno::NOENT)
    );
    let refused = refused(&["inspect", mounted.join("run.bp").to_str().unwrap()]);
    assert!(refused.contains(run.to_str().unwrap()), "{refused}");
    let mounted = Mounted::new(&run, "index_dir=none,bp=directory");
    assert_eq!(names_in(mounted.path()), ["run.bp", "run.bp.h5"]);
    assert!(mounted.join("run.bp/md.0").is_file());
}

/// The view has the size and time of the file, so a second run finds nothing to do.
#[test]
fn rsync_copies_a_log_directory_as_the_file_that_is_shown() {
    if !can_mount(User::Caller) {
        return;
    }
    let (source, copies) = (source(), tempfile::tempdir().unwrap());
    let mounted = Mounted::new(source.path(), "index_dir=none");
    let sync = || {
        let from = mounted.join("run.bp");
        let arguments = [
            OsStr::new("-ai"),
            from.as_os_str(),
            copies.path().as_os_str(),
        ];
        String::from_utf8(output("rsync", &arguments).stdout).unwrap()
    };
    let copied = sync();
    assert!(
        copied.starts_with(">f") && copied.lines().count() == 1,
        "{copied}"
    );
    assert!(view(&copies.path().join("run.bp")) == view(&mounted.join("run.bp")));
    assert_eq!(sync(), "");
}

/// The output of a command that must fail.
#[track_caller]
pub fn refused(arguments: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    said(&output)
}

#[test]
fn commands_take_a_log_directory_by_each_of_its_names() {
    let source = source();
    let at = |name: &str| source.path().join(name).to_str().unwrap().to_owned();
    let names = ["run.bp", "run.bp/", "run.bp/md.idx", "run.bp.h5"];
    let run = |arguments: &[&str]| {
        let output = output(
            PROGRAM,
            &arguments.iter().map(OsStr::new).collect::<Vec<_>>(),
        );
        String::from_utf8(output.stdout).unwrap()
    };
    for name in names {
        let inspected = run(&["inspect", &at(name)]);
        assert!(
            inspected.starts_with(&format!("{}: ", at("run.bp"))),
            "{inspected}"
        );
        let listed = run(&["ls", &at(name)]);
        assert!(
            listed.lines().count() == 2 && listed.contains(&at(name)),
            "{listed}"
        );
        run(&["export", "--force", &at(name), &at("out.h5")]);
        view(Path::new(&at("out.h5")));
    }
    fs::remove_file(at("out.h5")).unwrap();
    let listed = run(&["ls", "-r", &at("")]);
    assert!(
        listed.lines().count() == 2 && listed.contains("/run.bp\n"),
        "{listed}"
    );
    // The name with the suffix is free for an ordinary file.
    run(&["export", &at("run.bp"), &at("run.bp.h5")]);
    view(Path::new(&at("run.bp.h5")));
}

#[test]
fn nothing_changes_a_log_directory() {
    let source = source();
    let at = |name: &str| source.path().join(name).to_str().unwrap().to_owned();
    let before = contents(&source.path().join("run.bp"));
    let changes: &[&[&str]] = &[
        &["settle"],
        &["settle", "--undo"],
        &["settle", "--dry-run"],
        &["recover"],
        &["recover", "--unflushed"],
    ];
    for name in ["run.bp", "run.bp/", "run.bp/md.idx", "run.bp.h5"] {
        for change in changes {
            let log = at(name);
            let said = refused(&[*change, &[log.as_str()]].concat());
            assert!(said.contains("/run.bp: is a directory of ADIOS2"), "{said}");
            let instead = match change[0] {
                "settle" => "`h5logfs compact` makes an ordinary HDF5 file",
                _ => "there is nothing to recover",
            };
            assert!(said.contains(instead), "{said}");
        }
    }
    for target in [
        "run.bp",
        "run.bp/",
        "run.bp/md.idx",
        "run.bp/data.0",
        "run.bp/new.h5",
    ] {
        for command in ["export", "compact"] {
            let said = refused(&[command, "--force", &at("run.bp"), &at(target)]);
            assert!(said.contains("/run.bp: is a directory of ADIOS2"), "{said}");
        }
    }
    assert!(contents(&source.path().join("run.bp")) == before);
}

pub fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap();
    let read = |path: PathBuf| (path.clone(), fs::read(path).unwrap());
    let mut files: Vec<_> = entries.map(|entry| read(entry.unwrap().path())).collect();
    files.sort();
    files
}

/// A directory that should be a log is an error, and the log of the mount says why.
#[test]
fn a_directory_without_its_index_cannot_be_read() {
    if !can_mount(User::Caller) {
        return;
    }
    let (source, messages) = (source(), tempfile::tempdir().unwrap());
    fs::remove_file(source.path().join("run.bp/md.idx")).unwrap();
    let told = messages.path().join("log");
    let options = format!("index_dir=none,log_file={}", told.display());
    let mounted = Mounted::new(source.path(), &options);
    let opened = fs::File::open(mounted.join("run.bp"));
    assert_eq!(errno(opened), Some(Errno::IO));
    let said = fs::read_to_string(&told).unwrap();
    assert!(
        said.contains("/run.bp: is a directory of ADIOS2 without"),
        "{said}"
    );
    let names = names_in(mounted.path());
    assert_eq!(names, ["other.bp", "run.bp"]);
    drop(mounted);
    let mounted = Mounted::new(source.path(), "index_dir=none,bp=directory");
    assert!(names_in(&mounted.join("run.bp")).contains(&"data.0".to_owned()));
}
