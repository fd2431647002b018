//! Names in a directory that lead to no regular file.

use std::io;

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

/// What a name leads to instead of a regular file. The text goes on after the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum NotRegular {
    /// A directory.
    #[error("is a directory, not a regular file")]
    Directory,
    /// A FIFO, also called a named pipe.
    #[error("is a FIFO, not a regular file")]
    Fifo,
    /// A socket.
    #[error("is a socket, not a regular file")]
    Socket,
    /// A symbolic link, which is not followed.
    #[error("is a symbolic link, which is not followed")]
    Link,
    /// A device, or an entry of a kind that only some systems have.
    #[error("is a device, not a regular file")]
    Device,
}

impl NotRegular {
    /// The kind of an entry; `None` for a regular file. A symbolic link is an entry of its own.
    pub fn of(entry: &Stat) -> Option<Self> {
        Some(match FileType::from_raw_mode(entry.st_mode) {
            FileType::RegularFile => return None,
            FileType::Directory => NotRegular::Directory,
            FileType::Fifo => NotRegular::Fifo,
            FileType::Socket => NotRegular::Socket,
            FileType::Symlink => NotRegular::Link,
            _ => NotRegular::Device,
        })
    }

    /// The kind as an I/O error. [`not_regular`] extracts it.
    pub fn into_io(self) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, self)
    }
}

/// The reason why a name leads to no regular file, if the error has one.
pub fn not_regular(error: &io::Error) -> Option<NotRegular> {
    error.get_ref()?.downcast_ref().copied()
}
