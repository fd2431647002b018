//! Blocks of operators that are not supported (section 5.3): what their headers say, and what can read them.

use super::{
    BIGWHOOP, CAESAR, LIBPRESSIO, MDR, MDR_OF_PRODM, MGARD, MGARD_COMPLEX, MGARD_PLUS, PLUGIN, PNG,
    SIRIUS, SZ, SZ3,
};
use crate::Result;
use crate::fields::Fields;

/// The most parameters that a message shows, and the most characters of a text.
const MOST_SHOWN: usize = 8;
const MOST_CHARACTERS: usize = 64;

/// The message for a block: its operator, what the header has of library and parameters, and what can read the block.
pub(super) fn message(operator: u8, stored: &[u8]) -> String {
    let name = super::name(operator);
    // The header may be damaged, or of a later version.
    let about = About::read(operator, stored).unwrap_or_default();
    let details = about.to_string();
    let details = if details.is_empty() {
        details
    } else {
        format!(" ({details})")
    };
    format!(
        "h5logfs cannot undo operator {name}{details}: {}",
        about.reader(operator)
    )
}

/// What a header says besides the shape.
#[derive(Debug, Default, PartialEq)]
struct About<'a> {
    /// The version of the library that compressed the block.
    version: &'a [u8],
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> About<'a> {
    fn read(operator: u8, stored: &'a [u8]) -> Result<Self> {
        let mut header = Fields::new(stored, false);
        let _operator = header.u8()?;
        let version = header.u8()?;
        let _unused = header.u16()?;
        let mut about = About::default();
        match (operator, version) {
            (PLUGIN, 1) => about.parameters = super::parameters(&mut header)?,
            (PNG, 1) => {
                let _len = header.u64()?;
                about.version = header.take(3)?;
            }
            (SZ, 1 | 2) => about.version = super::behind_shape(header)?.1.take(4)?,
            (MGARD, 1) => about.version = super::behind_shape(header)?.1.take(3)?,
            (LIBPRESSIO, 1) => {
                let (_, mut header) = super::behind_shape(header)?;
                about.version = header.take(3)?;
                about.parameters = super::parameters(&mut header)?;
            }
            _ => {}
        }
        Ok(about)
    }

    /// What can read a block of this operator.
    fn reader(&self, operator: u8) -> String {
        let library = match operator {
            LIBPRESSIO => "libpressio",
            MGARD | MGARD_PLUS | MGARD_COMPLEX | MDR | MDR_OF_PRODM => "MGARD",
            PNG => "libpng",
            SIRIUS => "Sirius (MHS)",
            SZ => "SZ",
            BIGWHOOP => "BigWhoop",
            SZ3 => "SZ3",
            CAESAR => "CAESAR",
            PLUGIN if self.encrypts() => {
                return "the elements are encrypted; ADIOS2 with that plug-in and its key can"
                    .to_owned();
            }
            PLUGIN => return "ADIOS2 with that plug-in can".to_owned(),
            _ => {
                return "this number is not known; the release of ADIOS2 that wrote it can, unless the bytes are damaged"
                    .to_owned();
            }
        };
        format!("ADIOS2 can, if it was built with {library}")
    }

    /// Whether the plug-in is one that encrypts, such as ADIOS2's own `EncryptionOperator`.
    fn encrypts(&self) -> bool {
        let texts = self.parameters.iter().flat_map(|(key, value)| [key, value]);
        texts
            .into_iter()
            .any(|text| text.to_ascii_lowercase().contains("encrypt"))
    }
}

/// As "version 2.1.12, key = value, key = value".
impl std::fmt::Display for About<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let version: Vec<String> = self.version.iter().map(u8::to_string).collect();
        let version = (!version.is_empty()).then(|| format!("version {}", version.join(".")));
        let short = |text: &str| {
            text.chars()
                .take(MOST_CHARACTERS)
                .collect::<String>()
                .escape_debug()
                .to_string()
        };
        let shown = self.parameters.iter().take(MOST_SHOWN);
        let shown = shown.map(|(key, value)| format!("{} = {}", short(key), short(value)));
        let parts: Vec<String> = version.into_iter().chain(shown).collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with these bytes behind the common one.
    fn stored(operator: u8, version: u8, parts: &[&[u8]]) -> Vec<u8> {
        [&[operator, version, 0, 0][..], &parts.concat()].concat()
    }

    /// A shape of one dimension and a type, in either byte order.
    fn shape(is_big_endian: bool) -> Vec<u8> {
        let numbers = [1_u64, 14];
        if is_big_endian {
            return [
                &numbers.map(u64::to_be_bytes).concat()[..],
                &10_u32.to_be_bytes(),
            ]
            .concat();
        }
        [
            &numbers.map(u64::to_le_bytes).concat()[..],
            &10_u32.to_le_bytes(),
        ]
        .concat()
    }

    fn texts(texts: &[&str]) -> Vec<u8> {
        let mut bytes = vec![(texts.len() / 2) as u8];
        for text in texts {
            bytes.push(text.len() as u8);
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    #[test]
    fn each_operator_is_named_with_what_its_header_says() {
        let encryption = texts(&[
            "PluginLibrary",
            "EncryptionOperator",
            "PluginName",
            "sodium",
        ]);
        let codec = texts(&["accuracy", "0.01", "compressor_id", "sz3"]);
        for (stored, wanted) in [
            (
                stored(SZ, 2, &[&shape(false), &[2, 1, 12, 0], b"rest"]),
                "sz (version 2.1.12.0): ADIOS2 can, if it was built with SZ",
            ),
            (
                stored(MGARD, 1, &[&shape(true), &[1, 5, 2]]),
                "mgard (version 1.5.2): ADIOS2 can, if it was built with MGARD",
            ),
            (
                stored(LIBPRESSIO, 1, &[&shape(false), &[0, 99, 4], &codec]),
                "libpressio (version 0.99.4, accuracy = 0.01, compressor_id = sz3): ADIOS2 can, if it was built with libpressio",
            ),
            (
                stored(PNG, 1, &[&[0; 8], &[1, 6, 39]]),
                "png (version 1.6.39): ADIOS2 can, if it was built with libpng",
            ),
            (
                stored(PLUGIN, 1, &[&encryption, b"nonce"]),
                "plugin (PluginLibrary = EncryptionOperator, PluginName = sodium): the elements are encrypted",
            ),
            (
                stored(PLUGIN, 1, &[&texts(&["PluginName", "mine"])]),
                "plugin (PluginName = mine): ADIOS2 with that plug-in can",
            ),
            (stored(99, 1, &[]), "number 99: this number is not known"),
        ] {
            let message = message(stored[0], &stored);
            assert!(message.contains(wanted), "{message}");
            // Each beginning of it is named, too.
            for len in 0..stored.len() {
                let message = super::message(stored[0], &stored[..len]);
                assert!(
                    message.contains(&super::super::name(stored[0])),
                    "{message}"
                );
            }
        }
    }

    /// A later version of a header is not guessed at, and hostile texts are short and plain.
    #[test]
    fn what_is_not_known_is_not_shown() {
        let later = stored(SZ, 9, &[&shape(false), &[2, 1, 12, 0]]);
        assert!(message(SZ, &later).contains("operator sz: ADIOS2 can"));
        let long = "\u{1b}".repeat(200);
        let many: Vec<&str> = std::iter::repeat_n(&*long, 60).collect();
        let message = message(PLUGIN, &stored(PLUGIN, 1, &[&texts(&many)]));
        assert!(
            message.len() < 10_000 && !message.contains('\u{1b}'),
            "{message}"
        );
    }
}
