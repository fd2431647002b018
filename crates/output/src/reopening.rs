//! Opens a log again: it becomes one that is not closed, with a new journal that begins with its state
//! (`docs/formats/journal.md`, section 2.6).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::base::Base;
use crate::existing::Existing;
use crate::files::{Started, new_header};
use crate::options::Fsync;
use crate::options::Options;
use crate::ranks::Ranks;
use h5logfs_core::journal::extent::{FRONT, check_id, is_unclosed, unclosed_front};
use h5logfs_core::journal::{self, Append, Commit, HeldFile, Journal, Line, Recorded, sync};
use h5logfs_core::log::logvol::names::subfile;
use h5logfs_core::log::source_dir::SourceDir;
use h5logfs_core::log::source_file::{Identity, SourceFile};

type StringResult<T = ()> = Result<T, String>;

/// On the first rank: opens the log at `path` again. `base` tells what it holds, from its journal if it is not closed.
/// Until the new journal has its name, nothing changes. From then on the log is not closed, and whatever happens holds
/// what it held.
pub(crate) fn begin(
    path: &Path,
    ranks: &Ranks,
    options: &Options,
    base: impl FnOnce(Option<&Recorded>) -> StringResult<Base>,
) -> StringResult<Started> {
    let existing = Existing::to_append(path)?;
    let before = identity(path)?;
    let base = base(existing.recorded()?)?;
    let header = journal::Header {
        append: Some(Append { flush: base.flush }),
        subfiles: base.subfiles,
        ..new_header(&base.id, ranks, options)
    };
    let header = journal::Header {
        config: header.config | base.config,
        ..header
    };
    let mut lines = base.lines;
    lines.push(Line::Commit(Commit {
        flush: base.flush,
        ends: base.ends.clone(),
    }));
    let replace = existing.has_journal();
    let journal_path = journal::path_of(path);
    let journal = Journal::create_with(&journal_path, &header, &lines, replace);
    let journal = journal.map_err(|e| e.to_string())?;
    // A job may have taken its turn before the new journal kept it away. It has closed the log again.
    if !replace && identity(path)? != before {
        journal.remove().map_err(|e| e.to_string())?;
        return Err("another job has just changed it: try again".into());
    }
    if options.fsync == Fsync::Flush {
        let parent = journal::parent(path);
        let synced = sync(&journal_path).and_then(|()| sync(parent));
        synced.map_err(|e| e.to_string())?;
    }
    let mut held = Vec::new();
    for (file, end) in files_of(path, base.subfiles, &base.ends) {
        held.push(make_unclosed(&file, &base.id, end)?);
    }
    Ok(Started {
        header,
        id: base.id,
        ends: base.ends,
        flush: base.flush,
        journal: Some(journal),
        held,
    })
}

fn identity(path: &Path) -> StringResult<Identity> {
    let found = path.metadata();
    let found = found.map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(Identity::from(&found))
}

/// The files of a log, and where each ends.
fn files_of(path: &Path, subfiles: u32, ends: &[u64]) -> Vec<(PathBuf, u64)> {
    if subfiles == 0 {
        return vec![(path.to_owned(), ends.first().copied().unwrap_or(FRONT))];
    }
    let numbered = (0..subfiles).map(|number| subfile(path, number));
    let mut files = vec![(path.to_owned(), FRONT)];
    files.extend(numbered.zip(ends.iter().copied()));
    files
}

/// Gives a file the front of one that is not closed, and cuts off what lies behind its data: the journal has all of it.
fn make_unclosed(path: &Path, id: &journal::FileId, end: u64) -> StringResult<HeldFile> {
    let make = || -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        check_id(&file, id)?;
        let (dir, name) = SourceDir::of_file(path).map_err(io::Error::other)?;
        let source = SourceFile::open(&dir, &name).map_err(io::Error::other)?;
        if !is_unclosed(&source).map_err(io::Error::other)? {
            file.write_all_at(&unclosed_front(id), 0)?;
        }
        file.set_len(end)?;
        Ok(file)
    };
    let made = make().and_then(|file| HeldFile::new(file, path.to_owned()));
    made.map_err(|e| {
        format!(
            "{}: {e}. Its journal has all that it held: `h5logfs recover` closes it",
            path.display()
        )
    })
}
