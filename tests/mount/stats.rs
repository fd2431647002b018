//! Monitoring a mount: its virtual files, signals and log.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::clock::settle;
use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::readers::{Python, corpus, said};
use crate::common::{
    Mounted, PROGRAM, User, can_act, can_mount, errno, is_running, mount, mount_type, names_in,
    wait_until,
};

const JSON: &str = ".h5logfs/stats";
const PROMETHEUS: &str = ".h5logfs/stats.prom";

/// Side of the dataset in [`columns`]: a chunk of 1 MiB.
const SIDE: u64 = 1024;

/// A log file with a dataset of one chunk, assembled from columns.
fn columns(path: &Path) {
    let dataset = Dataset::new("columns", 0, Type::U8, &[SIDE, SIDE]);
    let entries = (0..SIDE / 64).map(|n| {
        let data = vec![n as u8 + 1; 64 * SIDE as usize];
        Entry::one(0, &[0, 64 * n], &[SIDE, 64], data)
    });
    LogFile::with(vec![dataset], entries.collect()).write(path);
}

/// A source with a log file, a plain file, and a broken log file.
fn dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    columns(&dir.path().join("view.h5"));
    fs::write(dir.path().join("plain"), vec![7; 300_000]).unwrap();
    broken(&dir.path().join("broken.h5"));
    dir
}

/// A log file without its subfiles.
fn broken(path: &Path) {
    fs::copy(corpus().join("subfile.log.h5"), path).unwrap();
}

fn stats(mounted: &Mounted) -> Value {
    serde_json::from_slice(&fs::read(mounted.join(JSON)).unwrap()).unwrap()
}

fn number(stats: &Value, pointer: &str) -> u64 {
    let value = stats.pointer(pointer).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("{pointer} is missing in {stats:#}"))
}

/// A mount whose messages go to a file. It counts reads of plain files, too.
fn with_log(source: &Path) -> (TempDir, PathBuf, Mounted) {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let options = format!("nopassthrough,index_dir=none,log_file={}", log.display());
    let mounted = Mounted::new(source, &options);
    (dir, log, mounted)
}

fn wait_for_line(log: &Path, words: &str) {
    let what = format!("the log says: {words}");
    wait_until(&what, || fs::read_to_string(log).unwrap().contains(words));
}

// --- what is counted -----------------------------------------------------------------------------

#[test]
fn what_was_done_is_counted() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir();
    let (_logs, _, mounted) = with_log(dir.path());
    let fresh = stats(&mounted);
    for pointer in [
        "/opens/views",
        "/opens/handles",
        "/reads/time/count",
        "/scans/started",
    ] {
        assert_eq!(number(&fresh, pointer), 0, "{pointer}");
    }
    assert_eq!(fresh["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(fresh["mountpoint"], mounted.path().to_str().unwrap());

    // Direct reads reach the daemon unchanged.
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(OFlags::DIRECT.bits() as i32);
    let (view, plain) = (
        options.open(mounted.join("view.h5")).unwrap(),
        options.open(mounted.join("plain")).unwrap(),
    );
    let mut piece = vec![0; 4096];
    for number in 0..10 {
        plain.read_exact_at(&mut piece, number * 4096).unwrap();
    }
    // Bytes requested past the end of a file are not delivered.
    let size = view.metadata().unwrap().len();
    let last = (size - 1) / 4096 * 4096;
    let rest = view.read_at(&mut piece, last).unwrap() as u64;
    assert_eq!(rest, size - last);
    // The chunk, twice.
    let chunks = size - SIDE * SIDE;
    for _ in 0..2 {
        view.read_exact_at(&mut piece, chunks.next_multiple_of(4096))
            .unwrap();
    }
    assert_eq!(
        errno(File::open(mounted.join("broken.h5"))),
        Some(Errno::IO)
    );

    let now = stats(&mounted);
    assert_eq!(number(&now, "/opens/views"), 1);
    assert_eq!(number(&now, "/opens/plain"), 1);
    assert_eq!(number(&now, "/opens/failed"), 1);
    assert_eq!(number(&now, "/opens/time/count"), 3);
    assert_eq!(number(&now, "/opens/handles"), 2);
    assert!(number(&now, "/lookups") >= 3);
    assert_eq!(number(&now, "/reads/time/count"), 13);
    assert_eq!(number(&now, "/reads/failed"), 0);
    assert_eq!(number(&now, "/reads/bytes_asked"), 13 * 4096);
    assert_eq!(number(&now, "/reads/bytes_returned"), 12 * 4096 + rest);
    // The last page of the file belongs to a chunk, too.
    assert_eq!(number(&now, "/cache/misses"), 1);
    assert_eq!(number(&now, "/cache/hits"), 2);
    assert_eq!(number(&now, "/cache/time/count"), 1);
    assert!(number(&now, "/reads/log_bytes") >= SIDE * SIDE);
    assert!(number(&now, "/memory/cache_size/used") >= SIDE * SIDE);
    assert_eq!(number(&now, "/memory/cache_size/limit"), 256 << 20);
    assert!(number(&now, "/memory/index_memory/used") > 0);
    assert_eq!(number(&now, "/scans/started"), 2);
    assert_eq!(number(&now, "/scans/failed"), 1);
    assert_eq!(number(&now, "/scans/time/count"), 2);
    assert_eq!(number(&now, "/scans/from_kept_index"), 0);
    assert!(number(&now, "/process/resident_bytes") > 1 << 20);
    assert!(number(&now, "/process/descriptors") > 3);

    drop((view, plain));
    wait_until("the files are closed", || {
        number(&stats(&mounted), "/opens/handles") == 0
    });
}

#[test]
fn reads_that_fail_are_counted() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("view.h5");
    columns(&log);
    let (_logs, _, mounted) = with_log(dir.path());
    let file = File::open(mounted.join("view.h5")).unwrap();
    let size = file.metadata().unwrap().len();
    // Under the open file.
    OpenOptions::new()
        .append(true)
        .open(&log)
        .unwrap()
        .set_len(size + 1)
        .unwrap();
    let outcome = file.read_at(&mut [0; 100], size - 100);
    assert_eq!(errno(outcome), Some(Errno::IO));
    let now = stats(&mounted);
    let failed = number(&now, "/reads/failed");
    assert!(failed > 0 && failed <= number(&now, "/reads/time/count"));
    assert_eq!(number(&now, "/reads/bytes_returned"), 0);
}

