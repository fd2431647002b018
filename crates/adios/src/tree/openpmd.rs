//! openPMD files (section 8, rule 12). Names tell the iteration of a step, as in openPMD's own HDF5 files.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::build::{Shown, View, Which};
use super::paths::{self, below};
use super::summary::{History, Problems, SeenVariable, Summary};
use crate::model::{Type, Value};

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
    if is_variable_based {
        return Some(Series::of(summary).shown(problems));
    }
    Some(group_based(summary))
}

/// The view of a file whose names equal those of HDF5. There is no step dimension.
fn group_based(summary: &Summary) -> Shown<'_> {
    let mut shown = Shown::of(summary);
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
}

impl<'a> Series<'a> {
    fn of(summary: &'a Summary) -> Self {
        let mut series = Series {
            summary,
            snapshots: None,
            variables: BTreeMap::new(),
            groups: BTreeMap::new(),
        };
        for (name, seen) in &summary.variables {
            if let Some(rest) = below(&paths::of_name(name), DATA) {
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
            let paths = steps.iter().map(|step| self.path(*step, rest));
            shown.groups.extend(paths);
        }
        self.attributes(&mut shown, problems);
        for (name, text) in [
            ("iterationEncoding", "groupBased"),
            ("basePath", "/data/%T/"),
            ("iterationFormat", "/data/%T/"),
        ] {
            let value = Arc::new(Value::Text(text.to_owned()));
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
        let path = paths::of_name(variable);
        if let Some(rest) = below(&path, DATA) {
            for step in seen.steps() {
                let name = self.path(step, rest);
                shown.insert(name.into(), view(step));
            }
        } else if let Some(last) = seen.last_step() {
            let name = Cow::Borrowed(&**variable);
            shown.insert(name, view(last));
        }
    }

    fn attributes(&self, shown: &mut Shown<'a>, problems: &mut Problems) {
        let mut left = MOST_COPIED;
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
                    shown.attributes.insert(name, value.clone());
                }
                continue;
            };
            let (of, _) = paths::split(rest);
            if parent.as_deref() != Some(of) && left > 0 {
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
                    shown.attributes.insert(name.into(), value.clone());
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

    /// The path, in one step, of an object below `data`.
    fn path(&self, step: u64, rest: &str) -> String {
        let snapshot = self.snapshots.and_then(|history| as_of(history, step));
        let number = snapshot.and_then(|value| self.summary.number(value));
        let iteration = format!("{DATA}/{}", number.unwrap_or(step));
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
        || [GROUPS, INTERNAL]
            .iter()
            .any(|first| below(path, first).is_some())
}
