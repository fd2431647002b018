//! One libhdf5 of the process: nested calls of it, and its error stack.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;
use std::sync::Mutex;

use h5logfs_common::fault::Fault;

use crate::at_end::AtEnd;
use crate::caller::{Object, given_up};
use crate::foreign;
use crate::functions::Functions;
use crate::types::{DEFAULT, Id, SUCCESS, Status};

/// A text of libhdf5 without its zero byte. `ask` takes a buffer and its length in bytes, and returns the length of the whole
/// text; the first call has a null buffer. Empty if there is no text, or if `ask` fails.
pub fn text(ask: impl Fn(*mut c_char, usize) -> isize) -> Vec<u8> {
    let length = ask(ptr::null_mut(), 0);
    let Some(length) = usize::try_from(length).ok().filter(|length| *length > 0) else {
        return Vec::new();
    };
    let mut text = vec![0_u8; length + 1];
    let copied = ask(text.as_mut_ptr().cast(), text.len());
    text.truncate(usize::try_from(copied).unwrap_or(0).min(length));
    text
}

/// Most errors that an error stack holds.
const FULL_STACK: isize = 32;

/// A function that prints an error stack.
type Print = Option<unsafe extern "C-unwind" fn(Id, *mut c_void) -> Status>;
/// `Print` in programs that were written for HDF5 1.6.
type OldPrint = Option<unsafe extern "C-unwind" fn(*mut c_void) -> Status>;

crate::functions! {
    /// The functions of the error stack.
    struct ErrorStack for "h5logfs" {
        H5Eauto_is_v2: fn(Id, *mut c_uint) -> Status,
        H5Eget_auto2: fn(Id, *mut Print, *mut *mut c_void) -> Status,
        H5Eset_auto2: fn(Id, Print, *mut c_void) -> Status,
        H5Eget_num: fn(Id) -> isize,
        H5Eget_current_stack: fn() -> Id,
        H5Eset_current_stack: fn(Id) -> Status,
        H5Eappend_stack: fn(Id, Id, bool) -> Status,
        H5Epush2: fn(Id, *const c_char, *const c_char, c_uint, Id, Id, Id, *const c_char; ...) -> Status,
    }
}

/// Functions that a libhdf5 without deprecated ones lacks.
#[derive(Debug, Clone, Copy)]
struct OldFunctions {
    get: unsafe extern "C-unwind" fn(*mut OldPrint, *mut *mut c_void) -> Status,
    set: unsafe extern "C-unwind" fn(OldPrint, *mut c_void) -> Status,
}

impl OldFunctions {
    fn of(object: &Object) -> Option<Self> {
        let get = object.symbol(c"H5Eget_auto1")?;
        let set = object.symbol(c"H5Eset_auto1")?;
        // SAFETY: these functions have these types since HDF5 1.8.
        unsafe {
            Some(OldFunctions {
                get: mem::transmute::<
                    *const c_void,
                    unsafe extern "C-unwind" fn(*mut OldPrint, *mut *mut c_void) -> Status,
                >(get),
                set: mem::transmute::<
                    *const c_void,
                    unsafe extern "C-unwind" fn(OldPrint, *mut c_void) -> Status,
                >(set),
            })
        }
    }
}

/// The subject of an error on the error stack: a major and a minor error number of libhdf5.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A file cannot be opened.
    Open,
    /// Something cannot be closed.
    Close,
    /// Bytes cannot be read.
    Read,
    /// Bytes cannot be written.
    Write,
    /// A file cannot be deleted.
    Delete,
    /// A file does not have the requested thing.
    Unsupported,
    /// An operation on a file fails.
    File,
    /// An operation on a group fails.
    Group,
    /// An operation on a dataset fails.
    Dataset,
    /// An operation on a committed datatype fails.
    Datatype,
    /// An operation on an attribute fails.
    Attribute,
    /// An operation on a link fails.
    Link,
    /// An operation on an object fails.
    Object,
    /// Another operation of a connector fails.
    Other,
}

