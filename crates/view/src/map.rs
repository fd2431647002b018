//! The address map of the canonical file: `preamble | B-trees | chunks`. Every address is a formula.
//!
//! A dataset may claim more bytes than any file has. It then gets one page at the end of the file, which nobody can
//! read.

use std::ops::Range;

use super::grid::Grid;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::btree::Tree;
use h5logfs_hdf5_format::filters;
use h5logfs_log::snapshot::{Content, Dataset, Snapshot, Storage};

/// Alignment of the B-trees as a whole, of the chunks of each dataset, and of every chunk that is large against a page.
/// The kernel reads whole pages, and one unreadable byte makes its whole page unreadable. So a dataset shares no page
/// with another one.
const PAGE: u64 = 4096;
/// Alignment of everything else.
const ALIGN: u64 = 8;
/// Earliest begin of the chunks if some of them are unreadable, or take a while to make. To find out the type of a
/// file, some readers take this many bytes at once, and do not open the file where one of the bytes is an error. The
/// kernel reads ahead up to this many.
const FIRST_CHUNK_APART: u64 = 4 << 20;
/// The most chunks of a log whose chunk indexes list all of them, whether they were written or not.
const MOST_CHUNKS: u64 = 1 << 20;
/// The most bytes of these chunks in a log of few bytes.
const MOST_BYTES: u64 = 256 << 20;
/// The most bytes of these chunks for each byte of a larger log.
const MOST_FOR_A_BYTE: u64 = 16;
/// The largest file offset that system calls can express.
const MAX_FILE: u64 = i64::MAX as u64;

/// The place of one dataset in the canonical file. Lengths are in bytes. Addresses count from the end of the user
/// block.
#[derive(Debug, Clone)]
pub struct Placement {
    pub grid: Grid,
    /// Length of a chunk before its filters.
    pub raw: u64,
    /// Length of a chunk after its filters, as this crate applies them.
    pub stored: u64,
    /// Distance from one chunk to the next. The stored bytes of a chunk lie at the start of its slot.
    pub slot: u64,
    /// The chunk index and its address. A contiguous dataset has none.
    pub tree: Option<(Tree, u64)>,
    /// Whether the chunk index lists only written chunks. The dataset then claims so many others that no reader could
    /// go through them.
    pub is_sparse: bool,
    /// Address of the first chunk.
    pub chunks: u64,
}

impl Placement {
    fn new(dataset: &Dataset) -> Option<Self> {
        let grid = match &dataset.storage {
            Storage::Chunked(chunk) => Grid::new(&dataset.dims, chunk)?,
            // All elements are one chunk. A scalar has one element.
            Storage::Contiguous if dataset.elements() == Some(0) => Grid::new(&[0], &[1])?,
            Storage::Contiguous => Grid::new(&dataset.dims, &dataset.dims)?,
        };
        let raw = grid.elements().checked_mul(dataset.element_size)?;
        let stored = match dataset.content {
            Content::Extent { len, .. } => len,
            _ => filters::stored_size(raw, &dataset.filters)?,
        };
        let chunked = matches!(dataset.storage, Storage::Chunked(_));
        if chunked && u32::try_from(stored).is_err() {
            return None;
        }
        let tree = if chunked && !grid.is_empty() {
            Some((Tree::new(grid.len(), dataset.dims.len())?, 0))
        } else {
            None
        };
        Some(Placement {
            grid,
            raw,
            stored,
            slot: stored.checked_next_multiple_of(if stored >= 16 * PAGE {
                PAGE
            } else {
                ALIGN
            })?,
            tree,
            is_sparse: false,
            chunks: 0,
        })
    }

    /// The place of a dataset for which no file has room. It is one page, to which the layout message leads. Everything
    /// behind it is unreadable, too, or lies behind the end of the file.
    fn unreadable(dataset: &Dataset) -> Option<Self> {
        let one = vec![1; dataset.dims.len()];
        Some(Placement {
            grid: Grid::new(&one, &one)?,
            raw: PAGE,
            stored: PAGE,
            slot: PAGE,
            tree: None,
            is_sparse: false,
            chunks: 0,
        })
    }

