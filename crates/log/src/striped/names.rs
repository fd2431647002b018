//! Names of the files of a set (`docs/formats/hdf5-subfiling.md`, section 1).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::flat::MOST_MEMBERS;

/// The text between the name of the stub and the rest.
const SUBFILE: &[u8] = b".subfile_";
const CONFIG: &[u8] = b".config";
const OF: &[u8] = b"_of_";

/// A file of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The configuration.
    Config,
    /// A subfile.
    Subfile {
        /// Number of the subfile, from 0.
        number: usize,
        /// Number of subfiles.
        count: usize,
    },
}

/// The parts of the name of a subfile or configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubfileName<'a> {
    /// The name of the stub.
    pub stub: &'a OsStr,
    /// Inode number of the stub at its creation.
    pub inode: u64,
    /// The file of the set.
    pub part: Part,
}

impl<'a> SubfileName<'a> {
    /// Parses a name. `None` if it has another form.
    pub fn parse(name: &'a OsStr) -> Option<Self> {
        let bytes = name.as_bytes();
        let is_here = |at: &usize| bytes[*at..].starts_with(SUBFILE);
        let at = (1..bytes.len()).rev().find(is_here)?;
        let (stub, rest) = (&bytes[..at], &bytes[at + SUBFILE.len()..]);
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let (inode, rest) = rest.split_at(digits);
        Some(SubfileName {
            stub: OsStr::from_bytes(stub),
            inode: decimal(inode)?,
            part: if rest == CONFIG {
                Part::Config
            } else {
                subfile(rest)?
            },
        })
    }

    /// The name of a subfile.
    pub fn of_subfile(stub: &OsStr, inode: u64, number: usize, count: usize) -> OsString {
        let width = count.to_string().len();
        let rest = format!(".subfile_{inode}_{:0width$}_of_{count}", number + 1);
        OsString::from_vec([stub.as_bytes(), rest.as_bytes()].concat())
    }
}

/// Parses `_I_of_N`, with as many digits in I as in N.
fn subfile(rest: &[u8]) -> Option<Part> {
    let rest = rest.strip_prefix(b"_")?;
    let at = rest.windows(OF.len()).position(|w| w == OF)?;
    let (index, count) = (&rest[..at], &rest[at + OF.len()..]);
    let digits = count.len();
    let count = usize::try_from(decimal(count)?).ok()?;
    let is_padded = index.len() == digits && index.iter().all(u8::is_ascii_digit);
    let index: usize = std::str::from_utf8(index).ok()?.parse().ok()?;
    let is_sound = is_padded && (1..=count).contains(&index) && count <= MOST_MEMBERS;
    is_sound.then(|| Part::Subfile {
        number: index - 1,
        count,
    })
}

/// A number without leading zeros. Otherwise two names could stand for one file.
fn decimal(digits: &[u8]) -> Option<u64> {
    let is_number = match digits {
        [] => false,
        [b'0', _, ..] => false,
        digits => digits.iter().all(u8::is_ascii_digit),
    };
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    text.parse().ok()
}

/// The possible member names of a family with member 0 `first`: one pattern for each number of zeros in the name. The
/// name does not tell which of its numbers is the member number.
pub fn families(first: &OsStr) -> Vec<Family<'_>> {
    let bytes = first.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let digits = &bytes[at..];
        let len = digits.iter().take_while(|b| b.is_ascii_digit()).count();
        if len > 0 && digits[..len].iter().all(|b| *b == b'0') {
            found.push(Family {
                front: &bytes[..at],
                digits: len,
                back: &bytes[at + len..],
            });
        }
        at += len.max(1);
    }
    found
}

/// The names of a family's members.
#[derive(Debug, Clone, Copy)]
pub struct Family<'a> {
    front: &'a [u8],
    digits: usize,
    back: &'a [u8],
}

impl Family<'_> {
    /// The name of member `number`.
    pub fn member(&self, number: usize) -> OsString {
        let digits = format!("{number:0width$}", width = self.digits);
        OsString::from_vec([self.front, digits.as_bytes(), self.back].concat())
    }
}

