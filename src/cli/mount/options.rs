//! Mount options from `-o`, /etc/fstab and the configuration file.
//!
//! [`all`] is the only list of them. The parser, the help and the keys of the configuration file use it. A test compares it
//! with the table in docs/operations.md.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::cli::THIS_PROGRAM;
use crate::cli::suggest::did_you_mean;
use crate::fs::{DirectoryLogs, Tiles};
use h5logfs_catalog::options::{self, ReadOption, ReadOptions};
use h5logfs_catalog::workers;

const DEFAULT_READ_CPU: Duration = Duration::from_secs(60);
const MAX_THREADS: usize = 64;

/// Options that mount(8), mount.fuse3, systemd and fstab add. They are accepted without effect: a mount is always read-only,
/// without devices and set-uid programs.
const IGNORED: [&str; 31] = [
    "rw",
    "ro",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
    "noexec",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "lazytime",
    "nolazytime",
    "sync",
    "async",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "defaults",
    "_netdev",
    "nofail",
    // Always set together with allow_other.
    "default_permissions",
    "",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    pub allow_other: bool,
    pub auto_unmount: bool,
    pub threads: usize,
    pub read_cpu: Duration,
    pub passthrough: bool,
    pub directory_logs: DirectoryLogs,
    pub tiles: Tiles,
    pub log_file: Option<PathBuf>,
    pub read: ReadOptions,
}

/// The default options of reading. Scan workers run this program.
fn read_options() -> ReadOptions {
    ReadOptions {
        scans: workers::Limits {
            program: THIS_PROGRAM.into(),
            ..workers::Limits::default()
        },
        ..ReadOptions::default()
    }
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            allow_other: false,
            auto_unmount: false,
            threads: default_threads(),
            read_cpu: DEFAULT_READ_CPU,
            passthrough: true,
            directory_logs: DirectoryLogs::default(),
            tiles: Tiles::default(),
            log_file: None,
            read: read_options(),
        }
    }
}

/// Default number of threads: more than cores, because requests mostly wait for storage.
fn default_threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    (2 * cores).clamp(4, MAX_THREADS)
}

/// A mount option of h5logfs.
#[derive(Debug, Clone, Copy)]
pub struct MountOption {
    pub name: &'static str,
    pub value: Value,
    pub help: &'static str,
    /// Text of the default.
    pub default: &'static str,
}

type Setter = fn(&mut MountOptions, &str, &[u8]) -> anyhow::Result<()>;

/// The value of an option.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// None: `name` switches the option on, `noname` off.
    Flag(fn(&mut MountOptions, bool)),
    Given {
        /// The form of the value, for the help.
        form: &'static str,
        /// Whether repeated options add up. Otherwise the last one wins.
        adds_up: bool,
        set: Setter,
    },
}

const fn given(form: &'static str, set: Setter) -> Value {
    Value::Given {
        form,
        adds_up: false,
        set,
    }
}

const OWN: [MountOption; 10] = [
    MountOption {
        name: "allow_other",
        value: Value::Flag(|options, on| options.allow_other = on),
        help: "other users may enter, too",
        default: "off",
    },
    MountOption {
        name: "auto_unmount",
        value: Value::Flag(|options, on| options.auto_unmount = on),
        help: "unmount also when the daemon has crashed",
        default: "off",
    },
    MountOption {
        name: "threads",
        value: given("N", |options, _, value| {
            options.threads = number("threads", value, MAX_THREADS)?;
            Ok(())
        }),
        help: "requests served at once, 1 to 64",
        default: "twice the cores, at least 4",
    },
    MountOption {
        name: "read_cpu",
        value: given("SECONDS", |mount, name, value| {
            mount.read_cpu = options::seconds(name, value).map_err(anyhow::Error::msg)?;
            Ok(())
        }),
        help: "processor time of one read, or of one extended attribute",
        default: "60",
    },
    MountOption {
        name: "passthrough",
        value: Value::Flag(|options, on| options.passthrough = on),
        help: "the kernel reads files that are not logs without the daemon, in mounts of root on Linux 6.9 or later. The \
            daemon reads settled files, because they can become logs again",
        default: "on",
    },
    MountOption {
        name: "bp",
        value: given("file|directory", |options, name, value| {
            options.directory_logs = match value {
                b"file" => DirectoryLogs::Files,
                b"directory" => DirectoryLogs::Directories,
                _ => bail!(
                    "{name}={}: expected file or directory",
                    String::from_utf8_lossy(value)
                ),
            };
            Ok(())
        }),
        help: "how a directory that is a log, such as NAME.bp, appears: as an HDF5 file, or as the directory with the \
            HDF5 file NAME.bp.h5 (of SCORPIO: NAME) beside it",
        default: "file",
    },
    MountOption {
        name: "tiles",
        value: given("joined|both|members", |options, name, value| {
            options.tiles = match value {
                b"joined" => Tiles::Joined,
                b"both" => Tiles::Both,
                b"members" => Tiles::Members,
                _ => bail!(
                    "{name}={}: expected joined, both or members",
                    String::from_utf8_lossy(value)
                ),
            };
            Ok(())
        }),
        help: "how a set of files, one for each process of a model, appears: as the joined file NAME.nc alone, as NAME.nc \
            and its members NAME.nc.0000, NAME.nc.0001, …, or as the members alone",
        default: "both",
    },
    MountOption {
        name: "log_file",
        value: given("PATH", |mount, name, value| {
            mount.log_file = Some(options::path(name, value).map_err(anyhow::Error::msg)?);
            Ok(())
        }),
        help: "file to which messages are appended",
        default: "the system's log",
    },
    MountOption {
        name: "scan_workers",
        value: given("N", |options, _, value| {
            options.read.scans.workers = number("scan_workers", value, workers::MOST_WORKERS)?;
            Ok(())
        }),
        help: "scans at once, 1 to 256; files of one owner get all but one of them",
        default: "one more than cores, at most 16",
    },
    MountOption {
        name: "scan_batch",
        value: given("N", |options, _, value| {
            options.read.scans.batch = number("scan_batch", value, workers::LARGEST_BATCH)?;
            Ok(())
        }),
        help: "files with equal permissions that one process scans for a listing, 1 to 1024",
        default: "64",
    },
];

