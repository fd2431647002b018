//! Names of members of a set, and the sets that the names in a directory may make up (sections 2.1, 4.1, 5.1, 6.1 and 9).

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::Family;

/// The ending of netCDF files.
pub(super) const ENDING: &[u8] = b".nc";
/// The most digits of a number. More would be a date with a time.
const MOST_DIGITS: usize = 9;

/// The name of a file that may be a member of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberName<'n> {
    /// The family that names its members so.
    pub family: Family,
    /// The stem: the joined name is this with [`MemberName::ending`].
    stem: &'n [u8],
    /// The number of the member.
    pub number: u32,
    /// Digits of the number in the name.
    pub digits: usize,
}

impl<'n> MemberName<'n> {
    /// Takes a name apart. The first pattern that fits counts; `None` where none does.
    pub fn parse(name: &'n OsStr) -> Option<Self> {
        let name = name.as_bytes();
        fms(name).or_else(|| {
            let front = name.strip_suffix(ENDING)?;
            let (front, number) = split_number(front)?;
            let (stem, family) = if let Some(stem) = front.strip_suffix(b".t") {
                (stem, Family::Mitgcm)
            } else if let Some(stem) = front.strip_suffix(b"_") {
                (stem, Family::Nemo)
            } else {
                (front.strip_suffix(b".")?, Family::Roms)
            };
            let has_digits = family != Family::Mitgcm || number.len() >= 3;
            (has_digits && !stem.is_empty()).then(|| of_number(family, stem, number))?
        })
    }

    /// The name of the file that the set makes up.
    pub fn joined(&self) -> OsString {
        let ending = match self.family {
            // The stem has it.
            Family::Fms => b"",
            _ => ENDING,
        };
        OsStr::from_bytes(&[self.stem, ending].concat()).to_owned()
    }
}

/// `STEM.nc.NNNN`, with 4 to 6 digits.
fn fms(name: &[u8]) -> Option<MemberName<'_>> {
    let (front, number) = split_number(name)?;
    let stem = front.strip_suffix(b".")?;
    let is_one =
        (4..=6).contains(&number.len()) && stem.len() > ENDING.len() && stem.ends_with(ENDING);
    is_one.then(|| of_number(Family::Fms, stem, number))?
}

/// A name without the digits at its end, and these.
fn split_number(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let digits = digits.count();
    (1..=MOST_DIGITS)
        .contains(&digits)
        .then(|| name.split_at(name.len() - digits))
}

fn of_number<'n>(family: Family, stem: &'n [u8], number: &[u8]) -> Option<MemberName<'n>> {
    Some(MemberName {
        family,
        stem,
        number: std::str::from_utf8(number).ok()?.parse().ok()?,
        digits: number.len(),
    })
}

/// Files that may be the members of one set. Only the content of one of them tells whether they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The family to which the names belong.
    pub family: Family,
    /// The name of the file that the set makes up.
    pub joined: OsString,
    /// The number of each member and its digits, by ascending number. There is at least one.
    members: Vec<(u32, u8)>,
}

impl Candidate {
    /// Number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no member, which never happens.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The names of the members, by ascending number.
    pub fn names(&self) -> impl Iterator<Item = OsString> {
        let members = self.members.iter();
        members.map(|(number, digits)| self.name(*number, *digits))
    }

    /// The name of the first member: of those that are there, the one with the lowest number.
    pub fn first(&self) -> OsString {
        self.names().next().unwrap_or_default()
    }

    /// Whether this is the name of a member.
    pub fn has(&self, name: &OsStr) -> bool {
        let Some(member) = MemberName::parse(name) else {
            return false;
        };
        let known = (member.number, member.digits as u8);
        let is_member = self.members.binary_search(&known).is_ok();
        is_member && member.family == self.family && member.joined() == self.joined
    }

