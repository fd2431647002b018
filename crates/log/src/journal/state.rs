//! Definitions that make the present state of a log in one go. An append begins with them.

use super::Recorded;
use super::definition::{Defined, Definition};

impl Recorded {
    /// Definitions that make the same objects: each dataset with its present extent, and dimension scales last.
    pub fn state(&self) -> Vec<Definition> {
        state(&self.definitions, &self.outline.datasets)
    }
}

/// Definitions that make the objects of `definitions` in one go: each dataset with its present extent, and dimension
/// scales last. `datasets` has the present extents in the order of IDs. `definitions` has no changes of datasets.
pub fn state(definitions: &[Definition], datasets: &[Defined]) -> Vec<Definition> {
    let mut next = datasets.iter();
    let present = |definition: &Definition| match definition {
        Definition::Dataset { .. } => next.next().map(Defined::definition),
        other => Some(other.clone()),
    };
    let mut state: Vec<Definition> = definitions.iter().filter_map(present).collect();
    state.extend(scale_definitions(datasets));
    state
}

impl Defined {
    /// The definition of the dataset with its present extent, without scales and labels.
    pub fn definition(&self) -> Definition {
        Definition::Dataset {
            path: self.path.clone(),
            layout: Box::new(self.layout.clone()),
        }
    }
}

/// The definitions of the scales and labels of all datasets, which are in the order of IDs.
pub fn scale_definitions(datasets: &[Defined]) -> Vec<Definition> {
    let numbered = || (0u32..).zip(datasets);
    let scales = numbered().filter_map(|(dataset, defined)| {
        let name = defined.scales.name.clone()?;
        Some(Definition::Scale { dataset, name })
    });
    // A dataset must be a scale before it is attached.
    let mut definitions: Vec<Definition> = scales.collect();
    for (dataset, defined) in numbered() {
        for (dimension, scales) in (0u32..).zip(&defined.scales.attached) {
            definitions.extend(scales.iter().map(|scale| Definition::Attachment {
                dataset,
                dimension,
                scale: *scale,
            }));
        }
        let labels = (0u32..).zip(&defined.scales.labels);
        let labels = labels.filter(|(_, label)| !label.is_empty());
        definitions.extend(labels.map(|(dimension, label)| Definition::Label {
            dataset,
            dimension,
            label: label.clone(),
        }));
    }
    definitions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_id::FileId;
    use crate::journal::datatype::Datatype;
    use crate::journal::definition::{DatasetLayout, Outline};
    use crate::journal::value::Value;
    use crate::journal::{Commit, Header, Journal, Line};
    use crate::source_dir::SourceDir;
    use crate::source_file::SourceFile;

    fn definitions() -> Vec<Definition> {
        let dataset = |path: &str, dims: &[u64]| Definition::Dataset {
            path: path.into(),
            layout: Box::new(DatasetLayout {
                max_dims: vec![None; dims.len()],
                ..DatasetLayout::fixed(Datatype::float(8), dims)
            }),
        };
        let label = |dimension, label: &str| Definition::Label {
            dataset: 1,
            dimension,
            label: label.into(),
        };
        let attachment = |dataset, dimension, scale| Definition::Attachment {
            dataset,
            dimension,
            scale,
        };
        vec![
            Definition::Group { path: "/g".into() },
            dataset("/g/time", &[0]),
            dataset("/field", &[0, 3, 4]),
            Definition::Scale {
                dataset: 0,
                name: "time".into(),
            },
            Definition::Attribute {
                object: "/field".into(),
                name: "units".into(),
                value: Value::from("K"),
            },
            attachment(1, 2, 0),
            label(1, "row"),
            dataset("/x", &[4]),
            Definition::Scale {
                dataset: 2,
                name: String::new(),
            },
            attachment(1, 2, 2),
            attachment(1, 0, 2),
            Definition::Extent {
                dataset: 1,
                dims: vec![7, 3, 4],
            },
        ]
    }

    /// The content of an outline in comparable form.
    fn shown(outline: &Outline) -> Vec<String> {
        outline.datasets.iter().map(|d| format!("{d:?}")).collect()
    }

    #[test]
    fn the_state_is_what_all_definitions_made() {
        let dir = tempfile::tempdir().unwrap();
        let record = |name: &str, definitions: Vec<Definition>| {
            let path = dir.path().join(name);
            let mut lines: Vec<Line> = definitions.into_iter().map(Line::Define).collect();
            lines.push(Line::Commit(Commit::new(1, vec![9000])));
            let header = Header::new(&FileId([7; 16]), 1, 0, 0);
            Journal::create_with(&path, &header, &lines, false, true).unwrap();
            let (dir, name) = SourceDir::of_file(&path).unwrap();
            Recorded::read(&SourceFile::open(&dir, &name).unwrap()).unwrap()
        };
        let first = record("first", definitions());
        let again = record("again", first.state());
        assert_eq!(shown(&again.outline), shown(&first.outline));
        assert_eq!(again.outline.datasets[1].layout.dims, [7, 3, 4]);
        assert_eq!(again.definitions.len(), first.definitions.len());
        assert_eq!(again.state(), first.state());
        let dims = |definition: &Definition| matches!(definition, Definition::Extent { .. });
        assert!(!first.state().iter().any(dims));
    }
}
