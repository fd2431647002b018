//! The destination of a command's result: a new file, or standard output. Refusals come before anything is written, and no
//! file of a log that is read is ever overwritten.

use std::fs::{File, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IsTerminal, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rustix::fs::{FileType, OFlags};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tempfile::NamedTempFile;

use super::shared;
use crate::fs::shown::ShownFile;
use h5logfs_catalog::lookup::overwrite::{Originals, check_target};
use h5logfs_common::error::Error;
use h5logfs_log::log_dir;
use h5logfs_log::rights;
use h5logfs_log::scan::Settings;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::Identity;
use h5logfs_log::walk;

/// Name of standard output.
pub const STDOUT: &str = "-";
/// Prefix of the names of temporary files.
const UNFINISHED: &str = ".h5logfs-unfinished-";
/// Zeros to write at once where a hole is not possible.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A log to read, and the HDF5 file to make of it.
#[derive(Debug, Clone, Args)]
pub struct FromTo {
    /// The log file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The file to write, which appears when it is complete; or -, for standard output
    #[arg(value_name = "OUT", required_unless_present = "output")]
    out: Option<PathBuf>,

    /// The same as OUT
    #[arg(short, long, value_name = "OUT", conflicts_with = "out", value_parser = output_name)]
    output: Option<PathBuf>,

    /// Replace OUT if it exists, unless it is a file of a log that is still needed
    #[arg(long)]
    pub force: bool,
}

/// The output that a user names after `-o`, which gives options of layouts to other commands.
fn output_name(text: &str) -> Result<PathBuf, String> {
    match text.split_once('=') {
        Some((name, _)) if shared::has(name) => Err(format!(
            "-o names the output here; options of layouts follow --option: `--option {text}`"
        )),
        _ => Ok(text.into()),
    }
}

impl FromTo {
    /// The destination. Fails if the file must not be made.
    pub fn target(&self, settings: &Settings) -> Result<Target> {
        Target::new(&self.request(settings), self.originals(settings)?)
    }

    /// The file to write, or `-`.
    pub fn out(&self) -> &Path {
        let out = self.output.as_deref().or(self.out.as_deref());
        // The command line requires one of them.
        out.unwrap_or(Path::new(STDOUT))
    }

    /// Whether the user has chosen standard output.
    pub fn is_stdout(&self) -> bool {
        self.out() == Path::new(STDOUT)
    }

    /// The destination, which must be a file.
    pub fn new_file(&self, settings: &Settings) -> Result<NewFile> {
        NewFile::new(&self.request(settings), self.originals(settings)?)
    }

    fn originals(&self, settings: &Settings) -> Result<Originals> {
        ensure!(
            self.file != Path::new(STDOUT) || self.file.exists(),
            "-: a log cannot be read from a pipe: give its path"
        );
        originals(&self.file, settings)
    }

    fn request<'a>(&'a self, settings: &'a Settings) -> TargetRequest<'a> {
        TargetRequest {
            out: self.out(),
            force: self.force,
            settings,
            form: "HDF5",
        }
    }
}

/// The user's request.
pub struct TargetRequest<'a> {
    /// The output file; `-` is standard output.
    pub out: &'a Path,
    /// Whether an existing file may be replaced.
    pub force: bool,
    /// Settings with the directories of logs.
    pub settings: &'a Settings,
    /// The kind of output, which a terminal cannot show.
    pub form: &'static str,
}

/// A permitted destination.
pub enum Target {
    Stdout(File),
    File(NewFile),
}

/// The place of a new file.
pub struct NewFile {
    /// The user's name for the file.
    path: PathBuf,
    /// The directory of the file, and the name of the file in it.
    dir: SourceDir,
    name: PathBuf,
    /// A descriptor of that directory. All accesses use it, because the path may lead elsewhere later.
    held: OwnedFd,
    replaces: bool,
    originals: Originals,
}

