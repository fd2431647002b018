//! Indexes kept on disk: they are used only if valid, and failures to keep them are no failures of reads.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::clock::settle;
use crate::common::encoder::{
    BUDGET, Block, Dataset, Entry, LogFile, Spelling, Type, read_by_chunks, read_whole, scan_file,
};
use crate::common::guard::Guard;
use crate::common::{Mounted, User, can_mount, is_root, messages, wait_until};
use h5logfs_catalog::{BUILD, Catalog, Lookup, Presented, Wait};
use h5logfs_common::task::Task;
use h5logfs_log::scan::Settings;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_scan::InProcess;
use h5logfs_view::ChunkId;
use h5logfs_view::View;
use h5logfs_view::cache::MemoryLimits;
use h5logfs_view::index::store::{FileState, Store, StoreKey};
use tempfile::TempDir;

const LOGS: [&str; 4] = [
    "nd.log.h5",
    "subfile.log.h5",
    "objref.log.h5",
    "userblock.log.h5",
];
const PLAIN: &str = "nd.expected.h5";

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// Logs and a plain file below `run/`, and a place for kept items.
struct Site {
    dir: TempDir,
}

impl Site {
    fn new(names: &[&str]) -> Self {
        let site = Site {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(site.run()).unwrap();
        for name in names {
            let copied = Command::new("cp")
                .args(["-r", "--no-preserve=mode"])
                .args([corpus().join(name), site.run()])
                .status();
            assert!(copied.unwrap().success());
            let subfiles = format!("{name}.subfiles");
            if corpus().join(&subfiles).exists() {
                let copied = Command::new("cp")
                    .args(["-r", "--no-preserve=mode"])
                    .args([corpus().join(&subfiles), site.run()])
                    .status();
                assert!(copied.unwrap().success());
            }
        }
        site
    }

    fn settled(names: &[&str]) -> Self {
        let site = Site::new(names);
        settle(&site.run());
        site
    }

    fn run(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    fn place(&self) -> PathBuf {
        self.dir.path().join("kept")
    }

    /// A catalog as a new daemon for `directory` has it.
    fn catalog(&self, dir: &Path) -> Catalog {
        let store = Store::open(&self.place(), 64 << 20).unwrap();
        Catalog::new(
            SourceDir::open(dir).unwrap(),
            MemoryLimits::each(BUDGET),
            InProcess::default(),
        )
        .with_store(Arc::new(store))
    }

    /// All kept items.
    fn items(&self) -> Vec<PathBuf> {
        let dirs = fs::read_dir(self.place()).unwrap();
        dirs.flat_map(|f| fs::read_dir(f.unwrap().path()).unwrap())
            .map(|f| f.unwrap().path())
            .collect()
    }
}

fn bytes(catalog: &Catalog, path: &str) -> Vec<u8> {
    read_whole(&catalog.open(Path::new(path)).unwrap()).unwrap()
}

fn is_plain(catalog: &Catalog, path: &str) -> bool {
    matches!(catalog.get(Path::new(path)), Ok(Presented::Plain))
}

#[test]
fn what_one_daemon_has_scanned_the_next_one_knows() {
    let site = Site::settled(&[&LOGS[..], &[PLAIN]].concat());
    let first = site.catalog(&site.run());
    let scanned: Vec<_> = LOGS.iter().map(|name| bytes(&first, name)).collect();
    assert!(is_plain(&first, PLAIN));
    // A plain HDF5 file needs no scan.
    assert_eq!(first.scans(), 4);
    assert_eq!(site.items().len(), 4);
    // Another daemon may have mounted another directory.
    for (dir, prefix) in [(site.run(), ""), (site.dir.path().to_owned(), "run/")] {
        let next = site.catalog(&dir);
        for (name, scanned) in LOGS.iter().zip(&scanned) {
            let view = next.open(Path::new(&format!("{prefix}{name}"))).unwrap();
            assert_eq!(&read_whole(&view).unwrap(), scanned, "{name}");
            assert!(view.saved().is_some());
            let hidden = format!("{name}.subfiles");
            let parent = Path::new(prefix.trim_end_matches('/'));
            let subfiles = site.run().join(&hidden).exists();
            let is_hidden = next.is_hidden(parent, hidden.as_ref(), Wait::Yes);
            assert_eq!(is_hidden, Lookup::Known(subfiles));
        }
        assert_eq!(next.scans(), 0);
        assert!(is_plain(&next, &format!("{prefix}{PLAIN}")));
    }
}

#[test]
fn what_belongs_to_views_comes_back_with_them() {
    let site = Site::settled(&["nd.log.h5"]);
    let open = || site.catalog(&site.run()).open(Path::new("nd.log.h5"));
    open().unwrap().saved().unwrap().put("index-0", b"packed");
    let again = open().unwrap();
    let task = &Task::unlimited();
    let kept = again.saved().unwrap().get(task, "index-0");
    assert_eq!(**kept.unwrap(), *b"packed");
}

/// Two datasets written in the same way, by enough small blocks to make their indexes worth keeping.
#[test]
fn indexes_come_back_without_a_look_at_the_tables() {
    const ENTRIES: u64 = 40;
    const BLOCKS: u64 = 4000;
    let site = Site::new(&[]);
    let blocks = |entry: u64| -> Vec<Block> {
        let starts = (0..BLOCKS).map(|block| (block * ENTRIES + entry) * 3 + block % 3);
        starts.map(|start| (vec![start], vec![1])).collect()
    };
    let data = |of: u64| vec![of as u8 + 1; BLOCKS as usize];
    let own = (0..ENTRIES).map(|entry| Entry::many(0, blocks(entry), data(entry)));
    let shared = (0..ENTRIES).map(|entry| {
        let target = entry as usize;
        let entry = Entry::many(1, blocks(entry), data(entry + 100));
        entry.spelled(Spelling::Shared { target })
    });
    let extent = [ENTRIES * BLOCKS * 3];
    let datasets =
        ["a", "b"].map(|name| Dataset::new(name, i32::from(name == "b"), Type::U8, &extent));
    let path = site.run().join("log.h5");
    LogFile::with(datasets.to_vec(), own.chain(shared).collect()).write(&path);
    settle(&site.run());

    let read = || {
        let view = site.catalog(&site.run()).open(Path::new("log.h5")).unwrap();
        (read_whole(&view).unwrap(), view.log_bytes_read())
    };
    let (first, with_tables) = read();
    // The snapshot, two indexes, and one set of selections.
    assert_eq!(site.items().len(), 4);
    let (second, without) = read();
    assert!(first == second);
    let tables = ENTRIES * BLOCKS * 16;
    assert!(
        with_tables > without + tables,
        "{with_tables} bytes, then {without}"
    );

    // Damage is noticed, and everything is made again.
    for item in site.items() {
        flip_last_byte(&item);
    }
    let (third, again) = read();
    assert!(first == third && again == with_tables);
    assert_eq!((read().1, site.items().len()), (without, 4));
}

/// Restores the times of a changed file: only the inode then reveals the change.
fn change_unseen(path: &Path, change: impl FnOnce(&Path)) {
    let before = fs::metadata(path).unwrap();
    change(path);
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    let after = fs::metadata(path).unwrap();
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    assert_ne!(
        (before.ctime(), before.ctime_nsec()),
        (after.ctime(), after.ctime_nsec())
    );
}

fn flip_last_byte(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_file_that_changed_is_scanned_again() {
    let site = Site::settled(&["subfile.log.h5", "nd.log.h5"]);
    let known = |name: &str| {
        let catalog = site.catalog(&site.run());
        catalog.get(Path::new(name)).unwrap();
        catalog.scans() == 0
    };
    for name in ["subfile.log.h5", "nd.log.h5"] {
        assert!(!known(name) && known(name), "{name}");
    }
    change_unseen(&site.run().join("nd.log.h5"), flip_last_byte);
    let subfiles = site.run().join("subfile.log.h5.subfiles");
    let subfile = fs::read_dir(&subfiles).unwrap().next().unwrap().unwrap();
    change_unseen(&subfile.path(), flip_last_byte);
    for name in ["subfile.log.h5", "nd.log.h5"] {
        // Just changed: not kept either.
        assert!(!known(name) && !known(name), "{name}");
    }
    settle(&site.run());
    for name in ["subfile.log.h5", "nd.log.h5"] {
        assert!(!known(name) && known(name), "{name}");
    }
    fs::remove_file(subfile.path()).unwrap();
    assert!(!known("subfile.log.h5"));
    fs::rename(site.run().join("nd.log.h5"), site.run().join("new.h5")).unwrap();
    assert!(!known("new.h5"));
}

/// Only the snapshot records the state of subfiles: an index must not outlive it.
#[test]
fn indexes_of_subfiles_that_changed_are_made_again() {
    const BLOCKS: u64 = 300_000;
    let site = Site::new(&[]);
    let write = |name: &str, first: u64| {
        let starts = (0..BLOCKS).map(|block| block * 7 + block * block % 5 + first);
        let blocks: Vec<Block> = starts.map(|start| (vec![start], vec![1])).collect();
        let dataset = Dataset::new("a", 0, Type::U8, &[BLOCKS * 7 + 8]);
        let entry = Entry::many(0, blocks, (0..BLOCKS).map(|block| block as u8).collect());
        let mut file = LogFile::with(vec![dataset], vec![entry]);
        file.subfiled = true;
        file.write(&site.run().join(name));
        site.run().join(format!("{name}.subfiles/{name}.0"))
    };
    let (old, new) = (write("log.h5", 0), write("new.h5", 1));
    settle(&site.run());
    // Only elements are compared, because the objects' times differ between the two files.
    let all = |name: &str| {
        let view = site.catalog(&site.run()).open(Path::new(name)).unwrap();
        read_by_chunks(&view, 0).unwrap()
    };
    let before = all("log.h5");
    assert!(site.items().iter().any(|item| item.ends_with("index-0")));
    change_unseen(&old, |path| assert!(fs::copy(&new, path).unwrap() > 0));
    settle(&site.run());
    for _ in 0..2 {
        let after = all("log.h5");
        assert!(after == all("new.h5") && after != before);
    }
}

#[test]
fn of_a_file_just_changed_or_from_the_future_nothing_is_kept() {
    let site = Site::new(&["nd.log.h5"]);
    let see = || {
        let catalog = site.catalog(&site.run());
        let view = catalog.open(Path::new("nd.log.h5")).unwrap();
        assert!(view.saved().is_none());
    };
    see();
    assert!(site.items().is_empty());
    let later = SystemTime::now() + Duration::from_secs(86_400);
    let file = File::options()
        .write(true)
        .open(site.run().join("nd.log.h5"));
    file.unwrap().set_modified(later).unwrap();
    settle(&site.run());
    see();
    assert!(site.items().is_empty());
}

#[test]
fn damage_to_what_is_kept_costs_a_scan_and_nothing_else() {
    let site = Site::settled(&["subfile.log.h5"]);
    let scanned = bytes(&site.catalog(&site.run()), "subfile.log.h5");
    let item = site.items().pop().unwrap();
    let sound = fs::read(&item).unwrap();
    for at in (0..sound.len()).step_by(sound.len() / 40) {
        let mut damaged = sound.clone();
        damaged[at] ^= 0x10;
        for bytes_there in [&damaged[..], &sound[..at]] {
            fs::write(&item, bytes_there).unwrap();
            let catalog = site.catalog(&site.run());
            assert_eq!(bytes(&catalog, "subfile.log.h5"), scanned, "{at}");
            assert_eq!(catalog.scans(), 1);
            // The item is whole again.
            assert_eq!(fs::read(&item).unwrap(), sound, "{at}");
        }
    }
}

/// Reads a part of everything.
fn touch(view: &View) {
    let mut buf = vec![0; 1 << 16];
    for at in (0..4).map(|n| n << 16) {
        let _ = view.read_at(at, &mut buf);
    }
    let _ = view.read_at(view.len().saturating_sub(100), &mut buf);
    for number in 0..view.snapshot().datasets.len() {
        let grid = view.grid(number);
        for chunk in [0, grid.len() / 2, grid.len().saturating_sub(1)] {
            if chunk < grid.len() && view.snapshot().datasets[number].logged().is_some() {
                let _ = view.inspection().chunk_place(ChunkId::new(number, chunk));
                let _ = view.chunks().stored(ChunkId::new(number, chunk));
            }
        }
        if view.len() < 1 << 24 {
            view.inspection()
                .check_dataset(number, &|_| (), &mut |_| ControlFlow::Continue(()));
        }
    }
}

/// The checksum is right: a buggy program or an attacker wrote the item.
#[test]
fn kept_snapshots_with_no_sense_make_no_panic() {
    for name in ["subfile.log.h5", "objref_dset.log.h5", "userblock.log.h5"] {
        let site = Site::settled(&[name]);
        site.catalog(&site.run()).get(Path::new(name)).unwrap();
        let store = Arc::new(Store::open(&site.place(), 64 << 20).unwrap());
        let log = store.entry(&StoreKey {
            main: FileState::from(&fs::metadata(site.run().join(name)).unwrap()),
            name: name.into(),
            settings: format!("{BUILD}, {}, companions=[], at=None", Settings::default()),
        });
        let sound = log.get(&Task::unlimited(), "scan").unwrap();
        // Every byte outside of the image, and a few inside.
        let image = scan_file(&site.run().join(name)).unwrap().image;
        let start = sound.windows(image.len()).position(|w| w == image).unwrap();
        let rest = (0..start).chain(start + image.len()..sound.len());
        let places = rest.chain((start..start + image.len()).step_by(image.len() / 100));
        let mut used = 0;
        for (number, at) in places.enumerate() {
            let mut bytes = sound.clone();
            bytes[at] = match number % 4 {
                0 => !bytes[at],
                1 => bytes[at].wrapping_add(1),
                2 => 0,
                _ => bytes[at] ^ 0x80,
            };
            log.put("scan", &bytes);
            let survived = catch_unwind(AssertUnwindSafe(|| {
                let catalog = site.catalog(&site.run());
                if let Ok(view) = catalog.open(Path::new(name)) {
                    touch(&view);
                }
                catalog.scans() == 0
            }));
            used += u32::from(survived.unwrap_or_else(|_| panic!("{name}, byte {at}")));
        }
        assert!(used > 0, "all of it was refused: nothing was tried");
    }
}

#[test]
fn a_full_or_missing_disk_is_no_concern_of_readers() {
    let site = Site::settled(&LOGS);
    let reads = |catalog: &Catalog| LOGS.map(|name| bytes(catalog, name));
    let catalog = site.catalog(&site.run());
    fs::remove_dir(site.place()).unwrap();
    let scanned = reads(&catalog);
    assert!(!site.place().exists());
    if !is_root() {
        return;
    }
    for (size, kept) in [("size=4k", 0), ("size=8k", 1)] {
        fs::create_dir(site.place()).unwrap();
        let _guard = Guard::of_mount(&site.place());
        let disk = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("{size},mode=0700"), "none"])
            .arg(site.place())
            .status();
        if !disk.unwrap().success() {
            eprintln!("skipped: no tmpfs can be mounted");
            return;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let catalog = site.catalog(&site.run());
            let read = reads(&catalog);
            (read, catalog.scans(), site.items().len())
        }));
        // Remembered views hold the directory.
        let gone = Command::new("umount").arg("-l").arg(site.place()).status();
        assert!(gone.unwrap().success());
        fs::remove_dir(site.place()).unwrap();
        let (read, scans, items) = outcome.unwrap();
        assert!(read == scanned && scans == 4, "{size}");
        // No unfinished item stays.
        assert!(items >= kept && items < 4, "{items} with {size}");
    }
}

