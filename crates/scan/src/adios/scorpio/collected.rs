//! The facts about a file, collected step by step: definitions, the steps of each variable, the number of records.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use h5logfs_adios::model::{Kind, Step, Variable};
use h5logfs_adios::scorpio::{
    Definition, Definitions, Lists, Named, Put, Side, Track, Values, Way, frames_of, memory_type,
    name_of,
};
use h5logfs_adios::tree::{Absent, Losses, Presence, Steps};
use h5logfs_adios::{Place, Type};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;

/// The most texts of one kind.
const MOST_TEXTS: usize = 1000;

/// The facts so far.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub definitions: Definitions,
    /// The steps with elements of each variable.
    pub steps: HashMap<Arc<str>, Steps>,
    /// Number of records of each unlimited dimension, by its index.
    pub records: HashMap<usize, u64>,
    /// The step of each map.
    pub maps: BTreeMap<i64, u64>,
    /// Stored bytes of all maps.
    pub map_bytes: u64,
    /// What cannot be read, with the reasons.
    pub errors: Vec<String>,
    /// What a reader should know.
    pub notes: Vec<Diagnostic>,
    losses: Losses,
    /// Some bytes may still come.
    is_awaited: bool,
    /// Unlimited dimensions whose records are places of a map, with its ID: the map may come in a later step.
    places: BTreeSet<(usize, i64)>,
    /// Number of puts so far, by variable.
    puts: HashMap<Arc<str>, u64>,
}

/// The lists about one variable in a step.
#[derive(Default)]
struct OfVariable<'s> {
    data: Option<&'s Variable>,
    lists: Lists<'s>,
}

impl Collected {
    /// Adds a step.
    pub fn add(
        &mut self,
        number: u64,
        step: &Step,
        values: &Values<'_>,
        presence: &dyn Fn(&Place) -> Presence,
    ) {
        for problem in &step.problems {
            self.error(format!("step {number}: {problem}"));
        }
        self.definitions.add(step, values);
        let mut of_step: Vec<(&str, OfVariable<'_>)> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for variable in &step.variables {
            let absent = Absent::of(&variable.blocks, presence);
            let is_awaited = absent.is_awaited;
            self.is_awaited |= is_awaited;
            self.losses.add(number, &variable.name, absent);
            if is_awaited {
                let name = &variable.name;
                self.error(format!(
                    "step {number}: {name} is left out, because its bytes are not there"
                ));
                continue;
            }
            let mut of = |name| {
                let next = of_step.len();
                let place = *places.entry(name).or_insert(next);
                if place == next {
                    of_step.push((name, OfVariable::default()));
                }
                place
            };
            match name_of(&variable.name) {
                Named::Data(name) => {
                    let place = of(name);
                    of_step[place].1.data = Some(variable);
                }
                Named::Track(Track::Map, name) => {
                    let place = of(name);
                    of_step[place].1.lists.maps = Some(variable);
                }
                Named::Track(Track::Number, name) => {
                    let place = of(name);
                    of_step[place].1.lists.numbers = Some(variable);
                }
                Named::Track(Track::Fill, name) => {
                    let place = of(name);
                    of_step[place].1.lists.fills = Some(variable);
                }
                Named::Map(id) => self.add_map(number, id, variable),
                _ => {}
            }
        }
        for (name, of) in of_step {
            self.add_elements(number, name, of, values);
        }
    }

    fn add_map(&mut self, step: u64, id: &str, variable: &Variable) {
        let Ok(id) = id.parse() else {
            self.error(format!("decomposition {id}: its ID is not a number"));
            return;
        };
        let blocks = variable.blocks.iter().map(|block| block.place.len);
        self.map_bytes = blocks.fold(self.map_bytes, u64::saturating_add);
        self.maps.entry(id).or_insert(step);
    }

    /// Adds the elements of a variable in a step.
    fn add_elements(&mut self, step: u64, name: &str, of: OfVariable<'_>, values: &Values<'_>) {
        let Some(data) = of.data else {
            self.add_missing(step, name, &of.lists);
            return;
        };
        let Some(definition) = self.definitions.of_name(name) else {
            self.error(format!(
                "step {step}: {name}: elements of a variable without a definition"
            ));
            return;
        };
        let (name, way) = (definition.name.clone(), definition.way);
        self.steps.entry(name.clone()).or_default().push(step);
        let added = match way {
            Some(Way::All) => self.add_frames(&name, &of.lists, values),
            Some(Way::One) if data.kind == Kind::LocalArray => self.add_puts(&name, data, values),
            _ => Ok(()),
        };
        if let Err(fault) = added {
            self.error(format!("step {step}: {name}: {fault}"));
        }
    }

    /// Adds a step whose lists have frames of a variable, but no elements of it.
    fn add_missing(&mut self, step: u64, name: &str, lists: &Lists<'_>) {
        let frames = lists.numbers.iter().flat_map(|list| &list.counts);
        let frames = frames.fold(0u64, |all, count| all.saturating_add(*count));
        if let Some(definition) = self.definitions.of_name(name).filter(|_| frames > 0) {
            // A reader of the variable meets an error, too.
            let name = definition.name.clone();
            self.steps.entry(name).or_default().push(step);
        }
        if frames > 0 {
            self.error(format!(
                "step {step}: {name}: no elements for {frames} frames"
            ));
        }
    }

    /// The dimensions of a variable, by index; `None` where it cannot be shown.
    fn dimensions(&self, definition: &Definition) -> Option<Vec<usize>> {
        definition
            .form(&self.definitions)
            .ok()
            .map(|(_, dimensions)| dimensions)
    }

