//! The views of several nodes of one file system that shows writes late: only the state, without a mount.
//!
//! The file system consists of items: each page of a file, its size, each name in a directory. An item has versions,
//! in the order in which nodes made them. Each node sees one version of each item, and never an older one than
//! before. So a node may see a size without the bytes, new bytes beside old ones, and a name before its target.
//!
//! All randomness comes from the seed, the node, the item, and the number of the node's looks at it. So a failing
//! test fails again.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use super::common::served::{Answer, Attributes, Found, ROOT, Refusal};

pub const PAGE: u64 = 4096;

/// Times at which a node sees the writes of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Like NFS: an open shows everything that has reached the server, and the server has everything that a node has
    /// synced or closed. Any item may also arrive at any other time.
    CloseToOpen,
    /// Weaker file systems: a reader may see any item at any time. The nodes of a job see each other's writes at once.
    /// Otherwise no rank could open a file that another one has just created.
    AnyTime,
}

/// Something of which nodes may see different versions.
#[derive(Debug)]
struct Item<T> {
    versions: Vec<T>,
    /// The version that each observer sees: first the server, then the nodes.
    seen: Vec<usize>,
    looks: Vec<u64>,
}

impl<T: Clone> Item<T> {
    fn new(first: T, observers: usize) -> Self {
        Item {
            versions: vec![first],
            seen: vec![0; observers],
            looks: vec![0; observers],
        }
    }

    fn newest(&self) -> &T {
        &self.versions[self.last()]
    }

    fn last(&self) -> usize {
        self.versions.len() - 1
    }

    fn get(&self, observer: usize) -> &T {
        &self.versions[self.seen[observer]]
    }

    /// A node makes a new version, and sees it at once.
    fn set(&mut self, observer: usize, value: T) {
        self.versions.push(value);
        self.seen[observer] = self.last();
    }

    /// Lets an observer see what `source` sees, or everything.
    fn advance(&mut self, observer: usize, source: Option<usize>) {
        let to = source.map_or(self.last(), |source| self.seen[source]);
        self.seen[observer] = self.seen[observer].max(to);
    }
}

#[derive(Debug)]
struct Inode {
    is_directory: bool,
    mode: u16,
    owner: (u32, u32),
    attributes: Item<Attributes>,
    pages: BTreeMap<u64, Item<Vec<u8>>>,
    /// The node that removed its last name.
    removed_by: Option<usize>,
}

/// The file system. Nodes count from 1; 0 is the server. Readers run on the last node.
#[derive(Debug)]
pub struct Cluster {
    mode: Mode,
    seed: u64,
    observers: usize,
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<(u64, Vec<u8>), Item<Option<u64>>>,
    next: u64,
    /// Free file numbers, for reuse.
    free: BTreeSet<u64>,
    /// Number of times that each node has lost its open files.
    lost: Vec<u64>,
    /// The files that a node must look up before it can use them.
    forgotten: BTreeSet<(usize, u64)>,
    /// The nodes that the server rejects for now.
    away: BTreeSet<usize>,
    /// Seconds by which the server's clock is ahead of the nodes'.
    ahead: i64,
}

const SERVER: usize = 0;

impl Cluster {
    pub fn new(nodes: usize, mode: Mode, seed: u64) -> Self {
        let mut cluster = Cluster {
            mode,
            seed,
            observers: nodes + 1,
            inodes: BTreeMap::new(),
            names: BTreeMap::new(),
            next: ROOT,
            free: BTreeSet::new(),
            lost: vec![0; nodes + 1],
            forgotten: BTreeSet::new(),
            away: BTreeSet::new(),
            ahead: 0,
        };
        cluster.add_inode(true, 0o755, (0, 0));
        cluster
    }

    fn add_inode(&mut self, is_directory: bool, mode: u16, owner: (u32, u32)) -> u64 {
        let attributes = Attributes {
            size: 0,
            modified: SystemTime::now(),
        };
        let inode = Inode {
            is_directory,
            mode,
            owner,
            attributes: Item::new(attributes, self.observers),
            pages: BTreeMap::new(),
            removed_by: None,
        };
        let number = self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.inodes.insert(number, inode);
        number
    }

