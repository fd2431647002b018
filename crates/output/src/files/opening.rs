//! Makes the files of a new log, and opens those of an existing one.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Files, Tags};
use crate::base::Base;
use crate::creation::Creation;
use crate::error::{Error, FaultResult, Result};
use crate::found::FoundLog;
use crate::nfs::check_nodes;
use crate::options::{Options, Subfiles};
use crate::ranks::{Access, LocalOutcome, Ranks, SharedFile, probe};
use crate::reopening::{KEPT, Prepared, Reopened, hold};
use crate::spill::Spill;
use crate::write_back::WriteBack;
use crate::{GlobalOutcome, check_outcome};
use h5logfs_common::fault::Fault;
use h5logfs_log::file_id::FileId;
use h5logfs_log::front::FRONT;
use h5logfs_log::journal::fresh::FileSystem;
use h5logfs_log::journal::{self, Append, Header, Job, Recorded};
use h5logfs_log::logvol::names::{spill_file, subfile};

impl Files {
    /// Creates the files. A failure leaves everything as it was. Collective.
    pub fn create(path: &Path, ranks: &Ranks, options: &Options) -> Result<Self> {
        let mut id = FileId::default();
        let checked = options.check_settle(options.subfiles != Subfiles::None);
        let chosen = checked.and_then(|()| check_hints(&options.hints));
        let chosen = chosen.and_then(|()| {
            if ranks.is_root() {
                random(&mut id.0).map_err(|e| Fault::from(e).of_file(Path::new(RANDOM)))
            } else {
                Ok(())
            }
        });
        ranks.broadcast(&mut id.0);
        let mut creation = Creation::new(path, id, options);
        creation.keep_if(ranks.agree(LocalOutcome::of(chosen).0), ranks)?;
        let header = new_header(&id, ranks, options);
        let begun = if ranks.is_root() {
            creation.begin(&header, options).map(Some)
        } else {
            Ok(None)
        };
        let (outcome, master) = LocalOutcome::of(begun);
        let mut journal_number = [creation.journal_number()];
        let agreed = ranks.agree_on(outcome, 0, &mut journal_number);
        creation.keep_if(agreed.outcome, ranks)?;

        let DataFiles {
            own,
            unwritten,
            ranks: file_ranks,
        } = DataFiles::of(ranks, &header);
        let mut data_path = path.to_owned();
        let mut subfile_created = Ok(None);
        if header.subfiles > 0 {
            data_path = subfile(path, own);
            if file_ranks.is_root() {
                subfile_created = creation.create_file(&data_path).map(Some);
            }
        }
        let (outcome, created) = LocalOutcome::of(subfile_created);
        creation.keep_if(ranks.agree(outcome), ranks)?;
        let held = [master, created].into_iter().flatten().flatten().collect();

        let opened = open_data_file(&data_path, ranks, &file_ranks, options, &mut creation)?;
        let (data_file, local) = opened;
        let (journal, kept) = creation.complete();
        let data_files = header.data_files() as usize;
        let spill_path = spill_file(path, own, ranks.rank());
        let spill = Spill::new(spill_path, &local, &file_ranks);
        Ok(Files {
            path: path.to_owned(),
            header,
            id,
            data_path,
            data_file,
            local,
            held,
            file_number: own as usize,
            unwritten,
            begin: FRONT,
            file_ranks,
            ends: vec![FRONT; data_files],
            flushes: 0,
            asked: 0,
            is_first: true,
            commits: Vec::new(),
            journal,
            kept,
            journal_number: journal_number[0],
            spill,
            write_back: WriteBack::of(options.fsync),
            tags: Tags::of(options),
        })
    }

    /// Opens a log again, to append to it. `base` returns its state; the first rank calls it, with the journal if the log
    /// is not closed. On failure the log keeps its content, and in most cases nothing has changed. Collective.
    pub fn append(
        path: &Path,
        ranks: &Ranks,
        options: &Options,
        base: impl FnOnce(Option<&Recorded>) -> FaultResult<Base>,
    ) -> Result<Self> {
        let base = |_: &FoundLog, recorded: Option<&Recorded>| Ok((base(recorded)?, Vec::new()));
        Appendable::find(path, ranks, options, Ok(()), base)?.append(ranks, options, Ok(()))
    }
}

