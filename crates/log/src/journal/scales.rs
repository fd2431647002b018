//! Dimension scales of datasets, and labels of dimensions (HDF5 Dimension Scale Specification 1.0).

use std::collections::HashSet;

use super::definition::{Defined, Outline};
use super::limits::LONGEST_NAME;
use super::words::dimensions;
use h5logfs_common::fault::Fault;

type Result<T> = std::result::Result<T, Fault>;

/// The most scales of one dimension. netCDF uses one.
const MOST_SCALES: usize = 1024;

/// The dimension scales and labels of a dataset.
#[derive(Debug, Clone, Default)]
pub struct Scales {
    /// Name of the scale, if the dataset is a dimension scale. It may be empty.
    pub name: Option<String>,
    /// IDs of the scales of each dimension; empty if no dimension has one.
    pub attached: Vec<Vec<u32>>,
    /// Label of each dimension; empty if no dimension has one.
    pub labels: Vec<String>,
}

impl Outline {
    /// Makes a dataset a dimension scale.
    pub(super) fn make_scale(&mut self, dataset: u32, name: &str) -> Result<()> {
        let Defined {
            path,
            scales,
            layout,
            ..
        } = self.dataset(dataset)?;
        let fault =
            |what: &str| Err(format!("dataset {path} cannot be a dimension scale: {what}").into());
        let rank = layout.dims.len();
        if rank != 1 {
            return fault(&format!("it has {}, and a scale has one", dimensions(rank)));
        }
        if scales.name.is_some() {
            return fault("it is one already");
        }
        if !scales.attached.is_empty() {
            return fault("its dimension has a scale, and a scale cannot have scales");
        }
        check_text(name).or_else(|e| fault(&format!("its name {e}")))?;
        let mut attributes = vec!["CLASS", "REFERENCE_LIST"];
        attributes.extend((!name.is_empty()).then_some("NAME"));
        self.reserve(dataset, &attributes)?;
        self.datasets[dataset as usize].scales.name = Some(name.to_owned());
        Ok(())
    }

    /// Attaches a scale to a dimension of a dataset.
    pub(super) fn attach_scale(&mut self, dataset: u32, dimension: u32, scale: u32) -> Result<()> {
        let dimension = self.dimension(dataset, dimension)?;
        let Defined { path, scales, .. } = self.dataset(dataset)?;
        let scale_path = &self.dataset(scale)?.path;
        let fault = |what: &str| {
            Err(format!(
                "dimension {dimension} of dataset {path} cannot have the scale {scale_path}: {what}"
            )
            .into())
        };
        if self.dataset(scale)?.scales.name.is_none() {
            return fault("that dataset is not a dimension scale; make it one first");
        }
        if scales.name.is_some() {
            return fault("the dataset is a scale itself, and a scale cannot have scales");
        }
        let attached = scales.attached.get(dimension);
        let attached = attached.map(Vec::as_slice).unwrap_or_default();
        if attached.contains(&scale) {
            return fault("it has that scale already");
        }
        if attached.len() == MOST_SCALES {
            return fault(&format!("it has {MOST_SCALES} scales already"));
        }
        if scales.attached.is_empty() {
            self.reserve(dataset, &["DIMENSION_LIST"])?;
        }
        let Defined { scales, layout, .. } = &mut self.datasets[dataset as usize];
        scales.attached.resize(layout.dims.len(), Vec::new());
        scales.attached[dimension].push(scale);
        Ok(())
    }

    /// Labels a dimension of a dataset.
    pub(super) fn set_label(&mut self, dataset: u32, dimension: u32, label: &str) -> Result<()> {
        let dimension = self.dimension(dataset, dimension)?;
        let Defined { path, scales, .. } = self.dataset(dataset)?;
        let fault = |what: &str| {
            Err(format!("label of dimension {dimension} of dataset {path}: {what}").into())
        };
        if label.is_empty() {
            return fault("it is empty");
        }
        check_text(label).or_else(|e| fault(&format!("it {e}")))?;
        let labels = &scales.labels;
        if labels.get(dimension).is_some_and(|there| !there.is_empty()) {
            return fault("the dimension has one already");
        }
        if labels.is_empty() {
            self.reserve(dataset, &["DIMENSION_LABELS"])?;
        }
        let Defined { scales, layout, .. } = &mut self.datasets[dataset as usize];
        scales.labels.resize(layout.dims.len(), String::new());
        scales.labels[dimension] = label.to_owned();
        Ok(())
    }

    /// The dataset with this ID, if a path leads to it.
    pub fn dataset(&self, id: u32) -> Result<&Defined> {
        let defined = self.datasets.get(id as usize);
        let defined = defined.filter(|defined| defined.is_there());
        Ok(defined.ok_or_else(|| format!("there is no dataset {id} in this file"))?)
    }

