//! What libhdf5 holds of an object of ours: the object of the connector below, and the open log that it belongs to.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use h5logfs_host::Kind;
use h5logfs_host::types::{DEFAULT, FAILURE, Id, Status};

use crate::class::{Handle, Requests, kind};
use crate::info::Info;
use crate::library::Functions;
use crate::session::{Dataset, Session};

/// A file, group, dataset, committed datatype, attribute or request.
#[derive(Debug)]
pub struct Object {
    /// That of the connector below.
    pub under: *mut c_void,
    /// That connector, and the library whose object this is. Identifiers of another one must not reach it.
    pub info: Arc<Info>,
    /// The open log, where it belongs to one.
    pub session: Option<Arc<Session>>,
    /// The logged dataset, where it is one.
    pub dataset: Option<Arc<Dataset>>,
    /// It keeps its session open.
    is_counted: bool,
    /// It is a handle of a file.
    is_file: bool,
}

/// What a call of the connector below may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It changes no object.
    Reads,
    /// It may change an object.
    Changes,
    /// Functions of the program run in it, with calls of their own.
    Runs,
}

impl Object {
    /// An object that the connector below has opened.
    pub fn new(under: *mut c_void, info: &Arc<Info>, session: Option<&Arc<Session>>) -> Self {
        let is_counted = session.is_some_and(|session| session.enter());
        Object {
            is_counted,
            is_file: false,
            under,
            info: Arc::clone(info),
            session: session.cloned(),
            dataset: None,
        }
    }

    /// A file that the connector below has opened.
    pub fn file(under: *mut c_void, info: &Arc<Info>, session: Option<&Arc<Session>>) -> Self {
        let mut object = Object::new(under, info, session);
        object.is_file = object.is_counted;
        if let Some(session) = session.filter(|_| object.is_file) {
            session.enter_file();
        }
        object
    }

    /// An object of a type that is told: a dataset may be a logged one.
    pub(crate) fn of_type(
        under: *mut c_void,
        object_type: c_int,
        info: &Arc<Info>,
        session: Option<&Arc<Session>>,
    ) -> Result<Self, String> {
        if object_type == kind::FILE {
            return Ok(Object::file(under, info, session));
        }
        let mut object = Object::new(under, info, session);
        object.leave_if_foreign(object_type);
        let session = object.session.clone();
        if object_type != kind::DATASET {
            return Ok(object);
        }
        let found = session.map_or(Ok(None), |session| session.dataset(&object));
        if found.is_err() {
            object.leave();
            // SAFETY: the object is a dataset that nothing else knows.
            pass(info, ptr::null_mut(), |f, vol| unsafe {
                (f.H5VLdataset_close)(under, vol, DEFAULT, ptr::null_mut())
            });
        }
        object.dataset = found?;
        Ok(object)
    }

    /// An object that was reached through an external link belongs to no log.
    fn leave_if_foreign(&mut self, object_type: c_int) {
        let has_place = [kind::DATASET, kind::GROUP].contains(&object_type);
        let session = self.session.as_ref().filter(|_| has_place);
        if session.is_some_and(|session| session.is_foreign(self, object_type)) {
            self.leave();
        }
    }

    fn leave(&mut self) {
        self.dataset = None;
        if let Some(session) = self.session.take()
            && self.is_counted
        {
            if self.is_file {
                session.leave_file();
            }
            session.leave();
        }
    }

    /// As libhdf5 knows it.
    pub fn into_handle(self) -> Handle {
        Box::into_raw(Box::new(self)).cast()
    }

    /// # Safety
    ///
    /// `handle` is of [`Object::into_handle`], and lives as long as the reference.
    pub unsafe fn of_handle<'a>(handle: Handle) -> &'a Self {
        // SAFETY: the caller says so.
        unsafe { &*handle.cast::<Object>() }
    }

    /// The same for a handle that may be null.
    ///
    /// # Safety
    ///
    /// As [`Object::of_handle`], or null.
    pub unsafe fn of_optional_handle<'a>(handle: Handle) -> Option<&'a Self> {
        // SAFETY: the caller says so.
        unsafe { handle.cast::<Object>().as_ref() }
    }

