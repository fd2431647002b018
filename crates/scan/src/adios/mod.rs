//! ADIOS2 directories (`docs/formats/adios-bp.md`). The log file is `md.idx`. libhdf5 only makes the image.
//!
//! * `files` opens the files of a directory.
//! * `scorpio` scans a directory that SCORPIO wrote for a netCDF file.
//! * `image` makes the objects, with `types` and `attributes`. `alike` makes the datasets that are like others.

mod alike;
mod attributes;
mod files;
mod image;
mod scorpio;
mod types;

use super::no_flush;
use super::shown::ShownObjects;
use super::sources::Sources;
use files::DirectoryFiles;
use h5logfs_adios::Place;
use h5logfs_adios::directory::{Directory, Needed};
use h5logfs_adios::scorpio::is_scorpio;
use h5logfs_adios::tree::{Dataset, Object, Summary, Tree, Values};
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_log::Tables;
use h5logfs_log::adios::{self, DatasetSource, Parts};
use h5logfs_log::journal::ShownFlush;
use h5logfs_log::scan::shape::Chooser;
use h5logfs_log::scan::{Choice, ScanRequest, damage, incomplete};
use h5logfs_log::snapshot::{LeftOut, Snapshot, Source};
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::SourceFile;

/// A directory that is open.
struct Opened<'a> {
    files: DirectoryFiles<'a>,
    directory: Directory,
    /// The number of steps that are shown.
    shown: u64,
    /// The state of the steps.
    diagnostics: Vec<Diagnostic>,
    /// `md.idx`.
    journal: Source,
}

/// Scans a directory by its `md.idx`. Each step leaves a state, as a flush does in other logs.
pub fn scan(request: ScanRequest<'_>, index: SourceFile) -> Result<Snapshot> {
    let path = index.path().to_owned();
    let bad = |fault: Fault| Error::of(&path, fault);
    let journal = Source::whole(SourcePath::below(request.relative), index.identity());
    let files = DirectoryFiles::open(request, index)?;
    let directory = Directory::open(files.metadata()).map_err(bad)?;
    let shown = steps_at(request.settings.shown_flush, directory.steps() as u64);
    let shown = shown.map_err(|reason| no_flush(&path, reason))?;
    let opened = Opened {
        diagnostics: state(&directory, shown),
        files,
        directory,
        shown,
        journal,
    };
    if is_scorpio(opened.files.metadata()).map_err(bad)? {
        return scorpio::scan(request, opened);
    }
    scan_steps(request, opened)
}

/// Scans a directory that shows its variables as ADIOS2 has them.
fn scan_steps(request: ScanRequest<'_>, opened: Opened<'_>) -> Result<Snapshot> {
    let path = opened.files.index_path().to_owned();
    let bad = |fault: Fault| Error::of(&path, fault);
    let Opened {
        files,
        directory,
        shown,
        mut diagnostics,
        journal,
    } = opened;
    let tree = tree_of(&files, &directory, shown, &bad)?;
    let is_active = directory.is_active();
    if !tree.lost_blocks.is_empty() && files.are_in_object_store() {
        let what = "its data.N are in an object store, as s3.json says: ADIOS2 2.12 reads them there, h5logfs reads \
            copies of them beside md.0";
        diagnostics.push(Diagnostic::lost(what).counted());
    }
    diagnostics.extend(tree.lost_blocks.iter().map(counted));
    diagnostics.extend(tree.left_out.iter().map(|lost| counted(&lost.to_string())));
    diagnostics.extend(tree.problems.iter().map(Diagnostic::lost));
    let choice = &request.settings.choice;
    let left_out = tree.left_out.iter().filter(|lost| choice.has(&lost.path));
    let left_out = left_out.map(|lost| LeftOut {
        name: lost.path.clone(),
        elements: lost.elements,
        what: lost.steps.clone(),
    });
    let left_out = left_out.collect();
    let objects = chosen(&tree, choice).map_err(bad)?;
    let (sources, parts) = files.into_sources(is_active)?;
    let walked = Walked {
        lacks_files: !parts.unopened.is_empty(),
        log: Tables::Adios(adios::Tables {
            strip: strip(&directory, shown),
            ..tables(&objects, parts)
        }),
        sources,
        // Files that `md.idx` mentions may come later: a writer need not wait for its data files, and a file system need
        // not keep their order.
        is_incomplete: diagnostics.iter().any(|d| d.severity == Severity::Lost)
            || !directory.problems().is_empty(),
        has_unreadable: !tree.lost_blocks.is_empty(),
        left_out,
        diagnostics,
        directory,
        shown,
        journal,
    };
    let order = walked.directory.is_big_endian();
    walked.snapshot(request, |chooser, incomplete| {
        image::make(&objects, order, chooser, choice, incomplete)
    })
}

/// A directory whose steps were walked through.
struct Walked {
    directory: Directory,
    /// The number of steps that are shown.
    shown: u64,
    /// `md.idx`.
    journal: Source,
    sources: Sources,
    log: Tables,
    diagnostics: Vec<Diagnostic>,
    /// Steps of variables that are left out.
    left_out: Vec<LeftOut>,
    /// Something is missing that may still come, if a writer has the directory open.
    is_incomplete: bool,
    /// Files are missing, or cannot be opened.
    lacks_files: bool,
    /// Some elements cannot be read.
    has_unreadable: bool,
}

