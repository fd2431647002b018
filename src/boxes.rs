//! Axis-aligned boxes, and a packed tree over many of them that answers "which of these touch that box?".
//!
//! Used twice: over the blocks of one selection, and over the records of one dataset.

use std::fmt;
use std::ops::{ControlFlow, Range};

/// Items under one node of the tree.
const FAN_OUT: usize = 16;

/// A non-empty hyper-rectangle: `start[i] .. end[i]` along each dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    pub start: Vec<u64>,
    pub end: Vec<u64>,
}

impl Bounds {
    pub fn rank(&self) -> usize {
        self.start.len()
    }

    /// The common part, or `None` where there is none.
    pub fn intersection(&self, other: &Bounds) -> Option<Bounds> {
        let start: Vec<u64> = max_each(&self.start, &other.start);
        let end: Vec<u64> = min_each(&self.end, &other.end);
        let empty = start.iter().zip(&end).any(|(s, e)| s >= e);
        (!empty).then_some(Bounds { start, end })
    }

    /// Length of each side.
    pub fn count(&self) -> impl Iterator<Item = u64> + '_ {
        self.start.iter().zip(&self.end).map(|(s, e)| e - s)
    }

    pub fn contains(&self, other: &Bounds) -> bool {
        self.start.iter().zip(&other.start).all(|(a, b)| a <= b)
            && self.end.iter().zip(&other.end).all(|(a, b)| a >= b)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: Vec<u64> = self.count().collect();
        write!(f, "start {:?} count {count:?}", self.start)
    }
}

fn max_each(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| *a.max(b)).collect()
}

fn min_each(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).map(|(a, b)| *a.min(b)).collect()
}

/// A list of boxes that can be asked for one by one, without storing them twice.
pub trait Boxes {
    fn rank(&self) -> usize;
    fn number(&self) -> usize;
    /// Start and end of box `item` along `dim`.
    fn side(&self, item: usize, dim: usize) -> Range<u64>;

    fn touches(&self, item: usize, query: &Bounds) -> bool {
        (0..self.rank()).all(|d| {
            let side = self.side(item, d);
            side.start < query.end[d] && query.start[d] < side.end
        })
    }
}

/// Bounding boxes of groups of items, groups of groups, and so on. The items keep their own order
/// where that already keeps neighbours together (the usual case: writers go through a dataset in
/// order); otherwise they are visited along a Z-order curve and the answer is put back in order.
#[derive(Debug, Clone, Default)]
pub struct BoxTree {
    /// `None`: position in the tree is the item's own number.
    order: Option<Vec<u32>>,
    /// Level 0 bounds groups of items, the next one groups of these, up to a single group.
    levels: Vec<Level>,
}

/// Boxes of one level: for each, starts of all dimensions, then ends of all dimensions.
#[derive(Debug, Clone)]
struct Level(Vec<u64>);

impl BoxTree {
    pub fn build(items: &impl Boxes) -> Self {
        let natural = Level::of_items(items, |i| i);
        if items.number() <= FAN_OUT * FAN_OUT {
            return Self::stack(None, natural, items.rank());
        }
        let order = z_order(items);
        let curve = Level::of_items(items, |i| order[i] as usize);
        // A curve that does not at least halve the boxes is not worth its array of positions.
        if curve.spread(items.rank()) * 2.0 < natural.spread(items.rank()) {
            Self::stack(Some(order), curve, items.rank())
        } else {
            Self::stack(None, natural, items.rank())
        }
    }

    fn stack(order: Option<Vec<u32>>, lowest: Level, rank: usize) -> Self {
        let mut levels = vec![lowest];
        while let Some(top) = levels.last()
            && top.len(rank) > FAN_OUT
        {
            let next = top.grouped(rank);
            levels.push(next);
        }
        BoxTree { order, levels }
    }

    /// Numbers of the items that touch `query`, ascending.
    pub fn touching(&self, items: &impl Boxes, query: &Bounds) -> Vec<usize> {
        let mut found = Vec::new();
        let _ = self.visit(items, query, &mut |item| {
            found.push(item);
            ControlFlow::Continue(())
        });
        if self.order.is_some() {
            found.sort_unstable();
        }
        found
    }

