//! Moves windows of several sizes over a dataset, with a cache for 25 of its 400 chunks. Compares the
//! bytes read from the log with the bytes of the windows. Uses the library in this process, so that the
//! kernel caches nothing.

use std::path::Path;

use anyhow::{Result, ensure};

use h5logfs_catalog::Catalog;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_scan::InProcess;
use h5logfs_view::ChunkId;
use h5logfs_view::View;
use h5logfs_view::cache::MemoryLimits;

use crate::bench::Bench;
use crate::generate::{Blocks, Dataset, Element, Entry, Plan, Section};
use crate::report::{Outcome, Row, Unit};

const SIDE: u64 = 2000;
const CHUNK: u64 = 100;
const CACHED: u64 = 25;
const ELEMENT: u64 = 8;

/// The dataset, in records of `height` × `width` elements.
pub struct Tiles {
    dataset: Dataset,
    height: u64,
    width: u64,
}

impl Plan for Tiles {
    fn datasets(&self) -> Vec<Dataset> {
        vec![self.dataset.clone()]
    }

    fn ranks(&self) -> u64 {
        1
    }

    fn write(&self, _rank: u64, section: &mut Section<'_>) -> Result<()> {
        for first in (0..SIDE).step_by(self.height as usize) {
            for left in (0..SIDE).step_by(self.width as usize) {
                let blocks = Blocks::one(&[first, left], &[self.height, self.width]);
                section.write(&Entry::new(&self.dataset, &blocks))?;
            }
        }
        Ok(())
    }
}

fn plan(height: u64, width: u64) -> Tiles {
    let dataset = Dataset::new("field", 0, Element::F64, &[SIDE, SIDE]);
    Tiles {
        dataset: dataset.chunked(&[CHUNK, CHUNK]),
        height,
        width,
    }
}

/// Records that are chunks.
pub fn in_chunks() -> Tiles {
    plan(CHUNK, CHUNK)
}

/// Two records for each chunk, so that chunks are assembled and cached.
fn in_halves() -> Tiles {
    plan(CHUNK / 2, CHUNK)
}

/// Records of ten rows.
pub fn in_rows() -> Tiles {
    plan(10, SIDE)
}

pub fn moved(bench: &Bench, out: &mut Outcome) -> Result<()> {
    for (how, plan) in [
        ("records are halves of chunks", in_halves()),
        ("records are chunks", in_chunks()),
        ("records are rows", in_rows()),
    ] {
        let prepared = bench.generate("window", &plan)?;
        for window in [50, 100, 200, 300, 400, 500, 700, 1000] {
            let efficiency = move_over(&prepared.log(), &plan.dataset, window, bench.size.seed)?;
            let what = format!("{how}, window {window}×{window}");
            out.row(Row::new(what, "library", Unit::Number, &[efficiency]));
        }
    }
    out.contents(&[]);
    out.note(
        "Bytes asked for ÷ bytes read from the log. A window moves by half of itself, row by row of \
         windows; each chunk that it touches is read whole, as libhdf5 does. Of records that are chunks the \
         cache keeps nothing: they are read where they lie. Of rows, what lies between two pieces of a \
         chunk is read along.",
    );
    Ok(())
}

/// The first element of each chunk is compared with the generated value.
fn move_over(log: &Path, dataset: &Dataset, window: u64, seed: u64) -> Result<f64> {
    let (dir, name) = SourceDir::of_file(log)?;
    // A chunk takes a little more memory than its bytes.
    let memory = MemoryLimits {
        cache_size: CACHED * (CHUNK * CHUNK * ELEMENT + 256),
        index_memory: 64 << 20,
    };
    let view = Catalog::new(dir, memory, InProcess::default()).open(&name)?;
    let mut chunk = vec![0; (CHUNK * CHUNK * ELEMENT) as usize];
    // Read the index before the measurement.
    read_chunk(&view, 0, &mut chunk)?;
    let before = view.log_bytes_read();
    let mut asked = 0;
    let steps = |from: u64| (from..=SIDE - window).step_by((window / 2) as usize);
    for top in steps(0) {
        for left in steps(0) {
            asked += window * window * ELEMENT;
            for (row, column) in touched(top, left, window) {
                read_chunk(&view, row * (SIDE / CHUNK) + column, &mut chunk)?;
                let corner = row * CHUNK * SIDE + column * CHUNK;
                let expected = f64::from(dataset.values(seed).at(corner));
                ensure!(
                    chunk.first_chunk() == Some(&expected.to_le_bytes()),
                    "chunk ({row}, {column}) is not what was generated"
                );
            }
        }
    }
    Ok(asked as f64 / (view.log_bytes_read() - before) as f64)
}

/// The chunks below a window, by row and column of the grid.
fn touched(top: u64, left: u64, window: u64) -> impl Iterator<Item = (u64, u64)> {
    let along = move |first: u64| first / CHUNK..=(first + window - 1) / CHUNK;
    along(top).flat_map(move |row| along(left).map(move |column| (row, column)))
}

fn read_chunk(view: &View, chunk: u64, bytes: &mut [u8]) -> Result<()> {
    let (offset, stored) = view.inspection().chunk_place(ChunkId::new(0, chunk))?;
    ensure!(stored == bytes.len() as u64, "a chunk of {stored} bytes");
    view.read_at(offset, bytes)?;
    Ok(())
}
