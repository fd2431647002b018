//! The headers of all members, as they are read.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use super::MOST_MEMBERS;
use crate::log_files::LogFiles;
use crate::source_dir::SourcePath;
use crate::source_file::{Identity, SourceFile};
use crate::tiles::families::{self, Marked, Unfit};
use crate::tiles::format;
use crate::tiles::member::{Attribute, Dimension, MemberHeader, Variable, lossy, type_name};
use crate::tiles::names::MemberName;
use crate::tiles::{Absent, Family, FileKind, Form};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;

/// The reason why a member is absent whose number the others ask for.
pub const MISSING: &str = "is missing";
/// How young a file is whose last record may still be written.
const YOUNG: Duration = Duration::from_secs(60);

type Checked<T> = std::result::Result<T, String>;

/// The members so far.
#[derive(Debug, Default)]
pub struct Collected {
    pub first: Option<First>,
    /// The dimensions of the set, with the lengths of the member that has them first.
    pub dimensions: Vec<Dimension>,
    /// The variables of the set, with numbers of its dimensions.
    pub variables: Vec<Variable>,
    by_name: HashMap<Vec<u8>, usize>,
    dimension_by_name: HashMap<Vec<u8>, usize>,
    /// The members that can be read.
    pub marked: Vec<Marked>,
    /// Their forms and sources.
    pub form_of: Vec<u32>,
    /// The most records of which each has bytes.
    pub held: Vec<u64>,
    pub sources: Vec<(SourcePath, Identity)>,
    pub forms: Vec<Form>,
    known: HashMap<Form, u32>,
    /// The others, with their numbers.
    pub absent: Vec<(u32, Absent)>,
    /// The sources of those that are there.
    pub unreadable: Vec<(SourcePath, Identity)>,
    pub diagnostics: Vec<Diagnostic>,
    /// Elements of a file that ends early cannot be read.
    pub is_cut: bool,
}

/// What only the first member that can be read has.
#[derive(Debug)]
pub struct First {
    pub name: String,
    pub is_classic: bool,
    pub attributes: Vec<Attribute>,
    /// The number of files that FMS says the set has.
    pub files: Option<u64>,
    is_hdf5: bool,
}

impl Collected {
    /// Reads the header of the member at `place`. Fails where it makes the set one that cannot be joined.
    pub fn add(
        &mut self,
        files: &LogFiles<'_>,
        name: &MemberName<'_>,
        place: &SourcePath,
    ) -> Result<()> {
        let file_name = place.path.file_name().unwrap_or_default();
        let file_name = file_name.to_string_lossy();
        let total = self.marked.first().and_then(|first| first.marks.total);
        let first = families::first_number(name.family);
        if total.is_some_and(|total| u64::from(name.number) >= total + u64::from(first)) {
            let text = format!("{file_name} is left over from a larger run, and ignored");
            self.diagnostics.push(Diagnostic::note(text));
            return Ok(());
        }
        let bad = |reason: String| {
            let set = files.dir().full_path(files.log());
            Error::of(set, format!("{file_name}: {reason}"))
        };
        let file = match files.open_if_usable(place)? {
            Ok(file) => file,
            Err(reason) => {
                self.push_absent(name.number, &file_name, reason);
                return Ok(());
            }
        };
        let source = (place.clone(), file.identity());
        match format::header(&file) {
            Ok(header) => {
                // Later reads of the header would see another state.
                file.check_unchanged()?;
                self.push(header, name, &file_name, &file).map_err(bad)?;
                self.sources.push(source);
            }
            Err(Fault::Damage(reason)) => {
                // The name of the file is said apart.
                let reason = reason.replace(&format!("{}: ", file.path().display()), "");
                self.push_absent(name.number, &file_name, reason);
                self.unreadable.push(source);
            }
            Err(Fault::Refused(reason)) => return Err(bad(reason)),
            Err(fault) => return Err(Error::of(file.path(), fault)),
        }
        Ok(())
    }

    /// The length of a member along a dimension, if it has that.
    pub fn len(&self, member: usize, dimension: usize) -> Option<u64> {
        self.marked[member].lens.get(dimension).copied().flatten()
    }

    fn push_absent(&mut self, number: u32, name: &str, reason: impl Into<String>) {
        let absent = Absent {
            name: name.to_owned(),
            reason: reason.into(),
            spans: None,
        };
        self.absent.push((number, absent));
    }