/// A log that is to be opened again. Nothing has changed yet.
pub struct Appendable {
    path: PathBuf,
    state: State,
    /// The log, on the first rank only.
    prepared: Option<Prepared>,
}

impl Appendable {
    /// Looks at the log at `path`, if the first rank is `ready`. `base` returns its state, and bytes about its objects for
    /// all ranks; the first rank calls it, with the log file, and with the journal if the log is not closed. Collective.
    pub fn find(
        path: &Path,
        ranks: &Ranks,
        options: &Options,
        ready: FaultResult,
        base: impl FnOnce(&FoundLog, Option<&Recorded>) -> FaultResult<(Base, Vec<u8>)>,
    ) -> Result<Self> {
        let mut told = Vec::new();
        let base = |log: &FoundLog, recorded: Option<&Recorded>| {
            let (base, objects) = base(log, recorded)?;
            told = objects;
            Ok(base)
        };
        let ready = ready.and_then(|()| check_hints(&options.hints));
        let prepare = || ready.and_then(|()| Prepared::new(path, ranks, options, base));
        let prepared = ranks.is_root().then(prepare).transpose();
        let (prepared, state) = match prepared {
            Ok(prepared) => {
                let state = prepared.as_ref().map(|found| State::to_bytes(found, &told));
                (prepared, Ok(state.unwrap_or_default()))
            }
            Err(reason) => (None, Err(reason)),
        };
        let (outcome, state) = ranks.tell(state);
        check_outcome(path, "open", outcome)?;
        Ok(Appendable {
            path: path.to_owned(),
            state: State::from_bytes(&state).ok_or_else(|| Error::closed(path))?,
            prepared,
        })
    }

    /// Bytes about the objects of the log, from the first rank.
    pub fn told(&self) -> &[u8] {
        &self.state.told
    }

    /// Opens the log on all ranks, if each of them is `ready`. On failure the log keeps its content, and in most cases
    /// nothing has changed. Collective.
    pub fn append(self, ranks: &Ranks, options: &Options, ready: FaultResult) -> Result<Files> {
        let Appendable {
            path,
            state,
            prepared,
        } = self;
        let path = path.as_path();
        let header = Header {
            append: Some(Append { flush: state.flush }),
            ..Header::new(&state.id, ranks.size(), state.subfiles, state.config)
        };
        let DataFiles {
            own,
            unwritten,
            ranks: file_ranks,
        } = DataFiles::of(ranks, &header);
        let data_path = match header.subfiles {
            0 => path.to_owned(),
            _ => subfile(path, own),
        };
        let probed = match &prepared {
            // The look found that the file belongs to this log.
            Some(prepared) if header.subfiles == 0 => Ok(prepared.log_file()),
            _ => probe(&data_path)
                .and_then(|file| state.id.check(&file).map(|()| in_place(file)))
                .map_err(|e| Fault::from(e).of_file(&data_path)),
        };
        let held_subfile = match header.subfiles {
            0 => Ok(None),
            _ => file_ranks.is_root().then(|| hold(&data_path)).transpose(),
        };
        let on_nfs = probed.as_ref().is_ok_and(|(_, place)| place.is_nfs());
        let ready = ready.and_then(|()| check_hints(&options.hints));
        let found = ready.and_then(|()| Ok((probed?, held_subfile?)));
        let (outcome, found) = LocalOutcome::of(found);
        let outcome = agree_on_nodes(&data_path, outcome, on_nfs, ranks, &file_ranks);
        check_outcome(path, "open", outcome)?;
        let ((local, _), held_subfile) = found.ok_or_else(|| Error::closed(path))?;

        let reopened = prepared.map(|prepared| prepared.open(options)).transpose();
        let access = Access {
            hints: &options.hints,
            collective: options.collective,
        };
        // Collective, so the first rank takes part even if its file failed.
        let opened = file_ranks.open(&data_path, Arc::clone(&local), &access);
        let opened = opened.map_err(|e| e.of_file(&data_path).with(KEPT));
        let (opened, data_file) = LocalOutcome::of(opened);
        let (reopened, files) = LocalOutcome::of(reopened);
        let outcome = match reopened {
            LocalOutcome::Good => opened,
            failed => failed,
        };
        let reopened = files.as_ref().and_then(Option::as_ref);
        let number = reopened.map_or(0, |reopened| reopened.journal.held().number());
        let mut journal_number = [number];
        let agreed = ranks.agree_on(outcome, 0, &mut journal_number);
        if let Err(e) = check_outcome(path, "open", agreed.outcome) {
            // Only some ranks may have the file open, and closing it is collective.
            if let Some(file) = data_file {
                file.leak();
            }
            return Err(e);
        }
        let (journal, held) = match files.flatten() {
            Some(Reopened { journal, held }) => (Some(journal), Some(held)),
            None => (None, None),
        };
        let spill_path = spill_file(path, own, ranks.rank());
        let spill = Spill::new(spill_path, &local, &file_ranks);
        Ok(Files {
            path: path.to_owned(),
            header,
            id: state.id,
            data_path,
            data_file: data_file.ok_or_else(|| Error::closed(path))?,
            local,
            held: [held, held_subfile].into_iter().flatten().collect(),
            file_number: own as usize,
            unwritten,
            begin: state.ends.get(own as usize).copied().unwrap_or(FRONT),
            file_ranks,
            commits: state
                .ends
                .first()
                .map(|end| (state.flush, *end))
                .into_iter()
                .collect(),
            ends: state.ends,
            flushes: state.flush,
            asked: state.asked,
            is_first: true,
            journal,
            kept: None,
            journal_number: journal_number[0],
            spill,
            write_back: WriteBack::of(options.fsync),
            tags: Tags::of(options),
        })
    }
}

