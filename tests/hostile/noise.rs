//! Many broken files: each costs a scan and a line in the log.

use std::fs;

use crate::arena::Arena;
use crate::common::people::{ALICE, corpus};

#[test]
fn broken_files_by_the_thousand() {
    let Some(arena) = Arena::new() else {
        return;
    };
    let dir = arena.source(ALICE);
    for number in 0..2500 {
        let name = format!("broken-{number}.h5");
        fs::copy(corpus("corpus/truncated.log.h5"), dir.join(name)).unwrap();
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
    let messages = arena.messages();
    assert!(messages.contains("alice/broken-"), "{messages}");
}