    /// Sometimes lets `node` see more of an item.
    fn look<T: Clone>(mode: Mode, seed: u64, node: usize, key: impl Hash, item: &mut Item<T>) {
        item.looks[node] += 1;
        if mode == Mode::AnyTime && node + 1 < item.seen.len() {
            return item.advance(node, None);
        }
        if mode == Mode::CloseToOpen && item.looks[node] == 1 {
            // Nothing is cached.
            item.advance(node, Some(SERVER));
        }
        let mut hasher = DefaultHasher::new();
        (seed, node, key, item.looks[node]).hash(&mut hasher);
        let chance = hasher.finish() % 8;
        match mode {
            Mode::CloseToOpen => {
                if chance & 1 == 0 {
                    item.advance(SERVER, None);
                }
                if chance & 2 == 0 {
                    item.advance(node, Some(SERVER));
                }
            }
            Mode::AnyTime if chance < 3 => item.advance(node, None),
            Mode::AnyTime => {}
        }
    }

    /// Everything is visible everywhere, as after a long time.
    pub fn settle(&mut self) {
        for observer in 0..self.observers {
            self.names
                .values_mut()
                .for_each(|item| item.advance(observer, None));
            for inode in self.inodes.values_mut() {
                inode.attributes.advance(observer, None);
                inode
                    .pages
                    .values_mut()
                    .for_each(|page| page.advance(observer, None));
            }
        }
    }

    /// The server has restarted: a node must look up all files again, and its open files are invalid.
    pub fn lose(&mut self, node: usize) {
        self.lost[node] += 1;
        let all = self.inodes.keys().filter(|number| **number != ROOT);
        self.forgotten.extend(all.map(|number| (node, *number)));
    }

    /// Sets the server's clock, from which files get their times.
    pub fn set_ahead(&mut self, seconds: i64) {
        self.ahead = seconds;
    }

    /// A time of this machine on the server's clock.
    fn by_server(&self, time: SystemTime) -> SystemTime {
        let difference = Duration::from_secs(self.ahead.unsigned_abs());
        if self.ahead < 0 {
            time - difference
        } else {
            time + difference
        }
    }

    /// Lets all requests of a node fail, or stops this.
    pub fn set_away(&mut self, node: usize, is_away: bool) {
        if is_away {
            self.away.insert(node);
        } else {
            self.away.remove(&node);
        }
    }

    /// Lets new files get the numbers of removed ones.
    pub fn free_removed(&mut self) {
        let is_removed = |(number, inode): (&u64, &Inode)| inode.removed_by.map(|_| *number);
        self.free.extend(self.inodes.iter().filter_map(is_removed));
        self.inodes.retain(|_, inode| inode.removed_by.is_none());
    }

    /// Whether the server knows a node's handle.
    fn check_known(&self, node: usize, number: u64) -> Answer<()> {
        if self.away.contains(&node) || self.forgotten.contains(&(node, number)) {
            return Err(Refusal::Stale);
        }
        Ok(())
    }

    fn check_handle(&self, node: usize, handle: u64) -> Answer<()> {
        if handle == self.lost[node] {
            Ok(())
        } else {
            Err(Refusal::Stale)
        }
    }

    /// A file for a node. Fails where the file was removed on another node.
    fn inode(&mut self, node: usize, number: u64) -> Answer<&mut Inode> {
        self.check_known(node, number)?;
        let inode = self.inodes.get_mut(&number).ok_or(Refusal::Stale)?;
        match inode.removed_by {
            Some(by) if by != node => Err(Refusal::Stale),
            _ => Ok(inode),
        }
    }

    fn links(&self, number: u64) -> u32 {
        let leads = |item: &&Item<Option<u64>>| *item.newest() == Some(number);
        self.names.values().filter(leads).count() as u32
    }

