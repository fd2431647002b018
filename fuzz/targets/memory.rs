//! Counts the memory of a run, and checks that it was reserved.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::ptr;
use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use h5logfs_common::task::Task;

use super::Target;
use super::samples::SAMPLES;
use super::test_dir::MEMORY;

/// Memory that a run may take without a reservation, for its input, the files and snapshots that it makes, and the data
/// that it compares.
const SLACK: u64 = 16 << 20;
/// Largest allocation: the largest budget of a run, and a margin for everything else.
const LARGEST: usize = 2 * MEMORY as usize + (64 << 20);

/// The system's allocator. It counts bytes, and refuses allocations that no budget of a measured run allows.
pub struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Whether a run is measured. Other tests in the same program have no limit.
static MEASURES: AtomicBool = AtomicBool::new(false);
/// Size of the largest requested allocation.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// Counts an allocation if `allocate` succeeds.
fn counted(bytes: usize, allocate: impl FnOnce() -> *mut u8) -> *mut u8 {
    ASKED.fetch_max(bytes, Relaxed);
    if bytes > LARGEST && MEASURES.load(Relaxed) {
        return ptr::null_mut();
    }
    let piece = allocate();
    if !piece.is_null() {
        PEAK.fetch_max(IN_USE.fetch_add(bytes, Relaxed) + bytes, Relaxed);
    }
    piece
}

// SAFETY: the system's allocator does the work, with the arguments of the caller. Counting neither allocates nor
// panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        counted(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        counted(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Both pieces may exist while the bytes move.
        // SAFETY: as the caller promises.
        let new = counted(bytes, || unsafe { System.realloc(old, layout, bytes) });
        if !new.is_null() {
            IN_USE.fetch_sub(layout.size(), Relaxed);
        }
        new
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(piece, layout) }
    }
}

thread_local! {
    /// The tasks of this run, one for each budget.
    static TASKS: RefCell<Vec<Task>> = const { RefCell::new(Vec::new()) };
}

/// Work with a budget of `bytes`, which counts for this run.
pub fn task(bytes: u64) -> Task {
    let task = Task::limited(bytes);
    count(&task);
    task
}

/// Adds the reservations of `task` to those of this run.
pub fn count(task: &Task) {
    TASKS.with_borrow_mut(|tasks| tasks.push(task.clone()));
}

/// Runs `work`, and checks that all memory allocated during it was reserved. No other thread may be at work.
pub fn measured<T>(work: impl FnOnce() -> T) -> T {
    TASKS.with_borrow_mut(Vec::clear);
    let before = IN_USE.load(Relaxed);
    PEAK.store(before, Relaxed);
    ASKED.store(0, Relaxed);
    MEASURES.store(true, Relaxed);
    let outcome = work();
    MEASURES.store(false, Relaxed);
    let taken = (PEAK.load(Relaxed) - before) as u64;
    let asked = ASKED.load(Relaxed);
    let reserved: u64 = TASKS.with_borrow(|tasks| tasks.iter().map(Task::most_reserved).sum());
    assert!(asked <= LARGEST, "a piece of {asked} bytes");
    assert!(
        taken <= reserved + SLACK,
        "{taken} bytes were allocated, and {reserved} reserved"
    );
    outcome
}

/// Runs a target, and checks its memory.
pub fn run(target: &Target, bytes: &[u8]) {
    // The samples are made once, in the first run.
    LazyLock::force(&SAMPLES);
    measured(|| (target.run)(bytes));
}
