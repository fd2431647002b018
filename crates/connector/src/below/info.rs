//! The connector's information in a file access property list: the connector below, and options.
//!
//! An example: `under_vol=0;under_info={};match=*.h5;fsync=flush`. Every part is optional, and so is the whole string.
//! `under_vol` is the number of the connector below, 0 for the native one. `under_info` is that connector's own information.

use std::cmp::Ordering;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use h5logfs_host::Kind;
use h5logfs_host::at_end::AtEnd;
use h5logfs_host::lists::{ENCODING, SHARES_SELECTIONS, SUBFILES};
use h5logfs_host::types::{DEFAULT, FAILURE, Id, Status};

use super::list::{PropertyList, property};
use super::misspelt::{self, Misspelt};
use super::operations::Operations;
use super::request::Request;
use crate::library::{Library, Parallel};
use crate::options::{Given, Options};
use h5logfs_common::fault::Fault;

/// The name of the connector.
pub const NAME: &CStr = c"h5logfs";
/// Capability flags of the native connector in these versions: bits 2 to 36 without asynchronous calls, maps and threads.
pub const CAPABILITIES: u64 = 0x1f_ffff_9ffc;
/// `H5_VOL_NATIVE`.
const NATIVE: c_int = 0;

/// The state of one libhdf5 for files that it opens through this connector. libhdf5 holds it by the address in its `Arc`.
#[derive(Debug)]
pub struct Info {
    /// The library that owns all identifiers here.
    pub library: Library,
    /// Functions and settings that only parallel HDF5 has.
    pub parallel: Option<Parallel>,
    /// The connector below.
    pub under_vol: Id,
    /// The number of the connector below. The native one is 0.
    under_value: c_int,
    /// The information of the connector below, or null.
    under_info: *mut c_void,
    /// The operation numbers that the library assigned to this connector.
    pub operations: Operations,
    given: Given,
    /// The fault in the options, if they come from the environment and are wrong.
    misspelt: Option<Misspelt>,
}

// SAFETY: the information below never changes. Calls of libhdf5 are guarded by its own lock, or by the program.
unsafe impl Send for Info {}
// SAFETY: as above.
unsafe impl Sync for Info {}

impl Drop for Info {
    fn drop(&mut self) {
        self.library.nested(|f| {
            // SAFETY: both belong to this library, and are freed once.
            unsafe {
                if !self.under_info.is_null() {
                    (f.H5VLfree_connector_info)(self.under_vol, self.under_info);
                }
                (f.H5Idec_ref)(self.under_vol);
            }
        });
    }
}

/// The parts of an information string.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts<'a> {
    under_vol: c_int,
    under_info: &'a str,
    given: Given,
}

impl<'a> Parts<'a> {
    fn parse(text: &'a str) -> Result<Self, Fault> {
        let mut parts = Parts::default();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (name, value) = rest
                .split_once('=')
                .ok_or_else(|| format!("{rest}: expected name=value"))?;
            let (value, after) = match name {
                "under_info" => braced(value)?,
                _ => value.split_once(';').unwrap_or((value, "")),
            };
            match name {
                "under_vol" => parts.under_vol = under_vol(value)?,
                "under_info" => parts.under_info = value,
                _ => parts.given.add(name, value).map_err(|wrong| {
                    // No valid value of an option contains an equals sign.
                    let more = if value.contains('=') {
                        "; options are separated by semicolons"
                    } else {
                        ""
                    };
                    format!("{wrong}{more}")
                })?,
            }
            rest = after;
        }
        Ok(parts)
    }
}

fn under_vol(value: &str) -> Result<c_int, Fault> {
    let number = value.parse().ok().filter(|number| *number >= 0);
    Ok(number.ok_or_else(|| format!("under_vol={value}: expected the number of a connector"))?)
}

/// Splits at the closing brace: the text within the braces, which may be nested, and the text after the next semicolon.
fn braced(text: &str) -> Result<(&str, &str), Fault> {
    let wrong = || format!("under_info={text}: expected {{…}}");
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            let inside = text[..at].strip_prefix('{').ok_or_else(wrong)?;
            let after = &text[at + 1..];
            if after.is_empty() {
                return Ok((inside, after));
            }
            return Ok((inside, after.strip_prefix(';').ok_or_else(wrong)?));
        }
    }
    Err(wrong().into())
}

/// `H5FD_MPIO_INDEPENDENT`.
const INDEPENDENT: c_int = 0;

