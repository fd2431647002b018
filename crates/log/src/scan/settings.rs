//! The options of a scan.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::choice::Choice;
use super::shape::Chunking;
use crate::journal::ShownFlush;
use crate::journal::visible::MOST_DATA;
use crate::source_dir::bytes_of_paths;
use h5logfs_common::fault::Fault;

/// All options that decide the outcome of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Chunk shapes of datasets whose log records none.
    pub chunking: Chunking,
    /// Directories with logs and subfiles of files that lie elsewhere, in the order of
    /// [`SourceDir::all`](crate::source_dir::SourceDir::all).
    #[serde(with = "bytes_of_paths")]
    pub log_dirs: Vec<PathBuf>,
    /// Whether files that could have a log and have none are presented, too.
    pub without_logs: bool,
    /// Whether an attribute of the root says which data are known to be missing.
    pub incomplete_attribute: bool,
    /// Whether unflushed data of an unclosed log are shown, too.
    pub unflushed: bool,
    /// The state of an unclosed log that is shown.
    pub shown_flush: ShownFlush,
    /// Objects and filters of a copy of the log.
    pub choice: Choice,
    /// Place of the image without its superblock: see [`Snapshot::image_at`](crate::snapshot::Snapshot::image_at). Only
    /// a closed log in an HDF5 file can have its image there. Any other log has it as usual.
    pub image_at: Option<u64>,
    /// The most bytes of data that are compared with their checksums when an unclosed log is opened.
    pub compared: u64,
    /// The most bytes of a snapshot. A snapshot that would have more leaves out elements and values of attributes that
    /// lie among the metadata.
    pub most: u64,
}

/// Default of the option `index_memory`, in bytes.
pub const INDEX_MEMORY: u64 = 256 << 20;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            chunking: Chunking::default(),
            log_dirs: Vec::new(),
            without_logs: false,
            incomplete_attribute: true,
            unflushed: false,
            shown_flush: ShownFlush::Newest,
            choice: Choice::default(),
            image_at: None,
            compared: MOST_DATA,
            most: INDEX_MEMORY,
        }
    }
}

/// An option of one or several layouts, which takes a value.
#[derive(Debug, Clone, Copy)]
pub struct LayoutOption {
    /// Name of the option on the command line.
    pub name: &'static str,
    /// The form of the value, for the help text.
    pub form: &'static str,
    /// One sentence for the help text.
    pub help: &'static str,
    /// The default, in words.
    pub default: &'static str,
    /// Whether repeated options add up. Otherwise the last one counts.
    pub adds_up: bool,
}

/// All options of layouts.
pub const LAYOUT_OPTIONS: [LayoutOption; 7] = [
    LayoutOption {
        name: BURST_DIR,
        form: "DIR[:DIR…]",
        help: "directories of PnetCDF's burst-buffer logs that are not beside their netCDF file; may be repeated",
        default: "none",
        adds_up: true,
    },
    LayoutOption {
        name: SUBFILE_DIR,
        form: "DIR[:DIR…]",
        help: "directories of HDF5 subfiles and their configurations that are not beside their stub; may be repeated",
        default: "those of H5FD_SUBFILING_SUBFILE_PREFIX and H5FD_SUBFILING_CONFIG_FILE_PREFIX",
        adds_up: true,
    },
    LayoutOption {
        name: NETCDF,
        form: "hdf5|plain",
        help: "hdf5: netCDF classic files without logs are shown as netCDF-4, too",
        default: "plain",
        adds_up: false,
    },
    LayoutOption {
        name: INCOMPLETE_ATTRIBUTE,
        form: "on|off",
        help: "on: if data of a log are known to be missing, the attribute _h5logfs_incomplete of the root group says which",
        default: "on",
        adds_up: false,
    },
    LayoutOption {
        name: SHOW_UNFLUSHED,
        form: "on|off",
        help: "on: an unclosed log also shows what its ranks wrote after the last complete flush, as far as each of them got",
        default: "off",
        adds_up: false,
    },
    LayoutOption {
        name: AT_FLUSH,
        form: "NUMBER",
        help: "shows an unclosed log as this flush left it",
        default: "the newest",
        adds_up: false,
    },
    LayoutOption {
        name: AT_TIME,
        form: "TIME",
        help: "shows an unclosed log as it was at this time, after the last complete flush: 2026-03-01T12:00:00 (local \
            time) or 2026-03-01T12:00:00Z",
        default: "the newest flush",
        adds_up: false,
    },
];

