//! Options of new logs. The connector's information string comes first, then the environment, then the defaults.
//!
//! [`NAMES`] lists all options. The option `buffer_limit`, for example, is `buffer_limit=` in the information string and
//! `H5LOGFS_BUFFER_LIMIT` in the environment.

use std::ffi::{OsString, c_int};
use std::path::Path;
use std::time::Duration;

use h5logfs_catalog::options::{parse_size, parse_time};
use h5logfs_common::fault::Fault;
use h5logfs_host::lists::ENCODING;
use h5logfs_output::{Fsync, Subfiles};

use crate::pattern::Patterns;

/// The options of a new log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Names of new files that become logs.
    pub matching: Patterns,
    /// The options of the writer.
    pub output: h5logfs_output::Options,
    /// Whether a log that is opened again takes in unflushed data of an earlier job.
    pub takes_in: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            matching: Patterns::all(),
            output: h5logfs_output::Options {
                flush_every: Some(FLUSH_EVERY),
                ..h5logfs_output::Options::default()
            },
            takes_in: false,
        }
    }
}

/// The default interval between automatic flushes. Most programs never flush, and one that is killed loses data of at most this
/// time.
const FLUSH_EVERY: Duration = Duration::from_secs(30);

type Setter = fn(&mut Options, &str) -> Result<(), &'static str>;

/// An option: its name in the information string, and its environment variable.
struct Row {
    name: &'static str,
    variable: &'static str,
    set: Setter,
}

const ROWS: [Row; 14] = [
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
            options.output.buffer_limit = buffer_limit(value)?;
            Ok(())
        },
    },
    Row {
        name: "fsync",
        variable: "H5LOGFS_FSYNC",
        set: |options, value| {
            options.output.fsync = match value {
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
            options.output.subfiles = match value {
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
            options.output.share_selections = yes_or_no(value)?;
            Ok(())
        },
    },
    Row {
        name: "encode_selections",
        variable: "H5LOGFS_ENCODE_SELECTIONS",
        set: |options, value| {
            options.output.encode_selections = yes_or_no(value)?;
            Ok(())
        },
    },
    Row {
        name: "deflate_selections",
        variable: "H5LOGFS_DEFLATE_SELECTIONS",
        set: |options, value| {
            options.output.deflate_selections = yes_or_no(value)?;
            Ok(())
        },
    },
    Row {
        name: "settle",
        variable: "H5LOGFS_SETTLE",
        set: |options, value| {
            options.output.settle = yes_or_no(value)?;
            Ok(())
        },
    },
    Row {
        name: "settle_memory",
        variable: "H5LOGFS_SETTLE_MEMORY",
        set: |options, value| {
            options.output.settle_memory = settle_memory(value)?;
            Ok(())
        },
    },
    Row {
        name: "discard_unclosed",
        variable: "H5LOGFS_DISCARD_UNCLOSED",
        set: |options, value| {
            options.output.discard_unclosed = yes_or_no(value)?;
            Ok(())
        },
    },
    Row {
        name: "unflushed",
        variable: "H5LOGFS_UNFLUSHED",
        set: |options, value| {
            options.takes_in = yes_or_no(value)?;
            Ok(())
        },
    },
    Row {
        name: "checksums",
        variable: "H5LOGFS_CHECKSUMS",
        set: |options, value| {
            options.output.checksums = yes_or_no(value)?;
            Ok(())
        },
    },
    Row {
        name: "flush_every",
        variable: "H5LOGFS_FLUSH_EVERY",
        set: |options, value| {
            options.output.flush_every = flush_every(value)?;
            Ok(())
        },
    },
    Row {
        name: "flush_bytes",
        variable: "H5LOGFS_FLUSH_BYTES",
        set: |options, value| {
            options.output.flush_bytes = flush_bytes(value)?;
            Ok(())
        },
    },
];

/// All options: name, and environment variable.
pub const NAMES: [(&str, &str); ROWS.len()] = {
    let mut names = [("", ""); ROWS.len()];
    let mut row = 0;
    while row < ROWS.len() {
        names[row] = (ROWS[row].name, ROWS[row].variable);
        row += 1;
    }
    names
};

/// The smallest buffer, in bytes.
const SMALLEST_BUFFER: u64 = 64 << 10;

fn buffer_limit(value: &str) -> Result<u64, &'static str> {
    let size = parse_size(value).ok();
    size.filter(|size| *size >= SMALLEST_BUFFER)
        .ok_or("a size of at least 64K; K, M, G, T are powers of 1024")
}

