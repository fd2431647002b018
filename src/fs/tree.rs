//! Inode numbers: which number the kernel knows for which name, in which version.
//!
//! A number stands for (parent, name, version) and is never used twice. A log file that has grown
//! is found under a new number, with pages of its own in the kernel's cache, while those who have
//! the old one open keep what they opened.
//!
//! A node lives as long as something needs it: the kernel (look-ups, until it forgets them), an
//! open handle, or a node below it, whose path leads through it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use parking_lot::Mutex;

use super::attributes::Attributes;
use super::mirror::{Entry, Version};

/// The number of the mounted directory itself; FUSE prescribes it.
pub const ROOT: u64 = 1;

/// What is known of an inode when a request for it arrives.
#[derive(Debug, Clone)]
pub struct Known {
    pub path: PathBuf,
    pub version: Version,
    /// As they were when they were last asked for.
    pub attributes: Attributes,
    pub is_open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    parent: u64,
    name: OsString,
    version: Version,
}

#[derive(Debug)]
struct Node {
    key: Key,
    attributes: Attributes,
    lookups: u64,
    handles: u64,
    children: u64,
}

impl Node {
    fn is_needed(&self) -> bool {
        self.lookups > 0 || self.handles > 0 || self.children > 0
    }
}

#[derive(Debug)]
struct Table {
    nodes: HashMap<u64, Node>,
    numbers: HashMap<Key, u64>,
    next: u64,
}

#[derive(Debug)]
pub struct Tree {
    table: Mutex<Table>,
}

impl Tree {
    pub fn new(root: Entry) -> Self {
        let key = Key {
            parent: ROOT,
            name: OsString::new(),
            version: root.version,
        };
        let node = Node {
            key,
            attributes: root.attributes,
            // The kernel never forgets the root.
            lookups: 1,
            handles: 0,
            children: 0,
        };
        Tree {
            table: Mutex::new(Table {
                nodes: HashMap::from([(ROOT, node)]),
                numbers: HashMap::new(),
                next: ROOT + 1,
            }),
        }
    }

    pub fn known(&self, number: u64) -> Option<Known> {
        let table = self.table.lock();
        let node = table.nodes.get(&number)?;
        Some(Known {
            path: table.path(number)?,
            version: node.key.version,
            attributes: node.attributes,
            is_open: node.handles > 0,
        })
    }

    /// The number of `name` in `parent`, for a look-up that the kernel will forget one day. None
    /// when the parent is unknown.
    pub fn look_up(&self, parent: u64, name: &OsStr, entry: Entry) -> Option<u64> {
        self.table.lock().look_up(parent, name, entry)
    }

    /// The kernel drops `count` of its look-ups.
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

    /// One handle more.
    pub fn opened(&self, number: u64) {
        if let Some(node) = self.table.lock().nodes.get_mut(&number) {
            node.handles += 1;
        }
    }

    /// One handle less.
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

impl Table {
    fn path(&self, number: u64) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = number;
        while at != ROOT {
            let key = &self.nodes.get(&at)?.key;
            names.push(&key.name);
            at = key.parent;
        }
        Some(names.into_iter().rev().collect())
    }

    fn look_up(&mut self, parent: u64, name: &OsStr, entry: Entry) -> Option<u64> {
        let key = Key {
            parent,
            name: name.to_owned(),
            version: entry.version,
        };
        let known = self.numbers.get(&key).copied();
        if let Some((number, node)) = known.and_then(|n| Some((n, self.nodes.get_mut(&n)?))) {
            node.lookups += 1;
            node.attributes = entry.attributes;
            return Some(number);
        }
        self.nodes.get_mut(&parent)?.children += 1;
        let number = self.next;
        self.next += 1;
        self.numbers.insert(key.clone(), number);
        self.nodes.insert(
            number,
            Node {
                key,
                attributes: entry.attributes,
                lookups: 1,
                handles: 0,
                children: 0,
            },
        );
        Some(number)
    }

    /// Removes the node if nothing needs it, and then those above it that only it needed.
    fn remove_unneeded(&mut self, number: u64) {
        let mut at = number;
        while at != ROOT && self.nodes.get(&at).is_some_and(|node| !node.is_needed()) {
            let Some(node) = self.nodes.remove(&at) else {
                return;
            };
            self.numbers.remove(&node.key);
            at = node.key.parent;
            if let Some(parent) = self.nodes.get_mut(&at) {
                parent.children = parent.children.saturating_sub(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::fs::FileType;

    use super::*;

    fn entry(version: Version) -> Entry {
        Entry {
            version,
            attributes: Attributes::of_kind(FileType::RegularFile),
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
        entry(Version::View { generation })
    }

    #[test]
    fn one_name_in_one_version_has_one_number() {
        let tree = Tree::new(directory(1));
        let a = tree.look_up(ROOT, OsStr::new("a"), view(1)).unwrap();
        assert_eq!(tree.look_up(ROOT, OsStr::new("a"), view(1)), Some(a));
        assert_ne!(tree.look_up(ROOT, OsStr::new("a"), view(2)), Some(a));
        assert_ne!(tree.look_up(ROOT, OsStr::new("b"), view(1)), Some(a));
    }

    #[test]
    fn paths_lead_through_the_parents() {
        let tree = Tree::new(directory(1));
        let d = tree.look_up(ROOT, OsStr::new("d"), directory(2)).unwrap();
        let f = tree.look_up(d, OsStr::new("f"), view(1)).unwrap();
        assert_eq!(tree.known(f).unwrap().path, Path::new("d/f"));
        assert_eq!(tree.known(ROOT).unwrap().path, Path::new(""));
    }

    #[test]
    fn forgotten_nodes_leave_the_table() {
        let tree = Tree::new(directory(1));
        let d = tree.look_up(ROOT, OsStr::new("d"), directory(2)).unwrap();
        let f = tree.look_up(d, OsStr::new("f"), view(1)).unwrap();
        tree.look_up(d, OsStr::new("f"), view(1)).unwrap();
        // The kernel may forget a directory before what is in it.
        tree.forget(d, 1);
        assert_eq!(tree.known(f).unwrap().path, Path::new("d/f"));
        tree.forget(f, 1);
        assert_eq!(tree.len(), 3);
        tree.forget(f, 1);
        assert_eq!(tree.len(), 1);
        assert!(tree.known(d).is_none());
    }

    #[test]
    fn an_open_handle_keeps_its_node() {
        let tree = Tree::new(directory(1));
        let f = tree.look_up(ROOT, OsStr::new("f"), view(1)).unwrap();
        tree.opened(f);
        tree.forget(f, 1);
        assert!(tree.known(f).unwrap().is_open);
        tree.closed(f);
        assert_eq!(tree.len(), 1);
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let tree = Tree::new(directory(1));
        tree.forget(ROOT, u64::MAX);
        assert!(tree.known(ROOT).is_some());
    }

    #[test]
    fn nothing_is_found_below_an_unknown_parent() {
        let tree = Tree::new(directory(1));
        assert_eq!(tree.look_up(99, OsStr::new("f"), view(1)), None);
        assert_eq!(tree.len(), 1);
    }
}
