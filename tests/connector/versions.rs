//! The view of each version of HDF5, with each use of the plug-ins. Some of the uses are wrong: a site has set
//! `HDF5_PLUGIN_PATH` for everybody, or options are invalid. No program crashes.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::common::amount::each_variant;
use crate::common::connector::Connector;
use crate::common::hosts::Hdf5;
use crate::common::make::{built_connector, built_driver, built_parallel_connector};
use crate::common::people::{copy, corpus};
use crate::common::pnetcdf;
use crate::common::readers::{Python, said};
use crate::common::unclosed::Log;

/// Variable with other libhdf5 libraries for [`others`], separated by colons. HDF5 1.12 cannot be one of them: it fails
/// to start if a named connector cannot be loaded.
const OTHERS: &str = "H5LOGFS_TEST_HDF5_LIBRARIES";

/// Files, and a program's view of each.
type Seen = [(&'static str, &'static str); 7];

/// The view of libhdf5 alone.
const PLAIN: Seen = [
    ("unclosed.h5", "refused: file signature not found"),
    ("run.bp", "refused: file read failed"),
    ("file.nc", "refused: file signature not found"),
    ("plain.h5", "d (plain)"),
    ("missing.h5", "refused: unable to open file"),
    ("cut.h5", "refused: truncated file"),
    ("lost.h5", "refused: file signature not found"),
];
/// The view if libhdf5 then finds the connector.
const FOUND: Seen = [
    ("unclosed.h5", "d (aabbaacc)"),
    ("run.bp", "code coords fields"),
    ("file.nc", "fd fi n never rs t"),
    PLAIN[3],
    PLAIN[4],
    PLAIN[5],
    PLAIN[6],
];
/// The view if the plug-in that libhdf5 asks first shows the logs.
const SHOWN: Seen = [
    FOUND[0],
    FOUND[1],
    FOUND[2],
    PLAIN[3],
    PLAIN[4],
    PLAIN[5],
    (
        "lost.h5",
        "its journal lost.h5.h5logfs-journal is not there",
    ),
];
/// The view if the driver gets an unknown option.
const REFUSED: Seen = {
    let mut seen = PLAIN;
    let mut at = 0;
    while at < seen.len() {
        seen[at].1 = "refused: the configuration of the h5logfs driver: unknown option flsh";
        at += 1;
    }
    seen
};

type Variables = &'static [(&'static str, &'static str)];

const DRIVER: (&str, &str) = ("HDF5_DRIVER", "h5logfs");
const CONNECTOR: (&str, &str) = ("HDF5_VOL_CONNECTOR", "h5logfs");
const WRONG_FOR_DRIVER: (&str, &str) = ("HDF5_DRIVER_CONFIG", "flsh=3");

/// Variables besides `HDF5_PLUGIN_PATH`, and the resulting view.
const WAYS: [(Variables, &Seen); 7] = [
    (&[], &FOUND),
    (&[DRIVER], &SHOWN),
    (&[CONNECTOR], &SHOWN),
    (&[DRIVER, CONNECTOR], &SHOWN),
    (&[DRIVER, WRONG_FOR_DRIVER], &REFUSED),
    (&[WRONG_FOR_DRIVER], &FOUND),
    (&[("HDF5_VOL_CONNECTOR", "h5logfs bufer=1M")], &SHOWN),
];

/// Makes the files of [`Seen`].
fn files(python: &Python) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    Log::usual(&at("unclosed.h5"));
    let lost = Log::usual(&at("lost.h5"));
    fs::remove_file(lost.journal_path()).unwrap();
    copy(&corpus("corpus-adios/b5_steps.bp"), &at("run.bp"));
    pnetcdf::copy_logs(&pnetcdf::corpus().join("fill-cdf1-np1"), dir.path());
    let code = "
import h5py, sys
with h5py.File(sys.argv[1], 'w') as file:
    file['d'] = list(b'plain')
";
    python.run(code, &[&at("plain.h5")]);
    let bytes = fs::read(at("plain.h5")).unwrap();
    fs::write(at("cut.h5"), &bytes[..bytes.len() / 2]).unwrap();
    dir
}

/// A libhdf5, and the program that opens files with this library.
struct Host {
    python: Python,
    library: PathBuf,
    dir: TempDir,
}

impl Host {
    fn new(library: PathBuf) -> Option<Self> {
        let python = Python::new()?;
        let dir = files(&python);
        Some(Host {
            python,
            library,
            dir,
        })
    }

