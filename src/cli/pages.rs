//! `h5logfs pages`: writes the manual pages and the shell completions for `make install`. The program
//! makes them from its own command line, so that an installation needs no compiler.

mod completions;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use super::examples::{self, Example};

/// Write the manual pages and shell completions into a directory
#[derive(Debug, Clone, Args)]
pub struct PagesArgs {
    /// The directory, which is created if it is missing
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// The shells, and the files in which they look for completions, below PREFIX/share.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/h5logfs"),
    (Shell::Zsh, "zsh/site-functions/_h5logfs"),
    (Shell::Fish, "fish/vendor_completions.d/h5logfs.fish"),
];

/// A section for the end of each page, which the command line does not contain.
const EXIT_STATUS: &str = r#".SH "EXIT STATUS"
0 for success; 1 for a failure, with a message on standard error; 2 for an invalid command line;
4 where
.B export
or
.B compact
has made its file, and the file lacks data that the log has lost.
"#;

pub fn run(args: PagesArgs, command: Command) -> Result<()> {
    let mut completed = without_hidden(&command);
    for (shell, path) in SHELLS {
        let script = completions::script(shell, &mut completed)?;
        write(&args.dir.join(path), script.as_bytes())?;
    }
    let mut command = command.disable_help_subcommand(true);
    // Gives the subcommands their full names.
    command.build();
    let dir = args.dir.join("man/man1");
    let shown: Vec<&Command> = visible(&command).collect();
    let mut others: Vec<String> = shown.iter().map(|c| format!("{}(1)", title(c))).collect();
    others.push("mount.h5logfs(8)".to_owned());
    write_page(&command, &dir, &others)?;
    let others = ["h5logfs(1)".to_owned(), "mount.h5logfs(8)".to_owned()];
    shown
        .into_iter()
        .try_for_each(|c| write_page(c, &dir, &others))
}

/// The manual page of another program.
pub fn of_program(args: &PagesArgs, command: &Command) -> Result<()> {
    let others = ["h5logfs-compact(1)".to_owned(), "mpirun(1)".to_owned()];
    write_page(command, &args.dir.join("man/man1"), &others)
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|c| !c.is_hide_set())
}

/// The command line without its hidden parts, which completions would offer.
fn without_hidden(command: &Command) -> Command {
    let shown = visible(command).map(|subcommand| {
        let arguments = subcommand.get_arguments().filter(|a| !a.is_hide_set());
        // clap requires a `&'static str`. The program ends soon.
        Command::new(&*subcommand.get_name().to_owned().leak())
            .about(subcommand.get_about().cloned().unwrap_or_default())
            .args(arguments.cloned())
    });
    Command::new("h5logfs")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(shown)
}

/// The title of a page: `h5logfs-mount` for `h5logfs mount`.
fn title(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

fn write_page(command: &Command, dir: &Path, others: &[String]) -> Result<()> {
    // The page has its own sections for the examples, and shared options are on a page of their own.
    let own = command.clone().after_long_help(None);
    let own = own.mut_args(|option| {
        let is_hidden = option.is_hide_long_help_set() || option.is_hide_set();
        option.hide(is_hidden)
    });
    let page = Man::new(own)
        .source(concat!("h5logfs ", env!("CARGO_PKG_VERSION")))
        .manual("h5logfs")
        // Without a date, readers would take the next field for it.
        .date(" ");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let mut text = with_values(command, String::from_utf8(text)?).into_bytes();
    write_examples(examples::of(command.get_name()), &mut text)?;
    text.extend_from_slice(EXIT_STATUS.as_bytes());
    writeln!(text, ".SH \"SEE ALSO\"\n{}", others.join(", "))?;
    write(&dir.join(page.get_filename()), &text)
}

/// The synopsis with the values of options that only have a short name, for which clap_mangen leaves a blank.
fn with_values(command: &Command, mut page: String) -> String {
    for option in command.get_arguments() {
        let (Some(short), None) = (option.get_short(), option.get_long()) else {
            continue;
        };
        let names = option.get_value_names().unwrap_or_default().join(" ");
        let names = names.replace('-', r"\-");
        let left_blank = format!(r"[\fB\-{short} \fR]");
        page = page.replace(&left_blank, &format!(r"[\fB\-{short}\fR \fI{names}\fR]"));
    }
    page
}

fn write_examples(examples: &[Example], text: &mut Vec<u8>) -> Result<()> {
    if !examples.is_empty() {
        writeln!(text, ".SH EXAMPLES")?;
    }
    for Example { purpose, call } in examples {
        let call = call.replace('-', r"\-").replace('~', r"\(ti");
        writeln!(text, "{purpose}\n.PP\n.RS 4\n.EX\n{call}\n.EE\n.RE\n.PP")?;
    }
    Ok(())
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    let dir = path.parent().context("a file needs a directory")?;
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    fs::write(path, content).with_context(|| path.display().to_string())
}
