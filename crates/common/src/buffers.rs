//! Allocations whose size depends on the content of a log file. The caller has reserved the memory. They fail with an
//! error, where `vec!` would abort the process, and with it the mount of all users.

use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_vec;

use crate::fault::Shortage;

/// A list of `len` zeros. The system clears the pages of a large list when they are first touched, so threads that fill
/// the list share this work.
pub fn zeroed<T: Zeroable>(len: usize) -> Result<Vec<T>, Shortage> {
    try_zeroed_vec(len).map_err(|()| shortage::<T>(len))
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
        assert!(with_room::<u8>(100).unwrap().capacity() >= 100);
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
