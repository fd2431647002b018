//! Chunks made by the libraries (`tests/chunks/make.py`), and hostile bytes.

use super::chunk;
use super::decode;

/// Chunks of blosc 1, and of blosc 2.
const BLOSC1: &[u8] = include_bytes!("../../../tests/chunks/blosc1");
const BLOSC2: &[u8] = include_bytes!("../../../tests/chunks/blosc2");

/// The chunks of a file.
fn chunks(mut file: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::new();
    while !file.is_empty() {
        let packed = chunk::sizes(file).unwrap().packed;
        let (chunk, rest) = file.split_at(packed);
        chunks.push(chunk);
        file = rest;
    }
    chunks
}

/// The content of a test chunk: `len` bytes, in elements of `size` bytes.
fn plain(size: usize, len: usize) -> Vec<u8> {
    let elements = (0..len as u64 / size as u64).flat_map(|i| {
        let wide = (i * i * 3 + i / 64).to_le_bytes();
        wide.into_iter().take(size)
    });
    elements.collect()
}

/// The bytes that ADIOS2 stores for a block in these chunks.
fn stored(len: usize, chunks: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![0, 1, 0, 0];
    out.extend((len as u64).to_le_bytes());
    out.extend([2, 11, 1, 0, 0, 0, 0]);
    out.extend((chunks.len() as u32).to_le_bytes());
    out.extend(chunks.concat());
    out
}

#[test]
fn chunks_of_the_libraries() {
    for (file, count) in [(BLOSC1, 61), (BLOSC2, 98)] {
        let chunks = chunks(file);
        assert_eq!(chunks.len(), count);
        for (number, chunk) in chunks.into_iter().enumerate() {
            let len = chunk::sizes(chunk).unwrap().plain;
            let mut out = vec![1; len];
            assert_eq!(chunk::decode(chunk, &mut out), Ok(()), "{number}");
            assert!(
                out == plain(usize::from(chunk[3]), len),
                "{number}: {:?}",
                &chunk[..16]
            );
        }
    }
}

#[test]
fn a_block_has_chunks_or_plain_bytes() {
    let chunks = chunks(BLOSC1);
    let lens = [chunks[0], chunks[1]].map(|chunk| chunk::sizes(chunk).unwrap().plain);
    let len = lens.iter().sum();
    let whole = stored(len, &chunks[..2]);
    let mut out = vec![0; len];
    assert_eq!(decode(&whole, &mut out), Ok(()));
    assert_eq!(out[lens[0]..], plain(usize::from(chunks[1][3]), lens[1]));
    assert!(decode(&stored(len, &chunks[..1]), &mut out).is_err());
    let block = chunks[..2]
        .iter()
        .map(|chunk| chunk::sizes(chunk).unwrap().block);
    let most = 2 * block.max().unwrap() as u64 + (2 << 20);
    assert_eq!(super::memory(&whole, len as u64), most);

    let mut few = [0; 3];
    assert_eq!(
        decode(&[&stored(3, &[])[..], b"abc"].concat(), &mut few),
        Ok(())
    );
    assert_eq!(&few, b"abc");

    let mut bare = stored(lens[0], &[]);
    bare.truncate(15);
    bare.extend(chunks[0]);
    assert_eq!(decode(&bare, &mut out[..lens[0]]), Ok(()));
}

/// A chunk of blosc 2 that makes `len` bytes and has no blocks.
fn special(kind: u8, size: u8, len: u32, value: &[u8]) -> Vec<u8> {
    let mut chunk = vec![5, 1, 5, size];
    for number in [len, len, 32 + value.len() as u32] {
        chunk.extend(number.to_le_bytes());
    }
    chunk.extend([0; 15]);
    chunk.push(kind << 4);
    chunk.extend(value);
    chunk
}

#[test]
fn blocks_have_bytes_that_the_chunk_has() {
    assert_eq!(chunk::decode(&special(0, 8, 0, &[]), &mut []), Ok(()));
    for block in [0, 9] {
        let mut chunk = special(0, 8, 8, &[]);
        chunk[8] = block;
        assert!(chunk::decode(&chunk, &mut [0; 8]).is_err());
    }
}

#[test]
fn special_values() {
    let mut out = [1; 8];
    assert_eq!(chunk::decode(&special(1, 8, 8, &[]), &mut out), Ok(()));
    assert_eq!(out, [0; 8]);
    assert_eq!(chunk::decode(&special(2, 4, 8, &[]), &mut out), Ok(()));
    assert_eq!(
        out.map(|byte| byte & 0x7f),
        [0, 0, 0x40, 0x7f, 0, 0, 0x40, 0x7f]
    );
    assert_eq!(chunk::decode(&special(3, 3, 8, b"abc"), &mut out), Ok(()));
    assert_eq!(&out, b"abcabcab");
    for bad in [
        special(4, 8, 8, &[]),
        special(2, 2, 8, &[]),
        special(3, 8, 8, b"abc"),
    ] {
        assert!(chunk::decode(&bad, &mut out).is_err());
    }
}

#[test]
fn runs_of_bytes() {
    let mut chunk = special(0, 2, 8, &[]);
    chunk.extend(36_u32.to_le_bytes());
    chunk.extend([0; 4]);
    chunk.extend((-7_i32).to_le_bytes());
    chunk.push(1);
    chunk[12] = chunk.len() as u8;
    let mut out = [1; 8];
    assert_eq!(chunk::decode(&chunk, &mut out), Ok(()));
    assert_eq!(out, [0, 0, 0, 0, 7, 7, 7, 7]);
    *chunk.last_mut().unwrap() = 2;
    assert!(chunk::decode(&chunk, &mut out).is_err());
}

/// Decoding ends without a panic for any bytes.
#[test]
fn damaged_bytes_are_answered() {
    let chunks = [chunks(BLOSC1), chunks(BLOSC2)].concat();
    for chunk in chunks.into_iter().step_by(5) {
        let len = chunk::sizes(chunk).unwrap().plain;
        let whole = stored(len, &[chunk]);
        let mut out = vec![0; len];
        for len in (0..whole.len()).step_by(13) {
            assert!(decode(&whole[..len], &mut out).is_err());
        }
        for at in (0..whole.len()).filter(|at| *at < 96 || at % 17 == 0) {
            let mut bad = whole.clone();
            bad[at] ^= [1, 0x80, 0xff][at % 3];
            let _ = decode(&bad, &mut out);
        }
    }
}
