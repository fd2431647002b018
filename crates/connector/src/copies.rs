//! `H5Ocopy` from and to logs. The native connector copies objects of the metadata image; the elements of logged datasets follow.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use h5logfs_host::types::{FAILURE, Id, SUCCESS, Status};

use crate::arguments::{Location, kind};
use crate::below::Below;
use crate::below::list::default_list;
use crate::below::opened::Opened;
use crate::below::questions::header_of;
use crate::below::walk;
use crate::log::WrittenLog;
use crate::log::dataset::Dataset;
use crate::log::transfer::Region;
use crate::session::Session;
use h5logfs_common::fault::Fault;
use h5logfs_output::automatic::Cause;

/// The arguments of `H5Ocopy`.
#[derive(Clone)]
pub struct Copy<'a> {
    /// The session of the source's file, if it is a log.
    pub source_session: Option<Arc<Session>>,
    /// The session of the copy's file, if it is a log.
    pub target_session: Option<Arc<Session>>,
    /// The object where the path of the source starts.
    pub source: &'a Below,
    /// The place of the source, starting at `source`.
    pub source_location: &'a Location,
    /// The path of the source from there.
    pub source_name: &'a CStr,
    /// The object where the path of the copy starts.
    pub target: &'a Below,
    /// The place of the copy, starting at `target`.
    pub target_location: &'a Location,
    /// The path of the copy from there.
    pub target_name: &'a CStr,
    /// The object copy property list.
    pub ocpypl: Id,
    /// The link creation property list.
    pub lcpl: Id,
    /// The data transfer property list.
    pub dxpl: Id,
}

/// The largest part of a dataset that is copied in one step, in bytes.
const AT_ONCE: u64 = 16 << 20;

/// Copies an object from or to a log that is being written. `None` if neither file is such a log.
pub fn copy_object(copy: &Copy<'_>) -> Result<Option<Status>, Fault> {
    let (source, target) = (log_of(&copy.source_session), log_of(&copy.target_session));
    if source.is_none() && target.is_none() {
        return Ok(None);
    }
    if source.is_some() && expands_references(copy) {
        return Err(
            "H5O_COPY_EXPAND_REFERENCE_FLAG: objects that only references lead to would lose their logged elements: copy \
             them by their paths"
                .into(),
        );
    }
    // The first rank copies, so it must be able to read elements of all ranks.
    if let Some(log) = source.filter(|log| log.is_parallel()) {
        log.flush(true, Cause::Automatic)?;
    }
    copy.source.check_like(copy.target)?;
    // SAFETY: the objects are open, and the arguments come from the library.
    let status = copy.source.quietly(|f, from, vol| unsafe {
        (f.H5VLobject_copy)(
            from,
            copy.source_location,
            copy.source_name.as_ptr(),
            copy.target.under,
            copy.target_location,
            copy.target_name.as_ptr(),
            vol,
            copy.ocpypl,
            copy.lcpl,
            copy.dxpl,
            ptr::null_mut(),
        )
    });
    if status < 0 {
        return Ok(Some(status));
    }
    for name in walk::datasets(copy.target, copy.target_location.from, copy.target_name)? {
        copy_dataset(copy, &name).map_err(|e| {
            e.at(format_args!(
                "the copy of dataset {}",
                name.to_string_lossy()
            ))
        })?;
    }
    if let Some(log) = target.filter(|log| log.is_parallel()) {
        log.flush(true, Cause::Automatic)?;
    }
    Ok(Some(SUCCESS))
}

/// Whether the copy includes the targets of references.
fn expands_references(copy: &Copy<'_>) -> bool {
    const EXPAND_REFERENCES: c_uint = 8;
    let mut flags = 0;
    // SAFETY: the list belongs to the library, and the place for the flags is valid.
    let status = copy
        .source
        .library()
        .nested(|f| unsafe { (f.H5Pget_copy_object)(copy.ocpypl, &mut flags) });
    status >= 0 && flags & EXPAND_REFERENCES != 0
}

fn log_of(session: &Option<Arc<Session>>) -> Option<&WrittenLog> {
    session.as_ref()?.log()
}

/// Opens the dataset at a path, below `base` if it is given.
fn dataset_at(
    object: &Below,
    location: &Location,
    base: &CStr,
    name: &CStr,
) -> Result<Opened, Fault> {
    let path = match (base.to_bytes(), name.to_bytes()) {
        (base, b".") => base.to_vec(),
        (base, name) => [base, b"/", name].concat(),
    };
    let path = CString::new(path).map_err(|e| e.to_string())?;
    let dapl = default_list(object.library(), c"H5P_LST_DATASET_ACCESS_ID_g")?;
    // SAFETY: the object is open, and the path is a C string.
    let under = object.quietly(|f, under, vol| unsafe {
        (f.H5VLdataset_open)(
            under,
            location,
            vol,
            path.as_ptr(),
            dapl,
            0,
            ptr::null_mut(),
        )
    });
    if under.is_null() {
        return Err("it cannot be opened".into());
    }
    Ok(Opened {
        below: Below::new(under, &object.info),
        kind: kind::DATASET,
    })
}

