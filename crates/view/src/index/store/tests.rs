use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::*;
use h5logfs_log::source_file::Identity;

const ITEM: &str = "index-7";

/// The bytes of an item, without their reservation.
fn got(entry: &StoreEntry, item: &str) -> Option<Vec<u8>> {
    let bytes = entry.get(&Task::unlimited(), item);
    bytes.map(|bytes| bytes.into_parts().0)
}

pub(super) fn key(inode: u64) -> StoreKey {
    StoreKey {
        main: FileState {
            identity: Identity {
                device: 1,
                inode,
                size: 3,
                modified: (4, 5),
                owner: 6,
            },
            changed: (6, 7),
        },
        name: b"log.h5".to_vec(),
        settings: "none".into(),
    }
}

/// A new store, and the entry of a log in it.
fn store(size: u64) -> (TempDir, Arc<Store>, StoreEntry) {
    let parent = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(&parent.path().join("indexes"), size).unwrap());
    let log = store.entry(&key(1));
    (parent, store, log)
}

fn file_of(log: &StoreEntry, item: &str) -> PathBuf {
    log.store.path.join(&log.dir).join(item)
}

fn files(store: &Store) -> usize {
    let dirs = fs::read_dir(&store.path).unwrap();
    dirs.map(|f| fs::read_dir(f.unwrap().path()).unwrap().count())
        .sum()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

/// Sets the last use of an entry to `ago` seconds ago.
fn used(log: &StoreEntry, ago: u64) {
    let dir = File::open(file_of(log, "")).unwrap();
    let then = SystemTime::now() - Duration::from_secs(ago);
    dir.set_modified(then).unwrap();
}

#[test]
fn what_is_put_comes_back_to_every_daemon() {
    let (_parent, store, log) = store(1 << 20);
    assert_eq!(got(&log, ITEM), None);
    log.put(ITEM, b"something");
    log.put("index-0", b"");
    assert_eq!(got(&log, ITEM).unwrap(), b"something");
    log.put(ITEM, b"something else");
    assert_eq!(files(&store), 2);
    let again = Arc::new(Store::open(&store.path, 1 << 20).unwrap());
    let log = again.entry(&key(1));
    assert_eq!(got(&log, ITEM).unwrap(), b"something else");
    assert_eq!(got(&log, "index-0").unwrap(), b"");
    assert_eq!(got(&again.entry(&key(2)), ITEM), None);
}

#[test]
fn nobody_else_can_read_it() {
    let (_parent, store, log) = store(1 << 20);
    log.put(ITEM, b"secret");
    assert_eq!(mode(&store.path), 0o700);
    assert_eq!(mode(&file_of(&log, "")), 0o700);
    assert_eq!(mode(&file_of(&log, ITEM)), 0o600);
}

#[test]
fn every_part_of_the_key_tells_logs_apart() {
    let (_parent, store, log) = store(1 << 20);
    log.put(ITEM, b"something");
    let other = |change: &dyn Fn(&mut StoreKey)| {
        let mut key = key(1);
        change(&mut key);
        got(&store.entry(&key), ITEM)
    };
    assert_eq!(other(&|_| ()).unwrap(), b"something");
    assert_eq!(other(&|k| k.main.identity.device = 9), None);
    assert_eq!(other(&|k| k.main.identity.size = 9), None);
    assert_eq!(other(&|k| k.main.identity.modified.1 = 9), None);
    assert_eq!(other(&|k| k.main.changed.1 = 9), None);
    assert_eq!(other(&|k| k.name = b"log.h".to_vec()), None);
    assert_eq!(other(&|k| k.settings = "5none".into()), None);
}

#[test]
fn damage_anywhere_is_found_and_the_item_removed() {
    let (_parent, _store, log) = store(1 << 20);
    log.put(ITEM, b"some bytes of an index");
    let path = file_of(&log, ITEM);
    let sound = fs::read(&path).unwrap();
    let refused = |bytes: &[u8], what: String| {
        fs::write(&path, bytes).unwrap();
        assert_eq!(got(&log, ITEM), None, "{what}");
        assert!(!path.exists(), "{what}");
    };
    for at in 0..sound.len() {
        for bit in [1, 0x80] {
            let mut damaged = sound.clone();
            damaged[at] ^= bit;
            refused(&damaged, format!("bit {bit} of byte {at}"));
        }
        refused(&sound[..at], format!("the first {at} bytes"));
    }
    refused(&[&sound[..], b"x"].concat(), "a byte more".into());
    fs::write(&path, &sound).unwrap();
    assert!(got(&log, ITEM).is_some());
    // The item is not valid under another name.
    fs::rename(&path, file_of(&log, "scan")).unwrap();
    assert_eq!(got(&log, "scan"), None);
}

#[test]
fn a_length_that_is_not_true_reserves_nothing() {
    let (_parent, _store, log) = store(1 << 20);
    log.put(ITEM, b"12345678");
    let path = file_of(&log, ITEM);
    let mut bytes = fs::read(&path).unwrap();
    let (huge, at) = (1u64 << 50, bytes.len() - 8 - SUM);
    bytes[at..at + 8].copy_from_slice(&huge.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    // Give the file that length, without taking space.
    let front = (bytes.len() - 8) as u64;
    let sparse = File::options().write(true).open(&path).unwrap();
    // Some file systems have no files of that length.
    let _ = sparse.set_len(front + huge);
    assert_eq!(got(&log, ITEM), None);
}

#[test]
fn other_versions_are_told_apart() {
    let header = header(&key(1));
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    assert!(header.windows(version.len()).any(|w| w == version));
    assert!(header.starts_with(&MAGIC));
}

#[test]
fn a_directory_that_others_could_have_made_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let path = |name: &str| parent.path().join(name);
    let refusal = |name: &str| Store::open(&path(name), 1 << 20).unwrap_err().to_string();
    fs::create_dir(path("own")).unwrap();
    for open in [0o755, 0o710, 0o701, 0o720] {
        fs::set_permissions(path("own"), fs::Permissions::from_mode(open)).unwrap();
        assert!(refusal("own").contains(&format!("{open:04o}")));
    }
    fs::set_permissions(path("own"), fs::Permissions::from_mode(0o700)).unwrap();
    Store::open(&path("own"), 1 << 20).unwrap();
    symlink(path("own"), path("link")).unwrap();
    assert!(refusal("link").contains("symbolic link"));
    fs::write(path("file"), "").unwrap();
    refusal("file");
    refusal("file/below");
    if rustix::process::geteuid().is_root() {
        chown(path("own"), Some(65534), None).unwrap();
        assert!(refusal("own").contains("user 65534"));
    }
}

#[test]
fn neither_links_nor_files_of_others_are_read_or_written() {
    let (parent, store, log) = store(1 << 20);
    log.put(ITEM, b"sound");
    let path = file_of(&log, ITEM);
    let elsewhere = parent.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert_eq!(got(&log, ITEM), None);
    assert!(path.symlink_metadata().is_err() && elsewhere.exists());
    // A link in place of the entry's directory.
    fs::remove_dir(file_of(&log, "")).unwrap();
    let dir = parent.path().join("folder");
    fs::create_dir(&dir).unwrap();
    fs::rename(&elsewhere, dir.join(ITEM)).unwrap();
    symlink(&dir, store.path.join(&log.dir)).unwrap();
    assert_eq!(got(&log, ITEM), None);
    log.put("scan", b"bytes");
    store.evict();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    fs::remove_file(store.path.join(&log.dir)).unwrap();
    // A pipe must not block the reader, and files of other users are not trusted.
    log.put(ITEM, b"sound");
    fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        FILE_MODE,
        0,
    )
    .unwrap();
    assert_eq!(got(&log, ITEM), None);
    log.put(ITEM, b"sound");
    assert!(got(&log, ITEM).is_some());
    if rustix::process::geteuid().is_root() {
        chown(&path, Some(65534), None).unwrap();
        assert_eq!(got(&log, ITEM), None);
    }
}

