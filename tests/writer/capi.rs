//! The C interface of the writer as users have it: installed by `make install`, found by pkg-config, compiled by
//! mpicc or mpicxx, run under mpirun.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::COMPACT_MPI;
use crate::builders::there_is;
use crate::common::PROGRAM;
use crate::common::make::{built_library, make};
use crate::common::mpirun::{Job, Mpi, program};
use crate::common::once::{once, shared_dir};
use crate::common::readers::{Python, project, said};
use tempfile::TempDir;

const HEADER: &str = "include/h5logfs_writer.h";
/// Installation path of the library, below the directory that `make install` uses as root.
pub(crate) const PREFIX: &str = "/opt/h5logfs";
pub(crate) const RANKS: u32 = 4;

/// MPI's old C++ bindings are not used.
const WITHOUT_BINDINGS: [&str; 2] = ["-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"];
/// Warnings that must not occur.
const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"];

/// Runs a command, which must succeed. Returns its output.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The library as packaged.
pub(crate) struct Installed {
    pub(crate) root: PathBuf,
    /// Flags from pkg-config.
    pub(crate) flags: Vec<String>,
}

impl Installed {
    /// Installed once for all tests.
    pub(crate) fn get() -> &'static Self {
        static INSTALLED: OnceLock<Installed> = OnceLock::new();
        INSTALLED.get_or_init(|| {
            let (root, library) = (shared_dir("capi"), built_library());
            let inputs = [
                &library,
                &project().join(HEADER),
                &project().join("include/h5logfs.F90"),
                &project().join("Makefile"),
                &project().join("packaging/cmake/h5logfs-config.cmake.in"),
                Path::new(COMPACT_MPI),
            ];
            once(&root, &inputs, || {
                // Files of `make build-writer`: cargo has built them for the tests.
                let built = Path::new(PROGRAM).parent().unwrap();
                let version = env!("CARGO_PKG_VERSION");
                let partial = root.join("library");
                fs::copy(&library, &partial).unwrap();
                let target = built.join(format!("libh5logfs_writer.so.{version}"));
                fs::rename(&partial, target).unwrap();
                run(make("install")
                    .arg(format!("PREFIX={PREFIX}"))
                    .arg(format!("DESTDIR={}", root.display())));
            });
            let flags = pkg_config(&root, &["--cflags", "--libs"]);
            let flags = flags.split_whitespace().map(str::to_owned).collect();
            Installed { root, flags }
        })
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.join(PREFIX.trim_start_matches('/')).join(below)
    }

    /// Compiles a C program.
    pub(crate) fn compile(&self, source: impl AsRef<Path>, dir: &Path) -> PathBuf {
        self.compile_for(Mpi::of_build(), source, dir)
    }

    /// Compiles a C or C++ program for one of several MPIs.
    pub(crate) fn compile_for(&self, mpi: Mpi, source: impl AsRef<Path>, dir: &Path) -> PathBuf {
        let source = project().join(source);
        let program = dir.join(source.file_stem().unwrap());
        let (compiler, standard) = match source.extension() {
            Some(cpp) if cpp == "cpp" => ("mpicxx", "-std=c++17"),
            _ => ("mpicc", "-std=c99"),
        };
        run(Command::new(mpi.command(compiler))
            .args(STRICT)
            .args(WITHOUT_BINDINGS)
            .args([standard, "-g"])
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .args(&self.flags)
            .arg(format!("-Wl,-rpath,{}", self.path("lib").display())));
        program
    }
}

pub(crate) fn pkg_config(root: &Path, arguments: &[&str]) -> String {
    let found = root.join(format!("{}/lib/pkgconfig", &PREFIX[1..]));
    run(Command::new("pkg-config")
        .args(arguments)
        .arg("h5logfs_writer")
        .env("PKG_CONFIG_PATH", found)
        .env("PKG_CONFIG_SYSROOT_DIR", root))
}

/// A directory for one test, and its C program.
pub struct Bench {
    dir: TempDir,
    pub program: PathBuf,
}

