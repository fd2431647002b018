//! Files in memory: bytes of a caller in this process, which libhdf5 opens by announced names.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use h5logfs_host::types::{Address, access};
use parking_lot::Mutex;

use h5logfs_common::fault::Fault;

/// The bytes of all announced files, by name. No function is called and no other lock is taken while it is locked.
static ANNOUNCED: LazyLock<Mutex<HashMap<CString, Entry>>> = LazyLock::new(Mutex::default);

/// The bytes of a file. They are locked while some are copied.
type Bytes = Mutex<Vec<u8>>;

#[derive(Debug)]
struct Entry {
    bytes: Arc<Bytes>,
    of: Written,
}

/// The log whose objects a file in memory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Path of the log.
    pub path: PathBuf,
    /// Number of the libhdf5 that writes it.
    pub library: usize,
}

/// A name by which the driver of sessions opens a file in memory, until this is dropped. Open files stay open.
#[derive(Debug)]
pub struct Announced {
    name: CString,
}

/// Announces a file with these bytes, and with the objects of a log. `None` if the name is taken.
pub fn announce(name: CString, bytes: Vec<u8>, of: Written) -> Option<Announced> {
    let mut all = ANNOUNCED.lock();
    if all.contains_key(&name) {
        return None;
    }
    let bytes = Arc::new(Mutex::new(bytes));
    all.insert(name.clone(), Entry { bytes, of });
    Some(Announced { name })
}

impl Announced {
    /// The announced name.
    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// Withdraws the name, so that nothing finds the file by it, or as the file of its log. Open files stay open.
    pub fn withdraw(self) -> Option<Withdrawn> {
        let entry = ANNOUNCED.lock().remove(&self.name)?;
        Some(Withdrawn {
            name: self.name.clone(),
            entry,
        })
    }
}

/// A file in memory with a withdrawn name.
#[derive(Debug)]
pub struct Withdrawn {
    name: CString,
    entry: Entry,
}

impl Withdrawn {
    /// Announces the file again. `None` if the name is taken.
    pub fn announce(self) -> Option<Announced> {
        let mut all = ANNOUNCED.lock();
        if all.contains_key(&self.name) {
            return None;
        }
        all.insert(self.name.clone(), self.entry);
        Some(Announced { name: self.name })
    }

    /// Whether it has at most `most` bytes.
    pub fn fits(&self, most: usize) -> bool {
        self.entry.bytes.lock().len() <= most
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        ANNOUNCED.lock().remove(&self.name);
    }
}

/// An open file in memory.
#[derive(Debug)]
pub struct Memory {
    bytes: Arc<Bytes>,
    /// End of the space that libhdf5 has allocated.
    allocated: Mutex<Address>,
}

impl Memory {
    /// Opens the file announced as `name`.
    pub fn open(name: &CStr, flags: u32) -> Option<Self> {
        let bytes = ANNOUNCED
            .lock()
            .get(name)
            .map(|entry| Arc::clone(&entry.bytes))?;
        if flags & access::TRUNCATE != 0 {
            bytes.lock().clear();
        }
        Some(Memory::new(bytes))
    }

    /// Opens the file with the objects of the log at a path, if a libhdf5 writes it.
    pub fn of_log(path: &Path, library: usize) -> Option<Self> {
        let wanted = identity(path)?;
        let own: Vec<_> = {
            let all = ANNOUNCED.lock();
            let own = all.values().filter(|entry| entry.of.library == library);
            own.map(|entry| (entry.of.path.clone(), Arc::clone(&entry.bytes)))
                .collect()
        };
        // The lock is released before the file is used.
        let mut own = own.into_iter();
        let (_, bytes) = own.find(|(path, _)| identity(path) == Some(wanted))?;
        Some(Memory::new(bytes))
    }

    fn new(bytes: Arc<Bytes>) -> Self {
        Memory {
            bytes,
            allocated: Mutex::new(0),
        }
    }

