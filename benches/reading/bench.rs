//! The part that all workloads share: it prepares files, mounts contestants, and runs the rounds.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::client::{Client, Clients, Read, Timed, Way};
use crate::generate::{Dataset, Plan, Written, write_log};
use crate::mounts::{Mount, Scratch};
use crate::report::{Goal, Outcome, Row, Unit};

const NATIVE: &str = "native";
pub const MOUNTED: &str = "mounted";
/// The contestant that reads the log by its own path, with the file driver.
pub const DRIVER: &str = "driver";
/// The contestant that reads the log with the Python package.
pub const FILE_OBJECT: &str = "Python file object";
/// Contestants that read arrays of numpy without HDF5: names here and in `client.py`.
const ARRAYS: [(&str, &str); 5] = [
    ("arrays, 1 thread", "1"),
    ("arrays, all cores", "0"),
    (HIDEFIX, "hidefix"),
    ("references, zarr", "zarr"),
    ("references, zarrs", "zarrs"),
];
/// The contestant that reads the native file with another library, by an index of its chunks.
const HIDEFIX: &str = "hidefix, native file";
/// The contestants that read through the minimal daemon, with and without the kernel's page cache.
const BARE: &str = "bare daemon";
const DIRECT: &str = "bare daemon, direct I/O";

/// How large the logs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Scale {
    /// Everything takes seconds. Shows that the benchmark works; the figures mean nothing.
    Small,
    /// The scale of the goals.
    Full,
    /// The full scale, with 10^8 distinct blocks.
    Huge,
}

/// The parameters of the contents of a log.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub scale: Scale,
    pub seed: u64,
}

impl Size {
    pub fn pick<T>(self, small: T, full: T) -> T {
        match self.scale {
            Scale::Small => small,
            Scale::Full | Scale::Huge => full,
        }
    }
}

pub struct Bench {
    pub scratch: Scratch,
    pub program: PathBuf,
    /// The directory with the file driver, if it was built.
    pub plugins: Option<PathBuf>,
    /// Whether the interpreter has the Python package.
    pub has_package: bool,
    /// The other modules of the interpreter.
    pub modules: Vec<String>,
    pub clients: Clients,
    pub corpus: PathBuf,
    pub rounds: usize,
    pub size: Size,
    pub mount_options: String,
    /// Whether the program knows the option `index_dir`.
    pub keeps_indexes: bool,
    /// Contestants that read arrays replace all other ways to read a log.
    pub only_arrays: Cell<bool>,
    /// The log of slabs, which several workloads read.
    pub slabs: RefCell<Option<Rc<Prepared>>>,
}

/// A log and its native form, in two directories, under the same name. Removed when dropped.
#[derive(Debug)]
pub struct Prepared {
    dir: PathBuf,
    name: String,
    pub datasets: Vec<Dataset>,
    pub written: Option<Written>,
}

impl Prepared {
    pub fn log_dir(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub fn native_dir(&self) -> PathBuf {
        self.dir.join("native")
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn log(&self) -> PathBuf {
        self.log_dir().join(&self.name)
    }

    pub fn native(&self) -> PathBuf {
        self.native_dir().join(&self.name)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Reads that are measured together.
pub struct Job<'a> {
    pub what: &'a str,
    pub reads: Vec<Read>,
    pub per: Per,
    /// Goals for the first and for the second pass over a fresh mount.
    pub goals: [Option<Goal>; 2],
    /// Goal for the file driver.
    pub driver: Wanted,
}

/// A goal of the file driver, for both passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wanted {
    Nothing,
    /// Least native ÷ measured.
    Ratio(f64),
    /// No slower than the mount.
    AsMounted,
}

/// A contestant whose turn it is, with a fresh mount and fresh clients. They end with the turn.
pub struct Turn<'a> {
    /// Path that the clients open.
    pub path: PathBuf,
    /// The clients of native files and mounts outlive the turn.
    clients: &'a Clients,
    own_clients: Option<Clients>,
    _mount: Option<Mount>,
    /// Directory in which `own_clients` keep indexes.
    _scratch: Option<Scratch>,
}

impl<'a> Turn<'a> {
    fn new(bench: &'a Bench, path: PathBuf, mount: Option<Mount>) -> Self {
        Turn {
            path,
            clients: &bench.clients,
            own_clients: None,
            _mount: mount,
            _scratch: None,
        }
    }

