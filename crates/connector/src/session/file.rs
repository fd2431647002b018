//! Hooks for files. A log that this process writes answers itself, since its metadata image is not the program's file. Every
//! log returns the program's own access property list.

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

/// Operation numbers of `H5VLnative.h`.
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
            // SAFETY: the operation selects this part of the union.
            (FileGet::NAME, Kind::Written(_)) => {
                let asked = unsafe { args.arguments.name };
                Ok(Some(give_name(&self.path, &asked)))
            }
            (FileGet::INTENT, _) if self.is_followed.load(Ordering::Relaxed) => {
                // SAFETY: the operation selects this part of the union.
                unsafe { *args.arguments.intent = access::WRITE | access::SWMR_WRITE };
                Ok(Some(SUCCESS))
            }
            _ => Ok(None),
        }
    }

    /// Returns the program's access property list rather than the one with the file driver. Its close degree is the effective
    /// one, even if the program left it to the driver.
    fn access_list(&self, info: &Info, args: &mut FileGet) -> Result<Status, Fault> {
        let copy = self.access.duplicate();
        let copy = copy.ok_or("the file access property list cannot be copied")?;
        copy.forget_page_buffer();
        copy.set_close_degree(self.degree(info) as c_int);
        args.arguments.access = copy.into_id();
        Ok(SUCCESS)
    }

    /// Operations of the native connector on a file. `None`: the native file answers.
    ///
    /// # Safety
    ///
    /// The arguments belong to the operation.
    pub unsafe fn file_optional(&self, args: &Optional) -> Result<Option<Status>, Fault> {
        if self.log().is_none() {
            return Ok(None);
        }
        // SAFETY (all blocks here): guaranteed by the caller; the library gives places for the answers.
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
                        "{}: a log has no atomic mode of MPI: other ranks see elements after a flush",
                        self.path.display()
                    ).into());
                }
            }
            _ => return Ok(None),
        }
        Ok(Some(SUCCESS))
    }

    /// The size of the log file after the last flush, in bytes.
    fn size(&self) -> Result<u64, Fault> {
        let found = fs::metadata(&self.path).map_err(|e| self.about_file(&e))?;
        Ok(found.len())
    }

    /// The address of a descriptor.
    fn descriptor(&self) -> Result<*const c_void, Fault> {
        if self.descriptor.get().is_none() {
            let opened = Descriptor::open(&self.path).map_err(|e| self.about_file(&e))?;
            // Another thread may have set one in between; the first one counts.
            let _ = self.descriptor.set(opened);
        }
        Ok(self.descriptor.get().ok_or("no descriptor")?.place())
    }

    fn about_file(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }
}

/// Stores the path of a log where a program asks for the name of its file.
fn give_name(path: &Path, asked: &FileName) -> Status {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: the library gives a place for the length, and room for `size` bytes or null.
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
