//! Many broken files, each of which costs a scan and a log line; many open statistics files.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use rustix::fs::Advice;
use rustix::io::Errno;
use rustix::process::Signal;

use crate::arena::{Arena, Attack};
use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::people::{ALICE, BOB, corpus};
use crate::common::{errno, wait_until};

#[test]
fn broken_files_by_the_thousand() {
    let Some(arena) = Arena::new() else { return };
    let dir = arena.source(ALICE);
    for number in 0..2500 {
        break_file(&dir.join(format!("broken-{number}.h5")));
    }
    arena.give(ALICE);
    arena.attack("2,500 broken files", |attack| {
        attack.together(8, |_| {
            while !attack.is_over() {
                for entry in fs::read_dir(arena.shown(ALICE)).unwrap() {
                    assert!(fs::read(entry.unwrap().path()).is_err());
                    if attack.is_over() {
                        break;
                    }
                }
            }
        });
    });
    // The log takes 200 messages at once. On a slow machine the attack makes no more.
    ALICE.act(|| {
        for number in 0..600 {
            let file = arena.shown(ALICE).join(format!("broken-{number}.h5"));
            assert!(fs::read(file).is_err());
        }
    });
    // Other users do the same, for example a backup.
    BOB.act(|| {
        for entry in fs::read_dir(arena.shown(ALICE)).unwrap() {
            assert!(fs::read(entry.unwrap().path()).is_err());
        }
    });
    assert!(arena.messages().contains("alice/broken-"));
    // The log still has room for an error of this user.
    break_file(&arena.source(BOB).join("broken.h5"));
    arena.give(BOB);
    BOB.act(|| assert!(fs::read(arena.shown(BOB).join("broken.h5")).is_err()));
    wait_until("the log tells of the other user's file", || {
        arena.messages().contains("bob/broken.h5")
    });
    let suppressed = format!("about files of user {} suppressed", ALICE.uid);
    arena.mounted.send(Signal::TERM);
    wait_until("the log tells how many messages are missing", || {
        arena.messages().contains(&suppressed)
    });
}

/// A user's errors with another user's file leave room for the errors of the owner.
#[test]
fn the_damaged_file_of_another_user() {
    let Some(arena) = Arena::new() else { return };
    let (chunks, bytes) = (600, 4096);
    let dataset = Dataset::new("data", 0, Type::U8, &[chunks, bytes]).chunked(&[1, bytes]);
    let beyond =
        |row| Entry::one(0, &[row, 0], &[1, bytes], vec![1]).claiming(1 << 40, bytes as i64);
    let entries = (0..chunks).map(beyond).collect();
    LogFile::with(vec![dataset], entries).write(&arena.source(BOB).join("damaged.h5"));
    break_file(&arena.source(BOB).join("broken.h5"));
    arena.give(BOB);
    let flood = |attack: &Attack| {
        let file = File::open(arena.shown(BOB).join("damaged.h5")).unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
        let end = file.metadata().unwrap().len();
        while !attack.is_over() {
            for at in (0..end).step_by(bytes as usize) {
                let _ = file.read_at(&mut [0; 1], at);
            }
        }
    };
    let lines = || arena.messages().matches("damaged.h5: dataset").count();
    thread::scope(|scope| {
        scope.spawn(|| arena.attack("each chunk of another user's damaged file", flood));
        wait_until("a share of the log is full", || lines() >= 200);
        BOB.act(|| assert!(fs::read(arena.shown(BOB).join("broken.h5")).is_err()));
    });
    assert!(arena.messages().contains("bob/broken.h5"));
}

#[test]
fn statistics_that_are_held_open() {
    let Some(arena) = Arena::new() else { return };
    let stats = arena.mounted.join(".h5logfs/stats");
    let open = || File::open(&stats);
    let held = arena.attack("all statistics files that a user may open", |_| {
        (0..2000).map_while(|_| open().ok()).collect::<Vec<File>>()
    });
    BOB.act(|| open().unwrap());
    open().unwrap();
    assert_eq!(ALICE.act(|| errno(open())), Some(Errno::MFILE));
    drop(held);
    wait_until("they are closed", || ALICE.act(|| open().is_ok()));
}

/// A log that libhdf5 cannot open.
fn break_file(path: &Path) {
    fs::copy(corpus("corpus/truncated.log.h5"), path).unwrap();
}
