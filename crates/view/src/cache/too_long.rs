//! What took longer than a request may. Each reader that waits for it, and each page that the kernel asks for again, would
//! otherwise take as long.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Generation;

/// How long it is remembered.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How much is remembered at a time.
const MOST: usize = 256;

/// A part of a view: a chunk of a dataset, or its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub generation: Generation,
    pub dataset: usize,
    pub chunk: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct TooLong(Mutex<VecDeque<(Instant, Part)>>);

impl TooLong {
    pub fn remember(&self, part: Part) {
        let mut recent = self.0.lock();
        recent.retain(|(_, known)| *known != part);
        recent.truncate(MOST - 1);
        recent.push_front((Instant::now(), part));
    }

    /// Fails where the part took too long a moment ago.
    pub fn check(&self, part: Part) -> Result<(), String> {
        let mut recent = self.0.lock();
        recent.retain(|(when, _)| when.elapsed() < REMEMBERED);
        if recent.iter().any(|(_, known)| *known == part) {
            return Err(
                "a moment ago it took more processor time than one request may (read_cpu)".into(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_too_long_is_not_tried_again_at_once() {
        let part = |number: usize| Part {
            generation: 1,
            dataset: number,
            chunk: None,
        };
        let too_long = TooLong::default();
        assert!(too_long.check(part(0)).is_ok());
        (0..MOST + 1).for_each(|number| too_long.remember(part(number)));
        assert!(too_long.check(part(MOST)).is_err() && too_long.check(part(1)).is_err());
        // The oldest made room.
        assert!(too_long.check(part(0)).is_ok());
        let chunk = Part {
            chunk: Some(0),
            ..part(1)
        };
        assert!(too_long.check(chunk).is_ok());
    }
}
