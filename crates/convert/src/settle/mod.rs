//! Turns a log into an ordinary HDF5 file in place (`docs/formats/settled.md`).
//!
//! Chunks that the log has in the right form stay in place (`plan`). The objects, all other chunks and the chunk
//! indexes are appended. Once they are on disk, one write replaces the superblock. Before this write the file is the
//! log, whatever follows its end. After it the file is an ordinary one.
//!
//! [`Ready`] is the only way from a path to a settled file. [`Held`] is the open file. [`undo()`] restores the log.

mod append;
mod held;
mod plan;
mod ready;
mod undo;

use std::io;
use std::os::unix::fs::FileExt;

use h5logfs_common::diagnostic::Severity;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::parallel;
use h5logfs_hdf5_format::{Added, Image, SUPERBLOCK};
use h5logfs_log::journal::{parent, sync};
use h5logfs_log::settled::record::{Mark, Record, Superblock};
use h5logfs_log::snapshot::{Content, Snapshot, Storage};
use h5logfs_view::{ChunkId, View};

use append::Appender;
use h5logfs_hdf5_format::btree::{StoredChunk, StoredIndex};
pub use held::{Held, Intent};
pub use plan::{DatasetPlan, Plan};
pub use ready::{How, Ready, settle};
use undo::is_settled;
pub use undo::undo;

/// A log to be settled.
#[derive(Debug)]
struct LogToSettle {
    held: Held,
    /// Length of the log.
    len: u64,
    /// Offset of the appended data.
    start: u64,
}

/// The result of settling a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// Length of the log.
    pub before: u64,
    /// Length of the file.
    pub after: u64,
}

impl LogToSettle {
    /// The log in an open file. Removes the rest of an interrupted attempt, unless the file is only inspected.
    fn new(held: Held, intent: Intent) -> Result<Self> {
        let mut len = held.identity()?.size;
        if let Some(mark) = held.interrupted()? {
            len = mark.old_len;
            if intent == Intent::Change {
                held.file().set_len(len).map_err(|e| held.failed(e))?;
            }
        }
        let start = held::start_behind(len, held.user_block());
        let start = start.ok_or_else(|| held.refused("it is too long"))?;
        Ok(LogToSettle { held, len, start })
    }

    /// The open file.
    fn held(&self) -> &Held {
        &self.held
    }

    /// The address of the image: [`Snapshot::image_at`].
    fn image_at(&self) -> u64 {
        self.start + Mark::SIZE as u64 - self.held.user_block()
    }

    /// Takes the image out of the log's snapshot. Fails with the reason where the log cannot be settled.
    fn take_image(&self, snapshot: &mut Snapshot) -> Result<Added> {
        self.check(snapshot)?;
        let image = std::mem::take(&mut snapshot.image);
        let image = Added::from_bytes(image, SUPERBLOCK, self.image_at());
        image.map_err(|e| self.held.refused(e))
    }

    fn check(&self, snapshot: &Snapshot) -> Result<()> {
        let held = &self.held;
        let log = snapshot.sources.first();
        let own = log.filter(|log| {
            log.identity
                .is_same_file(held.identity().unwrap_or_default())
        });
        let Some(own) = own else {
            return Err(Error::Changed {
                path: held.path().to_owned(),
            });
        };
        if let Some(other) = snapshot.sources.iter().find(|s| s.place != own.place) {
            let reason = format!(
                "its data lie in other files, as {}: `h5logfs compact` or `h5logfs export` makes one file of them",
                held.dir().full_path(&other.place.path).display()
            );
            return Err(held.refused(reason));
        }
        let is_as_asked = snapshot.image_at == Some(self.image_at())
            && snapshot.user_block == held.user_block()
            && snapshot.journal.is_none();
        if !is_as_asked {
            return Err(held.refused(
                "it is not a closed log in an HDF5 file: `h5logfs compact` or `h5logfs export` makes an HDF5 file of it",
            ));
        }
        let diagnostics = snapshot.diagnostics.iter();
        if let Some(fault) = diagnostics.clone().find(|d| d.severity > Severity::Note) {
            return Err(held.refused(format!("{fault}. {DAMAGED}")));
        }
        for dataset in &snapshot.datasets {
            if let Content::Unreadable(reason) = &dataset.content {
                let reason = format!("dataset {}: {reason}. {DAMAGED}", dataset.name);
                return Err(held.refused(reason));
            }
        }
        Ok(())
    }

