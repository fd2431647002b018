//! The configuration of a set (`docs/formats/hdf5-subfiling.md`, section 3).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::flat::MOST_MEMBERS;
use crate::source_file::SourceFile;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;

/// Bytes that are read. The names of subfiles come last. The lines before them contain at most two paths.
const MOST_BYTES: u64 = 16 << 10;

/// Content of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Bytes of a stripe.
    pub stripe: u64,
    /// Number of subfiles.
    pub count: usize,
    /// Directory of the subfiles when the file was created.
    pub directory: Option<PathBuf>,
}

impl Config {
    /// Reads the configuration in `file`.
    pub fn read(file: &SourceFile) -> Result<Self> {
        let mut bytes = vec![0; file.len().min(MOST_BYTES) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Config::parse(&bytes).map_err(|fault| Error::of(file.path(), fault))
    }

    /// Parses the start of a configuration.
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let value = |key: &str| {
            let mut lines = bytes.split(|b| *b == b'\n');
            lines.find_map(|line| line.strip_prefix(key.as_bytes())?.strip_prefix(b"="))
        };
        let number = |key: &str| -> Result<u64, Fault> {
            let text = value(key).and_then(|value| std::str::from_utf8(value).ok());
            let number = text.and_then(|text| text.parse::<u64>().ok());
            number.ok_or_else(|| format!("no configuration of subfiles: no {key}").into())
        };
        let (stripe, count) = (number("stripe_size")?, number("subfile_count")?);
        let directory = value("subfile_dir").filter(|path| !path.is_empty());
        Ok(Config {
            stripe: checked_stripe(stripe)?,
            count: checked_count(count)?,
            directory: directory.map(|path| OsStr::from_bytes(path).into()),
        })
    }
}

/// Fails if no stripe can have this length.
pub(super) fn checked_stripe(stripe: u64) -> Result<u64, Fault> {
    if stripe == 0 || stripe > i64::MAX as u64 {
        return Err(format!("stripes of {stripe} bytes").into());
    }
    Ok(stripe)
}

/// Fails if there are no members, or too many.
pub(super) fn checked_count(count: u64) -> Result<usize, Fault> {
    let sound = usize::try_from(count).ok();
    let sound = sound.filter(|count| (1..=MOST_MEMBERS).contains(count));
    sound.ok_or_else(|| format!("{count} subfiles; at most {MOST_MEMBERS} are possible").into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_configuration_says_how_the_file_is_striped() {
        let text = b"stripe_size=4096\naggregator_count=2\nsubfile_count=3\n\
            hdf5_file=/s/a.h5\nsubfile_dir=/s\na.h5.subfile_1_1_of_3\n";
        let config = Config::parse(text).unwrap();
        let expected = Config {
            stripe: 4096,
            count: 3,
            directory: Some("/s".into()),
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn hostile_configurations_are_refused() {
        for (text, words) in [
            ("", "no stripe_size"),
            ("stripe_size=4096", "no subfile_count"),
            ("stripe_size=0\nsubfile_count=1", "stripes of 0 bytes"),
            ("stripe_size=-1\nsubfile_count=1", "no stripe_size"),
            (
                "stripe_size=18446744073709551615\nsubfile_count=1",
                "stripes of",
            ),
            ("stripe_size=1\nsubfile_count=0", "0 subfiles"),
            (
                "stripe_size=1\nsubfile_count=1000000000",
                "1000000000 subfiles",
            ),
            ("stripe_size=1 \nsubfile_count=1", "no stripe_size"),
        ] {
            let refused = Config::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_apart(bytes: Vec<u8>) {
            let _ = Config::parse(&bytes);
        }
    }
}
