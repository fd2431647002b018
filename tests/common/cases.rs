//! Logs of every layout and encoding, each with what a reader must see, and the ways to read them.
//!
//! A new case, or a new way, belongs here and nowhere else. `clients/table.rs` reads all cases in all ways.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::connector::Connector;
use super::driver::Driver;
use super::metadata_image::Made;
use super::package::Package;
use super::readers::{Python, all_sound_cases, project, said};
use super::{Mounted, PROGRAM, User, can_mount, pnetcdf, striped};

/// A way to read a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Through a mount, with libhdf5 1.10.
    OldMount,
    /// Through a mount, with libhdf5 2.
    Mount,
    Driver,
    Connector,
    /// The file object of the Python package.
    Package,
    /// The file that `h5logfs export` makes. It has the bytes of the mount.
    Export,
}

impl Way {
    pub const ALL: [Way; 6] = [
        Way::OldMount,
        Way::Mount,
        Way::Driver,
        Way::Connector,
        Way::Package,
        Way::Export,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Way::OldMount => "mount, HDF5 1.10",
            Way::Mount => "mount, HDF5 2",
            Way::Driver => "file driver",
            Way::Connector => "VOL connector",
            Way::Package => "Python package",
            Way::Export => "export",
        }
    }
}

/// A log, and what a reader must see.
#[derive(Debug, Clone)]
pub struct Case {
    pub layout: &'static str,
    pub encoding: String,
    /// The path of the log below the directory of all cases.
    pub path: String,
    /// The options that a reader needs, as `mount -o` takes them.
    options: String,
    /// The judge of `tools/cases.py`, and what it needs.
    judge: Value,
}

impl Case {
    /// The file with what a reader must see.
    pub fn expected(&self) -> PathBuf {
        self.judge["expected"].as_str().unwrap().into()
    }
}

/// A directory with all cases. They are copies, so that a reader may leave what it wants.
pub struct Cases {
    pub dir: TempDir,
    pub all: Vec<Case>,
}

/// Differences, by the path of a case. Empty where there are none.
pub type Outcomes = BTreeMap<String, String>;

// --- the cases -----------------------------------------------------------------------------------

const LOG_VOL: &str = "Log VOL";
const ADIOS: &str = "ADIOS2";
const SCORPIO: &str = "SCORPIO";
const TILES: &str = "netCDF tiles";
const OF_WRITER: &str = "h5logfs, the writer";
const OF_CONNECTOR: &str = "h5logfs, the connector";

/// The encodings of `tests/corpus`, by names of cases. Others have blocks as they are.
const ENCODINGS: [(&str, &[&str]); 7] = [
    (
        "types of elements",
        &["types_", "convert", "objref", "nullspace", "zero_scalar"],
    ),
    (
        "encoded selections",
        &["strided", "fullrow", "points", "write_n"],
    ),
    ("shared selections", &["dedup", "meta_zip"]),
    ("merged requests", &["merge"]),
    ("filters", &["deflate"]),
    ("records", &["records", "readmid", "reopen"]),
    ("subfiles", &["subfile", "netcdf4_sub"]),
];

/// What the operators of `tests/corpus-adios` are, by the ends of names. Those with a mode of zfp have fields of each type in one
/// to five dimensions.
const OPERATORS: [(&str, &str); 9] = [
    ("_bzip2", "bzip2"),
    ("_opnull", "null"),
    ("_blosc", "blosc"),
    ("_zfp_accuracy", "zfp, accuracy, all types"),
    ("_zfp_rate", "zfp, rate, all types"),
    ("_zfp_precision", "zfp, precision, all types"),
    ("_zfp_full", "zfp, no mode, all types"),
    ("_zfp_blocks", "zfp, several blocks and steps"),
    ("_zfp_special", "zfp, special parameters and shapes"),
];

impl Cases {
    fn none() -> Self {
        Cases {
            dir: tempfile::tempdir().unwrap(),
            all: Vec::new(),
        }
    }

    /// All cases of the project, and some that are made here.
    pub fn all() -> Self {
        let mut cases = Cases::none();
        cases.add_log_vol(&project().join("tests/corpus"));
        cases.add_striped();
        cases.add_netcdf();
        cases.add_adios();
        cases.add_scorpio(&project().join("tests/corpus-scorpio"));
        cases.add_tiles(&project().join("tests/corpus-tiles"));
        cases.add_own();
        if let Some(python) = Python::new() {
            cases.add_classic(&python);
            cases.add_images(&python);
            cases.add_other_processors(&python);
        }
        cases
    }

