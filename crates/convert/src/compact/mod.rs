//! The file of a log that has only what was written, in compressed chunks.
//!
//! ```text
//! user block | metadata | chunks of dataset 0 … n, ascending | chunk indexes of dataset 0 … n
//! ```
//!
//! Chunks that no record touches are not stored, unless they read otherwise than the fill value. Addresses follow from the order of the chunks alone, so the bytes are the
//! same whoever made the chunks, in whatever order.
//!
//! * [`metadata`]: the metadata of the file, and the filters of its datasets.
//! * [`parts`]: all there is to store, in order, cut into parts.
//! * [`making`]: the stored bytes of one part.
//! * [`placing`]: the addresses of parts, and what the file gets when all have one.
//! * [`sequence`]: parts in their order, as they are placed.
//! * [`threads`]: all of it in one process.
//! * [`ranks`]: all of it in several processes.
//! * [`left_out`]: what could not be read.
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

/// What is made into a file.
#[derive(Debug)]
pub struct Source {
    /// The elements.
    pub view: Arc<View>,
    /// All else.
    pub metadata: Metadata,
    /// Chunks that cannot be read are left out. Else they are an error.
    pub skips_damaged: bool,
}

/// How the elements of a dataset lie in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// In chunks, of which each that was written is stored.
    Chunks,
    /// In one piece, which is that of the log.
    Extent,
    /// In one piece, which is one chunk of the view.
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

    /// Bytes of a chunk before its filters.
    fn raw_len(&self, number: usize) -> u64 {
        // The view has checked that it fits.
        self.view.grid(number).elements() * self.dataset(number).element_size
    }

    /// Bytes of all chunks of a dataset before their filters, with those that are not stored.
    fn elements_len(&self, number: usize) -> u64 {
        self.raw_len(number)
            .saturating_mul(self.view.grid(number).len())
    }

    /// Bytes of all chunks of all datasets before their filters, with those that are not stored: what a progress counts.
    pub fn total(&self) -> u64 {
        let all = (0..self.metadata.datasets.len()).map(|number| self.elements_len(number));
        all.fold(0, u64::saturating_add)
    }
}
