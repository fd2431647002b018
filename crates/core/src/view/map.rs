//! The address map of the canonical file: `front | B-trees | chunks`, every address a formula.

use super::btree::Tree;
use super::grid::Grid;
use crate::filters;
use crate::snapshot::{Content, Dataset, Snapshot, Storage};

/// Alignment of the parts of the file, of the chunks of each dataset, and of every chunk that is large
/// against a page. A page cannot be read in part, so that bytes which cannot be had take all the rest
/// of their page with them: a dataset shares no page with another one.
const PAGE: u64 = 4096;
/// Alignment of everything else.
const WORD: u64 = 8;
/// Where chunks begin at the earliest if some of them cannot be had. To find out what a file is, some readers
/// take so many bytes at once, and do not open it where one of them is an error.
const FRONT_OF_LOSSES: u64 = 4 << 20;
/// The largest offset that a file system can speak of.
const LONGEST_FILE: u64 = i64::MAX as u64;

/// Where one dataset lies in the canonical file.
#[derive(Debug, Clone)]
pub struct Placement {
    pub grid: Grid,
    /// Bytes of a chunk before its filters.
    pub raw: u64,
    /// Bytes of a chunk after them, as we make it.
    pub stored: u64,
    /// Bytes from one chunk to the next; a chunk's stored bytes are at its front.
    pub slot: u64,
    /// The chunk index and where it starts; a contiguous dataset has none.
    pub tree: Option<(Tree, u64)>,
    /// Where the chunks start. Addresses count from the end of the user block.
    pub chunks: u64,
}

impl Placement {
    fn new(dataset: &Dataset) -> Option<Self> {
        let grid = match &dataset.storage {
            Storage::Chunked(chunk) => Grid::new(&dataset.dims, chunk)?,
            // One piece of all elements; a scalar has one.
            Storage::Contiguous if dataset.elements() == Some(0) => Grid::new(&[0], &[1])?,
            Storage::Contiguous => Grid::new(&dataset.dims, &dataset.dims)?,
        };
        let raw = grid.elements().checked_mul(dataset.element)?;
        let stored = match dataset.content {
            Content::Extent { len, .. } => len,
            _ => filters::stored_size(raw, &dataset.filters)?,
        };
        let chunked = matches!(dataset.storage, Storage::Chunked(_));
        if chunked && u32::try_from(stored).is_err() {
            return None;
        }
        let tree = match chunked && !grid.is_empty() {
            true => Some((Tree::new(grid.len(), dataset.dims.len())?, 0)),
            false => None,
        };
        Some(Placement {
            grid,
            raw,
            stored,
            slot: stored.checked_next_multiple_of(if stored >= 16 * PAGE { PAGE } else { WORD })?,
            tree,
            chunks: 0,
        })
    }

    /// Bytes of all chunks.
    fn chunk_bytes(&self) -> Option<u64> {
        self.grid.len().checked_mul(self.slot)
    }

    pub fn chunk_address(&self, chunk: u64) -> u64 {
        self.chunks + chunk * self.slot
    }

    /// What the layout message has to say; `None` where nothing is stored.
    pub fn index_address(&self) -> Option<u64> {
        match &self.tree {
            Some((tree, base)) => Some(base + tree.root()),
            None if self.grid.is_empty() => None,
            None => Some(self.chunks),
        }
    }
}

/// What lies somewhere in the canonical file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// User block and image.
    Front,
    Tree(usize),
    Chunks(usize),
}

/// Where everything lies.
#[derive(Debug, Clone)]
pub struct AddressMap {
    /// By number of the dataset.
    pub datasets: Vec<Placement>,
    /// Start, end and kind of each part, ascending; bytes between them are padding. Offsets in the
    /// file, the user block included.
    parts: Vec<(u64, u64, Part)>,
    len: u64,
}

impl AddressMap {
    pub fn new(snapshot: &Snapshot) -> Result<Self, String> {
        let too_large = |d: &Dataset| {
            format!(
                "dataset {} ({:?} elements of {} bytes) cannot be laid out in a file",
                d.name, d.dims, d.element
            )
        };
        let mut datasets = Vec::with_capacity(snapshot.datasets.len());
        for dataset in &snapshot.datasets {
            datasets.push(Placement::new(dataset).ok_or_else(|| too_large(dataset))?);
        }
        let mut cursor = Cursor::new(snapshot.user_block.len() as u64);
        cursor.place(snapshot.image.len() as u64, 1, Part::Front);
        // The trees lie close together, from a page of their own on.
        let mut align = PAGE;
        for (number, place) in datasets.iter_mut().enumerate() {
            if let Some((tree, start)) = &mut place.tree {
                *start = cursor
                    .place(tree.len(), align, Part::Tree(number))
                    .ok_or_else(|| too_large(&snapshot.datasets[number]))?;
                align = WORD;
            }
        }
        if snapshot.has_losses() {
            cursor.end = cursor.end.max(FRONT_OF_LOSSES);
        }
        for (number, place) in datasets.iter_mut().enumerate() {
            let len = place.chunk_bytes();
            place.chunks = len
                .and_then(|len| cursor.place(len, PAGE, Part::Chunks(number)))
                .ok_or_else(|| too_large(&snapshot.datasets[number]))?;
        }
        Ok(AddressMap {
            datasets,
            len: cursor.user_block + cursor.end,
            parts: cursor.parts,
        })
    }

    /// Length of the canonical file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The part at `offset` and its range; or the padding there, up to where the next part starts.
    pub fn at(&self, offset: u64) -> (Option<Part>, u64, u64) {
        let after = self.parts.partition_point(|(start, _, _)| *start <= offset);
        let next = self
            .parts
            .get(after)
            .map_or(self.len, |(start, _, _)| *start);
        match after.checked_sub(1).and_then(|i| self.parts.get(i)) {
            Some((start, end, part)) if offset < *end => (Some(*part), *start, *end),
            _ => (None, offset, next),
        }
    }
}

/// Hands out addresses, front to back.
struct Cursor {
    user_block: u64,
    /// The next free address.
    end: u64,
    parts: Vec<(u64, u64, Part)>,
}

impl Cursor {
    fn new(user_block: u64) -> Self {
        Cursor {
            user_block,
            end: 0,
            parts: Vec::new(),
        }
    }

    /// Moves on to a multiple in the file, where pages are counted, not among the addresses.
    fn align(&mut self, align: u64) -> Option<()> {
        let file_end = self.end.checked_add(self.user_block)?;
        self.end = file_end.checked_next_multiple_of(align)? - self.user_block;
        Some(())
    }

    /// The address of `len` bytes; `None` where the file would become too long.
    fn place(&mut self, len: u64, align: u64, part: Part) -> Option<u64> {
        self.align(align)?;
        let start = self.end;
        let end = start.checked_add(len)?;
        let file_end = end.checked_add(self.user_block)?;
        if file_end > LONGEST_FILE {
            return None;
        }
        self.end = end;
        if len > 0 {
            let file_start = match part {
                Part::Front => 0,
                _ => start + self.user_block,
            };
            self.parts.push((file_start, file_end, part));
        }
        Some(start)
    }
}