#[test]
fn what_is_kept_from_an_earlier_daemon_is_no_scan() {
    if !can_mount(User::Caller) {
        return;
    }
    let (dir, kept) = (dir(), tempfile::tempdir().unwrap());
    settle(dir.path());
    let options = format!("index_dir={}", kept.path().join("own").display());
    for (scans, kept) in [(1, 0), (0, 1)] {
        let mounted = Mounted::new(dir.path(), &options);
        drop(File::open(mounted.join("view.h5")).unwrap());
        let now = stats(&mounted);
        assert_eq!(number(&now, "/scans/started"), scans);
        assert_eq!(number(&now, "/scans/from_kept_index"), kept);
    }
}

// --- how it is shown -----------------------------------------------------------------------------

/// Parses the text format strictly. Each family is contiguous, and has a help and a type. Samples are returned by name
/// and labels, without the label of the mount.
fn parse_prometheus(text: &str, mountpoint: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut family, mut kind) = ("", "");
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!help.is_empty() && !kinds.contains_key(name), "{line}");
            (family, kind) = (name, "");
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').unwrap();
            assert!(name == family && kind.is_empty(), "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&of), "{line}");
            assert_eq!(of == "counter", name.ends_with("_total"), "{line}");
            kinds.insert(name, of);
            kind = of;
            continue;
        }
        let (name, rest) = line.split_once('{').unwrap();
        let (labels, value) = rest.rsplit_once("} ").unwrap();
        let suffixes: &[&str] = match kind {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let own = suffixes.iter().any(|s| name == format!("{family}{s}"));
        assert!(own, "{line} belongs to {family}");
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.chars().all(plain), "{line}");
        let mount = format!("mountpoint=\"{mountpoint}\"");
        let labels = labels.strip_prefix(&mount).unwrap();
        let value: f64 = value.parse().unwrap();
        let old = samples.insert(format!("{name}{}", labels.replace(',', " ")), value);
        assert!(old.is_none() && value >= 0.0, "{line}");
    }
    for (name, _) in kinds.iter().filter(|(_, kind)| **kind == "histogram") {
        let bucket = format!("{name}_bucket ");
        let buckets = samples
            .iter()
            .filter(|(sample, _)| sample.starts_with(&bucket));
        let mut buckets: Vec<(f64, f64)> = buckets
            .map(|(sample, count)| {
                let le = sample.split('"').nth(1).unwrap();
                (le.parse().unwrap(), *count)
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.len() > 20 && buckets.is_sorted_by_key(|(_, count)| *count));
        let (last, all) = *buckets.last().unwrap();
        assert!(last.is_infinite() && all == samples[&format!("{name}_count")]);
    }
    samples
}

