//! The origin of a log's data: the process and the flush that wrote each byte, as far as the layout records them.

use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;

/// Bytes of data that one process wrote in one flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Number of the source file that holds them.
    pub source: u16,
    /// Offset of the first byte in the source.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
    /// Rank of the process; `None` where the log does not record it.
    pub rank: Option<u32>,
    /// Number of the flush; `None` where the log does not record it.
    pub flush: Option<u64>,
}

/// Largest number of spans kept.
const MOST_SPANS: usize = 1 << 20;

/// All spans of a log, by source and first byte.
#[derive(Debug, Default)]
pub struct Origins {
    spans: Vec<Span>,
    /// Parts of the log that could not be followed. Their spans are missing.
    pub diagnostics: Vec<Diagnostic>,
}

/// Bytes by flush and rank. Neighbouring flushes share a column and neighbouring ranks a row, so that the table has a
/// limited size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// The first and the last flush of each column; `None` where flushes are not known.
    pub flushes: Vec<Option<(u64, u64)>>,
    /// The first and the last rank of each row; `None` where ranks are not known.
    pub ranks: Vec<Option<(u32, u32)>>,
    /// Bytes, row by row.
    pub bytes: Vec<u64>,
    /// Number of flushes that wrote data.
    pub known_flushes: usize,
    /// Number of ranks that wrote data.
    pub known_ranks: usize,
    /// The largest sum of bytes of one rank.
    pub most_of_a_rank: u64,
    /// The mean of the sums of all ranks that wrote data.
    pub mean_of_ranks: u64,
}

impl Origins {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// All spans, by source and first byte.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Adds a span. A span that continues the last one is merged with it. Fails where there are too many spans.
    pub fn push(&mut self, span: Span) -> Result<(), Fault> {
        if let Some(last) = self.spans.last_mut()
            && (last.source, last.end) == (span.source, span.start)
            && (last.rank, last.flush) == (span.rank, span.flush)
        {
            last.end = span.end;
            return Ok(());
        }
        if self.spans.len() >= MOST_SPANS {
            return Err(
                format!("more than {MOST_SPANS} pieces of data of one rank and flush").into(),
            );
        }
        self.spans.push(span);
        Ok(())
    }

    /// Changes each span. The caller must call [`Origins::sort`] afterwards.
    pub(crate) fn adjust(&mut self, change: impl FnMut(&mut Span)) {
        self.spans.iter_mut().for_each(change);
    }

    /// Sorts the spans. The caller calls this once all spans are added.
    pub(crate) fn sort(&mut self) {
        self.spans.sort_unstable();
    }

    /// The span that holds a byte of a source.
    pub fn of(&self, source: u16, offset: u64) -> Option<&Span> {
        let after = self
            .spans
            .partition_point(|span| (span.source, span.start) <= (source, offset));
        let span = self.spans.get(after.checked_sub(1)?)?;
        (span.source == source && offset < span.end).then_some(span)
    }

    /// Bytes by flush and rank, in at most `columns` columns and `rows` rows.
    pub fn timeline(&self, columns: usize, rows: usize) -> Timeline {
        let flushes = Classes::of(self.spans.iter().map(|span| span.flush), columns);
        let ranks = Classes::of(self.spans.iter().map(|s| s.rank.map(u64::from)), rows);
        let mut bytes = vec![0u64; flushes.len() * ranks.len()];
        let mut of_ranks = vec![0u64; ranks.known.len()];
        for span in &self.spans {
            let len = span.end - span.start;
            let rank = span.rank.map(u64::from);
            let at = ranks.class(rank) * flushes.len() + flushes.class(span.flush);
            bytes[at] = bytes[at].saturating_add(len);
            let place = ranks.known.binary_search(&rank).unwrap_or(0);
            of_ranks[place] = of_ranks[place].saturating_add(len);
        }
        let all: u128 = of_ranks.iter().map(|n| u128::from(*n)).sum();
        let narrow = |(first, last): (u64, u64)| (first as u32, last as u32);
        Timeline {
            known_flushes: flushes.known.iter().flatten().count(),
            known_ranks: ranks.known.iter().flatten().count(),
            flushes: flushes.ends(),
            ranks: ranks.ends().into_iter().map(|e| e.map(narrow)).collect(),
            bytes,
            most_of_a_rank: of_ranks.iter().copied().max().unwrap_or(0),
            mean_of_ranks: (all / of_ranks.len().max(1) as u128) as u64,
        }
    }
}

