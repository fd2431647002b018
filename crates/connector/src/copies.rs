//! `H5Ocopy`: the native connector copies objects of the shadow, and the elements of logged datasets follow.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use h5logfs_host::types::{Id, SUCCESS, Status};
use h5logfs_output::Selection;

use super::Log;
use super::dataset::Dataset;
use super::questions::{header_of, parts_of};
use super::transfer::Region;
use super::walk;
use crate::arguments::Location;
use crate::info::Info;
use crate::object::{Effect, Object, pass_two};
use crate::session::{Copy, Session};

/// The most bytes of elements that are copied at once.
const AT_ONCE: u64 = 16 << 20;

/// Copies objects, from or to a log that is written.
pub fn copy_object(copy: &Copy<'_>) -> Result<Option<Status>, String> {
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
    // The first rank copies, and reads what all have written.
    if let Some(log) = source.filter(|log| log.is_parallel()) {
        log.flush(true)?;
    }
    // SAFETY: the objects are open, and the arguments those of the library.
    let status = pass_two(
        Some(copy.source),
        Some(copy.target),
        ptr::null_mut(),
        |f, from, to, vol| unsafe {
            (f.H5VLobject_copy)(
                from,
                copy.source_location,
                copy.source_name.as_ptr(),
                to,
                copy.target_location,
                copy.target_name.as_ptr(),
                vol,
                copy.ocpypl,
                copy.lcpl,
                copy.dxpl,
                ptr::null_mut(),
            )
        },
    )?;
    if status < 0 {
        return Ok(Some(status));
    }
    for name in walk::datasets(copy.target, copy.target_location, copy.target_name)? {
        copy_dataset(copy, &name)
            .map_err(|e| format!("the copy of dataset {}: {e}", name.to_string_lossy()))?;
    }
    if let Some(log) = target.filter(|log| log.is_parallel()) {
        log.flush(true)?;
    }
    Ok(Some(SUCCESS))
}

/// Whether a copy takes along what references lead to.
fn expands_references(copy: &Copy<'_>) -> bool {
    const EXPAND_REFERENCES: c_uint = 8;
    let mut flags = 0;
    // SAFETY: the list is one of the library; there is a place for the flags.
    let status = copy
        .source
        .info
        .library
        .nested(|f| unsafe { (f.H5Pget_copy_object)(copy.ocpypl, &mut flags) });
    status >= 0 && flags & EXPAND_REFERENCES != 0
}

/// A default property list, which functions for plug-ins do not know by the number 0.
pub fn default_list(info: &Info, variable: &CStr) -> Result<Id, String> {
    let list = info.library.identifier(variable);
    list.ok_or_else(|| "the library has no default property lists".into())
}

fn log_of(session: &Option<Arc<Session>>) -> Option<&Log> {
    session.as_ref()?.log.as_ref()
}

/// A dataset of the connector below that we have opened.
struct Opened(Object);

impl Opened {
    /// The dataset at a path, below `base` where there is one.
    fn at(object: &Object, location: &Location, base: &CStr, name: &CStr) -> Result<Self, String> {
        let path = match (base.to_bytes(), name.to_bytes()) {
            (base, b".") => base.to_vec(),
            (base, name) => [base, b"/", name].concat(),
        };
        let path = CString::new(path).map_err(|e| e.to_string())?;
        let info = &object.info;
        let dapl = default_list(info, c"H5P_LST_DATASET_ACCESS_ID_g")?;
        // SAFETY: the object is open, and the path is a C string.
        let under = info.library.quietly(|f| unsafe {
            (f.H5VLdataset_open)(
                object.under,
                location,
                info.under_vol,
                path.as_ptr(),
                dapl,
                0,
                ptr::null_mut(),
            )
        });
        if under.is_null() {
            return Err("it cannot be opened".into());
        }
        Ok(Opened(Object::new(under, info, None)))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: it is ours, and closed once.
        self.0.call(Effect::Reads, |f, under, vol| unsafe {
            (f.H5VLdataset_close)(under, vol, 0, ptr::null_mut())
        });
    }
}

