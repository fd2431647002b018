//! The objects of an HDF5 file.

use std::collections::BTreeSet;

use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::{HeaderBytes, lookup3};
use h5logfs_hdf5_format::{Layout, Link, LinkTarget, Objects};

use super::Seeds;

/// Largest number of objects of a file that are examined.
const MOST_OBJECTS: usize = 64;
/// Largest number of links and attributes of an object that are looked up by name.
const MOST_NAMES: usize = 16;

/// Bytes in which each block gets a correct checksum when it is read. Without it, nearly all changes of the fuzzer
/// would end at a checksum.
struct Mended<'a>(&'a [u8]);

impl Mended<'_> {
    /// Signatures of blocks that end with their checksums.
    const SIGNATURES: [&'static [u8; 4]; 8] = [
        b"\x89HDF", b"OHDR", b"OCHK", b"BTHD", b"BTLF", b"BTIN", b"FRHP", b"FHIB",
    ];
    /// Bytes of the shortest block. Shorter reads are no whole blocks.
    const SHORTEST: usize = 14;

    /// Offset of the checksum in a direct block of a fractal heap. It follows the block's offset in the heap, whose
    /// length the header of the heap gives.
    fn checksum_in_front(&self, block: &[u8]) -> Option<usize> {
        const SIZE_AT: usize = 128;
        let (front, rest) = block.split_first_chunk::<13>()?;
        let (signature, heap) = front.split_at(5);
        let heap = u64::from_le_bytes(heap.try_into().ok()?);
        let size_at = usize::try_from(heap).ok()?.checked_add(SIZE_AT)?;
        let size = self.0.get(size_at..)?.first_chunk()?;
        let len = u16::from_le_bytes(*size).div_ceil(8).into();
        let has_room = rest.len().checked_sub(4)? >= len;
        (signature == b"FHDB\0" && has_room).then_some(front.len() + len)
    }
}

impl HeaderBytes for Mended<'_> {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.0.read(at, buf)?;
        if let Some(at) = self.checksum_in_front(buf) {
            buf[at..at + 4].fill(0);
            let sum = lookup3(buf).to_le_bytes();
            buf[at..at + 4].copy_from_slice(&sum);
        }
        let is_block = Self::SIGNATURES.iter().any(|s| buf.starts_with(*s));
        if is_block && buf.len() >= Self::SHORTEST {
            let (block, sum) = buf.split_at_mut(buf.len() - 4);
            sum.copy_from_slice(&lookup3(block).to_le_bytes());
        }
        Ok(())
    }
}

pub fn run(bytes: &[u8]) {
    walk(bytes);
    walk(Mended(bytes));
}

/// Examines the objects of a file. Returns whether all could be read.
fn walk(bytes: impl HeaderBytes) -> bool {
    let Ok(objects) = Objects::open(bytes) else {
        return false;
    };
    let mut all = true;
    let mut seen = BTreeSet::new();
    let mut next = vec![objects.root()];
    while let Some(object) = next.pop() {
        if seen.len() == MOST_OBJECTS || !seen.insert(object) {
            continue;
        }
        all &= objects.kind(object).is_ok();
        for link in links(&objects, object) {
            if let LinkTarget::Hard(address) = link.target {
                next.push(address);
            }
        }
        all &= attributes(&objects, object);
        let _ = objects.named_type(object);
        dataset(&objects, object);
    }
    all
}

/// Reads the links of an object, and checks that each link found by its name is one of them.
fn links<B: HeaderBytes>(objects: &Objects<B>, object: u64) -> Vec<Link> {
    let links = objects.links(object).unwrap_or_default();
    for link in links.iter().take(MOST_NAMES) {
        if let Ok(Some(found)) = objects.link(object, &link.name) {
            assert!(links.contains(&found), "{found:?}");
        }
        let _ = objects.find([b"/", &link.name[..]].concat());
    }
    links
}

/// Whether all attributes of an object can be read. Checks that each attribute found by its name is one of them.
fn attributes<B: HeaderBytes>(objects: &Objects<B>, object: u64) -> bool {
    let Ok(all) = objects.attributes(object) else {
        return false;
    };
    for attribute in all.iter().take(MOST_NAMES) {
        if let Ok(Some(found)) = objects.attribute(object, &attribute.name) {
            assert!(all.contains(&found), "{found:?}");
        }
        if let Ok(values) = objects.values(&attribute.datatype, &attribute.bytes) {
            assert_eq!(Some(values.len() as u64), attribute.space.elements());
        }
    }
    true
}

fn dataset<B: HeaderBytes>(objects: &Objects<B>, object: u64) {
    let Ok(dataset) = objects.dataset(object) else {
        return;
    };
    if let Some(fill) = &dataset.fill {
        let _ = objects.values(&dataset.datatype, fill);
    }
    let _ = objects.mappings(&dataset);
    match &dataset.layout {
        Layout::Compact(elements) => {
            let _ = objects.values(&dataset.datatype, elements);
        }
        Layout::Chunked { .. } => {
            let _ = objects.chunk_addresses(&dataset);
        }
        Layout::Contiguous { .. } | Layout::Virtual(_) | Layout::Other(_) => {}
    }
}

macro_rules! seed {
    ($name:literal, $path:literal) => {
        (
            $name.to_owned(),
            include_bytes!(concat!("../", $path)).to_vec(),
        )
    };
}

/// Old and new groups, attributes of all kinds, all classes of datatypes.
pub fn seeds() -> Seeds {
    let seeds = vec![
        seed!("old", "samples/objects-old.h5"),
        seed!("new", "samples/objects-new.h5"),
        seed!("links", "samples/objects-links.h5"),
        seed!("names", "../tests/corpus/names.expected.h5"),
        seed!("references", "../tests/corpus/objref.expected.h5"),
        seed!("latest", "../tests/corpus/libver_latest.expected.h5"),
    ];
    for (name, bytes) in &seeds {
        assert!(walk(&bytes[..]), "{name}");
        assert!(walk(Mended(bytes)), "{name}");
    }
    seeds
}
