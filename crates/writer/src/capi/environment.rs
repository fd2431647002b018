//! The caller's MPI: whether this thread may call it, and duplicates of its communicators.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpi::collective::SystemOperation;
use mpi::ffi;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

use super::status::h5logfs_status::{H5LOGFS_ERR_FAILED, H5LOGFS_ERR_MPI};
use super::status::{ApiError, Result};
use h5logfs_mpi::{check, library};

/// The right of this thread to call MPI, while the guard lives. Below MPI_THREAD_MULTIPLE only one thread at a time may call
/// MPI, so the guard holds a lock.
pub(super) struct MpiGuard {
    _lock: Option<MutexGuard<'static, ()>>,
}

impl MpiGuard {
    /// Fails if this thread must not call MPI.
    pub fn acquire() -> Result<Self> {
        static LOCK: Mutex<()> = Mutex::new(());
        let level = thread_level()?;
        // SAFETY: these are constants of the MPI library.
        let (serialized, multiple) =
            unsafe { (ffi::RSMPI_THREAD_SERIALIZED, ffi::RSMPI_THREAD_MULTIPLE) };
        if level < serialized && !is_main_thread() {
            return Err(mpi_error(
                "MPI was initialised without support for threads: only the thread that did it may call. \
                 MPI_Init_thread asks for more (MPI_THREAD_SERIALIZED)",
            ));
        }
        let lock = (level < multiple).then(|| LOCK.lock());
        Ok(MpiGuard {
            _lock: lock.map(|guard| guard.unwrap_or_else(PoisonError::into_inner)),
        })
    }
}

/// The level of thread support of the running MPI.
fn thread_level() -> Result<c_int> {
    library::check().map_err(mpi_error)?;
    let (mut started, mut ended, mut level) = (0, 0, 0);
    // SAFETY: MPI allows the first two calls at any time, and the third one while it is running.
    unsafe {
        ffi::MPI_Initialized(&mut started);
        ffi::MPI_Finalized(&mut ended);
        if started == 0 {
            let other = library::others_loaded();
            let other = other.map(|other| format!(". {other}"));
            return Err(mpi_error(format!(
                "MPI is not initialised: call MPI_Init first{}",
                other.unwrap_or_default()
            )));
        }
        if ended != 0 {
            return Err(mpi_error(
                "MPI is finalised already: close files before MPI_Finalize. What was flushed is safe, and \
                 `h5logfs recover` closes the file",
            ));
        }
        ffi::MPI_Query_thread(&mut level);
    }
    Ok(level)
}

fn is_main_thread() -> bool {
    let mut main = 0;
    // SAFETY: MPI is initialised, and any thread may call this.
    unsafe { ffi::MPI_Is_thread_main(&mut main) };
    main != 0
}

fn mpi_error(message: impl Into<String>) -> ApiError {
    ApiError::new(H5LOGFS_ERR_MPI, message)
}

/// A duplicate of a caller's communicator. A drop does not free it, because that is a collective call, which a panic must not
/// make. [`DuplicateComm::free`] does.
pub(super) struct DuplicateComm(ManuallyDrop<SimpleCommunicator>);

impl DuplicateComm {
    /// Duplicates a communicator. Collective.
    ///
    /// # Safety
    /// `comm` must be a communicator, or MPI_COMM_NULL.
    pub unsafe fn of(comm: ffi::MPI_Comm, _: &MpiGuard) -> Result<Self> {
        // SAFETY: the guard shows that MPI may be called. The caller passes a communicator. The new one belongs to this
        // library, is not predefined, and is an intracommunicator like the old one.
        unsafe {
            if comm == ffi::RSMPI_COMM_NULL {
                return Err(ApiError::invalid("the communicator is MPI_COMM_NULL"));
            }
            let mut inter = 0;
            ffi::MPI_Comm_test_inter(comm, &mut inter);
            if inter != 0 {
                return Err(ApiError::invalid(
                    "the communicator is an intercommunicator; a file needs an intracommunicator",
                ));
            }
            let mut raw = ffi::RSMPI_COMM_NULL;
            let code = ffi::MPI_Comm_dup(comm, &mut raw);
            check("MPI_Comm_dup", code).map_err(mpi_error)?;
            if raw == ffi::RSMPI_COMM_NULL {
                return Err(mpi_error("MPI_Comm_dup made no communicator"));
            }
            let comm = SimpleCommunicator::from_raw(raw);
            Ok(DuplicateComm(ManuallyDrop::new(comm)))
        }
    }

    pub fn comm(&self) -> &SimpleCommunicator {
        &self.0
    }

    /// Returns the arguments of an operation if all ranks have valid ones. Otherwise fails on all ranks, with the rank's own
    /// error if it has one. `path` returns the file of valid arguments. Collective.
    pub fn agree<T>(
        &self,
        operation: &str,
        result: Result<T>,
        path: impl FnOnce(&T) -> &str,
    ) -> Result<T> {
        let failed = if result.is_err() {
            self.0.rank()
        } else {
            c_int::MAX
        };
        let mut first = failed;
        self.0
            .all_reduce_into(&failed, &mut first, SystemOperation::min());
        let arguments =
            result.map_err(|e| e.about(format!("{operation}: rank {}", self.0.rank())))?;
        if first == c_int::MAX {
            return Ok(arguments);
        }
        let file = path(&arguments);
        Err(ApiError::new(
            H5LOGFS_ERR_FAILED,
            format!(
                "{file}: {operation} failed on rank {first}: that rank passed arguments that are not valid, and its error says which"
            ),
        ))
    }

    /// Frees the communicator. Collective.
    pub fn free(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }
}