    /// Adds the members whose numbers the others ask for. Those that cannot be read, and are beyond these, go.
    pub fn add_missing(&mut self, total: u64, pattern: &MemberName<'_>) -> Checked<()> {
        if total > MOST_MEMBERS {
            return Err(format!(
                "{total} members, of which there may be {MOST_MEMBERS}"
            ));
        }
        let first = families::first_number(pattern.family);
        let numbers = first..first + total as u32;
        self.absent.retain(|(number, _)| numbers.contains(number));
        let there = self.marked.iter().map(|member| member.number);
        let there = there.chain(self.absent.iter().map(|(number, _)| *number));
        let there: HashSet<u32> = there.collect();
        for number in numbers.filter(|number| !there.contains(number)) {
            self.push_absent(number, &name_of(pattern, number), MISSING);
        }
        self.absent.sort_by_key(|(number, _)| *number);
        Ok(())
    }

    fn push(
        &mut self,
        header: MemberHeader,
        name: &MemberName<'_>,
        file_name: &str,
        file: &SourceFile,
    ) -> Checked<()> {
        let marks = families::marks(name.family, &header, name.number);
        let marks = marks.map_err(|unfit| match unfit {
            Unfit::Other(reason) | Unfit::Kind(reason) => reason,
        })?;
        let is_hdf5 = header.kind == FileKind::Hdf5;
        if let (Some(first), Some(marked)) = (&self.first, self.marked.first()) {
            if marks.total != marked.marks.total {
                let text = |total: Option<u64>| total.unwrap_or(0);
                let (own, of_first) = (text(marks.total), text(marked.marks.total));
                let text = format!(
                    "it is one of {own} members, and {} of {of_first}",
                    first.name
                );
                return Err(format!("{text}: two sets are mixed"));
            }
            if first.is_hdf5 != is_hdf5 {
                let format = |is_hdf5: bool| {
                    if is_hdf5 {
                        "netCDF-4"
                    } else {
                        "netCDF classic"
                    }
                };
                let (own, of_first) = (format(is_hdf5), format(first.is_hdf5));
                return Err(format!("it is {own}, and {} is {of_first}", first.name));
            }
        }
        let may_add = self.first.is_none() || name.family == Family::Roms;
        let first = self
            .first
            .as_ref()
            .map_or("the first", |first| &first.name)
            .to_owned();
        let numbers = self.add_dimensions(&header, &first, may_add)?;
        let places = self.add_variables(&header, &numbers, &first, may_add)?;
        let form = Form {
            kind: header.kind,
            places,
        };
        let form = *self.known.entry(form).or_insert_with_key(|form| {
            self.forms.push(form.clone());
            self.forms.len() as u32 - 1
        });
        let mut lens = vec![None; self.dimensions.len()];
        for (dimension, number) in header.dimensions.iter().zip(&numbers) {
            if let Some(number) = number {
                lens[*number] = Some(dimension.len);
            }
        }
        self.check_reach(&header, file_name, file);
        self.form_of.push(form);
        let held = header
            .reach
            .as_ref()
            .map_or(u64::MAX, |reach| reach.records);
        self.held.push(held);
        self.marked.push(Marked {
            name: file_name.to_owned(),
            number: name.number,
            lens,
            marks,
        });
        self.first.get_or_insert_with(|| First {
            name: file_name.to_owned(),
            is_classic: header.is_classic,
            files: families::fms_files(&header),
            attributes: header.attributes,
            is_hdf5,
        });
        Ok(())
    }

    /// The numbers of the member's dimensions in the set; `None` for one that the set lacks.
    fn add_dimensions(
        &mut self,
        header: &MemberHeader,
        first: &str,
        may_add: bool,
    ) -> Checked<Vec<Option<usize>>> {
        let mut numbers = Vec::new();
        for dimension in &header.dimensions {
            let mut number = self.dimension_by_name.get(&dimension.name).copied();
            if number.is_none() && may_add {
                number = Some(self.dimensions.len());
                self.dimension_by_name
                    .insert(dimension.name.clone(), self.dimensions.len());
                self.dimensions.push(dimension.clone());
            }
            let known = number.map(|number| &self.dimensions[number]);
            if known.is_some_and(|known| known.is_unlimited != dimension.is_unlimited) {
                let name = lossy(&dimension.name);
                return Err(format!(
                    "{name} is unlimited here, or in {first}, and not in both"
                ));
            }
            numbers.push(number);
        }
        let there: HashSet<usize> = numbers.iter().flatten().copied().collect();
        let mut all = 0..self.dimensions.len();
        match all.find(|number| !may_add && !there.contains(number)) {
            None => Ok(numbers),
            Some(missing) => {
                let name = lossy(&self.dimensions[missing].name);
                Err(format!("it has no dimension {name}, and {first} has it"))
            }
        }
    }

