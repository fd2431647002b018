//! Logs that this process writes: new ones, and those that it opens again.

use std::ffi::c_int;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use h5logfs_common::error::Error;
use h5logfs_common::fault::Fault;
use h5logfs_host::types::{Id, access};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::recognition;
use h5logfs_log::source_dir::{SourceDir, canonical, resolved};
use h5logfs_log::source_file::SourceFile;
use h5logfs_output::files::Files;
use h5logfs_output::{LocalOutcome, LogWriter, Options, Ranks, check_outcome};

use super::{OpenedLog, kept_log};
use crate::below::Below;
use crate::below::drivers::{forgets_changes, has_image, has_same_driver, has_usual_driver};
use crate::below::info::Info;
use crate::below::list::PropertyList;
use crate::below::request::Request;
use crate::log::closed::{self, FileState, KeptImage};
use crate::log::metadata_image::{MetadataImage, refused};
use crate::log::{self, Constants, WrittenLog};
use crate::options;
use crate::ranks;
use crate::session::{Kind, Session, registry};

/// Creates a log. `None` if the file is a plain one.
pub fn create(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<OpenedLog>, Fault> {
    let options = info.options(request)?;
    let ranks = ranks::find(&info.library, request.fapl)?;
    let replaces = request.has(access::TRUNCATE);
    let path = real(request.path());
    // If there is a file already, libhdf5 reports it in its own words.
    let is_there = path.symlink_metadata().is_ok();
    if !options.take(&path)
        || (is_there && !replaces)
        || !is_ordinary(info, request, ranks.is_some())
    {
        return Ok(None);
    }
    let metadata_image = prepare(info, request, &path);
    let ranks = ranks.unwrap_or_else(Ranks::one);
    // A rank that has failed still takes part, so that no other rank waits for it.
    let metadata_image = ranks.all(metadata_image).map_err(|e| e.to_string())?;
    let options = Options {
        overwrite: replaces,
        keep_unclosed: replaces,
        ..options.output
    };
    let files = Files::create(&path, &ranks, &options)?;
    if let Some(kept) = files.kept_log() {
        kept_log::tell(&path, kept);
    }
    let writer = LogWriter::with_reads(ranks, files, options);
    let constants = Arc::new(Constants::of(&info.library));
    let log = WrittenLog::new(info.library, metadata_image, constants, &path, writer);
    opened(info, request, log, None).map(Some)
}

/// Makes the metadata image of a new log. Local.
fn prepare(info: &Arc<Info>, request: &Request<'_>, path: &Path) -> Result<MetadataImage, Fault> {
    if !registry::open_at(info, path)?.is_empty() {
        return Err(format!(
            "{}: this program has the file open, so it cannot be overwritten",
            path.display()
        )
        .into());
    }
    closed::forget(path);
    let metadata_image = MetadataImage::create(info, request, path)?;
    metadata_image.ok_or_else(|| refused(path))
}

/// The file at a path that a program opens, as this rank sees it.
enum AtPath {
    /// No log that this process could write.
    Other,
    /// A log that this process is writing.
    Open(Arc<Session>),
    /// A closed log of h5logfs, with the options for opening it, and its metadata image if that is kept.
    Closed(options::Options, Option<Box<KeptImage>>),
}

/// Opens a log for writing. `None` if the file is not a log, or is a log of another writer. Collective if the request is for
/// writing.
pub fn open(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<OpenedLog>, Fault> {
    let path = real(request.path());
    let found = find(info, request, &path);
    let ranks = if request.has(access::WRITE) {
        ranks::find(&info.library, request.fapl)?
    } else {
        None
    };
    let found = match &ranks {
        Some(ranks) => agreed(ranks, &path, found)?,
        None => found?,
    };
    match found {
        AtPath::Other => Ok(None),
        AtPath::Open(session) => another_handle(info, session).map(Some),
        AtPath::Closed(options, kept) => {
            let ranks = ranks.unwrap_or_else(Ranks::one);
            let access = kept.as_ref().map(|kept| Arc::clone(&kept.access));
            let kept = kept.map(|kept| *kept);
            let log = log::append(info, request, &path, ranks, options, kept)?;
            opened(info, request, log, access).map(Some)
        }
    }
}

/// Examines the file at a path. Fails if it is a log that this request cannot open. Local.
fn find(info: &Arc<Info>, request: &Request<'_>, path: &Path) -> Result<AtPath, Fault> {
    let mut open = registry::open_at(info, path)?.into_iter();
    if let Some(session) = open.find(|session| session.log().is_some()) {
        check_same(info, request, &session)?;
        return Ok(AtPath::Open(session));
    }
    if !request.has(access::WRITE) {
        return Ok(AtPath::Other);
    }
    let kept = closed::take_for(info, path, request.fapl);
    // The list and the file were checked when this process opened the log before.
    let is_known = |kept: &KeptImage| kept.seen.is_some() && kept.seen == FileState::at(path);
    if !kept.as_ref().is_some_and(is_known) {
        if has_image(info, request.fapl) || !is_ours(path) {
            return Ok(AtPath::Other);
        }
        check_writable(path)?;
        check_kept(info, request, path)?;
    }
    let options = info.options(request)?;
    Ok(AtPath::Closed(options, kept.map(Box::new)))
}

/// The result of all ranks, if it is equal. Otherwise all fail, so that no rank waits for one that takes another branch.
/// Collective.
fn agreed(ranks: &Ranks, path: &Path, found: Result<AtPath, Fault>) -> Result<AtPath, Fault> {
    let number = found.as_ref().map_or(0, AtPath::number);
    let kept = found.as_ref().ok().and_then(AtPath::kept);
    let opening = kept.map(|kept| kept.opening);
    let (outcome, found) = LocalOutcome::of(found);
    // All ranks have the metadata image of one opening if the maxima over the ranks are complements of each other.
    let mut openings = opening.map_or([u64::MAX; 2], |opening| [opening, !opening]);
    let agreement = ranks.agree_on(outcome, number, &mut openings);
    check_outcome(path, "open", agreement.outcome)?;
    let found = found.filter(|_| agreement.same);
    let is_kept = openings[0] == !openings[1];
    let found = found.map(|found| if is_kept { found } else { found.without_kept() });
    found.ok_or_else(|| {
        let path = path.display();
        format!("{path}: some ranks find a log there, or have it open, and others do not").into()
    })
}

impl AtPath {
    /// A number that is equal on ranks that take the same branch.
    fn number(&self) -> u64 {
        match self {
            AtPath::Other => 0,
            AtPath::Open(_) => 1,
            AtPath::Closed(..) => 2,
        }
    }

    fn kept(&self) -> Option<&KeptImage> {
        match self {
            AtPath::Closed(_, kept) => kept.as_deref(),
            AtPath::Other | AtPath::Open(_) => None,
        }
    }

    /// The result without its kept metadata image.
    fn without_kept(self) -> Self {
        match self {
            AtPath::Closed(options, _) => AtPath::Closed(options, None),
            other => other,
        }
    }
}

/// Fails with the system's error number in libhdf5's own words, in which programs look for it.
fn check_writable(path: &Path) -> Result<(), Fault> {
    let opened = fs::OpenOptions::new().read(true).write(true).open(path);
    opened.map(drop).map_err(|e| {
        let (name, number) = (path.display(), e.raw_os_error().unwrap_or_default());
        format!("unable to open file: name = '{name}', errno = {number}, error message = '{e}'")
            .into()
    })
}

/// Fails if a program wants changes to stay in memory: changes of a log always go to its file.
fn check_kept(info: &Info, request: &Request<'_>, path: &Path) -> Result<(), Fault> {
    if !forgets_changes(info, request.fapl) {
        return Ok(());
    }
    Err(format!(
        "{}: a log cannot be opened for writing with changes that stay in memory (the core driver without a backing \
         store)",
        path.display()
    ).into())
}

fn real(path: &Path) -> PathBuf {
    // A log lies where a link to it leads: its companion files are there.
    canonical(path).unwrap_or_else(|_| resolved(path))
}

/// Makes the session of an opened log. `access`: a list equal to that of the request, if there is one.
fn opened(
    info: &Arc<Info>,
    request: &Request<'_>,
    log: WrittenLog,
    access: Option<Arc<PropertyList>>,
) -> Result<OpenedLog, Fault> {
    let kind = Kind::Written(log.into());
    let session = match access {
        Some(access) => Session::with_access(info, request, kind, access)?,
        None => Session::new(info, request, kind)?,
    };
    let session = Arc::new(session);
    registry::add(&session)?;
    session.touch();
    let info = info.native()?;
    let under = session.log().map(|log| log.metadata_image().first_handle());
    let under = under.unwrap_or(std::ptr::null_mut());
    Ok(OpenedLog {
        below: Below { under, info },
        session,
    })
}

/// Fails if two handles of a file differ in their use of locks or in their close degree. HDF5 compares the use of locks since
/// 1.14.4.
fn check_same(info: &Info, request: &Request<'_>, session: &Session) -> Result<(), Fault> {
    let path = session.path.display();
    // The variable overrides all lists.
    if std::env::var_os("HDF5_USE_FILE_LOCKING").is_none()
        && locking(info, request.fapl) != locking(info, session.access.id)
    {
        return Err(format!("{path}: file locking flag values don't match").into());
    }
    // HDF5 does not compare lists with different drivers.
    if has_same_driver(info, request.fapl, session.access.id)
        && !session.is_closed_as(info, request.fapl)
    {
        return Err(format!("{path}: file close degree doesn't match").into());
    }
    Ok(())
}

/// Whether a list asks for locks, and whether it ignores a file system without locks.
fn locking(info: &Info, fapl: Id) -> (bool, bool) {
    let (mut is_used, mut is_optional) = (true, false);
    // SAFETY: the list belongs to this library.
    let status = info
        .library
        .nested(|f| unsafe { (f.H5Pget_file_locking)(fapl, &mut is_used, &mut is_optional) });
    match status {
        0.. => (is_used, is_used && is_optional),
        _ => (true, false),
    }
}

fn another_handle(info: &Arc<Info>, session: Arc<Session>) -> Result<OpenedLog, Fault> {
    let under = session.log().map(|log| log.metadata_image().handle());
    let (under, info) = (under.unwrap_or(std::ptr::null_mut()), info.native()?);
    Ok(OpenedLog {
        below: Below { under, info },
        session,
    })
}

/// Whether a file is a log of h5logfs. The path leads through no link. A settled log is an ordinary file and does not count.
fn is_ours(path: &Path) -> bool {
    let is_ours = || -> Result<bool, Error> {
        let (dir, name) = SourceDir::of_real_file(path)?;
        let source = SourceFile::open(&dir, &name)?;
        let files = LogFiles::of(&dir, &name, &source);
        Ok(source.file_id()?.is_some() && recognition::may_be_log(&files, &source)?)
    };
    is_ours().unwrap_or(false)
}

/// Whether a program wants an ordinary file, which may become a log: with the default driver or the MPI driver, without a user
/// block, without paged allocation or another strategy for free space, and without SWMR. Only native files can have these.
fn is_ordinary(info: &Info, request: &Request<'_>, is_parallel: bool) -> bool {
    !request.has(access::SWMR_WRITE)
        && !has_user_block(info, request.fcpl)
        && !has_space_strategy(info, request.fcpl)
        && !has_page_buffer(info, request.fapl)
        && (is_parallel || has_usual_driver(info, request.fapl))
}

/// Whether a list asks for a user block. The default list does not.
fn has_user_block(info: &Info, fcpl: Id) -> bool {
    let mut size = 0;
    let library = &info.library;
    // SAFETY: the list belongs to this library.
    let status = library.nested(|f| unsafe { (f.H5Pget_userblock)(fcpl, &mut size) });
    status >= 0 && size > 0
}

/// Whether a list sets a strategy for free space other than the default.
fn has_space_strategy(info: &Info, fcpl: Id) -> bool {
    /// `H5F_FSPACE_STRATEGY_FSM_AGGR`, and free space is not kept when the file is closed.
    const USUAL: (c_int, bool) = (0, false);
    let (mut strategy, mut persists, mut threshold) = (0, false, 0);
    // SAFETY: the list belongs to this library.
    let status = info.library.nested(|f| unsafe {
        (f.H5Pget_file_space_strategy)(fcpl, &mut strategy, &mut persists, &mut threshold)
    });
    status >= 0 && (strategy, persists) != USUAL
}

/// Whether a list asks for a page buffer. Some versions have a special number for the default.
fn has_page_buffer(info: &Info, fapl: Id) -> bool {
    let library = &info.library;
    let usual = library.identifier(c"H5P_LST_FILE_ACCESS_ID_g");
    let size = page_buffer(info, fapl);
    size > 0 && usual.is_some_and(|usual| size != page_buffer(info, usual))
}

fn page_buffer(info: &Info, fapl: Id) -> usize {
    let (mut size, mut metadata, mut raw) = (0, 0, 0);
    // SAFETY: the list belongs to this library.
    let status = info.library.nested(|f| unsafe {
        (f.H5Pget_page_buffer_size)(fapl, &mut size, &mut metadata, &mut raw)
    });
    if status < 0 { 0 } else { size }
}
