//! Members whose boxes overlap by more than the corner points that neighbours share (sections 2.3 and 10).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use crate::tiles::families::Cut;

/// Two members that overlap. `axes`: two decomposed dimensions that lie across each other, if they are known.
///
/// Neighbours may share one point, which is the last one of a part of several points. So parts are compared without their last
/// points, and equal boxes are found apart from that.
pub fn find(cuts: &[Cut], axes: Option<&[usize]>) -> Option<(usize, usize)> {
    equal(cuts).or_else(|| match (axes, cuts) {
        (Some([one, other]), _) => sweep(&parts(&cuts[*one]), &parts(&cuts[*other])),
        (_, [alone]) => {
            let all = vec![(0, 1); alone.spans.len()];
            sweep(&parts(alone), &all)
        }
        // Only variables along one dimension: a part of it belongs to all members of its row or column.
        _ => None,
    })
}

/// Two members with the same box.
fn equal(cuts: &[Cut]) -> Option<(usize, usize)> {
    let members = cuts.first().map_or(0, |cut| cut.spans.len());
    let mut known: HashMap<Vec<(u64, u64)>, usize> = HashMap::new();
    (0..members).find_map(|member| {
        let own = cuts
            .iter()
            .map(|cut| (cut.spans[member].at, cut.spans[member].len))
            .collect();
        known.insert(own, member).map(|before| (before, member))
    })
}

/// First point and last point of each member.
fn parts(cut: &Cut) -> Vec<(u64, u64)> {
    let spans = cut.spans.iter();
    spans
        .map(|span| (span.at, (span.at + span.len).saturating_sub(1).max(span.at)))
        .collect()
}

/// Two of the boxes `[a.0, a.1) × [b.0, b.1)` that overlap, in n log n steps: the boxes that a line meets, which moves along `a`,
/// are kept in their order along `b`. As long as these are apart, a new one can only overlap its neighbours.
fn sweep(a: &[(u64, u64)], b: &[(u64, u64)]) -> Option<(usize, usize)> {
    let mut order: Vec<usize> = (0..a.len())
        .filter(|n| a[*n].0 < a[*n].1 && b[*n].0 < b[*n].1)
        .collect();
    order.sort_unstable_by_key(|n| a[*n].0);
    let mut met: BTreeMap<u64, usize> = BTreeMap::new();
    let mut ends = BinaryHeap::new();
    for member in order {
        while let Some(Reverse((end, start))) = ends.peek().copied() {
            if end > a[member].0 {
                break;
            }
            ends.pop();
            met.remove(&start);
        }
        let (start, end) = b[member];
        let before = met
            .range(..=start)
            .next_back()
            .filter(|(_, before)| b[**before].1 > start);
        let after = || met.range(start..).next().filter(|(from, _)| **from < end);
        if let Some((_, other)) = before.or_else(after) {
            return Some((*other, member));
        }
        met.insert(start, member);
        ends.push(Reverse((a[member].1, start)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiles::Span;

    fn cut(parts: &[(u64, u64)]) -> Cut {
        let span = |(at, len): &(u64, u64)| Span {
            at: *at,
            len: *len,
            before: 0,
            all: *len,
        };
        Cut {
            dimension: 0,
            whole: 1000,
            spans: parts.iter().map(span).collect(),
        }
    }

    #[test]
    fn neighbours_share_a_point_at_most() {
        let y = cut(&[(0, 5), (0, 5), (4, 5), (4, 5)]);
        let x = cut(&[(0, 9), (8, 4), (0, 9), (8, 4)]);
        assert_eq!(find(&[x.clone(), y.clone()], Some(&[1, 0])), None);
        // More points than one, and a part within another one.
        for part in [(7, 4), (0, 9), (2, 3)] {
            let mut moved = x.clone();
            moved.spans[1] = cut(&[part]).spans[0];
            assert!(
                find(&[moved, y.clone()], Some(&[1, 0])).is_some(),
                "{part:?}"
            );
        }
        // Only one direction is decomposed.
        assert_eq!(find(&[cut(&[(0, 3), (6, 3), (3, 3)])], None), None);
        assert_eq!(find(&[cut(&[(0, 3), (4, 3), (3, 3)])], None), Some((2, 1)));
        assert_eq!(find(&[cut(&[(0, 1), (1, 1), (0, 1)])], None), Some((0, 2)));
    }

    #[test]
    fn a_sweep_finds_what_comparing_all_pairs_finds() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut found = 0;
        for _ in 0..3000 {
            let count = random(8);
            let mut parts = || {
                (0..count)
                    .map(|_| (random(12), random(5)))
                    .map(|(at, len)| (at, at + len))
                    .collect::<Vec<_>>()
            };
            let (a, b) = (parts(), parts());
            let overlap = |x: (u64, u64), y: (u64, u64)| x.0.max(y.0) < x.1.min(y.1);
            let pairs = |n: usize| (0..n).any(|m| overlap(a[n], a[m]) && overlap(b[n], b[m]));
            let expected = (0..a.len()).any(pairs);
            found += usize::from(expected);
            let got = sweep(&a, &b);
            assert_eq!(got.is_some(), expected, "{a:?} {b:?}");
            assert!(got.is_none_or(|(n, m)| overlap(a[n], a[m]) && overlap(b[n], b[m])));
        }
        assert!((500..2500).contains(&found), "{found}");
    }
}
