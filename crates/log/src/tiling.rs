//! Tiles: blocks of equal shape that make up a dataset.

use std::collections::HashMap;

/// Largest size of tables in which tiles are looked for. A scan answers `stat`, which must not read gigabytes. Reading
/// this many bytes takes two tenths of a second. They hold the entries of 1 TiB in records of 1 MiB.
pub const MOST_BYTES: u64 = 64 << 20;

/// Bytes of the smallest tile that becomes a chunk as it is. Smaller chunks cost more to find than to copy together.
pub const SMALLEST_TILE: u64 = 64 << 10;

/// The result of a walk through the record tables, for all datasets.
#[derive(Debug, Default)]
pub struct Tilings {
    /// Tilings by the layout's own numbers of the datasets. A dataset without an entry is not tiled.
    pub by_dataset: HashMap<i64, Tiling>,
    /// The walk met unreadable entries, or could not reach the end.
    pub has_unreadable: bool,
}

impl Tilings {
    /// The result for tables that cannot be followed to their end. Some entries are unknown.
    pub fn of_damaged() -> Self {
        Tilings {
            has_unreadable: true,
            ..Tilings::default()
        }
    }
}

/// Decides whether the blocks of a dataset are the tiles of one grid. It sees each block once, in any order.
#[derive(Debug, Default)]
pub struct Tiling {
    sides: Vec<Side>,
    /// No tile is possible any more.
    is_none: bool,
    /// Some block has to be decoded whole, whatever is read of it.
    is_encoded: bool,
}

/// One dimension of the blocks.
#[derive(Debug, Clone, Copy, Default)]
struct Side {
    /// Largest extent of all blocks: the extent of the tile, if there is one.
    longest: u64,
    /// The greatest common divisor of all starts; 0 where all are 0.
    step: u64,
    /// Ends of the blocks with the largest extent.
    ends: Ends,
    /// Ends of the other blocks. Such a block is a tile only if the edge of the dataset cuts it off.
    short: Ends,
}

/// The ends of some blocks along one dimension.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Ends {
    #[default]
    Nowhere,
    At(u64),
    AtSeveral,
}

impl Tiling {
    /// Adds a block, given by start and count along each dimension. Blocks without elements are ignored.
    pub fn add(&mut self, block: &[(u64, u64)]) {
        if self.is_none || block.iter().any(|(_, count)| *count == 0) {
            return;
        }
        if self.sides.is_empty() {
            self.sides.resize(block.len(), Side::default());
        }
        let mut sides = self.sides.iter_mut().zip(block);
        let may_tile = sides.all(|(side, (start, count))| side.add(*start, *count));
        if self.sides.len() != block.len() || !may_tile {
            self.spoil();
        }
    }

    /// [`Tiling::add`] of a block that has to be decoded whole, whatever is read of it.
    pub fn add_encoded(&mut self, block: &[(u64, u64)]) {
        self.is_encoded = true;
        self.add(block);
    }

    /// Whether some block has to be decoded whole.
    pub fn is_encoded(&self) -> bool {
        self.is_encoded
    }

    /// Rules a tile out: a record wrote something other than one block.
    pub fn spoil(&mut self) {
        self.sides = Vec::new();
        self.is_none = true;
    }

    /// Whether later blocks cannot make the tile as large as `elements`, in a dataset of this extent. This holds where
    /// no tile is possible, and where the sides are known and the tile is smaller.
    pub fn stays_below(&self, dims: &[u64], elements: u64) -> bool {
        if self.is_none {
            return true;
        }
        let sides = self.sides.iter().zip(dims);
        let most = sides.map(|(side, dim)| side.most(*dim));
        let most = most.fold(1, u64::saturating_mul);
        self.sides.len() == dims.len() && most < elements
    }

    /// The shape of the tile, if the blocks tile a dataset of this extent: all blocks begin at multiples of the tile,
    /// and have its shape or end at the edge of the dataset. The tile is not larger than the dataset.
    pub fn tile(&self, dims: &[u64]) -> Option<Vec<u64>> {
        if self.sides.is_empty() || self.sides.len() != dims.len() {
            return None;
        }
        let sides = self.sides.iter().zip(dims);
        sides.map(|(side, dim)| side.tile(*dim)).collect()
    }
}

impl Side {
    /// Adds a block along this dimension. Returns whether a tile is still possible.
    fn add(&mut self, start: u64, count: u64) -> bool {
        let Some(end) = start.checked_add(count) else {
            return false;
        };
        if count > self.longest {
            self.short = self.short.and(self.ends);
            (self.longest, self.ends) = (count, Ends::At(end));
        } else if count == self.longest {
            self.ends = self.ends.and(Ends::At(end));
        } else {
            self.short = self.short.and(Ends::At(end));
        }
        self.step = common_divisor(self.step, start);
        // The step never grows, and the longest side never shrinks.
        (self.step == 0 || self.step >= self.longest) && self.short != Ends::AtSeveral
    }

    /// Largest possible side of the tile. If the longest blocks end at several places, any longer block rules a tile
    /// out.
    fn most(&self, dim: u64) -> u64 {
        match self.ends {
            Ends::AtSeveral => self.longest,
            Ends::Nowhere | Ends::At(_) => dim,
        }
    }

