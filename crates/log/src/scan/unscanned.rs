//! Snapshots of files that need no scan: no libhdf5, and no process of its own.

use super::{Choice, ScanRequest};
use crate::flat::{Flat, FlatMember};
use crate::log_files::LogFiles;
use crate::snapshot::{Snapshot, Source};
use crate::source_dir::SourcePath;
use crate::source_file::SourceFile;
use crate::striped::{self, Found, Kind, family, subfiles};
use crate::{Tables, find_signature};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;

/// The snapshot of `file`, which a look has found to be of this kind. Fails with [`Error::NotALog`] where such a file
/// cannot be presented as one.
pub fn snapshot(
    task: &Task,
    request: ScanRequest<'_>,
    file: &SourceFile,
    kind: Kind,
) -> Result<Reserved<Snapshot>> {
    let settings = request.settings;
    if settings.image_at.is_some() || settings.choice != Choice::default() {
        let reason = "it is an HDF5 file in several parts, without records: `h5logfs export` makes one file of it";
        return Err(Error::of(file.path(), reason));
    }
    let files = LogFiles::of(request.dir, request.relative, file);
    let found = match kind {
        Kind::Subfiling => {
            let companions = request.companions.unwrap_or_default();
            subfiles::Entry::of(&files, file).find(companions)?
        }
        Kind::Family => family::find(&files, file)?,
        Kind::Whole => all_of(file)?,
        Kind::Multi => {
            return Err(Error::NotALog {
                path: file.path().to_owned(),
                reason: striped::MULTI.into(),
            });
        }
    };
    let moment = settings.moment.check_closed(None);
    moment.map_err(|reason| Error::NoMoment {
        path: file.path().to_owned(),
        reason,
    })?;
    let snapshot = of_found(found, SourcePath::below(request.relative), file);
    let reservation = task.reserve(snapshot.bytes() as u64);
    let reservation = reservation.map_err(|reason| Error::of(file.path(), reason))?;
    Ok(Reserved::new(snapshot, reservation))
}

/// The snapshot of a plain HDF5 file, whose bytes are shown as they are. Fails with [`Error::NotALog`] for any other file.
pub fn whole(place: SourcePath, file: &SourceFile) -> Result<Snapshot> {
    Ok(of_found(all_of(file)?, place, file))
}

fn all_of(file: &SourceFile) -> Result<Found> {
    let user_block = find_signature(file)?.ok_or_else(|| Error::NotALog {
        path: file.path().to_owned(),
        reason: "it is no HDF5 file".into(),
    })?;
    let member = FlatMember {
        source: Some(0),
        name: String::new(),
    };
    let flat = Flat {
        len: file.len(),
        user_block,
        promised: file.len(),
        stripe: file.len().max(1),
        members: vec![member],
        patches: Vec::new(),
    };
    Ok(Found {
        tables: striped::Tables {
            kind: Kind::Whole,
            flat,
        },
        members: Vec::new(),
        diagnostics: Vec::new(),
    })
}

fn of_found(found: Found, place: SourcePath, file: &SourceFile) -> Snapshot {
    let members = found.members.into_iter();
    let members = members.map(|(place, file)| Source::whole(place, file.identity()));
    let own = Source::whole(place, file.identity());
    Snapshot {
        user_block: found.tables.flat.user_block,
        sources: std::iter::once(own).chain(members).collect(),
        log: Tables::Striped(found.tables),
        diagnostics: found.diagnostics,
        ..Snapshot::default()
    }
}
