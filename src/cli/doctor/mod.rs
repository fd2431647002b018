//! `h5logfs doctor`: finds faults of the machine and of the caller's environment that keep programs from reading and writing
//! logs.
//!
//! libhdf5 says little when it does not find a plug-in, and goes on with ordinary files. So this command loads each libhdf5 of
//! the machine in a separate process. That libhdf5 then loads the plug-ins and reads their options, as it does in programs.
//!
//! | module | contents |
//! |---|---|
//! | `libraries` | the libhdf5 of the machine |
//! | `machine` | support for mounts, Python, MPI and kept indexes |
//! | `probe` | one libhdf5, and its use of the plug-ins |

mod libraries;
mod machine;
mod probe;

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use clap::Args;
use h5logfs_catalog::direct::program_beside;
use h5logfs_catalog::options::ReadOptions;

use super::colour::Colour;
use super::output::{Output, counted};
use super::suggest::did_you_mean;
use probe::Probed;

pub use machine::{ProbeMountArgs, probe_mount};
pub use probe::{ProbeArgs, run as probe};

/// Find out which parts of h5logfs work here, and how to fix the others
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Checks HDF5_VOL_CONNECTOR, HDF5_DRIVER, HDF5_PLUGIN_PATH and the variables of h5logfs; the plug-ins and the program that \
they start; each libhdf5 of the machine and of your Python; mounts, Python, MPI, the index directory and limits. Prints \
one line for each check. A line that begins with `bad` says what is wrong and how to fix it.")]
pub struct DoctorArgs {
    /// Other libhdf5 libraries to check, for example of a module or a container
    #[arg(value_name = "LIBHDF5")]
    pub libraries: Vec<PathBuf>,
}

/// Name of connector and driver in the environment.
const NAME: &str = "h5logfs";
/// Start of the name of all connector plug-ins; the plug-in for serial programs has this name.
const CONNECTOR: &str = "libh5logfs_connector";
const DRIVER: &str = "libh5logfs_driver";
/// Variable with the directories in which libhdf5 looks for plug-ins.
const PLUGIN_PATH: &str = "HDF5_PLUGIN_PATH";
/// The release, which plug-ins and the program that they start must share.
const RELEASE: &str = env!("CARGO_PKG_VERSION");
/// Variables of h5logfs that are not options of the connector.
const OTHER_VARIABLES: [&str; 1] = ["H5LOGFS_PROGRAM"];

pub fn run(args: &DoctorArgs) -> Result<()> {
    let mut report = Report {
        out: Output::stdout(),
        bad: 0,
    };
    let wanted = Wanted::of_environment();
    report.program(&wanted)?;
    wanted.report(&mut report)?;
    report.plugin_path(&wanted)?;
    report.libraries(args, &wanted)?;
    machine::fuse(&mut report)?;
    machine::python(&mut report)?;
    machine::mpi(&mut report)?;
    machine::index_dir(&mut report)?;
    machine::limits(&mut report)?;
    ensure!(
        report.bad == 0,
        "{} found",
        counted(report.bad as u64, "problem")
    );
    Ok(())
}

/// The settings of the environment.
struct Wanted {
    /// `HDF5_VOL_CONNECTOR`: the name, and the options after it.
    connector: Option<(String, String)>,
    /// `HDF5_DRIVER`.
    driver: Option<String>,
    /// Variables that may be options of the connector, with their values.
    variables: Vec<(String, String)>,
    /// Variables whose names are almost those of known ones, each with the name meant.
    mistyped: Vec<(String, &'static str)>,
}

/// The names of the variables that HDF5 and h5logfs look at. Options of the connector follow `H5LOGFS_`.
const KNOWN: [&str; 6] = [
    "HDF5_VOL_CONNECTOR",
    "HDF5_DRIVER",
    "HDF5_DRIVER_CONFIG",
    PLUGIN_PATH,
    "HDF5_PLUGIN_PRELOAD",
    "H5LOGFS_PROGRAM",
];

/// A variable that is almost a known one, and the known one.
fn mistyped(name: &str) -> Option<(String, &'static str)> {
    let upper = name.to_uppercase();
    let is_known = KNOWN.contains(&name) || name.starts_with("H5LOGFS_");
    // Few letters apart: other software has names such as HDF5_ROOT.
    let near = |known: &&'static str| strsim::osa_distance(&upper, known) <= MOST_MISTYPED;
    let meant = KNOWN.into_iter().find(near).filter(|_| !is_known)?;
    Some((name.to_owned(), meant))
}

/// Most letters of the name of a variable that are wrong, missing, superfluous or swapped.
const MOST_MISTYPED: usize = 2;

impl Wanted {
    fn of_environment() -> Self {
        let text = |name| Some(env::var_os(name)?.to_string_lossy().trim().to_owned());
        let given = |name| text(name).filter(|value| !value.is_empty());
        let connector = given("HDF5_VOL_CONNECTOR").map(|value| {
            let (name, options) = value
                .split_once(char::is_whitespace)
                .unwrap_or((&value, ""));
            (name.to_owned(), options.trim().to_owned())
        });
        let shown = |(name, value): (OsString, OsString)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        };
        let ours = env::vars_os().map(shown);
        let mistyped = env::vars_os().filter_map(|(name, _)| mistyped(name.to_str()?));
        let mut variables: Vec<_> = ours
            .filter(|(name, _)| name.starts_with("H5LOGFS_"))
            .filter(|(name, _)| !OTHER_VARIABLES.contains(&name.as_str()))
            .collect();
        variables.sort();
        Wanted {
            connector,
            driver: given("HDF5_DRIVER"),
            variables,
            mistyped: mistyped.collect(),
        }
    }

