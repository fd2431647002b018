//! A GlusterFS volume: two nodes serve it with a brick each; the nodes of a job and this machine mount it at one
//! path. A node can only use what is on its network: the client of this machine is on the network of a node without
//! ranks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::guard::Guard;
use super::nodes::{Nodes, Place};
use super::{User, can_mount, is_installed, messages, unmount_by_force, wait_until};

/// Starts a server. Its files disappear with its node.
const SERVE: &str = "
for dir in /run /var/lib/glusterd /var/log/glusterfs; do mount -t tmpfs gluster $dir; done
mkdir /run/gluster
glusterd
";

/// Creates the volume on the first server: `BRICK OTHER-SERVER OTHER-BRICK OPTIONS`. Servers notice within seconds
/// that a client has disappeared, and clients notice a server.
const CREATE: &str = "
until gluster peer status; do sleep 0.1; done
until gluster peer probe $2; do sleep 0.1; done
until gluster --mode=script volume create logs $1 $3 force; do sleep 0.1; done
for option in network.ping-timeout=5 server.tcp-user-timeout=5 server.keepalive-time=2 server.keepalive-interval=1 \
    server.keepalive-count=3 $4; do
    gluster volume set logs ${option%=*} ${option#*=}
done
gluster volume start logs
";

/// Kills a brick, as a failure of its process.
const END_BRICK: &str = "kill -KILL $(cat /run/gluster/vols/logs/*.pid)";

/// Each server has one brick.
const SERVERS: usize = 2;

/// The volume, the nodes that serve it, and those that use it. All end when it is dropped.
pub struct Gluster {
    here: Client,
    place: Place,
    /// Number of nodes with ranks.
    users: usize,
    /// The bricks, and the logs of clients.
    disk: TempDir,
}

/// A mount on this machine.
struct Client {
    dir: TempDir,
    _guard: Guard,
}

impl Drop for Client {
    fn drop(&mut self) {
        unmount_by_force(User::Caller, self.dir.path());
    }
}

impl Gluster {
    /// A volume for nodes with these numbers of ranks. `options` are those of the volume: `NAME=VALUE`, separated by
    /// spaces. `None`, after printing the reason, where this is impossible.
    pub fn new(shares: &[u32], options: &str) -> Option<Self> {
        if !is_installed("glusterd") {
            eprintln!("skipped: GlusterFS is not installed: make test-distributed installs it");
            return None;
        }
        let users = shares.len();
        // The last node is for this machine.
        let nodes = Nodes::new((users + SERVERS + 1) as u32).filter(|_| can_mount(User::Caller))?;
        let disk = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let here = Client {
            _guard: Guard::of_mount(dir.path()),
            dir,
        };
        let nodes = nodes.with_shares(shares).sharing(here.dir.path());
        let gluster = Gluster {
            here,
            place: Place::Nodes(nodes),
            users,
            disk,
        };
        gluster.serve(options);
        (0..users).for_each(|node| gluster.mount(node));
        gluster.mount_here();
        Some(gluster)
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn place_mut(&mut self) -> &mut Place {
        &mut self.place
    }

    /// Later jobs have these numbers of ranks per node.
    pub fn set_shares(&mut self, shares: &[u32]) {
        self.place.nodes_mut().set_shares(shares);
    }

    pub fn nodes(&self) -> &Nodes {
        self.place.nodes()
    }

    /// The directory of a brick, on the machine's disk.
    fn brick(&self, server: usize) -> PathBuf {
        self.disk.path().join(format!("brick{server}"))
    }

    fn serve(&self, options: &str) {
        let nodes = self.nodes();
        let brick = |server| {
            let address = nodes.address(self.users + server);
            format!("{address}:{}", self.brick(server).display())
        };
        for server in 0..SERVERS {
            fs::create_dir(self.brick(server)).unwrap();
            self.on_server(server, SERVE, &[]);
        }
        let other = nodes.address(self.users + 1);
        self.on_server(0, CREATE, &[&brick(0), other, &brick(1), options]);
    }

    /// Runs a script on a server, for at most a minute.
    fn on_server(&self, server: usize, script: &str, arguments: &[&str]) {
        let mut shell = self.nodes().on(self.users + server, "timeout");
        shell
            .args(["60", "sh", "-ec", script, "sh"])
            .args(arguments);
        run(&mut shell);
    }

    fn mount_by(&self, mut client: Command, name: &str) {
        let server = self.nodes().address(self.users);
        client.arg(format!("--volfile-server={server}"));
        client.arg("--volfile-id=logs");
        let beside = |end: &str| self.disk.path().join(format!("{name}.{end}"));
        client.arg("--log-file").arg(beside("log"));
        client.arg("--pid-file").arg(beside("pid"));
        run(client.arg(self.path()));
    }

    /// The mount point of the volume.
    fn path(&self) -> &Path {
        self.here.dir.path()
    }

    /// Mounts the volume on a node.
    fn mount(&self, node: usize) {
        let name = format!("client{node}");
        self.mount_by(self.nodes().on(node, "glusterfs"), &name);
        let mut look = self.nodes().on(node, "test");
        look.arg("-d").arg(self.path().join("."));
        wait_until("the node sees the volume", || {
            look.status().unwrap().success()
        });
    }

    fn mount_here(&self) {
        let node = self.users + SERVERS;
        self.mount_by(self.nodes().in_network_of(node, "glusterfs"), "here");
        wait_until("the volume is there", || fs::read_dir(self.path()).is_ok());
    }

    /// Kills the client of a node.
    pub fn end_client(&self, node: usize) {
        let number = self.disk.path().join(format!("client{node}.pid"));
        let number = fs::read_to_string(number).unwrap();
        run(self.nodes().on(node, "kill").args(["-KILL", number.trim()]));
    }

    /// Kills a brick.
    pub fn end_brick(&self, server: usize) {
        self.on_server(server, END_BRICK, &[]);
    }

    /// Restarts a dead brick.
    pub fn start_brick(&self, server: usize) {
        self.on_server(server, "gluster volume start logs force", &[]);
    }
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &messages(&output);
    assert!(output.status.success(), "{command:?}: {said}");
}
