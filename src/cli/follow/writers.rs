//! The processes of this node that have files of a log open for writing. Layouts without a journal do not tell whether their job
//! still runs.

use std::fs;
use std::path::{Path, PathBuf};

use h5logfs_log::log_dir;
use rustix::fs::OFlags;

/// The files of a log that its job writes.
#[derive(Debug, Default)]
pub struct Files {
    files: Vec<PathBuf>,
    /// The directory of a log that is a directory: a job may make further files in it.
    directory: Option<PathBuf>,
}

impl Files {
    /// `log`: the user's name for the log. `files`: those that hold its bytes.
    pub fn of(log: &Path, files: impl IntoIterator<Item = PathBuf>) -> Self {
        let real = |path: PathBuf| path.canonicalize().unwrap_or(path);
        Files {
            files: files.into_iter().map(real).collect(),
            directory: log_dir::named_by(log).map(real),
        }
    }

    /// Whether a process of this node has one of them open for writing. Users see their own processes only, root all of them.
    pub fn have_writer(&self) -> bool {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        processes
            .filter(|entry| {
                let name = entry.file_name();
                name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
            })
            .any(|process| self.are_written_by(&process.path()))
    }

    fn are_written_by(&self, process: &Path) -> bool {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten();
        open.flatten().any(|descriptor| {
            let name = descriptor.file_name();
            let file = fs::read_link(descriptor.path());
            file.is_ok_and(|file| self.have(&file))
                && is_to_write(&process.join("fdinfo").join(name))
        })
    }

    fn have(&self, file: &Path) -> bool {
        let inside = self.directory.as_ref();
        inside.is_some_and(|directory| file.starts_with(directory))
            || self.files.iter().any(|own| own == file)
    }
}

/// Whether a descriptor, of which the kernel tells this (proc_pid_fdinfo(5)), is open for writing.
fn is_to_write(about: &Path) -> bool {
    let about = fs::read_to_string(about).unwrap_or_default();
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    let flags = OFlags::from_bits_retain(flags.unwrap_or(0));
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_writer_is_one_that_can_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part.nc");
        let writer = File::create(&path).unwrap();
        let other = File::create(dir.path().join("other.nc")).unwrap();
        let files = || Files::of(&dir.path().join("run.nc"), [path.clone()]);
        assert!(files().have_writer());
        drop(writer);
        let reader = File::open(&path).unwrap();
        assert!(!files().have_writer());
        drop((reader, other));
    }
}
