//! All cases of `common/cases.rs`, read in all ways: each must equal what its program meant.
//!
//! `docs/compatibility.md` is what comes of it. `make test` reads a part of the cases, another one each day, and takes
//! the rest from the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::common::amount::part;
use crate::common::cases::{Case, Cases, Outcomes, Reader, Way};
use crate::common::readers::{
    Python, check_all, corpus, corpus_beside, netcdf_reads, project, reads_the_rest, whole_corpus,
};

const WRITE: &str = "H5LOGFS_TEST_WRITE_TABLE";

/// What fails: paths of cases, by way.
type Failures = BTreeMap<Way, BTreeSet<String>>;

// --- the page ------------------------------------------------------------------------------------

const BEGIN: &str = "\
# Which logs read in which way

A test writes this page. It reads real logs of each layout in each way that h5logfs has, and compares objects, types, shapes,
attributes and every element with what the writing program meant. `make test` reads a part of them each day, `make test-all` all.
A way may only get better: the test fails if a log that was read no longer is.

A log with an operator of ADIOS2 and \"all types\" has float, double, int32, int64 and both complex types in one to five dimensions.

A number says how many of the logs read as meant. The logs that do not are below the table. Damaged logs, and what no way can
read, are in [limits.md](limits.md).

";

fn page(cases: &[Case], failures: &Failures) -> String {
    let names = Way::ALL.map(Way::name).join(" | ");
    let mut page = format!("{BEGIN}| layout | encoding | logs | {names} |\n");
    page += &format!("|---|---|{}\n", "---|".repeat(1 + Way::ALL.len()));
    let mut rows: BTreeMap<(&str, &str), Vec<&Case>> = BTreeMap::new();
    for case in cases {
        rows.entry((case.layout, &case.encoding))
            .or_default()
            .push(case);
    }
    for ((layout, encoding), cases) in rows {
        page += &format!("| {layout} | {encoding} | {} |", cases.len());
        for way in Way::ALL {
            let good = cases
                .iter()
                .filter(|case| !fails(failures, way, &case.path));
            page += &format!(" {} |", good.count());
        }
        page += "\n";
    }
    for (way, paths) in failures {
        for path in paths {
            page += &format!("{}* {}: {path}\n", separator(&page), way.name());
        }
    }
    page
}

/// An empty line between the table and the list.
fn separator(page: &str) -> &'static str {
    if page.ends_with("|\n") { "\n" } else { "" }
}

fn fails(failures: &Failures, way: Way, path: &str) -> bool {
    failures.get(&way).is_some_and(|paths| paths.contains(path))
}

/// The list below the table.
fn failures_of(page: &str) -> Failures {
    let mut failures = Failures::new();
    for line in page.lines() {
        let named = line
            .strip_prefix("* ")
            .and_then(|line| line.rsplit_once(": "));
        let Some((name, path)) = named else { continue };
        let way = Way::ALL.into_iter().find(|way| way.name() == name);
        let way = way.unwrap_or_else(|| panic!("{name} is no way to read"));
        failures.entry(way).or_default().insert(path.to_owned());
    }
    failures
}

// --- the tests -----------------------------------------------------------------------------------

/// Reads cases in all ways that the machine has.
fn read_all(cases: &Cases, some: &[Case]) -> BTreeMap<Way, Outcomes> {
    let outcomes = Mutex::new(BTreeMap::new());
    check_all(Way::ALL.to_vec(), |way| {
        match cases.read(way, some) {
            Some(found) => drop(outcomes.lock().unwrap().insert(way, found)),
            None => eprintln!("left out: {}", way.name()),
        }
        Ok(())
    });
    outcomes.into_inner().unwrap()
}

#[test]
fn each_log_reads_in_each_way_as_the_page_says() {
    // It makes some of the cases.
    if Python::new().is_none() {
        return;
    }
    let cases = Cases::all();
    let outcomes = read_all(&cases, &part(cases.all.clone(), 3));
    let path = project().join("docs/compatibility.md");
    let told = fs::read_to_string(&path).unwrap_or_default();
    let known = failures_of(&told);
    let mut now = known.clone();
    let mut worse = Vec::new();
    for (way, outcomes) in &outcomes {
        let failing = now.entry(*way).or_default();
        for (path, difference) in outcomes {
            if difference.is_empty() {
                failing.remove(path);
            } else if failing.insert(path.clone()) {
                worse.push(format!("{}, {path}: {difference}", way.name()));
            }
        }
    }
    now.retain(|_, paths| {
        paths.retain(|path| cases.all.iter().any(|case| case.path == *path));
        !paths.is_empty()
    });
    // The first page has none before it.
    let is_as_good = worse.is_empty() || told.is_empty();
    assert!(is_as_good, "these have got worse:\n{}", worse.join("\n"));
    let page = page(&cases.all, &now);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, page).unwrap();
    } else {
        let how =
            format!("{WRITE}=1 cargo test --features mpi --test clients table writes it anew");
        assert!(
            page == told,
            "{} is another one; {how}:\n{page}",
            path.display()
        );
    }
}

/// Logs that are too large for the project, if they lie beside it.
#[test]
fn the_whole_corpus_reads_as_expected() {
    let Some(whole) = whole_corpus() else { return };
    let mut cases = Cases::of_log_vol(&whole);
    let is_large = |case: &Case| !corpus().join(case.path.replace("logvol/", "")).exists();
    cases.all.retain(is_large);
    assert!(!cases.all.is_empty());
    reads_as_expected(&cases);
}

fn reads_as_expected(cases: &Cases) {
    let outcomes = read_all(cases, &part(cases.all.clone(), 3));
    for (way, outcomes) in outcomes {
        for (path, difference) in outcomes {
            assert_eq!(difference, "", "{}, {path}", way.name());
        }
    }
}

/// Each mode, type and number of dimensions of zfp in one array, if the corpus lies beside the project.
#[test]
fn the_whole_corpus_of_zfp_reads_as_expected() {
    let Some(whole) = corpus_beside("adios-zfp") else {
        return;
    };
    let cases = Cases::of_arrays(&whole, "/data/0/meshes/v/x");
    reads_as_expected(&cases);
}

fn reader(way: Way) -> Option<(Reader, PathBuf)> {
    let reader = Reader::new(way, &corpus(), "")?;
    let dir = reader.dir.clone();
    Some((reader, dir))
}

/// With the plug-ins netCDF-C looks at the first bytes itself: it uses them if these are HDF5's.
#[test]
fn netcdf_readers_see_what_the_netcdf_program_meant() {
    for way in [Way::Mount, Way::Driver, Way::Connector] {
        if let Some((reader, dir)) = reader(way) {
            netcdf_reads(&reader.python, &dir);
        }
    }
}

#[test]
fn what_is_lost_or_damaged_is_refused_and_the_rest_is_read() {
    for way in [Way::OldMount, Way::Driver, Way::Connector] {
        if let Some((reader, dir)) = reader(way) {
            let open = "h5py.File(path, 'r')";
            reads_the_rest(&reader.python, &dir, "import h5py", open, "OSError");
        }
    }
    // netCDF-C reads the first 4 MiB before it opens a file.
    for way in [Way::Mount, Way::Driver] {
        if let Some((reader, dir)) = reader(way) {
            let open = "netCDF4.Dataset(path).variables";
            reads_the_rest(&reader.python, &dir, "import netCDF4", open, "RuntimeError");
        }
    }
}