    /// The logs of a corpus of the Log VOL connector.
    pub fn of_log_vol(corpus: &Path) -> Self {
        let mut cases = Cases::none();
        cases.add_log_vol(corpus);
        cases
    }

    /// Directories `NAME.bp4` and `NAME.bp5` of one array, whose elements are in `NAME.ENGINE.npy`.
    pub fn of_arrays(corpus: &Path, dataset: &str) -> Self {
        let mut cases = Cases::none();
        cases.copy(corpus, "adios");
        for name in names_with(corpus, ".npy") {
            // Others are what the writer was given.
            if !(name.ends_with(".bp4") || name.ends_with(".bp5")) {
                continue;
            }
            let expected = corpus.join(format!("{name}.npy"));
            let judge = json!({"judge": "array", "dataset": dataset, "expected": expected});
            cases.add(
                (ADIOS, "arrays"),
                format!("adios/{name}"),
                String::new(),
                judge,
            );
        }
        cases
    }

    /// SCORPIO directories `NAME.nc.bp` and the netCDF files that are meant, `NAME.expected.nc`.
    pub fn of_scorpio(corpus: &Path) -> Self {
        let mut cases = Cases::none();
        cases.add_scorpio(corpus);
        cases
    }

    /// Sets of netCDF files: the members in a directory `NAME`, and the file that they make up, `NAME.expected.nc`, or
    /// `NAME.expected.JOINED` where `NAME` has several sets.
    pub fn of_tiles(corpus: &Path) -> Self {
        let mut cases = Cases::none();
        cases.add_tiles(corpus);
        cases
    }

    /// The files of an earlier build.
    pub fn of_own() -> Self {
        let mut cases = Cases::none();
        cases.add_own();
        cases
    }

    /// Copies a directory below that of all cases.
    fn copy(&self, from: &Path, name: &str) {
        let mut copy = Command::new("cp");
        copy.args(["-r", "--no-preserve=mode"]).arg(from);
        let output = copy.arg(self.dir.path().join(name)).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }

