//! Undoes the szip filter of HDF5: adaptive entropy coding (`entropy`), in the form of the library szlib.
//!
//! A stored chunk begins with the number of bytes of its elements. Elements of 32 and 64 bits are coded as byte planes.
//! Each scanline is padded to whole blocks. Scanlines are unrelated to the rows of a dataset.

mod entropy;

use h5logfs_common::buffers::zeroed;

use crate::Result;

use entropy::Entropy;

/// Bits of the first parameter: elements begin with their most significant byte, and differences are coded.
const MSB: u32 = 16;
const NEAREST_NEIGHBOUR: u32 = 32;

/// The limits of szlib.
const MOST_IN_BLOCK: u32 = 32;
const MOST_BLOCKS: u32 = 4096;

/// The coding of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Coding {
    options: u32,
    /// Elements of a block.
    block: u32,
    /// Bits of an element, as the program sees it.
    bits: u32,
    /// Elements of a scanline.
    scanline: u32,
}

impl Coding {
    /// Reads the parameters of the filter.
    fn of(values: &[u32]) -> Result<Self> {
        let [options, block, bits, scanline, ..] = *values else {
            return Err("szip without its four parameters".into());
        };
        let is_sound = block.is_multiple_of(2)
            && (2..=MOST_IN_BLOCK).contains(&block)
            && (1..=MOST_BLOCKS * block).contains(&scanline)
            && matches!(bits, 1..=24 | 32 | 64);
        if !is_sound {
            return Err(format!("szip with the parameters {values:?}").into());
        }
        Ok(Coding {
            options,
            block,
            bits,
            scanline,
        })
    }

    /// The number of byte planes, one for each byte of an element; 1 for elements that are not split.
    fn planes(self) -> usize {
        match self.bits {
            32 => 4,
            64 => 8,
            _ => 1,
        }
    }

    fn entropy(self) -> Entropy {
        Entropy {
            bits: if self.planes() > 1 { 8 } else { self.bits },
            block: self.block as usize,
            interval: self.scanline.div_ceil(self.block) as usize,
            has_differences: self.options & NEAREST_NEIGHBOUR != 0,
        }
    }
}

/// Bytes of memory for a result of at most `raw` bytes.
pub fn memory(raw: u64) -> u64 {
    /// Bytes of the numbers of an interval.
    const INTERVAL: u64 = MOST_BLOCKS as u64 * MOST_IN_BLOCK as u64 * 4;
    // The result exists once as planes and once as elements.
    raw.saturating_mul(2).saturating_add(INTERVAL)
}

/// Undoes the filter with these parameters. The result has at most `most` bytes.
pub fn decode(stored: &[u8], most: u64, values: &[u32]) -> Result<Vec<u8>> {
    let coding = Coding::of(values)?;
    let (len, stream) = stored
        .split_first_chunk()
        .ok_or("an szip chunk that ends early")?;
    let len = u32::from_le_bytes(*len);
    if u64::from(len) > most {
        return Err(format!("{len} bytes of szip instead of {most}").into());
    }
    let (len, entropy) = (len as usize, coding.entropy());
    let width = match entropy.bits {
        ..=8 => 1,
        9..=16 => 2,
        _ => 4,
    };
    if !len.is_multiple_of(width * coding.planes()) {
        return Err(format!("{len} bytes of szip, of elements of {} bits", coding.bits).into());
    }
    let mut out = zeroed(len)?;
    let mut rest = &mut out[..];
    let (line, interval) = (coding.scanline as usize, entropy.block * entropy.interval);
    // This count includes the padding behind each line.
    let count = (len / width).div_ceil(line) * interval;
    let count = if line == interval { len / width } else { count };
    entropy.decode(stream, count, |numbers| {
        let here = numbers.len().min(line).min(rest.len() / width);
        let (to, behind) = std::mem::take(&mut rest).split_at_mut(here * width);
        for (to, number) in to.chunks_exact_mut(width).zip(numbers) {
            if coding.options & MSB != 0 {
                to.copy_from_slice(&number.to_be_bytes()[4 - width..]);
            } else {
                to.copy_from_slice(&number.to_le_bytes()[..width]);
            }
        }
        rest = behind;
    })?;
    match coding.planes() {
        1 => Ok(out),
        planes => interleaved(&out, planes),
    }
}

