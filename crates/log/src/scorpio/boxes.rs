//! The places of a map as boxes of an array. Neighbouring elements with neighbouring places make one box, and so do
//! neighbouring rows of such elements.

use crate::boxes::packed::Rows;
use h5logfs_adios::scorpio::Begin;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;

/// A shape over which places count, in row-major order.
pub(super) struct Shape<'a> {
    dims: &'a [u64],
    /// Places from one index to the next, along each dimension.
    strides: Vec<u64>,
    places: u64,
}

impl<'a> Shape<'a> {
    /// Fails where the places cannot be counted.
    pub fn new(dims: &'a [u64]) -> Result<Self, Fault> {
        let mut strides = vec![1; dims.len()];
        let mut places = 1u64;
        for d in (0..dims.len()).rev() {
            strides[d] = places;
            let all = places.checked_mul(dims[d]);
            let all = all.filter(|all| *all <= i64::MAX as u64);
            places = all.ok_or("its shape has more places than can be counted")?;
        }
        Ok(Shape {
            dims,
            strides,
            places,
        })
    }

    /// Number of places.
    pub fn places(&self) -> u64 {
        self.places
    }

    fn coordinate(&self, place: u64, d: usize) -> u64 {
        place / self.strides[d] % self.dims[d]
    }

    /// The number of places of the largest box that begins at `place` and has at most `len` places in a row.
    fn largest_box(&self, place: u64, len: u64) -> u64 {
        let mut taken = 1;
        for d in (0..self.dims.len()).rev() {
            let at = self.coordinate(place, d);
            let sides = (len / self.strides[d]).min(self.dims[d] - at);
            taken = sides * self.strides[d];
            if at > 0 || sides < self.dims[d] {
                break;
            }
        }
        taken
    }
}

/// Elements with places in one box: `rows` times `len` of them.
struct Run {
    /// The first element.
    at: u32,
    len: u32,
    rows: u32,
}

/// The boxes of the entries of a map.
pub(super) struct MapBoxes<'a> {
    shape: Shape<'a>,
    begin: Begin,
    entries: &'a [i64],
    runs: Vec<Run>,
    _reservation: Reservation,
}

impl<'a> MapBoxes<'a> {
    /// Fails where an entry is no place of the shape, and where memory is short.
    pub fn of(
        task: &Task,
        shape: Shape<'a>,
        begin: Begin,
        entries: &'a [i64],
    ) -> Result<Self, Fault> {
        u32::try_from(entries.len()).map_err(|_| "a part with more than 2^32 elements")?;
        let mut boxes = MapBoxes {
            shape,
            begin,
            entries,
            runs: Vec::new(),
            _reservation: task.reservation(),
        };
        let mut at = 0;
        while at < entries.len() {
            if at.is_multiple_of(1 << 16) {
                task.check()?;
            }
            let Some(place) = begin.place(entries[at]) else {
                at += 1;
                continue;
            };
            if place >= boxes.shape.places {
                return Err(format!(
                    "place {} of an array of {}",
                    entries[at], boxes.shape.places
                )
                .into());
            }
            let len = row_of(&entries[at..]);
            boxes.add_row(at, place, len)?;
            at += len;
        }
        Ok(boxes)
    }

    /// Adds elements with places in a row.
    fn add_row(&mut self, mut at: usize, mut place: u64, len: usize) -> Result<(), Fault> {
        let end = at + len;
        while at < end {
            let left = (end - at) as u64;
            let len = self
                .shape
                .largest_box(place, left.min(self.shape.places - place));
            if len == 0 {
                return Err(
                    format!("place {} of an array of {}", place + 1, self.shape.places).into(),
                );
            }
            let run = Run {
                at: at as u32,
                len: len as u32,
                rows: 1,
            };
            if !self.join(&run, place) {
                self._reservation.push(&mut self.runs, run)?;
            }
            at += len as usize;
            place += len;
        }
        Ok(())
    }

    /// Makes a row a part of the last box, if it is the next row there.
    fn join(&mut self, next: &Run, place: u64) -> bool {
        let (Some(rank), Some(last)) = (self.shape.dims.len().checked_sub(2), self.runs.last())
        else {
            return false;
        };
        let first = self
            .begin
            .place(self.entries[last.at as usize])
            .unwrap_or(place);
        let (side, rows) = (self.shape.dims[rank + 1], u64::from(last.rows));
        let is_next = last.len == next.len
            && u64::from(next.len) < side
            && place.checked_sub(first) == rows.checked_mul(side)
            && u64::from(last.at) + rows * u64::from(last.len) == u64::from(next.at)
            && self.shape.coordinate(first, rank) + rows < self.shape.dims[rank];
        if is_next && let Some(last) = self.runs.last_mut() {
            last.rows += 1;
        }
        is_next
    }
}

