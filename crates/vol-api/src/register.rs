//! The connector, for programs that register one themselves: `H5VL_log_register`, and the replacement of `H5VL_log_g`.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::os::unix::ffi::OsStringExt;

use h5logfs_common::fault::Fault;
use h5logfs_host::Kind;
use h5logfs_host::caller::Object;
use h5logfs_host::types::{DEFAULT, FAILURE, Id};

use crate::library::{Library, answer};

/// Name of the connector.
const NAME: &std::ffi::CStr = c"h5logfs";
/// Directory of plug-ins, relative to the directory of this library.
const PLUGINS: &str = "h5logfs/plugins";

/// Registers the connector. libhdf5 looks for it in `HDF5_PLUGIN_PATH`, and then in the directory installed with this
/// library. Returns its identifier, which the caller closes with `H5VLclose`; negative on failure.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn H5VL_log_register() -> Id {
    answer(Kind::Other, register).unwrap_or(FAILURE.into())
}

fn register(library: &'static Library) -> Result<Id, Fault> {
    // SAFETY: the name is a C string.
    let load = || {
        library.quietly(|f| unsafe { (f.H5VLregister_connector_by_name)(NAME.as_ptr(), DEFAULT) })
    };
    let mut found = load();
    if found < 0
        && let Some(plugins) = plugins()
    {
        // SAFETY: the path is a C string.
        library.quietly(|f| unsafe { (f.H5PLappend)(plugins.as_ptr()) });
        found = load();
    }
    match found {
        0.. => Ok(found),
        _ => Err(
            "the connector h5logfs cannot be loaded: HDF5_PLUGIN_PATH has to name the directory of its plug-in".into(),
        ),
    }
}

/// The directory of plug-ins installed with this library.
fn plugins() -> Option<CString> {
    let path = Object::path_of_code(H5VL_log_register as *const () as usize)?;
    let plugins = path.parent()?.join(PLUGINS);
    CString::new(plugins.into_os_string().into_vec()).ok()
}

/// The start of `H5VL_class_t`, padded to more than the size of any of its versions.
#[repr(C)]
pub struct Class {
    version: c_uint,
    value: c_int,
    name: *const c_char,
    rest: [u64; 256],
}

// SAFETY: it is never written to, and its only pointer is to a text that lives as long as the process.
unsafe impl Sync for Class {}

/// The connector's name, by which libhdf5 finds a registered connector; it reads nothing else. Version 3 is that of HDF5
/// 1.14.0 to 2.2.
static CLASS: Class = Class {
    version: 3,
    value: 0x4835,
    name: NAME.as_ptr(),
    rest: [0; 256],
};

/// Replaces the Log VOL's `H5VL_log_g` for programs that call `H5VLregister_connector`. It first registers the connector by
/// name, so libhdf5 finds that one. Null if the connector cannot be loaded, which libhdf5 refuses.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn h5logfs_vol_class() -> *const Class {
    let registered = answer(Kind::Other, |library| {
        // SAFETY: the name is a C string.
        let is_there =
            library.quietly(|f| unsafe { (f.H5VLis_connector_registered_by_name)(NAME.as_ptr()) });
        // It stays registered as long as the library runs, so a program may close its identifier.
        if is_there > 0 {
            Ok(())
        } else {
            register(library).map(drop)
        }
    });
    registered.map_or(std::ptr::null(), |()| &raw const CLASS)
}
