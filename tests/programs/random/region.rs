//! The region of a write as a program has it: owned, and listed element by element where the owner of elements
//! matters.

use h5logfs_writer::Selection;
use serde::Serialize;

use crate::rng::Random;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Region {
    /// The whole extent at the time.
    All {
        dims: Vec<u64>,
    },
    Block {
        start: Vec<u64>,
        count: Vec<u64>,
    },
    Hyperslab {
        start: Vec<u64>,
        stride: Vec<u64>,
        count: Vec<u64>,
        block: Vec<u64>,
    },
    Blocks {
        rank: usize,
        starts: Vec<u64>,
        counts: Vec<u64>,
    },
    Points {
        rank: usize,
        points: Vec<u64>,
    },
}

impl Region {
    pub fn draw(dims: &[u64], random: &mut Random) -> Self {
        let all = || Region::All {
            dims: dims.to_vec(),
        };
        if dims.is_empty() {
            return match random.below(3) {
                0 => Region::Block {
                    start: Vec::new(),
                    count: Vec::new(),
                },
                1 => Region::Hyperslab {
                    start: Vec::new(),
                    stride: Vec::new(),
                    count: Vec::new(),
                    block: Vec::new(),
                },
                _ => all(),
            };
        }
        match random.below(16) {
            0 => all(),
            1..=5 => {
                let (start, count) = draw_block(dims, random);
                Region::Block { start, count }
            }
            6..=9 => draw_hyperslab(dims, random),
            10..=12 => draw_blocks(dims, random),
            _ => draw_points(dims, random),
        }
    }

    pub fn selection(&self) -> Selection<'_> {
        match self {
            Region::All { .. } => Selection::All,
            Region::Block { start, count } => Selection::block(start, count),
            Region::Hyperslab {
                start,
                stride,
                count,
                block,
            } => Selection::Hyperslab {
                start,
                stride,
                count,
                block,
            },
            Region::Blocks { starts, counts, .. } => Selection::Blocks { starts, counts },
            Region::Points { points, .. } => Selection::Points(points),
        }
    }

    pub fn elements(&self) -> u64 {
        match self {
            Region::All { dims } => dims.iter().product(),
            Region::Block { count, .. } => count.iter().product(),
            Region::Hyperslab { count, block, .. } => {
                count.iter().zip(block).map(|(c, b)| c * b).product()
            }
            Region::Blocks { rank, counts, .. } => {
                let blocks = counts.chunks(*rank);
                blocks.map(|c| c.iter().product::<u64>()).sum()
            }
            Region::Points { rank, points } => (points.len() / rank) as u64,
        }
    }

    /// Coordinates of all elements, in any order.
    pub fn listed(&self) -> Vec<Vec<u64>> {
        match self {
            Region::All { dims } => boxed(&vec![0; dims.len()], dims),
            Region::Block { start, count } => boxed(start, count),
            Region::Hyperslab {
                start,
                stride,
                count,
                block,
            } => {
                let steps = boxed(&vec![0; start.len()], count);
                let corner = |step: &Vec<u64>| -> Vec<u64> {
                    let dims = 0..start.len();
                    dims.map(|d| start[d] + step[d] * stride[d]).collect()
                };
                steps
                    .iter()
                    .flat_map(|s| boxed(&corner(s), block))
                    .collect()
            }
            Region::Blocks {
                rank,
                starts,
                counts,
            } => {
                let blocks = starts.chunks(*rank).zip(counts.chunks(*rank));
                blocks.flat_map(|(s, c)| boxed(s, c)).collect()
            }
            Region::Points { rank, points } => points.chunks(*rank).map(<[u64]>::to_vec).collect(),
        }
    }

    /// The region in a dataset of this extent, perhaps in another row; `None` where it does not fit.
    pub fn moved_into(mut self, dims: &[u64], random: &mut Random) -> Option<Self> {
        let rows = |start: u64, dim: u64| (dim > 0).then(|| start % dim);
        if let Region::Block { start, count } = &mut self
            && count.first() == Some(&1)
            && random.percent(60)
        {
            start[0] = rows(random.below(1 << 20), *dims.first()?)?;
        }
        match &mut self {
            Region::All { dims: own } if own.len() == dims.len() => *own = dims.to_vec(),
            Region::Points { rank, .. } | Region::Blocks { rank, .. } if *rank != dims.len() => {
                return None;
            }
            _ => {}
        }
        let inside =
            |at: &Vec<u64>| at.len() == dims.len() && at.iter().zip(dims).all(|(a, d)| a < d);
        let rank = match &self {
            Region::All { dims } => dims.len(),
            Region::Block { start, .. } | Region::Hyperslab { start, .. } => start.len(),
            Region::Blocks { rank, .. } | Region::Points { rank, .. } => *rank,
        };
        // A block without elements must lie inside as well.
        if let Region::Blocks { starts, counts, .. } = &self {
            let mut places = starts.iter().zip(counts).zip(dims.iter().cycle());
            if places.any(|((start, count), dim)| start + count > *dim) {
                return None;
            }
        }
        let listed = self.listed();
        (rank == dims.len() && !listed.is_empty() && listed.iter().all(inside)).then_some(self)
    }
}

