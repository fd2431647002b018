//! The sources of virtual datasets, in logs and in plain files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::{Dataset, Log, Object};
use h5logfs_common::error::Result;
use h5logfs_common::fault::Fault;
use h5logfs_common::lru::Lru;
use h5logfs_hdf5_format::Mapping;

/// Largest number of open files, and of open datasets in them.
const MOST_FILES: u64 = 16;
const MOST_DATASETS: u64 = 64;
/// Largest depth of nesting: a source may be virtual, too.
const MOST_DEPTH: u8 = 8;

/// The names of a file and of a dataset in it, which may have a placeholder for a number (`%b`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    file: Arc<[u8]>,
    dataset: Arc<[u8]>,
    are_numbered: bool,
}

/// A file, and a dataset in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    file: Vec<u8>,
    dataset: String,
}

impl Names {
    pub fn of(mapping: &Mapping) -> std::result::Result<Self, Fault> {
        let (file, dataset) = (has_number(&mapping.file)?, has_number(&mapping.dataset)?);
        Ok(Names {
            file: Arc::clone(&mapping.file),
            dataset: Arc::clone(&mapping.dataset),
            are_numbered: file || dataset,
        })
    }

    /// Whether a name has a placeholder.
    pub fn are_numbered(&self) -> bool {
        self.are_numbered
    }

    /// The names with this number.
    pub fn numbered(&self, number: u64) -> Name {
        Name {
            file: with_number(&self.file, number),
            dataset: String::from_utf8_lossy(&with_number(&self.dataset, number)).into_owned(),
        }
    }
}

/// Whether a name has a placeholder. Fails for any `%` other than `%b` and `%%`, which stands for a percent sign.
fn has_number(name: &[u8]) -> std::result::Result<bool, Fault> {
    let mut found = false;
    let mut rest = name.iter();
    while rest.any(|byte| *byte == b'%') {
        match rest.next() {
            Some(b'b') => found = true,
            Some(b'%') => {}
            _ => {
                let name = String::from_utf8_lossy(name);
                return Err(format!("a mapping with the name {name}").into());
            }
        }
    }
    Ok(found)
}

fn with_number(name: &[u8], number: u64) -> Vec<u8> {
    let mut made = Vec::with_capacity(name.len());
    let mut rest = name.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' if rest.next() == Some(&b'b') => made.extend(number.to_string().into_bytes()),
            byte => made.push(*byte),
        }
    }
    made
}

/// The most recently used sources.
pub struct Sources {
    files: Lru<PathBuf, Log>,
    datasets: Lru<Name, Option<Arc<Dataset>>>,
}

impl Default for Sources {
    fn default() -> Self {
        Sources {
            files: Lru::new(MOST_FILES),
            datasets: Lru::new(MOST_DATASETS),
        }
    }
}

impl Sources {
    /// The dataset with a name; `None` where there is no such file, or no such dataset in the file. Fails where it
    /// cannot be opened.
    pub fn find(&self, own: &Dataset, name: &Name) -> Result<Option<Arc<Dataset>>> {
        if let Some(known) = self.datasets.get(name) {
            return Ok(known);
        }
        let found = self.look(own, name)?.map(Arc::new);
        self.datasets.insert(name.clone(), found.clone(), 1);
        Ok(found)
    }

    fn look(&self, own: &Dataset, name: &Name) -> Result<Option<Dataset>> {
        if own.depth() >= MOST_DEPTH {
            let reason = format!(
                "a virtual dataset that is made of others, and these of others, {MOST_DEPTH} times"
            );
            return Err(own.failed(reason.into()));
        }
        let log = if name.file == b"." {
            own.own_log()
        } else {
            match self.file(own, OsStr::from_bytes(&name.file))? {
                Some(log) => log,
                None => return Ok(None),
            }
        };
        match log.object_below(&name.dataset, own.depth() + 1)? {
            Some(Object::Dataset(dataset)) => Ok(Some(*dataset)),
            Some(_) => {
                let reason = format!("its source {} is not a dataset", name.dataset);
                Err(own.failed(reason.into()))
            }
            None => Ok(None),
        }
    }