#[test]
fn both_formats_say_the_same() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir();
    let (_logs, _, mounted) = with_log(dir.path());
    fs::read(mounted.join("view.h5")).unwrap();
    fs::read(mounted.join("plain")).unwrap();
    assert!(fs::read(mounted.join("broken.h5")).is_err());
    wait_until("the files are closed", || {
        number(&stats(&mounted), "/opens/handles") == 0
    });
    let json = stats(&mounted);
    let text = fs::read_to_string(mounted.join(PROMETHEUS)).unwrap();
    let samples = parse_prometheus(&text, mounted.path().to_str().unwrap());
    let pairs = [
        ("/opens/views", "opens_total kind=\"view\""),
        ("/opens/plain", "opens_total kind=\"plain\""),
        ("/opens/failed", "open_errors_total"),
        ("/opens/handles", "open_handles"),
        ("/opens/time/count", "open_duration_seconds_count"),
        ("/lookups", "lookups_total"),
        ("/reads/failed", "read_errors_total"),
        ("/reads/bytes_asked", "read_asked_bytes_total"),
        ("/reads/bytes_returned", "read_returned_bytes_total"),
        ("/reads/log_bytes", "log_read_bytes_total"),
        ("/reads/time/count", "read_duration_seconds_count"),
        ("/cache/hits", "cache_hits_total"),
        ("/cache/misses", "cache_misses_total"),
        ("/cache/made_ahead", "cache_made_ahead_total"),
        ("/cache/time/count", "chunk_duration_seconds_count"),
        (
            "/memory/cache_size/used",
            "memory_used_bytes limit=\"cache_size\"",
        ),
        (
            "/memory/cache_size/limit",
            "memory_limit_bytes limit=\"cache_size\"",
        ),
        (
            "/memory/index_memory/used",
            "memory_used_bytes limit=\"index_memory\"",
        ),
        (
            "/memory/index_memory/limit",
            "memory_limit_bytes limit=\"index_memory\"",
        ),
        ("/scans/started", "scans_total"),
        ("/scans/failed", "scan_errors_total"),
        ("/scans/from_kept_index", "kept_scans_total"),
        ("/scans/worker_failures", "worker_failures_total"),
        ("/scans/time/count", "scan_duration_seconds_count"),
        ("/process/descriptor_limit", "max_fds"),
    ];
    for (pointer, sample) in pairs {
        let sample = samples.get(&format!("h5logfs_{sample}"));
        assert_eq!(sample, Some(&(number(&json, pointer) as f64)), "{pointer}");
    }
    let version = format!(
        "h5logfs_build_info version=\"{}\"",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(samples[&version], 1.0);
    for (pointer, sample) in [
        ("/reads/time/sum", "read_duration_seconds_sum"),
        ("/scans/time/sum", "scan_duration_seconds_sum"),
        ("/start_time", "start_time_seconds"),
    ] {
        let value = json.pointer(pointer).and_then(Value::as_f64).unwrap();
        assert_eq!(samples[&format!("h5logfs_{sample}")], value, "{pointer}");
        assert!(value > 0.0);
    }
    assert!(samples["h5logfs_uptime_seconds"] >= json["uptime"].as_f64().unwrap());
    let [size, plain] =
        ["view.h5", "plain"].map(|name| fs::metadata(mounted.join(name)).unwrap().len());
    assert_eq!(number(&json, "/reads/bytes_returned"), size + plain);
}

#[test]
fn any_program_reads_the_virtual_files() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir();
    let (_logs, _, mounted) = with_log(dir.path());
    for (program, arguments) in [
        ("cat", &[][..]),
        ("grep", &["-h", ""]),
        ("tail", &["-n", "+1"]),
    ] {
        for name in [JSON, PROMETHEUS] {
            let output = Command::new(program)
                .args(arguments)
                .arg(mounted.join(name))
                .output();
            let output = output.unwrap();
            assert!(output.status.success(), "{program}: {}", said(&output));
            let text = String::from_utf8(output.stdout).unwrap();
            match name {
                JSON => {
                    let _: Value = serde_json::from_str(&text).unwrap();
                }
                _ => drop(parse_prometheus(&text, mounted.path().to_str().unwrap())),
            }
        }
    }
    let copies = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .args(["-r", "--"])
        .args([&mounted.join(".h5logfs"), copies.path()])
        .output()
        .unwrap();
    assert!(copied.status.success(), "{}", said(&copied));
    let copy = fs::read(copies.path().join(JSON)).unwrap();
    let _: Value = serde_json::from_slice(&copy).unwrap();
    for python in Python::all() {
        let code = "import json, sys; print(json.load(open(sys.argv[1]))['version'])";
        let version = python.run(code, &[&mounted.join(JSON)]);
        assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    }
}

