//! A packed table of many boxes, each with some values. It answers "which of these touch that box?". It is used
//! for the blocks of one selection, and for the records of one dataset.
//!
//! Rows lie in groups of `GROUP`. Within a group each column is stored as its least value and the differences
//! from it, in as few bits as the largest difference needs. Neighbours have similar coordinates, so a block takes
//! some 3 to 10 bytes, whatever its rank. The least starts and the largest ends of a group are its bounding box.
//! These boxes are the leaves of a tree of bounding boxes, an R-tree.
//!
//! Rows keep their own order where that keeps neighbours together. This is the usual case: writers go through a
//! dataset in order. Otherwise they are stored along a Z-order curve. Answers are in the order of the rows in
//! both cases, from the last to the first.

use std::ops::{ControlFlow, Range};

use serde::{Deserialize, Serialize};

use super::{Bounds, Order};
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::{Reservation, Reserved};
use h5logfs_common::parallel;
use h5logfs_common::sync::Mutex;
use h5logfs_common::task::Task;

/// Rows in a group.
const GROUP: usize = 128;
/// Tables with more groups are packed by several threads.
const MANY_GROUPS: usize = 1024;
/// Up to this many rows of a group are unpacked one by one.
const FEW: u32 = 24;
/// Children of one node of the tree.
const FAN_OUT: usize = 16;
/// If a point lies in more groups than this on average, the Z-order is tried.
const TIGHT: f64 = 3.0;
/// If groups are smaller than this fraction of the whole on average, the Z-order is not tried: few groups touch a
/// query, even where many overlap in each place, as after processes that took turns.
const SMALL: f64 = 1.0 / 64.0;
/// Bytes after the packed numbers, so that each number can be loaded as a word.
const SPARE: usize = 8;
/// Rows that a query sorts at a time.
const SORTED: usize = if cfg!(test) { 50 } else { 1 << 16 };
/// The limit of HDF5.
const MOST_DIMENSIONS: usize = 32;
/// The widest number, in bits, that fits in a loaded word at any bit offset.
const WIDEST: u32 = 57;

/// The source of a table. A row has the starts of its box, then the counts, then its values. No count is zero, and no
/// end is past 2^64-1. The first value ascends from row to row.
pub trait Rows {
    /// Number of dimensions.
    fn rank(&self) -> usize;
    /// Number of rows.
    fn rows(&self) -> usize;
    /// Number of values of each row.
    fn values(&self) -> usize;
    /// The first coordinate of a row's box along one dimension.
    fn start(&self, row: usize, dim: usize) -> u64;
    /// The length of a row's box along one dimension.
    fn count(&self, row: usize, dim: usize) -> u64;
    /// A value of a row.
    fn value(&self, row: usize, value: usize) -> u64;
    /// The number that all rows have in a column, if it is known. Columns are the starts, then the counts, then the
    /// values.
    fn same(&self, _column: usize) -> Option<u64> {
        None
    }
}

/// One row of a table.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    rank: usize,
    cells: &'a [u64],
}

impl<'a> Row<'a> {
    /// A row of these cells: starts, counts, values.
    #[inline]
    pub fn new(rank: usize, cells: &'a [u64]) -> Self {
        Row { rank, cells }
    }

    /// The first coordinates of its box.
    #[inline]
    pub fn start(&self) -> &'a [u64] {
        &self.cells[..self.rank]
    }

    /// The lengths of its box.
    #[inline]
    pub fn count(&self) -> &'a [u64] {
        &self.cells[self.rank..2 * self.rank]
    }

    /// A value of the row.
    #[inline]
    pub fn value(&self, value: usize) -> u64 {
        self.cells[2 * self.rank + value]
    }

    fn touches(&self, query: &Bounds) -> bool {
        let sides = self.start().iter().zip(self.count());
        let mut sides = sides.zip(query.start.iter().zip(&query.end));
        sides.all(|((start, count), (from, to))| start < to && *from < start.saturating_add(*count))
    }
}

/// A table of boxes with values. A table read from a file must pass [`PackedBoxes::checked`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedBoxes {
    rank: usize,
    values: usize,
    rows: usize,
    /// Whether the rows are stored in their own order.
    in_order: bool,
    /// For each group: the least number of each column, the largest end along each dimension, and the offset in
    /// `packed`.
    heads: Vec<u64>,
    /// For each group and column: the width of a number in bits.
    #[serde(with = "serde_bytes")]
    widths: Vec<u8>,
    #[serde(with = "serde_bytes")]
    packed: Vec<u8>,
    /// The inner levels of the tree, the root last: the starts, then the ends, of each node's bounding box. They are
    /// computed from `heads`.
    #[serde(skip)]
    levels: Vec<Vec<u64>>,
    /// First values and places fit into 32 bits each.
    #[serde(skip)]
    is_narrow: bool,
}

impl PackedBoxes {
    /// Packs all rows. The reservation covers the table only.
    pub fn build(task: &Task, rows: &(impl Rows + Sync)) -> Result<(Self, Reservation), Fault> {
        Self::build_without(task, rows, |_| Ok(Vec::new()))
    }

    /// Packs all rows except those that `left_out` returns, in ascending order. `left_out` receives every row that
    /// may share its box with another row; `None` where these are unknown.
    pub fn build_without(
        task: &Task,
        rows: &(impl Rows + Sync),
        left_out: impl FnOnce(Option<Vec<u32>>) -> Result<Vec<u32>, Fault>,
    ) -> Result<(Self, Reservation), Fault> {
        let all = bounds_of_all(rows);
        let overlap = worth_a_curve(rows, Which::All, &all);
        let curve = match overlap {
            Some(_) => Curve::new(task, rows, &all)?,
            None => None,
        };
        let left_out = left_out(curve.as_ref().and_then(Curve::in_one_place))?;
        let (left, _left) = without(task, rows.rows(), &left_out)?.into_parts();
        let (own_order, overlap) = if left_out.is_empty() {
            (Which::All, overlap)
        } else {
            let some = Which::Some(&left);
            (some, worth_a_curve(rows, some, &all))
        };
        if let Some((mut curve, overlap)) = curve.zip(overlap) {
            curve.leave_out(task, &left_out)?;
            let curve = Self::pack(task, rows, Which::Along(&curve.keyed))?;
            // A Z-order costs sorting of each answer, so it must halve the overlap.
            if curve.0.overlap() * 2.0 < overlap {
                return Ok(curve);
            }
        }
        Self::pack(task, rows, own_order)
    }

