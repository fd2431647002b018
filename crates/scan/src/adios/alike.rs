//! Datasets that are like one that libhdf5 has made. They get a copy of its header, and a link, without libhdf5: it takes some
//! 20 µs for each, and programs write thousands that are alike.

use std::collections::HashMap;

use super::types::is_number;
use crate::shown::ShownObjects;
use h5logfs_adios::tree::{self, Object};
use h5logfs_common::fault::Fault;
use h5logfs_log::image::{Image, NewLinks};

/// The header of a dataset with more dimensions may be in several pieces.
const MOST_DIMENSIONS: usize = 4;

/// Datasets that are made once libhdf5 has made all other objects.
#[derive(Debug, Default)]
pub(super) struct Copies {
    copies: Vec<Copy>,
    /// Addresses of groups, and of those that they are in.
    parents: HashMap<u64, u64>,
}

#[derive(Debug)]
struct Copy {
    /// Which of the datasets it is.
    dataset: usize,
    /// The address of the header that it gets.
    model: u64,
    /// The address of its group.
    group: u64,
    name: Vec<u8>,
}

impl Copies {
    /// Notes a group that is in another one.
    pub fn add_group(&mut self, group: u64, parent: u64) {
        self.parents.insert(group, parent);
    }

    /// Notes a dataset, by its number among all of them.
    pub fn add(&mut self, dataset: usize, model: u64, group: u64, name: &str) {
        self.copies.push(Copy {
            dataset,
            model,
            group,
            name: name.as_bytes().to_vec(),
        });
    }

    /// Makes the datasets.
    pub fn make(self, out: &mut ShownObjects) -> Result<(), Fault> {
        if self.copies.is_empty() {
            return Ok(());
        }
        let mut image = Image::new(std::mem::take(&mut out.image));
        let mut links = NewLinks::new();
        for copy in self.copies {
            let header = image.copy_object(copy.model)?;
            out.datasets[copy.dataset].header = header;
            links
                .entry(copy.group)
                .or_default()
                .push((copy.name, header));
        }
        image.add_links(links, &self.parents)?;
        image.set_end()?;
        out.image = image.into_bytes();
        Ok(())
    }
}

/// Whether datasets like this one may have copies of its header: all of it is in one piece, and nothing in it leads elsewhere.
pub(super) fn is_model(object: &Object, dataset: &tree::Dataset) -> bool {
    // Old groups do not tell the character set of a name.
    is_number(&dataset.ty)
        && dataset.shape.len() <= MOST_DIMENSIONS
        && !dataset.has_steps
        && object.attributes.is_empty()
        && object.path.is_ascii()
}
