//! Programs under `mpirun`, ended with all their ranks even if the test fails. The MPI is that of the build: Open MPI
//! or MPICH.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use tempfile::TempDir;

use super::guard::Guard;
use super::nodes::{CARD, Nodes, Place};
use super::once::{once, shared_dir};
use super::readers::project;
use super::wait_until;

/// Time limit of a job that normally takes a second or two.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Time limit of an mpirun that has lost its ranks.
const PATIENCE: Duration = Duration::from_secs(10);

/// Environment variable by which the ranks of a job are found when it must be ended.
const TOKEN: &str = "H5LOGFS_TEST_JOB";

/// Path of a program of `tests/programs`, or of an example. cargo builds them beside the tests.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().with_file_name("examples").join(name);
    assert!(
        path.is_file(),
        "{} is not there: `cargo test --features mpi` builds it, and so does `cargo build --features mpi --examples`",
        path.display()
    );
    path
}

/// The C compiler of an MPI. The other commands are named alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mpi {
    compiler: &'static str,
}

impl Mpi {
    /// MPICH as Debian names it beside another MPI.
    pub const MPICH: Mpi = Mpi {
        compiler: "mpicc.mpich",
    };

    /// Open MPI as Debian names it beside another MPI.
    pub const OPEN_MPI: Mpi = Mpi {
        compiler: "mpicc.openmpi",
    };

    /// The MPI of the build. The crate `mpi` takes it from the same variable.
    pub const fn of_build() -> Self {
        match option_env!("MPICC") {
            Some(compiler) => Mpi { compiler },
            None => Mpi { compiler: "mpicc" },
        }
    }

    /// A command of this MPI, by its usual name: `mpicc`, `mpicxx`, `mpirun`.
    pub fn command(self, name: &str) -> String {
        match self.compiler.rsplit_once("mpicc") {
            Some((before, after)) => format!("{before}{name}{after}"),
            None => name.to_owned(),
        }
    }

    /// The other MPI. `None`, with the reason, where it is not installed.
    pub fn other() -> Option<Self> {
        let other = if Self::of_build().is_mpich() {
            Self::OPEN_MPI
        } else {
            Self::MPICH
        };
        let is_installed = Command::new(other.compiler).arg("-show").output().is_ok();
        if !is_installed {
            eprintln!("skipped: there is no {}", other.compiler);
        }
        is_installed.then_some(other)
    }

    /// The name of the MPI.
    pub fn name(self) -> &'static str {
        if self.is_mpich() { "MPICH" } else { "Open MPI" }
    }

    /// Whether it is MPICH.
    pub fn is_mpich(self) -> bool {
        let shown = Command::new(self.compiler).arg("-show").output();
        let shown = shown.unwrap_or_else(|e| panic!("{}: {e}", self.compiler));
        String::from_utf8_lossy(&shown.stdout).contains("-lmpich")
    }

    /// `PATH` for scripts, in which commands of this MPI have their usual names.
    pub fn search_path(self) -> OsString {
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        if self.command("mpirun") != "mpirun" {
            let mut longer = self.short_names().into_os_string();
            longer.push(":");
            longer.push(&path);
            path = longer;
        }
        path
    }

    /// A directory with the usual names of its commands.
    fn short_names(self) -> PathBuf {
        let dir = shared_dir(&format!("bin-of-{}", self.compiler.replace('/', "-")));
        once(&dir, &[], || {
            for name in ["mpicc", "mpirun"] {
                let script = format!("#!/bin/sh\nexec {} \"$@\"\n", self.command(name));
                fs::write(dir.join(name), script).unwrap();
                fs::set_permissions(dir.join(name), Permissions::from_mode(0o755)).unwrap();
            }
        });
        dir
    }

    /// A command that starts a program in `ranks` processes.
    pub fn run(self, ranks: u32, program: &Path) -> Command {
        self.run_at(&Place::Here, ranks, program)
    }

    /// A command that starts a program in some place. Nodes get equal shares, or one less.
    pub fn run_at(self, place: &Place, ranks: u32, program: &Path) -> Command {
        let mut mpirun = match place {
            Place::Here => Command::new(self.command("mpirun")),
            Place::Nodes(nodes) => self.across(nodes, &nodes.shares(ranks)),
        };
        mpirun.args(["-n", &ranks.to_string()]).arg(program);
        mpirun
    }

    /// The start of a command that runs these numbers of ranks on nodes.
    fn across(self, nodes: &Nodes, shares: &[u32]) -> Command {
        let mut mpirun = nodes.in_head(&self.command("mpirun"));
        let host = |(name, number): (&str, &u32)| format!("{name}:{number}");
        let used = nodes.names().zip(shares).filter(|(_, number)| **number > 0);
        let hosts: Vec<String> = used.map(host).collect();
        let (hosts, shell) = (hosts.join(","), nodes.shell());
        if self.is_mpich() {
            mpirun.args(["-hosts", &hosts, "-iface", CARD, "-launcher", "ssh"]);
            mpirun.arg("-launcher-exec").arg(shell);
        } else {
            mpirun.args(["--host", &hosts]);
            mpirun.args(["--mca", "plm_rsh_agent"]).arg(shell);
            for (name, value) in ON_NODES {
                mpirun.args(["--mca", name, value]);
            }
            let probes = nodes.keepalive_probes().to_string();
            mpirun.args(["--mca", "oob_tcp_keepalive_probes", &probes]);
        }
        mpirun
    }
}