    fn pack<R: Rows + Sync>(
        task: &Task,
        rows: &R,
        which: Which<'_>,
    ) -> Result<(Self, Reservation), Fault> {
        let number = which.number(rows);
        let groups = number.div_ceil(GROUP);
        let shares = shares(number);
        let each = groups.div_ceil(shares);
        let parts = parallel::share(shares, |number| {
            let groups = (number * each).min(groups)..((number + 1) * each).min(groups);
            Self::pack_groups(task, rows, which, groups)
        });
        let mut parts = parts.into_iter();
        let nothing = || Self::pack_groups(task, rows, which, 0..0);
        let (mut packed, mut reservation) = parts.next().unwrap_or_else(nothing)?;
        let parts: Vec<_> = parts.collect::<Result<_, Fault>>()?;
        let more: usize = parts.iter().map(|(part, _)| part.packed.len()).sum();
        reservation.make_room(&mut packed.packed, more + SPARE)?;
        for (part, own) in parts {
            packed.append(part, &mut reservation)?;
            drop(own);
        }
        packed.rows = number;
        packed.packed.extend([0; SPARE]);
        packed.packed.shrink_to_fit();
        reservation.grow(packed.levels_bytes() + size_of::<Self>() as u64)?;
        packed.stack_levels();
        reservation.shrink_to(packed.bytes() as u64);
        Ok((packed, reservation))
    }

    /// Packs some of the groups.
    fn pack_groups(
        task: &Task,
        rows: &impl Rows,
        which: Which<'_>,
        groups: Range<usize>,
    ) -> Result<(Self, Reservation), Fault> {
        let columns = 2 * rows.rank() + rows.values();
        let head = (columns + rows.rank() + 1) * size_of::<u64>() + columns;
        let mut reservation = task.reserve(groups.len() as u64 * head as u64)?;
        let mut packed = PackedBoxes {
            rank: rows.rank(),
            values: rows.values(),
            rows: 0,
            in_order: !matches!(which, Which::Along(_)),
            heads: Vec::with_capacity(groups.len() * (columns + rows.rank() + 1)),
            widths: Vec::with_capacity(groups.len() * columns),
            packed: Vec::new(),
            levels: Vec::new(),
            is_narrow: false,
        };
        let same: Vec<Option<u64>> = (0..columns).map(|column| rows.same(column)).collect();
        let mut cells = vec![0; columns * GROUP];
        for (column, same) in cells.chunks_exact_mut(GROUP).zip(&same) {
            column.fill(same.unwrap_or(0));
        }
        for group in groups {
            task.check()?;
            reservation.make_room(&mut packed.packed, columns * GROUP * size_of::<u64>())?;
            let members = group * GROUP..((group + 1) * GROUP).min(which.number(rows));
            let len = members.len();
            match which {
                Which::All => fetch(rows, members, &same, &mut cells),
                Which::Some(list) => {
                    let members = list[members].iter().map(|row| *row as usize);
                    fetch(rows, members, &same, &mut cells);
                }
                Which::Along(keyed) => {
                    let members = keyed[members].iter().map(row_of);
                    fetch(rows, members, &same, &mut cells);
                }
            }
            packed.push_group(&cells, len, &same);
        }
        Ok((packed, reservation))
    }

    /// Adds the groups that follow.
    fn append(
        &mut self,
        mut next: PackedBoxes,
        reservation: &mut Reservation,
    ) -> Result<(), Fault> {
        let begin = self.packed.len() as u64;
        let stride = next.stride();
        for head in next.heads.chunks_exact_mut(stride) {
            head[stride - 1] += begin;
        }
        reservation.make_room(&mut self.heads, next.heads.len())?;
        self.heads.append(&mut next.heads);
        reservation.make_room(&mut self.widths, next.widths.len())?;
        self.widths.append(&mut next.widths);
        reservation.make_room(&mut self.packed, next.packed.len())?;
        self.packed.append(&mut next.packed);
        Ok(())
    }

    /// Adds a group of `len` rows. `cells` has [`GROUP`] places for each column.
    fn push_group(&mut self, cells: &[u64], len: usize, same: &[Option<u64>]) {
        let begin = self.packed.len() as u64;
        for (column, same) in cells.chunks_exact(GROUP).zip(same) {
            match same {
                Some(same) => {
                    self.heads.push(*same);
                    self.widths.push(0);
                }
                None => self.push_column(&column[..len]),
            }
        }
        for d in 0..self.rank {
            let counts = &cells[(self.rank + d) * GROUP..];
            let sides = cells[d * GROUP..].iter().zip(counts).take(len);
            let ends = sides.map(|(start, count)| start.saturating_add(*count));
            self.heads.push(ends.max().unwrap_or(0));
        }
        self.heads.push(begin);
    }

    fn push_column(&mut self, column: &[u64]) {
        let least = column.iter().copied().min().unwrap_or(0);
        let most = column.iter().copied().max().unwrap_or(0);
        let width = match u64::BITS - (most - least).leading_zeros() {
            narrow if narrow <= WIDEST => narrow,
            _ => u64::BITS,
        };
        self.heads.push(least);
        self.widths.push(width as u8);
        pack(column, least, width, &mut self.packed);
    }

    /// Average number of groups that contain a point: the sum of the groups' volumes over the volume of the whole.
    fn overlap(&self) -> f64 {
        let all = self.bounds();
        let groups = (0..self.groups()).map(|group| self.node_box(0, group));
        groups.map(|(start, end)| share(start, end, &all)).sum()
    }

    /// Numbers in the head of a group.
    fn stride(&self) -> usize {
        self.columns() + self.rank + 1
    }

    fn columns(&self) -> usize {
        2 * self.rank + self.values
    }

    fn groups(&self) -> usize {
        self.rows.div_ceil(GROUP)
    }

    fn has_narrow_keys(&self) -> bool {
        let (columns, first) = (self.columns(), 2 * self.rank);
        let fits = |group: usize| {
            let least = self.heads[group * self.stride() + first];
            largest(least, self.widths[group * columns + first]) <= u64::from(u32::MAX)
        };
        u32::try_from(self.rows).is_ok() && self.values > 0 && (0..self.groups()).all(fits)
    }

