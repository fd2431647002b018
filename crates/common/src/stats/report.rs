//! The statistics of a mount at one moment, as plain data.

use serde::{Serialize, Serializer};

use super::{BOUNDED, Counter, Histogram, Stats, bound, prometheus};

/// The statistics of a mount at one moment. Times are in seconds, sizes in bytes; counts begin at the start of the daemon.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Version of the program.
    pub version: &'static str,
    /// Path of the mount.
    pub mountpoint: String,
    /// Start of the daemon, in seconds since 1970.
    pub start_time: f64,
    /// Time since the start, in seconds.
    pub uptime: f64,
    /// Opens of regular files.
    pub opens: Opens,
    /// Names looked up.
    pub lookups: u64,
    /// Reads of regular files.
    pub reads: Reads,
    /// The cache of chunks and decoded records.
    pub cache: Cache,
    /// Memory in use.
    pub memory: Memory,
    /// Scans of log files.
    pub scans: Scans,
    /// The daemon, as the system sees it.
    pub process: Process,
}

/// Opens of regular files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Opens {
    /// Log files opened as views.
    pub views: u64,
    /// Other files opened.
    pub plain: u64,
    /// Failed opens.
    pub failed: u64,
    /// Files and directories open now.
    pub handles: u64,
    /// Time of an open.
    pub time: Distribution,
}

/// Reads of regular files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reads {
    /// Failed reads.
    pub failed: u64,
    /// Bytes requested by the kernel.
    pub bytes_asked: u64,
    /// Bytes returned to the kernel.
    pub bytes_returned: u64,
    /// Bytes read from log files.
    pub log_bytes: u64,
    /// Time of a read.
    pub time: Distribution,
}

/// The cache of chunks and decoded records.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cache {
    /// Entries found in the cache.
    pub hits: u64,
    /// Entries not found in the cache.
    pub misses: u64,
    /// Chunks made by read-ahead.
    pub made_ahead: u64,
    /// Time to make a chunk.
    pub time: Distribution,
}

/// Memory in use, by the option that limits it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Memory {
    /// Chunks and decoded records.
    pub cache_size: Share,
    /// Metadata of log files, record tables and indexes.
    pub index_memory: Share,
}

/// How much of a limit is used, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Bytes in use.
    pub used: u64,
    /// Bytes that may be used.
    pub limit: u64,
}

/// Scans of log files.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scans {
    /// Scans started.
    pub started: u64,
    /// Scans failed.
    pub failed: u64,
    /// Log files that needed no scan: an earlier scan was on disk.
    pub from_kept_index: u64,
    /// Scan workers that crashed, hung, or were stopped at a limit.
    pub worker_failures: u64,
    /// Time of a scan.
    pub time: Distribution,
}

/// The daemon as the system sees it. Fields are `None` where the system does not provide the number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Process {
    /// Resident memory.
    pub resident_bytes: Option<u64>,
    /// Open file descriptors.
    pub descriptors: Option<u64>,
    /// Limit of open file descriptors.
    pub descriptor_limit: u64,
}

/// A distribution of durations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Distribution {
    /// Number of durations.
    pub count: u64,
    /// Sum of the durations, in seconds.
    pub sum: f64,
    /// Buckets in ascending order. Durations past the last bound count in `count` only. JSON leaves out buckets that add
    /// nothing to the bucket before.
    #[serde(serialize_with = "non_empty")]
    pub buckets: Vec<Bucket>,
}

/// A cumulative bucket of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bucket {
    /// Upper bound in seconds; it belongs to the bucket.
    pub le: f64,
    /// Number of durations up to the bound.
    pub count: u64,
}

fn non_empty<S: Serializer>(buckets: &[Bucket], serializer: S) -> Result<S::Ok, S::Error> {
    let before = std::iter::once(0).chain(buckets.iter().map(|bucket| bucket.count));
    let adding = buckets.iter().zip(before);
    serializer.collect_seq(
        adding
            .filter(|(bucket, before)| bucket.count > *before)
            .map(|(bucket, _)| bucket),
    )
}

/// Values of a report that [`Stats`] does not hold.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    /// Path of the mount.
    pub mountpoint: String,
    /// See `Cache::hits`.
    pub hits: u64,
    /// See `Cache::misses`.
    pub misses: u64,
    /// See `Cache::made_ahead`.
    pub made_ahead: u64,
    /// See `Memory::cache_size`.
    pub cache_size: Share,
    /// See `Memory::index_memory`.
    pub index_memory: Share,
    /// Limit of open file descriptors of the process.
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
            // Reading the count again could disagree: other threads go on counting.
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
    /// A report of the counts now.
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

    /// JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        // Plain numbers and names always serialize.
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        text + "\n"
    }

    /// The text format of Prometheus, version 0.0.4.
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
    // Leaves out the descriptor of the listing itself.
    Some(open.saturating_sub(1))
}
