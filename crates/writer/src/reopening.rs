//! Opens a log again. Its objects become those of the writer, as if it had made them.

use std::path::Path;

use h5logfs_common::fault::Fault;
use h5logfs_log::journal::Line;
use h5logfs_log::journal::Recorded;
use h5logfs_log::journal::definition::Definition;
use h5logfs_log::journal::known_table::KnownTable;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_output::base::Base;
use h5logfs_output::files::{Appendable, Files};
use h5logfs_output::remembered::Memory;
use h5logfs_output::{Error, Options, Ranks, Result, Subfiles};
use h5logfs_scan::definitions::ClosedLog;

/// Logs that this process has closed, with the definitions of their objects.
pub static CLOSED: Memory<Vec<Definition>> = Memory::new();

/// A reopened log, which is unclosed from now on.
pub struct Reopened {
    pub files: Files,
    /// Definitions of its objects.
    pub definitions: Vec<Definition>,
    /// Table, as far as the first rank knows it.
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
        let (base, definitions) = match remembered {
            Some((definitions, base, known)) => {
                table = known;
                let lines = lines(&definitions);
                (Base { lines, ..base }, definitions)
            }
            None => state(path, recorded)?,
        };
        // This library writes the text, so the other ranks can parse it.
        let text = serde_json::to_vec(&definitions).unwrap_or_default();
        Ok((base, text))
    })?;
    let definitions = serde_json::from_slice(found.told()).map_err(|_| Error::closed(path));
    let files = found.append(ranks, options, checked)?;
    Ok(Reopened {
        files,
        definitions: definitions?,
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

/// The state of a log. `recorded` is the journal of an unclosed one.
fn state(path: &Path, recorded: Option<&Recorded>) -> Result<(Base, Vec<Definition>), Fault> {
    let Some(recorded) = recorded else {
        let read = SourceDir::of_file(path)
            .and_then(|(dir, name)| ClosedLog::read(&dir, &name).map(|log| (dir, log)));
        let (dir, log) = read?;
        let base = Base::of_closed(&dir, &log.sources, &log.tables, lines(&log.definitions))?;
        return Ok((base, log.definitions));
    };
    if recorded.metadata_image.is_some() {
        return Err(Fault::Refused(
            "an HDF5 program has made it through the VOL connector and not closed it. HDF5 programs can append to it, \
             or `h5logfs recover` closes it"
                .into(),
        ));
    }
    let definitions = recorded.state();
    let base = Base::of_journal(recorded, lines(&definitions))?;
    Ok((base, definitions))
}

fn lines(definitions: &[Definition]) -> Vec<Line> {
    let definitions = definitions.iter().cloned();
    definitions.map(Line::Define).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_log::file_id::FileId;
    use h5logfs_log::journal::metadata_image::image_lines;
    use h5logfs_log::journal::{Commit, Header, Journal};
    use h5logfs_log::source_file::SourceFile;

    /// Definitions cannot describe all objects of such a program.
    #[test]
    fn a_log_of_an_hdf5_program_that_is_not_closed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut lines = image_lines(&[], &[1; 10]).unwrap();
        let ends = vec![9000];
        lines.push(Line::Commit(Commit::new(1, ends)));
        let header = Header::new(&FileId([7; 16]), 1, 0, 0);
        Journal::create_with(&path, &header, &lines, false, true).unwrap();
        let (below, name) = SourceDir::of_file(&path).unwrap();
        let recorded = Recorded::read(&SourceFile::open(&below, &name).unwrap()).unwrap();
        let refused = state(&path, Some(&recorded)).unwrap_err().to_string();
        let words = ["VOL connector", "`h5logfs recover`"];
        assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
    }

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
