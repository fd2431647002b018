//! Faults of the source, the system and the daemon. The tests check the errors that readers get, that other readers
//! notice nothing, and that everything works after the fault. They follow the table in docs/operations.md ("What a
//! reader sees").

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::clock::settle;
use crate::common::encoder::filter::Filter;
use crate::common::encoder::{Dataset, Entry, LogFile, Type, open_view};
use crate::common::layer::{Failing, Layer};
use crate::common::{
    Mounted, PROGRAM, User, can_mount, errno, is_running, messages, mount, mount_type,
    unmount_by_force, wait_until,
};
use h5logfs_view::ChunkId;
use rustix::fs::Advice;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use tempfile::TempDir;

const CHUNK: u64 = 256 << 10;
const CHUNKS: u64 = 16;

/// A chunk that was read already, and one that was not.
const EARLY: usize = 0;
const LATE: usize = 11;

/// A limit of the address space is noticed before anything is mounted. With one of the data (`ulimit -d`) the daemon
/// ends after it has mounted, and its starter unmounts.
#[test]
fn a_mount_that_cannot_begin_leaves_no_dead_mount() {
    for user in [User::Caller, User::Nobody] {
        if !can_mount(user) {
            continue;
        }
        let (source, point) = (user.dir(), user.dir());
        let begin = |limit: &str, options: &[&str]| {
            let mut shell = user.command("sh");
            shell.args([
                "-c",
                &format!("ulimit {limit} && exec \"$@\""),
                "sh",
                PROGRAM,
            ]);
            shell.arg("mount").args(options);
            shell.args([source.path(), point.path()]).output().unwrap()
        };
        let refused = "the limit of the address space (ulimit -v): ";
        let ended = "the daemon ended before the mount was up";
        for (limit, options, words) in [
            ("-v 100000", &[][..], refused),
            ("-v 200000", &["-f"], refused),
            ("-v 400000", &["-o", "threads=64"], refused),
            ("-d 24000", &[], ended),
        ] {
            let output = begin(limit, options);
            let said = messages(&output);
            assert!(
                !output.status.success() && said.contains(words),
                "{limit}: {said}"
            );
            assert_eq!(mount_type(point.path()), None, "{limit}: {said}");
        }
        // An existing dead mount is left to the user, with a message.
        let mounted = Mounted::by(user, source.path(), "");
        mounted.send(Signal::KILL);
        wait_until("the daemon is gone", || !is_running(mounted.daemon));
        let output = mount(user, source.path(), mounted.path(), "");
        assert!(messages(&output).contains("that has died is still mounted here"));
        assert!(mount_type(mounted.path()).is_some());
    }
}

/// A log with one dataset.
struct Log {
    name: String,
    path: PathBuf,
    /// Offset of each chunk in the mount, and its content.
    chunks: Vec<(u64, Vec<u8>)>,
}

impl Log {
    fn write(dir: &Path, name: &str, seed: u64) -> Self {
        Log::write_as(dir, name, seed, false)
    }

    /// A log with two records a chunk, so that each must be assembled, with or without a subfile.
    fn write_as(dir: &Path, name: &str, seed: u64, subfiled: bool) -> Self {
        let half = (CHUNK / 2) as usize;
        let dataset = Dataset::new("a", 0, Type::U8, &[CHUNKS * CHUNK]).chunked(&[CHUNK]);
        let contents: Vec<u8> = (0..CHUNKS * CHUNK)
            .map(|i| (i * seed / 5 + seed) as u8)
            .collect();
        let records = contents.chunks(half).zip(0u64..);
        let record =
            |(data, n): (&[u8], u64)| Entry::one(0, &[n * CHUNK / 2], &[CHUNK / 2], data.to_vec());
        let path = dir.join(name);
        let mut file = LogFile::with(vec![dataset], records.map(record).collect());
        file.subfiled = subfiled;
        file.write(&path);
        let view = open_view(&path).unwrap();
        let places = (0..CHUNKS).map(|chunk| {
            view.inspection()
                .chunk_place(ChunkId::new(0, chunk))
                .unwrap()
                .0
        });
        let contents = contents.chunks(CHUNK as usize).map(<[u8]>::to_vec);
        Log {
            name: name.to_owned(),
            path,
            chunks: places.zip(contents).collect(),
        }
    }