const BURST_DIR: &str = "burst_dir";
const SUBFILE_DIR: &str = "subfile_dir";
/// Variables that tell HDF5's own driver where subfiles and their configurations lie. They are the defaults of an
/// option.
pub const SUBFILE_VARIABLES: [&str; 2] = [
    "H5FD_SUBFILING_SUBFILE_PREFIX",
    "H5FD_SUBFILING_CONFIG_FILE_PREFIX",
];
const NETCDF: &str = "netcdf";
const INCOMPLETE_ATTRIBUTE: &str = "incomplete_attribute";
const SHOW_UNFLUSHED: &str = "show_unflushed";
const AT_FLUSH: &str = "at_flush";
const AT_TIME: &str = "at_time";

impl Settings {
    /// The defaults in an environment, whose variables `variable` looks up. Directories that are not there do not
    /// count.
    pub fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let dirs = SUBFILE_VARIABLES.iter().filter_map(|name| variable(name));
        let dirs = dirs.map(PathBuf::from).filter(|dir| dir.is_dir());
        let mut settings = Settings::default();
        settings.log_dirs.extend(dirs);
        settings.log_dirs.dedup();
        settings
    }

    /// Sets one of [`LAYOUT_OPTIONS`]. Fails with the reason where the value is not valid.
    pub fn set(&mut self, option: &str, value: &[u8]) -> Result<(), Fault> {
        match (option, value) {
            (BURST_DIR | SUBFILE_DIR, _) => {
                let dirs = value.split(|b| *b == b':');
                let dirs: Vec<_> = dirs.filter(|dir| !dir.is_empty()).collect();
                if dirs.is_empty() {
                    return Err(Fault::Refused(format!("{option}= has no directory")));
                }
                let dirs = dirs.into_iter().map(OsStr::from_bytes);
                self.log_dirs.extend(dirs.map(PathBuf::from));
            }
            (NETCDF, b"hdf5") => self.without_logs = true,
            (NETCDF, b"plain") => self.without_logs = false,
            (NETCDF, _) => {
                let value = String::from_utf8_lossy(value);
                return Err(Fault::Refused(format!(
                    "{NETCDF}={value}: neither `hdf5` nor `plain`"
                )));
            }
            (INCOMPLETE_ATTRIBUTE, b"on") => self.incomplete_attribute = true,
            (INCOMPLETE_ATTRIBUTE, b"off") => self.incomplete_attribute = false,
            (INCOMPLETE_ATTRIBUTE, _) => {
                let value = String::from_utf8_lossy(value);
                return Err(Fault::Refused(format!(
                    "{INCOMPLETE_ATTRIBUTE}={value}: neither `on` nor `off`"
                )));
            }
            (SHOW_UNFLUSHED, b"on") => self.unflushed = true,
            (SHOW_UNFLUSHED, b"off") => self.unflushed = false,
            (SHOW_UNFLUSHED, _) => {
                let value = String::from_utf8_lossy(value);
                return Err(Fault::Refused(format!(
                    "{SHOW_UNFLUSHED}={value}: neither `on` nor `off`"
                )));
            }
            (AT_FLUSH | AT_TIME, _) => {
                let text = String::from_utf8_lossy(value);
                let parse = match option {
                    AT_FLUSH => ShownFlush::of_flush,
                    _ => ShownFlush::of_time,
                };
                self.shown_flush =
                    parse(&text).map_err(|reason| Fault::Refused(format!("{option}={reason}")))?;
            }
            _ => return Err(Fault::Refused(format!("unknown option {option}"))),
        }
        Ok(())
    }
}

impl From<Chunking> for Settings {
    fn from(chunking: Chunking) -> Self {
        Settings {
            chunking,
            ..Settings::default()
        }
    }
}

