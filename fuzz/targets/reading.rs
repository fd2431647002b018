//! Reads a view as programs do, and calls its other queries.

use std::ops::{ControlFlow, Range};

use h5logfs_view::ChunkId;
use h5logfs_view::View;

/// The longest view that is read as a whole.
const WHOLE: u64 = 256 << 10;
/// Number of bytes read at each place of a longer range.
const SOME: u64 = 16 << 10;
/// Lengths of consecutive reads.
const PIECES: [usize; 5] = [4096, 1, 777, 65536, 13];
/// The most datasets that are queried, and the most chunks of a dataset that is checked.
const MOST_DATASETS: usize = 16;
const MOST_CHUNKS: u64 = 256;
const MOST_SEGMENTS: usize = 32;

/// Returns whether everything could be read.
pub fn read(view: &View) -> bool {
    let mut all = true;
    for place in places(view) {
        all &= read_place(view, place);
    }
    let datasets = view.snapshot().datasets.len().min(MOST_DATASETS);
    (0..datasets).for_each(|number| query_dataset(view, number));
    check_segments(view);
    let _ = view.indexes().diagnostics();
    all
}

/// The whole view, or in a long one the places where something begins.
fn places(view: &View) -> Vec<Range<u64>> {
    let len = view.len();
    let (mut begins, mut each) = (vec![0], WHOLE);
    if len > WHOLE {
        each = SOME;
        begins.extend([view.preamble_len(), len - SOME]);
        for number in 0..view.snapshot().datasets.len().min(MOST_DATASETS) {
            let last = view.grid(number).len().saturating_sub(1);
            let chunks = [0, last / 2, last]
                .map(|chunk| view.inspection().chunk_place(ChunkId::new(number, chunk)));
            begins.extend(chunks.into_iter().flatten().map(|(offset, _)| offset));
        }
    }
    let place = |begin: u64| begin..begin.saturating_add(each).min(len);
    begins.into_iter().map(place).collect()
}

/// Reads a place at once and in pieces, and checks that the bytes are the same.
fn read_place(view: &View, place: Range<u64>) -> bool {
    let mut whole = vec![0; place.end.saturating_sub(place.start) as usize];
    let read = view.read_at(place.start, &mut whole).ok();
    assert!(read.is_none_or(|len| len == whole.len()));
    let (mut at, mut all) = (0, true);
    let mut lens = PIECES.iter().cycle();
    while at < whole.len() {
        let len = lens.next().map_or(1, |len| *len).min(whole.len() - at);
        let mut piece = vec![0xaa; len];
        match view.read_at(place.start + at as u64, &mut piece) {
            Ok(got) => {
                assert_eq!(got, len);
                assert!(
                    read.is_none() || piece == whole[at..at + len],
                    "at {at} of {place:?}"
                );
            }
            Err(e) => {
                assert!(read.is_none(), "at {at} of {place:?}: {e}");
                all = false;
            }
        }
        at += len;
    }
    assert_eq!(all, read.is_some(), "{place:?}");
    all
}

fn query_dataset(view: &View, number: usize) {
    let _ = view.indexes().records(number);
    let grid = view.grid(number);
    for chunk in [0, grid.len() / 2, grid.len().saturating_sub(1)] {
        if chunk < grid.len() {
            let _ = view.inspection().chunk_blocks(ChunkId::new(number, chunk));
        }
    }
    if let Ok(touched) = view.holes().touched(number, 0) {
        touched.take(4).for_each(drop);
    }
    if grid.len() <= MOST_CHUNKS {
        let mut faults = 0;
        view.inspection().check_dataset(number, &|_| (), &mut |_| {
            faults += 1;
            if faults < 4 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        if let Ok(Some(share)) = view.inspection().covered(number) {
            assert!((0.0..=1.0).contains(&share), "{share}");
        }
    }
}

/// Checks that segments follow each other, and that holes read as zeros.
fn check_segments(view: &View) {
    let mut at = 0;
    for _ in 0..MOST_SEGMENTS {
        let Ok(segment) = view.holes().segment_at(at) else {
            return;
        };
        assert_eq!(segment.range.start, at);
        assert!(segment.range.end <= view.len());
        if at == view.len() {
            return;
        }
        assert!(segment.range.end > at);
        if segment.is_hole {
            let len = (segment.range.end - at).min(SOME);
            let mut bytes = vec![1; len as usize];
            // Chunks that are too large cannot be read at all.
            let is_hole = view.read_at(at, &mut bytes).is_err() || bytes.iter().all(|b| *b == 0);
            assert!(is_hole, "a hole at {at}");
        }
        at = segment.range.end;
    }
}
