//! Chooses chunk shapes for datasets whose log does not record one.

use std::cell::OnceCell;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::source_file::SourceFile;
use crate::stored::bytes_of;
use crate::tiling::{MOST_BYTES, SMALLEST_TILE, Tilings};

/// Size of a chunk in bytes. A chunk is not larger, unless a single element is.
const CHUNK: u64 = 1 << 20;

/// Bytes of a small record. [`MANY`] chunks of one small record each would have an index larger than the data, so a
/// chunk then takes several records.
const SMALL: u64 = 64 << 10;
/// The most chunks of one small record each.
const MANY: u64 = 4096;

/// Bytes of the largest tile that becomes a chunk as it is. A reader often needs only a part of a larger tile.
const LARGEST_TILE: u64 = 4 << 20;
/// The same for a tile that has to be decoded whole, whatever is read of it. Parts of it would be decoded into memory of their
/// own, and copied.
const LARGEST_ENCODED_TILE: u64 = 32 << 20;
/// The fewest contiguous bytes of a tile in the dataset. libhdf5 takes longer to pick shorter runs out of chunks than
/// the view takes to assemble whole rows. In one case, 200,000 rows written by columns were read ten times more slowly
/// in chunks that are columns.
const SHORTEST_RUN: u64 = 256;

/// Bytes of large tables. They hold the entries of 25,000 single blocks, or of 65,536 blocks together.
const LARGE_TABLES: u64 = 1 << 20;

/// The choice of chunk shapes where the log does not record them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Chunking {
    /// The tile where records tile the dataset, or else about 1 MiB.
    #[default]
    Auto,
    /// About this many bytes, however the records lie.
    Size(u64),
}

/// The spelling of the mount option, with sizes in bytes.
impl fmt::Display for Chunking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chunking::Auto => f.write_str("auto"),
            Chunking::Size(bytes) => bytes.fmt(f),
        }
    }
}

/// Chooses the chunk shapes for the datasets of one log.
pub struct Chooser<'a> {
    chunking: Chunking,
    pub(super) log: &'a dyn Layout,
    pub(super) sources: &'a [SourceFile],
    /// Tiles of the datasets, found when the first dataset needs them.
    tilings: OnceCell<Tilings>,
}

impl<'a> Chooser<'a> {
    /// A chooser for the log with the files `sources`.
    pub fn new(chunking: Chunking, log: &'a dyn Layout, sources: &'a [SourceFile]) -> Self {
        Chooser {
            chunking,
            log,
            sources,
            tilings: OnceCell::new(),
        }
    }

    /// The chunk shape of a logged dataset. `id` is the layout's number of the dataset, and `element` the size of an
    /// element in bytes.
    pub fn logged(
        &self,
        id: i64,
        dims: &[u64],
        max_dims: &[Option<u64>],
        element: u64,
    ) -> Vec<u64> {
        let by_tile = || {
            let (tile, largest) = self.tile(id, dims, element)?;
            by_tile(&tile, dims, element, largest)
        };
        let shape = match self.chunking {
            Chunking::Auto => by_tile(),
            Chunking::Size(_) => None,
        };
        shape.unwrap_or_else(|| self.plain(dims, max_dims, element))
    }

    /// The chunk shape of a dataset that is not logged. `element` is the size of an element in bytes.
    pub fn plain(&self, dims: &[u64], max_dims: &[Option<u64>], element: u64) -> Vec<u64> {
        let room = match self.chunking {
            Chunking::Auto => CHUNK,
            Chunking::Size(bytes) => bytes,
        };
        sized(room, dims, max_dims, element)
    }

    /// The tile of a dataset, and the most bytes with which it becomes a chunk as it is.
    fn tile(&self, id: i64, dims: &[u64], element: u64) -> Option<(Vec<u64>, u64)> {
        if bytes_of(dims, element).is_some_and(|bytes| bytes < SMALLEST_TILE) {
            // No tile can be large enough, so the tables need not be read.
            return None;
        }
        let tilings = self.tilings.get_or_init(|| {
            if self.log.tables_len(self.sources) <= MOST_BYTES {
                self.log.tilings(self.sources)
            } else {
                Tilings::default()
            }
        });
        let tiling = tilings.by_dataset.get(&id)?;
        let largest = if tiling.is_encoded() {
            LARGEST_ENCODED_TILE
        } else {
            LARGEST_TILE
        };
        Some((tiling.tile(dims)?, largest))
    }

    /// Whether the record tables are so large that an index of them takes more than a few milliseconds.
    pub fn has_large_tables(&self) -> bool {
        self.log.tables_len(self.sources) >= LARGE_TABLES
    }