    /// The most bytes that the dataset takes in the file.
    fn most_bytes(&self) -> u128 {
        let tree = self.tree.as_ref().map_or(0, |(tree, _)| tree.bytes());
        let chunks = u128::from(self.grid.len()) * u128::from(self.slot);
        chunks + u128::from(tree) + u128::from(2 * PAGE)
    }

    /// Bytes of all chunks.
    fn chunk_bytes(&self) -> Option<u64> {
        self.grid.len().checked_mul(self.slot)
    }

    pub fn chunk_address(&self, chunk: u64) -> u64 {
        self.chunks + chunk * self.slot
    }

    /// The address for the dataset's layout message: the root of the chunk index, or the contiguous data. `None` where
    /// nothing is stored.
    pub fn layout_address(&self) -> Option<u64> {
        match &self.tree {
            Some((tree, base)) => Some(base + tree.root()),
            None if self.grid.is_empty() => None,
            None => Some(self.chunks),
        }
    }
}

/// A part of the canonical file, with the number of its dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// User block and file metadata.
    Preamble,
    /// The whole file, in a layout whose files have its bytes as they are.
    Flat,
    /// A chunk index.
    Tree(usize),
    /// All chunks of a dataset.
    Chunks(usize),
}

/// The places of all regions of the canonical file.
#[derive(Debug, Clone)]
pub struct AddressMap {
    /// By number of the dataset.
    pub datasets: Vec<Placement>,
    /// Ranges of file offsets, in ascending order. Offsets include the user block. Bytes between regions are
    /// padding.
    regions: Vec<(Range<u64>, Region)>,
    len: u64,
}

impl AddressMap {
    /// The map of the file that shows `snapshot`. Datasets for which a file has no room become unreadable in
    /// `snapshot`.
    pub fn new(snapshot: &mut Snapshot) -> Result<Self, Fault> {
        if let Some(flat) = snapshot.log.layout().flat() {
            return Ok(AddressMap {
                datasets: Vec::new(),
                regions: vec![(0..flat.len, Region::Flat)],
                len: flat.len,
            });
        }
        let too_large = |d: &Dataset| {
            format!(
                "dataset {} ({:?} elements of {} bytes) cannot be laid out in a file",
                d.name, d.dims, d.element_size
            )
        };
        let placed = placed(snapshot);
        let mut datasets = Vec::with_capacity(placed.len());
        let mut last = Vec::new();
        for (number, place) in placed.into_iter().enumerate() {
            let dataset = &mut snapshot.datasets[number];
            datasets.push(match place {
                Some(place) => place,
                None => {
                    let reason = too_large(dataset);
                    let place = Placement::unreadable(dataset).ok_or_else(|| reason.clone())?;
                    dataset.content = Content::Unreadable(reason);
                    last.push(number);
                    place
                }
            });
        }
        snapshot.has_unreadable |= !last.is_empty();
        make_sparse(snapshot, &mut datasets);
        let mut cursor = Cursor::new(snapshot.user_block);
        cursor.place(snapshot.image.len() as u64, 1, Region::Preamble);
        // The first tree starts a page, and the others follow close by.
        let mut align = PAGE;
        for (number, place) in datasets.iter_mut().enumerate() {
            if let Some((tree, start)) = &mut place.tree {
                *start = cursor
                    .place(tree.bytes(), align, Region::Tree(number))
                    .ok_or_else(|| too_large(&snapshot.datasets[number]))?;
                align = ALIGN;
            }
        }
        if snapshot.has_losses() || snapshot.has_unreadable || snapshot.has_large_tables {
            cursor.end = cursor.end.max(FIRST_CHUNK_APART);
        }
        let first = (0..datasets.len()).filter(|number| last.binary_search(number).is_err());
        for number in first.chain(last.iter().copied()) {
            let place = &mut datasets[number];
            let len = place.chunk_bytes();
            place.chunks = len
                .and_then(|len| cursor.place(len, PAGE, Region::Chunks(number)))
                .ok_or_else(|| too_large(&snapshot.datasets[number]))?;
        }
        Ok(AddressMap {
            datasets,
            len: cursor.user_block + cursor.end,
            regions: cursor.regions,
        })
    }

