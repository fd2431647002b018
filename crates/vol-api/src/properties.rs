//! The Log VOL's properties of property lists. The connector uses some of them ([`h5logfs_host::lists`]). The others have no
//! effect, and are kept so that a program reads back what it has set.

use std::ffi::{CStr, c_int};

use h5logfs_common::fault::Fault;
use h5logfs_host::Kind;
use h5logfs_host::lists::{
    DATASET_TRANSFER, ENCODING, FILE_ACCESS, FILE_CREATION, Property, SHARES_SELECTIONS, SUBFILES,
};
use h5logfs_host::types::{Id, SUCCESS, Status};

use crate::library::{Library, identifier, serve};

/// `LOG_VOL_BSIZE_UNLIMITED`.
const UNLIMITED: isize = -1;

const fn property<T>(name: &'static CStr, class: &'static CStr, default: T) -> Property<T> {
    Property {
        name,
        class,
        default,
    }
}

const BUFFERED: Property<bool> = property(c"h5logfs_buffered", DATASET_TRANSFER, true);
const BUFFER: Property<isize> = property(c"h5logfs_nb_buffer_size", FILE_ACCESS, UNLIMITED);
const INDEX: Property<isize> = property(c"h5logfs_idx_buffer_size", FILE_ACCESS, UNLIMITED);
const MERGES: Property<bool> = property(c"h5logfs_meta_merge", FILE_ACCESS, false);
const ZIPS: Property<bool> = property(c"h5logfs_meta_zip", FILE_ACCESS, false);
const LAYOUT: Property<c_int> = property(c"h5logfs_data_layout", FILE_CREATION, 0);
const SINGLE: Property<bool> = property(c"h5logfs_single_subfile_read", FILE_ACCESS, false);
const PASSES: Property<bool> = property(c"h5logfs_passthru", FILE_ACCESS, false);

/// Whether the class of a list has a property. Fails for an identifier that is no list.
fn has<T>(library: &Library, list: Id, property: &Property<T>) -> Result<bool, Fault> {
    let class = identifier(library, property.class)?;
    // SAFETY: the library accepts any identifiers.
    match library.quietly(|f| unsafe { (f.H5Pisa_class)(list, class) }) {
        0 => Ok(false),
        1.. => Ok(true),
        _ => Err("the identifier is not a property list".into()),
    }
}

fn is_there<T>(library: &Library, list: Id, property: &Property<T>) -> bool {
    // SAFETY: the name is a C string.
    library.quietly(|f| unsafe { (f.H5Pexist)(list, property.name.as_ptr()) }) > 0
}

/// Sets a property. Refuses a list of another class.
fn set<T: Copy>(list: Id, property: &Property<T>, value: T) -> Status {
    serve(Kind::Other, |library| {
        if !has(library, list, property)? {
            return Err(
                format!("a property list of another class than {:?}", property.class).into(),
            );
        }
        let (name, value) = (property.name.as_ptr(), (&raw const value).cast());
        // SAFETY: the name is a C string, and the value has the stated size. The library copies it.
        let status = library.quietly(|f| unsafe {
            if is_there(library, list, property) {
                (f.H5Pset)(list, name, value)
            } else {
                (f.H5Pinsert2)(
                    list,
                    name,
                    size_of::<T>(),
                    value,
                    None,
                    None,
                    None,
                    None,
                    None,
                    None,
                )
            }
        });
        match status {
            0.. => Ok(SUCCESS),
            _ => Err("the property cannot be set".into()),
        }
    })
}

/// Gets a property. A list without it, including one of another class, has the default.
///
/// # Safety
///
/// `place` is null, or has room for the value.
unsafe fn get<T: Copy>(list: Id, property: &Property<T>, place: *mut T) -> Status {
    serve(Kind::Other, |library| {
        if place.is_null() {
            return Err("there is no place for the value".into());
        }
        let mut value = property.default;
        if has(library, list, property)? && is_there(library, list, property) {
            let (name, place) = (property.name.as_ptr(), (&raw mut value).cast());
            // SAFETY: the name is a C string, and there is room for the value, which [`set`] has set.
            let status = library.quietly(|f| unsafe { (f.H5Pget)(list, name, place) });
            if status < 0 {
                return Err("the property cannot be read".into());
            }
        }
        // SAFETY: promised by the caller.
        unsafe { place.write(value) };
        Ok(SUCCESS)
    })
}

/// Declares functions that set and get a property.
macro_rules! properties {
    ($($(#[$doc:meta])* $set:ident, $get:ident: $type:ty = $property:ident;)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub extern "C-unwind" fn $set(list: Id, value: $type) -> Status {
                set(list, &$property, value)
            }

            #[doc = concat!("What [`", stringify!($set), "`] has set, or the default.")]
            ///
            /// # Safety
            ///
            /// `place` is null, which is an error, or has room for the value.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $get(list: Id, place: *mut $type) -> Status {
                // SAFETY: promised by the caller.
                unsafe { get(list, &$property, place) }
            }
        )*
    };
}

properties! {
    /// Data transfer: whether elements of a write are copied. They always are, so it has no effect.
    H5Pset_buffered, H5Pget_buffered: bool = BUFFERED;
    /// Most bytes of data in memory. No effect: the option `buffer_limit` of the connector limits them.
    H5Pset_nb_buffer_size, H5Pget_nb_buffer_size: isize = BUFFER;
    /// Most bytes of an index of records. No effect: reads of a log that is being written need none.
    H5Pset_idx_buffer_size, H5Pget_idx_buffer_size: isize = INDEX;
    /// Whether entries are joined. No effect: they always are where possible.
    H5Pset_meta_merge, H5Pget_meta_merge: bool = MERGES;
    /// Whether equal selections are stored once: the connector's option `share_selections`.
    H5Pset_meta_share, H5Pget_meta_share: bool = SHARES_SELECTIONS;
    /// Whether entries are compressed. No effect: they are not.
    H5Pset_meta_zip, H5Pget_meta_zip: bool = ZIPS;
    /// Encoding of selections, 0 as offsets and 1 as coordinates: the connector's option `encode_selections`.
    H5Pset_sel_encoding, H5Pget_sel_encoding: c_int = ENCODING;
    /// Data layout of a new file. No effect: there is only one.
    H5Pset_data_layout, H5Pget_data_layout: c_int = LAYOUT;
    /// Subfiles of a new file: -1 for one a node, 0 for none, otherwise their number. The connector's option `subfiles`.
    H5Pset_subfiling, H5Pget_subfiling: c_int = SUBFILES;
    /// Whether a process reads only its own subfile. No effect: reads cover all.
    H5Pset_single_subfile_read, H5Pget_single_subfile_read: bool = SINGLE;
    /// Whether elements pass through another connector. No effect: they never do.
    H5Pset_passthru, H5Pget_passthru: bool = PASSES;
    /// The name of [`H5Pset_passthru`] in unreleased versions.
    H5Pset_passthru_read_write, H5Pget_passthru_read_write: bool = PASSES;
}
