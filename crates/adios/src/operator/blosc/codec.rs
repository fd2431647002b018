//! The codecs of streams.

use flate2::{Decompress, FlushDecompress};
use ruzstd::decoding::FrameDecoder;

use super::blosclz;
use crate::Result;

/// The Zstandard window that any block may use.
const SMALL_WINDOW: u64 = 1 << 20;

/// The largest Zstandard window for blocks of `block` bytes. Compressors make it at most as large as a block.
pub(super) fn window(block: u64) -> u64 {
    block.max(SMALL_WINDOW)
}

/// The decoder of a chunk's streams.
pub(super) enum Codec {
    BloscLz,
    Lz4,
    Zlib(Decompress),
    Zstd(Box<FrameDecoder>),
}

impl Codec {
    /// The codec with this number. Streams decode to at most `block` bytes.
    pub fn new(number: u8, block: usize) -> Result<Self> {
        Ok(match number {
            0 => Codec::BloscLz,
            1 => Codec::Lz4,
            3 => Codec::Zlib(Decompress::new(true)),
            4 => {
                let mut decoder = FrameDecoder::new();
                decoder.set_max_window_size(window(block as u64));
                Codec::Zstd(Box::new(decoder))
            }
            2 => return Err("h5logfs cannot undo codec snappy".into()),
            other => {
                return Err(format!("h5logfs cannot undo codec {other}").into());
            }
        })
    }

    /// Decodes a stream that fills `out`.
    pub fn decode(&mut self, stored: &[u8], out: &mut [u8]) -> Result<()> {
        let made = match self {
            Codec::BloscLz => blosclz::decode(stored, out)?,
            Codec::Lz4 => lz4_flex::block::decompress_into(stored, out)
                .map_err(|error| format!("a damaged stream of LZ4: {error}"))?,
            Codec::Zlib(decoder) => {
                decoder.reset(true);
                decoder
                    .decompress(stored, out, FlushDecompress::Finish)
                    .map_err(|error| format!("a damaged stream of zlib: {error}"))?;
                decoder.total_out() as usize
            }
            Codec::Zstd(decoder) => decoder
                .decode_all(stored, out)
                .map_err(|error| format!("a damaged stream of Zstandard: {error}"))?,
        };
        if made != out.len() {
            return Err(format!("a stream of {made} bytes in place of {}", out.len()).into());
        }
        Ok(())
    }
}
