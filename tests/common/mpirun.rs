//! Programs under `mpirun`: started, and ended with all their ranks, also if the test fails. The MPI is that with which
//! the tests were built, Open MPI or MPICH.

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

/// How long a job may take that normally takes a second or two.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// How long mpirun may take that has lost its ranks.
const PATIENCE: Duration = Duration::from_secs(10);

/// A variable in the environment of the ranks of a job: it finds them when the job has to be ended.
const TOKEN: &str = "H5LOGFS_TEST_JOB";

/// Path of a program of `tests/programs`, or of an example. `cargo test` builds them beside the tests.
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

/// The C compiler of an MPI, whose other commands have names like it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mpi {
    compiler: &'static str,
}

impl Mpi {
    /// The name by which Debian has MPICH beside another MPI.
    pub const MPICH: Mpi = Mpi {
        compiler: "mpicc.mpich",
    };

    /// The same for Open MPI.
    pub const OPEN_MPI: Mpi = Mpi {
        compiler: "mpicc.openmpi",
    };

    /// The one that the tests were built with: the crate `mpi` takes it from the same variable.
    pub const fn of_build() -> Self {
        match option_env!("MPICC") {
            Some(compiler) => Mpi { compiler },
            None => Mpi { compiler: "mpicc" },
        }
    }

    /// A command of this MPI, by the name that it has where there is only one: `mpicc`, `mpicxx`, `mpirun`.
    pub fn command(self, name: &str) -> String {
        match self.compiler.rsplit_once("mpicc") {
            Some((before, after)) => format!("{before}{name}{after}"),
            None => name.to_owned(),
        }
    }

    /// The one that the tests were not built with. `None`, with the reason, where it is not installed.
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

    /// What it calls itself.
    pub fn name(self) -> &'static str {
        if self.is_mpich() { "MPICH" } else { "Open MPI" }
    }

    /// Whether it is MPICH.
    pub fn is_mpich(self) -> bool {
        let shown = Command::new(self.compiler).arg("-show").output();
        let shown = shown.unwrap_or_else(|e| panic!("{}: {e}", self.compiler));
        String::from_utf8_lossy(&shown.stdout).contains("-lmpich")
    }

    /// `PATH` for scripts, in which its commands have the names that they have where there is only one.
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

    /// A directory with the short names of its commands.
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

    /// The start of a program by so many processes.
    pub fn run(self, ranks: u32, program: &Path) -> Command {
        self.run_at(&Place::Here, ranks, program)
    }

    /// The same in some place. On nodes, each gets as many as any other, or one less.
    pub fn run_at(self, place: &Place, ranks: u32, program: &Path) -> Command {
        let mut mpirun = match place {
            Place::Here => Command::new(self.command("mpirun")),
            Place::Nodes(nodes) => self.across(nodes, &nodes.shares(ranks)),
        };
        mpirun.args(["-n", &ranks.to_string()]).arg(program);
        mpirun
    }

    /// The beginning of a command that starts ranks on nodes: so many on each.
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

/// Sets the environment in which mpirun starts any number of ranks, also for root. `dir` is for its own files.
pub fn configure(command: &mut Command, dir: &Path) {
    if Mpi::of_build().is_mpich() {
        command.env("LD_PRELOAD", beside_mpich());
    } else {
        configure_open_mpi(command, dir);
    }
}

/// MPICH waits without leaving the processor: four ranks on two cores take 5 ms for a reduction. And on several nodes its
/// ranks may wait for each other for ever when they end. With this library the ranks of a test do neither.
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
        // Else all small jobs share the first core.
        ("OMPI_MCA_hwloc_base_binding_policy", "none"),
        ("OMPI_MCA_btl", "self,vader"),
        ("OMPI_MCA_btl_vader_single_copy_mechanism", "none"),
    ];
    command.envs(settings);
    for variable in ["orte_tmpdir_base", "btl_vader_backing_directory"] {
        command.env(format!("OMPI_MCA_{variable}"), dir);
    }
}

/// What Open MPI has to know of nodes. It goes over TCP between them. By default it believes in a node that does not answer
/// for eight minutes: the keepalive begins after 300 seconds, and asks 9 times, every 20.
const ON_NODES: [(&str, &str); 6] = [
    ("btl", "self,vader,tcp"),
    ("btl_vader_backing_directory", "/dev/shm"),
    ("btl_tcp_if_include", CARD),
    ("oob_tcp_if_include", CARD),
    ("oob_tcp_keepalive_time", "2"),
    ("oob_tcp_keepalive_intvl", "1"),
];

/// A job that runs. Dropped, it is killed.
pub struct Job {
    mpirun: Child,
    token: String,
    _guard: Guard,
    /// What it prints, and what MPI leaves behind when a job is killed.
    dir: TempDir,
}

