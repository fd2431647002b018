//! The compact file of a log. It holds only written chunks, compressed.
//!
//! ```text
//! user block | metadata | chunks of dataset 0 … n, ascending | chunk indexes of dataset 0 … n
//! ```
//!
//! Chunks that no record touches are not stored, unless they differ from the fill value. Addresses depend only on the
//! order of chunks. So the file is the same for any number of processes and threads, and any order of their work.
//!
//! * [`metadata`]: the metadata of the file, and the filters of its datasets.
//! * [`parts`]: everything to store, in order, cut into parts.
//! * [`making`]: the stored bytes of one part.
//! * [`placing`]: the addresses of parts, and the data after the parts.
//! * [`sequence`]: parts in order, as they are placed.
//! * [`threads`]: compaction in one process.
//! * [`ranks`]: compaction by several processes.
//! * [`left_out`]: data that could not be read.
//! * [`verify`]: reads the file back.

pub mod left_out;
pub mod making;
pub mod metadata;
pub mod parts;
pub mod placing;
pub mod ranks;
pub mod sequence;
pub mod threads;
pub mod verify;

use std::sync::Arc;

use h5logfs_log::snapshot::{Content, Dataset, Storage};
use h5logfs_view::View;

use metadata::Metadata;

/// The input of a compaction.
#[derive(Debug)]
pub struct Source {
    /// The elements.
    pub view: Arc<View>,
    /// The metadata.
    pub metadata: Metadata,
    /// Unreadable chunks are left out. Otherwise they are an error.
    pub skips_damaged: bool,
}

/// The layout of a dataset in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Chunks. Every written chunk is stored.
    Chunks,
    /// Contiguous data, copied from the log.
    Extent,
    /// Contiguous data that is one chunk of the view.
    Scalar,
}

impl Source {
    fn dataset(&self, number: usize) -> &Dataset {
        &self.metadata.datasets[number]
    }

    fn layout(&self, number: usize) -> Layout {
        let dataset = self.dataset(number);
        match (&dataset.storage, &dataset.content) {
            (Storage::Chunked(_), _) => Layout::Chunks,
            (_, Content::Extent { .. }) => Layout::Extent,
            _ => Layout::Scalar,
        }
    }

    /// Bytes of an unfiltered chunk.
    fn raw_len(&self, number: usize) -> u64 {
        // The view has checked that the product fits.
        self.view.grid(number).elements() * self.dataset(number).element_size
    }

    /// Bytes of all chunks of a dataset before filters, including those not stored.
    fn elements_len(&self, number: usize) -> u64 {
        self.raw_len(number)
            .saturating_mul(self.view.grid(number).len())
    }

    /// Bytes of all chunks of all datasets before filters, including those not stored. Progress counts these.
    pub fn total(&self) -> u64 {
        let all = (0..self.metadata.datasets.len()).map(|number| self.elements_len(number));
        all.fold(0, u64::saturating_add)
    }
}
