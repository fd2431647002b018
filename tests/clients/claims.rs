//! Files that claim more than they have: extents, chunks, counts and lengths of any size. Every reader gets an answer
//! or an error soon, in bounded memory: work does not depend on mere claims.

use crate::common::amount::{is_whole, part};
use crate::common::damaged::Log;
use crate::common::encoder::filter::Filter;
use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::slow::SlowLog;
use crate::common::unclosed;
use crate::everybody::{Everybody, Loaded};

/// An ordinary side plus 2^46, as a flipped bit makes it.
const HUGE: u64 = (1 << 46) + 6;

// --- files ---------------------------------------------------------------------------------------

/// Logs that are sound except for their claims.
fn made() -> Vec<Log> {
    let u8s = |name: &str, id, dims: &[u64]| Dataset::new(name, id, Type::U8, dims);
    let small = Entry::one(0, &[0, 0, 2, 0], &[1, 1, 1, 10], (0..10).collect());
    let log = |name: &str, datasets: Vec<Dataset>, entries: Vec<Entry>| {
        let dir = tempfile::tempdir().unwrap();
        LogFile::with(datasets, entries).write(&dir.path().join("log.h5"));
        Log::of_dir(name, dir.path(), "log.h5")
    };
    let sides = [4, 3, HUGE, 10];
    let flat = |id| u8s(&format!("d{id}"), id, &[HUGE]);
    let claiming = |count: u64| Entry::one(0, &[0, 0, 0, 0], &[1, 1, count, 10], Vec::new());
    vec![
        log("extent", vec![u8s("d", 0, &sides)], vec![small.clone()]),
        log(
            "chunks of one element",
            vec![u8s("d", 0, &sides).chunked(&[1, 1, 1, 1])],
            vec![small.clone()],
        ),
        log(
            "filters",
            vec![u8s("d", 0, &sides).filtered(&[Filter::deflate(1)])],
            vec![small.clone()],
        ),
        log(
            "many datasets",
            (0..300).map(flat).collect(),
            vec![Entry::one(7, &[HUGE - 2], &[2], vec![1, 2])],
        ),
        log(
            "an entry of more than the log has",
            vec![u8s("d", 0, &sides)],
            vec![small.clone(), claiming(HUGE / 2).claiming(2048, 1 << 40)],
        ),
        log(
            "a stream of more than it can hold",
            vec![u8s("d", 0, &sides).chunked(&[1, 1, 1, 10])],
            vec![claiming(HUGE / 2).claiming(2048, 100), small],
        ),
        of_a_job("a job", "[4,3,70368744177670,10]", None),
        of_a_job(
            "a job with chunks",
            "[4,3,70368744177670,10]",
            Some("[1,1,1,1]"),
        ),
    ]
}

/// Each entry lists the same elements again and again.
fn slow() -> Log {
    let dir = tempfile::tempdir().unwrap();
    let log = SlowLog {
        chunks: 1,
        rows: 4096,
        columns: 1024,
        repeated: 1000,
    };
    log.write(&dir.path().join("log.h5"));
    Log::of_dir(
        "elements that are listed a thousand times",
        dir.path(),
        "log.h5",
    )
}

/// An unclosed log.
fn of_a_job(name: &str, dims: &str, chunk: Option<&str>) -> Log {
    let dir = tempfile::tempdir().unwrap();
    let chunk = chunk.map_or(String::new(), |chunk| format!(r#","chunk":{chunk}"#));
    let definition = format!(
        r#"{{"path":"/d","layout":{{"datatype":{{"integer":{{"size":1,"signed":false}}}},"dims":{dims},"max_dims":{dims}{chunk}}}}}"#
    );
    let mut log = unclosed::Log::of_datasets(&dir.path().join("log.h5"), &[definition]);
    let block = unclosed::Block {
        dataset: 0,
        start: vec![1, 1, HUGE - 1, 0],
        count: vec![1, 1, 1, 10],
        values: (0..10).collect(),
    };
    log.extent_of(0, &[block]);
    log.commit();
    Log::of_dir(name, dir.path(), "log.h5")
}

/// Counts from `whole.py`.
fn counted(answer: &str) -> Vec<u64> {
    let words = answer.split([' ', ',']);
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn what_a_log_claims_is_not_counted() {
    let Some(loaded) = Loaded::new() else { return };
    let mut everybody = Everybody::new(&loaded);
    // The work takes seconds of processor time each way until its bound.
    let slow = is_whole().then(slow);
    for (number, log) in part(made(), 2).iter().chain(&slow).enumerate() {
        let answers = everybody.read(log, number);
        eprintln!("{}: {answers:?}", log.name);
        if log.name == "extent" {
            // Only the written chunk.
            let counts = answers
                .iter()
                .filter(|(way, _)| ["driver", "connector", "package"].contains(way));
            for (way, answer) in counts {
                assert_eq!(counted(answer), [2, 0, 1], "{way}: {answer}");
            }
        }
    }
    everybody.found.check();
}
