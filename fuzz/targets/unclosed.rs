//! A log that is not closed, made byte by byte (`docs/formats/journal.md`).

use flate2::Crc;
use h5logfs_log::journal::metadata_image::image_lines;

const FRONT: usize = 8192;
const MARK: &[u8] = b"h5logfs-file-id\n0123456789abcdef";
const HEADER: usize = 64;
pub const LOG: &str = "log.h5";
pub const JOURNAL: &str = "log.h5.h5logfs-journal";

/// The lines of a journal, without checksums: definitions of all kinds, and two flushes.
pub const TEXT: &str = r#"{"journal":1,"file":"30313233343536373839616263646566","writer":"a test","ranks":2,"subfiles":0,"config":10}
{"define":{"attribute":{"object":"/","name":"title","value":{"text":"two flushes"}}}}
{"define":{"dataset":{"path":"/d","layout":{"datatype":{"integer":{"size":1,"signed":false}},"dims":[0],"max_dims":[null]}}}}
{"define":{"group":{"path":"/air"}}}
{"define":{"dataset":{"path":"/air/t","layout":{"datatype":{"integer":{"size":2,"signed":true}},"dims":[0,8],"max_dims":[null,8],"chunk":[1,8],"filters":[{"id":2,"flags":1,"values":[2]},{"id":1,"flags":1,"values":[6]}],"fill":"ffff"}}}}
{"define":{"attribute":{"object":"/air/t","name":"units","value":{"texts":["K","C"]}}}}
{"define":{"attribute":{"object":"/air/t","name":"scale","value":{"elements":{"datatype":{"float":{"size":8,"big_endian":true}},"dims":[],"bytes":"000000000000e03f"}}}}}
{"define":{"dataset":{"path":"/events","layout":{"datatype":{"compound":{"size":37,"members":[{"name":"id","offset":0,"datatype":{"opaque":{"size":4,"tag":"uuid"}}},{"name":"energy","offset":4,"datatype":{"array":{"base":{"bitfield":{"size":8}},"dims":[2,2]}}},{"name":"kind","offset":36,"datatype":{"enumeration":{"base":{"integer":{"size":1,"signed":false}},"members":[["Hit",1],["Miss",2]]}}}]}},"dims":[2],"max_dims":[2]}}}}
{"define":{"dataset":{"path":"/text","layout":{"datatype":{"text":{"size":8,"utf8":true}},"dims":[],"max_dims":[]}}}}
{"define":{"extent":{"dataset":0,"dims":[4]}}}
{"commit":{"flush":1,"ends":[8412]}}
{"define":{"extent":{"dataset":0,"dims":[6]}}}
{"commit":{"flush":2,"ends":[8522]}}
"#;

/// The metadata of an HDF5 program: `/d` is the dataset 0 of [`data`], at byte 800.
pub const IMAGE: &[u8] = include_bytes!("../samples/metadata.image");

/// The lines of a journal of that program, without checksums. An append: the first flush was there before.
pub fn image_text() -> String {
    let header = r#"{"journal":1,"file":"30313233343536373839616263646566","writer":"a test","ranks":1,"subfiles":0,"config":10,"append":{"flush":1}}"#;
    let lines = image_lines(&[], IMAGE).expect("lines of an image");
    let lines = lines
        .iter()
        .map(|line| serde_json::to_string(line).expect("a line"));
    let rest = [
        r#"{"logged":{"id":0,"header":800}}"#,
        r#"{"commit":{"flush":1,"ends":[8412]}}"#,
        r#"{"logged":{"id":1,"header":null}}"#,
        r#"{"commit":{"flush":2,"ends":[8522]}}"#,
    ];
    let all = [header.to_owned()].into_iter().chain(lines);
    let all = all.chain(rest.map(str::to_owned));
    all.map(|line| line + "\n").collect()
}

/// The data file and its journal.
pub fn files() -> Vec<(&'static str, Vec<u8>)> {
    let journal = with_sums(TEXT.as_bytes());
    vec![(LOG, data()), (JOURNAL, journal)]
}

/// A data file with two flushes. Two ranks took part in the first.
pub fn data() -> Vec<u8> {
    let mut data = b"h5logfs log that was not closed. Its journal lies beside it.  \n\n".to_vec();
    data.resize(FRONT - MARK.len(), 0);
    data.extend(MARK);
    put_extent(&mut data, 1, 0, &[(0, b"aa")]);
    put_extent(&mut data, 1, 1, &[(2, b"bb")]);
    put_extent(&mut data, 2, 0, &[(4, b"cc")]);
    data
}

/// Appends an extent. `writes` are offsets in the dataset and values.
fn put_extent(data: &mut Vec<u8>, flush: u64, rank: u32, writes: &[(u64, &[u8])]) {
    let entries_len = 44 * writes.len();
    let mut at = (data.len() + HEADER + entries_len) as u64;
    let (mut entries, mut payload) = (Vec::new(), Vec::new());
    for (start, values) in writes {
        let len = values.len() as u64;
        entries.extend([44i32, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
        entries.extend([at, len, *start, len].iter().flat_map(|n| n.to_le_bytes()));
        payload.extend_from_slice(values);
        at += len;
    }
    let mut header = b"h5lgxtnt".to_vec();
    header.extend(rank.to_le_bytes());
    header.extend([0; 4]);
    let numbers = [flush, entries_len as u64, payload.len() as u64];
    header.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
    header.resize(HEADER, 0);
    let begin = data.len();
    data.extend(header);
    data.extend(entries);
    data.extend(payload);
    mend_extent(&mut data[begin..]);
}

/// Corrects the checksums of an extent. Returns its length; `None` if it is no extent.
fn mend_extent(bytes: &mut [u8]) -> Option<usize> {
    let word =
        |bytes: &[u8], at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let entries = usize::try_from(word(bytes, 24)?).ok()?;
    let data = usize::try_from(word(bytes, 32)?).ok()?;
    let end = HEADER.checked_add(entries)?;
    let sum = crc(bytes.get(HEADER..end)?);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    let sum = crc(&bytes[..60]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    end.checked_add(data)
}

/// Corrects the checksums of all extents up to the first that cannot be parsed.
pub fn mend_data(data: &mut [u8]) {
    let mut at = FRONT;
    while let Some(rest) = data.get_mut(at..)
        && let Some(len) = mend_extent(rest)
    {
        at = at.saturating_add(len);
    }
}

/// Corrects the checksums of all lines of a journal.
pub fn mend_journal(journal: &[u8]) -> Vec<u8> {
    let lines = journal.split_inclusive(|b| *b == b'\n');
    let texts: Vec<u8> = lines
        .flat_map(|line| line.get(9..).unwrap_or(&[]))
        .copied()
        .collect();
    with_sums(&texts)
}

/// Makes a journal of these lines.
pub fn with_sums(text: &[u8]) -> Vec<u8> {
    let mut sum = Crc::new();
    let mut journal = Vec::new();
    for line in text.split_inclusive(|b| *b == b'\n') {
        sum.update(line.strip_suffix(b"\n").unwrap_or(line));
        journal.extend(format!("{:08x} ", sum.sum()).into_bytes());
        journal.extend_from_slice(line);
    }
    journal
}

fn crc(bytes: &[u8]) -> u32 {
    let mut sum = Crc::new();
    sum.update(bytes);
    sum.sum()
}
