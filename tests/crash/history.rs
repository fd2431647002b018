//! The operations of programs on the files of a directory, in one order, and the states that crashes can leave.
//!
//! Killed processes lose nothing that they did. After a power failure, each part of the files is as it was at some
//! time since its last sync: a piece of a file, the size of a file, the names in a directory. These times are
//! independent, so bytes may be missing before others, a size may come without bytes, a name without a size, and
//! nothing in the order of operations. A sync of a file holds its bytes and its size, and a sync of a directory its
//! names: what POSIX promises, and no more. Names in one directory keep their order, as on all file systems with a
//! journal.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::common::served::ROOT;

/// A directory, and a name in it.
pub type Place = (u64, Vec<u8>);

/// An operation on files, which have numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Create {
        inode: u64,
        is_directory: bool,
        place: Place,
    },
    Link {
        inode: u64,
        place: Place,
    },
    Remove {
        place: Place,
    },
    Rename {
        inode: u64,
        from: Place,
        to: Place,
    },
    Write {
        inode: u64,
        offset: u64,
        data: Vec<u8>,
    },
    Resize {
        inode: u64,
        len: u64,
    },
    /// All of a file, or all names in a directory, reach the disk.
    Sync {
        inode: u64,
    },
    /// A program reports an action, before or after it.
    Say(String),
}

/// A part that has the state of one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// A piece of a file.
    Piece(u64, u64),
    /// The size of a file.
    Size(u64),
    /// The names in a directory.
    Names(u64),
}

/// Directories and files by number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Disk {
    pub files: BTreeMap<u64, Vec<u8>>,
    pub directories: BTreeMap<u64, BTreeMap<Vec<u8>, u64>>,
}

impl Default for Disk {
    fn default() -> Self {
        Disk {
            files: BTreeMap::new(),
            directories: BTreeMap::from([(ROOT, BTreeMap::new())]),
        }
    }
}

impl Disk {
    /// Carries out an operation, but only for items that `applies` accepts, in pieces of `piece` bytes.
    fn apply(&mut self, operation: &Operation, piece: u64, applies: impl Fn(Item) -> bool) {
        let names = |place: &Place| applies(Item::Names(place.0));
        match operation {
            Operation::Create {
                inode,
                is_directory,
                place,
            } => {
                if *is_directory {
                    self.directories.entry(*inode).or_default();
                } else {
                    self.files.entry(*inode).or_default();
                }
                if names(place) {
                    self.set_name(place, Some(*inode));
                }
            }
            Operation::Link { inode, place } if names(place) => self.set_name(place, Some(*inode)),
            Operation::Remove { place } if names(place) => self.set_name(place, None),
            Operation::Rename { inode, from, to } => {
                if names(from) {
                    self.set_name(from, None);
                }
                if names(to) {
                    self.set_name(to, Some(*inode));
                }
            }
            Operation::Write {
                inode,
                offset,
                data,
            } => {
                let file = self.files.entry(*inode).or_default();
                let end = offset + data.len() as u64;
                for number in offset / piece..end.div_ceil(piece) {
                    let from = (*offset).max(number * piece);
                    let to = end.min((number + 1) * piece);
                    if applies(Item::Piece(*inode, number)) {
                        let range = (from - offset) as usize..(to - offset) as usize;
                        put(file, from as usize, &data[range]);
                    }
                }
            }
            Operation::Resize { inode, len } => {
                let file = self.files.entry(*inode).or_default();
                for number in len / piece..(file.len() as u64).div_ceil(piece) {
                    let (from, to) = ((number * piece).max(*len), (number + 1) * piece);
                    if applies(Item::Piece(*inode, number)) {
                        let to = file.len().min(to as usize);
                        file[from as usize..to].fill(0);
                    }
                }
            }
            _ => {}
        }
    }

    /// Carries out an operation completely.
    pub fn follow(&mut self, operation: &Operation) {
        self.apply(operation, 4096, |_| true);
        let (inode, len) = match operation {
            Operation::Resize { inode, len } => (inode, *len),
            _ => return,
        };
        self.resize(*inode, len);
    }

