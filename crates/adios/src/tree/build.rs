//! Objects from variables and attributes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::paths::{self, Unique};
use super::summary::{Extent, Form, Part, Problems, SeenVariable, Summary};
use super::{Content, Dataset, Object, Source, Steps, Tree};
use crate::model::{Kind, Type, Value};

/// The largest rank in HDF5.
const MOST_DIMENSIONS: usize = 32;

/// Largest number of step numbers in all `adios2_steps` of one variable's blocks. Beyond it the attribute is set on the
/// group.
const MOST_NOTED: u64 = 1 << 20;

/// The attribute that labels the dimensions of a dataset.
const LABELS: &str = "DIMENSION_LABELS";

/// Variables and attributes to show, by name.
#[derive(Default)]
pub(super) struct Shown<'a> {
    /// Number of steps of the directory.
    pub steps: u64,
    /// The variables. Names are unique.
    pub variables: Vec<(Cow<'a, str>, View<'a>)>,
    pub attributes: BTreeMap<Cow<'a, str>, Content>,
    /// Paths of groups that exist even when empty.
    pub groups: BTreeSet<String>,
}

/// The display of a variable.
pub(super) struct View<'a> {
    /// Its name as the writer gave it.
    pub variable: &'a Arc<str>,
    pub seen: &'a SeenVariable,
    pub which: Which,
}

/// The steps of a variable that are shown.
pub(super) enum Which {
    All,
    /// All steps as one, with the blocks of all.
    Flat,
    /// This step alone.
    Step(u64),
}

/// The owner of an attribute.
enum Host {
    /// The variable with this index.
    Variable(usize),
    /// The group at this path.
    Group(String),
}

impl<'a> Shown<'a> {
    /// Everything in a directory.
    pub fn of(summary: &'a Summary) -> Self {
        let mut shown = Shown {
            steps: summary.steps,
            variables: Vec::with_capacity(summary.variables.len()),
            ..Shown::default()
        };
        for (variable, seen) in &summary.variables {
            let flat = summary.is_flattened.then(|| seen.flattened());
            let which = flat.flatten().unwrap_or(Which::All);
            let view = View {
                variable,
                seen,
                which,
            };
            shown.variables.push((Cow::Borrowed(variable), view));
        }
        for (name, history) in &summary.attributes {
            if let Some((_, value)) = history.last() {
                let name = Cow::Borrowed(&**name);
                let value = Content::Value(value.clone());
                shown.attributes.insert(name, value);
            }
        }
        shown
    }
}

impl SeenVariable {
    /// The display of all steps as one; `None` where each step is shown by itself.
    fn flattened(&self) -> Option<Which> {
        let first = self.parts.first()?;
        let rank = |part: &Part| match &part.form.extent {
            Extent::Whole(shape) => (false, shape.len()),
            Extent::Blocks { rank, .. } => (true, *rank),
        };
        let is_alike = |part: &Part| part.form.ty == first.form.ty && rank(part) == rank(first);
        match self.kind {
            Kind::GlobalValue => first.steps.get(0).map(Which::Step),
            Kind::GlobalArray | Kind::LocalArray => {
                self.parts.iter().all(is_alike).then_some(Which::Flat)
            }
            Kind::LocalValue | Kind::JoinedArray => None,
        }
    }
}

impl Shown<'_> {
    /// The index of a variable.
    fn variable(&self, name: &str) -> Option<usize> {
        let by_name = |(other, _): &(Cow<'_, str>, View<'_>)| (**other).cmp(name);
        self.variables.binary_search_by(by_name).ok()
    }
}

impl Form {
    /// Whether a dataset of this form can have the dimension of steps, too. Forms that no dataset can have may have it: there
    /// is one reason for all of their steps.
    fn has_room_for_steps(&self) -> bool {
        let rank = match &self.extent {
            Extent::Whole(shape) => shape.len(),
            Extent::Blocks { rank, .. } => *rank,
        };
        rank != MOST_DIMENSIONS
    }
}

