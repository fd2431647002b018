//! openPMD files (section 8, rule 12, and 8.1). Names tell the iteration of a step, as in openPMD's own HDF5 files.
//!
//! * `booleans` finds the attributes that are booleans.
//! * `older` reads the series whose attributes are variables.

mod booleans;
mod older;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub use older::{Read, Values};

use super::Content;
use super::build::{Shown, View, Which};
use super::paths::{self, below};
use super::summary::{History, Problems, SeenVariable, Summary};
use crate::model::{Type, Value};
use booleans::Booleans;

/// Attributes below this name stand for groups that may be empty. Their values are the steps of the group.
const GROUPS: &str = "__openPMD_groups";
/// Attributes below this name are for openPMD's own reader.
const INTERNAL: &str = "__openPMD_internal";
/// The group of the iterations.
const DATA: &str = "data";
/// The attribute with the iteration of a step.
const SNAPSHOT: &str = "data/snapshot";

/// Largest size of the attributes of all iterations, in bytes. An attribute that was written once is shown in each
/// iteration.
const MOST_COPIED: u64 = 512 << 20;

/// The view of an openPMD file; `None` for other files.
pub(super) fn shown<'a>(summary: &'a Summary, problems: &mut Problems) -> Option<Shown<'a>> {
    root_attribute(summary, "openPMD")?;
    let encoding = root_attribute(summary, "iterationEncoding");
    let is_variable_based = matches!(encoding, Some(Value::Text(text)) if text == "variableBased");
    let mut shown = if is_variable_based {
        Series::of(summary).shown(problems)
    } else {
        group_based(summary)
    };
    // Also in a series without an iteration.
    shown.groups.insert(DATA.to_owned());
    Some(shown)
}

/// The view of a file whose names equal those of HDF5. There is no step dimension.
fn group_based(summary: &Summary) -> Shown<'_> {
    let mut shown = Shown::of(summary);
    if older::is_older(summary) {
        let variables = std::mem::take(&mut shown.variables).into_iter();
        let objects = variables.filter_map(|(_, view)| {
            let object = older::object_of(view.variable)?;
            Some((Cow::Borrowed(object), view))
        });
        let objects: BTreeMap<_, _> = objects.collect();
        shown.variables = objects.into_iter().collect();
    }
    for (_, view) in &mut shown.variables {
        if let (Which::All, Some(last)) = (&view.which, view.seen.last_step()) {
            view.which = Which::Step(last);
        }
    }
    for name in shown.attributes.keys() {
        if let Some(group) = below(&paths::of_name(name), GROUPS) {
            shown.groups.insert(group.to_owned());
        }
    }
    shown
        .attributes
        .retain(|name, _| !is_dropped(&paths::of_name(name)));
    let booleans = Booleans::of(summary);
    for (name, content) in &mut shown.attributes {
        if let Content::Value(value) = &*content {
            *content = booleans.content(&paths::of_name(name), value);
        }
    }
    shown
}

/// A file in which each step is an iteration that its names do not tell.
struct Series<'a> {
    summary: &'a Summary,
    snapshots: Option<&'a History>,
    /// Variables below `data`, by their path from there.
    variables: BTreeMap<String, (&'a Arc<str>, &'a SeenVariable)>,
    /// Steps of the groups below `data`, by their path from there.
    groups: BTreeMap<String, Vec<u64>>,
    /// Attributes are variables.
    is_older: bool,
}

impl<'a> Series<'a> {
    fn of(summary: &'a Summary) -> Self {
        let mut series = Series {
            summary,
            snapshots: None,
            variables: BTreeMap::new(),
            groups: BTreeMap::new(),
            is_older: older::is_older(summary),
        };
        for (name, seen) in &summary.variables {
            let Some(object) = series.object_of(name) else {
                continue;
            };
            if let Some(rest) = below(&paths::of_name(object), DATA) {
                series.variables.insert(rest.to_owned(), (name, seen));
            }
        }
        for (name, history) in &summary.attributes {
            let path = paths::of_name(name);
            if path == SNAPSHOT {
                series.snapshots = Some(history);
            }
            let group = below(&path, GROUPS).and_then(|group| below(group, DATA));
            if let Some(rest) = group {
                series
                    .groups
                    .insert(rest.to_owned(), summary.steps_of(history));
            }
        }
        series
    }

