//! Nodes of a cluster on one machine: each has its own processes, host name, network card, shared memory and mounts.
//! They share the disk. A further node, the head, runs `mpirun` and has no ranks.
//!
//! A node is a set of namespaces, which exist while the node's first process lives. That process ends with the test,
//! however the test ends, because it waits for the end of a pipe from it. Nothing is named outside of the nodes, so
//! any number of tests may have nodes with the same names and addresses.
//!
//! This module knows nothing of MPI: `mpirun.rs` uses the shell, the names, and commands on the head.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{is_root, wait_until};

/// The network card of each node, which has the same name everywhere.
pub const CARD: &str = "eth0";

const HEAD: &str = "head";

/// The namespaces of a node, for `nsenter`.
const OF_NODE: &[&str] = &["-m", "-u", "-i", "-n", "-p"];

/// The namespaces of the head.
const OF_HEAD: &[&str] = &["-m", "-u", "-i", "-n"];

/// Runs a command on a node, as `ssh` would: `shell [OPTIONS] NODE COMMAND…`. The numbers of the first processes are
/// in files beside it. A connection to a node without power does not end by itself.
const SHELL: &str = r#"#!/bin/sh
while case $1 in -*) ;; *) false ;; esac; do shift; done
node=$1; shift
dir=$(dirname "$0")
nsenter -t "$(cat "$dir/pid.$node")" -m -u -i -n -p -- sh -c "$*"
status=$?
if [ -e "$dir/dead.$node" ]; then exec sleep 60; fi
exit $status
"#;

/// The first process of a node: `NAME HOSTS KEPT`. Mounts of other tests must not survive here after these tests
/// unmount them. The newest mount goes first, because the path to an older one may lead through it and wait for its
/// daemon.
const FIRST: &str = r#"
hostname "$1"
mount --bind "$2" /etc/hosts
mount -t tmpfs shm /dev/shm
tac /proc/self/mounts | while read -r _ dir type _; do
    # Some are gone by now: a directory that is removed takes its mounts with it.
    case "$3" in *" $dir "*) continue ;; esac
    case $type in fuse | fuse.*) umount -l "$dir" 2>/dev/null || : ;; esac
done
ip link set lo up
# A connection on which bytes wait for a node that has gone ends after some 13 s: its keepalive does not count then, and
# else it would take a quarter of an hour.
echo 5 > /proc/sys/net/ipv4/tcp_retries2
echo ready
exec 3<&0
cat <&3 >/dev/null &
wait
"#;

/// Joins a node to the network of the head. Runs in the head's namespaces.
const JOIN: &str = r#"
ip link add "$1" type veth peer name eth0 netns "$2"
ip link set "$1" master eth0 up
nsenter -t "$2" -n ip addr add "$3/24" dev eth0
nsenter -t "$2" -n ip link set eth0 up
"#;

const NETWORK: &str = r#"
ip link add eth0 type bridge
ip addr add "$1/24" dev eth0
ip link set eth0 up
"#;

/// The place where the jobs of a test run.
pub enum Place {
    /// On this machine.
    Here,
    Nodes(Nodes),
}

impl Place {
    /// A place with this number of nodes; 0 stands for this machine. `None`, after printing the reason, where nodes
    /// are impossible.
    pub fn of(nodes: u32) -> Option<Self> {
        match nodes {
            0 => Some(Place::Here),
            number => Nodes::new(number).map(Place::Nodes),
        }
    }

    /// The nodes, if there are some.
    #[track_caller]
    pub fn nodes(&self) -> &Nodes {
        match self {
            Place::Nodes(nodes) => nodes,
            Place::Here => panic!("there are no nodes"),
        }
    }

    /// The nodes, to change them.
    #[track_caller]
    pub fn nodes_mut(&mut self) -> &mut Nodes {
        match self {
            Place::Nodes(nodes) => nodes,
            Place::Here => panic!("there are no nodes"),
        }
    }

    /// The mount point of the nodes' own file system.
    fn shared(&self) -> Option<&Path> {
        match self {
            Place::Here => None,
            Place::Nodes(nodes) => nodes.shared.as_deref(),
        }
    }

    /// Whether a node may see another node's writes seconds later.
    pub fn shows_late(&self) -> bool {
        self.shared().is_some()
    }

    /// Waits until nodes have dropped everything cached about files.
    pub fn forget(&self) {
        const REMEMBERED: Duration = Duration::from_secs(3);
        if self.shows_late() {
            thread::sleep(REMEMBERED);
        }
    }