impl Info {
    /// Parses an information string.
    pub fn parse(library: &Library, text: &str) -> Result<Arc<Self>, Fault> {
        let parts = Parts::parse(text)?;
        let mut info = Info::new(library, parts.under_vol, parts.given)?;
        if !parts.under_info.is_empty() {
            info.under_info = info.parse_under(parts.under_info)?;
        }
        Ok(Arc::new(info))
    }

    /// Parses an information string. If it comes from the environment and is wrong, the resulting connector creates no files.
    pub fn of_text(library: &Library, text: &CStr) -> Result<Arc<Self>, Fault> {
        let options = text.to_str().map_err(|_| Fault::from("it is not UTF-8"));
        let parsed = options.and_then(|options| Info::parse(library, options));
        let reason = match parsed.map_err(|e| e.at("the information of the h5logfs connector")) {
            Err(reason) if misspelt::are_of_environment(text) => reason,
            parsed => return parsed,
        };
        let misspelt = Misspelt {
            options: text.to_string_lossy().into_owned(),
            reason: reason.to_string(),
        };
        misspelt.tell();
        library.push(Kind::Other, &misspelt.sentence());
        let mut info = Info::new(library, NATIVE, Given::default())?;
        info.misspelt = Some(misspelt);
        Ok(Arc::new(info))
    }

    fn new(library: &Library, under_value: c_int, given: Given) -> Result<Self, Fault> {
        // SAFETY: the library is initialized.
        let under_vol = library
            .nested(|f| unsafe { (f.H5VLregister_connector_by_value)(under_value, DEFAULT) });
        if under_vol < 0 {
            return Err(format!("under_vol={under_value}: there is no such connector").into());
        }
        Ok(Info {
            library: *library,
            parallel: library.further(),
            under_vol,
            under_value,
            under_info: ptr::null_mut(),
            operations: Operations::of(library),
            given,
            misspelt: None,
        })
    }

    /// Whether the native connector is below.
    pub fn is_native(&self) -> bool {
        self.under_value == NATIVE
    }

    /// A copy with the native connector below. Logs are shown in native files.
    pub fn native(self: &Arc<Self>) -> Result<Arc<Self>, Fault> {
        match self.under_value {
            NATIVE => Ok(Arc::clone(self)),
            _ => Info::new(&self.library, NATIVE, self.given.clone()).map(Arc::new),
        }
    }

    fn parse_under(&self, text: &str) -> Result<*mut c_void, Fault> {
        let refused = || format!("under_info={{{text}}}: the connector below refuses it");
        let c_text = CString::new(text).map_err(|_| refused())?;
        let mut info = ptr::null_mut();
        // SAFETY: the identifier belongs to this library, and the text is a C string.
        let status = self.library.quietly(|f| unsafe {
            (f.H5VLconnector_str_to_info)(c_text.as_ptr(), self.under_vol, &mut info)
        });
        match status {
            0.. => Ok(info),
            _ => Err(refused().into()),
        }
    }

    /// The information of a file access property list, or the default.
    pub fn of_access_list(library: &Library, fapl: Id) -> Result<Arc<Self>, Fault> {
        let mut found = ptr::null_mut();
        // SAFETY: `fapl` is a list of this library.
        let status = library.nested(|f| unsafe { (f.H5Pget_vol_info)(fapl, &mut found) });
        match status {
            0.. if found.is_null() => Info::parse(library, ""),
            // SAFETY: libhdf5 has called the copy callback, so this reference belongs to the caller.
            0.. => Ok(unsafe { Info::from_raw(found) }),
            _ => Err("the connector's information cannot be read".into()),
        }
    }

    /// Whether both have one connector below, in one library.
    pub fn is_like(&self, other: &Info) -> bool {
        self.under_value == other.under_value && self.library_number() == other.library_number()
    }

    /// A number that is unique to the library.
    pub fn library_number(&self) -> usize {
        self.library.functions().H5Pcopy as usize
    }

    /// Reads the capability flags of the connector below.
    pub fn capabilities(&self, flags: *mut u64) -> Result<Status, Fault> {
        // SAFETY: the identifier belongs to this library, and the information is that of its connector, or null.
        Ok(self.library.quietly(|f| unsafe {
            (f.H5VLintrospect_get_cap_flags)(self.under_info, self.under_vol, flags)
        }))
    }

