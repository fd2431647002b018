//! Datatypes, values, extents and flushes in words, for messages.

use std::fmt::{self, Display, Formatter, Write};

use super::datatype::Datatype;
use super::hex::to_hex;
use super::value::Value;

/// The words that `inspect` prints for a dataset. Compounds and enumerations list their members.
impl Display for Datatype {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bits = |size: &u32| u64::from(*size) * 8;
        let order = |big: &bool| if *big { ", big-endian" } else { "" };
        match self {
            Datatype::Integer {
                size,
                signed,
                big_endian,
            } => {
                let letter = if *signed { 'i' } else { 'u' };
                write!(f, "{letter}{}{}", bits(size), order(big_endian))
            }
            Datatype::Float { size, big_endian } => {
                write!(f, "f{}{}", bits(size), order(big_endian))
            }
            Datatype::Bitfield { size, big_endian } => {
                write!(f, "bits {}{}", bits(size), order(big_endian))
            }
            Datatype::Opaque { size, tag } => write!(f, "opaque of {size} {tag:?}"),
            Datatype::Text { size, utf8: true } => write!(f, "string of {size}, UTF-8"),
            Datatype::Text { size, .. } => write!(f, "string of {size}"),
            Datatype::VariableText => f.write_str("string"),
            Datatype::Enumeration { base, members } => {
                write!(f, "enum of {base} ")?;
                braces(f, members, |(name, value)| format!("{name} = {value}"))
            }
            Datatype::Compound { size, members } => {
                write!(f, "compound of {size} ")?;
                braces(f, members, |m| {
                    format!("{}: {} at {}", m.name, m.datatype, m.offset)
                })
            }
            Datatype::Array { base, dims } => write!(f, "array {dims:?} of {base}"),
        }
    }
}

impl Datatype {
    /// The datatype in words, cut to the length of a message.
    pub fn short(&self) -> String {
        shortened(&self.to_string())
    }
}

fn braces<T>(f: &mut Formatter<'_>, items: &[T], words: impl Fn(&T) -> String) -> fmt::Result {
    let items: Vec<String> = items.iter().map(words).collect();
    write!(f, "{{{}}}", items.join(", "))
}

/// Texts in quotes, numbers in decimal, other elements in hexadecimal.
impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Texts(texts) => write!(f, "{texts:?}"),
            Value::Elements {
                datatype,
                dims,
                bytes,
            } => {
                write_elements(f, datatype, bytes, dims.is_empty())?;
                match dims.len() {
                    0 | 1 => write!(f, " ({datatype})"),
                    _ => write!(f, " ({datatype}, shape {dims:?})"),
                }
            }
        }
    }
}

fn write_elements(
    f: &mut Formatter<'_>,
    datatype: &Datatype,
    bytes: &[u8],
    scalar: bool,
) -> fmt::Result {
    let size = (datatype.size() as usize).max(1);
    let elements = bytes.chunks(size).map(|element| {
        element_words(datatype, element).unwrap_or_else(|| format!("0x{}", to_hex(element)))
    });
    let elements: Vec<String> = elements.collect();
    if scalar {
        f.write_str(&elements.join(", "))
    } else {
        write!(f, "[{}]", elements.join(", "))
    }
}

/// An element in words; `None` if it has no short form.
fn element_words(datatype: &Datatype, bytes: &[u8]) -> Option<String> {
    match datatype {
        Datatype::Integer {
            size,
            signed,
            big_endian,
        } => {
            let bits = bits_of(bytes, *big_endian)?;
            let unused = 64u32.checked_sub(size.checked_mul(8)?)?;
            let value = ((bits << unused) as i64) >> unused;
            Some(if *signed {
                value.to_string()
            } else {
                bits.to_string()
            })
        }
        Datatype::Float { size, big_endian } => {
            let bits = bits_of(bytes, *big_endian)?;
            Some(match size {
                4 => f32::from_bits(bits as u32).to_string(),
                _ => f64::from_bits(bits).to_string(),
            })
        }
        Datatype::Text { .. } => {
            let text = String::from_utf8_lossy(bytes);
            Some(format!("{:?}", text.trim_end_matches('\0')))
        }
        Datatype::Enumeration { base, members } => {
            let value = element_words(base, bytes)?;
            let named = members.iter().find(|m| m.1.to_string() == value);
            Some(named.map_or(value, |m| m.0.clone()))
        }
        _ => None,
    }
}

/// A number of at most 8 bytes.
fn bits_of(bytes: &[u8], big_endian: bool) -> Option<u64> {
    let mut wide = [0; 8];
    let len = bytes.len();
    if big_endian {
        wide.get_mut(8usize.checked_sub(len)?..)?
            .copy_from_slice(bytes);
        Some(u64::from_be_bytes(wide))
    } else {
        wide.get_mut(..len)?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(wide))
    }
}

