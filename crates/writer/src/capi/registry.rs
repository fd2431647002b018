//! The handles that callers have. A handle is a kind and a number that is never given twice, so that
//! an old one cannot mean something new.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock};

use foldhash::fast::FixedState;

use super::status::h5logfs_status::{H5LOGFS_ERR_CLOSED, H5LOGFS_ERR_PANIC};
use super::status::{Fault, Result};
use super::types;
use crate::batch::Suspended;
use crate::{self as writer, Datatype, Writer};

/// A handle of a file, a dataset or a datatype. 0 is none.
pub type h5logfs_id = i64;

/// A file that a caller has open.
pub(super) struct File {
    held: Mutex<Held>,
}

pub(super) struct Held {
    pub writer: Writer,
    /// Writes whose data are the caller's until the next flush.
    pub lent: Suspended<'static>,
}

// SAFETY: what the compiler cannot know of are MPI's handles. They are the process's, not a thread's;
// who uses them has taken a `Turn`, and `File` has them locked.
unsafe impl Send for Held {}

impl File {
    pub fn new(writer: Writer) -> Self {
        File {
            held: Mutex::new(Held {
                writer,
                lent: Suspended::default(),
            }),
        }
    }

    pub fn lock(&self) -> Result<MutexGuard<'_, Held>> {
        self.held.lock().map_err(|_| {
            Fault::new(
                H5LOGFS_ERR_PANIC,
                "an earlier call ended in a fault of the library: this file can only be abandoned",
            )
        })
    }
}

/// A dataset of an open file.
pub(super) struct Dataset {
    pub file: Arc<File>,
    pub dataset: writer::Dataset,
    pub path: String,
    pub rank: usize,
    /// Bytes of an element in the caller's memory.
    pub element: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File = 1,
    Dataset = 2,
    Type = 3,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Dataset => "dataset",
            Kind::Type => "datatype",
        }
    }
}

/// Bits of a handle below its kind.
const NUMBER: u32 = 56;

#[derive(Default)]
struct Registry {
    last: i64,
    files: HashMap<h5logfs_id, Arc<File>, FixedState>,
    datasets: HashMap<h5logfs_id, Arc<Dataset>, FixedState>,
    types: HashMap<h5logfs_id, Datatype, FixedState>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

impl Registry {
    fn next(&mut self, kind: Kind) -> h5logfs_id {
        self.last += 1;
        (kind as i64) << NUMBER | self.last
    }

    /// What is wrong with a handle that is not there.
    fn missing(&self, id: h5logfs_id, wanted: Kind) -> Fault {
        let number = id & ((1 << NUMBER) - 1);
        let kinds = [Kind::File, Kind::Dataset, Kind::Type];
        let kind = kinds.into_iter().find(|k| *k as i64 == id >> NUMBER);
        let kind = kind.filter(|_| (1..=self.last).contains(&number));
        let kind = kind.or(types::predefined(id).map(|_| Kind::Type));
        let name = wanted.name();
        match kind {
            Some(Kind::Dataset) if wanted == Kind::Dataset => {
                Fault::new(H5LOGFS_ERR_CLOSED, "the file of this dataset is closed")
            }
            Some(kind) if kind == wanted => {
                Fault::new(H5LOGFS_ERR_CLOSED, format!("this {name} is closed"))
            }
            Some(kind) => Fault::invalid(format!(
                "the handle of a {} where that of a {name} is needed",
                kind.name()
            )),
            None => Fault::invalid(format!("{id} is not the handle of a {name}")),
        }
    }
}

/// The registry is consistent between any two of its calls: a panic in between cannot harm it.
fn read() -> std::sync::RwLockReadGuard<'static, Registry> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> std::sync::RwLockWriteGuard<'static, Registry> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn add_file(file: File) -> h5logfs_id {
    let mut registry = write();
    let id = registry.next(Kind::File);
    registry.files.insert(id, Arc::new(file));
    id
}

pub(super) fn file(id: h5logfs_id) -> Result<Arc<File>> {
    let registry = read();
    let file = registry.files.get(&id).cloned();
    file.ok_or_else(|| registry.missing(id, Kind::File))
}

/// Forgets a file, and the datasets of it.
pub(super) fn remove_file(id: h5logfs_id) -> Result<Arc<File>> {
    let mut registry = write();
    let Some(file) = registry.files.remove(&id) else {
        return Err(registry.missing(id, Kind::File));
    };
    registry
        .datasets
        .retain(|_, d| !Arc::ptr_eq(&d.file, &file));
    Ok(file)
}

pub(super) fn add_dataset(dataset: Dataset) -> h5logfs_id {
    let mut registry = write();
    let id = registry.next(Kind::Dataset);
    registry.datasets.insert(id, Arc::new(dataset));
    id
}

pub(super) fn dataset(id: h5logfs_id) -> Result<Arc<Dataset>> {
    let registry = read();
    let dataset = registry.datasets.get(&id).cloned();
    dataset.ok_or_else(|| registry.missing(id, Kind::Dataset))
}

pub(super) fn add_type(datatype: Datatype) -> h5logfs_id {
    let mut registry = write();
    let id = registry.next(Kind::Type);
    registry.types.insert(id, datatype);
    id
}

/// A datatype as it is now.
pub(super) fn datatype(id: h5logfs_id) -> Result<Datatype> {
    if let Some(datatype) = types::predefined(id) {
        return Ok(datatype);
    }
    let registry = read();
    let datatype = registry.types.get(&id).cloned();
    datatype.ok_or_else(|| registry.missing(id, Kind::Type))
}

/// Changes a datatype that the caller has made.
pub(super) fn change_type(
    id: h5logfs_id,
    change: impl FnOnce(&mut Datatype) -> Result<()>,
) -> Result<()> {
    check_own(id)?;
    let mut registry = write();
    match registry.types.get_mut(&id) {
        Some(datatype) => change(datatype),
        None => Err(registry.missing(id, Kind::Type)),
    }
}

pub(super) fn remove_type(id: h5logfs_id) -> Result<()> {
    check_own(id)?;
    let mut registry = write();
    match registry.types.remove(&id) {
        Some(_) => Ok(()),
        None => Err(registry.missing(id, Kind::Type)),
    }
}

fn check_own(id: h5logfs_id) -> Result<()> {
    match types::predefined(id) {
        Some(_) => Err(Fault::invalid(
            "a predefined datatype can be neither changed nor closed",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::status::h5logfs_status::H5LOGFS_ERR_INVALID_ARGUMENT;
    use super::*;

    #[test]
    fn what_is_wrong_with_a_handle_is_told() {
        let id = add_type(Datatype::float(8));
        assert_eq!(datatype(id).unwrap(), Datatype::float(8));
        let code = |fault: Option<Fault>| fault.map(|f| f.code);
        let invalid = Some(H5LOGFS_ERR_INVALID_ARGUMENT);
        assert_eq!(code(file(id).err()), invalid);
        assert_eq!(code(dataset(types::H5LOGFS_INT8).err()), invalid);
        for none in [
            0,
            -1,
            i64::MAX,
            i64::MIN,
            id + (1 << 40),
            id ^ (7 << NUMBER),
        ] {
            assert_eq!(code(datatype(none).err()), invalid, "{none}");
        }
        remove_type(id).unwrap();
        assert_eq!(code(datatype(id).err()), Some(H5LOGFS_ERR_CLOSED));
        assert_eq!(code(remove_type(id).err()), Some(H5LOGFS_ERR_CLOSED));
        assert_eq!(code(remove_type(types::H5LOGFS_INT8).err()), invalid);
    }
}