    pub fn find(&mut self, node: usize, number: u64) -> Answer<Found> {
        let (mode, seed) = (self.mode, self.seed);
        let links = self.links(number);
        let inode = self.inode(node, number)?;
        Self::look(mode, seed, node, number, &mut inode.attributes);
        let mut found = Found {
            inode: number,
            is_directory: inode.is_directory,
            mode: inode.mode,
            owner: inode.owner,
            links: links.max(1),
            attributes: *inode.attributes.get(node),
        };
        found.attributes.modified = self.by_server(found.attributes.modified);
        Ok(found)
    }

    pub fn look_up(&mut self, node: usize, parent: u64, name: &[u8]) -> Answer<u64> {
        self.check_known(node, parent)?;
        let (mode, seed) = (self.mode, self.seed);
        let (key, observers) = ((parent, name.to_vec()), self.observers);
        let item = self.names.entry(key.clone());
        let item = item.or_insert_with(|| Item::new(None, observers));
        Self::look(mode, seed, node, &key, item);
        let found = *item.get(node);
        let inodes = &self.inodes;
        let is_stale = |number: u64| {
            let inode = inodes.get(&number);
            inode.is_none_or(|inode| inode.removed_by.is_some_and(|by| by != node))
        };
        if found.is_some_and(is_stale) {
            // The kernel asks again if a name leads to a removed file.
            item.advance(node, None);
        }
        let found = (*item.get(node)).ok_or(Refusal::NoEntry)?;
        self.forgotten.remove(&(node, found));
        Ok(found)
    }

    pub fn names(&mut self, node: usize, parent: u64) -> Vec<(u64, Vec<u8>)> {
        let (mode, seed) = (self.mode, self.seed);
        let own = self.names.iter_mut().filter(|((of, _), _)| *of == parent);
        own.filter_map(|(key, item)| {
            Self::look(mode, seed, node, key, item);
            Some(((*item.get(node))?, key.1.clone()))
        })
        .collect()
    }

    pub fn create(
        &mut self,
        node: usize,
        place: (u64, &[u8]),
        is_directory: bool,
        mode: u16,
        owner: (u32, u32),
    ) -> Answer<u64> {
        let (parent, name) = place;
        if self.newest(parent, name).is_some() {
            return Err(Refusal::Exists);
        }
        let number = self.add_inode(is_directory, mode, owner);
        self.set_name(node, parent, name, Some(number));
        Ok(number)
    }

    fn newest(&self, parent: u64, name: &[u8]) -> Option<u64> {
        let item = self.names.get(&(parent, name.to_vec()))?;
        *item.newest()
    }

    /// Sets the target of a name. Names change on the server at once.
    fn set_name(&mut self, node: usize, parent: u64, name: &[u8], to: Option<u64>) {
        let observers = self.observers;
        let item = self.names.entry((parent, name.to_vec()));
        let item = item.or_insert_with(|| Item::new(None, observers));
        let before = *item.newest();
        item.set(node, to);
        item.advance(SERVER, None);
        if let Some(before) = before.filter(|before| Some(*before) != to)
            && self.links(before) == 0
            && let Some(inode) = self.inodes.get_mut(&before)
        {
            inode.removed_by = Some(node);
        }
    }

    pub fn link(&mut self, node: usize, number: u64, parent: u64, name: &[u8]) -> Answer<()> {
        if self.newest(parent, name).is_some() {
            return Err(Refusal::Exists);
        }
        self.inode(node, number)?;
        self.set_name(node, parent, name, Some(number));
        Ok(())
    }

    pub fn remove(&mut self, node: usize, parent: u64, name: &[u8]) -> Answer<()> {
        self.newest(parent, name).ok_or(Refusal::NoEntry)?;
        self.set_name(node, parent, name, None);
        Ok(())
    }

    pub fn rename(&mut self, node: usize, from: (u64, &[u8]), to: (u64, &[u8])) -> Answer<()> {
        let number = self.newest(from.0, from.1).ok_or(Refusal::NoEntry)?;
        self.set_name(node, to.0, to.1, Some(number));
        self.set_name(node, from.0, from.1, None);
        Ok(())
    }

