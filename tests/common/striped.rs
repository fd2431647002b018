//! HDF5 files in several parts, written by HDF5's own drivers, each with the equivalent single file.

use std::fs;
use std::path::{Path, PathBuf};

use super::readers::project;

/// One file in several parts.
pub struct Case {
    /// Directory in the corpus.
    pub name: &'static str,
    /// The file that a user opens, relative to that directory.
    pub entry: &'static str,
    /// Directories with its subfiles, relative to that directory, for the reader's option.
    pub elsewhere: &'static [&'static str],
}

const fn case(name: &'static str, entry: &'static str) -> Case {
    Case {
        name,
        entry,
        elsewhere: &[],
    }
}

/// All files that can be presented.
pub const CASES: [Case; 13] = [
    case("attrs_4", "sub/run.h5"),
    case("chunk_3_ioc1", "data.h5"),
    case("contig_2", "data.h5"),
    case("extend_3", "data.h5"),
    case("killed_flushed", "data.h5"),
    case("odd_stripe_6", "data.h5"),
    case("one_subfile", "data.h5"),
    case("reopen_2jobs", "data.h5"),
    case("v220_zero_stub", "data.h5"),
    Case {
        elsewhere: &["nodelocal", "conf"],
        ..case("config_prefix", "data.h5")
    },
    Case {
        elsewhere: &["fast"],
        ..case("prefix_dir", "data.h5")
    },
    case("fam", "fam_00000.h5"),
    case("famL", "famL_000.h5"),
];

impl Case {
    /// The directory of the parts.
    pub fn dir(&self) -> PathBuf {
        let name = if self.name.starts_with("fam") {
            "family"
        } else {
            self.name
        };
        corpus().join(name)
    }

    /// The file that a user opens.
    pub fn path(&self) -> PathBuf {
        self.dir().join(self.entry)
    }

    /// The equivalent single file.
    pub fn expected(&self) -> PathBuf {
        corpus().join(format!("{}.expected.h5", self.name))
    }

    /// The option that a reader needs.
    pub fn options(&self) -> String {
        let dir = |name: &&str| self.dir().join(name).display().to_string();
        let dirs: Vec<String> = self.elsewhere.iter().map(dir).collect();
        if dirs.is_empty() {
            return String::new();
        }
        format!("subfile_dir={}", dirs.join(":"))
    }
}

/// The corpus.
pub fn corpus() -> PathBuf {
    project().join("tests/corpus-striped")
}

/// Copies a directory of the corpus to the new directory `to`.
pub fn copy(name: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(corpus().join(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}