    fn add(&mut self, about: (&'static str, &str), path: String, options: String, judge: Value) {
        let (layout, encoding) = about;
        self.all.push(Case {
            layout,
            encoding: encoding.to_owned(),
            path,
            options,
            judge,
        });
    }

    fn add_log_vol(&mut self, corpus: &Path) {
        self.copy(corpus, "logvol");
        for name in all_sound_cases(corpus) {
            let of_name = |(_, names): &&(&str, &[&str])| names.iter().any(|n| name.starts_with(n));
            let encoding = ENCODINGS.iter().find(of_name);
            let encoding = encoding.map_or("blocks as they are", |(encoding, _)| encoding);
            let judge = same(&corpus.join(format!("{name}.expected.h5")), true);
            let path = format!("logvol/{name}.log.h5");
            self.add((LOG_VOL, encoding), path, String::new(), judge);
        }
    }

    fn add_striped(&mut self) {
        self.copy(&striped::corpus(), "striped");
        for case in striped::CASES {
            let about = match (case.name.starts_with("fam"), case.elsewhere.is_empty()) {
                (true, _) => ("HDF5 family", "members"),
                (false, true) => ("HDF5 subfiling", "stripes"),
                (false, false) => ("HDF5 subfiling", "stripes in other directories"),
            };
            let below = case.path();
            let below = below.strip_prefix(striped::corpus()).unwrap();
            let path = format!("striped/{}", below.display());
            self.add(about, path, case.options(), same(&case.expected(), false));
        }
    }

    fn add_netcdf(&mut self) {
        // Damaged ones whose entries are complete up to their end.
        let cut = ["cutmeta-cdf1-np1", "badcount-cdf1-np1"];
        for case in pnetcdf::Case::all() {
            let is_cut = cut.contains(&case.name.as_str());
            if case.expect != "same" && !is_cut {
                continue;
            }
            let file = case.lay_out(&self.dir.path().join("pnetcdf"));
            let encoding = match case.name.split('-').nth(1) {
                _ if is_cut => "entries that were cut off",
                Some("cdf2") => "CDF-2",
                Some("cdf5") => "CDF-5",
                _ => "CDF-1",
            };
            let options = if is_cut {
                "incomplete_attribute=off".to_owned()
            } else if case.name == pnetcdf::ELSEWHERE {
                format!("burst_dir={}", file.with_file_name("bb").display())
            } else {
                String::new()
            };
            let mut judge = case.job(Path::new(""));
            judge["judge"] = "netcdf".into();
            let path = format!("pnetcdf/{}/file.nc", case.name);
            self.add(("PnetCDF", encoding), path, options, judge);
        }
    }

    fn add_adios(&mut self) {
        let corpus = project().join("tests/corpus-adios");
        self.copy(&corpus, "adios");
        for name in names_with(&corpus, ".expected.h5") {
            let engine = if name.contains("b4") { "BP4" } else { "BP5" };
            let operator = OPERATORS.iter().find(|(end, _)| name.ends_with(end));
            let encoding = match operator {
                Some((_, operator)) => format!("{engine}, {operator}"),
                None if name.starts_with("openpmd") => "openPMD".to_owned(),
                None => engine.to_owned(),
            };
            let judge = json!({
                "judge": "adios",
                "expected": corpus.join(format!("{name}.expected.h5")),
                // BP4 does not distinguish attributes of one element from scalars, which openPMD files have.
                "scalars": name.starts_with("openpmd_b4"),
            });
            let path = format!("adios/{name}.bp");
            self.add((ADIOS, &encoding), path, String::new(), judge);
        }
    }

    /// Without those of which some variables must be refused: no way makes a whole file of them.
    fn add_scorpio(&mut self, corpus: &Path) {
        self.copy(corpus, "scorpio");
        let mut names = names_with(corpus, ".expected.nc");
        names.retain(|name| !corpus.join(format!("{name}.refused.txt")).exists());
        for name in names {
            let encoding = match name.split('_').next() {
                Some("b4") => "BP4, SCORPIO 1.3",
                Some("eam") => "BP5, E3SM",
                _ => "BP5, SCORPIO 2.0",
            };
            let expected = corpus.join(format!("{name}.expected.nc"));
            let judge = json!({ "judge": "scorpio", "expected": expected });
            let path = format!("scorpio/{name}.nc.bp");
            self.add((SCORPIO, encoding), path, String::new(), judge);
        }
    }

    fn add_tiles(&mut self, corpus: &Path) {
        self.copy(corpus, "tiles");
        for file in names_with(corpus, "nc") {
            let Some((name, rest)) = file.split_once(".expected.") else {
                continue;
            };
            let joined = match rest {
                "" => joined_in(corpus, name),
                rest => format!("{rest}nc"),
            };
            let family = name.split('_').next().unwrap_or_default();
            let encoding = match family {
                "fms" => "FMS",
                "nemo" => "NEMO, XIOS",
                "roms" => "ROMS, CROCO",
                "mitgcm" => "MITgcm",
                _ => "random",
            };
            let expected = self.as_netcdf4(&corpus.join(format!("{file}nc")));
            let judge = json!({ "judge": "scorpio", "expected": expected });
            self.add(
                (TILES, encoding),
                format!("tiles/{name}/{joined}"),
                String::new(),
                judge,
            );
        }
    }

    /// A netCDF-4 file of the same content, which also programs with HDF5 alone read.
    fn as_netcdf4(&self, file: &Path) -> PathBuf {
        let copies = self.dir.path().join("expected");
        fs::create_dir_all(&copies).unwrap();
        let copy = copies.join(file.file_name().unwrap());
        let mut command = Command::new("nccopy");
        let output = command
            .args(["-k", "nc4"])
            .args([file, &copy])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
        copy
    }

    /// Files of an earlier build.
    fn add_own(&mut self) {
        let corpus = own_corpus();
        self.copy(&corpus, "own");
        for (name, encoding) in OWN {
            let (layout, judge) = if name.starts_with("writer") {
                let flush = if name.contains("killed") { 5 } else { 6 };
                (
                    OF_WRITER,
                    json!({ "judge": "pattern", "ranks": 2, "flush": flush }),
                )
            } else {
                (
                    OF_CONNECTOR,
                    same(&corpus.join("connector.expected.h5"), true),
                )
            };
            self.add(
                (layout, encoding),
                format!("own/{name}.h5"),
                String::new(),
                judge,
            );
        }
    }

    fn add_classic(&mut self, python: &Python) {
        const LOGS: usize = 8;
        let dir = self.dir.path().join("classic");
        fs::create_dir(&dir).unwrap();
        let mut make = python.tool("classic.py");
        for seed in 0..LOGS {
            make.arg(seed.to_string());
            make.args([".log.h5", ".h5"].map(|end| dir.join(format!("{seed}{end}"))));
        }
        let made = make.output().unwrap();
        assert!(made.status.success(), "{}", said(&made));
        for seed in 0..LOGS {
            let judge = same(&dir.join(format!("{seed}.h5")), true);
            let path = format!("classic/{seed}.log.h5");
            let about = ("Log VOL, classic", "random logs");
            self.add(about, path, String::new(), judge);
        }
    }

    /// Directories of ADIOS2 as processors of both byte orders write them, and with pointers of four bytes, made from the
    /// format page alone.
    fn add_other_processors(&mut self, python: &Python) {
        let dir = self.dir.path().join("processors");
        fs::create_dir(&dir).unwrap();
        let made = python.tool("adioswriter.py").arg(&dir).output().unwrap();
        assert!(made.status.success(), "{}", said(&made));
        for name in names_with(&dir, ".h5") {
            let expected = dir.join(format!("{name}.h5"));
            let judge = json!({ "judge": "adios", "expected": expected, "scalars": false });
            let path = format!("processors/{name}.bp");
            self.add((ADIOS, "other processors"), path, String::new(), judge);
        }
    }

    /// Logs with a metadata image in each of HDF5's formats, made from the format page alone.
    fn add_images(&mut self, python: &Python) {
        for format in ["earliest", "v108", "v110"] {
            let made = self.dir.path().join(format!("image-{format}"));
            fs::create_dir(&made).unwrap();
            let image = Made::by(python, &made, format);
            for (name, encoding) in [("open", "not closed"), ("recovered", "closed by recover")] {
                let below = format!("image-{format}/{name}.h5");
                let path = self.dir.path().join(&below);
                drop(image.log(&path));
                if name == "recovered" {
                    let recovered = pnetcdf::h5logfs(&["recover"], &[&path]);
                    assert!(recovered.status.success(), "{}", said(&recovered));
                }
                let about = (OF_CONNECTOR, encoding);
                self.add(about, below, String::new(), same(&image.native, false));
            }
        }
    }
}

/// The joined name of a set of `tests/corpus-tiles`; random sets have one name.
fn joined_in(corpus: &Path, name: &str) -> String {
    let about = fs::read(corpus.join(format!("{name}.json")));
    let about: Option<Value> = about
        .ok()
        .map(|about| serde_json::from_slice(&about).unwrap());
    let joined = about.and_then(|about| about["joined"].as_str().map(str::to_owned));
    joined.unwrap_or_else(|| "out.nc".to_owned())
}

/// The logs of `tests/corpus-own`.
pub const OWN: [(&str, &str); 7] = [
    ("writer", "closed"),
    ("writer-subfiles", "closed, subfiles"),
    ("writer-killed", "not closed"),
    ("writer-subfiles-killed", "not closed, subfiles"),
    ("connector", "closed"),
    ("connector-killed", "not closed"),
    ("connector-subfiles-killed", "not closed, subfiles"),
];

pub fn own_corpus() -> PathBuf {
    project().join("tests/corpus-own")
}

/// HDF5 compares the file with this one.
fn same(expected: &Path, logged: bool) -> Value {
    json!({ "judge": "hdf5", "expected": expected, "logged": logged })
}

/// Names of the files in a directory that end so, without the end, in their order.
fn names_with(dir: &Path, end: &str) -> Vec<String> {
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap());
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let mut names: Vec<String> = names
        .filter_map(|name| Some(name.strip_suffix(end)?.to_owned()))
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no {end} in {}", dir.display());
    names
}

