//! The identifier of a file that our writer made (`docs/formats/journal.md`, section 2).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The mark at the end of the front, also in a closed file. The file's identifier follows.
const MARK: &[u8; 16] = b"h5logfs-file-id\n";
const MARK_AT: u64 = 8160;

/// End of the mark and the identifier.
pub(super) const MARK_END: u64 = MARK_AT + 32;

/// Identifies a file, so that a journal cannot be taken for that of another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileId(pub [u8; 16]);

impl FileId {
    /// A short number, to make names unique.
    pub fn number(&self) -> String {
        self.0[..4].iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Writes the identifier into the front of its file.
    pub fn mark(&self, front: &mut [u8]) {
        let at = MARK_AT as usize;
        front[at..at + 16].copy_from_slice(MARK);
        front[at + 16..at + 32].copy_from_slice(&self.0);
    }

    /// The identifier of a file; `None` where our writer did not make the file.
    pub fn of(file: &File) -> io::Result<Option<FileId>> {
        let mut bytes = [0; 32];
        match file.read_exact_at(&mut bytes, MARK_AT) {
            Ok(()) => Ok(FileId::in_mark(&bytes)),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The identifier of a file with these first bytes; `None` where our writer did not make the file.
    pub fn in_front(front: &[u8]) -> Option<FileId> {
        let mark = front.get(MARK_AT as usize..)?;
        FileId::in_mark(mark.first_chunk()?)
    }

    fn in_mark(bytes: &[u8; 32]) -> Option<FileId> {
        let (mark, id) = bytes.split_at(16);
        let mut found = FileId::default();
        found.0.copy_from_slice(id);
        (mark == MARK).then_some(found)
    }

    /// Fails where a file does not have this identifier: another file has its name now.
    pub fn check(&self, file: &File) -> io::Result<()> {
        if FileId::of(file)? == Some(*self) {
            Ok(())
        } else {
            Err(io::Error::other("another file has its name now"))
        }
    }
}
