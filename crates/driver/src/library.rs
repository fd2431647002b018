//! The functions of one libhdf5, and calls of them from within a call of it.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulong, c_void};
use std::mem;

use crate::caller::Object;
use crate::class::{Address, Id, PublicPart, Status, Usage};

/// `H5P_DEFAULT` and `H5E_DEFAULT`.
pub const DEFAULT: Id = 0;
/// The most errors that an error stack holds.
const FULL_STACK: isize = 32;

/// A function that prints an error stack.
type Print = Option<unsafe extern "C" fn(Id, *mut c_void) -> Status>;
/// The same in programs that were written for HDF5 1.6.
type OldPrint = Option<unsafe extern "C" fn(*mut c_void) -> Status>;

/// Declares functions of libhdf5 by their own names, and how they are found.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),* $(; $rest:tt)?) $(-> $result:ty)?,)*) => {
        /// Functions of libhdf5, by the names that its manual has.
        #[allow(non_snake_case)]
        #[derive(Debug, Clone, Copy)]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument,)* $($rest)?) $(-> $result)?,)*
        }

        impl Functions {
            fn of(object: &Object) -> Option<Self> {
                $(
                    #[allow(non_snake_case)]
                    let $name = object.symbol(const { c_name(concat!(stringify!($name), "\0")) })?;
                )*
                // SAFETY: these functions have these types in HDF5 1.14.0 to 2.2.
                Some(unsafe { Functions { $($name: mem::transmute::<*const c_void, unsafe extern "C" fn($($argument,)* $($rest)?) $(-> $result)?>($name),)* } })
            }
        }
    };
}

const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name holds a zero byte"),
    }
}

functions! {
    H5Pcopy: fn(Id) -> Id,
    H5Pclose: fn(Id) -> Status,
    H5Pset_fapl_sec2: fn(Id) -> Status,
    H5Pget_driver_config_str: fn(Id, *mut c_char, usize) -> isize,
    H5FDopen: fn(*const c_char, c_uint, Id, Address) -> *mut PublicPart,
    H5FDclose: fn(*mut PublicPart) -> Status,
    H5FDcmp: fn(*const PublicPart, *const PublicPart) -> c_int,
    H5FDquery: fn(*const PublicPart, *mut c_ulong) -> Status,
    H5FDget_eoa: fn(*mut PublicPart, Usage) -> Address,
    H5FDset_eoa: fn(*mut PublicPart, Usage, Address) -> Status,
    H5FDget_eof: fn(*mut PublicPart, Usage) -> Address,
    H5FDget_vfd_handle: fn(*mut PublicPart, Id, *mut *mut c_void) -> Status,
    H5FDread: fn(*mut PublicPart, Usage, Id, Address, usize, *mut c_void) -> Status,
    H5FDwrite: fn(*mut PublicPart, Usage, Id, Address, usize, *const c_void) -> Status,
    H5FDflush: fn(*mut PublicPart, Id, bool) -> Status,
    H5FDtruncate: fn(*mut PublicPart, Id, bool) -> Status,
    H5FDlock: fn(*mut PublicPart, bool) -> Status,
    H5FDunlock: fn(*mut PublicPart) -> Status,
    H5FDdelete: fn(*const c_char, Id) -> Status,
    H5FDctl: fn(*mut PublicPart, u64, u64, *const c_void, *mut *mut c_void) -> Status,
    H5Eauto_is_v2: fn(Id, *mut c_uint) -> Status,
    H5Eget_auto2: fn(Id, *mut Print, *mut *mut c_void) -> Status,
    H5Eset_auto2: fn(Id, Print, *mut c_void) -> Status,
    H5Eget_num: fn(Id) -> isize,
    H5Eget_current_stack: fn() -> Id,
    H5Eset_current_stack: fn(Id) -> Status,
    H5Eappend_stack: fn(Id, Id, bool) -> Status,
    H5Epush2: fn(Id, *const c_char, *const c_char, c_uint, Id, Id, Id, *const c_char; ...) -> Status,
}