/// Makes the objects.
pub(super) fn tree(shown: Shown<'_>, problems: Problems) -> Tree {
    let names = shown.variables.iter().map(|(name, _)| name);
    let paths: Vec<_> = names.map(|name| paths::of_any_name(name)).collect();
    let mut builder = Builder {
        steps: shown.steps,
        objects: Vec::with_capacity(shown.variables.len() + 1),
        only: None,
        problems,
    };
    let hosted = hosted(&shown, &paths);
    let groups = groups(&shown, &paths, &hosted);
    builder.object("");
    for group in &groups {
        builder.object(group);
    }
    let placed = place(&shown, &paths, &groups);
    for ((name, view), path) in shown.variables.iter().zip(&placed) {
        builder.variable(name, path, view);
    }
    for (host, name, content) in hosted {
        let path = match &host {
            Host::Group(path) => path,
            Host::Variable(number) => &*placed[*number],
        };
        builder.attribute(path, &name, content.clone());
    }
    builder.finish()
}

/// All groups except those that hold the steps or blocks of a variable. A group at the path of a variable is listed
/// only if it has members.
fn groups(
    shown: &Shown<'_>,
    paths: &[Cow<'_, str>],
    hosted: &[(Host, String, &Content)],
) -> BTreeSet<String> {
    let mut groups = BTreeSet::new();
    let mut add_parents = |path: &str| {
        let (mut parent, _) = paths::split(path);
        while !parent.is_empty() && !groups.contains(parent) {
            groups.insert(parent.to_owned());
            (parent, _) = paths::split(parent);
        }
    };
    for path in paths {
        add_parents(path);
    }
    let hosts = hosted.iter().filter_map(|(host, ..)| match host {
        Host::Group(path) => Some(path),
        Host::Variable(_) => None,
    });
    let alone: Vec<&String> = shown.groups.iter().chain(hosts).collect();
    if alone.is_empty() {
        return groups;
    }
    for path in &alone {
        add_parents(path);
    }
    let variables: HashSet<&str> = paths.iter().map(|path| &**path).collect();
    let is_free = |path: &&&String| !path.is_empty() && !variables.contains(path.as_str());
    groups.extend(alone.iter().filter(is_free).map(|path| (*path).clone()));
    groups
}

/// Gives each variable a unique path. A variable whose name is already a path keeps it.
fn place<'s>(
    shown: &Shown<'_>,
    paths: &'s [Cow<'_, str>],
    groups: &BTreeSet<String>,
) -> Vec<Cow<'s, str>> {
    let has = |name: &str, path: &str| {
        let number = shown.variable(name);
        number.is_some_and(|number| paths[number] == path)
    };
    let mut placed: Vec<Cow<'s, str>> = Vec::with_capacity(paths.len());
    let mut others = Vec::new();
    for (number, ((name, _), path)) in shown.variables.iter().zip(paths).enumerate() {
        placed.push(Cow::Borrowed(path));
        let plain = name.strip_prefix('/').unwrap_or(name);
        let is_group = groups.contains(&**path);
        if plain == *path && !is_group && (plain.len() == name.len() || !has(path, path)) {
            continue;
        }
        let wanted = if is_group {
            Cow::Owned(paths::join(path, "_value"))
        } else {
            Cow::Borrowed(&**path)
        };
        let order = (plain != wanted, plain != *path, name.starts_with('/'));
        others.push((order, number, wanted));
    }
    // Names are already sorted.
    others.sort_by_key(|(order, ..)| *order);
    let mut unique = Unique::default();
    for (_, number, wanted) in others {
        let is_free = |path: &str| {
            !groups.contains(path) && !has(path, path) && !has(&format!("/{path}"), path)
        };
        placed[number] = Cow::Owned(unique.name(&wanted, is_free));
    }
    placed
}