impl Walked {
    /// The snapshot. `make` makes the image, with a text for the attribute that names what is missing.
    fn snapshot(
        self,
        request: ScanRequest<'_>,
        make: impl FnOnce(&Chooser<'_>, Option<&str>) -> std::result::Result<ShownObjects, Fault>,
    ) -> Result<Snapshot> {
        let Walked {
            directory,
            shown,
            journal,
            sources,
            log,
            left_out,
            mut diagnostics,
            ..
        } = self;
        let chooser = Chooser::new(request.settings.chunking, log.layout(), &sources.files);
        let incomplete = request.settings.incomplete_attribute;
        let incomplete = incomplete.then(|| incomplete::text(&diagnostics)).flatten();
        let made = make(&chooser, incomplete.as_deref());
        let made = made.map_err(|fault| Error::of(sources.files[0].path(), fault))?;
        let has_unreadable = self.has_unreadable || damage::is_known(&chooser, &made.datasets);
        let has_large_tables = chooser.has_large_tables();
        sources.check_unchanged()?;
        diagnostics.extend(made.diagnostics);
        let is_active = directory.is_active();
        let flushes = if is_active { shown } else { 0 };
        Ok(Snapshot {
            sources: sources.describe(),
            journal: is_active.then_some(journal),
            flushes,
            asked: flushes,
            newest: directory.steps() as u64,
            // A file that comes, or that can be opened later, changes none of those that are open.
            is_late: is_active && self.is_incomplete || self.lacks_files,
            image: made.image,
            datasets: made.datasets,
            log,
            addresses: made.addresses,
            diagnostics,
            left_out,
            has_unreadable,
            has_large_tables,
            ..Snapshot::default()
        })
    }
}

/// The diagnostic about lost elements that are counted by their records, or as left out.
fn counted(text: &String) -> Diagnostic {
    Diagnostic::lost(text).counted()
}

/// The number of steps that are shown.
fn steps_at(shown_flush: ShownFlush, newest: u64) -> Result<u64, Fault> {
    match shown_flush {
        ShownFlush::Newest => Ok(newest),
        ShownFlush::Flush(step) if step <= newest => Ok(step),
        ShownFlush::Flush(step) => {
            let reason = format!("it has no step {step}: it has {newest}");
            Err(Fault::Refused(reason))
        }
        ShownFlush::Time(_) => Err(Fault::Refused("its steps have no recorded times".into())),
    }
}

/// Builds the objects of the first `steps` steps.
fn tree_of(
    files: &DirectoryFiles<'_>,
    directory: &Directory,
    steps: u64,
    bad: &dyn Fn(Fault) -> Error,
) -> Result<Tree> {
    let is_active = directory.is_active();
    let presence = |place: &Place| files.presence(place, is_active);
    let mut summary = Summary::new(directory.is_big_endian(), directory.is_flattened());
    let mut section = Vec::new();
    let mut values = Values::default();
    for number in directory.numbers() {
        if number as u64 >= steps {
            break;
        }
        let needed =
            directory.outline_for(&summary, files.metadata(), number, &mut section, &presence);
        match needed.map_err(bad)? {
            Needed::Outline(step) => summary.add_complete(number as u64, &step),
            Needed::All(mut step) => {
                if summary.has_attributes_as_variables(&step) {
                    let read = |place: &Place, buffer: &mut [u8]| files.read(place, buffer);
                    let added = values.add(&mut step, &presence, &read);
                    added.map_err(bad)?;
                }
                summary.add(number as u64, &step, &presence);
            }
        }
        files.check()?;
    }
    Ok(summary.finish())
}

/// The diagnostics about the steps.
fn state(directory: &Directory, shown: u64) -> Vec<Diagnostic> {
    let newest = directory.steps() as u64;
    let mut found = Vec::new();
    if directory.is_active() {
        let text =
            format!("not closed: {newest} complete steps; its writer is running or has died");
        found.push(Diagnostic::note(text));
    }
    if shown < newest {
        let text = format!("shown as step {shown} of {newest} left it");
        found.push(Diagnostic::note(text));
    }
    // An incomplete step is no loss.
    let severity = if directory.is_active() {
        Severity::Note
    } else {
        Severity::Lost
    };
    let problems = directory.problems().iter();
    found.extend(problems.map(|problem| Diagnostic::new(severity, problem)));
    found
}

/// The root, and all other objects of the choice.
fn chosen<'t>(tree: &'t Tree, choice: &Choice) -> std::result::Result<Vec<&'t Object>, Fault> {
    let is_there = |path: &str| {
        let by_path = |object: &Object| object.path.as_str().cmp(path);
        tree.objects.binary_search_by(by_path).is_ok()
    };
    choice.check_found(is_there)?;
    let is_chosen = |object: &&Object| object.path == "/" || choice.has(&object.path);
    Ok(tree.objects.iter().filter(is_chosen).collect())
}

/// The places of all elements that the image does not hold.
fn tables(objects: &[&Object], parts: Parts) -> adios::Tables {
    let datasets = objects.iter().filter_map(|object| object.dataset.as_ref());
    let logged = datasets.filter(|dataset| !image::has_elements(dataset));
    let source = |dataset: &Dataset| DatasetSource {
        variable: dataset.source.variable.clone(),
        steps: dataset.source.steps.clone(),
        has_steps: dataset.has_steps,
        block: dataset.source.block,
    };
    adios::Tables {
        parts,
        datasets: logged.map(source).collect(),
        strip: 0,
    }
}

/// The number of steps that are read together.
fn strip(directory: &Directory, steps: u64) -> u64 {
    let shown = directory
        .numbers()
        .take_while(|number| (*number as u64) < steps);
    let bytes = shown.map(|number| directory.metadata_len(number));
    adios::strip_of(steps, bytes.fold(0, u64::saturating_add))
}
