//! Dataspaces, selections, and region references.

use std::collections::HashMap;

use super::*;

/// The extent of a dataspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Space {
    Null,
    /// A scalar has no dimensions. `max` is [`UNLIMITED`] for unlimited dimensions.
    Simple {
        dims: Vec<u64>,
        max: Vec<u64>,
    },
}

impl Space {
    pub fn scalar() -> Self {
        Space::fixed(&[])
    }

    /// Whether the space has no elements.
    pub fn is_empty(&self) -> bool {
        match self {
            Space::Null => true,
            Space::Simple { dims, .. } => dims.contains(&0),
        }
    }

    /// A space with a fixed extent.
    pub fn fixed(dims: &[u64]) -> Self {
        Space::Simple {
            dims: dims.to_vec(),
            max: dims.to_vec(),
        }
    }

    /// A space with limits; `None` is unlimited.
    pub fn with_limits(dims: &[u64], max_dims: &[Option<u64>]) -> Self {
        let max = max_dims.iter().map(|m| m.unwrap_or(UNLIMITED));
        Space::Simple {
            dims: dims.to_vec(),
            max: max.collect(),
        }
    }

    pub fn of(id: &Id) -> Result<Self> {
        let class = raw!(H5Sget_simple_extent_type(id.0));
        if class == H5S_class_t::H5S_NULL {
            return Ok(Space::Null);
        }
        let rank = h5!(H5Sget_simple_extent_ndims(id.0))? as usize;
        let (mut dims, mut max) = (vec![0; rank], vec![0; rank]);
        h5!(H5Sget_simple_extent_dims(
            id.0,
            dims.as_mut_ptr(),
            max.as_mut_ptr()
        ))?;
        Ok(Space::Simple { dims, max })
    }

    /// The number of dimensions; `None` for a null dataspace.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Space::Null => None,
            Space::Simple { dims, .. } => Some(dims.len()),
        }
    }

    /// The number of elements; `None` if it exceeds 64 bits.
    pub fn elements(&self) -> Option<u64> {
        match self {
            Space::Null => Some(0),
            Space::Simple { dims, .. } => dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d)),
        }
    }

    pub fn create(&self) -> Result<Id> {
        match self {
            Space::Null => Id::new(h5!(H5Screate(H5S_class_t::H5S_NULL))),
            Space::Simple { dims, .. } if dims.is_empty() => {
                Id::new(h5!(H5Screate(H5S_class_t::H5S_SCALAR)))
            }
            Space::Simple { dims, max } => {
                let rank = dims.len() as c_int;
                Id::new(h5!(H5Screate_simple(rank, dims.as_ptr(), max.as_ptr())))
            }
        }
    }
}

/// Selects a block. With `add`, the elements selected before stay selected.
pub fn select_block(space: &Id, start: &[u64], count: &[u64], add: bool) -> Result<()> {
    let how = if add {
        H5S_seloper_t::H5S_SELECT_OR
    } else {
        H5S_seloper_t::H5S_SELECT_SET
    };
    h5!(H5Sselect_hyperslab(
        space.0,
        how,
        start.as_ptr(),
        ptr::null(),
        count.as_ptr(),
        ptr::null()
    ))
    .map(drop)
}

/// Selects a hyperslab.
pub fn select_regular(space: &Id, [start, stride, count, block]: [&[u64]; 4]) -> Result<()> {
    h5!(H5Sselect_hyperslab(
        space.0,
        H5S_seloper_t::H5S_SELECT_SET,
        start.as_ptr(),
        stride.as_ptr(),
        count.as_ptr(),
        block.as_ptr()
    ))
    .map(drop)
}

/// Selects points. `coordinates` lists the coordinates of the first point, then those of the second, and so on.
pub fn select_points(space: &Id, number: usize, coordinates: &[u64]) -> Result<()> {
    h5!(H5Sselect_elements(
        space.0,
        H5S_seloper_t::H5S_SELECT_SET,
        number,
        coordinates.as_ptr()
    ))
    .map(drop)
}

pub fn select_none(space: &Id) -> Result<()> {
    h5!(H5Sselect_none(space.0)).map(drop)
}

/// A reference to the selected elements of a dataset.
pub fn create_region_reference(dataset: &Id, space: &Id) -> Result<[u8; 12]> {
    // SAFETY: 1 is the number of region references of 12 bytes. All versions have this variant, under two names.
    let kind = unsafe { std::mem::transmute::<c_int, H5R_type_t>(1) };
    let mut reference = [0u8; 12];
    h5!(H5Rcreate(
        reference.as_mut_ptr().cast(),
        dataset.0,
        c".".as_ptr(),
        kind,
        space.0
    ))?;
    Ok(reference)
}

/// The dataspaces of attributes. Thousands of attributes share a few.
pub struct AttributeSpaces {
    /// A space of one element.
    pub scalar: Id,
    /// One-dimensional spaces, by extent.
    lists: HashMap<u64, Id>,
}

impl AttributeSpaces {
    pub fn new() -> Result<Self> {
        Ok(AttributeSpaces {
            scalar: Space::scalar().create()?,
            lists: HashMap::new(),
        })
    }

    /// The one-dimensional space of `len` elements.
    pub fn list(&mut self, len: u64) -> Result<Id> {
        if let Some(known) = self.lists.get(&len) {
            return Ok(known.clone());
        }
        let new = Space::fixed(&[len]).create()?;
        self.lists.insert(len, new.clone());
        Ok(new)
    }
}
