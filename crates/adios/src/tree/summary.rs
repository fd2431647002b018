//! The facts that decide the objects, collected step by step.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::Presence;
use super::losses::{Absent, Losses};
use super::paths;
use super::steps::Steps;
use crate::model::{Attribute, Block, Kind, Place, Step, StructType, Type, Value, Variable};

/// Largest number of problem texts kept.
const MOST_PROBLEMS: usize = 1000;

/// openPMD attributes below these names are shown with their earlier values.
const WITH_HISTORY: [&str; 2] = ["data", "__openPMD_groups"];

/// The steps of a directory so far.
#[derive(Debug, Default)]
pub struct Summary {
    pub(super) is_big_endian: bool,
    pub(super) is_flattened: bool,
    /// Number of steps so far.
    pub(super) steps: u64,
    pub(super) variables: Vec<(Arc<str>, SeenVariable)>,
    /// Index of each variable by name. Empty until a step needs it.
    places: HashMap<Arc<str>, usize>,
    /// Lists shared with the variable before.
    shared: Shared,
    /// Index of the next variable, if the step has the order of the steps before.
    next: usize,
    pub(super) attributes: BTreeMap<Arc<str>, History>,
    /// The blocks whose bytes are lost.
    pub(super) lost: Losses,
    pub(super) problems: Problems,
}

/// A variable over all steps that have it.
#[derive(Debug)]
pub(super) struct SeenVariable {
    /// Kind in the first of the steps.
    pub kind: Kind,
    /// Steps that are shown: some bytes of each are there, or it has no blocks. A new part begins where type or shape changes.
    pub parts: Vec<Part>,
    /// Steps that are left out, because no bytes of them are there, or more may come.
    pub missing: Steps,
    /// Number of elements in these steps.
    pub missing_elements: u64,
    /// Number of steps that have the variable, and the last of them.
    pub present: u64,
    last: u64,
}

/// Lists that consecutive variables share: thousands of variables are alike.
#[derive(Debug, Default)]
struct Shared {
    form: Option<Arc<Form>>,
    /// A list of a single step.
    only: Option<Arc<Steps>>,
    /// A list of steps, and the same list with one more step.
    steps: Option<(Arc<Steps>, Arc<Steps>)>,
}

/// Steps in which a variable has the same type and shape.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub form: Arc<Form>,
    pub steps: Arc<Steps>,
    /// All texts of these steps, if the variable has texts.
    pub texts: Vec<Arc<str>>,
}

/// Type and shape of a variable in one step.
#[derive(Debug, PartialEq)]
pub(super) struct Form {
    pub ty: Type,
    pub extent: Extent,
}

/// The shape of a variable in one step.
#[derive(Debug, PartialEq)]
pub(super) enum Extent {
    /// One array or value.
    Whole(Box<[u64]>),
    /// Blocks of a local array, of `rank` dimensions each.
    Blocks { rank: usize, counts: Box<[u64]> },
}

/// The values of an attribute, each with the step that set it.
pub(super) type History = Vec<(u64, Arc<Value>)>;

/// Texts about problems, up to a limit.
#[derive(Debug, Default)]
pub(super) struct Problems {
    texts: Vec<String>,
    more: u64,
}

impl Problems {
    pub fn push(&mut self, text: impl FnOnce() -> String) {
        if self.texts.len() < MOST_PROBLEMS {
            self.texts.push(text());
        } else {
            self.more += 1;
        }
    }

    pub fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            self.texts.push(format!("{} more problems", self.more));
        }
        self.texts
    }
}

impl Summary {
    /// An empty summary. `is_big_endian`: byte order of numeric attributes. `is_flattened`: the steps are parts of
    /// one.
    pub fn new(is_big_endian: bool, is_flattened: bool) -> Self {
        Summary {
            is_big_endian,
            is_flattened,
            ..Summary::default()
        }
    }

    /// Adds a step after all others. `presence` tells whether stored bytes are there.
    pub fn add(&mut self, number: u64, step: &Step, presence: &dyn Fn(&Place) -> Presence) {
        self.add_with(number, step, &|blocks| Absent::of(blocks, presence));
    }

    /// Adds a step after all others. All its stored bytes are there, as [`is_complete`](super::is_complete) has told.
    pub fn add_complete(&mut self, number: u64, step: &Step) {
        self.add_with(number, step, &|_| Absent::default());
    }

    fn add_with(&mut self, number: u64, step: &Step, absent: &dyn Fn(&[Block]) -> Absent) {
        let known = self.variables.len();
        self.steps = self.steps.max(number.saturating_add(1));
        for problem in &step.problems {
            self.problems.push(|| format!("step {number}: {problem}"));
        }
        for variable in &step.variables {
            let place = self.place_of(variable, known);
            self.add_variable(number, variable, place, absent(&variable.blocks));
        }
        for attribute in &step.attributes {
            self.add_attribute(number, attribute);
        }
    }