    /// Whether a search for tiles has met entries that cannot be read.
    pub(super) fn met_unreadable(&self) -> bool {
        self.tilings.get().is_some_and(|found| found.has_unreadable)
    }
}

/// The chunk shape of a tiled dataset: the tile, or its largest part that is near 1 MiB and contiguous in each record.
/// A tile of at most `largest` bytes is not cut. `None` where the tile is small or thin, or has no such part.
fn by_tile(tile: &[u64], dims: &[u64], element: u64, largest: u64) -> Option<Vec<u64>> {
    match bytes_of(tile, element) {
        _ if run(tile, dims, element) < SHORTEST_RUN => None,
        Some(bytes) if bytes < SMALLEST_TILE => None,
        Some(bytes) if bytes <= largest => Some(tile.to_vec()),
        _ => part_of(tile, element),
    }
}

/// Contiguous bytes of a tile in a dataset of extent `dims`.
fn run(tile: &[u64], dims: &[u64], element: u64) -> u64 {
    let mut run = element;
    for (side, dim) in tile.iter().zip(dims).rev() {
        run = run.saturating_mul(*side);
        if side != dim {
            break;
        }
    }
    run
}

/// Cuts a large tile into equal parts: one index along the first dimensions, a divisor of the extent along one
/// dimension, and the whole extent along the last ones.
fn part_of(tile: &[u64], element: u64) -> Option<Vec<u64>> {
    let mut part = vec![1; tile.len()];
    let mut bytes = element.max(1);
    for d in (0..tile.len()).rev() {
        match bytes.checked_mul(tile[d]) {
            Some(all) if all <= CHUNK => (part[d], bytes) = (tile[d], all),
            _ => {
                part[d] = divisor(tile[d], bytes)?;
                return Some(part);
            }
        }
    }
    None
}

/// The divisor of `side` whose product with `unit` bytes is nearest to 1 MiB, from below or else from above. It lies
/// within a factor of four.
fn divisor(side: u64, unit: u64) -> Option<u64> {
    let (least, most) = ((CHUNK / 4).div_ceil(unit), CHUNK / unit);
    let below = (least..=most).rev();
    let above = most + 1..=LARGEST_TILE / unit;
    below.chain(above).find(|n| side.is_multiple_of(*n))
}

/// A chunk shape of about 1 MiB with the longest runs along the last dimension. Along an unlimited first dimension of
/// several, a chunk takes one record. It is never larger than the dataset. `element` is the size of an element in
/// bytes.
pub fn choose(dims: &[u64], max_dims: &[Option<u64>], element: u64) -> Vec<u64> {
    sized(CHUNK, dims, max_dims, element)
}