    pub fn clients(&self) -> &Clients {
        self.own_clients.as_ref().unwrap_or(self.clients)
    }
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Per {
    /// All reads, and the opening of the file.
    Job,
    Read,
}

impl Bench {
    /// Goals hold for the full scale only.
    pub fn goal(&self, goal: Goal) -> Option<Goal> {
        self.size.pick(None, Some(goal))
    }

    pub fn with_client<T>(&self, work: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
        self.clients.with(work)
    }

    /// The available ways to read a log without a mount.
    pub fn without_mount(&self) -> Vec<&'static str> {
        let driver = self.plugins.is_some().then_some(DRIVER);
        let package = self.has_package.then_some(FILE_OBJECT);
        driver.into_iter().chain(package).collect()
    }

    /// The ways to read a log that are compared.
    fn readers(&self) -> Vec<&'static str> {
        if self.only_arrays.get() {
            let is_there = |how: &str| {
                how.parse::<u32>().is_ok() || self.modules.iter().any(|module| module == how)
            };
            let there = ARRAYS.iter().filter(|(_, how)| is_there(how));
            return there.map(|(name, _)| *name).collect();
        }
        [MOUNTED].into_iter().chain(self.without_mount()).collect()
    }

    /// New clients that read logs without a mount. They keep indexes in `indexes`.
    pub fn clients_without_mount(&self, who: &str, indexes: &Path) -> Result<Clients> {
        let mut options = self.mount_options.clone();
        if !options.is_empty() {
            options.push(',');
        }
        options.push_str(&format!("index_dir={}", indexes.display()));
        let way = match (who, &self.plugins) {
            (DRIVER, Some(plugins)) => Way::Driver {
                plugins: plugins.clone(),
                program: self.program.clone(),
                options,
            },
            (FILE_OBJECT, _) => Way::FileObject { options },
            _ => match ARRAYS.iter().find(|(name, _)| *name == who) {
                Some((_, reader)) => Way::Arrays { options, reader },
                None => bail!("{who} is no way to read without a mount"),
            },
        };
        Ok(self.clients.with_way(way))
    }

    /// Writes the log of a plan, without its native form.
    pub fn generate(&self, name: &str, plan: &dyn Plan) -> Result<Prepared> {
        let mut prepared = self.dir(name, plan.datasets())?;
        self.say(name, "writing the log");
        prepared.written = Some(write_log(&prepared.log(), plan, self.size.seed)?);
        Ok(prepared)
    }

    /// Writes the log of a plan and its native form. Compares the contents of the mount with both.
    pub fn prepare(&self, name: &str, plan: &dyn Plan, out: &mut Outcome) -> Result<Prepared> {
        let prepared = self.generate(name, plan)?;
        prepared.written.iter().for_each(|w| out.log(w));
        self.export(&prepared.log(), &prepared.native())?;
        self.check(&prepared, out)?;
        Ok(prepared)
    }

    /// Prepares a log as [`Bench::prepare`] does, but with the native form of another log of the same contents.
    pub fn prepare_against(
        &self,
        other: &dyn Plan,
        name: &str,
        plan: &dyn Plan,
        out: &mut Outcome,
    ) -> Result<Prepared> {
        self.prepare_as(name, other, out, |prepared, out| {
            out.log(&write_log(&prepared.log(), plan, self.size.seed)?);
            Ok(())
        })
    }

    /// Writes the native form of a plan's log. `put` then replaces the log by the file to be read.
    pub fn prepare_as(
        &self,
        name: &str,
        plan: &dyn Plan,
        out: &mut Outcome,
        put: impl FnOnce(&Prepared, &mut Outcome) -> Result<()>,
    ) -> Result<Prepared> {
        let prepared = self.generate(name, plan)?;
        self.export(&prepared.log(), &prepared.native())?;
        fs::remove_file(prepared.log())?;
        put(&prepared, out)?;
        self.check(&prepared, out)?;
        Ok(prepared)
    }