    fn stack_levels(&mut self) {
        let rank = self.rank;
        self.is_narrow = self.has_narrow_keys();
        let mut level = around(self.groups(), rank, |group| self.node_box(0, group));
        while level.len() > 2 * rank {
            let of_level =
                |node: usize| level[node * 2 * rank..(node + 1) * 2 * rank].split_at(rank);
            let next = around(level.len() / (2 * rank), rank, of_level);
            self.levels.push(level);
            level = next;
        }
        self.levels.push(level);
    }

    /// Bytes of memory of the inner levels.
    fn levels_bytes(&self) -> u64 {
        let mut nodes = self.groups();
        let mut all = 0;
        while nodes > 1 {
            nodes = nodes.div_ceil(FAN_OUT);
            all += nodes;
        }
        (all.max(1) * 2 * self.rank * size_of::<u64>()) as u64
    }

    /// Completes a table read from a file. `None` where it is damaged, or has another rank or number of values.
    /// Queries of a completed table read no bytes outside of it.
    pub fn checked(mut self, rank: usize, values: usize) -> Option<Self> {
        if (self.rank, self.values) != (rank, values) || rank > MOST_DIMENSIONS {
            return None;
        }
        let (groups, stride, columns) = (self.groups(), self.stride(), self.columns());
        if groups.checked_mul(stride) != Some(self.heads.len())
            || groups.checked_mul(columns) != Some(self.widths.len())
        {
            return None;
        }
        for group in 0..groups {
            let len = GROUP.min(self.rows - group * GROUP);
            let widths = &self.widths[group * columns..(group + 1) * columns];
            let fits = |w: &u8| u32::from(*w) <= WIDEST || u32::from(*w) == u64::BITS;
            let bytes: usize = widths.iter().map(|w| packed_len(len, u32::from(*w))).sum();
            let begin = usize::try_from(self.heads[(group + 1) * stride - 1]).ok()?;
            let end = begin.checked_add(bytes)?.checked_add(SPARE)?;
            if !widths.iter().all(fits) || end > self.packed.len() {
                return None;
            }
        }
        self.stack_levels();
        Some(self)
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of boxes.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The smallest box that contains all boxes. Meaningless without rows.
    pub fn bounds(&self) -> Bounds {
        let top = self.levels.last().map_or(&[][..], Vec::as_slice);
        let (start, end) = top.split_at(top.len() / 2);
        Bounds {
            start: start.to_vec(),
            end: end.to_vec(),
        }
    }

    /// Passes the rows that touch `query` to `visit`, in the requested order, until `visit` breaks.
    pub fn visit<B>(
        &self,
        query: &Bounds,
        order: Order,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if self.in_order || order == Order::Any {
            return self.visit_stored(query, &mut |row, _| visit(row));
        }
        // In Z-order storage, the rows that touch the query must be sorted. Keys of one word sort twice as fast.
        if self.is_narrow {
            let key = |value: u64, place: usize| value << 32 | place as u64;
            self.visit_sorted(query, key, |key| *key as u32 as usize, visit)
        } else {
            self.visit_sorted(query, |value, place| (value, place), |key| key.1, visit)
        }
    }

    /// Visits rows as [`PackedBoxes::visit`] does, from the last to the first. `key` combines the first value of a
    /// row and its place; `place` extracts the place.
    fn visit_sorted<K: Ord + Copy, B>(
        &self,
        query: &Bounds,
        key: impl Fn(u64, usize) -> K,
        place: impl Fn(&K) -> usize,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let (mut cells, mut begins) = (vec![0; self.columns()], Vec::new());
        let mut before = None;
        loop {
            let last = self.last_touching(query, before, &key);
            for key in last.iter().rev() {
                self.fetch_row(place(key), &mut begins, &mut cells);
                visit(Row::new(self.rank, &cells))?;
            }
            before = last.first().copied();
            if last.len() < SORTED {
                return ControlFlow::Continue(());
            }
        }
    }

    /// The keys of the last [`SORTED`] rows that touch `query` and are less than `before`, in ascending order. The
    /// limit bounds the memory of a query.
    fn last_touching<K: Ord + Copy>(
        &self,
        query: &Bounds,
        before: Option<K>,
        key: &impl Fn(u64, usize) -> K,
    ) -> Vec<K> {
        let mut found: Vec<K> = Vec::with_capacity(self.rows.min(2 * SORTED));
        let mut above = None;
        let _ = self.visit_stored(query, &mut |row, place| {
            let key = key(row.value(0), place);
            if before.is_none_or(|before| key < before) && above.is_none_or(|above| key > above) {
                found.push(key);
            }
            if found.len() == 2 * SORTED {
                let kept = found.select_nth_unstable_by(SORTED - 1, |a, b| b.cmp(a));
                above = Some(*kept.1);
                found.truncate(SORTED);
            }
            ControlFlow::<()>::Continue(())
        });
        found.sort_unstable();
        found.drain(..found.len().saturating_sub(SORTED));
        found
    }

    /// Upper bound of a query's memory in bytes.
    pub fn query_memory(&self) -> u64 {
        if self.in_order {
            return 0;
        }
        (self.rows.min(2 * SORTED) * size_of::<(u64, usize)>()) as u64
    }

    /// Unpacks the row at a place in storage order.
    fn fetch_row(&self, place: usize, begins: &mut Vec<usize>, cells: &mut [u64]) {
        let group = self.group(place / GROUP, begins);
        for (column, cell) in cells.iter_mut().enumerate() {
            *cell = group.number(place % GROUP, column);
        }
    }

    /// Whether `wanted` accepts a row that touches `query`. Stops at the first one accepted.
    pub fn any(&self, query: &Bounds, mut wanted: impl FnMut(Row<'_>) -> bool) -> bool {
        let stopped = self.visit_stored(query, &mut |row, _| {
            if wanted(row) {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        stopped.is_break()
    }

    /// Whether `wanted` accepts any row. Where all rows of a group have equal numbers in the columns of these values,
    /// `wanted` is asked once for the group, with a row of each column's least number.
    pub fn any_kind(&self, values: &[usize], mut wanted: impl FnMut(Row<'_>) -> bool) -> bool {
        let (stride, columns) = (self.stride(), self.columns());
        let everything = Bounds {
            start: vec![0; self.rank],
            end: vec![u64::MAX; self.rank],
        };
        let mut scratch = self.scratch();
        (0..self.groups()).any(|group| {
            let widths = &self.widths[group * columns + 2 * self.rank..];
            if values.iter().all(|value| widths[*value] == 0) {
                let least = &self.heads[group * stride..][..columns];
                return wanted(Row::new(self.rank, least));
            }
            let mut stop_at = |row: Row<'_>, _| {
                if wanted(row) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            let visited = self.visit_group(&everything, group, &mut scratch, &mut stop_at);
            visited.is_break()
        })
    }

    fn scratch(&self) -> Scratch {
        Scratch {
            columns: Vec::new(),
            begins: Vec::new(),
            varying: Vec::new(),
            cells: vec![0; self.columns()],
        }
    }

    /// Visits rows as [`PackedBoxes::visit`] does, but in storage order and with their places.
    fn visit_stored<B>(
        &self,
        query: &Bounds,
        visit: &mut impl FnMut(Row<'_>, usize) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if self.rows == 0 {
            return ControlFlow::Continue(());
        }
        self.descend(query, self.levels.len(), 0, &mut self.scratch(), visit)
    }

    /// Visits the children of a node that touch the query. Level 0 is the groups; level `n` is `levels[n - 1]`.
    fn descend<B>(
        &self,
        query: &Bounds,
        level: usize,
        node: usize,
        scratch: &mut Scratch,
        visit: &mut impl FnMut(Row<'_>, usize) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let (start, end) = self.node_box(level, node);
        let touches = |d: usize| start[d] < query.end[d] && query.start[d] < end[d];
        if !(0..self.rank).all(touches) {
            return ControlFlow::Continue(());
        }
        let Some(below) = level.checked_sub(1) else {
            return self.visit_group(query, node, scratch, visit);
        };
        self.children(below, node)
            .rev()
            .try_for_each(|child| self.descend(query, below, child, scratch, visit))
    }

    /// The nodes of level `below` that are children of a node one level up.
    fn children(&self, below: usize, node: usize) -> Range<usize> {
        let children = match below.checked_sub(1) {
            Some(below) if self.rank > 0 => self.levels[below].len() / (2 * self.rank),
            // All boxes without dimensions are equal: one node holds all groups.
            _ => self.groups(),
        };
        match self.rank {
            0 => 0..children,
            _ => node * FAN_OUT..children.min((node + 1) * FAN_OUT),
        }
    }

    /// False where no row contains all of `query`. Reads no rows.
    pub fn may_cover(&self, query: &Bounds) -> bool {
        self.rows > 0 && self.node_may_cover(query, self.levels.len(), 0)
    }

    fn node_may_cover(&self, query: &Bounds, level: usize, node: usize) -> bool {
        let (start, end) = self.node_box(level, node);
        let covers = |d: usize| start[d] <= query.start[d] && query.end[d] <= end[d];
        if !(0..self.rank).all(covers) {
            return false;
        }
        let Some(below) = level.checked_sub(1) else {
            let (head, width) = (node * self.stride(), node * self.columns());
            let is_long = |d: usize| {
                let count = self.rank + d;
                let most = largest(self.heads[head + count], self.widths[width + count]);
                most >= query.end[d] - query.start[d]
            };
            return (0..self.rank).all(is_long);
        };
        self.children(below, node)
            .any(|child| self.node_may_cover(query, below, child))
    }

    fn node_box(&self, level: usize, node: usize) -> (&[u64], &[u64]) {
        let rank = self.rank;
        match level.checked_sub(1) {
            Some(level) => {
                self.levels[level][node * 2 * rank..(node + 1) * 2 * rank].split_at(rank)
            }
            None => {
                let head = &self.heads[node * self.stride()..];
                (&head[..rank], &head[self.columns()..self.columns() + rank])
            }
        }
    }

    fn visit_group<B>(
        &self,
        query: &Bounds,
        group: usize,
        scratch: &mut Scratch,
        visit: &mut impl FnMut(Row<'_>, usize) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let (rank, columns) = (self.rank, self.columns());
        let packed = self.group(group, &mut scratch.begins);
        let mut left = self.rows_inside(query, group, &packed, &mut scratch.columns);
        if left == 0 {
            return ControlFlow::Continue(());
        }
        // Most columns have a single number in the whole group.
        scratch.cells.copy_from_slice(&packed.least[..columns]);
        scratch.varying.clear();
        let varying = (0..columns).filter(|column| packed.widths[*column] > 0);
        scratch.varying.extend(varying);
        let unpacks = left.count_ones() > FEW;
        if unpacks {
            scratch.columns.resize(columns * GROUP, 0);
            let unpacked = scratch.columns.chunks_exact_mut(GROUP);
            for (column, out) in scratch.varying.iter().zip(unpacked) {
                packed.unpack(*column, out);
            }
        }
        while left != 0 {
            let row = left.ilog2() as usize;
            left ^= 1 << row;
            for (place, column) in scratch.varying.iter().enumerate() {
                scratch.cells[*column] = if unpacks {
                    scratch.columns[place * GROUP + row]
                } else {
                    packed.number(row, *column)
                };
            }
            let found = Row {
                rank,
                cells: &scratch.cells,
            };
            // Not every candidate touches the query, and the box of a group read from a file may be smaller than its
            // rows.
            if found.touches(query) {
                visit(found, group * GROUP + row)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Bit mask of the rows of a group that may touch `query`. It tests only the dimensions in which `query` does not
    /// contain the group, by the rows' starts and the largest possible count.
    fn rows_inside(
        &self,
        query: &Bounds,
        group: usize,
        packed: &PackedGroup<'_>,
        starts: &mut Vec<u64>,
    ) -> u128 {
        let (start, end) = self.node_box(0, group);
        let mut inside = u128::MAX >> (GROUP - packed.len);
        for d in 0..self.rank {
            let (from, to) = (query.start[d], query.end[d]);
            if from <= start[d] && end[d] <= to {
                continue;
            }
            starts.resize(starts.len().max(GROUP), 0);
            packed.unpack(d, starts);
            inside &= touching(&starts[..GROUP], packed.most(self.rank + d), from..to);
            if inside == 0 {
                break;
            }
        }
        inside
    }

    /// The packed numbers of a group. `begins` is scratch space for the offsets of its columns.
    fn group<'a>(&'a self, group: usize, begins: &'a mut Vec<usize>) -> PackedGroup<'a> {
        let (columns, stride) = (self.columns(), self.stride());
        let len = GROUP.min(self.rows - group * GROUP);
        let head = &self.heads[group * stride..(group + 1) * stride];
        let widths = &self.widths[group * columns..(group + 1) * columns];
        let mut at = head[stride - 1] as usize;
        begins.clear();
        begins.extend(widths.iter().map(|width| {
            let begin = at;
            at += packed_len(len, u32::from(*width));
            begin
        }));
        PackedGroup {
            len,
            least: head,
            widths,
            begins,
            packed: &self.packed,
        }
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let levels: usize = self.levels.iter().map(|l| l.len() * 8).sum();
        size_of::<Self>() + self.heads.len() * 8 + self.widths.len() + self.packed.len() + levels
    }
}

/// Scratch space for one group: the unpacked columns that vary, the offsets of all columns, the indices of those that
/// vary, and one row.
struct Scratch {
    columns: Vec<u64>,
    begins: Vec<usize>,
    varying: Vec<usize>,
    cells: Vec<u64>,
}

/// The packed numbers of one group.
struct PackedGroup<'a> {
    /// Rows.
    len: usize,
    /// For each column the least number, the width of a number in bits, and the offset.
    least: &'a [u64],
    widths: &'a [u8],
    begins: &'a [usize],
    packed: &'a [u8],
}

impl PackedGroup<'_> {
    fn number(&self, row: usize, column: usize) -> u64 {
        let (least, width) = (self.least[column], u32::from(self.widths[column]));
        number_at(&self.packed[self.begins[column]..], row, least, width)
    }

    /// Upper bound of the numbers of a column.
    fn most(&self, column: usize) -> u64 {
        largest(self.least[column], self.widths[column])
    }

    /// Unpacks a column into the first places of `out`.
    fn unpack(&self, column: usize, out: &mut [u64]) {
        let (least, width) = (self.least[column], u32::from(self.widths[column]));
        let packed = &self.packed[self.begins[column]..];
        unpack(packed, least, width, &mut out[..self.len]);
    }
}

/// The largest number that `width` bits above `least` can express.
fn largest(least: u64, width: u8) -> u64 {
    let mask = u64::MAX.checked_shr(u64::BITS - u32::from(width));
    least.saturating_add(mask.unwrap_or(0))
}

/// Bit mask of the boxes that may touch a range, given their starts and an upper bound of their counts.
fn touching(starts: &[u64], count: u64, range: Range<u64>) -> u128 {
    let mut all = 0;
    for (half, starts) in starts.chunks(64).enumerate() {
        let mut word = 0;
        for (bit, start) in starts.iter().enumerate() {
            let touches = (*start < range.end) & (range.start < start.saturating_add(count));
            word |= u64::from(touches) << bit;
        }
        all |= u128::from(word) << (64 * half);
    }
    all
}

/// The bounding boxes of each [`FAN_OUT`] of `nodes` boxes. `box_of` gives starts and ends of a box. The result has
/// `2 * rank` numbers per box.
fn around<'a>(
    nodes: usize,
    rank: usize,
    box_of: impl Fn(usize) -> (&'a [u64], &'a [u64]),
) -> Vec<u64> {
    if rank == 0 {
        return Vec::new();
    }
    let mut level = Vec::with_capacity(nodes.div_ceil(FAN_OUT) * 2 * rank);
    for first in (0..nodes).step_by(FAN_OUT) {
        let members = || (first..nodes.min(first + FAN_OUT)).map(&box_of);
        level.extend((0..rank).map(|d| members().map(|(start, _)| start[d]).min().unwrap_or(0)));
        level.extend((0..rank).map(|d| members().map(|(_, end)| end[d]).max().unwrap_or(0)));
    }
    level
}

/// Appends the differences from `least`, `width` bits each, low bits first.
fn pack(cells: &[u64], least: u64, width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let (mut word, mut used) = (0, 0);
    for cell in cells {
        let number = cell - least;
        word |= number << used;
        used += width;
        if used >= u64::BITS {
            out.extend_from_slice(&word.to_le_bytes());
            used -= u64::BITS;
            // The bits that did not fit; zero if the number ended with the word.
            word = number.checked_shr(width - used).unwrap_or(0);
        }
    }
    out.extend_from_slice(&word.to_le_bytes()[..used.div_ceil(8) as usize]);
}

/// The inverse of [`pack`]. `packed` must have a whole word from the first byte of each number.
fn unpack(packed: &[u8], least: u64, width: u32, out: &mut [u64]) {
    if width == 0 {
        return out.fill(least);
    }
    let mask = u64::MAX >> (u64::BITS - width);
    let mut bit = 0;
    for cell in out {
        let at = bit / 8;
        let mut word = [0; 8];
        word.copy_from_slice(&packed[at..at + 8]);
        *cell = least.wrapping_add(u64::from_le_bytes(word) >> (bit % 8) & mask);
        bit += width as usize;
    }
}

/// A single number out of those that [`unpack`] unpacks.
fn number_at(packed: &[u8], number: usize, least: u64, width: u32) -> u64 {
    if width == 0 {
        return least;
    }
    let bit = number * width as usize;
    let mut word = [0; 8];
    word.copy_from_slice(&packed[bit / 8..bit / 8 + 8]);
    let mask = u64::MAX >> (u64::BITS - width);
    least.wrapping_add(u64::from_le_bytes(word) >> (bit % 8) & mask)
}

fn packed_len(cells: usize, width: u32) -> usize {
    (cells * width as usize).div_ceil(8)
}

/// Collects rows column by column. Each column has [`GROUP`] places. Rows may be scattered in memory: a short loop
/// lets the processor wait for many of them at once. Columns with a single number are filled already.
fn fetch(
    rows: &impl Rows,
    members: impl Iterator<Item = usize> + Clone,
    same: &[Option<u64>],
    cells: &mut [u64],
) {
    let rank = rows.rank();
    let columns = cells.chunks_exact_mut(GROUP).zip(same).enumerate();
    for (column, (cells, _)) in columns.filter(|(_, (_, same))| same.is_none()) {
        let members = members.clone();
        if column < rank {
            put_in(cells, members.map(|row| rows.start(row, column)));
        } else if column < 2 * rank {
            put_in(cells, members.map(|row| rows.count(row, column - rank)));
        } else {
            put_in(cells, members.map(|row| rows.value(row, column - 2 * rank)));
        }
    }
}

/// Writes numbers to the start of a column.
fn put_in(column: &mut [u64], numbers: impl Iterator<Item = u64>) {
    for (cell, number) in column.iter_mut().zip(numbers) {
        *cell = number;
    }
}

/// The volume of a box as a fraction of that of `all`.
fn share(start: &[u64], end: &[u64], all: &Bounds) -> f64 {
    let sides = start.iter().zip(end).zip(all.count());
    sides.fold(1.0, |v, ((s, e), span)| v * (e - s) as f64 / span as f64)
}

/// Number of threads for `rows` rows.
fn shares(rows: usize) -> usize {
    if rows.div_ceil(GROUP) > MANY_GROUPS {
        parallel::shares()
    } else {
        1
    }
}

/// The smallest box that contains some rows.
fn bounds_of(rows: &impl Rows, members: impl Iterator<Item = usize> + Clone) -> Bounds {
    let sides = (0..rows.rank()).map(|d| {
        members.clone().fold((u64::MAX, 0), |(low, high), row| {
            let start = rows.start(row, d);
            (
                low.min(start),
                high.max(start.saturating_add(rows.count(row, d))),
            )
        })
    });
    let (start, end) = sides.unzip();
    Bounds { start, end }
}

/// The smallest box that contains all rows.
fn bounds_of_all(rows: &(impl Rows + Sync)) -> Bounds {
    let (all, shares) = (rows.rows(), shares(rows.rows()));
    let each = all.div_ceil(shares);
    let parts = parallel::share(shares, |share| {
        bounds_of(rows, (share * each).min(all)..((share + 1) * each).min(all))
    });
    let side = |d: usize| {
        let start = parts.iter().map(|part| part.start[d]).min();
        let end = parts.iter().map(|part| part.end[d]).max();
        (start.unwrap_or(0), end.unwrap_or(0))
    };
    let (start, end) = (0..rows.rank()).map(side).unzip();
    Bounds { start, end }
}

/// Average number of groups that would contain a point if rows kept their own order. `None` where the Z-order is not
/// worth a try.
fn worth_a_curve(rows: &impl Rows, which: Which<'_>, all: &Bounds) -> Option<f64> {
    let number = which.number(rows);
    if rows.rank() == 0 || number <= GROUP {
        return None;
    }
    let overlap = natural_overlap(rows, which, all);
    let share = overlap * GROUP as f64 / number as f64;
    (overlap > TIGHT && share > SMALL).then_some(overlap)
}

/// Estimates, from a sample of groups, the average number of groups that would contain a point if rows kept their own
/// order.
fn natural_overlap(rows: &impl Rows, which: Which<'_>, all: &Bounds) -> f64 {
    const SAMPLE: usize = 64;
    let groups = which.number(rows) / GROUP;
    let sample = (0..groups).step_by(groups.div_ceil(SAMPLE));
    let (taken, volume) = sample.fold((0, 0.0), |(taken, volume), group| {
        let members = group * GROUP..(group + 1) * GROUP;
        let own = match which {
            Which::Some(list) => bounds_of(rows, list[members].iter().map(|row| *row as usize)),
            Which::All | Which::Along(_) => bounds_of(rows, members),
        };
        (taken + 1, volume + share(&own.start, &own.end, all))
    });
    volume / f64::from(taken) * groups as f64
}

/// The numbers below `number`, ascending, without `left_out`, which ascends as well. Empty where `left_out` is.
fn without(task: &Task, number: usize, left_out: &[u32]) -> Result<Reserved<Vec<u32>>, Fault> {
    let mut reservation = task.reservation();
    let mut left = Vec::new();
    if !left_out.is_empty() {
        reservation.make_room(&mut left, number - left_out.len())?;
        let mut left_out = left_out.iter().peekable();
        left.extend((0..number as u32).filter(|row| left_out.next_if_eq(&row).is_none()));
    }
    Ok(Reserved::new(left, reservation))
}

/// The rows to pack.
#[derive(Clone, Copy)]
enum Which<'a> {
    /// All rows, in their own order.
    All,
    /// A list of rows, ascending.
    Some(&'a [u32]),
    /// The rows of a [`Curve`].
    Along(&'a [u64]),
}

impl Which<'_> {
    fn number(self, rows: &impl Rows) -> usize {
        match self {
            Which::All => rows.rows(),
            Which::Some(list) => list.len(),
            Which::Along(keyed) => keyed.len(),
        }
    }
}

/// Calls `word` for the numbers below `len`, and returns the words in ascending order. Words have about `bits` bits.
/// Each thread distributes a range of the numbers to buckets, and then sorts some of the buckets, so nothing has to be
/// merged.
fn sorted_words(
    task: &Task,
    len: usize,
    shares: usize,
    bits: u32,
    word: impl Fn(usize) -> u64 + Sync,
) -> Result<Reserved<Vec<u64>>, Fault> {
    /// Approximate number of words in a bucket. Sorting so few makes no function calls.
    const TOGETHER: usize = 16;
    const MOST_BUCKETS: usize = 1 << 14;
    let buckets = (len / TOGETHER).next_power_of_two().min(MOST_BUCKETS);
    let shift = bits.saturating_sub(buckets.trailing_zeros());
    let bucket_of = |word: u64| (word.checked_shr(shift).unwrap_or(0) as usize).min(buckets - 1);
    let each = len.div_ceil(shares);
    let distributed = parallel::share(shares, |share| {
        let numbers = (share * each).min(len)..((share + 1) * each).min(len);
        let mut begins = vec![0; buckets + 1];
        for number in numbers.clone() {
            begins[bucket_of(word(number)) + 1] += 1;
        }
        for bucket in 0..buckets {
            begins[bucket + 1] += begins[bucket];
        }
        let mut next = begins.clone();
        let mut reservation = task.reservation();
        let mut words = reservation.filled(numbers.len())?;
        for number in numbers {
            let word = word(number);
            let place: &mut usize = &mut next[bucket_of(word)];
            words[*place] = word;
            *place += 1;
        }
        Ok((begins, Reserved::new(words, reservation)))
    });
    let distributed: Vec<_> = distributed.into_iter().collect::<Result<_, Fault>>()?;
    let behind = |bucket: usize| -> usize {
        let begins = distributed.iter().map(|(begins, _)| begins[bucket]);
        begins.sum()
    };
    let mut reservation = task.reservation();
    let mut sorted = reservation.filled(len)?;
    let mut parts = Vec::new();
    let (mut rest, mut first) = (sorted.as_mut_slice(), 0);
    for share in 1..=shares {
        let mut last = first;
        while last < buckets && (behind(last) < share * each || share == shares) {
            last += 1;
        }
        let (part, others) = rest.split_at_mut(behind(last) - behind(first));
        parts.push(Mutex::new((first..last, part)));
        (rest, first) = (others, last);
    }
    parallel::share(shares, |share| {
        let (buckets, part) = &mut *parts[share].lock();
        let mut begin = 0;
        for bucket in buckets.clone() {
            let mut end = begin;
            for (begins, words) in &distributed {
                let from = &words[begins[bucket]..begins[bucket + 1]];
                part[end..end + from.len()].copy_from_slice(from);
                end += from.len();
            }
            part[begin..end].sort_unstable();
            begin = end;
        }
    });
    drop(parts);
    Ok(Reserved::new(sorted, reservation))
}

/// The rows along a Z-order curve through the first elements of their boxes.
struct Curve {
    /// Words in ascending order: the upper half is the position on the curve, the lower half the row.
    keyed: Vec<u64>,
    _reservation: Reservation,
}

/// The row in a word of a [`Curve`].
fn row_of(keyed: &u64) -> usize {
    *keyed as u32 as usize
}

impl Curve {
    /// `None` where there are more than 2^32 rows.
    fn new(task: &Task, rows: &(impl Rows + Sync), all: &Bounds) -> Result<Option<Self>, Fault> {
        if u32::try_from(rows.rows()).is_err() {
            return Ok(None);
        }
        let used = rows.rank().min(32);
        let of_each = 32 / used as u32;
        // Only the highest used bits of each coordinate enter the key.
        let shifts: Vec<u32> = all
            .count()
            .map(|span| (u64::BITS - span.leading_zeros()).saturating_sub(of_each))
            .collect();
        // The bits of each byte, spread to leave room for those of the other dimensions.
        let spaced: Vec<u64> = (0..256)
            .map(|byte| {
                (0..of_each.min(8)).fold(0, |key, bit| {
                    key | (byte >> bit & 1) << (bit as usize * used)
                })
            })
            .collect();
        let key = |row: u32| {
            let cell = |d| (rows.start(row as usize, d) - all.start[d]) >> shifts[d];
            if used == 1 {
                return cell(0);
            }
            (0..used).fold(0, |key, d| {
                let cell = cell(d);
                let bytes = (0..of_each.div_ceil(8)).map(|byte| {
                    spaced[(cell >> (8 * byte) & 0xff) as usize] << (8 * byte as usize * used)
                });
                key | bytes.fold(0, |key, bits| key | bits) << (used - 1 - d)
            })
        };
        // Number of bits of the largest key.
        let spans = all.count().zip(&shifts).map(|(span, shift)| span >> shift);
        let widest = spans.fold(0, |most, span| most.max(u64::BITS - span.leading_zeros()));
        let bits = widest * used as u32 + 32;
        // Key and row number share a word, which sorts fast.
        let word = |row: usize| key(row as u32) << 32 | row as u64;
        let (keyed, reservation) =
            sorted_words(task, rows.rows(), shares(rows.rows()), bits, word)?.into_parts();
        Ok(Some(Curve {
            keyed,
            _reservation: reservation,
        }))
    }

    /// The rows that share their position on the curve with another row. Any row with the same box as another is
    /// among them. `None` where they are so many that positions are too coarse to tell.
    fn in_one_place(&self) -> Option<Vec<u32>> {
        let place = |keyed: &u64| *keyed >> 32;
        let most = self.keyed.len() / 8;
        let mut found = Vec::new();
        for together in self.keyed.chunk_by(|a, b| place(a) == place(b)) {
            if together.len() > 1 {
                found.extend(together.iter().map(|keyed| *keyed as u32));
            }
            if found.len() > most {
                return None;
            }
        }
        found.sort_unstable();
        Some(found)
    }

    /// Removes rows from the curve.
    fn leave_out(&mut self, task: &Task, rows: &[u32]) -> Result<(), Fault> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut reservation = task.reservation();
        let mut is_out: Vec<bool> = reservation.filled(self.keyed.len())?;
        rows.iter().for_each(|row| is_out[*row as usize] = true);
        self.keyed.retain(|keyed| !is_out[row_of(keyed)]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rank and boxes. The values of each box are its number, and a number derived from that.
    #[derive(Debug, Clone)]
    struct List(usize, Vec<Bounds>);

    impl List {
        /// The first values of some lists need more than 32 bits.
        fn spread(&self) -> usize {
            self.1.len() % 2 * 40
        }
    }

    fn bounds(row: Row<'_>) -> Bounds {
        let ends = row.start().iter().zip(row.count());
        Bounds {
            end: ends.map(|(s, c)| s.saturating_add(*c)).collect(),
            start: row.start().to_vec(),
        }
    }

    fn beside(row: usize) -> u64 {
        (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (row % 64)
    }

    impl Rows for List {
        fn rank(&self) -> usize {
            self.0
        }
        fn rows(&self) -> usize {
            self.1.len()
        }
        fn values(&self) -> usize {
            2
        }
        fn start(&self, row: usize, dim: usize) -> u64 {
            self.1[row].start[dim]
        }
        fn count(&self, row: usize, dim: usize) -> u64 {
            self.1[row].end[dim] - self.1[row].start[dim]
        }
        fn value(&self, row: usize, value: usize) -> u64 {
            [(row as u64) << self.spread(), beside(row)][value]
        }
    }

    fn built(list: &List) -> PackedBoxes {
        let (table, reservation) = PackedBoxes::build(&Task::unlimited(), list).unwrap();
        assert_eq!(reservation.bytes(), table.bytes() as u64);
        table
    }

    fn some_box(rank: usize, span: u64, side: u64) -> impl Strategy<Value = Bounds> {
        prop::collection::vec((0..span, 1..=side), rank).prop_map(|sides| Bounds {
            start: sides.iter().map(|s| s.0).collect(),
            end: sides.iter().map(|s| s.0.saturating_add(s.1)).collect(),
        })
    }

    fn case() -> impl Strategy<Value = (List, Bounds)> {
        let spans = prop::sample::select(vec![4, 1000, 1 << 40, u64::MAX - 50]);
        (0usize..5, spans, any::<bool>()).prop_flat_map(|(rank, span, sorted)| {
            let list = prop::collection::vec(some_box(rank, span, 40), 0..5000);
            let list = list.prop_map(move |mut boxes| {
                if sorted {
                    boxes.sort_by(|a, b| a.start.cmp(&b.start));
                }
                List(rank, boxes)
            });
            (list, some_box(rank, span, span / 4))
        })
    }

    proptest! {
        #[test]
        fn finds_what_a_full_search_finds_last_first((list, query) in case()) {
            let table = built(&list);
            let wanted: Vec<usize> = (0..list.1.len())
                .filter(|&i| list.1[i].intersection(&query).is_some())
                .rev()
                .collect();
            let mut found = Vec::new();
            let _ = table.visit(&query, Order::Back, |row| {
                found.push((row.value(0) >> list.spread()) as usize);
                assert_eq!(bounds(row), list.1[found[found.len() - 1]]);
                assert_eq!(row.value(1), beside(found[found.len() - 1]));
                ControlFlow::<()>::Continue(())
            });
            prop_assert_eq!(table.any(&query, |_| true), !wanted.is_empty());
            prop_assert_eq!(&found, &wanted);
            let mut in_any_order = Vec::new();
            let _ = table.visit(&query, Order::Any, |row| {
                in_any_order.push((row.value(0) >> list.spread()) as usize);
                ControlFlow::<()>::Continue(())
            });
            in_any_order.sort_unstable_by(|a, b| b.cmp(a));
            prop_assert_eq!(&in_any_order, &wanted);
            let is_covered = list.1.iter().any(|bounds| bounds.contains(&query));
            prop_assert!(table.may_cover(&query) || !is_covered);
            // A visit stops when it is told to.
            let mut left = wanted.len() / 2 + 1;
            let _ = table.visit(&query, Order::Back, |_| {
                left -= 1;
                match left {
                    0 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            });
            prop_assert_eq!(left, usize::from(wanted.is_empty()));
            let bytes = postcard::to_stdvec(&table).unwrap();
            let read: PackedBoxes = postcard::from_bytes(&bytes).unwrap();
            prop_assert_eq!(read.checked(list.0, 2), Some(table));
        }

        #[test]
        fn a_damaged_table_is_refused_or_answers(
            (list, query) in case(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = postcard::to_stdvec(&built(&list)).unwrap();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok(read) = postcard::from_bytes::<PackedBoxes>(&bytes)
                && let Some(table) = read.checked(list.0, 2)
            {
                table.any(&query, |_| false);
            }
        }
    }

    /// Adjacent boxes, each of a kind.
    struct Kinds(Vec<u64>);

    impl Rows for Kinds {
        fn rank(&self) -> usize {
            1
        }
        fn rows(&self) -> usize {
            self.0.len()
        }
        fn values(&self) -> usize {
            2
        }
        fn start(&self, row: usize, _: usize) -> u64 {
            row as u64
        }
        fn count(&self, _: usize, _: usize) -> u64 {
            1
        }
        fn value(&self, row: usize, value: usize) -> u64 {
            [row as u64, self.0[row]][value]
        }
    }

    #[test]
    fn groups_of_one_kind_are_asked_about_once() {
        let mut kinds = vec![3; 10 * GROUP];
        kinds[5 * GROUP + 7] = 4;
        let (table, _reservation) = PackedBoxes::build(&Task::unlimited(), &Kinds(kinds)).unwrap();
        let mut asked = 0;
        let is_five = |row: Row<'_>| {
            asked += 1;
            row.value(1) == 5
        };
        assert!(!table.any_kind(&[1], is_five));
        assert_eq!(asked, 9 + GROUP);
        assert!(table.any_kind(&[1], |row| row.value(1) == 4));
    }

    #[test]
    fn threads_sort_words() {
        let word = |number: usize| (number as u64 * 0x9e37_79b9 % 1009) << 32 | number as u64;
        for len in [1, 7, 5000] {
            let mut wanted: Vec<u64> = (0..len).map(word).collect();
            wanted.sort_unstable();
            // With too few bits, all words go to the last bucket or past it.
            for (shares, bits) in [(1, 42), (2, 42), (5, 42), (3, 30), (3, 64)] {
                let sorted = sorted_words(&Task::unlimited(), len, shares, bits, word).unwrap();
                assert_eq!(**sorted, *wanted, "{len} in {shares} shares, {bits} bits");
            }
        }
    }

    #[test]
    fn small_boxes_cannot_cover_a_large_one() {
        let table = built(&scattered(10_007));
        let query = |start, end| Bounds {
            start: vec![start],
            end: vec![end],
        };
        assert!(table.may_cover(&query(500, 501)));
        assert!(!table.may_cover(&query(500, 510)));
    }

    fn scattered(number: u64) -> List {
        let at = |i: u64| (i * 7919) % number;
        let boxes = (0..number).map(|i| Bounds {
            start: vec![at(i)],
            end: vec![at(i) + 1],
        });
        List(1, boxes.collect())
    }

    #[test]
    fn random_order_lies_along_a_curve_and_sorted_order_does_not() {
        let list = scattered(10_007);
        let table = built(&list);
        assert!(!table.in_order);
        let query = Bounds {
            start: vec![500],
            end: vec![503],
        };
        let mut groups = 0;
        for group in 0..table.groups() {
            let (start, end) = table.node_box(0, group);
            groups += usize::from(start[0] < 503 && end[0] > 500);
        }
        assert!(groups <= 2, "{groups}");
        let mut starts = Vec::new();
        let _ = table.visit(&query, Order::Back, |row| {
            starts.push(row.start()[0]);
            ControlFlow::<()>::Continue(())
        });
        starts.sort_unstable();
        assert_eq!(starts, [500, 501, 502]);

        let mut sorted = list.clone();
        sorted.1.sort_by(|a, b| a.start.cmp(&b.start));
        assert!(built(&sorted).in_order);
    }

    #[test]
    fn neighbours_take_a_few_bytes_each() {
        // Enough rows for several threads.
        let number = 200_000;
        let at = |i: u64| Bounds {
            start: vec![i / 100, i % 100 * 30, 5],
            end: vec![i / 100 + 1, i % 100 * 30 + 1 + i % 25, 10],
        };
        let list = List(3, (0..number).map(at).collect());
        let table = built(&list);
        // The second value is noise of 8 bytes.
        let bytes = table.bytes() as u64 / number;
        assert!(bytes - 8 <= 6, "{bytes}");
        for i in (0..number).step_by(7919) {
            let mut found = Vec::new();
            let _ = table.visit(&at(i), Order::Back, |row| {
                found.push((row.value(0) >> list.spread(), row.value(1), bounds(row)));
                ControlFlow::<()>::Continue(())
            });
            assert_eq!(found, [(i, beside(i as usize), at(i))]);
        }
    }
}
