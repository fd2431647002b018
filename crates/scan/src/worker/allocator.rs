//! The C library's allocator in a worker.

/// Blocks of up to this size lie in the heap. libhdf5 clears two tables of half a MiB for each file that it opens.
#[cfg(target_env = "gnu")]
const LARGEST_IN_HEAP: libc::c_int = 4 << 20;
/// So much free memory at the end of the heap is kept.
#[cfg(target_env = "gnu")]
const SPARE: libc::c_int = 16 << 20;

/// Lets the allocator keep what a scan has freed, for what it allocates next and for the next scan. By default it gives it back to
/// the system, and takes a page fault for each page again.
pub fn keep_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, LARGEST_IN_HEAP),
        (libc::M_TRIM_THRESHOLD, SPARE),
    ] {
        // SAFETY: mallopt takes two numbers and may be called at any time. It returns 0 where it does not know a
        // parameter; nothing depends on it.
        unsafe { libc::mallopt(parameter, value) };
    }
}