/// Sets an environment in which mpirun starts any number of ranks, even for root. `dir` is for its files.
pub fn configure(command: &mut Command, dir: &Path) {
    if Mpi::of_build().is_mpich() {
        command.env("LD_PRELOAD", beside_mpich());
    } else {
        configure_open_mpi(command, dir);
    }
}

/// A library that makes ranks of MPICH yield. MPICH waits without yielding: with four ranks on two cores a reduction
/// takes 5 ms. On several nodes its ranks may also wait for each other for ever at the end.
fn beside_mpich() -> PathBuf {
    let dir = shared_dir("mpich");
    let source = project().join("tests/c/mpich.c");
    let library = dir.join("mpich.so");
    once(&dir, &[&source], || {
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-shared", "-fPIC"]).arg(&source);
        assert!(cc.arg("-o").arg(&library).status().unwrap().success());
    });
    library
}

fn configure_open_mpi(command: &mut Command, dir: &Path) {
    let settings = [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
        ("OMPI_MCA_mpi_yield_when_idle", "1"),
        // Otherwise all small jobs share the first core.
        ("OMPI_MCA_hwloc_base_binding_policy", "none"),
        ("OMPI_MCA_btl", "self,vader"),
        ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
    ];
    command.envs(settings);
    for variable in ["orte_tmpdir_base", "btl_vader_backing_directory"] {
        command.env(format!("OMPI_MCA_{variable}"), dir);
    }
}

/// Open MPI's settings for nodes. They communicate by TCP. By default a silent node is given up only after eight
/// minutes: the keepalive begins after 300 seconds, and asks 9 times, every 20.
const ON_NODES: [(&str, &str); 6] = [
    ("btl", "self,vader,tcp"),
    ("btl_vader_backing_directory", "/dev/shm"),
    ("btl_tcp_if_include", CARD),
    ("oob_tcp_if_include", CARD),
    ("oob_tcp_keepalive_time", "2"),
    ("oob_tcp_keepalive_intvl", "1"),
];

/// A running job, killed when dropped.
pub struct Job {
    mpirun: Child,
    token: String,
    _guard: Guard,
    /// Output of the job, and files that MPI leaves when a job is killed.
    dir: TempDir,
}

impl Job {
    /// Starts a program in `ranks` processes, on any number of cores.
    pub fn start(ranks: u32, program: &Path, arguments: &[&str]) -> Self {
        Self::start_at(&Place::Here, ranks, program, arguments)
    }

    /// Starts them in some place.
    pub fn start_at(place: &Place, ranks: u32, program: &Path, arguments: &[&str]) -> Self {
        let mut mpirun = Mpi::of_build().run_at(place, ranks, program);
        mpirun.args(arguments);
        Self::launch(mpirun)
    }

