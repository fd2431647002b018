//! Exceptions of other languages: a function of the program that libhdf5 calls may throw one, which goes through libhdf5 and
//! through us on its way to the program.
//!
//! Rust passes such an exception on, and drops what lies on its way. But `catch_unwind`, which keeps panics of ours out of the
//! program, ends the process where it meets one. So it is taken out of the way here, handed on as a value, and [thrown
//! again](Exception::go_on) where nothing of ours is left to do.

use std::ffi::{c_int, c_void};
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::thread;

/// An exception of another language, on its way to the program. It is lost if it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Exception(*mut c_void);

impl Exception {
    /// Throws it again.
    ///
    /// # Safety
    ///
    /// Only in a function that may end in such an exception ("C-unwind"), and is called by one that may.
    pub unsafe fn go_on(self) -> ! {
        // SAFETY: it is an exception that was caught, and is thrown again once.
        unsafe { _Unwind_Resume_or_Rethrow(self.0) };
        // Nobody catches it: C++ ends the program there, too.
        std::process::abort();
    }
}

/// Calls, and returns what a panic says. An exception of another language goes on, behind what `catch_unwind` keeps: so this is only
/// called where callers let one pass ("C-unwind").
pub fn caught<R>(act: impl FnOnce() -> R) -> thread::Result<R> {
    // Nothing of ours is used after a panic but what locks guard.
    let done = panic::catch_unwind(AssertUnwindSafe(|| catch(act)))?;
    // SAFETY: as the function says.
    Ok(done.unwrap_or_else(|exception| unsafe { exception.go_on() }))
}

/// Calls. An exception of another language is handed on; a panic of ours goes on.
pub fn catch<R>(act: impl FnOnce() -> R) -> Result<R, Exception> {
    let mut act = Some(act);
    let mut result = None;
    let mut run = || result = act.take().map(|act| act());
    let (run, place) = runner(&mut run);
    // SAFETY: the function is that of this place.
    let exception = unsafe { call(run, place) };
    // What has not come to its end has ended in an exception.
    result.ok_or(Exception(exception))
}

/// A function, and what it has to be called with.
type Runner = (
    unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
);

fn runner<F: FnMut()>(run: &mut F) -> Runner {
    /// Returns null, as one that ends in no exception.
    unsafe extern "C-unwind" fn run_at<F: FnMut()>(place: *mut c_void) -> *mut c_void {
        // SAFETY: the place is that of the function, which nobody else calls meanwhile.
        unsafe { (*place.cast::<F>())() };
        ptr::null_mut()
    }
    (run_at::<F>, (&raw mut *run).cast())
}

/// Calls `run(place)`, and returns what that returns, or the exception of another language in which it ends.
///
/// [`decide`] is asked about each exception that comes here. Where one is caught, the function goes on behind the call, as if that
/// had returned the exception: so it needs no table of places where exceptions are caught.
#[unsafe(naked)]
unsafe extern "C-unwind" fn call(
    run: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    place: *mut c_void,
) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        ".cfi_startproc",
        // By its distance, in four bytes.
        ".cfi_personality 0x1b, {decide}",
        "endbr64",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        // Here an exception jumps to.
        "endbr64",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
        decide = sym decide,
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        ".cfi_startproc",
        ".cfi_personality 0x1b, {decide}",
        // "bti c"
        "hint #34",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "mov x2, x0",
        "mov x0, x1",
        "blr x2",
        // "bti j": here an exception jumps to.
        "hint #36",
        "ldp x29, x30, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
        decide = sym decide,
    );
}

/// `_Unwind_Context`: a frame that an exception has come to.
type Frame = c_void;

// Of the library that Rust itself uses for its panics.
unsafe extern "C-unwind" {
    fn _Unwind_Resume_or_Rethrow(exception: *mut c_void) -> c_int;
}

