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
use crate::source_dir::SourcePath;
use crate::source_file::Identity;
use collected::{Collected, MISSING};
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

type Checked<T> = std::result::Result<T, String>;

/// A set whose members were read.
#[derive(Debug)]
pub struct Set {
    /// What readers need. A variable has the number of its place in [`Joined::variables`].
    pub tables: Tables,
    /// The header of the joined file.
    pub joined: Joined,
    /// The members that can be read, in the order of [`Tables::members`], and behind them those that are there, and cannot.
    pub sources: Vec<(SourcePath, Identity)>,
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
    let path = files.dir().full_path(files.log());
    let bad = |reason: String| Error::of(&path, reason);
    let joined = files.log().file_name().unwrap_or_default();
    if members.len() as u64 > MOST_MEMBERS {
        let text = format!(
            "{} members, of which there may be {MOST_MEMBERS}",
            members.len()
        );
        return Err(bad(text));
    }
    let mut collected = Collected::default();
    let mut last: Option<MemberName<'_>> = None;
    for place in members {
        let file = place.path.file_name().unwrap_or_default();
        let name = MemberName::parse(file).filter(|name| name.joined() == joined);
        let is_next = |name: &MemberName<'_>| {
            last.is_none_or(|last| last.family == name.family && last.number < name.number)
        };
        let Some(name) = name.filter(is_next) else {
            let text = "is no member, or has the number of another one";
            return Err(bad(format!("{} {text}", file.display())));
        };
        collected.add(files, &name, place)?;
        last = Some(name);
    }
    let pattern = last.ok_or_else(|| bad("it has no member".to_owned()))?;
    finish(collected, joined, &pattern).map_err(bad)
}

/// Puts the members together.
fn finish(mut collected: Collected, joined: &OsStr, pattern: &MemberName<'_>) -> Checked<Set> {
    let family = pattern.family;
    let (Some(first), Some(marked)) = (collected.first.take(), collected.marked.first()) else {
        let reasons = collected.absent.first();
        let reason = reasons.map(|(_, one)| format!(" ({}: {})", one.name, one.reason));
        return Err(format!(
            "no member can be read yet{}",
            reason.unwrap_or_default()
        ));
    };
    let total = marked.marks.total;
    if let Some(total) = total {
        collected.add_missing(total, pattern)?;
    }
    let names = collected
        .dimensions
        .iter()
        .map(|dimension| dimension.name.clone());
    let names: Vec<Vec<u8>> = names.collect();
    let members = Members {
        dimensions: &names,
        members: &collected.marked,
        are_all: collected.absent.is_empty(),
    };
    let cuts = families::place(family, &members)?;
    let of_first = |text: String| format!("{}: {text}", first.name);
    check_dimensions(&collected.dimensions, &members, &cuts)?;
    let axes = Axes::of(&collected.dimensions, &cuts);
    let mut variables = collected.variables.iter();
    variables.try_for_each(|variable| axes.check(variable, &names).map_err(of_first))?;
    check_overlap(&collected, &cuts, &axes)?;
    let mut absent = std::mem::take(&mut collected.absent);
    let from = families::first_number(family);
    absent::place(&mut absent, &collected.marked, &cuts, from, total);
    let numbers = collected.marked.iter().map(|member| member.number);
    let numbers: Vec<u32> = numbers
        .chain(absent.iter().map(|(number, _)| *number))
        .collect();
    let absent: Vec<Absent> = absent.into_iter().map(|(_, absent)| absent).collect();
    let lens = joined::lengths(&collected, &cuts);
    let mut diagnostics = std::mem::take(&mut collected.diagnostics);
    diagnostics.extend(losses(&absent, total));
    // In regional sets the writer does not know the number of files.
    if let Some(files) = first
        .files
        .filter(|files| family == Family::Fms && *files > 0)
    {
        diagnostics.extend(masked(&numbers, files, &collected.sources));
    }
    diagnostics.extend(
        axes.records
            .iter()
            .filter_map(|d| unequal_records(&collected, *d, lens[*d])),
    );
    let variables = joined::variables(&collected, family, &members, &cuts, &axes);
    let form_of = collected.form_of.iter().enumerate();
    let tables_of = form_of.map(|(number, form)| Member {
        form: *form,
        spans: cuts.iter().map(|cut| cut.spans[number]).collect(),
        records: axes
            .records
            .iter()
            .map(|d| collected.len(number, *d).unwrap_or(0).min(lens[*d]))
            .collect(),
    });
    let tables_of = tables_of.collect();
    let mut forms = std::mem::take(&mut collected.forms);
    forms
        .iter_mut()
        .for_each(|form| form.places.resize(variables.len(), None));
    let sources = std::mem::take(&mut collected.sources).into_iter();
    Ok(Set {
        has_unreadable: !absent.is_empty() || collected.is_cut,
        sources: sources
            .chain(std::mem::take(&mut collected.unreadable))
            .collect(),
        joined: joined::header(collected, first, family, joined, &lens)?,
        tables: Tables {
            family,
            members: tables_of,
            absent,
            forms,
            variables,
        },
        diagnostics,
    })
}

