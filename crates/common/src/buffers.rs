//! Buffers of a size that a log file asks for, which the caller has reserved. Where the system has no memory for one,
//! these functions return an error. `vec!` would abort the process, and with it the mount of all users.

use crate::fault::Shortage;

/// A buffer of `len` zeros.
pub fn zeroed(len: usize) -> Result<Vec<u8>, Shortage> {
    let mut bytes = with_room(len)?;
    bytes.resize(len, 0);
    Ok(bytes)
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
    room.map_err(|_| {
        let bytes = len.saturating_mul(size_of::<T>());
        Shortage::System {
            bytes: bytes as u64,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_refused() {
        assert_eq!(zeroed(3).unwrap(), [0; 3]);
        assert!(with_room::<u8>(100).unwrap().capacity() >= 100);
        for too_much in [usize::MAX, isize::MAX as usize] {
            let refused = zeroed(too_much).unwrap_err();
            assert_eq!(
                refused,
                Shortage::System {
                    bytes: too_much as u64
                }
            );
        }
    }
}
