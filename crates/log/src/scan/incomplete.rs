//! The attribute of the root that tells readers which data their file lacks.
//!
//! The losses stand in an attribute and not in a file beside the log, because every reader shows it with the other
//! attributes, and copies keep it.

use h5logfs_common::diagnostic::{Diagnostic, Severity};

/// Name of the attribute. A view has it only if data of its log are known to be missing.
pub const INCOMPLETE: &str = "_h5logfs_incomplete";

/// The most losses that the text names.
const MOST: usize = 20;

/// The text of the attribute. `None` where nothing is known to be missing.
///
/// The text depends only on the files of the log, not on the path under which they were found. So a mount and an export
/// make the same file.
pub fn text(diagnostics: &[Diagnostic]) -> Option<String> {
    let lost = diagnostics.iter().filter(|d| d.severity == Severity::Lost);
    let mut losses: Vec<String> = lost.map(line).collect();
    if losses.is_empty() {
        return None;
    }
    let more = losses.len().saturating_sub(MOST);
    if more > 0 {
        losses.truncate(MOST);
        losses.push(format!("{more} more"));
    }
    Some(format!(
        "Data that were logged are missing here. They read as if they had not been written, or cannot be read.\n\
         {}\n\
         `h5logfs check` tells more when it is given the log.",
        losses.join("\n")
    ))
}

/// A loss in one line, with the name of its file but not its directory.
fn line(loss: &Diagnostic) -> String {
    let place = loss.place.as_ref().map(|place| {
        let name = place.rsplit_once('/').map_or(&**place, |(_, name)| name);
        name.to_owned()
    });
    let line = Diagnostic {
        place,
        ..loss.clone()
    };
    // The name of a file may have control characters.
    line.to_string().replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_losses_are_told() {
        let others = [Severity::Note, Severity::Inconsistent, Severity::Unreadable];
        let mut found: Vec<_> = others.map(|s| Diagnostic::new(s, "other")).into();
        assert_eq!(text(&found), None);
        found.push(Diagnostic::lost("2 entries").at("/data/a\nb.meta, rank 3"));
        found.push(Diagnostic::lost("all of them"));
        let told = text(&found).unwrap();
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 4, "{told}");
        assert_eq!(lines[1..3], ["a?b.meta, rank 3: 2 entries", "all of them"]);
    }

    #[test]
    fn very_many_losses_are_counted() {
        let lost = |n: usize| Diagnostic::lost("x".repeat(300)).at(format!("/f{n}"));
        let told = text(&(0..1000).map(lost).collect::<Vec<_>>()).unwrap();
        assert!(told.contains("\n980 more\n"), "{told}");
        assert!(told.len() < 32 << 10);
    }
}
