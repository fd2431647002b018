//! The seal of a close (`docs/formats/journal.md`, section 5.1): with it a reader tells a closed log from one of which a file
//! system shows a part.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::front::FRONT;
use crate::logvol::extent::{crc32, each_piece};
use crate::source_file::SourceFile;
use crate::window::Piece;
use h5logfs_common::fault::Fault;

/// Where it stands in the front: at the end of the first page, so that no page shows the metadata of a close without it.
pub const SEAL_AT: usize = 4096 - SEAL_LEN;
const SEAL_LEN: usize = 64;
const MAGIC: &[u8; 8] = b"h5lgclos";

/// The seal: what a closed file has behind its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseSeal {
    /// Where the objects begin.
    start: u64,
    /// Bytes of objects.
    len: u64,
    /// The sum over these.
    objects: u64,
    /// The sum over the front without the seal.
    front: u64,
}

impl CloseSeal {
    fn to_bytes(self) -> [u8; SEAL_LEN] {
        let mut bytes = [0; SEAL_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        let numbers = [self.start, self.len, self.objects, self.front];
        for (place, number) in bytes[8..40].as_chunks_mut().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        let crc = crc32(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` where the front has no seal. Fails where it is damaged.
    fn of(front: &[u8]) -> Result<Option<Self>, Fault> {
        let Some(bytes) = front.get(SEAL_AT..SEAL_AT + SEAL_LEN) else {
            return Ok(None);
        };
        if bytes[..8] != *MAGIC {
            return Ok(None);
        }
        if bytes[60..] != crc32(&bytes[..60]).to_le_bytes() {
            return Err("the seal of the close does not match its checksum".into());
        }
        let mut numbers = [0; 4];
        for (number, place) in numbers.iter_mut().zip(bytes[8..40].as_chunks().0) {
            *number = u64::from_le_bytes(*place);
        }
        let [start, len, objects, front] = numbers;
        Ok(Some(CloseSeal {
            start,
            len,
            objects,
            front,
        }))
    }
}

/// The sum over a front, but for the seal in it.
fn sum_of(front: &[u8]) -> u64 {
    let mut bytes = front.to_vec();
    bytes[SEAL_AT..SEAL_AT + SEAL_LEN].fill(0);
    xxh3_64(&bytes)
}

/// Puts the seal into the front of a file whose objects begin at `start`.
pub fn set_seal(front: &mut [u8], start: u64, objects: &[u8]) {
    let seal = CloseSeal {
        start,
        len: objects.len() as u64,
        objects: xxh3_64(objects),
        front: sum_of(front),
    };
    front[SEAL_AT..SEAL_AT + SEAL_LEN].copy_from_slice(&seal.to_bytes());
}

/// Puts a seal into the front of a file to which the objects are still to be added: no reader believes such a front.
pub fn set_unfinished_seal(front: &mut [u8]) {
    set_seal(front, u64::MAX, &[]);
}

/// Whether the front of a file has a seal.
pub fn has_seal(front: &[u8]) -> bool {
    matches!(CloseSeal::of(front), Ok(Some(_)))
}

/// The seal of a closed file; `None` where it has none. Fails where not all of front and objects is there. Objects of more
/// than `most` bytes are not compared.
///
/// What libhdf5 has read of the file is what the seal is about if the seal is the same before and after that.
pub fn check_seal(file: &SourceFile, most: u64) -> Result<Option<CloseSeal>, Fault> {
    check(file, most).map_err(|fault| {
        fault.at(
            "not all of the closed log can be read here, because the file system shows late what another node has \
             written, or the file is damaged",
        )
    })
}

fn check(file: &SourceFile, most: u64) -> Result<Option<CloseSeal>, Fault> {
    if file.len() < FRONT {
        return Ok(None);
    }
    let mut front = vec![0; FRONT as usize];
    let read = file.read_unguarded(&mut front, 0);
    read?;
    let Some(seal) = CloseSeal::of(&front)? else {
        return Ok(None);
    };
    if sum_of(&front) != seal.front {
        return Err("its front does not match its checksum".into());
    }
    if seal.start == u64::MAX {
        return Err("its objects are not there yet".into());
    }
    let len = file.metadata()?.len();
    if seal.start.checked_add(seal.len).is_none_or(|end| end > len) {
        return Err(format!(
            "it has {len} bytes, and {} bytes of objects from byte {} on",
            seal.len, seal.start
        )
        .into());
    }
    if seal.len <= most {
        let objects = Piece {
            offset: seal.start,
            len: seal.len,
        };
        let mut sum = Xxh3::new();
        each_piece(file, objects, |part| {
            sum.update(part);
            Ok(())
        })?;
        if sum.digest() != seal.objects {
            return Err("its objects do not match their checksum".into());
        }
    }
    Ok(Some(seal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source_dir::SourceDir;

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
        set_unfinished_seal(&mut front);
        assert!(
            check(&front, 100)
                .unwrap_err()
                .to_string()
                .contains("not there yet")
        );
        let objects = [7; 50];
        set_seal(&mut front, FRONT + 10, &objects);
        assert!(has_seal(&front));
        let whole = [&front[..], &[1; 10], &objects].concat();
        assert_eq!(check(&whole, 100), Ok(true));
        // It can be set again.
        let mut again = front.clone();
        set_seal(&mut again, FRONT + 10, &objects);
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
        // Between them are extents and table. Large objects are not read.
        for (at, most) in [(FRONT as usize, 100), (behind, 49)] {
            let mut other = whole.clone();
            other[at] ^= 1;
            assert_eq!(check(&other, most), Ok(true));
        }
    }
}
