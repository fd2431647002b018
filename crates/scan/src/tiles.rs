//! Sets of netCDF files, one for each process (`docs/formats/netcdf-tiles.md`). Members are read without libhdf5; it only makes the
//! image.

use super::{netcdf4, no_flush};
use crate::netcdf4::model::{self, Model};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_log::Tables;
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::netcdf::header::Type;
use h5logfs_log::scan::shape::Chooser;
use h5logfs_log::scan::{ScanRequest, incomplete};
use h5logfs_log::snapshot::{Snapshot, Source};
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::{Identity, SourceFile};
use h5logfs_log::tiles::FileKind;
use h5logfs_log::tiles::member::{Attribute, Value, Variable};
use h5logfs_log::tiles::names::MemberName;
use h5logfs_log::tiles::set::{self, Joined, gap_value};

/// The first member of the set that the request is for. A request for a set has its members as companion files, and the name of a
/// file that they make up.
pub fn first_member<'a>(request: ScanRequest<'a>) -> Option<&'a SourcePath> {
    let first = request.companions?.first()?;
    let name = MemberName::parse(first.path.file_name()?)?;
    (Some(name.joined().as_os_str()) == request.relative.file_name()).then_some(first)
}

/// Scans a set.
pub fn scan(request: ScanRequest<'_>, first: &SourcePath) -> Result<Snapshot> {
    let path = request.dir.full_path(request.relative);
    let shown_flush = request.settings.shown_flush.check_closed(None);
    shown_flush.map_err(|reason| no_flush(&path, reason))?;
    let files = LogFiles::of_owner(request.dir, request.relative, owner(request, first)?);
    let found = set::read(&files, request.companions.unwrap_or_default())?;
    // The chunks of the first member show how the members are stored.
    let opened = found.sources.first().map(|(place, _)| files.open(place));
    let opened: Vec<SourceFile> = opened.transpose()?.into_iter().collect();
    let sources = found.sources.into_iter();
    let sources = sources.map(|(place, identity)| Source::whole(place, identity));
    let mut diagnostics = found.diagnostics;
    let incomplete = request.settings.incomplete_attribute;
    let incomplete = incomplete.then(|| incomplete::text(&diagnostics)).flatten();
    let kind = found.tables.forms.first().map(|form| form.kind);
    let model = model_of(&found.joined, kind, &mut diagnostics);
    let log = Tables::Tiles(found.tables);
    let chooser = Chooser::new(request.settings.chunking, log.layout(), &opened);
    let choice = &request.settings.choice;
    let made = netcdf4::make(&model, &chooser, choice, incomplete.as_deref());
    let made = made.map_err(|fault| Error::of(path, fault))?;
    diagnostics.extend(made.diagnostics);
    Ok(Snapshot {
        sources: sources.collect(),
        joined: Some(request.relative.to_owned()),
        image: made.image,
        datasets: made.datasets,
        log,
        addresses: made.addresses,
        diagnostics,
        has_unreadable: found.has_unreadable,
        ..Snapshot::default()
    })
}

/// The owner of the first member, to whom the others must belong. Where another process opens the files, that one decides.
fn owner(request: ScanRequest<'_>, first: &SourcePath) -> Result<u32> {
    if request.dir.is_remote() {
        return Ok(0);
    }
    let found = request.dir.of(first).and_then(|dir| dir.stat(&first.path));
    let found = found.map_err(|e| Error::io(request.dir.full_path(&first.path), e))?;
    Ok(Identity::from(&found).owner)
}

/// The joined file in netCDF's data model.
fn model_of(joined: &Joined, kind: Option<FileKind>, diagnostics: &mut Vec<Diagnostic>) -> Model {
    let dimensions = joined.dimensions.iter().map(|dimension| model::Dimension {
        name: dimension.name.clone(),
        len: dimension.len,
        is_unlimited: dimension.is_unlimited,
    });
    let first = joined.variables.first();
    let variables = joined.variables.iter();
    Model {
        dimensions: dimensions.collect(),
        attributes: attributes("the file", &joined.attributes, diagnostics),
        variables: variables.map(|own| variable(own, diagnostics)).collect(),
        is_big_endian: match kind {
            Some(FileKind::Classic { .. }) => true,
            _ => first.is_some_and(|first| first.is_big_endian),
        },
        is_classic: joined.is_classic,
    }
}

fn variable(own: &Variable, diagnostics: &mut Vec<Diagnostic>) -> model::Variable {
    let gap = gap_value(own);
    let mut unwritten = gap;
    if own.is_big_endian {
        unwritten[..own.kind.size()].reverse();
    }
    let name = String::from_utf8_lossy(&own.name);
    model::Variable {
        name: own.name.clone(),
        dimensions: own.dimensions.clone(),
        attributes: attributes(&name, &own.attributes, diagnostics),
        kind: own.kind,
        is_big_endian: own.is_big_endian,
        fill: gap,
        unwritten,
        unreadable: None,
    }
}

/// The attributes of the file or of a variable. `of` names it in messages.
fn attributes(
    of: &str,
    own: &[Attribute],
    diagnostics: &mut Vec<Diagnostic>,
) -> Vec<model::Attribute> {
    let mut shown = Vec::new();
    for attribute in own {
        let value = match &attribute.value {
            Value::Text(text) => plain(Type::Char, text),
            Value::Numbers(kind, bytes) => plain(Type::Number(*kind), bytes),
            Value::Texts(texts) => model::Value::Texts(texts.clone()),
            Value::Other(kind) => {
                let name = String::from_utf8_lossy(&attribute.name);
                let text = format!("attribute {name} of {of} is not shown: its type is {kind}");
                diagnostics.push(Diagnostic::note(text));
                continue;
            }
        };
        let name = attribute.name.clone();
        shown.push(model::Attribute { name, value });
    }
    shown
}

fn plain(kind: Type, bytes: &[u8]) -> model::Value {
    model::Value::Plain {
        kind,
        len: (bytes.len() / kind.size()) as u64,
        bytes: bytes.to_vec(),
    }
}
