//! Which paths an option means: `*.out.h5,run?/*.nc`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Patterns, separated by commas. `*` stands for any bytes, `?` for one. A pattern without `/` is one of the file's
/// name, another one of the whole path as the program gives it. Without a pattern nothing matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patterns(Vec<String>);

impl Patterns {
    /// All paths.
    pub fn all() -> Self {
        Patterns::parse("*")
    }

    /// What a text says. An empty one, and `none`, match nothing.
    pub fn parse(text: &str) -> Self {
        let text = if text == "none" { "" } else { text };
        let patterns = text.split(',').filter(|pattern| !pattern.is_empty());
        Patterns(patterns.map(str::to_owned).collect())
    }

    /// Whether one of them matches.
    pub fn match_path(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default();
        self.0.iter().any(|pattern| {
            let whole = pattern.contains('/');
            let text = if whole { path.as_os_str() } else { name };
            matches(pattern.as_bytes(), text.as_bytes())
        })
    }
}

/// Goes back to the last `*` only, so its time is at most the product of both lengths.
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