/// A client that reads piece by piece sees one state.
#[test]
fn a_virtual_file_is_as_it_was_when_it_was_opened() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir();
    let (_logs, _, mounted) = with_log(dir.path());
    let mut open = File::open(mounted.join(JSON)).unwrap();
    let mut text = vec![0; 10];
    open.read_exact(&mut text).unwrap();
    fs::read(mounted.join("plain")).unwrap();
    open.read_to_end(&mut text).unwrap();
    let then: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(number(&then, "/opens/plain"), 0);
    assert_eq!(number(&stats(&mounted), "/opens/plain"), 1);
}

#[test]
fn the_directory_is_found_by_name_and_not_listed() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir();
    // A file of this name in the source is hidden.
    fs::create_dir(dir.path().join(".h5logfs")).unwrap();
    fs::write(dir.path().join(JSON), "forged").unwrap();
    fs::create_dir_all(dir.path().join("inner/.h5logfs")).unwrap();
    let (_logs, _, mounted) = with_log(dir.path());
    for _ in 0..2 {
        assert_eq!(
            names_in(mounted.path()),
            ["broken.h5", "inner", "plain", "view.h5"]
        );
        assert_eq!(
            names_in(&mounted.join(".h5logfs")),
            ["at", "stats", "stats.prom"]
        );
    }
    assert_eq!(names_in(&mounted.join("inner")), [".h5logfs"]);
    assert_eq!(names_in(&mounted.join("inner/.h5logfs")), [""; 0]);
    stats(&mounted);
    let own = rustix::process::geteuid().as_raw();
    for (name, mode) in [
        (".h5logfs", 0o040_555),
        (JSON, 0o100_444),
        (PROMETHEUS, 0o100_444),
    ] {
        let metadata = fs::metadata(mounted.join(name)).unwrap();
        assert_eq!(
            (metadata.mode(), metadata.uid(), metadata.len()),
            (mode, own, 0)
        );
        let outcome = OpenOptions::new().append(true).open(mounted.join(name));
        assert!(outcome.is_err());
    }
    let none = mounted.join(".h5logfs/none");
    assert_eq!(errno(fs::metadata(none)), Some(Errno::NOENT));
}

/// All users may open them, and each open one takes memory of the daemon.
#[test]
fn only_so_many_may_be_open() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir();
    let (_logs, _, mounted) = with_log(dir.path());
    let open = |name: &str| File::open(mounted.join(name));
    let held: Vec<File> = (0..1024).map(|_| open(JSON).unwrap()).collect();
    assert_eq!(errno(open(PROMETHEUS)), Some(Errno::MFILE));
    assert!(open("plain").is_ok());
    drop(held);
    wait_until("they are closed", || open(PROMETHEUS).is_ok());
}

#[test]
fn a_single_file_has_them_too() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir();
    let mounted = Mounted::new(&dir.path().join("plain"), "index_dir=none");
    assert_eq!(names_in(mounted.path()), ["plain"]);
    fs::read(mounted.join("plain")).unwrap();
    assert_eq!(number(&stats(&mounted), "/opens/plain"), 1);
}

#[test]
fn an_ordinary_user_may_look() {
    if !can_mount(User::Nobody) {
        return;
    }
    let dir = User::Nobody.dir();
    fs::write(dir.path().join("plain"), "text").unwrap();
    let mounted = Mounted::by(User::Nobody, dir.path(), "index_dir=none");
    let read = User::Nobody
        .command("cat")
        .arg(mounted.join(JSON))
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", said(&read));
    // Not even root gets in without allow_other.
    assert!(fs::read(mounted.join(JSON)).is_err());
}

#[test]
fn others_may_look_where_they_get_in() {
    if !can_mount(User::Caller) || !can_act(User::Nobody) {
        return;
    }
    let (source, outer) = (dir(), tempfile::tempdir().unwrap());
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    for path in [source.path(), outer.path()] {
        fs::set_permissions(path, fs::Permissions::clone(&open)).unwrap();
    }
    let place = tempfile::tempdir_in(outer.path()).unwrap();
    let output = mount(
        User::Caller,
        source.path(),
        place.path(),
        "allow_other,index_dir=none",
    );
    assert!(output.status.success(), "{}", said(&output));
    let mounted = Mounted::at(User::Caller, place);
    let read = User::Nobody
        .command("cat")
        .arg(mounted.join(JSON))
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", said(&read));
}