struct Builder {
    /// Number of steps of the directory.
    steps: u64,
    /// Facts about objects, in any order of paths. Facts about one path are merged in the order in which they were
    /// added.
    objects: Vec<Object>,
    /// The last list of a single step, shared by neighbours.
    only: Option<Arc<Steps>>,
    problems: Problems,
}

/// The source of one or more datasets of a variable.
#[derive(Clone)]
struct Piece<'p> {
    variable: &'p Arc<str>,
    form: &'p Form,
    steps: Arc<Steps>,
    has_steps: bool,
    /// Whether `adios2_steps` lists the steps.
    is_noted: bool,
    texts: &'p [Arc<str>],
    /// `adios2_shape` of a local array.
    label: Option<&'static str>,
}

const LOCAL: &str = "local array";
const CHANGES: &str = "changes with the step";
const MANY: &str = "32 dimensions in each step";

impl Builder {
    // --- attributes ------------------------------------------------------------------------------

    fn attribute(&mut self, path: &str, name: &str, content: Content) {
        let attributes = &mut self.object(path).attributes;
        attributes.push((name.to_owned(), content));
    }

    fn text(&mut self, path: &str, name: &str, text: &str) {
        let value = Arc::new(Value::Text(text.to_owned()));
        self.attribute(path, name, Content::Value(value));
    }

    // --- variables -------------------------------------------------------------------------------

    fn variable(&mut self, name: &str, path: &str, view: &View<'_>) {
        let seen = view.seen;
        let before = self.objects.len();
        match (&view.which, seen.parts.as_slice()) {
            (_, []) => return,
            (Which::Step(step), _) => match seen.part(*step) {
                Some((part, at)) => self.step(path, view.variable, part, *step, at, true),
                None => return,
            },
            (Which::Flat, parts) => {
                if !seen.missing.is_empty() {
                    return;
                }
                self.flat(path, view, parts);
            }
            (Which::All, [part]) if seen.present == 1 || part.form.has_room_for_steps() => {
                let piece = Piece {
                    variable: view.variable,
                    form: &part.form,
                    steps: part.steps.clone(),
                    has_steps: seen.present > 1,
                    is_noted: part.steps.len() != self.steps,
                    texts: &part.texts,
                    label: Some(LOCAL),
                };
                self.piece(path, &piece);
            }
            (Which::All, parts) => self.by_step(path, view.variable, parts),
        }
        let is_moved = !paths::segments(name).eq(paths::segments(path));
        let mut own = self.objects[before..].iter();
        if is_moved && own.any(|object| object.path[1..] == *path) {
            self.text(path, "adios2_name", name);
        }
    }

    /// Shows the blocks of all steps as blocks of a single step.
    fn flat(&mut self, path: &str, view: &View<'_>, parts: &[Part]) {
        let Some(first) = parts.first() else { return };
        let extent = match &first.form.extent {
            Extent::Whole(shape) => Extent::Whole(shape.clone()),
            Extent::Blocks { rank, .. } => {
                let mut all = Vec::new();
                for part in parts {
                    for _ in part.steps.iter() {
                        if let Extent::Blocks { counts, .. } = &part.form.extent {
                            all.extend_from_slice(counts);
                        }
                    }
                }
                let (rank, counts) = (*rank, all.into());
                Extent::Blocks { rank, counts }
            }
        };
        let form = Form {
            ty: first.form.ty.clone(),
            extent,
        };
        let piece = Piece {
            variable: view.variable,
            form: &form,
            steps: Arc::new(view.seen.steps().collect()),
            has_steps: false,
            is_noted: false,
            texts: &[],
            label: Some(LOCAL),
        };
        self.piece(path, &piece);
    }