#[test]
fn names_stay_in_their_dir() {
    let (parent, store, log) = store(1 << 20);
    for name in [
        "", ".", "../scan", "scan/1", "scan-", "scans", "index-G", "tmp-1", "\0",
    ] {
        log.put(name, b"bytes");
        assert_eq!(got(&log, name), None, "{name:?}");
    }
    assert_eq!(fs::read_dir(&store.path).unwrap().count(), 0);
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1);
}

#[test]
fn what_was_not_used_for_the_longest_goes_first() {
    // An entry takes 8192 bytes: its item and its directory. Seven eighths of the size hold seven entries.
    let (_parent, store, _) = store(8 * 8192);
    let logs: Vec<StoreEntry> = (0..7).map(|n| store.entry(&key(n))).collect();
    for (n, log) in logs.iter().enumerate() {
        log.put(ITEM, b"bytes");
        used(log, 100 * (10 - n as u64));
    }
    store.evict();
    assert_eq!(files(&store), 7);
    // The first entry was written before all others. Another daemon uses it now.
    let again = Arc::new(Store::open(&store.path, store.size).unwrap());
    assert!(got(&again.entry(&key(0)), ITEM).is_some());
    let new: Vec<StoreEntry> = (7..9).map(|n| again.entry(&key(n))).collect();
    new.iter().for_each(|log| log.put(ITEM, b"bytes"));
    assert_eq!(files(&store), 7);
    let gone = |n: usize| got(&logs[n], ITEM).is_none();
    assert!(!gone(0) && gone(1) && gone(2) && !gone(3));
}

