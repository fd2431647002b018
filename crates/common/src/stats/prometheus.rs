//! A report in the text format of Prometheus. Names end with the unit, counters with `_total`; units are seconds and bytes.
//! Each sample has the mount as a label, so one file can hold several mounts.

use std::fmt::Write;

use super::report::{Distribution, Report};

pub fn text(report: &Report) -> String {
    let mut text = Text::new(&report.mountpoint);
    about(&mut text, report);
    opens_and_reads(&mut text, report);
    cache_and_memory(&mut text, report);
    scans(&mut text, report);
    text.written
}

fn about(text: &mut Text, report: &Report) {
    let version = [("version", report.version)];
    let help = "The program, by its version; always 1.";
    text.gauge("build_info", help, [(&version[..], 1)]);
    let help = "Start of the daemon, in seconds since 1970.";
    text.gauge("start_time_seconds", help, [(&[][..], report.start_time)]);
    let help = "Time since the start of the daemon.";
    text.gauge("uptime_seconds", help, [(&[][..], report.uptime)]);
    let process = &report.process;
    let system = [
        (
            "resident_memory_bytes",
            "Resident memory of the daemon.",
            process.resident_bytes,
        ),
        (
            "open_fds",
            "File descriptors open in the daemon.",
            process.descriptors,
        ),
        (
            "max_fds",
            "Limit of open file descriptors of the daemon.",
            Some(process.descriptor_limit),
        ),
    ];
    for (name, help, value) in system {
        if let Some(value) = value {
            text.gauge(name, help, [(&[][..], value)]);
        }
    }
}

fn opens_and_reads(text: &mut Text, report: &Report) {
    let (opens, reads) = (&report.opens, &report.reads);
    let help = "Regular files opened: log files as views, plain files unchanged.";
    let (views, plain) = ([("kind", "view")], [("kind", "plain")]);
    let samples = [(&views[..], opens.views), (&plain[..], opens.plain)];
    text.counter("opens_total", help, samples);
    let help = "Regular files that could not be opened.";
    text.count("open_errors_total", help, opens.failed);
    let help = "Time to open a regular file.";
    text.histogram("open_duration_seconds", help, &opens.time);
    let help = "Files and directories open now.";
    text.gauge("open_handles", help, [(&[][..], opens.handles)]);
    let help = "Names looked up by the kernel.";
    text.count("lookups_total", help, report.lookups);
    let help = "Time to answer a read of the kernel.";
    text.histogram("read_duration_seconds", help, &reads.time);
    let help = "Reads that failed.";
    text.count("read_errors_total", help, reads.failed);
    let help = "Bytes requested by the kernel.";
    text.count("read_asked_bytes_total", help, reads.bytes_asked);
    let help = "Bytes returned to the kernel.";
    text.count("read_returned_bytes_total", help, reads.bytes_returned);
    let help = "Bytes read from log files, without scans.";
    text.count("log_read_bytes_total", help, reads.log_bytes);
}

fn cache_and_memory(text: &mut Text, report: &Report) {
    let (cache, memory) = (&report.cache, &report.memory);
    let help = "Chunks and records found in memory.";
    text.count("cache_hits_total", help, cache.hits);
    let help = "Chunks and records not found in memory.";
    text.count("cache_misses_total", help, cache.misses);
    let help = "Chunks made by read-ahead.";
    text.count("cache_made_ahead_total", help, cache.made_ahead);
    let help = "Time to make a chunk.";
    text.histogram("chunk_duration_seconds", help, &cache.time);
    let shares = [
        ([("limit", "cache_size")], memory.cache_size),
        ([("limit", "index_memory")], memory.index_memory),
    ];
    let help = "Memory in use, by the option that limits it.";
    let used = shares
        .each_ref()
        .map(|(label, share)| (&label[..], share.used));
    text.gauge("memory_used_bytes", help, used);
    let help = "Memory that each option allows.";
    let limits = shares
        .each_ref()
        .map(|(label, share)| (&label[..], share.limit));
    text.gauge("memory_limit_bytes", help, limits);
}

fn scans(text: &mut Text, report: &Report) {
    let scans = &report.scans;
    let help = "Scans started.";
    text.count("scans_total", help, scans.started);
    let help = "Scans of log files that cannot be presented.";
    text.count("scan_errors_total", help, scans.failed);
    let help = "Log files that needed no scan: an earlier one was on disk.";
    text.count("kept_scans_total", help, scans.from_kept_index);
    let help = "Scan workers that crashed, hung, or were stopped at a limit.";
    text.count("worker_failures_total", help, scans.worker_failures);
    let help = "Time of a scan.";
    text.histogram("scan_duration_seconds", help, &scans.time);
}

type Labels<'a> = &'a [(&'a str, &'a str)];

struct Text {
    written: String,
    /// Label of all samples.
    mount: String,
}

impl Text {
    fn new(mountpoint: &str) -> Self {
        Text {
            written: String::new(),
            mount: label("mountpoint", mountpoint),
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP h5logfs_{name} {help}"));
        self.line(format_args!("# TYPE h5logfs_{name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl std::fmt::Display) {
        let further = labels.iter().map(|(name, value)| label(name, value));
        let labels: Vec<String> = std::iter::once(self.mount.clone()).chain(further).collect();
        self.line(format_args!(
            "h5logfs_{name}{{{}}} {value}",
            labels.join(",")
        ));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.written, "{text}");
    }

    fn family<'a, V: std::fmt::Display>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        samples: impl IntoIterator<Item = (Labels<'a>, V)>,
    ) {
        self.head(name, kind, help);
        for (labels, value) in samples {
            self.sample(name, labels, value);
        }
    }

    fn gauge<'a, V: std::fmt::Display>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a>, V)>,
    ) {
        self.family((name, "gauge", help), samples);
    }

    fn counter<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a>, u64)>,
    ) {
        self.family((name, "counter", help), samples);
    }

    /// A counter without labels of its own.
    fn count(&mut self, name: &str, help: &str, value: u64) {
        self.counter(name, help, [(&[][..], value)]);
    }

    fn histogram(&mut self, name: &str, help: &str, times: &Distribution) {
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for in_bucket in &times.buckets {
            let le = in_bucket.le.to_string();
            self.sample(&bucket, &[("le", &le)], in_bucket.count);
        }
        self.sample(&bucket, &[("le", "+Inf")], times.count);
        self.sample(&format!("{name}_sum"), &[], times.sum);
        self.sample(&format!("{name}_count"), &[], times.count);
    }
}

fn label(name: &str, value: &str) -> String {
    let escaped = value.replace('\\', r"\\");
    let escaped = escaped.replace('"', "\\\"").replace('\n', r"\n");
    format!("{name}=\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(label("l", "a\\\"\nb"), r#"l="a\\\"\nb""#);
    }
}
