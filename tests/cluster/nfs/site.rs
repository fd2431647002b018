//! An NFS server in the head's namespaces, and its clients. Each node is a client with its own caches, by its network
//! namespace. All share a kernel. The server exports a disk with ext4, which this process sees directly.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use crate::common::bound::Bound;
use crate::common::guard::Guard;
use crate::common::nodes::{Nodes, Place};
use crate::common::readers::said;

/// The node of the readers. Ranks run on the other nodes.
pub const READER: usize = 2;

/// Preparations before the server starts.
const PREPARE: &str = r#"
mount -t tmpfs state /var/lib/nfs
mkdir /var/lib/nfs/nfsdcld
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mkdir -p /run/rpc_pipefs
mount -t rpc_pipefs pipes /run/rpc_pipefs
mount -t nfsd nfsd /proc/fs/nfsd
"#;

/// Starts the server with the shortest possible times in seconds, for the grace after a restart and for the lease.
const START: &str = "rpc.nfsd -N 3 -G 10 -L 10 4";
const STOP: &str = "rpc.nfsd 0";
const EXPORT: &str = r#"exportfs -o rw,sync,no_root_squash,no_subtree_check,fsid=0 "*:$1""#;
const WITHDRAW: &str = r#"exportfs -u "*:$1""#;

/// The disk of the server.
struct Disk {
    dir: TempDir,
    _guard: Guard,
    _image: tempfile::NamedTempFile,
}

impl Disk {
    fn new() -> Self {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(400 << 20).unwrap();
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F"])
            .arg(image.path()));
        let dir = tempfile::tempdir().unwrap();
        let guard = Guard::of_mount(dir.path());
        run(Command::new("mount")
            .args(["-o", "loop"])
            .args([image.path(), dir.path()]));
        Disk {
            dir,
            _guard: guard,
            _image: image,
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}

/// Two nodes of a job, one of readers, and their file server.
pub struct Site {
    /// The place in which jobs run.
    pub place: Place,
    daemons: Vec<Child>,
    /// The clients' path of the server's files. This process uses it without NFS.
    _bound: Bound,
    dir: TempDir,
    disk: Disk,
}

impl Site {
    /// A site. `None`, after printing the reason, where it is impossible.
    pub fn new() -> Option<Self> {
        if std::env::var_os("H5LOGFS_TEST_NFS").is_none() {
            eprintln!("skipped: NFS is tried in a virtual machine, by make test-nfs");
            return None;
        }
        let disk = Disk::new();
        let dir = tempfile::tempdir().unwrap();
        let nodes = Nodes::new(3)?.with_shares(&[2, 2, 0]).sharing(dir.path());
        let mut site = Site {
            place: Place::Nodes(nodes),
            daemons: Vec::new(),
            _bound: Bound::new(disk.dir.path(), dir.path()),
            dir,
            disk,
        };
        site.serve();
        for node in 0..=READER {
            site.mount(node);
        }
        Some(site)
    }

    pub fn nodes(&self) -> &Nodes {
        self.place.nodes()
    }

    fn serve(&mut self) {
        self.in_head(PREPARE);
        self.daemon("nfsdcld", &["-F"]);
        self.daemon("rpc.mountd", &["-F", "-N", "2", "-N", "3"]);
        self.export();
        self.start();
    }

    fn daemon(&mut self, program: &str, arguments: &[&str]) {
        let mut daemon = self.nodes().in_head(program);
        daemon.args(arguments).stdin(Stdio::null());
        // One daemon reports each client that connects or disconnects.
        daemon.stderr(Stdio::null());
        self.daemons.push(daemon.spawn().unwrap());
    }

    fn in_head(&self, script: &str) {
        let mut sh = self.nodes().in_head("sh");
        run(sh.args(["-ec", script, "sh"]).arg(self.disk.dir.path()));
    }

    /// Starts the server, if it was stopped.
    pub fn start(&self) {
        self.in_head(START);
    }

    /// Stops the server. Clients wait.
    pub fn stop(&self) {
        self.in_head(STOP);
    }

    pub fn export(&self) {
        self.in_head(EXPORT);
    }

    /// Invalidates all file handles.
    pub fn withdraw(&self) {
        self.in_head(WITHDRAW);
    }

    fn mount(&self, node: usize) {
        let source = format!("{}:/", self.nodes().address_of_head());
        let mut mount = self.nodes().on(node, "mount");
        mount.args(["-t", "nfs4", "-o", "nosharecache", &source]);
        run(mount.arg(self.dir.path()));
    }

    /// Runs a command on a node.
    pub fn on(&self, node: usize, program: &str, arguments: &[&str]) -> (bool, String) {
        let mut command = self.nodes().on(node, program);
        let output = command.args(arguments).output().unwrap();
        let said = said(&output);
        assert!(!said.contains("panicked"), "{said}");
        (output.status.success(), said)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // A client tells the server when it unmounts.
        for node in 0..=READER {
            let mut umount = self.nodes().on(node, "umount");
            umount.arg("-l").arg(self.dir.path()).stderr(Stdio::null());
            let _ = umount.stdin(File::open("/dev/null").unwrap()).status();
        }
        let _ = self.nodes().in_head("sh").args(["-c", STOP]).status();
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
