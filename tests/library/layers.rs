//! The dependencies and names that parts of the project may use.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Words that name log layouts.
const LAYOUTS: [&str; 9] = [
    "adios",
    "logvol",
    "log vol",
    "log_vol",
    "netcdf",
    "burst",
    "classic",
    "striped",
    "subfiling",
];

/// Parts above the layouts. Other parts read a layout, or belong to the writer, which makes logs of one.
const ABOVE: [&str; 5] = [
    "src/cli",
    "src/fs",
    "crates/catalog/src",
    "crates/view/src",
    "crates/log/src/boxes",
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// A layout is a module of `h5logfs_log` and one of `h5logfs_scan`. Code above works with any layout.
#[test]
fn nothing_above_the_log_and_the_scan_names_a_layout() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut above = Vec::new();
    for part in ABOVE {
        sources(&root.join(part), &mut above);
    }
    let (mut files, mut named) = (0, Vec::new());
    for path in above {
        files += 1;
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let line = line.to_lowercase();
            if LAYOUTS.iter().any(|layout| line.contains(layout)) {
                named.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(files > 50, "only {files} files looked at");
    assert!(named.is_empty(), "{}", named.join("\n"));
}

/// Modules of the crate `h5logfs-log`, upper ones first. The layouts and all other modules are below them.
const MODULES: [&str; 7] = [
    "scan",
    "snapshot",
    "recognition",
    "part_names",
    "tables",
    "journal",
    "filters",
];

#[test]
fn modules_of_the_log_use_only_what_is_below_them() {
    let (files, upwards) = upwards("crates/log/src", &MODULES);
    assert!(files > 50, "only {files} files looked at");
    assert!(upwards.is_empty(), "{}", upwards.join("\n"));
}

/// The root of a crate names its modules. A module that uses the root uses all of them.
#[test]
fn no_module_of_the_log_uses_the_root_of_the_crate() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/log/src");
    let uses = all_uses_of(&source);
    let climbing = uses.iter().filter(|(_, used)| used.contains(""));
    let climbing: Vec<_> = climbing.map(|(module, _)| module).collect();
    assert!(uses.len() > 50, "only {} modules looked at", uses.len());
    assert!(climbing.is_empty(), "{climbing:?}");
}

/// The look-up of files uses no other module of the catalog. The catalog remembers its results.
#[test]
fn the_look_up_uses_nothing_else_of_the_catalog() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/catalog/src");
    let uses = all_uses_of(&source);
    let look_up = uses.iter().filter(|(module, _)| is_part(module, "lookup"));
    let look_up: Vec<_> = look_up.collect();
    assert!(
        look_up.len() > 3,
        "only {} modules looked at",
        look_up.len()
    );
    for (module, used) in look_up {
        let others: Vec<_> = used.iter().filter(|m| !is_part(m, "lookup")).collect();
        assert!(others.is_empty(), "{module} uses {others:?}");
    }
}

/// Layers of the VOL connector, upper ones first. Each of its modules belongs to one.
const CONNECTOR: [&str; 15] = [
    "lib",
    "class",
    "callbacks",
    "object",
    "context",
    "copies",
    "opening",
    "session",
    "log",
    "below",
    "ranks",
    "library",
    "arguments",
    "options",
    "pattern",
];

#[test]
fn layers_of_the_connector_use_only_what_is_below_them() {
    let (files, upwards) = upwards("crates/connector/src", &CONNECTOR);
    assert!(files > 40, "only {files} files looked at");
    assert!(upwards.is_empty(), "{}", upwards.join("\n"));
    let mut paths = Vec::new();
    let connector = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/connector/src");
    sources(&connector, &mut paths);
    for path in paths {
        let module = module_of(&path, &connector);
        assert!(CONNECTOR.contains(&&*module), "{module} is of no layer");
    }
}

/// The module of a crate that a file belongs to.
fn module_of(path: &Path, source: &Path) -> String {
    let inside = path.strip_prefix(source).unwrap().with_extension("");
    let module = inside.components().next().unwrap().as_os_str();
    module.to_str().unwrap().to_owned()
}

