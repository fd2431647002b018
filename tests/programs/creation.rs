//! Scenarios of `writer-faults`: failed creations, replaced files, and removed files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use h5logfs_writer::{Error, Fsync, Options, Result, Subfiles, Writer};
use mpi::collective::SystemOperation;
use mpi::topology::Color;
use mpi::traits::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Job, ignore_file_size_signal, with_subfiles};

const OLD: &str = "old.h5";

/// Content of a directory: the inode of each path below it, and the bytes of files.
fn contents(dir: &Path) -> BTreeMap<PathBuf, (u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut directories = vec![dir.to_owned()];
    while let Some(dir) = directories.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let bytes = if metadata.is_dir() {
                directories.push(path.clone());
                Vec::new()
            } else {
                fs::read(&path).unwrap()
            };
            found.insert(path, (metadata.ino(), bytes));
        }
    }
    found
}

/// The file that had the name before.
#[derive(Debug, Clone, Copy)]
enum Before {
    Nothing,
    Closed(Subfiles),
    Unclosed(Subfiles),
}

impl Before {
    const ALL: [Before; 5] = [
        Before::Nothing,
        Before::Closed(Subfiles::None),
        Before::Closed(Subfiles::Number(2)),
        Before::Unclosed(Subfiles::None),
        Before::Unclosed(Subfiles::Number(2)),
    ];

    fn make(self, job: &Job, name: &str) {
        match self {
            Before::Nothing => {}
            Before::Closed(subfiles) => {
                let mut rows = job.create(name, with_subfiles(subfiles)).unwrap();
                rows.fill_and_flush();
                rows.file.close().unwrap();
            }
            Before::Unclosed(subfiles) => {
                let mut rows = job.create(name, with_subfiles(subfiles)).unwrap();
                rows.fill_and_flush();
            }
        }
        job.world.barrier();
    }

    /// Options that allow it to be replaced.
    fn replacing(self, subfiles: Subfiles) -> Options {
        Options {
            overwrite: true,
            discard_unclosed: matches!(self, Before::Unclosed(_)),
            subfiles,
            ..Options::default()
        }
    }
}

// --- creations that fail -------------------------------------------------------------------------

/// A rank that makes the creation fail, and the way in which it does.
struct Cause {
    name: &'static str,
    rank: u32,
    words: &'static str,
    create: fn(&Job, &Path, Options, bool) -> Result<Writer>,
}

const CAUSES: [Cause; 7] = [
    Cause {
        name: "another path",
        rank: 2,
        words: "its path is",
        create: |job, path, options, is_culprit| {
            let other = path.with_file_name("other.h5");
            let path = if is_culprit { &other } else { path };
            Writer::create(path, &job.world, options)
        },
    },
    Cause {
        name: "another option",
        rank: 1,
        words: "its option `fsync` is None, and that of rank 0 is Close",
        create: |job, path, mut options, is_culprit| {
            if is_culprit {
                options.fsync = Fsync::None;
            }
            Writer::create(path, &job.world, options)
        },
    },
    Cause {
        name: "another directory",
        rank: 3,
        words: "same working directory",
        create: |job, path, options, is_culprit| {
            in_directory(job, path, options, is_culprit, "elsewhere")
        },
    },
    Cause {
        name: "another directory with such a file",
        rank: 3,
        words: "same working directory",
        create: |job, path, options, is_culprit| {
            in_directory(job, path, options, is_culprit, "with-file")
        },
    },
    Cause {
        name: "no descriptors",
        rank: 2,
        words: "Too many open files",
        create: |job, path, options, is_culprit| {
            // The limit is the lowest free descriptor number, so that no descriptor is left.
            let free = File::open("/").unwrap().as_raw_fd() as u64;
            limited(job, path, options, is_culprit, Resource::Nofile, free)
        },
    },
    Cause {
        name: "no room for the journal",
        rank: 0,
        words: "File too large",
        create: |job, path, options, is_culprit| {
            limited(job, path, options, is_culprit, Resource::Fsize, 100)
        },
    },
    Cause {
        name: "no room for the file",
        rank: 0,
        words: "File too large",
        create: |job, path, options, is_culprit| {
            limited(job, path, options, is_culprit, Resource::Fsize, 4096)
        },
    },
];

