//! How much a test run tries, and which random cases.
//!
//! `make test` does a third of the random cases, and the short form of long tests. With `H5LOGFS_TEST_ALL`, which
//! `make test-all` sets, tests do everything. The first seed changes each day (UTC). `H5LOGFS_TEST_SEED` sets it, and
//! `H5LOGFS_TEST_CASES` the number of cases.

use std::str::FromStr;
use std::sync::Once;
use std::time::SystemTime;

use proptest::test_runner::{Config, RngSeed};

const SEED: &str = "H5LOGFS_TEST_SEED";

/// Distance of the first seeds of two days, so that they share no cases. It is prime, so remainders of a seed change
/// each day, too.
const SEEDS_A_DAY: u64 = 1009;

const DAY: u64 = 24 * 60 * 60;

/// A number from the environment.
pub fn told<T: FromStr>(variable: &str) -> Option<T> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse().ok();
    assert!(number.is_some(), "{variable}={text} is no such number");
    number
}

/// Whether tests do everything, however long it takes.
pub fn is_whole() -> bool {
    std::env::var_os("H5LOGFS_TEST_ALL").is_some()
}

/// A value for a short run, or for a whole one.
pub fn either<T>(short: T, whole: T) -> T {
    if is_whole() { whole } else { short }
}

/// The number of cases of a randomised test with `whole` cases in a whole run.
pub fn cases(whole: usize) -> usize {
    told("H5LOGFS_TEST_CASES").unwrap_or(either(whole.div_ceil(3), whole))
}

/// The first seed of a randomised test. Prints how to repeat the same cases.
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

/// One of `parts` parts of similar things, another one each day; all of them in a whole run.
pub fn part<T>(all: Vec<T>, parts: usize) -> Vec<T> {
    if is_whole() {
        return all;
    }
    let today = (first_seed() / SEEDS_A_DAY) as usize % parts;
    all.into_iter().skip(today).step_by(parts).collect()
}

/// The proptest configuration with the same number and seeds of cases.
pub fn properties(whole: u32) -> Config {
    Config {
        cases: cases(whole as usize) as u32,
        rng_seed: RngSeed::Fixed(first_seed()),
        failure_persistence: None,
        ..Config::default()
    }
}
