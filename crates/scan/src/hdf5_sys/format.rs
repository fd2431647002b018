//! The version of the file format in which libhdf5 makes objects.

use hdf5_metno_sys::h5::herr_t;

use super::*;

unsafe extern "C" {
    /// The binding lacks this function. libhdf5 has it from 1.10.2 on.
    fn H5Fset_libver_bounds(file: hid_t, low: H5F_libver_t, high: H5F_libver_t) -> herr_t;
}

/// The oldest version in which objects may be made. libhdf5 uses a later version only for an object that needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The version in which files are created.
    Oldest,
    /// The version of HDF5 1.8. Objects have headers of version 2 (IV.A.1.b), which can omit times.
    V18,
}

/// Sets the version in which libhdf5 makes the next objects of an open file. libhdf5 flushes the file first.
pub fn set_format(file: &Id, format: Format) -> Result<()> {
    let low = match format {
        Format::Oldest => H5F_libver_t::H5F_LIBVER_EARLIEST,
        Format::V18 => H5F_libver_t::H5F_LIBVER_V18,
    };
    h5!(H5Fset_libver_bounds(file.0, low, H5F_LIBVER_LATEST)).map(drop)
}
