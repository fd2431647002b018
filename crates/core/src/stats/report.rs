//! The state of a mount at one moment, as plain data.

use serde::{Serialize, Serializer};

use super::{BOUNDED, Counter, Histogram, Stats, bound, prometheus};

/// Times are in seconds, sizes in bytes; counts are those since the start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub version: &'static str,
    pub mountpoint: String,
    /// Since 1970.
    pub start_time: f64,
    pub uptime: f64,
    pub opens: Opens,
    pub lookups: u64,
    pub reads: Reads,
    pub cache: Cache,
    pub memory: Memory,
    pub scans: Scans,
    pub process: Process,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Opens {
    pub views: u64,
    pub plain: u64,
    pub failed: u64,
    /// Files and directories that are open now.
    pub handles: u64,
    pub time: Distribution,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reads {
    pub failed: u64,
    pub bytes_asked: u64,
    pub bytes_returned: u64,
    /// Read of log files for that.
    pub log_bytes: u64,
    pub time: Distribution,
}

/// What was asked of the cache of chunks and decoded records.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cache {
    pub hits: u64,
    pub misses: u64,
    /// Made before anybody asked.
    pub made_ahead: u64,
    /// Making chunks.
    pub time: Distribution,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Memory {
    pub cache_size: Share,
    pub index_memory: Share,
}

/// Bytes of a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    pub used: u64,
    pub limit: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scans {
    pub started: u64,
    pub failed: u64,
    /// Log files that needed none.
    pub from_kept_index: u64,
    pub worker_failures: u64,
    pub time: Distribution,
}

/// As the system tells; `None` where it does not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Process {
    pub resident_bytes: Option<u64>,
    pub descriptors: Option<u64>,
    pub descriptor_limit: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Distribution {
    pub count: u64,
    pub sum: f64,
    /// Those that are longer than the last one's bound are in `count` only. In JSON, buckets that add
    /// nothing to the one before are left out.
    #[serde(serialize_with = "those_that_add")]
    pub buckets: Vec<Bucket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bucket {
    /// Upper bound, which belongs to it.
    pub le: f64,
    /// With those of the buckets before.
    pub count: u64,
}

fn those_that_add<S: Serializer>(buckets: &[Bucket], serializer: S) -> Result<S::Ok, S::Error> {
    let before = std::iter::once(0).chain(buckets.iter().map(|bucket| bucket.count));
    let adding = buckets.iter().zip(before);
    serializer.collect_seq(
        adding
            .filter(|(bucket, before)| bucket.count > *before)
            .map(|(bucket, _)| bucket),
    )
}

/// What others than [`Stats`] know.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    pub mountpoint: String,
    pub hits: u64,
    pub misses: u64,
    pub made_ahead: u64,
    pub cache_size: Share,
    pub index_memory: Share,
    /// How many descriptors the process may have open.
    pub descriptor_limit: u64,
}

impl From<&Histogram> for Distribution {
    fn from(histogram: &Histogram) -> Self {
        let mut so_far = 0;
        let cumulative = histogram.buckets.iter().map(|bucket| {
            so_far += bucket.get();
            so_far
        });
        let counts: Vec<u64> = cumulative.collect();
        let buckets = counts.iter().take(BOUNDED).enumerate();
        Distribution {
            // Of the same look as the buckets: others go on counting.
            count: counts.last().copied().unwrap_or(0),
            sum: histogram.nanoseconds.get() as f64 / 1e9,
            buckets: buckets
                .map(|(number, count)| Bucket {
                    le: bound(number),
                    count: *count,
                })
                .collect(),
        }
    }
}

impl Report {
    pub fn new(stats: &Stats, usage: Usage) -> Self {
        let (instant, time) = stats.started;
        let since_1970 = time.duration_since(std::time::UNIX_EPOCH);
        let returned = stats.bytes_returned.get();
        let closed = stats.handles_closed.get();
        let count = Counter::get;
        Report {
            version: env!("CARGO_PKG_VERSION"),
            mountpoint: usage.mountpoint,
            start_time: since_1970.map_or(0.0, |since| since.as_secs_f64()),
            uptime: instant.elapsed().as_secs_f64(),
            opens: Opens {
                views: count(&stats.opens_of_views),
                plain: count(&stats.opens_of_plain_files),
                failed: count(&stats.failed_opens),
                handles: count(&stats.handles_opened).saturating_sub(closed),
                time: (&stats.open_time).into(),
            },
            lookups: count(&stats.lookups),
            reads: Reads {
                failed: count(&stats.failed_reads),
                bytes_asked: returned.saturating_add(count(&stats.bytes_not_returned)),
                bytes_returned: returned,
                log_bytes: count(&stats.log_bytes),
                time: (&stats.read_time).into(),
            },
            cache: Cache {
                hits: usage.hits,
                misses: usage.misses,
                made_ahead: usage.made_ahead,
                time: (&stats.chunk_time).into(),
            },
            memory: Memory {
                cache_size: usage.cache_size,
                index_memory: usage.index_memory,
            },
            scans: Scans {
                started: count(&stats.scans),
                failed: count(&stats.failed_scans),
                from_kept_index: count(&stats.kept_scans),
                worker_failures: count(&stats.worker_failures),
                time: (&stats.scan_time).into(),
            },
            process: Process {
                resident_bytes: resident_bytes(),
                descriptors: open_descriptors(),
                descriptor_limit: usage.descriptor_limit,
            },
        }
    }

    pub fn to_json(&self) -> String {
        // Plain numbers and names: there is nothing in it that could not be written.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        text + "\n"
    }

    /// In the text format of Prometheus, version 0.0.4.
    pub fn to_prometheus(&self) -> String {
        prometheus::text(self)
    }
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

fn open_descriptors() -> Option<u64> {
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    // But for the one that lists them.
    Some(open.saturating_sub(1))
}
