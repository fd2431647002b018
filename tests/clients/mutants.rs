//! The logs of the corpus, of jobs and of settled files, with random damage, read in all ways. Whatever a file says, there is
//! an answer or an error soon, and in bounded memory.
//!
//! `H5LOGFS_TEST_CASES` sets the number of damaged logs, `H5LOGFS_TEST_SEED` the first one: each has the number of its case
//! in the messages, and is the same for the same seed.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::amount::{either, first_seed, told};
use crate::common::damaged::Log;
use crate::common::numbers::Numbers;
use crate::common::readers::{Python, corpus};
use crate::common::settled::settle;
use crate::common::shadow::{Made, ShadowLog};
use crate::common::unclosed;
use crate::everybody::{Everybody, Found, Loaded};

/// Logs that are read at a time.
const AT_ONCE: usize = 2;

/// All that is damaged.
fn logs(python: &Python) -> Vec<Log> {
    let mut logs = Log::every();
    logs.push(made("not closed", |log, _| drop(unclosed::Log::usual(log))));
    let shadow = |log: &Path, dir: &Path| Made::by(python, dir, "latest").log(log).unlock();
    logs.push(made("of an HDF5 program", shadow));
    logs.push(made("in subfiles", |log, dir| {
        let made = Made::by(python, dir, "earliest");
        made.fill(ShadowLog::with_subfiles(log, 2)).unlock();
    }));
    logs.push(made("settled", |log, _| {
        std::fs::copy(corpus().join("tiny.log.h5"), log).unwrap();
        settle(log).unwrap();
    }));
    logs
}

