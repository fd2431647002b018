//! What libhdf5 wraps objects with that it has from the connector at the bottom.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::below::info::Info;
use crate::session::Session;

/// What an object needs to become one of ours.
#[derive(Debug)]
pub struct Context {
    /// Their connector, and its library.
    pub info: Arc<Info>,
    /// The session of their file.
    pub session: Option<Arc<Session>>,
    /// That of the connector below, or null. It never changes; threads may share it.
    under: AtomicPtr<c_void>,
}

impl Context {
    /// That of the connector below, or null.
    pub fn under(&self) -> *mut c_void {
        self.under.load(Ordering::Relaxed)
    }

    /// What objects of a session are wrapped with. `under`: that of the connector below, or null, which is given up.
    pub fn new(info: &Arc<Info>, session: Option<&Arc<Session>>, under: *mut c_void) -> Self {
        Context {
            info: Arc::clone(info),
            session: session.cloned(),
            under: AtomicPtr::new(under),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Info {
            library, under_vol, ..
        } = &*self.info;
        let under = self.under();
        if !under.is_null() {
            // SAFETY: the context of the connector below, freed once.
            library.quietly(|f| unsafe { (f.H5VLfree_wrap_ctx)(under, *under_vol) });
        }
    }
}
