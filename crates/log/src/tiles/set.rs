//! The members of a set, and the file that they make up (section 8).

mod absent;
mod collected;
mod joined;
mod overlap;

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use super::families::{self, Cut, Members};
use super::member::{Attribute, Dimension, Variable, lossy};
use super::names::MemberName;
use super::{Absent, Axis, Family, Member, Tables};
use crate::log_files::LogFiles;
use crate::snapshot::Source;
use crate::source_dir::SourcePath;
use collected::Collected;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_hdf5_format::MAX_RANK;
pub use joined::gap_value;

/// The most members. Sources have 16-bit numbers.
const MOST_MEMBERS: u64 = u16::MAX as u64;
/// The most names that one message lists.
const MOST_NAMES: usize = 8;
/// How young the newest member of a set is that may be copied at the moment.
const COPIED: Duration = Duration::from_secs(10);

/// A set whose members were read.
#[derive(Debug)]
pub struct Set {
    /// What readers need. A variable has the number of its place in [`Joined::variables`].
    pub tables: Tables,
    /// The header of the joined file.
    pub joined: Joined,
    /// The members that can be read, in the order of [`Tables::members`], and behind them those that are there, and cannot.
    pub sources: Vec<Source>,
    /// What is wrong or worth knowing.
    pub diagnostics: Vec<Diagnostic>,
    /// Some elements are known to be unreadable.
    pub has_unreadable: bool,
}

/// The header of the joined file.
#[derive(Debug)]
pub struct Joined {
    /// Dimensions, with the lengths of the whole.
    pub dimensions: Vec<Dimension>,
    /// Global attributes.
    pub attributes: Vec<Attribute>,
    /// Variables. Their places mean nothing.
    pub variables: Vec<Variable>,
    /// The file has nothing that netCDF's classic model lacks, and says so.
    pub is_classic: bool,
}

/// Reads the headers of all members, one after the other. `members` are by ascending number. Fails where they are no set that can
/// be joined, with the reason.
pub fn read(files: &LogFiles<'_>, members: &[SourcePath]) -> Result<Set> {
    let joined = files.dir().full_path(files.log());
    let bad = |reason: String| Error::of(&joined, reason);
    let name = files.log().file_name().unwrap_or_default();
    let named = named(name, members).map_err(bad)?;
    let mut collected = Collected::default();
    for (name, place) in &named {
        collected.add(files, name, place)?;
    }
    let pattern = named.first().map(|(name, _)| *name);
    let pattern = pattern.ok_or_else(|| bad("it has no member".to_owned()))?;
    finish(collected, name, &pattern).map_err(bad)
}

