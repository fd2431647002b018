//! Generates Log VOL files of any size and with all kinds of selections, without MPI and without holding
//! them in memory. The same seed gives the same bytes, but for the times that libhdf5 stores. It follows
//! `docs/formats`; [`h5logfs_output::entry`] encodes the entries.

pub mod blocks;
pub mod section;
mod skeleton;
pub mod values;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Result;

pub use blocks::Blocks;
pub use section::{Entry, Section, Spelling, Stored};
pub use values::{Element, Pattern, Values};

use section::{Lengths, Places};

/// The level of deflate that most programs use.
const LEVEL: u32 = 4;

/// A user's dataset.
#[derive(Debug, Clone)]
pub struct Dataset {
    pub name: String,
    pub id: u32,
    pub element: Element,
    pub dims: Vec<u64>,
    /// The first dimension is unlimited.
    pub unlimited: bool,
    pub pattern: Pattern,
    /// The recorded chunk shape.
    pub chunk: Option<Vec<u64>>,
    /// Shuffle and deflate are recorded; needs a chunk shape.
    pub filtered: bool,
}

impl Dataset {
    pub fn new(name: &str, id: u32, element: Element, dims: &[u64]) -> Self {
        Dataset {
            name: name.to_owned(),
            id,
            element,
            dims: dims.to_vec(),
            unlimited: false,
            pattern: Pattern::Noise,
            chunk: None,
            filtered: false,
        }
    }

    pub fn chunked(mut self, chunk: &[u64]) -> Self {
        self.chunk = Some(chunk.to_vec());
        self
    }

    /// Smooth, shuffled, deflated.
    pub fn filtered(mut self, chunk: &[u64]) -> Self {
        self.pattern = Pattern::Smooth;
        self.filtered = true;
        self.chunked(chunk)
    }

    pub fn unlimited(mut self) -> Self {
        self.unlimited = true;
        self
    }

    pub fn values(&self, seed: u64) -> Values {
        Values::new(self.pattern, seed, self.id)
    }

    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }
}

/// The writes of a program.
pub trait Plan: Sync {
    /// Their IDs are 0, 1, 2, ….
    fn datasets(&self) -> Vec<Dataset>;

    /// The number of processes. Each has its own section.
    fn ranks(&self) -> u64;

    /// Makes all writes of one process. Each call must make the same writes.
    fn write(&self, rank: u64, section: &mut Section<'_>) -> Result<()>;
}

/// The size of a log.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    pub entries: u64,
    pub blocks: u64,
    pub data: u64,
    pub metadata: u64,
}

/// Writes the log of a plan. Overwrites an existing file.
pub fn write_log(path: &Path, plan: &dyn Plan, seed: u64) -> Result<Written> {
    let lengths: Vec<Lengths> = (0..plan.ranks())
        .map(|rank| {
            let mut section = Section::new(seed, None);
            plan.write(rank, &mut section)?;
            section.finish()
        })
        .collect::<Result<_>>()?;
    let flushes = lengths.iter().map(|l| l.data.len()).max().unwrap_or(0);
    let flush = |number: usize| lengths.iter().filter_map(move |l| l.data.get(number));
    let data: Vec<u64> = (0..flushes).map(|f| flush(f).sum()).collect();
    let head = 8 * (lengths.len() as u64 + 1);
    let metadata = head + lengths.iter().map(|l| l.metadata).sum::<u64>();
    let logs = skeleton::make(path, &plan.datasets(), &data, metadata)?;

    let file = OpenOptions::new().write(true).open(path)?;
    let mut table = (lengths.len() as u64).to_le_bytes().to_vec();
    let (mut data_at, mut end) = (logs.data, head);
    for (rank, length) in (0..).zip(&lengths) {
        let places = Places {
            file: &file,
            data: data_at.clone(),
            metadata: logs.metadata + end,
        };
        let mut section = Section::new(seed, Some(places));
        plan.write(rank, &mut section)?;
        anyhow::ensure!(section.finish()? == *length, "a plan that changes");
        for (at, len) in data_at.iter_mut().zip(&length.data) {
            *at += len;
        }
        end += length.metadata;
        table.extend(end.to_le_bytes());
    }
    file.write_all_at(&table, logs.metadata)?;
    Ok(Written {
        entries: lengths.iter().map(|l| l.entries).sum(),
        blocks: lengths.iter().map(|l| l.blocks).sum(),
        data: data.iter().sum(),
        metadata,
    })
}
