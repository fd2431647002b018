//! The HDF5 objects of a directory: groups, datasets and attributes of all steps (section 8).
//!
//! [`Summary`] takes the steps one after the other and keeps the facts that decide the objects. Its memory grows with
//! the changes between steps, not with their number. [`Summary::finish`] makes the [`Tree`].
//!
//! * `losses` collects the blocks whose bytes are lost.
//! * `summary` collects facts; `steps` stores numbers of steps in runs.
//! * `paths` turns names into paths; `build` makes the objects.
//! * `openpmd` finds the iteration of each step of an openPMD file. [`Values`] reads attributes that are variables.
//!
//! Cases that the section leaves open:
//!
//! * A variable whose type changes between steps is shown in groups of steps, like a variable whose shape changes.
//! * A variable that openPMD's writer put into several steps under one path is shown as of the last step.
//! * In a directory with flattened steps a global value is that of the first step. Local values and joined arrays
//!   cannot be flattened: each step is shown.
//! * Paths have at most 64 levels and 1,024 bytes. Longer ones are cut, and `adios2_name` has the whole name.
//! * A zero byte in a name becomes U+FFFD: HDF5 cannot store it.
//! * Where two attributes of one object get the same name, the second gets the suffix `_2`, as with datasets.

mod build;
mod losses;
mod openpmd;
mod paths;
mod steps;
mod summary;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use build::Shown;
use losses::named;
pub use losses::{Absent, Losses, is_complete};
pub use openpmd::{Read, Values};
pub use steps::Steps;
pub use summary::Summary;

use crate::model::{Type, Value};

/// The most variables whose left-out steps are listed.
const MOST_LEFT_OUT: usize = 1000;

/// The objects that a reader sees of a directory.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    /// Objects by path: the root first, each group before its members.
    pub objects: Vec<Object>,
    /// Reasons for missing objects and elements. A text names the step, the variable or the attribute.
    pub problems: Vec<String>,
    /// What files lack: blocks whose bytes are lost. The datasets may have elements that cannot be read.
    pub lost_blocks: Vec<String>,
    /// Steps without any byte of a variable.
    pub left_out: Vec<LeftOut>,
}

/// Steps of a variable that are left out, because its bytes are not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Absolute path of the dataset that lacks them, or of the object that would have them.
    pub path: String,
    /// Name of the variable as the writer gave it.
    pub variable: Arc<str>,
    /// The steps in words.
    pub steps: String,
    /// Whether there are several.
    pub are_several: bool,
    /// Number of elements.
    pub elements: u64,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeftOut {
            variable, steps, ..
        } = self;
        let are = if self.are_several { "are" } else { "is" };
        write!(
            f,
            "variable {variable}: {steps} {are} left out, because its bytes are not there"
        )
    }
}

/// Whether the stored bytes of a block are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// All of them are.
    There,
    /// Some are not, and will not come.
    Lost(Loss),
    /// Some are not, but may come: a writer has the directory open.
    Awaited,
}

/// Why bytes of a file are lost. The text goes on after the name of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// The file has only this number of bytes.
    Cut(u64),
    /// The file is not there, or cannot be opened. The reason, such as `is not there`.
    Unopened(Arc<str>),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Cut(len) => write!(f, "ends at byte {len}"),
            Loss::Unopened(reason) => f.write_str(reason),
        }
    }
}

/// A group or a dataset.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Object {
    /// Absolute path.
    pub path: String,
    /// Attributes by name.
    pub attributes: Vec<(String, Content)>,
    /// `None` for a group.
    pub dataset: Option<Dataset>,
}

/// A dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Element type. [`Type::Char`] is shown as [`Type::I8`].
    pub ty: Type,
    /// Number of elements along each dimension.
    pub shape: Vec<u64>,
    /// The first dimension counts steps: it can grow, and its label is `step`.
    pub has_steps: bool,
    /// Place of the elements.
    pub source: Source,
    /// All elements of a dataset of [`Type::Text`].
    pub texts: Vec<Arc<str>>,
}

/// The blocks that make up a dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Name of the variable as the writer gave it.
    pub variable: Arc<str>,
    /// Steps of the rows: row `n` of a dataset with steps is step `n` of this list. A dataset without steps has one
    /// step, or several flattened ones.
    pub steps: Arc<Steps>,
    /// Index of the block of a local array within its step. Where steps are flattened, it counts through all steps.
    pub block: Option<u64>,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A writer's value, or a text that the tree adds.
    Value(Arc<Value>),
    /// Numbers of steps as an array of `int64`.
    Steps(Arc<Steps>),
    /// A boolean of openPMD, an enumeration of `FALSE` and `TRUE`.
    Boolean(bool),
}

impl Summary {
    /// The objects of all steps.
    pub fn finish(mut self) -> Tree {
        self.variables.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut problems = std::mem::take(&mut self.problems);
        let shown = openpmd::shown(&self, &mut problems);
        let mut tree = build::tree(shown.unwrap_or_else(|| Shown::of(&self)), problems);
        tree.lost_blocks = self.lost.texts();
        self.leave_out(&mut tree);
        tree
    }

    /// Adds the steps that are left out, of at most [`MOST_LEFT_OUT`] variables.
    fn leave_out(&self, tree: &mut Tree) {
        let variables = self.variables.iter();
        let missing = variables.filter(|(_, seen)| !seen.missing.is_empty());
        let mut missing: Vec<_> = missing.collect();
        if missing.is_empty() {
            return;
        }
        let more = missing.len().saturating_sub(MOST_LEFT_OUT);
        if more > 0 {
            missing.truncate(MOST_LEFT_OUT);
            let text = format!("steps of {more} more variables are left out");
            tree.problems.push(text);
        }
        // The datasets of a variable; `None` for several.
        let mut of_variables: HashMap<&str, Option<&str>> = HashMap::new();
        for object in &tree.objects {
            if let Some(dataset) = &object.dataset {
                let path = of_variables.entry(&dataset.source.variable);
                path.and_modify(|path| *path = None)
                    .or_insert(Some(&object.path));
            }
        }
        let left_out = missing.into_iter().filter_map(|(name, seen)| {
            let only = of_variables
                .get(&**name)
                .copied()
                .flatten()
                .map(str::to_owned);
            Some(LeftOut {
                path: only.unwrap_or_else(|| format!("/{}", paths::of_any_name(name))),
                variable: name.clone(),
                steps: named(&seen.missing)?,
                are_several: seen.missing.len() > 1,
                elements: seen.missing_elements,
            })
        });
        tree.left_out = left_out.collect();
    }
}
