//! Texts about different definitions of two ranks: plain data, without communication.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use h5logfs_hdf5_format::filters::{DEFLATE, FLETCHER32, Filter, SHUFFLE};
use h5logfs_log::journal::definition::{DatasetLayout, Defined, Definition};
use h5logfs_log::journal::value::Value;
use h5logfs_log::journal::words::{Shortened, largest_extent, shortened};

/// Differences between the definitions of a rank and those of the first rank since the last flush.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// The first difference in groups, datasets and extents. Their order matters, because datasets are numbered.
    pub objects: Option<String>,
    /// Attributes that only one of the two ranks has, or with different values. Their order does not matter.
    pub attributes: Vec<DifferentAttribute>,
}

/// An attribute that differs between ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DifferentAttribute {
    /// Path of its object.
    pub object: String,
    pub name: String,
    /// The definitions of the two ranks, as text.
    pub how: String,
}

/// The definitions of two ranks.
pub(super) struct Compared<'a> {
    /// Definitions of the first rank.
    pub first: &'a [Definition],
    pub rank: u32,
    /// Definitions of `rank`.
    pub own: &'a [Definition],
    /// All datasets of `rank`, in the order of their numbers.
    pub datasets: &'a [Defined],
}

impl Compared<'_> {
    pub fn differences(&self) -> Differences {
        Differences {
            objects: self.objects(),
            attributes: self.attributes(),
        }
    }

    fn attributes(&self) -> Vec<DifferentAttribute> {
        let (first, own) = (attributes(self.first), attributes(self.own));
        let (values, own_values) = (by_name(&first), by_name(&own));
        let differs = |a: &Attribute<'_>, how| DifferentAttribute {
            object: a.object.to_owned(),
            name: a.name.to_owned(),
            how,
        };
        let of_first = first.iter().filter_map(|a| {
            let how = match own_values.get(&(a.object, a.name)) {
                Some(value) if *value == a.value => return None,
                Some(value) => self.values(a.value, value),
                None => self.only_first(a.value),
            };
            Some(differs(a, how))
        });
        let only_own = own
            .iter()
            .filter(|a| !values.contains_key(&(a.object, a.name)));
        let only_own = only_own.map(|a| differs(a, self.only_own(a.value)));
        of_first.chain(only_own).collect()
    }

    fn values(&self, first: &Value, own: &Value) -> String {
        let short = Shortened::new(&own.to_string(), &first.to_string());
        format!(
            "rank {} defines it as {}, rank 0 as {}",
            self.rank, short.one, short.other
        )
    }

    fn only_first(&self, value: &Value) -> String {
        let value = shortened(&value.to_string());
        format!(
            "rank {} does not define it, rank 0 does, as {value}",
            self.rank
        )
    }

    fn only_own(&self, value: &Value) -> String {
        let value = shortened(&value.to_string());
        format!("rank {} defines it as {value}, rank 0 does not", self.rank)
    }

    fn objects(&self) -> Option<String> {
        let (first, own) = (objects(self.first), objects(self.own));
        let at = (0..first.len().max(own.len())).find(|i| first.get(*i) != own.get(*i))?;
        Some(match (first.get(at), own.get(at)) {
            (Some(theirs), Some(ours)) if subject(theirs) == subject(ours) => {
                self.properties(theirs, ours)
            }
            (Some(theirs), _) if !has(&own[at..], theirs) => {
                let Clause { verb, object } = self.clause(theirs);
                format!("rank {} does not {verb} {object}, rank 0 does", self.rank)
            }
            (_, Some(ours)) if !has(&first[at..], ours) => {
                let clause = self.clause(ours).third_person();
                format!("rank {} {clause}, rank 0 does not", self.rank)
            }
            (theirs, ours) => {
                let words = |definition: Option<&&Definition>| match definition {
                    Some(definition) => self.clause(definition).third_person(),
                    None => "defines nothing more".into(),
                };
                let (theirs, ours) = (words(theirs), words(ours));
                format!(
                    "rank {} {ours} where rank 0 {theirs}: the order differs",
                    self.rank
                )
            }
        })
    }

    /// The difference between two definitions of the same object.
    fn properties(&self, first: &Definition, own: &Definition) -> String {
        let rank = self.rank;
        if let (Definition::Dataset { path, layout }, Definition::Dataset { layout: own, .. }) =
            (first, own)
        {
            let (first, own) = (properties(layout), properties(own));
            let different = first.iter().zip(&own).find(|(first, own)| first != own);
            let (first, own) = different.unwrap_or((&first[0], &own[0]));
            let short = Shortened::new(own, first);
            return format!(
                "rank {rank} defines dataset {path} with {}, rank 0 with {}",
                short.one, short.other
            );
        }
        let (first, own) = (self.clause(first), self.clause(own));
        format!(
            "rank {rank} {}, rank 0 {}",
            own.third_person(),
            first.third_person()
        )
    }

    fn clause(&self, definition: &Definition) -> Clause {
        match definition {
            Definition::Group { path } => Clause::define(format!("group {path}")),
            Definition::Dataset { path, .. } => Clause::define(format!("dataset {path}")),
            Definition::Attribute { object, name, .. } => {
                Clause::define(format!("attribute {name} of {object}"))
            }
            Definition::Extent { dataset, dims } => Clause {
                verb: "extend",
                object: format!("dataset {} to {dims:?}", self.path(*dataset)),
            },
            Definition::Scale { dataset, name } => Clause {
                verb: "make",
                object: format!("dataset {} the scale {name:?}", self.path(*dataset)),
            },
            Definition::Attachment {
                dataset,
                dimension,
                scale,
            } => {
                let scale = format!("the scale {}", self.path(*scale));
                self.give_dimension(*dataset, *dimension, &scale)
            }
            Definition::Label {
                dataset,
                dimension,
                label,
            } => self.give_dimension(*dataset, *dimension, &format!("the label {label:?}")),
        }
    }

    fn give_dimension(&self, dataset: u32, dimension: u32, property: &str) -> Clause {
        let path = self.path(dataset);
        Clause {
            verb: "give",
            object: format!("dimension {dimension} of dataset {path} {property}"),
        }
    }

    /// The path of a dataset. Up to the first difference, a number means the same dataset on both ranks.
    fn path(&self, dataset: u32) -> &str {
        let defined = self.datasets.get(dataset as usize);
        defined.map_or("without a name", |d| &d.path)
    }
}

