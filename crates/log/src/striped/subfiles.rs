//! Finds the subfiles of a stub (`docs/formats/hdf5-subfiling.md`, section 5), and reports their faults (section 6).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::config::Config;
use super::driver_info::{Driver, Geometry, driver};
use super::names::{Part, SubfileName};
use super::{FileAndMembers, Kind, Tables};
use crate::flat::{Flat, FlatFile, FlatMember, end_of};
use crate::hdf5_bytes::Hdf5;
use crate::log_files::LogFiles;
use crate::signature::find_signature;
use crate::source_dir::SourcePath;
use crate::source_file::SourceFile;
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::{Superblock, Window, superblock};

/// The file that the user named: the stub, or a subfile if there is no stub.
pub struct Entry<'a> {
    /// The files in the directory of `file`.
    pub files: &'a LogFiles<'a>,
    /// The named file.
    pub file: &'a SourceFile,
    /// The name of the stub.
    stub: OsString,
    /// The inode number in the names of the subfiles, if the user named one of them.
    inode: Option<u64>,
}

/// The name of the stub that `name` belongs to. `name` may be the stub itself.
pub fn stub_of(name: &OsStr) -> &OsStr {
    SubfileName::parse(name).map_or(name, |part| part.stub)
}

impl<'a> Entry<'a> {
    /// The file `file`, opened at the path of `files`.
    pub fn of(files: &'a LogFiles<'a>, file: &'a SourceFile) -> Self {
        let name = files.log().file_name().unwrap_or_default();
        Entry {
            files,
            file,
            stub: stub_of(name).to_owned(),
            inode: SubfileName::parse(name).map(|part| part.inode),
        }
    }

    /// Finds the subfiles among `companions`. Fails if there are none, if it is unclear which of them belong to this
    /// file, or if they contradict each other.
    pub fn find(&self, companions: &[SourcePath]) -> Result<FileAndMembers> {
        let own = OwnSuperblock::of(self.file)?;
        let mut sets = self.sets(companions, &own)?;
        let chosen = self.choose(&own, &mut sets)?;
        sets.swap_remove(chosen).into_found(self, &own)
    }

