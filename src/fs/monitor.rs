//! The monitor of a mount: the report in its virtual files, and the summary in the log.

use std::path::Path;
use std::sync::Arc;

use h5logfs_catalog::Catalog;
use h5logfs_common::stats::{Report, Share, Stats, Usage};
use h5logfs_log::descriptors;

use super::allocator;

#[derive(Debug)]
pub struct Monitor {
    catalog: Arc<Catalog>,
    mountpoint: String,
}

impl Monitor {
    pub fn new(catalog: Arc<Catalog>, mount_point: &Path) -> Self {
        Monitor {
            catalog,
            mountpoint: mount_point.to_string_lossy().into_owned(),
        }
    }

    pub fn stats(&self) -> &Stats {
        self.catalog.budget().stats()
    }

    pub fn report(&self) -> Report {
        let budget = self.catalog.budget();
        let usage = Usage {
            mountpoint: self.mountpoint.clone(),
            descriptor_limit: descriptors::limit(),
            ..budget.usage()
        };
        Report::new(budget.stats(), usage)
    }

    /// Writes a summary of the state to the log.
    pub fn log_state(&self) {
        for line in summary(&self.report()) {
            log::info!("state: {line}");
        }
    }

    pub fn drop_caches(&self) {
        let before = self.catalog.budget().used();
        self.catalog.drop_caches();
        allocator::give_back();
        log::info!("caches dropped: {} MiB", before >> 20);
    }
}

fn summary(report: &Report) -> [String; 4] {
    let Report {
        opens,
        reads,
        cache,
        memory,
        scans,
        process,
        ..
    } = report;
    let known = |value: Option<u64>| value.map_or("unknown".into(), |value| value.to_string());
    [
        format!(
            "version {}, {} mounted for {:.0} s, {} files and directories open; resident memory \
             {} bytes, {} of {} descriptors in use",
            report.version,
            report.mountpoint,
            report.uptime,
            opens.handles,
            known(process.resident_bytes),
            known(process.descriptors),
            process.descriptor_limit,
        ),
        format!(
            "{} look-ups; {} views and {} plain files opened, {} failed to open; {} reads, of which {} failed, returned \
             {} of {} requested bytes; {} bytes read from log files",
            report.lookups,
            opens.views,
            opens.plain,
            opens.failed,
            reads.time.count,
            reads.failed,
            reads.bytes_returned,
            reads.bytes_asked,
            reads.log_bytes,
        ),
        format!(
            "cache_size {}, index_memory {}; {} hits, {} misses, {} made ahead",
            used(memory.cache_size),
            used(memory.index_memory),
            cache.hits,
            cache.misses,
            cache.made_ahead,
        ),
        format!(
            "{} scans in {:.1} s, of which {} failed; {} files needed none; {} failures of workers",
            scans.started,
            scans.time.sum,
            scans.failed,
            scans.from_kept_index,
            scans.worker_failures,
        ),
    ]
}

fn used(share: Share) -> String {
    format!("{} of {} bytes", share.used, share.limit)
}
