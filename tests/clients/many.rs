//! Many clients at once, clients that die, files that change.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

use crate::common::encoder::{Dataset, Entry, Filter, LogFile, Type};
use crate::common::numbers::Numbers;
use crate::common::readers::{Python, corpus, said};
use crate::common::{Mounted, PROGRAM, User, can_mount, errno, wait_until};

/// A directory with copies of some corpus cases, including subfiles.
fn dir_of(names: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let file = format!("{name}.log.h5");
        let output = Command::new("cp")
            .arg("-r")
            .args(["-p", "--no-preserve=mode"])
            .args(copies(&corpus().join(&file)))
            .arg(dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
    dir
}

fn copies(file: &Path) -> Vec<PathBuf> {
    let mut subfiles = file.as_os_str().to_owned();
    subfiles.push(".subfiles");
    let all = [file.to_owned(), subfiles.into()];
    all.into_iter().filter(|f| f.exists()).collect()
}

fn export(file: &Path, out: &Path) {
    let output = Command::new(PROGRAM)
        .arg("export")
        .args([file, out])
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn any_offset_and_length_reads_what_the_export_holds() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir_of(&["dedup", "deflate", "subfile", "userblock", "records"]);
    let mounted = Mounted::new(dir.path(), "");
    let out = tempfile::tempdir().unwrap();
    let mut numbers = Numbers(1);
    for name in ["dedup", "deflate", "subfile", "userblock", "records"] {
        let (file, exported) = (format!("{name}.log.h5"), out.path().join(name));
        export(&dir.path().join(&file), &exported);
        let whole = fs::read(&exported).unwrap();
        let len = whole.len() as u64;
        let cached = File::open(mounted.join(&file)).unwrap();
        assert_eq!(cached.metadata().unwrap().size(), len);
        for _ in 0..400 {
            let offset = numbers.below(len + 5000);
            let scale = numbers.below(18);
            let wanted = 1 + numbers.below(1 << scale) as usize;
            let mut buf = vec![0; wanted];
            let mut got = 0;
            while let n @ 1.. = cached
                .read_at(&mut buf[got..], offset + got as u64)
                .unwrap()
            {
                got += n;
            }
            let start = offset.min(len) as usize;
            let end = (offset + wanted as u64).min(len) as usize;
            assert!(
                buf[..got] == whole[start..end.max(start)],
                "{name}: {wanted} at {offset}"
            );
        }
    }
}

const READ_ALL: &str = "
import h5py, sys
total = 0
def visit(name, x):
    global total
    if isinstance(x, h5py.Dataset) and x.shape:
        total += x[...].nbytes
for path in sys.argv[1:]:
    with h5py.File(path, 'r') as f:
        f.visititems(visit)
print(total)
";

fn reader(python: &Python, files: &[PathBuf]) -> Child {
    let mut command = python.command();
    command.args(["-c", READ_ALL]).args(files);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn sixteen_readers_at_once() {
    let pythons = Python::all();
    if pythons.is_empty() || !can_mount(User::Caller) {
        return;
    }
    let names = [
        "dedup",
        "noshare",
        "deflate",
        "strided",
        "records",
        "netcdf4_sub",
    ];
    let dir = dir_of(&names);
    let mounted = Mounted::new(dir.path(), "threads=8,cache_size=16M");
    let files = names.map(|n| mounted.join(format!("{n}.log.h5")));
    // Every second client reads the same file, the rest start at different ones.
    let readers: Vec<Child> = (0..16)
        .map(|i| {
            let mut files = files.to_vec();
            files.rotate_left(if i % 2 == 0 { 0 } else { i % 6 });
            reader(&pythons[i % pythons.len()], &files)
        })
        .collect();
    let outputs = readers.into_iter().map(|r| r.wait_with_output().unwrap());
    let totals: Vec<String> = outputs
        .map(|output| {
            assert!(output.status.success(), "{}", said(&output));
            String::from_utf8(output.stdout).unwrap()
        })
        .collect();
    assert!(totals.iter().all(|t| *t == totals[0]), "{totals:?}");
}

#[test]
fn a_reader_that_is_killed_does_not_disturb_the_others() {
    let Some(python) = Python::old() else { return };
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir_of(&["dedup"]);
    let mounted = Mounted::new(dir.path(), "");
    let file = mounted.join("dedup.log.h5");
    let endless = "
import sys
print('reading', flush=True)
while True:
    with open(sys.argv[1], 'rb', buffering=0) as f:
        while f.read(4096):
            pass
";
    for _ in 0..5 {
        let mut command = python.command();
        command
            .args(["-c", endless])
            .arg(&file)
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = [0; 7];
        child.stdout.take().unwrap().read_exact(&mut said).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let output = reader(&python, &[file]).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_file_that_changes_is_shown_anew_and_an_open_handle_keeps_what_it_opened() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir_of(&["tiny", "records", "fill"]);
    let log = dir.path().join("log.log.h5");
    fs::copy(dir.path().join("tiny.log.h5"), &log).unwrap();
    let mounted = Mounted::new(dir.path(), "");
    let shown = mounted.join("log.log.h5");
    let before = fs::read(&shown).unwrap();
    let open = File::open(&shown).unwrap();

    // Replaced: programs that have the old file open can still read it.
    let new = dir.path().join("records.log.h5");
    fs::rename(&new, &log).unwrap();
    let expected = |name: &str| {
        let out = tempfile::tempdir().unwrap();
        let out = out.path().join("export");
        fs::create_dir_all(out.parent().unwrap()).unwrap();
        export(&corpus().join(format!("{name}.log.h5")), &out);
        fs::read(&out).unwrap()
    };
    let records = expected("records");
    wait_until("the new log is shown", || {
        fs::read(&shown).unwrap() == records
    });
    let mut kept = vec![0; before.len()];
    open.read_exact_at(&mut kept, 0).unwrap();
    assert!(kept == before);

    // Rewritten in place: an open file is no longer readable, and says so.
    let open = File::open(&shown).unwrap();
    let fill = fs::read(dir.path().join("fill.log.h5")).unwrap();
    fs::write(&log, fill).unwrap();
    let later = SystemTime::now() + Duration::from_secs(5);
    File::options()
        .write(true)
        .open(&log)
        .unwrap()
        .set_modified(later)
        .unwrap();
    let fill = expected("fill");
    wait_until("the rewritten log is shown", || {
        fs::read(&shown).unwrap() == fill
    });
    let mut all = vec![0; records.len()];
    let outcome = open.read_exact_at(&mut all, 0);
    // Pages cached by the kernel belong to the state that was opened.
    assert!(outcome.is_err() || all == records);
}

#[test]
fn a_broken_log_is_listed_does_not_open_and_leaves_its_neighbours_alone() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir_of(&["truncated", "subfile", "tiny"]);
    fs::remove_dir_all(dir.path().join("subfile.log.h5.subfiles")).unwrap();
    let log = tempfile::tempdir().unwrap();
    let messages = log.path().join("messages");
    let mounted = Mounted::new(dir.path(), &format!("log_file={}", messages.display()));
    for (name, reason) in [
        ("truncated.log.h5", "truncated file"),
        ("subfile.log.h5", ".subfiles"),
    ] {
        let size = fs::metadata(dir.path().join(name)).unwrap().len();
        let shown = mounted.join(name);
        assert_eq!(fs::metadata(&shown).unwrap().len(), size);
        for _ in 0..3 {
            assert_eq!(errno(File::open(&shown)), Some(Errno::IO));
        }
        let messages = fs::read_to_string(&messages).unwrap();
        let about_it = messages.lines().filter(|l| l.contains(name));
        let lines: Vec<&str> = about_it.collect();
        assert!(lines.len() == 1 && lines[0].contains(reason), "{messages}");
    }
    let tiny = fs::read(mounted.join("tiny.log.h5")).unwrap();
    assert_eq!(&tiny[..8], b"\x89HDF\r\n\x1a\n");
}

#[test]
fn subfiles_are_hidden_and_strangers_pass_through() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir_of(&["subfile", "crash_flush"]);
    fs::copy(
        corpus().join("tiny.expected.h5"),
        dir.path().join("plain.h5"),
    )
    .unwrap();
    fs::write(dir.path().join("empty.h5"), "").unwrap();
    fs::write(dir.path().join("notes.txt"), "notes").unwrap();
    fs::create_dir(dir.path().join("other.subfiles")).unwrap();
    let mounted = Mounted::new(dir.path(), "");
    let mut names: Vec<String> = fs::read_dir(mounted.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let shown = [
        "crash_flush.log.h5",
        "empty.h5",
        "notes.txt",
        "other.subfiles",
        "plain.h5",
        "subfile.log.h5",
    ];
    assert_eq!(names, shown);
    let hidden = fs::metadata(mounted.join("subfile.log.h5.subfiles"));
    assert_eq!(errno(hidden), Some(Errno::NOENT));
    for name in ["crash_flush.log.h5", "empty.h5", "notes.txt", "plain.h5"] {
        let same =
            fs::read(mounted.join(name)).unwrap() == fs::read(dir.path().join(name)).unwrap();
        assert!(same, "{name}");
    }
    let facts = |path: &Path| {
        let m = fs::metadata(path).unwrap();
        (m.mode(), m.uid(), m.gid(), m.mtime(), m.mtime_nsec())
    };
    let log = "subfile.log.h5";
    assert_eq!(facts(&mounted.join(log)), facts(&dir.path().join(log)));
}

#[test]
fn a_log_is_scanned_once() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir_of(&["tiny", "subfile"]);
    let mounted = Mounted::new(dir.path(), "index_dir=none");
    for _ in 0..5 {
        for name in ["tiny.log.h5", "subfile.log.h5"] {
            fs::read(mounted.join(name)).unwrap();
        }
    }
    assert_eq!(mounted.scans(), 2);
}

#[test]
fn one_file_can_be_mounted_by_itself() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir_of(&["tiny", "subfile"]);
    let mounted = Mounted::new(&dir.path().join("subfile.log.h5"), "");
    let names: Vec<_> = fs::read_dir(mounted.path()).unwrap().flatten().collect();
    assert_eq!(names.len(), 1);
    let bytes = fs::read(mounted.join("subfile.log.h5")).unwrap();
    assert_eq!(&bytes[..8], b"\x89HDF\r\n\x1a\n");
}