fn copy_dataset(copy: &Copy<'_>, name: &CStr) -> Result<(), String> {
    let made = Opened::at(copy.target, copy.target_location, copy.target_name, name)?;
    let (source, target) = (log_of(&copy.source_session), log_of(&copy.target_session));
    let from = match source {
        // A path that leads to no dataset is one that the copy has made of a link.
        Some(log) => match Opened::at(copy.source, copy.source_location, copy.source_name, name) {
            Ok(original) => log.find(&original.0)?,
            Err(_) => None,
        },
        None => None,
    };
    let to = match target {
        Some(log) => {
            let parts = from.as_ref().map(|_| parts_of(&made.0)).transpose()?;
            let allocation = from.as_ref().and_then(|from| from.allocation);
            log.add_dataset(header_of(&made.0)?, parts, allocation)
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
        let elements = source.elements(&from, Region { start, count })?;
        match (target, &to) {
            (Some(target), Some(to)) => target.log_box(to, Region { start, count }, elements),
            _ => {
                let region = Region { start, count };
                write_below(&made.0, &from, region, &elements, copy.dxpl)
            }
        }
    })
}

/// What is done with a box: its start and count.
type Visit<'a> = dyn FnMut(&[u64], &[u64]) -> Result<(), String> + 'a;

/// Calls with the parts of a box that are not too large.
fn for_boxes(
    start: Vec<u64>,
    count: Vec<u64>,
    element: u64,
    visit: &mut Visit<'_>,
) -> Result<(), String> {
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
    object: &Object,
    from: &Dataset,
    region: Region<'_>,
    elements: &[u8],
    dxpl: Id,
) -> Result<(), String> {
    /// `H5S_SELECT_SET`.
    const SET: c_int = 0;
    let library = &object.info.library;
    let dims = from.dims();
    let rank = dims.len() as c_int;
    // A scalar is written as a whole.
    let spaces = (rank > 0).then(|| {
        // SAFETY: all lists have a number for each dimension.
        library.nested(|f| unsafe {
            let file = (f.H5Screate_simple)(rank, dims.as_ptr(), ptr::null());
            (f.H5Sselect_hyperslab)(
                file,
                SET,
                region.start.as_ptr(),
                ptr::null(),
                region.count.as_ptr(),
                ptr::null(),
            );
            [
                (f.H5Screate_simple)(rank, region.count.as_ptr(), ptr::null()),
                file,
            ]
        })
    });
    let [mut memory, mut file] = spaces.unwrap_or_default();
    let mut datatype = from.file_type.id;
    let (mut under, mut buf) = (object.under, elements.as_ptr().cast::<c_void>());
    // SAFETY: one dataset, and elements of its type for all that is selected.
    let status = library.quietly(|f| unsafe {
        (f.H5VLdataset_write)(
            1,
            &mut under,
            object.info.under_vol,
            &mut datatype,
            &mut memory,
            &mut file,
            dxpl,
            &mut buf,
            ptr::null_mut(),
        )
    });
    if let Some(spaces) = spaces {
        // SAFETY: both are ours, and closed once.
        library.nested(|f| unsafe { spaces.map(|space| (f.H5Sclose)(space)) });
    }
    match status {
        0.. => Ok(()),
        _ => Err("its elements cannot be written".into()),
    }
}

impl Log {
    fn is_first_rank(&self) -> bool {
        let state = self.state.lock();
        state.open.as_ref().is_some_and(|open| open.ranks.is_root())
    }

    /// A box of elements, of the type in the file.
    fn elements(&self, dataset: &Dataset, region: Region<'_>) -> Result<Vec<u8>, String> {
        let dims = dataset.dims();
        let mut out = vec![0; dataset.bytes(region.count) as usize];
        self.state
            .lock()
            .read_box(dataset, &dims, region, &mut out)?;
        Ok(out)
    }

    fn log_box(
        &self,
        dataset: &Arc<Dataset>,
        region: Region<'_>,
        elements: Vec<u8>,
    ) -> Result<(), String> {
        let dims = dataset.dims();
        let mut state = self.state.lock();
        let selection = if dims.is_empty() {
            Selection::All
        } else {
            Selection::block(region.start, region.count)
        };
        state.blocks.set(&selection, &dims)?;
        state.log(dataset, &dims, elements.into())
    }
}