    fn resize(&mut self, inode: u64, len: u64) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.resize(len as usize, 0);
        }
    }

    fn set_name(&mut self, (directory, name): &Place, inode: Option<u64>) {
        let names = self.directories.entry(*directory).or_default();
        match inode {
            Some(inode) => names.insert(name.clone(), inode),
            None => names.remove(name),
        };
    }

    /// Forgets files without a name.
    fn forget_nameless(&mut self) {
        let mut reached = BTreeSet::from([ROOT]);
        let mut open = vec![ROOT];
        while let Some(inode) = open.pop() {
            let names = self.directories.get(&inode).into_iter().flatten();
            open.extend(
                names
                    .map(|(_, inode)| inode)
                    .filter(|inode| reached.insert(**inode)),
            );
        }
        self.files.retain(|inode, _| reached.contains(inode));
        self.directories.retain(|inode, _| reached.contains(inode));
    }

    /// Makes these files in a directory.
    pub fn store(&self, dir: &Path) -> io::Result<()> {
        self.store_directory(ROOT, dir, &mut BTreeMap::new())
    }

    fn store_directory(
        &self,
        inode: u64,
        dir: &Path,
        stored: &mut BTreeMap<u64, PathBuf>,
    ) -> io::Result<()> {
        for (name, inode) in &self.directories[&inode] {
            let path = dir.join(std::ffi::OsStr::from_bytes(name));
            if self.directories.contains_key(inode) {
                // An index directory is not used if others can enter it.
                DirBuilder::new().mode(0o700).create(&path)?;
                self.store_directory(*inode, &path, stored)?;
            } else if let Some(first) = stored.get(inode) {
                fs::hard_link(first, &path)?;
            } else {
                fs::write(&path, &self.files[inode])?;
                stored.insert(*inode, path);
            }
        }
        Ok(())
    }
}

fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[at..end].copy_from_slice(bytes);
}

/// Operations since the directory was empty. A time is the number of operations before it.
#[derive(Debug, Clone, Default)]
pub struct History(pub Vec<Operation>);

impl History {
    /// The state at a time.
    pub fn at(&self, end: usize) -> Disk {
        let mut disk = Disk::default();
        self.0[..end].iter().for_each(|done| disk.follow(done));
        disk.forget_nameless();
        disk
    }

    /// Whether a power failure loses nothing done before a time.
    pub fn is_held(&self, end: usize) -> bool {
        self.after_loss(end, 4096, |_, first| first) == self.at(end)
    }

    /// The state at a time, with only `bytes` bytes of the last write.
    pub fn cut(&self, end: usize, bytes: usize) -> Disk {
        let mut cut = self.0[..end].to_vec();
        if let Some(Operation::Write { data, .. }) = cut.last_mut() {
            data.truncate(bytes);
        }
        History(cut).at(end)
    }

    /// The state after a power failure at `end`, where each item is as it was at the time that `choose` returns.
    /// `choose` receives the earliest possible time. Pieces have `piece` bytes.
    pub fn after_loss(
        &self,
        end: usize,
        piece: u64,
        mut choose: impl FnMut(Item, usize) -> usize,
    ) -> Disk {
        let held = self.held(end);
        let mut moments: BTreeMap<Item, usize> = BTreeMap::new();
        for (item, inode) in self.changed(end, piece) {
            let first = held.get(&inode).copied().unwrap_or(0);
            moments.insert(item, choose(item, first).clamp(first, end));
        }
        let moment = |item| moments.get(&item).copied().unwrap_or(end);
        let (mut disk, mut sizes) = (Disk::default(), BTreeMap::<u64, u64>::new());
        for (at, done) in self.0[..end].iter().enumerate() {
            disk.apply(done, piece, |item| at < moment(item));
            if let Some((inode, len)) = size_of(done, &sizes)
                && at < moment(Item::Size(inode))
            {
                sizes.insert(inode, len);
            }
        }
        let files: Vec<u64> = disk.files.keys().copied().collect();
        for inode in files {
            disk.resize(inode, sizes.get(&inode).copied().unwrap_or(0));
        }
        disk.forget_nameless();
        disk
    }

