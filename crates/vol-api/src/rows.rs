//! The rows of blocks. A list has its elements in memory one block after the other. A union of hyperslabs has them in the
//! row-major order of the dataset. Rows map pieces of one order to the other.

use std::collections::BTreeMap;

/// Elements that are contiguous both in a dataset and in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Index of the first element, in row-major order of the dataset.
    pub at: u64,
    /// Number of elements.
    pub len: u64,
    /// Index of the first element in memory.
    pub from: u64,
}

/// Adds the rows of one block inside a dataset of extent `dims`. `from`: index of its first element in memory. The dataset's
/// number of elements fits into 64 bits.
pub fn add_rows(dims: &[u64], start: &[u64], count: &[u64], from: u64, rows: &mut Vec<Row>) {
    if count.contains(&0) {
        return;
    }
    // After this dimension the block spans everything, so rows continue.
    let whole = (0..dims.len()).rev().find(|d| count[*d] != dims[*d]);
    let inner = whole.unwrap_or(0);
    let len: u64 = count[inner..].iter().product();
    let index = |at: &[u64]| {
        let places = dims.iter().zip(start).zip(at);
        places.fold(0, |index, ((side, start), at)| index * side + start + at)
    };
    let mut at = vec![0; dims.len()];
    let mut from = from;
    loop {
        rows.push(Row {
            at: index(&at),
            len,
            from,
        });
        from += len;
        let Some(d) = (0..inner).rev().find(|d| at[*d] + 1 < count[*d]) else {
            return;
        };
        at[d] += 1;
        at[d + 1..].fill(0);
    }
}

/// Whether the elements have the same order in memory and in the dataset, without duplicates.
pub fn is_in_order(rows: &[Row]) -> bool {
    rows.windows(2)
        .all(|two| two[0].at + two[0].len <= two[1].at)
}

/// The elements of all rows in the order of the dataset, without duplicates: the last of overlapping rows counts.
pub fn union(rows: &[Row]) -> Vec<Row> {
    // Rows by first element.
    let mut taken: BTreeMap<u64, Row> = BTreeMap::new();
    for row in rows.iter().rev() {
        let end = row.at + row.len;
        let mut at = row.at;
        if let Some((_, before)) = taken.range(..=at).next_back() {
            at = at.max(before.at + before.len);
        }
        while at < end {
            let next = taken
                .range(at..)
                .next()
                .map(|(_, next)| (next.at, next.at + next.len));
            let (gap, after) = next.unwrap_or((end, end));
            let until = gap.min(end);
            if until > at {
                let part = Row {
                    at,
                    len: until - at,
                    from: row.from + (at - row.at),
                };
                taken.insert(at, part);
            }
            at = after.max(until);
        }
    }
    taken.into_values().collect()
}

/// For each row, the position of its elements in the union.
pub fn places(union: &[Row], rows: &[Row]) -> Vec<u64> {
    let mut before = 0;
    let begins: Vec<u64> = union
        .iter()
        .map(|part| {
            let begin = before;
            before += part.len;
            begin
        })
        .collect();
    let place = |row: &Row| {
        let part = union.partition_point(|part| part.at <= row.at) - 1;
        begins[part] + (row.at - union[part].at)
    };
    rows.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows_of(dims: &[u64], blocks: &[(Vec<u64>, Vec<u64>)]) -> Vec<Row> {
        let (mut rows, mut from) = (Vec::new(), 0);
        for (start, count) in blocks {
            add_rows(dims, start, count, from, &mut rows);
            from += count.iter().product::<u64>();
        }
        rows
    }

    #[test]
    fn rows_go_on_where_all_behind_them_is_selected() {
        let row = |at, len, from| Row { at, len, from };
        let of =
            |start: [u64; 3], count: [u64; 3]| rows_of(&[4, 3, 5], &[(start.into(), count.into())]);
        assert_eq!(of([1, 0, 0], [2, 3, 5]), [row(15, 30, 0)]);
        assert_eq!(of([1, 1, 0], [2, 2, 5]), [row(20, 10, 0), row(35, 10, 10)]);
        assert_eq!(of([0, 1, 2], [1, 2, 3]), [row(7, 3, 0), row(12, 3, 3)]);
        assert_eq!(of([0, 1, 2], [1, 0, 3]), []);
    }

    proptest! {
        /// A list writes the result of writing its blocks one after the other, and reads the elements of each block.
        #[test]
        fn the_last_block_wins(
            dims in prop::collection::vec(1u64..6, 1..4),
            seeds in prop::collection::vec((any::<u64>(), any::<u64>()), 0..12),
        ) {
            let within = |seed: u64, d: usize, side: u64| (seed >> (8 * d)) % side;
            let blocks: Vec<(Vec<u64>, Vec<u64>)> = seeds.iter().map(|(one, two)| {
                let start: Vec<u64> = (0..dims.len()).map(|d| within(*one, d, dims[d])).collect();
                let count = (0..dims.len()).map(|d| within(*two, d, dims[d] - start[d] + 1)).collect();
                (start, count)
            }).collect();
            let rows = rows_of(&dims, &blocks);
            let mut written = vec![None; dims.iter().product::<u64>() as usize];
            for row in &rows {
                for i in 0..row.len {
                    written[(row.at + i) as usize] = Some(row.from + i);
                }
            }
            let union = union(&rows);
            prop_assert!(is_in_order(&union));
            let mut found = vec![None; written.len()];
            for row in &union {
                for i in 0..row.len {
                    found[(row.at + i) as usize] = Some(row.from + i);
                }
            }
            prop_assert_eq!(&found, &written);
            let elements: Vec<u64> = union.iter().flat_map(|row| row.at..row.at + row.len).collect();
            for (row, place) in rows.iter().zip(places(&union, &rows)) {
                let part = &elements[place as usize..][..row.len as usize];
                prop_assert!(part.iter().copied().eq(row.at..row.at + row.len));
            }
        }
    }
}
