//! The journal of a log that is not closed. Its data are good.

use h5logfs_log::journal::Recorded;
use h5logfs_log::journal::metadata_image::MetadataImage;

use super::Seeds;
use super::reading::read;
use super::test_dir::TestDir;
use super::unclosed;

/// Lines with parts of an image that are read at most: each takes up to 1 MiB, which no budget reserves.
const MOST_PARTS: usize = 8;

/// The input is whether to add checksums, and the text of a journal. libhdf5 reads no image but the one of the seeds.
pub fn run(bytes: &[u8]) {
    let Some((how, text)) = bytes.split_first() else {
        return;
    };
    let parts = text.windows(7).filter(|text| *text == b"\"image\"");
    if parts.count() > MOST_PARTS {
        return;
    }
    let journal = match how & 1 {
        0 => text.to_vec(),
        _ => unclosed::with_sums(text),
    };
    let test_dir = TestDir::new();
    test_dir.write(unclosed::LOG, &unclosed::data());
    test_dir.write(unclosed::JOURNAL, &journal);
    let source = test_dir.open(unclosed::JOURNAL);
    if let Ok(recorded) = Recorded::read(&source) {
        let again = Recorded::read_until(&source, recorded.flushes());
        let again = again.expect("a journal that was read");
        assert_eq!(again.commits, recorded.commits);
        assert_eq!(again.definitions, recorded.definitions);
        assert_eq!(again.metadata_image, recorded.metadata_image);
        let is_read = |metadata_image: &MetadataImage| metadata_image.image == unclosed::IMAGE;
        if !recorded.metadata_image.as_ref().is_none_or(is_read) {
            return;
        }
        for file in 0..recorded.header.data_files().min(16) as usize {
            let ends: Vec<_> = recorded.ends(file).collect();
            assert!(ends.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        }
    }
    let scanned = test_dir.scan(unclosed::LOG);
    if let Ok(view) = scanned.and_then(|snapshot| test_dir.view(snapshot)) {
        read(&view);
    }
}

pub fn seeds() -> Seeds {
    let text = unclosed::TEXT.as_bytes();
    let metadata_image = unclosed::image_text();
    let metadata_image = metadata_image.as_bytes();
    let with = |how: u8, text: &[u8]| [&[how], text].concat();
    vec![
        ("lines".into(), with(1, text)),
        ("with-sums".into(), with(0, &unclosed::with_sums(text))),
        ("image".into(), with(1, metadata_image)),
        (
            "image-with-sums".into(),
            with(0, &unclosed::with_sums(metadata_image)),
        ),
    ]
}