    /// Copies an existing log.
    pub fn adopt(&self, log: &Path, out: &mut Outcome) -> Result<Prepared> {
        let name = log.file_name().context("a log has a name")?;
        let prepared = self.dir(&name.to_string_lossy(), Vec::new())?;
        fs::copy(log, prepared.log())?;
        self.export(&prepared.log(), &prepared.native())?;
        self.check(&prepared, out)?;
        Ok(prepared)
    }

    /// A log that is a directory of ADIOS2, or a set of netCDF files with a joined name, which `write` makes at a path. Nothing is
    /// compared, and there is no native form yet.
    pub fn adopt_directory(
        &self,
        name: &str,
        write: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Prepared> {
        let prepared = self.dir(name, Vec::new())?;
        write(&prepared.log())?;
        Ok(prepared)
    }

    fn dir(&self, name: &str, datasets: Vec<Dataset>) -> Result<Prepared> {
        let prepared = Prepared {
            dir: self.scratch.path().join(name),
            name: match name.strip_suffix(".nc") {
                Some(_) => name.to_owned(),
                None => format!("{}.h5", name.trim_end_matches(".log.h5")),
            },
            datasets,
            written: None,
        };
        fs::create_dir_all(prepared.log_dir())?;
        fs::create_dir_all(prepared.native_dir())?;
        Ok(prepared)
    }

    fn export(&self, log: &Path, native: &Path) -> Result<()> {
        self.say(&log.display().to_string(), "exporting the native file");
        let mut command = Command::new(&self.program);
        command.arg("export");
        if let Some(size) = cache_size(&self.mount_options) {
            command.args(["--cache-size", size]);
        }
        let output = command.args([log, native]).output()?;
        if !output.status.success() {
            let messages = String::from_utf8_lossy(&output.stderr);
            bail!("h5logfs export: {}", messages.trim());
        }
        Ok(())
    }

    /// Compares the mounted file with the native file and with the generated values.
    fn check(&self, prepared: &Prepared, out: &mut Outcome) -> Result<()> {
        self.say(&prepared.name, "comparing contents");
        let (native, wrong) = self.with_client(|client| {
            let native = client.digests(&prepared.native())?;
            let wrong = client.check(&prepared.native(), &prepared.datasets, self.size.seed)?;
            Ok((native, wrong))
        })?;
        out.contents(&wrong);
        // Other libraries are no proof of our own code, so only our own readers are checked.
        let own = self.readers().into_iter().filter(|who| !is_foreign(who));
        for who in own {
            let turn = self.turn(who, prepared)?;
            let digests = turn.clients().with(|client| client.digests(&turn.path))?;
            if digests != native {
                out.contents(&[format!("{who}: not what the native file holds")]);
            }
        }
        Ok(())
    }

    /// A fresh mount with an empty index directory. `options` follow those of the command line.
    pub fn mount(&self, source: &Path, options: &str) -> Result<Mount> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let at = self.scratch.path().join(format!("mount-{number}"));
        let mut all = vec![self.mount_options.clone(), options.to_owned()];
        let own_indexes = self.keeps_indexes && !options.contains("index_dir=");
        let indexes = self.scratch.path().join(format!("indexes-{number}"));
        if own_indexes {
            all.push(format!("index_dir={}", indexes.display()));
        }
        all.retain(|options| !options.is_empty());
        let mut mount = Mount::of_logs(&self.program, source, &at, &all.join(","))?;
        if own_indexes {
            mount.remove_with_it(indexes);
        }
        Ok(mount)
    }

    /// Waits until indexes can be kept. The program keeps none of a file that was just written, because it
    /// could change again within the same clock tick.
    pub fn let_settle(&self) {
        if self.keeps_indexes {
            thread::sleep(Duration::from_secs(3));
        }
    }