    /// The options for a file that is created or opened now. The environment and the information string override a program's
    /// lists.
    pub fn options(&self, request: &Request<'_>) -> Result<Options, Fault> {
        if let Some(misspelt) = &self.misspelt {
            return Err(Fault::Refused(misspelt.sentence()));
        }
        let lists = Options::of_lists(
            property(&self.library, request.fcpl, &SUBFILES),
            property(&self.library, request.fapl, &SHARES_SELECTIONS),
            property(&self.library, request.fapl, &ENCODING),
        );
        self.given
            .complete(lists, |variable| std::env::var_os(variable))
    }

    /// Runs `call` with a copy of a file access property list for the connector below.
    pub fn with_under_list<R>(
        &self,
        fapl: Id,
        call: impl FnOnce(Id) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let copy = self.list(fapl, self.under_vol, self.under_info)?;
        call(copy.id)
    }

    /// Puts this connector back into a list that names the connector below.
    pub fn restore_list(self: &Arc<Self>, fapl: Id) -> Result<(), Fault> {
        // SAFETY: the identifiers belong to this library. libhdf5 copies the information through the copy callback.
        let status = self.library.nested(|f| unsafe {
            let connector = (f.H5VLget_connector_id_by_name)(NAME.as_ptr());
            if connector < 0 {
                return FAILURE;
            }
            let status = (f.H5Pset_vol)(fapl, connector, Arc::as_ptr(self).cast());
            (f.H5VLclose)(connector);
            status
        });
        match status {
            0.. => Ok(()),
            _ => Err("the connector cannot be set in a file access property list".into()),
        }
    }

    fn list(&self, fapl: Id, connector: Id, info: *const c_void) -> Result<PropertyList, Fault> {
        let failed = || "a file access property list cannot be copied".to_owned();
        let copy = PropertyList::copy(&self.library, fapl).ok_or_else(failed)?;
        // SAFETY: the list and the connector belong to this library.
        let status = self
            .library
            .nested(|f| unsafe { (f.H5Pset_vol)(copy.id, connector, info) });
        match status {
            0.. => Ok(copy),
            _ => Err(failed().into()),
        }
    }

    /// Gives the reference to libhdf5.
    pub fn into_raw(self: Arc<Self>) -> *mut c_void {
        Arc::into_raw(self).cast_mut().cast()
    }

    /// Takes a reference back from libhdf5.
    ///
    /// # Safety
    ///
    /// `raw` comes from [`Info::into_raw`], and nothing uses it afterwards.
    pub unsafe fn from_raw(raw: *const c_void) -> Arc<Self> {
        // SAFETY: guaranteed by the caller.
        unsafe { Arc::from_raw(raw.cast()) }
    }

