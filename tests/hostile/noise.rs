//! Many broken files, each of which costs a scan and a line in the log; many open statistics files.

use std::fs::{self, File};
use std::path::Path;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::arena::Arena;
use crate::common::people::{ALICE, BOB, corpus};
use crate::common::{errno, wait_until};

#[test]
fn broken_files_by_the_thousand() {
    let Some(arena) = Arena::new() else {
        return;
    };
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
    // So do other users, for example a backup.
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

#[test]
fn statistics_that_are_held_open() {
    let Some(arena) = Arena::new() else {
        return;
    };
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
