//! Slices as numpy writes them: `3,:,::2` picks index 3 of the first dimension, all of the second and every other index
//! of the third.

use std::fmt::{self, Display};

use h5logfs_common::fault::Fault;

/// What is picked along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slice {
    /// One index. The dimension does not appear in the result.
    Index(u64),
    /// `count` indices: `start`, `start + step`, …
    Range {
        /// The smallest index.
        start: u64,
        /// Number of indices.
        count: u64,
        /// Distance of neighbours, at least 1.
        step: u64,
        /// Whether the indices descend, as after a negative step.
        is_reversed: bool,
    },
}

impl Slice {
    /// All indices of a dimension.
    pub fn all(side: u64) -> Self {
        Slice::Range {
            start: 0,
            count: side,
            step: 1,
            is_reversed: false,
        }
    }

    /// Number of indices.
    pub fn len(&self) -> u64 {
        match self {
            Slice::Index(_) => 1,
            Slice::Range { count, .. } => *count,
        }
    }

    /// Whether nothing is picked.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this is every index of a dimension, in order.
    pub fn is_all(&self, side: u64) -> bool {
        *self == Slice::all(side)
    }

    /// Reads the slice of a dimension of `side` indices. Negative numbers count from the end.
    fn parse(text: &str, side: u64) -> Result<Self, Fault> {
        let number = |text: &str| match text.trim() {
            "" => Ok(None),
            text => match text.parse::<i64>() {
                Ok(number) => Ok(Some(i128::from(number))),
                Err(_) => Err(refused(format!("{text}: is no index"))),
            },
        };
        let parts: Vec<&str> = text.split(':').collect();
        let all = i128::from(side);
        match parts[..] {
            [index] => {
                let index = number(index)?.ok_or_else(|| refused("an index is missing"))?;
                let counted = if index < 0 { index + all } else { index };
                if !(0..all).contains(&counted) {
                    return Err(refused(format!("index {index} of a dimension of {side}")));
                }
                Ok(Slice::Index(u64::try_from(counted)?))
            }
            [start, stop] => Self::range(number(start)?, number(stop)?, 1, side),
            [start, stop, step] => {
                let step = number(step)?.unwrap_or(1);
                Self::range(number(start)?, number(stop)?, step, side)
            }
            _ => Err(refused(format!("{}: is no slice", text.trim()))),
        }
    }

    /// The indices of Python's `slice(start, stop, step)`, which are clipped to the dimension.
    fn range(
        start: Option<i128>,
        stop: Option<i128>,
        step: i128,
        side: u64,
    ) -> Result<Self, Fault> {
        if step == 0 {
            return Err(refused("a slice with a step of 0"));
        }
        let all = i128::from(side);
        // The ends of a descending slice lie one before the first index, and at the last.
        let (low, high) = if step > 0 { (0, all) } else { (-1, all - 1) };
        let clip = |given: i128| {
            let counted = if given < 0 { given + all } else { given };
            counted.clamp(low, high)
        };
        let (first, behind) = if step > 0 { (low, high) } else { (high, low) };
        let start = start.map_or(first, clip);
        let stop = stop.map_or(behind, clip);
        let distance = step.unsigned_abs();
        let span = if step > 0 { stop - start } else { start - stop };
        let count = span.max(0).unsigned_abs().div_ceil(distance);
        let least = match count {
            0 => 0,
            _ if step > 0 => start.unsigned_abs(),
            _ => start.unsigned_abs() - (count - 1) * distance,
        };
        Ok(Slice::Range {
            start: u64::try_from(least)?,
            count: u64::try_from(count)?,
            // A step past the end of the dimension picks one index, whatever it is.
            step: u64::try_from(distance.min(u128::from(side.max(1))))?,
            is_reversed: step < 0,
        })
    }
}

fn refused(reason: impl Into<String>) -> Fault {
    Fault::Refused(reason.into())
}

