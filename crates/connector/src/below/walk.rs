//! A walk along hard links, which finds the datasets below an object.
//!
//! `H5Ovisit` would do, but it gives identifiers to the objects that it meets, and each of these would need an object of this
//! connector behind it.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use h5logfs_host::types::{Id, Status};

use super::Below;
use super::list::default_list;
use super::opened::Opened;
use crate::arguments::{Location, LocationData, LocationIndex, LocationName, Size, Token, kind};
use h5logfs_common::fault::Fault;

/// The deepest nesting of groups that the walk enters.
const DEEPEST: usize = 1000;

/// The arguments of `H5VL_LINK_GET_INFO` and `H5VL_LINK_GET_NAME`.
#[repr(C)]
struct LinkGet {
    operation: c_int,
    first: *mut c_void,
    name: *mut c_char,
    length: *mut usize,
}

/// `H5L_info2_t`.
#[repr(C)]
struct LinkFacts {
    kind: c_int,
    has_order: bool,
    order: i64,
    encoding: c_int,
    token: Token,
}

/// The arguments of `H5VL_GROUP_GET_INFO`.
#[repr(C)]
struct GroupGet {
    operation: c_int,
    location: Location,
    facts: *mut GroupFacts,
}

/// `H5G_info_t`.
#[repr(C)]
#[derive(Default)]
struct GroupFacts {
    storage: c_int,
    links: Size,
    order: i64,
    is_mounted: bool,
}

/// The paths of all datasets below an object, relative to it; `.` is the object itself. `name` is the path of that object from
/// `from`, and `kind` the kind of `from`.
pub fn datasets(from: &Below, kind: c_int, name: &CStr) -> Result<Vec<CString>, Fault> {
    let mut walk = Walk {
        lapl: default_list(from.library(), c"H5P_LST_LINK_ACCESS_ID_g")?,
        seen: HashSet::new(),
        found: Vec::new(),
    };
    let top = walk.open(from, kind, name)?;
    match top.kind {
        kind::DATASET => walk.found.push(c".".to_owned()),
        kind::GROUP => walk.group(&top.below, &[], 0)?,
        _ => {}
    }
    Ok(walk.found)
}

struct Walk {
    lapl: Id,
    /// Objects already met. Several links may lead to one.
    seen: HashSet<Token>,
    found: Vec<CString>,
}

impl Walk {
    fn open(&self, from: &Below, kind: c_int, name: &CStr) -> Result<Opened, Fault> {
        let location = Location {
            from: kind,
            by: Location::NAME,
            data: LocationData {
                name: LocationName {
                    name: name.as_ptr(),
                    lapl: self.lapl,
                },
            },
        };
        let opened = Opened::at(from, &location);
        Ok(opened.ok_or_else(|| format!("{}: it cannot be opened", name.to_string_lossy()))?)
    }

    fn group(&mut self, group: &Below, path: &[u8], depth: usize) -> Result<(), Fault> {
        if depth > DEEPEST {
            return Err("groups are nested too deeply".into());
        }
        for number in 0..self.links(group)? {
            let Some((token, name)) = self.hard_link(group, number)? else {
                continue;
            };
            if !self.seen.insert(token) {
                continue;
            }
            let child = self.open(group, kind::GROUP, &name)?;
            let mut path = path.to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name.to_bytes());
            match child.kind {
                kind::DATASET => self
                    .found
                    .push(CString::new(path).map_err(|e| e.to_string())?),
                kind::GROUP => self.group(&child.below, &path, depth + 1)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The number of links of a group.
    fn links(&self, group: &Below) -> Result<Size, Fault> {
        let mut token = Token([0; 16]);
        let mut facts = GroupFacts::default();
        let mut args = GroupGet {
            operation: 1,
            location: Location {
                from: kind::GROUP,
                by: Location::SELF,
                data: LocationData { token: &mut token },
            },
            facts: &mut facts,
        };
        // SAFETY: the group is open, and the arguments belong to the operation.
        let status = group.quietly(|f, under, vol| unsafe {
            (f.H5VLgroup_get)(under, vol, (&raw mut args).cast(), 0, ptr::null_mut())
        });
        match status {
            0.. => Ok(facts.links),
            _ => Err("the links of a group cannot be counted".into()),
        }
    }

    /// The target and the name of a link. `None` if it is not a hard link.
    fn hard_link(&self, group: &Below, number: Size) -> Result<Option<(Token, CString)>, Fault> {
        const INFO: c_int = 0;
        const NAME: c_int = 1;
        let mut facts = LinkFacts {
            kind: -1,
            has_order: false,
            order: 0,
            encoding: 0,
            token: Token([0; 16]),
        };
        let status = self.ask_link(group, number, |args| {
            args.operation = INFO;
            args.first = (&raw mut facts).cast();
        });
        let failed = || "a link cannot be read".to_owned();
        if status < 0 {
            return Err(failed().into());
        }
        if facts.kind != 0 {
            return Ok(None);
        }
        let mut length = 0usize;
        let mut status = self.ask_link(group, number, |args| {
            args.operation = NAME;
            args.length = &mut length;
        });
        let mut name = vec![0u8; length + 1];
        if status >= 0 {
            status = self.ask_link(group, number, |args| {
                args.operation = NAME;
                args.first = ptr::without_provenance_mut(name.len());
                args.name = name.as_mut_ptr().cast();
                args.length = &mut length;
            });
        }
        if status < 0 {
            return Err(failed().into());
        }
        let name = CStr::from_bytes_until_nul(&name).map_err(|_| failed())?;
        Ok(Some((facts.token, name.to_owned())))
    }

    fn ask_link(&self, group: &Below, number: Size, fill: impl FnOnce(&mut LinkGet)) -> Status {
        let mut args = LinkGet {
            operation: 0,
            first: ptr::null_mut(),
            name: ptr::null_mut(),
            length: ptr::null_mut(),
        };
        fill(&mut args);
        let location = Location {
            from: kind::GROUP,
            by: Location::INDEX,
            data: LocationData {
                index: LocationIndex {
                    name: c".".as_ptr(),
                    index: 0,
                    order: 0,
                    n: number,
                    lapl: self.lapl,
                },
            },
        };
        // SAFETY: the group is open, and the arguments belong to the operation.
        group.quietly(|f, under, vol| unsafe {
            let args = (&raw mut args).cast();
            (f.H5VLlink_get)(under, &location, vol, args, 0, ptr::null_mut())
        })
    }
}