/// Number of first entries that follow each other. Entries that are no place make rows of their own.
fn row_of(entries: &[i64]) -> usize {
    let pairs = entries.windows(2);
    1 + pairs
        .take_while(|pair| pair[0].checked_add(1) == Some(pair[1]))
        .count()
}

impl Rows for MapBoxes<'_> {
    fn rank(&self) -> usize {
        self.shape.dims.len()
    }
    fn rows(&self) -> usize {
        self.runs.len()
    }
    fn values(&self) -> usize {
        1
    }
    fn start(&self, row: usize, dim: usize) -> u64 {
        let first = self.entries[self.runs[row].at as usize];
        self.shape
            .coordinate(self.begin.place(first).unwrap_or(0), dim)
    }
    fn count(&self, row: usize, dim: usize) -> u64 {
        let (run, rank) = (&self.runs[row], self.shape.dims.len());
        if run.rows > 1 && dim + 2 == rank {
            return run.rows.into();
        }
        let sides = u64::from(run.len) / self.shape.strides[dim];
        if dim == 0 {
            sides.max(1)
        } else {
            sides.clamp(1, self.shape.dims[dim])
        }
    }
    fn value(&self, row: usize, _: usize) -> u64 {
        self.runs[row].at.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn boxes_of(dims: &[u64], begin: Begin, entries: &[i64]) -> Vec<(u64, Vec<u64>, Vec<u64>)> {
        let shape = Shape::new(dims).unwrap();
        let boxes = MapBoxes::of(&Task::unlimited(), shape, begin, entries).unwrap();
        let one = |row: usize| {
            let start = (0..dims.len()).map(|d| boxes.start(row, d)).collect();
            let count = (0..dims.len()).map(|d| boxes.count(row, d)).collect();
            (boxes.value(row, 0), start, count)
        };
        (0..boxes.rows()).map(one).collect()
    }

    #[test]
    fn rows_and_blocks_of_rows_are_boxes() {
        let whole: Vec<i64> = (1..=24).collect();
        assert_eq!(
            boxes_of(&[2, 3, 4], Begin::One, &whole),
            [(0, vec![0, 0, 0], vec![2, 3, 4])]
        );
        // Two columns of each row, then padding.
        let part = [2, 3, 6, 7, 10, 11, 0, 0];
        assert_eq!(
            boxes_of(&[3, 4], Begin::One, &part),
            [(0, vec![0, 1], vec![3, 2])]
        );
        let scattered = [0, 5, 1, 9];
        let single = |at, row, column| (at, vec![row, column], vec![1, 1]);
        assert_eq!(
            boxes_of(&[3, 4], Begin::One, &scattered),
            [single(1, 1, 0), single(2, 0, 0), single(3, 2, 0)]
        );
        assert_eq!(
            boxes_of(&[3], Begin::Zero, &[-1, 0, 1]),
            [(1, vec![0], vec![2])]
        );
    }

    proptest! {
        /// Each entry that is a place is in one box, at its place.
        #[test]
        fn boxes_have_the_elements_of_a_map(
            dims in prop::collection::vec(1u64..5, 1..4),
            runs in prop::collection::vec((0u64..200, 1u64..30), 0..12),
            is_from_zero in any::<bool>(),
        ) {
            let places: u64 = dims.iter().product();
            let begin = if is_from_zero { Begin::Zero } else { Begin::One };
            let first = i64::from(!is_from_zero);
            let mut entries = Vec::new();
            for (start, len) in runs {
                let start = start % (places + 1);
                entries.extend((start..(start + len).min(places)).map(|place| place as i64 + first));
                entries.push(first - 1);
            }
            let mut found = vec![None; entries.len()];
            for (at, start, count) in boxes_of(&dims, begin, &entries) {
                let elements: u64 = count.iter().product();
                for n in 0..elements {
                    let (mut left, mut place, mut stride) = (n, 0, 1);
                    for d in (0..dims.len()).rev() {
                        prop_assert!(start[d] + count[d] <= dims[d]);
                        place += (start[d] + left % count[d]) * stride;
                        left /= count[d];
                        stride *= dims[d];
                    }
                    let element = (at + n) as usize;
                    prop_assert!(found[element].replace(place).is_none());
                }
            }
            let expected: Vec<_> = entries.iter().map(|entry| begin.place(*entry)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
