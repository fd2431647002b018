//! The HDF5 objects of a directory: groups, datasets and attributes of all steps (section 8).
//!
//! A [`Summary`] is given the steps one after the other and keeps what decides the objects. Its memory grows with what
//! changes between steps, not with their number. [`Summary::finish`] makes the [`Tree`].
//!
//! * `summary` collects, `steps` keeps numbers of steps in runs.
//! * `paths` makes paths of names, `build` the objects.
//! * `openpmd`: files of openPMD have names that say where their steps belong.
//!
//! What the section leaves open:
//!
//! * A variable that changes its type between steps is shown like one that changes its shape: in groups of steps.
//! * A variable that openPMD's writer put into several steps under one path is shown as of the last of them.
//! * In a directory with flattened steps a global value is that of the first step. Local values and joined arrays cannot be
//!   flattened: each step is shown.
//! * Paths are at most 64 levels deep and 1,024 bytes long. What is longer is cut, and `adios2_name` has the whole name.
//! * A zero byte in a name becomes U+FFFD: HDF5 cannot store it.
//! * Two attributes of one object that get the same name: the second has `_2` behind it, as the datasets have.

mod build;
mod openpmd;
mod paths;
mod steps;
mod summary;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use build::Shown;
pub use steps::Steps;
pub use summary::Summary;

use crate::model::{Type, Value};

/// What a reader sees of a directory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    /// By path: the root first, each group before what is in it.
    pub objects: Vec<Object>,
    /// What is missing, and why: a text names the step, the variable or the attribute.
    pub problems: Vec<String>,
}

/// A group or a dataset.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Object {
    /// From the root, `/`.
    pub path: String,
    /// By name.
    pub attributes: Vec<(String, Content)>,
    /// `None` is a group.
    pub dataset: Option<Dataset>,
}

/// A dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Type of its elements. [`Type::Char`] is shown as [`Type::I8`].
    pub ty: Type,
    /// Number of elements along each dimension.
    pub shape: Vec<u64>,
    /// The first dimension is that of the steps: it may grow, and its label is `step`.
    pub has_steps: bool,
    /// Where the elements are.
    pub source: Source,
    /// All elements of a dataset of [`Type::Text`].
    pub texts: Vec<Arc<str>>,
}

/// Blocks that a dataset is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Name of the variable, as the writer gave it.
    pub variable: Arc<str>,
    /// Row `n` of a dataset with steps is the `n`th of these. Without steps it is one, or several that are flattened.
    pub steps: Arc<Steps>,
    /// Which block of a local array: its number in the step. Where steps are flattened, the blocks of all steps are counted.
    pub block: Option<u64>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A value of a writer, or a text of the tree.
    Value(Arc<Value>),
    /// Numbers of steps, an array of `int64`.
    Steps(Arc<Steps>),
}

impl Summary {
    /// The objects of all steps.
    pub fn finish(mut self) -> Tree {
        self.variables.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (name, seen) in &self.variables {
            if let Some(last) = seen.missing.last() {
                let many = seen.missing.len();
                let first = seen.missing.get(0).unwrap_or(last);
                self.problems.push(|| {
                    let which = match many {
                        1 => format!("step {first} is"),
                        _ => format!("{many} steps from {first} to {last} are"),
                    };
                    format!("variable {name}: {which} left out, because files end before its bytes")
                });
            }
        }
        let mut problems = std::mem::take(&mut self.problems);
        let shown = openpmd::shown(&self, &mut problems);
        build::tree(shown.unwrap_or_else(|| Shown::of(&self)), problems)
    }
}
