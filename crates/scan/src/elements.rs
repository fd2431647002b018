//! Copies the elements of datasets that are not logged, as far as they were written.
//!
//! Chunks are copied as their filters left them. So the copy needs no filter, and chunks that were never written stay
//! missing. References and elements of variable length lead to other objects of their file. libhdf5 has to read and
//! write these. It reads only elements of chunks that exist.

use super::original::{Object, Original};
use super::references::Translator;
use crate::hdf5_sys::{self as h5, Id, Shape, Space, StorageClass, Values};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::{Chunk, DatasetInfo, Objects};
use h5logfs_hdf5_format::{HeaderBytes, read_vec};
use h5logfs_log::boxes::Bounds;

type Result<T> = std::result::Result<T, Fault>;

/// Bytes that are read together, unless chunks decide.
const STEP: u64 = 8 << 20;

/// The stored elements of a dataset in a file.
pub struct Elements<'a> {
    dataset: &'a Id,
    bytes: &'a dyn HeaderBytes,
    datatype: Id,
    /// Bytes of an element in memory.
    element: u64,
    dims: Vec<u64>,
    /// The elements lead to other objects of the file.
    leads_on: bool,
    pub has_references: bool,
    storage: Storage<'a>,
}

/// The storage of elements in a file.
enum Storage<'a> {
    /// All elements in one piece.
    Whole,
    Chunked {
        sides: Vec<u64>,
        filters: usize,
        index: Index<'a>,
    },
}

