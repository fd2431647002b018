//! Contexts, with which libhdf5 wraps objects of the connector at the bottom.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::below::info::Info;
use crate::session::Session;

/// The context in which an object of the connector at the bottom becomes an object of this one.
#[derive(Debug)]
pub struct Context {
    /// The connector below and its library.
    pub info: Arc<Info>,
    /// The session of the file, if it is a log.
    pub session: Option<Arc<Session>>,
    /// The context of the connector below, or null. It never changes, and threads may share it.
    under: AtomicPtr<c_void>,
}

impl Context {
    /// The context of the connector below, or null.
    pub fn under(&self) -> *mut c_void {
        self.under.load(Ordering::Relaxed)
    }

    /// Makes a context. `under`: the context of the connector below, or null. Takes ownership of it.
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
            // SAFETY: the context belongs to the connector below, and is freed once.
            library.quietly(|f| unsafe { (f.H5VLfree_wrap_ctx)(under, *under_vol) });
        }
    }
}
