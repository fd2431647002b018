//! Preparation of a log for settling, from its path. Callers differ in who scans the log.

use std::path::Path;
use std::sync::Arc;

use super::held::{Held, Intent};
use super::{LogToSettle, Plan, Settled, is_settled};
use h5logfs_catalog::lookup::scan_file;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_hdf5_format::Added;
use h5logfs_log::scan::{Scanner, Settings};
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};

/// The means for reading a log.
#[derive(Debug)]
pub struct How<'a> {
    /// The scanner that makes the objects.
    pub scanner: &'a dyn Scanner,
    /// The user's options.
    pub settings: Settings,
    /// Memory for the log's tables, and for chunks in the making.
    pub memory: MemoryLimits,
}

/// A log ready to be settled.
#[derive(Debug)]
pub struct Ready {
    log: LogToSettle,
    view: Arc<View>,
    image: Added,
    plan: Plan,
    notes: Vec<Diagnostic>,
}

impl Ready {
    /// The log at `path`; symbolic links are followed. `None` for a file that is already settled. Fails with the
    /// reason where it cannot be settled. [`Intent::Change`] locks it.
    pub fn of(path: &Path, intent: Intent, how: How<'_>) -> Result<Option<Self>> {
        let log = LogToSettle::new(Held::open(path, intent)?, intent)?;
        let held = log.held();
        let settings = Settings {
            image_at: Some(log.image_at()),
            most: how.memory.index_memory,
            ..how.settings
        };
        let budget = Arc::new(Budget::new(how.memory));
        let task = budget.task(None);
        let scanned = scan_file(&task, how.scanner, held.dir(), held.name(), &settings);
        let mut snapshot = match scanned {
            Err(Error::NotALog { .. }) if is_settled(held)? => return Ok(None),
            Err(Error::NotALog { .. }) => {
                return Err(held.refused("it is an ordinary HDF5 file already"));
            }
            scanned => scanned?.into_parts().0,
        };
        let image = log.take_image(&mut snapshot)?;
        let notes = snapshot.diagnostics.clone();
        let view = View::open(held.dir(), snapshot, budget, None)?;
        let plan = log.plan(&view)?;
        Ok(Some(Ready {
            log,
            view,
            image,
            plan,
            notes,
        }))
    }

    /// The view of the log.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The plan for the log's chunks.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Remarks about the resulting file for the user.
    pub fn notes(&self) -> &[Diagnostic] {
        &self.notes
    }

    /// Upper bound of the file's growth in bytes.
    pub fn growth(&self) -> u64 {
        self.log.growth(&self.image, &self.plan)
    }

    /// Settles the log. `progress` takes the number of appended bytes, out of [`Plan::bytes`]. After a failure the file
    /// is the unchanged log, unless the error says otherwise.
    pub fn settle(self, progress: &dyn Fn(u64)) -> Result<Settled> {
        self.log.settle(&self.view, self.image, self.plan, progress)
    }
}

/// Settles the log at `path` for the program that has just closed it, like `h5logfs settle`.
pub fn settle(path: &Path, scanner: &dyn Scanner, memory: MemoryLimits) -> Result<()> {
    let how = How {
        scanner,
        settings: Settings::default(),
        memory,
    };
    match Ready::of(path, Intent::Change, how)? {
        Some(ready) => ready.settle(&|_| ()).map(drop),
        None => Ok(()),
    }
}