#[test]
fn a_mount_uses_what_the_mount_before_it_has_kept() {
    if !can_mount(User::Caller) {
        return;
    }
    let site = Site::settled(&["nd.log.h5"]);
    let messages = site.dir.path().join("messages");
    let options = format!(
        "index_dir={},log_file={}",
        site.place().display(),
        messages.display()
    );
    let read = |options: &str| {
        let mounted = Mounted::new(&site.run(), options);
        let read = fs::read(mounted.join("nd.log.h5")).unwrap();
        let unmounted = Command::new("umount").arg(mounted.path()).status();
        assert!(unmounted.unwrap().success());
        mounted.expect_gone();
        read
    };
    let first = read(&options);
    let said = fs::read_to_string(&messages).unwrap();
    assert!(said.contains("nd.log.h5: scanned in"), "{said}");
    assert_eq!(read(&options), first);
    let said = fs::read_to_string(&messages).unwrap();
    assert_eq!(said.matches(": scanned in").count(), 1, "{said}");
    assert!(said.contains("known from an earlier scan"), "{said}");
    assert_eq!(site.items().len(), 1);
    fs::remove_dir_all(site.place()).unwrap();
    let none = format!("index_dir=none,log_file={}", messages.display());
    assert_eq!(read(&none), first);
    assert!(!site.place().exists());
}

