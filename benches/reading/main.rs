//! Compares three ways to read a log with libhdf5 on the native file: the mount, the file driver and the Python
//! package: `make bench`, or
//!
//! ```text
//! target/release/examples/bench_reading --help
//! ```
//!
//! Other work disturbs the measurements. So native file and mount take turns within one run, and the result is the
//! median of the ratios of each round. `benches/README.md` explains the figures.

mod bare;
mod bench;
mod client;
mod generate;
mod mounts;
mod report;
mod scripts;
mod statistics;
mod work;

use std::cell::{Cell, RefCell};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};

use bench::{Bench, Scale, Size};
use client::{Client, Clients, Way};
use generate::write_log;
use mounts::Scratch;
use report::{Outcome, Report};

/// Measures reading through the mount, and without one, against libhdf5 on the native file.
#[derive(Debug, Parser)]
#[command(args_override_self = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Where logs, native files and mounts are; full scale takes 8 GiB of disk there
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Rounds that count; one more, the first one, is shown apart
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How large the logs are
    #[arg(long, value_enum, default_value_t = Scale::Full, global = true)]
    scale: Scale,
    /// Only these workloads, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Say which workloads there are
    #[arg(long)]
    list: bool,
    /// Write all figures, samples included, to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The directory that has the e3sm_*.log.h5
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus/logvol"))]
    corpus: PathBuf,
    /// The program h5logfs; by default the one that was built with this
    #[arg(long)]
    program: Option<PathBuf>,
    /// The file driver, libh5logfs_driver.so; by default the one that was built with this. The reads with it are left out
    /// if it is not there
    #[arg(long)]
    driver: Option<PathBuf>,
    /// The interpreter that reads; it needs h5py, and the package h5logfs for the reads with that. By default that of H5LOGFS_TEST_PYTHON_NEW, else
    /// .venv/bin/python
    #[arg(long)]
    python: Option<PathBuf>,
    /// Options of every mount, of the file driver and of the Python package, as `mount -o` takes them
    #[arg(long, default_value = "")]
    mount_options: String,
    /// The same seed makes the same logs and the same reads
    #[arg(long, default_value_t = 1, global = true)]
    seed: u64,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Only write the log of a workload
    Generate { workload: String, file: PathBuf },
    /// Serve the files of a directory with the least that a FUSE daemon can do
    #[command(hide = true)]
    Bare {
        source: PathBuf,
        mount_point: PathBuf,
        /// Past the kernel's page cache
        #[arg(long)]
        direct: bool,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench_reading: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the command. Returns whether everything succeeded.
fn run(arguments: Arguments) -> Result<bool> {
    let size = Size {
        scale: arguments.scale,
        seed: arguments.seed,
    };
    match &arguments.command {
        Some(Command::Generate { workload, file }) => generate_only(workload, file, size)?,
        Some(Command::Bare {
            source,
            mount_point,
            direct,
        }) => bare::serve(source, mount_point, *direct)?,
        None if arguments.list => {
            for workload in &work::ALL {
                println!("{:16} {}", workload.name, workload.about);
            }
        }
        None => return measure(&arguments, size),
    }
    Ok(true)
}

fn generate_only(workload: &str, file: &Path, size: Size) -> Result<()> {
    let plan = work::plan(workload, size);
    let plan = plan.with_context(|| format!("{workload} has no log of its own"))?;
    let written = write_log(file, plan.as_ref(), size.seed)?;
    println!(
        "{} entries, {} blocks, {} bytes of data, {} bytes of metadata",
        written.entries, written.blocks, written.data, written.metadata
    );
    Ok(())
}

/// Returns whether all workloads ran and all contents agreed. Missed goals do not count.
fn measure(arguments: &Arguments, size: Size) -> Result<bool> {
    let only = &arguments.only;
    if let Some(unknown) = only.iter().find(|n| work::ALL.iter().all(|w| w.name != *n)) {
        bail!("no workload {unknown}; see --list");
    }
    mounts::clean_up_at_signal()?;
    let bench = make_ready(arguments, size)?;
    let mut report = Report {
        scale: format!("{:?}", size.scale).to_lowercase(),
        rounds: bench.rounds,
        seed: size.seed,
        reader: bench.with_client(Client::versions)?,
        processors: std::thread::available_parallelism().map_or(1, |n| n.get()),
        mount_options: bench.mount_options.clone(),
        workloads: Vec::new(),
    };
    print!("{report}");
    let wanted = |name: &str| only.is_empty() || only.iter().any(|n| n == name);
    for workload in work::ALL.iter().filter(|w| wanted(w.name)) {
        let mut outcome = Outcome::new(workload.name);
        if let Err(error) = (workload.run)(&bench, &mut outcome) {
            outcome.failed = Some(format!("{error:#}"));
        }
        print!("{outcome}");
        report.workloads.push(outcome);
    }
    if let Some(path) = &arguments.json {
        let json = serde_json::to_string_pretty(&report)?;
        fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(report.workloads.iter().all(Outcome::is_good))
}

fn make_ready(arguments: &Arguments, size: Size) -> Result<Bench> {
    let program = match &arguments.program {
        Some(program) => std::path::absolute(program)?,
        None => built_with_this("h5logfs")?,
    };
    ensure!(
        program.is_file(),
        "{} is not there: build it, or use --program",
        program.display()
    );
    let python = arguments.python.clone().unwrap_or_else(usual_python);
    let driver = match &arguments.driver {
        Some(driver) => driver.clone(),
        None => built_with_this("deps/libh5logfs_driver.so")?,
    };
    let scratch = Scratch::new(&arguments.dir)?;
    let mut bench = Bench {
        plugins: plugins(&driver, &scratch)?,
        scratch,
        has_package: has_package(&python)?,
        modules: modules(&python)?,
        program,
        clients: Clients::new(python, Way::Path),
        corpus: arguments.corpus.clone(),
        rounds: arguments.rounds as usize,
        size,
        mount_options: arguments.mount_options.clone(),
        only_arrays: Cell::new(false),
        keeps_indexes: false,
        slabs: RefCell::new(None),
    };
    bench.look_for_index_dir()?;
    Ok(bench)
}

/// A directory with the driver and nothing else, because libhdf5 loads every file of a directory of plug-ins.
fn plugins(driver: &Path, scratch: &Scratch) -> Result<Option<PathBuf>> {
    let name = "libh5logfs_driver.so";
    if !driver.is_file() {
        eprintln!("no file driver: {} is not there", driver.display());
        return Ok(None);
    }
    let plugins = scratch.path().join("plugins");
    fs::create_dir(&plugins)?;
    symlink(driver.canonicalize()?, plugins.join(name))?;
    Ok(Some(plugins))
}

/// The modules that the interpreter has, among those of the workloads `arrays` and `adios`.
fn modules(python: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let others = ["hidefix", "zarr", "zarrs"].into_iter();
    for module in others.chain(work::adios::MODULES) {
        let import = format!("import {module}");
        let tried = process::Command::new(python)
            .args(["-c", &import])
            .output()?;
        if tried.status.success() {
            found.push(module.to_owned());
        }
    }
    Ok(found)
}

fn has_package(python: &Path) -> Result<bool> {
    let mut command = process::Command::new(python);
    let output = command.args(["-c", "import h5logfs"]).output();
    let output = output.with_context(|| format!("cannot start {}", python.display()))?;
    let has_package = output.status.success();
    if !has_package {
        eprintln!(
            "no Python package: {} has no h5logfs; make python installs it",
            python.display()
        );
    }
    Ok(has_package)
}

fn usual_python() -> PathBuf {
    let promised = std::env::var_os("H5LOGFS_TEST_PYTHON_NEW").map(PathBuf::from);
    promised.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/python"))
}

/// A file in the directory of programs. Cargo puts examples into a subdirectory of it.
fn built_with_this(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let dir = own.parent().and_then(Path::parent);
    Ok(dir.context("no directory")?.join(name))
}
