//! The close of a log: turns the data files into HDF5 files, and removes the journal. The log may then become an ordinary
//! file.
//!
//! The metadata of a log in one file are made without libhdf5, as in the VOL connector (`output::plain_close`). libhdf5 makes
//! the metadata of subfiles, and of a scale with more uses than an object header has room for.

use std::path::Path;

use h5logfs_common::error::{Error as CoreError, Result as CoreResult};
use h5logfs_common::fault::Fault;
use h5logfs_log::front::extents_until;
use h5logfs_log::journal::definition::{Defined, Definition};
use h5logfs_log::journal::known_table::KnownTable;
use h5logfs_log::journal::metadata_image::MetadataImage;
use h5logfs_log::journal::sync;
use h5logfs_objects::closed::ClosedObjects;
use h5logfs_objects::defined::{extended, of_definitions};
use h5logfs_output::files::{Files, Tabled, sync_names};
use h5logfs_output::plain_close::{JustClosed, TabledLog};
use h5logfs_output::{
    Error, Fsync, GlobalOutcome, LocalOutcome, LogWriter, Ranks, Result, check_outcome,
};
use h5logfs_scan::InProcess;
use h5logfs_scan::closing::{Front, Role, write_front, write_objects};
use h5logfs_view::cache::MemoryLimits;

/// The objects of a log.
#[derive(Clone, Copy)]
pub struct Objects<'a> {
    /// On the first rank: the metadata image of a log that was opened again, to which the definitions add.
    pub base: Option<&'a MetadataImage>,
    /// Definitions without extents, on the first rank.
    pub definitions: &'a [Definition],
    /// Datasets with their present extents, in the order of their IDs.
    pub datasets: &'a [Defined],
}

impl Objects<'_> {
    /// The metadata image of the log at `path`.
    fn image(&self, path: &Path) -> CoreResult<MetadataImage> {
        let image = match self.base {
            Some(base) => extended(base, self.definitions, self.datasets),
            None => of_definitions(self.definitions, self.datasets),
        };
        image.map_err(|fault| CoreError::of(path, fault))
    }
}

/// Turns the data files into HDF5 files, and removes the journal. Nothing may be buffered. `known`: the table of a previously
/// closed log, as far as the first rank knows it. Returns the state for the next opening. Can be repeated after a failure or an
/// interruption at any point. Collective.
pub fn close(log: &LogWriter, objects: Objects<'_>, known: KnownTable) -> Result<Closed> {
    let (files, ranks, fsync) = (log.files(), log.ranks(), log.options().fsync);
    let entries = log.entries();
    let entries = entries.ok_or_else(|| Error::closed(files.path()))?;
    let finished = |outcome| {
        ranks.wait();
        check_outcome(files.path(), "close", ranks.agree(outcome))
    };
    let is_synced = fsync != Fsync::None;
    let is_one_file = files.header().subfiles == 0;
    let (mut tabled, written) = files.write_tables(ranks.rank(), entries, known);
    let synced = if is_synced {
        // Collective: a rank whose write has failed must take part, too.
        files.sync_other_nodes(ranks)
    } else {
        Ok(())
    };
    let written = written.and(synced);
    if is_one_file {
        finished(LocalOutcome::of(written).0)?;
        let closed = tabled.pop();
        let closed = closed.map(|tabled| close_one_file(files, tabled, objects, fsync));
        let (outcome, closed) = LocalOutcome::of(closed.transpose());
        finished(outcome)?;
        return Ok(closed.flatten().unwrap_or_default());
    }
    // Until the file is complete, its front relies on the journal.
    let kept = match files.journal() {
        Some(journal) => journal
            .check_name()
            .and_then(|()| if is_synced { journal.sync() } else { Ok(()) }),
        None => Ok(()),
    };
    let kept = kept.map_err(Fault::from);
    finished(LocalOutcome::of(written.and(kept)).0)?;

    let front = |file| write_log_front(files, file, objects.datasets.len(), fsync);
    let fronted = tabled.iter().try_for_each(front);
    finished(LocalOutcome::of(fronted).0)?;

    let closed = match files.journal() {
        Some(_) => (objects.image(files.path()))
            .and_then(|image| finish_master(files, None, &image, fsync)),
        None => Ok(()),
    };
    finished(LocalOutcome::of(closed).0)?;
    Ok(Closed::default())
}

