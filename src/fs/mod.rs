//! The mount: the only part of the program that knows FUSE.
//!
//! | module | its job |
//! |---|---|
//! | `session` | the life of one mount: start, serve, signals, end |
//! | `memory_limit` | compares the options with the memory limit of the service |
//! | `allocator` | bounds the free memory in the allocator |
//! | `mounting` | mounts and unmounts a `/dev/fuse` descriptor |
//! | `namespace` | mounts visible only to this process and its children |
//! | `mounts` | reads the kernel's table of mounts and finds our mount in it |
//! | `shown` | the file behind a path in a mount |
//! | `auto_unmount` | the small process that unmounts after a crash of the daemon |
//! | `monitor` | reports on a mount: statistics, state, caches |
//! | `virtual_files` | the directory `.h5logfs` |
//! | `filesystem` | the adapter between fuser and `service` |
//! | `scheduler` | decides which thread serves a request |
//! | `extra_threads` | threads for long work, and the queues of users for them |
//! | `watch` | stops work that takes too long or that no program waits for |
//! | `thread_state` | the state of a thread in `/proc` |
//! | `reply` | answers in the form of fuser: attributes, pages of listings |
//! | `errno` | turns an error into an errno and a log line |
//! | `service` | the meaning of each request |
//! | `source_tree` | the present state of each path of the source |
//! | `place` | place, identity and state of a file |
//! | `permission_check` | the check whether a user may open a file now |
//! | `access` | the kernel's rules for permissions, as a function |
//! | `xattr` | extended attributes, of the source and of logs |
//! | `inodes` | the table of inodes |
//! | `priority` | the priority of threads whose request takes long |
//! | `pruner` | asks the kernel to forget inodes |
//! | `handles` | open files and directories |
//! | `directory` | reads open directories piece by piece |
//! | `passthrough` | plain files that the kernel reads without the daemon |
//! | `attributes` | the attributes of a file in `stat` |
//!
//! Only `filesystem`, `passthrough`, `reply`, `scheduler`, `extra_threads`, `errno` and `session` name types of fuser. The rest
//! can be tested without a kernel.

mod access;
mod allocator;
mod attributes;
mod auto_unmount;
mod directory;
mod errno;
mod extra_threads;
mod filesystem;
mod handles;
mod inodes;
mod memory_limit;
mod monitor;
mod mount_users;
mod mounting;
mod mounts;
mod namespace;
mod passthrough;
mod permission_check;
mod place;
mod priority;
mod pruner;
mod reply;
mod scheduler;
mod service;
mod session;
pub mod shown;
mod source_tree;
mod thread_state;
mod virtual_files;
mod watch;
mod xattr;

pub use auto_unmount::run_watcher;
pub use memory_limit::shortage as memory_shortage;
pub use mounting::{
    Helper, InUse, NOTIFY_SOCKET, WITHOUT_MOUNT, given_device, mount_at, unmount, unmount_dead,
    unmount_dead_since,
};
pub use mounts::MountId;
pub use namespace::{enter as enter_namespace, try_mount};
pub use session::{Options, PASSED_ON, Running, SIGNALS, start};
pub use source_tree::{DirectoryLogs, Tiles};
