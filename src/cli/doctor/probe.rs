//! `h5logfs probe-hdf5`: loads one libhdf5 and lets it load the plug-ins. `h5logfs doctor` starts it for each library. So no
//! two libraries meet in one process, and a crash ends nothing else.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

use anyhow::Result;
use clap::Args;
use h5logfs_host::caller::Object;
use h5logfs_host::types::{DEFAULT, Id, Status};
use h5logfs_host::{Functions as _, Library};
use serde::{Deserialize, Serialize};

use crate::cli::THIS_PROGRAM;

/// Name of the hidden subcommand.
const SUBCOMMAND: &str = "probe-hdf5";

/// Tells what one libhdf5 does with the plug-ins, as JSON on standard output.
#[derive(Debug, Clone, Args)]
pub struct ProbeArgs {
    /// The library
    library: PathBuf,
    /// Texts of options for the connector
    options: Vec<String>,
    /// The plug-ins of h5logfs
    #[arg(long = "plugin", value_name = "FILE")]
    plugins: Vec<PathBuf>,
}

/// The result of probing a libhdf5.
#[derive(Debug, Serialize, Deserialize)]
pub enum Probed {
    /// The library cannot be loaded or asked, for this reason.
    Failed(String),
    /// The library is of this version, which loads no plug-ins except filters.
    Old(String),
    /// The library was loaded and asked.
    Asked(Loaded),
}

/// Answers of a loaded libhdf5.
#[derive(Debug, Serialize, Deserialize)]
pub struct Loaded {
    pub version: String,
    /// Whether it has loaded the connector, or why not.
    pub connector: Result<(), String>,
    /// Whether it has loaded the file driver, or why not.
    pub driver: Result<(), String>,
    /// For each text of options, why the connector refuses it.
    pub refused: Vec<Option<String>>,
    /// Plug-ins that cannot be loaded, and why. libhdf5 does not report this.
    pub broken: Vec<(PathBuf, String)>,
}

/// Probes a library in a separate process. `dirs`: directories of plug-ins if the environment sets none. `plugins`: the plug-ins
/// of h5logfs in these directories.
pub fn start(
    library: &Path,
    dirs: Option<&Path>,
    plugins: &[PathBuf],
    options: &[String],
) -> Result<Probed> {
    let mut command = Command::new(THIS_PROGRAM);
    command.arg(SUBCOMMAND);
    for plugin in plugins {
        command.arg("--plugin").arg(plugin);
    }
    command.arg("--").arg(library).args(options);
    // libhdf5 would use these before it can be asked.
    for variable in ["HDF5_VOL_CONNECTOR", "HDF5_DRIVER", "HDF5_DRIVER_CONFIG"] {
        command.env_remove(variable);
    }
    if let Some(dir) = dirs {
        command.env("HDF5_PLUGIN_PATH", dir);
    }
    let output = command.output()?;
    Ok(serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("it printed nothing");
        Probed::Failed(format!(
            "the process that loads it ended ({}): {said}",
            output.status
        ))
    }))
}

pub fn run(args: &ProbeArgs) -> Result<()> {
    println!("{}", serde_json::to_string(&probe(args))?);
    Ok(())
}

h5logfs_host::functions! {
    /// Functions of every libhdf5.
    struct Versions for "h5logfs_doctor" {
        H5get_libversion: fn(*mut c_uint, *mut c_uint, *mut c_uint) -> Status,
    }
}

h5logfs_host::functions! {
    /// Functions of a libhdf5 that loads the plug-ins of h5logfs.
    struct Functions for "h5logfs_doctor" {
        H5open: fn() -> Status,
        H5Eset_auto2: fn(Id, Option<unsafe extern "C" fn()>, *mut c_void) -> Status,
        H5Eclear2: fn(Id) -> Status,
        H5Ewalk2: fn(Id, c_int, Walk, *mut c_void) -> Status,
        H5VLregister_connector_by_name: fn(*const c_char, Id) -> Id,
        H5VLconnector_str_to_info: fn(*const c_char, Id, *mut *mut c_void) -> Status,
        H5VLfree_connector_info: fn(Id, *mut c_void) -> Status,
        H5Pcreate: fn(Id) -> Id,
        H5Pset_driver_by_name: fn(Id, *const c_char, *const c_char) -> Status,
    }
}

/// `H5E_walk2_t`.
type Walk = unsafe extern "C" fn(c_uint, *const ErrorRecord, *mut c_void) -> Status;

/// `H5E_error2_t`. Versions differ in the order of the names of function and file.
#[repr(C)]
struct ErrorRecord {
    class: Id,
    major: Id,
    minor: Id,
    line: c_uint,
    names: [*const c_char; 2],
    text: *const c_char,
}

