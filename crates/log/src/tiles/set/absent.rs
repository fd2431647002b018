//! The boxes of members that cannot be read, from those of the others.

use super::Collected;
use crate::tiles::families::{self, Cut};

/// The box of each absent member: first point and number of points along each decomposed dimension. Members are numbered row by
/// row, so that the number gives the box where all other members keep to that, and one of its column and one of its row is there.
/// `total`: how many members the set has, if it says so.
pub fn boxes(
    collected: &Collected,
    cuts: &[Cut],
    total: Option<u64>,
) -> Vec<Option<Vec<(u64, u64)>>> {
    let none = || vec![None; collected.absent.len()];
    let Some(family) = collected.marked.first().map(|first| &first.marks) else {
        return none();
    };
    let first = u64::from(families::first_number_of(family));
    let numbers = collected
        .marked
        .iter()
        .map(|member| u64::from(member.number).saturating_sub(first));
    let numbers: Vec<u64> = numbers.collect();
    let ranked: Vec<Ranked> = cuts.iter().map(Ranked::of).collect();
    let columns = ranked.iter().map(|cut| cut.parts.len() as u64);
    let found = columns.filter(|columns| *columns > 0).find_map(|columns| {
        let directions = ranked.iter().map(|cut| cut.direction(&numbers, columns));
        let directions: Vec<Direction> = directions.collect::<Option<_>>()?;
        // A total without masked tiles has to be that of the grid.
        let rows = ranked
            .iter()
            .zip(&directions)
            .filter(|(_, direction)| **direction == Direction::Y);
        let rows = rows
            .map(|(cut, _)| cut.parts.len() as u64)
            .max()
            .unwrap_or(1);
        total
            .is_none_or(|total| total == rows * columns)
            .then_some((columns, directions))
    });
    let Some((columns, directions)) = found else {
        return none();
    };
    let of_number = |number: u32| {
        let number = u64::from(number).checked_sub(first)?;
        let parts = ranked.iter().zip(&directions).map(|(cut, direction)| {
            let rank = direction.rank(number, columns);
            cut.parts.get(usize::try_from(rank).ok()?).copied()
        });
        parts.collect()
    };
    collected
        .absent
        .iter()
        .map(|(number, _)| of_number(*number))
        .collect()
}

/// The parts of a decomposed dimension in their order.
struct Ranked {
    /// First point and number of points.
    parts: Vec<(u64, u64)>,
    /// The part of each member.
    ranks: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// From one column to the next.
    X,
    /// From one row to the next.
    Y,
}

impl Direction {
    fn rank(self, number: u64, columns: u64) -> u64 {
        match self {
            Direction::X => number % columns,
            Direction::Y => number / columns,
        }
    }
}

impl Ranked {
    fn of(cut: &Cut) -> Self {
        let own: Vec<(u64, u64)> = cut.spans.iter().map(|span| (span.at, span.len)).collect();
        let mut parts = own.clone();
        parts.sort_unstable();
        parts.dedup();
        let ranks = own
            .iter()
            .map(|part| parts.partition_point(|known| known < part));
        let ranks = ranks.collect();
        Ranked { parts, ranks }
    }

    /// The direction in which the dimension lies, if the members with these numbers have their parts in that order.
    fn direction(&self, numbers: &[u64], columns: u64) -> Option<Direction> {
        [Direction::X, Direction::Y].into_iter().find(|direction| {
            let mut members = numbers.iter().zip(&self.ranks);
            members.all(|(number, rank)| direction.rank(*number, columns) == *rank as u64)
        })
    }
}
