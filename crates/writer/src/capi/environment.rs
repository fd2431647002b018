//! MPI as the caller has it: whether it may be called, and its communicators.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpi::collective::SystemOperation;
use mpi::ffi;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

use super::status::h5logfs_status::{H5LOGFS_ERR_FAILED, H5LOGFS_ERR_MPI};
use super::status::{Fault, Result};

/// The right to call MPI, for as long as it is held.
pub(super) struct Turn {
    _alone: Option<MutexGuard<'static, ()>>,
}

impl Turn {
    /// Fails where MPI must not be called at all, or not by this thread. Where MPI leaves it to the
    /// program that only one thread at a time calls it, this library does its part.
    pub fn take() -> Result<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let level = level()?;
        // SAFETY: these are constants of the library, which are there once it is loaded.
        let (serialized, multiple) =
            unsafe { (ffi::RSMPI_THREAD_SERIALIZED, ffi::RSMPI_THREAD_MULTIPLE) };
        if level < serialized && !is_main_thread() {
            return Err(fault(
                "MPI was initialised without support for threads: only the thread that did it may call",
            ));
        }
        let alone = (level < multiple).then(|| ALONE.lock());
        Ok(Turn {
            _alone: alone.map(|guard| guard.unwrap_or_else(PoisonError::into_inner)),
        })
    }
}

/// The level of thread support that MPI was initialised with.
fn level() -> Result<c_int> {
    let (mut started, mut ended, mut level) = (0, 0, 0);
    // SAFETY: the first two may be called at any time, the third one in between.
    unsafe {
        ffi::MPI_Initialized(&mut started);
        ffi::MPI_Finalized(&mut ended);
        if started == 0 {
            return Err(fault("MPI is not initialised"));
        }
        if ended != 0 {
            return Err(fault("MPI is finalised already"));
        }
        ffi::MPI_Query_thread(&mut level);
    }
    Ok(level)
}

fn is_main_thread() -> bool {
    let mut main = 0;
    // SAFETY: MPI is initialised, and any thread may ask.
    unsafe { ffi::MPI_Is_thread_main(&mut main) };
    main != 0
}

fn fault(message: &str) -> Fault {
    Fault::new(H5LOGFS_ERR_MPI, message)
}

/// A duplicate of a caller's communicator. Freed by [`Duplicate::free`] only, which is collective: a
/// panic must not do it.
pub(super) struct Duplicate(ManuallyDrop<SimpleCommunicator>);

impl Duplicate {
    /// Collective.
    ///
    /// # Safety
    /// `comm` is a communicator, or MPI's null handle.
    pub unsafe fn of(comm: ffi::MPI_Comm, _: &Turn) -> Result<Self> {
        // SAFETY: MPI may be called; the communicator is one, as the caller says. The new one is
        // ours, no predefined one, and has one group as the old one has.
        unsafe {
            if comm == ffi::RSMPI_COMM_NULL {
                return Err(Fault::invalid("the communicator is MPI_COMM_NULL"));
            }
            let mut inter = 0;
            ffi::MPI_Comm_test_inter(comm, &mut inter);
            if inter != 0 {
                return Err(Fault::invalid("the communicator is an intercommunicator"));
            }
            let mut raw = ffi::RSMPI_COMM_NULL;
            let code = ffi::MPI_Comm_dup(comm, &mut raw);
            if code != ffi::MPI_SUCCESS as c_int || raw == ffi::RSMPI_COMM_NULL {
                return Err(fault(&format!("MPI_Comm_dup fails with error {code}")));
            }
            let comm = SimpleCommunicator::from_raw(raw);
            Ok(Duplicate(ManuallyDrop::new(comm)))
        }
    }

    pub fn comm(&self) -> &SimpleCommunicator {
        &self.0
    }

    /// What each rank has found out by itself, if none has found a fault. Collective.
    pub fn agree<T>(&self, found: Result<T>) -> Result<T> {
        let mine = match found {
            Ok(_) => c_int::MAX,
            Err(_) => self.0.rank(),
        };
        let mut first = mine;
        self.0
            .all_reduce_into(&mine, &mut first, SystemOperation::min());
        match found {
            Ok(_) if first < c_int::MAX => Err(Fault::new(
                H5LOGFS_ERR_FAILED,
                format!("create failed on rank {first}: its arguments were refused there"),
            )),
            found => found,
        }
    }

    /// Collective.
    pub fn free(self) {
        drop(ManuallyDrop::into_inner(self.0));
    }
}
