//! Datasets that are like one that libhdf5 has made. Each gets a copy of its header and a link, without libhdf5. A call
//! of libhdf5 takes some 20 µs for each dataset, and programs write thousands of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::types::is_number;
use crate::hdf5_sys::ObjectInfo;
use crate::shown::ShownObjects;
use h5logfs_adios::tree::{self, Object};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::{Image, NewLinks};

/// The largest rank of such a dataset. With more dimensions, the header may be in several pieces.
const MOST_DIMENSIONS: usize = 4;

/// Approximate bytes of a link in the tables of a group, with a short name.
const LINK: usize = 64;

/// Datasets to be made after libhdf5 has made all other objects.
#[derive(Debug, Default)]
pub(super) struct Copies<'a> {
    copies: Vec<Copy<'a>>,
    /// The parent of each group, by address.
    parents: HashMap<u64, u64>,
}

#[derive(Debug)]
struct Copy<'a> {
    /// The number of the dataset.
    dataset: usize,
    /// The address of the header that is copied.
    model: u64,
    /// The address of the group.
    group: u64,
    name: &'a str,
}

impl<'a> Copies<'a> {
    /// Records the parent of a group.
    pub fn add_group(&mut self, group: u64, parent: u64) {
        self.parents.insert(group, parent);
    }

    /// Records a dataset by its number.
    pub fn add(&mut self, dataset: usize, model: u64, group: u64, name: &'a str) {
        self.copies.push(Copy {
            dataset,
            model,
            group,
            name,
        });
    }

    /// Makes the datasets.
    pub fn make(self, out: &mut ShownObjects) -> Result<(), Fault> {
        if self.copies.is_empty() {
            return Ok(());
        }
        let mut image = Image::new(std::mem::take(&mut out.image));
        let mut links = NewLinks::new();
        let mut models = HashMap::new();
        let mut left = self.copies.len();
        for copy in self.copies {
            let model = match models.entry(copy.model) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let model = image.object(copy.model)?;
                    // Most headers are copies of the first one.
                    image.reserve(left.saturating_mul(model.len() + LINK));
                    new.insert(model)
                }
            };
            left -= 1;
            let header = image.append(model);
            out.datasets[copy.dataset].header = header;
            let links: &mut Vec<_> = links.entry(copy.group).or_default();
            links.push((copy.name.as_bytes(), header));
        }
        image.add_links(links, &self.parents)?;
        image.set_end()?;
        out.image = image.into_bytes();
        Ok(())
    }
}

/// Whether other datasets may have copies of the header of this one, if that header is in one piece. Nothing in it may
/// lead elsewhere.
pub(super) fn is_model(object: &Object, dataset: &tree::Dataset) -> bool {
    // Old groups do not record the character set of a name.
    is_number(&dataset.ty)
        && dataset.shape.len() <= MOST_DIMENSIONS
        && !dataset.has_steps
        && object.attributes.is_empty()
        && object.path.is_ascii()
}

/// Whether an object header is in one piece and of version 1, and so can be copied.
pub(super) fn is_in_one_piece(object: &ObjectInfo) -> bool {
    object.version == 1 && object.pieces == 1
}