    /// The sets of subfiles with the name of the stub.
    fn sets(&self, companions: &[SourcePath], own: &OwnSuperblock) -> Result<Vec<Set>> {
        let mut names: BTreeMap<u64, Vec<(Part, &SourcePath)>> = BTreeMap::new();
        for place in companions {
            let name = place.path.file_name().and_then(SubfileName::parse);
            let name = name.filter(|name| name.stub == self.stub);
            let wanted =
                |name: &SubfileName<'_>| self.inode.is_none_or(|inode| inode == name.inode);
            if let Some(name) = name.filter(wanted) {
                names
                    .entry(name.inode)
                    .or_default()
                    .push((name.part, place));
            }
        }
        let has_subfile =
            |parts: &Vec<(Part, &SourcePath)>| parts.iter().any(|(part, _)| *part != Part::Config);
        names.retain(|_, parts| has_subfile(parts));
        // Subfiles of an earlier file of this name do not matter.
        if let Some(parts) = names.get(&self.file.identity().inode) {
            let set = Set::open(self, own, self.file.identity().inode, parts)?;
            if set.fits(own) {
                return Ok(vec![set]);
            }
        }
        let sets = names.into_iter();
        let sets = sets.map(|(inode, parts)| Set::open(self, own, inode, &parts));
        let (mut opened, mut failed) = (Vec::new(), None);
        for set in sets {
            match set {
                Ok(set) => opened.push(set),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        // If another set exists, a set that contradicts the stub belongs to another file.
        match failed {
            Some(error) if opened.is_empty() => Err(error),
            _ => Ok(opened),
        }
    }

    /// The index of the set that belongs to this file. It is never a guess.
    fn choose(&self, own: &OwnSuperblock, sets: &mut [Set]) -> Result<usize> {
        let inode = self.inode.unwrap_or(self.file.identity().inode);
        let fits = |set: &Set| set.fits(own);
        let by_inode = sets.iter().position(|set| set.inode == inode);
        let fitting: Vec<usize> = (0..sets.len()).filter(|at| fits(&sets[*at])).collect();
        let (at, note) = match (by_inode, fitting.as_slice()) {
            (Some(at), _) if fits(&sets[at]) => (at, None),
            (Some(at), []) => {
                let what = "its superblock is not that of its first subfile: they belong to different states of the file";
                (at, Some(Diagnostic::new(Severity::Inconsistent, what)))
            }
            (None, &[at]) => {
                let what = format!(
                    "it is a copy: it has the inode number {inode}, and its subfiles are called after {}",
                    sets[at].inode
                );
                (at, Some(Diagnostic::note(what)))
            }
            (None, []) if sets.is_empty() => return Err(self.without_subfiles(own)),
            (None, []) => {
                let reason = format!(
                    "the subfiles that have its name are those of another file: {} begins with another superblock",
                    sets[0].name_of(self, 0)
                );
                return Err(self.refused(reason));
            }
            (_, _) => {
                let mut names = sets.iter().map(|set| set.name_of(self, 0));
                let (first, second) = (names.next(), names.next());
                let reason = format!(
                    "it may belong to {} or to {}: move one of the two sets to another directory",
                    first.unwrap_or_default(),
                    second.unwrap_or_default()
                );
                return Err(self.refused(reason));
            }
        };
        sets[at].diagnostics.extend(note);
        Ok(at)
    }

    /// Whether two paths lead to one file. The directory of the stub may have several names.
    fn are_same(&self, one: &SourcePath, other: &SourcePath) -> Result<bool> {
        let [one, other] = [one, other].map(|place| self.files.open(place));
        Ok(one?.identity().is_same_file(other?.identity()))
    }

    fn refused(&self, reason: impl Into<Fault>) -> Error {
        Error::of(self.file.path(), reason)
    }

    fn without_subfiles(&self, own: &OwnSuperblock) -> Error {
        let count = own.geometry.map(|geometry| geometry.count);
        let (many, last) = match count {
            Some(count) => (format!("{count} "), count.to_string()),
            None => (String::new(), "N".to_owned()),
        };
        self.refused(format!(
            "this is the stub of a file striped over {many}subfiles, and none of them is there ({}.subfile_*_1_of_{last} …): \
             name their directory with subfile_dir=",
            self.stub.display()
        ))
    }
}

/// Content of the stub itself.
struct OwnSuperblock {
    superblock: Option<Superblock>,
    geometry: Option<Geometry>,
    /// Bytes before the superblock.
    user_block: u64,
}

impl OwnSuperblock {
    fn of(file: &SourceFile) -> Result<Self> {
        let user_block = find_signature(file)?;
        let found = user_block.and_then(|base| {
            let bytes = Window::new(Hdf5 { source: file, base });
            let superblock = Superblock::read(&bytes).ok()?;
            let driver = driver(&superblock, &bytes);
            Some((superblock, driver))
        });
        let (superblock, driver) = found.unzip();
        let geometry = match driver {
            Some(Driver::Subfiling(info)) => {
                let parsed = Geometry::parse(&info);
                Some(parsed.map_err(|fault| Error::of(file.path(), fault))?)
            }
            _ => None,
        };
        Ok(OwnSuperblock {
            superblock,
            geometry,
            user_block: user_block.unwrap_or(0),
        })
    }
}

/// The open subfiles of one file.
struct Set {
    inode: u64,
    flat: Flat,
    members: Vec<(SourcePath, SourceFile)>,
    superblock: Option<Superblock>,
    /// The stub has a superblock, and the subfiles have other bytes at its place.
    begins_otherwise: bool,
    diagnostics: Vec<Diagnostic>,
}

impl Set {
    /// Opens the subfiles of the set named after `inode`.
    fn open(
        entry: &Entry<'_>,
        own: &OwnSuperblock,
        inode: u64,
        parts: &[(Part, &SourcePath)],
    ) -> Result<Self> {
        let set = Parts::of(entry, parts)?;
        let config = set.config.as_ref();
        let config = config.map(|(_, file)| Config::read(file)).transpose()?;
        let said = config.as_ref().map(|config| Geometry {
            stripe: config.stripe,
            count: config.count,
        });
        let geometry = match said.or(own.geometry) {
            Some(geometry) => geometry,
            None => set.geometry_of_first(entry)?,
        };
        for other in said.iter().chain(&own.geometry) {
            check_same(entry, geometry, *other)?;
        }
        if geometry.count != set.subfiles.len() {
            return Err(entry.refused(format!(
                "it has {} subfiles, but the names of the existing ones say {}",
                geometry.count,
                set.subfiles.len()
            )));
        }
        let mut diagnostics = Vec::new();
        if config.is_none() {
            let what = "its configuration is missing: HDF5's driver cannot open it";
            diagnostics.push(Diagnostic::note(what));
        }
        let (flat, members) = set.into_flat(entry, inode, geometry.stripe)?;
        let mut set = Set {
            inode,
            flat,
            members,
            superblock: None,
            begins_otherwise: false,
            diagnostics,
        };
        set.read_superblock(entry, own, geometry)?;
        Ok(set)
    }

    /// Reads the superblock from the subfiles.
    fn read_superblock(
        &mut self,
        entry: &Entry<'_>,
        own: &OwnSuperblock,
        geometry: Geometry,
    ) -> Result<()> {
        let members = self.members.iter().map(|(_, file)| file);
        let sources: Vec<&SourceFile> = std::iter::once(entry.file).chain(members).collect();
        // If the stub has a superblock, a signature elsewhere is accidental.
        let searched = own.superblock.is_none();
        let found = searched.then(|| signature(&self.flat, &sources));
        self.flat.user_block = found.flatten().unwrap_or(own.user_block);
        let bytes = FlatFile {
            flat: &self.flat,
            sources: &sources,
        };
        self.superblock = Superblock::read(&bytes).ok();
        let first = self.flat.piece(own.user_block, 1).member;
        let first = self
            .flat
            .members
            .get(first)
            .and_then(|member| member.source);
        let has_first = first.is_some_and(|first| !sources[usize::from(first)].is_empty());
        self.begins_otherwise = own.superblock.is_some() && self.superblock.is_none() && has_first;
        if let Some(superblock) = &self.superblock
            && let Driver::Subfiling(info) = driver(superblock, &bytes)
        {
            let said = Geometry::parse(&info).map_err(|fault| entry.refused(fault))?;
            check_same(entry, geometry, said)?;
        }
        Ok(())
    }

    /// Whether the first subfile begins with the superblock of the stub. If one of them has no superblock, this remains
    /// possible.
    fn fits(&self, own: &OwnSuperblock) -> bool {
        match (&own.superblock, &self.superblock) {
            (Some(own), Some(found)) => own.bytes == found.bytes,
            _ => !self.begins_otherwise,
        }
    }

    /// The path of subfile `number`, or the name that it should have.
    fn name_of(&self, entry: &Entry<'_>, number: usize) -> String {
        let member = self.flat.members.get(number);
        match member.and_then(|member| member.source) {
            Some(source) => {
                let found = self.members.get(usize::from(source) - 1);
                let path = found.map(|(place, _)| entry.files.full_path(place));
                path.unwrap_or_default().display().to_string()
            }
            None => member.map_or(String::new(), |member| member.name.clone()),
        }
    }

    /// Fails if no part of the file can be read. Otherwise reports what is missing.
    fn into_found(mut self, entry: &Entry<'_>, own: &OwnSuperblock) -> Result<FileAndMembers> {
        if self.begins_otherwise {
            return Err(entry.refused(format!(
                "{} does not begin with its superblock",
                self.name_of(entry, 0)
            )));
        }
        let Some(superblock) = self.superblock.as_ref().or(own.superblock.as_ref()) else {
            return Err(entry.refused(
                "its subfiles have no HDF5 superblock: the program that wrote it never flushed it",
            ));
        };
        let end = superblock.end;
        let lens = self.lens();
        let there = end_of(self.flat.stripe, &lens).unwrap_or(u64::MAX);
        let len = there.max(end);
        if len > i64::MAX as u64 {
            return Err(entry.refused(format!("a file of {len} bytes")));
        }
        self.flat.len = len;
        self.flat.promised = end;
        self.flat.user_block = self.flat.user_block.min(len);
        for (number, len) in lens.iter().enumerate() {
            let diagnostic = self.lack(entry, number, *len);
            self.diagnostics.extend(diagnostic);
        }
        if there > end {
            let what = format!(
                "it was not closed: its superblock says that it ends at {end}, and its subfiles at {there}; what was written \
                 after its last flush may be there in part"
            );
            self.diagnostics.push(Diagnostic::note(what));
        }
        Ok(FileAndMembers {
            tables: Tables {
                kind: Kind::Subfiling,
                flat: self.flat,
            },
            members: self.members,
            diagnostics: self.diagnostics,
        })
    }

    /// Length of each subfile; 0 if it is missing.
    fn lens(&self) -> Vec<u64> {
        let len = |source: Option<u16>| {
            let number = usize::from(source?).checked_sub(1)?;
            Some(self.members.get(number)?.1.len())
        };
        let members = self.flat.members.iter();
        members
            .map(|member| len(member.source).unwrap_or(0))
            .collect()
    }

    /// The bytes that subfile `number` lacks. It has `len` bytes.
    fn lack(&self, entry: &Entry<'_>, number: usize, len: u64) -> Option<Diagnostic> {
        let promised = self.flat.promised_by(number);
        let is_missing = self.flat.members.get(number)?.source.is_none();
        let name = self.name_of(entry, number);
        match (is_missing, promised) {
            (true, 0) => Some(Diagnostic::note("it is missing, and would be empty").at(name)),
            (true, _) => {
                let what = format!("it is missing: its {promised} bytes cannot be read");
                Some(Diagnostic::lost(what).at(name))
            }
            (false, _) if len < promised => {
                let what = format!(
                    "it has {len} bytes, where it should have {promised}: the missing bytes cannot be read"
                );
                Some(Diagnostic::lost(what).at(name))
            }
            _ => None,
        }
    }
}

/// The files of a set.
struct Parts {
    subfiles: Vec<Option<(SourcePath, SourceFile)>>,
    config: Option<(SourcePath, SourceFile)>,
}

impl Parts {
    /// Opens the files. Fails if their names contradict each other, or if a name occurs twice.
    fn of(entry: &Entry<'_>, parts: &[(Part, &SourcePath)]) -> Result<Self> {
        let counts = parts.iter().filter_map(|(part, _)| match part {
            Part::Subfile { count, .. } => Some(*count),
            Part::Config => None,
        });
        let (least, most) = (counts.clone().min(), counts.max());
        let count = most.unwrap_or(0);
        if least != most {
            let least = least.unwrap_or(0);
            let reason = format!(
                "the names of its subfiles give two numbers of subfiles, {least} and {count}"
            );
            return Err(entry.refused(reason));
        }
        let mut places: BTreeMap<Part, &SourcePath> = BTreeMap::new();
        for (part, place) in parts {
            if let Some(other) = places.insert(*part, place)
                && !entry.are_same(other, place)?
            {
                let path = |place| entry.files.full_path(place).display().to_string();
                let reason = format!("{} and {} are both there", path(other), path(place));
                return Err(entry.refused(reason));
            }
        }
        let mut found = Parts {
            subfiles: (0..count).map(|_| None).collect(),
            config: None,
        };
        for (part, place) in places {
            let opened = Some((place.clone(), entry.files.open(place)?));
            match part {
                Part::Config => found.config = opened,
                Part::Subfile { number, .. } => found.subfiles[number] = opened,
            }
        }
        Ok(found)
    }

    /// The striping according to the first subfile. It must be stated in the first stripe of that subfile.
    fn geometry_of_first(&self, entry: &Entry<'_>) -> Result<Geometry> {
        let unknown = || {
            entry.refused("neither a configuration nor its first subfile says how it is striped")
        };
        let first = self.subfiles.first().and_then(Option::as_ref);
        let (_, first) = first.ok_or_else(unknown)?;
        match super::driver(first)? {
            Driver::Subfiling(info) => {
                Geometry::parse(&info).map_err(|fault| Error::of(first.path(), fault))
            }
            _ => Err(unknown()),
        }
    }

    /// The subfiles as members. Their source numbers follow the number of the file itself. The configuration comes
    /// last.
    fn into_flat(
        self,
        entry: &Entry<'_>,
        inode: u64,
        stripe: u64,
    ) -> Result<(Flat, Vec<(SourcePath, SourceFile)>)> {
        let count = self.subfiles.len();
        let (mut members, mut files) = (Vec::new(), Vec::new());
        for (number, subfile) in self.subfiles.into_iter().enumerate() {
            let name = SubfileName::of_subfile(&entry.stub, inode, number, count);
            members.push(FlatMember {
                source: subfile.as_ref().map(|_| files.len() as u16 + 1),
                name: name.to_string_lossy().into_owned(),
            });
            files.extend(subfile);
        }
        let lens = members.iter().map(|member| match member.source {
            Some(source) => files[usize::from(source) - 1].1.len(),
            None => 0,
        });
        let lens: Vec<u64> = lens.collect();
        let len = end_of(stripe, &lens).filter(|len| i64::try_from(*len).is_ok());
        let flat = Flat {
            len: len.ok_or_else(|| entry.refused("its subfiles are longer than a file can be"))?,
            user_block: 0,
            promised: 0,
            stripe,
            members,
            patches: Vec::new(),
        };
        files.extend(self.config);
        Ok((flat, files))
    }
}

fn check_same(entry: &Entry<'_>, known: Geometry, other: Geometry) -> Result<()> {
    if known == other {
        return Ok(());
    }
    Err(entry.refused(format!(
        "its configuration and its driver information contradict each other: {} subfiles with stripes of {} bytes, and {} \
         with {}",
        known.count, known.stripe, other.count, other.stripe
    )))
}

/// The offset of the file's signature.
fn signature(flat: &Flat, sources: &[&SourceFile]) -> Option<u64> {
    superblock::find_signature(flat.len, |at, bytes| flat.read(sources, at, bytes)).ok()?
}
