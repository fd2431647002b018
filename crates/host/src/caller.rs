//! The object of a process that contains an address, and the symbols that it defines.

use std::ffi::{CStr, CString, OsString, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use h5logfs_common::fault::Fault;

/// An object of the process: a shared library, or the program.
#[derive(Debug)]
pub struct Object {
    handle: *mut c_void,
    addresses: Range<usize>,
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: `handle` is from `dlopen`, and closed once. The caller in this object keeps it loaded.
        unsafe { libc::dlclose(self.handle) };
    }
}

impl Object {
    /// The object that contains the code at `address`.
    pub fn of_code(address: usize) -> Option<Self> {
        let (name, addresses) = containing(address)?;
        // The program has an empty name.
        let name = Some(name).filter(|name| !name.is_empty());
        let path = name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        // SAFETY: `path` is null or a C string. Nothing is loaded: the object is present.
        let handle = unsafe { libc::dlopen(path, libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        (!handle.is_null()).then_some(Object { handle, addresses })
    }

    /// Loads the library at `path`, which defines `symbol` itself. It stays loaded. It finds its own symbols before those of
    /// the process, which may have another library of its kind. Fails with what the system says.
    pub fn load(path: &Path, symbol: &CStr) -> Result<Self, Fault> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND | libc::RTLD_NODELETE;
        let name = CString::new(path.as_os_str().as_bytes());
        let name = name.map_err(|_| Fault::Refused("its path has a zero byte".into()))?;
        // SAFETY: `name` is a C string. The caller accepts that initializers of the library run.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        if handle.is_null() {
            // SAFETY: a call has just failed in this thread, so there is a text, valid until the next call.
            let text = unsafe { CStr::from_ptr(libc::dlerror()) };
            return Err(Fault::Refused(text.to_string_lossy().into_owned()));
        }
        // SAFETY: `handle` is open, and `symbol` is a C string.
        let found = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
        let addresses = containing(found.addr()).map(|(_, addresses)| addresses);
        let missing = || Fault::Refused(format!("it does not define {}", symbol.to_string_lossy()));
        Ok(Object {
            handle,
            addresses: addresses.ok_or_else(missing)?,
        })
    }

    /// The file of the object that contains the code at `address`. Empty for the program.
    pub fn path_of_code(address: usize) -> Option<PathBuf> {
        let (name, _) = containing(address)?;
        Some(PathBuf::from(OsString::from_vec(name.into_bytes())))
    }

    /// The address of a symbol that the object defines. The search continues in the libraries that it needs, so an address
    /// elsewhere belongs to another library.
    pub fn symbol(&self, name: &CStr) -> Option<*const c_void> {
        // SAFETY: `handle` is open, and `name` is a C string.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        let is_own = self.addresses.contains(&found.addr());
        is_own.then_some(found.cast_const())
    }

    /// The address at which the process sees a variable that the object declares. A program that refers to a variable of a
    /// library may contain a copy, which the library then uses.
    pub fn shared_variable(&self, name: &CStr) -> Option<*const c_void> {
        self.symbol(name)?;
        // SAFETY: `name` is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found.cast_const())
    }
}

struct Search {
    address: usize,
    found: Option<(CString, Range<usize>)>,
}

/// Name and address range of the object that contains an address.
fn containing(address: usize) -> Option<(CString, Range<usize>)> {
    let mut search = Search {
        address,
        found: None,
    };
    // SAFETY: `visit` takes a `Search` as its last argument, and is called only before this returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the C library passes a description that is valid during the call, and the pointer from `containing`.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    // SAFETY: `dlpi_phdr` are `dlpi_phnum` headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let loaded = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    // Addresses may wrap around; they are only compared.
    let base = info.dlpi_addr as usize;
    let ranges = loaded.map(|h| {
        let start = base.wrapping_add(h.p_vaddr as usize);
        start..start.wrapping_add(h.p_memsz as usize)
    });
    let whole = ranges.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end));
    let Some(addresses) = whole.filter(|all| all.contains(&search.address)) else {
        return 0;
    };
    // SAFETY: the pointer is null, or a C string that is valid during the call.
    let name = unsafe { info.dlpi_name.as_ref().map(|name| CStr::from_ptr(name)) };
    search.found = Some((name.unwrap_or(c"").to_owned(), addresses));
    1
}

/// Number of objects that the process has unloaded. While it is unchanged, addresses found in objects remain valid.
pub fn given_up() -> u64 {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        number: *mut c_void,
    ) -> c_int {
        // SAFETY: the C library passes a description, which has this field since glibc 2.4 and in musl, and the place of a
        // number.
        unsafe { *number.cast::<u64>() = (*info).dlpi_subs };
        1
    }
    let mut number = 0u64;
    // SAFETY: `visit` takes such a place as its last argument, and is called only before this returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut number).cast()) };
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_knows_its_own_symbols_alone() {
        let library = Object::of_code(libc::dlsym as *const () as usize).unwrap();
        assert!(library.symbol(c"dlsym").is_some());
        assert!(library.symbol(c"no_such_symbol").is_none());
        // The program needs the C library, and finds its symbols through it.
        let program = Object::of_code(visit as *const () as usize).unwrap();
        assert!(program.symbol(c"dlsym").is_none());
    }

    #[test]
    fn an_address_of_no_object_is_no_code() {
        assert!(Object::of_code(0).is_none());
        let heap = Box::new(0_u8);
        assert!(Object::of_code((&raw const *heap).addr()).is_none());
    }
}
