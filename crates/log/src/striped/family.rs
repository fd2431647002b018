//! Finds the members of a family (`docs/formats/hdf5-subfiling.md`, section 8).

use std::io::ErrorKind;
use std::path::Path;

use super::config::checked_count;
use super::driver_info::{Driver, Geometry, driver, without_driver};
use super::names::{Family, families};
use super::{FileAndMembers, Kind, Tables};
use crate::flat::{Flat, FlatFile, FlatMember, Patch, end_of, part};
use crate::hdf5_bytes::Hdf5;
use crate::log_files::LogFiles;
use crate::signature::find_signature;
use crate::source_dir::SourcePath;
use crate::source_file::SourceFile;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::{Superblock, Window};

/// Finds the members of the family with member 0 `file`. Fails if a member is missing, or if the name does not
/// determine the names of the others.
pub fn find(files: &LogFiles<'_>, file: &SourceFile) -> Result<FileAndMembers> {
    let refused = |reason: Fault| Error::of(file.path(), reason);
    let (user_block, superblock, member) = front(file)?;
    let count = superblock.end.div_ceil(member).max(1);
    let count = checked_count(count).map_err(refused)?;
    let places = places(files, file, count)?;
    let mut members = Vec::with_capacity(count);
    for place in &places[1..] {
        members.push((place.clone(), files.open(place)?));
    }
    let lens = std::iter::once(file).chain(members.iter().map(|(_, file)| file));
    let lens: Vec<u64> = lens.map(|file| file.len().min(member)).collect();
    let there = end_of(member, &lens).unwrap_or(u64::MAX);
    let len = there.max(superblock.end);
    if len > i64::MAX as u64 || user_block > len {
        return Err(refused(format!("a file of {len} bytes").into()));
    }
    let name = |place: &SourcePath| files.full_path(place).display().to_string();
    let numbered = places.iter().zip(0u16..);
    let mut flat = Flat {
        len,
        user_block,
        promised: superblock.end,
        stripe: member,
        members: numbered
            .map(|(place, number)| FlatMember {
                source: Some(number),
                name: name(place),
            })
            .collect(),
        patches: Vec::new(),
    };
    let mut diagnostics = Vec::new();
    for (number, (there, place)) in lens.iter().zip(&places).enumerate() {
        let promised = part(member, count, number, superblock.end);
        if *there < promised {
            let what = format!(
                "it has {there} bytes, where it should have {promised}: the missing bytes cannot be read"
            );
            diagnostics.push(Diagnostic::lost(what).at(name(place)));
        }
    }
    if there > superblock.end {
        let what = format!(
            "it was not closed: its superblock says that it ends at {}, and its members at {there}",
            superblock.end
        );
        diagnostics.push(Diagnostic::note(what));
    }
    let patch = patch(file, &superblock, &flat, &members);
    let patch = patch
        .ok_or("its driver information cannot be read")
        .map_err(|reason| refused(reason.into()))?;
    flat.patches.push(patch);
    let kind = Kind::Family;
    Ok(FileAndMembers {
        tables: Tables { kind, flat },
        members,
        diagnostics,
    })
}

/// The user block of member 0, its superblock, and the length of a member.
fn front(file: &SourceFile) -> Result<(u64, Superblock, u64)> {
    let refused = |reason: Fault| Error::of(file.path(), reason);
    let base = find_signature(file)?.unwrap_or(0);
    let bytes = Window::new(Hdf5 { source: file, base });
    let superblock = Superblock::read(&bytes).map_err(refused)?;
    let Driver::Family(info) = driver(&superblock, &bytes) else {
        return Err(refused("no family".into()));
    };
    let member = Geometry::member_of_family(&info).map_err(refused)?;
    Ok((base, superblock, member))
}

/// The paths of the members.
fn places(files: &LogFiles<'_>, file: &SourceFile, count: usize) -> Result<Vec<SourcePath>> {
    let first = files.log();
    let name = first.file_name().unwrap_or_default();
    let beside = first.parent().unwrap_or(Path::new(""));
    if count == 1 {
        return Ok(vec![SourcePath::below(first)]);
    }
    let place = |family: &Family<'_>, number| SourcePath::below(beside.join(family.member(number)));
    let missing = |family: &Family<'_>| {
        (1..count).find(|number| files.check(&place(family, *number)).is_err())
    };
    let families = families(name);
    let mut complete = families.iter().filter(|family| missing(family).is_none());
    let found = complete.next();
    let reason = match (found, complete.next(), families.first()) {
        (Some(family), None, _) => {
            return Ok((0..count).map(|number| place(family, number)).collect());
        }
        (Some(one), Some(other), _) => format!(
            "its members may be {} … or {} …: move one of the two sets to another directory",
            files.full_path(&place(one, 1)).display(),
            files.full_path(&place(other, 1)).display()
        ),
        (None, _, Some(family)) => {
            let place = place(family, missing(family).unwrap_or(1));
            match files.open(&place) {
                Err(Error::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound => format!(
                    "{} is missing, one of the {count} members of this family",
                    files.full_path(&place).display()
                ),
                Err(error) => return Err(error),
                Ok(file) => {
                    let path = file.path().to_owned();
                    return Err(Error::Changed { path });
                }
            }
        }
        (None, _, None) => {
            format!("the first of {count} members of a family, but no number in its name is 0")
        }
    };
    Err(Error::of(file.path(), reason))
}

/// The patch that makes the file readable without the family driver.
fn patch(
    file: &SourceFile,
    superblock: &Superblock,
    flat: &Flat,
    members: &[(SourcePath, SourceFile)],
) -> Option<Patch> {
    let members = members.iter().map(|(_, file)| file);
    let sources: Vec<&SourceFile> = std::iter::once(file).chain(members).collect();
    let bytes = FlatFile {
        flat,
        sources: &sources,
    };
    without_driver(superblock, &bytes, flat.user_block)
}
