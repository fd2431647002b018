//! The choice of the shown state of a log. Each flush of an unclosed log leaves one state.

use std::fmt::{self, Display, Formatter};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

use super::line::Commit;
use h5logfs_common::fault::Fault;

/// A state of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShownFlush {
    /// The newest complete flush. A closed log has no other state.
    #[default]
    Newest,
    /// The state after the flush with this number.
    Flush(u64),
    /// The state after the last flush that was complete at this time, in milliseconds since 1970.
    Time(i64),
}

impl ShownFlush {
    /// Parses the number of a flush.
    pub fn of_flush(text: &str) -> Result<Self, Fault> {
        let number = text.parse().ok().filter(|number| *number > 0);
        let number =
            number.ok_or_else(|| Fault::Refused(format!("{text}: not the number of a flush")))?;
        Ok(ShownFlush::Flush(number))
    }

    /// Parses a time with an offset, as in `2026-03-01T12:00:00Z`, or else a local time.
    pub fn of_time(text: &str) -> Result<Self, Fault> {
        let with_offset = text.parse::<Timestamp>().ok();
        let time = with_offset.or_else(|| {
            let local: DateTime = text.parse().ok()?;
            let local = local.to_zoned(TimeZone::system()).ok()?;
            Some(local.timestamp())
        });
        let time = time.ok_or_else(|| {
            Fault::Refused(format!(
                "{text}: not a time, as 2026-03-01T12:00:00 or 2026-03-01T12:00:00Z"
            ))
        })?;
        Ok(ShownFlush::Time(time.as_millisecond()))
    }

    /// The flush of this state; `None` for the newest flush. Fails if the journal does not have the flush.
    pub fn flush_in(self, commits: &[Commit]) -> Result<Option<u64>, Fault> {
        match self {
            ShownFlush::Newest => Ok(None),
            ShownFlush::Flush(flush) => {
                let has = commits.iter().any(|commit| commit.flush == flush);
                let missing =
                    || Fault::Refused(format!("it has no flush {flush}: {}", flushes(commits)));
                has.then_some(Some(flush)).ok_or_else(missing)
            }
            ShownFlush::Time(time) => flush_at(commits, time).map(Some),
        }
    }

    /// Fails if a closed log does not have this state. `last` is the last flush of the log, if it is recorded.
    pub fn check_closed(self, last: Option<u64>) -> Result<(), Fault> {
        Err(Fault::Refused(match (self, last) {
            (ShownFlush::Newest, _) => return Ok(()),
            (ShownFlush::Flush(flush), Some(last)) if flush == last => return Ok(()),
            (_, Some(last)) => {
                format!("the log is closed: only its last flush ({last}) is available")
            }
            (_, None) => "this log does not number its flushes: only its newest state is available"
                .to_owned(),
        }))
    }
}

/// The reason why a settled log has only one state.
pub const SETTLED: &str = "it is settled: an ordinary HDF5 file, which has no flushes";

/// The last flush that was complete at a time.
fn flush_at(commits: &[Commit], time: i64) -> Result<u64, Fault> {
    let times: Vec<_> = commits
        .iter()
        .filter_map(|c| Some((c.flush, c.time?)))
        .collect();
    let Some((first, begin)) = times.first() else {
        return Err(Fault::Refused(format!(
            "its flushes have no recorded times: {}",
            flushes(commits)
        )));
    };
    // Times may decrease, because a clock may have been set back.
    let found = times.iter().rev().find(|(_, complete)| *complete <= time);
    found.map(|(flush, _)| *flush).ok_or_else(|| {
        let begin = shown(*begin);
        let reason = format!("at that time it had no flush: flush {first} was complete at {begin}");
        Fault::Refused(reason)
    })
}

/// The range of flushes of a journal.
fn flushes(commits: &[Commit]) -> String {
    match (commits.first(), commits.last()) {
        (Some(first), Some(last)) => format!("it has flushes {} to {}", first.flush, last.flush),
        _ => "it has none".to_owned(),
    }
}

/// A time in milliseconds since 1970, for human readers.
fn shown(time: i64) -> String {
    match Timestamp::from_millisecond(time).map(|time| time.round(Unit::Millisecond)) {
        Ok(Ok(time)) => time.to_string(),
        _ => format!("{time} ms"),
    }
}

