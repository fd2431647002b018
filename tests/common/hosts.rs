//! Host programs, compiled or in Python, that load a plug-in from their environment, and logs without an index.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use super::connector::Connector;
use super::driver::Driver;
use super::encoder::{Dataset, Entry, Filter, LogFile, Type};
use super::mpirun::Mpi;
use super::once::{once, shared_dir};
use super::readers::{project, said};
use super::{PROGRAM, User};

/// Runs a command that must succeed.
#[track_caller]
pub fn succeed(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        said(&output)
    );
    said(&output)
}

/// HDF5 1.14 with the MPI of the build, from `make setup`.
#[derive(Debug)]
pub struct Hdf5 {
    prefix: PathBuf,
}

impl Hdf5 {
    /// Finds it, or prints that the test is skipped.
    pub fn find() -> Option<&'static Self> {
        static FOUND: OnceLock<Option<Hdf5>> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            let script = project().join("scripts/parallel-hdf5.sh");
            let mut script = Command::new(script);
            script.env("MPICC", Mpi::of_build().command("mpicc"));
            let output = script.arg("directory").output().unwrap();
            let prefix = String::from_utf8(output.stdout).unwrap();
            let prefix = PathBuf::from(prefix.trim_end());
            prefix
                .join("lib/libhdf5.so")
                .is_file()
                .then_some(Hdf5 { prefix })
        });
        if found.is_none() {
            eprintln!(
                "skipped: there is no parallel HDF5 1.14 for {}; scripts/parallel-hdf5.sh builds it",
                Mpi::of_build().name()
            );
        }
        found.as_ref()
    }

    pub fn library(&self) -> PathBuf {
        self.prefix.join("lib/libhdf5.so")
    }

    /// Path of a program of `tests/c/hosts`, compiled.
    pub fn program(&self, name: &str) -> PathBuf {
        self.compiled("hosts", name)
    }

    /// Path of the compiled program whose sources are a directory of `tests/c`, linked with these libraries.
    pub fn compiled_from(&self, directory: &str, libraries: &[&str]) -> PathBuf {
        self.compiled_with(directory, &[], libraries)
    }

    /// Path of the compiled program, which is recompiled if one of these headers has changed.
    pub fn compiled_with(
        &self,
        directory: &str,
        headers: &[PathBuf],
        libraries: &[&str],
    ) -> PathBuf {
        let c = project().join("tests/c");
        let mut sources = sources_in(&c.join(directory));
        sources.push(c.join("check.h"));
        sources.extend_from_slice(headers);
        self.compiled_sources(directory, &sources, libraries)
    }

    /// Path of the program of these sources and headers, compiled.
    pub fn compiled_sources(&self, name: &str, sources: &[PathBuf], libraries: &[&str]) -> PathBuf {
        let mpicc = Mpi::of_build().command("mpicc");
        self.built(name, &mpicc, &C_FLAGS, sources, libraries)
    }

    /// Path of a program of `tests/cxx`, compiled, and linked with HDF5 and these libraries.
    pub fn cxx(&self, name: &str, libraries: &[&str]) -> PathBuf {
        let source = project().join("tests/cxx").join(name).with_extension("cpp");
        let mpicxx = Mpi::of_build().command("mpicxx");
        let libraries = [&["-lhdf5"], libraries].concat();
        let name = format!("cxx-{name}");
        self.built(&name, &mpicxx, &CXX_FLAGS, &[source], &libraries)
    }

    /// Path of a compiled program of `tests/fortran`, with these files of `tests/c`. Prints that the test is skipped
    /// if there is no Fortran.
    pub fn fortran(&self, name: &str, others: &[&str]) -> Option<PathBuf> {
        let modules = self.prefix.join("mod/shared");
        if !modules.join("hdf5.mod").is_file() {
            eprintln!("skipped: the HDF5 of the tests has no Fortran modules");
            return None;
        }
        let tests = project().join("tests");
        let mut sources = vec![tests.join("fortran").join(format!("{name}.f90"))];
        sources.extend(others.iter().map(|other| tests.join("c").join(other)));
        let flags = ["-Wall", "-O1", "-I", modules.to_str().unwrap()];
        let libraries = ["-lhdf5_fortran", "-lhdf5"];
        let mpif90 = Mpi::of_build().command("mpif90");
        let name = format!("fortran-{name}");
        Some(self.built(&name, &mpif90, &flags, &sources, &libraries))
    }

    /// Compiles a program once. Its sources may include headers.
    fn built(
        &self,
        name: &str,
        compiler: &str,
        flags: &[&str],
        sources: &[PathBuf],
        libraries: &[&str],
    ) -> PathBuf {
        let dir = shared_dir(&format!("program-{name}"));
        let library = self.library();
        let program = dir.join(name);
        let mut watched: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
        watched.push(&library);
        let is_header = |source: &&PathBuf| source.extension().is_some_and(|e| e == "h");
        once(&dir, &watched, || {
            let lib = self.prefix.join("lib");
            let mut command = Command::new(compiler);
            command
                .current_dir(&dir)
                .args(flags)
                .arg("-o")
                .arg(&program)
                .args(sources.iter().filter(|source| !is_header(source)))
                .arg("-I")
                .arg(self.prefix.join("include"))
                .arg("-L")
                .arg(&lib)
                // Libraries, too, find each other by this path.
                .arg(format!("-Wl,--disable-new-dtags,-rpath,{}", lib.display()))
                .args(libraries);
            succeed(&mut command);
        });
        program
    }

    /// Path of a program of a directory of `tests/c`, compiled.
    pub fn compiled(&self, directory: &str, name: &str) -> PathBuf {
        let dir = shared_dir(&format!("{directory}-{name}"));
        let c = project().join("tests/c");
        let source = c.join(directory).join(name).with_extension("c");
        let headers =
            ["check.h", "hosts/host.h", "connector/killed.h"].map(|header| c.join(header));
        let program = dir.join(name);
        once(
            &dir,
            &[
                &source,
                &headers[0],
                &headers[1],
                &headers[2],
                &self.library(),
            ],
            || {
                let lib = self.prefix.join("lib");
                let mut compiler = Command::new(Mpi::of_build().command("mpicc"));
                compiler
                    .args([
                        "-std=gnu11",
                        "-Wall",
                        "-Wextra",
                        "-Werror",
                        "-O1",
                        "-g",
                        "-pthread",
                        "-o",
                    ])
                    .args([&program, &source])
                    .arg("-I")
                    .arg(self.prefix.join("include"))
                    .arg("-L")
                    .arg(&lib)
                    .arg(format!("-Wl,-rpath,{}", lib.display()));
                // `unload` loads libhdf5 itself and is not linked to it.
                if name != "unload" {
                    compiler.arg("-lhdf5");
                }
                succeed(&mut compiler);
            },
        );
        program
    }
}