#[test]
fn an_index_directory_that_cannot_be_used_is_an_error_where_it_was_asked_for() {
    if !can_mount(User::Caller) {
        return;
    }
    let site = Site::new(&["nd.log.h5"]);
    let place = site.place();
    fs::create_dir(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    let mount_point = User::Caller.dir();
    let options = format!("index_dir={}", place.display());
    let refused = crate::common::mount(User::Caller, &site.run(), mount_point.path(), &options);
    let said = messages(&refused);
    assert!(!refused.status.success());
    assert!(said.contains("kept") && said.contains("0755"), "{said}");
    // A missing directory other than the last component may be a typing error.
    let missing = site.dir.path().join("typo/indexes");
    let options = format!("index_dir={}", missing.display());
    let refused = crate::common::mount(User::Caller, &site.run(), mount_point.path(), &options);
    let said = messages(&refused);
    assert!(!refused.status.success());
    assert!(
        said.contains(&options) && said.contains("neither it nor"),
        "{said}"
    );
    assert!(!site.dir.path().join("typo").exists());
    // The default place deserves only a warning.
    fs::rename(&place, site.dir.path().join("h5logfs")).unwrap();
    let log = site.dir.path().join("messages");
    let output = User::Caller
        .command(crate::common::PROGRAM)
        .env("XDG_CACHE_HOME", site.dir.path())
        .arg("mount")
        .arg(site.run())
        .arg(mount_point.path())
        .arg("-o")
        .arg(format!("log_file={}", log.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    let mounted = Mounted::at(User::Caller, mount_point);
    assert!(fs::read(mounted.join("nd.log.h5")).is_ok());
    let said = fs::read_to_string(&log).unwrap();
    assert_eq!(said.matches("WARN").count(), 1, "{said}");
    assert!(said.contains("0755"), "{said}");
}

#[test]
fn of_a_deleted_log_nothing_is_kept_that_nobody_has_open() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["deleted", "open", "other"] {
        fs::copy(corpus().join("tiny.log.h5"), dir.path().join(name)).unwrap();
    }
    let source = SourceDir::open(dir.path()).unwrap();
    let catalog = Catalog::new(source, MemoryLimits::each(BUDGET), InProcess::default());
    let open = |name: &str| catalog.open(Path::new(name)).unwrap();
    let held = open("open");
    let [deleted, other] = ["deleted", "other"].map(|name| Arc::downgrade(&open(name)));
    for name in ["deleted", "open"] {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    assert!(deleted.upgrade().is_some());
    // No request names its path again.
    wait_until("the deleted log is let go", || {
        let _ = catalog.get(Path::new("other")).unwrap();
        deleted.upgrade().is_none()
    });
    assert!(other.upgrade().is_some());
    read_whole(&held).unwrap();
}

/// A log that changes all the time costs no more memory than one that does not. A program with a past state open can
/// still read it.
#[test]
fn of_past_states_nothing_is_kept_that_nobody_has_open() {
    let dir = tempfile::tempdir().unwrap();
    let (path, new) = (dir.path().join("log"), dir.path().join("new"));
    let source = SourceDir::open(dir.path()).unwrap();
    let catalog = Catalog::new(source, MemoryLimits::each(BUDGET), InProcess::default());
    let change = || {
        fs::copy(corpus().join("nd.log.h5"), &new).unwrap();
        fs::rename(&new, &path).unwrap();
        let view = catalog.open(Path::new("log")).unwrap();
        read_whole(&view).unwrap();
        view
    };
    let held = change();
    let of_one = catalog.budget().used();
    (0..20).for_each(|_| drop(change()));
    let used = || {
        let _ = catalog.get(Path::new("log")).unwrap();
        catalog.budget().used()
    };
    wait_until("past states are let go", || used() <= 2 * of_one);
    read_whole(&held).unwrap();
    drop(held);
    wait_until("the last one is let go", || used() <= of_one);
}
