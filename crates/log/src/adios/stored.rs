//! Sources of datasets in the form of a snapshot. Thousands of datasets have the same steps as the previous dataset.
//! Their list of steps is stored once, and shared in memory.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::{DatasetSource, Steps};

#[derive(Serialize, Deserialize)]
struct Stored<V, S> {
    variable: V,
    /// The steps; `None` for those of the previous dataset.
    steps: Option<S>,
    has_steps: bool,
    block: Option<u64>,
}

pub fn serialize<S: Serializer>(sources: &[DatasetSource], to: S) -> Result<S::Ok, S::Error> {
    let mut before: Option<&Arc<Steps>> = None;
    to.collect_seq(sources.iter().map(|source| {
        let is_same = before.is_some_and(|before| *before == source.steps);
        before = Some(&source.steps);
        Stored {
            variable: &*source.variable,
            steps: (!is_same).then_some(&*source.steps),
            has_steps: source.has_steps,
            block: source.block,
        }
    }))
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<DatasetSource>, D::Error> {
    from.deserialize_seq(Sources)
}

struct Sources;

impl<'de> Visitor<'de> for Sources {
    type Value = Vec<DatasetSource>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sources of datasets")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut sources: Vec<DatasetSource> = Vec::new();
        while let Some(stored) = from.next_element::<Stored<Arc<str>, Steps>>()? {
            let steps = match (stored.steps, sources.last()) {
                (Some(steps), _) => Arc::new(steps),
                (None, Some(before)) => before.steps.clone(),
                (None, None) => return Err(A::Error::custom("no dataset before the first one")),
            };
            sources.push(DatasetSource {
                variable: stored.variable,
                steps,
                has_steps: stored.has_steps,
                block: stored.block,
            });
        }
        Ok(sources)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tables;
    use super::*;

    #[test]
    fn steps_of_neighbours_are_stored_once() {
        let source = |steps: &[u64]| DatasetSource {
            variable: "v".into(),
            steps: Arc::new(steps.iter().copied().collect()),
            has_steps: steps.len() > 1,
            block: steps.first().copied(),
        };
        let steps: [&[u64]; 5] = [&[], &[], &[0, 3], &[0, 3], &[7]];
        let tables = Tables {
            datasets: steps.into_iter().map(source).collect(),
            ..Tables::default()
        };
        let bytes = postcard::to_stdvec(&tables).unwrap();
        let read: Tables = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, tables);
        let is_shared = |pair: &[DatasetSource]| Arc::ptr_eq(&pair[0].steps, &pair[1].steps);
        let shared: Vec<bool> = read.datasets.windows(2).map(is_shared).collect();
        assert_eq!(shared, [true, false, true, false]);
        // A single dataset refers to the steps of a previous one.
        assert!(postcard::from_bytes::<Tables>(&[0, 0, 0, 1, 0, 0, 0, 0, 0]).is_err());
    }
}
