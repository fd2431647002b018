//! The common base of HDF5 plug-ins: which libhdf5 of the process calls them, and how they call it.
//!
//! Python wheels carry their own libhdf5, under a changed name, loaded locally. Two of them share one copy of a plug-in. So a
//! plug-in is linked to none. It finds the calling libhdf5 by the return address ([`caller`]), looks up its functions
//! ([`functions!`]), and keeps them with the objects made for this library ([`library`]).
//!
//! | module | contents |
//! |---|---|
//! | `types` | types and numbers that all headers of HDF5 use |
//! | `entry` | entry points that know their return address |
//! | `caller` | the object of the process that an address lies in, and the symbols that it defines |
//! | `at_end` | actions at the end of a block |
//! | `foreign` | exceptions of other languages, on their way to the program |
//! | `library` | one libhdf5: its functions, calls from within a call of it, its error stack |
//! | `functions` | declaring and finding functions |
//! | `lists` | operations and properties shared by `crates/vol-api` and the connector |

#![warn(missing_docs)]

pub mod at_end;
pub mod caller;
mod entry;
pub mod foreign;
mod functions;
pub mod library;
pub mod lists;
pub mod types;

use std::panic;
use std::sync::Once;

pub use functions::Functions;
#[doc(hidden)]
pub use functions::c_name;
pub use library::{Kind, Library};

/// Keeps panics off standard error, which belongs to the host. The text of a panic becomes an error. A plug-in calls this
/// when it is loaded: the hook belongs to its own copy of the runtime.
pub fn keep_panics_quiet() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| panic::set_hook(Box::new(|_| {})));
}
