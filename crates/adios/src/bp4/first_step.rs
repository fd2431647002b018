//! A look at the first step: see [`crate::first_step`].

use super::{Index, variable};
use crate::fields::Fields;
use crate::first_step::Front;
use crate::header::Header;
use crate::numbers;
use crate::{Bytes, Files, Result};

/// Number of variables that are looked at.
const VARIABLES: u32 = 1 << 14;

/// Bytes of `md.0` read at once. Entries may be long, and their names come first.
const WINDOW: u64 = 4096;

/// [`crate::first_step::has_variable`] for BP4.
pub(crate) fn has_variable(files: Files<'_>, header: Header, name: &str) -> Result<Option<bool>> {
    let first = Front::new(files.index, (Header::LEN + super::index::ROW) as u64);
    let files = Files {
        index: &first,
        ..files
    };
    let index = Index::open(files, header)?;
    let Some(row) = index.first() else {
        return Ok(None);
    };
    if row.step != 0 {
        // Nothing was put into the first step.
        return Ok(Some(false));
    }
    let mut window = Window::new(files.metadata, row.attributes);
    let count = window.fields(row.variables, index.is_big_endian)?.u32()?;
    // The number of entries, and their length.
    let mut at = row.variables + 12;
    for _ in 0..count.min(VARIABLES) {
        let mut entry = window.fields(at, index.is_big_endian)?;
        let len = u64::from(entry.u32()?);
        let known = (entry.rest().len() as u64).min(len);
        let own = entry.part(known)?;
        if variable::name(own).is_ok_and(|(own, _)| own == name) {
            return Ok(Some(true));
        }
        at += 4 + len;
    }
    Ok(Some(false))
}

/// A part of `md.0`, read at once.
struct Window<'a> {
    file: &'a dyn Bytes,
    /// Where the part that may be read ends.
    end: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    fn new(file: &'a dyn Bytes, end: u64) -> Self {
        Window {
            file,
            end,
            at: 0,
            bytes: Vec::new(),
        }
    }

    /// The bytes from `at`: enough of them for the name of an entry, or all up to the end.
    fn fields(&mut self, at: u64, is_big_endian: bool) -> Result<Fields<'_>> {
        let wanted = WINDOW.min(self.end.saturating_sub(at));
        let is_here = at >= self.at && at + wanted <= self.at + self.bytes.len() as u64;
        if !is_here {
            let len = (2 * WINDOW).min(self.end.saturating_sub(at));
            numbers::read_into(&mut self.bytes, self.file, at, len, "md.0")?;
            self.at = at;
        }
        let within = usize::try_from(at - self.at)?;
        Ok(Fields::new(&self.bytes[within..], is_big_endian))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Directory, Entry, Set};
    use crate::first_step::has_variable;

    fn entry(name: &str, sets: usize) -> Entry {
        let value = Set {
            value: Some(vec![0; 4]),
            ..Set::default()
        };
        Entry {
            name: name.into(),
            ty: 52,
            sets: vec![value; sets],
        }
    }

    #[test]
    fn only_the_first_step_counts() {
        let mut of = Directory::new();
        let told = |of: &Directory, name| has_variable(of.files(), name);
        assert_eq!(told(&of, "/a/x"), Ok(None));
        // Entries longer than what is read at once.
        let first: Vec<Entry> = (0..50).map(|n| entry(&format!("/v{n}"), 50 * n)).collect();
        of.step(false, &[&first[..], &[entry("/a/x", 1)]].concat(), &[]);
        of.step(false, &[entry("/later", 1)], &[]);
        for name in ["/v0", "/v49", "/a/x"] {
            assert_eq!(told(&of, name), Ok(Some(true)), "{name}");
        }
        for none in ["/later", "/x", "/v", "/v50", ""] {
            assert_eq!(told(&of, none), Ok(Some(false)), "{none}");
        }
        of.metadata.truncate(100);
        assert_eq!(told(&of, "/a/x"), Ok(None));
    }

    #[test]
    fn every_cut_and_every_changed_byte_has_an_answer() {
        let mut of = Directory::new();
        of.step(false, &[entry("x", 2), entry("y", 1)], &[]);
        let parts: [fn(&mut Directory) -> &mut Vec<u8>; 2] =
            [|of| &mut of.index, |of| &mut of.metadata];
        for part in parts {
            for at in 0..part(&mut of.clone()).len() {
                let mut cut = of.clone();
                part(&mut cut).truncate(at);
                let _any = has_variable(cut.files(), "z");
                for value in [0, 1, 0x7f, 0xff] {
                    let mut changed = of.clone();
                    part(&mut changed)[at] = value;
                    let _any = has_variable(changed.files(), "z");
                }
            }
        }
    }
}