/// A log that `make` makes, which gets a directory for other files.
fn made(name: &str, make: impl FnOnce(&Path, &Path)) -> Log {
    let [dir, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    make(&dir.path().join("log.h5"), other.path());
    Log::of_dir(name, dir.path(), "log.h5")
}

/// One kind of damage.
type Damage = fn(&mut Log, &mut Numbers);

const DAMAGES: [Damage; 8] = [
    turn_bits,
    change_number,
    change_number,
    cut,
    overwrite,
    copy_within,
    lose_file,
    exchange,
];

fn mutant(log: &Log, random: &mut Numbers) -> Log {
    let mut log = log.clone();
    for _ in 0..random.within(1, 3) {
        random.pick(&DAMAGES)(&mut log, random);
    }
    log
}

/// Any byte of a log is as likely as any other.
fn place(log: &Log, random: &mut Numbers) -> Option<(usize, usize)> {
    let total: usize = log.files.iter().map(|(_, bytes)| bytes.len()).sum();
    if total == 0 {
        return None;
    }
    let mut at = random.index(total);
    let lens = log.files.iter().map(|(_, bytes)| bytes.len());
    for (file, len) in lens.enumerate() {
        if at < len {
            return Some((file, at));
        }
        at -= len;
    }
    None
}

fn turn_bits(log: &mut Log, random: &mut Numbers) {
    for _ in 0..random.within(1, 8) {
        if let Some((file, at)) = place(log, random) {
            log.files[file].1[at] ^= 1 << random.below(8);
        }
    }
}

fn cut(log: &mut Log, random: &mut Numbers) {
    if let Some((file, at)) = place(log, random) {
        log.files[file].1.truncate(at);
    }
}

/// Bytes that never came to the disk, or were written by something else.
fn overwrite(log: &mut Log, random: &mut Numbers) {
    let Some((file, at)) = place(log, random) else {
        return;
    };
    let bytes = &mut log.files[file].1[at..];
    let len = bytes.len().min(random.within(1, 4096) as usize);
    match random.below(3) {
        0 => bytes[..len].fill(0),
        1 => bytes[..len].fill(0xff),
        _ => bytes[..len].copy_from_slice(&random.bytes(len)),
    }
}

/// Structures come twice.
fn copy_within(log: &mut Log, random: &mut Numbers) {
    let (Some((file, from)), Some((other, to))) = (place(log, random), place(log, random)) else {
        return;
    };
    let piece = &log.files[file].1[from..];
    let len = piece.len().min(random.within(8, 512) as usize);
    let piece = piece[..len].to_vec();
    let room = &mut log.files[other].1[to..];
    let len = room.len().min(len);
    room[..len].copy_from_slice(&piece[..len]);
}

/// The first file is the one that is opened.
fn lose_file(log: &mut Log, random: &mut Numbers) {
    if log.files.len() > 1 {
        let lost = 1 + random.index(log.files.len() - 1);
        log.files.remove(lost);
    }
}

fn exchange(log: &mut Log, random: &mut Numbers) {
    let (one, other) = (random.index(log.files.len()), random.index(log.files.len()));
    let bytes = log.files[one].1.clone();
    log.files[one].1 = std::mem::replace(&mut log.files[other].1, bytes);
}

/// Changes a number: it may be an extent, a chunk shape, a count, a rank, a length, a size, an offset. Mostly it is larger then.
fn change_number(log: &mut Log, random: &mut Numbers) {
    let file = random.index(log.files.len());
    let bytes = &mut log.files[file].1;
    let places: Vec<(usize, usize, bool)> = numbers(bytes).collect();
    if places.is_empty() {
        return;
    }
    let (at, len, is_big) = random.pick(&places);
    let mut number = [0; 8];
    let place = &mut bytes[at..at + len];
    if is_big {
        place.reverse();
    }
    number[..len].copy_from_slice(place);
    let old = u64::from_le_bytes(number);
    let new = match random.below(12) {
        0 => old | 1 << 46,
        1 => old | 1 << 31,
        2 => old << random.within(1, 60),
        3 => i64::MAX as u64,
        4 => u64::from(u32::MAX),
        5 => old + 1,
        6 => old.saturating_mul(1000),
        7 => 1 << random.within(8, 62),
        8 => i32::MAX as u64,
        9 => 0,
        10 => u64::MAX,
        _ => old | 1 << random.below(63),
    };
    place.copy_from_slice(&new.to_le_bytes()[..len]);
    if is_big {
        place.reverse();
    }
}

/// Where numbers may be: place, bytes, and whether they are big-endian. Those of data are few among them, since most are not
/// followed by zeros.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = (usize, usize, bool)> {
    let is_number = |part: &[u8], len: usize| {
        let (low, high) = part[..len].split_at(2);
        let little = low != [0; 2] && high.iter().all(|byte| *byte == 0);
        let (high, low) = part[..len].split_at(len - 2);
        let big = low != [0; 2] && high.iter().all(|byte| *byte == 0);
        match (little, big) {
            (true, _) => Some(false),
            (_, true) => Some(true),
            _ => None,
        }
    };
    let windows = bytes.windows(8).enumerate();
    windows.flat_map(move |(at, part)| {
        let found = [8, 4].map(|len| is_number(part, len).map(|big| (at, len, big)));
        found.into_iter().flatten()
    })
}

#[test]
fn random_damage_is_an_answer_or_an_error_soon() {
    let (Some(loaded), Some(python)) = (Loaded::new(), Python::new()) else {
        return;
    };
    let logs = logs(&python);
    let count = told("H5LOGFS_TEST_CASES").unwrap_or(either(36, 2000));
    let first = first_seed();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Found::default());
    let read_some = || {
        let mut everybody = Everybody::new(&loaded);
        loop {
            let case = next.fetch_add(1, Ordering::Relaxed);
            if case >= count {
                break;
            }
            let mut random = Numbers(first.wrapping_mul(1 << 20).wrapping_add(case as u64));
            let log = &logs[random.index(logs.len())];
            let mut mutant = mutant(log, &mut random);
            mutant.name = format!("{} (case {case})", log.name);
            everybody.read(&mutant, case);
        }
        let mut all = found.lock().unwrap();
        *all = std::mem::take(&mut *all).with(everybody.found);
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(read_some);
        }
    });
    eprintln!("{count} damaged logs of {}", logs.len());
    found.into_inner().unwrap().check();
}