/// Functions that a libhdf5 without deprecated ones lacks.
#[derive(Debug, Clone, Copy)]
struct OldFunctions {
    get: unsafe extern "C" fn(*mut OldPrint, *mut *mut c_void) -> Status,
    set: unsafe extern "C" fn(OldPrint, *mut c_void) -> Status,
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
                    unsafe extern "C" fn(*mut OldPrint, *mut *mut c_void) -> Status,
                >(get),
                set: mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(OldPrint, *mut c_void) -> Status,
                >(set),
            })
        }
    }
}

/// What a sentence on the error stack is about: a major and a minor error number of libhdf5.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A file cannot be opened.
    Open,
    /// Bytes cannot be read.
    Read,
    /// Bytes cannot be written.
    Write,
    /// A file cannot be deleted.
    Delete,
    /// A file has no such thing.
    Unsupported,
}

/// Error numbers. They are identifiers, made when the library starts.
#[derive(Debug, Clone, Copy)]
struct Numbers {
    class: Id,
    io: Id,
    file: Id,
    open: Id,
    read: Id,
    write: Id,
    delete: Id,
    unsupported: Id,
}

impl Numbers {
    fn of(object: &Object) -> Option<Self> {
        let number = |name| {
            // SAFETY: these variables are of type `hid_t`.
            let value = |at: *const c_void| unsafe { at.cast::<Id>().read() };
            let own = value(object.symbol(name)?);
            // Never set where the program holds the variable in the library's place.
            if own > 0 {
                return Some(own);
            }
            object.shared_variable(name).map(value)
        };
        Some(Numbers {
            class: number(c"H5E_ERR_CLS_g")?,
            io: number(c"H5E_IO_g")?,
            file: number(c"H5E_FILE_g")?,
            open: number(c"H5E_CANTOPENFILE_g")?,
            read: number(c"H5E_READERROR_g")?,
            write: number(c"H5E_WRITEERROR_g")?,
            delete: number(c"H5E_CANTDELETEFILE_g")?,
            unsupported: number(c"H5E_UNSUPPORTED_g")?,
        })
    }

    fn of_kind(&self, kind: Kind) -> (Id, Id) {
        match kind {
            Kind::Open => (self.file, self.open),
            Kind::Read => (self.io, self.read),
            Kind::Write => (self.io, self.write),
            Kind::Delete => (self.file, self.delete),
            Kind::Unsupported => (self.file, self.unsupported),
        }
    }
}

/// One libhdf5 of the process.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    functions: Functions,
    old: Option<OldFunctions>,
    numbers: Numbers,
}

impl Library {
    /// The libhdf5 that holds the code at `address`. `None` where its symbols cannot be found: in a program to which it
    /// was linked statically, and that does not export them.
    pub fn of_code(address: usize) -> Option<Self> {
        let object = Object::of_code(address)?;
        Some(Library {
            functions: Functions::of(&object)?,
            old: OldFunctions::of(&object),
            numbers: Numbers::of(&object)?,
        })
    }

    /// Calls the library from within a call of it.
    ///
    /// A function of the interface clears the error stack when it begins, and prints it when it fails. What the stack
    /// held stays below what `call` adds, and nothing is printed: the outer call does that.
    pub fn nested<R>(&self, call: impl FnOnce(&Functions) -> R) -> R {
        let f = &self.functions;
        // SAFETY: the library called us, so it is ready to be called. These calls are those that its own drivers make.
        unsafe {
            let count = (f.H5Eget_num)(DEFAULT);
            let earlier = (count > 0).then(|| (f.H5Eget_current_stack)());
            let printing = Printing::off(self);
            let result = call(f);
            if let Some(earlier) = earlier.filter(|id| *id > 0) {
                let has_more = (f.H5Eget_num)(DEFAULT) > 0;
                // Its check of the length comes too late for a full stack.
                if has_more && count < FULL_STACK {
                    (f.H5Eappend_stack)(earlier, (f.H5Eget_current_stack)(), true);
                }
                (f.H5Eset_current_stack)(earlier);
            }
            printing.restore(self);
            result
        }
    }

