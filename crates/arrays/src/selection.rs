//! Selections of a dataset: hyperslabs with steps, lists of indices per dimension, and points.

use h5logfs_common::fault::Fault;

/// Elements of a dataset. Indices count from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All elements.
    All,
    /// Every element whose index along each dimension is in that dimension's axis, in the order of the axes.
    Axes(Vec<Axis>),
    /// Single elements, in this order.
    Points {
        /// Rank of the dataset.
        rank: usize,
        /// Coordinates of the first point, then of the second, and so on.
        coordinates: Vec<u64>,
    },
}

/// Indices along one dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Axis {
    /// `count` indices: `start`, `start + step`, …
    Range {
        /// First index.
        start: u64,
        /// Number of indices.
        count: u64,
        /// Distance of neighbours, at least 1.
        step: u64,
    },
    /// A list of indices, in this order. An index may occur several times.
    List(Vec<u64>),
}

impl Axis {
    /// `count` indices from `start` on.
    pub fn range(start: u64, count: u64) -> Self {
        Axis::Range {
            start,
            count,
            step: 1,
        }
    }

    /// Number of indices.
    pub fn len(&self) -> u64 {
        match self {
            Axis::Range { count, .. } => *count,
            Axis::List(list) => list.len() as u64,
        }
    }

    /// Whether the axis is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index at a valid position.
    pub(crate) fn at(&self, position: u64) -> u64 {
        match self {
            Axis::Range { start, step, .. } => start + position * step,
            Axis::List(list) => list[position as usize],
        }
    }

    /// Fails where an index is not below `side`, or the step is 0.
    fn check(&self, side: u64) -> Result<(), Fault> {
        let past = match self {
            Axis::Range { step: 0, .. } => return Err("a selection with a step of 0".into()),
            Axis::Range { count: 0, .. } => None,
            Axis::Range { start, count, step } => {
                let last = (count - 1).checked_mul(*step);
                let last = last.and_then(|last| last.checked_add(*start));
                Some(last.unwrap_or(u64::MAX)).filter(|last| *last >= side)
            }
            Axis::List(list) => list.iter().copied().find(|index| *index >= side),
        };
        match past {
            Some(index) => Err(format!("index {index} of a dimension of {side}").into()),
            None => Ok(()),
        }
    }
}

impl Selection {
    /// A contiguous box of elements.
    pub fn hyperslab(start: &[u64], count: &[u64]) -> Self {
        let axes = start.iter().zip(count);
        Selection::Axes(
            axes.map(|(start, count)| Axis::range(*start, *count))
                .collect(),
        )
    }

    /// The elements at which a mask is true, in row-major order. The mask covers the extent of the dataset.
    pub fn mask(dims: &[u64], mask: &[bool]) -> Self {
        let mut coordinates = Vec::new();
        for (number, _) in mask.iter().enumerate().filter(|(_, wanted)| **wanted) {
            let mut rest = number as u64;
            let first = coordinates.len();
            for side in dims.iter().rev() {
                coordinates.push(rest % (*side).max(1));
                rest /= (*side).max(1);
            }
            coordinates[first..].reverse();
        }
        Selection::Points {
            rank: dims.len(),
            coordinates,
        }
    }

    /// The shape of the array that the selection reads from a dataset of these dimensions. Points have one dimension.
    /// Fails where the selection does not fit the dataset.
    pub fn shape(&self, dims: &[u64]) -> Result<Vec<u64>, Fault> {
        let of_other_rank = |rank: usize| -> Fault {
            format!(
                "a selection of rank {rank} in a dataset of rank {}",
                dims.len()
            )
            .into()
        };
        match self {
            Selection::All => Ok(dims.to_vec()),
            Selection::Axes(axes) if axes.len() != dims.len() => Err(of_other_rank(axes.len())),
            Selection::Axes(axes) => {
                axes.iter()
                    .zip(dims)
                    .try_for_each(|(axis, side)| axis.check(*side))?;
                Ok(axes.iter().map(Axis::len).collect())
            }
            Selection::Points { rank, .. } if *rank != dims.len() => Err(of_other_rank(*rank)),
            Selection::Points { rank: 0, .. } => Err("points of a scalar".into()),
            Selection::Points { rank, coordinates } => {
                for point in coordinates.chunks(*rank) {
                    let inside =
                        point.len() == *rank && point.iter().zip(dims).all(|(at, side)| at < side);
                    if !inside {
                        return Err(format!("point {point:?} of an extent of {dims:?}").into());
                    }
                }
                Ok(vec![(coordinates.len() / rank) as u64])
            }
        }
    }
}
