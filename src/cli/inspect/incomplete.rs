//! Datasets that are not completely written, and the places of missing elements.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::report::texts;
use crate::cli::output::{Output, percent};
use h5logfs_log::snapshot::Dataset;
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
}

impl Incomplete {
    pub fn of(_: &Path, view: &View) -> Result<Self> {
        let datasets = view.snapshot().datasets.iter().enumerate();
        let logged = datasets.filter(|(_, dataset)| dataset.logged().is_some());
        let mut found = Incomplete {
            file: view.path().to_string_lossy().into_owned(),
            logged: 0,
            incomplete: Vec::new(),
        };
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
        for dataset in &self.incomplete {
            dataset.print(out)?;
        }
        Ok(())
    }
}

impl IncompleteDataset {
    /// The gaps of a dataset; `None` if it is complete.
    fn of(view: &View, number: usize, dataset: &Dataset) -> Result<Option<Self>> {
        let unlimited = dataset.max_dims.iter().position(Option::is_none);
        let mut found = IncompleteDataset {
            name: dataset.name.clone(),
            shape: dataset.dims.clone(),
            covered: Some(0.0),
            dimension: unlimited.unwrap_or(0),
            gaps: Vec::new(),
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
        let mut missing = 0.0;
        view.inspection()
            .gaps(number, found.dimension, &mut |gap| {
                let covered = gap.written as f64 / each;
                missing += (gap.indices.end - gap.indices.start) as f64 * (1.0 - covered);
                found.gaps.push(GapReport {
                    first: gap.indices.start,
                    last: gap.indices.end - 1,
                    covered,
                });
                if found.gaps.len() > MOST_GAPS {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
        found.covered = (found.gaps.len() <= MOST_GAPS).then(|| 1.0 - missing / indices as f64);
        found.gaps.truncate(MOST_GAPS);
        Ok((!found.gaps.is_empty()).then_some(found))
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
        if self.covered > 0.0 {
            writeln!(out, "  {indices}: {} written", percent(self.covered))
        } else {
            writeln!(out, "  {indices}: nothing written")
        }
    }
}
