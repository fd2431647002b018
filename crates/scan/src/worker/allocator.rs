//! Settings of the C library's allocator in a worker.

/// The largest block that the heap serves. libhdf5 clears two tables of half a MiB for each file that it opens.
#[cfg(target_env = "gnu")]
const LARGEST_IN_HEAP: libc::c_int = 4 << 20;
/// The free memory that is kept at the end of the heap.
#[cfg(target_env = "gnu")]
const SPARE: libc::c_int = 16 << 20;

/// Lets the allocator keep freed memory for later allocations and for the next scan. By default, the allocator returns
/// memory to the system, and takes a page fault for each page again.
pub fn keep_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, LARGEST_IN_HEAP),
        (libc::M_TRIM_THRESHOLD, SPARE),
    ] {
        // SAFETY: mallopt takes two numbers and may be called at any time. It returns 0 for an unknown parameter;
        // nothing depends on it.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// The memory that the scan of a small file needs: two tables of half a MiB, and the rest.
#[cfg(target_env = "gnu")]
const USUAL: usize = 1472 << 10;
/// A multiple of the page size of every processor.
#[cfg(target_env = "gnu")]
const LARGEST_PAGE: usize = 64 << 10;

/// Takes the memory of a small scan from the system in one call. Call [`keep_memory`] first. Page faults for single
/// pages would take twice as long.
pub fn have_memory() {
    #[cfg(target_env = "gnu")]
    {
        let mut memory = Vec::<u8>::with_capacity(USUAL);
        let start = memory.as_mut_ptr();
        let skipped = start.align_offset(LARGEST_PAGE);
        let len = (USUAL - skipped) / LARGEST_PAGE * LARGEST_PAGE;
        let start = start.wrapping_add(skipped).cast();
        // SAFETY: the pages lie within the vector, and the call changes none of their bytes. Kernels before Linux 5.14
        // do not know the call; nothing depends on it.
        let _ = unsafe { rustix::mm::madvise(start, len, rustix::mm::Advice::LinuxPopulateWrite) };
    }
}