impl Target {
    /// The destination. Fails if the result must not go there. `originals`: the files that are read.
    pub fn new(request: &TargetRequest<'_>, originals: Originals) -> Result<Self> {
        if request.out == Path::new(STDOUT) {
            return stdout(request.form, &originals).map(Target::Stdout);
        }
        NewFile::new(request, originals).map(Target::File)
    }

    /// Name for messages.
    pub fn name(&self) -> String {
        match self {
            Target::Stdout(_) => "standard output".to_owned(),
            Target::File(file) => file.path.display().to_string(),
        }
    }

    pub fn create(&self) -> Result<Output<'_>> {
        match self {
            Target::Stdout(file) => Ok(Output::Stdout(file)),
            Target::File(file) => Ok(Output::File(file, file.temporary()?)),
        }
    }

    /// Creates output for bytes in any order. Standard output gets them when they are complete; until then they are in an
    /// unnamed temporary file.
    pub fn create_unordered(&self) -> Result<Unordered<'_>> {
        match self {
            Target::Stdout(file) => Ok(Unordered::Stdout(file, unnamed()?)),
            Target::File(file) => Ok(Unordered::File(file, file.temporary()?)),
        }
    }
}

/// The files of a log that is read, and the original files if a mount shows them.
pub fn originals(file: &Path, settings: &Settings) -> Result<Originals> {
    let of = |file: &Path| -> Result<Originals> {
        let (dir, name) = log_dir::walk_to(file)?;
        Ok(Originals::of(&dir.with_further(&settings.log_dirs)?, &name))
    };
    let own = of(file)?;
    let shown = ShownFile::at(file);
    // If this user has no access to the source, it needs no protection from this user.
    let behind = shown.and_then(|shown| of(shown.source()).ok());
    Ok(own.with(behind.unwrap_or_default()))
}

/// Standard output as a file. Fails if it is a terminal, or if it leads into the log that is read.
fn stdout(form: &str, originals: &Originals) -> Result<File> {
    ensure!(
        !io::stdout().is_terminal(),
        "a terminal cannot show {form}: redirect standard output to a file or a program (./- is a file named -)"
    );
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let identity = Identity::from(&file.metadata()?);
    originals.check_other(Path::new("standard output"), identity)?;
    Ok(file)
}

