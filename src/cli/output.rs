//! The output of the commands. Users choose the names of files, datasets and attributes, which may contain commands to a
//! terminal. So every line passes [`plain`], as do the daemon's messages.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::colour::{self, Colour};
use super::config::ConfigErrors;

/// Whether a character neither ends a line, controls a terminal, changes the order of text, nor hides.
pub fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text with all other characters escaped, as `\n` or `\u{1b}`.
pub fn plain(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_plain(c) {
            escaped.push(c);
        } else {
            escaped.extend(c.escape_default());
        }
    }
    Cow::Owned(escaped)
}

/// The output of a command, line by line.
pub struct Output<W> {
    to: W,
    /// Whether words may have colours.
    is_coloured: bool,
}

impl Output<io::StdoutLock<'static>> {
    pub fn stdout() -> Self {
        let is_terminal = io::stdout().is_terminal();
        Output {
            to: io::stdout().lock(),
            is_coloured: colour::is_wanted(is_terminal),
        }
    }
}

impl<W: Write> Output<W> {
    /// Output to another writer than standard output.
    pub fn to(writer: W) -> Self {
        Output {
            to: writer,
            is_coloured: false,
        }
    }

    /// Prints one line of several parts, some of them in a colour.
    pub fn painted(&mut self, parts: &[(Option<Colour>, &str)]) -> io::Result<()> {
        for (colour, text) in parts {
            let text = plain(text);
            match colour.filter(|_| self.is_coloured) {
                Some(colour) => self.to.write_all(colour.paint(&text).as_bytes())?,
                None => self.to.write_all(text.as_bytes())?,
            }
        }
        writeln!(self.to)
    }

    /// Prints one line, for `writeln!`.
    pub fn write_fmt(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        let line = line.to_string();
        let line = line.strip_suffix('\n').unwrap_or(&line);
        writeln!(self.to, "{}", plain(line))
    }

    pub fn blank_line(&mut self) -> io::Result<()> {
        writeln!(self.to)
    }

    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        writeln!(
            self.to,
            "{}",
            plain_json(&serde_json::to_string_pretty(value)?)
        )
    }

    /// Prints a value as one line of JSON.
    pub fn json_line(&mut self, value: &impl Serialize) -> io::Result<()> {
        writeln!(self.to, "{}", plain_json(&serde_json::to_string(value)?))
    }

    /// Prints a JSON array, one item a line.
    pub fn json_array<E: From<io::Error>>(
        &mut self,
        items: impl Iterator<Item = Result<impl Serialize, E>>,
    ) -> Result<(), E> {
        let mut before = "[\n";
        let mut end = "[]";
        for item in items {
            let item = serde_json::to_string(&item?).map_err(io::Error::from)?;
            write!(self.to, "{before}{}", plain_json(&item))?;
            (before, end) = (",\n", "\n]");
        }
        Ok(writeln!(self.to, "{end}")?)
    }
}

/// Escapes all characters of JSON that are not plain, except line ends. serde_json escapes only what JSON requires.
fn plain_json(json: &str) -> Cow<'_, str> {
    let stays = |c: char| c == '\n' || is_plain(c);
    if json.chars().all(stays) {
        return Cow::Borrowed(json);
    }
    // Such a character can only be in a string.
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if stays(c) {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(escaped)
}

/// A number of things, with the plural of the noun where it belongs.
pub fn counted(number: u64, noun: &str) -> String {
    let plural = match number {
        1 => "",
        _ if noun.ends_with("sh") => "es",
        _ => "s",
    };
    format!("{number} {noun}{plural}")
}

/// A share from 0 to 1 in percent, rounded down: 100 % means all.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", (share * 1000.0).floor() / 10.0)
}

/// Ends a command that went on after errors: fails with the last error, and prints the others.
pub fn fail_with_last(mut errors: Vec<anyhow::Error>) -> anyhow::Result<()> {
    let Some(last) = errors.pop() else {
        return Ok(());
    };
    for error in &errors {
        print_error("h5logfs", error);
    }
    Err(last)
}

/// Logs the library's messages to standard error if `RUST_LOG` requests them. They exclude the output of a command.
pub fn log_to_stderr() {
    let filter = env_logger::Env::default().default_filter_or("off");
    let mut logger = env_logger::Builder::from_env(filter);
    logger.format(|line, record| {
        let message = record.args().to_string();
        writeln!(line, "[{}] {}", record.level(), plain(&message))
    });
    logger.init();
}

/// Prints the error that ends `program`. Each error of a configuration file has its own line.
pub fn print_error(program: &str, error: &anyhow::Error) {
    match error.downcast_ref::<ConfigErrors>() {
        Some(errors) => {
            let lines = errors.lines().map(plain).collect::<Vec<_>>();
            eprintln!("{program}: {}", lines.join("\n"));
        }
        None => eprintln!("{program}: {}", plain(&format!("{error:#}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\n[2m\r\u{1b}[2J\u{7f}\u{9b}\u{202e}\u{2028}\0\u{e0041}\u{fff9}";

    #[test]
    fn what_is_plain_stays() {
        assert!(matches!(plain("ordinary: text, ü, 文"), Cow::Borrowed(_)));
    }

    #[test]
    fn other_characters_are_escaped() {
        let line = plain(HOSTILE);
        assert!(line.chars().all(is_plain));
        let expected = r"a\n[2m\r\u{1b}[2J\u{7f}\u{9b}\u{202e}\u{2028}\u{0}\u{e0041}\u{fff9}";
        assert_eq!(line, expected);
    }

    #[test]
    fn a_line_is_a_line() {
        let mut out = Output::to(Vec::new());
        writeln!(out, "{HOSTILE}").unwrap();
        write!(out, "end").unwrap();
        let text = String::from_utf8(out.to).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.ends_with("end\n"));
    }

    #[test]
    fn colours_surround_plain_words() {
        let parts = [(Some(Colour::Bad), "a\u{1b}[2J"), (None, ": b")];
        for (is_coloured, expected) in [
            (true, "\u{1b}[31ma\\u{1b}[2J\u{1b}[0m: b\n"),
            (false, "a\\u{1b}[2J: b\n"),
        ] {
            let mut out = Output {
                to: Vec::new(),
                is_coloured,
            };
            out.painted(&parts).unwrap();
            assert_eq!(String::from_utf8(out.to).unwrap(), expected);
        }
    }

    #[test]
    fn json_is_plain_and_means_the_same() {
        let mut out = Output::to(Vec::new());
        out.json(&[HOSTILE]).unwrap();
        let items = [HOSTILE, "plain"].map(Ok::<_, io::Error>);
        out.json_array(items.into_iter()).unwrap();
        out.json_array(std::iter::empty::<io::Result<&str>>())
            .unwrap();
        let text = String::from_utf8(out.to).unwrap();
        assert!(text.chars().all(|c| c == '\n' || is_plain(c)), "{text}");
        let values = serde_json::Deserializer::from_str(&text).into_iter::<Vec<String>>();
        let values: Vec<_> = values.map(Result::unwrap).collect();
        assert_eq!(values[0], [HOSTILE]);
        assert_eq!(values[1], [HOSTILE, "plain"]);
        assert_eq!(values[2], [""; 0]);
    }
}