    /// Checks the index of a dimension.
    fn dimension(&self, dataset: u32, dimension: u32) -> Result<usize> {
        let Defined { path, layout, .. } = self.dataset(dataset)?;
        let rank = layout.dims.len();
        if (dimension as usize) < rank {
            return Ok(dimension as usize);
        }
        Err(format!(
            "dataset {path} has {}, and none of number {dimension}: the first one is 0",
            dimensions(rank)
        )
        .into())
    }

    /// Reserves attributes of a dataset for HDF5.
    fn reserve(&mut self, dataset: u32, names: &[&str]) -> Result<()> {
        let path = &self.datasets[dataset as usize].path;
        let key = |name: &&str| (path.clone(), (*name).to_owned());
        let keys: HashSet<_> = names.iter().map(key).collect();
        if let Some((path, name)) = keys.iter().find(|key| self.attributes.contains(*key)) {
            return Err(format!(
                "dataset {path} has an attribute {name}, which HDF5 needs for dimension scales and labels"
            ).into());
        }
        self.attributes.extend(keys);
        Ok(())
    }
}

fn check_text(text: &str) -> Result<()> {
    if text.contains('\0') {
        return Err("has a zero byte".into());
    }
    if text.len() > LONGEST_NAME {
        return Err(format!("has more than {LONGEST_NAME} bytes").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::datatype::Datatype;
    use crate::journal::definition::{DatasetLayout, Definition};
    use crate::journal::value::Value;

    fn outline(datasets: &[(&str, &[u64])]) -> Outline {
        let mut outline = Outline::default();
        for (path, dims) in datasets {
            let layout = DatasetLayout::fixed(Datatype::float(8), dims);
            let (path, layout) = ((*path).to_owned(), Box::new(layout));
            outline.add(&Definition::Dataset { path, layout }).unwrap();
        }
        outline
    }

    fn refused(outcome: Result<()>, reason: &str) {
        let said = outcome.unwrap_err();
        assert!(said.to_string().contains(reason), "{said}");
    }

    #[test]
    fn a_scale_has_one_dimension_and_no_scales() {
        let mut o = outline(&[("/t", &[3]), ("/x", &[4]), ("/f", &[3, 4]), ("/s", &[])]);
        refused(o.make_scale(2, "f"), "it has 2 dimensions");
        refused(o.make_scale(3, "s"), "it has 0 dimensions");
        refused(o.make_scale(9, "?"), "no dataset 9");
        refused(o.make_scale(0, "a\0"), "zero byte");
        o.make_scale(0, "time").unwrap();
        refused(o.make_scale(0, "again"), "one already");
        refused(o.attach_scale(2, 0, 1), "make it one first");
        refused(o.attach_scale(0, 0, 0), "a scale itself");
        o.attach_scale(1, 0, 0).unwrap();
        refused(o.make_scale(1, "x"), "cannot have scales");
    }

    #[test]
    fn a_dimension_may_have_several_scales_but_each_once() {
        let mut o = outline(&[("/t", &[3]), ("/u", &[3]), ("/f", &[3, 4])]);
        o.make_scale(0, "").unwrap();
        o.make_scale(1, "u").unwrap();
        o.attach_scale(2, 0, 0).unwrap();
        o.attach_scale(2, 0, 1).unwrap();
        o.attach_scale(2, 1, 0).unwrap();
        refused(o.attach_scale(2, 0, 0), "already");
        refused(o.attach_scale(2, 2, 0), "none of number 2");
        assert_eq!(o.datasets[2].scales.attached, [vec![0, 1], vec![0]]);
    }

    #[test]
    fn labels_are_given_once() {
        let mut o = outline(&[("/f", &[3, 4])]);
        refused(o.set_label(0, 0, ""), "empty");
        refused(o.set_label(0, 2, "z"), "none of number 2");
        o.set_label(0, 1, "y").unwrap();
        refused(o.set_label(0, 1, "x"), "already");
        assert_eq!(o.datasets[0].scales.labels, ["", "y"]);
    }

    /// Otherwise the close could not write these attributes.
    #[test]
    fn attributes_of_hdf5_are_not_the_users() {
        let mut o = outline(&[("/t", &[3]), ("/u", &[3]), ("/f", &[3, 4])]);
        let attribute = |object: &str, name: &str| Definition::Attribute {
            object: object.into(),
            name: name.into(),
            value: Value::from(1),
        };
        o.add(&attribute("/t", "NAME")).unwrap();
        refused(o.make_scale(0, "t"), "an attribute NAME");
        o.make_scale(0, "").unwrap();
        assert!(o.add(&attribute("/t", "CLASS")).is_err());
        assert!(o.add(&attribute("/t", "REFERENCE_LIST")).is_err());
        o.attach_scale(2, 0, 0).unwrap();
        assert!(o.add(&attribute("/f", "DIMENSION_LIST")).is_err());
        o.set_label(2, 0, "t").unwrap();
        assert!(o.add(&attribute("/f", "DIMENSION_LABELS")).is_err());
        o.add(&attribute("/u", "DIMENSION_LIST")).unwrap();
        refused(o.attach_scale(1, 0, 0), "an attribute DIMENSION_LIST");
    }
}