/// The cause that exists only with subfiles.
const SUBFILE_CAUSE: Cause = Cause {
    name: "no room for a subfile",
    rank: 2,
    words: "old.h5.1: File too large",
    create: |job, path, options, is_culprit| {
        limited(job, path, options, is_culprit, Resource::Fsize, 4096)
    },
};

fn in_directory(
    job: &Job,
    path: &Path,
    options: Options,
    is_culprit: bool,
    other: &str,
) -> Result<Writer> {
    let dir = path.parent().unwrap();
    std::env::set_current_dir(if is_culprit {
        dir.join(other)
    } else {
        dir.to_owned()
    })
    .unwrap();
    Writer::create(path.file_name().unwrap(), &job.world, options)
}

fn limited(
    job: &Job,
    path: &Path,
    options: Options,
    is_culprit: bool,
    resource: Resource,
    to: u64,
) -> Result<Writer> {
    let limit = getrlimit(resource);
    if is_culprit {
        let lower = Rlimit {
            current: Some(to),
            maximum: limit.maximum,
        };
        setrlimit(resource, lower).unwrap();
    }
    let created = Writer::create(path, &job.world, options);
    setrlimit(resource, limit).unwrap();
    created
}

/// A failed creation leaves everything unchanged, whatever the name led to before.
pub fn leave_nothing(job: &Job) {
    // SAFETY: the handler is the system's own.
    unsafe { ignore_file_size_signal() };
    for (number, before) in Before::ALL.into_iter().enumerate() {
        for subfiles in [Subfiles::None, Subfiles::Number(2)] {
            let dir = job.path(&format!("{number}-{subfiles:?}"));
            if job.rank == 0 {
                fs::create_dir(&dir).unwrap();
                fs::create_dir(dir.join("elsewhere")).unwrap();
                fs::create_dir(dir.join("with-file")).unwrap();
                fs::write(dir.join("with-file").join(OLD), "a file of the user").unwrap();
            }
            job.world.barrier();
            let path = dir.join(OLD);
            before.make(job, path.to_str().unwrap());
            let further = matches!(subfiles, Subfiles::Number(_)).then_some(&SUBFILE_CAUSE);
            for cause in CAUSES.iter().chain(further) {
                let was = contents(&dir);
                job.world.barrier();
                let is_culprit = job.rank == cause.rank;
                let created = (cause.create)(job, &path, before.replacing(subfiles), is_culprit);
                let about = format!("{} over {before:?} with {subfiles:?}", cause.name);
                let error = created.err().unwrap_or_else(|| panic!("created: {about}"));
                let Error::Failed {
                    operation,
                    rank,
                    reason,
                    ..
                } = &error
                else {
                    panic!("{about}: {error:?}");
                };
                assert_eq!(
                    (*operation, *rank),
                    ("create", cause.rank),
                    "{about}: {error}"
                );
                assert!(reason.to_string().contains(cause.words), "{about}: {error}");
                job.agreed(reason);
                job.world.barrier();
                let (is, was_names) = (contents(&dir), was.keys().collect::<Vec<_>>());
                assert_eq!(is.keys().collect::<Vec<_>>(), was_names, "{about}");
                assert!(is == was, "{about}: other bytes");
            }
            job.world.barrier();
            // Without the cause, the creation succeeds.
            let mut file = Writer::create(&path, &job.world, before.replacing(subfiles)).unwrap();
            file.close().unwrap();
        }
    }
}

// --- files that are replaced ---------------------------------------------------------------------

