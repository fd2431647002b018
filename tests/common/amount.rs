//! How much a run of the tests tries, and which random cases.
//!
//! `make test` does a third of the random cases, and the short form of what may take any time. With `H5LOGFS_TEST_ALL`,
//! which `make test-all` sets, tests do the whole. The first seed is another one each day (UTC). `H5LOGFS_TEST_SEED` sets it,
//! and `H5LOGFS_TEST_CASES` the number of cases.

use std::str::FromStr;
use std::sync::Once;
use std::time::SystemTime;

use proptest::test_runner::{Config, RngSeed};

const SEED: &str = "H5LOGFS_TEST_SEED";

/// Between the first seeds of two days, so that they have no cases in common. What a test derives from remainders of a seed
/// is another one each day, too, because this is a prime.
const SEEDS_A_DAY: u64 = 1009;

const DAY: u64 = 24 * 60 * 60;

/// A number that the environment may set.
pub fn told<T: FromStr>(variable: &str) -> Option<T> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse().ok();
    assert!(number.is_some(), "{variable}={text} is no such number");
    number
}

/// Whether tests do all they can, however long it takes.
pub fn is_whole() -> bool {
    std::env::var_os("H5LOGFS_TEST_ALL").is_some()
}

/// What a test takes for a short run, or for a whole one.
pub fn either<T>(short: T, whole: T) -> T {
    if is_whole() { whole } else { short }
}

/// The cases of a randomised test that has so many in a whole run.
pub fn cases(whole: usize) -> usize {
    told("H5LOGFS_TEST_CASES").unwrap_or(either(whole.div_ceil(3), whole))
}

/// The first seed of a randomised test. It prints how to get the same cases again.
pub fn first_seed() -> u64 {
    static PRINTED: Once = Once::new();
    let seed = told(SEED).unwrap_or_else(seed_of_today);
    PRINTED.call_once(|| eprintln!("{SEED}={seed} repeats these cases"));
    seed
}

fn seed_of_today() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    since.map_or(1, |since| since.as_secs() / DAY * SEEDS_A_DAY)
}

/// One of so many parts of things that are alike, the next one each day, or in a whole run all of them.
pub fn part<T>(all: Vec<T>, parts: usize) -> Vec<T> {
    if is_whole() {
        return all;
    }
    let today = (first_seed() / SEEDS_A_DAY) as usize % parts;
    all.into_iter().skip(today).step_by(parts).collect()
}

/// The same cases for proptest.
pub fn properties(whole: u32) -> Config {
    Config {
        cases: cases(whole as usize) as u32,
        rng_seed: RngSeed::Fixed(first_seed()),
        failure_persistence: None,
        ..Config::default()
    }
}