    /// Opens the log in the mount. The kernel does not read ahead.
    fn open(&self, mounted: &Mounted) -> Result<File, Errno> {
        let file =
            File::open(mounted.join(&self.name)).map_err(|e| Errno::from_io_error(&e).unwrap())?;
        rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
        Ok(file)
    }

    /// Reads one chunk. The content must be right.
    #[track_caller]
    fn chunk(&self, file: &File, number: usize) -> Result<(), Errno> {
        let (offset, expected) = &self.chunks[number];
        let mut bytes = vec![0; expected.len()];
        let outcome = file.read_exact_at(&mut bytes, *offset);
        if let Err(e) = &outcome {
            return Err(Errno::from_io_error(e).unwrap_or_else(|| panic!("{e}")));
        }
        assert!(
            bytes == *expected,
            "chunk {number} of {} is not right",
            self.name
        );
        Ok(())
    }

    /// Opens and reads all of it. The content must be right.
    #[track_caller]
    fn whole(&self, mounted: &Mounted) -> Result<(), Errno> {
        let file = self.open(mounted)?;
        (0..self.chunks.len()).try_for_each(|number| self.chunk(&file, number))
    }
}

/// Two logs and a plain file.
struct Site {
    dir: TempDir,
    log: Log,
    neighbour: Log,
}

impl Site {
    fn new() -> Option<Self> {
        if !can_mount(User::Caller) {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("plain"), "some text").unwrap();
        Some(Site {
            log: Log::write(dir.path(), "log.h5", 3),
            neighbour: Log::write(dir.path(), "neighbour.h5", 7),
            dir,
        })
    }

    fn mounted(&self) -> Mounted {
        Mounted::new(self.dir.path(), "index_dir=none")
    }

    /// Checks that a fault stays with its file, and the daemon is the one that was started.
    #[track_caller]
    fn others_are_well(&self, mounted: &Mounted) {
        assert!(is_running(mounted.daemon));
        assert_eq!(self.neighbour.whole(mounted), Ok(()));
        assert_eq!(fs::read(mounted.join("plain")).unwrap(), b"some text");
    }

    /// The kernel may cache a state for a second.
    fn log_is_well_again(&self, mounted: &Mounted) {
        wait_until("the log reads right", || self.log.whole(mounted) == Ok(()));
        self.others_are_well(mounted);
    }
}

// --- logs that change --------------------------------------------------------------------------

#[test]
fn a_log_that_is_truncated_while_open_gives_eio() {
    let Some(site) = Site::new() else { return };
    let mounted = site.mounted();
    let log = &site.log;
    let open = log.open(&mounted).unwrap();
    assert_eq!(log.chunk(&open, EARLY), Ok(()));

    let whole = fs::read(&log.path).unwrap();
    let (cut, _) = whole.split_at(whole.len() / 2);
    let file = File::options().write(true).open(&log.path).unwrap();
    file.set_len(cut.len() as u64).unwrap();
    assert_eq!(log.chunk(&open, LATE), Err(Errno::IO));
    // The rest of the file does not identify a log, so it is shown like any other broken file.
    wait_until("the cut file is shown", || {
        fs::read(mounted.join(&log.name)).is_ok_and(|shown| shown == cut)
    });
    site.others_are_well(&mounted);

    fs::write(&log.path, whole).unwrap();
    site.log_is_well_again(&mounted);
    // A handle of the former state reads no other one.
    assert_eq!(log.chunk(&open, LATE), Err(Errno::IO));
}

