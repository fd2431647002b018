//! The headers of all members, as they are read.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use super::MOST_MEMBERS;
use crate::log_files::LogFiles;
use crate::snapshot::Source;
use crate::source_dir::SourcePath;
use crate::source_file::SourceFile;
use crate::tiles::families::{self, Marked};
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

/// The members so far.
#[derive(Debug, Default)]
pub struct Collected {
    pub first: Option<First>,
    /// The dimensions of the set, with the lengths of the member that has them first.
    pub dimensions: Vec<Dimension>,
    /// The variables of the set, with numbers of its dimensions.
    pub variables: Vec<Variable>,
    /// The members that can be read.
    pub marked: Vec<Marked>,
    /// Their forms and sources.
    pub form_of: Vec<u32>,
    pub sources: Vec<Source>,
    pub forms: Vec<Form>,
    known: HashMap<Form, u32>,
    /// The others, with their numbers.
    pub absent: Vec<(u32, Absent)>,
    /// The sources of those that are there.
    pub unreadable: Vec<Source>,
    /// Findings about files that end early.
    pub cut: Vec<Diagnostic>,
    /// Elements of a file that ends early cannot be read.
    pub is_cut: bool,
    pub diagnostics: Vec<Diagnostic>,
    /// How many members there are beyond those of the set.
    left_over: u64,
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
        let file_name = place.path.file_name().unwrap_or_default().to_string_lossy();
        if self.is_left_over(name) {
            self.left_over += 1;
            if self.left_over == 1 {
                let text =
                    format!("{file_name} and those after it are left over from a larger run");
                self.diagnostics.push(Diagnostic::note(text));
            }
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
        let source = Source::whole(place.clone(), file.identity());
        let header = match MemberHeader::read(&file) {
            Ok(header) => header,
            Err(Fault::Damage(reason)) => {
                self.push_absent(name.number, &file_name, reason);
                self.unreadable.push(source);
                return Ok(());
            }
            Err(Fault::Refused(reason)) => return Err(bad(reason)),
            Err(fault) => return Err(Error::of(file.path(), fault)),
        };
        // Later reads of the header would see another state.
        file.check_unchanged()?;
        self.push(header, name, &file_name, &file).map_err(bad)?;
        self.sources.push(source);
        Ok(())
    }

