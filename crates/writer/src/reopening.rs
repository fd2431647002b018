//! Opens a log again. Its objects form a metadata image, whichever program made them, and new definitions of the writer add to
//! the image.

use std::path::Path;

use h5logfs_common::fault::Fault;
use h5logfs_log::journal::Recorded;
use h5logfs_log::journal::definition::Outline;
use h5logfs_log::journal::known_table::KnownTable;
use h5logfs_log::journal::metadata_image::MetadataImage;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_objects::defined::{metadata_image, outline};
use h5logfs_output::base::Base;
use h5logfs_output::files::{Appendable, Files};
use h5logfs_output::remembered::Memory;
use h5logfs_output::{Error, Options, Ranks, Result, Subfiles};
use h5logfs_scan::reopened::ClosedLog;

/// The logs that this process has closed, with the metadata images of their objects.
pub static CLOSED: Memory<MetadataImage> = Memory::new();

/// The largest image to remember, in bytes. Replaced bytes stay in a remembered image. A log that is read again has an image
/// without them.
const LARGEST_REMEMBERED: usize = 2 << 20;

/// Whether an image is small enough for the next opening of its log to begin with it.
pub fn is_remembered(image: &MetadataImage) -> bool {
    image.image.len() <= LARGEST_REMEMBERED
}

/// A reopened log. It is unclosed from now on.
pub struct Reopened {
    pub files: Files,
    /// The objects of the log.
    pub image: MetadataImage,
    /// The outline of the objects.
    pub outline: Outline,
    /// The table, as far as the first rank knows it.
    pub table: KnownTable,
}

/// Opens the log at `path`. Collective.
pub fn open(path: &Path, ranks: &Ranks, options: &Options) -> Result<Reopened> {
    let checked = check_options(options);
    let mut table = KnownTable::default();
    let found = Appendable::find(path, ranks, options, checked.clone(), |log, recorded| {
        let remembered = match recorded {
            None => CLOSED.recall(path, log),
            Some(_) => None,
        };
        let (image, base) = match remembered {
            Some((image, base, known)) => {
                table = known;
                (image, base)
            }
            None => state(path, recorded)?,
        };
        Ok((base.onto(&image)?, image.to_bytes()))
    })?;
    let told = MetadataImage::from_bytes(found.told());
    let told = told.ok_or_else(|| Fault::from("the first rank has sent no objects"));
    let (ready, told) = match told.and_then(|image| Ok((outline(&image)?, image))) {
        Ok(told) => (checked, Some(told)),
        // A rank that fails still takes part in the collective call, so no rank waits for it.
        Err(reason) => (checked.and(Err(reason)), None),
    };
    let files = found.append(ranks, options, ready)?;
    let (outline, image) = told.ok_or_else(|| Error::closed(path))?;
    Ok(Reopened {
        files,
        image,
        outline,
        table,
    })
}

/// Fails if an option for new files is set.
fn check_options(options: &Options) -> Result<(), Fault> {
    let of_new_files = [
        ("overwrite", options.overwrite),
        ("discard_unclosed", options.discard_unclosed),
        ("keep_unclosed", options.keep_unclosed),
        ("subfiles", options.subfiles != Subfiles::None),
    ];
    match of_new_files.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(Fault::Refused(format!(
            "the option `{name}` is for new files, and this one is opened again: it keeps what it has"
        ))),
        None => Ok(()),
    }
}

/// The objects and the state of a log. `recorded` is its journal if the log is unclosed.
fn state(path: &Path, recorded: Option<&Recorded>) -> Result<(MetadataImage, Base), Fault> {
    if let Some(recorded) = recorded {
        let image = metadata_image(recorded)?.into_owned();
        return Ok((image, Base::of_journal(recorded, Vec::new())?));
    }
    let (dir, name) = SourceDir::of_file(path)?;
    let log = ClosedLog::read(&dir, &name)?;
    let base = Base::of_closed(&dir, &log.sources, &log.tables, Vec::new())?;
    Ok((log.image, base))
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn options_of_new_files_are_refused() {
        let refused = |options: Options| check_options(&options).unwrap_err().to_string();
        let usual = Options::default;
        assert_eq!(check_options(&usual()), Ok(()));
        let cases = [
            (
                "`overwrite`",
                Options {
                    overwrite: true,
                    ..usual()
                },
            ),
            (
                "`discard_unclosed`",
                Options {
                    discard_unclosed: true,
                    ..usual()
                },
            ),
            (
                "`subfiles`",
                Options {
                    subfiles: Subfiles::Number(2),
                    ..usual()
                },
            ),
        ];
        for (name, options) in cases {
            assert!(refused(options).contains(name));
        }
    }
}