/// Flags of the C compiler.
const C_FLAGS: [&str; 6] = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g"];

/// Flags of the C++ compiler.
const CXX_FLAGS: [&str; 6] = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-g"];

/// The sources of a directory, and their headers.
fn sources_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().flatten();
    let mut sources: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    sources.sort();
    sources
}

/// How hosts read logs.
pub enum Way {
    Driver(Driver),
    Connector(Connector),
}

impl Way {
    fn used(&self) -> Vec<(&'static str, OsString)> {
        match self {
            Way::Driver(driver) => driver.used(),
            Way::Connector(connector) => connector.used(),
        }
    }
}

/// The setup of one test's hosts: logs, and a place for indexes.
pub struct Stage {
    dir: TempDir,
    way: Way,
    program: PathBuf,
    /// The canonical file of the logs.
    pub expected: PathBuf,
}

/// A dataset of every log of a stage.
pub const DATASET: &str = "/assembled";

impl Stage {
    pub fn new() -> Self {
        Stage::of(User::Caller)
    }

    /// A stage for the file driver. Whatever hosts write to belongs to this user.
    pub fn of(user: User) -> Self {
        Stage::by(Way::Driver(Driver::new()), user)
    }

    /// A stage for the VOL connector.
    pub fn of_connector() -> Self {
        Stage::by(Way::Connector(Connector::new()), User::Caller)
    }

