//! Medians and quartiles of a few samples.

use serde::Serialize;

/// Samples of one quantity, one for each round. The first round is kept apart, because all is cold.
#[derive(Debug, Clone, Serialize)]
pub struct Samples {
    pub first: f64,
    pub rest: Vec<f64>,
    pub median: f64,
    pub quartiles: [f64; 2],
}

impl Samples {
    /// `None` without a round. A single round is both the first one and the rest.
    pub fn new(rounds: &[f64]) -> Option<Self> {
        let (first, rest) = rounds.split_first()?;
        let rest = if rest.is_empty() { rounds } else { rest };
        let mut sorted = rest.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Samples {
            first: *first,
            rest: rest.to_vec(),
            median: quantile(&sorted, 0.5),
            quartiles: [quantile(&sorted, 0.25), quantile(&sorted, 0.75)],
        })
    }

    /// Round by round.
    pub fn ratio(over: &[f64], under: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = over.iter().zip(under).map(|(o, u)| o / u).collect();
        Samples::new(&ratios)
    }
}

/// The quantile of sorted samples, interpolated between two of them.
fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let position = fraction * (sorted.len() - 1) as f64;
    let below = sorted[position.floor() as usize];
    let above = sorted[position.ceil() as usize];
    below + (above - below) * position.fract()
}
