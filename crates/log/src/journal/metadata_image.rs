//! The metadata image of a log: an HDF5 file in memory with all objects in their natural form, but without the elements of logged
//! datasets.
//!
//! An HDF5 program's journal holds parts of the image in place of definitions, and the list of logged datasets. In a journal of
//! version 2, definitions add to an image (`docs/formats/journal.md`, section 2.5). [`image_lines`] makes the lines of a journal.
//! A [`MetadataImage`] is the state of a reader after some lines.
//!
//! Lines may be hostile. An image takes no more memory than the bytes in its lines, and each line inflates to [`LARGEST_PART`] at
//! most.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::{Deserialize, Serialize};

use super::Line;
use h5logfs_common::fault::{Fault, Shortage};

type Result<T> = std::result::Result<T, Fault>;

/// The most bytes of an image in one line.
pub const LARGEST_PART: usize = 1 << 20;

/// The largest image, in bytes.
pub const LARGEST_IMAGE: u64 = 4 << 30;

/// The size of the pages in which images are compared. A line contains the changed pages.
const PAGE: usize = 4096;

/// A part of the metadata image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePart {
    /// The size of the image after this line, in bytes. A line that enlarges the image contains all new bytes.
    pub size: u64,
    /// The offset of this line's bytes in the image.
    pub at: u64,
    /// The bytes, deflated (zlib), in base64. Empty if the line only shortens the image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bytes: String,
}

impl ImagePart {
    fn new(size: usize, at: usize, bytes: &[u8], packing: Packing) -> io::Result<Self> {
        let mut text = String::new();
        if packing == Packing::Quick && (1..=PAGE).contains(&bytes.len()) {
            text = STANDARD.encode(stored(bytes));
        } else if !bytes.is_empty() {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(bytes)?;
            text = STANDARD.encode(encoder.finish()?);
        }
        Ok(ImagePart {
            size: size as u64,
            at: at as u64,
            bytes: text,
        })
    }

    fn inflated(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if self.bytes.is_empty() {
            return Ok(bytes);
        }
        let stored = STANDARD.decode(&self.bytes);
        let stored = stored.map_err(|e| e.to_string())?;
        let mut inflater = ZlibDecoder::new(&stored[..]).take(LARGEST_PART as u64 + 1);
        let read = inflater.read_to_end(&mut bytes);
        read.map_err(|e| Fault::from(e).at("broken zlib stream"))?;
        if bytes.len() > LARGEST_PART {
            return Err(format!("it has more than {LARGEST_PART} bytes").into());
        }
        Ok(bytes)
    }
}

/// The packing of the bytes of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// Compact.
    Small,
    /// Fast, for lines of which a journal has few. At most one page is stored uncompressed, because setting up deflate takes
    /// longer than deflating so little.
    Quick,
}

/// A zlib stream with one stored block, for at most one page.
fn stored(bytes: &[u8]) -> Vec<u8> {
    /// The compression method with a window of 32 KiB, and the header of a last, stored block.
    const HEAD: [u8; 3] = [0x78, 0x01, 0x01];
    // The length is at most a page.
    let len = bytes.len() as u16;
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in bytes {
        // Adler-32. A page is too short for an overflow.
        a += u32::from(*byte);
        b += a;
    }
    let sum = (b % 65521) << 16 | (a % 65521);
    let mut stream = HEAD.to_vec();
    stream.extend(len.to_le_bytes());
    stream.extend((!len).to_le_bytes());
    stream.extend(bytes);
    stream.extend(sum.to_be_bytes());
    stream
}

/// The lines that turn the image `last` into `new`. `last` is empty before the first image. An unchanged image needs
/// no line.
pub fn image_lines(last: &[u8], new: &[u8]) -> io::Result<Vec<Line>> {
    packed_image_lines(last, new, Packing::Small)
}