    fn is_unlimited(&self, dimension: usize) -> bool {
        self.definitions.dimensions[dimension].len == 0
    }

    /// Sets the least number of records of a dimension.
    fn has_records(&mut self, dimension: usize, records: u64) {
        let known = self.records.entry(dimension).or_default();
        *known = records.max(*known);
    }

    /// Counts the records of the frames of a step (section 6.3).
    fn add_frames(
        &mut self,
        name: &str,
        lists: &Lists<'_>,
        values: &Values<'_>,
    ) -> Result<(), Fault> {
        let definition = self.definitions.of_name(name);
        let Some(dimensions) = definition.and_then(|definition| self.dimensions(definition)) else {
            return Ok(());
        };
        // The number of fill values is enough: the scan does not read them.
        let without_fills = Lists {
            fills: None,
            ..*lists
        };
        let frames = frames_of(without_fills, values)?;
        let Some(&first) = dimensions.first() else {
            return Ok(());
        };
        let is_unlimited = self.is_unlimited(first);
        let filled = frames.iter().filter(|frame| frame.lacks_fill).count();
        let fills = lists.fills.iter().flat_map(|fills| &fills.counts);
        let fills = fills.fold(0u64, |all, count| all.saturating_add(*count));
        let lacking = (filled as u64).saturating_sub(fills);
        if lacking > 0 {
            self.note(format!(
                "{name}: the fill values of {lacking} frames are not in the file; netCDF's stand in their place"
            ));
        }
        for frame in &frames {
            if is_unlimited && dimensions.len() > 1 {
                self.has_records(first, frame.number.unwrap_or(0).saturating_add(1));
            } else if is_unlimited {
                // Places are records.
                self.places.insert((first, frame.map));
            } else if let Some(number) = frame.number.filter(|_| dimensions.len() > 1) {
                let len = self.definitions.dimensions[first].len;
                if number >= len {
                    self.error(format!("{name}: frame {number} of {len} is not shown"));
                }
            }
        }
        Ok(())
    }

    /// Counts the records that are places, once all maps are known.
    pub fn count_places(&mut self) {
        for (dimension, map) in std::mem::take(&mut self.places) {
            let shape = self.definitions.shapes.get(&map);
            let records = shape.and_then(|shape| shape.last()).copied();
            self.has_records(dimension, records.unwrap_or(0));
        }
    }

    /// Counts the records of the puts of a step (section 5).
    fn add_puts(
        &mut self,
        name: &Arc<str>,
        data: &Variable,
        values: &Values<'_>,
    ) -> Result<(), Fault> {
        let Some(definition) = self.definitions.of_name(name) else {
            return Ok(());
        };
        let memory = definition.memory_number.and_then(memory_type);
        let (Some(dimensions), Some(memory)) = (self.dimensions(definition), memory) else {
            return Ok(());
        };
        if data.rank != 1 || data.ty != Type::U8 {
            return Err("its puts are not lists of bytes".into());
        }
        let side = |(d, dimension): (usize, &usize)| Side {
            len: self.definitions.dimensions[*dimension].len,
            is_unlimited: d == 0 && self.is_unlimited(*dimension),
        };
        let sides: Vec<Side> = dimensions.iter().enumerate().map(side).collect();
        let before = self.puts.get(name).copied().unwrap_or(0);
        self.puts
            .insert(name.clone(), before + data.blocks.len() as u64);
        for (block, number) in data.blocks.iter().zip(0..) {
            let len = data.count(number).first().copied().unwrap_or(0);
            let put = values.put(block, len, &sides, memory.size())?;
            let place = before + number as u64;
            match put {
                Err(error) => self.error(format!("{name}: put {place} {}", error.reason)),
                Ok(None) if len > Put::head(sides.len()) => {
                    let text = format!(
                        "{name}: put {place} has elements, and writes none of them: a count of it is 0"
                    );
                    self.note(text);
                }
                Ok(None) => {}
                Ok(Some(put)) => {
                    if sides.first().is_some_and(|side| side.is_unlimited) {
                        self.has_records(dimensions[0], put.start[0].saturating_add(put.records()));
                    }
                    if put.lost_records > 1 {
                        let lost = put.lost_records;
                        self.error(format!(
                            "{name}: put {place} wrote {lost} records, and SCORPIO stored the first one only"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds what a reader should know.
    pub fn note(&mut self, text: String) {
        if self.notes.len() < MOST_TEXTS {
            self.notes.push(Diagnostic::note(text));
        }
    }

    /// Adds the reason why something cannot be read.
    pub fn error(&mut self, text: String) {
        if self.errors.len() < MOST_TEXTS {
            self.errors.push(text);
        }
    }

    /// Whether bytes are missing that may still come.
    pub fn is_incomplete(&self) -> bool {
        self.is_awaited || !self.losses.is_empty()
    }

    /// Whether some elements cannot be read.
    pub fn has_errors(&self) -> bool {
        !(self.errors.is_empty() && self.losses.is_empty())
    }

    /// All that a reader should know.
    pub fn into_diagnostics(self) -> Vec<Diagnostic> {
        let problems = self.definitions.problems.into_iter().take(MOST_TEXTS);
        let problems = problems.map(Diagnostic::lost);
        let lost = self.losses.texts().into_iter();
        let lost = lost.map(|text| Diagnostic::lost(text).counted());
        let errors = self.errors.into_iter().map(Diagnostic::lost);
        let all = problems.chain(lost).chain(errors);
        all.chain(self.notes).collect()
    }
}