    /// The time up to which each file and directory is on disk.
    fn held(&self, end: usize) -> BTreeMap<u64, usize> {
        let mut held = BTreeMap::new();
        for (at, done) in self.0[..end].iter().enumerate() {
            match done {
                Operation::Create { inode, .. } | Operation::Sync { inode } => {
                    held.insert(*inode, at + 1);
                }
                _ => {}
            }
        }
        held
    }

    /// The items changed since they were on disk, with their files.
    fn changed(&self, end: usize, piece: u64) -> BTreeMap<Item, u64> {
        let held = self.held(end);
        let mut changed = BTreeMap::new();
        let mut lens = BTreeMap::<u64, u64>::new();
        for (at, done) in self.0[..end].iter().enumerate() {
            for (item, inode) in items(done, piece, &lens) {
                if held.get(&inode).is_none_or(|held| at >= *held) {
                    changed.insert(item, inode);
                }
            }
            if let Some((inode, len)) = size_of(done, &lens) {
                let longest = lens.entry(inode).or_default();
                *longest = len.max(*longest);
            }
        }
        changed
    }

    /// The operations before `end` that no sync holds. `changes` comes from [`History::changes`].
    pub fn loose(&self, end: usize, changes: &[Vec<(Item, u64)>]) -> Vec<usize> {
        let held = self.held(end);
        let is_loose = |at: &usize| {
            let mut changes = changes[*at].iter();
            changes.any(|(_, inode)| held.get(inode).is_none_or(|held| at >= held))
        };
        (0..end).filter(is_loose).collect()
    }

    /// The items that each operation changes, with their files.
    pub fn changes(&self, piece: u64) -> Vec<Vec<(Item, u64)>> {
        let mut lens = BTreeMap::new();
        let mut changes = Vec::new();
        for done in &self.0 {
            changes.push(items(done, piece, &lens));
            if let Some((inode, len)) = size_of(done, &lens) {
                lens.insert(inode, len);
            }
        }
        changes
    }
}

impl History {
    /// A description of an operation.
    pub fn describe(&self, at: usize) -> String {
        let mut names = BTreeMap::from([(ROOT, ".".to_owned())]);
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        for done in &self.0[..=at] {
            if let Operation::Create { inode, place, .. }
            | Operation::Link { inode, place }
            | Operation::Rename {
                inode, to: place, ..
            } = done
            {
                names.insert(*inode, text(&place.1));
            }
        }
        let name = |inode: &u64| names.get(inode).cloned().unwrap_or_default();
        match &self.0[at] {
            Operation::Create { place, .. } => format!("create {}", text(&place.1)),
            Operation::Link { inode, place } => format!("link {inode} as {}", text(&place.1)),
            Operation::Remove { place } => format!("remove {}", text(&place.1)),
            Operation::Rename { from, to, .. } => {
                format!("rename {} to {}", text(&from.1), text(&to.1))
            }
            Operation::Write {
                inode,
                offset,
                data,
            } => format!("write {} {offset}+{}", name(inode), data.len()),
            Operation::Resize { inode, len } => format!("resize {} to {len}", name(inode)),
            Operation::Sync { inode } => format!("sync {}", name(inode)),
            Operation::Say(line) => format!("say {line:?}"),
        }
    }
}

/// The new size of a file.
fn size_of(done: &Operation, sizes: &BTreeMap<u64, u64>) -> Option<(u64, u64)> {
    match done {
        Operation::Write {
            inode,
            offset,
            data,
        } => {
            let before = sizes.get(inode).copied().unwrap_or(0);
            Some((*inode, before.max(offset + data.len() as u64)))
        }
        Operation::Resize { inode, len } => Some((*inode, *len)),
        _ => None,
    }
}