/// Number of files in a crate, and those that use a module above their own. Unlisted modules are below all.
fn upwards(source: &str, modules: &[&str]) -> (usize, Vec<String>) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut files = Vec::new();
    sources(&source, &mut files);
    let mut upwards = Vec::new();
    for path in &files {
        let module = module_of(path, &source);
        let level = modules.iter().position(|name| *name == module);
        let above = &modules[..level.unwrap_or(modules.len())];
        let text = fs::read_to_string(path).unwrap();
        let uses = |name: String| code(&text).any(|line| names(line, &name));
        let used = above.iter().filter(|above| uses(format!("crate::{above}")));
        upwards.extend(used.map(|above| format!("{} uses {above}", path.display())));
    }
    (files.len(), upwards)
}

/// The folders of sources of all crates.
fn crates() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = |dir: &str| fs::read_dir(root.join(dir)).unwrap();
    let found = entries("crates").chain(entries("crates/plugins"));
    let found = found.map(|entry| entry.unwrap().path().join("src"));
    let found = found.chain([root.join("src")]);
    found.filter(|source| source.is_dir()).collect()
}

/// Files that use each other can only be understood together. Two files may do so. A module may use its parent, and the
/// items that the parent re-exports count as the parent's.
#[test]
fn no_more_than_two_modules_use_each_other() {
    let (mut modules, mut circles) = (0, BTreeSet::new());
    for source in crates() {
        let uses = uses_of(&source);
        modules += uses.len();
        let from: BTreeMap<_, _> = uses.keys().map(|m| (m, reached(m, &uses))).collect();
        for (module, reached) in &from {
            let circle = reached.iter().filter(|m| from[m].contains(*module));
            let circle: BTreeSet<_> = circle.collect();
            if circle.len() > 2 {
                circles.insert(format!("{}: {circle:?}", source.display()));
            }
        }
    }
    assert!(modules > 400, "only {modules} modules looked at");
    assert!(circles.is_empty(), "{circles:#?}");
}

/// The other modules that each module of a crate uses, by path from the root. The root is empty.
fn uses_of(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses = all_uses_of(source);
    for (module, used) in &mut uses {
        used.retain(|used| !is_part(module, used));
    }
    uses
}

/// The items of other modules that each module of a crate uses, by their paths from the root. The root is empty.
fn all_uses_of(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    sources(source, &mut files);
    let name_of = |file: &Path| {
        let inside = file.strip_prefix(source).unwrap().with_extension("");
        let parts = inside
            .components()
            .map(|part| part.as_os_str().to_str().unwrap());
        let parts = parts.filter(|part| !["mod", "lib", "main"].contains(part));
        parts.collect::<Vec<_>>().join("::")
    };
    let names: BTreeSet<String> = files.iter().map(|file| name_of(file)).collect();
    let mut uses = BTreeMap::<_, BTreeSet<String>>::new();
    for file in &files {
        let name = name_of(file);
        let text = fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let text = code(text).collect::<Vec<_>>().join(" ");
        let used = uses.entry(name.clone()).or_default();
        for statement in text
            .split("; ")
            .filter_map(|line| line.trim().strip_prefix("use "))
        {
            let mut paths = Vec::new();
            expand("", statement, &mut paths);
            let found = paths
                .iter()
                .filter_map(|path| module_at(path, &name, &names));
            used.extend(found);
        }
    }
    uses
}

/// Whether a module is this one, or lies in it.
fn is_part(module: &str, whole: &str) -> bool {
    let rest = module.strip_prefix(whole);
    whole.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The paths of a use declaration, which may have groups in braces.
fn expand(before: &str, text: &str, paths: &mut Vec<String>) {
    let Some((path, group)) = text.split_once('{') else {
        paths.push(format!("{before}{}", text.trim()));
        return;
    };
    let before = format!("{before}{}", path.trim());
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                expand(&before, &group[begin..at], paths);
                begin = at + 1;
            }
            _ => {}
        }
    }
}

/// The module at a path seen from another module; `None` for another crate.
fn module_at(path: &str, from: &str, names: &BTreeSet<String>) -> Option<String> {
    let mut at: Vec<&str> = from.split("::").filter(|part| !part.is_empty()).collect();
    // A path without a prefix begins with a part of the module.
    let mut least = at.len() + 1;
    for part in path.split("::").map(str::trim) {
        match part {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            "self" => {}
            part => {
                at.push(part);
                continue;
            }
        }
        least = 0;
    }
    let mut wholes = (least..=at.len()).rev().map(|len| at[..len].join("::"));
    wholes.find(|module| names.contains(module))
}