/// The lines that turn the image `last` into `new`, with the given packing.
pub fn packed_image_lines(last: &[u8], new: &[u8], packing: Packing) -> io::Result<Vec<Line>> {
    let mut size = last.len().min(new.len());
    let mut lines = Vec::new();
    let mut ranges = changed(last, new);
    if ranges.is_empty() && new.len() < last.len() {
        ranges.push(0..0);
    }
    for range in ranges {
        size = size.max(range.end);
        let part = ImagePart::new(size, range.start, &new[range], packing)?;
        lines.push(Line::Image(part));
    }
    Ok(lines)
}

/// The ranges of `new` that differ from `last`: changed pages, joined up to the limit of a line.
fn changed(last: &[u8], new: &[u8]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for start in (0..new.len()).step_by(PAGE) {
        let end = new.len().min(start + PAGE);
        let old = start.min(last.len())..end.min(last.len());
        if last[old] == new[start..end] {
            continue;
        }
        match ranges.last_mut() {
            Some(range) if range.end == start && end - range.start <= LARGEST_PART => {
                range.end = end;
            }
            _ => ranges.push(start..end),
        }
    }
    ranges
}

/// A dataset whose elements are in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedDataset {
    /// The ID of the dataset in the log.
    pub id: u32,
    /// The address of the object header in the image; `None` if the dataset was deleted.
    pub header: Option<u64>,
}

/// The objects of a log, as an HDF5 file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetadataImage {
    /// The bytes of the file.
    pub image: Vec<u8>,
    /// The datasets whose elements are in the log, by ID. Values are the addresses of object headers in the image, or `None` for
    /// a deleted dataset.
    pub logged: BTreeMap<u32, Option<u64>>,
}

impl MetadataImage {
    /// The number of dataset IDs in use, including the IDs of deleted datasets.
    pub fn ids(&self) -> usize {
        self.logged
            .last_key_value()
            .map_or(0, |(id, _)| *id as usize + 1)
    }

    /// The journal lines that make the image.
    pub fn lines(&self) -> io::Result<Vec<Line>> {
        let mut lines = packed_image_lines(&[], &self.image, Packing::Quick)?;
        let logged = self.logged.iter();
        lines.extend(logged.map(|(id, header)| {
            Line::Logged(LoggedDataset {
                id: *id,
                header: *header,
            })
        }));
        Ok(lines)
    }

