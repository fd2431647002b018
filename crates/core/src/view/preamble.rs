//! The start of the canonical file: the user block, and the image of the file metadata. libhdf5 made the image
//! without knowing where the datasets will lie; their addresses are filled in here.

use super::map::AddressMap;
use crate::image::Image;
use crate::snapshot::{Snapshot, Storage};

/// The user block and the completed image. Fails with a reason where the image has no place for an address.
pub fn complete(image: Vec<u8>, snapshot: &Snapshot, map: &AddressMap) -> Result<Vec<u8>, String> {
    let mut image = Image::new(image);
    for (dataset, place) in snapshot.datasets.iter().zip(&map.datasets) {
        if let Some(address) = place.layout_address() {
            let chunked = matches!(dataset.storage, Storage::Chunked(_));
            image
                .set_layout_address(dataset.header, address, chunked)
                .map_err(|e| format!("dataset {}: {e}", dataset.name))?;
        }
    }
    let user_block = &snapshot.user_block;
    image.set_superblock(user_block.len() as u64, map.len())?;
    let image = image.into_bytes();
    if user_block.is_empty() {
        return Ok(image);
    }
    Ok([user_block.as_slice(), &image].concat())
}