#[test]
fn a_log_that_is_known_as_one_does_not_open_while_it_is_cut() {
    let Some(site) = Site::new() else { return };
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/nd.log.h5");
    let (log, whole) = (site.dir.path().join("nd.h5"), fs::read(corpus).unwrap());
    fs::write(&log, &whole).unwrap();
    let mounted = site.mounted();
    let shown = fs::read(mounted.join("nd.h5")).unwrap();
    assert_ne!(shown, whole);
    let cut = File::options().write(true).open(&log).unwrap();
    cut.set_len(whole.len() as u64 / 2).unwrap();
    wait_until("the cut file is refused", || {
        errno(File::open(mounted.join("nd.h5"))) == Some(Errno::IO)
    });
    site.others_are_well(&mounted);
    fs::write(&log, &whole).unwrap();
    wait_until("the log is shown", || {
        fs::read(mounted.join("nd.h5")).is_ok_and(|now| now.len() == shown.len())
    });
}

#[test]
fn a_log_that_is_rewritten_in_place_gives_eio_to_those_who_have_it_open() {
    let Some(site) = Site::new() else { return };
    let mounted = site.mounted();
    let log = &site.log;
    let open = log.open(&mounted).unwrap();
    assert_eq!(log.chunk(&open, EARLY), Ok(()));
    let new = Log::write(site.dir.path(), "new.h5", 11);
    fs::copy(&new.path, &log.path).unwrap();
    assert_eq!(log.chunk(&open, LATE), Err(Errno::IO));
    site.others_are_well(&mounted);
    let shown = Log {
        name: log.name.clone(),
        ..new
    };
    wait_until("the new log is shown", || {
        let open = shown.open(&mounted);
        // The former state gives only errors.
        open.is_ok_and(|file| shown.chunk(&file, LATE) == Ok(()))
    });
    assert_eq!(shown.whole(&mounted), Ok(()));
}

#[test]
fn a_log_that_is_replaced_or_removed_stays_for_those_who_have_it_open() {
    let Some(site) = Site::new() else { return };
    let mounted = site.mounted();
    let log = &site.log;
    let open = log.open(&mounted).unwrap();
    assert_eq!(log.chunk(&open, EARLY), Ok(()));

    let new = Log::write(site.dir.path(), "new.h5", 11);
    fs::rename(&new.path, &log.path).unwrap();
    let shown = Log {
        name: log.name.clone(),
        ..new
    };
    let reads_new = |mounted: &Mounted| {
        let file = File::open(mounted.join(&shown.name)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, shown.chunks[LATE].0).unwrap();
        byte[0] == shown.chunks[LATE].1[0]
    };
    assert_ne!(shown.chunks[LATE].1[0], log.chunks[LATE].1[0]);
    wait_until("the new log is shown", || reads_new(&mounted));
    let second = shown.open(&mounted).unwrap();
    fs::remove_file(&log.path).unwrap();
    wait_until("nothing is shown", || {
        log.open(&mounted).err() == Some(Errno::NOENT)
    });

    for number in 0..CHUNKS as usize {
        assert_eq!(log.chunk(&open, number), Ok(()));
        assert_eq!(shown.chunk(&second, number), Ok(()));
    }
    site.others_are_well(&mounted);
}

