//! netCDF files that SCORPIO wrote as ADIOS2 directories (`docs/formats/scorpio-bp.md`, whose section numbers this
//! directory cites).
//!
//! * `collected` walks through the steps.
//! * `model` makes netCDF's data model of what they define.

mod collected;
mod model;

use super::files::DirectoryFiles;
use super::{Opened, Walked};
use crate::netcdf4;
use collected::Collected;
use h5logfs_adios::directory::Directory;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_log::scan::ScanRequest;
use h5logfs_log::scorpio;
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_file::SourceFile;

/// Bytes of maps up to which the scan looks at them. A look tells a map that cannot be used, and one that needs the rule
/// of section 6.2, before somebody reads.
const LOOK: u64 = 64 << 20;

/// Makes the snapshot of a directory that SCORPIO wrote.
pub(super) fn scan(request: ScanRequest<'_>, opened: Opened<'_>) -> Result<Snapshot> {
    let path = opened.files.index_path().to_owned();
    let bad = |fault: Fault| Error::of(&path, fault);
    let Opened {
        files,
        directory,
        shown,
        mut diagnostics,
        journal,
    } = opened;
    let mut collected = Collected::default();
    collect(&files, &directory, shown, &mut collected).map_err(bad)?;
    files.check()?;
    let (sources, parts) = files.into_sources(directory.is_active())?;
    let lacks_files = !parts.unopened.is_empty();
    let made = model::of(&mut collected, directory.is_big_endian());
    let tables = scorpio::Tables {
        parts,
        ..made.tables
    };
    if collected.map_bytes <= LOOK {
        look_at_maps(&tables, &sources.files, &directory, &mut collected).map_err(bad)?;
    }
    let is_incomplete = collected.is_incomplete() || !directory.problems().is_empty();
    let has_unreadable = collected.has_errors();
    diagnostics.extend(collected.into_diagnostics());
    let walked = Walked {
        directory,
        shown,
        journal,
        sources,
        log: tables.into(),
        diagnostics,
        left_out: Vec::new(),
        is_incomplete,
        lacks_files,
        has_unreadable,
    };
    let choice = &request.settings.choice;
    walked.snapshot(request, |chooser, incomplete| {
        netcdf4::make(&made.model, chooser, choice, incomplete)
    })
}

/// Adds the steps that are shown.
fn collect(
    files: &DirectoryFiles<'_>,
    directory: &Directory,
    shown: u64,
    collected: &mut Collected,
) -> std::result::Result<(), Fault> {
    let is_active = directory.is_active();
    let presence = |place: &h5logfs_adios::Place| files.presence(place, is_active);
    let read = |place: &h5logfs_adios::Place, buffer: &mut [u8]| files.read(place, buffer);
    let values = h5logfs_adios::scorpio::Values {
        read: &read,
        is_big_endian: directory.is_big_endian(),
    };
    let mut section = Vec::new();
    for number in directory.numbers() {
        if number as u64 >= shown {
            break;
        }
        let step = directory.outline(files.metadata(), number, &mut section)?;
        collected.add(number as u64, &step, &values, &presence);
    }
    collected.count_places();
    Ok(())
}

/// Looks at all maps.
fn look_at_maps(
    tables: &scorpio::Tables,
    sources: &[SourceFile],
    directory: &Directory,
    collected: &mut Collected,
) -> std::result::Result<(), Fault> {
    let task = Task::unlimited();
    for map in &tables.maps {
        match tables.look_at_map(&task, sources, directory, map) {
            Ok(facts) if facts.begins_with_zero => {
                let id = map.id;
                let text = format!(
                    "decomposition {id}: its places count from 0, as SCORPIO's contiguous rearranger leaves them"
                );
                collected.note(text);
            }
            Ok(facts) if facts.is_empty => {
                collected.note(format!("decomposition {}: no process has a place", map.id));
            }
            Ok(_) => {}
            Err(fault) => {
                let text = format!("decomposition {}: {}", map.id, fault.into_damage()?);
                collected.errors.push(text);
            }
        }
    }
    Ok(())
}