    /// Makes another reference to information that libhdf5 holds.
    ///
    /// # Safety
    ///
    /// `raw` comes from [`Info::into_raw`].
    pub unsafe fn share(raw: *const c_void) -> Arc<Self> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            Arc::increment_strong_count(raw.cast::<Self>());
            Info::from_raw(raw)
        }
    }

    /// Orders the information of two lists of one library.
    pub fn compare(&self, other: &Self) -> Result<Ordering, Fault> {
        let mut by_class = 0;
        let mut by_info = 0;
        // SAFETY: the identifiers belong to this library, and each information is that of its connector.
        let status = self.library.nested(|f| unsafe {
            let status = (f.H5VLcmp_connector_cls)(&mut by_class, self.under_vol, other.under_vol);
            if status < 0 || by_class != 0 {
                return status;
            }
            (f.H5VLcmp_connector_info)(
                &mut by_info,
                self.under_vol,
                self.under_info,
                other.under_info,
            )
        });
        if status < 0 {
            return Err("connectors cannot be compared".into());
        }
        Ok(by_class
            .cmp(&0)
            .then(by_info.cmp(&0))
            .then_with(|| self.given.cmp(&other.given))
            .then_with(|| self.misspelt.cmp(&other.misspelt)))
    }

    /// Whether a data transfer property list asks for a collective transfer.
    pub fn is_collective(&self, dxpl: Id) -> bool {
        self.transfer_mode(dxpl) != INDEPENDENT
    }

    fn transfer_mode(&self, dxpl: Id) -> c_int {
        let mut mode = INDEPENDENT;
        if let Some(parallel) = self.parallel {
            // SAFETY: the library checks any list.
            self.library
                .nested(|_| unsafe { (parallel.H5Pget_dxpl_mpio)(dxpl, &mut mode) });
        }
        mode
    }

    /// Runs `call` with independent transfer, for a file that each rank opens by itself. The program's list is changed during the
    /// call. A copy would have to outlive the call of libhdf5 that this one runs in.
    pub fn independently<R>(&self, dxpl: Id, call: impl FnOnce() -> R) -> Result<R, Fault> {
        let mode = self.transfer_mode(dxpl);
        let Some(parallel) = self.parallel.filter(|_| mode != INDEPENDENT) else {
            return Ok(call());
        };
        let set = |mode| {
            // SAFETY: as above.
            let status = self
                .library
                .nested(|_| unsafe { (parallel.H5Pset_dxpl_mpio)(dxpl, mode) });
            let failed = "a data transfer property list cannot be changed";
            (status >= 0).then_some(()).ok_or(failed)
        };
        set(INDEPENDENT)?;
        let mut is_restored = Ok(());
        let restore = AtEnd(|| is_restored = set(mode));
        let result = call();
        drop(restore);
        is_restored?;
        Ok(result)
    }

    /// The information string, in memory that the library allocates.
    pub fn to_text(&self) -> Result<*mut c_char, Fault> {
        if let Some(misspelt) = &self.misspelt {
            return self.allocate(&misspelt.options);
        }
        let mut under = ptr::null_mut::<c_char>();
        // SAFETY: the identifier belongs to this library, and the information is that of its connector, or null.
        let status = self.library.quietly(|f| unsafe {
            (f.H5VLconnector_info_to_str)(self.under_info, self.under_vol, &mut under)
        });
        if status < 0 {
            return Err("the information of the connector below cannot be read".into());
        }
        let under_text = self.take_text(under);
        let given = self.given.text();
        self.allocate(&format!(
            "under_vol={};under_info={{{under_text}}}{given}",
            self.under_value
        ))
    }

    /// Copies a text that the library has allocated, and frees it. Empty if it is null.
    fn take_text(&self, text: *mut c_char) -> String {
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the library gives a C string.
        let copy = unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned();
        // SAFETY: nothing uses the text afterwards, and the library that allocated it frees it.
        self.library
            .quietly(|f| unsafe { (f.H5free_memory)(text.cast()) });
        copy
    }

    fn allocate(&self, text: &str) -> Result<*mut c_char, Fault> {
        // SAFETY: the library is initialized.
        let place = self
            .library
            .quietly(|f| unsafe { (f.H5allocate_memory)(text.len() + 1, false) });
        let place = place.cast::<u8>();
        if place.is_null() {
            return Err("out of memory".into());
        }
        // SAFETY: the place has room for the text and a zero byte.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), place, text.len());
            place.add(text.len()).write(0);
        }
        Ok(place.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_may_be_left_out() {
        assert_eq!(Parts::parse("").unwrap(), Parts::default());
        assert_eq!(
            Parts::parse(" under_vol=0;under_info={}").unwrap(),
            Parts::default()
        );
        assert_eq!(
            Parts::parse("under_info={};under_vol=0;").unwrap(),
            Parts::default()
        );
    }

    #[test]
    fn the_information_below_may_hold_more_of_its_kind() {
        let parts =
            Parts::parse("under_vol=512;under_info={under_vol=0;under_info={};x={y}};fsync=none")
                .unwrap();
        assert_eq!(parts.under_vol, 512);
        assert_eq!(parts.under_info, "under_vol=0;under_info={};x={y}");
        assert_eq!(parts.given.text(), ";fsync=none");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, words) in [
            ("under_vol", "under_vol: expected name=value"),
            ("under_vol=native", "under_vol=native: expected the number"),
            ("under_vol=-1", "under_vol=-1: expected the number"),
            (
                "under_info={;fsync=none",
                "under_info={;fsync=none: expected {…}",
            ),
            ("under_info=x", "under_info=x: expected {…}"),
            ("under_info={}fsync=none", "expected {…}"),
            ("under_info=", "under_info=: expected {…}"),
            ("fsync=often", "fsync=often: expected"),
            (
                "fsync=none flush_every=1s",
                "none, close or flush; options are separated by semicolons",
            ),
            ("speed=high", "unknown option speed"),
        ] {
            let complaint = Parts::parse(text).unwrap_err();
            assert!(complaint.to_string().contains(words), "{text}: {complaint}");
        }
    }
}
