//! The options that many commands share. The help of a command has its own options alone. `h5logfs help options` has the shared
//! ones, and the help of each command that takes them says so.

use std::io;

use clap::{Args, Command};

use super::ViewArgs;
use h5logfs_log::scan::{LAYOUT_OPTIONS, LayoutOption};

/// Name of the page of shared options.
pub const NAME: &str = "options";

/// The line at the end of the help of a command that takes shared options.
const POINTER: &str = "Options of layouts, memory, chunks, limits and earlier flushes (--option, --cache-size, --at-flush, …): \
                       `h5logfs help options`";

/// Describe the options that most commands share: layouts, memory, chunks, limits, earlier flushes
///
/// The commands ls, inspect, plot, export, follow, compact, check, report and settle take these options. Mounts and plug-ins have them
/// as mount options, with `_` in place of `-`: `-o cache_size=1G`.
#[derive(Debug, Clone, Args)]
#[command(override_usage = "h5logfs COMMAND [OPTIONS] …")]
pub struct OptionsArgs {
    #[command(flatten)]
    pub view: ViewArgs,
}

/// Prints the page: the options do nothing by themselves.
pub fn run(mut command_line: Command) -> io::Result<()> {
    command_line.build();
    match command_line.find_subcommand_mut(NAME) {
        Some(page) => page.print_long_help(),
        None => Ok(()),
    }
}

/// Shows the shared options on their page, and the way to that page in the help of each command that takes them.
pub fn add_to(command: Command) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|c| c.get_name().to_owned())
        .collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |subcommand| match subcommand.get_name() {
            NAME => {
                subcommand.mut_args(|option| option.hide_short_help(false).hide_long_help(false))
            }
            _ => add_own_to(subcommand),
        })
    })
}

/// Adds the way to the shared options to the help of a command, if it takes them.
pub fn add_own_to(command: Command) -> Command {
    if !takes_shared(&command) {
        return command;
    }
    let own = command.get_after_help().map(|help| format!("{help}\n\n"));
    command.after_help(own.unwrap_or_default() + POINTER)
}

/// Whether a command takes options that its help does not show.
pub fn takes_shared(command: &Command) -> bool {
    command
        .get_arguments()
        .any(|option| option.is_hide_long_help_set())
}

/// Whether a mount option of this name is one of the shared options.
pub fn has(name: &str) -> bool {
    let page = OptionsArgs::augment_args(Command::new(NAME));
    let is_option = page.get_arguments().any(|option| {
        option
            .get_long()
            .is_some_and(|long| long.replace('-', "_") == name)
    });
    is_option || LAYOUT_OPTIONS.iter().any(|option| option.name == name)
}

/// The help of the option of layouts.
pub fn layout_help() -> String {
    let names = LAYOUT_OPTIONS.map(|option| option.name).join(", ");
    format!("Options of layouts, separated by commas: {names}")
}

/// The same with a line for each of them.
pub fn layout_long_help() -> String {
    let line = |o: LayoutOption| format!("  {}={}: {} [{}]\n", o.name, o.form, o.help, o.default);
    let lines = LAYOUT_OPTIONS.map(line).concat();
    format!(
        "Options of layouts, separated by commas. Commands without an output file take them after -o, too.\n\n{lines}"
    )
}