fn probe(args: &ProbeArgs) -> Probed {
    // The first version with file drivers and connectors as plug-ins.
    const FIRST: (c_uint, c_uint) = (1, 14);
    let object = match Object::load(&args.library, c"H5get_libversion") {
        Ok(object) => object,
        Err(fault) => return Probed::Failed(fault.to_string()),
    };
    let Some(versions) = Versions::of(&object) else {
        return Probed::Failed("it is not a libhdf5".into());
    };
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: the library is loaded; all pointers are to local numbers.
    unsafe { (versions.H5get_libversion)(&mut major, &mut minor, &mut release) };
    let version = format!("{major}.{minor}.{release}");
    if (major, minor) < FIRST {
        return Probed::Old(version);
    }
    let library = Library::<Functions>::of_code(versions.H5get_libversion as usize);
    let Some(library) = library else {
        return Probed::Failed(format!("HDF5 {version} lacks functions that plug-ins need"));
    };
    let f = library.functions();
    // SAFETY: the library is loaded, and no other thread uses it.
    unsafe {
        if (f.H5open)() < 0 {
            return Probed::Failed(format!("HDF5 {version} does not start: {}", reason(f)));
        }
        (f.H5Eset_auto2)(DEFAULT, None, ptr::null_mut());
    }
    // SAFETY: the library has started, and the name is a C string.
    let connector = unsafe { (f.H5VLregister_connector_by_name)(c"h5logfs".as_ptr(), DEFAULT) };
    let registered = if connector < 0 {
        Err(reason(f))
    } else {
        Ok(())
    };
    let refused = match connector {
        0.. => (args.options.iter().map(|text| refusal(f, connector, text))).collect(),
        _ => Vec::new(),
    };
    Probed::Asked(Loaded {
        version,
        connector: registered,
        driver: driver(&library),
        refused,
        broken: args
            .plugins
            .iter()
            .filter_map(|plugin| broken(plugin))
            .collect(),
    })
}

/// Why a plug-in cannot be loaded.
fn broken(plugin: &Path) -> Option<(PathBuf, String)> {
    let loaded = Object::load(plugin, c"H5PLget_plugin_info");
    let fault = loaded.err()?;
    Some((plugin.to_owned(), fault.to_string()))
}

/// Why the connector refuses options.
fn refusal(f: &Functions, connector: Id, options: &str) -> Option<String> {
    let Ok(text) = CString::new(options) else {
        return Some("it holds a zero byte".into());
    };
    let mut info = ptr::null_mut();
    // SAFETY: the connector is registered in this library, which frees its own allocation. Functions for connectors do not
    // clear the error stack.
    unsafe {
        (f.H5Eclear2)(DEFAULT);
        if (f.H5VLconnector_str_to_info)(text.as_ptr(), connector, &mut info) < 0 {
            return Some(reason(f));
        }
        (f.H5VLfree_connector_info)(connector, info);
    }
    None
}

/// Whether a list accepts the file driver.
fn driver(library: &Library<Functions>) -> Result<(), String> {
    let f = library.functions();
    let class = library.identifier(c"H5P_CLS_FILE_ACCESS_ID_g");
    let class = class.ok_or("the library has no file access property lists")?;
    // SAFETY: the class is of this library; the name is a C string.
    let status = unsafe {
        let list = (f.H5Pcreate)(class);
        (f.H5Pset_driver_by_name)(list, c"h5logfs".as_ptr(), ptr::null())
    };
    if status < 0 { Err(reason(f)) } else { Ok(()) }
}

/// The most specific message on the error stack: the innermost one, where the error was found.
fn reason(f: &Functions) -> String {
    const UPWARD: c_int = 0;
    let mut found: Option<String> = None;
    // SAFETY: the library has started; `first` takes such a text as its last argument, and is only called before this
    // returns.
    unsafe { (f.H5Ewalk2)(DEFAULT, UPWARD, first, (&raw mut found).cast()) };
    found.unwrap_or_else(|| "without a reason".into())
}

unsafe extern "C" fn first(_: c_uint, record: *const ErrorRecord, found: *mut c_void) -> Status {
    // SAFETY: the library passes a record that is valid during the call, and the pointer from `reason`.
    let (record, found) = unsafe { (&*record, &mut *found.cast::<Option<String>>()) };
    if found.is_none() && !record.text.is_null() {
        // SAFETY: a text of a record is a C string.
        let text = unsafe { CStr::from_ptr(record.text) };
        *found = Some(text.to_string_lossy().into_owned());
    }
    0
}
