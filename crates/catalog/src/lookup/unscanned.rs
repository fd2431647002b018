//! Snapshots of files that need no scan: no libhdf5, and no process of its own.

use h5logfs_common::error::{Error, Result};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::recognition::{FileAndMembers, Kind, find_members, whole_file};
use h5logfs_log::scan::{Choice, ScanRequest};
use h5logfs_log::snapshot::{Snapshot, Source};
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::SourceFile;

/// The snapshot of `file`, which has this kind. Fails with [`Error::NotALog`] where the file cannot be presented as
/// such.
pub fn snapshot(
    task: &Task,
    request: ScanRequest<'_>,
    file: &SourceFile,
    kind: Kind,
) -> Result<Reserved<Snapshot>> {
    let settings = request.settings;
    if settings.image_at.is_some() || settings.choice != Choice::default() {
        let reason = "this is an HDF5 file in several parts, without records: make one file of it with `h5logfs export`";
        return Err(Error::of(file.path(), reason));
    }
    let files = LogFiles::of(request.dir, request.relative, file);
    let companions = request.companions.unwrap_or_default();
    let found = find_members(kind, &files, file, companions)?;
    let shown_flush = settings.shown_flush.check_closed(None);
    shown_flush.map_err(|reason| Error::NoFlush {
        path: file.path().to_owned(),
        reason: reason.to_string(),
    })?;
    let snapshot = of_found(found, SourcePath::below(request.relative), file);
    let reservation = task.reserve(snapshot.bytes() as u64);
    let reservation = reservation.map_err(|reason| Error::of(file.path(), reason))?;
    Ok(Reserved::new(snapshot, reservation))
}

/// The snapshot of a plain HDF5 file, whose bytes are shown as they are. Fails with [`Error::NotALog`] for any other file.
pub fn whole(place: SourcePath, file: &SourceFile) -> Result<Snapshot> {
    Ok(of_found(whole_file(file)?, place, file))
}

fn of_found(found: FileAndMembers, place: SourcePath, file: &SourceFile) -> Snapshot {
    let members = found.members.into_iter();
    let members = members.map(|(place, file)| Source::whole(place, file.identity()));
    let own = Source::whole(place, file.identity());
    Snapshot {
        user_block: found.tables.flat.user_block,
        sources: std::iter::once(own).chain(members).collect(),
        log: found.tables.into(),
        diagnostics: found.diagnostics,
        ..Snapshot::default()
    }
}