/// Values in classes of neighbours.
struct Classes {
    /// The values that occur, in ascending order.
    known: Vec<Option<u64>>,
    /// Number of values in a class.
    each: usize,
}

impl Classes {
    fn of(values: impl Iterator<Item = Option<u64>>, most: usize) -> Self {
        let mut known: Vec<_> = values.collect();
        known.sort_unstable();
        known.dedup();
        let each = known.len().div_ceil(most.max(1)).max(1);
        Classes { known, each }
    }

    fn len(&self) -> usize {
        self.known.len().div_ceil(self.each)
    }

    fn class(&self, value: Option<u64>) -> usize {
        self.known.binary_search(&value).unwrap_or(0) / self.each
    }

    /// The first and the last value of each class.
    fn ends(&self) -> Vec<Option<(u64, u64)>> {
        let classes = self.known.chunks(self.each);
        classes
            .map(|class| {
                let mut known = class.iter().flatten();
                let first = known.next()?;
                Some((*first, *known.last().unwrap_or(first)))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u64, len: u64, rank: u32, flush: u64) -> Span {
        Span {
            source: 0,
            start,
            end: start + len,
            rank: Some(rank),
            flush: Some(flush),
        }
    }

    fn origins(spans: &[Span]) -> Origins {
        let mut origins = Origins::default();
        spans.iter().for_each(|span| origins.push(*span).unwrap());
        origins.sort();
        origins
    }

    #[test]
    fn neighbours_are_one_span_and_bytes_are_found() {
        let origins = origins(&[
            span(30, 10, 1, 1),
            span(10, 5, 0, 1),
            span(15, 5, 0, 1),
            span(40, 5, 1, 2),
        ]);
        assert_eq!(origins.spans().len(), 3);
        let rank = |at| origins.of(0, at).and_then(|span| span.rank);
        assert_eq!(rank(9), None);
        assert_eq!((rank(10), rank(19), rank(20)), (Some(0), Some(0), None));
        assert_eq!((rank(44), rank(45)), (Some(1), None));
        assert_eq!(origins.of(1, 10), None);
    }

    #[test]
    fn a_timeline_adds_up() {
        let all = origins(&[
            span(0, 10, 0, 1),
            span(20, 30, 1, 1),
            span(60, 5, 1, 3),
            span(70, 1, 2, 4),
        ]);
        let timeline = all.timeline(9, 9);
        assert_eq!(timeline.flushes, [1, 3, 4].map(|n| Some((n, n))));
        assert_eq!(timeline.ranks, [0, 1, 2].map(|n| Some((n, n))));
        assert_eq!(timeline.bytes, [10, 0, 0, 30, 5, 0, 0, 0, 1]);
        assert_eq!((timeline.most_of_a_rank, timeline.mean_of_ranks), (35, 15));
        let coarse = all.timeline(2, 1);
        assert_eq!(coarse.flushes, [Some((1, 3)), Some((4, 4))]);
        assert_eq!(coarse.ranks, [Some((0, 2))]);
        assert_eq!(coarse.bytes, [45, 1]);
        assert_eq!((coarse.known_flushes, coarse.known_ranks), (3, 3));
        assert!(origins(&[]).timeline(5, 5).bytes.is_empty());
    }

    #[test]
    fn what_a_log_does_not_tell_is_a_class_of_its_own() {
        let unknown = Span {
            flush: None,
            ..span(0, 7, 5, 0)
        };
        let timeline = origins(&[unknown]).timeline(4, 4);
        assert_eq!((timeline.flushes, timeline.known_flushes), (vec![None], 0));
        assert_eq!(timeline.bytes, [7]);
    }
}
