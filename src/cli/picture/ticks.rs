//! Round numbers along an axis, and numbers as short texts.

/// Digits of a number that are shown.
const DIGITS: i32 = 4;

/// Round numbers between both ends, at most `most`, which is at least 2. `is_index`: only whole numbers.
pub fn ticks(first: f64, last: f64, most: usize, is_index: bool) -> Vec<f64> {
    let (low, high) = (first.min(last), first.max(last));
    let span = high - low;
    if !span.is_finite() || span <= 0.0 {
        return vec![low];
    }
    let mut unit = 10f64.powf((span / most as f64).log10().floor());
    if is_index {
        unit = unit.max(1.0);
    }
    let count = |step: f64| (high / step).floor() - (low / step).ceil() + 1.0;
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|factor| unit * factor);
    let fits = |step: &f64| *step > 0.0 && step.is_finite() && count(*step) <= most as f64;
    let Some(step) = steps.into_iter().find(fits) else {
        return vec![low, high];
    };
    let from = (low / step).ceil();
    (0..most)
        .map(|n| (from + n as f64) * step)
        .take_while(|tick| *tick <= high + span * 1e-9)
        .collect()
}

/// Whole numbers below this are shown with all digits: dates and counts make sense with them only.
const WHOLE: f64 = 1e12;

/// A number in a few characters.
pub fn number(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < WHOLE {
        return format!("{}", number as i64);
    }
    digits(number, DIGITS)
}

/// Both ends of a scale, with as many digits as tell them from each other.
pub fn ends(least: f64, most: f64) -> (String, String) {
    let (short, long) = (number(least), number(most));
    if least == most || short != long {
        return (short, long);
    }
    let mut both = texts(&[least, most]).into_iter();
    (both.next().unwrap_or(short), both.next().unwrap_or(long))
}

/// The texts of ticks, with as many digits as tell them from each other.
pub fn texts(ticks: &[f64]) -> Vec<String> {
    let most = 17;
    let all =
        |count: i32| -> Vec<String> { ticks.iter().map(|tick| digits(*tick, count)).collect() };
    let differ = |texts: &[String]| texts.windows(2).all(|pair| pair[0] != pair[1]);
    let fitting = (DIGITS..most).map(all).find(|texts| differ(texts));
    fitting.unwrap_or_else(|| all(most))
}

/// A number with a count of significant digits.
fn digits(number: f64, count: i32) -> String {
    if !number.is_finite() {
        return number.to_string();
    }
    let size = number.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e7).contains(&size) {
        let text = format!("{number:.*e}", usize::try_from(count - 1).unwrap_or(0));
        return match text.split_once('e') {
            Some((digits, exponent)) => format!("{}e{exponent}", trimmed(digits)),
            None => text,
        };
    }
    let before = size.log10().floor() as i32 + 1;
    let behind = usize::try_from(count - before).unwrap_or(0);
    trimmed(&format!("{number:.behind$}")).to_owned()
}

/// The digits without zeros at the end of a fraction.
fn trimmed(digits: &str) -> &str {
    if !digits.contains('.') {
        return digits;
    }
    digits.trim_end_matches('0').trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(0.0, 10.0, 6, false), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(90.0, -90.0, 5, false), [-50.0, 0.0, 50.0]);
        assert_eq!(ticks(0.1, 998.5, 5, false), [200.0, 400.0, 600.0, 800.0]);
        assert_eq!(ticks(0.0, 3.0, 9, true), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(ticks(5.0, 5.0, 5, false), [5.0]);
        for (low, high) in [
            (0.0, 1e-300),
            (-1e300, 1e300),
            (f64::MIN, f64::MAX),
            (1e15, 1e15 + 1.0),
        ] {
            let found = ticks(low, high, 5, false);
            assert!(
                !found.is_empty() && found.len() <= 5,
                "{low} {high} {found:?}"
            );
        }
    }

    #[test]
    fn numbers_are_short_and_tell_ticks_apart() {
        let shown = |n: f64| number(n);
        assert_eq!(shown(0.1), "0.1");
        assert_eq!(shown(273.15), "273.1");
        assert_eq!(shown(-12345.6), "-12346");
        assert_eq!(shown(1.5e-9), "1.5e-9");
        assert_eq!(shown(9.969e36), "9.969e36");
        assert_eq!(shown(f64::NAN), "NaN");
        assert_eq!(shown(20_200_131.0), "20200131");
        assert_eq!(shown(1.844e19), "1.844e19");
        let close = ends(101_325.1, 101_325.3);
        assert_eq!(close, ("101325.1".to_owned(), "101325.3".to_owned()));
        assert_eq!(ends(2.0, 2.0), ("2".to_owned(), "2".to_owned()));
        let large = ends(1e15, 1e15 + 2.0);
        assert_ne!(large.0, large.1);
        assert_eq!(texts(&[100_000.1, 100_000.2]), ["100000.1", "100000.2"]);
    }
}
