//! Writes global heap collections (III.E) of variable-length values.

use crate::space::Space;

/// The smallest size of a collection, in bytes.
const LEAST: usize = 4096;
/// Bytes of the header of a collection, and of the header of each object.
const HEADER: usize = 16;
/// The size in bytes after which a collection takes no further object.
const FULL: usize = 64 << 10;

/// A collection that has not been written yet.
struct Collection {
    objects: Vec<u8>,
    count: u16,
}

impl Collection {
    fn new() -> Self {
        Collection {
            objects: Vec::new(),
            count: 0,
        }
    }

    /// Adds an object, and returns its number.
    fn add(&mut self, bytes: &[u8]) -> u32 {
        self.count += 1;
        self.push(self.count, bytes.len(), bytes);
        self.objects
            .resize(self.objects.len().next_multiple_of(8), 0);
        self.count.into()
    }

    fn push(&mut self, number: u16, len: usize, bytes: &[u8]) {
        self.objects.extend(number.to_le_bytes());
        self.objects.extend([0; 6]);
        self.objects.extend((len as u64).to_le_bytes());
        self.objects.extend(bytes);
    }

    fn put(mut self, space: &mut Space) -> u64 {
        let len = (HEADER + self.objects.len()).max(LEAST);
        let free = len - HEADER - self.objects.len();
        if free >= HEADER {
            // Object 0 is the free space. Its length includes its header.
            self.push(0, free, &[]);
        }
        self.objects.resize(len - HEADER, 0);
        let head = [b"GCOL\x01\0\0\0", &(len as u64).to_le_bytes()[..]].concat();
        let address = space.put(&head);
        space.put(&self.objects);
        address
    }
}

/// Writes values. Calls `placed` for each value with its place: the address of the collection, and the number of the object.
pub fn put<'v>(
    space: &mut Space,
    values: impl Iterator<Item = &'v [u8]>,
    mut placed: impl FnMut(&mut Space, usize, u64, u32),
) {
    let mut collection = Collection::new();
    let mut numbers = Vec::new();
    let mut flush = |space: &mut Space, collection: Collection, numbers: &mut Vec<(usize, u32)>| {
        if numbers.is_empty() {
            return;
        }
        let address = collection.put(space);
        for (value, number) in numbers.drain(..) {
            placed(space, value, address, number);
        }
    };
    for (value, bytes) in values.enumerate() {
        if collection.objects.len() > FULL {
            let full = std::mem::replace(&mut collection, Collection::new());
            flush(space, full, &mut numbers);
        }
        numbers.push((value, collection.add(bytes)));
    }
    flush(space, collection, &mut numbers);
}
