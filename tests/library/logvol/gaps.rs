//! Missing elements of a dataset, compared with a list of all its elements.

use std::ops::ControlFlow;

use proptest::prelude::*;

use super::faults::place;
use crate::common::amount::properties;
use crate::common::encoder::*;
use h5logfs_view::{Gap, View};

fn gaps(view: &View, dimension: usize) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut add = |gap| {
        gaps.push(gap);
        ControlFlow::Continue(())
    };
    view.inspection().gaps(0, dimension, &mut add).unwrap();
    gaps
}

/// The gaps of a dataset of bytes in which written elements are not zero.
fn meant(contents: &[u8], dims: &[u64], dimension: usize) -> Vec<Gap> {
    let mut written = vec![0; dims[dimension] as usize];
    for (place, byte) in coordinates(dims).zip(contents) {
        written[place[dimension] as usize] += u64::from(*byte != 0);
    }
    let all = contents.len() as u64 / dims[dimension];
    let mut gaps: Vec<Gap> = Vec::new();
    for (index, written) in (0..).zip(written).filter(|(_, written)| *written < all) {
        match gaps.last_mut() {
            Some(last) if last.indices.end == index && last.written == written => {
                last.indices.end += 1;
            }
            _ => gaps.push(Gap {
                indices: index..index + 1,
                written,
                lost: 0,
            }),
        }
    }
    gaps
}

/// A dataset, its chunk, and blocks that were written.
fn recipe() -> impl Strategy<Value = (Vec<u64>, Vec<u64>, Vec<Block>)> {
    let side = || (1u64..9, 1u64..5);
    prop::collection::vec(side(), 1..4).prop_flat_map(|sides| {
        let (dims, chunk): (Vec<u64>, Vec<u64>) = sides.into_iter().unzip();
        let block = dims
            .iter()
            .map(|side| (0..*side, 1..=*side))
            .collect::<Vec<_>>();
        let limits = dims.clone();
        let block = block.prop_map(move |sides| {
            let sides = sides.iter().zip(&limits);
            let sides = sides.map(|((start, count), side)| (*start, *count.min(&(side - start))));
            sides.unzip()
        });
        (Just(dims), Just(chunk), prop::collection::vec(block, 0..5))
    })
}

proptest! {
    #![proptest_config(properties(64))]

    #[test]
    fn gaps_are_where_elements_are_missing((dims, chunk, blocks) in recipe()) {
        let mut dataset = Dataset::new("d", 0, Type::U8, &dims).chunked(&chunk);
        // A chunk may be longer than an unlimited dimension.
        dataset.max.fill(None);
        let entry = |block: &Block| {
            let data = vec![1; block_elements(block) as usize];
            Entry::one(0, &block.0, &block.1, data)
        };
        let log = LogFile::with(vec![dataset], blocks.iter().map(entry).collect());
        let (_dir, path) = place(&log);
        let view = open_view(&path).unwrap();
        let contents = log.contents(&log.datasets[0]);
        for dimension in 0..dims.len() {
            prop_assert_eq!(gaps(&view, dimension), meant(&contents, &dims, dimension));
        }
    }
}

/// Chunks that no record touches are not examined one by one.
#[test]
fn gaps_of_very_many_chunks_are_found_at_once() {
    const SIDE: u64 = 1 << 40;
    let vast = Dataset::new("vast", 0, Type::U8, &[SIDE, 2]).chunked(&[1, 2]);
    let entry = |at: u64, count| Entry::one(0, &[at, 0], &[1, count], vec![1; count as usize]);
    let log = LogFile::with(vec![vast], vec![entry(7, 2), entry(SIDE / 3, 1)]);
    let (_dir, path) = place(&log);
    let gap = |indices, written| Gap {
        indices,
        written,
        lost: 0,
    };
    let wanted = [
        gap(0..7, 0),
        gap(8..SIDE / 3, 0),
        gap(SIDE / 3..SIDE / 3 + 1, 1),
        gap(SIDE / 3 + 1..SIDE, 0),
    ];
    assert_eq!(gaps(&open_view(&path).unwrap(), 0), wanted);
}

/// A caller that has seen enough gets no more.
#[test]
fn no_gap_follows_the_one_that_was_enough() {
    let row = Dataset::new("row", 0, Type::U8, &[9]).chunked(&[2]);
    let entry = |at| Entry::one(0, &[at], &[1], vec![1]);
    let log = LogFile::with(vec![row], vec![entry(1), entry(3), entry(5)]);
    let (_dir, path) = place(&log);
    let mut seen = 0;
    let mut stop = |_| {
        seen += 1;
        ControlFlow::Break(())
    };
    open_view(&path)
        .unwrap()
        .inspection()
        .gaps(0, 0, &mut stop)
        .unwrap();
    assert_eq!(seen, 1);
}
