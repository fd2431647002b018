//! Mount options, as `-o` and /etc/fstab give them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::fs::IndexDir;
use crate::scan::{Chunking, LAYOUT_OPTIONS, Settings};
use crate::view::cache::MemoryLimits;
use crate::worker;

const DEFAULT_INDEX_DIR_SIZE: u64 = 1 << 30;
const MAX_THREADS: usize = 64;

/// What mount(8), mount.fuse3, systemd and fstab add and the mount does not depend on: it is
/// read-only, without devices and set-uid programs, whatever they say.
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
    pub memory: MemoryLimits,
    pub settings: Settings,
    /// What a scan may take.
    pub scans: worker::Limits,
    pub threads: usize,
    pub log_file: Option<PathBuf>,
    /// Where indexes are kept on disk.
    pub index_dir: IndexDir,
    /// The most that may be kept there, in bytes.
    pub index_dir_size: u64,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            allow_other: false,
            auto_unmount: false,
            memory: MemoryLimits::default(),
            settings: Settings::default(),
            scans: worker::Limits::default(),
            threads: default_threads(),
            log_file: None,
            index_dir: IndexDir::Usual,
            index_dir_size: DEFAULT_INDEX_DIR_SIZE,
        }
    }
}

/// Requests wait for storage more than for the processor, so there are more threads than cores.
fn default_threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    (2 * cores).clamp(4, MAX_THREADS)
}

impl MountOptions {
    /// Each of `lists` is the value of one `-o`; later options win.
    pub fn parse(lists: &[OsString]) -> anyhow::Result<Self> {
        let mut options = MountOptions::default();
        for list in lists {
            for option in list.as_bytes().split(|b| *b == b',') {
                options.set(option)?;
            }
        }
        options.check_chunk()?;
        Ok(options)
    }

    /// At least two chunks have to fit into the cache.
    fn check_chunk(&self) -> anyhow::Result<()> {
        if let Chunking::Size(bytes) = self.settings.chunking {
            ensure!(
                bytes <= self.memory.cache_size / 2,
                "chunk={bytes}: more than half of cache_size, which is {}",
                self.memory.cache_size
            );
        }
        Ok(())
    }

    fn set(&mut self, option: &[u8]) -> anyhow::Result<()> {
        let (name, value) = match option.iter().position(|b| *b == b'=') {
            Some(at) => (&option[..at], Some(&option[at + 1..])),
            None => (option, None),
        };
        let name = String::from_utf8_lossy(name).into_owned();
        match (name.as_str(), value) {
            ("allow_other", None) => self.allow_other = true,
            ("auto_unmount", None) => self.auto_unmount = true,
            ("cache_size", Some(value)) => self.memory.cache_size = size(&name, value)?,
            ("index_memory", Some(value)) => self.memory.index_memory = size(&name, value)?,
            ("chunk", Some(value)) => self.settings.chunking = chunking(value)?,
            ("index_dir", Some(value)) => self.index_dir = index_dir(value)?,
            ("index_dir_size", Some(value)) => self.index_dir_size = size(&name, value)?,
            ("scan_memory", Some(value)) => self.scans.memory = scan_memory(value)?,
            ("scan_cpu", Some(value)) => self.scans.cpu = seconds(&name, value)?,
            ("scan_time", Some(value)) => self.scans.time = seconds(&name, value)?,
            ("scan_workers", Some(value)) => self.scans.workers = scan_workers(value)?,
            ("scan_user", Some(value)) => self.scans.user = Some(text(&name, value)?),
            ("threads", Some(value)) => self.threads = threads(value)?,
            ("log_file", Some(value)) => self.log_file = Some(path("log_file", value)?),
            (name, Some(value)) if LAYOUT_OPTIONS.contains(&name) => {
                self.settings.set(name, value).map_err(anyhow::Error::msg)?;
            }
            (name, None) if LAYOUT_OPTIONS.contains(&name) => bail!(needs_value(name)),
            (
                "cache_size" | "index_memory" | "chunk" | "index_dir" | "index_dir_size"
                | "scan_memory" | "scan_cpu" | "scan_time" | "scan_workers" | "scan_user"
                | "threads" | "log_file",
                None,
            ) => bail!(needs_value(&name)),
            ("comment", Some(_)) => {}
            (name, None) if IGNORED.contains(&name) => {}
            (name, _) if name.starts_with("x-") => {}
            _ => bail!(
                "unknown mount option {}",
                OsStr::from_bytes(option).display()
            ),
        }
        Ok(())
    }
}

fn needs_value(name: &str) -> String {
    format!("mount option {name} needs a value: {name}=…")
}

/// Room for some chunks of the usual size, for the tables that lead to them; likewise on disk.
const SMALLEST_SIZE: u64 = 16 << 20;

/// A number of bytes, with a binary suffix or without.
fn size(name: &str, value: &[u8]) -> anyhow::Result<u64> {
    let text = String::from_utf8_lossy(value);
    let size = crate::cli::parse_size(&text).map_err(|e| anyhow::anyhow!("{name}={e}"))?;
    ensure!(
        size >= SMALLEST_SIZE,
        "{name}={text}: less than 16M, with which little can be done"
    );
    Ok(size)
}