/// The items that an operation changes, with their files. `lens` has the present or former lengths of files.
fn items(done: &Operation, piece: u64, lens: &BTreeMap<u64, u64>) -> Vec<(Item, u64)> {
    let names = |place: &Place| (Item::Names(place.0), place.0);
    let pieces = |inode: u64, from: u64, to: u64| {
        let numbers = from / piece..to.div_ceil(piece);
        let pieces = numbers.map(move |number| (Item::Piece(inode, number), inode));
        let mut items = vec![(Item::Size(inode), inode)];
        items.extend(pieces);
        items
    };
    match done {
        Operation::Create { place, .. }
        | Operation::Link { place, .. }
        | Operation::Remove { place } => vec![names(place)],
        Operation::Rename { from, to, .. } => vec![names(from), names(to)],
        Operation::Write {
            inode,
            offset,
            data,
        } => pieces(*inode, *offset, offset + data.len() as u64),
        Operation::Resize { inode, len } => {
            let longest = lens.get(inode).copied().unwrap_or(0);
            pieces(*inode, *len, longest.max(*len))
        }
        Operation::Sync { .. } | Operation::Say(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 3;

    fn name(text: &str) -> Place {
        (ROOT, text.as_bytes().to_vec())
    }

    fn write(offset: u64, byte: u8, len: usize) -> Operation {
        Operation::Write {
            inode: FILE,
            offset,
            data: vec![byte; len],
        }
    }

    /// A file whose first page is on disk, and which has been renamed.
    fn history() -> History {
        History(vec![
            Operation::Create {
                inode: FILE,
                is_directory: false,
                place: name("new"),
            },
            write(0, 1, 4096),
            Operation::Sync { inode: FILE },
            Operation::Sync { inode: ROOT },
            write(1000, 2, 8000),
            Operation::Rename {
                inode: FILE,
                from: name("new"),
                to: name("file"),
            },
        ])
    }

    fn found(disk: &Disk) -> (&str, &[u8]) {
        let names = &disk.directories[&ROOT];
        let (name, inode) = names.iter().next().unwrap();
        assert_eq!((names.len(), *inode), (1, FILE));
        (std::str::from_utf8(name).unwrap(), &disk.files[&FILE])
    }

    #[test]
    fn what_was_synced_stays_and_all_else_may_be_lost() {
        let history = history();
        let old = vec![1; 4096];
        let new = [vec![1; 1000], vec![2; 8000]].concat();
        let kept = history.at(6);
        assert_eq!(found(&kept), ("file", &new[..]));
        let nothing = history.after_loss(6, 4096, |_, first| first);
        assert_eq!(found(&nothing), ("new", &old[..]));
        // The size is there, and the second page of the bytes.
        let torn = history.after_loss(6, 4096, |item, first| match item {
            Item::Size(_) | Item::Piece(_, 1) => 6,
            _ => first,
        });
        let wanted = [&old, &vec![2; 4096][..], &vec![0; 808]].concat();
        assert_eq!(found(&torn), ("new", &wanted[..]));
        assert_eq!(history.loose(6, &history.changes(4096)), [4, 5]);
        assert!(history.loose(4, &history.changes(4096)).is_empty());
    }

    #[test]
    fn what_was_cut_off_is_zeros_if_the_size_is_older() {
        let mut history = history();
        history.0.push(Operation::Resize {
            inode: FILE,
            len: 500,
        });
        assert_eq!(found(&history.at(7)), ("file", &[1; 500][..]));
        let cut = history.after_loss(7, 512, |item, first| match item {
            Item::Size(_) => first,
            _ => 7,
        });
        let wanted = [vec![1; 500], vec![0; 3596]].concat();
        assert_eq!(found(&cut), ("file", &wanted[..]));
    }

    #[test]
    fn files_that_share_an_inode_are_stored_as_one() {
        let mut history = history();
        history.0.push(Operation::Link {
            inode: FILE,
            place: name("second"),
        });
        let dir = tempfile::tempdir().unwrap();
        history.at(7).store(dir.path()).unwrap();
        fs::write(dir.path().join("second"), "both").unwrap();
        let read = fs::read_to_string(dir.path().join("file")).unwrap();
        assert_eq!(read, "both");
    }
}
