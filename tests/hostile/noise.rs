//! Many broken files: each costs a scan and a line in the log.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::arena::Arena;
use crate::common::people::{ALICE, BOB, corpus};
use crate::common::wait_until;

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

/// A log that libhdf5 cannot open.
fn break_file(path: &Path) {
    fs::copy(corpus("corpus/truncated.log.h5"), path).unwrap();
}
