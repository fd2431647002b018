//! A private directory swaps places with an open one many thousand times a second. The mount must show only the content
//! of the open one. Neither names nor attributes in the private one may leak.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::arena::{Arena, Attack};
use crate::common::people::{ACCESS_LIST, ALICE, BOB, Entry, has_lists, list, set_mode};

/// Names that ALICE guesses: some exist in her own directory as well, and some do not.
const COMMON: usize = 20;
const GUESSED: usize = 40;
/// Only the private files have this size, and attributes of this name.
const SECRET_SIZE: u64 = 12_345;
const SECRET_NAME: &str = "user.secret";

#[test]
fn a_private_directory_tells_nothing_in_the_place_of_an_open_one() {
    let Some(arena) = Arena::new() else { return };
    let source = arena.source(ALICE);
    let [open, private] = ["open", "private"].map(|name| source.join(name));
    let has_lists = has_lists(&source);
    for (dir, number, size) in [(&open, COMMON, 1), (&private, GUESSED, SECRET_SIZE)] {
        fs::create_dir(dir).unwrap();
        for name in (0..number).map(name) {
            fs::write(dir.join(&name), vec![7; size as usize]).unwrap();
        }
        fs::create_dir(dir.join("sub")).unwrap();
        symlink(dir, dir.join("link")).unwrap();
    }
    arena.give(ALICE);
    for name in (0..GUESSED).map(name) {
        let path = private.join(name);
        BOB.owns(&path, 0o644);
        let flags = XattrFlags::empty();
        rustix::fs::setxattr(&path, SECRET_NAME, b"secret", flags).unwrap();
        if has_lists {
            let list = list([6, 4, 4, 4], &[Entry::User(BOB.uid, 4)]);
            rustix::fs::setxattr(&path, ACCESS_LIST, &list, flags).unwrap();
        }
    }
    fs::create_dir(private.join("sub/only-here")).unwrap();
    BOB.owns(&private, 0o700);
    set_mode(&open, 0o755);

    let told = Told::default();
    let swaps = AtomicU64::new(0);
    arena.attack("a private directory swapped with an open one", |attack| {
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let swapped =
                        rustix::fs::renameat_with(CWD, &open, CWD, &private, RenameFlags::EXCHANGE);
                    swapped.unwrap();
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            });
            let questions = [ask_for_attributes, ask_for_xattrs, ask_open_names, list_it];
            attack.together(questions.len(), |number| {
                questions[number](attack, &arena.shown(ALICE).join("open"), &told);
            });
            ended.store(true, Ordering::Relaxed);
        });
    });
    let told = told.0.into_inner().unwrap();
    let swaps = swaps.into_inner();
    println!("{swaps} swaps, told: {told:?}");
    assert!(swaps > 1000, "{swaps} swaps are no attack");
    assert!(told.is_empty(), "{told:?}");
}

fn name(number: usize) -> String {
    format!("guessed-{number}")
}

fn guesses(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let names = (0..GUESSED).map(name);
    let others = ["sub/only-here", "link"].map(str::to_owned);
    names.chain(others).map(|name| dir.join(name))
}

/// Leaks from the private directory, with their numbers.
#[derive(Default)]
struct Told(Mutex<BTreeMap<&'static str, u64>>);

impl Told {
    fn add(&self, what: &'static str) {
        *self.0.lock().unwrap().entry(what).or_default() += 1;
    }

    fn see(&self, attributes: &fs::Metadata, what: &'static str) {
        if attributes.uid() == BOB.uid || attributes.len() == SECRET_SIZE {
            self.add(what);
        }
    }
}

fn ask_for_attributes(attack: &Attack, dir: &Path, told: &Told) {
    while !attack.is_over() {
        for path in guesses(dir) {
            if let Ok(attributes) = fs::symlink_metadata(&path) {
                told.see(&attributes, "attributes");
                let number = path.file_name().and_then(OsStr::to_str);
                let number = number.and_then(|name| name.strip_prefix("guessed-"));
                if number.is_some_and(|n| n.parse::<usize>().unwrap() >= COMMON)
                    || path.ends_with("only-here")
                {
                    told.add("a name");
                }
            }
        }
    }
}

fn ask_for_xattrs(attack: &Attack, dir: &Path, told: &Told) {
    let mut buffer = [0; 1024];
    while !attack.is_over() {
        for path in guesses(dir) {
            if let Ok(len) = rustix::fs::llistxattr(&path, &mut buffer)
                && len > 0
            {
                told.add("names of attributes");
            }
            if rustix::fs::lgetxattr(&path, SECRET_NAME, &mut buffer).is_ok() {
                told.add("an attribute");
            }
            if rustix::fs::lgetxattr(&path, ACCESS_LIST, &mut buffer).is_ok() {
                told.add("an access list");
            }
            let link = rustix::fs::readlink(&path, Vec::new());
            if link.is_ok_and(|target| target.to_bytes().ends_with(b"private")) {
                told.add("a target");
            }
        }
    }
}

/// Asks for attributes of files that are open by name only: the kernel looks up no name for this.
fn ask_open_names(attack: &Attack, dir: &Path, told: &Told) {
    let mut held = Vec::new();
    while !attack.is_over() {
        held.clear();
        for path in guesses(dir) {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            held.extend(rustix::fs::open(&path, flags, Mode::empty()));
        }
        for _ in 0..100 {
            for file in &held {
                // This asks the file system, even if the kernel has the answer cached.
                let asked = rustix::fs::statx(
                    file,
                    "",
                    AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC,
                    rustix::fs::StatxFlags::BASIC_STATS,
                );
                match asked {
                    Ok(attributes) if attributes.stx_uid == BOB.uid => told.add("open attributes"),
                    Ok(attributes) if attributes.stx_size == SECRET_SIZE => told.add("open size"),
                    // The own directory has all opened names.
                    Err(Errno::NOENT) => told.add("that a name does not exist"),
                    _ => {}
                }
            }
        }
    }
}

fn list_it(attack: &Attack, dir: &Path, told: &Told) {
    while !attack.is_over() {
        let Ok(listing) = fs::read_dir(dir) else {
            continue;
        };
        for entry in listing.flatten() {
            if let Ok(attributes) = entry.metadata() {
                told.see(&attributes, "listed attributes");
            }
        }
    }
}
