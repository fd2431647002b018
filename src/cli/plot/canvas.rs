//! Lines drawn with the dots of characters.

/// A plane of dots, which a terminal shows as characters of 2 by 4 dots each.
pub struct Canvas {
    columns: usize,
    rows: usize,
    /// Dots of each character, as in the Braille block of Unicode.
    dots: Vec<u8>,
}

/// The bit of each dot of a character, by row and column.
const BITS: [[u8; 2]; 4] = [[0, 3], [1, 4], [2, 5], [6, 7]];
const BRAILLE: u32 = 0x2800;

impl Canvas {
    /// An empty canvas of so many characters.
    pub fn new(columns: usize, rows: usize) -> Self {
        Canvas {
            columns,
            rows,
            dots: vec![0; columns * rows],
        }
    }

    /// Draws a line between two points, given as shares of the width from the left and of the height from the bottom.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64)) {
        let (width, height) = ((self.columns * 2).max(1) - 1, (self.rows * 4).max(1) - 1);
        let dot = |(x, y): (f64, f64)| (x * width as f64, (1.0 - y) * height as f64);
        let ((x, y), (to_x, to_y)) = (dot(from), dot(to));
        let steps = (to_x - x).abs().max((to_y - y).abs()).ceil().max(1.0);
        for step in 0..=steps as usize {
            let share = step as f64 / steps;
            self.set(
                (x + (to_x - x) * share).round() as usize,
                (y + (to_y - y) * share).round() as usize,
            );
        }
    }

    fn set(&mut self, x: usize, y: usize) {
        if let Some(character) = self.dots.get_mut(y / 4 * self.columns + x / 2) {
            *character |= 1 << BITS[y % 4][x % 2];
        }
    }

    /// The characters row by row. `is_plain`: a star for each with a dot.
    pub fn rows(&self, is_plain: bool) -> impl Iterator<Item = String> {
        self.dots.chunks(self.columns.max(1)).map(move |row| {
            let character = |dots: &u8| match (dots, is_plain) {
                (0, _) => ' ',
                (_, true) => '*',
                (dots, false) => char::from_u32(BRAILLE + u32::from(*dots)).unwrap_or('*'),
            };
            row.iter().map(character).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_reach_the_corners() {
        let mut canvas = Canvas::new(3, 2);
        canvas.line((0.0, 0.0), (1.0, 1.0));
        let plain: Vec<String> = canvas.rows(true).collect();
        assert_eq!(plain, [" **", "** "]);
        let dots: Vec<String> = canvas.rows(false).collect();
        assert_eq!(dots[0].chars().last(), Some('⠎'));
        canvas.line((0.5, f64::NAN), (0.5, 0.5));
    }
}