/// What is known of a log in one file that was closed, on the first rank.
#[derive(Default)]
pub struct Closed {
    pub log: JustClosed,
    /// Its objects.
    pub image: MetadataImage,
}

/// On the first rank: writes the metadata of a log in one file that has its table, and removes the journal.
fn close_one_file(
    files: &Files,
    tabled: Tabled,
    objects: Objects<'_>,
    fsync: Fsync,
) -> std::result::Result<Closed, Fault> {
    let (path, file) = (files.path(), files.local());
    let journal = files
        .journal()
        .ok_or_else(|| Error::closed(path).to_string())?;
    let log = files.closed_log(&tabled);
    let is_synced = fsync != Fsync::None;
    let image = objects.image(path)?;
    let metadata = ClosedObjects::of_image(&image)
        .and_then(|made| made.metadata(log, objects.datasets.len()).ok());
    let seal = match metadata {
        Some(metadata) => {
            let tabled = TabledLog {
                path,
                journal,
                file,
                log,
                is_synced,
            };
            tabled.finish(&metadata)?
        }
        None => {
            journal.check_name()?;
            if is_synced {
                journal.sync()?;
            }
            finish_master(files, Some(&tabled), &image, fsync)?;
            None
        }
    };
    let found = file.metadata();
    let table = found.map(|found| KnownTable::new(&found, log, tabled.entries));
    let table = table.unwrap_or_default();
    let log = JustClosed { table, seal };
    Ok(Closed { log, image })
}

/// Makes the closed log at `path` an ordinary HDF5 file, once no rank has it open. After a failure it stays a closed log.
/// `memory`: limit in bytes for each of its two purposes. Collective.
pub fn settle(path: &Path, ranks: &Ranks, memory: u64) -> Result<()> {
    ranks.wait();
    let settled = if ranks.is_root() {
        let memory = MemoryLimits::each(memory);
        h5logfs_convert::settle::settle(path, &InProcess::default(), memory)
    } else {
        Ok(())
    };
    match ranks.follow_root(settled.map_err(Fault::from)) {
        GlobalOutcome::Good => Ok(()),
        GlobalOutcome::Failed { reason, .. } | GlobalOutcome::Refused { reason, .. } => {
            let file = path.to_owned();
            Err(Error::NotSettled { file, reason })
        }
    }
}

/// Writes the HDF5 metadata in front of the data of a subfile.
fn write_log_front(files: &Files, file: &Tabled, datasets: usize, fsync: Fsync) -> CoreResult<()> {
    let front = front(files, role_of(file), datasets, file.has_seals);
    write_front(&file.path, front)?;
    if fsync != Fsync::None {
        sync(&file.path)?;
    }
    Ok(())
}

fn role_of(file: &Tabled) -> Role {
    Role::Log {
        data: extents_until(file.end),
        table: file.table,
    }
}

fn front(files: &Files, role: Role, datasets: usize, has_seals: bool) -> Front<'_> {
    Front {
        header: files.header(),
        id: files.id(),
        datasets,
        role,
        flush: files.flushes(),
        has_seals,
    }
}

/// On the first rank of the job: writes the user's objects and the front of their file, and removes the journal. `only`: the
/// data file, if it is the log file.
fn finish_master(
    files: &Files,
    only: Option<&Tabled>,
    image: &MetadataImage,
    fsync: Fsync,
) -> CoreResult<()> {
    let Some(journal) = files.journal() else {
        return Ok(());
    };
    let path = files.path();
    let (role, has_seals) = match only {
        Some(file) => (role_of(file), file.has_seals),
        None => (Role::Master, files.has_seals()),
    };
    let front = front(files, role, image.ids(), has_seals);
    let is_synced = fsync != Fsync::None;
    write_objects(path, front, image, is_synced)?;
    if is_synced {
        sync(path)?;
    }
    journal.remove()?;
    if is_synced {
        // Before that, a crash of the system may restore the journal.
        sync_names(path, files.header())?;
    }
    Ok(())
}
