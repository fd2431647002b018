//! How much of a box some record wrote.

use crate::boxes::Bounds;
use crate::index::DatasetIndex;

/// Elements of `chunk` that at least one record covers.
pub fn elements(index: &DatasetIndex, chunk: &Bounds) -> u64 {
    let mut parts = Vec::new();
    for record in index.deciding(chunk) {
        let blocks = record.blocks_touching(chunk).into_iter();
        parts.extend(blocks.filter_map(|b| record.block(b).intersection(chunk)));
    }
    match parts.iter().any(|p| p == chunk) {
        true => volume(chunk),
        false => union(parts, chunk),
    }
}

fn volume(bounds: &Bounds) -> u64 {
    bounds.count().product()
}

/// Paints a map of the chunk, one bit an element, row by row.
fn union(parts: Vec<Bounds>, chunk: &Bounds) -> u64 {
    if parts.is_empty() {
        return 0;
    }
    let rank = chunk.rank();
    let side = |d: usize| chunk.end[d] - chunk.start[d];
    let mut map = vec![0u64; (volume(chunk).div_ceil(64)) as usize];
    for part in parts {
        let row = part.end[rank - 1] - part.start[rank - 1];
        let rows = volume(&part) / row;
        for number in 0..rows {
            // Coordinates of the row, out of its number; `first` is its first element in the chunk.
            let (mut rest, mut first, mut stride) = (number, 0, side(rank - 1));
            first += part.start[rank - 1] - chunk.start[rank - 1];
            for d in (0..rank - 1).rev() {
                let count = part.end[d] - part.start[d];
                first += (part.start[d] - chunk.start[d] + rest % count) * stride;
                rest /= count;
                stride *= side(d);
            }
            paint(&mut map, first, first + row);
        }
    }
    map.iter().map(|word| u64::from(word.count_ones())).sum()
}

fn paint(map: &mut [u64], start: u64, end: u64) {
    let mut at = start;
    while at < end {
        let bit = at % 64;
        let count = (64 - bit).min(end - at);
        let ones = if count == 64 {
            u64::MAX
        } else {
            (1 << count) - 1
        };
        map[(at / 64) as usize] |= ones << bit;
        at += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_count_once() {
        let bounds = |start: [u64; 2], end: [u64; 2]| Bounds {
            start: start.to_vec(),
            end: end.to_vec(),
        };
        let chunk = bounds([10, 10], [20, 110]);
        let parts = vec![
            bounds([10, 10], [12, 110]),
            bounds([11, 10], [13, 20]),
            bounds([19, 109], [20, 110]),
        ];
        assert_eq!(union(parts, &chunk), 200 + 10 + 1);
        assert_eq!(union(Vec::new(), &chunk), 0);
    }
}