    fn wants_connector(&self) -> bool {
        self.connector
            .as_ref()
            .is_some_and(|(name, _)| name == NAME)
    }

    fn wants_driver(&self) -> bool {
        self.driver.as_ref().is_some_and(|name| name == NAME)
    }

    /// Texts that the connector must accept, each with its name for the user.
    fn options(&self) -> Vec<(String, String)> {
        let behind_name = self.connector.iter().filter(|(name, _)| name == NAME);
        let behind_name = behind_name.map(|(name, options)| {
            (
                format!("HDF5_VOL_CONNECTOR=\"{name} {options}\""),
                options.clone(),
            )
        });
        let variables = self.variables.iter().map(|(name, value)| {
            let option = name.trim_start_matches("H5LOGFS_").to_lowercase();
            (format!("{name}={value}"), format!("{option}={value}"))
        });
        behind_name.chain(variables).collect()
    }

    fn report(&self, report: &mut Report) -> io::Result<()> {
        for (name, meant) in &self.mistyped {
            report.bad(format_args!(
                "{name} is set, which nothing looks at; did you mean {meant}?"
            ))?;
        }
        match &self.connector {
            None => report.note("HDF5_VOL_CONNECTOR is not set: HDF5 programs write no logs")?,
            Some((name, _)) if name == NAME => {
                report.good(format_args!(
                    "HDF5_VOL_CONNECTOR names {NAME}: HDF5 programs write logs"
                ))?;
            }
            Some((name, _)) => {
                let meant = did_you_mean(name, [NAME]);
                let line =
                    format!("HDF5_VOL_CONNECTOR names the connector {name}, not {NAME}{meant}");
                if meant.is_empty() {
                    report.note(line)?;
                } else {
                    report.bad(line)?;
                }
            }
        }
        match &self.driver {
            None => {}
            Some(name) if name == NAME => {
                report.good(format_args!(
                    "HDF5_DRIVER names {NAME}: HDF5 programs read logs"
                ))?;
                self.report_driver_options(report)?;
            }
            Some(name) => {
                let meant = did_you_mean(name, [NAME]);
                let line = format!("HDF5_DRIVER names the file driver {name}{meant}");
                if meant.is_empty() {
                    report.note(line)?;
                } else {
                    report.bad(line)?;
                }
            }
        }
        Ok(())
    }

    fn report_driver_options(&self, report: &mut Report) -> io::Result<()> {
        const VARIABLE: &str = "HDF5_DRIVER_CONFIG";
        let Some(config) = env::var_os(VARIABLE) else {
            return Ok(());
        };
        match ReadOptions::parse(&config) {
            Ok(_) => report.good(format_args!(
                "{VARIABLE} has valid options of the file driver"
            )),
            Err(reason) => report.bad(format_args!("{VARIABLE}: {reason}")),
        }
    }
}

/// The report: its output, and the number of bad lines.
struct Report {
    out: Output<io::StdoutLock<'static>>,
    bad: usize,
}

impl Report {
    fn good(&mut self, line: impl Display) -> io::Result<()> {
        self.line(Colour::Good, "good", line)
    }

    fn note(&mut self, line: impl Display) -> io::Result<()> {
        self.line(Colour::Notice, "note", line)
    }

    fn bad(&mut self, line: impl Display) -> io::Result<()> {
        self.bad += 1;
        self.line(Colour::Bad, "bad", line)
    }

    fn line(&mut self, colour: Colour, word: &str, line: impl Display) -> io::Result<()> {
        self.out
            .painted(&[(Some(colour), word), (None, &format!(": {line}"))])
    }

    /// Checks the program that plug-ins start to scan and to close logs.
    fn program(&mut self, wanted: &Wanted) -> io::Result<()> {
        let own = env::current_exe()?;
        self.good(format_args!("h5logfs {RELEASE} is {}", own.display()))?;
        match env::var_os("H5LOGFS_PROGRAM").map(PathBuf::from) {
            Some(named) => {
                let called = format!("H5LOGFS_PROGRAM={}", named.display());
                self.release(&called, &named)
            }
            None => self.found_programs(&own, wanted),
        }
    }

