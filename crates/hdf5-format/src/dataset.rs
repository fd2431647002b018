//! The description of a dataset in its header: type, extent, layout (IV.A.2.i), fill value (IV.A.2.e and f), filters
//! (IV.A.2.l).

use crate::chunks::ChunkIndex;
use crate::datatype::Datatype;
use crate::filters::{self, Filter};
use crate::messages::Header;
use crate::object_header::kind;
use crate::{Dataspace, Fields, HeaderBytes, Objects, Result, at};

/// The message types that describe a dataset.
pub const KINDS: [u16; 7] = [
    kind::DATATYPE,
    kind::DATASPACE,
    kind::LAYOUT,
    kind::PIPELINE,
    kind::FILL_VALUE,
    kind::OLD_FILL_VALUE,
    kind::EXTERNAL_FILES,
];

/// The description of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetInfo {
    /// The type of the elements.
    pub datatype: Datatype,
    /// The extent.
    pub space: Dataspace,
    /// The place of the elements.
    pub layout: Layout,
    /// The fill value as an element in the form of the file; `None` for zeros or an undefined value.
    pub fill: Option<Vec<u8>>,
    /// The filters of the chunks, in the order of their application.
    pub filters: Vec<Filter>,
}

/// The place of a dataset's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// The elements themselves, from the header.
    Compact(Vec<u8>),
    /// Contiguous elements.
    Contiguous {
        /// The address of the elements; `None` if no element was written.
        address: Option<u64>,
        /// The number of bytes.
        len: u64,
    },
    /// Chunked elements.
    Chunked {
        /// The chunk index.
        index: ChunkIndex,
        /// The extent of each chunk. No dimension is 0.
        chunk: Vec<u64>,
        /// Chunks that extend past the edge of the dataset are not filtered.
        has_plain_edges: bool,
    },
    /// Elements of other datasets: the global heap collection with the mappings, and the number of their object;
    /// `None` if there are no mappings.
    Virtual(Option<(u64, u32)>),
    /// A place that this crate cannot find, with a description.
    Other(String),
}

impl<B: HeaderBytes> Objects<B> {
    /// The description of the dataset at an address.
    pub fn dataset(&self, address: u64) -> Result<DatasetInfo> {
        let header = Header::read(&self.bytes, address, &KINDS);
        let info = header.and_then(|header| self.dataset_of(&header));
        info.map_err(at(address))
    }

    /// The committed datatype at an address.
    pub fn named_type(&self, address: u64) -> Result<Datatype> {
        let header = Header::read(&self.bytes, address, &[kind::DATATYPE]);
        let datatype = header.and_then(|header| self.type_of(&header));
        datatype.map_err(at(address))
    }

    /// Reads the committed datatype of this header.
    pub(crate) fn type_of(&self, header: &Header) -> Result<Datatype> {
        Datatype::of_message(&self.data(header, kind::DATATYPE, "no datatype")?)
    }

    fn data(&self, header: &Header, kind: u16, none: &str) -> Result<Vec<u8>> {
        header.first(kind).ok_or(none)?.data(&self.bytes)
    }

    /// Reads the dataset of this header. `header` holds messages of [`KINDS`].
    pub(crate) fn dataset_of(&self, header: &Header) -> Result<DatasetInfo> {
        let data = |kind, none| self.data(header, kind, none);
        let datatype = Datatype::of_message(&data(kind::DATATYPE, "no dataset: it has no type")?)?;
        let space = Dataspace::of_message(&data(kind::DATASPACE, "no dataset: it has no extent")?);
        let space = space.ok_or("an unknown dataspace message")?;
        let filters = match header.first(kind::PIPELINE) {
            Some(message) => filters::of_message(&message.data(&self.bytes)?)
                .ok_or("an unknown filter pipeline message")?,
            None => Vec::new(),
        };
        let layout = match header.first(kind::EXTERNAL_FILES) {
            Some(_) => Layout::Other("its elements are in other files".to_owned()),
            None => Layout::of_message(
                &data(kind::LAYOUT, "no dataset: it has no layout")?,
                space.bytes(datatype.size),
            )?,
        };
        Ok(DatasetInfo {
            fill: self.fill(header, &datatype)?,
            datatype,
            space,
            layout,
            filters,
        })
    }

    fn fill(&self, header: &Header, datatype: &Datatype) -> Result<Option<Vec<u8>>> {
        let own = header.first(kind::FILL_VALUE);
        let fill = if let Some(message) = own.filter(|message| message.is_own()) {
            fill_value(message.own_data()?)?
        } else if let Some(message) = header.first(kind::OLD_FILL_VALUE) {
            let data = message.data(&self.bytes)?;
            let mut fields = Fields(&data);
            let len = fields.u32().ok_or("a short fill value message")?;
            let value = fields.take(usize::try_from(len)?);
            value.ok_or("a short fill value message")?.to_vec()
        } else {
            Vec::new()
        };
        match fill.len() {
            0 => Ok(None),
            len if len == datatype.size as usize => Ok(Some(fill)),
            len => Err(format!("a fill value of {len} bytes").into()),
        }
    }
}

