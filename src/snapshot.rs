//! What the scan of one log file yields: plain data, all that the view needs besides the log's own
//! bytes. It holds no handle of libhdf5 and no descriptor, and can be sent to another process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::log::source::Identity;
use crate::log::{Logged, Tables};

/// One state of one log file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The files that hold log bytes, below the folder of the scan. The first is the log file itself.
    pub sources: Vec<Source>,
    /// The journal of a log that was not closed: when it changes, so has the log.
    pub journal: Option<Source>,
    /// What lies in front of the HDF5 data of the canonical file: the log file's own user block.
    pub user_block: Vec<u8>,
    /// The metadata of the canonical file as libhdf5 made it; addresses count from its first byte.
    pub image: Vec<u8>,
    /// Datasets whose bytes are not in the image, in the order in which the scan met them.
    pub datasets: Vec<Dataset>,
    /// Where the record tables and the data of the log lie.
    pub log: Tables,
    /// Object addresses in the log file and in the image, by the former: object references among
    /// logged data are translated by it.
    pub addresses: Vec<(u64, u64)>,
    /// What the view cannot show as it was, for a person to read.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Relative to the folder that was scanned.
    pub path: PathBuf,
    pub identity: Identity,
    /// A job may still append to it, which changes nothing of its first `identity.size` bytes.
    pub grows: bool,
}

impl Source {
    /// Whether the file of identity `now` still has the bytes that the scan saw.
    pub fn is_still(&self, now: Identity) -> bool {
        self.identity.is_still(now, self.grows)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dataset {
    /// A path under which the view shows it.
    pub name: String,
    /// Address of its object header in the image.
    pub header: u64,
    /// The datatype, for a person to read.
    pub datatype: String,
    /// Size of one element in the file, in bytes.
    pub element: u64,
    /// Current extent; empty for a scalar.
    pub dims: Vec<u64>,
    /// Maximum extent; `None` is unlimited.
    pub max_dims: Vec<Option<u64>>,
    pub storage: Storage,
    /// One element of fill value in the file's datatype; empty stands for zeros.
    pub fill: Vec<u8>,
    pub filters: Vec<Filter>,
    /// Where in an element object references lie, 8 bytes each.
    pub references: Vec<u64>,
    pub content: Content,
}

/// How the dataset is laid out in the canonical file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    Contiguous,
    /// Chunk shape, of the dataset's rank.
    Chunked(Vec<u64>),
}

/// One filter of a pipeline (HDF5 File Format Specification, IV.A.2.l).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Filter {
    pub id: i32,
    pub flags: u32,
    pub values: Vec<u32>,
}

/// Filters that the view can apply and undo.
pub const DEFLATE: i32 = 1;
pub const SHUFFLE: i32 = 2;
pub const FLETCHER32: i32 = 3;

impl Filter {
    /// Whether the view can apply it; chunks do without the others, and their filter mask says so.
    pub fn can_apply(&self) -> bool {
        [DEFLATE, SHUFFLE, FLETCHER32].contains(&self.id)
    }
}

/// Where the elements come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// The records of the log.
    Logged {
        /// The layout's number of the dataset.
        id: i64,
        /// The dataset's filters were recorded, and its entries may have gone through them.
        filtered: bool,
    },
    /// Bytes of a source file, as they lie: a contiguous dataset that was never logged.
    Extent { source: u16, offset: u64, len: u64 },
    /// They cannot be had, for this reason.
    Unreadable(String),
}

impl Dataset {
    /// Number of elements; `None` past what can be counted.
    pub fn elements(&self) -> Option<u64> {
        self.dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d))
    }

    /// For the log layout, where the dataset is logged.
    pub fn logged(&self) -> Option<Logged<'_>> {
        match self.content {
            Content::Logged { id, filtered } => Some(Logged {
                id,
                dims: &self.dims,
                element: self.element,
                filtered,
            }),
            _ => None,
        }
    }
}

impl Snapshot {
    /// For another process, or a file. The inverse of [`Snapshot::from_bytes`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, postcard::Error> {
        postcard::to_stdvec(self)
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, postcard::Error> {
        postcard::from_bytes(bytes)
    }

    /// Memory held, in bytes, roughly.
    pub fn bytes(&self) -> usize {
        let dataset = |d: &Dataset| {
            size_of::<Dataset>()
                + d.name.len()
                + d.datatype.len()
                + d.dims.len() * 40
                + d.fill.len()
                + d.filters.len() * 48
                + d.references.len() * 8
        };
        self.image.len()
            + self.user_block.len()
            + self.datasets.iter().map(dataset).sum::<usize>()
            + self.addresses.len() * 16
    }
}
