//! The table of inodes, which maps the kernel's inode numbers to names and versions.
//!
//! A number stands for (parent, name, version) and is never reused. A log that has grown gets a new number, and new pages in
//! the kernel's cache. Open files keep the old number and the old bytes.
//!
//! The table is bounded: when it takes much memory, the kernel is asked to forget the oldest inodes (`pruner`).
//!
//! A node lives as long as it is needed: by a look-up that the kernel has not forgotten, by an open handle, or by a node
//! below it, whose path leads through it.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use super::attributes::Attributes;
use super::place::{Place, Version};
use super::source_tree::Entry;
use super::virtual_files::flush_of;

/// Inode number of the mounted directory, prescribed by FUSE.
pub const ROOT: u64 = 1;

/// The state of an inode at the start of a request.
#[derive(Debug, Clone)]
pub struct Inode {
    pub place: Place,
    pub version: Version,
    /// Attributes of the last request for them.
    pub attributes: Attributes,
    pub is_open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    parent: u64,
    name: Box<OsStr>,
    version: Version,
}

#[derive(Debug)]
struct Node {
    key: Arc<Key>,
    attributes: Attributes,
    lookups: u64,
    handles: u32,
    children: u32,
}

impl Node {
    fn is_needed(&self) -> bool {
        self.lookups > 0 || !self.is_idle()
    }

    /// Whether only look-ups need the node.
    fn is_idle(&self) -> bool {
        self.handles == 0 && self.children == 0
    }
}

#[derive(Debug)]
struct Nodes {
    /// Boxed nodes, because up to half of a table's places are empty.
    nodes: HashMap<u64, Box<Node>>,
    numbers: HashMap<Arc<Key>, u64>,
    next: u64,
    /// Memory of the nodes, in bytes.
    memory: usize,
    /// All numbers, the oldest first, including some removed ones.
    oldest: VecDeque<u64>,
    /// Number of requests that are searching each directory, if the kernel forgets by name.
    searched: HashMap<u64, usize>,
}

#[derive(Debug)]
pub struct InodeTable {
    table: Mutex<Nodes>,
    /// Notified when the nodes exceed [`MEMORY`].
    is_large: Condvar,
    /// Whether the kernel can only be asked to forget single names.
    by_name: AtomicBool,
}

/// The name of an inode. The kernel may be notified that it is out of date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub directory: u64,
    pub name: OsString,
    /// Whether a request is searching the directory. The kernel waits for it before it accepts the notification.
    pub is_searched: bool,
}

/// Memory above which the kernel is asked to forget inodes, in bytes.
const MEMORY: usize = 48 << 20;
/// Memory above which it also forgets names in directories that are being searched.
const MEMORY_OF_SEARCHED: usize = 64 << 20;
/// Size of a node without its name: the node, its key, and some 120 bytes for the tables and the allocator.
const NODE: usize = size_of::<Node>() + size_of::<Key>() + 120;
/// Number of inodes that the kernel is asked to forget at a time.
const BATCH: usize = 512;

impl InodeTable {
    pub fn new(root: Entry) -> Self {
        let key = Key {
            parent: ROOT,
            name: OsStr::new("").into(),
            version: root.version,
        };
        let node = Node {
            key: Arc::new(key),
            attributes: root.attributes,
            // The kernel never forgets the root.
            lookups: 1,
            handles: 0,
            children: 0,
        };
        InodeTable {
            table: Mutex::new(Nodes {
                nodes: HashMap::from([(ROOT, Box::new(node))]),
                numbers: HashMap::new(),
                next: ROOT + 1,
                memory: 0,
                oldest: VecDeque::new(),
                searched: HashMap::new(),
            }),
            is_large: Condvar::new(),
            by_name: AtomicBool::new(false),
        }
    }

    /// Counts searches from now on, because the kernel can only forget single names.
    pub fn forget_by_name(&self) {
        self.by_name.store(true, Ordering::Relaxed);
    }