fn copy_dataset(copy: &Copy<'_>, name: &CStr) -> Result<(), Fault> {
    let made = dataset_at(copy.target, copy.target_location, copy.target_name, name)?;
    let (source, target) = (log_of(&copy.source_session), log_of(&copy.target_session));
    let from = match source {
        // A path that leads to no dataset comes from a link that the copy has replaced by its target.
        Some(log) => match dataset_at(copy.source, copy.source_location, copy.source_name, name) {
            Ok(original) => log.datasets().find(&original.below)?,
            Err(_) => None,
        },
        None => None,
    };
    let to = match target {
        Some(log) => {
            let parts = from
                .as_ref()
                .map(|_| log.datasets().parts_of(&made.below))
                .transpose()?;
            let wanted = from.as_ref().map(|from| from.wanted).unwrap_or_default();
            log.add_dataset(header_of(&made.below)?, parts, wanted)
        }
        None => None,
    };
    let (Some(source), Some(from)) = (source, from) else {
        return Ok(());
    };
    if !from.is_written() || !source.is_first_rank() {
        return Ok(());
    }
    let dims = from.dims();
    let (start, count) = (vec![0; dims.len()], dims.to_vec());
    for_boxes(start, count, from.element as u64, &mut |start, count| {
        let elements = source.boxes().read(&from, Region { start, count })?;
        match (target, &to) {
            (Some(target), Some(to)) => target.boxes().log(to, Region { start, count }, elements),
            _ => {
                let region = Region { start, count };
                write_below(&made.below, &from, region, &elements, copy.dxpl)
            }
        }
    })
}

/// A function that handles a box, given by start and count.
type Visit<'a> = dyn FnMut(&[u64], &[u64]) -> Result<(), Fault> + 'a;

/// Splits a box into parts of at most [`AT_ONCE`] bytes, and calls `visit` for each.
fn for_boxes(
    start: Vec<u64>,
    count: Vec<u64>,
    element: u64,
    visit: &mut Visit<'_>,
) -> Result<(), Fault> {
    let bytes = count
        .iter()
        .fold(element, |n, count| n.saturating_mul(*count));
    if bytes == 0 {
        return Ok(());
    }
    let cut = count.iter().position(|count| *count > 1);
    let Some(d) = cut.filter(|_| bytes > AT_ONCE) else {
        return visit(&start, &count);
    };
    let half = count[d] / 2;
    let (mut first, mut second, mut behind) = (count.clone(), count, start.clone());
    first[d] = half;
    second[d] -= half;
    behind[d] += half;
    for_boxes(start, first, element, visit)?;
    for_boxes(behind, second, element, visit)
}

/// Writes a box of elements to a dataset of a native file.
fn write_below(
    below: &Below,
    from: &Dataset,
    region: Region<'_>,
    elements: &[u8],
    dxpl: Id,
) -> Result<(), Fault> {
    /// `H5S_SELECT_SET`.
    const SET: c_int = 0;
    let library = below.library();
    let dims = from.dims();
    let rank = dims.len() as c_int;
    let mut is_selected = true;
    // A scalar has no selection.
    let spaces = (rank > 0).then(|| {
        // SAFETY: all lists have a number for each dimension.
        library.nested(|f| unsafe {
            let file = (f.H5Screate_simple)(rank, dims.as_ptr(), ptr::null());
            is_selected = (f.H5Sselect_hyperslab)(
                file,
                SET,
                region.start.as_ptr(),
                ptr::null(),
                region.count.as_ptr(),
                ptr::null(),
            ) >= 0;
            [
                (f.H5Screate_simple)(rank, region.count.as_ptr(), ptr::null()),
                file,
            ]
        })
    });
    let [mut memory, mut file] = spaces.unwrap_or_default();
    let mut datatype = from.file_type.id;
    let mut buf = elements.as_ptr().cast::<c_void>();
    let has_spaces = memory >= 0 && file >= 0 && is_selected;
    // SAFETY: there is one dataset, and the buffer holds elements of its type for the whole selection.
    let mut write = || {
        below.quietly(|f, mut under, vol| unsafe {
            (f.H5VLdataset_write)(
                1,
                &mut under,
                vol,
                &mut datatype,
                &mut memory,
                &mut file,
                dxpl,
                &mut buf,
                ptr::null_mut(),
            )
        })
    };
    let status = if has_spaces { write() } else { FAILURE };
    if let Some(spaces) = spaces {
        // SAFETY: this function created both dataspaces, and closes them once.
        library.nested(|f| unsafe { spaces.map(|space| (f.H5Sclose)(space)) });
    }
    match status {
        0.. => Ok(()),
        _ => Err("its elements cannot be written".into()),
    }
}
