//! Which state of a log is shown: each flush of a log that is not closed left one.

use std::fmt::{self, Display, Formatter};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

use super::Recorded;

/// A state of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moment {
    /// As the newest complete flush left it. A closed log has no other.
    #[default]
    Newest,
    /// As the flush of this number left it.
    Flush(u64),
    /// As the last flush left it that was complete at this time, in milliseconds since 1970.
    Time(i64),
}

impl Moment {
    /// Parses the number of a flush.
    pub fn of_flush(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number| *number > 0);
        let number = number.ok_or_else(|| format!("{text}: not the number of a flush"))?;
        Ok(Moment::Flush(number))
    }

    /// Parses a time: with its offset, as in `2026-03-01T12:00:00Z`, or as the clock of this place shows it.
    pub fn of_time(text: &str) -> Result<Self, String> {
        let with_offset = text.parse::<Timestamp>().ok();
        let time = with_offset.or_else(|| {
            let local: DateTime = text.parse().ok()?;
            let local = local.to_zoned(TimeZone::system()).ok()?;
            Some(local.timestamp())
        });
        let time = time.ok_or_else(|| {
            format!("{text}: not a time, as 2026-03-01T12:00:00 or 2026-03-01T12:00:00Z")
        })?;
        Ok(Moment::Time(time.as_millisecond()))
    }

    /// The flush that left this state; `None` where that is the newest one. Fails where the journal has no such flush.
    pub fn flush_in(self, journal: &Recorded) -> Result<Option<u64>, String> {
        match self {
            Moment::Newest => Ok(None),
            Moment::Flush(flush) => {
                let has = journal.commits.iter().any(|commit| commit.flush == flush);
                let missing = || format!("it has no flush {flush}: {}", flushes(journal));
                has.then_some(Some(flush)).ok_or_else(missing)
            }
            Moment::Time(time) => flush_at(journal, time).map(Some),
        }
    }

    /// Fails where a closed log does not show this state. `last`: its last flush, if it tells it.
    pub fn check_closed(self, last: Option<u64>) -> Result<(), String> {
        Err(match (self, last) {
            (Moment::Newest, _) => return Ok(()),
            (Moment::Flush(flush), Some(last)) if flush == last => return Ok(()),
            (_, Some(last)) => {
                format!("it is closed: of its flushes only the last one can be shown, {last}")
            }
            (_, None) => {
                "it is a log that does not tell its flushes, so it has no state but the newest"
                    .to_owned()
            }
        })
    }
}

/// Why a settled log shows no state but the one that it has.
pub const SETTLED: &str = "it is settled: an ordinary HDF5 file, which shows none of its flushes";

/// The last flush that was complete at a time.
fn flush_at(journal: &Recorded, time: i64) -> Result<u64, String> {
    let times: Vec<_> = journal
        .commits
        .iter()
        .filter_map(|c| Some((c.flush, c.time?)))
        .collect();
    let Some((first, begin)) = times.first() else {
        return Err(format!(
            "its flushes do not tell their times: {}",
            flushes(journal)
        ));
    };
    // A clock may have been set back.
    let found = times.iter().rev().find(|(_, complete)| *complete <= time);
    found.map(|(flush, _)| *flush).ok_or_else(|| {
        let begin = shown(*begin);
        format!("at that time it had no flush: flush {first} was complete at {begin}")
    })
}

/// What flushes a journal has.
fn flushes(journal: &Recorded) -> String {
    match (journal.commits.first(), journal.commits.last()) {
        (Some(first), Some(last)) => format!("it has flushes {} to {}", first.flush, last.flush),
        _ => "it has none".to_owned(),
    }
}

/// A time in milliseconds since 1970, for a person.
fn shown(time: i64) -> String {
    match Timestamp::from_millisecond(time).map(|time| time.round(Unit::Millisecond)) {
        Ok(Ok(time)) => time.to_string(),
        _ => format!("{time} ms"),
    }
}

/// Settings that differ have different texts.
impl Display for Moment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Newest => f.write_str("newest"),
            Moment::Flush(flush) => write!(f, "flush {flush}"),
            Moment::Time(time) => f.write_str(&shown(*time)),
        }
    }
}