/// The names of the members, taken apart.
fn named<'m>(
    joined: &OsStr,
    members: &'m [SourcePath],
) -> Result<Vec<(MemberName<'m>, &'m SourcePath)>, String> {
    if members.len() as u64 > MOST_MEMBERS {
        return Err(format!(
            "{} members, of which there may be {MOST_MEMBERS}",
            members.len()
        ));
    }
    let mut named: Vec<(MemberName<'m>, &SourcePath)> = Vec::new();
    for place in members {
        let file = place.path.file_name().unwrap_or_default();
        let name = MemberName::parse(file).filter(|name| name.joined() == joined);
        let name = name.ok_or_else(|| format!("{} is no name of a member", file.display()))?;
        if let Some((before, _)) = named.last()
            && (before.family != name.family || before.number >= name.number)
        {
            return Err(format!(
                "{} has the number of another member, or is out of order",
                file.display()
            ));
        }
        named.push((name, place));
    }
    Ok(named)
}

/// Puts the members together.
fn finish(
    mut collected: Collected,
    joined: &OsStr,
    pattern: &MemberName<'_>,
) -> Result<Set, String> {
    let Some(first) = collected.first.take() else {
        let reason = collected.absent.first();
        let reason = reason.map_or(String::new(), |(_, one)| {
            format!(" ({}: {})", one.name, one.reason)
        });
        return Err(format!("no member can be read yet{reason}"));
    };
    let mut diagnostics = std::mem::take(&mut collected.diagnostics);
    let total = collected
        .marked
        .first()
        .and_then(|first| first.marks.total());
    if let Some(total) = total {
        collected.add_missing(total, pattern)?;
    }
    let names: Vec<Vec<u8>> = collected
        .dimensions
        .iter()
        .map(|d| d.name.clone())
        .collect();
    let members = Members {
        dimensions: &names,
        members: &collected.marked,
        are_all: collected.absent.is_empty(),
    };
    let cuts = families::place(&members)?;
    check_dimensions(&collected.dimensions, &members, &cuts)?;
    let unlimited: Vec<usize> = (0..names.len())
        .filter(|d| collected.dimensions[*d].is_unlimited)
        .collect();
    let axis_of = |dimension: usize| axis(dimension, &cuts, &unlimited);
    for variable in &collected.variables {
        check_variable(variable, &names, axis_of).map_err(|e| format!("{}: {e}", first.name))?;
    }
    check_overlap(&collected, &cuts, axis_of)?;
    let boxes = absent::boxes(&collected, &cuts, total);
    let absent = collected.absent.iter().zip(boxes);
    let absent: Vec<Absent> = absent
        .map(|((_, one), spans)| Absent {
            spans,
            ..one.clone()
        })
        .collect();
    diagnostics.extend(absent_members(&absent, &collected, total));
    if pattern.family == Family::Fms {
        diagnostics.extend(masked(&collected, first.files));
    }
    let lens = joined::lengths(&collected, &cuts);
    diagnostics.extend(unequal_records(&collected, &unlimited, &lens));
    let variables = joined::variables(&collected, pattern.family, &members, &cuts, axis_of);
    let header = joined::header(&mut collected, first, pattern.family, joined, &lens)?;
    let has_unreadable = !absent.is_empty() || collected.is_cut;
    let mut forms = collected.forms;
    forms
        .iter_mut()
        .for_each(|form| form.places.resize(variables.len(), None));
    let members = collected.marked.iter().zip(&collected.form_of).enumerate();
    let members = members.map(|(number, (member, form))| Member {
        form: *form,
        spans: cuts.iter().map(|cut| cut.spans[number]).collect(),
        records: unlimited
            .iter()
            .map(|d| member.lens.get(*d).copied().flatten().unwrap_or(0))
            .collect(),
    });
    Ok(Set {
        tables: Tables {
            family: pattern.family,
            members: members.collect(),
            absent,
            forms,
            variables,
        },
        joined: header,
        sources: collected
            .sources
            .into_iter()
            .chain(collected.unreadable)
            .collect(),
        diagnostics,
        has_unreadable,
    })
}

fn axis(dimension: usize, cuts: &[Cut], unlimited: &[usize]) -> Axis {
    let number = |position: usize| u16::try_from(position).unwrap_or(u16::MAX);
    if let Some(cut) = cuts.iter().position(|cut| cut.dimension == dimension) {
        return Axis::Cut(number(cut));
    }
    let records = unlimited.iter().position(|own| *own == dimension);
    records.map_or(Axis::Whole, |position| Axis::Records(number(position)))
}

/// Fails where the lengths of dimensions contradict each other (section 10).
fn check_dimensions(
    dimensions: &[Dimension],
    members: &Members<'_>,
    cuts: &[Cut],
) -> Result<(), String> {
    if dimensions.len() > usize::from(u16::MAX) {
        return Err(format!("{} dimensions", dimensions.len()));
    }
    let first = &members.members[0];
    for (number, dimension) in dimensions.iter().enumerate() {
        let name = lossy(&dimension.name);
        let cut = cuts.iter().find(|cut| cut.dimension == number);
        if cut.is_some() && dimension.is_unlimited {
            return Err(format!(
                "{}: {name} is decomposed, and unlimited",
                first.name
            ));
        }
        for (position, member) in members.members.iter().enumerate() {
            let Some(len) = member.lens.get(number).copied().flatten() else {
                continue;
            };
            let file = &member.name;
            if let Some(cut) = cut {
                let span = cut.spans[position];
                let end = span.at.checked_add(span.len);
                if span.all != len || end.is_none_or(|end| end > cut.whole) {
                    return Err(format!(
                        "{file}: its part of {name} is {} points at {} of {}, and it has {len}",
                        span.len, span.at, cut.whole
                    ));
                }
            } else if !dimension.is_unlimited && len != dimension.len {
                let (of_first, first) = (dimension.len, &first.name);
                return Err(format!(
                    "{file}: {name} has {len} points, and {of_first} in {first}"
                ));
            }
        }
    }
    Ok(())
}

fn check_variable(
    variable: &Variable,
    names: &[Vec<u8>],
    axis_of: impl Fn(usize) -> Axis,
) -> Result<(), String> {
    let name = lossy(&variable.name);
    if variable.dimensions.len() > MAX_RANK {
        return Err(format!(
            "variable {name} has {} dimensions",
            variable.dimensions.len()
        ));
    }
    let is_cut = |d: &&usize| matches!(axis_of(**d), Axis::Cut(_));
    let decomposed: Vec<usize> = variable.dimensions.iter().filter(is_cut).copied().collect();
    match *decomposed.as_slice() {
        [one, other] if one == other => {
            Err(format!("variable {name} has {} twice", lossy(&names[one])))
        }
        [] | [_] | [_, _] => Ok(()),
        _ => Err(format!(
            "variable {name} is decomposed along {} dimensions",
            decomposed.len()
        )),
    }
}

fn check_overlap(
    collected: &Collected,
    cuts: &[Cut],
    axis_of: impl Fn(usize) -> Axis,
) -> Result<(), String> {
    let cut_of = |dimension: &usize| match axis_of(*dimension) {
        Axis::Cut(number) => Some(usize::from(number)),
        _ => None,
    };
    let cuts_of = |variable: &Variable| {
        variable
            .dimensions
            .iter()
            .filter_map(cut_of)
            .collect::<Vec<_>>()
    };
    let mut of_variables = collected.variables.iter().map(cuts_of);
    // The variables that are decomposed in both directions tell which dimensions lie across each other.
    let axes = of_variables.find(|cuts| cuts.len() == 2);
    let Some((one, other)) = overlap::find(cuts, axes.as_deref()) else {
        return Ok(());
    };
    let [one, other] =
        [one, other].map(|number| (&collected.marked[number].name, &collected.sources[number]));
    let age = |source: &Source| source.identity.modified.0;
    let apart = age(one.1) - age(other.1);
    let (older, seconds) = if apart < 0 {
        (one.0, -apart)
    } else {
        (other.0, apart)
    };
    Err(format!(
        "members overlap: {} and {}; {older} is {seconds} s older, and may be left over from another run",
        one.0, other.0
    ))
}

// --- diagnostics ---------------------------------------------------------------------------------

/// The first names, and how many more there are.
fn listed<'n>(names: impl ExactSizeIterator<Item = &'n str>) -> String {
    let more = names.len().saturating_sub(MOST_NAMES);
    let names: Vec<&str> = names.take(MOST_NAMES).collect();
    let names = names.join(", ");
    if more > 0 {
        format!("{names} and {more} more")
    } else {
        names
    }
}