/// The axes of the dimensions of a set, by number.
struct Axes {
    axes: Vec<Axis>,
    /// The numbers of the unlimited dimensions.
    records: Vec<usize>,
}

impl Axes {
    fn of(dimensions: &[Dimension], cuts: &[Cut]) -> Self {
        let (mut axes, mut records) = (Vec::new(), Vec::new());
        for (number, dimension) in dimensions.iter().enumerate() {
            let cut = cuts.iter().position(|cut| cut.dimension == number);
            axes.push(match cut {
                Some(cut) => Axis::Cut(cut as u16),
                None if dimension.is_unlimited => Axis::Records(records.len() as u16),
                None => Axis::Whole,
            });
            records.extend(dimension.is_unlimited.then_some(number));
        }
        Axes { axes, records }
    }

    fn all(&self, variable: &Variable) -> Vec<Axis> {
        variable.dimensions.iter().map(|d| self.axes[*d]).collect()
    }

    /// The decomposed dimensions of a variable.
    fn cuts(&self, variable: &Variable) -> Vec<usize> {
        let all = self.all(variable).into_iter();
        all.filter_map(|axis| match axis {
            Axis::Cut(number) => Some(usize::from(number)),
            _ => None,
        })
        .collect()
    }

    fn check(&self, variable: &Variable, names: &[Vec<u8>]) -> Checked<()> {
        let (name, rank) = (lossy(&variable.name), variable.dimensions.len());
        if rank > MAX_RANK {
            return Err(format!("variable {name} has {rank} dimensions"));
        }
        match *self.cuts(variable).as_slice() {
            [] | [_] => Ok(()),
            [one, other] if one != other => Ok(()),
            ref several => {
                let of = variable.dimensions.iter().map(|d| lossy(&names[*d]));
                let (of, count) = (of.collect::<Vec<_>>().join(", "), several.len());
                Err(format!(
                    "variable {name} ({of}) is decomposed {count} times, or twice alike"
                ))
            }
        }
    }
}

/// Fails where the lengths of dimensions contradict each other (section 10).
fn check_dimensions(dimensions: &[Dimension], members: &Members<'_>, cuts: &[Cut]) -> Checked<()> {
    if dimensions.len() > usize::from(u16::MAX) {
        return Err(format!("{} dimensions", dimensions.len()));
    }
    let first = &members.members[0].name;
    for (number, dimension) in dimensions.iter().enumerate() {
        let name = lossy(&dimension.name);
        let cut = cuts.iter().find(|cut| cut.dimension == number);
        if cut.is_some() && dimension.is_unlimited {
            return Err(format!("{first}: {name} is decomposed, and unlimited"));
        }
        for (position, member) in members.members.iter().enumerate() {
            let Some(len) = member.lens.get(number).copied().flatten() else {
                continue;
            };
            let file = &member.name;
            if let Some((span, whole)) = cut.map(|cut| (cut.spans[position], cut.whole)) {
                let end = span.at.checked_add(span.len);
                if span.all != len || end.is_none_or(|end| end > whole) {
                    let part = format!("{} points at {} of {whole}", span.all, span.at);
                    return Err(format!(
                        "{file}: its part of {name} is {part}, and it has {len}"
                    ));
                }
            } else if !dimension.is_unlimited && len != dimension.len {
                let of_first = dimension.len;
                return Err(format!(
                    "{file}: {name} has {len} points, and {of_first} in {first}"
                ));
            }
        }
    }
    Ok(())
}

