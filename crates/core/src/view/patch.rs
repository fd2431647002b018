//! Completing the image: libhdf5 made it without knowing where anything will lie.

use super::map::AddressMap;
use crate::image::Image;
use crate::snapshot::{Snapshot, Storage};

type Result<T> = std::result::Result<T, String>;

/// The front of the canonical file: user block and completed image.
pub fn front(image: Vec<u8>, snapshot: &Snapshot, map: &AddressMap) -> Result<Vec<u8>> {
    let mut image = Image::new(image);
    for (dataset, place) in snapshot.datasets.iter().zip(&map.datasets) {
        if let Some(address) = place.index_address() {
            let chunked = matches!(dataset.storage, Storage::Chunked(_));
            image
                .set_layout_address(dataset.header, address, chunked)
                .map_err(|e| format!("dataset {}: {e}", dataset.name))?;
        }
    }
    let user_block = snapshot.user_block.len() as u64;
    image.set_superblock(user_block, map.len())?;
    let image = image.into_bytes();
    match user_block {
        0 => Ok(image),
        _ => Ok([snapshot.user_block.clone(), image].concat()),
    }
}