impl NewFile {
    /// The place of a new file. Fails if the file must not be made.
    fn new(request: &TargetRequest<'_>, originals: Originals) -> Result<Self> {
        let path = request.out.to_owned();
        let Some(name) = path.file_name() else {
            bail!("{}: is a directory", path.display());
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let name = PathBuf::from(name);
        // The real path matters: its directory names may tell whose file this is.
        let dir = walk::directory(parent)?.with_further(&request.settings.log_dirs)?;
        let held = dir.open_below(Path::new(""), OFlags::RDONLY | OFlags::DIRECTORY);
        let file = NewFile {
            held: held.map_err(|e| Error::io(parent, e))?,
            dir,
            name,
            path,
            replaces: request.force,
            originals,
        };
        file.check()?;
        Ok(file)
    }

    /// Fails if the file must not be made.
    fn check(&self) -> Result<()> {
        let name = self.path.display();
        if let Some(shown) = ShownFile::at(self.dir.path()) {
            let mount_point = shown.mount_point().display();
            bail!(
                "{name}: lies in the mount {mount_point} of h5logfs, where nothing can be written"
            );
        }
        let existing = self.dir.stat(&self.name).ok();
        let kind = existing.map(|existing| FileType::from_raw_mode(existing.st_mode));
        // A rename replaces the link, and not the metadata to which it leads.
        let is_scorpio = || log_dir::is_link_in(&self.held, self.name.as_os_str());
        let is_link = kind == Some(FileType::Symlink);
        ensure!(
            !is_link || is_scorpio(),
            "{name}: is a symbolic link: give the path of the file itself, or remove the link"
        );
        check_target(&self.dir, &self.name, &self.originals)?;
        ensure!(
            self.replaces || !is_link,
            "{name}: is the link of SCORPIO to its directory (--force replaces the link, and leaves the directory as it is)"
        );
        ensure!(
            is_link || kind.is_none_or(|kind| kind == FileType::RegularFile),
            "{name}: is not a regular file: for a pipe or a device, write to - and redirect standard output there"
        );
        ensure!(
            self.replaces || kind.is_none(),
            "{name}: exists already (--force replaces it)"
        );
        Ok(())
    }

    fn temporary(&self) -> Result<NamedTempFile> {
        let name = TemporaryName::new();
        remove_at_signal(self.here(&name.0))?;
        self.create(&name)
    }

    /// A path in the directory, for this process.
    fn here(&self, name: impl AsRef<Path>) -> PathBuf {
        below(&self.held, name)
    }

    /// The path of the temporary file, for other processes. It is in the same directory, because a rename works only within
    /// one file system.
    pub fn path_of(&self, name: &TemporaryName) -> PathBuf {
        self.dir.path().join(&name.0)
    }

    /// Makes the temporary file. A drop removes it.
    pub fn create(&self, name: &TemporaryName) -> Result<NamedTempFile> {
        let temporary = tempfile::Builder::new()
            .prefix(&name.0)
            .rand_bytes(0)
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(self.here(""))
            .map_err(without_path)?;
        self.limit(temporary.as_file())?;
        Ok(temporary)
    }

    /// Lets only users read the file who may read its origin: root can read a file that no other user may read.
    fn limit(&self, file: &File) -> io::Result<()> {
        let found = file.metadata()?;
        let mut mode = found.mode() & 0o777 & self.originals.permissions(found.gid());
        // A replaced file has the permissions that its user has chosen.
        if let Ok(before) = rights::permissions(&self.here(&self.name), found.gid()) {
            mode &= before | 0o600;
        }
        if found.mode() & 0o777 == mode {
            return Ok(());
        }
        file.set_permissions(Permissions::from_mode(mode))
    }

    /// Names the complete file of `len` bytes.
    pub fn finish(&self, temporary: NamedTempFile, len: u64) -> Result<()> {
        temporary.as_file().set_len(len)?;
        temporary.as_file().sync_all()?;
        self.name(temporary)
    }

    /// Gives the complete file its name.
    fn name(&self, temporary: NamedTempFile) -> Result<()> {
        // A job may have made a log of this name meanwhile.
        self.check()?;
        let path = self.here(&self.name);
        let named = if self.replaces {
            temporary.persist(&path)
        } else {
            temporary.persist_noclobber(&path)
        };
        named.map_err(|e| e.error)?;
        // The user may remove the log now, so the name must be on the disk.
        if let Err(e) = rustix::fs::fsync(&self.held) {
            let path = self.dir.path().display();
            log::warn!(
                "{path}: {e}: after a loss of power the name of the new file may be missing"
            );
        }
        Ok(())
    }
}

/// An unfinished result. A file gets its name when it is complete.
pub enum Output<'a> {
    Stdout(&'a File),
    File(&'a NewFile, NamedTempFile),
}

impl Output<'_> {
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Output::Stdout(file) => file.write_all(bytes),
            // An error of the temporary file itself would have its path.
            Output::File(_, file) => file.as_file_mut().write_all(bytes),
        }
    }

    /// Sets the length. Fails if the result cannot have it. Most of it will be holes.
    pub fn make_long(&mut self, len: u64) -> Result<()> {
        match self {
            Output::Stdout(_) => bail!(
                "it has {len} bytes, most of them holes, which a stream would have as zeros: export it to a file"
            ),
            Output::File(_, file) => file.as_file().set_len(len).with_context(|| {
                format!("it has {len} bytes, most of them holes, and this file system has no files of that length")
            }),
        }
    }

    /// Adds zeros, as a hole if possible.
    pub fn skip(&mut self, mut len: u64) -> io::Result<()> {
        if let Output::File(_, file) = self {
            let len = i64::try_from(len).map_err(io::Error::other)?;
            file.as_file_mut().seek(SeekFrom::Current(len))?;
            return Ok(());
        }
        while len > 0 {
            let zeros = &ZEROS[..len.min(ZEROS.len() as u64) as usize];
            self.write(zeros)?;
            len -= zeros.len() as u64;
        }
        Ok(())
    }

    pub fn finish(self) -> Result<()> {
        match self {
            Output::Stdout(_) => Ok(()),
            Output::File(place, mut file) => {
                // A hole at the end does not extend the file.
                let len = file.as_file_mut().stream_position()?;
                file.as_file().set_len(len)?;
                file.as_file().sync_all()?;
                place.name(file)
            }
        }
    }
}

