//! Did you mean …? Finds the name meant by a mistyped one.

/// The name nearest to `typed`, if it is near: at most a third of the letters are wrong, missing, superfluous or swapped with
/// the next one.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (typed.chars().count() / 3).max(1);
    let distances = names
        .into_iter()
        .map(|name| (strsim::osa_distance(typed, name), name));
    let near = distances.filter(|(distance, _)| *distance <= allowed);
    near.min().map(|(_, name)| name)
}

/// The text to append to an error about `typed`; empty if no name is near.
pub fn did_you_mean<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let name = nearest(typed, names);
    name.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_suggested_if_it_is_near() {
        let names = ["mount", "inspect", "check", "cache_size", "ro"];
        for (typed, expected) in [
            ("insepct", Some("inspect")),
            ("chek", Some("check")),
            ("cachesize", Some("cache_size")),
            ("cache-sise", Some("cache_size")),
            ("mount", Some("mount")),
            ("run42", None),
            ("frobnicate", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names), expected, "{typed}");
        }
        assert_eq!(did_you_mean("chek", names), "; did you mean check?");
        assert_eq!(did_you_mean("frobnicate", names), "");
    }
}
