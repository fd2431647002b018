//! The image of the file metadata, which stands behind the user block of the canonical file. libhdf5 made it without
//! knowing where the datasets will lie; their addresses are filled in here.

use super::map::AddressMap;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::Image;
use h5logfs_log::snapshot::{Snapshot, Storage};

/// The completed image. Fails with a reason where the image has no place for an address.
pub fn complete(image: Vec<u8>, snapshot: &Snapshot, map: &AddressMap) -> Result<Vec<u8>, Fault> {
    let mut image = Image::new(image);
    for (dataset, place) in snapshot.datasets.iter().zip(&map.datasets) {
        if let Some(address) = place.layout_address() {
            let chunked = matches!(dataset.storage, Storage::Chunked(_));
            image
                .set_layout_address(dataset.header, address, chunked)
                .map_err(|e| e.at(format_args!("dataset {}", dataset.name)))?;
        }
    }
    image.set_superblock(snapshot.user_block, map.len())?;
    Ok(image.into_bytes())
}
