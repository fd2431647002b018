//! Compares an ordinary program of parallel HDF5 with itself under the VOL connector, and with a program that does the
//! same work in the writer's own API: `make bench-connector`, or
//!
//! ```text
//! target/release/examples/bench_connector --help
//! ```
//!
//! HDF5's programs run with two builds of HDF5. One takes no locks, as most parallel programs have it. The other is
//! safe for threads, and its locks cost more than the rest of a small write.
//!
//! The contestants take turns, in another order in each round, with fresh processes and files. The first round does not
//! count. If `H5LOGFS_BENCH_LOGVOL` names the directory of the Log VOL connector's plug-in, this connector takes part.

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, ValueEnum};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Measures writing through HDF5: native, by the connector, and in the writer's own API.
#[derive(Parser)]
struct Arguments {
    /// Directory for the files that are written; /dev/shm takes the disk out of it.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    /// Rounds that count.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Processes of each program.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Writes of ten floats by all ranks together.
    #[arg(long, default_value_t = 400_000)]
    small: u64,
    /// Writes of 1 MiB by all ranks together.
    #[arg(long, default_value_t = 400)]
    large: u64,
    /// Datasets that are created.
    #[arg(long, default_value_t = 16_384)]
    datasets: u64,
    /// Records of E3SM's cases (e3sm.txt).
    #[arg(long, default_value_t = 4)]
    records: u64,
    /// Steps of a program that opens its file for each: one measurement for each number.
    #[arg(long, value_delimiter = ',', default_value = "100,1000")]
    reopen: Vec<u64>,
    /// What is measured.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "small,large,datasets,F,G,I,reopen"
    )]
    only: Vec<String>,
    /// The option flush_every of the connector: one contestant for each value.
    #[arg(long, value_delimiter = ',', default_value = "30s")]
    flush_every: Vec<String>,
    /// How the HDF5 was built that programs use.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "bare,threads"
    )]
    hdf5: Vec<Build>,
    /// The program that closes logs; the plug-ins lie beside it.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// A way of writing.
struct Contestant {
    name: String,
    /// Number of the contestant with which it is compared.
    native: usize,
    program: PathBuf,
    variables: Vec<(&'static str, OsString)>,
    /// Argument of its program besides the work.
    how: Option<How>,
}

/// A special way of writing E3SM's cases. Such a contestant does no other work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Lists of blocks, without dataspaces.
    Lists,
    /// The bytes and nothing else. This is the limit of what is possible.
    Blob,
}

impl How {
    fn argument(self) -> &'static str {
        match self {
            How::Lists => "lists",
            How::Blob => "blob",
        }
    }
}

/// The figures that a program prints: seconds of its steps, and KiB of its largest rank.
const STEPS: [&str; 5] = ["create", "define", "write", "flush", "close"];

struct Figures {
    steps: [f64; STEPS.len()],
    memory: f64,
}

impl Figures {
    fn parse(text: &str) -> Option<Self> {
        let numbers: Vec<f64> = text
            .split_whitespace()
            .map(|number| number.parse().ok())
            .collect::<Option<_>>()?;
        let (memory, steps) = numbers.split_last()?;
        Some(Figures {
            steps: steps.try_into().ok()?,
            memory: *memory,
        })
    }

    fn total(&self) -> f64 {
        self.steps.iter().sum()
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// How parallel HDF5 1.14 was built.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Build {
    /// Without locks.
    Bare,
    /// Safe for threads.
    Threads,
}

/// The directory of parallel HDF5 1.14.
fn parallel_hdf5(build: Build) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/parallel-hdf5.sh");
    let options = match build {
        Build::Bare => &["bare"][..],
        Build::Threads => &[],
    };
    let output = Command::new(script).args(options).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim_end().into())
}

fn compile(build: Build, program: PathBuf, vol_api: &Path) -> Result<PathBuf> {
    let hdf5 = parallel_hdf5(build)?;
    let lib = hdf5.join("lib");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/connector");
    let compiled = Command::new("mpicc")
        .args(["-std=gnu11", "-O2", "-o"])
        .arg(&program)
        .arg(sources.join("hdf5.c"))
        .arg(format!(
            "-DPATTERNS=\"{}\"",
            sources.join("e3sm.txt").display()
        ))
        .arg("-I")
        .arg(hdf5.join("include"))
        .arg("-I")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg("-L")
        .arg(&lib)
        .arg("-L")
        .arg(vol_api)
        .arg(format!(
            "-Wl,-rpath,{}:{}",
            lib.display(),
            vol_api.display()
        ))
        .args(["-lh5logfs_vol_api", "-lhdf5"])
        .status()?;
    if !compiled.success() {
        return Err("hdf5.c cannot be compiled".into());
    }
    Ok(program)
}