    /// Whether the kernel can only be asked to forget single names.
    pub fn forgets_by_name(&self) -> bool {
        self.by_name.load(Ordering::Relaxed)
    }

    pub fn get(&self, number: u64) -> Option<Inode> {
        let table = self.table.lock();
        let node = table.nodes.get(&itself(number))?;
        let directory = !is_root(number);
        let directory = directory.then(|| table.nodes.get(&itself(node.key.parent)));
        let (path, flush) = table.path(number)?;
        Some(Inode {
            place: Place {
                path,
                directory: directory.flatten().map(|parent| parent.key.version),
                flush,
            },
            version: node.key.version,
            attributes: node.attributes,
            is_open: node.handles > 0,
        })
    }

    /// The number of `name` in `parent`. Counts a look-up, which the kernel forgets later. `None` if the parent is unknown.
    pub fn look_up(&self, parent: u64, name: &OsStr, entry: Entry) -> Option<u64> {
        let mut table = self.table.lock();
        let number = table.look_up(parent, name, entry);
        if table.memory > MEMORY {
            self.is_large.notify_one();
        }
        number
    }

    /// Waits until the table is large. Returns the oldest inodes that only look-ups need, for the kernel to forget. `None` if
    /// all were tried: then the table stays large for a while. `tried` counts them between calls.
    pub fn wait_for_excess(&self, tried: &mut usize) -> Option<Vec<u64>> {
        let mut table = self.table.lock();
        while table.memory <= MEMORY {
            *tried = 0;
            self.is_large.wait(&mut table);
        }
        if *tried >= table.oldest.len() {
            *tried = 0;
            return None;
        }
        *tried += BATCH;
        Some(table.oldest(BATCH))
    }

    /// Marks a directory as searched until the returned value is dropped. `None` if that is not needed.
    pub fn search(self: &Arc<Self>, directory: u64) -> Option<Search> {
        if !self.forgets_by_name() {
            return None;
        }
        *self.table.lock().searched.entry(directory).or_default() += 1;
        Some(Search {
            inodes: Arc::clone(self),
            directory,
        })
    }

    /// The name of an inode that the kernel may forget by name. Directories are excluded, because a program may work in them,
    /// except below flushes, of which there may be any number. Names in searched directories are excluded, unless the table
    /// far exceeds its bound, because a directory may be searched all the time.
    pub fn name(&self, number: u64) -> Option<Name> {
        let table = self.table.lock();
        let key = &table.nodes.get(&number)?.key;
        let is_of_flush = || matches!(table.path(key.parent), Some((_, flush)) if flush.is_some());
        let is_searched = table.searched.contains_key(&key.parent);
        let may = (!key.version.is_directory() || is_of_flush())
            && (!is_searched || table.memory > MEMORY_OF_SEARCHED);
        may.then(|| Name {
            directory: key.parent,
            name: key.name.to_os_string(),
            is_searched,
        })
    }

    /// Records that the kernel has forgotten `count` look-ups.
    pub fn forget(&self, number: u64, count: u64) {
        if number == ROOT {
            return;
        }
        let mut table = self.table.lock();
        if let Some(node) = table.nodes.get_mut(&number) {
            node.lookups = node.lookups.saturating_sub(count);
        }
        table.remove_unneeded(number);
    }

    pub fn remember(&self, number: u64, attributes: Attributes) {
        if let Some(node) = self.table.lock().nodes.get_mut(&number) {
            node.attributes = attributes;
        }
    }

    /// Counts another handle.
    pub fn opened(&self, number: u64) {
        if let Some(node) = self.table.lock().nodes.get_mut(&number) {
            node.handles += 1;
        }
    }

    /// Counts a handle less.
    pub fn closed(&self, number: u64) {
        let mut table = self.table.lock();
        if let Some(node) = table.nodes.get_mut(&number) {
            node.handles = node.handles.saturating_sub(1);
        }
        table.remove_unneeded(number);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let table = self.table.lock();
        assert_eq!(table.nodes.len(), table.numbers.len() + 1);
        table.nodes.len()
    }
}

