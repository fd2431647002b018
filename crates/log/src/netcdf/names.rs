//! Names of log files (`docs/formats/pnetcdf-burst-buffer.md`, 1.1).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The two files of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFileKind {
    /// `.meta`: the entries.
    Metadata,
    /// `.data`: their payloads.
    Data,
}

/// The parts of the name of a log file: `MASTER_GENERATION_RANK.meta` or `.data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogName<'a> {
    /// The name of the netCDF file.
    pub master: &'a OsStr,
    /// Number of the netCDF file among the program's open files.
    pub generation: u32,
    /// Rank of the writer.
    pub rank: u64,
    /// Which of the two files it is.
    pub kind: LogFileKind,
}

impl<'a> LogName<'a> {
    /// Parses a name. `None` if its form is different.
    pub fn parse(name: &'a OsStr) -> Option<Self> {
        let name = name.as_bytes();
        let (stem, kind) = match (name.strip_suffix(b".meta"), name.strip_suffix(b".data")) {
            (Some(stem), _) => (stem, LogFileKind::Metadata),
            (_, Some(stem)) => (stem, LogFileKind::Data),
            _ => return None,
        };
        let (stem, rank) = number_behind(stem)?;
        let (master, generation) = number_behind(stem)?;
        Some(LogName {
            master: OsStr::from_bytes(master),
            generation: u32::try_from(generation).ok()?,
            rank,
            kind,
        })
        .filter(|log| !log.master.is_empty())
    }
}

/// Splits `TEXT_DIGITS`.
fn number_behind(text: &[u8]) -> Option<(&[u8], u64)> {
    let at = text.iter().rposition(|b| *b == b'_')?;
    let digits = &text[at + 1..];
    // Leading zeros are refused. Otherwise two files could be the same log.
    let is_number = match digits {
        [] => false,
        [b'0', _, ..] => false,
        digits => digits.iter().all(u8::is_ascii_digit),
    };
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    Some((&text[..at], digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart_from_the_back() {
        let parsed = LogName::parse(OsStr::new("a_1_2.nc_3_45.data")).unwrap();
        assert_eq!(parsed.master, "a_1_2.nc");
        assert_eq!((parsed.generation, parsed.rank), (3, 45));
        assert_eq!(parsed.kind, LogFileKind::Data);
        for other in [
            "a.nc",
            "a.nc_1.meta",
            "_0_1.meta",
            "a__1.meta",
            "a_1_-2.meta",
            "a_1_+2.meta",
            "a_1_02.meta",
            "a_00_2.meta",
            "a_1_2.meta2",
            "a_1_99999999999999999999.meta",
        ] {
            assert_eq!(LogName::parse(OsStr::new(other)), None, "{other}");
        }
    }
}