    /// Shows each step in its own group.
    fn by_step(&mut self, path: &str, variable: &Arc<str>, parts: &[Part]) {
        let is_local = |part: &Part| matches!(part.form.extent, Extent::Blocks { .. });
        let is_local = parts.iter().all(is_local);
        self.object(path);
        let label = match parts {
            _ if is_local => LOCAL,
            [_] => MANY,
            _ => CHANGES,
        };
        self.text(path, "adios2_shape", label);
        for part in parts {
            for (at, step) in (0..).zip(part.steps.iter()) {
                let path = paths::join(path, &format!("step_{step:05}"));
                self.step(&path, variable, part, step, at, !is_local);
            }
        }
    }

    /// Shows step `at` of a part.
    fn step(
        &mut self,
        path: &str,
        variable: &Arc<str>,
        part: &Part,
        step: u64,
        at: u64,
        is_labelled: bool,
    ) {
        let mut texts: &[Arc<str>] = &[];
        if !part.texts.is_empty() {
            let each = part.texts.len() / part.steps.len() as usize;
            texts = part
                .texts
                .chunks(each.max(1))
                .nth(at as usize)
                .unwrap_or(&[]);
        }
        let piece = Piece {
            variable,
            form: &part.form,
            steps: self.only(step),
            has_steps: false,
            is_noted: false,
            texts,
            label: is_labelled.then_some(LOCAL),
        };
        self.piece(path, &piece);
    }

    fn piece(&mut self, path: &str, piece: &Piece<'_>) {
        let (rank, counts) = match &piece.form.extent {
            Extent::Whole(shape) => return self.dataset(path, piece, shape, None),
            Extent::Blocks { rank, counts } => ((*rank).max(1), counts),
        };
        self.object(path);
        if let Some(label) = piece.label {
            self.text(path, "adios2_shape", label);
        }
        let blocks = (counts.len() / rank) as u64;
        let mut of_block = piece.clone();
        if piece.is_noted && blocks.saturating_mul(piece.steps.len()) > MOST_NOTED {
            of_block.is_noted = false;
            self.attribute(path, "adios2_steps", Content::Steps(piece.steps.clone()));
        }
        for (number, shape) in (0..).zip(counts.chunks_exact(rank)) {
            let path = paths::join(path, &format!("block_{number:05}"));
            self.dataset(&path, &of_block, shape, Some(number));
        }
    }

    fn dataset(&mut self, path: &str, piece: &Piece<'_>, shape: &[u64], block: Option<u64>) {
        let steps = piece.has_steps.then(|| piece.steps.len());
        let shape: Vec<u64> = steps.iter().chain(shape).copied().collect();
        if let Some(reason) = refused(&piece.form.ty, &shape) {
            self.problems
                .push(|| format!("/{path} is left out: {reason}"));
            return;
        }
        let dataset = Dataset {
            ty: piece.form.ty.clone(),
            shape,
            has_steps: piece.has_steps,
            source: Source {
                variable: piece.variable.clone(),
                steps: piece.steps.clone(),
                block,
            },
            texts: piece.texts.to_vec(),
        };
        self.object(path).dataset = Some(dataset);
        if piece.is_noted {
            self.attribute(path, "adios2_steps", Content::Steps(piece.steps.clone()));
        }
    }

    // --- objects ---------------------------------------------------------------------------------

    /// The object at a path. Creates a group if there is none.
    fn object(&mut self, path: &str) -> &mut Object {
        let at = match self.objects.last() {
            Some(last) if last.path[1..] == *path => self.objects.len() - 1,
            _ => {
                self.objects.push(Object {
                    path: ["/", path].concat(),
                    ..Object::default()
                });
                self.objects.len() - 1
            }
        };
        &mut self.objects[at]
    }

    /// A list of this step alone, shared by neighbours.
    fn only(&mut self, step: u64) -> Arc<Steps> {
        let is_it = |only: &&Arc<Steps>| only.get(0) == Some(step);
        if let Some(only) = self.only.as_ref().filter(is_it) {
            return only.clone();
        }
        let only = Arc::new([step].into_iter().collect());
        self.only.insert(only).clone()
    }