    /// Checks the program that plug-ins start if no variable names one: the one installed with them, otherwise that in PATH.
    fn found_programs(&mut self, own: &Path, wanted: &Wanted) -> io::Result<()> {
        let in_path = in_path(NAME);
        let mut started: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
        let mut lost = Vec::new();
        for plugin in plugins() {
            let name = plugin.file_name().unwrap_or_default();
            let name = name.to_string_lossy().into_owned();
            match program_beside(&plugin).or_else(|| in_path.clone()) {
                Some(program) => started.entry(program).or_default().push(name),
                None => lost.push(name),
            }
        }
        for (program, plugins) in started {
            let called = format!("{}, for {},", program.display(), plugins.join(", "));
            self.release(&called, &program)?;
        }
        match in_path {
            Some(found) => self.good(format_args!("PATH leads to {}", found.display())),
            None if lost.is_empty() => self.note(
                "h5logfs is not in PATH: plug-ins and the Python package find it only where it was installed with them",
            ),
            None => {
                let (own, dir) = (own.display(), own.parent().unwrap_or(own).display());
                let line = format!(
                    "h5logfs is not in PATH, nor where it would be installed with {}: they can neither read logs nor \
                     close them. Add {dir} to PATH, or set H5LOGFS_PROGRAM={own}",
                    lost.join(", ")
                );
                self.bad_if(wanted.wants_connector() || wanted.wants_driver(), line)
            }
        }
    }

    /// Checks that a program is of this release.
    fn release(&mut self, called: &str, program: &Path) -> io::Result<()> {
        let output = match Command::new(program).arg("--version").output() {
            Err(e) => return self.bad(format_args!("{called} cannot be started: {e}")),
            Ok(output) => output,
        };
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if said == format!("h5logfs {RELEASE}") {
            self.good(format_args!("{called} is of the same release"))
        } else {
            self.bad(format_args!(
                "{called} reports {said:?}, not h5logfs {RELEASE}"
            ))
        }
    }

    /// Checks the directories in which libhdf5 looks for plug-ins, and the plug-ins of h5logfs in them.
    fn plugin_path(&mut self, wanted: &Wanted) -> io::Result<()> {
        const VARIABLE: &str = PLUGIN_PATH;
        /// With this value libhdf5 loads no plug-in.
        const NONE: &str = "::";
        let is_wanted = wanted.wants_connector() || wanted.wants_driver();
        if env::var_os("HDF5_PLUGIN_PRELOAD").is_some_and(|value| value == NONE) {
            self.bad_if(
                is_wanted,
                "HDF5_PLUGIN_PRELOAD=:: forbids libhdf5 from loading plug-ins",
            )?;
        }
        let Some(dirs) = env::var_os(VARIABLE) else {
            let installed = installed_plugins();
            let hint = installed.map_or_else(String::new, |dir| {
                format!("; those of h5logfs are in {}", dir.display())
            });
            return self.bad_if(
                is_wanted,
                format_args!(
                    "{VARIABLE} is not set: libhdf5 looks for plug-ins in its built-in directory, usually \
                     /usr/local/hdf5/lib/plugin{hint}"
                ),
            );
        };
        let (mut connectors, mut drivers) = (0, 0);
        for dir in env::split_paths(&dirs).filter(|dir| !dir.as_os_str().is_empty()) {
            let names = match plugins_in(&dir) {
                Ok(names) => names,
                Err(e) => {
                    self.bad_if(
                        is_wanted,
                        format_args!("{VARIABLE}: {}: {e}", dir.display()),
                    )?;
                    continue;
                }
            };
            connectors += of_kind(&names, CONNECTOR);
            drivers += of_kind(&names, DRIVER);
            let found = match names.join(", ") {
                none if none.is_empty() => "no plug-in of h5logfs".to_owned(),
                some => some,
            };
            self.note(format_args!("{VARIABLE}: {} has {found}", dir.display()))?;
        }
        for (is_wanted, found, what) in [
            (wanted.wants_connector(), connectors, "VOL connector"),
            (wanted.wants_driver(), drivers, "file driver"),
        ] {
            if is_wanted && found == 0 {
                self.bad(format_args!(
                    "no directory of {VARIABLE} has the {what}: programs continue without it and make ordinary HDF5 files"
                ))?;
            }
        }
        Ok(())
    }