    /// Plans the chunks. `view` is the view of the snapshot without its image.
    fn plan(&self, view: &View) -> Result<Plan> {
        if let Some(fault) = view.indexes().diagnostics()?.first() {
            return Err(self.held.refused(format!("{fault}. {DAMAGED}")));
        }
        Plan::new(view)
    }

    /// Settles the log. `progress` takes the number of appended bytes, out of [`Plan::bytes`]. After a failure the file
    /// is the unchanged log, unless the error says otherwise.
    fn settle(
        &self,
        view: &View,
        image: Added,
        mut plan: Plan,
        progress: &dyn Fn(u64),
    ) -> Result<Settled> {
        let held = &self.held;
        let now = held.identity()?;
        if now != view.snapshot().sources[0].identity {
            return Err(Error::Changed {
                path: held.path().to_owned(),
            });
        }
        let appended = self.append(view, image, &mut plan, progress);
        let settled = appended.and_then(|(superblock, after)| {
            replace_superblock(held, &superblock)?;
            Ok(Settled {
                before: self.len,
                after,
            })
        });
        settled.inspect_err(|_| self.cut())
    }

    /// Truncates the file to the length of the log, if it is still that log. If the truncation fails, some bytes follow
    /// the log's end.
    fn cut(&self) {
        if self.held.is_as_opened() {
            let _ = self.held.file().set_len(self.len);
        }
    }

    /// Upper bound of the file's growth in bytes.
    fn growth(&self, image: &Added, plan: &Plan) -> u64 {
        // Each index and each part between chunks begins at a multiple of 8.
        let aligned = 8 * (plan.datasets.len() as u64 + 3);
        let own = Mark::SIZE + image.rest().len() + Record::SIZE;
        own as u64 + aligned + plan.bytes()
    }

    /// Appends everything that the file needs, and waits until it is on disk. Returns the new superblock and the
    /// length of the file.
    fn append(
        &self,
        view: &View,
        image: Added,
        plan: &mut Plan,
        progress: &dyn Fn(u64),
    ) -> Result<(Superblock, u64)> {
        let held = &self.held;
        let mark = Mark {
            old_len: self.len,
            superblock: *held.superblock(),
        };
        let mut objects = mark.to_bytes();
        let objects_len = (objects.len() + image.rest().len()) as u64;
        let mut out = Appender::new(held, self.start + objects_len);
        // The mark is first, so that an interrupted attempt is recognised.
        let marked = held.file().write_all_at(&objects, self.start);
        marked.map_err(|e| held.failed(e))?;
        out.align()?;
        let image = append_datasets(view, image, plan, &mut out, progress)?;
        out.align()?;
        let end = out.offset() + Record::SIZE as u64;
        let mut image = Image::new(image);
        let addressed = image.set_superblock(held.user_block(), end);
        addressed.map_err(|e| held.refused(e))?;
        let image = image.into_bytes();
        let superblock = image.front().try_into();
        let superblock: Superblock =
            superblock.map_err(|_| held.refused("an image without a superblock"))?;
        objects.extend_from_slice(image.rest());
        let written = held.file().write_all_at(&objects, self.start);
        written.map_err(|e| held.failed(e))?;
        out.checksum.add(&objects);
        out.checksum.add(&superblock);
        let record = Record {
            mark,
            user_block: held.user_block(),
            start: self.start,
            objects: objects_len,
            end,
            checksum: out.checksum.sum(),
        };
        out.put(&record.to_bytes())?;
        out.flush()?;
        view.references().check_sources()?;
        if held.identity()?.size != end {
            return Err(held.refused("another program has written to it"));
        }
        held.file().sync_all().map_err(|e| held.failed(e))?;
        // A removed journal must not return after a crash: readers would believe it before the new superblock.
        sync(parent(held.path()))?;
        held.check_no_job()?;
        Ok((superblock, end))
    }
}

const DAMAGED: &str =
    "An ordinary file would not show that these data are missing: see `h5logfs check`";