/// A number of dimensions.
pub fn dimensions(number: usize) -> String {
    match number {
        1 => "1 dimension".into(),
        number => format!("{number} dimensions"),
    }
}

/// A largest extent, as `[unlimited, 5]`.
pub fn largest_extent(max_dims: &[Option<u64>]) -> String {
    let limit = |max: &Option<u64>| max.map_or("unlimited".into(), |max| max.to_string());
    let limits: Vec<String> = max_dims.iter().map(limit).collect();
    format!("[{}]", limits.join(", "))
}

/// Two different texts, cut to the length of a message. Both keep the place of the first difference.
#[derive(Debug, PartialEq, Eq)]
pub struct Shortened {
    /// The first text.
    pub one: String,
    /// The second text.
    pub other: String,
}

/// Characters of a text in a message.
const LONGEST: usize = 80;
/// Characters kept before the first difference.
const LEAD: usize = 20;

impl Shortened {
    /// Shortens two texts.
    pub fn new(one: &str, other: &str) -> Self {
        let same = one
            .chars()
            .zip(other.chars())
            .take_while(|(a, b)| a == b)
            .count();
        let skip = if same + LEAD < LONGEST {
            0
        } else {
            same - LEAD
        };
        Shortened {
            one: cut(one, skip),
            other: cut(other, skip),
        }
    }
}

/// Text after the number of the newest flush, if that is automatic: the last requested flush. Empty where the newest
/// flush was requested.
pub fn asked_for(newest: u64, asked: u64) -> String {
    match asked {
        asked if asked == newest => String::new(),
        0 => ", an automatic one: its program has requested none".into(),
        asked => format!(", an automatic one; the last one that its program requested is {asked}"),
    }
}

/// A text of at most `LONGEST` characters.
pub fn shortened(text: &str) -> String {
    cut(text, 0)
}

fn cut(text: &str, skip: usize) -> String {
    let mut chars = text.chars().skip(skip);
    let mut short = String::new();
    if skip > 0 {
        short.push('…');
    }
    short.extend(chars.by_ref().take(LONGEST));
    if chars.next().is_some() {
        let _ = short.write_char('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(datatype: Datatype, dims: &[u64], bytes: &[u8]) -> String {
        let (dims, bytes) = (dims.to_vec(), bytes.to_vec());
        Value::Elements {
            datatype,
            dims,
            bytes,
        }
        .to_string()
    }

    #[test]
    fn values_are_told_as_a_person_writes_them() {
        assert_eq!(Value::from("a\"b\n").to_string(), r#""a\"b\n""#);
        assert_eq!(Value::from(&["a", "b"][..]).to_string(), r#"["a", "b"]"#);
        assert_eq!(Value::from(-3i16).to_string(), "-3 (i16)");
        assert_eq!(Value::from(200u8).to_string(), "200 (u8)");
        assert_eq!(
            Value::from(u64::MAX).to_string(),
            "18446744073709551615 (u64)"
        );
        assert_eq!(
            Value::from(&[0.5f64, 2.0][..]).to_string(),
            "[0.5, 2] (f64)"
        );
        let big = Datatype::Integer {
            size: 2,
            signed: true,
            big_endian: true,
        };
        assert_eq!(elements(big, &[], &[0xff, 0xfe]), "-2 (i16, big-endian)");
        let flag = Datatype::Enumeration {
            base: Box::new(Datatype::integer(1, true)),
            members: vec![("FALSE".into(), 0), ("TRUE".into(), 1)],
        };
        let told = elements(flag, &[1, 2], &[1, 0]);
        assert_eq!(
            told,
            "[TRUE, FALSE] (enum of i8 {FALSE = 0, TRUE = 1}, shape [1, 2])"
        );
        let text = Datatype::Text {
            size: 4,
            utf8: false,
        };
        assert_eq!(elements(text, &[], b"ab\0\0"), r#""ab" (string of 4)"#);
        let pair = [("a", 0), ("b", 4)].map(|(n, at)| (n.to_owned(), at, Datatype::float(4)));
        let told = elements(Datatype::compound(8, pair), &[], &[0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(
            told,
            "0x0000000000000001 (compound of 8 {a: f32 at 0, b: f32 at 4})"
        );
    }

    #[test]
    fn what_is_long_keeps_the_place_that_differs() {
        let short = Shortened::new("abc", "abd");
        assert_eq!((&short.one[..], &short.other[..]), ("abc", "abd"));
        let long = |end: &str| format!("{}{end}{}", "ä".repeat(5000), "z".repeat(5000));
        let short = Shortened::new(&long("1"), &long("2"));
        assert_ne!(short.one, short.other);
        for text in [&short.one, &short.other] {
            assert!(text.starts_with("…ää") && text.ends_with("zz…"), "{text}");
            assert_eq!(text.chars().count(), LONGEST + 2);
        }
        // One text is the start of the other.
        let short = Shortened::new(&"a".repeat(500), &"a".repeat(501));
        assert_ne!(short.one, short.other);
    }
}