impl Job {
    /// Starts `ranks` processes of a program, on however few cores.
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
        // A signal from the terminal goes to the tests alone: they end the job.
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

    /// Waits for the end. Fails the test where it does not come.
    pub fn wait(&mut self) -> ExitStatus {
        self.wait_at_most(DEADLINE)
            .unwrap_or_else(|reason| panic!("{reason}"))
    }

    /// Waits for the end, and ends the job where it does not come.
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

    /// Waits so long for the end, and tells what went wrong.
    pub fn outcome(mut self, patience: Duration) -> Result<(), String> {
        let status = self.wait_at_most(patience)?;
        let reason = || format!("{status}:\n{}", self.said());
        status.success().then_some(()).ok_or_else(reason)
    }

    /// Waits for mpirun after its ranks were killed. On a busy machine it sometimes reports that they died, but does not
    /// end; no test is about that.
    pub fn wait_for_killed(&mut self) {
        let start = Instant::now();
        while !self.has_ended() {
            if start.elapsed() > PATIENCE {
                return self.kill();
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether mpirun is gone; the ranks go before it.
    pub fn has_ended(&mut self) -> bool {
        self.mpirun.try_wait().unwrap().is_some()
    }

    /// Waits for the end, which has to be a good one; returns what the job printed.
    #[track_caller]
    pub fn succeed(mut self) -> String {
        let status = self.wait();
        let said = self.said();
        assert!(status.success(), "{status}:\n{said}");
        said
    }

    /// What all its processes printed so far.
    pub fn said(&self) -> String {
        let bytes = fs::read(self.dir.path().join("output")).unwrap_or_default();
        let said = String::from_utf8_lossy(&bytes);
        // On nodes mpirun sometimes sees that a shell was faster than itself.
        let is_about_job = |line: &&str| !line.contains("plm:rsh: Warning: setpgid");
        said.split_inclusive('\n').filter(is_about_job).collect()
    }

    /// Kills mpirun after a node was lost, where it would never end: that of MPICH 4.0 does not notice, and if it is told to end
    /// it waits for an answer of the node.
    pub fn end_without_node(&mut self) {
        if Mpi::of_build().is_mpich() {
            let _ = self.mpirun.kill();
        }
    }

    /// Kills mpirun and all ranks.
    pub fn kill(&mut self) {
        let _ = self.mpirun.kill();
        let _ = self.mpirun.wait();
        // A rank that was just being started may have been missed.
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

    /// Waits for the end, which has to be a bad one; returns what the job printed.
    #[track_caller]
    pub fn fail(mut self) -> String {
        let status = self.wait();
        let said = self.said();
        assert!(!status.success(), "{said}");
        said
    }

    /// Stops all processes of the job that run `program`, and waits until no thread of them runs.
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

    /// The process of a rank, which has the number `own` on its node.
    pub fn rank(&self, rank: u32, own: i32) -> Option<Pid> {
        let variables = rank_variables(rank);
        let is_rank = |pid| variables.iter().any(|v| has_variable(pid, v));
        let is_it = |pid: &Pid| own_number(*pid) == Some(own) && is_rank(*pid);
        self.processes().into_iter().find(is_it)
    }

    /// The process of a rank that runs `program`. It may have started itself again, with one of these first arguments.
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

    /// Processor time that its processes have taken, and those that these have started and that have ended.
    pub fn cpu(&self) -> Duration {
        self.processes().into_iter().map(cpu_of).sum()
    }

    /// The processes of the job that live.
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
    // The name of the program comes before, which may have spaces.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(4);
    let ticks: u64 = times.filter_map(|time| time.parse::<u64>().ok()).sum();
    Duration::from_secs(ticks) / rustix::param::clock_ticks_per_second() as u32
}

/// What a rank has in its environment: as Open MPI says it, and MPICH.
fn rank_variables(rank: u32) -> [Vec<u8>; 2] {
    ["OMPI_COMM_WORLD_RANK", "PMI_RANK"].map(|name| format!("{name}={rank}").into_bytes())
}

/// Whether a process has a variable, with its value, in its environment.
fn has_variable(pid: Pid, wanted: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid()));
    let environment = environment.unwrap_or_default();
    environment.split(|b| *b == 0).any(|v| v == wanted)
}

/// The number by which a process knows itself.
fn own_number(pid: Pid) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).ok()?;
    let line = status.lines().find(|line| line.starts_with("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// Whether all threads of a process are stopped. A thread in a system call stops when that is done.
fn is_stopped(process: &Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", process.as_raw_pid()));
    threads.unwrap().flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before it may have any characters.
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

    /// Whether it has closed its files, and does nothing any more.
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