/// [`choose`] for chunks of at most `bytes` bytes.
fn sized(bytes: u64, dims: &[u64], max_dims: &[Option<u64>], element: u64) -> Vec<u64> {
    let mut shape = vec![1; dims.len()];
    let records = dims.len() > 1 && max_dims.first() == Some(&None);
    let mut room = (bytes / element.max(1)).max(1);
    for d in (usize::from(records)..dims.len()).rev() {
        shape[d] = dims[d].clamp(1, room);
        room /= shape[d];
        if shape[d] < dims[d] {
            break;
        }
    }
    if records {
        let record: u64 = shape.iter().product::<u64>() * element;
        let small = SMALL.min(bytes);
        if record < small && dims[0] > MANY {
            shape[0] = (small / record.max(1)).clamp(1, dims[0]);
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

    /// The chunk shape by a tile of a dataset that has ten tiles along each dimension.
    fn chunk(tile: &[u64], element: u64) -> Option<Vec<u64>> {
        let dims: Vec<u64> = tile.iter().map(|side| side.saturating_mul(10)).collect();
        by_tile(tile, &dims, element, LARGEST_TILE)
    }

    #[test]
    fn a_tile_of_middling_size_is_the_chunk() {
        assert_eq!(chunk(&[100, 100], 8), Some(vec![100, 100]));
        assert_eq!(chunk(&[8192], 8), Some(vec![8192]));
        assert_eq!(chunk(&[8191], 8), None);
        assert_eq!(chunk(&[1 << 19], 8), Some(vec![1 << 19]));
        assert_eq!(chunk(&[2], 2 << 20), Some(vec![2]));
    }

    #[test]
    fn a_large_tile_is_cut_into_contiguous_parts() {
        assert_eq!(chunk(&[1 << 20], 8), Some(vec![1 << 17]));
        assert_eq!(chunk(&[16, 512, 512], 4), Some(vec![1, 512, 512]));
        assert_eq!(chunk(&[4, 1000, 1000], 8), Some(vec![1, 125, 1000]));
        // A bit less than 1 MiB is better than a bit more, which is better than nothing.
        assert_eq!(chunk(&[3, 700, 1000], 4), Some(vec![1, 175, 1000]));
        assert_eq!(chunk(&[300_007 * 2], 8), Some(vec![300_007]));
        assert_eq!(chunk(&[1 << 60, 1 << 60], 8), Some(vec![1, 1 << 17]));
        // Primes.
        assert_eq!(chunk(&[1_000_003], 8), None);
        assert_eq!(chunk(&[2, 1_000_003], 8), None);
        // Elements as large as chunks.
        assert_eq!(chunk(&[9], 3 << 20), Some(vec![1]));
        assert_eq!(chunk(&[9], 5 << 20), None);
        assert_eq!(chunk(&[u64::MAX], 0), None);
    }

    #[test]
    fn a_tile_that_is_decoded_whole_is_the_chunk() {
        let chunk = |rows| by_tile(&[rows, 1024], &[1 << 20, 1024], 8, LARGEST_ENCODED_TILE);
        assert_eq!(chunk(1024), Some(vec![1024, 1024]));
        assert_eq!(chunk(4096), Some(vec![4096, 1024]));
        assert_eq!(chunk(8192), Some(vec![128, 1024]));
    }

    #[test]
    fn a_thin_tile_is_no_chunk() {
        assert_eq!(chunk(&[1 << 16, 1], 8), None);
        assert_eq!(chunk(&[1 << 16, 31], 8), None);
        assert_eq!(chunk(&[1 << 12, 32], 8), Some(vec![1 << 12, 32]));
        // Whole rows of a narrow dataset are long together.
        let dims = [1 << 20, 3];
        assert_eq!(
            by_tile(&[1 << 14, 3], &dims, 8, LARGEST_TILE),
            Some(vec![1 << 14, 3])
        );
        assert_eq!(by_tile(&[1 << 14, 1], &dims, 8, LARGEST_TILE), None);
    }

    #[test]
    fn sizes_may_be_others() {
        let dims = [2000, 2000];
        let fixed = [Some(2000), Some(2000)];
        assert_eq!(sized(16 << 10, &dims, &fixed, 8), [1, 2000]);
        assert_eq!(sized(4 << 10, &dims, &fixed, 8), [1, 512]);
        assert_eq!(sized(1 << 30, &dims, &fixed, 8), [2000, 2000]);
        // Several records, but not more than were asked for.
        let (dims, growing) = ([1_000_000, 3], [None, Some(3)]);
        assert_eq!(sized(4 << 10, &dims, &growing, 8), [170, 3]);
        assert_eq!(sized(4 << 20, &dims, &growing, 8), [2730, 3]);
    }

    #[test]
    fn the_settings_are_spelled_as_options() {
        assert_eq!(Chunking::default().to_string(), "auto");
        assert_eq!(Chunking::Size(1 << 20).to_string(), "1048576");
    }

    proptest! {
        #[test]
        fn parts_of_tiles_tile_them_and_lie_in_one_piece(
            tile in prop::collection::vec(1u64..5000, 1..5),
            element in 1u64..100,
        ) {
            let bytes = bytes_of(&tile, element).unwrap();
            let Some(part) = chunk(&tile, element) else {
                return Ok(());
            };
            let own = bytes_of(&part, element).unwrap();
            prop_assert!((SMALLEST_TILE..=LARGEST_TILE).contains(&own));
            if bytes <= LARGEST_TILE {
                prop_assert_eq!(&part, &tile);
            }
            for (part, tile) in part.iter().zip(&tile) {
                prop_assert!(tile.is_multiple_of(*part));
            }
            // One index each, then part of one dimension, then whole ones.
            let first = part.iter().position(|side| *side > 1).unwrap_or(part.len());
            prop_assert_eq!(part.get(first + 1..), tile.get(first + 1..));
        }

        #[test]
        fn never_larger_than_the_dataset_nor_than_it_should_be(
            dims in prop::collection::vec(0u64..5000, 1..6),
            unlimited in any::<bool>(),
            element in 1u64..100,
            bytes in 4u64 << 10..4 << 20,
        ) {
            let mut max: Vec<_> = dims.iter().map(|d| Some(*d)).collect();
            if unlimited {
                max[0] = None;
            }
            let shape = sized(bytes, &dims, &max, element);
            for (side, dim) in shape.iter().zip(&dims) {
                prop_assert!(*side >= 1 && *side <= (*dim).max(1));
            }
            prop_assert!(shape.iter().product::<u64>() * element <= bytes);
        }
    }
}
