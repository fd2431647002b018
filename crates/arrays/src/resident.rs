//! Elements that lie in the metadata of a canonical file: those of datasets that the scan has copied, as it does with small ones
//! and with those of variable length.

use super::boxes::{Place, copy_box};
use super::selection::bytes_of;
use h5logfs_common::buffers::zeroed;
use h5logfs_common::fault::Fault;
use h5logfs_log::filters;
use h5logfs_log::image::HeaderBytes;
use h5logfs_objects::{DatasetInfo, Layout, Objects};

type Result<T> = std::result::Result<T, Fault>;

/// All elements of a dataset of these dimensions, at most `most` bytes.
pub(crate) fn elements(
    objects: &Objects<impl HeaderBytes>,
    dataset: &DatasetInfo,
    dims: &[u64],
    most: u64,
) -> Result<Vec<u8>> {
    let element = u64::from(dataset.datatype.size);
    let bytes = bytes_of(dims, element).filter(|bytes| *bytes <= most);
    let bytes = bytes.ok_or("its elements are more than cache_size allows")?;
    let mut all = zeroed(usize::try_from(bytes)?)?;
    if let Some(fill) = dataset
        .fill
        .as_ref()
        .filter(|fill| fill.len() as u64 == element)
    {
        all.chunks_exact_mut(fill.len())
            .for_each(|to| to.copy_from_slice(fill));
    }
    if all.is_empty() {
        return Ok(all);
    }
    match &dataset.layout {
        Layout::Compact(found) => copy(found, &mut all),
        Layout::Contiguous { address: None, .. } => Ok(()),
        Layout::Contiguous {
            address: Some(address),
            len,
        } => {
            let there = usize::try_from(*len)?.min(all.len());
            objects.bytes().read(*address, &mut all[..there])
        }
        Layout::Chunked { chunk, .. } => put_chunks(objects, dataset, dims, chunk, most, &mut all),
        Layout::Other(reason) => Err(reason.as_str().into()),
    }?;
    Ok(all)
}

fn copy(from: &[u8], to: &mut [u8]) -> Result<()> {
    let len = from.len().min(to.len());
    to[..len].copy_from_slice(&from[..len]);
    Ok(())
}

fn put_chunks(
    objects: &Objects<impl HeaderBytes>,
    dataset: &DatasetInfo,
    dims: &[u64],
    chunk: &[u64],
    most: u64,
    all: &mut [u8],
) -> Result<()> {
    let element = u64::from(dataset.datatype.size);
    let raw = bytes_of(chunk, element).filter(|raw| *raw <= most && chunk.len() == dims.len());
    let raw = raw.ok_or("its chunks are larger than cache_size allows")?;
    for found in objects.chunk_addresses(dataset)? {
        if found.size > objects.bytes().size() {
            return Err("a chunk that is larger than its file".into());
        }
        let mut stored = zeroed(usize::try_from(found.size)?)?;
        objects.bytes().read(found.address, &mut stored)?;
        let applied = (0u32..)
            .zip(&dataset.filters)
            .filter(|(bit, _)| found.filter_mask >> bit & 1 == 0);
        let applied: Vec<_> = applied.map(|(_, filter)| filter.clone()).collect();
        let elements = filters::decode(&stored, raw, &applied)?;
        put_chunk(&elements, &found.offset, chunk, dims, element as usize, all)?;
    }
    Ok(())
}

/// Copies the elements of a chunk that belong to the dataset.
fn put_chunk(
    from: &[u8],
    offset: &[u64],
    chunk: &[u64],
    dims: &[u64],
    element: usize,
    all: &mut [u8],
) -> Result<()> {
    if offset.len() != dims.len() || offset.iter().zip(dims).any(|(at, side)| at >= side) {
        return Err("a chunk outside its dataset".into());
    }
    let count: Vec<u64> = (0..dims.len())
        .map(|d| chunk[d].min(dims[d] - offset[d]))
        .collect();
    let own = Place {
        sides: chunk,
        start: &vec![0; chunk.len()],
    };
    let target = Place {
        sides: dims,
        start: offset,
    };
    copy_box(&count, element, (from, own), (all, target));
    Ok(())
}
