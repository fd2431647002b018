//! Options of new logs: what the connector's information string says, else the environment, else a default.
//!
//! [`NAMES`] is the one list of them: an option `buffer_limit` is `buffer_limit=` in the information string, and
//! `H5LOGFS_BUFFER_LIMIT` in the environment.

use std::ffi::OsString;
use std::path::Path;

use h5logfs_catalog::options::parse_size;

use crate::pattern::Patterns;

/// How a new log is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Which new files become logs.
    pub matching: Patterns,
    /// Size limit of a rank's buffer in bytes, for data and entries.
    pub buffer_limit: u64,
    /// When data are forced to the disk.
    pub fsync: Fsync,
    /// The files that hold the data.
    pub subfiles: Subfiles,
    /// Whether a selection that is equal to an earlier one of the same rank is stored as a reference.
    pub share_selections: bool,
}

/// When data are forced to the disk, for the case of a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// The system decides.
    None,
    /// Before a close returns.
    Close,
    /// Before a flush or a close returns.
    Flush,
}

/// The files that hold the data of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subfiles {
    /// The file itself.
    None,
    /// This many files, at most one for each rank.
    Number(u32),
    /// One file for each node of the job.
    PerNode,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            matching: Patterns::all(),
            buffer_limit: 256 << 20,
            fsync: Fsync::Close,
            subfiles: Subfiles::None,
            share_selections: true,
        }
    }
}

type Setter = fn(&mut Options, &str) -> Result<(), &'static str>;

/// An option: its name in the information string, and that of its variable.
struct Row {
    name: &'static str,
    variable: &'static str,
    set: Setter,
}

const ROWS: [Row; 5] = [
    Row {
        name: "match",
        variable: "H5LOGFS_MATCH",
        set: |options, value| {
            options.matching = Patterns::parse(value);
            Ok(())
        },
    },
    Row {
        name: "buffer_limit",
        variable: "H5LOGFS_BUFFER_LIMIT",
        set: |options, value| {
            options.buffer_limit = buffer_limit(value)?;
            Ok(())
        },
    },
    Row {
        name: "fsync",
        variable: "H5LOGFS_FSYNC",
        set: |options, value| {
            options.fsync = match value {
                "none" => Fsync::None,
                "close" => Fsync::Close,
                "flush" => Fsync::Flush,
                _ => return Err("none, close or flush"),
            };
            Ok(())
        },
    },
    Row {
        name: "subfiles",
        variable: "H5LOGFS_SUBFILES",
        set: |options, value| {
            options.subfiles = match value {
                "none" => Subfiles::None,
                "node" => Subfiles::PerNode,
                number => Subfiles::Number(subfile_count(number)?),
            };
            Ok(())
        },
    },
    Row {
        name: "share_selections",
        variable: "H5LOGFS_SHARE_SELECTIONS",
        set: |options, value| {
            options.share_selections = match value {
                "yes" => true,
                "no" => false,
                _ => return Err("yes or no"),
            };
            Ok(())
        },
    },
];

/// The options: name, and environment variable.
pub const NAMES: [(&str, &str); ROWS.len()] = {
    let mut names = [("", ""); ROWS.len()];
    let mut row = 0;
    while row < ROWS.len() {
        names[row] = (ROWS[row].name, ROWS[row].variable);
        row += 1;
    }
    names
};

/// The least that a buffer holds.
const SMALLEST_BUFFER: u64 = 64 << 10;

fn buffer_limit(value: &str) -> Result<u64, &'static str> {
    let size = parse_size(value).ok();
    size.filter(|size| *size >= SMALLEST_BUFFER)
        .ok_or("a size of at least 64K; K, M, G, T are powers of 1024")
}

fn subfile_count(value: &str) -> Result<u32, &'static str> {
    let number = value.parse().ok();
    number
        .filter(|number| *number > 0)
        .ok_or("none, node, or a number of files from 1 on")
}

/// Options that an information string sets. They were checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Given(Vec<(&'static str, String)>);

impl Given {
    /// Adds one option. Fails with a sentence that names it.
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), String> {
        let row = ROWS.iter().find(|row| row.name == name);
        let row = row.ok_or_else(|| unknown(name))?;
        set(&mut Options::default(), row, name, value)?;
        self.0.retain(|(other, _)| *other != row.name);
        self.0.push((row.name, value.to_owned()));
        Ok(())
    }

    /// As in an information string: `;name=value` for each.
    pub fn text(&self) -> String {
        let items = self.0.iter();
        items
            .map(|(name, value)| format!(";{name}={value}"))
            .collect()
    }

    /// These options, those of the environment, and defaults. Fails with a sentence that names the variable.
    pub fn complete(
        &self,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Options, String> {
        let mut options = Options::default();
        for row in &ROWS {
            if let Some(value) = environment(row.variable) {
                let value = value
                    .to_str()
                    .ok_or_else(|| format!("{}: not a text", row.variable))?;
                set(&mut options, row, row.variable, value)?;
            }
        }
        for (name, value) in &self.0 {
            if let Some(row) = ROWS.iter().find(|row| row.name == *name) {
                set(&mut options, row, name, value)?;
            }
        }
        Ok(options)
    }
}

fn set(options: &mut Options, row: &Row, called: &str, value: &str) -> Result<(), String> {
    (row.set)(options, value).map_err(|expected| format!("{called}={value}: expected {expected}"))
}

fn unknown(name: &str) -> String {
    let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    format!(
        "unknown option {name}: expected one of under_vol, under_info, {}",
        known.join(", ")
    )
}

impl Options {
    /// Whether a new file at this path becomes a log.
    pub fn take(&self, path: &Path) -> bool {
        self.matching.match_path(path)
    }
}