fn check_overlap(collected: &Collected, cuts: &[Cut], axes: &Axes) -> Checked<()> {
    // The variables that are decomposed in both directions tell which dimensions lie across each other.
    let mut of_variables = collected
        .variables
        .iter()
        .map(|variable| axes.cuts(variable));
    let across = of_variables.find(|cuts| cuts.len() == 2);
    let Some((one, other)) = overlap::find(cuts, across.as_deref()) else {
        return Ok(());
    };
    let of = |number: usize| {
        let modified = collected.sources[number].1.modified.0;
        (&collected.marked[number].name, modified)
    };
    let ((one, time), (other, of_other)) = (of(one), of(other));
    let older = if time < of_other { one } else { other };
    let apart = time.abs_diff(of_other);
    Err(format!(
        "members overlap: {one} and {other}; {older} is {apart} s older, and may be left over from another run"
    ))
}

// --- diagnostics ---------------------------------------------------------------------------------

/// The first of some texts, and how many more there are.
fn listed(texts: &[String]) -> String {
    let shown = &texts[..texts.len().min(MOST_NAMES)];
    match texts.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The losses of members that are missing, or there and unreadable.
fn losses(absent: &[Absent], total: Option<u64>) -> Vec<Diagnostic> {
    let (missing, unreadable): (Vec<_>, Vec<_>) =
        absent.iter().partition(|one| one.reason == MISSING);
    let of = unreadable
        .iter()
        .map(|one| Diagnostic::lost(&one.reason).at(&one.name).counted());
    let mut found: Vec<Diagnostic> = of.collect();
    if let (Some(total), false) = (total, missing.is_empty()) {
        let there = total - missing.len() as u64;
        let verb = if missing.len() == 1 { "is" } else { "are" };
        let names: Vec<String> = missing.iter().map(|one| one.name.clone()).collect();
        let names = listed(&names);
        found.push(Diagnostic::lost(format!(
            "{there} of {total} members are there, {names} {verb} missing: elements that no member has cannot be read"
        )).counted());
    }
    found
}

/// The note of an FMS set that has fewer files than its members say (section 8.5).
fn masked(numbers: &[u32], files: u64, sources: &[(SourcePath, Identity)]) -> Option<Diagnostic> {
    let there = numbers.len() as u64;
    let mut text = format!("{there} of {files} members are there");
    if there > files {
        text += ": some may be left over from another run";
        return Some(Diagnostic::note(text));
    }
    text += "; masked tiles have none";
    if numbers.iter().all(|number| u64::from(*number) < there) {
        text += "; only the last ones are not there";
    }
    let newest = sources
        .iter()
        .map(|(_, identity)| identity.modified.0)
        .max();
    let newest = newest
        .and_then(|at| u64::try_from(at).ok())
        .map(Duration::from_secs);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    if newest.is_some_and(|newest| now.saturating_sub(newest) < COPIED) {
        text += "; the newest is a few seconds old: they may still be being copied";
    }
    (there < files).then(|| Diagnostic::note(text))
}

/// The note of a dimension along which members have unequal lengths (section 8.6).
fn unequal_records(collected: &Collected, dimension: usize, most: u64) -> Option<Diagnostic> {
    let members = collected.marked.iter().enumerate();
    let shorter = members.filter_map(|(number, member)| {
        let len = collected.len(number, dimension)?;
        (len < most).then(|| format!("{len} in {}", member.name))
    });
    let shorter: Vec<String> = shorter.collect();
    let name = lossy(&collected.dimensions[dimension].name);
    let text = format!("records along {name}: {most}, but {}", listed(&shorter));
    (!shorter.is_empty()).then(|| Diagnostic::note(text))
}
