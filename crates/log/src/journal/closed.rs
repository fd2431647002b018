//! The seal of a close (`docs/formats/journal.md`, section 5.1). With it a reader distinguishes a closed log from an
//! unclosed one, and from one that a file system shows in part.

use std::fs::File;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::line::Header;
use crate::file_id::FileId;
use crate::front::FRONT;
pub use crate::front_bytes::{CloseSeal, Closed, SEAL_AT};
use crate::front_bytes::{SEAL_LEN, sum_of};
use crate::logvol::extent::each_piece;
use crate::source_file::SourceFile;
use crate::window::Piece;
use h5logfs_common::fault::Fault;

/// The start of objects that are not written yet.
const UNFINISHED: u64 = u64::MAX;

/// A closed log in one file, without its objects.
#[derive(Debug, Clone, Copy)]
pub struct ClosedLog<'a> {
    /// Header of its journal.
    pub header: &'a Header,
    /// Identifier of the file.
    pub id: &'a FileId,
    /// All extents.
    pub data: Piece,
    /// The entries of the extents. The objects follow this table.
    pub table: Piece,
    /// Number of the last flush.
    pub flush: u64,
    /// Whether extents have seals.
    pub has_seals: bool,
}

impl ClosedLog<'_> {
    /// End of the extents.
    pub fn end(&self) -> u64 {
        self.data.offset + self.data.len
    }
}

impl CloseSeal {
    /// Reads the seal in the front of a file. See [`CloseSeal::of`].
    pub(super) fn read(file: &SourceFile) -> Result<Option<(Self, Vec<u8>)>, Fault> {
        if file.len() < FRONT {
            return Ok(None);
        }
        let mut front = vec![0; FRONT as usize];
        file.read_unguarded(&mut front, 0)?;
        Ok(CloseSeal::of(&front)?.map(|seal| (seal, front)))
    }

    /// Bytes of the objects.
    pub fn objects_len(&self) -> u64 {
        self.len
    }

    /// The details of the close. `None` for a file closed by an earlier version, which did not record them.
    pub(super) fn closed(&self) -> Option<Closed> {
        (self.closed.end >= FRONT).then_some(self.closed)
    }

    /// The table, if the seal has its place.
    pub(super) fn table(&self) -> Option<Piece> {
        let Closed { end, .. } = self.closed()?;
        let len = self.start.checked_sub(end)?;
        Some(Piece { offset: end, len })
    }

    /// Fails where front or objects are incomplete. Objects of more than `most` bytes are not verified.
    pub(super) fn check(&self, file: &SourceFile, front: &[u8], most: u64) -> Result<(), Fault> {
        self.check_front(front, file.metadata()?.len())?;
        if self.len <= most {
            let objects = Piece {
                offset: self.start,
                len: self.len,
            };
            let mut sum = Xxh3::new();
            each_piece(file, objects, |part| {
                sum.update(part);
                Ok(())
            })?;
            self.check_objects(sum.digest())?;
        }
        Ok(())
    }

    /// Fails where this is not the front of the close, or a file of `len` bytes lacks the objects.
    fn check_front(&self, front: &[u8], len: u64) -> Result<(), Fault> {
        if !self.is_of(front) {
            return Err("its front does not match its checksum".into());
        }
        if self.start == UNFINISHED {
            return Err("its objects are not there yet".into());
        }
        if self.start.checked_add(self.len).is_none_or(|end| end > len) {
            return Err(format!(
                "it has {len} bytes, and {} bytes of objects from byte {} on",
                self.len, self.start
            )
            .into());
        }
        Ok(())
    }

    fn check_objects(&self, sum: u64) -> Result<(), Fault> {
        if sum != self.objects {
            return Err("its objects do not match their checksum".into());
        }
        Ok(())
    }
}

/// Puts the seal into the front of a file whose objects begin at `start`.
pub fn set_seal(front: &mut [u8], closed: Closed, start: u64, objects: &[u8]) {
    let seal = CloseSeal {
        closed,
        start,
        len: objects.len() as u64,
        objects: xxh3_64(objects),
        front: sum_of(front),
    };
    front[SEAL_AT..SEAL_AT + SEAL_LEN].copy_from_slice(&seal.to_bytes());
}

/// Puts a seal into the front of a file whose objects are yet to be added. Readers reject such a front.
pub fn set_unfinished_seal(front: &mut [u8], closed: Closed) {
    set_seal(front, closed, UNFINISHED, &[]);
}

/// Completes the seal of a front once the objects are at `start`.
pub fn finish_seal(front: &mut [u8], start: u64, objects: &[u8]) {
    if let Ok(Some(seal)) = CloseSeal::of(front) {
        set_seal(front, seal.closed, start, objects);
    }
}

/// The seal in a front, if it is valid and complete.
pub fn seal_in(front: &[u8]) -> Option<CloseSeal> {
    CloseSeal::of(front)
        .ok()
        .flatten()
        .filter(|seal| seal.closed().is_some())
}