    /// Whether an item that touches `query` is wanted; asks no more once one is.
    pub fn any(
        &self,
        items: &impl Boxes,
        query: &Bounds,
        mut wanted: impl FnMut(usize) -> bool,
    ) -> bool {
        let stopped = self.visit(items, query, &mut |item| match wanted(item) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        stopped.is_break()
    }

    /// Shows `visit` the items that touch `query`, in the order of the tree, until it breaks off.
    fn visit(
        &self,
        items: &impl Boxes,
        query: &Bounds,
        visit: &mut impl FnMut(usize) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if items.rank() == 0 {
            return (0..items.number()).try_for_each(visit);
        }
        match self.levels.len().checked_sub(1) {
            Some(top) => (0..self.levels[top].len(items.rank()))
                .try_for_each(|node| self.descend(items, query, (top, node), visit)),
            None => ControlFlow::Continue(()),
        }
    }

    fn descend(
        &self,
        items: &impl Boxes,
        query: &Bounds,
        (level, node): (usize, usize),
        visit: &mut impl FnMut(usize) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if !self.levels[level].touches(node, query) {
            return ControlFlow::Continue(());
        }
        let children = node * FAN_OUT..(node + 1) * FAN_OUT;
        if level > 0 {
            let end = children.end.min(self.levels[level - 1].len(items.rank()));
            return (children.start..end)
                .try_for_each(|child| self.descend(items, query, (level - 1, child), visit));
        }
        for position in children.start..children.end.min(items.number()) {
            let item = match &self.order {
                Some(order) => order[position] as usize,
                None => position,
            };
            if items.touches(item, query) {
                visit(item)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        let levels: usize = self.levels.iter().map(|l| l.0.len() * 8).sum();
        levels + self.order.as_ref().map_or(0, |o| o.len() * 4)
    }
}

impl Level {
    fn of_items(items: &impl Boxes, at: impl Fn(usize) -> usize) -> Self {
        let rank = items.rank();
        let groups = items.number().div_ceil(FAN_OUT);
        let mut bounds = Vec::with_capacity(groups * 2 * rank);
        for group in 0..groups {
            let members = group * FAN_OUT..((group + 1) * FAN_OUT).min(items.number());
            let sides = |d| members.clone().map(move |m| (m, d));
            for d in 0..rank {
                let start = sides(d).map(|(m, d)| items.side(at(m), d).start).min();
                bounds.push(start.unwrap_or(0));
            }
            for d in 0..rank {
                let end = sides(d).map(|(m, d)| items.side(at(m), d).end).max();
                bounds.push(end.unwrap_or(0));
            }
        }
        Level(bounds)
    }

    fn len(&self, rank: usize) -> usize {
        self.0.len() / (2 * rank).max(1)
    }

    fn grouped(&self, rank: usize) -> Level {
        let mut bounds = Vec::new();
        for group in self.0.chunks(FAN_OUT * 2 * rank) {
            let members = || group.chunks_exact(2 * rank);
            for d in 0..rank {
                bounds.push(members().map(|b| b[d]).min().unwrap_or(0));
            }
            for d in rank..2 * rank {
                bounds.push(members().map(|b| b[d]).max().unwrap_or(0));
            }
        }
        Level(bounds)
    }

    fn touches(&self, node: usize, query: &Bounds) -> bool {
        let rank = query.rank();
        let (start, end) = self.0[node * 2 * rank..(node + 1) * 2 * rank].split_at(rank);
        (0..rank).all(|d| start[d] < query.end[d] && query.start[d] < end[d])
    }

    /// Sum of the side lengths of all boxes: how much of the space a query has to visit, roughly.
    fn spread(&self, rank: usize) -> f64 {
        self.0
            .chunks_exact(2 * rank)
            .map(|b| (0..rank).map(|d| (b[rank + d] - b[d]) as f64).sum::<f64>())
            .sum()
    }
}

/// Item numbers along a Z-order curve through the centres of their boxes.
fn z_order(items: &impl Boxes) -> Vec<u32> {
    let rank = items.rank();
    let bits = (63 / rank.max(1)).clamp(1, 16) as u32;
    let used = rank.min(63);
    let centre = |i: usize, d: usize| {
        let side = items.side(i, d);
        side.start + (side.end - side.start) / 2
    };
    let spans: Vec<(u64, u64)> = (0..used)
        .map(|d| {
            let centres = || (0..items.number()).map(|i| centre(i, d));
            let low = centres().min().unwrap_or(0);
            (low, centres().max().unwrap_or(0) - low)
        })
        .collect();
    let key = |i: usize| {
        let cells: Vec<u64> = (0..used)
            .map(|d| {
                let (low, span) = spans[d];
                let scaled = u128::from(centre(i, d) - low) << bits;
                (scaled / (u128::from(span) + 1)) as u64
            })
            .collect();
        let mut key = 0u64;
        for bit in (0..bits).rev() {
            for cell in &cells {
                key = key << 1 | (cell >> bit & 1);
            }
        }
        key
    };
    let mut order: Vec<u32> = (0..items.number() as u32).collect();
    order.sort_by_cached_key(|&i| key(i as usize));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug)]
    struct List(Vec<Bounds>);

    impl Boxes for List {
        fn rank(&self) -> usize {
            self.0.first().map_or(1, Bounds::rank)
        }
        fn number(&self) -> usize {
            self.0.len()
        }
        fn side(&self, item: usize, dim: usize) -> Range<u64> {
            self.0[item].start[dim]..self.0[item].end[dim]
        }
    }

    fn some_box(rank: usize) -> impl Strategy<Value = Bounds> {
        prop::collection::vec((0u64..1000, 1u64..40), rank).prop_map(|sides| Bounds {
            start: sides.iter().map(|s| s.0).collect(),
            end: sides.iter().map(|s| s.0 + s.1).collect(),
        })
    }

    fn case() -> impl Strategy<Value = (List, Bounds)> {
        (1usize..5).prop_flat_map(|rank| {
            let list = prop::collection::vec(some_box(rank), 0..900).prop_map(List);
            (list, some_box(rank))
        })
    }

    proptest! {
        #[test]
        fn finds_what_a_full_search_finds((list, query) in case()) {
            let tree = BoxTree::build(&list);
            let wanted: Vec<usize> = (0..list.number())
                .filter(|&i| list.0[i].intersection(&query).is_some())
                .collect();
            if !list.0.is_empty() {
                prop_assert_eq!(tree.any(&list, &query, |_| true), !wanted.is_empty());
                prop_assert_eq!(tree.touching(&list, &query), wanted);
            }
        }
    }

    #[test]
    fn random_order_is_visited_along_a_curve() {
        let scattered = |i: u64| (i * 7919) % 10_007;
        let list = List(
            (0..10_007)
                .map(|i| Bounds {
                    start: vec![scattered(i)],
                    end: vec![scattered(i) + 1],
                })
                .collect(),
        );
        let tree = BoxTree::build(&list);
        assert!(tree.order.is_some());
        let query = Bounds {
            start: vec![500],
            end: vec![503],
        };
        let mut starts: Vec<u64> = tree
            .touching(&list, &query)
            .into_iter()
            .map(|i| list.0[i].start[0])
            .collect();
        starts.sort_unstable();
        assert_eq!(starts, [500, 501, 502]);
    }
}
