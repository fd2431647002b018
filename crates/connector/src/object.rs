//! The connector's own objects: each holds the object of the connector below, and the open log that it belongs to.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use h5logfs_host::Kind;
use h5logfs_host::types::{FAILURE, Id, Status};

use crate::arguments::{Handle, Requests, kind};
use crate::below::Below;
use crate::below::info::Info;
use crate::below::opened::Opened;
use crate::context::Context;
use crate::library::{Functions, Library};
use crate::log::dataset::Dataset;
use crate::session::Session;
use crate::session::links::Start;
use crate::session::virtuals::Virtual;
use h5logfs_common::fault::Fault;
use h5logfs_output::automatic::Call;

/// A file, group, dataset, committed datatype, attribute or request.
#[derive(Debug)]
pub struct Object {
    /// The object of the connector below.
    pub below: Below,
    /// The open log, if the object belongs to one.
    pub session: Option<Arc<Session>>,
    /// The logged dataset, if the object is one.
    pub dataset: Option<Arc<Dataset>>,
    /// The context for wrapping objects of the same file, made on first use.
    pub context: OnceLock<Arc<Context>>,
    /// The state of the object if it is a virtual dataset.
    pub virtual_dataset: Virtual,
    /// Whether the object keeps its session open.
    is_counted: bool,
    /// Whether the object is a handle of a file.
    is_file: bool,
}

/// Possible effects of a call of the connector below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The call changes no object.
    Reads,
    /// The call may change an object.
    Changes,
    /// The call may change an object, or settings of the native file that no image holds.
    Configures,
    /// The call changes an object. It fails if the file cannot be written.
    Writes,
    /// The call runs functions of the program, which may make calls of their own.
    Runs,
}

