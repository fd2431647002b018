//! The mount of a [`Cluster`] on one node.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use super::common::served::{Answer, Found, Place, Served, ServedMount};
use super::model::Cluster;

/// The file system on one node, unmounted when dropped.
pub struct Node(ServedMount);

impl Node {
    /// Mounts it on a node, counted from 1.
    pub fn new(cluster: &Arc<Mutex<Cluster>>, number: usize) -> Self {
        Node(ServedMount::new(Shown {
            cluster: Arc::clone(cluster),
            node: number,
        }))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

struct Shown {
    cluster: Arc<Mutex<Cluster>>,
    node: usize,
}

impl Shown {
    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap()
    }
}

impl Served for Shown {
    fn find(&self, inode: u64) -> Answer<Found> {
        self.cluster().find(self.node, inode)
    }

    fn look_up(&self, (parent, name): Place<'_>) -> Answer<u64> {
        self.cluster().look_up(self.node, parent, name)
    }

    fn names(&self, directory: u64) -> Vec<(u64, Vec<u8>)> {
        self.cluster().names(self.node, directory)
    }

    fn create(
        &self,
        place: Place<'_>,
        is_directory: bool,
        mode: u16,
        owner: (u32, u32),
    ) -> Answer<u64> {
        let mut cluster = self.cluster();
        cluster.create(self.node, place, is_directory, mode, owner)
    }

    fn link(&self, inode: u64, (parent, name): Place<'_>) -> Answer<()> {
        self.cluster().link(self.node, inode, parent, name)
    }

    fn remove(&self, (parent, name): Place<'_>) -> Answer<()> {
        self.cluster().remove(self.node, parent, name)
    }

    fn rename(&self, from: Place<'_>, to: Place<'_>, _: bool) -> Answer<()> {
        self.cluster().rename(self.node, from, to)
    }

    fn open(&self, inode: u64) -> Answer<u64> {
        self.cluster().open(self.node, inode)
    }

    fn read(&self, inode: u64, handle: u64, offset: u64, len: u64) -> Answer<Vec<u8>> {
        let opened = (self.node, handle);
        self.cluster().read_open(opened, inode, offset, len)
    }

    fn write(&self, inode: u64, handle: u64, offset: u64, data: &[u8]) -> Answer<()> {
        let opened = (self.node, handle);
        self.cluster().write_open(opened, inode, offset, data)
    }

    fn set_len(&self, inode: u64, len: u64) -> Answer<()> {
        self.cluster().set_len(self.node, inode, len)
    }

    fn set_mode(&self, inode: u64, mode: u16) -> Answer<()> {
        self.cluster().set_mode(self.node, inode, mode)
    }

    fn sync(&self, inode: u64, handle: u64) -> Answer<()> {
        self.cluster().sync_open(self.node, inode, handle)
    }

    fn written(&self, inode: u64) {
        self.cluster().sync(inode);
    }
}