/// Coordinates of a box.
fn boxed(start: &[u64], count: &[u64]) -> Vec<Vec<u64>> {
    let mut all = vec![Vec::new()];
    for (start, count) in start.iter().zip(count) {
        let longer = |at: Vec<u64>| {
            (0..*count).map(move |i| {
                let mut at = at.clone();
                at.push(start + i);
                at
            })
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

fn draw_block(dims: &[u64], random: &mut Random) -> (Vec<u64>, Vec<u64>) {
    let (mut starts, mut counts) = (Vec::new(), Vec::new());
    for dim in dims {
        let start = random.below(*dim);
        let count = match random.below(20) {
            0 => 0,
            1..=5 => (dim - start).min(1),
            6..=9 => dim - start,
            _ => random.between(0, dim - start),
        };
        // Whole rows, too: their encoding must be avoided.
        let whole = random.percent(15);
        starts.push(if whole { 0 } else { start });
        counts.push(if whole { *dim } else { count });
    }
    (starts, counts)
}

fn draw_hyperslab(dims: &[u64], random: &mut Random) -> Region {
    let (mut start, mut stride, mut count, mut block) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for dim in dims {
        let first = random.below(*dim);
        let long = random.between(1, 3).min(dim - first);
        let step = long.max(1) + random.below(4);
        // Blocks that fit from here, the last one without the gap after it.
        let fit = match long {
            0 => 0,
            _ => (dim - first - long) / step + 1,
        };
        start.push(first);
        stride.push(step);
        count.push(if random.percent(5) {
            0
        } else {
            random.between(fit.min(1), fit)
        });
        block.push(long);
    }
    Region::Hyperslab {
        start,
        stride,
        count,
        block,
    }
}

fn draw_blocks(dims: &[u64], random: &mut Random) -> Region {
    let (mut starts, mut counts) = (Vec::new(), Vec::new());
    // Small blocks more often than overlapping ones.
    let small = random.percent(60);
    for _ in 0..random.below(7) {
        let (start, mut count) = draw_block(dims, random);
        if small {
            count.iter_mut().for_each(|c| *c = (*c).min(2));
        }
        starts.extend(start);
        counts.extend(count);
    }
    Region::Blocks {
        rank: dims.len(),
        starts,
        counts,
    }
}

fn draw_points(dims: &[u64], random: &mut Random) -> Region {
    let mut points: Vec<Vec<u64>> = Vec::new();
    if !dims.contains(&0) {
        for _ in 0..random.below(25) {
            let mut point: Vec<u64> = dims.iter().map(|d| random.below(*d)).collect();
            // Neighbours, and the same point twice.
            if let Some(before) = points.last()
                && random.percent(40)
            {
                point.clone_from(before);
                let last = dims.len() - 1;
                point[last] = (point[last] + random.below(2)).min(dims[last] - 1);
            }
            points.push(point);
        }
    }
    if random.percent(50) {
        points.sort();
    }
    Region::Points {
        rank: dims.len(),
        points: points.concat(),
    }
}