/// Reads slices for a dataset of these dimensions: the text between the brackets of `a[3, :, ::2]`. `...` stands for as
/// many whole dimensions as are missing, and so does the end of the text.
pub fn parse(text: &str, dims: &[u64]) -> Result<Vec<Slice>, Fault> {
    let parts: Vec<&str> = match text.trim() {
        "" => Vec::new(),
        text => text.split(',').map(str::trim).collect(),
    };
    let is_rest = |part: &&&str| **part == "...";
    let rests = parts.iter().filter(is_rest).count();
    let given = parts.len() - rests;
    if rests > 1 {
        return Err(refused("`...` stands twice"));
    }
    if given > dims.len() {
        return Err(refused(format!(
            "{given} indices for a dataset of {} dimensions",
            dims.len()
        )));
    }
    let missing = dims.len() - given;
    let mut slices = Vec::with_capacity(dims.len());
    for part in &parts {
        if *part == "..." {
            let whole = dims[slices.len()..].iter().take(missing);
            slices.extend(whole.map(|side| Slice::all(*side)).collect::<Vec<_>>());
        } else {
            slices.push(Slice::parse(part, dims[slices.len()])?);
        }
    }
    let rest = dims[slices.len()..].iter();
    slices.extend(rest.map(|side| Slice::all(*side)).collect::<Vec<_>>());
    Ok(slices)
}

/// Slices in numpy's form, for a dataset of these dimensions.
pub struct Shown<'a>(pub &'a [Slice], pub &'a [u64]);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (at, (slice, side)) in self.0.iter().zip(self.1).enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            match *slice {
                Slice::Index(index) => write!(f, "{index}")?,
                all if all.is_all(*side) => f.write_str(":")?,
                Slice::Range { count: 0, .. } => f.write_str("0:0")?,
                Slice::Range {
                    start,
                    count,
                    step,
                    is_reversed,
                } => {
                    let last = start + (count - 1) * step;
                    match (is_reversed, start) {
                        (false, _) => write!(f, "{start}:{}", last + 1)?,
                        (true, 0) => write!(f, "{last}:")?,
                        (true, _) => write!(f, "{last}:{}", start - 1)?,
                    }
                    match (is_reversed, step) {
                        (false, 1) => {}
                        (false, step) => write!(f, ":{step}")?,
                        (true, step) => write!(f, ":-{step}")?,
                    }
                }
            }
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn indices(slice: Slice) -> Vec<u64> {
        match slice {
            Slice::Index(index) => vec![index],
            Slice::Range {
                start,
                count,
                step,
                is_reversed,
            } => {
                let mut found: Vec<u64> = (0..count).map(|n| start + n * step).collect();
                if is_reversed {
                    found.reverse();
                }
                found
            }
        }
    }

    /// The indices of a slice as Python defines them, one after the other.
    fn model(start: Option<i64>, stop: Option<i64>, step: i64, side: i64) -> Vec<u64> {
        let (low, high) = if step > 0 { (0, side) } else { (-1, side - 1) };
        let clip = |n: i64| (if n < 0 { n + side } else { n }).clamp(low, high);
        let (first, behind) = if step > 0 { (low, high) } else { (high, low) };
        let (mut at, stop) = (start.map_or(first, clip), stop.map_or(behind, clip));
        let mut found = Vec::new();
        while (step > 0 && at < stop) || (step < 0 && at > stop) {
            found.push(at as u64);
            at += step;
        }
        found
    }

    proptest! {
        #[test]
        fn slices_are_those_of_python(
            start in proptest::option::of(-25i64..25),
            stop in proptest::option::of(-25i64..25),
            step in prop_oneof![1i64..9, -9i64..0],
            side in 0u64..20,
        ) {
            let text = |n: Option<i64>| n.map_or(String::new(), |n| n.to_string());
            let text = format!("{}:{}:{step}", text(start), text(stop));
            let found = parse(&text, &[side]).unwrap();
            prop_assert_eq!(indices(found[0]), model(start, stop, step, side as i64));
            // What is shown means the same.
            let shown = Shown(&found, &[side]).to_string();
            let again = parse(&shown[1..shown.len() - 1], &[side]).unwrap();
            prop_assert_eq!(indices(again[0]), indices(found[0]));
        }
    }

    #[test]
    fn missing_dimensions_are_whole() {
        let dims = [5, 6, 7];
        let shown = |text: &str| parse(text, &dims).map(|found| Shown(&found, &dims).to_string());
        assert_eq!(shown("").unwrap(), "[:, :, :]");
        assert_eq!(shown("-1").unwrap(), "[4, :, :]");
        assert_eq!(shown("..., 2").unwrap(), "[:, :, 2]");
        assert_eq!(shown("1,...,::2").unwrap(), "[1, :, 0:7:2]");
        assert_eq!(shown(":,::-1,0").unwrap(), "[:, 5::-1, 0]");
        for bad in [
            "5",
            "-6",
            "a",
            "1,,2",
            "::0",
            "1:2:3:4",
            "0,0,0,0",
            "...,...",
            "99999999999999999999",
        ] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }
}