// --- reading -------------------------------------------------------------------------------------

impl Cases {
    /// Reads these cases in one way. `None` where the machine lacks what it needs.
    pub fn read(&self, way: Way, cases: &[Case]) -> Option<Outcomes> {
        let mut by_options: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
        for case in cases {
            by_options.entry(&case.options).or_default().push(case);
        }
        let mut outcomes = Outcomes::new();
        for (options, cases) in by_options {
            outcomes.extend(self.read_with(way, options, &cases)?);
        }
        Some(outcomes)
    }

    /// Reads cases that need the same options.
    fn read_with(&self, way: Way, options: &str, cases: &[&Case]) -> Option<Outcomes> {
        if way == Way::Export {
            return Some(self.read_exported(&Python::new()?, options, cases));
        }
        let reader = Reader::new(way, self.dir.path(), options)?;
        let got = |case: &Case| reader.dir.join(&case.path);
        Some(judge(&reader.python, reader.arguments, cases, got))
    }

    fn read_exported(&self, python: &Python, options: &str, cases: &[&Case]) -> Outcomes {
        let out = tempfile::tempdir().unwrap();
        let exported = |case: &Case| out.path().join(case.path.replace('/', "-"));
        let mut failed = Outcomes::new();
        for case in cases {
            let mut export = Command::new(PROGRAM);
            export.args(["export", "--allow-incomplete"]);
            if !options.is_empty() {
                export.args(["--option", options]);
            }
            export.arg(self.dir.path().join(&case.path));
            let output = export.arg(exported(case)).output().unwrap();
            if !output.status.success() {
                failed.insert(case.path.clone(), said(&output));
            }
        }
        if can_mount(User::Caller) {
            let mounted = Mounted::new(self.dir.path(), options);
            for case in cases {
                let same = fs::read(mounted.join(&case.path)).ok() == fs::read(exported(case)).ok();
                if !same {
                    let differs = "the bytes are not those of the mount".to_owned();
                    failed.entry(case.path.clone()).or_insert(differs);
                }
            }
        }
        let mut outcomes = judge(python, &[], cases, exported);
        outcomes.extend(failed);
        outcomes
    }
}

