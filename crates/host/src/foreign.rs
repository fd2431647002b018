//! Exceptions of other languages. A function of the program that libhdf5 calls may throw one, which passes through libhdf5
//! and this code on its way to the program.
//!
//! Rust passes such an exception on, and drops values on its way. But `catch_unwind`, which keeps our panics out of the
//! program, aborts the process when it meets one. So this module catches the exception first, hands it on as a value, and
//! [throws it again](Exception::go_on) after all of our code is done.

use std::ffi::{c_int, c_void};
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::thread;

/// A caught exception of another language. It is lost if this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Exception(*mut c_void);

impl Exception {
    /// Throws the exception again.
    ///
    /// # Safety
    ///
    /// Call only in a function that may end in such an exception ("C-unwind"), and whose caller may, too.
    pub unsafe fn go_on(self) -> ! {
        // SAFETY: the exception was caught, and is thrown again once.
        unsafe { _Unwind_Resume_or_Rethrow(self.0) };
        // Nobody catches the exception: C++ ends the program then, too.
        std::process::abort();
    }
}

/// Calls `act`, and returns the payload of a panic. An exception of another language is thrown again outside of
/// `catch_unwind`. So call this only where callers allow that ("C-unwind").
pub fn caught<R>(act: impl FnOnce() -> R) -> thread::Result<R> {
    // After a panic, only values guarded by locks are used again.
    let done = panic::catch_unwind(AssertUnwindSafe(|| catch(act)))?;
    // SAFETY: promised by the callers: see above.
    Ok(done.unwrap_or_else(|exception| unsafe { exception.go_on() }))
}

/// Calls `act`, and returns an exception of another language as an error. A panic passes through.
pub fn catch<R>(act: impl FnOnce() -> R) -> Result<R, Exception> {
    let mut act = Some(act);
    let mut result = None;
    let mut run = || result = act.take().map(|act| act());
    let (run, place) = runner(&mut run);
    // SAFETY: `run` is the function for this place.
    let exception = unsafe { call(run, place) };
    // Without a result, the call has ended in an exception.
    result.ok_or(Exception(exception))
}

/// A function, and its argument.
type Runner = (
    unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
);

fn runner<F: FnMut()>(run: &mut F) -> Runner {
    /// Calls the function at `place`. Returns null: there was no exception.
    unsafe extern "C-unwind" fn run_at<F: FnMut()>(place: *mut c_void) -> *mut c_void {
        // SAFETY: the place holds that function, which nobody else calls meanwhile.
        unsafe { (*place.cast::<F>())() };
        ptr::null_mut()
    }
    (run_at::<F>, (&raw mut *run).cast())
}

/// Calls `run(place)`. Returns its result, or the exception of another language in which it ends.
///
/// The unwinder asks [`decide`] about each exception. A caught exception resumes the function after the call, as if the call
/// had returned it. So the function needs no table of landing pads.
#[unsafe(naked)]
unsafe extern "C-unwind" fn call(
    run: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    place: *mut c_void,
) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    std::arch::naked_asm!(
        ".cfi_startproc",
        // A relative address in four bytes.
        ".cfi_personality 0x1b, {decide}",
        "endbr64",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        // An exception lands here.
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
        // "bti j": an exception lands here.
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

/// `_Unwind_Context`: a frame that an exception has reached.
type Frame = c_void;

// From the unwinder that Rust uses for its own panics.
unsafe extern "C-unwind" {
    fn _Unwind_Resume_or_Rethrow(exception: *mut c_void) -> c_int;
}

unsafe extern "C" {
    fn _Unwind_SetGR(frame: *mut Frame, register: c_int, value: usize);
    fn _Unwind_GetIP(frame: *mut Frame) -> usize;
    fn _Unwind_SetIP(frame: *mut Frame, address: usize);
}

/// The personality routine of [`call`]: decides whether it catches an exception. The unwinder asks twice.
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
    // The forced end of a thread is no exception, and cannot be caught.
    if actions & FORCED != 0 {
        return LEAVE;
    }
    // Versions of Rust store it in either byte order. A panic of another Rust runtime in the program is as foreign as any
    // exception.
    let is_rust = [class.to_ne_bytes(), class.to_be_bytes()].contains(b"MOZ\0RUST");
    let is_own = is_rust && thread::panicking();
    if actions & SEARCH != 0 {
        return if is_own { LEAVE } else { CATCH };
    }
    if actions & HANDLER == 0 {
        return LEAVE;
    }
    // SAFETY: the frame is that of `call`, in its only call. Register 0 holds a result on both processors.
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

    /// The class of an exception, which is then freed.
    fn class_of(exception: Exception) -> u64 {
        // SAFETY: `throw` has made it.
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
            // SAFETY: an outer `catch` encloses this.
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
