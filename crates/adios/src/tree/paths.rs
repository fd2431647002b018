//! Paths of HDF5 objects from names of variables and attributes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Longest path, and longest name of an attribute, in bytes.
pub const LONGEST: usize = 1024;

/// Largest depth of groups.
const DEEPEST: usize = 64;

/// The path for a name, from the root and without a leading `/`. Empty segments and `.` are dropped; a long path is
/// cut.
pub fn of_name(name: &str) -> Cow<'_, str> {
    let plain = name.strip_prefix('/').unwrap_or(name);
    if is_path(plain) {
        return Cow::Borrowed(plain);
    }
    let mut path = String::new();
    for segment in segments(name).take(DEEPEST) {
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(segment);
        if path.len() > LONGEST {
            break;
        }
    }
    path.truncate(cut(&path).len());
    // HDF5 ends a name at a zero byte.
    let path = path.replace('\0', "\u{fffd}");
    let cut = path.strip_suffix("/.").unwrap_or(&path);
    Cow::Owned(cut.trim_end_matches('/').to_owned())
}

/// The path for the name of a variable or of an attribute of the root: that of [`of_name`], or the words for a name that has no
/// segments. Such a name has slashes and dots alone.
pub fn of_any_name(name: &str) -> Cow<'_, str> {
    let path = of_name(name);
    if !path.is_empty() {
        return path;
    }
    if name.is_empty() {
        return Cow::Borrowed("_empty");
    }
    let word = |c| if c == '/' { "_slash" } else { "_dot" };
    // The shortest word has four bytes.
    let words: String = name.chars().take(LONGEST / 4).map(word).collect();
    Cow::Owned(cut(&words).to_owned())
}

/// Whether a name is its own path.
fn is_path(name: &str) -> bool {
    let is_kept = name.len() <= LONGEST && !name.contains('\0');
    let mut levels = 0;
    is_kept
        && name.split('/').all(|segment| {
            levels += 1;
            !segment.is_empty() && segment != "." && levels <= DEEPEST
        })
}

/// The text, cut to the longest length.
pub fn cut(text: &str) -> &str {
    let end = text.len().min(LONGEST);
    let end = (0..=end).rev().find(|end| text.is_char_boundary(*end));
    end.map_or("", |end| &text[..end])
}

/// The parts of a name between slashes.
pub fn segments(name: &str) -> impl DoubleEndedIterator<Item = &str> {
    let parts = name.split('/');
    parts.filter(|part| !part.is_empty() && *part != ".")
}

/// The group of an object, and the object's name there.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The path of `name` below `parent`, which may be the root.
pub fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() {
        return name.to_owned();
    }
    format!("{parent}/{name}")
}

/// The rest of a path whose first segment is `first`.
pub fn below<'p>(path: &'p str, first: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(first)?;
    match rest {
        "" => Some(rest),
        rest => rest.strip_prefix('/'),
    }
}

/// Makes names unique.
#[derive(Default)]
pub struct Unique {
    taken: HashSet<String>,
    /// The next number to try for each wanted name.
    next: HashMap<String, u64>,
}

impl Unique {
    /// The wanted name if it is free, otherwise with a number appended.
    pub fn name(&mut self, wanted: &str, is_free: impl Fn(&str) -> bool) -> String {
        if is_free(wanted) && self.taken.insert(wanted.to_owned()) {
            return wanted.to_owned();
        }
        let next = self.next.entry(wanted.to_owned()).or_insert(2);
        loop {
            let name = format!("{wanted}_{next}");
            *next += 1;
            if is_free(&name) && self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_segments_and_dots_are_dropped() {
        for (name, path) in [
            ("/a//b/./c/", "a/b/c"),
            ("./rel", "rel"),
            ("//", ""),
            ("a/../b", "a/../b"),
            ("a b\n", "a b\n"),
            ("n\0l", "n\u{fffd}l"),
            ("/./", ""),
            ("", ""),
        ] {
            assert_eq!(of_name(name), path);
        }
    }

    #[test]
    fn names_without_segments_are_told_in_words() {
        for (name, path) in [
            ("", "_empty"),
            ("/", "_slash"),
            ("//", "_slash_slash"),
            (".", "_dot"),
            ("./", "_dot_slash"),
            ("/x", "x"),
        ] {
            assert_eq!(of_any_name(name), path);
        }
        for long in ["/".repeat(1 << 20), "/.".repeat(1 << 20)] {
            let path = of_any_name(&long);
            assert!(path.len() <= LONGEST && path.starts_with("_slash_"));
        }
    }

    #[test]
    fn very_long_and_very_deep_names_are_cut() {
        assert_eq!(of_name(&"a/".repeat(1 << 20)).len(), 2 * DEEPEST - 1);
        let long = "é".repeat(LONGEST);
        assert_eq!(of_name(&long), "é".repeat(LONGEST / 2));
        assert!(of_name(&format!("{}/b", "a".repeat(LONGEST - 1))).ends_with('a'));
    }

    #[test]
    fn names_are_given_once() {
        let mut unique = Unique::default();
        let mut given = |wanted: &str| unique.name(wanted, |name| name != "a_3");
        assert_eq!(
            ["a", "a_2", "a", "a"].map(&mut given),
            ["a", "a_2", "a_4", "a_5"]
        );
    }
}