/// Marks a directory as searched by a request.
#[derive(Debug)]
pub struct Search {
    inodes: Arc<InodeTable>,
    directory: u64,
}

impl Drop for Search {
    fn drop(&mut self) {
        let searched = &mut self.inodes.table.lock().searched;
        if let Some(searches) = searched.get_mut(&self.directory) {
            *searches -= 1;
            if *searches == 0 {
                searched.remove(&self.directory);
            }
        }
    }
}

impl Nodes {
    /// The path of an inode, and the flush below which it lies.
    fn path(&self, number: u64) -> Option<(PathBuf, Option<u64>)> {
        let mut names = Vec::new();
        let mut at = number;
        while !is_root(at) {
            let key = &self.nodes.get(&at)?.key;
            names.push(&*key.name);
            at = key.parent;
        }
        Some((names.into_iter().rev().collect(), flush_of(at)))
    }

    fn look_up(&mut self, parent: u64, name: &OsStr, entry: Entry) -> Option<u64> {
        let key = Key {
            parent,
            name: name.into(),
            version: entry.version,
        };
        let known = self.numbers.get(&key).copied();
        if let Some((number, node)) = known.and_then(|n| Some((n, self.nodes.get_mut(&n)?))) {
            node.lookups += 1;
            node.attributes = entry.attributes;
            return Some(number);
        }
        // The directory of a flush has no node.
        if flush_of(parent).is_none() {
            self.nodes.get_mut(&parent)?.children += 1;
        }
        let number = self.next;
        self.next += 1;
        self.memory += memory(&key);
        self.oldest.push_back(number);
        let key = Arc::new(key);
        self.numbers.insert(Arc::clone(&key), number);
        let node = Node {
            key,
            attributes: entry.attributes,
            lookups: 1,
            handles: 0,
            children: 0,
        };
        self.nodes.insert(number, Box::new(node));
        Some(number)
    }

    /// Removes the node if it is not needed, and the nodes above it that only it needed.
    fn remove_unneeded(&mut self, number: u64) {
        let mut at = number;
        while at != ROOT && self.nodes.get(&at).is_some_and(|node| !node.is_needed()) {
            let Some(node) = self.nodes.remove(&at) else {
                return;
            };
            self.numbers.remove(&node.key);
            self.memory -= memory(&node.key);
            at = node.key.parent;
            if let Some(parent) = self.nodes.get_mut(&at) {
                parent.children = parent.children.saturating_sub(1);
            }
        }
        self.shrink();
    }

    /// Releases memory after many nodes were removed.
    fn shrink(&mut self) {
        let is_sparse = |capacity: usize, len: usize| capacity > 4 * len + 4096;
        if self.oldest.len() > 2 * self.nodes.len() + 4096 {
            self.oldest.retain(|number| self.nodes.contains_key(number));
        }
        if is_sparse(self.nodes.capacity(), self.nodes.len()) {
            self.nodes.shrink_to_fit();
            self.numbers.shrink_to_fit();
            self.oldest.shrink_to_fit();
        }
    }

    /// The oldest of the first `count` nodes that only look-ups need. All of these become the newest.
    fn oldest(&mut self, count: usize) -> Vec<u64> {
        let count = count.min(self.oldest.len());
        let first: Vec<u64> = self.oldest.drain(..count).collect();
        let is_there = |number: &u64| self.nodes.contains_key(number);
        let there: Vec<u64> = first.into_iter().filter(is_there).collect();
        self.oldest.extend(&there);
        let is_idle = |number: &u64| self.nodes.get(number).is_some_and(|node| node.is_idle());
        there.into_iter().filter(is_idle).collect()
    }
}

/// Whether paths begin at this inode: the mounted directory, in its present state or as of a flush.
fn is_root(number: u64) -> bool {
    number == ROOT || flush_of(number).is_some()
}

/// The inode that holds the version and attributes of this one.
fn itself(number: u64) -> u64 {
    if is_root(number) { ROOT } else { number }
}