    fn tile(&self, dim: u64) -> Option<u64> {
        let reaches_edge = match self.short {
            Ends::Nowhere => true,
            Ends::At(end) => end == dim,
            Ends::AtSeveral => false,
        };
        let on_grid = self.step.is_multiple_of(self.longest);
        (on_grid && reaches_edge && self.longest <= dim).then_some(self.longest)
    }
}

impl Ends {
    fn and(self, other: Ends) -> Ends {
        match (self, other) {
            (Ends::Nowhere, ends) | (ends, Ends::Nowhere) => ends,
            (Ends::At(a), Ends::At(b)) if a == b => self,
            _ => Ends::AtSeveral,
        }
    }
}

/// The greatest common divisor; that of 0 and another number is the other number.
fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while a != 0 {
        (a, b) = (b % a, a);
    }
    b
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Block = Vec<(u64, u64)>;

    fn tile_of(blocks: &[Block], dims: &[u64]) -> Option<Vec<u64>> {
        let mut tiling = Tiling::default();
        for block in blocks {
            tiling.add(block);
        }
        tiling.tile(dims)
    }

    /// The definition of a tile, applied directly.
    fn tile_by_definition(blocks: &[Block], dims: &[u64]) -> Option<Vec<u64>> {
        let blocks: Vec<&Block> = blocks
            .iter()
            .filter(|b| b.iter().all(|(_, count)| *count > 0))
            .collect();
        let longest = |d: usize| blocks.iter().map(|b| b[d].1).max();
        let tile: Vec<u64> = (0..dims.len()).map(longest).collect::<Option<_>>()?;
        let fits = |b: &&Block| {
            (0..dims.len()).all(|d| {
                let (start, count) = b[d];
                let whole = count == tile[d] || start + count == dims[d];
                start % tile[d] == 0 && whole
            })
        };
        let inside = tile.iter().zip(dims).all(|(side, dim)| side <= dim);
        (inside && blocks.iter().all(fits)).then_some(tile)
    }

    #[test]
    fn tiles_in_whatever_order() {
        let blocks = [
            vec![(0, 4), (0, 5)],
            vec![(4, 4), (5, 5)],
            vec![(8, 2), (0, 5)],
        ];
        for turn in 0..3 {
            let mut blocks = blocks.to_vec();
            blocks.rotate_left(turn);
            assert_eq!(tile_of(&blocks, &[10, 10]), Some(vec![4, 5]));
            // The dataset has grown since.
            assert_eq!(tile_of(&blocks, &[12, 10]), None);
        }
    }

    #[test]
    fn what_is_no_tile() {
        let dims = [12];
        assert_eq!(tile_of(&[], &dims), None);
        assert_eq!(tile_of(&[vec![(0, 0)]], &dims), None);
        assert_eq!(tile_of(&[vec![(0, 4)], vec![(6, 4)]], &dims), None);
        assert_eq!(tile_of(&[vec![(0, 4)], vec![(4, 3)]], &dims), None);
        assert_eq!(tile_of(&[vec![(0, 13)]], &dims), None);
        assert_eq!(tile_of(&[vec![(0, 4)], vec![(0, 4), (0, 1)]], &dims), None);
        assert_eq!(tile_of(&[vec![(u64::MAX, 2)]], &dims), None);
        assert_eq!(tile_of(&[vec![(0, 4)]], &[12, 12]), None);
        assert_eq!(tile_of(&[Vec::new()], &[]), None);
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(
            tile in prop::collection::vec(1u64..5, 1..4),
            dims in prop::collection::vec(1u64..14, 3),
            blocks in prop::collection::vec(prop::collection::vec((0u64..4, 0u64..12), 3), 1..6),
            bent in prop::option::of((0usize..6, 0usize..3, 0u64..3, 0u64..3)),
        ) {
            let dims = &dims[..tile.len()];
            let mut blocks: Vec<Block> = blocks
                .iter()
                .map(|block| {
                    let sides = block.iter().zip(&tile).zip(dims);
                    let side = |(((at, cut), tile), dim): ((&(u64, u64), &u64), &u64)| {
                        let start = at * tile;
                        let whole = (*tile).min(dim.saturating_sub(start));
                        (start, if *cut == 0 { 0 } else { whole })
                    };
                    sides.map(side).collect()
                })
                .collect();
            if let Some((block, d, start, count)) = bent {
                let number = block % blocks.len();
                let side = &mut blocks[number][d % tile.len()];
                *side = (side.0 + start, side.1 + count);
            }
            prop_assert_eq!(tile_of(&blocks, dims), tile_by_definition(&blocks, dims));
            let mut seen = Tiling::default();
            let tile = tile_of(&blocks, dims).map(|tile| tile.iter().product());
            for block in &blocks {
                for elements in [2, 4, 16] {
                    let may_be = tile.is_none_or(|tile: u64| tile < elements);
                    prop_assert!(may_be || !seen.stays_below(dims, elements));
                }
                seen.add(block);
            }
        }
    }
}