    /// A number that orders files.
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&self.bytes).addr()
    }

    pub fn allocated(&self) -> Address {
        *self.allocated.lock()
    }

    pub fn set_allocated(&self, address: Address) {
        *self.allocated.lock() = address;
    }

    pub fn len(&self) -> Address {
        self.bytes.lock().len() as Address
    }

    /// Fills `buf`, with zeros past the end of the file.
    pub fn read(&self, at: Address, buf: &mut [u8]) {
        let bytes = self.bytes.lock();
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let found = bytes.get(at..).unwrap_or_default();
        let count = found.len().min(buf.len());
        buf[..count].copy_from_slice(&found[..count]);
        buf[count..].fill(0);
    }

    pub fn write(&self, at: Address, data: &[u8]) -> Result<(), Fault> {
        let end = at.checked_add(data.len() as u64).ok_or_else(too_large)?;
        let mut bytes = self.bytes.lock();
        if end > bytes.len() as u64 {
            resize(&mut bytes, end)?;
        }
        // It fits: the file has `end` bytes.
        let at = at as usize;
        bytes[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    /// Gives the file the length that libhdf5 has allocated.
    pub fn truncate(&self) -> Result<(), Fault> {
        resize(&mut self.bytes.lock(), self.allocated())
    }
}

/// Device and inode number.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn resize(bytes: &mut Vec<u8>, size: u64) -> Result<(), Fault> {
    let size = usize::try_from(size).map_err(|_| too_large())?;
    let more = size.saturating_sub(bytes.len());
    bytes.try_reserve(more).map_err(|_| too_large())?;
    bytes.resize(size, 0);
    Ok(())
}

fn too_large() -> String {
    "the file in memory has no room".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Written {
        Written {
            path: path.into(),
            library: 1,
        }
    }

    #[test]
    fn the_file_of_a_log_is_found_by_any_path_of_the_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let (log, link) = (dir.path().join("log"), dir.path().join("link"));
        fs::write(&log, "").expect("a file");
        fs::hard_link(&log, &link).expect("a link");
        let of = of(log.to_str().expect("a name"));
        let announced = announce(c"the file of a log".to_owned(), vec![1], of);
        let own = Memory::open(announced.as_ref().expect("a free name").name(), 0);
        let found = Memory::of_log(&link, 1).map(|file| file.identity());
        assert_eq!(found, own.map(|file| file.identity()));
        assert!(Memory::of_log(&link, 2).is_none());
        assert!(Memory::of_log(dir.path(), 1).is_none());
    }

    #[test]
    fn a_file_is_open_under_its_name_only_while_it_is_announced() {
        let name = || c"a file of this test".to_owned();
        let announced = announce(name(), vec![1, 2, 3], of("none")).expect("a free name");
        assert!(announce(name(), Vec::new(), of("none")).is_none());
        let one = Memory::open(announced.name(), 0).expect("announced");
        let other = Memory::open(announced.name(), 0).expect("announced");
        assert_eq!(one.identity(), other.identity());
        one.write(4, &[5]).expect("room");
        let mut read = [9; 6];
        other.read(1, &mut read);
        assert_eq!(read, [2, 3, 0, 5, 0, 0]);
        drop(announced);
        assert!(Memory::open(&name(), 0).is_none());
        assert_eq!(one.len(), 5);
    }

    #[test]
    fn a_file_is_cut_to_what_is_allocated_and_refuses_what_has_no_room() {
        let name = c"another file of this test".to_owned();
        let announced = announce(name, vec![7; 10], of("none"));
        let announced = announced.expect("a free name");
        let file = Memory::open(announced.name(), 0).expect("announced");
        file.set_allocated(4);
        file.truncate().expect("smaller");
        assert_eq!(file.len(), 4);
        assert!(file.write(u64::MAX, &[1]).is_err());
        assert!(file.write(i64::MAX as u64, &[1]).is_err());
        assert_eq!(
            Memory::open(announced.name(), access::TRUNCATE).map(|f| f.len()),
            Some(0)
        );
    }
}
