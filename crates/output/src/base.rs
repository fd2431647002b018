//! The content of a log that is opened again (`docs/formats/journal.md`, section 2.6).

use h5logfs_common::fault::Fault;
use h5logfs_log::Tables;
use h5logfs_log::file_id::FileId;
use h5logfs_log::front::FRONT;
use h5logfs_log::journal::closed::sealed;
use h5logfs_log::journal::metadata_image::MetadataImage;
use h5logfs_log::journal::{Line, MOST_FLUSHES, Recorded};
use h5logfs_log::logvol::SUBFILED;
use h5logfs_log::logvol::extent::last_flush;
use h5logfs_log::snapshot::{Snapshot, Source};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;

/// The state of a log at the start of an append.
#[derive(Debug, Clone)]
pub struct Base {
    /// The identifier of the log.
    pub id: FileId,
    /// Number of subfiles, as in the header of a journal.
    pub subfiles: u32,
    /// Configuration, as in the header of a journal.
    pub config: i32,
    /// Number of the last flush.
    pub flush: u64,
    /// Number of the last flush that a program asked for. A closed log ends with such a flush.
    pub asked: u64,
    /// End of the log in each data file.
    pub ends: Vec<u64>,
    /// On the first rank: the lines of the metadata image.
    pub lines: Vec<Line>,
    /// What is defined next is told by definitions, and not by changes of the metadata image.
    pub takes_definitions: bool,
}

impl Base {
    /// The same state for a job whose definitions add to this metadata image of the log.
    pub fn onto(self, image: &MetadataImage) -> Result<Self, Fault> {
        Ok(Base {
            lines: image.lines()?,
            takes_definitions: true,
            ..self
        })
    }

    /// The state of an unclosed log whose objects `lines` define. Fails if flushes would be lost.
    pub fn of_journal(recorded: &Recorded, lines: Vec<Line>) -> Result<Self, Fault> {
        if let Some(torn) = recorded.torn.filter(|torn| torn.may_lose_flushes()) {
            return Err(Fault::Refused(format!(
                "{torn}. `h5logfs recover --last-flush {}` drops them; after that it can be appended to",
                recorded.flushes()
            )));
        }
        let files = recorded.header.data_files() as usize;
        Ok(Base {
            id: recorded.id,
            subfiles: recorded.header.subfiles,
            config: recorded.header.config,
            flush: recorded.flushes(),
            asked: recorded.asked(),
            ends: (0..files).map(|file| recorded.end(file)).collect(),
            lines,
            takes_definitions: false,
        })
    }

    /// The state of a closed log in `dir` whose objects `lines` define.
    pub fn of_snapshot(
        dir: &SourceDir,
        snapshot: &Snapshot,
        lines: Vec<Line>,
    ) -> Result<Self, Fault> {
        Self::of_closed(dir, &snapshot.sources, &snapshot.log, lines)
    }

    /// The state of a closed log in `dir` with these files and tables, whose objects `lines` define. Fails for a log of
    /// another writer, whose layout has no place for more.
    pub fn of_closed(
        dir: &SourceDir,
        sources: &[Source],
        tables: &Tables,
        lines: Vec<Line>,
    ) -> Result<Self, Fault> {
        let Tables::LogVol(tables) = tables else {
            return Err(of_other_writer());
        };
        let is_subfiled = i64::from(tables.config) & SUBFILED != 0;
        let mut data_files = Vec::new();
        for (number, source) in sources.iter().enumerate() {
            let is_master = is_subfiled && number == 0;
            let file = SourceFile::open_at(dir, &source.place)?;
            let id = file.file_id()?.ok_or_else(of_other_writer)?;
            if !is_master {
                data_files.push((number as u16, file, id));
            }
        }
        let mut base = Base {
            id: data_files.first().map(|(_, _, id)| *id).unwrap_or_default(),
            subfiles: if is_subfiled {
                data_files.len() as u32
            } else {
                0
            },
            config: tables.config & !(SUBFILED as i32),
            flush: 0,
            asked: 0,
            ends: Vec::new(),
            lines,
            takes_definitions: false,
        };
        for (number, file, id) in &data_files {
            if *id != base.id {
                return Err(format!("{} belongs to another log", file.path().display()).into());
            }
            let mut logs = tables.data.iter().filter(|log| log.source == *number);
            let end = match (logs.next(), logs.next()) {
                (None, _) => FRONT,
                (Some(log), None) if log.offset == FRONT => FRONT + log.len,
                _ => return Err(of_other_writer()),
            };
            // A flush of definitions alone has no extents, but has a number. The walk also finds damaged extents before
            // anything changes.
            let flush = last_flush(file, end)?;
            let sealed = sealed(file)?.map_or(0, |closed| closed.flush);
            base.flush = base.flush.max(flush).max(sealed);
            base.ends.push(end);
        }
        base.asked = base.flush;
        if base.flush >= MOST_FLUSHES {
            return Err(Fault::Refused(format!(
                "it has flushes of numbers up to {}, and cannot take more",
                base.flush
            )));
        }
        Ok(base)
    }
}

fn of_other_writer() -> Fault {
    Fault::Refused(
        "it is a log of another writer, whose layout has no place for further flushes. Write to another file, or make an \
         HDF5 file of it with `h5logfs export`, which can be written to"
            .into(),
    )
}