    /// Length of the canonical file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The region at `offset` and its range. Padding is no region; its range starts at `offset`.
    pub fn region_at(&self, offset: u64) -> (Option<Region>, Range<u64>) {
        let after = self.regions.partition_point(|(r, _)| r.start <= offset);
        if let Some((range, region)) = after.checked_sub(1).and_then(|at| self.regions.get(at))
            && offset < range.end
        {
            return (Some(*region), range.clone());
        }
        let next = self.regions.get(after).map_or(self.len, |(r, _)| r.start);
        (None, offset..next)
    }
}

/// The places of the datasets, without addresses. `None` for a dataset that fits into no file, and for the largest ones
/// where all datasets together do not fit.
fn placed(snapshot: &Snapshot) -> Vec<Option<Placement>> {
    let datasets = snapshot.datasets.iter();
    let mut placed: Vec<_> = datasets.map(Placement::new).collect();
    let most = |place: &Option<Placement>| place.as_ref().map_or(0, Placement::most_bytes);
    let bytes: Vec<u128> = placed.iter().map(most).collect();
    let before = snapshot
        .user_block
        .saturating_add(snapshot.image.len() as u64);
    let before = before.saturating_add(FIRST_CHUNK_APART + PAGE);
    // A dataset without a place takes a page.
    let pages = (placed.len() as u128 + 1) * u128::from(PAGE);
    let room = u128::from(MAX_FILE).saturating_sub(u128::from(before) + pages);
    let mut all: u128 = bytes.iter().sum();
    let mut by_size: Vec<usize> = (0..placed.len()).collect();
    by_size.sort_unstable_by_key(|number| bytes[*number]);
    while all > room
        && let Some(largest) = by_size.pop()
    {
        all -= bytes[largest];
        placed[largest] = None;
    }
    placed
}

/// Decides which chunk indexes list only written chunks. If all datasets together claim more than a reader could go
/// through, these are the indexes of datasets that claim more than their share. A file of some KB may declare any
/// extent.
fn make_sparse(snapshot: &Snapshot, datasets: &mut [Placement]) {
    let files = snapshot.sources.iter().map(|source| source.identity.size);
    let files = files.fold(0, u64::saturating_add);
    let most_bytes = MOST_BYTES.max(files.saturating_mul(MOST_FOR_A_BYTE));
    let claims = |place: &Placement| match place.tree {
        Some(_) => (place.grid.len(), place.chunk_bytes().unwrap_or(u64::MAX)),
        None => (0, 0),
    };
    let all = datasets.iter().map(claims).fold((0u64, 0u64), |all, own| {
        (all.0.saturating_add(own.0), all.1.saturating_add(own.1))
    });
    if all.0 <= MOST_CHUNKS && all.1 <= most_bytes {
        return;
    }
    let shares = datasets.len().max(1) as u64;
    for place in datasets {
        let (chunks, bytes) = claims(place);
        place.is_sparse = chunks > MOST_CHUNKS / shares || bytes > most_bytes / shares;
    }
}

/// Gives out addresses in ascending order.
struct Cursor {
    user_block: u64,
    /// The next free address.
    end: u64,
    regions: Vec<(Range<u64>, Region)>,
}

impl Cursor {
    fn new(user_block: u64) -> Self {
        Cursor {
            user_block,
            end: 0,
            regions: Vec::new(),
        }
    }

    /// Moves on to a multiple of `align` in file offsets, not in addresses, because pages are those of the file.
    fn align(&mut self, align: u64) -> Option<()> {
        let file_end = self.end.checked_add(self.user_block)?;
        self.end = file_end.checked_next_multiple_of(align)? - self.user_block;
        Some(())
    }

    /// The address of `len` bytes; `None` where the file would become too long.
    fn place(&mut self, len: u64, align: u64, region: Region) -> Option<u64> {
        self.align(align)?;
        let start = self.end;
        let end = start.checked_add(len)?;
        let file_end = end.checked_add(self.user_block)?;
        if file_end > MAX_FILE {
            return None;
        }
        self.end = end;
        if len > 0 {
            let file_start = match region {
                Region::Preamble => 0,
                _ => start + self.user_block,
            };
            self.regions.push((file_start..file_end, region));
        }
        Some(start)
    }
}