    fn name(&self, number: u32, digits: u8) -> OsString {
        let width = usize::from(digits);
        let number = match self.family {
            Family::Fms => format!(".{number:0width$}"),
            Family::Nemo => format!("_{number:0width$}.nc"),
            Family::Roms => format!(".{number:0width$}.nc"),
            Family::Mitgcm => format!(".t{number:0width$}.nc"),
        };
        let joined = self.joined.as_bytes();
        let stem = match self.family {
            Family::Fms => joined,
            _ => joined.strip_suffix(ENDING).unwrap_or(joined),
        };
        OsStr::from_bytes(&[stem, number.as_bytes()].concat()).to_owned()
    }
}

/// Collects the names of a directory.
#[derive(Debug, Default)]
pub struct Candidates(HashMap<OsString, Collected>);

#[derive(Debug, Default)]
struct Collected {
    /// `None` before the first name.
    family: Option<Family>,
    members: Vec<(u32, u8)>,
    /// Names of two families: none of them is a set.
    is_ambiguous: bool,
}

/// Bytes of a member, and of a joined name without its text.
const EACH_MEMBER: usize = 2 * size_of::<(u32, u8)>();
const EACH_NAME: usize = size_of::<(OsString, Collected)>() + 32;

impl Candidates {
    /// Adds a name. Returns the bytes that it takes.
    pub fn add(&mut self, name: &OsStr) -> usize {
        let Some(member) = MemberName::parse(name) else {
            return 0;
        };
        let joined = member.joined();
        let bytes = if self.0.contains_key(&joined) {
            EACH_MEMBER
        } else {
            EACH_MEMBER + EACH_NAME + joined.len()
        };
        let collected = self.0.entry(joined).or_default();
        collected.is_ambiguous |= collected.family.is_some_and(|own| own != member.family);
        collected.family = Some(member.family);
        // A name has at most `MOST_DIGITS`.
        collected.members.push((member.number, member.digits as u8));
        bytes
    }

    /// The candidates, by joined name; `None` where names of two families have the same joined name.
    pub fn into_sets(self) -> HashMap<OsString, Option<Candidate>> {
        let mut sets = HashMap::new();
        for (joined, collected) in self.0 {
            if collected.is_ambiguous {
                sets.insert(joined, None);
            } else if let Some(candidate) = collected.candidate(&joined) {
                sets.insert(joined, Some(candidate));
            }
        }
        sets
    }

    /// [`Candidates::into_sets`] for one joined name among `names`; `None` where there is no candidate.
    pub fn one(joined: &OsStr, names: impl Iterator<Item = OsString>) -> Option<Option<Candidate>> {
        let mut all = Candidates::default();
        for name in names {
            if MemberName::parse(&name).is_some_and(|member| member.joined() == joined) {
                all.add(&name);
            }
        }
        all.into_sets().remove(joined)
    }
}