/// Joins byte planes into elements. The planes hold the first bytes of all elements, then all second bytes, and so on.
fn interleaved(planes: &[u8], width: usize) -> Result<Vec<u8>> {
    let mut out = zeroed(planes.len())?;
    let count = planes.len() / width;
    for (byte, plane) in planes.chunks_exact(count.max(1)).enumerate() {
        for (to, from) in out.chunks_exact_mut(width).zip(plane) {
            to[byte] = *from;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An element by its number.
    type Element = fn(u64) -> u64;

    const FEW: Element = |at| u64::from(at % 7 == 3);
    const SMALL: Element = |at| at * 7 / 5 % 3;
    const WAVES: Element = |at| at * at / 11 % 40 + 5;
    const ZEROS: Element = |at| if at % 700 == 699 { 9 } else { 0 };
    const NOISE: Element = |at| {
        if at % 200 > 150 {
            ((at * 2_654_435_761) >> 13) % 256
        } else {
            3
        }
    };

    /// Chunks that libhdf5 2.0 with libaec 1.1 makes of these elements: their number of bytes, the parameters, and the
    /// stored bytes.
    const CHUNKS: [(Element, usize, [u32; 4], &str); 10] = [
        (
            FEW,
            1,
            [169, 8, 8, 64],
            "400000001009630e25c4391708e51c3196",
        ),
        (FEW, 1, [169, 16, 8, 40], "28000000100970e25c39170f80"),
        (
            SMALL,
            1,
            [169, 8, 8, 64],
            "400000004016d6aa55f5f56d5aa4afefd36aaaa97ebf2b556a93f7fa",
        ),
        (
            WAVES,
            4,
            [169, 8, 32, 60],
            "f000000020bc925d55580029e80576d8702fe1c455552e5f87ccccc1eeb8d51eefd000fb5455e222d44480249f72600000008000\
             400020",
        ),
        (
            WAVES,
            2,
            [149, 10, 16, 45],
            "5a0000004fd56db770545aaaa4f01234e792a9eaa4cace8ad7a4aea9356c28e4a907410d3fd6da0000",
        ),
        (
            WAVES,
            8,
            [169, 16, 64, 37],
            "2801000040bd552492440005f87fc36666878888aaaa5c4040810207ff80000001000200040008001000200040",
        ),
        (
            ZEROS,
            1,
            [169, 16, 8, 2048],
            "b80b0000000000000000013ffc01000078040000004ff0040001fe01000278020000fff0000000000027fff80240001fffe01008",
        ),
        (
            ZEROS,
            2,
            [141, 8, 16, 1024],
            "7017000000400000023c01f00400000000000047f802008020023c01f004000000008ff00401",
        ),
        (
            WAVES,
            4,
            [177, 8, 20, 50],
            "c8000000080002f2491d555800227a015db61c02fe1c455552e17e1f333307b8b8d51eefd000f1887fa000",
        ),
        (
            NOISE,
            1,
            [169, 16, 8, 400],
            "9001000000300780000000000000633ec4fca543c3f42df8787d86c8787c77c89fa498787e95a87f0fb2d70f0f90f713f6910f0f\
             d4b30f0ff69aa1e1f25ea27f3f0000000000000000033fff8000800000000003787f64d8789e55e8787d46f8787c48087fee990f\
             13ccbb0f0faadd0f0f8aff0ff1d2e1e279d721e1f59b61e1f19fa1fe5280",
        ),
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
        let pairs = hex.as_bytes().as_chunks::<2>().0.iter();
        pairs
            .map(|[high, low]| digit(*high) << 4 | digit(*low))
            .collect()
    }

    #[test]
    fn chunks_of_libhdf5_have_their_elements() {
        for (element, size, values, hex) in CHUNKS {
            let stored = bytes(hex);
            let len = u32::from_le_bytes(*stored.first_chunk().unwrap()) as usize;
            let elements = (0..(len / size) as u64).flat_map(|at| {
                let [little, big] = [element(at).to_le_bytes(), element(at).to_be_bytes()];
                if values[0] & MSB == 0 {
                    little[..size].to_vec()
                } else {
                    big[8 - size..].to_vec()
                }
            });
            let wanted: Vec<u8> = elements.collect();
            let found = decode(&stored, len as u64, &values).unwrap();
            assert!(found == wanted, "{values:?} {hex}");
            for end in 0..stored.len() - 2 {
                let found = decode(&stored[..end], len as u64, &values);
                assert!(found.is_err(), "{values:?} {end}");
            }
            decode(&stored, len as u64 - 1, &values).unwrap_err();
        }
    }

    #[test]
    fn parameters_that_no_program_sets_are_refused() {
        let (_, _, [options, block, bits, scanline], hex) = CHUNKS[0];
        let (stored, len) = (bytes(hex), 64);
        for values in [
            vec![],
            vec![options, block, bits],
            vec![options, 0, bits, scanline],
            vec![options, 7, bits, scanline],
            vec![options, 34, bits, scanline],
            vec![options, block, 0, scanline],
            vec![options, block, 25, scanline],
            vec![options, block, 128, scanline],
            vec![options, block, bits, 0],
            vec![options, block, bits, 4096 * 8 + 1],
            vec![u32::MAX; 4],
        ] {
            decode(&stored, len, &values).unwrap_err();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn any_stream_ends(
            mut stream in prop::collection::vec(any::<u8>(), 0..300),
            zeros in 0usize..300,
            len in 0u32..5000,
            options in prop::sample::select(vec![0, MSB, NEAREST_NEIGHBOUR, MSB | NEAREST_NEIGHBOUR]),
            block in 1u32..17,
            bits in prop::sample::select(vec![1, 7, 8, 9, 16, 17, 24, 32, 64]),
            scanline in 1u32..3000,
        ) {
            stream.resize(stream.len() + zeros, 0);
            stream.push(1);
            let stored = [&len.to_le_bytes()[..], &stream].concat();
            let values = [options, block * 2, bits, scanline];
            if let Ok(found) = decode(&stored, 5000, &values) {
                prop_assert_eq!(found.len(), len as usize);
            }
        }
    }
}
