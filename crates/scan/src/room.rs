//! The limit for elements and attribute values in a copy of objects: they can be far larger than other metadata.

/// A number of bytes for elements and attribute values, and how many of them are taken.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    most: u64,
    taken: u64,
}

impl Room {
    /// No limit.
    pub const ENDLESS: Room = Room::of(u64::MAX);

    /// A limit of `most` bytes, which the option `index_memory` sets.
    pub const fn of(most: u64) -> Self {
        Room { most, taken: 0 }
    }

    /// The bytes that are left.
    pub fn left(&self) -> u64 {
        self.most - self.taken
    }

    /// The bytes that are in use.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes `bytes`. Fails with the reason if fewer are left. `of` is the start of that sentence.
    pub fn take(&mut self, of: &str, bytes: u64) -> Result<(), String> {
        if bytes > self.left() {
            return Err(format!(
                "{of} more than the {} bytes that index_memory has left for what lies among the metadata",
                self.left()
            ));
        }
        self.taken += bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_leaves_the_room_to_others() {
        let mut room = Room::of(10);
        room.take("it takes", 6).unwrap();
        let reason = room.take("it takes", 5).unwrap_err();
        assert!(
            reason.starts_with("it takes more than the 4 bytes"),
            "{reason}"
        );
        room.take("it takes", 4).unwrap();
        assert_eq!((room.taken(), room.left()), (10, 0));
    }
}
