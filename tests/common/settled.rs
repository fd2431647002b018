//! Logs that are settled in this process.

use std::path::Path;
use std::sync::Arc;

use h5logfs_convert::settle::{Held, Intent, Log, Settled, undo};
use h5logfs_core::error::Result;
use h5logfs_core::scan::{ScanRequest, Settings};
use h5logfs_core::view::View;
use h5logfs_core::view::cache::{Budget, MemoryLimits};
use h5logfs_scan::scan;

use super::encoder::BUDGET;

/// How many chunks stay where they lie, how many are appended, and what was done.
pub type Outcome = (u64, u64, Settled);

/// Makes the log at `path` an ordinary file.
pub fn settle(path: &Path) -> Result<Outcome> {
    let intent = Intent::Change;
    let log = Log::new(Held::open(path, intent)?, intent)?;
    let settings = Settings {
        image_at: Some(log.image_at()),
        ..Settings::default()
    };
    let held = log.held();
    let mut snapshot = scan(ScanRequest::alone(held.dir(), held.name(), &settings))?;
    let image = log.take_image(&mut snapshot)?;
    let budget = Arc::new(Budget::new(MemoryLimits::each(BUDGET)));
    let view = View::open(held.dir(), snapshot, budget, None)?;
    let plan = log.plan(&view)?;
    let counts = (plan.in_place(), plan.appended());
    let growth = log.growth(&image, &plan);
    let settled = log.settle(&view, image, plan, &|_| ())?;
    assert!(settled.after - settled.before <= growth);
    Ok((counts.0, counts.1, settled))
}

/// Makes the file at `path` a log again.
pub fn unsettle(path: &Path) -> Result<()> {
    undo(&Held::open(path, Intent::Change)?)
}
