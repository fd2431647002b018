//! The version of the file format in which libhdf5 makes objects.

use hdf5_metno_sys::h5::herr_t;

use super::*;

unsafe extern "C" {
    /// The binding lacks it. libhdf5 has it from 1.10.2 on.
    fn H5Fset_libver_bounds(file: hid_t, low: H5F_libver_t, high: H5F_libver_t) -> herr_t;
}

/// The oldest version that objects may have. Each of them has a later one only where it needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Files are made with it.
    Oldest,
    /// That of HDF5 1.8. Objects have headers of version 2 (IV.A.1.b), which can say that they have no times.
    V18,
}

/// Sets the version in which libhdf5 makes the next objects of an open file. libhdf5 first flushes the file.
pub fn set_format(file: &Id, format: Format) -> Result<()> {
    let low = match format {
        Format::Oldest => H5F_libver_t::H5F_LIBVER_EARLIEST,
        Format::V18 => H5F_libver_t::H5F_LIBVER_V18,
    };
    h5!(H5Fset_libver_bounds(file.0, low, H5F_LIBVER_LATEST)).map(drop)
}