    /// Starts a script that calls mpirun.
    pub fn launch(mut script: Command) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let token = format!("{}-{number}", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        let output = File::create(dir.path().join("output")).unwrap();
        script.env(TOKEN, &token);
        let guard = Guard::of_processes(&format!("{TOKEN}={token}"));
        configure(&mut script, dir.path());
        script.stdin(Stdio::null());
        script.stdout(output.try_clone().unwrap()).stderr(output);
        // A signal from the terminal reaches only the tests, which end the job.
        script.process_group(0);
        let started = script.spawn();
        let mpirun = started.unwrap_or_else(|e| panic!("{script:?} cannot be started: {e}"));
        Job {
            mpirun,
            token,
            _guard: guard,
            dir,
        }
    }

    /// The process that was started.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.mpirun)
    }

    /// Waits for the end. Fails the test when time runs out.
    pub fn wait(&mut self) -> ExitStatus {
        self.wait_at_most(DEADLINE)
            .unwrap_or_else(|reason| panic!("{reason}"))
    }

    /// Waits for the end, and kills the job when time runs out.
    fn wait_at_most(&mut self, patience: Duration) -> Result<ExitStatus, String> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.mpirun.try_wait().unwrap() {
                return Ok(status);
            }
            if start.elapsed() > patience {
                let said = self.said();
                self.kill();
                return Err(format!(
                    "a job did not end in {patience:?}; it said:\n{said}"
                ));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the end, and returns what went wrong.
    pub fn outcome(mut self, patience: Duration) -> Result<(), String> {
        let status = self.wait_at_most(patience)?;
        let reason = || format!("{status}:\n{}", self.said());
        status.success().then_some(()).ok_or_else(reason)
    }

    /// Waits for mpirun after its ranks were killed. On a busy machine mpirun sometimes reports their death but does
    /// not end; no test is about that.
    pub fn wait_for_killed(&mut self) {
        let start = Instant::now();
        while !self.has_ended() {
            if start.elapsed() > PATIENCE {
                return self.kill();
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether mpirun has ended. The ranks end before it.
    pub fn has_ended(&mut self) -> bool {
        self.mpirun.try_wait().unwrap().is_some()
    }

    /// Waits for success; returns the output of the job.
    #[track_caller]
    pub fn succeed(mut self) -> String {
        let status = self.wait();
        let said = self.said();
        assert!(status.success(), "{status}:\n{said}");
        said
    }

    /// Output of all processes so far.
    pub fn said(&self) -> String {
        let bytes = fs::read(self.dir.path().join("output")).unwrap_or_default();
        let said = String::from_utf8_lossy(&bytes);
        // On nodes mpirun sometimes reports that a shell was faster.
        let is_about_job = |line: &&str| !line.contains("plm:rsh: Warning: setpgid");
        said.split_inclusive('\n').filter(is_about_job).collect()
    }

    /// Kills mpirun after the loss of a node, where it would never end: that of MPICH 4.0 does not notice the loss,
    /// and on a request to end it waits for the node's answer.
    pub fn end_without_node(&mut self) {
        if Mpi::of_build().is_mpich() {
            let _ = self.mpirun.kill();
        }
    }

    /// Kills mpirun and all ranks.
    pub fn kill(&mut self) {
        let _ = self.mpirun.kill();
        let _ = self.mpirun.wait();
        // A rank that was just starting may have been missed.
        for _ in 0..100 {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for process in left {
                let _ = kill_process(process, Signal::KILL);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for failure; returns the output of the job.
    #[track_caller]
    pub fn fail(mut self) -> String {
        let status = self.wait();
        let said = self.said();
        assert!(!status.success(), "{said}");
        said
    }

    /// Stops all processes of the job that run `program`, and waits until none of their threads runs.
    pub fn stop(&self, program: &Path) {
        let ranks = self.signal(program, Signal::STOP);
        wait_until("the ranks are stopped", || ranks.iter().all(is_stopped));
    }

    /// Sends a signal to all processes of the job that run `program`, and returns them.
    pub fn signal(&self, program: &Path, signal: Signal) -> Vec<Pid> {
        let is_rank = |pid: &Pid| {
            let runs = fs::read_link(format!("/proc/{}/exe", pid.as_raw_pid()));
            runs.is_ok_and(|runs| runs == program)
        };
        let mut ranks = self.processes();
        ranks.retain(is_rank);
        assert!(!ranks.is_empty(), "no process runs {}", program.display());
        for rank in &ranks {
            let _ = kill_process(*rank, signal);
        }
        ranks
    }

    /// The process of a rank, which is number `own` on its node.
    pub fn rank(&self, rank: u32, own: i32) -> Option<Pid> {
        let variables = rank_variables(rank);
        let is_rank = |pid| variables.iter().any(|v| has_variable(pid, v));
        let is_it = |pid: &Pid| own_number(*pid) == Some(own) && is_rank(*pid);
        self.processes().into_iter().find(is_it)
    }

    /// The process of a rank that runs `program`. It may have restarted itself with one of these first arguments.
    pub fn rank_of(&self, program: &Path, rank: u32, again: &[&str]) -> Option<Pid> {
        let variables = rank_variables(rank);
        let is_rank = |pid: &Pid| {
            let about = |what: &str| PathBuf::from(format!("/proc/{}/{what}", pid.as_raw_pid()));
            let arguments = fs::read(about("cmdline")).unwrap_or_default();
            let first = arguments.split(|b| *b == 0).nth(1).unwrap_or_default();
            fs::read_link(about("exe")).is_ok_and(|runs| runs == program)
                && !again.iter().any(|name| name.as_bytes() == first)
                && variables.iter().any(|v| has_variable(*pid, v))
        };
        self.processes().into_iter().find(is_rank)
    }

    /// Processor time of its processes and of their ended children.
    pub fn cpu(&self) -> Duration {
        self.processes().into_iter().map(cpu_of).sum()
    }

    /// The live processes of the job.
    fn processes(&self) -> Vec<Pid> {
        let wanted = format!("{TOKEN}={}", self.token).into_bytes();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|p| p.file_name().to_str()?.parse().ok());
        let ours = |pid: &Pid| has_variable(*pid, &wanted);
        pids.filter_map(Pid::from_raw).filter(ours).collect()
    }
}

/// Processor time of a process, and of its children that have ended.
fn cpu_of(process: Pid) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid()));
    let stat = stat.unwrap_or_default();
    // The program's name comes before, and may contain spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(4);
    let ticks: u64 = times.filter_map(|time| time.parse::<u64>().ok()).sum();
    Duration::from_secs(ticks) / rustix::param::clock_ticks_per_second() as u32
}

/// The rank in the environment, as Open MPI and as MPICH set it.
fn rank_variables(rank: u32) -> [Vec<u8>; 2] {
    ["OMPI_COMM_WORLD_RANK", "PMI_RANK"].map(|name| format!("{name}={rank}").into_bytes())
}

/// Whether a process has this variable in its environment.
fn has_variable(pid: Pid, wanted: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid()));
    let environment = environment.unwrap_or_default();
    environment.split(|b| *b == 0).any(|v| v == wanted)
}

/// The number of a process in its own namespace.
fn own_number(pid: Pid) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).ok()?;
    let line = status.lines().find(|line| line.starts_with("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// Whether all threads of a process are stopped. A thread in a system call stops afterwards.
fn is_stopped(process: &Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", process.as_raw_pid()));
    threads.unwrap().flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before it may contain any characters.
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
        state.is_some_and(|state| state.starts_with('T'))
    })
}

impl Drop for Job {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process of a job, by a handle that never refers to a later process.
pub struct Rank {
    pub handle: OwnedFd,
    pub pid: Pid,
}

impl Rank {
    pub fn new(pid: Pid) -> Self {
        let handle = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        Rank { handle, pid }
    }

    /// Whether it has closed its files and stopped working.
    pub fn has_ended(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_pid()));
        let state = stat
            .ok()
            .and_then(|s| s.rsplit(") ").next()?.chars().next());
        let about = format!("/proc/self/fdinfo/{}", self.handle.as_raw_fd());
        let is_reaped = fs::read_to_string(about).unwrap().contains("Pid:\t-1");
        is_reaped || matches!(state, None | Some('Z' | 'X'))
    }
}