/// The target of a path whose file is about to change.
#[derive(Debug, Clone, Copy)]
pub enum Changed<'a> {
    /// A link, and the object to be made behind it.
    Link(&'a CStr),
    /// An object.
    Object(&'a CStr),
}

impl<'a> Changed<'a> {
    /// The link to be made; `None` for an object without a name.
    ///
    /// # Safety
    ///
    /// The name is a C string or null.
    pub unsafe fn link(name: *const c_char) -> Option<Self> {
        // SAFETY: guaranteed by the caller.
        (!name.is_null()).then(|| Changed::Link(unsafe { CStr::from_ptr(name) }))
    }

    /// The path of the object that contains the target. `None` if that is the object where the path starts.
    fn container(self) -> Option<Vec<u8>> {
        let path = match self {
            Changed::Object(path) => path.to_bytes(),
            Changed::Link(path) => {
                let path = path.to_bytes();
                &path[..path.iter().rposition(|byte| *byte == b'/')?]
            }
        };
        let stays = path.iter().all(|byte| b"./".contains(byte));
        (!stays).then(|| path.to_vec())
    }
}

impl Object {
    /// Wraps an object that the connector below has opened.
    pub fn new(under: *mut c_void, info: &Arc<Info>, session: Option<&Arc<Session>>) -> Self {
        let is_counted = session.is_some_and(|session| session.enter());
        Object {
            is_counted,
            is_file: false,
            below: Below::new(under, info),
            session: session.cloned(),
            dataset: None,
            context: OnceLock::new(),
            virtual_dataset: Virtual::default(),
        }
    }

    /// Wraps a file that the connector below has opened.
    pub fn file(under: *mut c_void, info: &Arc<Info>, session: Option<&Arc<Session>>) -> Self {
        let mut object = Object::new(under, info, session);
        object.is_file = object.is_counted;
        if let Some(session) = session.filter(|_| object.is_file) {
            session.enter_file();
        }
        object
    }

    /// Wraps an object of a known type. A dataset may be a logged one.
    pub fn of_type(
        under: *mut c_void,
        object_type: c_int,
        info: &Arc<Info>,
        session: Option<&Arc<Session>>,
    ) -> Result<Self, Fault> {
        if object_type == kind::FILE {
            return Ok(Object::file(under, info, session));
        }
        let mut object = Object::new(under, info, session);
        if ![kind::DATASET, kind::GROUP].contains(&object_type) {
            return Ok(object);
        }
        if let Err(reason) = object.find_place(object_type) {
            let kind = object_type;
            let below = Below::new(under, info);
            object.leave();
            drop(Opened { below, kind });
            return Err(reason);
        }
        Ok(object)
    }

    /// Finds the session of the object's file, since an external link may have led to another one, and the logged dataset.
    fn find_place(&mut self, object_type: c_int) -> Result<(), Fault> {
        let Some(session) = self.session.clone() else {
            return Ok(());
        };
        if let Some(other) = session.elsewhere(&self.below, object_type)? {
            self.leave();
            self.is_counted = other.enter();
            self.session = Some(other);
        }
        if object_type == kind::DATASET
            && let Some(session) = self.session.clone()
        {
            self.dataset = session.dataset(&self.below)?;
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.dataset = None;
        let session = self.session.take().filter(|_| self.is_counted);
        if let Some(Err(reason)) = session.map(|session| session.leave(self.is_file)) {
            // libhdf5 has given the object up and accepts no failure, so the reason goes on the error stack.
            self.library().push(Kind::Close, &reason.to_string());
        }
    }

    /// The library of the object.
    pub fn library(&self) -> &Library {
        self.below.library()
    }

    /// Prepares the close of the object. This may close its log. If that fails, the object stays open.
    pub fn before_leave(&self) -> Result<(), Fault> {
        let session = self.session.as_ref().filter(|_| self.is_counted);
        let file = self.is_file.then_some(&self.below);
        session.map_or(Ok(()), |session| session.before_leave(file))
    }

    /// Gives the object to libhdf5.
    pub fn into_handle(self) -> Handle {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Borrows an object from libhdf5.
    ///
    /// # Safety
    ///
    /// `handle` comes from [`Object::into_handle`], and lives as long as the reference.
    pub unsafe fn of_handle<'a>(handle: Handle) -> &'a Self {
        // SAFETY: guaranteed by the caller.
        unsafe { &*handle.cast::<Object>() }
    }

    /// Borrows an object from libhdf5, if there is one.
    ///
    /// # Safety
    ///
    /// `handle` is null, or as for [`Object::of_handle`].
    pub unsafe fn of_optional_handle<'a>(handle: Handle) -> Option<&'a Self> {
        // SAFETY: guaranteed by the caller.
        unsafe { handle.cast::<Object>().as_ref() }
    }

    /// Frees an object, after the connector below has closed its own. The last object of a log ends the session.
    ///
    /// # Safety
    ///
    /// `handle` comes from [`Object::into_handle`], and nothing uses it afterwards.
    pub unsafe fn free(handle: Handle) {
        // SAFETY: guaranteed by the caller.
        let mut object = unsafe { Box::from_raw(handle.cast::<Object>()) };
        object.leave();
    }

    /// Passes a call on to the connector below. Its errors are on the error stack. An asynchronous request is wrapped.
    pub fn pass(
        &self,
        effect: Effect,
        requests: Requests,
        call: impl FnOnce(&Functions, *mut c_void, Id) -> Status,
    ) -> Result<Status, Fault> {
        if effect == Effect::Writes {
            self.check_writable()?;
            if let Some(session) = &self.session {
                session.begin_call(Call::Own);
            }
        }
        let status = self.call(effect, call);
        wrap_request(&self.below.info, requests);
        Ok(status)
    }

    /// Passes on a call that opens or creates an object, and wraps that object. Null if there is none.
    pub fn pass_child(
        &self,
        effect: Effect,
        object_type: c_int,
        requests: Requests,
        call: impl FnOnce(&Functions, *mut c_void, Id) -> *mut c_void,
    ) -> Result<Handle, Fault> {
        if effect == Effect::Writes {
            self.check_writable()?;
        }
        let under = self.call(effect, call);
        self.opened(under, requests, || object_type)
    }

    /// The session of the file to which a path leads. `links`: the link access property list.
    pub fn session_at(
        &self,
        path: Option<Changed<'_>>,
        from: c_int,
        links: Id,
    ) -> Result<Option<Arc<Session>>, Fault> {
        let path = path.and_then(Changed::container);
        let (Some(own), Some(path)) = (&self.session, path) else {
            return Ok(self.session.clone());
        };
        let start = Start {
            below: &self.below,
            session: own,
            kind: from,
            links,
        };
        let other = start.session_at(&path)?;
        Ok(other.or_else(|| self.session.clone()))
    }

    /// The session of the file that a call is about to change, through a path. HDF5 makes such calls collective. Fails if the
    /// file cannot be written.
    pub fn changed_at(
        &self,
        path: Option<Changed<'_>>,
        from: c_int,
        links: Id,
    ) -> Result<Option<Arc<Session>>, Fault> {
        let session = self.session_at(path, from, links)?;
        if let Some(session) = &session {
            session.check_writable()?;
            session.begin_call(Call::Collective);
            session.touch();
        }
        Ok(session)
    }

    /// Fails if the object lies in a file that an external link led to, and that cannot be written.
    pub fn check_writable(&self) -> Result<(), Fault> {
        self.session
            .as_ref()
            .map_or(Ok(()), |session| session.check_writable())
    }

    /// Calls the connector below, with error printing as the effect requires.
    pub fn call<R>(
        &self,
        effect: Effect,
        call: impl FnOnce(&Functions, *mut c_void, Id) -> R,
    ) -> R {
        if effect == Effect::Runs {
            return self.below.call(call);
        }
        if effect != Effect::Reads {
            self.touch();
        }
        if effect == Effect::Configures
            && let Some(session) = &self.session
        {
            session.set_special();
        }
        self.below.quietly(call)
    }

    /// Wraps an object that the connector below has opened, or null.
    pub fn opened(
        &self,
        under: *mut c_void,
        requests: Requests,
        object_type: impl FnOnce() -> c_int,
    ) -> Result<Handle, Fault> {
        wrap_request(&self.below.info, requests);
        if under.is_null() {
            return Ok(ptr::null_mut());
        }
        let child = Object::of_type(
            under,
            object_type(),
            &self.below.info,
            self.session.as_ref(),
        )?;
        Ok(child.into_handle())
    }

    /// Runs `call` with a link access property list through which links to logs can be followed.
    pub fn with_links<R>(&self, links: Id, call: impl FnOnce() -> R) -> R {
        match &self.session {
            Some(session) => session.with_links(&self.below.info, links, call),
            None => call(),
        }
    }

    /// Answers a call of libhdf5. A failure goes on its error stack.
    pub fn answer(&self, kind: Kind, act: impl FnOnce() -> Result<Status, Fault>) -> Status {
        self.library().caught(kind, act).unwrap_or(FAILURE)
    }

    /// Flushes the log of an object, after the connector below has flushed the object itself.
    pub fn flushed(&self, status: Status) -> Result<Status, Fault> {
        if status >= 0
            && let Some(session) = &self.session
        {
            session.flush()?;
        }
        Ok(status)
    }

    /// Whether lists of blocks can be transferred: the object must be a logged dataset with dimensions.
    pub fn takes_lists(&self) -> bool {
        let dataset = self.dataset.as_ref();
        dataset.is_some_and(|dataset| !dataset.max_dims.is_empty())
    }

    /// Tells the log of the object that something may have changed.
    pub fn touch(&self) {
        if let Some(session) = &self.session {
            session.touch();
        }
    }
}

/// Passes on a call with two objects. One may be missing if both are the same.
pub fn pass_two(
    one: Option<&Object>,
    other: Option<&Object>,
    requests: Requests,
    call: impl FnOnce(&Functions, *mut c_void, *mut c_void, Id) -> Status,
) -> Result<Status, Fault> {
    let object = one.or(other).ok_or("no object")?;
    for object in one.into_iter().chain(other) {
        object.touch();
        object.below.check_like(&one.unwrap_or(object).below)?;
    }
    let under =
        |object: Option<&Object>| object.map_or(ptr::null_mut(), |object| object.below.under);
    Ok(pass(&object.below.info, requests, |f, vol| {
        call(f, under(one), under(other), vol)
    }))
}

/// Passes on a call of any object to the connector below.
pub fn pass(
    info: &Arc<Info>,
    requests: Requests,
    call: impl FnOnce(&Functions, Id) -> Status,
) -> Status {
    let status = info.library.quietly(|f| call(f, info.under_vol));
    wrap_request(info, requests);
    status
}

/// Wraps an asynchronous request of the connector below.
pub fn wrap_request(info: &Arc<Info>, requests: Requests) {
    // SAFETY: libhdf5 gives null, or a place for a request.
    let Some(request) = (unsafe { requests.as_mut() }) else {
        return;
    };
    if !request.is_null() {
        *request = Object::new(*request, info, None).into_handle();
    }
}
