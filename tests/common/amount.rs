//! How much a test run tries, and which random cases.
//!
//! `make test` does a third of the random cases, the short form of long tests, and one variant of a test that has
//! several. With `H5LOGFS_TEST_ALL`, which `make test-all` sets, tests do everything. The first seed and the variants
//! change each day (UTC). `H5LOGFS_TEST_SEED` sets the seed and the day's variants, `H5LOGFS_TEST_VARIANT` the number
//! of the variant, and `H5LOGFS_TEST_CASES` the number of cases.

use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Once;
use std::time::SystemTime;

use proptest::test_runner::{Config, RngSeed};

const SEED: &str = "H5LOGFS_TEST_SEED";
const VARIANT: &str = "H5LOGFS_TEST_VARIANT";

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
    all.into_iter()
        .skip(today() % parts)
        .step_by(parts)
        .collect()
}

/// The number of the day, or of the day that has the seed of this run.
fn today() -> usize {
    (first_seed() / SEEDS_A_DAY) as usize
}

/// Runs a test in one of its variants, another one each day, or in all of them in a whole run. Prints how to repeat
/// each.
pub fn each_variant<T: Debug>(variants: &[T], mut run: impl FnMut(&T)) {
    let only = told(VARIANT).or_else(|| (!is_whole()).then(today));
    for (number, variant) in variants.iter().enumerate() {
        if only.is_none_or(|only: usize| only % variants.len() == number) {
            eprintln!("{VARIANT}={number} repeats the variant {variant:?}");
            run(variant);
        }
    }
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
