//! The colour map viridis, whose lightness grows evenly: equal steps of numbers look equal, in print and to colour-blind
//! readers, too.

/// Coefficients of a polynomial for each of red, green and blue, by Matt Zucker (CC0), which is less than two hundredths off
/// the table of matplotlib.
const VIRIDIS: [[f64; 3]; 7] = [
    [0.277_727_327, 0.005_407_345, 0.334_099_806],
    [0.105_093_043, 1.404_613_530, 1.384_590_163],
    [-0.330_861_829, 0.214_847_560, 0.095_095_164],
    [-4.634_230_499, -5.799_100_973, -19.332_440_956],
    [6.228_269_936, 14.179_933_367, 56.690_552_601],
    [4.776_384_998, -13.745_145_378, -65.353_032_633],
    [-5.435_455_856, 4.645_852_612, 26.312_435_250],
];

/// Red, green and blue of a place on the map, from 0 to 1.
pub fn colour(place: f64) -> [u8; 3] {
    let at = place.clamp(0.0, 1.0);
    std::array::from_fn(|channel| {
        let terms = VIRIDIS.iter().rev();
        let value = terms.fold(0.0, |sum, coefficients| sum * at + coefficients[channel]);
        (value.clamp(0.0, 1.0) * 255.0).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_of_viridis() {
        // The table of matplotlib.
        for (place, expected) in [
            (0.0, [68, 1, 84]),
            (0.25, [59, 82, 139]),
            (0.5, [33, 145, 140]),
            (0.75, [94, 201, 98]),
            (1.0, [253, 231, 37]),
        ] {
            let found = colour(place);
            let off = found.iter().zip(expected).map(|(a, b)| a.abs_diff(b)).max();
            assert!(off <= Some(8), "{place}: {found:?}");
        }
        assert_eq!(colour(-1.0), colour(0.0));
    }
}
