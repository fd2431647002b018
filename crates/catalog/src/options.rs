//! Options of reading, which all readers of logs share: mounts, the file driver, the Python package.
//!
//! [`all`] is the only list of them. Parsers and help texts use it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

use h5logfs_common::fault::Fault;
use h5logfs_log::journal::ShownFlush;
use h5logfs_log::scan::{Chunking, LAYOUT_OPTIONS, LayoutOption, Settings};
use h5logfs_view::cache::MemoryLimits;

use crate::index_dir::IndexDir;
use crate::workers;

/// Options that decide how logs are read and scanned, and what is kept of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOptions {
    /// Limits of memory.
    pub memory: MemoryLimits,
    /// Settings that decide the outcome of a scan.
    pub settings: Settings,
    /// The limits of a scan.
    pub scans: workers::Limits,
    /// Place where the outcomes of scans are kept.
    pub index_dir: IndexDir,
    /// Bytes that this directory may grow to.
    pub index_dir_size: u64,
    /// Whether the files and directories of a log that [`direct`](crate::direct) opens are closed while others are
    /// read more, and opened again when they are read. All such logs of the process share one list of open ones.
    pub on_demand: bool,
}

const DEFAULT_INDEX_DIR_SIZE: u64 = 1 << 30;

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            memory: MemoryLimits::default(),
            settings: Settings::of_environment(|variable| std::env::var_os(variable)),
            scans: workers::Limits::default(),
            index_dir: IndexDir::Usual,
            index_dir_size: DEFAULT_INDEX_DIR_SIZE,
            on_demand: false,
        }
    }
}

/// An option of reading, which takes a value.
#[derive(Debug, Clone, Copy)]
pub struct ReadOption {
    /// Name of the option in lists of options.
    pub name: &'static str,
    /// The form of the value, for the help.
    pub form: &'static str,
    /// One sentence for the help.
    pub help: &'static str,
    /// The default, in words.
    pub default: &'static str,
    /// Whether repeated options add up. Otherwise the last one counts.
    pub adds_up: bool,
    set: Setter,
}

type Setter = fn(&mut ReadOptions, &str, &[u8]) -> Result<(), Fault>;

const SIZE: &str = "SIZE";

const fn option(
    name: &'static str,
    form: &'static str,
    help: &'static str,
    default: &'static str,
    set: Setter,
) -> ReadOption {
    ReadOption {
        name,
        form,
        help,
        default,
        adds_up: false,
        set,
    }
}

const OWN: [ReadOption; 9] = [
    option(
        "cache_size",
        SIZE,
        "memory for chunks; K, M, G, T are powers of 1024; at least 16M",
        "256M",
        |options, name, value| {
            options.memory.cache_size = size(name, value)?;
            Ok(())
        },
    ),
    option(
        "index_memory",
        SIZE,
        "memory for metadata and indexes; at least 16M",
        "256M",
        |options, name, value| {
            options.allow_metadata(size(name, value)?);
            Ok(())
        },
    ),
    option(
        "chunk",
        "auto|SIZE",
        "chunk shapes of datasets that do not record one: auto, or about SIZE each, from 4K to 1G \
         and at most half of cache_size",
        "auto",
        |options, _, value| {
            options.settings.chunking = chunking(value)?;
            Ok(())
        },
    ),
    option(
        "index_dir",
        "DIR|none",
        "directory for the indexes of log files, which later readers use; none: keep no indexes",
        "/var/cache/h5logfs for root, otherwise h5logfs in the user's cache directory",
        |options, name, value| {
            options.index_dir = index_dir(name, value)?;
            Ok(())
        },
    ),
    option(
        "index_dir_size",
        SIZE,
        "size that the index directory may reach; at least 16M",
        "1G",
        |options, name, value| {
            options.index_dir_size = size(name, value)?;
            Ok(())
        },
    ),
    option(
        "scan_memory",
        SIZE,
        "address space of a process that scans a file; at least 256M",
        "2G",
        |options, _, value| {
            options.scans.memory = scan_memory(value)?;
            Ok(())
        },
    ),
    option(
        "scan_cpu",
        "SECONDS",
        "processor time of a scan",
        "60",
        |options, name, value| {
            options.scans.cpu = seconds(name, value)?;
            Ok(())
        },
    ),
    option(
        "scan_time",
        "SECONDS",
        "elapsed time of a scan",
        "300",
        |options, name, value| {
            options.scans.time = seconds(name, value)?;
            Ok(())
        },
    ),
    option(
        "scan_user",
        "NAME",
        "user for the scans that root starts",
        "h5logfs if this user exists, otherwise nobody",
        |options, name, value| {
            options.scans.user = Some(text(name, value)?);
            Ok(())
        },
    ),
];