/// Different settings have different texts.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chunk={}", self.chunking)?;
        write!(f, ", without_logs={}", self.without_logs)?;
        write!(f, ", {INCOMPLETE_ATTRIBUTE}={}", self.incomplete_attribute)?;
        write!(f, ", log_folders={:?}", self.log_dirs)?;
        if self.unflushed {
            write!(f, ", {SHOW_UNFLUSHED}=on")?;
        }
        if self.shown_flush != ShownFlush::Newest {
            write!(f, ", moment={}", self.shown_flush)?;
        }
        if self.choice != Choice::default() {
            write!(f, ", {}", self.choice)?;
        }
        if let Some(address) = self.image_at {
            write!(f, ", image_at={address}")?;
        }
        if self.compared != MOST_DATA {
            write!(f, ", compared={}", self.compared)?;
        }
        if self.most != INDEX_MEMORY {
            write!(f, ", most={}", self.most)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_environment_names_directories_of_subfiles() {
        let dirs = |subfiles: &str, configurations: &str| {
            let variable = |name: &str| match name {
                "H5FD_SUBFILING_SUBFILE_PREFIX" => Some(subfiles.into()),
                "H5FD_SUBFILING_CONFIG_FILE_PREFIX" => Some(configurations.into()),
                _ => None,
            };
            Settings::of_environment(variable).log_dirs
        };
        assert_eq!(dirs("/", "/tmp"), [Path::new("/"), Path::new("/tmp")]);
        assert_eq!(dirs("/", "/"), [Path::new("/")]);
        assert!(dirs("", "/no/such/directory").is_empty());
    }

    #[test]
    fn options_are_set_by_their_names() {
        let mut settings = Settings::default();
        settings.set("burst_dir", b"/a:b::/c d").unwrap();
        settings.set("burst_dir", b"e").unwrap();
        settings.set("subfile_dir", b"f:g").unwrap();
        let dirs: Vec<PathBuf> = ["/a", "b", "/c d", "e", "f", "g"].map(PathBuf::from).into();
        assert_eq!(settings.log_dirs, dirs);
        settings.set("netcdf", b"hdf5").unwrap();
        assert!(settings.without_logs);
        settings.set("netcdf", b"plain").unwrap();
        assert!(!settings.without_logs && settings.incomplete_attribute);
        settings.set("incomplete_attribute", b"off").unwrap();
        assert!(!settings.incomplete_attribute);
        settings.set("incomplete_attribute", b"on").unwrap();
        assert!(settings.incomplete_attribute && !settings.unflushed);
        settings.set("show_unflushed", b"on").unwrap();
        assert!(settings.unflushed);
        settings.set("show_unflushed", b"off").unwrap();
        assert!(!settings.unflushed);
        settings.set("at_flush", b"37").unwrap();
        assert_eq!(settings.shown_flush, ShownFlush::Flush(37));
        settings.set("at_time", b"1970-01-01T00:00:01.5Z").unwrap();
        assert_eq!(settings.shown_flush, ShownFlush::Time(1500));
        settings.set("at_time", b"2026-03-01T12:00").unwrap();
        for (option, value) in [
            ("burst_dir", ":"),
            ("subfile_dir", ""),
            ("netcdf", "4"),
            ("incomplete_attribute", "1"),
            ("show_unflushed", "yes"),
            ("at_flush", "0"),
            ("at_time", "noon"),
            ("other", "1"),
        ] {
            let complaint = settings
                .set(option, value.as_bytes())
                .unwrap_err()
                .to_string();
            assert!(complaint.contains(option), "{complaint}");
        }
    }

    #[test]
    fn a_message_carries_paths_that_are_no_text() {
        let settings = Settings {
            log_dirs: vec![OsStr::from_bytes(b"/\xff").into(), "b".into()],
            ..Settings::default()
        };
        let message = postcard::to_stdvec(&settings).unwrap();
        assert_eq!(postcard::from_bytes(&message), Ok(settings));
    }

    #[test]
    fn settings_that_differ_are_written_differently() {
        let mut written = vec![Settings::default().to_string()];
        written.push(Settings::from(Chunking::Size(4096)).to_string());
        for (option, value) in [
            ("burst_dir", "a"),
            ("burst_dir", "a:b"),
            ("netcdf", "hdf5"),
            ("incomplete_attribute", "off"),
            ("show_unflushed", "on"),
            ("at_flush", "1"),
            ("at_time", "1970-01-01T00:00:00.001Z"),
        ] {
            let mut settings = Settings::default();
            settings.set(option, value.as_bytes()).unwrap();
            written.push(settings.to_string());
        }
        for choice in [
            Choice::only(["/a"]),
            Choice::default().with_filters(Vec::new()),
        ] {
            let settings = Settings {
                choice,
                ..Settings::default()
            };
            written.push(settings.to_string());
        }
        for address in [0, 8] {
            let settings = Settings {
                image_at: Some(address),
                ..Settings::default()
            };
            written.push(settings.to_string());
        }
        let settings = Settings {
            compared: 0,
            ..Settings::default()
        };
        written.push(settings.to_string());
        written.sort();
        written.dedup();
        assert_eq!(written.len(), 14);
    }
}
