//! Writes dimension scales and labels, once all objects are there: they refer to each other by address.

use std::collections::HashMap;

use super::objects::stored_path;
use crate::hdf5_sys::{self as h5, Id, Name, Space};
use crate::scales::{ScaleAttributes, ScaleUse};
use h5logfs_common::fault::Fault;
use h5logfs_log::journal::definition::Defined;
use h5logfs_log::journal::scales::Scales;

type Result<T> = std::result::Result<T, Fault>;

/// The most uses of a scale whose list is not a large attribute. A use takes 16 bytes.
const MOST_USES: usize = 3900;

/// One use of a scale: by a dimension of a dataset.
struct Use {
    /// ID of the dataset.
    dataset: usize,
    dimension: u32,
}

/// The uses of each scale, by the ID of the scale.
pub(super) struct Uses(HashMap<usize, Vec<Use>>);

impl Uses {
    pub fn of(datasets: &[Defined]) -> Self {
        let mut uses: HashMap<usize, Vec<Use>> = HashMap::new();
        for (dataset, defined) in datasets.iter().enumerate() {
            for (dimension, scales) in (0u32..).zip(&defined.scales.attached) {
                for scale in scales {
                    let of = uses.entry(*scale as usize).or_default();
                    of.push(Use { dataset, dimension });
                }
            }
        }
        Uses(uses)
    }

    /// Whether a scale has so many uses that the list of them is a large attribute.
    pub fn are_many(&self, scale: usize) -> bool {
        self.0
            .get(&scale)
            .is_some_and(|uses| uses.len() > MOST_USES)
    }
}

/// Writes the scales and labels of all datasets, which are in the order of their IDs.
pub(super) fn write(root: &Id, datasets: &[Defined], uses: &Uses) -> Result<()> {
    let mut writer = ScaleWriter {
        root,
        datasets,
        uses,
        attributes: ScaleAttributes::new()?,
        addresses: HashMap::new(),
    };
    for (id, defined) in datasets.iter().enumerate() {
        let written = writer.dataset(id, defined);
        written.map_err(|e| e.at(format_args!("dimension scales of dataset {}", defined.path)))?;
    }
    Ok(())
}

struct ScaleWriter<'a> {
    root: &'a Id,
    datasets: &'a [Defined],
    uses: &'a Uses,
    attributes: ScaleAttributes,
    /// Of the datasets that others refer to, by their IDs.
    addresses: HashMap<usize, u64>,
}

impl ScaleWriter<'_> {
    fn dataset(&mut self, id: usize, defined: &Defined) -> Result<()> {
        let Scales {
            name,
            attached,
            labels,
        } = &defined.scales;
        if name.is_none() && attached.is_empty() && labels.is_empty() {
            return Ok(());
        }
        let object = self.open(id)?;
        if let Some(name) = name {
            self.attributes.make_scale(&object, name.as_bytes())?;
        }
        if let Some(uses) = self.uses.0.get(&id) {
            let uses = uses.iter().map(|used| self.use_of_scale(used));
            let uses = uses.collect::<Result<Vec<_>>>()?;
            self.attributes.reference_list(&object, &uses)?;
        }
        if !attached.is_empty() {
            let addresses = |of: &Vec<u32>| of.iter().map(|s| self.address(*s as usize)).collect();
            let scales = attached.iter().map(addresses);
            let scales = scales.collect::<Result<Vec<Vec<u64>>>>()?;
            self.attributes.dimension_list(&object, &scales)?;
        }
        if !labels.is_empty() {
            let text = |label: &String| h5::c_name(label.as_bytes());
            let texts = labels.iter().map(text).collect::<Result<Vec<_>>>()?;
            let space = Space::fixed(&[texts.len() as u64]).create()?;
            h5::write_texts(&object, Name::ascii("DIMENSION_LABELS"), &space, &texts)?;
        }
        Ok(())
    }

    fn use_of_scale(&mut self, used: &Use) -> Result<ScaleUse> {
        Ok(ScaleUse {
            dataset: self.address(used.dataset)?,
            dimension: used.dimension,
        })
    }

    fn address(&mut self, id: usize) -> Result<u64> {
        if let Some(known) = self.addresses.get(&id) {
            return Ok(*known);
        }
        let address = h5::address(&self.open(id)?)?;
        self.addresses.insert(id, address);
        Ok(address)
    }

    fn open(&self, id: usize) -> Result<Id> {
        let path = stored_path(&self.datasets[id].path);
        h5::open_path(self.root, &h5::c_name(path.as_bytes())?)
    }
}