/// Every option of reading. The options of layouts come last.
pub fn all() -> impl Iterator<Item = ReadOption> {
    OWN.into_iter().chain(LAYOUT_OPTIONS.map(ReadOption::from))
}

impl From<LayoutOption> for ReadOption {
    fn from(option: LayoutOption) -> Self {
        ReadOption {
            name: option.name,
            form: option.form,
            help: option.help,
            default: option.default,
            adds_up: option.adds_up,
            set: |options, name, value| options.settings.set(name, value),
        }
    }
}

impl ReadOptions {
    /// Parses options of the form `name=value`, separated by commas: `cache_size=1G,chunk=4M`. Later options win. Fails
    /// with a message that names the option.
    pub fn parse(list: &OsStr) -> Result<Self, Fault> {
        let mut options = ReadOptions::default();
        let items = list.as_bytes().split(|b| *b == b',');
        for item in items.filter(|item| !item.is_empty()) {
            let at = item.iter().position(|b| *b == b'=');
            let (name, value) = item.split_at(at.unwrap_or(item.len()));
            let name = String::from_utf8_lossy(name);
            match value.strip_prefix(b"=") {
                Some(value) => options.set(&name, value)?,
                None => return Err(without_value(&name)),
            }
        }
        options.check()?;
        Ok(options)
    }

    /// The options for another file to which an open file leads. Its newest state is shown.
    pub fn of_another(&self) -> Self {
        let mut options = self.clone();
        options.settings.shown_flush = ShownFlush::Newest;
        options
    }

    /// Sets the option `index_memory`: bytes for metadata and indexes.
    pub fn allow_metadata(&mut self, bytes: u64) {
        self.memory.index_memory = bytes;
        self.settings.most = bytes;
    }

    /// The limits of a scan for readers with these options.
    pub fn scan_limits(&self) -> workers::Limits {
        workers::Limits {
            metadata: self.memory.index_memory,
            ..self.scans.clone()
        }
    }

    /// Sets one option. Fails with a message that names it.
    pub fn set(&mut self, name: &str, value: &[u8]) -> Result<(), Fault> {
        match all().find(|option| option.name == name) {
            Some(option) => (option.set)(self, name, value),
            None => Err(unknown(name)),
        }
    }

    /// Checks options that depend on each other: at least two chunks must fit into the cache.
    pub fn check(&self) -> Result<(), Fault> {
        match self.settings.chunking {
            Chunking::Size(bytes) if bytes > self.memory.cache_size / 2 => {
                Err(Fault::Refused(format!(
                    "chunk={bytes}: more than half of cache_size, which is {}",
                    self.memory.cache_size
                )))
            }
            _ => Ok(()),
        }
    }
}

fn without_value(name: &str) -> Fault {
    if all().any(|option| option.name == name) {
        return Fault::Refused(format!("option {name} needs a value: {name}=…"));
    }
    unknown(name)
}

fn unknown(name: &str) -> Fault {
    let known: Vec<&str> = all().map(|option| option.name).collect();
    let known = known.join(", ");
    Fault::Refused(format!("unknown option {name}: expected one of {known}"))
}

/// Smallest memory that an option may set. It holds some chunks of the usual size, and the tables that lead to them.
const SMALLEST_SIZE: u64 = 16 << 20;

/// Parses the value of the option `name`: a number of bytes, at least 16 MiB.
fn size(name: &str, value: &[u8]) -> Result<u64, Fault> {
    let text = String::from_utf8_lossy(value);
    let size = parse_size(&text).map_err(|e| Fault::Refused(format!("{name}={e}")))?;
    if size < SMALLEST_SIZE {
        return Err(Fault::Refused(format!(
            "{name}={text}: less than 16M, the smallest useful size"
        )));
    }
    Ok(size)
}

fn index_dir(name: &str, value: &[u8]) -> Result<IndexDir, Fault> {
    match value {
        b"none" => Ok(IndexDir::None),
        _ => Ok(IndexDir::At(path(name, value)?)),
    }
}

fn chunking(value: &[u8]) -> Result<Chunking, Fault> {
    let text = String::from_utf8_lossy(value);
    parse_chunking(&text).map_err(|e| Fault::Refused(format!("chunk={e}")))
}

fn scan_memory(value: &[u8]) -> Result<u64, Fault> {
    let memory = size("scan_memory", value)?;
    if memory < workers::SMALLEST_MEMORY {
        return Err(Fault::Refused(format!(
            "scan_memory={memory}: less than 256M, too little to load libhdf5"
        )));
    }
    Ok(memory)
}

/// Longest time limit, a week. A larger limit is no limit.
const MOST_SECONDS: u64 = 7 * 24 * 3600;

/// Parses the value of the option `name`: a whole number of seconds, at most those of a week.
pub fn seconds(name: &str, value: &[u8]) -> Result<Duration, Fault> {
    let text = String::from_utf8_lossy(value);
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|n| (1..=MOST_SECONDS).contains(n));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        Fault::Refused(format!(
            "{name}={text}: not a number of seconds from 1 to {MOST_SECONDS}"
        ))
    })
}