/// All modules that a module uses, directly or not.
fn reached(module: &str, uses: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![module]);
    while let Some(module) = next.pop() {
        next.extend(
            uses[module]
                .iter()
                .filter(|used| reached.insert(String::clone(used)))
                .map(String::as_str),
        );
    }
    reached
}

/// The lines of a source without comments, which may point upwards.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines();
    lines.filter(|line| !line.trim_start().starts_with("//"))
}

/// Whether a line contains a whole name.
fn names(line: &str, name: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    line.split(name).skip(1).any(|rest| !goes_on(rest))
}

/// The plug-ins that libhdf5 loads into programs.
const PLUGINS: [&str; 3] = [
    "h5logfs-plugin-driver",
    "h5logfs-plugin-connector",
    "h5logfs-plugin-connector-mpi",
];

/// Types with many parts, and the number of files that may hold their own methods. All other methods belong to structs
/// over them.
const IN_FEW_FILES: [(&str, &str, usize); 2] = [
    ("crates/view/src", "impl View {", 1),
    ("crates/connector/src", "impl WrittenLog {", 3),
];

#[test]
fn the_methods_of_a_large_type_stand_in_few_files() {
    for (part, begin, most) in IN_FEW_FILES {
        let mut files = Vec::new();
        sources(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(part),
            &mut files,
        );
        let has = |path: &PathBuf| fs::read_to_string(path).unwrap().contains(begin);
        files.retain(has);
        let found = files.len();
        assert!((1..=most).contains(&found), "{begin} in {files:?}");
    }
}

/// Macros that write to a program's standard output or error.
const PRINTING: [&str; 4] = ["print!(", "println!(", "dbg!(", "stderr()"];

/// The only exceptions: libhdf5 starts with invalid options, and has no error stack yet; and a call succeeds, but the user has to
/// know of the log of a killed job that it has kept.
const MAY_PRINT: [&str; 2] = [
    "connector/src/below/misspelt.rs",
    "connector/src/opening/kept_log.rs",
];

/// Standard error belongs to the program. Errors go to the error stack of its libhdf5.
#[test]
fn plug_ins_print_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let all = BTreeSet::from(PLUGINS.map(str::to_owned));
    let made_of = all.iter().flat_map(|plugin| needed_by(plugin));
    let crates: BTreeSet<String> = made_of.chain(all.clone()).collect();
    let (mut files, mut printing) = (Vec::new(), Vec::new());
    for name in crates
        .iter()
        .filter_map(|name| name.strip_prefix("h5logfs-"))
    {
        sources(
            &root.join(name.replace("plugin-", "plugins/")).join("src"),
            &mut files,
        );
    }
    for path in files
        .iter()
        .filter(|path| !MAY_PRINT.iter().any(|file| path.ends_with(file)))
    {
        let text = fs::read_to_string(path).unwrap();
        let tested = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let prints = code(tested).filter(|line| PRINTING.iter().any(|word| line.contains(word)));
        printing.extend(prints.map(|line| format!("{}: {line}", path.display())));
    }
    assert!(files.len() > 150, "only {} files looked at", files.len());
    assert!(printing.is_empty(), "{}", printing.join("\n"));
}

