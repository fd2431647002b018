//! Colours for a person at a terminal. There are none where standard output is no terminal, with NO_COLOR
//! (<https://no-color.org>), and on a terminal that calls itself dumb.

use std::env;

/// The meaning of a coloured word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// All is well.
    Good,
    /// Something is at work, or asks for a look.
    Notice,
    /// A fault.
    Bad,
}

impl Colour {
    /// The word with the sequences of ECMA-48 around it. `word`: plain text.
    pub fn paint(self, word: &str) -> String {
        let number = match self {
            Colour::Good => 32,
            Colour::Notice => 33,
            Colour::Bad => 31,
        };
        format!("\x1b[{number}m{word}\x1b[0m")
    }
}

/// Whether output may have colours. `is_terminal`: whether it goes to a terminal.
pub fn is_wanted(is_terminal: bool) -> bool {
    wanted(is_terminal, |name| env::var(name).ok())
}

fn wanted(is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
    is_terminal && !is_set("NO_COLOR") && variable("TERM").is_some_and(|term| term != "dumb")
}

/// The colours of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// 8 bits for each of red, green and blue.
    All,
    /// The 256 colours of xterm.
    Few,
}

impl Depth {
    /// The colours that the environment promises; `None` for less than 256.
    pub fn of(is_terminal: bool) -> Option<Self> {
        depth(is_terminal, |name| env::var(name).ok())
    }

    /// The sequence that sets the colour of the characters behind it: red, green, blue.
    pub fn foreground(self, colour: [u8; 3]) -> String {
        self.sequence(38, colour)
    }

    /// The sequence that sets the colour behind the characters.
    pub fn background(self, colour: [u8; 3]) -> String {
        self.sequence(48, colour)
    }

    fn sequence(self, kind: u8, [red, green, blue]: [u8; 3]) -> String {
        match self {
            Depth::All => format!("\x1b[{kind};2;{red};{green};{blue}m"),
            Depth::Few => format!("\x1b[{kind};5;{}m", of_256([red, green, blue])),
        }
    }
}

fn depth(is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> Option<Depth> {
    if !wanted(is_terminal, &variable) {
        return None;
    }
    let all = variable("COLORTERM").is_some_and(|value| value == "truecolor" || value == "24bit");
    let few = variable("TERM").is_some_and(|term| term.contains("256color"));
    match (all, few) {
        (true, _) => Some(Depth::All),
        (false, true) => Some(Depth::Few),
        (false, false) => None,
    }
}

/// The nearest of the 216 colours that xterm has in a cube.
fn of_256([red, green, blue]: [u8; 3]) -> u8 {
    const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let nearest = |value: u8| {
        let numbers = 0..6u8;
        let distance = |n: &u8| STEPS[usize::from(*n)].abs_diff(value);
        numbers.min_by_key(distance).unwrap_or(0)
    };
    16 + 36 * nearest(red) + 6 * nearest(green) + nearest(blue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides() {
        for (is_terminal, variables, expected, colours) in [
            (
                false,
                &[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")][..],
                None,
                false,
            ),
            (
                true,
                &[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")],
                Some(Depth::All),
                true,
            ),
            (true, &[("TERM", "xterm-256color")], Some(Depth::Few), true),
            (
                true,
                &[("TERM", "xterm-256color"), ("NO_COLOR", "1")],
                None,
                false,
            ),
            (
                true,
                &[("TERM", "xterm-256color"), ("NO_COLOR", "")],
                Some(Depth::Few),
                true,
            ),
            (
                true,
                &[("TERM", "dumb"), ("COLORTERM", "truecolor")],
                None,
                false,
            ),
            (true, &[("TERM", "linux")], None, true),
            (true, &[], None, false),
        ] {
            let variable = |name: &str| {
                let found = variables.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(depth(is_terminal, variable), expected, "{variables:?}");
            assert_eq!(wanted(is_terminal, variable), colours, "{variables:?}");
        }
        assert_eq!(of_256([255, 255, 255]), 231);
        assert_eq!(of_256([0, 0, 0]), 16);
        assert_eq!(of_256([250, 0, 100]), 16 + 36 * 5 + 1);
    }
}
