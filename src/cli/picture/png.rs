//! Images as PNG files.

use anyhow::Result;
use png::{BitDepth, ColorType, Compression, Encoder};

use super::colours::colour;

/// Colours of an image of cells. More make larger files, and the eye hardly tells them apart.
pub const MANY_COLOURS: u8 = 64;
pub const FEW_COLOURS: u8 = 31;

/// An image of cells in so many colours of the map, one pixel each. `places`: where each cell lies on the map, row by row;
/// `None` is transparent.
pub fn of_cells(width: u32, height: u32, places: &[Option<f64>], colours: u8) -> Result<Vec<u8>> {
    let last = f64::from(colours.max(2) - 1);
    let palette = (0..colours).flat_map(|n| colour(f64::from(n) / last));
    // The first colour is the transparent one.
    let palette: Vec<u8> = [0; 3].into_iter().chain(palette).collect();
    let pixel = |place: &Option<f64>| {
        place.map_or(0, |place| (place.clamp(0.0, 1.0) * last).round() as u8 + 1)
    };
    let pixels: Vec<u8> = places.iter().map(pixel).collect();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width, height);
    encoder.set_color(ColorType::Indexed);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::High);
    encoder.set_palette(palette);
    encoder.set_trns(vec![0]);
    encoder.write_header()?.write_image_data(&pixels)?;
    Ok(bytes)
}

/// An image of pixels, each with red, green and blue.
pub fn of_pixels(width: u32, height: u32, pixels: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.write_header()?.write_image_data(pixels)?;
    Ok(bytes)
}

/// Bytes as text in a page (RFC 4648).
pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |n: usize| u32::from(three.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for n in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * n) & 63) as usize];
            text.push(if n <= three.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_base64() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn cells_have_the_colours_of_the_map() {
        let bytes = of_cells(3, 1, &[Some(0.0), None, Some(1.0)], FEW_COLOURS).unwrap();
        let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        decoder.set_transformations(png::Transformations::EXPAND);
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let [low, high] = [0.0, 1.0].map(colour);
        let expected = [&low[..], &[255, 0, 0, 0, 0], &high, &[255]].concat();
        assert_eq!(pixels, expected);
    }
}