    /// Frees it, after the connector below has given up its own. The last object of a log ends its session.
    ///
    /// # Safety
    ///
    /// `handle` is of [`Object::into_handle`], and is given up.
    pub unsafe fn free(handle: Handle) {
        // SAFETY: the caller says so.
        let mut object = unsafe { Box::from_raw(handle.cast::<Object>()) };
        object.leave();
    }

    /// Calls the connector below. Its errors are on the error stack. An asynchronous request is wrapped.
    pub fn pass(
        &self,
        effect: Effect,
        requests: Requests,
        call: impl FnOnce(&Functions, *mut c_void, Id) -> Status,
    ) -> Status {
        let status = self.call(effect, call);
        wrap_request(&self.info, requests);
        status
    }

    /// The same for another object. Null if there is none.
    pub fn pass_child(
        &self,
        effect: Effect,
        object_type: c_int,
        requests: Requests,
        call: impl FnOnce(&Functions, *mut c_void, Id) -> *mut c_void,
    ) -> Result<Handle, String> {
        let under = self.call(effect, call);
        self.opened(under, requests, || object_type)
    }

    /// Calls the connector below.
    pub fn call<R>(
        &self,
        effect: Effect,
        call: impl FnOnce(&Functions, *mut c_void, Id) -> R,
    ) -> R {
        let Info {
            library, under_vol, ..
        } = &*self.info;
        match effect {
            Effect::Reads => {}
            Effect::Changes => self.touch(),
            // Their errors are printed as they would be without us.
            Effect::Runs => return call(library.functions(), self.under, *under_vol),
        }
        library.quietly(|f| call(f, self.under, *under_vol))
    }

    /// Wraps an object that the connector below has opened, or null.
    pub fn opened(
        &self,
        under: *mut c_void,
        requests: Requests,
        object_type: impl FnOnce() -> c_int,
    ) -> Result<Handle, String> {
        wrap_request(&self.info, requests);
        if under.is_null() {
            return Ok(ptr::null_mut());
        }
        let child = Object::of_type(under, object_type(), &self.info, self.session.as_ref())?;
        Ok(child.into_handle())
    }

    /// Does something that libhdf5 has asked for; what goes wrong is put on its error stack.
    pub fn answer(&self, kind: Kind, act: impl FnOnce() -> Result<Status, String>) -> Status {
        self.info.library.caught(kind, act).unwrap_or(FAILURE)
    }

    /// Flushes its log, after the connector below has flushed the object.
    pub fn flushed(&self, status: Status) -> Result<Status, String> {
        if status >= 0
            && let Some(session) = &self.session
        {
            session.flush_object(self)?;
        }
        Ok(status)
    }

    /// Tells its log that something may have changed.
    pub fn touch(&self) {
        if let Some(session) = &self.session {
            session.touch();
        }
    }

    /// Fails where the objects belong to different connectors, so that none of these knows both.
    pub fn check_like(&self, other: &Object) -> Result<(), String> {
        if self.info.is_like(&other.info) {
            return Ok(());
        }
        Err("objects of two connectors cannot be used together".into())
    }
}

/// Calls the connector below for two objects. One may be missing where both are the same.
pub fn pass_two(
    one: Option<&Object>,
    other: Option<&Object>,
    requests: Requests,
    call: impl FnOnce(&Functions, *mut c_void, *mut c_void, Id) -> Status,
) -> Result<Status, String> {
    let object = one.or(other).ok_or("no object")?;
    for object in one.into_iter().chain(other) {
        object.touch();
        object.check_like(one.unwrap_or(object))?;
    }
    let under = |object: Option<&Object>| object.map_or(ptr::null_mut(), |object| object.under);
    Ok(pass(&object.info, requests, |f, vol| {
        call(f, under(one), under(other), vol)
    }))
}

/// Calls the connector below, wherever its object is.
pub fn pass(
    info: &Arc<Info>,
    requests: Requests,
    call: impl FnOnce(&Functions, Id) -> Status,
) -> Status {
    let status = info.library.quietly(|f| call(f, info.under_vol));
    wrap_request(info, requests);
    status
}

/// Makes an asynchronous request of the connector below one of ours.
pub(crate) fn wrap_request(info: &Arc<Info>, requests: Requests) {
    // SAFETY: libhdf5 gives null, or a place for a request.
    let Some(request) = (unsafe { requests.as_mut() }) else {
        return;
    };
    if !request.is_null() {
        *request = Object::new(*request, info, None).into_handle();
    }
}