fn text(name: &str, value: &[u8]) -> Result<String, Fault> {
    match std::str::from_utf8(value) {
        Ok("") => Err(Fault::Refused(format!("{name}= has no value"))),
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(Fault::Refused(format!("{name}=: not UTF-8 text"))),
    }
}

/// Parses the value of the option `name`: a path.
pub fn path(name: &str, value: &[u8]) -> Result<PathBuf, Fault> {
    if value.is_empty() {
        return Err(Fault::Refused(format!("{name}= has no path")));
    }
    Ok(PathBuf::from(OsString::from_vec(value.to_vec())))
}

/// Limits of the option `chunk`, in bytes.
const SMALLEST_CHUNK: u64 = 4 << 10;
const LARGEST_CHUNK: u64 = 1 << 30;

/// Parses `auto`, or the size of chunks.
pub fn parse_chunking(text: &str) -> Result<Chunking, Fault> {
    if text == "auto" {
        return Ok(Chunking::Auto);
    }
    match parse_size(text) {
        Ok(bytes) if (SMALLEST_CHUNK..=LARGEST_CHUNK).contains(&bytes) => Ok(Chunking::Size(bytes)),
        _ => Err(Fault::Refused(format!(
            "`{text}` is neither `auto` nor a size from 4K to 1G"
        ))),
    }
}

/// Parses a time: a number of seconds, with or without a fraction, or a number with `ms`, `s`, `min` or `h`.
pub fn parse_time(text: &str) -> Result<Duration, Fault> {
    const UNITS: [(&str, f64); 4] = [("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0)];
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let (number, unit) = text.split_at(text.find(|c| !is_digit(c)).unwrap_or(text.len()));
    let unit = match unit {
        "" => Some(1.0),
        unit => UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, seconds)| *seconds),
    };
    let seconds = number.parse().ok().zip(unit);
    let time = seconds
        .and_then(|(number, unit): (f64, f64)| Duration::try_from_secs_f64(number * unit).ok());
    time.ok_or_else(|| {
        Fault::Refused(format!(
            "`{text}` is not a time: expected a number of seconds, or one with ms, s, min or h"
        ))
    })
}

/// Parses a number of bytes: digits, and `K`, `M`, `G` or `T` for powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, Fault> {
    let wrong = || {
        Fault::Refused(format!(
            "`{text}` is not a size: expected a number, or one with K, M, G or T"
        ))
    };
    let shift = match text.as_bytes().last().map(u8::to_ascii_uppercase) {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        Some(b'T') => 40,
        _ => 0,
    };
    let digits = if shift > 0 {
        &text[..text.len() - 1]
    } else {
        text
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<ReadOptions, String> {
        ReadOptions::parse(list.as_ref()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_list_sets_what_it_names() {
        assert_eq!(parse("").unwrap(), ReadOptions::default());
        let options = parse("cache_size=1G,,chunk=4M,index_dir=none,scan_cpu=7").unwrap();
        assert_eq!(options.memory.cache_size, 1 << 30);
        assert_eq!(options.settings.chunking, Chunking::Size(4 << 20));
        assert_eq!(options.index_dir, IndexDir::None);
        assert_eq!(options.scans.cpu, Duration::from_secs(7));
    }

    #[test]
    fn times_have_units() {
        for (text, milliseconds) in [
            ("0", 0),
            ("30s", 30_000),
            ("0.2", 200),
            ("1.5s", 1500),
            ("250ms", 250),
            ("2min", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(milliseconds)));
        }
        for text in [
            "",
            "s",
            "-1",
            "1 s",
            "1.2.3",
            "3d",
            "1e9",
            "inf",
            "99999999999999999999999h",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bad_option_is_named() {
        for (list, words) in [
            (
                "cache_sise=1G",
                "unknown option cache_sise: expected one of cache_size,",
            ),
            ("allow_other", "unknown option allow_other"),
            (
                "cache_size",
                "option cache_size needs a value: cache_size=…",
            ),
            ("cache_size=1M", "cache_size=1M: less than 16M"),
            ("chunk=1G", "more than half of cache_size"),
            ("index_dir=", "index_dir= has no path"),
            ("scan_user=", "scan_user= has no value"),
            ("scan_memory=17M", "less than 256M"),
            ("scan_time=0", "scan_time=0: not a number of seconds"),
        ] {
            let complaint = parse(list).unwrap_err();
            assert!(complaint.contains(words), "{list}: {complaint}");
        }
        for option in LAYOUT_OPTIONS {
            let complaint = parse(option.name).unwrap_err();
            assert!(complaint.contains("needs a value"), "{complaint}");
        }
    }
}
