//! The values of elements. They are a function of seed, dataset and position, so that a reader can check
//! them. `client.py` has the same functions.

use serde::Serialize;

/// The golden ratio in 64 bits: odd, and without a pattern.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The second factor of SplitMix64.
const MIX: u64 = 0x94d0_49bb_1331_11eb;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Random values.
    Noise,
    /// Slowly changing values, with noise in the lower half of the bits. Shuffle and deflate reduce them to
    /// a quarter, as they do with many measured fields.
    Smooth,
}

/// Integers below 2^24, which 32-bit floats hold exactly.
#[derive(Debug, Clone, Copy)]
pub struct Values {
    pub pattern: Pattern,
    key: u64,
}

impl Values {
    pub fn new(pattern: Pattern, seed: u64, dataset: u32) -> Self {
        let key = seed.wrapping_mul(1_000_003).wrapping_add(dataset.into());
        Values {
            pattern,
            key: key.wrapping_mul(GOLDEN),
        }
    }

    /// Determines the values, together with the pattern.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// The element at a position in row-major order.
    pub fn at(&self, place: u64) -> u32 {
        let mixed = place.wrapping_mul(GOLDEN).wrapping_add(self.key);
        let noise = (mixed ^ mixed >> 32).wrapping_mul(MIX) >> 40;
        let value = match self.pattern {
            Pattern::Noise => noise,
            Pattern::Smooth => (place >> 6 & 0xfff) << 12 | noise >> 12,
        };
        value as u32
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Element {
    #[serde(rename = "<f4")]
    F32,
    #[serde(rename = "<f8")]
    F64,
}

impl Element {
    pub fn size(self) -> u64 {
        match self {
            Element::F32 => 4,
            Element::F64 => 8,
        }
    }

    /// Appends a run of `count` elements.
    pub fn append(self, values: Values, first: u64, count: u64, bytes: &mut Vec<u8>) {
        let run = (first..first + count).map(|place| values.at(place));
        match self {
            Element::F32 => run.for_each(|v| bytes.extend_from_slice(&(v as f32).to_le_bytes())),
            Element::F64 => run.for_each(|v| bytes.extend_from_slice(&f64::from(v).to_le_bytes())),
        }
    }
}

/// The random number at an index. It does not depend on the numbers before it.
pub fn random(seed: u64, number: u64) -> u64 {
    // The mixing function of SplitMix64.
    let mut z = seed.wrapping_add(number.wrapping_mul(GOLDEN));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(MIX);
    z ^ (z >> 31)
}

/// A random permutation of the numbers below `count` that takes no memory: a Feistel network over the
/// smallest sufficient even number of bits. A result of `count` or more goes through it again.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    count: u64,
    half: u32,
    seed: u64,
}

impl Order {
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        Order {
            count,
            half: bits.div_ceil(2).max(1),
            seed,
        }
    }

    /// The number at a position of the permutation.
    pub fn at(&self, place: u64) -> u64 {
        let mut number = place;
        loop {
            number = self.once(number);
            if number < self.count {
                return number;
            }
        }
    }

    fn once(&self, number: u64) -> u64 {
        let mask = (1 << self.half) - 1;
        let (mut left, mut right) = (number >> self.half, number & mask);
        for round in 0..4 {
            let mixed = random(self.seed ^ round, right) & mask;
            (left, right) = (right, left ^ mixed);
        }
        left << self.half | right
    }
}