/// The fill value in a message (IV.A.2.f). Empty stands for zeros, and for none.
pub fn fill_value(message: &[u8]) -> Result<Vec<u8>> {
    const HAS_VALUE: u8 = 1 << 5;
    let mut fields = match *message {
        [1, _, _, _, ref rest @ ..] | [2, _, _, 1, ref rest @ ..] => Fields(rest),
        [3, flags, ref rest @ ..] if flags & HAS_VALUE != 0 => Fields(rest),
        [2 | 3, _, ..] => return Ok(Vec::new()),
        [] | [1..=3, ..] => return Err(SHORT_FILL_VALUE.into()),
        [version, ..] => return Err(format!("fill value message of version {version}").into()),
    };
    let len = fields.u32().ok_or(SHORT_FILL_VALUE)?;
    // 0 is the default fill value, and all bits of a negative length say that there is none.
    let len = usize::try_from(len as i32).unwrap_or(0);
    let value = fields.take(len).ok_or(SHORT_FILL_VALUE)?;
    Ok(value.to_vec())
}

const SHORT_FILL_VALUE: &str = "fill value message too short";

impl Layout {
    /// Reads a data layout message (IV.A.2.i) of versions 1 to 5. `len`: bytes of all elements, which versions 1 and 2 do not
    /// have.
    pub fn of_message(message: &[u8], len: Option<u64>) -> Result<Self> {
        const SHORT: &str = "a layout message that ends early";
        let mut fields = Fields(message);
        match fields.u8().ok_or(SHORT)? {
            1 | 2 => old_layout(&mut fields, len)?.ok_or(SHORT.into()),
            version @ 3..=5 => new_layout(version, &mut fields)?.ok_or(SHORT.into()),
            version => Err(format!("a layout message of version {version}").into()),
        }
    }
}

const COMPACT: u8 = 0;
const CONTIGUOUS: u8 = 1;
const CHUNKED: u8 = 2;
const VIRTUAL: u8 = 3;

/// Versions 1 and 2.
fn old_layout(fields: &mut Fields<'_>, len: Option<u64>) -> Result<Option<Layout>> {
    let len = len.ok_or("a dataset of too many bytes")?;
    let mut read = || {
        let (rank, class) = (fields.u8()?, fields.u8()?);
        fields.skip(5)?;
        let address = if class == COMPACT {
            None
        } else {
            fields.address()?
        };
        let dims = numbers(fields, rank.into(), 4)?;
        Some((class, address, dims))
    };
    let Some((class, address, dims)) = read() else {
        return Ok(None);
    };
    Ok(match class {
        COMPACT => {
            let size = fields.u32();
            let data = size.and_then(|size| fields.take(usize::try_from(size).ok()?));
            data.map(|data| Layout::Compact(data.to_vec()))
        }
        CONTIGUOUS => Some(Layout::Contiguous { address, len }),
        CHUNKED => Some(chunked(ChunkIndex::BTree(address), dims, false)?),
        class => return Err(format!("a layout of class {class}").into()),
    })
}

/// Reads a layout message of version 3 to 5.
fn new_layout(version: u8, fields: &mut Fields<'_>) -> Result<Option<Layout>> {
    let Some(class) = fields.u8() else {
        return Ok(None);
    };
    let mut compact = || {
        let len = fields.u16()?.into();
        Some(fields.take(len)?.to_vec())
    };
    match (class, version) {
        (COMPACT, _) => Ok(compact().map(Layout::Compact)),
        (CONTIGUOUS, _) => {
            let place = fields.address().zip(fields.u64());
            Ok(place.map(|(address, len)| Layout::Contiguous { address, len }))
        }
        (CHUNKED, 3) => {
            let mut read = || {
                let rank = fields.u8()?.into();
                let address = fields.address()?;
                Some((ChunkIndex::BTree(address), numbers(fields, rank, 4)?))
            };
            let read = read();
            read.map(|(index, dims)| chunked(index, dims, false))
                .transpose()
        }
        (CHUNKED, _) => {
            let read = indexed_chunks(fields);
            read.map(|(index, dims, plain_edges)| chunked(index, dims, plain_edges))
                .transpose()
        }
        (VIRTUAL, 4..) => {
            let mut read = || {
                let address = fields.address()?;
                let index = fields.u32()?;
                Some(Layout::Virtual(address.map(|address| (address, index))))
            };
            Ok(read())
        }
        _ => Err(format!("a layout of class {class}").into()),
    }
}