    /// Checks each libhdf5.
    fn libraries(&mut self, args: &DoctorArgs, wanted: &Wanted) -> Result<()> {
        let mut found = libraries::of_machine();
        found.extend(args.libraries.iter().cloned());
        let found = libraries::distinct(found);
        let fallback = match env::var_os(PLUGIN_PATH) {
            Some(_) => None,
            None => installed_plugins(),
        };
        let plugins = plugins();
        let options = wanted.options();
        let texts: Vec<String> = options.iter().map(|(_, text)| text.clone()).collect();
        let (mut checked, mut broken) = (None, BTreeMap::new());
        for library in &found {
            let probed = probe::start(library, fallback.as_deref(), &plugins, &texts)?;
            self.library(library, &probed, wanted)?;
            if let Probed::Asked(loaded) = probed {
                broken.extend(loaded.broken);
                if loaded.connector.is_ok() {
                    checked.get_or_insert(loaded.refused);
                }
            }
        }
        for (plugin, reason) in &broken {
            // The connector for parallel programs needs its MPI.
            self.bad_if(
                is_serial(plugin) && (wanted.wants_connector() || wanted.wants_driver()),
                format_args!("{} cannot be loaded: {reason}", plugin.display()),
            )?;
        }
        if found.is_empty() {
            self.note(
                "neither the linker nor Python finds a libhdf5: give the path of the one that your programs use",
            )?;
        }
        Ok(self.options(&options, checked)?)
    }

    fn library(&mut self, path: &Path, probed: &Probed, wanted: &Wanted) -> io::Result<()> {
        let shown = path.display();
        let loaded = match probed {
            Probed::Asked(loaded) => loaded,
            Probed::Old(version) => {
                return self.note(format_args!(
                    "{shown} is HDF5 {version}, which cannot load such plug-ins (1.14 can): its programs read logs \
                     through a mount and cannot write them"
                ));
            }
            Probed::Failed(reason) => {
                return self.note(format_args!("{shown} cannot be loaded here: {reason}"));
            }
        };
        let version = &loaded.version;
        let kinds = [
            ("VOL connector", &loaded.connector, wanted.wants_connector()),
            ("file driver", &loaded.driver, wanted.wants_driver()),
        ];
        for (what, outcome, is_wanted) in kinds {
            match outcome {
                Ok(()) => self.good(format_args!(
                    "{shown} is HDF5 {version}, and loads the {what}"
                ))?,
                Err(reason) => self.bad_if(
                    is_wanted,
                    format_args!(
                        "{shown} is HDF5 {version}, and does not load the {what}: {reason}"
                    ),
                )?,
            }
        }
        Ok(())
    }

    /// Checks the connector's options, with a reason for each that it refuses.
    fn options(
        &mut self,
        options: &[(String, String)],
        refused: Option<Vec<Option<String>>>,
    ) -> io::Result<()> {
        let Some(refused) = refused else {
            if !options.is_empty() {
                self.note(
                    "no libhdf5 has loaded the VOL connector, so its options cannot be checked",
                )?;
            }
            return Ok(());
        };
        for ((shown, _), reason) in options.iter().zip(refused) {
            match reason {
                None => self.good(format_args!("{shown}: the connector accepts it"))?,
                Some(reason) => self.bad(format_args!("{shown}: {reason}"))?,
            }
        }
        Ok(())
    }

    fn bad_if(&mut self, is_bad: bool, line: impl Display) -> io::Result<()> {
        if is_bad {
            self.bad(line)
        } else {
            self.note(line)
        }
    }
}

/// The plug-ins of h5logfs that libhdf5 finds, or would find with their installation directory.
fn plugins() -> Vec<PathBuf> {
    let dirs: Vec<PathBuf> = match env::var_os(PLUGIN_PATH) {
        Some(dirs) => env::split_paths(&dirs).collect(),
        None => installed_plugins().into_iter().collect(),
    };
    let plugins = dirs.iter().flat_map(|dir| {
        let names = plugins_in(dir).unwrap_or_default();
        names.into_iter().map(|name| dir.join(name))
    });
    plugins.collect()
}

/// Names of the plug-ins of h5logfs in a directory.
fn plugins_in(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in dir.read_dir()? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if [CONNECTOR, DRIVER]
            .iter()
            .any(|kind| name.starts_with(kind))
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Whether a plug-in is for serial programs.
fn is_serial(plugin: &Path) -> bool {
    let name = plugin.file_stem().unwrap_or_default().to_string_lossy();
    !name.ends_with("_mpi")
}

fn of_kind(names: &[String], kind: &str) -> usize {
    names.iter().filter(|name| name.starts_with(kind)).count()
}

/// The directory of the plug-ins installed with this program.
fn installed_plugins() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let dir = program.parent()?.parent()?.join("lib/h5logfs/plugins");
    dir.is_dir().then_some(dir)
}

/// The path of a program that a shell would find.
fn in_path(name: &str) -> Option<PathBuf> {
    let dirs = env::var_os("PATH")?;
    let files = env::split_paths(&dirs).map(|dir| dir.join(OsStr::new(name)));
    files.into_iter().find(|file| file.is_file())
}