fn settle_memory(value: &str) -> Result<u64, &'static str> {
    parse_size(value).map_err(|_| "a size; K, M, G, T are powers of 1024")
}

fn flush_every(value: &str) -> Result<Option<Duration>, &'static str> {
    let time = parse_time(value).map_err(
        |_| "a number of seconds, or one with ms, s, min or h; 0: only when the program flushes",
    )?;
    Ok(Some(time).filter(|time| !time.is_zero()))
}

fn flush_bytes(value: &str) -> Result<Option<u64>, &'static str> {
    let size = parse_size(value)
        .map_err(|_| "a size; K, M, G, T are powers of 1024; 0: however much is written")?;
    Ok(Some(size).filter(|size| *size > 0))
}

fn subfile_count(value: &str) -> Result<u32, &'static str> {
    let number = value.parse().ok();
    number
        .filter(|number| *number > 0)
        .ok_or("none, node, or a number of files from 1 on")
}

fn yes_or_no(value: &str) -> Result<bool, &'static str> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("yes or no"),
    }
}

/// Options set by an information string. Their values are valid.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Given(Vec<(&'static str, String)>);

impl Given {
    /// Adds an option. Fails with a sentence that names the option.
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        let row = ROWS.iter().find(|row| row.name == name);
        let row = row.ok_or_else(|| unknown(name))?;
        set(&mut Options::default(), row, name, value)?;
        self.0.retain(|(other, _)| *other != row.name);
        self.0.push((row.name, value.to_owned()));
        Ok(())
    }

    /// The options in the form of an information string: `;name=value` for each.
    pub fn text(&self) -> String {
        let items = self.0.iter();
        items
            .map(|(name, value)| format!(";{name}={value}"))
            .collect()
    }

    /// Completes these options from the environment, then from the program's property lists. Fails with a sentence that names the
    /// variable.
    pub fn complete(
        &self,
        of_lists: Options,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Options, Fault> {
        let mut options = of_lists;
        for row in &ROWS {
            if let Some(value) = environment(row.variable) {
                let value = value
                    .to_str()
                    .ok_or_else(|| Fault::Refused(format!("{}: not UTF-8", row.variable)))?;
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

fn set(options: &mut Options, row: &Row, called: &str, value: &str) -> Result<(), Fault> {
    (row.set)(options, value)
        .map_err(|expected| Fault::Refused(format!("{called}={value}: expected {expected}")))
}

fn unknown(name: &str) -> Fault {
    let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    let known = known.join(", ");
    Fault::Refused(format!(
        "unknown option {name}: expected one of under_vol, under_info, {known}"
    ))
}

impl Options {
    /// Options that a program for the Log VOL has set in its property lists: see `h5logfs_host::lists`.
    pub fn of_lists(
        subfiles: Option<c_int>,
        shares_selections: Option<bool>,
        encoding: Option<c_int>,
    ) -> Self {
        let mut options = Options::default();
        let output = &mut options.output;
        if let Some(number) = subfiles {
            output.subfiles = match u32::try_from(number) {
                Ok(0) => Subfiles::None,
                Ok(number) => Subfiles::Number(number),
                Err(_) => Subfiles::PerNode,
            };
        }
        if let Some(shares) = shares_selections {
            output.share_selections = shares;
        }
        if let Some(encoding) = encoding {
            output.encode_selections = encoding == ENCODING.default;
        }
        options
    }

    /// Whether a new file at this path becomes a log.
    pub fn take(&self, path: &Path) -> bool {
        self.matching.match_path(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(items: &[(&str, &str)]) -> Result<Given, String> {
        let mut given = Given::default();
        for (name, value) in items {
            given.add(name, value)?;
        }
        Ok(given)
    }

    fn complete(items: &[(&str, &str)], variables: &[(&str, &str)]) -> Result<Options, String> {
        let completed = given(items)?.complete(Options::default(), |name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        });
        completed.map_err(|fault| fault.to_string())
    }

    #[test]
    fn the_information_string_wins_over_the_environment() {
        assert_eq!(complete(&[], &[]).unwrap(), Options::default());
        let variables = [
            ("H5LOGFS_BUFFER_LIMIT", "1G"),
            ("H5LOGFS_FSYNC", "flush"),
            ("H5LOGFS_MATCH", "*.out.h5"),
        ];
        assert_eq!(
            complete(&[], &[]).unwrap().output.flush_every,
            Some(FLUSH_EVERY)
        );
        let given = [
            ("buffer_limit", "64K"),
            ("subfiles", "3"),
            ("flush_every", "0"),
        ];
        let options = complete(&given, &variables).unwrap();
        assert_eq!(options.output.flush_every, None);
        assert_eq!(options.output.buffer_limit, 64 << 10);
        assert_eq!(options.output.fsync, Fsync::Flush);
        assert_eq!(options.output.subfiles, Subfiles::Number(3));
        assert!(options.take("a.out.h5".as_ref()));
        assert!(!options.take("a.h5".as_ref()));
    }

    #[test]
    fn lists_of_the_program_count_less_than_anything_else() {
        let of_lists = |number| Options::of_lists(Some(number), Some(false), Some(1));
        let output = of_lists(-1).output;
        assert_eq!(output.subfiles, Subfiles::PerNode);
        assert!(!output.share_selections && !output.encode_selections);
        assert_eq!(of_lists(3).output.subfiles, Subfiles::Number(3));
        assert_eq!(Options::of_lists(None, None, Some(0)), Options::default());
        let environment = |name: &str| (name == "H5LOGFS_SUBFILES").then(|| "none".into());
        let options = Given::default().complete(of_lists(3), environment).unwrap();
        assert_eq!(options.output.subfiles, Subfiles::None);
        assert!(!options.output.share_selections);
    }

    #[test]
    fn every_option_has_a_variable() {
        for (name, variable) in NAMES {
            assert_eq!(variable, format!("H5LOGFS_{}", name.to_uppercase()));
            let complaint = complete(&[], &[(variable, "?")]);
            assert!(
                name == "match" || complaint.unwrap_err().starts_with(variable),
                "{name}"
            );
        }
    }

    #[test]
    fn a_bad_option_is_named() {
        for (name, value, words) in [
            (
                "bufer_limit",
                "1G",
                "unknown option bufer_limit: expected one of under_vol,",
            ),
            (
                "buffer_limit",
                "1K",
                "buffer_limit=1K: expected a size of at least 64K",
            ),
            (
                "fsync",
                "always",
                "fsync=always: expected none, close or flush",
            ),
            (
                "settle_memory",
                "much",
                "settle_memory=much: expected a size; K, M, G",
            ),
            (
                "flush_every",
                "often",
                "flush_every=often: expected a number of seconds, or one with ms, s, min or h; 0: only",
            ),
            (
                "flush_bytes",
                "-1",
                "flush_bytes=-1: expected a size; K, M, G",
            ),
            (
                "subfiles",
                "0",
                "subfiles=0: expected none, node, or a number",
            ),
            (
                "share_selections",
                "1",
                "share_selections=1: expected yes or no",
            ),
        ] {
            let complaint = given(&[(name, value)]).unwrap_err();
            assert!(complaint.contains(words), "{name}: {complaint}");
        }
    }

    #[test]
    fn what_is_given_is_written_as_it_is_read() {
        let given = given(&[
            ("match", "*.nc,*.h5"),
            ("fsync", "none"),
            ("fsync", "flush"),
        ])
        .unwrap();
        assert_eq!(given.text(), ";match=*.nc,*.h5;fsync=flush");
    }
}