/// A directory with the plug-ins alone, because libhdf5 loads all libraries that it finds there.
fn plugins(built: &Path, dir: &Path) -> Result<PathBuf> {
    let plugins = dir.join("plugins");
    fs::create_dir(&plugins)?;
    for name in [
        "libh5logfs_driver.so",
        "libh5logfs_connector.so",
        "libh5logfs_connector_mpi.so",
    ] {
        let library = built.join(name);
        if !library.exists() {
            return Err(format!("{} is not there", library.display()).into());
        }
        std::os::unix::fs::symlink(library, plugins.join(name))?;
    }
    Ok(plugins)
}

/// A directory with the library for programs ported to the Log VOL, under each of its names.
fn vol_api(built: &Path, dir: &Path) -> Result<PathBuf> {
    let place = dir.join("lib");
    fs::create_dir(&place)?;
    let library = built.join("libh5logfs_vol_api.so");
    if !library.exists() {
        return Err(format!("{} is not there", library.display()).into());
    }
    for name in ["libh5logfs_vol_api.so", "libh5logfs_vol_api.so.0"] {
        std::os::unix::fs::symlink(&library, place.join(name))?;
    }
    Ok(place)
}

fn contestants(arguments: &Arguments, dir: &Path) -> Result<Vec<Contestant>> {
    let examples = std::env::current_exe()?;
    let examples = examples.parent().ok_or("no directory")?;
    let built = examples.parent().ok_or("no directory")?.to_owned();
    let h5logfs = arguments.program.clone().unwrap_or(built.join("h5logfs"));
    let libraries = h5logfs.parent().ok_or("no directory")?;
    let plugins = plugins(libraries, dir)?;
    let vol_api = vol_api(libraries, dir)?;
    let mut all: Vec<Contestant> = Vec::new();
    for (number, build) in arguments.hdf5.iter().enumerate() {
        let hdf5 = compile(*build, dir.join(format!("hdf5-{number}")), &vol_api)?;
        let after = match build {
            Build::Bare => "",
            Build::Threads => ", thread-safe",
        };
        let native = all.len();
        all.push(Contestant {
            name: format!("native{after}"),
            native,
            program: hdf5.clone(),
            variables: Vec::new(),
            how: None,
        });
        for every in &arguments.flush_every {
            let each = match arguments.flush_every.len() {
                1 => String::new(),
                _ => format!(", {every}"),
            };
            let variables = vec![
                ("HDF5_PLUGIN_PATH", plugins.clone().into()),
                (
                    "HDF5_VOL_CONNECTOR",
                    format!("h5logfs flush_every={every}").into(),
                ),
                ("H5LOGFS_PROGRAM", h5logfs.clone().into()),
                ("XDG_CACHE_HOME", dir.join("cache").into()),
            ];
            all.push(Contestant {
                name: format!("connector{after}{each}"),
                native,
                program: hdf5.clone(),
                variables: variables.clone(),
                how: None,
            });
            all.push(Contestant {
                name: format!("H5Dwrite_n{after}{each}"),
                native,
                program: hdf5.clone(),
                variables,
                how: Some(How::Lists),
            });
        }
    }
    all.push(Contestant {
        name: "own API".into(),
        native: 0,
        program: examples.join("bench_connector_own"),
        variables: Vec::new(),
        how: None,
    });
    all.push(Contestant {
        name: "one pwrite a rank".into(),
        native: 0,
        program: examples.join("bench_connector_own"),
        variables: Vec::new(),
        how: Some(How::Blob),
    });
    if let Some(logvol) = std::env::var_os("H5LOGFS_BENCH_LOGVOL") {
        all.push(Contestant {
            name: "Log VOL".into(),
            native: 0,
            program: all[0].program.clone(),
            variables: vec![
                ("HDF5_PLUGIN_PATH", logvol),
                ("HDF5_VOL_CONNECTOR", "LOG under_vol=0;under_info={}".into()),
            ],
            how: None,
        });
    }
    Ok(all)
}

fn run(
    contestant: &Contestant,
    ranks: u32,
    dir: &Path,
    work: &str,
    number: u64,
) -> Result<Figures> {
    let files = dir.join("files");
    fs::create_dir(&files)?;
    let mut mpirun = Command::new("mpirun");
    mpirun
        .args(["-n", &ranks.to_string()])
        .arg(&contestant.program);
    mpirun
        .arg(files.join("file.h5"))
        .args([work, &number.to_string()])
        .args(contestant.how.map(How::argument));
    mpirun.envs(contestant.variables.iter().cloned());
    let output = mpirun.output()?;
    fs::remove_dir_all(&files)?;
    let said = String::from_utf8_lossy(&output.stdout);
    match Figures::parse(&said) {
        Some(figures) if output.status.success() => Ok(figures),
        _ => {
            let errors = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}: {said}{errors}", contestant.name, output.status).into())
        }
    }
}

