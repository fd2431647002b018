//! Buffers of a size that a log file asks for. Where the system has no memory for one, these functions return
//! an error. `vec!` would abort the process, and with it the mount of all users.

/// A buffer of `len` zeros.
pub fn zeroed(len: usize) -> Result<Vec<u8>, String> {
    let mut bytes = with_room(len)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// An empty buffer with capacity for `len` bytes.
pub fn with_room(len: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    make_room(&mut bytes, len)?;
    Ok(bytes)
}

/// Reserves capacity for `len` more bytes.
pub fn make_room(bytes: &mut Vec<u8>, len: usize) -> Result<(), String> {
    let room = bytes.try_reserve_exact(len);
    room.map_err(|_| format!("the system has no memory for {len} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_refused() {
        assert_eq!(zeroed(3).unwrap(), [0; 3]);
        assert!(with_room(100).unwrap().capacity() >= 100);
        for too_much in [usize::MAX, isize::MAX as usize] {
            let refused = zeroed(too_much).unwrap_err();
            assert!(refused.contains(&too_much.to_string()), "{refused}");
        }
    }
}