/// Appends the chunks and the chunk indexes of all datasets. Returns the image with their addresses.
fn append_datasets(
    view: &View,
    image: Added,
    plan: &mut Plan,
    out: &mut Appender<'_>,
    progress: &dyn Fn(u64),
) -> Result<Added> {
    let mut image = Image::new(image);
    let mut done = 0;
    for (number, plan) in plan.datasets.iter_mut().enumerate() {
        let dataset = &view.snapshot().datasets[number];
        append_chunks(view, number, plan, out, &mut done, progress)?;
        let address = match dataset.storage {
            Storage::Contiguous => plan.chunks.first().map(|chunk| chunk.address),
            Storage::Chunked(_) => append_index(view, number, &plan.chunks, out)?,
        };
        done += plan.index_bytes;
        if let Some(address) = address {
            let is_chunked = matches!(dataset.storage, Storage::Chunked(_));
            let set = image.set_layout_address(dataset.header, address, is_chunked);
            let named = |e| format!("dataset {}: {e}", dataset.name);
            set.map_err(|e| Error::of(view.path(), named(e)))?;
        }
    }
    Ok(image.into_bytes())
}

/// Appends the chunks of a dataset that do not stay in place, and records their addresses.
fn append_chunks(
    view: &View,
    number: usize,
    plan: &mut DatasetPlan,
    out: &mut Appender<'_>,
    done: &mut u64,
    progress: &dyn Fn(u64),
) -> Result<()> {
    /// Bytes of chunks made at the same time.
    const AT_ONCE: u64 = 32 << 20;
    let size = plan.appended_bytes.checked_div(plan.appended).unwrap_or(0);
    let threads = parallel::shares();
    let most = AT_ONCE.checked_div(size).unwrap_or(0) as usize;
    let mut chunks: Vec<&mut StoredChunk> = plan.missing().collect();
    for batch in chunks.chunks_mut(most.max(threads)) {
        let numbers: Vec<u64> = batch.iter().map(|chunk| chunk.number).collect();
        for (chunk, bytes) in batch.iter_mut().zip(make(view, number, &numbers, threads)?) {
            chunk.address = out.address();
            let stored = u32::try_from(bytes.len());
            chunk.size = stored.map_err(|_| Error::of(view.path(), "a chunk past 4 GiB"))?;
            out.put(&bytes)?;
            *done += size;
            progress(*done);
        }
    }
    Ok(())
}

/// Chunks of a dataset, filtered.
fn make(view: &View, number: usize, chunks: &[u64], threads: usize) -> Result<Vec<Vec<u8>>> {
    let work = |first: usize| {
        let own = chunks.iter().skip(first).step_by(threads);
        own.map(|chunk| {
            view.references()
                .compressed_chunk(ChunkId::new(number, *chunk))
        })
        .collect::<Result<Vec<_>>>()
    };
    let shares = parallel::share(threads.min(chunks.len()).max(1), work);
    let mut shares = shares
        .into_iter()
        .map(|share| share.map(Vec::into_iter))
        .collect::<Result<Vec<_>>>()?;
    let in_turn = (0..chunks.len()).filter_map(|n| {
        let count = shares.len();
        shares.get_mut(n % count)?.next()
    });
    Ok(in_turn.collect())
}

/// Appends the chunk index of a dataset. Returns the address for its layout message.
fn append_index(
    view: &View,
    number: usize,
    chunks: &[StoredChunk],
    out: &mut Appender<'_>,
) -> Result<Option<u64>> {
    let element = view.snapshot().datasets[number].element_size;
    let grid = view.grid(number);
    let origin = |chunk| grid.origin(chunk);
    let Some(index) = StoredIndex::new(&grid.chunk, element, chunks, origin) else {
        return Err(Error::of(view.path(), "a chunk index past 2^64 bytes"));
    };
    out.align()?;
    let address = out.address();
    for node in index.nodes(address) {
        out.put(&node)?;
    }
    Ok(index.root(address))
}

/// Replaces the superblock, which lies in one sector, and waits until it is on disk.
fn replace_superblock(held: &Held, superblock: &Superblock) -> Result<()> {
    let at = held.user_block();
    let written = held.file().write_at(superblock, at);
    let complete = |count| match count {
        SUPERBLOCK => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    };
    written.and_then(complete).map_err(|e| held.failed(e))?;
    held.file().sync_all().map_err(|e| {
        held.refused(format!(
            "{e}, while the new superblock was forced to the disk. After a crash of the system the file may be a log or \
             an ordinary file"
        ))
    })
}