    /// Puts a sentence on the library's error stack.
    pub fn push(&self, kind: Kind, sentence: &str) {
        let (major, minor) = self.numbers.of_kind(kind);
        // Names in sentences come from files, also such with zero bytes.
        let sentence = CString::new(sentence.replace('\0', "\\0")).unwrap_or_default();
        let (file, function) = (c"h5logfs", c"h5logfs_driver");
        // SAFETY: the numbers are those of the library; all texts are C strings, which it copies; the format takes one.
        unsafe {
            (self.functions.H5Epush2)(
                DEFAULT,
                file.as_ptr(),
                function.as_ptr(),
                0,
                self.numbers.class,
                major,
                minor,
                c"%s".as_ptr(),
                sentence.as_ptr(),
            );
        }
    }

    /// The configuration string of the driver in a file access property list.
    pub fn configuration(&self, fapl: Id) -> Vec<u8> {
        self.nested(|f| {
            // SAFETY: `fapl` is an identifier of this library; a null buffer asks for the length.
            let length = unsafe { (f.H5Pget_driver_config_str)(fapl, std::ptr::null_mut(), 0) };
            let Some(length) = usize::try_from(length).ok().filter(|length| *length > 0) else {
                return Vec::new();
            };
            let mut text = vec![0_u8; length + 1];
            // SAFETY: `text` has as many bytes as are told.
            let copied =
                unsafe { (f.H5Pget_driver_config_str)(fapl, text.as_mut_ptr().cast(), text.len()) };
            text.truncate(usize::try_from(copied).unwrap_or(0).min(length));
            text
        })
    }

    /// Calls with a copy of a file access property list in which the default driver is set.
    pub fn with_default_driver<R>(
        &self,
        fapl: Id,
        failed: R,
        call: impl FnOnce(&Functions, Id) -> R,
    ) -> R {
        // SAFETY: `fapl` is an identifier of this library.
        let copy = self.nested(|f| unsafe { (f.H5Pcopy)(fapl) });
        if copy < 0 {
            return failed;
        }
        // SAFETY: `copy` is a file access property list.
        let set = self.nested(|f| unsafe { (f.H5Pset_fapl_sec2)(copy) });
        let result = match set {
            0.. => self.nested(|f| call(f, copy)),
            _ => failed,
        };
        // SAFETY: `copy` is ours, and closed once.
        self.nested(|f| unsafe { (f.H5Pclose)(copy) });
        result
    }
}

/// How a library printed errors before that was switched off.
enum Printing {
    New(Print, *mut c_void),
    Old(OldFunctions, OldPrint, *mut c_void),
}

impl Printing {
    /// Switches it off.
    ///
    /// # Safety
    ///
    /// The library is ready to be called.
    unsafe fn off(library: &Library) -> Self {
        let f = &library.functions;
        let mut data = std::ptr::null_mut();
        // SAFETY: the caller says that the library can be called; all pointers are to values of ours.
        unsafe {
            let mut is_new = 1;
            (f.H5Eauto_is_v2)(DEFAULT, &mut is_new);
            if let (0, Some(old)) = (is_new, library.old) {
                let mut print = None;
                (old.get)(&mut print, &mut data);
                (old.set)(None, std::ptr::null_mut());
                return Printing::Old(old, print, data);
            }
            let mut print = None;
            (f.H5Eget_auto2)(DEFAULT, &mut print, &mut data);
            (f.H5Eset_auto2)(DEFAULT, None, std::ptr::null_mut());
            Printing::New(print, data)
        }
    }

    /// Sets it as it was.
    ///
    /// # Safety
    ///
    /// The library is ready to be called, and the one of which `self` is.
    unsafe fn restore(self, library: &Library) {
        // SAFETY: see above.
        unsafe {
            match self {
                Printing::New(print, data) => {
                    (library.functions.H5Eset_auto2)(DEFAULT, print, data)
                }
                Printing::Old(old, print, data) => (old.set)(print, data),
            };
        }
    }
}
