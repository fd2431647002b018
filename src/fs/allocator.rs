//! The C library's allocator, which the daemon shares with libraries.

/// Largest block in a heap. Larger ones are mapped individually, and returned to the system when they are freed. Mapping
/// chunks of 1 MiB would cost a page fault for each page, each time.
const LARGEST_IN_HEAP: libc::c_int = 4 << 20;
/// Free memory kept at the end of a heap.
const SPARE: libc::c_int = 8 << 20;
/// Number of heaps for all threads.
const HEAPS: libc::c_int = 4;

/// Returns all free memory of the heaps to the system, including memory between used blocks.
pub fn give_back() {
    // SAFETY: malloc_trim takes a number, locks the heaps itself, and may be called at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Makes the allocator return unneeded memory. By default it raises the limit of blocks in its heaps to 32 MiB as soon as one
/// of them is freed, and keeps up to 64 MiB in each of eight heaps a core: much more than the limits of the daemon allow.
pub fn bound_spare_memory() {
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, LARGEST_IN_HEAP),
        (libc::M_TRIM_THRESHOLD, SPARE),
        (libc::M_ARENA_MAX, HEAPS),
    ] {
        // SAFETY: mallopt takes two numbers and may be called at any time.
        if unsafe { libc::mallopt(parameter, value) } == 0 {
            log::debug!("the allocator does not take parameter {parameter}");
        }
    }
}