fn index_dir(value: &[u8]) -> anyhow::Result<IndexDir> {
    match value {
        b"none" => Ok(IndexDir::None),
        _ => Ok(IndexDir::At(path("index_dir", value)?)),
    }
}

fn chunking(value: &[u8]) -> anyhow::Result<Chunking> {
    let text = String::from_utf8_lossy(value);
    crate::cli::parse_chunking(&text).map_err(|e| anyhow::anyhow!("chunk={e}"))
}

/// Address space for a scan.
fn scan_memory(value: &[u8]) -> anyhow::Result<u64> {
    let memory = size("scan_memory", value)?;
    ensure!(
        memory >= worker::SMALLEST_MEMORY,
        "scan_memory={memory}: less than 256M, with which libhdf5 cannot be loaded"
    );
    Ok(memory)
}

fn scan_workers(value: &[u8]) -> anyhow::Result<usize> {
    let text = String::from_utf8_lossy(value);
    text.parse()
        .ok()
        .filter(|n| (1..=worker::MOST_WORKERS).contains(n))
        .with_context(|| {
            let most = worker::MOST_WORKERS;
            format!("scan_workers={text}: not a number from 1 to {most}")
        })
}

/// A week is as good as for ever.
const MOST_SECONDS: u64 = 7 * 24 * 3600;

fn seconds(option: &str, value: &[u8]) -> anyhow::Result<Duration> {
    let text = String::from_utf8_lossy(value);
    let seconds = text.parse().ok();
    seconds
        .filter(|n| (1..=MOST_SECONDS).contains(n))
        .map(Duration::from_secs)
        .with_context(|| {
            format!("{option}={text}: not a number of seconds from 1 to {MOST_SECONDS}")
        })
}

fn text(option: &str, value: &[u8]) -> anyhow::Result<String> {
    let text = std::str::from_utf8(value).with_context(|| format!("{option}=: not a text"))?;
    ensure!(!text.is_empty(), "{option}= has no value");
    Ok(text.to_owned())
}

fn threads(value: &[u8]) -> anyhow::Result<usize> {
    let text = String::from_utf8_lossy(value);
    text.parse()
        .ok()
        .filter(|n| (1..=MAX_THREADS).contains(n))
        .with_context(|| format!("threads={text}: not a number from 1 to {MAX_THREADS}"))
}

fn path(option: &str, value: &[u8]) -> anyhow::Result<PathBuf> {
    ensure!(!value.is_empty(), "{option}= has no path");
    Ok(PathBuf::from(OsString::from_vec(value.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lists: &[&str]) -> anyhow::Result<MountOptions> {
        let lists: Vec<OsString> = lists.iter().map(OsString::from).collect();
        MountOptions::parse(&lists)
    }

    fn complaint(list: &str) -> String {
        parse(&[list]).unwrap_err().to_string()
    }

    #[test]
    fn nothing_given_means_the_defaults() {
        let options = parse(&[]).unwrap();
        assert_eq!(options, MountOptions::default());
        assert_eq!(options.memory.cache_size, 256 * 1024 * 1024);
        assert_eq!(options.memory.index_memory, 256 * 1024 * 1024);
        assert!((4..=64).contains(&options.threads));
    }

    #[test]
    fn options_may_be_joined_or_repeated() {
        let options = parse(&[
            "allow_other,cache_size=2G,chunk=8M",
            "threads=3,auto_unmount,log_file=/tmp/a=b,index_memory=1G",
            "index_dir=/scratch/kept,index_dir_size=20M",
        ])
        .unwrap();
        assert_eq!(
            options,
            MountOptions {
                allow_other: true,
                auto_unmount: true,
                memory: MemoryLimits {
                    cache_size: 2 << 30,
                    index_memory: 1 << 30,
                },
                settings: Chunking::Size(8 << 20).into(),
                scans: worker::Limits::default(),
                threads: 3,
                log_file: Some("/tmp/a=b".into()),
                index_dir: IndexDir::At("/scratch/kept".into()),
                index_dir_size: 20 << 20,
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
            } = parse(&[&both]).unwrap().memory;
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
        let dir = |list: &str| parse(&[list]).unwrap().index_dir;
        assert_eq!(dir("ro"), IndexDir::Usual);
        assert_eq!(dir("index_dir=none"), IndexDir::None);
        assert_eq!(dir("index_dir=./none"), IndexDir::At("./none".into()));
    }

    #[test]
    fn chunks_are_chosen_or_have_a_size() {
        let chunk_of = |text: &str| {
            let options = parse(&[&format!("chunk={text}")]).unwrap();
            options.settings.chunking
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
    fn a_missing_value_is_named() {
        let options = ["threads", "index_dir", "index_dir_size"];
        for option in options.into_iter().chain(LAYOUT_OPTIONS) {
            assert!(complaint(option).contains(&format!("{option}=…")));
        }
        assert!(complaint("log_file=").contains("log_file="));
        assert!(complaint("index_dir=").contains("index_dir="));
    }
}
