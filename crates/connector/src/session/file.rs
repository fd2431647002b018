//! What the native connector is asked of a file, and a log that is written answers in its place: its shadow is no file of
//! the program.

use std::ffi::{c_int, c_void};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::Ordering;

use h5logfs_host::types::{Id, SUCCESS, Status};

use super::Session;
use crate::arguments::{Optional, Size};

/// Numbers of `H5VLnative.h`.
mod operation {
    pub const SIZE: super::c_int = 8;
    pub const DESCRIPTOR: super::c_int = 9;
    pub const START_SWMR_WRITE: super::c_int = 13;
    pub const GET_ATOMICITY: super::c_int = 26;
    pub const SET_ATOMICITY: super::c_int = 27;
}

/// `H5VL_native_file_get_vfd_handle_t`.
#[repr(C)]
struct DescriptorAsked {
    fapl: Id,
    place: *mut *const c_void,
}

/// An open descriptor of the log file, at a place that a program may keep while the log is open.
#[derive(Debug)]
pub struct Descriptor {
    number: c_int,
    /// Closes it.
    _file: File,
}

/// Answers an operation. `None`: the shadow does.
///
/// # Safety
///
/// The arguments are those of the operation.
pub unsafe fn answer(session: &Session, args: &Optional) -> Result<Option<Status>, String> {
    // SAFETY (all blocks here): the caller says so; the library gives places for answers.
    match args.operation {
        operation::SIZE => unsafe {
            let place = *args.arguments.cast::<*mut Size>();
            *place = session.size()?;
        },
        operation::DESCRIPTOR => unsafe {
            let asked = &*args.arguments.cast::<DescriptorAsked>();
            *asked.place = session.descriptor()?;
        },
        operation::START_SWMR_WRITE => {
            session.flush_log()?;
            session.is_followed.store(true, Ordering::Relaxed);
        }
        operation::GET_ATOMICITY => unsafe {
            let place = *args.arguments.cast::<*mut bool>();
            *place = false;
        },
        operation::SET_ATOMICITY => {
            let is_wanted = unsafe { *args.arguments.cast::<u8>() } != 0;
            if is_wanted {
                return Err(format!(
                    "{}: a log is not atomic in the sense of MPI: what a rank has written is seen by others after a flush",
                    session.path.display()
                ));
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(SUCCESS))
}

impl Session {
    /// Bytes of the log file, as it was last flushed.
    fn size(&self) -> Result<u64, String> {
        let found = fs::metadata(&self.path).map_err(|e| self.about_file(&e))?;
        Ok(found.len())
    }

    /// A place with the number of a descriptor. It is for reading: only the connector knows where to write.
    fn descriptor(&self) -> Result<*const c_void, String> {
        if self.descriptor.get().is_none() {
            let file = File::open(&self.path).map_err(|e| self.about_file(&e))?;
            // Another thread may have been faster.
            let _ = self.descriptor.set(Descriptor {
                number: file.as_raw_fd(),
                _file: file,
            });
        }
        let found = self.descriptor.get().ok_or("no descriptor")?;
        Ok(ptr::from_ref(&found.number).cast())
    }

    fn about_file(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }
}
