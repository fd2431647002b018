//! A window moves over a dataset, and a cache of 25 chunks stands between it and the log: what the
//! HDF5 Group's pages on chunking describe. The better the cache, the fewer bytes are read.

use std::collections::HashMap;

use super::*;

const SIDE: u64 = 2000;
const CHUNK: u64 = 100;
const ELEMENT: u64 = 8;
const CHUNKS: u64 = 25;
const BYTES: u64 = CHUNK * CHUNK * ELEMENT;

/// What a window of side `window` asks for as it moves by `step`, row by row: chunks, bytes of each.
fn requests(window: u64, step: u64) -> Vec<(u64, u64)> {
    let mut starts = vec![0];
    while starts[starts.len() - 1] + window < SIDE {
        starts.push(starts[starts.len() - 1] + step);
    }
    let overlap = |start: u64, chunk: u64| {
        let end = (start + window).min(SIDE).min((chunk + 1) * CHUNK);
        end.saturating_sub(start.max(chunk * CHUNK))
    };
    let touched = |start: u64| start / CHUNK..(start + window).min(SIDE).div_ceil(CHUNK);
    let mut requests = Vec::new();
    for (y, x) in starts
        .iter()
        .flat_map(|y| starts.iter().map(move |x| (*y, *x)))
    {
        for (row, column) in touched(y).flat_map(|row| touched(x).map(move |c| (row, c))) {
            let bytes = overlap(y, row) * overlap(x, column) * ELEMENT;
            requests.push((row * (SIDE / CHUNK) + column, bytes));
        }
    }
    requests
}

/// Bytes asked ÷ bytes read from the log.
fn efficiency(requests: &[(u64, u64)], mut hit: impl FnMut(u64, u64) -> bool) -> f64 {
    let asked: u64 = requests.iter().map(|(_, bytes)| bytes).sum();
    let missed = requests.iter().filter(|(key, bytes)| !hit(*key, *bytes));
    asked as f64 / (missed.count() as u64 * BYTES) as f64
}

/// The chunk cache of libhdf5 1.14 (`H5D__chunk_cache_prune`, `H5D__chunk_lock`).
struct Hdf5 {
    /// From the head, where entries leave. An entry that is used moves one place.
    list: Vec<u64>,
    /// Bytes of each that were not yet read.
    unread: HashMap<u64, u64>,
    /// Share of the list that is searched for entries that were read completely, before any entry may go.
    w0: f64,
}

impl Hdf5 {
    fn new(w0: f64) -> Self {
        Hdf5 {
            list: Vec::new(),
            unread: HashMap::new(),
            w0,
        }
    }

    fn hit(&mut self, key: u64, bytes: u64) -> bool {
        let at = self.list.iter().position(|k| *k == key);
        match at {
            Some(at) if at + 1 < self.list.len() => self.list.swap(at, at + 1),
            Some(_) => {}
            None => {
                if self.list.len() as u64 == CHUNKS {
                    let victim = self.victim();
                    self.list.remove(victim);
                }
                self.list.push(key);
                self.unread.insert(key, BYTES);
            }
        }
        let unread = self.unread.get_mut(&key).unwrap();
        *unread = unread.saturating_sub(bytes);
        at.is_some()
    }

    /// Two pointers slide along the list, the second one some places behind the first: the first takes
    /// an entry that was read completely, the second one any. With `w0` = 1 the second never starts, and
    /// the cache of libhdf5 outgrows its limit; here the head leaves.
    fn victim(&self) -> usize {
        let lead = (self.list.len() as f64 * self.w0) as usize;
        let read = |at: &usize| self.unread[&self.list[*at]] == 0;
        // The second pointer starts when the first is at `lead`, which is looked at before.
        (0..=lead.min(self.list.len() - 1)).find(read).unwrap_or(0)
    }
}

/// The least recently used leaves.
fn recent() -> impl FnMut(u64, u64) -> bool {
    let mut list: Vec<u64> = Vec::new();
    move |key, _| {
        let at = list.iter().position(|k| *k == key);
        at.map(|at| list.remove(at));
        list.push(key);
        if list.len() as u64 > CHUNKS {
            list.remove(0);
        }
        at.is_some()
    }
}

/// In the order of the table: least recently used; HDF5 with `rdcc_w0` 0.75 and 1; ours.
fn efficiencies(window: u64, step: u64) -> [f64; 4] {
    let requests = requests(window, step);
    let hdf5 = |w0| {
        let mut cache = Hdf5::new(w0);
        efficiency(&requests, |key, bytes| cache.hit(key, bytes))
    };
    let mut ours = Policy::new(CHUNKS * weight(BYTES));
    [
        efficiency(&requests, recent()),
        hdf5(0.75),
        hdf5(1.0),
        efficiency(&requests, |key, bytes| {
            let size = BYTES;
            ask(&mut ours, key, Asked { size, bytes })
        }),
    ]
}

/// The table of docs/performance.md; `--nocapture` prints it.
#[test]
fn moving_windows_need_no_more_than_with_the_cache_of_hdf5() {
    const CACHES: [&str; 4] = [
        "least recently used",
        "HDF5, w0 = 0.75",
        "HDF5, w0 = 1",
        "ours",
    ];
    type Step = fn(u64) -> u64;
    let steps: [(&str, Step); 5] = [
        ("side", |side| side),
        ("side ÷ 2", |side| side / 2),
        ("side ÷ 4", |side| side / 4),
        ("100", |_| 100),
        ("50", |_| 50),
    ];
    // To the better of the two of HDF5; of windows whose sides are those of chunks, and of others.
    let (mut aligned, mut others) = (Vec::new(), Vec::new());
    for (name, step) in steps {
        let mut rows = CACHES.map(|cache| format!("| {name} | {cache} |"));
        for side in (100..=1000).step_by(100).chain([150, 650, 950]) {
            let found = efficiencies(side, step(side));
            let ratio = found[3] / found[1].max(found[2]);
            if side % CHUNK != 0 {
                others.push(ratio);
                continue;
            }
            aligned.push(ratio);
            for (row, efficiency) in rows.iter_mut().zip(found) {
                *row += &format!(" {efficiency:.2} |");
            }
        }
        println!("{}", rows.join("\n"));
    }
    for (ratios, least, least_mean) in [(aligned, 0.9999, 1.18), (others, 0.96, 1.05)] {
        let worst = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len() as f64).exp();
        println!("to the better of HDF5's: worst {worst:.4}, mean {mean:.3}");
        assert!(worst >= least && mean >= least_mean, "{worst} {mean}");
    }
}