    /// The version of the library, and its answer about each file.
    #[track_caller]
    fn open(&self, way: &str, variables: &[(&'static str, OsString)]) -> (String, Vec<String>) {
        let names = PLAIN.map(|(name, _)| self.dir.path().join(name));
        let mut command = self.python.tool("opened.py");
        // Libraries in wheels find their neighbours by this variable.
        command.env("LD_LIBRARY_PATH", self.library.parent().unwrap());
        command.envs(variables.iter().cloned()).arg(way);
        let output = command.arg(&self.library).args(names).output().unwrap();
        let text = said(&output);
        let (library, ended) = (self.library.display(), output.status);
        assert!(
            ended.success(),
            "{library}, {way}, {variables:?}: {ended}\n{text}"
        );
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines().map(str::to_owned);
        (lines.next().unwrap(), lines.collect())
    }

    #[track_caller]
    fn assert_seen(&self, way: &str, variables: &[(&'static str, OsString)], seen: &Seen) {
        let (version, lines) = self.open(way, variables);
        let expected = if has_plug_ins(&version) { seen } else { &PLAIN };
        let is_seen = |(line, (name, words)): (&String, &(&str, &str))| {
            line.starts_with(&format!("{name}: "))
                && line.contains(words)
                && !line.contains("; then ")
        };
        let is_all = lines.len() == expected.len() && lines.iter().zip(expected).all(is_seen);
        assert!(
            is_all,
            "HDF5 {version}, {way}, {variables:?}: {lines:#?}, not {expected:#?}"
        );
    }

    /// Checks all cells of the table for this library.
    fn check(&self) {
        let connector = Connector::new();
        for (further, seen) in WAYS {
            let mut variables = connector.known();
            variables.extend(further.iter().map(|(name, value)| (*name, value.into())));
            self.assert_seen("default", &variables, seen);
        }
        let (version, _) = self.open("default", &[]);
        if has_plug_ins(&version) {
            let (_, lines) = self.open("listed", &connector.known());
            // The list names the connector, and the default one does not.
            let then = format!("lost.h5: refused: {}", self.dir.path().display());
            assert!(
                lines[6].starts_with(&then) && lines[6].contains("; then refused"),
                "{lines:#?}"
            );
            self.assert_seen_by_both(&lines);
        }
        // Each plug-in alone: libhdf5 does not look for the driver, and the parallel connector serves no serial
        // program.
        for (plugin, seen) in [
            (built_driver(), &PLAIN),
            (built_connector(), &FOUND),
            (
                built_parallel_connector(),
                if self.is_parallel() { &FOUND } else { &PLAIN },
            ),
        ] {
            let mut variables = connector.known();
            let alone = directory(&plugin);
            variables.push(("HDF5_PLUGIN_PATH", alone.path().into()));
            self.assert_seen("default", &variables, seen);
        }
    }

    /// Lines of the way `listed`, except the last.
    #[track_caller]
    fn assert_seen_by_both(&self, lines: &[String]) {
        for (line, (name, words)) in lines.iter().zip(&FOUND[..6]) {
            let is_same = !line.contains("; then ");
            assert!(
                line.starts_with(name) && line.contains(words) && is_same,
                "{line}, not {words}"
            );
        }
    }

    /// Whether the library is parallel HDF5.
    fn is_parallel(&self) -> bool {
        let bytes = fs::read(&self.library).unwrap();
        let name = b"H5Pset_fapl_mpio\0";
        bytes.windows(name.len()).any(|window| window == name)
    }
}

/// Whether a version loads today's drivers and connectors.
fn has_plug_ins(version: &str) -> bool {
    !["1.8.", "1.10.", "1.12."]
        .iter()
        .any(|older| version.starts_with(older))
}

fn directory(plugin: &Path) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    if plugin.exists() {
        symlink(plugin, dir.path().join(plugin.file_name().unwrap())).unwrap();
    }
    dir
}

fn check(library: Option<PathBuf>) {
    if let Some(host) = library.and_then(Host::new) {
        host.check();
    }
}

/// Of HDF5 1.10, of 1.14 with MPI, and of those in wheels.
#[test]
fn of_each_library() {
    each_variant(&["Debian", "parallel", "h5py", "netCDF4"], |library| {
        check(match *library {
            "Debian" => Python::old().map(|python| python.library_of("h5py")),
            "parallel" => Hdf5::find().map(Hdf5::library),
            module => Python::new().map(|python| python.library_of(module)),
        });
    });
}

#[test]
fn others() {
    for library in std::env::var_os(OTHERS)
        .iter()
        .flat_map(std::env::split_paths)
    {
        check(Some(library));
    }
}