/// No log is mapped into memory: a page that disappears is a failed read, and no signal.
#[test]
fn a_log_that_shrinks_and_grows_under_readers_does_no_harm() {
    let Some(site) = Site::new() else { return };
    let log = Log::write_as(site.dir.path(), "subfiled.h5", 5, true);
    let data = site.dir.path().join("subfiled.h5.subfiles/subfiled.h5.0");
    let mounted = site.mounted();
    assert_eq!(log.whole(&mounted), Ok(()));
    let whole = fs::read(&data).unwrap();
    let half = whole.len() / 2;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let read = || {
            let mut failures = 0;
            while !done.load(Ordering::Relaxed) {
                // Readable data is right: `whole` has compared it.
                match log.whole(&mounted) {
                    Ok(()) => {}
                    Err(Errno::IO | Errno::STALE) => failures += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            failures
        };
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        let file = File::options().write(true).open(&data).unwrap();
        for _ in 0..25 {
            file.set_len(half as u64).unwrap();
            thread::sleep(Duration::from_millis(30));
            file.write_all_at(&whole[half..], half as u64).unwrap();
            thread::sleep(Duration::from_millis(30));
        }
        done.store(true, Ordering::Relaxed);
        let failures: usize = readers.into_iter().map(|r| r.join().unwrap()).sum();
        assert!(failures > 0, "nobody has noticed");
    });
    let maps = fs::read_to_string(format!("/proc/{}/maps", mounted.daemon.as_raw_pid())).unwrap();
    assert!(maps.contains("libhdf5"), "{maps}");
    let source = site.dir.path().to_str().unwrap();
    assert!(!maps.contains(source), "{maps}");
    wait_until("the log reads right", || log.whole(&mounted) == Ok(()));
    site.others_are_well(&mounted);
}

// --- the disk ------------------------------------------------------------------------------------

/// A site on a disk that fails on demand.
fn on_a_faulty_disk() -> Option<(Site, Layer, Mounted)> {
    let site = Site::new()?;
    let layer = Layer::over(site.dir.path());
    let mounted = Mounted::new(layer.path(), "index_dir=none");
    Some((site, layer, mounted))
}

#[test]
fn a_disk_that_fails_gives_eio_for_as_long_as_it_does() {
    let Some((site, layer, mounted)) = on_a_faulty_disk() else {
        return;
    };
    let log = &site.log;
    let open = log.open(&mounted).unwrap();
    assert_eq!(log.chunk(&open, EARLY), Ok(()));
    let plain = File::open(mounted.join("plain")).unwrap();
    for name in [&log.name, "plain"] {
        layer.fail(name, Failing::Reads, Errno::IO);
    }
    assert_eq!(log.chunk(&open, LATE), Err(Errno::IO));
    assert_eq!(errno(plain.read_at(&mut [0], 0)), Some(Errno::IO));
    // Cached data needs no disk.
    assert_eq!(log.chunk(&open, EARLY), Ok(()));
    assert_eq!(site.neighbour.whole(&mounted), Ok(()));
    layer.heal();
    assert_eq!(log.chunk(&open, LATE), Ok(()));
    assert_eq!(log.whole(&mounted), Ok(()));
    site.others_are_well(&mounted);
}

/// A failed look at a log is not remembered.
#[test]
fn a_log_on_a_failing_disk_is_looked_at_again() {
    let Some((site, layer, mounted)) = on_a_faulty_disk() else {
        return;
    };
    let log = &site.log;
    layer.fail(&log.name, Failing::Reads, Errno::IO);
    assert_eq!(log.whole(&mounted), Err(Errno::IO));
    site.others_are_well(&mounted);
    // The start of the file shows that it is HDF5. The rest is unreadable, so libhdf5 meets the fault.
    layer.fail(&log.name, Failing::ReadsFrom(2 << 20), Errno::IO);
    assert_eq!(log.whole(&mounted), Err(Errno::IO));
    site.others_are_well(&mounted);
    layer.heal();
    site.log_is_well_again(&mounted);
}

#[test]
fn a_stale_handle_of_the_source_is_told_as_one_until_the_file_can_be_had_again() {
    let Some((site, layer, mounted)) = on_a_faulty_disk() else {
        return;
    };
    let log = &site.log;
    let open = log.open(&mounted).unwrap();
    assert_eq!(log.chunk(&open, EARLY), Ok(()));
    layer.fail(&log.name, Failing::Everything, Errno::STALE);
    // The log is unreadable: an error of the data.
    assert_eq!(log.chunk(&open, LATE), Err(Errno::IO));
    wait_until("the name is stale", || {
        log.whole(&mounted) == Err(Errno::STALE)
    });
    site.others_are_well(&mounted);
    layer.heal();
    assert_eq!(log.chunk(&open, LATE), Ok(()));
    site.log_is_well_again(&mounted);
}