/// A rank's action on an object, as parts of a sentence.
struct Clause {
    verb: &'static str,
    object: String,
}

impl Clause {
    fn third_person(&self) -> String {
        format!("{}s {}", self.verb, self.object)
    }

    fn define(object: String) -> Self {
        Clause {
            verb: "define",
            object,
        }
    }
}

struct Attribute<'a> {
    object: &'a str,
    name: &'a str,
    value: &'a Value,
}

fn by_name<'a>(attributes: &[Attribute<'a>]) -> HashMap<(&'a str, &'a str), &'a Value> {
    let named = attributes.iter().map(|a| ((a.object, a.name), a.value));
    named.collect()
}

fn attributes<'a>(definitions: &'a [Definition]) -> Vec<Attribute<'a>> {
    let attribute = |definition: &'a Definition| match definition {
        Definition::Attribute {
            object,
            name,
            value,
        } => Some(Attribute {
            object,
            name,
            value,
        }),
        _ => None,
    };
    definitions.iter().filter_map(attribute).collect()
}

fn objects(definitions: &[Definition]) -> Vec<&Definition> {
    let is_object = |d: &&Definition| !matches!(d, Definition::Attribute { .. });
    definitions.iter().filter(is_object).collect()
}

/// The object of a definition.
#[derive(PartialEq)]
enum Subject<'a> {
    Object(&'a str),
    Extent(u32),
    Scale(u32),
    Scales { dataset: u32, dimension: u32 },
    Label { dataset: u32, dimension: u32 },
}

fn subject(definition: &Definition) -> Subject<'_> {
    match definition {
        Definition::Group { path } | Definition::Dataset { path, .. } => Subject::Object(path),
        Definition::Attribute { object, .. } => Subject::Object(object),
        Definition::Extent { dataset, .. } => Subject::Extent(*dataset),
        Definition::Scale { dataset, .. } => Subject::Scale(*dataset),
        Definition::Attachment {
            dataset, dimension, ..
        } => Subject::Scales {
            dataset: *dataset,
            dimension: *dimension,
        },
        Definition::Label {
            dataset, dimension, ..
        } => Subject::Label {
            dataset: *dataset,
            dimension: *dimension,
        },
    }
}

fn has(definitions: &[&Definition], wanted: &Definition) -> bool {
    definitions.iter().any(|d| subject(d) == subject(wanted))
}

/// The properties of a dataset as text, most important first.
fn properties(layout: &DatasetLayout) -> [String; 6] {
    let chunk = layout.chunk.as_ref();
    let filters: Vec<String> = layout.filters.iter().map(filter).collect();
    [
        format!("datatype {}", layout.datatype),
        format!("extent {:?}", layout.dims),
        format!("largest extent {}", largest_extent(&layout.max_dims)),
        chunk.map_or("no chunk shape".into(), |c| format!("chunk shape {c:?}")),
        format!("filters [{}]", filters.join(", ")),
        format!("fill value {:02x?}", layout.fill),
    ]
}