    /// The form in which the first rank sends the image to other ranks.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut numbers = vec![self.logged.len() as u64];
        for (id, header) in &self.logged {
            numbers.extend([u64::from(*id), header.unwrap_or(u64::MAX)]);
        }
        let numbers = numbers.into_iter().flat_map(u64::to_le_bytes);
        numbers.chain(self.image.iter().copied()).collect()
    }

    /// The image from the form of [`MetadataImage::to_bytes`]. `None` if the bytes do not have this form.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (count, rest) = bytes.split_first_chunk()?;
        let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
        let (logged, image) = rest.split_at_checked(count.checked_mul(16)?)?;
        let numbers = logged.as_chunks().0.iter().map(|n| u64::from_le_bytes(*n));
        let numbers: Vec<u64> = numbers.collect();
        let dataset = |pair: &[u64; 2]| {
            let [id, header] = *pair;
            let header = Some(header).filter(|header| *header != u64::MAX);
            Some((u32::try_from(id).ok()?, header))
        };
        let logged = numbers.as_chunks().0.iter().map(dataset);
        Some(MetadataImage {
            logged: logged.collect::<Option<_>>()?,
            image: image.to_vec(),
        })
    }

    /// Applies a line to the image. Fails with the reason if the line does not fit.
    pub(super) fn change_image(&mut self, part: &ImagePart) -> Result<()> {
        let ImagePart { size, at, .. } = *part;
        let place = format_args!("a part of the image at byte {at}");
        let bytes = part.inflated().map_err(|fault| fault.at(place))?;
        let end = at.checked_add(bytes.len() as u64);
        let old = self.image.len() as u64;
        let fits = size <= LARGEST_IMAGE
            && if size > old {
                at <= old && end == Some(size)
            } else {
                end.is_some_and(|end| end <= size)
            };
        if !fits {
            let len = bytes.len();
            let reason =
                format!("{len} bytes cannot turn an image of {old} bytes into one of {size}");
            return Err(Fault::from(reason).at(place));
        }
        // The offset is at most the current length of the image.
        let at = at as usize;
        let kept = bytes.len().min(self.image.len() - at);
        self.image[at..at + kept].copy_from_slice(&bytes[..kept]);
        let added = &bytes[kept..];
        let room = self.image.try_reserve(added.len());
        room.map_err(|_| Shortage::System {
            bytes: added.len() as u64,
        })?;
        self.image.extend_from_slice(added);
        self.image.truncate(size as usize);
        Ok(())
    }

    /// Records a logged dataset. Fails with the reason if the ID is invalid.
    pub(super) fn set_logged(&mut self, dataset: &LoggedDataset) -> Result<()> {
        let LoggedDataset { id, header } = *dataset;
        if id >= i32::MAX as u32 {
            return Err(format!("a logged dataset {id}").into());
        }
        self.logged.insert(id, header);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn apply(metadata_image: &mut MetadataImage, lines: &[Line]) {
        for line in lines {
            let text = serde_json::to_string(line).unwrap();
            assert!(text.len() < 2 * LARGEST_PART);
            let Line::Image(part) = serde_json::from_str(&text).unwrap() else {
                panic!("{text}");
            };
            metadata_image.change_image(&part).unwrap();
        }
    }

    /// A change of an image between two flushes.
    #[derive(Debug, Clone)]
    enum Change {
        Write(usize, u8, usize),
        Resize(usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        let place = 0..5usize * PAGE;
        prop_oneof![
            (place.clone(), any::<u8>(), 1..2 * PAGE)
                .prop_map(|(at, b, n)| Change::Write(at, b, n)),
            place.prop_map(Change::Resize),
        ]
    }

    #[test]
    fn a_page_is_stored_in_little_time() {
        for bytes in [vec![7], vec![255; PAGE], vec![255; PAGE + 1]] {
            let part = ImagePart::new(bytes.len(), 0, &bytes, Packing::Quick).unwrap();
            assert_eq!(part.inflated().unwrap(), bytes);
        }
    }

    proptest! {
        #[test]
        fn images_are_those_of_the_writer(
            flushes in prop::collection::vec(prop::collection::vec(change(), 0..4), 1..8),
        ) {
            let (mut last, mut metadata_image) = (Vec::new(), MetadataImage::default());
            for changes in flushes {
                let mut image: Vec<u8> = last.clone();
                for change in changes {
                    match change {
                        Change::Write(at, byte, len) => {
                            let end = image.len().min(at + len);
                            image[at.min(end)..end].fill(byte);
                        }
                        Change::Resize(len) => image.resize(len, 7),
                    }
                }
                let lines = image_lines(&last, &image).unwrap();
                prop_assert_eq!(lines.is_empty(), image == last);
                apply(&mut metadata_image, &lines);
                prop_assert_eq!(&metadata_image.image, &image);
                last = image;
            }
        }

        #[test]
        fn no_line_harms(size: u64, at: u64, bytes in "[A-Za-z0-9+/=]{0,40}", old in 0..9000usize) {
            let image = vec![1; old];
            let mut metadata_image = MetadataImage { image, ..MetadataImage::default() };
            for (size, at) in [(size, at), (size % 10_000, at % 10_000)] {
                let _ = metadata_image.change_image(&ImagePart { size, at, bytes: bytes.clone() });
                prop_assert!(metadata_image.image.len() <= old);
            }
        }
    }

    #[test]
    fn only_pages_that_changed_take_a_line() {
        let mut image = vec![0; 3 * LARGEST_PART + 100];
        let whole = image_lines(&[], &image).unwrap();
        let sizes = |lines: &[Line]| -> Vec<(u64, u64)> {
            let of = |line: &Line| match line {
                Line::Image(part) => (part.size, part.at),
                _ => (0, 0),
            };
            lines.iter().map(of).collect()
        };
        let part = LARGEST_PART as u64;
        let all = 3 * part + 100;
        assert_eq!(
            sizes(&whole),
            [
                (part, 0),
                (2 * part, part),
                (3 * part, 2 * part),
                (all, 3 * part)
            ]
        );
        let last = image.clone();
        assert_eq!(image_lines(&last, &image).unwrap(), []);
        for at in [5, PAGE, 2 * PAGE - 1, 9 * PAGE, last.len() - 1] {
            image[at] = 1;
        }
        let lines = image_lines(&last, &image).unwrap();
        let page = PAGE as u64;
        assert_eq!(sizes(&lines), [(all, 0), (all, 9 * page), (all, 3 * part)]);
        let Line::Image(first) = &lines[0] else {
            panic!("{lines:?}");
        };
        assert_eq!(first.inflated().unwrap().len(), 2 * PAGE);
        // An image that is only shortened.
        let lines = image_lines(&last, &last[..17]).unwrap();
        assert_eq!(sizes(&lines), [(17, 0)]);
        let text = serde_json::to_string(&lines[0]).unwrap();
        assert_eq!(text, r#"{"image":{"size":17,"at":0}}"#);
    }

    #[test]
    fn hostile_parts_are_refused() {
        let mut metadata_image = MetadataImage::default();
        let good = ImagePart::new(5000, 0, &[1; 5000], Packing::Quick).unwrap();
        metadata_image.change_image(&good).unwrap();
        let before = metadata_image.clone();
        let of = |size, at, bytes: &[u8]| ImagePart {
            size,
            ..ImagePart::new(0, at, bytes, Packing::Small).unwrap()
        };
        let mut bad = vec![
            // A hole, missing bytes, bytes past the end, and the largest numbers.
            of(6001, 6000, &[1]),
            of(6000, 5000, &[1]),
            of(u64::MAX, 5000, &[]),
            of(100, 99, &[1, 2]),
            of(5000, usize::MAX, &[1]),
            of(5000, 5001, &[]),
            of(1, 0, &vec![0; LARGEST_PART + 1]),
            of(1, 0, &vec![0; 64 * LARGEST_PART]),
        ];
        for text in ["!", "eJw", "AAAA", &good.bytes[..good.bytes.len() - 8]] {
            let bytes = text.to_owned();
            bad.push(ImagePart {
                size: 5000,
                at: 0,
                bytes,
            });
        }
        for part in bad {
            let refused = metadata_image.change_image(&part).unwrap_err();
            assert!(
                refused.to_string().contains("part of the image at byte"),
                "{refused}"
            );
            assert_eq!(metadata_image, before, "{part:?}");
        }
    }

    #[test]
    fn an_image_is_told_to_other_ranks() {
        let image = MetadataImage {
            image: vec![1, 2, 3],
            logged: BTreeMap::from([(0, Some(7)), (1, None), (2, Some(96))]),
        };
        assert_eq!(
            MetadataImage::from_bytes(&image.to_bytes()),
            Some(image.clone())
        );
        assert_eq!(MetadataImage::from_bytes(&[9; 9]), None);
        let mut of_lines = MetadataImage::default();
        for line in image.lines().unwrap() {
            match line {
                Line::Image(part) => of_lines.change_image(&part).unwrap(),
                Line::Logged(dataset) => of_lines.set_logged(&dataset).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(of_lines, image);
    }

    #[test]
    fn ids_count_though_their_datasets_are_gone() {
        let mut metadata_image = MetadataImage::default();
        assert_eq!(metadata_image.ids(), 0);
        let of = |line: &str| -> LoggedDataset {
            let parsed: Line = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_string(&parsed).unwrap(), line);
            match parsed {
                Line::Logged(dataset) => dataset,
                other => panic!("{other:?}"),
            }
        };
        let there = of(r#"{"logged":{"id":6,"header":800}}"#);
        metadata_image.set_logged(&there).unwrap();
        assert_eq!(
            (metadata_image.ids(), metadata_image.logged[&6]),
            (7, Some(800))
        );
        let gone = of(r#"{"logged":{"id":6,"header":null}}"#);
        metadata_image.set_logged(&gone).unwrap();
        assert_eq!((metadata_image.ids(), metadata_image.logged[&6]), (7, None));
        let bad = LoggedDataset {
            id: u32::MAX,
            ..there
        };
        assert!(metadata_image.set_logged(&bad).is_err());
    }
}