    fn shown(&self, problems: &mut Problems) -> Shown<'a> {
        let mut shown = Shown {
            steps: self.summary.steps,
            ..Shown::default()
        };
        let mut variables = BTreeMap::new();
        for (name, seen) in &self.summary.variables {
            self.variable(&mut variables, name, seen);
        }
        shown.variables = variables.into_iter().collect();
        for (rest, steps) in &self.groups {
            // A step without an iteration has the group of all iterations alone.
            let steps = steps
                .iter()
                .filter(|step| !rest.is_empty() || self.snapshot(**step).is_some());
            shown
                .groups
                .extend(steps.map(|step| self.path(*step, rest)));
        }
        self.attributes(&mut shown, problems);
        for (name, text) in [
            ("iterationEncoding", "groupBased"),
            ("basePath", "/data/%T/"),
            ("iterationFormat", "/data/%T/"),
        ] {
            let value = Content::Value(Arc::new(Value::Text(text.to_owned())));
            shown.attributes.remove(name);
            shown.attributes.insert(format!("/{name}").into(), value);
        }
        shown
    }

    fn variable(
        &self,
        shown: &mut BTreeMap<Cow<'a, str>, View<'a>>,
        variable: &'a Arc<str>,
        seen: &'a SeenVariable,
    ) {
        let view = |step| View {
            variable,
            seen,
            which: Which::Step(step),
        };
        let Some(object) = self.object_of(variable) else {
            return;
        };
        let path = paths::of_name(object);
        if let Some(rest) = below(&path, DATA) {
            for step in seen.steps() {
                let name = self.path(step, rest);
                shown.insert(name.into(), view(step));
            }
        } else if let Some(last) = seen.last_step() {
            shown.insert(Cow::Borrowed(object), view(last));
        }
    }

    /// The name of the object that shows a variable; `None` for a variable that is an attribute.
    fn object_of<'n>(&self, variable: &'n str) -> Option<&'n str> {
        if self.is_older {
            older::object_of(variable)
        } else {
            Some(variable)
        }
    }

    fn attributes(&self, shown: &mut Shown<'a>, problems: &mut Problems) {
        let mut left = MOST_COPIED;
        let stored = if self.is_older {
            older::attributes(self.summary)
        } else {
            HashMap::new()
        };
        let booleans = Booleans::of(self.summary);
        // Attributes of one object are adjacent.
        let mut parent = None;
        let mut steps = Vec::new();
        for (name, history) in &self.summary.attributes {
            let path = paths::of_name(name);
            if let Some(group) = below(&path, GROUPS) {
                if below(group, DATA).is_none() {
                    shown.groups.insert(group.to_owned());
                }
                continue;
            }
            if is_dropped(&path) {
                continue;
            }
            let rest = below(&path, DATA).filter(|rest| !rest.is_empty());
            let Some(rest) = rest else {
                if let Some((_, value)) = history.last() {
                    let name = Cow::Borrowed(&**name);
                    let content = booleans.content(&path, value);
                    shown.attributes.insert(name, content);
                }
                continue;
            };
            let (of, _) = paths::split(rest);
            if left > 0
                && let Some(seen) = stored.get(&**name)
            {
                steps = seen.steps().collect();
                parent = None;
            } else if parent.as_deref() != Some(of) && left > 0 {
                steps = self.steps_with(of);
                parent = Some(of.to_owned());
            }
            let each = (path.len() + 128) as u64;
            let cost = each.saturating_mul(steps.len() as u64);
            left = left.saturating_sub(cost);
            if left == 0 {
                let text = "the attributes of all iterations together are too many";
                problems.push(|| format!("attribute {name} is left out: {text}"));
                continue;
            }
            for step in &steps {
                if let Some(value) = as_of(history, *step) {
                    let name = self.path(*step, rest);
                    let content = booleans.content(&path, value);
                    shown.attributes.insert(name.into(), content);
                }
            }
        }
    }

    /// The steps that have the object at a path below `data`.
    fn steps_with(&self, path: &str) -> Vec<u64> {
        let mut steps = BTreeSet::new();
        let mut is_known = false;
        if let Some(group) = self.groups.get(path) {
            is_known = true;
            steps.extend(group);
        }
        let mut prefix = path;
        while !prefix.is_empty() {
            if let Some((_, seen)) = self.variables.get(prefix) {
                is_known = true;
                steps.extend(seen.steps());
                steps.extend(seen.missing.iter());
            }
            (prefix, _) = paths::split(prefix);
        }
        if is_known {
            return steps.into_iter().collect();
        }
        // Older writers do not name their groups, so all steps have the group.
        (0..self.summary.steps).collect()
    }

    /// The iteration of a step; `None` if the file does not tell one.
    fn snapshot(&self, step: u64) -> Option<u64> {
        let value = as_of(self.snapshots?, step)?;
        self.summary.number(value)
    }

    /// The path, in one step, of an object below `data`.
    fn path(&self, step: u64, rest: &str) -> String {
        let iteration = format!("{DATA}/{}", self.snapshot(step).unwrap_or(step));
        match rest {
            "" => iteration,
            rest => paths::join(&iteration, rest),
        }
    }
}

impl Summary {
    /// The steps of a group: the values that its attribute had in the step that wrote them.
    fn steps_of(&self, history: &History) -> Vec<u64> {
        let ends = history.iter().skip(1).map(|(step, _)| *step);
        let ends = ends.chain([self.steps]);
        let ranges = history.iter().zip(ends);
        let steps = ranges.filter_map(|((start, value), end)| {
            let step = self.number(value)?;
            (*start..end).contains(&step).then_some(step)
        });
        steps.collect()
    }

    /// The first element of an integer attribute.
    fn number(&self, value: &Value) -> Option<u64> {
        let Value::Numbers { ty, bytes, .. } = value else {
            return None;
        };
        let is_signed = match ty {
            Type::I8 | Type::I16 | Type::I32 | Type::I64 => true,
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => false,
            _ => return None,
        };
        let mut bytes = bytes.get(..ty.size() as usize)?.to_vec();
        if self.is_big_endian {
            bytes.reverse();
        }
        if is_signed && bytes.last().is_some_and(|high| high & 0x80 != 0) {
            return None;
        }
        bytes.resize(8, 0);
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

impl SeenVariable {
    fn last_step(&self) -> Option<u64> {
        self.parts.last()?.steps.last()
    }
}

/// The value of an attribute as of a step.
fn as_of(history: &History, step: u64) -> Option<&Arc<Value>> {
    let set = history.partition_point(|(at, _)| *at <= step);
    let (_, value) = history.get(set.checked_sub(1)?)?;
    Some(value)
}

fn root_attribute<'a>(summary: &'a Summary, name: &str) -> Option<&'a Value> {
    let attributes = &summary.attributes;
    let slash = format!("/{name}");
    let history = attributes
        .get(slash.as_str())
        .or_else(|| attributes.get(name))?;
    history.last().map(|(_, value)| &**value)
}

fn is_dropped(path: &str) -> bool {
    path == SNAPSHOT
        || [GROUPS, INTERNAL, booleans::MARKS]
            .iter()
            .any(|first| below(path, first).is_some())
}