    /// Finds out whether the program knows the option `index_dir`. Older programs may not.
    pub fn look_for_index_dir(&mut self) -> Result<()> {
        let source = self.scratch.path().join("empty");
        fs::create_dir_all(&source)?;
        let option = format!("index_dir={}", self.scratch.path().join("none").display());
        self.keeps_indexes = match self.mount(&source, &option) {
            Ok(_) => true,
            Err(error) if error.to_string().contains("unknown mount option") => false,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Runs a job on all contestants, in another order each round, and adds the rows. `bare`: also on the
    /// minimal daemon, with and without the kernel's page cache.
    pub fn compare(
        &self,
        prepared: &Prepared,
        job: &Job<'_>,
        bare: bool,
        out: &mut Outcome,
    ) -> Result<()> {
        let mut pass = |turn: &Turn<'_>| {
            let timed = turn.clients().with(|c| c.time(&turn.path, &job.reads));
            timed.map(|timed| job.figures(&timed))
        };
        self.compare_by(prepared, job, bare, &mut pass, out)
    }

    /// Runs a job as [`Bench::compare`] does, with another way of reading: `pass` reads a file once and returns the
    /// figures.
    pub fn compare_by(
        &self,
        prepared: &Prepared,
        job: &Job<'_>,
        bare: bool,
        pass: &mut dyn FnMut(&Turn<'_>) -> Result<Vec<f64>>,
        out: &mut Outcome,
    ) -> Result<()> {
        let mut names = vec![NATIVE];
        names.extend(self.readers());
        if bare && !self.only_arrays.get() {
            names.extend([BARE, DIRECT]);
        }
        let mut contestants: Vec<_> = names.into_iter().map(Contestant::new).collect();
        for round in 0..=self.rounds {
            self.say(out.name, &format!("{}, round {round}", job.what));
            for turn in 0..contestants.len() {
                let who = (turn + round) % contestants.len();
                let who = &mut contestants[who];
                if who.is_out {
                    continue;
                }
                let turn = self.turn(who.name, prepared)?;
                let figures = pass(&turn).and_then(|first| Ok([first, pass(&turn)?]));
                match figures {
                    Ok([first, second]) => {
                        who.passes[0].push(first);
                        who.passes[1].push(second);
                    }
                    // Other libraries cannot read every log.
                    Err(error) if is_foreign(who.name) => {
                        who.is_out = true;
                        out.note(format!("{}: {}: {error:#}", job.what, who.name));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let [native, first, others @ ..] = &contestants[..] else {
            return Ok(());
        };
        job.rows(native, first, self.driver_goal(job), out);
        for other in others {
            job.rows(native, other, self.driver_goal(job), out);
            if other.name == DRIVER && job.driver == Wanted::AsMounted {
                job.against_mount(first, other, self.goal(Goal::Ratio(1.0)), out);
            }
        }
        Ok(())
    }

    fn driver_goal(&self, job: &Job<'_>) -> Option<Goal> {
        match job.driver {
            Wanted::Ratio(least) => self.goal(Goal::Ratio(least)),
            Wanted::Nothing | Wanted::AsMounted => None,
        }
    }

    /// Prepares a contestant: reads the files into the page cache, and starts fresh readers of the log.
    fn turn(&self, who: &str, prepared: &Prepared) -> Result<Turn<'_>> {
        let mount = match who {
            NATIVE => {
                into_page_cache(&prepared.native())?;
                return Ok(self.turn_of_paths(prepared.native(), None));
            }
            BARE | DIRECT => {
                into_page_cache(&prepared.native())?;
                let at = self.scratch.path().join("bare");
                Mount::bare(&prepared.native_dir(), &at, who == DIRECT)?
            }
            MOUNTED => {
                all_into_page_cache(&prepared.log_dir())?;
                self.mount(&prepared.log_dir(), "")?
            }
            _ => {
                all_into_page_cache(&prepared.log_dir())?;
                let scratch = Scratch::new(self.scratch.path())?;
                let clients = self.clients_without_mount(who, &scratch.path().join("indexes"))?;
                let file = match who {
                    HIDEFIX => prepared.native(),
                    _ => prepared.log(),
                };
                return Ok(Turn {
                    own_clients: Some(clients),
                    _scratch: Some(scratch),
                    ..Turn::new(self, file, None)
                });
            }
        };
        let path = mount.join(&prepared.name);
        Ok(self.turn_of_paths(path, Some(mount)))
    }

    /// A turn of readers that open a path in new processes. The memory that libhdf5 takes from the system in its first read costs
    /// as much as the read of a native file, and each contestant takes it once.
    fn turn_of_paths(&self, path: PathBuf, mount: Option<Mount>) -> Turn<'_> {
        Turn {
            own_clients: Some(self.clients.with_way(Way::Path)),
            ..Turn::new(self, path, mount)
        }
    }

    /// Reports the progress.
    pub fn say(&self, workload: &str, what: &str) {
        eprintln!("{workload}: {what}");
    }
}

/// The figures of one contestant, by pass and round.
struct Contestant {
    name: &'static str,
    passes: [Vec<Vec<f64>>; 2],
    /// Whether it failed to read the file.
    is_out: bool,
}

impl Contestant {
    fn new(name: &'static str) -> Self {
        Contestant {
            name,
            passes: [Vec::new(), Vec::new()],
            is_out: false,
        }
    }

    fn rounds(&self, pass: usize, figure: usize) -> Vec<f64> {
        let figures = self.passes[pass].iter();
        figures.filter_map(|f| f.get(figure)).copied().collect()
    }
}

impl Job<'_> {
    /// The figures of a pass.
    pub fn figures(&self, timed: &Timed) -> Vec<f64> {
        match (self.per, timed.each.split_first()) {
            (Per::Job, _) | (Per::Read, None) => vec![timed.seconds()],
            (Per::Read, Some((first, rest))) => {
                let mean = rest.iter().sum::<f64>() / rest.len().max(1) as f64;
                vec![*first, mean]
            }
        }
    }

    /// Goals hold for the mount and the file driver only.
    fn rows(
        &self,
        native: &Contestant,
        other: &Contestant,
        driver: Option<Goal>,
        out: &mut Outcome,
    ) {
        let [first, second] = match other.name {
            MOUNTED => self.goals,
            DRIVER => [driver; 2],
            _ => [None; 2],
        };
        let rows = match self.per {
            Per::Job => vec![("first read", 0, 0, first), ("second read", 1, 0, second)],
            Per::Read => vec![
                ("the first one", 0, 0, None),
                ("index warm, mean", 0, 1, first),
                ("all warm, mean", 1, 1, second),
            ],
        };
        for (which, pass, figure, goal) in rows {
            let what = format!("{}, {which}", self.what);
            let (theirs, natives) = (other.rounds(pass, figure), native.rounds(pass, figure));
            let row = Row::new(what, other.name, Unit::Seconds, &theirs);
            out.row(row.map(|row| row.against(&natives, &theirs).goal(goal)));
        }
    }

    /// Adds rows that compare a contestant with the mount.
    fn against_mount(
        &self,
        mounted: &Contestant,
        other: &Contestant,
        goal: Option<Goal>,
        out: &mut Outcome,
    ) {
        let figures = match self.per {
            Per::Job => 0,
            Per::Read => 1,
        };
        for (pass, which) in ["first", "second"].into_iter().enumerate() {
            let what = format!("{}, {which} pass against the mount", self.what);
            let (theirs, mounts) = (other.rounds(pass, figures), mounted.rounds(pass, figures));
            let row = Row::new(what, other.name, Unit::Seconds, &theirs);
            out.row(row.map(|row| row.against(&mounts, &theirs).goal(goal)));
        }
    }
}

/// Whether a contestant is a library of others.
fn is_foreign(who: &str) -> bool {
    ARRAYS[2..].iter().any(|(other, _)| *other == who)
}

/// The value of `cache_size` among mount options.
fn cache_size(options: &str) -> Option<&str> {
    let mut options = options.split(',');
    options.find_map(|o| o.strip_prefix("cache_size="))
}

/// Reads a file once, so that measurements do not include the disk.
pub fn into_page_cache(path: &Path) -> io::Result<()> {
    io::copy(&mut File::open(path)?, &mut io::sink()).map(drop)
}

/// Reads all files of a directory, and of those in it, once.
pub fn all_into_page_cache(dir: &Path) -> io::Result<()> {
    for file in fs::read_dir(dir)? {
        let path = file?.path();
        if path.is_dir() {
            all_into_page_cache(&path)?;
        } else {
            into_page_cache(&path)?;
        }
    }
    Ok(())
}