    fn finish(mut self) -> Tree {
        self.objects.sort_by(|a, b| a.path.cmp(&b.path));
        self.objects.dedup_by(|more, first| {
            let is_one = more.path == first.path;
            if is_one {
                first.attributes.append(&mut more.attributes);
                if more.dataset.is_some() {
                    first.dataset = more.dataset.take();
                }
            }
            is_one
        });
        for object in &mut self.objects {
            object.name_attributes();
        }
        Tree {
            objects: self.objects,
            problems: self.problems.finish(),
            lost_blocks: Vec::new(),
            left_out: Vec::new(),
        }
    }
}

impl Object {
    /// Makes the attributes of each object unique by name, and sorts them.
    fn name_attributes(&mut self) {
        let dataset = self.dataset.as_ref();
        // The label of the step dimension is an attribute, too.
        let has_label = dataset.is_some_and(|dataset| dataset.has_steps);
        if self.attributes.len() + usize::from(has_label) < 2 {
            return;
        }
        let mut unique = Unique::default();
        if has_label {
            unique.name(LABELS, |_| true);
        }
        for (name, _) in &mut self.attributes {
            *name = unique.name(name, |_| true);
        }
        self.attributes.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
}

/// Finds the owner of each attribute, and the attribute's name there. Names that need no change come first.
fn hosted<'s>(shown: &'s Shown<'_>, paths: &[Cow<'_, str>]) -> Vec<(Host, String, &'s Content)> {
    if shown.attributes.is_empty() {
        return Vec::new();
    }
    let mut by_path: HashMap<&str, usize> = HashMap::with_capacity(paths.len());
    for (number, (path, (name, _))) in paths.iter().zip(&shown.variables).enumerate() {
        let known = by_path.entry(path).or_insert(number);
        if path == name {
            *known = number;
        }
    }
    let mut hosted = Vec::new();
    for (name, content) in &shown.attributes {
        let path = paths::of_any_name(name);
        let is_moved = path != name.strip_prefix('/').unwrap_or(name);
        let (host, name) = host(shown, &by_path, name).unwrap_or_else(|| {
            let (parent, last) = paths::split(&path);
            (Host::Group(parent.to_owned()), last.to_owned())
        });
        hosted.push((is_moved, host, name, content));
    }
    hosted.sort_by_key(|(is_moved, ..)| *is_moved);
    let hosted = hosted.into_iter();
    hosted
        .map(|(_, host, name, content)| (host, name, content))
        .collect()
}

/// The owner of an attribute: the variable with the longest name that is a prefix of the attribute's.
fn host(shown: &Shown<'_>, by_path: &HashMap<&str, usize>, name: &str) -> Option<(Host, String)> {
    for (at, _) in paths::cut(name).rmatch_indices('/') {
        let before = &name[..at];
        if before.is_empty() {
            // A slash in front stands for the root, not for a variable without a name.
            break;
        }
        let exact = shown.variable(before);
        let variable = exact.or_else(|| by_path.get(&*paths::of_name(before)).copied());
        let rest = || paths::of_name(&name[at + 1..]);
        if let Some(variable) = variable
            && let rest = rest()
            && !rest.is_empty()
        {
            return Some((Host::Variable(variable), rest.into_owned()));
        }
    }
    None
}

/// The reason why HDF5 cannot have a dataset of this shape.
fn refused(ty: &Type, shape: &[u64]) -> Option<&'static str> {
    if shape.len() > MOST_DIMENSIONS {
        return Some("HDF5 has at most 32 dimensions");
    }
    let bytes = |product: u64, extent: &u64| product.checked_mul((*extent).max(1));
    let bytes = shape.iter().try_fold(ty.size().max(16), bytes);
    let is_possible = bytes.is_some_and(|bytes| i64::try_from(bytes).is_ok());
    (!is_possible).then_some("its shape has more elements than a file can have")
}
