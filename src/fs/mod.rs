//! The mount: everything that knows FUSE, and the only part of the crate that does.
//!
//! | module | its job |
//! |---|---|
//! | `session` | the life of one mount: start, serve, signals, end |
//! | `mounting` | a `/dev/fuse` descriptor, mounted and unmounted |
//! | `mounts` | reading the kernel's table of mounts: which mount is ours |
//! | `watching` | what those see who watch the mount: reports, summaries |
//! | `virtual_files` | the directory `.h5logfs` |
//! | `watch` | the small process that unmounts after the daemon has crashed |
//! | `filesystem` | the adapter: fuser's requests and answers |
//! | `reply` | answers as fuser wants them: attributes, pages of listings |
//! | `service` | what each request means |
//! | `lane` | requests that have to wait for a scan |
//! | `mirror` | what a path below the mounted directory is now |
//! | `gate` | who is let through to the bytes of a file |
//! | `access` | the kernel's rules for that, as a function |
//! | `xattr` | extended attributes: the source's, and those of log files |
//! | `tree` | inode numbers |
//! | `handles` | open files and directories |
//! | `attributes` | what `stat` tells of one file |
//! | `errno` | the one place where an error becomes an errno and a log line |
//!
//! Only `filesystem`, `reply`, `lane`, `errno` and `session` name types of fuser; the rest can be tested without a
//! kernel.

mod access;
mod attributes;
mod errno;
mod filesystem;
mod gate;
mod handles;
mod lane;
mod mirror;
mod mounting;
mod mounts;
mod reply;
mod service;
mod session;
mod tree;
mod virtual_files;
mod watch;
mod watching;
mod xattr;

pub use mounting::{NOTIFY_SOCKET, unmount_dead};
pub use mounts::MountId;
pub use session::{IndexDir, Options, Running, start};
pub use watch::watch;