/// All options that have an effect.
pub fn all() -> impl Iterator<Item = MountOption> {
    OWN.into_iter().chain(options::all().map(MountOption::from))
}

impl From<ReadOption> for MountOption {
    fn from(option: ReadOption) -> Self {
        MountOption {
            name: option.name,
            value: Value::Given {
                form: option.form,
                adds_up: option.adds_up,
                set: |options, name, value| {
                    let outcome = options.read.set(name, value);
                    outcome.map_err(anyhow::Error::msg)
                },
            },
            help: option.help,
            default: option.default,
        }
    }
}

impl MountOption {
    pub fn named(name: &str) -> Option<Self> {
        all().find(|option| option.name == name)
    }

    /// `name`, or `name=FORM`.
    pub fn usage(&self) -> String {
        match self.value {
            Value::Flag(_) => self.name.to_owned(),
            Value::Given { form, .. } => format!("{}={form}", self.name),
        }
    }
}

/// Splits the values of `-o` into single options.
pub fn split(lists: &[OsString]) -> impl Iterator<Item = &OsStr> {
    let options = lists.iter().flat_map(|list| {
        let list = list.as_bytes();
        list.split(|b| *b == b',')
    });
    options.map(OsStr::from_bytes)
}

impl MountOptions {
    /// Parses options given as `name` or `name=value`. Later ones win.
    pub fn parse<'a>(items: impl IntoIterator<Item = &'a OsStr>) -> anyhow::Result<Self> {
        let mut options = MountOptions::default();
        for item in items {
            options.set(item)?;
        }
        options.read.check().map_err(anyhow::Error::msg)?;
        Ok(options)
    }

    /// Sets one option, given as `name` or `name=value`.
    pub fn set(&mut self, item: &OsStr) -> anyhow::Result<()> {
        let bytes = item.as_bytes();
        ensure!(
            bytes != b"remount",
            "h5logfs cannot change the options of a mount: unmount it, then mount it again"
        );
        let (name, value) = match bytes.iter().position(|b| *b == b'=') {
            Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
            None => (bytes, None),
        };
        let name = String::from_utf8_lossy(name);
        let option = MountOption::named(&name);
        match (option.map(|o| o.value), value) {
            (Some(Value::Flag(set)), None) => set(self, true),
            (Some(Value::Given { set, .. }), Some(value)) => set(self, &name, value)?,
            (Some(Value::Given { .. }), None) => {
                bail!("mount option {name} needs a value: {name}=…")
            }
            (Some(Value::Flag(_)), Some(_)) => {
                bail!("mount option {}: {name} takes no value", item.display())
            }
            (None, _) => match name.strip_prefix("no").and_then(MountOption::named) {
                Some(MountOption {
                    value: Value::Flag(set),
                    ..
                }) if value.is_none() => set(self, false),
                _ => ensure!(is_ignored(&name, value), UnknownOption::new(item, &name)),
            },
        }
        Ok(())
    }
}

