//! The programs that read what is mounted, old and new, and the corpus.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

use super::amount::part;

/// A Python with h5py.
#[derive(Debug, Clone)]
pub struct Python {
    pub name: &'static str,
    program: PathBuf,
    /// Environment variables of everything it runs.
    variables: Vec<(&'static str, OsString)>,
}

impl Python {
    /// Debian's Python, with libhdf5 1.10.
    pub fn old() -> Option<Self> {
        Self::find("old h5py", "H5LOGFS_TEST_PYTHON_OLD", "/usr/bin/python3")
    }

    /// The project's environment, with current packages and libhdf5 2.
    pub fn new() -> Option<Self> {
        let program = project().join(".venv/bin/python");
        Self::find("new h5py", "H5LOGFS_TEST_PYTHON_NEW", program)
    }

    /// The Python with PyTables, from `make test-suites`.
    pub fn tables() -> Option<Self> {
        Self::apart("PyTables", ".venv-tables", "make test-suites")
    }

    /// The Python with VTK, from `make test-long`.
    pub fn vtk() -> Option<Self> {
        Self::apart("VTK", ".venv-vtk", "scripts/setup.sh vtk")
    }

    /// The Pythons with earlier releases of openpmd-api, from `make test-long`.
    pub fn earlier_openpmd() -> Vec<Self> {
        let releases = [
            ("openpmd-api 0.15", ".venv-openpmd-0.15"),
            ("openpmd-api 0.16", ".venv-openpmd-0.16"),
        ];
        let found = releases
            .map(|(name, environment)| Self::apart(name, environment, "scripts/setup.sh openpmd"));
        found.into_iter().flatten().collect()
    }

    /// A Python with packages that few tests need.
    fn apart(name: &'static str, environment: &str, set_up: &str) -> Option<Self> {
        let program = project().join(environment).join("bin/python");
        if !program.exists() {
            eprintln!("skipped: there is no {name}; `{set_up}` sets it up");
            return None;
        }
        Some(Python::of(name, program))
    }

    /// The available ones of these two. `make test` sets up both.
    pub fn all() -> Vec<Self> {
        [Self::old(), Self::new()].into_iter().flatten().collect()
    }

    /// Finds an interpreter. One named by the environment must work: a test fails if it lacks h5py. The default one
    /// may lack it.
    fn find(name: &'static str, variable: &str, usual: impl Into<PathBuf>) -> Option<Self> {
        if let Some(program) = std::env::var_os(variable) {
            let program = program.into();
            return Some(Python::of(name, program));
        }
        let python = Python::of(name, usual.into());
        let works = python.command().args(["-c", "import h5py"]).output();
        if works.is_ok_and(|output| output.status.success()) {
            return Some(python);
        }
        let program = python.program.display();
        eprintln!("skipped: {program} has no h5py; `make test` sets it up");
        None
    }

    fn of(name: &'static str, program: PathBuf) -> Self {
        Python {
            name,
            program,
            variables: Vec::new(),
        }
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // The caller's settings for Python must not apply.
        command.env_remove("PYTHONPATH").env_remove("PYTHONHOME");
        // Otherwise tools that import each other leave files among the sources.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command.envs(self.variables.iter().cloned());
        command
    }