impl Kind {
    /// The variables with its error class, major and minor number.
    fn variables(self) -> [&'static CStr; 3] {
        let operation = c"H5E_CANTOPERATE_g";
        let [major, minor] = match self {
            Kind::Open => [c"H5E_FILE_g", c"H5E_CANTOPENFILE_g"],
            Kind::Close => [c"H5E_FILE_g", c"H5E_CANTCLOSEOBJ_g"],
            Kind::Read => [c"H5E_IO_g", c"H5E_READERROR_g"],
            Kind::Write => [c"H5E_IO_g", c"H5E_WRITEERROR_g"],
            Kind::Delete => [c"H5E_FILE_g", c"H5E_CANTDELETEFILE_g"],
            Kind::Unsupported => [c"H5E_FILE_g", c"H5E_UNSUPPORTED_g"],
            Kind::File => [c"H5E_FILE_g", operation],
            Kind::Group => [c"H5E_SYM_g", operation],
            Kind::Dataset => [c"H5E_DATASET_g", operation],
            Kind::Datatype => [c"H5E_DATATYPE_g", operation],
            Kind::Attribute => [c"H5E_ATTR_g", operation],
            Kind::Link => [c"H5E_LINK_g", operation],
            Kind::Object => [c"H5E_OHDR_g", operation],
            Kind::Other => [c"H5E_VOL_g", operation],
        };
        [c"H5E_ERR_CLS_g", major, minor]
    }
}

/// An identifier that the library makes when it starts.
fn number(object: &Object, name: &CStr) -> Option<Id> {
    // SAFETY: these variables are of type `hid_t`.
    let value = |at: *const c_void| unsafe { at.cast::<Id>().read() };
    let own = value(object.symbol(name)?);
    // The library's own variable is never set if the program holds a copy of it.
    if own > 0 {
        return Some(own);
    }
    object.shared_variable(name).map(value)
}

/// One libhdf5 of the process, with the functions that a plug-in uses.
#[derive(Debug, Clone, Copy)]
pub struct Library<F> {
    functions: F,
    errors: ErrorStack,
    old: Option<OldFunctions>,
    /// Code of the library.
    address: usize,
}

thread_local! {
    /// The [number](Library::number) of the library that prints nothing in this thread; 0: none is silenced.
    static QUIET: Cell<usize> = const { Cell::new(0) };
}

/// The library found last. A program that opens a file for each step need not look up hundreds of functions each time.
pub struct FoundLibrary<F>(
    /// Number of unloaded objects at that time, and the library. A fork may leave the lock without an owner, so no thread
    /// waits for it.
    Mutex<Option<(u64, Library<F>)>>,
);

impl<F: Functions> FoundLibrary<F> {
    /// An empty memory.
    pub const fn nothing() -> Self {
        FoundLibrary(Mutex::new(None))
    }

    /// The library that contains the code at an address, if it was found for that, and no object has been unloaded since.
    fn at(&self, address: usize) -> Option<Library<F>> {
        let (before, library) = (*self.0.try_lock().ok()?)?;
        (library.address == address && before == given_up()).then_some(library)
    }

    fn note(&self, library: Library<F>) {
        if let Ok(mut found) = self.0.try_lock() {
            *found = Some((given_up(), library));
        }
    }
}

impl<F: Functions> Library<F> {
    /// The libhdf5 that contains the code at `address`. `None` if its symbols cannot be found: in a program that was linked
    /// to it statically and does not export them.
    pub fn of_code(address: usize) -> Option<Self> {
        let known = F::found();
        if let Some(library) = known.at(address) {
            return Some(library);
        }
        let object = Object::of_code(address)?;
        let library = Library {
            functions: F::of(&object)?,
            errors: ErrorStack::of(&object)?,
            old: OldFunctions::of(&object),
            address,
        };
        known.note(library);
        Some(library)
    }

    /// Serves a call of the libhdf5 that contains the code at `caller`. An error goes onto its error stack. `None` after an
    /// error, or if that library cannot be called.
    pub fn serve<R>(
        caller: usize,
        kind: Kind,
        act: impl FnOnce(&Self) -> Result<R, Fault>,
    ) -> Option<R> {
        let found = panic::catch_unwind(|| Library::of_code(caller));
        let library = found.ok().flatten()?;
        library.caught(kind, || act(&library))
    }

