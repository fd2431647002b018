//! Declaring and finding functions of libhdf5.

use std::ffi::CStr;

use crate::caller::Object;
use crate::library::FoundLibrary;

/// Functions of one libhdf5, declared by [`functions!`](crate::functions).
pub trait Functions: Copy + Send + 'static {
    /// The user of the functions, named as the function in errors on the error stack.
    const USER: &'static CStr;

    /// The functions that an object defines. `None` if it lacks one.
    fn of(object: &Object) -> Option<Self>;

    /// The library with these functions that was found last.
    fn found() -> &'static FoundLibrary<Self>;
}

/// Declares functions of libhdf5 under their own names, with their look-up.
///
/// ```ignore
/// h5logfs_host::functions! {
///     /// Functions that this needs.
///     pub struct Functions for "example" {
///         H5Pcopy: fn(i64) -> i64,
///         H5Epush2: fn(i64, *const std::ffi::c_char; ...) -> i32,
///     }
/// }
/// ```
#[macro_export]
macro_rules! functions {
    ($(#[$doc:meta])* $visible:vis struct $table:ident for $user:literal {
        $($name:ident: fn($($argument:ty),* $(,)? $(; $rest:tt)?) $(-> $result:ty)?,)*
    }) => {
        $(#[$doc])*
        #[allow(non_snake_case, missing_docs)]
        #[derive(Debug, Clone, Copy)]
        $visible struct $table {
            $(pub $name: unsafe extern "C-unwind" fn($($argument,)* $($rest)?) $(-> $result)?,)*
        }

        impl $crate::Functions for $table {
            const USER: &'static ::std::ffi::CStr = $crate::c_name(concat!($user, "\0"));

            fn found() -> &'static $crate::library::FoundLibrary<Self> {
                static FOUND: $crate::library::FoundLibrary<$table> = $crate::library::FoundLibrary::nothing();
                &FOUND
            }

            fn of(object: &$crate::caller::Object) -> Option<Self> {
                $(
                    #[allow(non_snake_case)]
                    let $name = object.symbol(const { $crate::c_name(concat!(stringify!($name), "\0")) })?;
                )*
                // SAFETY: the declaration gives the functions their types in HDF5 1.14.0 to 2.2.
                Some(unsafe {
                    $table {
                        $($name: ::std::mem::transmute::<
                            *const ::std::ffi::c_void,
                            unsafe extern "C-unwind" fn($($argument,)* $($rest)?) $(-> $result)?,
                        >($name),)*
                    }
                })
            }
        }
    };
}

/// The name of a symbol, at compile time.
#[doc(hidden)]
pub const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name holds a zero byte"),
    }
}
