//! Everything to store, in file order, cut into parts that are made one by one.

use h5logfs_common::error::Error;
use h5logfs_common::fault::Fault;
use h5logfs_log::snapshot::Content;

use super::left_out::LeftOut;
use super::{Layout, Source};
use crate::error::Result;

/// Bytes of elements in a part, unless one chunk is larger.
pub(super) const PART: u64 = 4 << 20;
/// The largest number of chunks in a part.
const MOST_CHUNKS: usize = 4096;

/// Chunks of one dataset, or a piece of a dataset without chunks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Part {
    /// Number of the dataset.
    pub number: usize,
    /// Content of the part.
    pub what: What,
}

/// The content of a part.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum What {
    /// Chunks, by ascending number.
    Chunks(Vec<u64>),
    /// Bytes of a contiguous dataset.
    Piece {
        /// Offset in the dataset.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
}

type Chunks<'a> = Box<dyn Iterator<Item = u64> + Send + 'a>;

/// The parts of a file, in order.
pub struct Parts<'a> {
    source: &'a Source,
    /// The next dataset.
    next: usize,
    /// The rest of the dataset before.
    rest: Rest<'a>,
    /// Datasets that cannot be read at all.
    pub left_out: Vec<LeftOut>,
}

enum Rest<'a> {
    Nothing,
    Chunks(Chunks<'a>),
    Bytes { offset: u64, end: u64 },
}

impl<'a> Parts<'a> {
    /// The parts of the file made from `source`.
    pub fn new(source: &'a Source) -> Self {
        Parts {
            source,
            next: 0,
            rest: Rest::Nothing,
            left_out: Vec::new(),
        }
    }

    /// The next part; `None` at the end.
    pub fn next_part(&mut self) -> Result<Option<Part>> {
        loop {
            if let Some(what) = self.cut() {
                let number = self.next - 1;
                return Ok(Some(Part { number, what }));
            }
            if self.next == self.source.metadata.datasets.len() {
                return Ok(None);
            }
            self.rest = self.begin(self.next)?;
            self.next += 1;
        }
    }

    /// The next part of the current dataset.
    fn cut(&mut self) -> Option<What> {
        match &mut self.rest {
            Rest::Nothing => None,
            Rest::Chunks(chunks) => {
                let raw = self.source.raw_len(self.next - 1).max(1);
                let most = (PART / raw).clamp(1, MOST_CHUNKS as u64) as usize;
                let part: Vec<u64> = chunks.by_ref().take(most).collect();
                (!part.is_empty()).then_some(What::Chunks(part))
            }
            Rest::Bytes { offset, end } => {
                let at = *offset;
                let len = PART.min(*end - at);
                *offset += len;
                (len > 0).then_some(What::Piece { offset: at, len })
            }
        }
    }

    /// A whole dataset.
    fn begin(&mut self, number: usize) -> Result<Rest<'a>> {
        let source = self.source;
        let len = source.elements_len(number);
        if len == 0 {
            return Ok(Rest::Nothing);
        }
        if source.layout(number) == Layout::Extent {
            return Ok(Rest::Bytes {
                offset: 0,
                end: len,
            });
        }
        match self.chunks(number) {
            Ok(chunks) => Ok(Rest::Chunks(chunks)),
            Err(e) if source.skips_damaged => {
                LeftOut::of(number, e)?.add_to(&mut self.left_out);
                Ok(Rest::Nothing)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// The written chunks of a dataset, which are to be stored. Fails where none of its elements can be trusted.
    fn chunks(&self, number: usize) -> Result<Chunks<'a>, Error> {
        let view = &self.source.view;
        let all_of_it = |fault: Fault| Error::BadData {
            path: view.path(),
            dataset: self.source.dataset(number).name.clone(),
            place: "all of it".into(),
            fault,
        };
        if let Content::Unreadable(reason) = &self.source.dataset(number).content {
            return Err(all_of_it(reason.as_str().into()));
        }
        let index = match view.indexes().of(number) {
            // Damage in the log's tables.
            Err(Error::BadFile { reason, .. }) => return Err(all_of_it(reason.into())),
            found => found?,
        };
        index.check().map_err(all_of_it)?;
        if self.source.metadata.is_whole[number] && !view.holes().is_sparse(number) {
            return Ok(Box::new(0..view.grid(number).len()));
        }
        Ok(Box::new(view.holes().touched(number, 0)?))
    }
}