/// The crates of this project, and the others that each may use.
const CRATES: [(&str, &[&str]); 22] = [
    ("h5logfs-common", &[]),
    ("h5logfs-adios", &["h5logfs-common"]),
    ("h5logfs-hdf5-format", &["h5logfs-common"]),
    (
        "h5logfs-log",
        &["h5logfs-common", "h5logfs-adios", "h5logfs-hdf5-format"],
    ),
    (
        "h5logfs-objects",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
        ],
    ),
    (
        "h5logfs-view",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
        ],
    ),
    (
        "h5logfs-catalog",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-view",
        ],
    ),
    (
        "h5logfs-arrays",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-view",
            "h5logfs-catalog",
        ],
    ),
    (
        "h5logfs-scan",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-objects",
        ],
    ),
    ("h5logfs-host", &["h5logfs-common"]),
    (
        "h5logfs-driver",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-view",
            "h5logfs-catalog",
            "h5logfs-host",
        ],
    ),
    (
        "h5logfs-connector",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-objects",
            "h5logfs-view",
            "h5logfs-catalog",
            "h5logfs-output",
            "h5logfs-driver",
            "h5logfs-host",
        ],
    ),
    ("h5logfs-vol-api", &["h5logfs-common", "h5logfs-host"]),
    (
        "h5logfs-plugin-driver",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-view",
            "h5logfs-catalog",
            "h5logfs-driver",
            "h5logfs-host",
        ],
    ),
    (
        "h5logfs-plugin-connector",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-objects",
            "h5logfs-view",
            "h5logfs-catalog",
            "h5logfs-output",
            "h5logfs-driver",
            "h5logfs-host",
            "h5logfs-connector",
        ],
    ),
    (
        "h5logfs-plugin-connector-mpi",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-objects",
            "h5logfs-view",
            "h5logfs-catalog",
            "h5logfs-output",
            "h5logfs-mpi",
            "h5logfs-driver",
            "h5logfs-host",
            "h5logfs-connector",
        ],
    ),
    (
        "h5logfs-convert",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-view",
            "h5logfs-catalog",
            "h5logfs-output",
        ],
    ),
    (
        "h5logfs-output",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-view",
        ],
    ),
    (
        "h5logfs-mpi",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-view",
            "h5logfs-output",
        ],
    ),
    (
        "h5logfs-writer",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-objects",
            "h5logfs-view",
            "h5logfs-catalog",
            "h5logfs-convert",
            "h5logfs-mpi",
            "h5logfs-output",
            "h5logfs-scan",
        ],
    ),
    (
        "h5logfs-python",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-view",
            "h5logfs-catalog",
            "h5logfs-arrays",
        ],
    ),
    (
        "h5logfs",
        &[
            "h5logfs-common",
            "h5logfs-adios",
            "h5logfs-hdf5-format",
            "h5logfs-log",
            "h5logfs-objects",
            "h5logfs-view",
            "h5logfs-catalog",
            "h5logfs-arrays",
            "h5logfs-scan",
            "h5logfs-convert",
            "h5logfs-output",
            "h5logfs-mpi",
            "h5logfs-writer",
            // The feature `mpi` builds this crate for the tests. h5logfs-compact-mpi needs the MPI plug-in as well.
            "h5logfs-plugin-connector-mpi",
            "h5logfs-connector",
            "h5logfs-driver",
            "h5logfs-host",
        ],
    ),
];

/// Crates that logs, views, the catalog and the plug-ins must not need: C libraries, FUSE, MPI, the command line,
/// sandboxing.
const FOREIGN: [&str; 8] = [
    "hdf5-metno",
    "hdf5-metno-sys",
    "fuser",
    "mpi",
    "mpi-sys",
    "clap",
    "seccompiler",
    "landlock",
];

/// All crates that a build of this crate needs, directly or indirectly.
fn needed_by(name: &str) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--package", name])
        .args(["--edges", "normal,build", "--all-features"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{said}");
    let lines = String::from_utf8(tree.stdout).unwrap();
    let names = lines.lines().filter_map(|line| line.split(' ').next());
    let others = names.filter(|needed| *needed != name && !needed.is_empty());
    others.map(str::to_owned).collect()
}

#[test]
fn crates_use_only_what_is_below_them() {
    for (name, may_use) in CRATES {
        let needed = needed_by(name);
        assert!(!needed.is_empty(), "{name} needs nothing");
        for (other, _) in CRATES {
            let allowed = may_use.contains(&other);
            assert!(allowed || !needed.contains(other), "{name} uses {other}");
        }
    }
}

#[test]
fn logs_views_and_plug_ins_need_no_c_library_and_no_program() {
    for name in [
        "h5logfs-common",
        "h5logfs-hdf5-format",
        "h5logfs-log",
        "h5logfs-objects",
        "h5logfs-view",
        "h5logfs-catalog",
        "h5logfs-arrays",
        "h5logfs-convert",
        "h5logfs-plugin-driver",
        "h5logfs-plugin-connector",
        "h5logfs-vol-api",
    ] {
        let needed = needed_by(name);
        let foreign = FOREIGN.iter().find(|foreign| needed.contains(**foreign));
        assert_eq!(foreign, None, "{name} needs it");
    }
    // The list must match today's crates.
    let all = needed_by("h5logfs");
    for foreign in FOREIGN {
        assert!(all.contains(foreign), "the program does without {foreign}");
    }
}