#[test]
fn the_bound_holds_whatever_is_put() {
    let size = 1 << 20;
    let (_parent, store, _) = store(size);
    for n in 0..200 {
        let log = store.entry(&key(n));
        log.put("scan", &vec![1; 10_000]);
        log.put("index-0", &vec![2; (n as usize * 7919) % 100_000]);
        let kept: u64 = fs::read_dir(&store.path)
            .unwrap()
            .flat_map(|f| fs::read_dir(f.unwrap().path()).unwrap())
            .map(|f| f.unwrap().metadata().unwrap().len())
            .sum();
        assert!(kept <= size, "{kept} bytes after {n}");
    }
    // An item that is too large for the store is not written, and no entry is evicted for it.
    let before = files(&store);
    store.entry(&key(1000)).put("scan", &vec![0; size as usize]);
    assert_eq!(files(&store), before);
    // An entry with too many items for the store is evicted alone.
    let large = store.entry(&key(1001));
    (0..20).for_each(|n| large.put(&format!("index-{n}"), &vec![0; 100_000]));
    store.evict();
    assert!(files(&store) > 0);
}

#[test]
fn files_that_nobody_finished_are_removed() {
    let (_parent, store, log) = store(1 << 20);
    log.put(ITEM, b"bytes");
    let [old, new, other] = ["tmp-0123456789abcdef", "tmp-fedcba9876543210", "tmp-old"];
    let [old, new, other] = [old, new, other].map(|name| file_of(&log, name));
    for path in [&old, &new, &other] {
        fs::write(path, "h5logkep, half a f").unwrap();
    }
    // A file that was cut off at once, and one of a user.
    let [cut, users] = ["tmp-0000000000000001", "tmp-0000000000000002"];
    let [cut, users] = [cut, users].map(|name| file_of(&log, name));
    fs::write(&cut, "h5l").unwrap();
    fs::write(&users, "notes").unwrap();
    let yesterday = SystemTime::now() - Duration::from_secs(86_400);
    for path in [&old, &other, &cut, &users] {
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(yesterday).unwrap();
    }
    // Other files in the directory stay.
    let foreign = store.path.join("notes.txt");
    fs::write(&foreign, "keep").unwrap();
    store.evict();
    assert!(!old.exists() && new.exists() && other.exists() && foreign.exists());
    assert!(!cut.exists() && users.exists());
    assert!(got(&log, ITEM).is_some());
}

/// The user may have other files in the directory.
#[test]
fn only_files_of_the_store_are_evicted() {
    let (_parent, store, log) = store(1 << 20);
    log.put(ITEM, b"bytes");
    let names = ["notes.txt", "index", "index-7.orig", "index-7", "tmp-1"];
    let dirs = ["0".repeat(32), "0".repeat(31), "F".repeat(32)];
    for dir in &dirs {
        fs::create_dir(store.path.join(dir)).unwrap();
        for name in names {
            fs::write(store.path.join(dir).join(name), "keep").unwrap();
        }
    }
    let other = file_of(&log, "notes.txt");
    fs::write(&other, vec![0; 1 << 20]).unwrap();
    // A foreign file does not count: all entries fit.
    store.evict();
    assert!(got(&log, ITEM).is_some());
    Store::open(&store.path, 0).unwrap().evict();
    let left = |dir: &str| fs::read_dir(store.path.join(dir)).unwrap().count();
    // Two of the names are those of items, but none of the files is an item.
    assert_eq!(dirs.map(|dir| left(&dir)), [5, 5, 5]);
    assert!(other.exists() && !file_of(&log, ITEM).exists());
}

#[test]
fn many_may_write_and_tidy_at_once() {
    let (_parent, first, _) = store(1 << 18);
    std::thread::scope(|scope| {
        for daemon in 0..4 {
            let path = &first.path;
            scope.spawn(move || {
                let store = Arc::new(Store::open(path, 1 << 18).unwrap());
                for round in 0..100u64 {
                    let number = (round * 7 + daemon) % 10;
                    let log = store.entry(&key(number));
                    let bytes = vec![number as u8; 5000 + 1000 * number as usize];
                    log.put(ITEM, &bytes);
                    // Items are absent or complete.
                    assert!(got(&log, ITEM).is_none_or(|got| got == bytes));
                }
            });
        }
    });
    first.evict();
    let unfinished = fs::read_dir(&first.path)
        .unwrap()
        .flat_map(|f| fs::read_dir(f.unwrap().path()).unwrap())
        .filter(|f| {
            let name = f.as_ref().unwrap().file_name();
            is_unfinished(name.as_encoded_bytes())
        })
        .count();
    assert_eq!(unfinished, 0);
}

#[test]
fn a_directory_that_vanishes_is_no_error() {
    let (_parent, store, log) = store(1 << 20);
    log.put(ITEM, b"bytes");
    fs::remove_dir_all(&store.path).unwrap();
    assert_eq!(got(&log, ITEM), None);
    log.put(ITEM, b"bytes");
    assert_eq!(got(&log, ITEM), None);
    store.evict();
}