fn is_ignored(name: &str, value: Option<&[u8]>) -> bool {
    match value {
        Some(_) => name == "comment" || name.starts_with("x-"),
        None => IGNORED.contains(&name) || name.starts_with("x-"),
    }
}

/// A separate type, because `mount -s` skips unknown options.
#[derive(Debug, thiserror::Error)]
#[error("unknown mount option {option}{suggestion}")]
pub struct UnknownOption {
    option: String,
    suggestion: String,
}

impl UnknownOption {
    fn new(option: &OsStr, name: &str) -> Self {
        let names = all().map(|option| option.name).chain(IGNORED);
        UnknownOption {
            option: option.display().to_string(),
            suggestion: did_you_mean(name, names.filter(|name| !name.is_empty())),
        }
    }
}

/// A number from 1 to `most`.
fn number(option: &str, value: &[u8], most: usize) -> anyhow::Result<usize> {
    let text = String::from_utf8_lossy(value);
    text.parse()
        .ok()
        .filter(|n| (1..=most).contains(n))
        .with_context(|| format!("{option}={text}: not a number from 1 to {most}"))
}

#[cfg(test)]
mod tests {
    use h5logfs_catalog::index_dir::IndexDir;
    use h5logfs_log::scan::{Chunking, LAYOUT_OPTIONS, Settings};
    use h5logfs_view::cache::MemoryLimits;

    use super::*;

    fn parse(lists: &[&str]) -> anyhow::Result<MountOptions> {
        let lists: Vec<OsString> = lists.iter().map(OsString::from).collect();
        MountOptions::parse(split(&lists))
    }

    fn complaint(list: &str) -> String {
        parse(&[list]).unwrap_err().to_string()
    }

    #[test]
    fn nothing_given_means_the_defaults() {
        let options = parse(&[]).unwrap();
        assert_eq!(options, MountOptions::default());
        assert_eq!(options.read.memory.cache_size, 256 * 1024 * 1024);
        assert_eq!(options.read.memory.index_memory, 256 * 1024 * 1024);
        assert!((4..=64).contains(&options.threads));
    }

    #[test]
    fn options_may_be_joined_or_repeated() {
        let options = parse(&[
            "allow_other,cache_size=2G,chunk=8M",
            "threads=3,auto_unmount,log_file=/tmp/a=b,index_memory=1G",
            "index_dir=/scratch/kept,index_dir_size=20M,read_cpu=7,bp=directory,tiles=joined",
        ])
        .unwrap();
        assert_eq!(
            options,
            MountOptions {
                allow_other: true,
                auto_unmount: true,
                threads: 3,
                read_cpu: Duration::from_secs(7),
                passthrough: true,
                directory_logs: DirectoryLogs::Directories,
                tiles: Tiles::Joined,
                log_file: Some("/tmp/a=b".into()),
                read: ReadOptions {
                    memory: MemoryLimits {
                        cache_size: 2 << 30,
                        index_memory: 1 << 30,
                    },
                    settings: Settings {
                        most: 1 << 30,
                        ..Chunking::Size(8 << 20).into()
                    },
                    index_dir: IndexDir::At("/scratch/kept".into()),
                    index_dir_size: 20 << 20,
                    ..read_options()
                },
            }
        );
    }

    #[test]
    fn sizes_have_binary_suffixes() {
        let size_of = |text: &str| {
            let both = format!("cache_size={text},index_memory={text}");
            let MemoryLimits {
                cache_size,
                index_memory,
            } = parse(&[&both]).unwrap().read.memory;
            assert_eq!(cache_size, index_memory);
            cache_size
        };
        assert_eq!(size_of("16777216"), 16 << 20);
        assert_eq!(size_of("70000k"), 70_000 << 10);
        assert_eq!(size_of("64M"), 64 << 20);
        assert_eq!(size_of("1T"), 1 << 40);
        for name in ["cache_size", "index_memory", "index_dir_size"] {
            let complaint = complaint(&format!("{name}=16383K"));
            let words = format!("{name}=16383K: less than 16M");
            assert!(complaint.contains(&words), "{complaint}");
        }
        for bad in ["", "M", "1P", "-1", "1.5G", "99999999999G", "1ü"] {
            let complaint = complaint(&format!("cache_size={bad}"));
            assert!(complaint.contains("not a size"), "{complaint}");
        }
    }

    #[test]
    fn nothing_is_kept_where_that_is_said() {
        let dir = |list: &str| parse(&[list]).unwrap().read.index_dir;
        assert_eq!(dir("ro"), IndexDir::Usual);
        assert_eq!(dir("index_dir=none"), IndexDir::None);
        assert_eq!(dir("index_dir=./none"), IndexDir::At("./none".into()));
    }