/// Reads the chunks of version 4 and 5: their index and extent, and whether chunks at the edge are not filtered.
fn indexed_chunks(fields: &mut Fields<'_>) -> Option<(ChunkIndex, Vec<u64>, bool)> {
    const PLAIN_EDGES: u8 = 1;
    const FILTERED: u8 = 2;
    let (flags, rank, width) = (fields.u8()?, fields.u8()?, fields.u8()?);
    let dims = numbers(fields, rank.into(), width.into())?;
    let index = match fields.u8()? {
        1 => ChunkIndex::Single {
            filtered: match flags & FILTERED {
                0 => None,
                _ => Some((fields.u64()?, fields.u32()?)),
            },
            address: fields.address()?,
        },
        2 => ChunkIndex::Implicit(fields.address()?),
        3 => ChunkIndex::FixedArray(address_behind(fields, 1)?),
        4 => ChunkIndex::ExtensibleArray(address_behind(fields, 5)?),
        5 => ChunkIndex::BTree2(address_behind(fields, 6)?),
        other => ChunkIndex::Other(other),
    };
    Some((index, dims, flags & PLAIN_EDGES != 0))
}

/// The address behind the parameters of an index. The header of the index repeats these parameters.
fn address_behind(fields: &mut Fields<'_>, parameters: usize) -> Option<Option<u64>> {
    fields.skip(parameters)?;
    fields.address()
}

/// A chunked layout. The last dimension of `chunk` is the size of an element in bytes.
fn chunked(index: ChunkIndex, mut chunk: Vec<u64>, has_plain_edges: bool) -> Result<Layout> {
    chunk.pop().ok_or("chunks without dimensions")?;
    if chunk.contains(&0) {
        return Err("chunks without elements".into());
    }
    Ok(Layout::Chunked {
        index,
        chunk,
        has_plain_edges,
    })
}

fn numbers(fields: &mut Fields<'_>, count: usize, width: usize) -> Option<Vec<u64>> {
    (0..count).map(|_| fields.number(width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &[u8]) -> Layout {
        for len in 0..message.len() {
            assert!(
                Layout::of_message(&message[..len], Some(24)).is_err(),
                "{len}"
            );
        }
        Layout::of_message(message, Some(24)).unwrap()
    }

    #[test]
    fn all_versions_say_where_elements_are() {
        let (address, none) = (80u64.to_le_bytes(), [0xff; 8]);
        let dims = [3u32, 4, 2].map(u32::to_le_bytes);
        let contiguous = Layout::Contiguous {
            address: Some(80),
            len: 24,
        };
        let old = [&[1, 3, 1, 0, 0, 0, 0, 0], &address[..], dims.as_flattened()].concat();
        assert_eq!(read(&old), contiguous);
        let new = [&[3, 1], &address[..], &[24, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(read(&new), contiguous);
        assert_eq!(read(&[3, 0, 2, 0, 7, 8]), Layout::Compact(vec![7, 8]));
        let compact = [
            &[1, 1, 0, 0, 0, 0, 0, 0][..],
            &[2, 0, 0, 0],
            &[2, 0, 0, 0, 7, 8][..],
        ]
        .concat();
        assert_eq!(read(&compact), Layout::Compact(vec![7, 8]));
        let chunked = |index| Layout::Chunked {
            index,
            chunk: vec![3, 4],
            has_plain_edges: false,
        };
        let old = [&[2, 3, 2, 0, 0, 0, 0, 0], &none[..], dims.as_flattened()].concat();
        assert_eq!(read(&old), chunked(ChunkIndex::BTree(None)));
        let new = [&[3, 2, 3], &address[..], dims.as_flattened()].concat();
        assert_eq!(read(&new), chunked(ChunkIndex::BTree(Some(80))));
        let single = [
            &[4, 2, 2, 3, 1, 3, 4, 2, 1][..],
            &[9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            &address[..],
        ];
        let index = ChunkIndex::Single {
            address: Some(80),
            filtered: Some((9, 1)),
        };
        assert_eq!(read(&single.concat()), chunked(index));
        assert_eq!(
            read(&[4, 2, 0, 3, 1, 3, 4, 2, 6]),
            chunked(ChunkIndex::Other(6))
        );
        for (kind, parameters) in [(2, 0), (3, 1), (4, 5), (5, 6)] {
            let message = [
                &[4, 2, 1, 3, 1, 3, 4, 2, kind][..],
                &vec![9; parameters],
                &address,
            ];
            let index = match kind {
                2 => ChunkIndex::Implicit(Some(80)),
                3 => ChunkIndex::FixedArray(Some(80)),
                4 => ChunkIndex::ExtensibleArray(Some(80)),
                _ => ChunkIndex::BTree2(Some(80)),
            };
            let expected = Layout::Chunked {
                index,
                chunk: vec![3, 4],
                has_plain_edges: true,
            };
            assert_eq!(read(&message.concat()), expected);
        }
        let heap = [&[4, 3][..], &address, &[7, 0, 0, 0]].concat();
        assert_eq!(read(&heap), Layout::Virtual(Some((80, 7))));
        let empty = [&[4, 3][..], &none, &[0; 4]].concat();
        assert_eq!(read(&empty), Layout::Virtual(None));
    }
}