/// Different choices have different texts.
impl Display for ShownFlush {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ShownFlush::Newest => f.write_str("newest"),
            ShownFlush::Flush(flush) => write!(f, "flush {flush}"),
            ShownFlush::Time(time) => f.write_str(&shown(*time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commit of a flush that was complete at a time.
    fn commit(flush: u64, time: Option<i64>) -> Commit {
        Commit {
            time,
            ..Commit::new(flush, vec![8192])
        }
    }

    #[test]
    fn a_flush_is_found_by_its_number() {
        let commits = [4, 5, 6].map(|flush| commit(flush, None));
        assert_eq!(ShownFlush::Newest.flush_in(&commits), Ok(None));
        assert_eq!(ShownFlush::Flush(5).flush_in(&commits), Ok(Some(5)));
        for none in [3, 7] {
            let said = ShownFlush::Flush(none)
                .flush_in(&commits)
                .unwrap_err()
                .to_string();
            assert!(said.ends_with("it has flushes 4 to 6"), "{said}");
        }
        let said = ShownFlush::Flush(1).flush_in(&[]).unwrap_err().to_string();
        assert!(said.ends_with("it has none"), "{said}");
        let said = ShownFlush::Time(0)
            .flush_in(&commits)
            .unwrap_err()
            .to_string();
        assert!(said.contains("have no recorded times"), "{said}");
    }

    #[test]
    fn the_last_flush_before_a_time_is_found() {
        // The state at the start of an append has no time.
        let commits = [(4, None), (5, Some(1000)), (6, Some(2000))];
        let commits = commits.map(|(flush, time)| commit(flush, time));
        let at = |time| ShownFlush::Time(time).flush_in(&commits);
        for (time, flush) in [(1000, 5), (1999, 5), (2000, 6), (i64::MAX, 6)] {
            assert_eq!(at(time), Ok(Some(flush)), "{time}");
        }
        for early in [999, i64::MIN] {
            let said = at(early).unwrap_err().to_string();
            assert!(
                said.contains("flush 5 was complete at 1970-01-01T00:00:01Z"),
                "{said}"
            );
        }
    }

    /// Flush 7 follows flush 6, whatever the clock says.
    #[test]
    fn a_clock_may_have_been_set_back() {
        let commits = [(5, 1000), (6, 5000), (7, 3000), (8, 4000)];
        let commits = commits.map(|(flush, time)| commit(flush, Some(time)));
        let at = |time| ShownFlush::Time(time).flush_in(&commits);
        for (time, flush) in [(2999, 5), (3000, 7), (4500, 8), (6000, 8)] {
            assert_eq!(at(time), Ok(Some(flush)), "{time}");
        }
    }

    #[test]
    fn times_are_those_of_their_offset_or_of_this_place() {
        let zulu = ShownFlush::of_time("1970-01-01T01:00:00.25Z");
        assert_eq!(zulu, Ok(ShownFlush::Time(3_600_250)));
        assert_eq!(ShownFlush::of_time("1970-01-01T02:00:00.25+01:00"), zulu);
        let local: DateTime = "2026-03-01T12:00".parse().unwrap();
        let local = local.to_zoned(TimeZone::system()).unwrap().timestamp();
        let expected = Ok(ShownFlush::Time(local.as_millisecond()));
        assert_eq!(ShownFlush::of_time("2026-03-01T12:00"), expected);
        for none in ["", "noon", "12:00", "2026-13-01T00:00:00Z"] {
            assert!(ShownFlush::of_time(none).is_err(), "{none}");
        }
        for none in ["", "0", "-1", "x", "18446744073709551616"] {
            assert!(ShownFlush::of_flush(none).is_err(), "{none}");
        }
    }

    #[test]
    fn a_closed_log_shows_its_last_flush() {
        assert_eq!(ShownFlush::Newest.check_closed(None), Ok(()));
        assert_eq!(ShownFlush::Flush(3).check_closed(Some(3)), Ok(()));
        for shown_flush in [ShownFlush::Flush(2), ShownFlush::Time(0)] {
            let said = shown_flush.check_closed(Some(3)).unwrap_err().to_string();
            assert!(
                said.contains("only its last flush (3) is available"),
                "{said}"
            );
            let said = shown_flush.check_closed(None).unwrap_err().to_string();
            assert!(said.contains("does not number its flushes"), "{said}");
        }
    }
}