impl Collected {
    fn candidate(mut self, joined: &OsStr) -> Option<Candidate> {
        let family = self.family?;
        self.members.sort_unstable();
        let (first, digits) = *self.members.first()?;
        let mut others = self.members.iter().map(|(_, digits)| *digits);
        let are_equal = match family {
            // Regional files have 4 digits, and 5 from 10,000 on.
            Family::Fms if digits == 4 => others.all(|digits| matches!(digits, 4 | 5)),
            _ => others.all(|own| own == digits),
        };
        let is_alone = self.members.len() < 2;
        let may_be_one = match family {
            Family::Fms => true,
            Family::Nemo => !is_alone && (digits >= 4 || first == 0),
            Family::Roms | Family::Mitgcm => !is_alone,
        };
        (are_equal && may_be_one).then(|| Candidate {
            family,
            joined: joined.to_owned(),
            members: self.members,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str) -> Option<(Family, String, u32)> {
        let member = MemberName::parse(OsStr::new(name))?;
        Some((
            member.family,
            member.joined().into_string().unwrap(),
            member.number,
        ))
    }

    #[test]
    fn members_are_known_by_their_names() {
        let expected = [
            ("ocean_daily.nc.0007", Family::Fms, "ocean_daily.nc", 7),
            ("x.tile6.nc.000003", Family::Fms, "x.tile6.nc", 3),
            (
                "ORCA1_00000480_restart_0003.nc",
                Family::Nemo,
                "ORCA1_00000480_restart.nc",
                3,
            ),
            ("out_3.nc", Family::Nemo, "out.nc", 3),
            (
                "his.20120101120000.03.nc",
                Family::Roms,
                "his.20120101120000.nc",
                3,
            ),
            (
                "state.0000000000.t005.nc",
                Family::Mitgcm,
                "state.0000000000.nc",
                5,
            ),
            ("grid.t001.nc", Family::Mitgcm, "grid.nc", 1),
        ];
        for (name, family, joined, number) in expected {
            assert_eq!(
                parsed(name),
                Some((family, joined.to_owned(), number)),
                "{name}"
            );
        }
        for other in [
            "x.nc",
            "x.nc.007",
            "x.nc.0000007",
            ".nc.0001",
            "x.0001",
            "_0001.nc",
            ".01.nc",
            "x.t01.nc.gz",
            "a12.nc",
            "x.2012010112000000.nc",
            "0001.nc",
            "x.nc.****",
            "",
        ] {
            assert_eq!(parsed(other), None, "{other}");
        }
    }

    #[track_caller]
    fn sets(names: &[&str]) -> Vec<(String, usize)> {
        let mut all = Candidates::default();
        names.iter().for_each(|name| {
            all.add(OsStr::new(name));
        });
        let sets = all.into_sets().into_iter();
        let mut sets: Vec<_> = sets
            .map(|(joined, set)| {
                (
                    joined.into_string().unwrap(),
                    set.map_or(0, |set| set.len()),
                )
            })
            .collect();
        sets.sort();
        sets
    }

    #[test]
    fn names_of_one_stem_make_a_candidate() {
        let one = |name: &str, len| vec![(name.to_owned(), len)];
        assert_eq!(sets(&["a.nc.0003", "a.nc.0001", "b.nc"]), one("a.nc", 2));
        assert_eq!(sets(&["a.nc.0003"]), one("a.nc", 1));
        assert_eq!(sets(&["r.nc.9999", "r.nc.10000"]), one("r.nc", 2));
        assert_eq!(sets(&["a_0000.nc", "a_0001.nc"]), one("a.nc", 2));
        assert_eq!(sets(&["a_0.nc", "a_1.nc"]), one("a.nc", 2));
        // Two families.
        assert_eq!(sets(&["a.0.nc", "a.1.nc", "a.t001.nc"]), one("a.nc", 0));
        let two = ["a.nc.0000", "a_0000.nc", "a_0001.nc"];
        assert_eq!(sets(&two), one("a.nc", 0));
        // One name, numbers that do not begin with 0, and other digits.
        for none in [
            &["a_0001.nc"][..],
            &["a_1.nc", "a_2.nc"],
            &["a_9.nc", "a_10.nc"],
            &["a.nc.0000", "a.nc.000001"],
        ] {
            assert_eq!(sets(none), [], "{none:?}");
        }
        let names = ["a_0001.nc", "a_0000.nc", "b_0000.nc"].map(OsString::from);
        let found = Candidates::one(OsStr::new("a.nc"), names.into_iter());
        let found = found.unwrap().unwrap();
        assert_eq!((found.first(), found.len()), ("a_0000.nc".into(), 2));
        assert!(found.has(OsStr::new("a_0001.nc")));
        for other in ["a_0002.nc", "b_0000.nc", "a_00001.nc", "a.nc.0001"] {
            assert!(!found.has(OsStr::new(other)), "{other}");
        }
    }

    #[test]
    fn names_of_members_are_made_again() {
        for names in [
            &["r.nc.0003", "r.nc.9999", "r.nc.10000"][..],
            &["a_0000.nc", "a_0012.nc"],
            &["a.00.nc", "a.11.nc"],
            &["s.0000000000.t001.nc", "s.0000000000.t120.nc"],
        ] {
            let mut all = Candidates::default();
            names.iter().rev().for_each(|name| {
                assert!(all.add(OsStr::new(name)) > 0);
            });
            let sets: Vec<_> = all.into_sets().into_values().flatten().collect();
            assert_eq!(sets.len(), 1);
            assert!(sets[0].names().eq(names.iter().map(OsString::from)));
        }
    }
}