/// The state of a reopened log, for all ranks.
struct State {
    id: FileId,
    subfiles: u32,
    config: i32,
    flush: u64,
    asked: u64,
    ends: Vec<u64>,
    /// Bytes about the objects of the log.
    told: Vec<u8>,
}

impl State {
    fn to_bytes(prepared: &Prepared, told: &[u8]) -> Vec<u8> {
        let Prepared { header, base, .. } = prepared;
        let mut bytes = base.id.0.to_vec();
        bytes.extend(header.subfiles.to_le_bytes());
        bytes.extend(header.config.to_le_bytes());
        bytes.extend(base.flush.to_le_bytes());
        bytes.extend(base.asked.to_le_bytes());
        bytes.extend((base.ends.len() as u64).to_le_bytes());
        bytes.extend(base.ends.iter().flat_map(|end| end.to_le_bytes()));
        bytes.extend(told);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (id, rest) = bytes.split_first_chunk()?;
        let (subfiles, rest) = rest.split_first_chunk()?;
        let (config, rest) = rest.split_first_chunk()?;
        let (flush, rest) = rest.split_first_chunk()?;
        let (asked, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let number = usize::try_from(u64::from_le_bytes(*number)).ok()?;
        let (ends, told) = rest.split_at_checked(number.checked_mul(8)?)?;
        let ends = ends.as_chunks::<8>().0.iter();
        Some(State {
            id: FileId(*id),
            subfiles: u32::from_le_bytes(*subfiles),
            config: i32::from_le_bytes(*config),
            flush: u64::from_le_bytes(*flush),
            asked: u64::from_le_bytes(*asked),
            ends: ends.copied().map(u64::from_le_bytes).collect(),
            told: told.to_vec(),
        })
    }
}

/// Opens the data file on all ranks that share it. Collective.
fn open_data_file(
    path: &Path,
    ranks: &Ranks,
    file_ranks: &Ranks,
    options: &Options,
    creation: &mut Creation,
) -> Result<(Box<dyn SharedFile>, Arc<File>)> {
    let probed = creation.check_seen(path, probe(path)).map(in_place);
    let on_nfs = probed.as_ref().is_ok_and(|(_, place)| place.is_nfs());
    let (outcome, probed) = LocalOutcome::of(probed);
    let outcome = agree_on_nodes(path, outcome, on_nfs, ranks, file_ranks);
    creation.keep_if(outcome, ranks)?;
    // `keep_if` has failed if this is `None` on any rank.
    let (local, _) = probed.ok_or_else(|| Error::closed(path))?;
    let access = Access {
        hints: &options.hints,
        collective: options.collective,
    };
    let opened = file_ranks.open(path, Arc::clone(&local), &access);
    let (outcome, file) = LocalOutcome::of(opened);
    let kept = creation.keep_if(ranks.agree(outcome), ranks);
    if let Err(e) = kept {
        // Only some ranks may have the file open, and closing it is collective.
        if let Some(file) = file {
            file.leak();
        }
        return Err(e);
    }
    let file = file.ok_or_else(|| Error::closed(path))?;
    Ok((file, local))
}

/// A data file of this rank, and its file system.
fn in_place(file: File) -> (Arc<File>, FileSystem) {
    let place = FileSystem::of(&file);
    (Arc::new(file), place)
}

/// The outcome of all ranks after they found their data files, some of them `on_nfs`. Fails if several nodes share a file on
/// NFS. Collective.
fn agree_on_nodes(
    path: &Path,
    outcome: LocalOutcome,
    on_nfs: bool,
    ranks: &Ranks,
    file_ranks: &Ranks,
) -> GlobalOutcome {
    let mut some_on_nfs = [u64::from(on_nfs)];
    let agreed = ranks.agree_on(outcome, 0, &mut some_on_nfs);
    if some_on_nfs == [0] || !matches!(agreed.outcome, GlobalOutcome::Good) {
        return agreed.outcome;
    }
    let checked = check_nodes(ranks, file_ranks);
    let checked = checked.map_err(|e| e.of_file(path));
    ranks.agree(LocalOutcome::of(checked).0)
}

fn new_header(id: &FileId, ranks: &Ranks, options: &Options) -> Header {
    let subfiles = match options.subfiles {
        Subfiles::None => 0,
        Subfiles::Number(n) => n.clamp(1, ranks.size()),
        Subfiles::PerNode => ranks.node().of,
    };
    let subfiles = subfiles.min(journal::MOST_SUBFILES);
    Header {
        job: ranks.is_root().then(Job::of_this_process),
        ..Header::new(id, ranks.size(), subfiles, options.config())
    }
}

/// The data files that a rank is responsible for.
struct DataFiles {
    /// Number of the file that it writes to.
    own: u32,
    /// Numbers of the following files that no rank of the job writes. Only a job that opens a log again can have fewer ranks
    /// than the log has files.
    unwritten: Range<u32>,
    /// Ranks that write to the same file.
    ranks: Ranks,
}

impl DataFiles {
    /// With as many files as nodes, each node gets one, in any order of ranks: not every file system lets several nodes write
    /// to one file. Other numbers follow the rule of the layout (section 10 of the format page). Readers need neither.
    /// Collective.
    fn of(ranks: &Ranks, header: &Header) -> Self {
        let files = header.data_files();
        if files == 1 {
            return DataFiles {
                own: 0,
                unwritten: 0..0,
                ranks: ranks.clone(),
            };
        }
        let node = ranks.node();
        if node.of == files {
            return DataFiles {
                own: node.number,
                unwritten: 0..0,
                ranks: ranks.split(node.number),
            };
        }
        let of = |rank: u32| u64::from(rank) * u64::from(files) / u64::from(ranks.size());
        let own = of(ranks.rank()) as u32;
        DataFiles {
            own,
            unwritten: own + 1..of(ranks.rank() + 1) as u32,
            ranks: ranks.split(own),
        }
    }
}

fn check_hints(hints: &[(String, String)]) -> FaultResult {
    let wrong = hints
        .iter()
        .find(|(k, v)| k.contains('\0') || v.contains('\0'));
    match wrong {
        Some((key, _)) => Err(Fault::Refused(format!("the hint {key:?} has a zero byte"))),
        None => Ok(()),
    }
}

/// Source of random numbers.
const RANDOM: &str = "/dev/urandom";

fn random(bytes: &mut [u8]) -> io::Result<()> {
    File::open(RANDOM)?.read_exact(bytes)
}