    fn is_left_over(&self, name: &MemberName<'_>) -> bool {
        let total = self.marked.first().and_then(|first| first.marks.total());
        let place = name.number.checked_sub(families::first_number(name.family));
        total.is_some_and(|total| place.is_some_and(|place| u64::from(place) >= total))
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
    pub fn add_missing(
        &mut self,
        total: u64,
        pattern: &MemberName<'_>,
    ) -> std::result::Result<(), String> {
        if total > MOST_MEMBERS {
            return Err(format!(
                "{total} members, of which there may be {MOST_MEMBERS}"
            ));
        }
        let first = families::first_number(pattern.family);
        let numbers = first..first + total as u32;
        self.absent.retain(|(number, _)| numbers.contains(number));
        let there = self.marked.iter().map(|member| member.number);
        let there: HashSet<u32> = there
            .chain(self.absent.iter().map(|(number, _)| *number))
            .collect();
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
    ) -> std::result::Result<(), String> {
        let marks = families::marks(name.family, &header, name.number)?;
        let of_first = self.marked.first().map(|first| first.marks.total());
        if let Some(total) = of_first.filter(|total| *total != marks.total()) {
            let text =
                |total: Option<u64>| total.map_or_else(String::new, |total| total.to_string());
            let first = &self.marked[0].name;
            let (own, total) = (text(marks.total()), text(total));
            return Err(format!(
                "it is of a set of {own} members, and {first} of {total}: two sets are mixed"
            ));
        }
        let may_differ = name.family == Family::Roms;
        let numbers = self.add_dimensions(&header, file_name, may_differ)?;
        let places = self.add_variables(&header, &numbers, may_differ)?;
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
        self.marked.push(Marked {
            name: file_name.to_owned(),
            number: name.number,
            lens,
            marks,
        });
        let is_hdf5 = header.kind == FileKind::Hdf5;
        match &self.first {
            None => {
                self.first = Some(First {
                    name: file_name.to_owned(),
                    is_classic: header.is_classic,
                    files: families::fms_files(&header),
                    attributes: header.attributes,
                    is_hdf5,
                });
                Ok(())
            }
            Some(first) if first.is_hdf5 != is_hdf5 => {
                let format = |is_hdf5: bool| {
                    if is_hdf5 {
                        "netCDF-4"
                    } else {
                        "netCDF classic"
                    }
                };
                let (own, of_first) = (format(is_hdf5), format(first.is_hdf5));
                Err(format!("it is {own}, and {} {of_first}", first.name))
            }
            Some(_) => Ok(()),
        }
    }

    /// The numbers of the member's dimensions in the set; `None` for one that the set lacks.
    fn add_dimensions(
        &mut self,
        header: &MemberHeader,
        file_name: &str,
        may_differ: bool,
    ) -> std::result::Result<Vec<Option<usize>>, String> {
        let first = self
            .first
            .as_ref()
            .map_or(file_name, |first| &first.name)
            .to_owned();
        let is_first = self.first.is_none();
        let mut numbers = Vec::new();
        for (position, dimension) in header.dimensions.iter().enumerate() {
            let name = lossy(&dimension.name);
            let alike = self
                .dimensions
                .get(position)
                .filter(|known| known.name == dimension.name);
            let number = match alike {
                Some(_) => Some(position),
                None => self
                    .dimensions
                    .iter()
                    .position(|known| known.name == dimension.name),
            };
            match number.map(|number| &self.dimensions[number]) {
                Some(known) if known.is_unlimited != dimension.is_unlimited => {
                    let text = |is_unlimited: bool| {
                        if is_unlimited {
                            "unlimited"
                        } else {
                            "of a fixed length"
                        }
                    };
                    let (own, of_first) = (text(dimension.is_unlimited), text(known.is_unlimited));
                    return Err(format!("{name} is {own}, and {of_first} in {first}"));
                }
                None if is_first || may_differ => {
                    self.dimensions.push(dimension.clone());
                    numbers.push(Some(self.dimensions.len() - 1));
                }
                _ => numbers.push(number),
            }
        }
        let has = |number: usize| numbers.contains(&Some(number));
        match (0..self.dimensions.len()).find(|number| !may_differ && !has(*number)) {
            None => Ok(numbers),
            Some(missing) => {
                let name = lossy(&self.dimensions[missing].name);
                Err(format!("it has no dimension {name}, and {first} has it"))
            }
        }
    }

    /// The places of the set's variables in the member.
    fn add_variables(
        &mut self,
        header: &MemberHeader,
        numbers: &[Option<usize>],
        may_differ: bool,
    ) -> std::result::Result<Vec<Option<u64>>, String> {
        let is_first = self.first.is_none();
        let first = self
            .first
            .as_ref()
            .map(|first| first.name.clone())
            .unwrap_or_default();
        // Nearly always the members have their variables in one order.
        let by_name = || {
            self.variables
                .iter()
                .enumerate()
                .map(|(number, v)| (v.name.clone(), number))
        };
        let mut index: Option<HashMap<Vec<u8>, usize>> = None;
        let mut places = vec![None; self.variables.len()];
        let mut new = Vec::new();
        for (position, variable) in header.variables.iter().enumerate() {
            let alike = self
                .variables
                .get(position)
                .filter(|known| known.name == variable.name);
            let number = match alike {
                Some(_) => Some(position),
                None => index
                    .get_or_insert_with(|| by_name().collect())
                    .get(&variable.name)
                    .copied(),
            };
            let dimensions = variable
                .dimensions
                .iter()
                .map(|d| numbers.get(*d).copied().flatten());
            let dimensions: Option<Vec<usize>> = dimensions.collect();
            match number {
                Some(number) => {
                    check_alike(
                        &self.variables[number],
                        variable,
                        dimensions.as_deref(),
                        &first,
                        &self.dimensions,
                        header,
                    )?;
                    places[number] = Some(variable.place);
                }
                None if is_first || may_differ => new.push(Variable {
                    dimensions: dimensions.unwrap_or_default(),
                    ..variable.clone()
                }),
                None => {
                    return Err(format!(
                        "variable {} is not in {first}",
                        lossy(&variable.name)
                    ));
                }
            }
        }
        if let Some(missing) = places
            .iter()
            .position(Option::is_none)
            .filter(|_| !may_differ)
        {
            let name = lossy(&self.variables[missing].name);
            return Err(format!("it has no variable {name}, and {first} has it"));
        }
        places.extend(new.iter().map(|variable| Some(variable.place)));
        self.variables.extend(new);
        Ok(places)
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
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let is_young = now.saturating_sub(Duration::from_secs(modified)) < YOUNG;
        let finding = if is_young && reach.before_last_record <= file.len() {
            Diagnostic::note(format!("{text}: its last record may still be written"))
        } else {
            Diagnostic::lost(format!("{text}: the elements behind cannot be read"))
        };
        self.is_cut = true;
        self.cut.push(finding.at(file_name));
    }
}

/// Fails where a variable is not that of the first member.
fn check_alike(
    known: &Variable,
    own: &Variable,
    dimensions: Option<&[usize]>,
    first: &str,
    all: &[Dimension],
    header: &MemberHeader,
) -> std::result::Result<(), String> {
    let name = lossy(&own.name);
    if known.kind != own.kind {
        let (own, of_first) = (type_name(own.kind), type_name(known.kind));
        return Err(format!(
            "variable {name} is {own}, and {of_first} in {first}"
        ));
    }
    if dimensions == Some(&known.dimensions) {
        return Ok(());
    }
    let list = |dimensions: &[Dimension], numbers: &[usize]| {
        let names = numbers.iter().filter_map(|number| dimensions.get(*number));
        let names: Vec<_> = names
            .map(|dimension| lossy(&dimension.name).into_owned())
            .collect();
        names.join(", ")
    };
    let (own, of_first) = (
        list(&header.dimensions, &own.dimensions),
        list(all, &known.dimensions),
    );
    Err(format!(
        "variable {name} has the dimensions {own}, and {of_first} in {first}"
    ))
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