    fn file(&self, own: &Dataset, name: &OsStr) -> Result<Option<Log>> {
        let prefixes = std::env::var_os("HDF5_VDS_PREFIX").unwrap_or_default();
        let places = places(&own.log().open.view().path(), name, &prefixes);
        let Some(path) = places.into_iter().find(|path| path.exists()) else {
            return Ok(None);
        };
        if let Some(known) = self.files.get(&path) {
            return Ok(Some(known));
        }
        let log = Log::source(&path, own)?;
        self.files.insert(path, log.clone(), 1);
        Ok(Some(log))
    }
}

/// The places where HDF5 looks for a file that `own` names, in order. `prefixes` comes from the environment.
fn places(own: &Path, name: &OsStr, prefixes: &OsStr) -> Vec<PathBuf> {
    const ORIGIN: &[u8] = b"${ORIGIN}";
    let dir = own.parent().unwrap_or(Path::new(""));
    let name = Path::new(name);
    let mut places = Vec::new();
    // If an absolute path leads nowhere, HDF5 looks for its last component.
    let relative = if name.is_absolute() {
        places.push(name.to_owned());
        Path::new(name.file_name().unwrap_or_default())
    } else {
        name
    };
    let each = prefixes.as_bytes().split(|byte| *byte == b':');
    for prefix in each.filter(|prefix| !prefix.is_empty()) {
        let prefix = match prefix.strip_prefix(ORIGIN) {
            Some(rest) => {
                let mut all = dir.as_os_str().to_owned();
                all.push(OsStr::from_bytes(rest));
                all
            }
            None => OsString::from_vec(prefix.to_vec()),
        };
        places.push(Path::new(&prefix).join(relative));
    }
    places.push(dir.join(relative));
    places.push(relative.to_owned());
    // The directory of the file behind a link, if `own` is one.
    if let Ok(real) = own.canonicalize()
        && let (Some(dir), Some(last)) = (real.parent(), relative.file_name())
    {
        places.push(dir.join(last));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_hdf5_format::Picked;

    fn names(file: &str, dataset: &str) -> std::result::Result<Names, Fault> {
        Names::of(&Mapping {
            file: file.as_bytes().into(),
            dataset: dataset.as_bytes().into(),
            source: Picked::All,
            target: Picked::All,
        })
    }

    #[test]
    fn names_may_have_numbers() {
        let plain = names("100%%.h5", "x").unwrap();
        assert!(!plain.are_numbered());
        assert_eq!(plain.numbered(3).file, b"100%.h5");
        let both = names("%b/f%b.h5", "x%b%%").unwrap();
        assert!(both.are_numbered());
        let name = both.numbered(12);
        assert_eq!(
            (&name.file[..], &name.dataset[..]),
            (&b"12/f12.h5"[..], "x12%")
        );
        names("%d", "x").unwrap_err();
        names("f", "x%").unwrap_err();
    }

    #[test]
    fn files_are_looked_for_where_hdf5_does() {
        let of = |name: &str, prefixes: &str| -> Vec<String> {
            let found = places(
                Path::new("/no/such/log.h5"),
                name.as_ref(),
                prefixes.as_ref(),
            );
            found
                .iter()
                .map(|path| path.display().to_string())
                .collect()
        };
        assert_eq!(of("d/a.h5", ""), ["/no/such/d/a.h5", "d/a.h5"]);
        assert_eq!(of("/x/a.h5", ""), ["/x/a.h5", "/no/such/a.h5", "a.h5"]);
        let prefixed = of("a.h5", "/one::${ORIGIN}/two");
        assert_eq!(
            prefixed,
            ["/one/a.h5", "/no/such/two/a.h5", "/no/such/a.h5", "a.h5"]
        );
    }
}