/// The possible names of member 0 of a family with the member `name`.
pub fn first_members(name: &OsStr) -> Vec<OsString> {
    /// The most numbers in a name that are tried, from its end.
    const MOST: usize = 3;
    let bytes = name.as_bytes();
    let mut found = Vec::new();
    let mut end = bytes.len();
    for _ in 0..MOST {
        let Some(last) = bytes[..end].iter().rposition(u8::is_ascii_digit) else {
            break;
        };
        let digits = bytes[..=last].iter().rev();
        let start = last + 1 - digits.take_while(|b| b.is_ascii_digit()).count();
        let number = &bytes[start..=last];
        let zeros = |len| [&bytes[..start], &vec![b'0'; len], &bytes[last + 1..]].concat();
        if number.iter().any(|b| *b != b'0') {
            found.push(OsString::from_vec(zeros(number.len())));
            // A number with more digits than its pattern has no padding.
            if number[0] != b'0' && number.len() > 1 {
                found.push(OsString::from_vec(zeros(1)));
            }
        }
        end = start;
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(name: &str) -> Option<(&str, u64, Part)> {
        let found = SubfileName::parse(OsStr::new(name))?;
        Some((found.stub.to_str()?, found.inode, found.part))
    }

    #[test]
    fn names_are_taken_apart() {
        let subfile = |number, count| Part::Subfile { number, count };
        let expected = [
            ("a.h5.subfile_7.config", ("a.h5", 7, Part::Config)),
            ("a.h5.subfile_7_1_of_2", ("a.h5", 7, subfile(0, 2))),
            ("a.h5.subfile_7_02_of_12", ("a.h5", 7, subfile(1, 12))),
            (
                "a.subfile_1.config.subfile_2.config",
                ("a.subfile_1.config", 2, Part::Config),
            ),
        ];
        for (name, parts) in expected {
            assert_eq!(parse(name), Some(parts), "{name}");
        }
        for name in [
            "",
            "a.h5",
            ".subfile_7.config",
            "a.h5.subfile_7",
            "a.h5.subfile_07.config",
            "a.h5.subfile_.config",
            "a.h5.subfile_99999999999999999999.config",
            "a.h5.subfile_7_0_of_2",
            "a.h5.subfile_7_3_of_2",
            "a.h5.subfile_7_2_of_12",
            "a.h5.subfile_7_01_of_2",
            "a.h5.subfile_7_+1_of_12",
            "a.h5.subfile_7_1_of_2x",
            "a.h5.subfile_7_000000001_of_1000000000",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn members_of_families_are_named_after_the_first() {
        let names = |first: &'static str| {
            let families = families(OsStr::new(first)).into_iter();
            let member = |family: Family<'_>| family.member(12).into_string().unwrap();
            families.map(member).collect::<Vec<_>>()
        };
        assert_eq!(names("fam_00000.h5"), ["fam_00012.h5"]);
        assert_eq!(names("f0.h5"), ["f12.h5"]);
        assert_eq!(names("r00_10_0"), ["r12_10_0", "r00_10_12"]);
        assert!(names("a10.h5").is_empty());
        let first = |name| first_members(OsStr::new(name));
        assert!(first("fam_00012.h5").contains(&"fam_00000.h5".into()));
        assert!(first("f12.h5").contains(&"f0.h5".into()));
        assert!(first("r00_10_12").contains(&"r00_10_0".into()));
        assert!(!first("f00.h5").contains(&"f00.h5".into()));
    }

    proptest! {
        #[test]
        fn what_is_named_is_found_again(
            stub in "[a-z.0-9_]{1,12}", inode: u64, count in 1usize..2000, number: usize,
        ) {
            let number = number % count;
            let name = SubfileName::of_subfile(OsStr::new(&stub), inode, number, count);
            let found = SubfileName::parse(&name);
            let part = Part::Subfile { number, count };
            prop_assert_eq!(found, Some(SubfileName { stub: OsStr::new(&stub), inode, part }));
        }

        #[test]
        fn any_name_is_looked_at(name: Vec<u8>) {
            let name = OsStr::from_bytes(&name);
            let _ = (SubfileName::parse(name), first_members(name), families(name).len());
        }
    }
}
