//! The handles of callers. A handle consists of a kind and a number. No number is used twice, so an old handle never refers
//! to a new object.

use std::collections::HashMap;
use std::sync::{
    Arc, LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use foldhash::fast::FixedState;

use super::status::h5logfs_status::{H5LOGFS_ERR_CLOSED, H5LOGFS_ERR_PANIC};
use super::status::{ApiError, Result};
use super::types;
use crate::batch::Contents;
use crate::{self as writer, Datatype, Writer};

/// A handle of a file, a dataset or a datatype. 0 is not a valid handle.
pub type h5logfs_id = i64;

/// A file opened by a caller.
pub(super) struct File {
    state: Mutex<FileState>,
}

pub(super) struct FileState {
    pub writer: Writer,
    /// Writes whose data the caller lends until the next flush.
    pub lent: Contents<'static>,
}

// SAFETY: only its MPI handles are not `Send`. They belong to the process, not to a thread. Each thread that uses them holds
// an `MpiGuard` and the lock in `File`.
unsafe impl Send for FileState {}

impl File {
    pub fn new(writer: Writer) -> Self {
        File {
            state: Mutex::new(FileState {
                writer,
                lent: Contents::default(),
            }),
        }
    }

    pub fn lock(&self) -> Result<MutexGuard<'_, FileState>> {
        self.state.lock().map_err(|_| {
            ApiError::new(
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
    /// Size of an element in the caller's memory, in bytes.
    pub element_size: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandleKind {
    File = 1,
    Dataset = 2,
    Type = 3,
}

impl HandleKind {
    fn name(self) -> &'static str {
        match self {
            HandleKind::File => "file",
            HandleKind::Dataset => "dataset",
            HandleKind::Type => "datatype",
        }
    }
}

/// Bits of a handle that hold its number. The kind is above them.
const NUMBER_BITS: u32 = 56;

#[derive(Default)]
struct Registry {
    last_number: i64,
    files: HashMap<h5logfs_id, Arc<File>, FixedState>,
    datasets: HashMap<h5logfs_id, Arc<Dataset>, FixedState>,
    types: HashMap<h5logfs_id, Datatype, FixedState>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);

impl Registry {
    fn next(&mut self, kind: HandleKind) -> h5logfs_id {
        self.last_number += 1;
        (kind as i64) << NUMBER_BITS | self.last_number
    }

    /// The error for a handle that is not in the registry.
    fn missing(&self, id: h5logfs_id, wanted: HandleKind) -> ApiError {
        let number = id & ((1 << NUMBER_BITS) - 1);
        let kinds = [HandleKind::File, HandleKind::Dataset, HandleKind::Type];
        let kind = kinds.into_iter().find(|k| *k as i64 == id >> NUMBER_BITS);
        let kind = kind.filter(|_| (1..=self.last_number).contains(&number));
        let kind = kind.or(types::predefined(id).map(|_| HandleKind::Type));
        let name = wanted.name();
        match kind {
            Some(HandleKind::Dataset) if wanted == HandleKind::Dataset => {
                ApiError::new(H5LOGFS_ERR_CLOSED, "the file of this dataset is closed")
            }
            Some(kind) if kind == wanted => {
                ApiError::new(H5LOGFS_ERR_CLOSED, format!("this {name} is closed"))
            }
            Some(kind) => ApiError::invalid(format!(
                "the handle of a {} where that of a {name} is needed",
                kind.name()
            )),
            None => ApiError::invalid(format!("{id} is not the handle of a {name}")),
        }
    }
}

// A poisoned lock does no harm: no call leaves the registry half changed.

fn read() -> RwLockReadGuard<'static, Registry> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Registry> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn add_file(file: File) -> h5logfs_id {
    let mut registry = write();
    let id = registry.next(HandleKind::File);
    registry.files.insert(id, Arc::new(file));
    id
}

pub(super) fn file(id: h5logfs_id) -> Result<Arc<File>> {
    let registry = read();
    let file = registry.files.get(&id).cloned();
    file.ok_or_else(|| registry.missing(id, HandleKind::File))
}

/// Removes a file and its datasets.
pub(super) fn remove_file(id: h5logfs_id) -> Result<Arc<File>> {
    let mut registry = write();
    let Some(file) = registry.files.remove(&id) else {
        return Err(registry.missing(id, HandleKind::File));
    };
    registry
        .datasets
        .retain(|_, d| !Arc::ptr_eq(&d.file, &file));
    Ok(file)
}

pub(super) fn add_dataset(dataset: Dataset) -> h5logfs_id {
    let mut registry = write();
    let id = registry.next(HandleKind::Dataset);
    registry.datasets.insert(id, Arc::new(dataset));
    id
}

pub(super) fn dataset(id: h5logfs_id) -> Result<Arc<Dataset>> {
    let registry = read();
    let dataset = registry.datasets.get(&id).cloned();
    dataset.ok_or_else(|| registry.missing(id, HandleKind::Dataset))
}

pub(super) fn add_type(datatype: Datatype) -> h5logfs_id {
    let mut registry = write();
    let id = registry.next(HandleKind::Type);
    registry.types.insert(id, datatype);
    id
}

/// The current state of a datatype.
pub(super) fn datatype(id: h5logfs_id) -> Result<Datatype> {
    if let Some(datatype) = types::predefined(id) {
        return Ok(datatype);
    }
    let registry = read();
    let datatype = registry.types.get(&id).cloned();
    datatype.ok_or_else(|| registry.missing(id, HandleKind::Type))
}

/// Changes a datatype that the caller has created.
pub(super) fn change_type(
    id: h5logfs_id,
    change: impl FnOnce(&mut Datatype) -> Result<()>,
) -> Result<()> {
    refuse_predefined(id)?;
    let mut registry = write();
    match registry.types.get_mut(&id) {
        Some(datatype) => change(datatype),
        None => Err(registry.missing(id, HandleKind::Type)),
    }
}

pub(super) fn remove_type(id: h5logfs_id) -> Result<()> {
    refuse_predefined(id)?;
    let mut registry = write();
    match registry.types.remove(&id) {
        Some(_) => Ok(()),
        None => Err(registry.missing(id, HandleKind::Type)),
    }
}

fn refuse_predefined(id: h5logfs_id) -> Result<()> {
    match types::predefined(id) {
        Some(_) => Err(ApiError::invalid(
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
        let code = |error: Option<ApiError>| error.map(|e| e.code);
        let invalid = Some(H5LOGFS_ERR_INVALID_ARGUMENT);
        assert_eq!(code(file(id).err()), invalid);
        assert_eq!(code(dataset(types::H5LOGFS_INT8).err()), invalid);
        for none in [
            0,
            -1,
            i64::MAX,
            i64::MIN,
            id + (1 << 40),
            id ^ (7 << NUMBER_BITS),
        ] {
            assert_eq!(code(datatype(none).err()), invalid, "{none}");
        }
        remove_type(id).unwrap();
        assert_eq!(code(datatype(id).err()), Some(H5LOGFS_ERR_CLOSED));
        assert_eq!(code(remove_type(id).err()), Some(H5LOGFS_ERR_CLOSED));
        assert_eq!(code(remove_type(types::H5LOGFS_INT8).err()), invalid);
    }
}
