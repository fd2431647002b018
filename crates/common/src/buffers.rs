//! Allocations whose size depends on the content of a log file. The caller has reserved the memory. They fail with an
//! error, where `vec!` would abort the process, and with it the mount of all users.

use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;

use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_vec;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::fault::Shortage;

/// A list of `len` zeros. The system clears the pages of a large list when they are first touched, so threads that fill
/// the list share this work.
pub fn zeroed<T: Zeroable>(len: usize) -> Result<Vec<T>, Shortage> {
    try_zeroed_vec(len).map_err(|()| shortage::<T>(len))
}

/// Zeros in large pages, where the system has some. It gives and clears them several times as fast as small ones. They are not
/// from the allocator, which may have used the memory before, in small pages.
#[derive(Debug)]
pub struct LargePages {
    /// The mapping. It is larger than `len`, because large pages begin at multiples of their size. Nobody touches the rest.
    mapping: NonNull<u8>,
    mapped: usize,
    /// Offset of the first byte in use.
    start: usize,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, as the memory of a `Vec` does.
unsafe impl Send for LargePages {}
// SAFETY: see above. Shared references only read.
unsafe impl Sync for LargePages {}

/// Bytes of a large page of most machines.
const LARGE_PAGE: usize = 2 << 20;

impl LargePages {
    /// `len` zeros. A part of a large page is in small ones.
    pub fn zeroed(len: usize) -> Result<Self, Shortage> {
        let mapped = len.saturating_add(LARGE_PAGE);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place of new memory.
        let mapping =
            unsafe { mmap_anonymous(ptr::null_mut(), mapped, protection, MapFlags::PRIVATE) };
        let mapping = mapping
            .ok()
            .and_then(|mapping| NonNull::new(mapping.cast::<u8>()));
        let mapping = mapping.ok_or_else(|| shortage::<u8>(len))?;
        let start = mapping.as_ptr().align_offset(LARGE_PAGE).min(LARGE_PAGE);
        let page = mapping.as_ptr().wrapping_add(start).cast();
        // SAFETY: the pages are those of this mapping, and the advice leaves their contents as they are.
        let _ = unsafe { madvise(page, len, Advice::LinuxHugepage) };
        Ok(LargePages {
            mapping,
            mapped,
            start,
            len,
        })
    }
}

impl Deref for LargePages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has `len` bytes from `start` on, which the kernel has filled with zeros, and lives as long as this
        // value.
        unsafe { slice::from_raw_parts(self.mapping.as_ptr().add(self.start), self.len) }
    }
}

impl DerefMut for LargePages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: see above. Nobody else has a reference, because this one is exclusive.
        unsafe { slice::from_raw_parts_mut(self.mapping.as_ptr().add(self.start), self.len) }
    }
}

impl Drop for LargePages {
    fn drop(&mut self) {
        // SAFETY: no reference to the mapping outlives this value.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.mapped) };
    }
}

/// An empty list with capacity for `len` elements.
pub fn with_room<T>(len: usize) -> Result<Vec<T>, Shortage> {
    let mut list = Vec::new();
    make_room(&mut list, len)?;
    Ok(list)
}

/// Allocates capacity for `len` more elements.
pub fn make_room<T>(list: &mut Vec<T>, len: usize) -> Result<(), Shortage> {
    let room = list.try_reserve_exact(len);
    room.map_err(|_| shortage::<T>(len))
}

fn shortage<T>(len: usize) -> Shortage {
    let bytes = len.saturating_mul(size_of::<T>()) as u64;
    Shortage::System { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_refused() {
        assert_eq!(zeroed::<u8>(3).unwrap(), [0; 3]);
        for len in [0, 1, 5000, 5 << 20] {
            let mut bytes = LargePages::zeroed(len).unwrap();
            assert!(bytes.len() == len && bytes.iter().all(|byte| *byte == 0));
            bytes.fill(7);
        }
        assert!(with_room::<u8>(100).unwrap().capacity() >= 100);
        assert!(LargePages::zeroed(usize::MAX).is_err());
        for too_much in [usize::MAX, isize::MAX as usize] {
            let refused = zeroed::<u8>(too_much).unwrap_err();
            assert_eq!(
                refused,
                Shortage::System {
                    bytes: too_much as u64
                }
            );
        }
    }
}