    fn add_variable(&mut self, step: u64, new: &Variable, place: usize, absent: Absent) {
        let Some((name, seen)) = self.variables.get_mut(place) else {
            return;
        };
        // Flattened steps are one array: what it lacks of a step cannot be left out.
        let is_left_out = absent.is_awaited
            || !self.is_flattened
                && absent.lost.len() == new.blocks.len()
                && !new.blocks.is_empty();
        if let Err(reason) = seen.add(step, new, is_left_out, &mut self.shared) {
            self.problems
                .push(|| format!("step {step}: variable {name}: {reason}"));
            return;
        }
        self.lost.add(step, name, absent);
    }

    /// The index of a variable. The steps before have listed the first `known`.
    fn place_of(&mut self, variable: &Variable, known: usize) -> usize {
        let name = &variable.name;
        let is_next = |(known, _): &(Arc<str>, SeenVariable)| known == name;
        let place = if self.variables.get(self.next).is_some_and(is_next) {
            self.next
        } else if let Some(place) = self.find(name, known) {
            place
        } else {
            self.variables
                .push((name.clone(), SeenVariable::new(variable.kind)));
            self.variables.len() - 1
        };
        self.next = place + 1;
        place
    }

    /// The index of a variable among the first `known`. Names within one step are unique, so a variable that this step
    /// has added is never the one.
    fn find(&mut self, name: &str, known: usize) -> Option<usize> {
        if self.places.len() < known {
            let more = self.variables[..known].iter().map(|(name, _)| name.clone());
            self.places.extend(more.zip(0..));
        }
        self.places.get(name).copied()
    }

    fn add_attribute(&mut self, step: u64, new: &Attribute) {
        if let Some(reason) = damage(&new.value) {
            let name = &new.name;
            self.problems
                .push(|| format!("step {step}: attribute {name}: {reason}"));
            return;
        }
        let Some(history) = self.attributes.get_mut(&*new.name) else {
            let first = vec![(step, Arc::new(new.value.clone()))];
            self.attributes.insert(new.name.as_str().into(), first);
            return;
        };
        if history
            .last()
            .is_some_and(|(_, value)| **value == new.value)
        {
            return;
        }
        // Only openPMD files show earlier values of an attribute.
        if !has_history(&new.name) || history.last().is_some_and(|(at, _)| *at == step) {
            history.pop();
        }
        history.push((step, Arc::new(new.value.clone())));
    }
}

impl SeenVariable {
    fn new(kind: Kind) -> Self {
        SeenVariable {
            kind,
            parts: Vec::new(),
            missing: Steps::default(),
            missing_elements: 0,
            present: 0,
            last: 0,
        }
    }

    /// Adds a step, which is shown unless it `is_left_out`. Fails where the variable cannot become a dataset.
    fn add(
        &mut self,
        step: u64,
        new: &Variable,
        is_left_out: bool,
        shared: &mut Shared,
    ) -> Result<(), &'static str> {
        if self.present > 0 && self.last >= step {
            return Err("it comes twice in one step");
        }
        check_texts(new)?;
        let part = self.parts.last_mut();
        let same = part.filter(|part| part.form.is_of(new));
        if same.is_none() {
            check_form(new)?;
        }
        self.present += 1;
        self.last = step;
        if is_left_out {
            self.missing.push(step);
            self.missing_elements = self.missing_elements.saturating_add(elements(new));
            return Ok(());
        }
        let texts = new.texts.iter().map(|text| Arc::from(text.as_str()));
        match same {
            Some(part) => {
                shared.push(&mut part.steps, step);
                part.texts.extend(texts);
            }
            None => {
                let part = Part {
                    form: shared.form_of(new),
                    steps: shared.only(step),
                    texts: texts.collect(),
                };
                if self.parts.is_empty() {
                    // Most variables have only one part.
                    self.parts.reserve_exact(1);
                }
                self.parts.push(part);
            }
        }
        Ok(())
    }

    /// The part that contains a step, and the step's index there.
    pub fn part(&self, step: u64) -> Option<(&Part, u64)> {
        let is_before = |part: &Part| part.steps.get(0) <= Some(step);
        let after = self.parts.partition_point(is_before);
        let part = self.parts.get(after.checked_sub(1)?)?;
        Some((part, part.steps.position(step)?))
    }

    /// All steps that are shown.
    pub fn steps(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().flat_map(|part| part.steps.iter())
    }
}

impl Shared {
    fn form_of(&mut self, variable: &Variable) -> Arc<Form> {
        if let Some(form) = self.form.as_ref().filter(|form| form.is_of(variable)) {
            return form.clone();
        }
        let form = Arc::new(Form::of(variable));
        self.form.insert(form).clone()
    }