/// The replaced file is gone, but a reader that has it open can still read it.
pub fn replace(job: &Job) {
    for (number, before) in Before::ALL.into_iter().enumerate() {
        for (kind, subfiles) in [Subfiles::None, Subfiles::Number(2)]
            .into_iter()
            .enumerate()
        {
            let name = format!("{number}-{kind}.h5");
            before.make(job, &name);
            let path = job.path(&name);
            let reader = File::open(&path).ok();
            let bytes = fs::read(&path).unwrap_or_default();
            job.world.barrier();
            // Without the options, the creation changes nothing.
            if !matches!(before, Before::Nothing) {
                let refused = job.create(&name, with_subfiles(subfiles));
                let words = match before {
                    Before::Unclosed(_) => "left 1 flush in it",
                    _ => "it exists already",
                };
                job.failed(refused, "create", Some(0), words);
                if matches!(before, Before::Unclosed(_)) {
                    let options = Options {
                        discard_unclosed: false,
                        ..before.replacing(subfiles)
                    };
                    let refused = job.create(&name, options);
                    job.failed(refused, "create", Some(0), "`h5logfs recover /");
                }
                assert_eq!(fs::read(&path).unwrap(), bytes);
            }
            let mut rows = job.create(&name, before.replacing(subfiles)).unwrap();
            rows.fill_and_flush();
            if let Some(mut reader) = reader {
                let mut read = Vec::new();
                reader.read_to_end(&mut read).unwrap();
                assert!(
                    read == bytes,
                    "{name}: a reader of the old file gets other bytes"
                );
            }
            rows.fill();
            rows.file.close().unwrap();
        }
    }
    job.pause("closed");
}

/// The first rank dies while it replaces a log: a signal ends a process whose file exceeds `most` bytes. The new
/// journal is shorter than the new file.
pub fn die(job: &Job, most: u64) {
    let before = Before::Unclosed(Subfiles::Number(2));
    before.make(job, OLD);
    let options = before.replacing(Subfiles::None);
    let is_first = job.rank == 0;
    let path = job.path(OLD);
    let created = limited(job, &path, options, is_first, Resource::Fsize, most);
    panic!("it lives: {:?}", created.err());
}

/// Several jobs want the same name at once: four of one rank, or two of two ranks. One job gets the name, and the
/// others get an error.
pub fn contest(job: &Job) {
    for round in 0..40 {
        let before = Before::ALL[round % Before::ALL.len()];
        let subfiles = match round / 2 % 2 {
            0 => Subfiles::None,
            _ => Subfiles::Number(2),
        };
        let name = format!("{round}.h5");
        let jobs = [4, 2][round % 2];
        let color = Color::with_value((job.rank % jobs) as i32);
        let ranks = job.world.split_by_color(color).unwrap();
        before.make(job, &name);
        let created = Writer::create(job.path(&name), &ranks, before.replacing(subfiles));
        if let Err(error) = &created {
            let error = error.to_string();
            assert!(error.contains("hoose another name"), "{before:?}: {error}");
        }
        let wins = u32::from(created.is_ok() && ranks.rank() == 0);
        let mut winners = 0;
        let sum = SystemOperation::sum();
        job.world.all_reduce_into(&wins, &mut winners, sum);
        assert_eq!(winners, 1, "{name} over {before:?}: {:?}", created.err());
        if let Ok(mut file) = created {
            file.close().unwrap();
        }
        job.world.barrier();
    }
    job.pause("closed");
}

// --- files in use --------------------------------------------------------------------------------

/// No option replaces the file of a running job. The job is this one.
pub fn in_use(job: &Job) {
    for (name, subfiles) in [
        ("whole.h5", Subfiles::None),
        ("parts.h5", Subfiles::Number(2)),
    ] {
        let mut rows = job.create(name, with_subfiles(subfiles)).unwrap();
        for flushes in 0..2 {
            for options in [
                Options::default(),
                Before::Unclosed(subfiles).replacing(subfiles),
            ] {
                let words = "another job writes it: process ";
                job.failed(job.create(name, options), "create", Some(0), words);
            }
            if flushes == 0 {
                rows.fill_and_flush();
            }
        }
        rows.fill_and_flush();
        rows.file.close().unwrap();
    }
    job.pause("closed");
}

