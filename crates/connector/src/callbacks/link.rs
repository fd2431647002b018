//! Links.

use h5logfs_host::Kind;
use h5logfs_host::types::{FAILURE, Id, Status};

use crate::arguments::{Handle, LinkCreate, LinkSpecific, Location, Opaque, Optional, Requests};
use crate::object::{Changed, Effect, Object, pass_two};
use h5logfs_common::fault::Fault;

passed_at! {
    /// `H5Lget_*`.
    Reads get = H5VLlink_get(args: *mut Opaque), Link;
    /// Operations of the native connector.
    Changes optional = H5VLlink_optional(args: *mut Optional), Link;
}

/// Answers for two objects, one of which may be missing.
fn answer(
    one: Option<&Object>,
    other: Option<&Object>,
    act: impl FnOnce() -> Result<Status, Fault>,
) -> Status {
    one.or(other)
        .map_or(FAILURE, |object| object.answer(Kind::Link, act))
}

/// Fails if the link to be created or removed is in a file that cannot be written.
fn check_link(object: Option<&Object>, location: *const Location) -> Result<(), Fault> {
    let Some(object) = object else {
        return Ok(());
    };
    // SAFETY: the library gives a location.
    let location = unsafe { &*location };
    // SAFETY: as above.
    let path = unsafe { location.path() };
    let path = path.map(|path| match location.by {
        // The path names the group of the link.
        Location::INDEX => Changed::Object(path),
        _ => Changed::Link(path),
    });
    object
        .changed_at(path, location.from, location.links())
        .map(drop)
}

/// `H5Lcreate_*`. The path to a hard link's target may start at another object than the path of the link.
pub unsafe extern "C-unwind" fn create(
    args: *mut LinkCreate,
    handle: Handle,
    location: *const Location,
    lcpl: Id,
    lapl: Id,
    dxpl: Id,
    requests: Requests,
) -> Status {
    // SAFETY: see the head of `callbacks`. The arguments belong to the operation.
    let (object, mut args_below) = unsafe { (Object::of_optional_handle(handle), *args) };
    let is_hard = args_below.operation == LinkCreate::HARD;
    let target = if is_hard {
        // SAFETY: the operation selects this part of the union; its object belongs to this connector or is null.
        unsafe { Object::of_optional_handle(args_below.arguments.hard.object) }
    } else {
        None
    };
    answer(object, target, || {
        check_link(object, location)?;
        pass_two(object, target, requests, |f, under, target, vol| {
            // SAFETY: see the head of `callbacks`.
            unsafe {
                if is_hard {
                    args_below.arguments.hard.object = target;
                }
                let args = &mut args_below;
                (f.H5VLlink_create)(args, under, location, vol, lcpl, lapl, dxpl, requests)
            }
        })
    })
}

macro_rules! two_links {
    ($($(#[$doc:meta])* $name:ident = $function:ident, $is_moved:expr;)*) => {
        $(
            $(#[$doc])*
            #[allow(clippy::too_many_arguments)]
            pub unsafe extern "C-unwind" fn $name(
                source: Handle,
                source_location: *const Location,
                target: Handle,
                target_location: *const Location,
                lcpl: Id,
                lapl: Id,
                dxpl: Id,
                requests: Requests,
            ) -> Status {
                // SAFETY: see the head of `callbacks`.
                let (source, target) = unsafe {
                    (Object::of_optional_handle(source), Object::of_optional_handle(target))
                };
                answer(source, target, || {
                    // If both ends lie in one place, libhdf5 names the object once.
                    check_link(target.or(source), target_location)?;
                    if $is_moved {
                        check_link(source.or(target), source_location)?;
                    }
                    // SAFETY: see the head of `callbacks`.
                    pass_two(source, target, requests, |f, source, target, vol| unsafe {
                        (f.$function)(
                            source,
                            source_location,
                            target,
                            target_location,
                            vol,
                            lcpl,
                            lapl,
                            dxpl,
                            requests,
                        )
                    })
                })
            }
        )*
    };
}

two_links! {
    /// `H5Lcopy`.
    copy = H5VLlink_copy, false;
    /// `H5Lmove`.
    rename = H5VLlink_move, true;
}

/// `H5Ldelete`, `H5Lexists`, `H5Literate`, `H5Lvisit`.
pub unsafe extern "C-unwind" fn specific(
    handle: Handle,
    location: *const Location,
    args: *mut LinkSpecific,
    dxpl: Id,
    requests: Requests,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let (object, operation) = unsafe { (Object::of_handle(handle), (*args).operation) };
    let effect = match operation {
        LinkSpecific::DELETE => Effect::Writes,
        LinkSpecific::ITERATE => Effect::Runs,
        _ => Effect::Reads,
    };
    object.answer(Kind::Link, || {
        if effect == Effect::Writes {
            check_link(Some(object), location)?;
        }
        // SAFETY: see the head of `callbacks`.
        let links = unsafe { (*location).links() };
        object.with_links(links, || {
            // SAFETY: see the head of `callbacks`.
            object.pass(effect, requests, |f, under, vol| unsafe {
                (f.H5VLlink_specific)(under, location, vol, args, dxpl, requests)
            })
        })
    })
}
