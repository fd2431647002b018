//! Which files are logs that this process writes: new ones, and those that it opens again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use h5logfs_core::journal::extent::file_id;
use h5logfs_core::log::source_dir::SourceDir;
use h5logfs_core::log::source_file::SourceFile;
use h5logfs_host::types::{FAILURE, Id, access};
use h5logfs_output::files::Files;
use h5logfs_output::{Options, Ranks};

use super::shadow::Shadow;
use super::{Log, Open, find_ranks};
use crate::info::{Info, PropertyList};
use crate::session::{Opened, Request, Session};

/// Creates a log. `None` for a plain file.
pub fn create(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<Opened>, String> {
    let options = info.options()?;
    let ranks = find_ranks(info, request.fapl)?;
    let replaces = request.has(access::TRUNCATE);
    let path = absolute(request.path());
    // libhdf5 says in its own words that there is such a file.
    let is_there = path.symlink_metadata().is_ok();
    if !options.take(&path)
        || (is_there && !replaces)
        || !is_ordinary(info, request, ranks.is_some())
    {
        return Ok(None);
    }
    if !Session::open_at(info, &path)?.is_empty() {
        return Err(format!(
            "{}: this program has it open, so it cannot be made anew",
            path.display()
        ));
    }
    let options = Options {
        overwrite: replaces,
        discard_unclosed: replaces,
        ..options.output
    };
    let Some(shadow) = Shadow::create(info, request, &path)? else {
        return Err(refused(&path));
    };
    let ranks = ranks.unwrap_or_else(Ranks::one);
    let files = Files::create(&path, &ranks, &options).map_err(|e| e.to_string())?;
    let log = Log::new(info.library, shadow, &path, options, Open { ranks, files })?;
    opened(info, request, log).map(Some)
}

/// Opens a log for writing. `None` for a file that is none, or that another writer has made.
pub fn open(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<Opened>, String> {
    let path = absolute(request.path());
    let mut open = Session::open_at(info, &path)?.into_iter();
    if let Some(session) = open.find(|session| session.log.is_some()) {
        return another_handle(info, session).map(Some);
    }
    if !request.has(access::WRITE) || !is_ours(&path) {
        return Ok(None);
    }
    let options = info.options()?.output;
    match Log::append(info, request, &path, options)? {
        Some(log) => opened(info, request, log).map(Some),
        None => Err(refused(&path)),
    }
}

fn absolute(path: &Path) -> PathBuf {
    // A log is where a link leads to.
    let found = fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    found.unwrap_or_else(|_| path.to_owned())
}

/// What follows the reason that libhdf5 has put on its error stack.
fn refused(path: &Path) -> String {
    format!(
        "{}: the objects of the log cannot be had in memory",
        path.display()
    )
}

fn opened(info: &Arc<Info>, request: &Request<'_>, log: Log) -> Result<Opened, String> {
    let under = log.shadow().first_handle();
    let session = Session::new(info, request, Some(log))?;
    session.touch();
    Ok(Opened {
        under,
        info: info.native()?,
        session,
    })
}

fn another_handle(info: &Arc<Info>, session: Arc<Session>) -> Result<Opened, String> {
    let under = session.log.as_ref().map(|log| log.shadow().handle());
    Ok(Opened {
        under: under.unwrap_or(std::ptr::null_mut()),
        info: info.native()?,
        session,
    })
}

/// Whether a file is one that our writers have made.
fn is_ours(path: &Path) -> bool {
    let id = || {
        let (dir, name) = SourceDir::of_file(path).ok()?;
        file_id(&SourceFile::open(&dir, &name).ok()?).ok()?
    };
    path.is_file() && id().is_some()
}

/// Whether a program wants an ordinary file: by the default driver or that of MPI, without a user block, and not for
/// readers that follow it with HDF5's own means.
fn is_ordinary(info: &Info, request: &Request<'_>, is_parallel: bool) -> bool {
    let mut user_block = 0;
    // SAFETY: the lists are of this library; the default list of a creation has no user block.
    let status = info
        .library
        .nested(|f| unsafe { (f.H5Pget_userblock)(request.fcpl, &mut user_block) });
    let has_user_block = status >= 0 && user_block > 0;
    !has_user_block
        && !request.has(access::SWMR_WRITE)
        && (is_parallel || has_usual_driver(info, request.fapl))
}

/// Whether a list names the default driver.
fn has_usual_driver(info: &Info, fapl: Id) -> bool {
    let Some(usual) = PropertyList::copy(&info.library, fapl) else {
        return false;
    };
    // SAFETY: the lists are of this library.
    info.library.nested(|f| unsafe {
        let set = (f.H5Pset_fapl_sec2)(usual.id);
        set != FAILURE && (f.H5Pget_driver)(fapl) == (f.H5Pget_driver)(usual.id)
    })
}