// --- files that are taken away -------------------------------------------------------------------

/// A part of the log loses its name. The next flush reports it on all ranks. When the part is back, everything
/// continues.
pub fn taken_away(job: &Job) {
    let two = Subfiles::Number(2);
    let cases = [
        ("file", Subfiles::None, "", 0),
        ("journal", Subfiles::None, ".h5logfs-journal", 0),
        ("master", two, "", 0),
        ("first", two, ".subfiles/first.h5.0", 0),
        ("second", two, ".subfiles/second.h5.1", 2),
        ("folder", two, ".subfiles", 0),
    ];
    for (name, subfiles, suffix, rank) in cases {
        let file = format!("{name}.h5");
        let mut rows = job.create(&file, with_subfiles(subfiles)).unwrap();
        rows.fill_and_flush();
        let part = job.path(&format!("{file}{suffix}"));
        let aside = job.path("aside");
        let on_first = |act: &dyn Fn()| {
            job.world.barrier();
            if job.rank == 0 {
                act();
            }
            job.world.barrier();
        };
        on_first(&|| fs::rename(&part, &aside).unwrap());
        rows.fill();
        let gone = "it was moved or removed";
        job.failed(rows.file.flush(), "flush", Some(rank), gone);
        // A file with the same bytes is another file.
        if name != "folder" {
            on_first(&|| assert!(fs::copy(&aside, &part).unwrap() > 0));
            let taken = "another file has its name now";
            job.failed(rows.file.flush(), "flush", Some(rank), taken);
            job.failed(rows.file.close(), "flush", Some(rank), taken);
        }
        on_first(&|| fs::rename(&aside, &part).unwrap());
        rows.file.flush().unwrap();
        rows.fill();
        on_first(&|| fs::rename(&part, &aside).unwrap());
        job.failed(rows.fill_and_flush_lent(), "flush", Some(rank), gone);
        job.failed(rows.file.close(), "flush", Some(rank), gone);
        on_first(&|| fs::rename(&aside, &part).unwrap());
        rows.file.close().unwrap();
    }
    job.pause("closed");
}

/// Directories and links on the way to an open file may disappear. The place of the file was determined when it was
/// opened.
pub fn ways_that_go(job: &Job) {
    let at = |name: &str| job.path(name);
    let first = |act: &dyn Fn()| {
        if job.rank == 0 {
            act();
        }
        job.world.barrier();
    };
    for subfiles in [Subfiles::None, Subfiles::Number(2)] {
        let name = format!("{subfiles:?}.h5").replace(['(', ')'], "-");
        first(&|| {
            fs::create_dir(at("way")).unwrap();
            symlink(job.path("."), at("link")).unwrap();
        });
        let mut rows = job.create(&format!("way/../{name}"), with_subfiles(subfiles));
        first(&|| fs::remove_dir(at("way")).unwrap());
        rows.as_mut().unwrap().fill_and_flush();
        rows.unwrap().file.close().unwrap();
        let mut rows = job.open(&format!("link/{name}"));
        first(&|| fs::remove_file(at("link")).unwrap());
        rows.as_mut().unwrap().fill_and_flush();
        rows.unwrap().file.close().unwrap();
        std::env::set_current_dir(&job.dir).unwrap();
        let options = Options {
            overwrite: true,
            ..with_subfiles(subfiles)
        };
        let mut file = Writer::create(&name, &job.world, options).unwrap();
        std::env::set_current_dir("/").unwrap();
        file.flush().unwrap();
        file.close().unwrap();
        let mut rows = job
            .create(&format!("again-{name}"), with_subfiles(subfiles))
            .unwrap();
        rows.fill_and_flush();
        rows.file.close().unwrap();
    }
}