    /// Serves a call of this library. An error or a panic goes onto its error stack. An exception of another language, from a
    /// function of the program, passes on to the program.
    pub fn caught<R>(&self, kind: Kind, act: impl FnOnce() -> Result<R, Fault>) -> Option<R> {
        let done = match foreign::caught(act) {
            Ok(done) => done,
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                let text = text.unwrap_or_default();
                Err(format!("an error in h5logfs itself: {text}").into())
            }
        };
        // The panic may have come from this code, too.
        let push = |fault: Fault| {
            let sentence = fault.to_string();
            let _ = panic::catch_unwind(AssertUnwindSafe(|| self.push(kind, &sentence)));
        };
        done.map_err(push).ok()
    }

    /// The functions, for calls that leave the error stack alone: the functions that libhdf5's headers offer to plug-ins.
    /// Others go through [`Library::nested`].
    pub fn functions(&self) -> &F {
        &self.functions
    }

    /// Further functions, which only some libraries have.
    pub fn further<G: Functions>(&self) -> Option<G> {
        Library::of_code(self.address).map(|library: Library<G>| library.functions)
    }

    /// Calls a public function of the library during a call of the library.
    ///
    /// A public function clears the error stack when it begins, and prints it when it fails. This keeps the earlier errors
    /// below those of `call`, and prints nothing, because the outer call prints.
    pub fn nested<R>(&self, call: impl FnOnce(&F) -> R) -> R {
        let e = &self.errors;
        // SAFETY: the library called this code, so it can be called. Its own drivers make such calls, too.
        unsafe {
            let count = (e.H5Eget_num)(DEFAULT);
            let stack = (count > 0).then(|| (e.H5Eget_current_stack)());
            let _earlier = stack
                .filter(|id| *id > 0)
                .map(|stack| Earlier { e, stack, count });
            self.quietly(call)
        }
    }

    /// Calls functions that keep the error stack when they begin, and print it when they fail. Nothing is printed, because
    /// the outer call prints.
    pub fn quietly<R>(&self, call: impl FnOnce(&F) -> R) -> R {
        if QUIET.get() == self.number() {
            return call(&self.functions);
        }
        // SAFETY: the library called this code, so it can be called.
        let _printing = unsafe { Printing::off(&self.errors, self.old) };
        call(&self.functions)
    }

    /// Runs `act` with printing off, for several calls of [`Library::quietly`], each of which would otherwise switch it off
    /// again. `act` catches panics.
    pub fn all_quietly<R>(&self, act: impl FnOnce() -> R) -> R {
        self.quietly(|_| {
            let before = QUIET.replace(self.number());
            let _before = AtEnd(|| QUIET.set(before));
            act()
        })
    }

    /// Refuses a program's request outside of any call of the library, as a function of the library fails: with an error on
    /// the error stack, which is printed if the program wants that.
    pub fn refuse(&self, kind: Kind, sentence: &str) {
        self.push(kind, sentence);
        let e = &self.errors;
        let (mut is_new, mut data) = (1, std::ptr::null_mut());
        // SAFETY: the program calls the library here. All pointers are to local values. The printing function is the
        // program's own, or the library's.
        unsafe {
            (e.H5Eauto_is_v2)(DEFAULT, &mut is_new);
            if let (0, Some(old)) = (is_new, self.old) {
                let mut print = None;
                (old.get)(&mut print, &mut data);
                if let Some(print) = print {
                    print(data);
                }
                return;
            }
            let mut print = None;
            (e.H5Eget_auto2)(DEFAULT, &mut print, &mut data);
            if let Some(print) = print {
                print(DEFAULT, data);
            }
        }
    }

    /// The address of a function that only some libraries have.
    pub fn function(&self, name: &CStr) -> Option<*const c_void> {
        Object::of_code(self.address)?.symbol(name)
    }

    /// A number that identifies the library in the process.
    pub fn number(&self) -> usize {
        self.errors.H5Epush2 as usize
    }

    /// Whether both are the same library of the process.
    pub fn is(&self, other: &Self) -> bool {
        self.number() == other.number()
    }

    /// The identifier in a variable that the library sets when it starts, such as `H5P_LST_LINK_ACCESS_ID_g`.
    pub fn identifier(&self, variable: &CStr) -> Option<Id> {
        number(&Object::of_code(self.address)?, variable)
    }

    /// Puts an error onto the library's error stack.
    pub fn push(&self, kind: Kind, sentence: &str) {
        let object = Object::of_code(self.address);
        let number = |name| object.as_ref().and_then(|object| number(object, name));
        let [Some(class), Some(major), Some(minor)] = kind.variables().map(number) else {
            return;
        };
        // Names in errors come from files, and may contain zero bytes.
        let sentence = CString::new(sentence.replace('\0', "\\0")).unwrap_or_default();
        let (file, function) = (c"h5logfs", F::USER);
        // SAFETY: the numbers belong to the library. All texts are C strings, which it copies; the format takes one.
        unsafe {
            (self.errors.H5Epush2)(
                DEFAULT,
                file.as_ptr(),
                function.as_ptr(),
                0,
                class,
                major,
                minor,
                c"%s".as_ptr(),
                sentence.as_ptr(),
            );
        }
    }
}

