//! Which views are read past the kernel's page cache.
//!
//! The kernel fills its cache page by page: a large read through it costs twice what direct I/O costs when
//! the pages are not there yet, and as much when they are. A small read is another matter, for direct I/O is a
//! round trip to the daemon each time: ten times as much as a page that is there. Which of them a
//! reader will do depends on the file (`docs/performance.md` has the figures).

use std::ops::RangeInclusive;

use crate::snapshot::{Content, Dataset, Snapshot, Storage};
use crate::view::View;

/// Chunks in bytes: libhdf5 reads them whole, up to the size of its chunk cache (1 MiB; newer ones have
/// more), and larger ones element by element. Direct I/O pays from the lower bound on.
const CHUNK: RangeInclusive<u64> = 256 << 10..=1 << 20;

/// Bytes of data for each byte of metadata. Metadata are read in small pieces; and a log of many small
/// records has chunks that take long to make, which had better be kept.
const DATA_TO_METADATA: u64 = 4096;

/// The part of the data that may be read in other ways: one in so many bytes.
const OTHER: u64 = 8;

/// Whether readers will go through the view in large pieces that cost little to make.
pub fn is_read_in_bulk(view: &View) -> bool {
    is_bulk(view.snapshot(), view.front_len() as u64)
}

fn is_bulk(snapshot: &Snapshot, front: u64) -> bool {
    let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0, u64::saturating_add);
    let all = sum(&mut snapshot.datasets.iter().map(bytes));
    let in_chunks = snapshot.datasets.iter().filter(|d| has_bulk_chunks(d));
    let bulk = sum(&mut in_chunks.map(bytes));
    let metadata = front.saturating_add(snapshot.log.layout().table_len());
    metadata.saturating_mul(DATA_TO_METADATA) <= bulk && all - bulk <= all / OTHER
}

/// Whether a dataset lies in chunks that are read whole. What has filters is inflated or encoded for each
/// reading: better kept.
fn has_bulk_chunks(dataset: &Dataset) -> bool {
    let logged = matches!(dataset.content, Content::Logged { .. });
    let fits = match &dataset.storage {
        Storage::Chunked(chunk) => CHUNK.contains(&product(chunk, dataset.element)),
        Storage::Contiguous => false,
    };
    logged && fits && dataset.filters.is_empty()
}

fn bytes(dataset: &Dataset) -> u64 {
    product(&dataset.dims, dataset.element)
}

fn product(extent: &[u64], element: u64) -> u64 {
    extent.iter().fold(element, |n, d| n.saturating_mul(*d))
}

#[cfg(test)]
mod tests {
    use crate::log::Tables;
    use crate::log::logvol::{self, Extent};
    use crate::snapshot::{DEFLATE, Filter};

    use super::*;

    const FRONT: u64 = 2048;

    /// `slabs` chunks of `chunk` doubles.
    fn dataset(slabs: u64, chunk: u64) -> Dataset {
        Dataset {
            name: "/d".into(),
            header: 0,
            datatype: "f64".into(),
            element: 8,
            dims: vec![slabs, chunk],
            max_dims: vec![Some(slabs), Some(chunk)],
            storage: Storage::Chunked(vec![1, chunk]),
            fill: Vec::new(),
            filters: Vec::new(),
            references: Vec::new(),
            content: Content::Logged {
                id: 0,
                filtered: false,
            },
        }
    }

    fn snapshot(datasets: Vec<Dataset>, table: u64) -> Snapshot {
        let table = Extent {
            source: 0,
            number: 0,
            offset: 0,
            len: table,
        };
        Snapshot {
            sources: Vec::new(),
            journal: None,
            user_block: Vec::new(),
            image: Vec::new(),
            datasets,
            log: Tables::LogVol(logvol::Tables {
                metadata: vec![table],
                ..Default::default()
            }),
            addresses: Vec::new(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn slabs_are_read_in_bulk() {
        let slabs = || vec![dataset(64, 1 << 17)];
        assert!(is_bulk(&snapshot(slabs(), 64 * 60), FRONT));
        // Many small records, or much metadata in front.
        assert!(!is_bulk(&snapshot(slabs(), 64 << 10), FRONT));
        assert!(!is_bulk(&snapshot(slabs(), 64 * 60), 64 << 10));
    }

    #[test]
    fn chunks_of_other_sizes_and_with_filters_are_not() {
        let of_chunk = |chunk| is_bulk(&snapshot(vec![dataset(1 << 12, chunk)], 100), FRONT);
        assert!(of_chunk(1 << 15));
        assert!(!of_chunk((1 << 15) - 1));
        assert!(of_chunk(1 << 17));
        assert!(!of_chunk((1 << 17) + 1));
        let mut filtered = dataset(1 << 12, 1 << 15);
        filtered.filters.push(Filter {
            id: DEFLATE,
            flags: 0,
            values: vec![6],
        });
        assert!(!is_bulk(&snapshot(vec![filtered], 100), FRONT));
    }

    #[test]
    fn a_little_beside_does_not_count() {
        let with = |slabs| {
            let mut beside = dataset(slabs, 1 << 17);
            beside.storage = Storage::Contiguous;
            is_bulk(&snapshot(vec![dataset(64, 1 << 17), beside], 100), FRONT)
        };
        assert!(with(1));
        assert!(!with(64));
    }

    #[test]
    fn sizes_without_sense_do_no_harm() {
        let mut huge = dataset(u64::MAX, u64::MAX);
        assert!(!is_bulk(&snapshot(vec![huge.clone()], u64::MAX), u64::MAX));
        huge.dims = Vec::new();
        assert!(!is_bulk(&snapshot(vec![huge], 0), 0));
    }
}
