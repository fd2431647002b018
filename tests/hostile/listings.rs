//! Directories of very many names: listed, queried for attributes, and changed all the time.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::arena::Arena;
use crate::common::people::ALICE;

const FEWER: usize = 20_000;
const MANY: usize = 100_000;
const VERY_MANY: usize = 800_000;
const LISTERS: usize = 8;
const LONGEST_NAME: usize = 255;

#[test]
fn listers_of_a_large_directory() {
    list("8 listers of 100,000 names", MANY);
}

#[test]
#[ignore = "makes 800,000 files"]
fn listers_of_a_very_large_directory() {
    list("8 listers of 800,000 names", VERY_MANY);
}

#[test]
fn attributes_of_many_names() {
    ask_for_attributes("attributes of 20,000 long names", FEWER);
}

#[test]
#[ignore = "makes 800,000 files"]
fn attributes_of_very_many_names() {
    ask_for_attributes("attributes of 800,000 long names", VERY_MANY);
}

#[test]
#[ignore = "makes 800,000 files"]
fn very_large_directories_that_stay_open() {
    let Some(arena) = Arena::new() else { return };
    make(&arena, VERY_MANY, long_name);
    arena.attack_on_time("800,000 long names, open ten times", |attack| {
        attack.together(10, |_| {
            let mut listing = fs::read_dir(dir(&arena)).unwrap();
            for entry in listing.by_ref() {
                entry.unwrap();
            }
            // The directory stays open to the end of the attack.
            while !attack.is_over() {
                thread::sleep(Duration::from_millis(10));
            }
        });
    });
}

#[test]
fn a_large_directory_that_changes_all_the_time() {
    change_while_others_look("20,000 empty files, one renamed every 2 ms", FEWER);
}

#[test]
#[ignore = "makes 100,000 files"]
fn a_very_large_directory_that_changes_all_the_time() {
    change_while_others_look("100,000 empty files, one renamed every 2 ms", MANY);
}

fn short_name(number: usize) -> String {
    format!("name-{number}")
}

fn long_name(number: usize) -> String {
    let name = format!("{number}-");
    let rest = LONGEST_NAME - name.len();
    name + &"n".repeat(rest)
}

fn empty_netcdf(number: usize) -> String {
    format!("empty-{number}.nc")
}

/// ALICE's directory of many names, in the mount.
fn dir(arena: &Arena) -> PathBuf {
    arena.shown(ALICE).join("many")
}

/// Creates it as ALICE. Most of the files are empty.
fn make(arena: &Arena, count: usize, name: fn(usize) -> String) -> PathBuf {
    let dir = arena.source(ALICE).join("many");
    ALICE.act(|| {
        fs::create_dir(&dir).unwrap();
        for number in 0..count {
            File::create(dir.join(name(number))).unwrap();
        }
        symlink("nowhere", dir.join("link")).unwrap();
    });
    dir
}

fn list(name: &str, count: usize) {
    let Some(arena) = Arena::new() else { return };
    make(&arena, count, short_name);
    arena.attack_on_time(name, |attack| {
        attack.together(LISTERS, |_| {
            // A listing completes at least once, from the first name to the last.
            let seen = names(&dir(&arena)).unwrap();
            assert_eq!(seen, count + 1);
            while !attack.is_over() {
                names(&dir(&arena)).unwrap();
            }
        });
    });
}

fn names(dir: &Path) -> io::Result<usize> {
    fs::read_dir(dir)?.try_fold(0, |count, entry| entry.map(|_| count + 1))
}

fn ask_for_attributes(name: &str, count: usize) {
    let Some(arena) = Arena::new() else { return };
    make(&arena, count, long_name);
    arena.attack_on_time(name, |attack| {
        attack.together(LISTERS, |first| {
            for number in (first..count).step_by(LISTERS) {
                let asked = fs::metadata(dir(&arena).join(long_name(number)));
                assert!(asked.is_ok(), "{number}: {asked:?}");
            }
        });
    });
}

fn change_while_others_look(name: &str, count: usize) {
    let Some(arena) = Arena::new() else { return };
    let source = make(&arena, count, empty_netcdf);
    let stop = AtomicBool::new(false);
    arena.attack_on_time(name, |attack| {
        thread::scope(|scope| {
            scope.spawn(|| rename_until(&stop, &source));
            attack.together(LISTERS, |first| {
                for number in (first..count).step_by(LISTERS).cycle() {
                    if attack.is_over() {
                        break;
                    }
                    let asked = fs::metadata(dir(&arena).join(empty_netcdf(number)));
                    assert!(asked.is_ok() || number == 0, "{asked:?}");
                }
            });
            stop.store(true, Ordering::Relaxed);
        });
    });
}

/// Renames the first file back and forth, every two milliseconds.
fn rename_until(stop: &AtomicBool, dir: &Path) {
    let names = [empty_netcdf(0), "renamed.nc".to_owned()].map(|name| dir.join(name));
    for [from, to] in [[0, 1], [1, 0]].iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        fs::rename(&names[*from], &names[*to]).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
}