/// An unfinished result whose bytes come in any order.
pub enum Unordered<'a> {
    Stdout(&'a File, File),
    File(&'a NewFile, NamedTempFile),
}

impl Unordered<'_> {
    /// The file, open for reading and writing.
    pub fn file(&self) -> &File {
        match self {
            Unordered::Stdout(_, file) => file,
            Unordered::File(_, file) => file.as_file(),
        }
    }

    /// Finishes the complete file of `len` bytes.
    pub fn finish(self, len: u64) -> Result<()> {
        match self {
            Unordered::Stdout(mut out, mut file) => {
                file.set_len(len)?;
                file.rewind()?;
                io::copy(&mut file, &mut out)?;
                Ok(())
            }
            Unordered::File(place, file) => place.finish(file, len),
        }
    }
}

/// The path of a name below an open directory, for this process.
fn below(dir: &OwnedFd, name: impl AsRef<Path>) -> PathBuf {
    Path::new("/proc/self/fd")
        .join(dir.as_raw_fd().to_string())
        .join(name)
}

/// The error without the path of a descriptor, which means nothing to a user.
fn without_path(error: io::Error) -> io::Error {
    let cause = error.get_ref().and_then(|error| error.source());
    let cause = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    match cause.and_then(io::Error::raw_os_error) {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => error,
    }
}

/// A file that no other process sees, and that disappears with this one.
fn unnamed() -> Result<File> {
    let dir = std::env::temp_dir();
    let file = tempfile::tempfile_in(&dir);
    file.with_context(|| format!("no file for it in {}, which TMPDIR names", dir.display()))
}

/// Opens the temporary file that another process of this user has made at `path`. The file must have exactly one name, so
/// that another user can replace it neither by a link nor by a file of a third user.
pub fn open_made(path: &Path, how: &OpenOptions) -> Result<File> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("is a directory");
    };
    let dir = walk::directory(parent).map_err(|e| match e {
        Error::Io { cause, .. } => cause.into(),
        e => anyhow::Error::new(e),
    })?;
    let dir = dir.open_below(Path::new(""), OFlags::RDONLY | OFlags::DIRECTORY)?;
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut how = how.clone();
    let file = how
        .custom_flags(flags.bits().cast_signed())
        .open(below(&dir, name))?;
    let found = file.metadata()?;
    ensure!(
        found.is_file() && found.nlink() == 1,
        "another program has put something else in its place"
    );
    Ok(file)
}

/// A random name for a temporary file, which no file has yet.
pub struct TemporaryName(String);

impl TemporaryName {
    pub fn new() -> Self {
        // The hash is as random as its keys, which the standard library draws.
        let number = RandomState::new().hash_one(std::process::id());
        TemporaryName(format!("{UNFINISHED}{number:016x}"))
    }
}

/// Removes the file when a signal ends the command. `temporary` need not exist yet.
fn remove_at_signal(temporary: PathBuf) -> io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let _ = std::fs::remove_file(temporary);
            // Ends the process as the signal would have.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}
