//! Datasets that are not completely written, and the places of missing elements.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::report::{texts, without_dataset};
use crate::cli::output::{Output, percent};
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_log::snapshot::{Dataset, LeftOut};
use h5logfs_view::View;

/// Most gaps reported for one dataset. A damaged log can claim any number.
const MOST_GAPS: usize = 1000;

/// The incomplete datasets of one log.
#[derive(Debug, Serialize)]
pub struct Incomplete {
    file: String,
    /// Number of logged datasets, including complete ones.
    logged: usize,
    incomplete: Vec<IncompleteDataset>,
    /// What the log has lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    losses: Vec<String>,
    /// Datasets without any element, because all are lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost: Vec<LostDataset>,
}

/// A dataset that the view does not have.
#[derive(Debug, Serialize)]
struct LostDataset {
    name: String,
    /// Number of lost elements.
    elements: u64,
    /// What is lost in words, such as `2 steps from 2 to 3`.
    what: String,
}

#[derive(Debug, Serialize)]
struct IncompleteDataset {
    name: String,
    shape: Vec<u64>,
    /// Share of the elements that are written, from 0 to 1: by a record, or in the base below all records. Left out where there
    /// are more gaps.
    #[serde(skip_serializing_if = "Option::is_none")]
    covered: Option<f64>,
    /// The first unlimited dimension, otherwise the first one.
    dimension: usize,
    /// The first gaps, if there are many.
    gaps: Vec<GapReport>,
    /// What the dataset has lost and has no place for, in words, such as `2 steps from 2 to 3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    /// Reasons why more elements may have been written.
    faults: Vec<String>,
}

/// Neighbouring indices of the dimension with the same share of written elements.
#[derive(Debug, Serialize)]
struct GapReport {
    first: u64,
    last: u64,
    /// Share of the written elements, below 1.
    covered: f64,
    /// Share of the elements that were written and are lost.
    #[serde(skip_serializing_if = "is_zero")]
    lost: f64,
}

fn is_zero(share: &f64) -> bool {
    *share == 0.0
}

impl Incomplete {
    pub fn of(_: &Path, view: &View) -> Result<Self> {
        let snapshot = view.snapshot();
        let is_lost = |d: &&Diagnostic| d.severity == Severity::Lost;
        let datasets = snapshot.datasets.iter().enumerate();
        let logged = datasets.filter(|(_, dataset)| dataset.logged().is_some());
        let mut found = Incomplete {
            file: view.path().to_string_lossy().into_owned(),
            logged: 0,
            incomplete: Vec::new(),
            losses: texts(snapshot.diagnostics.iter().filter(is_lost)),
            lost: Vec::new(),
        };
        let lost = without_dataset(snapshot).into_iter();
        found.lost = lost.map(LostDataset::from).collect();
        for (number, dataset) in logged {
            found.logged += 1;
            let incomplete = IncompleteDataset::of(view, number, dataset)?;
            found.incomplete.extend(incomplete);
        }
        Ok(found)
    }

    pub fn print(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        writeln!(
            out,
            "{}: {} of {} logged datasets incomplete",
            self.file,
            self.incomplete.len(),
            self.logged
        )?;
        for loss in &self.losses {
            writeln!(out, "  missing: {loss}")?;
        }
        for dataset in &self.incomplete {
            dataset.print(out)?;
        }
        for lost in &self.lost {
            writeln!(out, "{}: lost: {}", lost.name, lost.what)?;
        }
        Ok(())
    }
}

impl From<&LeftOut> for LostDataset {
    fn from(lost: &LeftOut) -> Self {
        LostDataset {
            name: lost.name.clone(),
            elements: lost.elements,
            what: lost.what.clone(),
        }
    }
}

impl IncompleteDataset {
    /// The gaps of a dataset; `None` if it is complete.
    fn of(view: &View, number: usize, dataset: &Dataset) -> Result<Option<Self>> {
        let unlimited = dataset.max_dims.iter().position(Option::is_none);
        let left_out = view.snapshot().left_out.iter();
        let left_out = left_out.filter(|lost| lost.name == dataset.name);
        let (elements, words): (Vec<u64>, Vec<&str>) =
            left_out.map(|lost| (lost.elements, &*lost.what)).unzip();
        let mut found = IncompleteDataset {
            name: dataset.name.clone(),
            shape: dataset.dims.clone(),
            covered: Some(0.0),
            dimension: unlimited.unwrap_or(0),
            gaps: Vec::new(),
            left_out: (!words.is_empty()).then(|| words.join(", ")),
            faults: texts(view.indexes().of(number)?.diagnostics()),
        };
        let Some(&indices) = dataset.dims.get(found.dimension) else {
            // The dataset is a scalar.
            let covered = view.inspection().covered(number)?;
            return Ok((covered == Some(0.0)).then_some(found));
        };
        let others = dataset.dims.iter().enumerate();
        let others = others.filter(|(d, _)| *d != found.dimension);
        let each: f64 = others.map(|(_, side)| *side as f64).product();
        let whole = each * indices as f64;
        let mut missing = 0.0;
        view.inspection()
            .gaps(number, found.dimension, &mut |gap| {
                let covered = gap.written as f64 / each;
                missing +=
                    (gap.indices.end - gap.indices.start) as f64 * (each - gap.written as f64);
                found.gaps.push(GapReport {
                    first: gap.indices.start,
                    last: gap.indices.end - 1,
                    covered,
                    lost: gap.lost as f64 / each,
                });
                if found.gaps.len() > MOST_GAPS {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
        let left_out = elements.iter().map(|n| *n as f64).sum::<f64>();
        let share = 1.0 - (missing + left_out) / (whole + left_out);
        found.covered = (found.gaps.len() <= MOST_GAPS).then_some(share);
        found.gaps.truncate(MOST_GAPS);
        let is_complete = found.gaps.is_empty() && found.left_out.is_none();
        Ok((!is_complete).then_some(found))
    }

    fn print(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        let (name, shape, dimension) = (&self.name, &self.shape, self.dimension);
        if shape.is_empty() {
            return writeln!(out, "{name}: not written");
        }
        let covered = self.covered.map(percent);
        let covered = covered.map_or("in part".to_owned(), |share| format!("{share} covered"));
        writeln!(
            out,
            "{name} {shape:?}: {covered}; along dimension {dimension}:"
        )?;
        self.gaps.iter().try_for_each(|gap| gap.print(out))?;
        if let Some(left_out) = &self.left_out {
            writeln!(out, "  lost: {left_out}")?;
        }
        if self.covered.is_none() {
            writeln!(out, "  and more, after {MOST_GAPS} lines")?;
        }
        let mut faults = self.faults.iter();
        faults.try_for_each(|fault| writeln!(out, "  fault: {fault}"))
    }
}

impl GapReport {
    fn print(&self, out: &mut Output<impl Write>) -> io::Result<()> {
        let indices = if self.first == self.last {
            self.first.to_string()
        } else {
            format!("{} to {}", self.first, self.last)
        };
        let written = match self.covered {
            0.0 => "nothing written".to_owned(),
            share => format!("{} written", percent(share)),
        };
        if self.lost > 0.0 {
            writeln!(out, "  {indices}: {} lost, {written}", percent(self.lost))
        } else {
            writeln!(out, "  {indices}: {written}")
        }
    }
}
