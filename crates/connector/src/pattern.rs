//! Patterns for paths in options: `*.out.h5,run?/*.nc`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Patterns, separated by commas. `*` stands for any bytes, `?` for one. A pattern without `/` applies to the file's name, any
/// other to the whole path as the program gives it. Without a pattern nothing matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patterns(Vec<String>);

impl Patterns {
    /// A pattern that all paths match.
    pub fn all() -> Self {
        Patterns::parse("*")
    }

    /// Parses patterns. An empty text, and `none`, match nothing.
    pub fn parse(text: &str) -> Self {
        let text = if text == "none" { "" } else { text };
        let patterns = text.split(',').filter(|pattern| !pattern.is_empty());
        Patterns(patterns.map(str::to_owned).collect())
    }

    /// Whether a path matches one of the patterns.
    pub fn match_path(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        self.0.iter().any(|pattern| {
            let whole = pattern.contains('/');
            let text = if whole { path.as_os_str() } else { name };
            matches(pattern.as_bytes(), text.as_bytes())
        })
    }
}

/// Matches one pattern. Backtracks to the last `*` only, so the time is at most the product of both lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, taken)) = star else {
                    return false;
                };
                star = Some((at, taken + 1));
                p = at + 1;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(patterns: &str, path: &str, expected: bool) {
        let patterns = Patterns::parse(patterns);
        assert_eq!(
            patterns.match_path(Path::new(path)),
            expected,
            "{patterns:?} {path}"
        );
    }

    #[test]
    fn names_match() {
        check("*", "run/out.h5", true);
        check("*.out.h5", "run/a.out.h5", true);
        check("*.out.h5", "run/a.in.h5", false);
        check("*.out.h5", "a.out.h5.tmp", false);
        check("a*b*c", "a-b-b-c", true);
        check("a*b*c", "a-b-b", false);
        check("?.h5", "x.h5", true);
        check("?.h5", "xy.h5", false);
        check("*.nc,*.h5", "x.h5", true);
    }

    #[test]
    fn paths_match_as_they_are_given() {
        check("run?/*.nc", "run7/deep/x.nc", true);
        check("run?/*.nc", "/data/run7/x.nc", false);
        check("*/x.nc", "run7/x.nc", true);
    }

    #[test]
    fn without_a_pattern_nothing_matches() {
        for text in ["", "none", ","] {
            check(text, "none", false);
        }
    }
}
