//! The objects of a closed log as a complete metadata image, for a writer that appends to the log.
//!
//! A scan shows each logged dataset in chunks, for HDF5 programs that read the view. If the log records no chunks for a dataset,
//! the image has none either: the next reader chooses chunks for the extent that the dataset has then.

use std::path::Path;

use crate::hdf5_sys as h5;
use crate::logvol;
use crate::room::Room;
use crate::shown::{self, How};
use crate::{Original, find_log, open};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_log::Tables;
use h5logfs_log::hdf5_bytes::Hdf5;
use h5logfs_log::journal::metadata_image::MetadataImage;
use h5logfs_log::scan::shape::Chooser;
use h5logfs_log::scan::{Chunking, ScanRequest, Settings};
use h5logfs_log::snapshot::{Source, to_append};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use h5logfs_objects::defined::without_chunks;

/// A closed log, as the writer needs it.
#[derive(Debug)]
pub struct ClosedLog {
    /// The files of the log.
    pub sources: Vec<Source>,
    /// The places of its entries and data in these files.
    pub tables: Tables,
    /// The objects of the log.
    pub image: MetadataImage,
}

impl ClosedLog {
    /// Reads the log `name` in `dir` with the libhdf5 of this process. Fails if an object cannot be read completely, because an
    /// append would lose it.
    pub fn read(dir: &SourceDir, name: &Path) -> Result<Self> {
        let path = dir.full_path(name);
        let bad = |fault: Fault| Error::of(&path, fault);
        // The program may need its plug-ins.
        let _plugins = h5::PluginState::keep().map_err(bad)?;
        let source = SourceFile::open(dir, name)?;
        let settings = Settings {
            chunking: Chunking::Size(CHUNK),
            ..Settings::default()
        };
        let seal = logvol::seal(&source, &settings);
        let file = open(&source).map_err(bad)?;
        let mark = logvol::find_mark(&file).map_err(bad)?;
        let log = find_log(
            ScanRequest::alone(dir, name, &settings),
            &file,
            source,
            mark,
            seal,
        );
        let log = log.map_err(bad)?.ok_or_else(|| {
            bad(
                "it is not a log; `h5logfs settle --undo` makes one of a log that was settled"
                    .into(),
            )
        })?;
        let image = image(&file, &log, &settings).map_err(bad)?;
        log.sources.check_unchanged()?;
        log.check_seals(&settings).map_err(bad)?;
        Ok(ClosedLog {
            sources: log.sources.describe(),
            tables: log.tables,
            image,
        })
    }
}

/// The size in bytes of the chunks that libhdf5 gets for datasets without recorded chunks.
const CHUNK: u64 = 1 << 20;

fn image(
    file: &h5::Id,
    log: &crate::Log,
    settings: &Settings,
) -> std::result::Result<MetadataImage, Fault> {
    let files = &log.sources.files;
    let source = files.first().ok_or("a log without files")?;
    let base = h5::user_block(&h5::file_creation(file)?)?;
    let original = Original {
        file,
        bytes: &Hdf5 { source, base },
        layout: log.layout.as_ref(),
        is_partial: false,
    };
    let how = How {
        choice: &settings.choice,
        // Elements that are not logged are copied with the image.
        is_source: false,
        at: None,
        room: Room::ENDLESS,
    };
    let chooser = Chooser::new(settings.chunking, log.tables.layout(), files);
    let shown = shown::image(original, &chooser, how)?;
    if let Some(diagnostic) = shown.diagnostics.first() {
        return Err(diagnostic.to_string().into());
    }
    let mut image = to_append(shown.image, &shown.datasets, &log.tables)?;
    without_chunks(&mut image.image, &shown.chosen)?;
    Ok(image)
}