    /// A directory for logs that all nodes see.
    pub fn dir(&self) -> TempDir {
        match self.shared() {
            Some(shared) => tempfile::tempdir_in(shared),
            None => tempfile::tempdir(),
        }
        .unwrap()
    }
}

/// Nodes `node1` and so on, removed when dropped.
pub struct Nodes {
    nodes: Vec<Node>,
    head: Node,
    shares: Option<Vec<u32>>,
    /// Number of probes, one per second, before MPI gives up a silent node.
    keepalive_probes: u32,
    /// A file system shared by all nodes, other than the machine's own.
    shared: Option<PathBuf>,
    /// The shell and its files.
    dir: TempDir,
}

/// The namespaces of a node.
struct Node {
    name: String,
    address: String,
    /// The process that holds the namespaces.
    first: Pid,
    unshare: Child,
}

impl Nodes {
    /// Nodes. `None`, after printing the reason, where they are impossible.
    pub fn new(number: u32) -> Option<Self> {
        Self::with_mounts(number, &[])
    }

    /// Nodes that see these FUSE mounts and no others.
    pub fn with_mounts(number: u32, mounts: &[&Path]) -> Option<Self> {
        if let Some(why) = hindrance() {
            eprintln!("skipped: {why}");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let name = |i: u32| {
            if i == 0 {
                HEAD.to_owned()
            } else {
                format!("node{i}")
            }
        };
        let line = |i| format!("{} {}\n", address(i), name(i));
        let hosts: String = (0..=number).map(line).collect();
        let hosts = format!("127.0.0.1 localhost\n{hosts}");
        fs::write(dir.path().join("hosts"), hosts).unwrap();
        let shell = dir.path().join("shell");
        fs::write(&shell, SHELL).unwrap();
        fs::set_permissions(shell, fs::Permissions::from_mode(0o755)).unwrap();
        let kept: String = mounts
            .iter()
            .map(|m| format!(" {} ", m.display()))
            .collect();
        let node = |i| Node::new(name(i), address(i), dir.path(), &kept);
        let nodes = Nodes {
            head: node(0),
            shares: None,
            keepalive_probes: 3,
            shared: None,
            nodes: (1..=number).map(node).collect(),
            dir,
        };
        nodes.connect();
        Some(nodes)
    }

    fn connect(&self) {
        run(self
            .in_head("sh")
            .args(["-ec", NETWORK, "sh", &self.head.address]));
        for node in &self.nodes {
            let first = node.first.as_raw_pid().to_string();
            let arguments = ["-ec", JOIN, "sh", &node.name, &first, &node.address];
            run(self.in_head("sh").args(arguments));
        }
    }

    /// Number of nodes.
    pub fn number(&self) -> usize {
        self.nodes.len()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| &node.name[..])
    }

    /// Puts logs into this directory, where all nodes and this machine have mounted the same file system.
    pub fn sharing(self, dir: &Path) -> Self {
        Nodes {
            shared: Some(dir.to_owned()),
            ..self
        }
    }

    /// Sets the number of ranks of each node. Nodes after the last share get none.
    pub fn with_shares(mut self, shares: &[u32]) -> Self {
        self.set_shares(shares);
        self
    }

    /// Sets the number of ranks of each node for later jobs.
    pub fn set_shares(&mut self, shares: &[u32]) {
        self.shares = Some(shares.to_vec());
    }

    /// Makes MPI wait longer for a silent node.
    pub fn with_keepalive_probes(mut self, number: u32) -> Self {
        self.keepalive_probes = number;
        self
    }

    pub fn keepalive_probes(&self) -> u32 {
        self.keepalive_probes
    }

    /// Numbers of ranks per node for `ranks` ranks: equal, or one less.
    pub fn shares(&self, ranks: u32) -> Vec<u32> {
        if let Some(shares) = &self.shares {
            return shares.clone();
        }
        let number = self.nodes.len() as u32;
        (0..number)
            .map(|i| (ranks + number - 1 - i) / number)
            .collect()
    }

    /// A program that replaces `ssh`.
    pub fn shell(&self) -> PathBuf {
        self.dir.path().join("shell")
    }

    /// The address at which nodes reach the head.
    pub fn address_of_head(&self) -> &str {
        &self.head.address
    }

    /// A command on the head. It is an ordinary process of this machine.
    pub fn in_head(&self, program: &str) -> Command {
        enter(&self.head, OF_HEAD, program.as_ref())
    }

