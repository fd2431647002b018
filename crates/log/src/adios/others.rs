//! Files in which ADIOS2 and its tools keep data in another form than a directory. They are no logs; a reader is told what opens
//! them.

use std::ffi::OsStr;

use h5logfs_adios::header::SIGNATURE;
use h5logfs_common::error::Result;

use super::names;
use super::tar::{Member, Members};
use crate::source_file::SourceFile;

/// Why a file of ADIOS2 is no log, and what opens it. `None` for all other files.
pub fn why_no_log(file: &SourceFile) -> Result<Option<String>> {
    if is_bp3(file)? {
        let reason = "it is in ADIOS2's format BP3: only BP4 and BP5 can be read";
        return Ok(Some(reason.to_owned()));
    }
    if is_campaign(file)? {
        let reason = "a campaign archive of ADIOS2, an SQLite database that says where directories are: ADIOS2 and \
            hpc_campaign open it, h5logfs opens the directories themselves";
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

/// The name of the first directory of ADIOS2 in a TAR archive, as far as the archive begins with it.
fn index_in_tar(file: &SourceFile) -> Result<Option<String>> {
    let mut members = Members::of(file);
    while let Some(member) = members.next()? {
        if let Some(directory) = directory_of_index(&member.name)
            && has_signature(file, &member)?
        {
            return Ok(Some(directory.to_owned()));
        }
    }
    Ok(None)
}

/// The directory whose index a member is, by its name.
fn directory_of_index(name: &str) -> Option<&str> {
    let (directory, name) = name.rsplit_once('/').unwrap_or((".", name));
    (name == names::INDEX).then_some(directory)
}

fn has_signature(file: &SourceFile, member: &Member) -> Result<bool> {
    let mut found = [0; SIGNATURE.len()];
    if member.len < found.len() as u64 || !file.has(member.at, found.len() as u64) {
        return Ok(false);
    }
    file.read_exact_at(&mut found, member.at)?;
    Ok(found == *SIGNATURE)
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

    /// Bytes of a header, and those that members are filled up to.
    const BLOCK: usize = 512;

    /// A header, and the bytes of a member. `kind` is that of a header in front of a member, or 0.
    fn entry(kind: u8, name: &str, prefix: &str, bytes: &[u8]) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..136].copy_from_slice(format!("{:011o} ", bytes.len()).as_bytes());
        block[156] = kind;
        block[257..262].copy_from_slice(b"ustar");
        block[345..345 + prefix.len()].copy_from_slice(prefix.as_bytes());
        block.extend(bytes);
        block.resize(block.len().next_multiple_of(BLOCK), 0);
        block
    }

    fn member(name: &str, prefix: &str, bytes: &[u8]) -> Vec<u8> {
        entry(0, name, prefix, bytes)
    }

    fn index() -> Vec<u8> {
        [&SIGNATURE[..], &[0; 54]].concat()
    }

    #[test]
    fn an_archive_with_an_index_is_told_by_its_directory() {
        let index = index();
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
            found(&[&data, &member("run.bp/md.idx", "", &index)[..BLOCK]]),
            None
        );
        let mut endless = member("x", "", &[]);
        endless[124..136].copy_from_slice(&[0xff; 12]);
        assert_eq!(found(&[&endless, &data]), None);
    }

    #[test]
    fn a_member_has_the_name_and_the_length_of_the_headers_before_it() {
        let index = index();
        let found = |members: &[&[u8]]| told("all.tar", &members.concat());
        let directory = "deep/".repeat(60) + "run.bp";
        let path = format!("{directory}/md.idx");
        let cut = member(&path[..100], "", &index);
        let record = |text: &str| {
            // The length counts its own digits, two or three.
            let len = text.len() + 2;
            let len = len + (len + 2).to_string().len();
            format!("{len} {text}\n").into_bytes()
        };
        let zero_ended = [path.as_bytes(), b"\0"].concat();
        let gnu = entry(b'L', "././@LongLink", "", &zero_ended);
        let link = entry(b'K', "././@LongLink", "", b"elsewhere\0");
        let records = [
            record("mtime=1700000000.25"),
            record(&format!("path={path}")),
        ];
        let pax = entry(b'x', "PaxHeaders/md.idx", "", &records.concat());
        let global = entry(b'g', "pax_global_header", "", &record("comment=none"));
        for before in [
            &[&gnu[..]][..],
            &[&gnu, &link],
            &[&link, &gnu],
            &[&global, &pax],
        ] {
            let said = found(&[&before.concat(), &cut]).unwrap();
            assert!(said.contains(&format!("{directory}:")), "{said}");
        }
        // A name holds for one member.
        assert_eq!(found(&[&gnu, &member("other", "", b"text"), &cut]), None);
        // A member of more than 8 GiB has its length in front, and a link has no bytes.
        let mut large = member("data.0", "", &[7; 1000]);
        large[124..136].fill(b'0');
        let size = entry(b'x', "PaxHeaders/data.0", "", &record("size=1000"));
        let size = [size, entry(b'L', "././@LongLink", "", b"data.0\0")].concat();
        let mut hard = entry(b'1', "data.1", "", &[]);
        hard[124..136].copy_from_slice(b"00000001750 ");
        let said = found(&[&size, &large, &hard, &member("md.idx", "", &index)]);
        assert!(said.is_some_and(|said| said.contains(" .:")));
        for bad in [
            &b"99999 path=md.idx\n"[..],
            b"0 ",
            b"-1 path=x\n",
            b"7",
            b"5 a",
        ] {
            let bad = entry(b'x', "PaxHeaders/x", "", bad);
            let said = found(&[&bad, &member("md.idx", "", &index)]);
            assert!(said.is_some(), "what cannot be read says nothing");
        }
    }
}