/// Prints the medians of one kind of work.
fn compare(
    contestants: &[Contestant],
    arguments: &Arguments,
    dir: &Path,
    work: &str,
    number: u64,
) -> Result<()> {
    let is_case = work.len() == 1;
    let takes_part = |who: &usize| is_case || contestants[*who].how.is_none();
    let mut found: Vec<Vec<Figures>> = contestants.iter().map(|_| Vec::new()).collect();
    for round in 0..=arguments.rounds as usize {
        let turns = (0..contestants.len()).map(|turn| (turn + round) % contestants.len());
        for who in turns.filter(takes_part) {
            let figures = run(&contestants[who], arguments.ranks, dir, work, number)?;
            if round > 0 {
                found[who].push(figures);
            }
        }
    }
    let is_limit = |who: &usize| contestants[*who].how == Some(How::Blob);
    let taking_part = (0..contestants.len()).filter(takes_part);
    let limit = taking_part.clone().find(is_limit);
    println!(
        "{:<22} {}  {:>9} {:>10} {:>12}{}",
        "",
        STEPS.map(|s| format!("{s:>9}")).join(""),
        "total s",
        "to native",
        "MiB a rank",
        if limit.is_some() { "  times limit" } else { "" }
    );
    for who in taking_part {
        let (contestant, figures) = (&contestants[who], &found[who]);
        let steps: Vec<String> = (0..STEPS.len())
            .map(|step| format!("{:>9.3}", median(figures.iter().map(|f| f.steps[step]))))
            .collect();
        let total = median(figures.iter().map(Figures::total));
        let ratio = median(
            found[contestant.native]
                .iter()
                .zip(figures)
                .map(|(native, f)| native.total() / f.total()),
        );
        let memory = median(figures.iter().map(|f| f.memory)) / 1024.0;
        let times_limit = limit.map(|limit| {
            let rounds = found[limit].iter().zip(figures);
            median(rounds.map(|(limit, f)| f.total() / limit.total()))
        });
        let times_limit = times_limit.map_or(String::new(), |times| format!("{times:>13.1}"));
        println!(
            "{:<22} {}  {total:>9.3} {ratio:>10.2} {memory:>12.1}{times_limit}",
            contestant.name,
            steps.join("")
        );
    }
    Ok(())
}

/// Fails where mpirun cannot start programs. The error gives a likely reason.
fn check_mpirun(ranks: u32) -> Result<()> {
    let mut mpirun = Command::new("mpirun");
    let output = mpirun.args(["-n", &ranks.to_string(), "true"]).output();
    let output =
        output.map_err(|e| format!("mpirun: {e}: scripts/setup.sh bench-mpi installs it"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{said}mpirun does not start {ranks} processes. {HINT}").into())
}

const HINT: &str = "Open MPI starts nothing for root unless OMPI_ALLOW_RUN_AS_ROOT=1 and \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 are set, and no more processes than there are cores unless \
    OMPI_MCA_rmaps_base_oversubscribe=1 is. `make bench-connector` sets them.";

fn main() -> ExitCode {
    match measure(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench_connector: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<()> {
    check_mpirun(arguments.ranks)?;
    let temporary = tempfile::tempdir_in(&arguments.dir)?;
    let dir = temporary.path();
    let contestants = contestants(arguments, dir)?;
    println!(
        "{} ranks, medians of {} rounds in seconds; to native: how many times as fast",
        arguments.ranks, arguments.rounds
    );
    let mut works = vec![
        ("small", arguments.small, "writes of ten floats"),
        ("large", arguments.large, "writes of 1 MiB"),
        ("datasets", arguments.datasets, "datasets created"),
        ("F", arguments.records, "records of E3SM's F case"),
        ("G", arguments.records, "records of E3SM's G case"),
        ("I", arguments.records, "records of E3SM's I case"),
    ];
    let reopen = arguments.reopen.iter();
    works.extend(reopen.map(|steps| ("reopen", *steps, "steps that open the file")));
    let is_wanted = |work: &str| arguments.only.iter().any(|wanted| wanted == work);
    for (work, number, title) in works.into_iter().filter(|(work, ..)| is_wanted(work)) {
        println!("\n{number} {title}");
        compare(&contestants, arguments, dir, work, number)?;
    }
    Ok(())
}
