//! The boxes of members that cannot be read, from those of the others.

use crate::tiles::Absent;
use crate::tiles::families::{Cut, Marked};

/// Gives absent members their boxes. Members are numbered row by row from `first`, so that a number gives the box where all other
/// members keep to that, and one of its column and one of its row is there. `total`: how many members the set has, if it says so;
/// there are no masked tiles among these.
pub fn place(
    absent: &mut [(u32, Absent)],
    members: &[Marked],
    cuts: &[Cut],
    first: u32,
    total: Option<u64>,
) {
    let number = |number: u32| u64::from(number.saturating_sub(first));
    let numbers: Vec<u64> = members.iter().map(|member| number(member.number)).collect();
    let ranked: Vec<Ranked> = cuts.iter().map(Ranked::of).collect();
    for columns in ranked.iter().map(|cut| cut.parts.len() as u64) {
        let lies_along = |cut: &Ranked| cut.is_along_x(&numbers, columns);
        let Some(along_x) = ranked.iter().map(lies_along).collect::<Option<Vec<bool>>>() else {
            continue;
        };
        let rows = ranked.iter().zip(&along_x).filter(|(_, is_x)| !**is_x);
        let rows = rows
            .map(|(cut, _)| cut.parts.len() as u64)
            .max()
            .unwrap_or(1);
        if total.is_some_and(|total| total != rows * columns) {
            continue;
        }
        for (own, absent) in absent {
            let parts = ranked.iter().zip(&along_x).map(|(cut, is_x)| {
                let rank = rank(number(*own), columns, *is_x);
                cut.parts.get(usize::try_from(rank).ok()?).copied()
            });
            absent.spans = parts.collect();
        }
        return;
    }
}

fn rank(number: u64, columns: u64, is_x: bool) -> u64 {
    if is_x {
        number % columns
    } else {
        number / columns
    }
}

/// The parts of a decomposed dimension in their order.
struct Ranked {
    /// First point and number of points.
    parts: Vec<(u64, u64)>,
    /// The part of each member.
    ranks: Vec<u64>,
}

impl Ranked {
    fn of(cut: &Cut) -> Self {
        let own: Vec<(u64, u64)> = cut.spans.iter().map(|span| (span.at, span.len)).collect();
        let mut parts = own.clone();
        parts.sort_unstable();
        parts.dedup();
        let rank = |part: &(u64, u64)| parts.partition_point(|known| known < part) as u64;
        let ranks = own.iter().map(rank).collect();
        Ranked { parts, ranks }
    }

    /// Whether the dimension lies along the rows, or across them; `None` where the members with these numbers have their parts in
    /// another order.
    fn is_along_x(&self, numbers: &[u64], columns: u64) -> Option<bool> {
        let fits = |is_x: bool| {
            let mut members = numbers.iter().zip(&self.ranks);
            members.all(|(number, own)| rank(*number, columns, is_x) == *own)
        };
        [true, false].into_iter().find(|is_x| fits(*is_x))
    }
}
