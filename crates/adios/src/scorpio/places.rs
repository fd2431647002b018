//! The places of a decomposition map (section 6.2).

use crate::Result;

/// The number of the first place of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Places count from 0 on, as the contiguous rearranger writes them.
    Zero,
    /// Places count from 1 on; 0 is no place.
    One,
}

impl Begin {
    /// The place of an entry, from 0 on; `None` for an entry that is no place.
    pub fn place(self, entry: i64) -> Option<u64> {
        match self {
            Begin::Zero => u64::try_from(entry).ok(),
            Begin::One => u64::try_from(entry).ok()?.checked_sub(1),
        }
    }
}

/// The entries of a map so far.
#[derive(Debug)]
pub struct Places {
    /// Number of places of the array.
    of: u64,
    entries: u64,
    zeros: u64,
    negatives: u64,
    least: i64,
    most: i64,
}

impl Places {
    /// No entries yet, of a map of an array of `of` places.
    pub fn new(of: u64) -> Self {
        Places {
            of,
            entries: 0,
            zeros: 0,
            negatives: 0,
            least: i64::MAX,
            most: i64::MIN,
        }
    }

    /// Adds the entries of a block.
    pub fn add(&mut self, entries: impl Iterator<Item = i64>) {
        for entry in entries {
            self.entries += 1;
            self.zeros += u64::from(entry == 0);
            self.negatives += u64::from(entry < 0);
            self.least = self.least.min(entry);
            self.most = self.most.max(entry);
        }
    }

    /// Whether only a look at each entry tells more: the number of entries allows that each place has one.
    pub fn may_be_whole(&self) -> bool {
        self.entries - self.negatives >= self.of
    }

    /// Where places begin. `distinct`: the number of distinct entries above 0, if it is known. Fails where an entry is no
    /// place of the array, and where the entries contradict each other.
    pub fn begin(&self, distinct: Option<u64>) -> Result<Begin> {
        let of = self.of;
        if self.negatives > 0 {
            // A hole is -1, and the padding of a short part is 0, like the first place.
            if self.zeros > 1 {
                let reason =
                    "it has negative entries and several zeros, so its first place is not known";
                return Err(reason.into());
            }
            if self.least < -1 {
                return Err(format!("place {} of an array of {of}", self.least).into());
            }
            self.check(Begin::Zero)?;
            return Ok(Begin::Zero);
        }
        let is_each_once = self.entries == of
            && self.zeros == 1
            && u64::try_from(self.most).is_ok_and(|most| most.checked_add(1) == Some(of))
            && distinct.and_then(|distinct| distinct.checked_add(1)) == Some(of);
        let begin = if is_each_once {
            Begin::Zero
        } else {
            Begin::One
        };
        self.check(begin)?;
        Ok(begin)
    }

    /// Whether each place has an entry. `distinct`: as for [`Places::begin`]; a place without an entry is assumed where it
    /// is not known.
    pub fn is_whole(&self, begin: Begin, distinct: Option<u64>) -> bool {
        match begin {
            Begin::One => distinct == Some(self.of),
            Begin::Zero => {
                let distinct = distinct.and_then(|distinct| distinct.checked_add(1));
                self.zeros > 0 && distinct == Some(self.of)
            }
        }
    }

    /// Whether no entry is a place.
    pub fn is_empty(&self, begin: Begin) -> bool {
        self.entries == 0 || begin.place(self.most).is_none()
    }

    /// Fails where an entry is above the last place.
    fn check(&self, begin: Begin) -> Result<()> {
        let is_inside = begin.place(self.most).is_none_or(|place| place < self.of);
        if self.entries > 0 && !is_inside {
            return Err(format!("place {} of an array of {}", self.most, self.of).into());
        }
        Ok(())
    }
}
