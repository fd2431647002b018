//! The metadata of the file: an image made by libhdf5. The addresses of the elements are set later.

use h5logfs_hdf5_format::Image;
use h5logfs_log::snapshot::{Dataset, Snapshot};
use h5logfs_view::View;

use crate::error::Result;
use h5logfs_common::fault::Fault;

/// The metadata of a file.
#[derive(Debug)]
pub struct Metadata {
    /// The image from libhdf5. Addresses count from its first byte.
    pub image: Vec<u8>,
    /// The datasets whose elements are outside of the image.
    pub datasets: Vec<Dataset>,
    /// For each dataset, whether all chunks must be stored. This is so if unwritten elements of the view differ from
    /// the image's fill value.
    pub(super) is_whole: Vec<bool>,
}

impl Metadata {
    fn new(image: Vec<u8>, datasets: Vec<Dataset>) -> Result<Self> {
        let headers = Image::new(image);
        let is_whole = |dataset: &Dataset| match dataset.logged() {
            None => Ok(false),
            Some(_) => Ok(!same_fill(
                &headers.fill_value(dataset.header)?,
                &dataset.fill,
            )),
        };
        let is_whole = datasets.iter().map(is_whole);
        let is_whole = is_whole.collect::<Result<_, Fault>>()?;
        Ok(Metadata {
            image: headers.into_bytes(),
            datasets,
            is_whole,
        })
    }
}

/// Whether two fill values are equal. An empty one stands for zeros.
fn same_fill(one: &[u8], other: &[u8]) -> bool {
    let is_zero = |value: &[u8]| value.iter().all(|byte| *byte == 0);
    one == other || is_zero(one) && is_zero(other)
}

impl Metadata {
    /// The metadata of the view itself.
    pub fn of_view(view: &View) -> Result<Self> {
        let snapshot = view.snapshot();
        let len = view.preamble_len() - snapshot.user_block;
        let mut image = vec![0; len as usize];
        view.read_at(snapshot.user_block, &mut image)?;
        Metadata::new(image, snapshot.datasets.clone())
    }

    /// The metadata of a second scan of the same log, in which datasets have other filters. Afterwards a view of
    /// `first` has the elements of the file: its references lead to the objects of the second scan. Fails where the
    /// log has changed between the scans.
    pub fn of_scan(first: &mut Snapshot, other: Snapshot) -> Result<Self> {
        let files = |addresses: &[(u64, u64)]| -> Vec<u64> {
            addresses.iter().map(|(in_file, _)| *in_file).collect()
        };
        let like = |dataset: &Dataset, other: &Dataset| Dataset {
            filters: other.filters.clone(),
            header: other.header,
            ..dataset.clone()
        };
        let mut pairs = other.datasets.iter().zip(&first.datasets);
        let is_same = other.sources == first.sources
            && other.journal == first.journal
            && other.user_block == first.user_block
            && files(&other.addresses) == files(&first.addresses)
            && other.datasets.len() == first.datasets.len()
            && pairs.all(|(new, old)| like(new, old) == *old);
        if !is_same {
            return Err("the log has changed while it was read".to_owned().into());
        }
        first.addresses = other.addresses;
        Metadata::new(other.image, other.datasets)
    }
}