/// The errors from before a nested call. On drop they return below those of the call, however it ended.
struct Earlier<'a> {
    e: &'a ErrorStack,
    /// Copy of the stack.
    stack: Id,
    count: isize,
}

impl Drop for Earlier<'_> {
    fn drop(&mut self) {
        let Earlier { e, stack, count } = *self;
        // SAFETY: the library is in a call of this code, and the stack is closed once: becoming the current one releases it.
        unsafe {
            let has_more = (e.H5Eget_num)(DEFAULT) > 0;
            // The library checks the length of a full stack too late.
            if has_more && count < FULL_STACK {
                (e.H5Eappend_stack)(stack, (e.H5Eget_current_stack)(), true);
            }
            (e.H5Eset_current_stack)(stack);
        }
    }
}

/// The way in which a library prints errors. Printing is off until this is dropped.
struct Printing<'a> {
    e: &'a ErrorStack,
    before: Before,
}

enum Before {
    /// It prints nothing: most programs not written in C have switched it off.
    Off,
    New(Print, *mut c_void),
    Old(OldFunctions, OldPrint, *mut c_void),
}

impl<'a> Printing<'a> {
    /// Switches printing off.
    ///
    /// # Safety
    ///
    /// The library can be called as long as this lives.
    unsafe fn off(e: &'a ErrorStack, old: Option<OldFunctions>) -> Self {
        // SAFETY: promised by the caller.
        let before = unsafe { Before::off(e, old) };
        Printing { e, before }
    }
}

impl Drop for Printing<'_> {
    fn drop(&mut self) {
        // SAFETY: `before` is of this library, which can be called.
        unsafe {
            match self.before {
                Before::Off => SUCCESS,
                Before::New(print, data) => (self.e.H5Eset_auto2)(DEFAULT, print, data),
                Before::Old(old, print, data) => (old.set)(print, data),
            };
        }
    }
}

impl Before {
    /// See [`Printing::off`].
    unsafe fn off(e: &ErrorStack, old: Option<OldFunctions>) -> Self {
        let mut data = std::ptr::null_mut();
        // SAFETY: the caller promises that the library can be called; all pointers are to local values.
        unsafe {
            let mut is_new = 1;
            (e.H5Eauto_is_v2)(DEFAULT, &mut is_new);
            if let (0, Some(old)) = (is_new, old) {
                let mut print = None;
                (old.get)(&mut print, &mut data);
                if print.is_none() {
                    return Before::Off;
                }
                (old.set)(None, std::ptr::null_mut());
                return Before::Old(old, print, data);
            }
            let mut print = None;
            (e.H5Eget_auto2)(DEFAULT, &mut print, &mut data);
            if print.is_none() {
                return Before::Off;
            }
            (e.H5Eset_auto2)(DEFAULT, None, std::ptr::null_mut());
            Before::New(print, data)
        }
    }
}