// --- the system ----------------------------------------------------------------------------------

/// Limits a resource of the daemon, possibly below its present use.
fn limit(mounted: &Mounted, resource: Resource, most: Option<u64>) -> Rlimit {
    let maximum = getrlimit(resource).maximum;
    let new = Rlimit {
        current: most.or(maximum),
        maximum,
    };
    prlimit(Some(mounted.daemon), resource, new).unwrap()
}

#[test]
fn without_descriptors_what_is_open_is_read_and_the_rest_has_to_wait() {
    let Some(site) = Site::new() else { return };
    let mounted = site.mounted();
    let open = site.neighbour.open(&mounted).unwrap();
    assert_eq!(site.neighbour.chunk(&open, EARLY), Ok(()));
    let before = limit(&mounted, Resource::Nofile, Some(0));
    assert_eq!(site.neighbour.chunk(&open, LATE), Ok(()));
    assert_eq!(site.log.whole(&mounted), Err(Errno::MFILE));
    assert!(is_running(mounted.daemon));
    prlimit(Some(mounted.daemon), Resource::Nofile, before).unwrap();
    site.log_is_well_again(&mounted);
}

/// A log with two chunks that need more memory than there is, in a file with almost no data.
fn log_with_large_chunks(path: &Path) -> u64 {
    const LARGE: u64 = 96 << 20;
    let dataset = Dataset::new("a", 0, Type::U8, &[2 * LARGE]).chunked(&[LARGE]);
    let dataset = dataset.filtered(&[Filter::shuffle(1), Filter::deflate(1)]);
    let places = [5, LARGE / 2, LARGE + 5, LARGE + LARGE / 2];
    let records = places.map(|at| Entry::one(0, &[at], &[1], vec![42]));
    LogFile::with(vec![dataset], records.to_vec()).write(path);
    let view = open_view(path).unwrap();
    view.inspection().chunk_place(ChunkId::new(0, 1)).unwrap().0
}

#[test]
fn without_memory_for_a_chunk_it_cannot_be_read_and_others_can() {
    let Some(site) = Site::new() else { return };
    let chunk = log_with_large_chunks(&site.dir.path().join("large.h5"));
    let mounted = site.mounted();
    let open = File::open(mounted.join("large.h5")).unwrap();
    let read = || {
        let mut byte = [0];
        open.read_exact_at(&mut byte, chunk).map(|()| byte[0])
    };
    // With this read, all threads allocate what they need before the limit is set.
    site.others_are_well(&mounted);
    let status = fs::read_to_string(format!("/proc/{}/status", mounted.daemon.as_raw_pid()));
    let status = status.unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let size = size.unwrap().trim().trim_end_matches(" kB");
    let size = size.parse::<u64>().unwrap() << 10;
    for more in [48 << 20, 150 << 20] {
        let before = limit(&mounted, Resource::As, Some(size + more));
        assert_eq!(errno(read()), Some(Errno::IO), "{} MiB", more >> 20);
        assert_eq!(site.log.whole(&mounted), Ok(()));
        site.others_are_well(&mounted);
        prlimit(Some(mounted.daemon), Resource::As, before).unwrap();
    }
    // The first byte of a zlib stream.
    assert_eq!(read().unwrap(), 0x78);
    site.others_are_well(&mounted);
}

// --- the daemon ----------------------------------------------------------------------------------