fn memory(key: &Key) -> usize {
    NODE + key.name.len()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use h5logfs_log::log_dir::Naming;
    use rustix::fs::FileType;

    use super::*;
    use crate::fs::virtual_files::{DIRECTORY, look_up as look_up_virtual};

    fn entry(version: Version) -> Entry {
        Entry {
            version,
            attributes: Attributes::of_kind(FileType::RegularFile),
            grows: false,
        }
    }

    fn directory(inode: u64) -> Entry {
        entry(Version::Source {
            device: 1,
            inode,
            kind: FileType::Directory.as_raw_mode(),
        })
    }

    fn view(generation: u64) -> Entry {
        entry(Version::View {
            device: 1,
            inode: 3,
            generation,
            naming: Naming::File,
        })
    }

    #[test]
    fn one_name_in_one_version_has_one_number() {
        let inodes = InodeTable::new(directory(1));
        let a = inodes.look_up(ROOT, OsStr::new("a"), view(1)).unwrap();
        assert_eq!(inodes.look_up(ROOT, OsStr::new("a"), view(1)), Some(a));
        assert_ne!(inodes.look_up(ROOT, OsStr::new("a"), view(2)), Some(a));
        assert_ne!(inodes.look_up(ROOT, OsStr::new("b"), view(1)), Some(a));
    }

    #[test]
    fn paths_lead_through_the_parents() {
        let inodes = InodeTable::new(directory(1));
        let d = inodes.look_up(ROOT, OsStr::new("d"), directory(2)).unwrap();
        let f = inodes.look_up(d, OsStr::new("f"), view(1)).unwrap();
        assert_eq!(inodes.get(f).unwrap().place.path, Path::new("d/f"));
        assert_eq!(inodes.get(ROOT).unwrap().place.path, Path::new(""));
    }

    #[test]
    fn forgotten_nodes_leave_the_table() {
        let inodes = InodeTable::new(directory(1));
        let d = inodes.look_up(ROOT, OsStr::new("d"), directory(2)).unwrap();
        let f = inodes.look_up(d, OsStr::new("f"), view(1)).unwrap();
        inodes.look_up(d, OsStr::new("f"), view(1)).unwrap();
        // The kernel may forget a directory before its files.
        inodes.forget(d, 1);
        assert_eq!(inodes.get(f).unwrap().place.path, Path::new("d/f"));
        inodes.forget(f, 1);
        assert_eq!(inodes.len(), 3);
        inodes.forget(f, 1);
        assert_eq!(inodes.len(), 1);
        assert!(inodes.get(d).is_none());
    }

    #[test]
    fn an_open_handle_keeps_its_node() {
        let inodes = InodeTable::new(directory(1));
        let f = inodes.look_up(ROOT, OsStr::new("f"), view(1)).unwrap();
        inodes.opened(f);
        inodes.forget(f, 1);
        assert!(inodes.get(f).unwrap().is_open);
        inodes.closed(f);
        assert_eq!(inodes.len(), 1);
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let inodes = InodeTable::new(directory(1));
        inodes.forget(ROOT, u64::MAX);
        assert!(inodes.get(ROOT).is_some());
    }

    #[test]
    fn the_oldest_that_only_the_kernel_knows_come_first() {
        let inodes = InodeTable::new(directory(1));
        let d = inodes.look_up(ROOT, OsStr::new("d"), directory(2)).unwrap();
        let below = inodes.look_up(d, OsStr::new("f"), view(1)).unwrap();
        let open = inodes.look_up(ROOT, OsStr::new("o"), view(2)).unwrap();
        inodes.opened(open);
        let gone = inodes.look_up(ROOT, OsStr::new("g"), view(3)).unwrap();
        let last = inodes.look_up(ROOT, OsStr::new("l"), view(4)).unwrap();
        inodes.forget(gone, 1);
        assert_eq!(inodes.table.lock().oldest(2), [below]);
        assert_eq!(inodes.table.lock().oldest(3), [last]);
        for number in [below, d, last] {
            inodes.forget(number, 1);
        }
        inodes.forget(open, 1);
        inodes.closed(open);
        assert_eq!(inodes.table.lock().memory, 0);
    }

    #[test]
    fn names_in_directories_that_are_searched_stay() {
        let inodes = Arc::new(InodeTable::new(directory(1)));
        assert!(inodes.search(ROOT).is_none());
        inodes.forget_by_name();
        let d = inodes.look_up(ROOT, OsStr::new("d"), directory(2)).unwrap();
        let f = inodes.look_up(d, OsStr::new("f"), view(1)).unwrap();
        let g = inodes.look_up(ROOT, OsStr::new("g"), view(2)).unwrap();
        let name = |directory, name: &str| Name {
            directory,
            name: name.into(),
            is_searched: false,
        };
        let (of_f, of_g) = (Some(name(d, "f")), Some(name(ROOT, "g")));
        let names = || [d, f, g, 99].map(|number| inodes.name(number));
        let all = [None, of_f, of_g.clone(), None];
        let others = [None, None, of_g, None];
        assert_eq!(names(), all);
        let [first, second] = [inodes.search(d), inodes.search(d)];
        assert_eq!(names(), others);
        drop(first);
        assert_eq!(names(), others);
        drop(second);
        assert_eq!(names(), all);
    }

    #[test]
    fn names_in_a_directory_that_is_always_searched_go_where_there_are_far_too_many() {
        let inodes = Arc::new(InodeTable::new(directory(1)));
        inodes.forget_by_name();
        let _search = inodes.search(ROOT);
        let name = |number: usize| OsString::from(format!("{number:0255}"));
        let node = NODE + name(0).len();
        let look_up = |number| inodes.look_up(ROOT, &name(number), view(1)).unwrap();
        let first = look_up(0);
        for number in 1..MEMORY_OF_SEARCHED / node {
            look_up(number);
            assert!(inodes.name(first).is_none());
        }
        look_up(MEMORY_OF_SEARCHED / node);
        let mut count = inodes.len();
        // This kernel forgets each announced name, while programs ask for others.
        for number in 0..20 {
            look_up(MEMORY_OF_SEARCHED / node + 1 + number);
            let excess = inodes.wait_for_excess(&mut 0).unwrap();
            for number in excess {
                if let Some(name) = inodes.name(number) {
                    assert!(name.is_searched);
                    inodes.forget(number, 1);
                }
            }
            assert!(inodes.len() <= count);
            count = inodes.len();
        }
        assert_eq!(count, 1 + MEMORY_OF_SEARCHED / node);
    }

    #[test]
    fn paths_begin_anew_below_a_flush_and_its_directories_may_go() {
        let inodes = InodeTable::new(directory(1));
        let at = look_up_virtual(DIRECTORY, OsStr::new("at")).unwrap();
        let root = look_up_virtual(at, OsStr::new("37")).unwrap();
        let d = inodes.look_up(root, OsStr::new("d"), directory(2)).unwrap();
        let f = inodes.look_up(d, OsStr::new("f"), view(1)).unwrap();
        let place = inodes.get(f).unwrap().place;
        assert_eq!((&*place.path, place.flush), (Path::new("d/f"), Some(37)));
        let directory = inodes.get(d).unwrap().place.directory;
        assert_eq!(directory, Some(inodes.get(ROOT).unwrap().version));
        assert!(inodes.get(root).unwrap().place.directory.is_none());
        assert_eq!(inodes.name(d).map(|name| name.directory), Some(root));
        inodes.forget(f, 1);
        inodes.forget(d, 1);
        inodes.forget(root, 1);
        assert_eq!(inodes.len(), 1);
    }

    #[test]
    fn nothing_is_found_below_an_unknown_parent() {
        let inodes = InodeTable::new(directory(1));
        assert_eq!(inodes.look_up(99, OsStr::new("f"), view(1)), None);
        assert_eq!(inodes.len(), 1);
    }
}
