//! Booleans of openPMD (section 8, rule 12). ADIOS2 has no type for them, so the writer stores a `uint8`, and a second
//! attribute that marks it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::INTERNAL;
use crate::model::{Type, Value};
use crate::tree::Content;
use crate::tree::paths::{self, below};
use crate::tree::summary::Summary;

/// The group of the marks. Below it each has the path of its attribute.
pub(super) const MARKS: &str = "__is_boolean__";
/// The group of the marks below [`INTERNAL`], where attributes are variables.
const OLDER_MARKS: &str = "is_boolean";

/// The paths of attributes that are marked.
pub(super) struct Booleans(BTreeSet<String>);

impl Booleans {
    pub fn of(summary: &Summary) -> Self {
        let names = summary.attributes.keys();
        let marked = names.filter_map(|name| {
            let path = paths::of_name(name);
            let older = || below(below(&path, INTERNAL)?, OLDER_MARKS);
            Some(below(&path, MARKS).or_else(older)?.to_owned())
        });
        Booleans(marked.collect())
    }

    /// The content of the attribute that the writer gave this path and value.
    pub fn content(&self, path: &str, value: &Arc<Value>) -> Content {
        match &**value {
            Value::Numbers {
                ty: Type::U8,
                is_single: true,
                bytes,
            } if self.0.contains(path) => Content::Boolean(bytes.iter().any(|byte| *byte != 0)),
            _ => Content::Value(value.clone()),
        }
    }
}
