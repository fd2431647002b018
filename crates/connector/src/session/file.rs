//! The hooks for files: what a log that is written answers, since its metadata image is no file of the program, and which access
//! property list a program gets.

use std::ffi::{c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::Ordering;

use h5logfs_host::types::{SUCCESS, Status, access};

use super::descriptor::Descriptor;
use super::{Kind, Session};
use crate::arguments::{DescriptorAsked, FileGet, FileName, Optional, Size};
use crate::below::Below;
use crate::below::info::Info;
use h5logfs_common::fault::Fault;

/// Numbers of `H5VLnative.h`.
mod operation {
    pub const SIZE: super::c_int = 8;
    pub const DESCRIPTOR: super::c_int = super::DescriptorAsked::OPERATION;
    pub const START_SWMR_WRITE: super::c_int = 13;
    pub const GET_ATOMICITY: super::c_int = 26;
    pub const SET_ATOMICITY: super::c_int = 27;
}

impl Session {
    /// `H5Fget_*`.
    pub fn file_get(&self, file: &Below, args: &mut FileGet) -> Result<Option<Status>, Fault> {
        match (args.operation, &self.kind) {
            (FileGet::ACCESS, Kind::Linked { .. }) => self.linked_access_list(file, args).map(Some),
            (FileGet::ACCESS, _) => self.access_list(&file.info, args).map(Some),
            // SAFETY: the part of this operation.
            (FileGet::NAME, Kind::Written(_)) => {
                let asked = unsafe { args.arguments.name };
                Ok(Some(give_name(&self.path, &asked)))
            }
            (FileGet::INTENT, _) if self.is_followed.load(Ordering::Relaxed) => {
                // SAFETY: the part of this operation.
                unsafe { *args.arguments.intent = access::WRITE | access::SWMR_WRITE };
                Ok(Some(SUCCESS))
            }
            _ => Ok(None),
        }
    }

    /// Gives the access property list of the program, not the one with the file driver in it.
    /// That says how the file is closed, also where the program has left this to the driver.
    fn access_list(&self, info: &Info, args: &mut FileGet) -> Result<Status, Fault> {
        let copy = self.access.duplicate();
        let copy = copy.ok_or("the file access property list cannot be copied")?;
        copy.forget_page_buffer();
        copy.set_close_degree(self.degree(info) as c_int);
        args.arguments.access = copy.into_id();
        Ok(SUCCESS)
    }

    /// Operations on files that only the native connector has. `None`: the native file answers.
    ///
    /// # Safety
    ///
    /// The arguments are those of the operation.
    pub unsafe fn file_optional(&self, args: &Optional) -> Result<Option<Status>, Fault> {
        if self.log().is_none() {
            return Ok(None);
        }
        // SAFETY (all blocks here): the caller says so; the library gives places for answers.
        match args.operation {
            operation::SIZE => unsafe {
                let place = *args.arguments.cast::<*mut Size>();
                *place = self.size()?;
            },
            operation::DESCRIPTOR => unsafe {
                let asked = &*args.arguments.cast::<DescriptorAsked>();
                *asked.place = self.descriptor()?;
            },
            operation::START_SWMR_WRITE => {
                self.flush()?;
                self.is_followed.store(true, Ordering::Relaxed);
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
                        self.path.display()
                    ).into());
                }
            }
            _ => return Ok(None),
        }
        Ok(Some(SUCCESS))
    }

    /// Bytes of the log file, as it was last flushed.
    fn size(&self) -> Result<u64, Fault> {
        let found = fs::metadata(&self.path).map_err(|e| self.about_file(&e))?;
        Ok(found.len())
    }

    /// The place with the number of a descriptor.
    fn descriptor(&self) -> Result<*const c_void, Fault> {
        if self.descriptor.get().is_none() {
            let opened = Descriptor::open(&self.path).map_err(|e| self.about_file(&e))?;
            // Another thread may have been faster.
            let _ = self.descriptor.set(opened);
        }
        Ok(self.descriptor.get().ok_or("no descriptor")?.place())
    }

    fn about_file(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }
}

/// Puts the path of a log where a program asks for the name of its file.
fn give_name(path: &Path, asked: &FileName) -> Status {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: the library gives a place for the length, and room for `size` bytes or none.
    unsafe {
        if !asked.length.is_null() {
            *asked.length = bytes.len();
        }
        if !asked.name.is_null() && asked.size > 0 {
            let kept = bytes.len().min(asked.size - 1);
            ptr::copy_nonoverlapping(bytes.as_ptr(), asked.name.cast(), kept);
            *asked.name.add(kept) = 0;
        }
    }
    SUCCESS
}
