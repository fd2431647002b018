//! Statistics of a mount.
//!
//! All parts of the program count in one shared [`Stats`], without locks. A [`Report`] is a copy of the counts at one moment,
//! for JSON or the text format of Prometheus.

mod prometheus;
mod report;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

pub use report::{Bucket, Distribution, Report, Share, Usage};

/// A number that only grows. Counters synchronize nothing, so they use relaxed atomics.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `more` to the count.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Adds 1 to the count.
    pub fn count(&self) {
        self.add(1);
    }

    /// The count now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Number of buckets with an upper bound. The first bound is a microsecond, each further one is twice the one before, and the
/// last one is 67 seconds.
pub const BOUNDED: usize = 27;

/// A histogram of durations, in logarithmic buckets.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Buckets; the last one has no upper bound.
    buckets: [Counter; BOUNDED + 1],
    nanoseconds: Counter,
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get(bucket(nanoseconds)) {
            bucket.count();
        }
        self.nanoseconds.add(nanoseconds);
    }

    /// Runs `work` and records its duration. Failures count, too.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let outcome = work();
        self.record(start.elapsed());
        outcome
    }

    /// Number of recorded durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }
}

/// The bucket of a duration: the first one whose upper bound is not smaller.
fn bucket(nanoseconds: u64) -> usize {
    let microseconds = nanoseconds.div_ceil(1000);
    let doublings = u64::BITS - microseconds.saturating_sub(1).leading_zeros();
    (doublings as usize).min(BOUNDED)
}

/// The upper bound of a bucket, in seconds; it belongs to the bucket.
fn bound(bucket: usize) -> f64 {
    2f64.powi(bucket as i32) / 1e6
}

/// Counts of one mount since its start.
#[derive(Debug)]
pub struct Stats {
    started: (Instant, SystemTime),

    /// Log files opened as views.
    pub opens_of_views: Counter,
    /// Other regular files opened.
    pub opens_of_plain_files: Counter,
    /// Failed opens of regular files. Opens that the kernel repeats because the file has changed do not count.
    pub failed_opens: Counter,
    /// Time to open regular files.
    pub open_time: Histogram,
    /// Files and directories opened.
    pub handles_opened: Counter,
    /// Files and directories closed.
    pub handles_closed: Counter,
    /// Names looked up, also for listings with attributes.
    pub lookups: Counter,

    /// Time of reads; its count is the number of reads.
    pub read_time: Histogram,
    /// Bytes returned by reads.
    pub bytes_returned: Counter,
    /// Bytes requested past the end of a file, or by a read that failed.
    pub bytes_not_returned: Counter,
    /// Reads that failed.
    pub failed_reads: Counter,
    /// Bytes of tables and data read from log files, without what libhdf5 reads in a scan.
    pub log_bytes: Counter,
    /// Time to make a chunk. Read-ahead and failures count, too.
    pub chunk_time: Histogram,

    /// Scans started.
    pub scans: Counter,
    /// Failed scans. A file that is no log is no failure.
    pub failed_scans: Counter,
    /// Log files that needed no scan.
    pub kept_scans: Counter,
    /// Scan workers that crashed, hung, or were stopped at a limit.
    pub worker_failures: Counter,
    /// Time of scans. Failures count, too.
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
    /// Counts a read of `asked` bytes that began at `start` and ends now. `returned` is the number of bytes returned, or
    /// `None` if the read failed.
    pub fn count_read(&self, start: Instant, asked: usize, returned: Option<usize>) {
        let there = returned.unwrap_or(0) as u64;
        self.read_time.record(start.elapsed());
        self.bytes_returned.add(there);
        // Most reads are complete, and must stay cheap.
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