    #[test]
    fn chunks_are_chosen_or_have_a_size() {
        let chunk_of = |text: &str| {
            let options = parse(&[&format!("chunk={text}")]).unwrap();
            options.read.settings.chunking
        };
        assert_eq!(chunk_of("auto"), Chunking::Auto);
        assert_eq!(chunk_of("4K"), Chunking::Size(4 << 10));
        assert_eq!(chunk_of("1048576"), Chunking::Size(1 << 20));
        for bad in ["", "tile", "4095", "1T", "0", "-1"] {
            let complaint = complaint(&format!("chunk={bad}"));
            assert!(complaint.contains("from 4K to 1G"), "{complaint}");
        }
        assert!(complaint("chunk").contains("chunk=…"));
        assert!(complaint("chunk=1G").contains("cache_size"));
        assert!(parse(&["chunk=1G,cache_size=2G"]).is_ok());
    }

    #[test]
    fn the_number_of_threads_has_bounds() {
        for bad in ["0", "65", "many", ""] {
            let complaint = complaint(&format!("threads={bad}"));
            assert!(complaint.contains("from 1 to 64"), "{complaint}");
        }
    }

    #[test]
    fn what_mount_adds_is_ignored() {
        let list = "rw,dev,suid,,noatime,_netdev,nofail,user,defaults,x-systemd.automount,\
                    x-gvfs-name=logs,comment=mine,default_permissions";
        assert_eq!(parse(&[list]).unwrap(), MountOptions::default());
    }

    #[test]
    fn unknown_options_are_named() {
        for unknown in [
            "allow_others",
            "direct_io",
            "fsname=x",
            "allow_other=1",
            "rw=1",
        ] {
            let complaint = complaint(&format!("rw,{unknown}"));
            assert!(complaint.contains(unknown), "{complaint}");
        }
    }

    #[test]
    fn what_was_probably_meant_is_suggested() {
        for (unknown, meant) in [
            ("allow_others", "allow_other"),
            ("cache_sise=2G", "cache_size"),
            ("log-file=/b", "log_file"),
            ("noatimes", "noatime"),
        ] {
            let expected = format!("unknown mount option {unknown}; did you mean {meant}?");
            assert_eq!(complaint(unknown), expected);
        }
        assert_eq!(complaint("frobnicate"), "unknown mount option frobnicate");
    }

    #[test]
    fn flags_can_be_taken_back() {
        let options = parse(&["allow_other,auto_unmount", "noallow_other"]).unwrap();
        assert!(!options.allow_other);
        assert!(options.auto_unmount);
        assert!(complaint("nocache_size").contains("nocache_size"));
        assert!(complaint("noallow_other=1").contains("noallow_other"));
    }

    /// docs/operations.md lists exactly these options, with the same texts.
    #[test]
    fn the_table_in_the_documents_is_this_one() {
        let document = include_str!("../../../docs/operations.md");
        let (_, section) = document.split_once("\n## Options\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let rows: Vec<&str> = section.lines().filter(|l| l.starts_with("| `")).collect();
        let row = |o: MountOption| {
            let usage = o.usage().replace('|', "\\|");
            format!("| `{usage}` | {} | {} |", o.help, o.default)
        };
        assert_eq!(rows, all().map(row).collect::<Vec<_>>());
    }

    #[test]
    fn directories_that_are_logs_are_shown_as_files_or_as_they_are() {
        let shown = |list: &str| parse(&[list]).unwrap().directory_logs;
        assert_eq!(shown("bp=file"), DirectoryLogs::Files);
        assert_eq!(shown("bp=directory"), DirectoryLogs::Directories);
        assert!(complaint("bp=both").contains("file or directory"));
    }

    #[test]
    fn sets_are_shown_as_files_or_as_their_members() {
        let shown = |list: &str| parse(&[list]).unwrap().tiles;
        assert_eq!(shown("tiles=joined"), Tiles::Joined);
        assert_eq!(shown("tiles=both"), Tiles::Both);
        assert_eq!(shown("tiles=members"), Tiles::Members);
        assert!(complaint("tiles=off").contains("joined, both or members"));
    }

    #[test]
    fn a_missing_value_is_named() {
        let options = ["threads", "index_dir", "index_dir_size"];
        for option in options.into_iter().chain(LAYOUT_OPTIONS.map(|o| o.name)) {
            assert!(complaint(option).contains(&format!("{option}=…")));
        }
        assert!(complaint("log_file=").contains("log_file="));
        assert!(complaint("index_dir=").contains("index_dir="));
    }
}