// --- signals -------------------------------------------------------------------------------------

#[test]
fn sigusr1_writes_the_state_to_the_log() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir();
    let (_logs, log, mounted) = with_log(dir.path());
    fs::read(mounted.join("plain")).unwrap();
    mounted.send(Signal::USR1);
    wait_for_line(&log, "failures of workers");
    let text = fs::read_to_string(&log).unwrap();
    let state: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("state: "))
        .collect();
    assert_eq!(state.len(), 4, "{text}");
    assert!(
        text.contains("0 views and 1 plain files opened, 0 failed"),
        "{text}"
    );
    assert!(text.contains("returned 300000 of "), "{text}");
    assert!(is_running(mounted.daemon));
}

#[test]
fn sighup_drops_caches_and_open_files_go_on() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir();
    let (_logs, log, mounted) = with_log(dir.path());
    let view = File::open(mounted.join("view.h5")).unwrap();
    let whole = fs::read(mounted.join("view.h5")).unwrap();
    assert!(fs::read(mounted.join("broken.h5")).is_err());
    assert!(number(&stats(&mounted), "/memory/cache_size/used") > 1 << 20);
    // A failure is remembered for ten seconds, unless the signal comes.
    let subfiles = PathBuf::from("subfile.log.h5.subfiles");
    let to = dir.path().join("broken.h5.subfiles");
    fs::create_dir(&to).unwrap();
    for file in fs::read_dir(corpus().join(subfiles)).unwrap().flatten() {
        let name = file.file_name().into_string().unwrap();
        let name = name.replace("subfile.log.h5", "broken.h5");
        fs::copy(file.path(), to.join(name)).unwrap();
    }
    mounted.send(Signal::HUP);
    wait_for_line(&log, "caches dropped");
    let now = stats(&mounted);
    assert_eq!(number(&now, "/memory/cache_size/used"), 0);
    assert_eq!(number(&now, "/memory/index_memory/used"), 0);
    assert!(fs::read(mounted.join("broken.h5")).is_ok());
    // An open file is still the same one, also for those who open it now.
    let scans = number(&stats(&mounted), "/scans/started");
    let (open, anew) = (
        view.metadata().unwrap(),
        fs::metadata(mounted.join("view.h5")).unwrap(),
    );
    assert_eq!(open.ino(), anew.ino());
    rustix::fs::fadvise(&view, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let mut again = vec![0; whole.len()];
    view.read_exact_at(&mut again, 0).unwrap();
    assert!(again == whole);
    let now = stats(&mounted);
    assert_eq!(number(&now, "/scans/started"), scans);
    assert!(number(&now, "/cache/time/count") >= 2);
    assert!(mount_type(mounted.path()).is_some());
}

/// A daemon in the foreground ends with its terminal, which sends the same signal.
#[test]
fn a_terminal_that_goes_ends_the_mount() {
    let Some(python) = Python::old().filter(|_| can_mount(User::Caller)) else {
        return;
    };
    let (source, place) = (dir(), tempfile::tempdir().unwrap());
    let code = "
import os, pty, sys, time
program, source, place = sys.argv[1:]
child, terminal = pty.fork()
if child == 0:
    os.execl(program, program, 'mount', '-f', '-o', 'index_dir=none', source, place)
while not os.path.ismount(place):
    time.sleep(0.02)
os.close(terminal)
print(os.waitpid(child, 0)[1], os.path.ismount(place))
";
    let mut command = python.command();
    command.args(["-c", code, PROGRAM]);
    command.args([source.path(), place.path()]);
    let mut limited = User::Caller.command("timeout");
    limited.arg("30").arg(command.get_program());
    let output = limited.args(command.get_args()).output().unwrap();
    if mount_type(place.path()).is_some() {
        drop(Mounted::at(User::Caller, place));
    }
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "0 False",
        "{}",
        said(&output)
    );
}

// --- the log -------------------------------------------------------------------------------------

