//! What a mount counts of itself.
//!
//! Those who work count, here, without locks: one [`Stats`] is shared by all. Who watches takes a
//! [`Report`], plain data, which is written as JSON or as text for Prometheus.

mod prometheus;
mod report;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

pub use report::{Bucket, Distribution, Report, Share, Usage};

/// Something that is counted. Counts tell of the past only and order nothing, so they are relaxed.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn count(&self) {
        self.add(1);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Buckets with a bound: each reaches up to twice as far as the one before, the first up to a
/// microsecond, the last up to 67 seconds.
pub const BOUNDED: usize = 27;

/// How long something took, by logarithmic buckets.
#[derive(Debug, Default)]
pub struct Histogram {
    /// The last one has no bound.
    buckets: [Counter; BOUNDED + 1],
    nanoseconds: Counter,
}

impl Histogram {
    pub fn record(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get(bucket(nanoseconds)) {
            bucket.count();
        }
        self.nanoseconds.add(nanoseconds);
    }

    /// Runs `work` and records how long it took, however it ends.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let outcome = work();
        self.record(start.elapsed());
        outcome
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }
}

/// The bucket of a duration: the first one whose bound is not less.
fn bucket(nanoseconds: u64) -> usize {
    let microseconds = nanoseconds.div_ceil(1000);
    let doublings = u64::BITS - microseconds.saturating_sub(1).leading_zeros();
    (doublings as usize).min(BOUNDED)
}

/// The bound of a bucket in seconds, which belongs to it.
fn bound(bucket: usize) -> f64 {
    2f64.powi(bucket as i32) / 1e6
}

/// The counts of one mount, from its start on.
#[derive(Debug)]
pub struct Stats {
    started: (Instant, SystemTime),

    pub opens_of_views: Counter,
    pub opens_of_plain_files: Counter,
    /// But for those that the kernel repeats by itself, since the file has changed.
    pub failed_opens: Counter,
    /// Of regular files.
    pub open_time: Histogram,
    /// Files and directories.
    pub handles_opened: Counter,
    pub handles_closed: Counter,
    /// Names that were asked for, those of listings with attributes included.
    pub lookups: Counter,

    /// Their number is the number of reads.
    pub read_time: Histogram,
    pub bytes_returned: Counter,
    /// Bytes that were asked for past the end of a file, or of a read that failed.
    pub bytes_not_returned: Counter,
    pub failed_reads: Counter,
    /// Tables and data of log files; not what libhdf5 reads in a scan.
    pub log_bytes: Counter,
    /// Making chunks, ahead of readers too, that failed included.
    pub chunk_time: Histogram,

    /// Scans that were begun.
    pub scans: Counter,
    /// Those that found no log are not among them.
    pub failed_scans: Counter,
    /// Log files that needed no scan.
    pub kept_scans: Counter,
    /// Processes for scans that crashed, hung, or were stopped at a limit.
    pub worker_failures: Counter,
    /// How long scans took, whatever came of them.
    pub scan_time: Histogram,
}

impl Default for Stats {
    fn default() -> Self {
        let zero = Counter::default;
        Stats {
            started: (Instant::now(), SystemTime::now()),
            opens_of_views: zero(),
            opens_of_plain_files: zero(),
            failed_opens: zero(),
            open_time: Histogram::default(),
            handles_opened: zero(),
            handles_closed: zero(),
            lookups: zero(),
            read_time: Histogram::default(),
            bytes_returned: zero(),
            bytes_not_returned: zero(),
            failed_reads: zero(),
            log_bytes: zero(),
            chunk_time: Histogram::default(),
            scans: zero(),
            failed_scans: zero(),
            kept_scans: zero(),
            worker_failures: zero(),
            scan_time: Histogram::default(),
        }
    }
}

impl Stats {
    /// A read of `asked` bytes that began at `start` and has just ended; `returned` is `None` where
    /// it failed.
    pub fn count_read(&self, start: Instant, asked: usize, returned: Option<usize>) {
        let there = returned.unwrap_or(0) as u64;
        self.read_time.record(start.elapsed());
        self.bytes_returned.add(there);
        // Nothing more in the usual case: reads are what is to be fast.
        let missing = (asked as u64).saturating_sub(there);
        if missing > 0 {
            self.bytes_not_returned.add(missing);
        }
        if returned.is_none() {
            self.failed_reads.count();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_belong_to_their_buckets() {
        assert_eq!(bucket(0), 0);
        for number in 0..BOUNDED {
            let bound = 1000 << number;
            assert_eq!(bucket(bound), number);
            assert_eq!(bucket(bound + 1), number + 1);
            assert_eq!(super::bound(number), bound as f64 / 1e9);
        }
        assert_eq!(bucket(u64::MAX), BOUNDED);
    }

    #[test]
    fn durations_are_counted_and_summed() {
        let histogram = Histogram::default();
        for microseconds in [1, 2, 3, 4, 5, 100_000_000_000] {
            histogram.record(Duration::from_micros(microseconds));
        }
        let distribution = Distribution::from(&histogram);
        assert_eq!(distribution.count, 6);
        assert_eq!(distribution.sum, 100_000.000_015);
        let counts: Vec<u64> = distribution.buckets.iter().map(|b| b.count).collect();
        assert_eq!(counts[..4], [1, 2, 4, 5]);
        assert!(counts[4..].iter().all(|count| *count == 5));
        assert_eq!(counts.len(), BOUNDED);
    }

    #[test]
    fn reads_are_counted_by_what_came_of_them() {
        let stats = Stats::default();
        let start = Instant::now();
        stats.count_read(start, 100, Some(100));
        stats.count_read(start, 100, Some(30));
        stats.count_read(start, 100, None);
        assert_eq!(stats.read_time.count(), 3);
        assert_eq!(stats.bytes_returned.get(), 130);
        assert_eq!(stats.bytes_not_returned.get(), 170);
        assert_eq!(stats.failed_reads.get(), 1);
    }
}