unsafe extern "C" {
    fn _Unwind_SetGR(frame: *mut Frame, register: c_int, value: usize);
    fn _Unwind_GetIP(frame: *mut Frame) -> usize;
    fn _Unwind_SetIP(frame: *mut Frame, address: usize);
}

/// The personality routine of [`call`]: whether an exception is caught there. It is asked twice.
unsafe extern "C" fn decide(
    _version: c_int,
    actions: c_int,
    class: u64,
    exception: *mut c_void,
    frame: *mut Frame,
) -> c_int {
    /// `_UA_SEARCH_PHASE`, `_UA_HANDLER_FRAME`, `_UA_FORCE_UNWIND`.
    const SEARCH: c_int = 1;
    const HANDLER: c_int = 4;
    const FORCED: c_int = 8;
    /// `_URC_HANDLER_FOUND`, `_URC_INSTALL_CONTEXT`, `_URC_CONTINUE_UNWIND`.
    const CATCH: c_int = 6;
    const GO_THERE: c_int = 7;
    const LEAVE: c_int = 8;
    // The end of a thread, which is no exception, cannot be caught.
    if actions & FORCED != 0 {
        return LEAVE;
    }
    // Versions of Rust write it in one order of bytes or the other. A panic of a Rust that the program has is as foreign as any.
    let is_rust = [class.to_ne_bytes(), class.to_be_bytes()].contains(b"MOZ\0RUST");
    let is_own = is_rust && thread::panicking();
    if actions & SEARCH != 0 {
        return if is_own { LEAVE } else { CATCH };
    }
    if actions & HANDLER == 0 {
        return LEAVE;
    }
    // SAFETY: the frame is that of `call`, in its one call. Register 0 is that of a result on both processors.
    unsafe {
        _Unwind_SetGR(frame, 0, exception as usize);
        _Unwind_SetIP(frame, _Unwind_GetIP(frame));
    }
    GO_THERE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `_Unwind_Exception`, as another language throws it.
    #[repr(C, align(16))]
    struct Thrown {
        class: u64,
        rest: [u64; 3],
    }

    unsafe extern "C-unwind" {
        fn _Unwind_RaiseException(exception: *mut c_void) -> c_int;
    }

    const CLASS: u64 = u64::from_be_bytes(*b"TESTC++\0");

    fn throw() {
        let thrown = Box::new(Thrown {
            class: CLASS,
            rest: [0; 3],
        });
        // SAFETY: it is an exception, which lives until it is caught.
        unsafe { _Unwind_RaiseException(Box::into_raw(thrown).cast()) };
    }

    /// The class of an exception that is not thrown again.
    fn class_of(exception: Exception) -> u64 {
        // SAFETY: it is of `throw`.
        unsafe { Box::from_raw(exception.0.cast::<Thrown>()) }.class
    }

    struct Sets<'a>(&'a mut bool);

    impl Drop for Sets<'_> {
        fn drop(&mut self) {
            *self.0 = true;
        }
    }

    #[test]
    fn a_result_is_returned() {
        assert_eq!(catch(|| "text".to_owned()).unwrap(), "text");
    }

    #[test]
    fn an_exception_is_caught_behind_what_it_drops() {
        let mut is_dropped = false;
        let caught = catch(|| {
            let _sets = Sets(&mut is_dropped);
            throw();
        });
        assert_eq!(class_of(caught.unwrap_err()), CLASS);
        assert!(is_dropped);
        assert!(!thread::panicking());
    }

    #[test]
    fn an_exception_is_thrown_again() {
        let outer = catch(|| {
            let inner = catch(throw);
            // SAFETY: `catch` is around it.
            unsafe { inner.unwrap_err().go_on() };
        });
        assert_eq!(class_of(outer.unwrap_err()), CLASS);
    }

    #[test]
    fn a_panic_goes_on() {
        let panicked = panic::catch_unwind(|| catch(|| panic::resume_unwind(Box::new(7))));
        let payload = panicked.map(drop).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&7));
    }
}
