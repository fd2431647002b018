//! Chunk shapes for datasets whose log does not record one.

/// Bytes that a chunk comes near to and does not exceed, unless a single element does.
const CHUNK: u64 = 1 << 20;

/// Chunks of a single record smaller than this, and more of them than [`MANY`], would make an index
/// larger than the data: then a chunk takes several records.
const SMALL: u64 = 64 << 10;
const MANY: u64 = 4096;

/// A chunk shape near 1 MiB: the longest runs along the last dimension, one record along an unlimited
/// first dimension (of several), never larger than the dataset. `element` in bytes.
pub fn choose(dims: &[u64], max_dims: &[Option<u64>], element: u64) -> Vec<u64> {
    let mut shape = vec![1; dims.len()];
    let records = dims.len() > 1 && max_dims.first() == Some(&None);
    let mut room = (CHUNK / element.max(1)).max(1);
    for d in (usize::from(records)..dims.len()).rev() {
        shape[d] = dims[d].clamp(1, room);
        room /= shape[d];
        if shape[d] < dims[d] {
            break;
        }
    }
    if records {
        let record: u64 = shape.iter().product::<u64>() * element;
        if record < SMALL && dims[0] > MANY {
            shape[0] = (SMALL / record.max(1)).clamp(1, dims[0]);
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shapes_for_typical_datasets() {
        let fixed = |dims: &[u64], element| {
            let max: Vec<_> = dims.iter().map(|d| Some(*d)).collect();
            choose(dims, &max, element)
        };
        assert_eq!(fixed(&[10], 8), [10]);
        assert_eq!(fixed(&[1 << 30], 8), [1 << 17]);
        assert_eq!(fixed(&[2000, 2000], 8), [65, 2000]);
        assert_eq!(fixed(&[4, 1 << 20], 8), [1, 1 << 17]);
        assert_eq!(fixed(&[0, 5], 8), [1, 5]);
        assert_eq!(fixed(&[3], 5 << 20), [1]);
        // One record along an unlimited first dimension, whatever its size.
        assert_eq!(
            choose(&[7, 300, 400], &[None, Some(300), Some(400)], 4),
            [1, 300, 400]
        );
        assert_eq!(choose(&[7, 10], &[None, Some(10)], 8), [1, 10]);
        assert_eq!(choose(&[100], &[None], 8), [100]);
        // But not a million chunks of 24 bytes.
        assert_eq!(choose(&[1_000_000, 3], &[None, Some(3)], 8), [2730, 3]);
    }

    proptest! {
        #[test]
        fn never_larger_than_the_dataset_nor_than_it_should_be(
            dims in prop::collection::vec(0u64..5000, 1..6),
            unlimited in any::<bool>(),
            element in 1u64..100,
        ) {
            let mut max: Vec<_> = dims.iter().map(|d| Some(*d)).collect();
            if unlimited {
                max[0] = None;
            }
            let shape = choose(&dims, &max, element);
            for (side, dim) in shape.iter().zip(&dims) {
                prop_assert!(*side >= 1 && *side <= (*dim).max(1));
            }
            prop_assert!(shape.iter().product::<u64>() * element <= CHUNK);
        }
    }
}