/// The losses of members that are missing, or there and unreadable.
fn absent_members(absent: &[Absent], collected: &Collected, total: Option<u64>) -> Vec<Diagnostic> {
    let is_missing = |one: &&Absent| one.reason == collected::MISSING;
    let missing: Vec<&str> = absent
        .iter()
        .filter(is_missing)
        .map(|one| one.name.as_str())
        .collect();
    let mut found = Vec::new();
    if let (Some(total), false) = (total, missing.is_empty()) {
        let there = total - missing.len() as u64;
        let verb = if missing.len() == 1 { "is" } else { "are" };
        let names = listed(missing.iter().copied());
        found.push(Diagnostic::lost(format!(
            "{there} of {total} members are there, {names} {verb} missing: elements that no member has cannot be read"
        )));
    }
    let unreadable = absent.iter().filter(|one| !is_missing(one));
    found.extend(unreadable.map(|one| Diagnostic::lost(one.reason.clone()).at(&one.name)));
    found.extend(collected.cut.iter().cloned());
    found
}

/// The note of an FMS set that has fewer files than its members say (section 8.5).
fn masked(collected: &Collected, files: Option<u64>) -> Option<Diagnostic> {
    // In regional sets the writer does not know the number.
    let files = files.filter(|files| *files > 0)?;
    let numbers = collected.marked.iter().map(|member| member.number);
    let numbers: Vec<u32> = numbers
        .chain(collected.absent.iter().map(|(number, _)| *number))
        .collect();
    let there = numbers.len() as u64;
    if there > files {
        let text = format!(
            "{there} members are there, and {files} make up the set: some may be left over from another run"
        );
        return Some(Diagnostic::note(text));
    }
    if there == files {
        return None;
    }
    let mut text = format!("{there} of {files} members are there; masked tiles have none");
    if numbers.iter().all(|number| u64::from(*number) < there) {
        text += "; only the last ones are not there";
    }
    let newest = collected
        .sources
        .iter()
        .map(|source| source.identity.modified.0)
        .max();
    let newest = newest
        .and_then(|at| u64::try_from(at).ok())
        .map(Duration::from_secs);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    if let (Some(newest), Ok(now)) = (newest, now)
        && now.saturating_sub(newest) < COPIED
    {
        text += "; the newest is some seconds old: they may be copied at the moment";
    }
    Some(Diagnostic::note(text))
}

/// Notes of dimensions along which members have unequal lengths (section 8.6).
fn unequal_records(collected: &Collected, unlimited: &[usize], lens: &[u64]) -> Vec<Diagnostic> {
    let mut notes = Vec::new();
    for dimension in unlimited {
        let most = lens[*dimension];
        let members = collected.marked.iter();
        let shorter = members.filter_map(|member| {
            let len = member.lens.get(*dimension).copied().flatten()?;
            (len < most).then(|| format!("{len} in {}", member.name))
        });
        let shorter: Vec<String> = shorter.collect();
        if !shorter.is_empty() {
            let name = lossy(&collected.dimensions[*dimension].name);
            let names = listed(shorter.iter().map(String::as_str));
            notes.push(Diagnostic::note(format!(
                "records along {name}: {most}, but {names}"
            )));
        }
    }
    notes
}
