//! The results, as tables and as JSON.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use crate::generate::Written;
use crate::statistics::Samples;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Seconds,
    Bytes,
    /// A plain number.
    Number,
}

/// A goal of the project.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Least native ÷ measured.
    Ratio(f64),
    /// Largest measured value.
    AtMost(f64),
    /// Least measured value.
    AtLeast(f64),
}

/// One measurement.
#[derive(Debug, Serialize)]
pub struct Row {
    pub what: String,
    /// Name of the contestant, such as `mounted`.
    pub contestant: &'static str,
    pub unit: Unit,
    /// Figures of the native file, or of another contestant that stands in its place.
    pub native: Option<Samples>,
    pub measured: Samples,
    /// Native ÷ measured, round by round. Above 1 the contestant is faster.
    pub ratio: Option<Samples>,
    pub goal: Option<Goal>,
    pub reached: Option<bool>,
}

impl Row {
    /// A row from the samples of a contestant; `None` without a single round.
    pub fn new(
        what: impl Into<String>,
        contestant: &'static str,
        unit: Unit,
        measured: &[f64],
    ) -> Option<Self> {
        Some(Row {
            what: what.into(),
            contestant,
            unit,
            native: None,
            measured: Samples::new(measured)?,
            ratio: None,
            goal: None,
            reached: None,
        })
    }

    pub fn against(mut self, native: &[f64], measured: &[f64]) -> Self {
        self.native = Samples::new(native);
        self.ratio = Samples::ratio(native, measured);
        self
    }

    pub fn goal(mut self, goal: Option<Goal>) -> Self {
        self.goal = goal;
        self.reached = goal.map(|goal| match goal {
            Goal::Ratio(least) => self.ratio.as_ref().is_some_and(|r| r.median >= least),
            Goal::AtMost(most) => self.measured.median <= most,
            Goal::AtLeast(least) => self.measured.median >= least,
        });
        self
    }
}

/// The outcome of one workload.
#[derive(Debug, Default, Serialize)]
pub struct Outcome {
    pub name: &'static str,
    pub log: Option<Log>,
    /// Whether mounted and native file hold the generated contents.
    pub contents_agree: Option<bool>,
    pub rows: Vec<Row>,
    /// Explanations of the figures.
    pub notes: Vec<String>,
    pub skipped: Option<String>,
    pub failed: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Log {
    pub entries: u64,
    pub blocks: u64,
    pub data_bytes: u64,
    pub metadata_bytes: u64,
}

impl Outcome {
    pub fn new(name: &'static str) -> Self {
        Outcome {
            name,
            ..Outcome::default()
        }
    }

    pub fn log(&mut self, written: &Written) {
        self.log = Some(Log {
            entries: written.entries,
            blocks: written.blocks,
            data_bytes: written.data,
            metadata_bytes: written.metadata,
        });
    }

    /// Adds a row, if there was a round.
    pub fn row(&mut self, row: Option<Row>) {
        self.rows.extend(row);
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Adds the differences of contents, if there are any.
    pub fn contents(&mut self, wrong: &[String]) {
        let agree = self.contents_agree.unwrap_or(true) && wrong.is_empty();
        self.contents_agree = Some(agree);
        self.notes
            .extend(wrong.iter().map(|w| format!("WRONG CONTENTS: {w}")));
    }

    pub fn is_good(&self) -> bool {
        self.failed.is_none() && self.contents_agree != Some(false)
    }
}

/// The results of all workloads.
#[derive(Debug, Serialize)]
pub struct Report {
    pub scale: String,
    pub rounds: usize,
    pub seed: u64,
    /// The program that reads.
    pub reader: String,
    pub processors: usize,
    pub mount_options: String,
    pub workloads: Vec<Outcome>,
}

impl Display for Report {
    /// The parameters of all figures.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "scale {}, {} rounds and one before them, seed {}, {} processors, {}{}{}",
            self.scale,
            self.rounds,
            self.seed,
            self.processors,
            self.reader,
            if self.mount_options.is_empty() {
                ""
            } else {
                ", mounted with "
            },
            self.mount_options
        )
    }
}