/// The processes that the daemon has started.
fn children(mounted: &Mounted) -> Vec<Pid> {
    let list = format!("/proc/{0}/task/{0}/children", mounted.daemon.as_raw_pid());
    let list = fs::read_to_string(list).unwrap();
    let numbers = list.split_whitespace().map(|n| n.parse().unwrap());
    numbers.filter_map(Pid::from_raw).collect()
}

#[test]
fn readers_of_a_daemon_that_is_killed_get_enotconn_and_the_mount_point_is_freed_by_umount() {
    let Some(site) = Site::new() else { return };
    let mounted = site.mounted();
    let path = mounted.path().to_owned();
    let open = site.log.open(&mounted).unwrap();
    let helpers = children(&mounted);
    assert!(!helpers.is_empty());
    let started = AtomicBool::new(false);
    thread::scope(|scope| {
        let read = || {
            loop {
                if let Err(errno) = site.neighbour.whole(&mounted) {
                    return errno;
                }
                started.store(true, Ordering::Relaxed);
            }
        };
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        wait_until("somebody reads", || started.load(Ordering::Relaxed));
        mounted.send(Signal::KILL);
        for reader in readers {
            // A pending request is aborted.
            let errno = reader.join().unwrap();
            assert!(
                [Errno::NOTCONN, Errno::CONNABORTED].contains(&errno),
                "{errno}"
            );
        }
    });
    wait_until("the daemon is gone", || !is_running(mounted.daemon));
    for helper in helpers {
        wait_until("its processes are gone", || !is_running(helper));
    }
    assert_eq!(site.log.chunk(&open, LATE), Err(Errno::NOTCONN));
    assert_eq!(site.log.open(&mounted).err(), Some(Errno::NOTCONN));
    drop(open);
    let unmount = if crate::common::is_root() {
        Command::new("umount").arg(&path).output().unwrap()
    } else {
        Command::new("fusermount3")
            .arg("-u")
            .arg(&path)
            .output()
            .unwrap()
    };
    assert!(unmount.status.success(), "{}", messages(&unmount));
    let again = mount(User::Caller, site.dir.path(), &path, "index_dir=none");
    assert!(again.status.success(), "{}", messages(&again));
    let outcome = site.log.whole(&mounted);
    unmount_by_force(User::Caller, &path);
    assert_eq!(outcome, Ok(()));
}

/// Killed at any time during scans, the daemon leaves an index directory that the next one can use.
#[test]
fn what_a_killed_daemon_has_kept_misleads_nobody() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    let logs: Vec<Log> = (1..=6)
        .map(|n| Log::write(&source, &format!("{n}.h5"), n))
        .collect();
    settle(&source);
    let kept = dir.path().join("kept");
    let options = format!("index_dir={}", kept.display());
    let right = |mounted: &Mounted| {
        for log in &logs {
            assert_eq!(log.whole(mounted), Ok(()), "{}", log.name);
        }
    };
    for round in 0..12 {
        let mounted = Mounted::new(&source, &options);
        thread::scope(|scope| {
            // Opens each log; most opens fail once the daemon is gone.
            for log in &logs {
                scope.spawn(|| log.open(&mounted).map(|file| log.chunk(&file, EARLY)));
            }
            thread::sleep(Duration::from_millis(3 * round));
            mounted.send(Signal::KILL);
        });
        if round % 4 == 3 {
            right(&Mounted::new(&source, &options));
        }
    }
    right(&Mounted::new(&source, &options));
    // Half written, as by a program that does not rename complete files.
    let items = || {
        let dirs = fs::read_dir(&kept).unwrap().map(|dir| dir.unwrap().path());
        let items = dirs.flat_map(|dir| fs::read_dir(dir).unwrap());
        items.map(|item| item.unwrap().path()).collect::<Vec<_>>()
    };
    assert!(items().len() >= logs.len(), "{:?}", items());
    for item in items() {
        let file = File::options().write(true).open(&item).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    }
    right(&Mounted::new(&source, &options));
    // Remade items are whole.
    right(&Mounted::new(&source, &options));
}