    /// The handle that a node gets from an open.
    fn handle(&self, node: usize) -> u64 {
        self.lost[node]
    }

    /// A node opens a file.
    pub fn open(&mut self, node: usize, number: u64) -> Answer<u64> {
        let (mode, handle) = (self.mode, self.handle(node));
        let inode = self.inode(node, number)?;
        if mode == Mode::CloseToOpen {
            inode.each(
                |item| item.advance(node, Some(SERVER)),
                |item| item.advance(node, Some(SERVER)),
            );
        }
        Ok(handle)
    }

    /// A node syncs an open file.
    pub fn sync_open(&mut self, node: usize, number: u64, handle: u64) -> Answer<()> {
        self.check_handle(node, handle)?;
        self.check_known(node, number)?;
        self.sync(number);
        Ok(())
    }

    /// A node has synced a file, or closed it after writing.
    pub fn sync(&mut self, number: u64) {
        if let (Mode::CloseToOpen, Some(inode)) = (self.mode, self.inodes.get_mut(&number)) {
            inode.each(
                |item| item.advance(SERVER, None),
                |item| item.advance(SERVER, None),
            );
        }
    }

    pub fn set_mode(&mut self, node: usize, number: u64, mode: u16) -> Answer<()> {
        self.inode(node, number)?.mode = mode;
        Ok(())
    }

    pub fn set_len(&mut self, node: usize, number: u64, len: u64) -> Answer<()> {
        let inode = self.inode(node, number)?;
        let Attributes { size, .. } = *inode.attributes.newest();
        for (page, item) in inode.pages.range_mut(len / PAGE..) {
            let keep = len.saturating_sub(page * PAGE).min(PAGE) as usize;
            if len < size && item.newest()[keep..].iter().any(|byte| *byte != 0) {
                let mut bytes = item.newest().clone();
                bytes[keep..].fill(0);
                item.set(node, bytes);
            }
        }
        inode.resized(node, len);
        Ok(())
    }

    pub fn write_open(
        &mut self,
        (node, handle): (usize, u64),
        number: u64,
        offset: u64,
        data: &[u8],
    ) -> Answer<()> {
        self.check_handle(node, handle)?;
        self.write(node, number, offset, data)
    }

    pub fn write(&mut self, node: usize, number: u64, offset: u64, data: &[u8]) -> Answer<()> {
        let observers = self.observers;
        let inode = self.inode(node, number)?;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let len = (PAGE as usize - within).min(data.len() - done);
            let item = inode.pages.entry(at / PAGE);
            let item = item.or_insert_with(|| Item::new(vec![0; PAGE as usize], observers));
            let mut bytes = item.newest().clone();
            bytes[within..within + len].copy_from_slice(&data[done..done + len]);
            item.set(node, bytes);
            done += len;
        }
        let size = inode.attributes.newest().size;
        inode.resized(node, size.max(offset + data.len() as u64));
        Ok(())
    }

    pub fn read_open(
        &mut self,
        (node, handle): (usize, u64),
        number: u64,
        offset: u64,
        len: u64,
    ) -> Answer<Vec<u8>> {
        self.check_handle(node, handle)?;
        self.read(node, number, offset, len)
    }

    pub fn read(&mut self, node: usize, number: u64, offset: u64, len: u64) -> Answer<Vec<u8>> {
        let (mode, seed) = (self.mode, self.seed);
        let inode = self.inode(node, number)?;
        let end = (offset + len).min(inode.attributes.get(node).size);
        let mut found = Vec::new();
        let mut at = offset;
        while at < end {
            let page = at / PAGE;
            let (from, to) = (at % PAGE, (end - page * PAGE).min(PAGE));
            match inode.pages.get_mut(&page) {
                Some(item) => {
                    Self::look(mode, seed, node, (number, page), item);
                    found.extend_from_slice(&item.get(node)[from as usize..to as usize]);
                }
                None => found.resize(found.len() + (to - from) as usize, 0),
            }
            at = page * PAGE + to;
        }
        Ok(found)
    }
}