    /// A command on a node, counted from 0. It is a child of this process.
    pub fn on(&self, node: usize, program: &str) -> Command {
        enter(&self.nodes[node], OF_NODE, program.as_ref())
    }

    /// A command on this machine, with the network of a node.
    pub fn in_network_of(&self, node: usize, program: &str) -> Command {
        enter(&self.nodes[node], &["-n"], program.as_ref())
    }

    pub fn address(&self, node: usize) -> &str {
        &self.nodes[node].address
    }

    /// This command, moved to a node.
    pub fn moved(&self, node: usize, command: &Command) -> Command {
        let mut moved = enter(&self.nodes[node], OF_NODE, command.get_program());
        moved.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => moved.env(name, value),
                None => moved.env_remove(name),
            };
        }
        moved
    }

    /// Whether a process runs on a node.
    pub fn has(&self, node: usize, process: Pid) -> bool {
        let namespace = |pid: Pid| fs::read_link(format!("/proc/{}/ns/uts", pid.as_raw_pid()));
        let wanted = namespace(self.nodes[node].first);
        wanted.is_ok_and(|wanted| namespace(process).is_ok_and(|it| it == wanted))
    }

    /// Cuts a node off the network, without ending it.
    pub fn cut(&self, node: usize) {
        self.set_link(node, "down");
    }

    /// Reconnects a node.
    pub fn restore(&self, node: usize) {
        self.set_link(node, "up");
    }

    fn set_link(&self, node: usize, state: &str) {
        let name = &self.nodes[node].name;
        run(self.in_head("ip").args(["link", "set", name, state]));
    }

    /// Kills all processes of a node at once. Nothing tells the others: the network is cut first, as in a power
    /// failure.
    pub fn kill(&mut self, node: usize) {
        self.cut(node);
        let node = &mut self.nodes[node];
        fs::write(self.dir.path().join(format!("dead.{}", node.name)), "").unwrap();
        node.end();
    }
}

impl Node {
    fn new(name: String, address: String, dir: &Path, kept: &str) -> Self {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--uts", "--ipc", "--net"]);
        // Programs on the head see the processes of this machine, and so find those of the nodes.
        if name != HEAD {
            unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        }
        unshare.args(["sh", "-ec", FIRST, "sh", &name]);
        unshare.arg(dir.join("hosts")).arg(kept);
        unshare.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut unshare = unshare.spawn().unwrap();
        let mut said = String::new();
        let output = unshare.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n", "{name} could not be made");
        let own = Pid::from_child(&unshare);
        let first = if name == HEAD { own } else { child_of(own) };
        let number = first.as_raw_pid().to_string();
        fs::write(dir.join(format!("pid.{name}")), number).unwrap();
        Node {
            name,
            address,
            first,
            unshare,
        }
    }

    /// Ends the node: the kernel kills all its processes with the first one.
    fn end(&mut self) {
        let _ = self.unshare.kill();
        // The process is reaped only here, so its number is not reused.
        let _ = self.unshare.wait();
        let first = format!("/proc/{}", self.first.as_raw_pid());
        wait_until("the node is gone", || !Path::new(&first).exists());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = kill_process(self.first, Signal::KILL);
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

fn address(node: u32) -> String {
    format!("10.0.0.{}", node + 1)
}

fn enter(node: &Node, namespaces: &[&str], program: &OsStr) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &node.first.as_raw_pid().to_string()]);
    command.args(namespaces).arg("--").arg(program);
    command
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// The only child of a process.
fn child_of(parent: Pid) -> Pid {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|p| p.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name before it may contain any characters.
        let after = stat.rsplit_once(") ").map(|(_, rest)| rest);
        let number = after.and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        number == Some(parent.as_raw_pid())
    };
    pids.find(is_child).and_then(Pid::from_raw).unwrap()
}

/// Why there can be no nodes here.
fn hindrance() -> Option<String> {
    if !is_root() {
        return Some("only root can make nodes of namespaces".to_owned());
    }
    for program in ["ip", "unshare", "nsenter"] {
        if Command::new(program).arg("-V").output().is_err() {
            return Some(format!("nodes need {program}, which is not installed"));
        }
    }
    // Some kind of namespace may be missing or forbidden, as in many containers; the kernel may lack such networks.
    let try_all = "ip link add eth0 type bridge && ip link add test0 type veth peer name test1";
    let mut all = Command::new("unshare");
    all.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--fork"]);
    let output = all.args(["--mount-proc", "sh", "-c", try_all]).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    (!output.status.success()).then(|| format!("nodes cannot be made here: {}", said.trim()))
}