#[test]
fn names_cannot_forge_lines() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let evil = b"a\n[2026-01-01T00:00:00Z ERROR h5logfs] forged\r\x1b[2J\xe2\x80\xae\xff.h5";
    let name = OsStr::from_bytes(evil);
    broken(&dir.path().join(name));
    // A user chooses the name of a dataset, too.
    let dataset = Dataset::new("b\n[2026] forged", 0, Type::U8, &[4]);
    let entry = Entry::one(0, &[0], &[4], vec![1; 4]).claiming(1 << 40, 4);
    LogFile::with(vec![dataset], vec![entry]).write(&dir.path().join("bad.h5"));
    let (_logs, log, mounted) = with_log(dir.path());
    assert!(fs::read(mounted.join(name)).is_err());
    assert!(fs::read(mounted.join("bad.h5")).is_err());
    let text = fs::read(&log).unwrap();
    let text = std::str::from_utf8(&text).unwrap();
    assert_eq!(text.matches("forged").count(), 3, "{text}");
    for line in text.lines() {
        assert!(
            line.starts_with("[20") && line.contains(" h5logfs"),
            "{line}"
        );
        let plain = |c: char| !c.is_control() && c != '\u{202e}';
        assert!(line.chars().all(plain), "{line:?}");
    }
    assert!(text.contains(r"a\n[2026-01-01T00:00:00Z"), "{text}");
}

#[test]
fn many_broken_files_do_not_fill_the_log() {
    if !can_mount(User::Caller) {
        return;
    }
    const FILES: usize = 600;
    let dir = tempfile::tempdir().unwrap();
    let first = dir.path().join("0");
    broken(&first);
    for number in 1..FILES {
        fs::copy(&first, dir.path().join(number.to_string())).unwrap();
    }
    let (_logs, log, mounted) = with_log(dir.path());
    for number in 0..FILES {
        assert!(File::open(mounted.join(number.to_string())).is_err());
    }
    let told = |text: &str| text.lines().filter(|l| l.contains("ERROR")).count();
    let text = fs::read_to_string(&log).unwrap();
    let errors = told(&text);
    assert!((200..500).contains(&errors), "{errors}");
    // Errors leave room for other messages. Some of these count the suppressed errors.
    mounted.send(Signal::TERM);
    mounted.expect_gone();
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("unmounted"), "{text}");
    let suppressed = text.lines().filter_map(|line| {
        let (before, _) = line.split_once(" messages of level ERROR about files of user ")?;
        before.rsplit(' ').next()?.parse::<usize>().ok()
    });
    let (number, lines) = suppressed.fold((0, 0), |(n, lines), more| (n + more, lines + 1));
    // A reply that no client awaits is an error, too, and concerns no file.
    let all = told(&text) - lines + number;
    assert!((FILES..FILES + 50).contains(&all), "{all} errors: {text}");
}

#[test]
fn a_log_file_that_was_moved_is_begun_anew() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir();
    let (_logs, log, mounted) = with_log(dir.path());
    let moved = log.with_extension("1");
    fs::rename(&log, &moved).unwrap();
    mounted.send(Signal::USR1);
    wait_until("there is a new file", || log.exists());
    wait_for_line(&log, "failures of workers");
    let old = fs::read_to_string(&moved).unwrap();
    assert!(
        old.contains("mounted at") && !old.contains("state: "),
        "{old}"
    );
}

#[test]
fn the_journal_gets_priorities() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir();
    for is_journal in [true, false] {
        let (logs, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let log = File::create(logs.path().join("stream")).unwrap();
        let metadata = log.metadata().unwrap();
        let inode = metadata.ino() + u64::from(!is_journal);
        let stream = format!("{}:{inode}", metadata.dev());
        let mut daemon = User::Caller
            .command(PROGRAM)
            .args(["mount", "-f", "-o", "index_dir=none"])
            .args([dir.path(), place.path()])
            .env("JOURNAL_STREAM", stream)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        wait_until("it is mounted", || mount_type(place.path()).is_some());
        let mounted = Mounted::at(User::Caller, place);
        assert!(fs::read(mounted.join("broken.h5")).is_err());
        mounted.send(Signal::TERM);
        assert!(daemon.wait().unwrap().success());
        let text = fs::read_to_string(logs.path().join("stream")).unwrap();
        let (info, error) = if is_journal {
            ("<6>", "<3>")
        } else {
            ("[20", "[20")
        };
        assert!(
            text.lines()
                .any(|l| l.starts_with(info) && l.ends_with("unmounted")),
            "{text}"
        );
        assert!(
            text.lines()
                .any(|l| l.starts_with(error) && l.contains("broken.h5")),
            "{text}"
        );
    }
}