impl Inode {
    fn each(
        &mut self,
        mut attributes: impl FnMut(&mut Item<Attributes>),
        page: impl FnMut(&mut Item<Vec<u8>>),
    ) {
        attributes(&mut self.attributes);
        self.pages.values_mut().for_each(page);
    }

    fn resized(&mut self, node: usize, size: u64) {
        let modified = SystemTime::now();
        self.attributes.set(node, Attributes { size, modified });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: usize = 1;
    const B: usize = 2;

    fn with_file(mode: Mode, seed: u64) -> (Cluster, u64) {
        let mut cluster = Cluster::new(2, mode, seed);
        let file = cluster.create(A, (ROOT, b"file"), false, 0o644, (0, 0));
        cluster.settle();
        (cluster, file.unwrap())
    }

    #[test]
    fn a_node_sees_its_own_writes_at_once_and_others_late() {
        for mode in [Mode::CloseToOpen, Mode::AnyTime] {
            let mut partial = 0;
            for seed in 0..20 {
                let (mut cluster, file) = with_file(mode, seed);
                let written = vec![7; 3 * PAGE as usize + 10];
                cluster.write(A, file, 0, &written).unwrap();
                assert_eq!(cluster.read(A, file, 0, 1 << 20).unwrap(), written);
                let mut before = vec![0; written.len()];
                for _ in 0..100 {
                    cluster.find(B, file).unwrap();
                    let mut seen = cluster.read(B, file, 0, 1 << 20).unwrap();
                    seen.resize(written.len(), 0);
                    // A view never goes back.
                    assert!(before.iter().zip(&seen).all(|(b, s)| *b == 0 || b == s));
                    let pages = seen.chunks(PAGE as usize);
                    assert!(
                        pages
                            .into_iter()
                            .all(|page| page.iter().all(|b| *b == page[0]))
                    );
                    partial += u32::from(seen.contains(&0) && seen.contains(&7));
                    before = seen;
                }
                cluster.settle();
                assert_eq!(cluster.read(B, file, 0, 1 << 20).unwrap(), written);
            }
            assert!(partial > 20, "{mode:?}: {partial}");
        }
    }

    #[test]
    fn an_open_after_a_sync_shows_all() {
        let (mut cluster, file) = with_file(Mode::CloseToOpen, 1);
        cluster.write(A, file, 5000, &[7; 9000]).unwrap();
        cluster.sync(file);
        cluster.open(B, file).unwrap();
        let seen = cluster.read(B, file, 0, 1 << 20).unwrap();
        assert_eq!(seen, [&[0; 5000][..], &[7; 9000]].concat());
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let (mut cluster, file) = with_file(Mode::AnyTime, 1);
        cluster.write(A, file, 0, &[7; 9000]).unwrap();
        cluster.set_len(A, file, 4100).unwrap();
        cluster.set_len(A, file, 9000).unwrap();
        let kept = [&[7; 4100][..], &[0; 4900]].concat();
        assert_eq!(cluster.read(A, file, 0, 1 << 20).unwrap(), kept);
    }

    #[test]
    fn a_file_that_was_removed_is_stale_on_other_nodes() {
        let (mut cluster, file) = with_file(Mode::AnyTime, 1);
        cluster
            .create(A, (ROOT, b"new"), false, 0o644, (0, 0))
            .unwrap();
        cluster.link(A, file, ROOT, b"second").unwrap();
        cluster.rename(A, (ROOT, b"new"), (ROOT, b"file")).unwrap();
        cluster.find(B, file).unwrap();
        cluster.remove(A, ROOT, b"second").unwrap();
        assert_eq!(cluster.find(B, file).unwrap_err(), Refusal::Stale);
        assert_eq!(cluster.read(B, file, 0, 1).unwrap_err(), Refusal::Stale);
        cluster.find(A, file).unwrap();
        // The name leads to the new file, at the latest when it would lead to a removed one.
        assert_ne!(cluster.look_up(B, ROOT, b"file").unwrap(), file);
    }
}