impl Bench {
    pub fn new(source: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = Installed::get().compile(source, dir.path());
        Bench { dir, program }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the program with the path of `name`. Returns its output.
    fn run(&self, name: &str) -> String {
        let argument = self.path(name);
        Job::start(RANKS, &self.program, &[argument.to_str().unwrap()]).succeed()
    }

    /// The mount's view of a log, as a file.
    fn shown(&self, name: &str) -> PathBuf {
        let shown = self.path(name).with_extension("shown.h5");
        let mut export = Command::new(PROGRAM);
        run(export.arg("export").arg(self.path(name)).arg(&shown));
        shown
    }
}

fn header() -> String {
    let config =
        cbindgen::Config::from_file(project().join("crates/writer/cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    let parts = [
        "status", "registry", "options", "file", "types", "dataset", "write", "memory", "append",
    ];
    for part in parts {
        let source = project().join("crates/writer/src/capi").join(part);
        builder = builder.with_src(source.with_extension("rs"));
    }
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    String::from_utf8(header).unwrap()
}

#[test]
fn the_header_is_up_to_date() {
    let (path, made) = (project().join(HEADER), header());
    if std::env::var_os("H5LOGFS_TEST_WRITE_HEADER").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        made == committed,
        "{HEADER} is not what crates/writer/src/capi says: \
         H5LOGFS_TEST_WRITE_HEADER=1 cargo test --features mpi --test writer header"
    );
}

/// The library has exactly the functions that the header declares.
#[test]
fn the_library_has_the_functions_of_the_header() {
    let library = Installed::get().path("lib/libh5logfs_writer.so.0");
    let listed = run(Command::new("nm")
        .args(["--dynamic", "--defined-only", "--format=just-symbols"])
        .arg(library));
    let mut there: Vec<&str> = listed.lines().collect();
    let header = fs::read_to_string(project().join(HEADER)).unwrap();
    let declared = header.lines().filter_map(|line| {
        let (start, _) = line.split_once('(')?;
        let name = start.rsplit([' ', '*']).next()?;
        let is_declaration = start.starts_with("int ") || start.starts_with("const char ");
        (is_declaration && name.starts_with("h5logfs_")).then_some(name)
    });
    let mut declared: Vec<&str> = declared.collect();
    there.sort_unstable();
    declared.sort_unstable();
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(there, declared);
}

#[test]
fn the_header_alone_is_c_and_cxx() {
    let include = Installed::get().path("include");
    let dir = tempfile::tempdir().unwrap();
    for (compiler, standard) in [("mpicc", "c99"), ("mpicc", "c17"), ("mpicxx", "c++11")] {
        let source = match compiler {
            "mpicc" => "header.c",
            _ => "header.cpp",
        };
        let source = dir.path().join(source);
        // A call, for which C++ must find the function by its C name.
        let text =
            "#include <h5logfs_writer.h>\nint main(void) { return h5logfs_flush(0) == 0; }\n";
        fs::write(&source, text).unwrap();
        if compiler == "mpicxx" && !has_cxx() {
            continue;
        }
        run(Command::new(Mpi::of_build().command(compiler))
            .args(STRICT)
            .arg(format!("-std={standard}"))
            .args(WITHOUT_BINDINGS)
            .arg(format!("-I{}", include.display()))
            .arg(&source)
            .arg("-o")
            .arg(dir.path().join("header"))
            .args(&Installed::get().flags));
    }
}

#[test]
fn everything_is_in_its_place() {
    let installed = Installed::get();
    for (link, to) in [
        ("lib/libh5logfs_writer.so", "libh5logfs_writer.so.0"),
        (
            "lib/libh5logfs_writer.so.0",
            concat!("libh5logfs_writer.so.", env!("CARGO_PKG_VERSION")),
        ),
    ] {
        let found = fs::read_link(installed.path(link)).unwrap();
        assert_eq!(found, Path::new(to), "{link}");
    }
    for file in [
        "bin/h5logfs",
        "bin/h5logfs-compact-mpi",
        "share/man/man1/h5logfs-compact-mpi.1",
        HEADER,
        "lib/h5logfs/plugins/libh5logfs_connector_mpi.so",
    ] {
        assert!(installed.path(file).is_file(), "{file}");
    }
    let version = pkg_config(&installed.root, &["--modversion"]);
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    // The root belongs to the test; users only have the prefix.
    let text = fs::read_to_string(installed.path("lib/pkgconfig/h5logfs_writer.pc")).unwrap();
    assert!(text.contains(&format!("\nprefix={PREFIX}\n")), "{text}");
    let root = installed.root.to_str().unwrap();
    assert!(!text.contains('@') && !text.contains(root), "{text}");
}

/// Whether C++ programs can be compiled; prints if not. Open MPI has mpicxx even without a C++ compiler.
pub(crate) fn has_cxx() -> bool {
    there_is(&Mpi::of_build().command("mpicxx"))
}

/// Runs an example in C and in Rust, which must write the same.
fn same_as_in_rust(name: &str) {
    same_as(&format!("examples/c/{name}.c"), &program(name), &[]);
}

/// Runs a C program, and a Rust program with these arguments before the file.
fn same_as(source: &str, in_rust: &Path, arguments: &[&str]) {
    let bench = Bench::new(source);
    bench.run("c.h5");
    let rust = bench.path("rust.h5");
    let arguments = [arguments, &[rust.to_str().unwrap()]].concat();
    Job::start(RANKS, in_rust, &arguments).succeed();
    let (c, rust) = (bench.shown("c.h5"), bench.shown("rust.h5"));
    for python in Python::all() {
        let mut compare = python.tool("h5same.py");
        let said = run(compare.args(["--chunks"]).arg(&c).arg(&rust));
        assert_eq!(said, "same\n", "{}", python.name);
    }
}

#[test]
fn the_heat_example_is_that_of_rust() {
    same_as_in_rust("heat");
}

#[test]
fn the_heat_example_in_cxx_is_that_of_rust() {
    if has_cxx() {
        same_as("examples/cxx/heat.cpp", &program("heat"), &[]);
    }
}

#[test]
fn the_events_example_is_that_of_rust() {
    same_as_in_rust("events");
}

#[test]
fn dimension_scales_are_those_of_rust() {
    same_as("tests/c/scales.c", &program("writer-port"), &["scales"]);
}

#[test]
fn ghost_cells_stay_behind() {
    same_as("tests/c/ghosts.c", &program("writer-port"), &["ghosts"]);
}

#[test]
fn every_function_does_what_it_says() {
    let bench = Bench::new("tests/c/everything.c");
    bench.run("log.h5");
    assert!(bench.path("log.h5.subfiles").is_dir());
    let shown = bench.shown("log.h5");
    let check = fs::read_to_string(project().join("tests/c/everything.py")).unwrap();
    for python in Python::all() {
        python.run(&check, &[&shown, Path::new(&RANKS.to_string())]);
    }
}

#[test]
fn faults_are_told_on_all_ranks_and_harm_nothing() {
    let bench = Bench::new("tests/c/faults.c");
    bench.run("");
    let shown = bench.shown("kept.h5");
    let abandoned = bench.shown("abandoned.h5");
    let full = bench.shown("full.h5");
    let (settled, locked) = (bench.path("settled.h5"), bench.shown("locked.h5"));
    let check = "
import sys, h5py
kept, abandoned, full, settled, locked = (h5py.File(path, 'r') for path in sys.argv[1:])
assert sorted(kept) == ['lent', 'numbers', 'there'], list(kept)
assert kept['lent'][:].tolist() == [5] * len(kept['lent'])
assert kept['numbers'][:].tolist() == [1, 2] * (len(kept['numbers']) // 2)
assert not kept.attrs
assert list(abandoned) == ['same']
assert dict(abandoned['same'].attrs) == {'started': '10:00:00'}
assert full['d'][:].tolist() == ([1] + [0] * 99) * 2
for file in settled, locked:
    assert list(file) == ['d'] and file['d'][:].tolist() == [7 * rank for rank in range(len(file['d']))]
";
    for python in Python::all() {
        python.run(check, &[&shown, &abandoned, &full, &settled, &locked]);
    }
}

#[test]
fn files_are_opened_again() {
    let bench = Bench::new("tests/c/reopening.c");
    bench.run("log.h5");
    let check = "
import sys, h5py
with h5py.File(sys.argv[1], 'r') as f:
    ranks = range(int(sys.argv[2]))
    wanted = [[s * 100. + r if s < 2 or r % 2 == 0 else 0 for r in ranks] for s in range(3)]
    assert f['air/series'][:].tolist() == wanted, f['air/series'][:]
    wanted = [(r, s) for s in range(3) for r in ranks if s < 2 or r % 2 == 0]
    assert [tuple(e) for e in f['events'][:].tolist()] == wanted, f['events'][:]
    limits = f['air/limits']
    assert limits[:].tolist() == [-1, 1] and dict(limits.attrs) == {'units': 'Pa'}
";
    let shown = bench.shown("log.h5");
    for python in Python::all() {
        python.run(check, &[&shown, Path::new(&RANKS.to_string())]);
    }
}

#[test]
fn a_program_may_end_with_files_open() {
    let bench = Bench::new("tests/c/life.c");
    bench.run("");
    for name in ["open.h5", "left.h5"] {
        let shown = bench.shown(name);
        for python in Python::all() {
            let check = "import sys, h5py; print(h5py.File(sys.argv[1], 'r')['d'][:].tolist())";
            let values = python.run(check, &[&shown]);
            assert_eq!(values, "[1, 2, 3, 4]\n", "{name} with {}", python.name);
        }
    }
}

#[test]
fn threads_may_write_at_once() {
    let bench = Bench::new("tests/c/threads.c");
    let said = bench.run("");
    let mut logs = vec!["shared.h5"];
    if said.contains("with files of their own") {
        logs.extend(["own0.h5", "own1.h5"])
    } else {
        eprintln!("skipped: this MPI does not let several threads call it at once")
    }
    for log in logs {
        let shown = bench.shown(log);
        let check = "
import sys, h5py, numpy
rows = h5py.File(sys.argv[1], 'r')['rows'][:]
wanted = numpy.arange(len(rows))
assert (rows[:, 0] == wanted).all() and (rows[:, 1] == -wanted).all()
print(len(rows))
";
        for python in Python::all() {
            let number = python.run(check, &[&shown]);
            let wanted = if log == "shared.h5" { 4 * 500 } else { 10 } * RANKS;
            assert_eq!(number.trim(), wanted.to_string(), "{log}");
        }
    }
}

/// The package of the library. tests/mount/admin/install.rs tests the package of the program.
#[test]
#[ignore = "make test-deb"]
fn the_debian_package_has_the_library() {
    let needed = Command::new("dpkg-shlibdeps").arg("--version").output();
    if !needed.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: dpkg-dev is not installed");
        return;
    }
    let _built = Installed::get();
    let dir = tempfile::tempdir().unwrap();
    run(make("deb-writer")
        .arg(format!("DEBDIR={}", dir.path().display()))
        .env("DEB_COMPRESSION", "none"));
    let made = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap();
    let name = made.file_name().into_string().unwrap();
    assert!(name.starts_with("h5logfs-writer_"), "{name}");
    let fields = run(Command::new("dpkg-deb").arg("--info").arg(made.path()));
    let depends = fields.lines().find(|l| l.trim().starts_with("Depends:"));
    let library = if Mpi::of_build().is_mpich() {
        "libmpich"
    } else {
        "libopenmpi"
    };
    assert!(depends.unwrap().contains(library), "{fields}");
    let list = run(Command::new("dpkg-deb").arg("--contents").arg(made.path()));
    let version = env!("CARGO_PKG_VERSION");
    for path in [
        "bin/h5logfs-compact-mpi",
        "share/man/man1/h5logfs-compact-mpi.1.gz",
        "include/h5logfs_writer.h",
        "lib/libh5logfs_writer.so -> libh5logfs_writer.so.0",
        &format!("lib/libh5logfs_writer.so.0 -> libh5logfs_writer.so.{version}"),
        &format!("lib/libh5logfs_writer.so.{version}"),
        "lib/h5logfs/plugins/libh5logfs_connector_mpi.so",
        "lib/pkgconfig/h5logfs_writer.pc",
        "share/doc/h5logfs-writer/examples/heat.c",
        "share/doc/h5logfs-writer/examples/resubmit.sh",
    ] {
        let there = list.lines().any(|l| l.ends_with(&format!(" ./usr/{path}")));
        assert!(there, "{path}: {list}");
    }
}
