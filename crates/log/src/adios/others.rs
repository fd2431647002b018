//! Files in which ADIOS2 and its tools keep data in another form than a directory. They are no logs; a reader is told what opens
//! them.

use std::ffi::OsStr;

use h5logfs_adios::header::SIGNATURE;
use h5logfs_common::error::Result;

use super::names;
use crate::source_file::SourceFile;

/// Why a file of ADIOS2 is no log, and what opens it. `None` for all other files.
pub fn why_no_log(file: &SourceFile) -> Result<Option<String>> {
    if is_bp3(file)? {
        let reason = "ADIOS2 wrote it in its format BP3: only BP4 and BP5 can be read";
        return Ok(Some(reason.to_owned()));
    }
    if is_campaign(file)? {
        let reason = "a campaign archive of ADIOS2, an SQLite database that says where directories lie: ADIOS2 and \
                      hpc_campaign open it, h5logfs the directories themselves";
        return Ok(Some(reason.to_owned()));
    }
    let index = index_in_tar(file)?;
    Ok(index.map(|name| {
        format!(
            "a TAR archive with a directory of ADIOS2, {name}: unpack it, for example with tar -xf"
        )
    }))
}

/// Whether a file has the older format BP3 (section 1). Such a file ends with the offsets of its indices.
fn is_bp3(file: &SourceFile) -> Result<bool> {
    /// Bytes of the end: a text, three offsets, and four bytes, the last of which is the version.
    const END: u64 = 56;
    let Some(begin) = file.len().checked_sub(END) else {
        return Ok(false);
    };
    let mut end = [0; END as usize];
    file.read_exact_at(&mut end, begin)?;
    Ok(end.starts_with(SIGNATURE) && end.last() == Some(&3))
}

/// Whether a file is a campaign archive, judged by the end of its name and its first bytes.
fn is_campaign(file: &SourceFile) -> Result<bool> {
    const SQLITE: &[u8; 16] = b"SQLite format 3\0";
    if file.path().extension() != Some(OsStr::new("aca")) || file.len() < SQLITE.len() as u64 {
        return Ok(false);
    }
    let mut magic = [0; SQLITE.len()];
    file.read_exact_at(&mut magic, 0)?;
    Ok(magic == *SQLITE)
}

/// The bytes of a header of a TAR archive, and those that members are filled up to.
const TAR_BLOCK: u64 = 512;
/// The most members of a TAR archive that are looked at.
const MOST_MEMBERS: usize = 100;

/// The name of the first directory of ADIOS2 in a TAR archive, as far as the archive begins with it.
fn index_in_tar(file: &SourceFile) -> Result<Option<String>> {
    let mut at = 0;
    for _ in 0..MOST_MEMBERS {
        let mut block = [0; TAR_BLOCK as usize];
        if file
            .len()
            .checked_sub(TAR_BLOCK)
            .is_none_or(|last| at > last)
        {
            break;
        }
        file.read_exact_at(&mut block, at)?;
        let Some(member) = Member::of(&block) else {
            break;
        };
        let data = at + TAR_BLOCK;
        if member.directory_of_index().is_some() && has_signature(file, data)? {
            return Ok(member.directory_of_index().map(str::to_owned));
        }
        let next = member.len.checked_next_multiple_of(TAR_BLOCK);
        let Some(next) = next.and_then(|len| len.checked_add(data)) else {
            break;
        };
        at = next;
    }
    Ok(None)
}

fn has_signature(file: &SourceFile, at: u64) -> Result<bool> {
    let mut found = [0; SIGNATURE.len()];
    if file.len().saturating_sub(at) < found.len() as u64 {
        return Ok(false);
    }
    file.read_exact_at(&mut found, at)?;
    Ok(found == *SIGNATURE)
}

/// A member of a TAR archive (POSIX.1, ustar).
struct Member {
    name: String,
    /// Its bytes, which follow the header.
    len: u64,
}