    /// The places of the set's variables in the member. `numbers`: those of its dimensions in the set.
    fn add_variables(
        &mut self,
        header: &MemberHeader,
        numbers: &[Option<usize>],
        first: &str,
        may_add: bool,
    ) -> Checked<Vec<Option<u64>>> {
        let mut places = vec![None; self.variables.len()];
        for variable in &header.variables {
            let name = lossy(&variable.name);
            let dimensions = variable.dimensions.iter().map(|d| numbers[*d]);
            let dimensions: Option<Vec<usize>> = dimensions.collect();
            let Some(number) = self.by_name.get(&variable.name).copied() else {
                let Some(dimensions) = dimensions.filter(|_| may_add) else {
                    return Err(format!("variable {name} is not in {first}"));
                };
                self.by_name
                    .insert(variable.name.clone(), self.variables.len());
                self.variables.push(Variable {
                    dimensions,
                    ..variable.clone()
                });
                places.push(Some(variable.place));
                continue;
            };
            let known = &self.variables[number];
            if known.kind != variable.kind {
                let (own, of_first) = (type_name(variable.kind), type_name(known.kind));
                return Err(format!(
                    "variable {name} is {own}, and {of_first} in {first}"
                ));
            }
            if dimensions.as_ref() != Some(&known.dimensions) {
                let own = listed(&header.dimensions, &variable.dimensions);
                let of_first = listed(&self.dimensions, &known.dimensions);
                return Err(format!(
                    "variable {name} has the dimensions {own}, and {of_first} in {first}"
                ));
            }
            places[number] = Some(variable.place);
        }
        match places.iter().position(Option::is_none).filter(|_| !may_add) {
            None => Ok(places),
            Some(missing) => {
                let name = lossy(&self.variables[missing].name);
                Err(format!("it has no variable {name}, and {first} has it"))
            }
        }
    }

    /// Notes a classic file that ends before its data.
    fn check_reach(&mut self, header: &MemberHeader, file_name: &str, file: &SourceFile) {
        let Some(reach) = header.reach.filter(|reach| reach.all > file.len()) else {
            return;
        };
        let text = format!(
            "ends at byte {}, its data reach to byte {}",
            file.len(),
            reach.all
        );
        let modified = u64::try_from(file.identity().modified.0).unwrap_or(0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let age = now
            .unwrap_or_default()
            .saturating_sub(Duration::from_secs(modified));
        let finding = if age < YOUNG && reach.before_last_record <= file.len() {
            Diagnostic::note(format!("{text}: its last record may still be written"))
        } else {
            Diagnostic::lost(format!("{text}: the elements behind cannot be read")).counted()
        };
        self.is_cut = true;
        self.diagnostics.push(finding.at(file_name));
    }
}

/// The names of dimensions with these numbers.
fn listed(dimensions: &[Dimension], numbers: &[usize]) -> String {
    let names = numbers
        .iter()
        .map(|number| lossy(&dimensions[*number].name));
    names.collect::<Vec<_>>().join(", ")
}

/// The name of the member with another number.
fn name_of(pattern: &MemberName<'_>, number: u32) -> String {
    let joined = pattern.joined();
    let joined = joined.to_string_lossy();
    let stem = joined.strip_suffix(".nc").unwrap_or(&joined);
    let digits = pattern.digits;
    match pattern.family {
        Family::Fms => format!("{joined}.{number:0digits$}"),
        Family::Nemo => format!("{stem}_{number:0digits$}.nc"),
        Family::Roms => format!("{stem}.{number:0digits$}.nc"),
        Family::Mitgcm => format!("{stem}.t{number:0digits$}.nc"),
    }
}