/// `mount -t fuse.h5logfs` runs the program with these arguments.
#[test]
fn the_form_that_mount_8_uses() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = dir_of(&["tiny"]);
    let mount_point = tempfile::tempdir().unwrap();
    let mut command = User::Caller.command(PROGRAM);
    command.arg(dir.path()).arg(mount_point.path());
    let output = command.args(["-o", "rw,dev,suid,noauto"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let mounted = Mounted::at(User::Caller, mount_point);
    assert!(mounted.join("tiny.log.h5").exists());
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let mut command = Command::new("sh");
    let log = corpus().join("dedup.log.h5");
    command.args(["-c", "\"$0\" inspect --records \"$1\" | head -n 1"]);
    let output = command.arg(PROGRAM).arg(log).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", said(&output));
}

/// Sixteen thousand datasets, a record each: one scan, however often the file is opened.
#[test]
fn a_log_of_many_datasets() {
    const DATASETS: usize = 16_384;
    let Some(python) = Python::old() else { return };
    if !can_mount(User::Caller) {
        return;
    }
    let datasets = (0..DATASETS).map(|id| {
        let name = format!("d{id:05}");
        Dataset::new(&name, id as i32, Type::I32, &[3, 4])
    });
    let entries = (0..DATASETS).map(|id| {
        let data = (0..12).flat_map(|i| (id as i32 * 12 + i).to_le_bytes());
        Entry::one(id as i32, &[0, 0], &[3, 4], data.collect())
    });
    let dir = tempfile::tempdir().unwrap();
    let log = LogFile::with(datasets.collect(), entries.collect());
    log.write(&dir.path().join("many.h5"));
    let messages = dir.path().join("messages");
    let options = format!("index_dir=none,log_file={}", messages.display());
    let mounted = Mounted::new(dir.path(), &options);
    let code = "
import h5py, numpy, sys
for _ in range(2):
    with h5py.File(sys.argv[1], 'r') as f:
        print(len(f), all((f[f'd{i:05}'][()].ravel() == numpy.arange(12) + 12 * i).all() for i in range(0, len(f), 99)))
";
    let seen = python.run(code, &[&mounted.join("many.h5")]);
    assert_eq!(seen, "16384 True\n16384 True\n");
    assert_eq!(mounted.scans(), 1);
    let messages = fs::read_to_string(&messages).unwrap();
    let mut lines = messages.lines();
    eprintln!("{}", lines.find(|l| l.contains("scanned in")).unwrap());
}

/// An interrupted export leaves nothing behind.
#[test]
fn an_interrupted_export() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.h5");
    // Too much to write before the signal comes: each chunk is deflated, and none is left out, because all together
    // are no more than such a log may claim.
    let filters = [Filter::deflate(9)];
    let mut vast = Dataset::new("vast", 0, Type::U8, &[200 << 20])
        .chunked(&[1 << 10])
        .filtered(&filters);
    vast.fill = Some(vec![7]);
    LogFile::with(vec![vast], Vec::new()).write(&log);
    let mut command = Command::new(PROGRAM);
    command
        .arg("export")
        .arg(&log)
        .arg(dir.path().join("out.h5"));
    let mut child = command.spawn().unwrap();
    let others = || fs::read_dir(dir.path()).unwrap().count() - 1;
    wait_until("the export has begun", || others() == 1);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(2)
    );
    assert_eq!(others(), 0);
}