impl Member {
    /// Reads a header. `None` if these bytes are none.
    fn of(block: &[u8; TAR_BLOCK as usize]) -> Option<Self> {
        let text = |from: usize, len: usize| {
            let field = block.get(from..from + len)?;
            let text = field.split(|byte| *byte == 0).next()?;
            Some(String::from_utf8_lossy(text).into_owned())
        };
        if text(257, 5)? != "ustar" {
            return None;
        }
        let (name, prefix) = (text(0, 100)?, text(345, 155)?);
        // GNU's archives have times where POSIX has a prefix; the byte behind the magic tells them apart.
        let name = match (block[262], prefix.is_empty()) {
            (0, false) => format!("{prefix}/{name}"),
            _ => name,
        };
        let len = match block[124] {
            // A large number is big-endian, with the first bit set.
            first if first & 0x80 != 0 => u64::from_be_bytes(*block[124..136].last_chunk()?),
            _ => u64::from_str_radix(text(124, 12)?.trim(), 8).ok()?,
        };
        Some(Member { name, len })
    }

    /// The directory whose index this member is, by its name.
    fn directory_of_index(&self) -> Option<&str> {
        let (directory, name) = self.name.rsplit_once('/').unwrap_or((".", &self.name));
        (name == names::INDEX).then_some(directory)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::source_dir::SourceDir;

    fn told(name: &str, bytes: &[u8]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(name), bytes).unwrap();
        let held = SourceDir::open(dir.path()).unwrap();
        why_no_log(&SourceFile::open(&held, Path::new(name)).unwrap()).unwrap()
    }

    #[test]
    fn a_campaign_archive_is_a_database_of_its_name() {
        let database = [&b"SQLite format 3\0"[..], &[0; 100]].concat();
        let said = told("run.aca", &database).unwrap();
        assert!(
            said.contains("campaign archive") && said.contains("hpc_campaign"),
            "{said}"
        );
        assert_eq!(told("run.db", &database), None);
        assert_eq!(told("run.aca", &database[..15]), None);
        assert_eq!(told("run.aca", &[1; 100]), None);
    }

    #[test]
    fn bp3_is_told_by_its_end() {
        let mut bytes = vec![0; 200];
        bytes[144..154].copy_from_slice(SIGNATURE);
        bytes[199] = 3;
        assert!(told("run.bp", &bytes).unwrap().contains("BP3"));
        bytes[199] = 4;
        assert_eq!(told("run.bp", &bytes), None);
        assert_eq!(told("run.bp", &bytes[..55]), None);
    }

    /// A header, and the bytes of a member.
    fn member(name: &str, prefix: &str, bytes: &[u8]) -> Vec<u8> {
        let mut block = vec![0; TAR_BLOCK as usize];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..136].copy_from_slice(format!("{:011o} ", bytes.len()).as_bytes());
        block[257..262].copy_from_slice(b"ustar");
        block[345..345 + prefix.len()].copy_from_slice(prefix.as_bytes());
        block.extend(bytes);
        block.resize(block.len().next_multiple_of(TAR_BLOCK as usize), 0);
        block
    }

    #[test]
    fn an_archive_with_an_index_is_told_by_its_directory() {
        let index = [&SIGNATURE[..], &[0; 54]].concat();
        let data = member("run.bp/data.0", "", &[7; 1000]);
        let found = |members: &[&[u8]]| told("all.tar", &members.concat());
        let said = found(&[&data, &member("run.bp/md.idx", "", &index)]).unwrap();
        assert!(
            said.contains("run.bp:") && said.contains("tar -xf"),
            "{said}"
        );
        let said = found(&[&data, &member("run.bp/md.idx", "far/away", &index)]).unwrap();
        assert!(said.contains("far/away/run.bp:"), "{said}");
        assert_eq!(found(&[&data]), None);
        assert_eq!(found(&[&data, &member("run.bp/md.idx", "", b"text")]), None);
        assert_eq!(
            found(&[&data, &member("run.bp/md.idx", "", &index)[..512]]),
            None
        );
        let mut endless = member("x", "", &[]);
        endless[124..136].copy_from_slice(&[0xff; 12]);
        assert_eq!(found(&[&endless, &data]), None);
    }
}