/// The source of the list of chunks.
enum Index<'a> {
    /// The chunk index, read by this crate. libhdf5 1.10 takes quadratic time to list all chunks.
    Own(Box<(Objects<&'a dyn HeaderBytes>, DatasetInfo)>),
    /// libhdf5. It can also read the index of a dataset that shares messages with others.
    Library,
}

impl<'a> Elements<'a> {
    /// The elements of a dataset that has storage.
    pub fn of(original: Original<'a>, old: &'a Object) -> Result<Self> {
        let datatype = h5::dataset_type(&old.id)?;
        let shape = Shape::of(&datatype)?;
        let dims = match h5::dataset_space(&old.id)? {
            Space::Null => vec![0],
            Space::Simple { dims, .. } => dims,
        };
        let creation = h5::dataset_creation(&old.id)?;
        let storage = if h5::storage_class(&creation)? == StorageClass::Chunked {
            let own = || {
                let objects = Objects::open(original.bytes)?;
                let info = objects.dataset(old.info.address)?;
                Ok((objects, info))
            };
            Storage::Chunked {
                sides: h5::chunk_shape(&creation)?,
                filters: h5::filters(&creation)?.len(),
                index: match own() {
                    Ok(own) => Index::Own(Box::new(own)),
                    Err(Fault::Damage(_)) => Index::Library,
                    Err(fault) => return Err(fault),
                },
            }
        } else {
            Storage::Whole
        };
        Ok(Elements {
            dataset: &old.id,
            bytes: original.bytes,
            element: h5::type_size(&datatype)? as u64,
            datatype,
            dims,
            leads_on: shape.has_pointers() || shape.has_references(),
            has_references: shape.has_references(),
            storage,
        })
    }

    /// The bytes that a copy of the elements takes, if they are at most `most`, or else any larger number. Fails if the
    /// elements cannot be read.
    pub fn size(&self, most: u64) -> Result<u64> {
        /// The error that stops the walk early. Nobody looks at it.
        const ENOUGH: &str = "";
        let mut size = 0u64;
        let mut add = |bytes: u64| {
            size = size.saturating_add(bytes);
            if size > most {
                return Err(Fault::from(ENOUGH));
            }
            Ok(())
        };
        let walked = match &self.storage {
            Storage::Chunked { sides, .. } if !self.leads_on => {
                self.each_chunk(sides, &mut |chunk| {
                    let end = chunk.address.checked_add(chunk.size);
                    end.filter(|end| *end <= self.bytes.size())
                        .ok_or("a chunk past the end of the file")?;
                    add(chunk.size)
                })
            }
            _ => self.each_part(&mut |part| {
                add(self.bytes_of(&part.count().collect::<Vec<_>>()))?;
                add(self.read(part)?.0.bytes_elsewhere())
            }),
        };
        if size <= most {
            walked?;
        }
        Ok(size)
    }

    /// Writes the elements to a dataset that was made like the original. `translator` translates references.
    pub fn copy_to(&self, new: &Id, mut translator: Option<&mut Translator<'_>>) -> Result<()> {
        if let (Storage::Chunked { sides, filters, .. }, false) = (&self.storage, self.leads_on) {
            return self.each_chunk(sides, &mut |chunk| {
                let stored = read_vec(self.bytes, chunk.address, chunk.size)?;
                if *filters == 0 && chunk.size != self.bytes_of(sides) {
                    return Err(format!("{} bytes of a chunk without filters", chunk.size).into());
                }
                h5::write_chunk(new, &chunk.offset, chunk.filter_mask, &stored)
            });
        }
        self.each_part(&mut |part| {
            let (mut values, memory, file) = self.read(part)?;
            if let Some(translator) = translator.as_deref_mut() {
                values.change_references(&mut |r| translator.translate(r))?;
            }
            h5::write_elements(new, &values, &memory, &file)
        })
    }

    fn bytes_of(&self, count: &[u64]) -> u64 {
        let count = count.iter();
        count.fold(self.element, |n, side| n.saturating_mul(*side))
    }

    /// The elements of a part, with their dataspaces in memory and in the file.
    fn read(&self, part: &Bounds) -> Result<(Values, Id, Id)> {
        let count: Vec<u64> = part.count().collect();
        let file = h5::dataset_space(self.dataset)?.create()?;
        if !count.is_empty() {
            h5::select_block(&file, &part.start, &count, false)?;
        }
        let memory = Space::fixed(&count).create()?;
        let mut values = Values::zeros(self.datatype.clone(), memory.clone())?;
        h5::read_elements(self.dataset, &mut values, &memory, &file)?;
        Ok((values, memory, file))
    }

    /// Calls `see` with boxes that cover all elements that exist. Filtered chunks are each read only once.
    fn each_part(&self, see: &mut dyn FnMut(&Bounds) -> Result<()>) -> Result<()> {
        if self.dims.contains(&0) {
            return Ok(());
        }
        let step = (STEP / self.element).max(1);
        let whole = Bounds {
            start: vec![0; self.dims.len()],
            end: self.dims.clone(),
        };
        match &self.storage {
            Storage::Whole => pieces(whole, step, see),
            Storage::Chunked { sides, filters, .. } => self.each_chunk(sides, &mut |chunk| {
                let ends = chunk.offset.iter().zip(sides);
                let chunk = Bounds {
                    end: ends.map(|(at, side)| at.saturating_add(*side)).collect(),
                    start: chunk.offset,
                };
                match chunk.intersection(&whole) {
                    Some(part) if *filters > 0 => see(&part),
                    Some(part) => pieces(part, step, see),
                    None => Ok(()),
                }
            }),
        }
    }

    /// Calls `see` with each chunk that exists.
    fn each_chunk(&self, sides: &[u64], see: &mut dyn FnMut(Chunk) -> Result<()>) -> Result<()> {
        let mut checked = |chunk: Chunk| {
            let is_in_extent = chunk.offset.len() == self.dims.len()
                && (chunk.offset.iter().zip(sides).zip(&self.dims))
                    .all(|((at, side), all)| at < all && at % side == 0);
            if is_in_extent {
                see(chunk)
            } else {
                Err(format!("a chunk at {:?}, not in the chunk grid", chunk.offset).into())
            }
        };
        match &self.storage {
            Storage::Whole => Ok(()),
            Storage::Chunked {
                index: Index::Own(own),
                ..
            } => own.0.each_chunk(&own.1, checked),
            Storage::Chunked {
                index: Index::Library,
                ..
            } => h5::each_chunk(
                self.dataset,
                self.dims.len(),
                |offset, filter_mask, address, size| {
                    checked(Chunk {
                        offset,
                        address,
                        size,
                        filter_mask,
                    })
                },
            ),
        }
    }
}

/// Calls `see` with pieces of a box, each of at most `most` elements.
fn pieces(part: Bounds, most: u64, see: &mut dyn FnMut(&Bounds) -> Result<()>) -> Result<()> {
    let count: Vec<u64> = part.count().collect();
    let elements = |sides: &[u64]| sides.iter().fold(1u64, |n, side| n.saturating_mul(*side));
    if elements(&count) <= most {
        return see(&part);
    }
    let Some(cut) = count.iter().position(|side| *side > 1) else {
        return see(&part);
    };
    let step = (most / elements(&count[cut + 1..])).max(1);
    let (mut at, end) = (part.start[cut], part.end[cut]);
    while at < end {
        let mut piece = part.clone();
        piece.start[cut] = at;
        at = at.saturating_add(step).min(end);
        piece.end[cut] = at;
        pieces(piece, most, see)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_small_and_have_all_elements() {
        let part = Bounds {
            start: vec![5, 1, 2],
            end: vec![8, 11, 9],
        };
        for most in [1, 3, 7, 20, 70, 100, 210, 1000] {
            let mut seen = vec![0; 8 * 11 * 9];
            pieces(part.clone(), most, &mut |piece| {
                assert!(piece.count().product::<u64>() <= most);
                for z in piece.start[0]..piece.end[0] {
                    for y in piece.start[1]..piece.end[1] {
                        for x in piece.start[2]..piece.end[2] {
                            seen[((z * 11 + y) * 9 + x) as usize] += 1;
                        }
                    }
                }
                Ok(())
            })
            .unwrap();
            let is_in = |at: usize| at >= 5 * 99 && at % 99 >= 9 && at % 9 >= 2;
            assert!(
                (0..seen.len()).all(|at| seen[at] == i32::from(is_in(at))),
                "{most}"
            );
        }
        let scalar = Bounds {
            start: vec![],
            end: vec![],
        };
        let mut shown = 0;
        pieces(scalar, 1, &mut |_| {
            shown += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(shown, 1);
    }
}
