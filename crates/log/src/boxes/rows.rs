//! Copies of boxes between arrays in row-major order.

use std::convert::Infallible;

/// Sides of an array, and the start of a box in it, in elements.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Sides of the array.
    pub sides: &'a [u64],
    /// The first index of the box along each dimension.
    pub start: &'a [u64],
}

impl Place<'_> {
    /// The byte offset of the element at `behind` from the start of the box. `behind` may have the first dimensions
    /// only.
    fn byte(&self, behind: &[u64], element: usize) -> usize {
        let behind = behind.iter().chain(std::iter::repeat(&0));
        let along = self.start.iter().zip(self.sides).zip(behind);
        let number = along.fold(0, |n, ((start, side), behind)| n * side + start + behind);
        number as usize * element
    }
}

/// Copies a box of `count` elements along each dimension between two arrays that contain it. An element has `element`
/// bytes.
pub fn copy_box(
    count: &[u64],
    element: usize,
    (from, source): (&[u8], Place<'_>),
    (to, target): (&mut [u8], Place<'_>),
) {
    let rows = each_row(count, element, source, target, |first, place, len| {
        to[place..place + len].copy_from_slice(&from[first..first + len]);
        Ok::<(), Infallible>(())
    });
    match rows {
        Ok(()) => {}
        Err(never) => match never {},
    }
}

/// Calls `copy` for each contiguous row of a box, with its first byte in either array and its length in bytes. Ends
/// at the first failure.
pub fn each_row<E>(
    count: &[u64],
    element: usize,
    source: Place<'_>,
    target: Place<'_>,
    mut copy: impl FnMut(usize, usize, usize) -> Result<(), E>,
) -> Result<(), E> {
    if count.contains(&0) {
        return Ok(());
    }
    // The dimensions from `inner` on form one row in both arrays.
    let mut inner = count.len();
    let mut row = element;
    while inner > 0 {
        inner -= 1;
        row *= count[inner] as usize;
        if count[inner] != source.sides[inner] || count[inner] != target.sides[inner] {
            break;
        }
    }
    let mut at = vec![0; inner];
    loop {
        copy(source.byte(&at, element), target.byte(&at, element), row)?;
        if !next(&mut at, count) {
            return Ok(());
        }
    }
}

/// Advances coordinates in row-major order within `sides`. Returns false at the end.
pub fn next(at: &mut [u64], sides: &[u64]) -> bool {
    for (at, side) in at.iter_mut().zip(sides).rev() {
        *at += 1;
        if *at < *side {
            return true;
        }
        *at = 0;
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The sides of both arrays, the starts of the box in them, and the side of the box.
    fn dimension() -> impl Strategy<Value = (u64, u64, u64, u64, u64)> {
        (0u64..4, 0u64..4, 0u64..5, 0u64..3, 0u64..3).prop_map(|(one, other, count, a, b)| {
            (one + count + a, other + count + b, one, other, count)
        })
    }

    proptest! {
        #[test]
        fn the_box_is_copied_and_nothing_else(
            dimensions in prop::collection::vec(dimension(), 0..4), element in 1usize..5,
        ) {
            let each = |take: fn(&(u64, u64, u64, u64, u64)) -> u64| dimensions.iter().map(take).collect::<Vec<u64>>();
            let (of_source, of_target) = (each(|d| d.0), each(|d| d.1));
            let (source, target, count) = (each(|d| d.2), each(|d| d.3), each(|d| d.4));
            let bytes = |sides: &[u64]| sides.iter().product::<u64>() as usize * element;
            let from: Vec<u8> = (0..bytes(&of_source)).map(|n| n as u8 | 1).collect();
            let mut to = vec![0; bytes(&of_target)];
            let mut wanted = to.clone();
            let mut at = vec![0; count.len()];
            let linear = |start: &[u64], at: &[u64], sides: &[u64]| {
                let along = start.iter().zip(at).zip(sides);
                along.fold(0, |n, ((start, at), side)| n * side + start + at) as usize * element
            };
            while !count.contains(&0) {
                let (a, b) = (linear(&source, &at, &of_source), linear(&target, &at, &of_target));
                wanted[b..b + element].copy_from_slice(&from[a..a + element]);
                if !next(&mut at, &count) {
                    break;
                }
            }
            let source = Place { sides: &of_source, start: &source };
            let target = Place { sides: &of_target, start: &target };
            copy_box(&count, element, (&from, source), (&mut to, target));
            prop_assert_eq!(to, wanted);
        }
    }
}