/// A Python that reads the logs of a directory in one way.
pub struct Reader {
    pub python: Python,
    /// Where it finds the logs.
    pub dir: PathBuf,
    /// What `tools/cases.py` needs.
    arguments: &'static [&'static str],
    /// The mount, or the directory with the plug-ins or the package.
    _kept: Box<dyn Any>,
}

impl Reader {
    /// `None` where the machine lacks what it needs. An export has no reader of its own.
    pub fn new(way: Way, dir: &Path, options: &str) -> Option<Self> {
        let python = match way {
            Way::OldMount => Python::old()?,
            _ => Python::new()?,
        };
        let reader = |python, kept| Reader {
            python,
            dir: dir.to_owned(),
            arguments: &[],
            _kept: kept,
        };
        let by_driver = vec![
            ("HDF5_DRIVER", "h5logfs".into()),
            ("HDF5_DRIVER_CONFIG", options.into()),
        ];
        Some(match way {
            Way::OldMount | Way::Mount => {
                if !can_mount(User::Caller) {
                    return None;
                }
                let mounted = Mounted::new(dir, options);
                Reader {
                    dir: mounted.path().to_owned(),
                    ..reader(python, Box::new(mounted))
                }
            }
            Way::Driver => {
                let driver = Driver::new();
                let python = python.with_variables([driver.known(), by_driver].concat());
                reader(python, Box::new(driver))
            }
            Way::Connector => {
                let connector = Connector::serial();
                let mut variables = connector.used();
                if !options.is_empty() {
                    // Its options of reading are those of the driver.
                    variables.extend(by_driver);
                }
                reader(python.with_variables(variables), Box::new(connector))
            }
            Way::Package => {
                let package = Package::new();
                Reader {
                    arguments: &["--package"],
                    ..reader(package.used_by(&python), Box::new(package))
                }
            }
            Way::Export => return None,
        })
    }
}

/// Has `tools/cases.py` judge what a Python reads of these cases.
fn judge(
    python: &Python,
    arguments: &[&str],
    cases: &[&Case],
    got: impl Fn(&Case) -> PathBuf,
) -> Outcomes {
    let jobs = cases.iter().map(|case| {
        let mut job = case.judge.clone();
        job["name"] = case.path.as_str().into();
        job["options"] = case.options.as_str().into();
        job["got"] = json!(got(case));
        job
    });
    let jobs = serde_json::to_vec(&jobs.collect::<Vec<_>>()).unwrap();
    let mut tool = python.tool("cases.py");
    tool.args(arguments);
    tool.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = tool.spawn().unwrap();
    // The tool reads all its input before it prints.
    child.stdin.take().unwrap().write_all(&jobs).unwrap();
    let output = child.wait_with_output().unwrap();
    let lines = String::from_utf8_lossy(&output.stdout);
    let mut outcomes: Outcomes = lines
        .lines()
        .map(|line| serde_json::from_str::<(String, String)>(line).unwrap())
        .collect();
    // After a crash of libhdf5 the rest has no answer.
    for case in cases {
        let no_answer = || format!("no answer: {}", String::from_utf8_lossy(&output.stderr));
        outcomes.entry(case.path.clone()).or_insert_with(no_answer);
    }
    outcomes
}