    /// A list of this step alone.
    fn only(&mut self, step: u64) -> Arc<Steps> {
        let is_it = |only: &&Arc<Steps>| only.last() == Some(step);
        if let Some(only) = self.only.as_ref().filter(is_it) {
            return only.clone();
        }
        let only = Arc::new([step].into_iter().collect());
        self.only.insert(only).clone()
    }

    /// Appends a step. Variables with equal lists continue to share one.
    fn push(&mut self, steps: &mut Arc<Steps>, step: u64) {
        if let Some((before, after)) = &self.steps
            && Arc::ptr_eq(before, steps)
            && after.last() == Some(step)
        {
            *steps = after.clone();
            return;
        }
        self.steps = None;
        // Long lists are not copied for each step.
        let is_shared = Arc::strong_count(steps) > 1 && steps.is_regular();
        let before = is_shared.then(|| steps.clone());
        Arc::make_mut(steps).push(step);
        self.steps = before.map(|before| (before, steps.clone()));
    }
}

impl Form {
    fn of(variable: &Variable) -> Self {
        let extent = match variable.kind {
            Kind::LocalArray => Extent::Blocks {
                rank: variable.rank,
                counts: variable.counts.as_slice().into(),
            },
            _ => Extent::Whole(variable.shape.as_slice().into()),
        };
        Form {
            ty: shown(&variable.ty).clone(),
            extent,
        }
    }

    /// Whether the variable has this type and shape.
    fn is_of(&self, variable: &Variable) -> bool {
        let is_local = variable.kind == Kind::LocalArray;
        let has_extent = match &self.extent {
            Extent::Whole(shape) => !is_local && **shape == *variable.shape,
            Extent::Blocks { rank, counts } => {
                is_local && *rank == variable.rank && **counts == *variable.counts
            }
        };
        has_extent && self.ty == *shown(&variable.ty)
    }
}

fn shown(ty: &Type) -> &Type {
    match ty {
        Type::Char => &Type::I8,
        other => other,
    }
}

/// Number of elements of a variable in a step.
fn elements(variable: &Variable) -> u64 {
    let product = |sides: &[u64]| {
        sides
            .iter()
            .fold(1, |all: u64, side| all.saturating_mul(*side))
    };
    if variable.kind != Kind::LocalArray {
        return product(&variable.shape);
    }
    let blocks = variable.counts.chunks(variable.rank.max(1));
    blocks.map(product).fold(0, u64::saturating_add)
}

/// Whether readers need the earlier values of an attribute as well as the last one.
fn has_history(name: &str) -> bool {
    let path = paths::of_name(name);
    WITH_HISTORY
        .iter()
        .any(|first| paths::below(&path, first).is_some())
}

/// Fails where the number of texts does not fit the variable.
fn check_texts(variable: &Variable) -> Result<(), &'static str> {
    if variable.ty != Type::Text {
        return Ok(());
    }
    let product = |product: u64, extent: &u64| product.checked_mul(*extent);
    let needed = variable.shape.iter().try_fold(1, product);
    let has_all = needed == Some(variable.texts.len() as u64);
    let is_value = matches!(variable.kind, Kind::GlobalValue | Kind::LocalValue);
    if is_value && has_all {
        return Ok(());
    }
    Err("not as many texts as its shape needs")
}

/// Fails where the type cannot be that of an HDF5 dataset, or blocks have no dimensions.
fn check_form(variable: &Variable) -> Result<(), &'static str> {
    if variable.kind == Kind::LocalArray && variable.rank == 0 {
        return Err("blocks without dimensions");
    }
    match &variable.ty {
        Type::Struct(of) if !is_sound(of) => {
            Err("members of its type overlap, reach beyond it, or have no names of their own")
        }
        _ => Ok(()),
    }
}

/// The reason why the value of an attribute is damaged.
fn damage(value: &Value) -> Option<&'static str> {
    let Value::Numbers {
        ty,
        is_single,
        bytes,
    } = value
    else {
        return None;
    };
    let (size, len) = (ty.size(), bytes.len() as u64);
    if matches!(ty, Type::Struct(_)) || size == 0 {
        return Some("not numbers");
    }
    if len % size != 0 || (*is_single && len != size) {
        return Some("not as many bytes as its type needs");
    }
    None
}

/// Whether HDF5 can represent the type.
fn is_sound(ty: &StructType) -> bool {
    let mut names = BTreeSet::new();
    let mut places: Vec<(u64, u64)> = Vec::new();
    for member in &ty.members {
        let is_number = !matches!(member.ty, Type::Text | Type::Struct(_));
        let count = u64::from(member.count.unwrap_or(1));
        let start = u64::from(member.offset);
        places.push((start, start + member.ty.size() * count));
        let name = &member.name;
        if !is_number || count == 0 || name.is_empty() || name.contains('\0') || !names.insert(name)
        {
            return false;
        }
    }
    places.sort();
    let is_apart = places.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    let end = places.last().map_or(0, |(_, end)| *end);
    !places.is_empty() && is_apart && end <= u64::from(ty.size)
}
