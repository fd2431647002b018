//! The entry points of the VOL connector for programs with parallel HDF5.

#![warn(missing_docs)]

use std::ffi::{c_int, c_void};

use h5logfs_common::fault::Fault;
use h5logfs_host::types::{Id, Status};
use h5logfs_host::with_return_address;
use h5logfs_mpi::MpiRanks;
use h5logfs_output::Ranks;
use h5logfs_vol_connector::Plugin;
use h5logfs_vol_connector::library::Library;
use mpi::ffi::{self, MPI_Comm, MPI_Info};

/// Returns the kind of this plug-in. libhdf5 asks every library in `HDF5_PLUGIN_PATH`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn H5PLget_plugin_type() -> c_int {
    h5logfs_vol_connector::PLUGIN_TYPE
}

with_return_address! {
    /// Returns the table of callbacks, an `H5VL_class_t` that lives as long as the process.
    #[unsafe(no_mangle)]
    H5PLget_plugin_info() -> *const c_void = info_for, register "rdi", "x0"
}

unsafe extern "C-unwind" fn info_for(caller: usize) -> *const c_void {
    h5logfs_host::keep_panics_quiet();
    h5logfs_vol_connector::ranks::set_finder(find_ranks);
    h5logfs_vol_connector::class_for(Plugin::Parallel, caller)
}

h5logfs_host::functions! {
    /// Functions that only parallel HDF5 has.
    struct Parallel for "h5logfs_connector" {
        H5Pget_fapl_mpio: fn(Id, *mut MPI_Comm, *mut MPI_Info) -> Status,
    }
}

/// The ranks of the communicator in a file access property list. `None` if the list has no communicator, or if MPI is not
/// running.
fn find_ranks(library: &Library, fapl: Id) -> Result<Option<Ranks>, Fault> {
    let Some(Parallel {
        H5Pget_fapl_mpio: get,
    }) = library.further()
    else {
        return Ok(None);
    };
    // SAFETY: the call returns copies, or fails for a list without a communicator.
    unsafe {
        let (no_communicator, no_hints) = (std::ptr::null_mut(), std::ptr::null_mut());
        if library.nested(|_| get(fapl, no_communicator, no_hints)) < 0 {
            return Ok(None);
        }
        h5logfs_mpi::library::check()?;
        if !h5logfs_mpi::is_running() {
            return h5logfs_mpi::library::others_loaded()
                .map_or(Ok(None), |other| Err(other.into()));
        }
        h5logfs_mpi::library::check_launch()?;
        let mut communicator = ffi::RSMPI_COMM_NULL;
        let mut hints = ffi::RSMPI_INFO_NULL;
        if library.nested(|_| get(fapl, &mut communicator, &mut hints)) < 0 {
            return Ok(None);
        }
        if hints != ffi::RSMPI_INFO_NULL {
            ffi::MPI_Info_free(&mut hints);
        }
        Ok(Some(Ranks::new(MpiRanks::from_raw(communicator))))
    }
}