/// The details in the seal of a closed file; `None` if it has none.
pub fn sealed(file: &SourceFile) -> Result<Option<Closed>, Fault> {
    Ok(CloseSeal::read(file)?.and_then(|(seal, _)| seal.closed()))
}

/// The seal of a file whose front and objects are as the close wrote them. `None` for any other file, and for one
/// with more than `most` bytes of objects. The file has `len` bytes, and this front.
pub fn intact_seal(file: &File, len: u64, front: &[u8], most: u64) -> Option<CloseSeal> {
    let seal = seal_in(front).filter(|seal| seal.len <= most)?;
    seal.check_front(front, len).ok()?;
    let mut objects = vec![0; usize::try_from(seal.len).ok()?];
    file.read_exact_at(&mut objects, seal.start).ok()?;
    seal.check_objects(xxh3_64(&objects)).ok()?;
    Some(seal)
}

/// The seal of a closed file of a log whose extents have seals; `None` without one. Fails where front or objects are
/// incomplete. Objects of more than `most` bytes are not verified.
///
/// If the seal is the same before and after libhdf5 reads the file, libhdf5 has read the bytes that the seal covers.
///
/// If the extents have no seals, the objects must exist but are not verified: another program may have changed the
/// objects of such a log.
pub fn check_seal(file: &SourceFile, most: u64) -> Result<Option<CloseSeal>, Fault> {
    let found = CloseSeal::read(file);
    if let Ok(Some((seal, _))) = &found
        && !seal.closed.has_seals
        && seal.start == UNFINISHED
    {
        let reason =
            "its close is incomplete, so its objects are only in its journal, which is missing";
        return Err(reason.into());
    }
    let check = || {
        let Some((seal, front)) = found?.filter(|(seal, _)| seal.closed.has_seals) else {
            return Ok(None);
        };
        seal.check(file, &front, most)?;
        Ok(Some(seal))
    };
    check().map_err(|fault: Fault| {
        fault.at(
            "not all of the closed log can be read here, because the file system shows late what another node has \
             written, or the file is damaged",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source_dir::SourceDir;

    const CLOSED: Closed = Closed {
        flush: 7,
        end: FRONT,
        has_seals: true,
    };

    #[test]
    fn what_is_not_all_there_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let check = |bytes: &[u8], most| {
            std::fs::write(dir.path().join("log"), bytes).unwrap();
            let held = SourceDir::open(dir.path()).unwrap();
            let seal = check_seal(&SourceFile::open(&held, "log".as_ref()).unwrap(), most);
            seal.map(|seal| seal.is_some())
        };
        let mut front: Vec<u8> = (0..FRONT).map(|at| (at % 251) as u8).collect();
        front[SEAL_AT..SEAL_AT + SEAL_LEN].fill(0);
        assert_eq!(check(&front, 100), Ok(false));
        assert_eq!(check(&front[..100], 100), Ok(false));
        set_unfinished_seal(&mut front, CLOSED);
        assert!(
            check(&front, 100)
                .unwrap_err()
                .to_string()
                .contains("not there yet")
        );
        let mut without = front.clone();
        let closed = Closed {
            has_seals: false,
            ..CLOSED
        };
        set_unfinished_seal(&mut without, closed);
        let said = check(&without, 100).unwrap_err().to_string();
        assert!(said.contains("only in its journal"), "{said}");
        finish_seal(&mut without, FRONT, &[]);
        assert_eq!(check(&without, 100), Ok(false));
        let objects = [7; 50];
        finish_seal(&mut front, FRONT + 10, &objects);
        let whole = [&front[..], &[1; 10], &objects].concat();
        assert_eq!(check(&whole, 100), Ok(true));
        // The seal can be set again.
        let mut again = front.clone();
        set_seal(&mut again, CLOSED, FRONT + 10, &objects);
        assert_eq!(again, front);
        let behind = FRONT as usize + 10;
        for at in [
            0,
            1000,
            SEAL_AT - 1,
            SEAL_AT + 20,
            SEAL_AT + 63,
            4096,
            8191,
            behind + 20,
        ] {
            let mut other = whole.clone();
            other[at] ^= 1;
            let said = check(&other, 100).unwrap_err();
            assert!(
                said.to_string().contains("not all of the closed log"),
                "byte {at}: {said}"
            );
        }
        assert!(check(&whole[..whole.len() - 1], 100).is_err());
        // Extents and table lie between. Large objects are not read.
        for (at, most) in [(FRONT as usize, 100), (behind, 49)] {
            let mut other = whole.clone();
            other[at] ^= 1;
            assert_eq!(check(&other, most), Ok(true));
        }
        // Another program may change a log whose extents have no seals.
        let closed = Closed {
            has_seals: false,
            ..CLOSED
        };
        let mut other = whole.clone();
        set_seal(&mut other[..FRONT as usize], closed, FRONT + 10, &objects);
        other[0] ^= 1;
        assert_eq!(check(&other, 100), Ok(false));
    }
}
