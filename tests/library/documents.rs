//! Links between documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The documents, except those made by a build or another project.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        "",
        "docs",
        "docs/decisions",
        "docs/start",
        "docs/formats",
        "docs/reports",
        "benches",
        "crates/python/src",
        "src",
        "tests",
        "findings",
    ];
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let crates = crates.map(|folder| folder.unwrap().path());
    let files = folders
        .iter()
        .map(|folder| root.join(folder))
        .chain(crates)
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|file| file.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect()
}

/// The text without code blocks, in which `#` begins no heading and brackets are no link.
fn prose(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// The anchors of headings, as GitHub and mdBook make them.
fn anchors(path: &Path) -> BTreeSet<String> {
    let mut times = BTreeMap::new();
    let lines = prose(path);
    let headings = lines.iter().filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let words = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = words
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
            let before = times.entry(anchor.clone()).or_insert(0);
            *before += 1;
            match *before {
                1 => anchor,
                again => format!("{anchor}-{}", again - 1),
            }
        })
        .collect()
}

/// The targets of links.
fn links(path: &Path) -> Vec<String> {
    let text = prose(path).join("\n");
    let behind = text.split("](").skip(1);
    behind
        .filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()))
        .collect()
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut dead = Vec::new();
    let mut number = 0;
    for path in documents() {
        for link in links(&path)
            .into_iter()
            .filter(|link| !link.contains("://"))
        {
            number += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let is_there =
                target.exists() && (anchor.is_empty() || anchors(&target).contains(anchor));
            if !is_there {
                dead.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(number > 200, "only {number} links looked at");
    assert_eq!(dead, Vec::<String>::new());
}

/// The site has every page.
#[test]
fn the_site_has_all_pages() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let listed: BTreeSet<PathBuf> = links(&docs.join("SUMMARY.md"))
        .iter()
        .map(|link| docs.join(link))
        .collect();
    let pages = documents()
        .into_iter()
        .filter(|path| path.starts_with(&docs));
    let pages: BTreeSet<PathBuf> = pages.filter(|path| !path.ends_with("SUMMARY.md")).collect();
    assert_eq!(listed, pages);
}

/// A row with fewer cells than the header shows less than it says.
#[test]
fn rows_of_tables_have_all_cells() {
    let mut uneven = Vec::new();
    for path in documents() {
        let mut wanted = None;
        for line in prose(&path) {
            let row = line.trim().replace("\\|", "");
            if !row.starts_with('|') {
                wanted = None;
                continue;
            }
            let cells = row.matches('|').count();
            if *wanted.get_or_insert(cells) != cells {
                uneven.push(format!("{}: {row}", path.display()));
            }
        }
    }
    assert_eq!(uneven, Vec::<String>::new());
}