fn filter(filter: &Filter) -> String {
    let name = match filter.id {
        DEFLATE => "deflate".into(),
        SHUFFLE => "shuffle".into(),
        FLETCHER32 => "fletcher32".into(),
        other => format!("number {other}"),
    };
    let values = filter.values.iter().map(|v| format!(" {v}"));
    name + &values.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Datatype;
    use h5logfs_log::journal::scales::Scales;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn group(path: &str) -> Definition {
        let path = path.into();
        Definition::Group { path }
    }

    fn layout(dims: &[u64]) -> DatasetLayout {
        DatasetLayout::fixed(Datatype::float(8), dims)
    }

    fn dataset(path: &str, layout: DatasetLayout) -> Definition {
        Definition::Dataset {
            path: path.into(),
            layout: Box::new(layout),
        }
    }

    fn grid(path: &str, dims: &[u64]) -> Definition {
        dataset(path, layout(dims))
    }

    fn extent(dataset: u32, dims: &[u64]) -> Definition {
        let dims = dims.to_vec();
        Definition::Extent { dataset, dims }
    }

    fn attribute(name: &str, value: impl Into<Value>) -> Definition {
        Definition::Attribute {
            object: "/".into(),
            name: name.into(),
            value: value.into(),
        }
    }

    /// The differences of rank 3. Dataset 0 of both ranks is `/rows`.
    fn differences(first: &[Definition], own: &[Definition]) -> Differences {
        let rows = Defined {
            path: "/rows".into(),
            layout: layout(&[1]),
            scales: Scales::default(),
            foreign: None,
        };
        Compared {
            first,
            rank: 3,
            own,
            datasets: &[rows],
        }
        .differences()
    }

    #[track_caller]
    fn tells(first: &[Definition], own: &[Definition], words: &str) {
        let found = differences(first, own);
        assert_eq!(found.objects.as_deref(), Some(words));
    }

    #[test]
    fn objects_that_differ_are_named_with_their_property() {
        let a = group("/a");
        tells(
            &[grid("/x", &[4, 6])],
            &[grid("/x", &[4, 5])],
            "rank 3 defines dataset /x with extent [4, 5], rank 0 with extent [4, 6]",
        );
        tells(
            &[a.clone(), grid("/x", &[4])],
            std::slice::from_ref(&a),
            "rank 3 does not define dataset /x, rank 0 does",
        );
        tells(
            std::slice::from_ref(&a),
            &[a.clone(), grid("/x", &[4])],
            "rank 3 defines dataset /x, rank 0 does not",
        );
        tells(
            &[grid("/x", &[4]), a.clone()],
            std::slice::from_ref(&a),
            "rank 3 does not define dataset /x, rank 0 does",
        );
        tells(
            &[a.clone(), group("/b")],
            &[group("/b"), a.clone()],
            "rank 3 defines group /b where rank 0 defines group /a: the order differs",
        );
        tells(
            &[grid("/a", &[1])],
            std::slice::from_ref(&a),
            "rank 3 defines group /a, rank 0 defines dataset /a",
        );
        tells(
            &[extent(0, &[20])],
            &[extent(0, &[21])],
            "rank 3 extends dataset /rows to [21], rank 0 extends dataset /rows to [20]",
        );
        tells(
            &[extent(0, &[20])],
            &[],
            "rank 3 does not extend dataset /rows to [20], rank 0 does",
        );
        tells(
            &[extent(0, &[20])],
            &[extent(0, &[20]), extent(0, &[21])],
            "rank 3 extends dataset /rows to [21], rank 0 does not",
        );
    }

    #[test]
    fn scales_and_labels_that_differ_are_told() {
        let scale = |name: &str| Definition::Scale {
            dataset: 0,
            name: name.into(),
        };
        let attachment = |scale| Definition::Attachment {
            dataset: 0,
            dimension: 1,
            scale,
        };
        let label = Definition::Label {
            dataset: 0,
            dimension: 1,
            label: "x".into(),
        };
        tells(
            &[scale("row")],
            &[scale("rows")],
            r#"rank 3 makes dataset /rows the scale "rows", rank 0 makes dataset /rows the scale "row""#,
        );
        tells(
            &[attachment(0)],
            &[],
            "rank 3 does not give dimension 1 of dataset /rows the scale /rows, rank 0 does",
        );
        tells(
            &[],
            &[label],
            r#"rank 3 gives dimension 1 of dataset /rows the label "x", rank 0 does not"#,
        );
    }

    #[test]
    fn every_property_of_a_dataset_is_told() {
        type Change = fn(&mut DatasetLayout);
        let changes: [(Change, &str); 6] = [
            (
                |l| l.datatype = Datatype::integer(4, false),
                "with datatype u32, rank 0 with datatype f64",
            ),
            (
                |l| l.dims = vec![3],
                "with extent [3], rank 0 with extent [4]",
            ),
            (
                |l| l.max_dims = vec![None],
                "with largest extent [unlimited], rank 0 with largest extent [4]",
            ),
            (
                |l| l.chunk = Some(vec![2]),
                "with chunk shape [2], rank 0 with no chunk shape",
            ),
            (
                |l| {
                    l.filters = vec![Filter {
                        id: DEFLATE,
                        flags: 1,
                        values: vec![6],
                    }]
                },
                "with filters [deflate 6], rank 0 with filters []",
            ),
            (
                |l| l.fill = vec![0, 255],
                "with fill value [00, ff], rank 0 with fill value []",
            ),
        ];
        for (change, words) in changes {
            let mut changed = layout(&[4]);
            change(&mut changed);
            let words = format!("rank 3 defines dataset /x {words}");
            tells(&[grid("/x", &[4])], &[dataset("/x", changed)], &words);
        }
    }

    #[test]
    fn attributes_that_differ_are_told_with_both_values() {
        let (one, other) = (
            attribute("started", "10:00:01"),
            attribute("started", "10:00:02"),
        );
        let how = |first: &[Definition], own: &[Definition]| {
            let found = differences(first, own);
            assert_eq!(found.objects, None);
            let [only] = &found.attributes[..] else {
                panic!("{found:?}");
            };
            assert_eq!((&only.object[..], &only.name[..]), ("/", "started"));
            only.how.clone()
        };
        let (one, other) = ([one], [other]);
        assert_eq!(
            how(&one, &other),
            r#"rank 3 defines it as "10:00:02", rank 0 as "10:00:01""#
        );
        assert_eq!(
            how(&one, &[]),
            r#"rank 3 does not define it, rank 0 does, as "10:00:01""#
        );
        assert_eq!(
            how(&[], &one),
            r#"rank 3 defines it as "10:00:01", rank 0 does not"#
        );
        let long = |end: &str| [attribute("started", "x".repeat(50_000) + end)];
        let told = how(&long("1"), &long("2"));
        assert!(
            told.len() < 300 && told.contains("x2\"") && told.contains("x1\""),
            "{told}"
        );
    }

    fn definitions() -> impl Strategy<Value = Vec<Definition>> {
        let path = prop::sample::select(vec!["/a", "/b", "/c"]);
        let one = prop_oneof![
            path.clone().prop_map(group),
            (path, 1u64..3).prop_map(|(path, dim)| grid(path, &[dim])),
            (0u32..3, 1u64..3).prop_map(|(id, dim)| extent(id, &[dim])),
            (prop::sample::select(vec!["m", "n", "o"]), 0i32..2)
                .prop_map(|(name, value)| attribute(name, value)),
        ];
        prop::collection::vec(one, 0..6).prop_map(|mut list| {
            // A rank cannot define an attribute twice.
            let mut names = BTreeSet::new();
            list.retain(|d| match d {
                Definition::Attribute { name, .. } => names.insert(name.clone()),
                _ => true,
            });
            list
        })
    }

    proptest! {
        /// Compares with two loops: over the objects in order, and over the names of attributes.
        #[test]
        fn what_differs_is_found(first in definitions(), own in definitions()) {
            let found = differences(&first, &own);
            let rest = |list: &[Definition]| {
                let mut rest = list.to_vec();
                rest.retain(|d| !matches!(d, Definition::Attribute { .. }));
                rest
            };
            prop_assert_eq!(found.objects.is_none(), rest(&first) == rest(&own));
            let values = |list: &[Definition]| -> BTreeMap<String, Value> {
                let named = list.iter().filter_map(|d| match d {
                    Definition::Attribute { name, value, .. } => Some((name.clone(), value.clone())),
                    _ => None,
                });
                named.collect()
            };
            let (theirs, ours) = (values(&first), values(&own));
            let all: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
            let wanted: BTreeSet<&String> =
                all.into_iter().filter(|name| theirs.get(*name) != ours.get(*name)).collect();
            let names: Vec<&String> = found.attributes.iter().map(|a| &a.name).collect();
            prop_assert_eq!(names.len(), wanted.len());
            prop_assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), wanted);
            // The message names an object that one of the ranks defines there.
            if let Some(words) = &found.objects {
                let (theirs, ours) = (rest(&first), rest(&own));
                let at = theirs.iter().zip(&ours).take_while(|(a, b)| a == b).count();
                let there = [theirs.get(at), ours.get(at)];
                let named = there.into_iter().flatten().any(|d| match d {
                    Definition::Group { path } | Definition::Dataset { path, .. } => words.contains(path),
                    _ => words.contains("extend"),
                });
                prop_assert!(named, "{} {:?}", words, there);
            }
        }
    }
}
