//! The first step, looked at with few reads. A mount asks this about each directory that it lists, and reads the bytes
//! in its own process: the work is bounded, whatever they say.

use crate::header::{Header, Version};
use crate::{Bytes, Files, Result, bp4, bp5};

/// Whether the first step has a variable of this name. `None` if there is no complete step yet.
///
/// Looks at the first 1,024 writers of BP5, and at the first 16,384 variables of BP4.
pub fn has_variable(files: Files<'_>, name: &str) -> Result<Option<bool>> {
    let header = Header::read(files.index)?;
    match header.version {
        Version::Bp4 => bp4::first_step::has_variable(files, header, name),
        Version::Bp5 => bp5::first_step::has_variable(files, &header, name),
    }
}

/// The first bytes of a file.
pub(crate) struct Front<'a> {
    file: &'a dyn Bytes,
    len: u64,
}

impl<'a> Front<'a> {
    /// The first `most` bytes, or all of a shorter file.
    pub fn new(file: &'a dyn Bytes, most: u64) -> Self {
        let len = file.len().min(most);
        Front { file, len }
    }
}

impl Bytes for Front<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        let end = at.checked_add(buffer.len());
        if end.is_none_or(|end| end > self.len) {
            return Err("ends before these bytes".into());
        }
        self.file.read_exact_at(buffer, at)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::directory::Directory;

    /// The directories of the corpora of the project.
    fn corpora() -> Vec<PathBuf> {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
        let entries = ["corpus-adios", "corpus-scorpio"]
            .map(|corpus| fs::read_dir(tests.join(corpus)).unwrap());
        let paths = entries.into_iter().flatten();
        let paths = paths.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.join("md.idx").is_file()).collect()
    }

    #[test]
    fn a_look_at_the_first_step_finds_what_a_reader_of_it_finds() {
        let (mut compared, mut absent) = (0, 0);
        for path in corpora() {
            let read = |name| fs::read(path.join(name));
            let (Ok(index), Ok(metadata)) = (read("md.idx"), read("md.0")) else {
                continue;
            };
            let formats = read("mmd.0").ok();
            let files = Files {
                index: &index,
                metadata: &metadata,
                formats: formats.as_ref().map(|formats| formats as &dyn Bytes),
            };
            let Ok(directory) = Directory::open(files) else {
                continue;
            };
            let names = |number| {
                let step = directory.step(files, number, &|_| true).unwrap();
                let names = step.variables.into_iter().map(|variable| variable.name);
                (names.collect::<BTreeSet<_>>(), step.problems.is_empty())
            };
            let steps = directory.steps();
            if steps == 0 {
                assert_eq!(has_variable(files, "x"), Ok(None), "{path:?}");
                continue;
            }
            let ((first, is_sound), (last, _)) = (names(0), names(steps - 1));
            for name in &first {
                assert_eq!(has_variable(files, name), Ok(Some(true)), "{path:?} {name}");
                compared += 1;
            }
            for name in last.difference(&first).filter(|_| is_sound) {
                assert_eq!(
                    has_variable(files, name),
                    Ok(Some(false)),
                    "{path:?} {name}"
                );
                absent += 1;
            }
        }
        assert!(compared > 500 && absent > 3, "{compared} {absent}");
    }
}