/// The table of one workload.
impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\n## {}", self.name)?;
        if let Some(log) = &self.log {
            let (data, metadata) = (log.data_bytes as f64, log.metadata_bytes as f64);
            write!(
                f,
                ": {} entries, {} blocks, {} of data, {} of metadata",
                log.entries,
                log.blocks,
                Shown(Unit::Bytes, data),
                Shown(Unit::Bytes, metadata)
            )?;
        }
        writeln!(f, "\n")?;
        if !self.rows.is_empty() {
            writeln!(
                f,
                "| {:50} | {:30} | {:30} | {:22} | {:8} | {:12} |",
                "measurement", "native", "measured", "native ÷ measured", "round 1", "goal"
            )?;
            writeln!(f, "|---|---|---|---|---|---|")?;
        }
        for row in &self.rows {
            row.fmt(f)?;
        }
        for note in &self.notes {
            writeln!(f, "\n{note}")?;
        }
        if let Some(why) = &self.skipped {
            writeln!(f, "skipped: {why}")?;
        }
        if let Some(why) = &self.failed {
            writeln!(f, "FAILED: {why}")?;
        }
        match self.contents_agree {
            Some(true) => writeln!(f, "\ncontents agree"),
            Some(false) => writeln!(f, "\nCONTENTS DISAGREE"),
            None => Ok(()),
        }
    }
}

impl Display for Row {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let what = match self.contestant {
            "mounted" => self.what.clone(),
            other => format!("{}: {other}", self.what),
        };
        let native = self.native.as_ref().map(|s| spread(self.unit, s));
        let ratio = self.ratio.as_ref().map(|s| spread(Unit::Number, s));
        let first = match &self.ratio {
            Some(ratio) => Shown(Unit::Number, ratio.first).to_string(),
            None => Shown(self.unit, self.measured.first).to_string(),
        };
        let dash = || "–".to_owned();
        writeln!(
            f,
            "| {what:50} | {:30} | {:30} | {:22} | {first:8} | {:12} |",
            native.unwrap_or_else(dash),
            spread(self.unit, &self.measured),
            ratio.unwrap_or_else(dash),
            self.wanted().unwrap_or_else(dash),
        )
    }
}

impl Row {
    fn wanted(&self) -> Option<String> {
        let (sign, unit, limit) = match self.goal? {
            Goal::Ratio(least) => ('≥', Unit::Number, least),
            Goal::AtMost(most) => ('≤', self.unit, most),
            Goal::AtLeast(least) => ('≥', self.unit, least),
        };
        let reached = if self.reached? { "yes" } else { "no" };
        Some(format!("{sign} {}: {reached}", Shown(unit, limit)))
    }
}

/// The median, with quartiles in parentheses.
fn spread(unit: Unit, samples: &Samples) -> String {
    let [low, high] = samples.quartiles.map(|q| Shown(unit, q));
    format!("{} ({low}–{high})", Shown(unit, samples.median))
}

/// A number with its unit.
struct Shown(Unit, f64);

impl Display for Shown {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (unit, value) = (self.0, self.1);
        match unit {
            Unit::Seconds if value < 1e-3 => write!(f, "{:.1} µs", value * 1e6),
            Unit::Seconds if value < 1.0 => write!(f, "{:.2} ms", value * 1e3),
            Unit::Seconds => write!(f, "{value:.2} s"),
            Unit::Bytes if value < 1024.0 => write!(f, "{value:.1} B"),
            Unit::Bytes if value < 1_048_576.0 => write!(f, "{:.1} KiB", value / 1024.0),
            Unit::Bytes => write!(f, "{:.1} MiB", value / 1_048_576.0),
            Unit::Number if value.abs() < 0.1 => write!(f, "{value:.4}"),
            Unit::Number if value.abs() < 10.0 => write!(f, "{value:.2}"),
            Unit::Number => write!(f, "{value:.0}"),
        }
    }
}