    fn by(way: Way, user: User) -> Self {
        let dir = user.dir();
        let expected = made_log().with_file_name("expected.h5");
        Stage {
            dir,
            way,
            program: PROGRAM.into(),
            expected,
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The first `count` of several equal logs. No index of them exists before they are read.
    pub fn logs(&self, count: usize) -> Vec<PathBuf> {
        let names = (0..count).map(|number| format!("{number:02}.log.h5"));
        let paths = names.map(|name| self.path().join(name));
        let copy = |path: PathBuf| {
            if !path.exists() {
                fs::copy(made_log(), &path).unwrap();
            }
            path
        };
        paths.map(copy).collect()
    }

    /// Makes this program scan.
    pub fn scan_with(&mut self, program: &str) {
        self.program = program.into();
    }

    /// Counts starts of the scanning program from now on.
    pub fn count_starts(&mut self) {
        let script = self.path().join("h5logfs");
        let count = self.path().join("starts");
        let lines = format!(
            "#!/bin/sh\necho >>'{}'\nexec '{PROGRAM}' \"$@\"\n",
            count.display()
        );
        fs::write(&script, lines).unwrap();
        succeed(Command::new("chmod").arg("755").arg(&script));
        self.program = script;
    }

    /// Number of starts.
    pub fn starts(&self) -> usize {
        let lines = fs::read(self.path().join("starts")).unwrap_or_default();
        lines.len()
    }

    /// Environment that makes any HDF5 program use the plug-in.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = self.way.used();
        variables.extend([
            ("H5LOGFS_PROGRAM", self.program.clone().into()),
            ("XDG_CACHE_HOME", self.path().join("cache").into()),
        ]);
        variables
    }

    /// Runs a host, which must succeed without output.
    #[track_caller]
    pub fn run(&self, mut host: Command) {
        host.envs(self.environment());
        let printed = succeed(&mut host);
        assert_eq!(printed, "", "{host:?}");
    }
}

/// A log with every kind of chunk, and `expected.h5` beside it.
fn made_log() -> PathBuf {
    let dir = shared_dir("host-logs");
    let log = dir.join("log.h5");
    once(&dir, &[Path::new(PROGRAM)], || {
        describe().write(&log);
        succeed(
            Command::new(PROGRAM)
                .arg("export")
                .args([&log, &dir.join("expected.h5")]),
        );
    });
    log
}

/// Numbers that differ by place, small enough for exact sums of doubles.
fn bytes(first: u64, elements: u64) -> Vec<u8> {
    let numbers =
        (first..first + elements).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
    numbers.flat_map(u64::to_le_bytes).collect()
}

fn describe() -> LogFile {
    const ROWS: u64 = 64;
    const COLUMNS: u64 = 1024;
    let assembled = Dataset::new("assembled", 0, Type::U64, &[ROWS, COLUMNS]);
    let in_place = Dataset::new("in_place", 1, Type::U64, &[4 * ROWS, 128]).chunked(&[ROWS, 128]);
    let filters = [Filter::shuffle(8), Filter::deflate(1)];
    let deflated = Dataset::new("deflated", 2, Type::U64, &[ROWS, 256]).filtered(&filters);
    let mut entries = Vec::new();
    for row in 0..ROWS {
        for half in 0..2 {
            let start = [row, half * COLUMNS / 2];
            entries.push(Entry::one(
                0,
                &start,
                &[1, COLUMNS / 2],
                bytes(row * COLUMNS + start[1], COLUMNS / 2),
            ));
        }
        entries.push(Entry::one(2, &[row, 0], &[1, 256], bytes(row * 256, 256)));
    }
    for chunk in 0..4 {
        let data = bytes(chunk << 32, ROWS * 128);
        entries.push(Entry::one(1, &[chunk * ROWS, 0], &[ROWS, 128], data));
    }
    LogFile::with(vec![assembled, in_place, deflated], entries)
}
