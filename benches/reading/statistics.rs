//! Medians and quartiles of a few samples.

use serde::Serialize;

/// Samples of one quantity, one a round. The first round finds everything cold and is kept apart.
#[derive(Debug, Clone, Serialize)]
pub struct Samples {
    pub first: f64,
    pub rest: Vec<f64>,
    pub median: f64,
    pub quartiles: [f64; 2],
}

impl Samples {
    /// Of all rounds, at least one. A single round is both the first one and the rest.
    pub fn new(rounds: &[f64]) -> Option<Self> {
        let (first, rest) = rounds.split_first()?;
        let rest = if rest.is_empty() { rounds } else { rest };
        let mut sorted = rest.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Samples {
            first: *first,
            rest: rest.to_vec(),
            median: at(&sorted, 0.5),
            quartiles: [at(&sorted, 0.25), at(&sorted, 0.75)],
        })
    }

    /// Round by round.
    pub fn ratio(over: &[f64], under: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = over.iter().zip(under).map(|(o, u)| o / u).collect();
        Samples::new(&ratios)
    }
}

/// The value below which a part of the samples lies, between two of them where none is just there.
fn at(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (
        sorted[place.floor() as usize],
        sorted[place.ceil() as usize],
    );
    below + (above - below) * place.fract()
}