    /// This Python with further environment variables.
    pub fn with_variables(&self, variables: Vec<(&'static str, OsString)>) -> Self {
        let mut python = self.clone();
        python.variables.extend(variables);
        python
    }

    /// Runs a script of `tests/tools`.
    pub fn tool(&self, tool: &str) -> Command {
        let mut command = self.command();
        command.arg(project().join("tests/tools").join(tool));
        command
    }

    /// Runs Python code, which must succeed. Returns its output.
    pub fn run(&self, code: &str, arguments: &[&Path]) -> String {
        let output = self.command().args(["-c", code]).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}: {}", self.name, said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The libhdf5 in a module.
    pub fn library_of(&self, module: &str) -> PathBuf {
        let code = format!(
            "
import {module}
for line in open('/proc/self/maps'):
    path = line.split(' ')[-1].strip()
    if 'libhdf5' in path and '_hl' not in path:
        print(path)
        break
"
        );
        self.run(&code, &[]).trim().into()
    }

    /// Compares two files as readers see them, except for what a log does not record. Fails with the differences.
    pub fn same(&self, got: &Path, expected: &Path) -> Result<(), String> {
        self.same_with(&["--as-logged"], got, expected)
    }

    /// Compares many pairs of files in one process, because Python is slow to start.
    pub fn assert_same(&self, pairs: &[(PathBuf, PathBuf)]) {
        const COMPARE: &str = "
import sys
sys.path.insert(0, sys.argv[1])
import h5same
pairs, bad = sys.argv[2:], 0
for got, expected in zip(pairs[::2], pairs[1::2]):
    print(got)
    sys.argv = ['h5same', '--as-logged', got, expected]
    bad += h5same.main() != 0
sys.exit(bad != 0)
";
        let tools = project().join("tests/tools");
        let paths = pairs.iter().flat_map(|(got, expected)| [got, expected]);
        let arguments: Vec<&Path> = std::iter::once(tools.as_path())
            .chain(paths.map(PathBuf::as_path))
            .collect();
        self.run(COMPARE, &arguments);
    }

    /// Compares many pairs of files as netCDF readers see them, with these options of `ncsame.py`, in one process.
    pub fn assert_same_as_netcdf(&self, options: &[&str], pairs: &[(PathBuf, PathBuf)]) {
        let mut command = self.tool("ncsame.py");
        command.args(options);
        command.args(pairs.iter().flat_map(|(got, expected)| [got, expected]));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{pairs:?}: {}", said(&output));
    }

    /// Compares as [`Python::same`] does, with these options of `h5same.py`.
    pub fn same_with(&self, options: &[&str], got: &Path, expected: &Path) -> Result<(), String> {
        let mut command = self.tool("h5same.py");
        command.args(options).arg(got).arg(expected);
        let output = command.output().unwrap();
        if output.status.success() {
            Ok(())
        } else {
            Err(format!(
                "{} with {}: {}",
                got.display(),
                self.name,
                said(&output)
            ))
        }
    }
}

/// The whole output of a program.
pub fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// The root of the workspace, also for the unit tests of its crates.
pub fn project() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut above = manifest.ancestors();
    above
        .find(|dir| dir.join("tests/corpus").is_dir())
        .unwrap_or(manifest)
}

/// The small cases, which are part of the project.
pub fn corpus() -> PathBuf {
    project().join("tests/corpus")
}

/// The whole corpus of Log VOL, if it lies beside the project.
pub fn whole_corpus() -> Option<PathBuf> {
    corpus_beside("logvol")
}

/// A whole corpus, if it lies beside the project.
pub fn corpus_beside(name: &str) -> Option<PathBuf> {
    let dir = project().join("../shared/corpus").join(name);
    if dir.is_dir() {
        return dir.canonicalize().ok();
    }
    eprintln!("skipped: {} is not there", dir.display());
    None
}

/// Names of the cases in a corpus that have an expected file.
pub fn cases(corpus: &Path) -> Vec<String> {
    let files = std::fs::read_dir(corpus).unwrap().flatten();
    let mut names: Vec<String> = files
        .filter_map(|f| f.file_name().into_string().ok())
        .filter_map(|f| f.strip_suffix(".expected.h5").map(str::to_owned))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no cases in {}", corpus.display());
    names
}

/// Checks every item, a few at a time. Fails the test with all errors.
pub fn check_all<T: Send>(items: Vec<T>, check: impl Fn(T) -> Result<(), String> + Sync) {
    let queue = Mutex::new(VecDeque::from(items));
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(item) = queue.lock().unwrap().pop_front() else {
                        break;
                    };
                    if let Err(failure) = check(item) {
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Valid logs that cannot match the expected file: the writer lost data before it was logged.
const LOST_BY_THE_WRITER: [&str; 2] = ["damaged_interleave", "damaged_vlen"];

/// Names of the other cases that have an expected file.
pub fn all_sound_cases(corpus: &Path) -> Vec<String> {
    let mut names = cases(corpus);
    names.retain(|n| !LOST_BY_THE_WRITER.contains(&n.as_str()));
    names
}

/// Some of these cases, for each program that reads them. `library/corpus.rs` reads all.
pub fn sound_cases(corpus: &Path) -> Vec<String> {
    part(all_sound_cases(corpus), 6)
}

/// Compares dimensions, coordinate variables, attributes and data of netCDF files as netCDF readers see them. `dir`
/// is the corpus or a mount of it.
pub fn netcdf_reads(python: &Python, dir: &Path) {
    let pairs = ["netcdf4_wrf", "netcdf4_sub"].map(|name| {
        let got = dir.join(format!("{name}.log.h5"));
        (got, corpus().join(format!("{name}.expected.h5")))
    });
    python.assert_same_as_netcdf(&[], &pairs);
}

/// Damaged files of the corpus, and one sound file.
const DAMAGED: [&str; 13] = [
    "bad_foff",
    "bad_nproc",
    "bad_nsel",
    "bad_refself",
    "bad_roff",
    "bad_size0",
    "bad_step0",
    "crash_flush",
    "crash_md",
    "crash_noflush",
    "damaged_vlen",
    "truncated",
    "tiny",
];

/// The result for each dataset of these files.
const REFUSED: &str = "\
bad_foff a refused
bad_foff r ok
bad_nproc a refused
bad_nproc r refused
bad_nsel a refused
bad_nsel r refused
bad_refself a ok
bad_refself r refused
bad_roff a ok
bad_roff r refused
bad_size0 a refused
bad_size0 r refused
bad_step0 a refused
bad_step0 r ok
crash_flush not opened
crash_md not opened
crash_noflush not opened
damaged_vlen vl refused
truncated not opened
tiny a ok
tiny r ok
";

/// Reads all of them. `open` turns a path into a mapping of names to datasets. `error` is the exception of a read.
/// `dir` is the corpus or a mount of it.
pub fn reads_the_rest(python: &Python, dir: &Path, import: &str, open: &str, error: &str) {
    let code = format!(
        "
import sys
{import}
for path in sys.argv[1:]:
    name = path.rsplit('/', 1)[1].split('.')[0]
    try:
        f = {open}
    except OSError as e:
        print(name, 'not opened')
        continue
    for n in sorted(f):
        try:
            f[n][()]
            print(name, n, 'ok')
        except {error} as e:
            print(name, n, 'refused')
"
    );
    let path = |name: &&str| dir.join(format!("{name}.log.h5"));
    let files: Vec<_> = DAMAGED.iter().map(path).collect();
    let paths: Vec<&Path> = files.iter().map(|p| p.as_path()).collect();
    assert_eq!(python.run(&code, &paths), REFUSED);
}
