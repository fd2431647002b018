//! The close of a log: makes HDF5 files of the data files, and removes the journal. Then the log may become an ordinary file.

use std::path::Path;

use h5logfs_core::error::Result as CoreResult;
use h5logfs_core::journal::definition::{Defined, Definition};
use h5logfs_core::journal::extent::FRONT;
use h5logfs_core::journal::sync;
use h5logfs_core::log::window::Piece;
use h5logfs_output::files::{Files, sync_names};
use h5logfs_output::flushed::Flushed;
use h5logfs_output::{Error, Fsync, GlobalOutcome, LocalOutcome, Ranks, Result, check_outcome};
use h5logfs_scan::InProcess;
use h5logfs_scan::closing::{Role, write_front, write_objects};

/// The objects of a log.
#[derive(Clone, Copy)]
pub struct Objects<'a> {
    /// On the first rank: without extents.
    pub definitions: &'a [Definition],
    /// With their present extents, in the order of their IDs.
    pub datasets: &'a [Defined],
}

/// Turns the data files into HDF5 files, and removes the journal. `entries`: those of this rank. Can be repeated after a failure or an interruption at any point. Collective.
pub fn close(
    files: &Files,
    ranks: &Ranks,
    entries: &Flushed,
    objects: Objects<'_>,
    fsync: Fsync,
) -> Result<()> {
    let finished = |outcome| {
        ranks.wait();
        check_outcome(files.path(), "close", ranks.agree(outcome))
    };
    let about = |e: String| format!("{}: {e}", files.data_path().display());
    let sync = || match fsync {
        Fsync::None => Ok(()),
        Fsync::Close | Fsync::Flush => files.sync(),
    };
    if files.is_append() {
        finished(LocalOutcome::of(sync().map_err(about)).0)?;
        let closed = close_again(files, fsync).map_err(|e| e.to_string());
        return finished(LocalOutcome::of(closed).0);
    }
    let (table, written) = files.write_table(entries);
    // Collective: a rank whose write has failed must take part, too.
    let written = written.and(sync());
    finished(LocalOutcome::of(written.map_err(about)).0)?;

    let fronted = if files.is_first_of_data_file() {
        write_log_front(files, table, objects.datasets.len(), fsync)
    } else {
        Ok(())
    };
    finished(LocalOutcome::of(fronted.map_err(|e| e.to_string())).0)?;

    let closed = finish_master(files, objects, fsync);
    finished(LocalOutcome::of(closed.map_err(|e| e.to_string())).0)
}

/// Makes the log at `path` an ordinary HDF5 file, once no rank has it open. If that fails, it stays the log that was closed.
/// Collective.
pub fn settle(path: &Path, ranks: &Ranks) -> Result<()> {
    ranks.wait();
    let settled = if ranks.is_root() {
        h5logfs_convert::settle::settle(path, &InProcess::default())
    } else {
        Ok(())
    };
    match ranks.follow_root(settled.map_err(|e| e.to_string())) {
        GlobalOutcome::Good => Ok(()),
        GlobalOutcome::Failed { reason, .. } | GlobalOutcome::Refused { reason, .. } => {
            let file = path.to_owned();
            Err(Error::NotSettled { file, reason })
        }
    }
}

/// On the first rank of the job: closes a log to which it has appended. The ranks do not know the entries of earlier jobs,
/// so that the first one takes all from the data files.
fn close_again(files: &Files, fsync: Fsync) -> CoreResult<()> {
    let Some(journal) = files.journal() else {
        return Ok(());
    };
    journal.check_name()?;
    let force = fsync != Fsync::None;
    h5logfs_scan::closing::close_again(files.path(), files.flushes(), force)?;
    if force {
        sync_names(files.path(), files.header())?;
    }
    journal.remove()
}

/// On the first rank of each data file: the HDF5 metadata in front of the data.
fn write_log_front(files: &Files, table: Piece, datasets: usize, fsync: Fsync) -> CoreResult<()> {
    let data = Piece {
        offset: FRONT,
        len: files.end() - FRONT,
    };
    let role = Role::Log { data, table };
    write_front(
        files.data_path(),
        files.header(),
        files.id(),
        datasets,
        role,
    )?;
    if fsync != Fsync::None {
        sync(files.data_path())?;
    }
    Ok(())
}

/// On the first rank of the job: writes the user's objects, and removes the journal.
fn finish_master(files: &Files, objects: Objects<'_>, fsync: Fsync) -> CoreResult<()> {
    let Some(journal) = files.journal() else {
        return Ok(());
    };
    let (path, id) = (files.path(), files.id());
    let Objects {
        definitions,
        datasets,
    } = objects;
    if files.header().subfiles > 0 {
        write_front(path, files.header(), id, datasets.len(), Role::Master)?;
    }
    write_objects(path, id, definitions, datasets)?;
    if fsync != Fsync::None {
        sync(path)?;
        sync_names(path, files.header())?;
    }
    journal.remove()
}
