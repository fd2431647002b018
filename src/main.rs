//! The program `h5logfs`: parses the command line and calls [`h5logfs::cli`].

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use h5logfs::cli::environment::forget_hdf5;
use h5logfs::cli::missing::{self, LostData};
use h5logfs::cli::mount::options::{MountOption, Value};
use h5logfs::cli::mount::{helper, run as run_command};
use h5logfs::cli::output::{log_to_stderr, print_error};
use h5logfs::cli::scan_server::Served;
use h5logfs::cli::suggest::nearest;
use h5logfs::cli::{
    check, compact, doctor, examples, export, follow, inspect, ls, pages, plot, recover, report,
    settle, shared,
};

/// Shows parallel log files as ordinary HDF5 files, without converting them.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "The form that mount(8) uses, `h5logfs SRC MNT -o OPTIONS`, means `h5logfs mount`."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mount(h5logfs::cli::mount::MountArgs),
    Umount(h5logfs::cli::mount::UmountArgs),
    Run(h5logfs::cli::mount::run::RunArgs),
    Ls(ls::LsArgs),
    Inspect(inspect::InspectArgs),
    Export(export::ExportArgs),
    Follow(follow::FollowArgs),
    Compact(compact::CompactArgs),
    Check(check::CheckArgs),
    Doctor(doctor::DoctorArgs),
    Report(report::ReportArgs),
    Plot(plot::PlotArgs),
    Recover(recover::RecoverArgs),
    Settle(settle::SettleArgs),
    #[command(hide = true)]
    Pages(pages::PagesArgs),
    #[command(hide = true)]
    UnmountWatch(h5logfs::cli::mount::WatchArgs),
    #[command(hide = true)]
    ProbeHdf5(doctor::ProbeArgs),
    #[command(hide = true)]
    ProbeMount(doctor::ProbeMountArgs),
    UnmountDead(h5logfs::cli::mount::UnmountDeadArgs),
    Config(h5logfs::cli::config::ConfigArgs),
    Options(shared::OptionsArgs),
}

impl Command {
    /// Whether the command starts programs of the user in their environment, or examines that environment.
    fn is_about_programs(&self) -> bool {
        matches!(
            self,
            Command::Run(_) | Command::Doctor(_) | Command::ProbeHdf5(_) | Command::ProbeMount(_)
        )
    }
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.first().is_some_and(|name| helper::is_name(name)) {
        forget_hdf5();
        return ExitCode::from(helper::main(arguments));
    }
    if let Some(served) = Served::of(&arguments) {
        forget_hdf5();
        return ended(served.run().map(|()| ExitCode::SUCCESS));
    }
    let command_line = command_line();
    let arguments = with_subcommand(arguments, &command_line);
    let matches = command_line.try_get_matches_from(&arguments);
    let matches = matches.unwrap_or_else(|e| with_mount_tip(e, &arguments).exit());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    if !cli.command.is_about_programs() {
        forget_hdf5();
    }
    ended(run(cli.command))
}

/// Reports a failure. Returns the exit status of the process.
fn ended(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(status) => status,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        // A warning has said so.
        Err(error) if error.is::<LostData>() => ExitCode::from(missing::STATUS),
        Err(error) => {
            print_error("h5logfs", &error);
            status_of(&error)
        }
    }
}

/// The exit status for an error.
fn status_of(error: &anyhow::Error) -> ExitCode {
    if error.is::<follow::JobEnded>() {
        return ExitCode::from(3);
    }
    match error.downcast_ref() {
        Some(run_command::NotRun(status)) => ExitCode::from(*status),
        None => ExitCode::FAILURE,
    }
}

/// Adds a tip if a mount option was given as an option of the command line.
fn with_mount_tip(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    let mounts = |command: &OsString| command == "mount" || command == "run";
    if error.kind() != ErrorKind::UnknownArgument || !arguments.get(1).is_some_and(mounts) {
        return error;
    }
    let tip = arguments.iter().enumerate().find_map(|(at, argument)| {
        let next = arguments.get(at + 1).and_then(|next| next.to_str());
        mount_option_for(argument.to_str()?, next)
    });
    if let Some(option) = tip {
        let tip = format!("mount options follow -o: `-o {option}`");
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// The mount option meant by an argument such as `--cache-size`, or `--cache_size=1G`, with its value. `next`: the following
/// argument.
fn mount_option_for(argument: &str, next: Option<&str>) -> Option<String> {
    let (name, value) = match argument.strip_prefix("--")?.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (argument.strip_prefix("--")?, None),
    };
    let option = MountOption::named(&name.replace('-', "_"))?;
    if matches!(option.value, Value::Flag(_)) {
        return Some(option.name.to_owned());
    }
    let value = value.or(next.filter(|next| !next.starts_with('-')));
    Some(value.map_or_else(
        || option.usage(),
        |value| format!("{}={value}", option.name),
    ))
}

/// The command line with examples, and with the way to the shared options.
fn command_line() -> clap::Command {
    examples::add_to(shared::add_to(Cli::command()))
}

/// Whether the reader of the output has closed it, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Run(args) => return Ok(ExitCode::from(run_command::run(&args)?)),
        Command::Mount(args) => h5logfs::cli::mount::run(args),
        Command::UnmountWatch(args) => h5logfs::cli::mount::watch(args),
        Command::ProbeHdf5(args) => doctor::probe(&args),
        Command::ProbeMount(args) => doctor::probe_mount(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Umount(args) => h5logfs::cli::mount::umount(args),
        Command::UnmountDead(args) => h5logfs::cli::mount::unmount_dead(args),
        Command::Config(args) => h5logfs::cli::config::run(args),
        Command::Options(_) => Ok(shared::run(command_line())?),
        Command::Ls(args) => with_log(|| ls::run(args)),
        Command::Inspect(args) => with_log(|| inspect::run(args)),
        Command::Follow(args) => with_log(|| follow::run(args)),
        Command::Export(args) => with_log(|| export::run(args)),
        Command::Compact(args) => with_log(|| compact::run(args)),
        Command::Check(args) => with_log(|| check::run(args)),
        Command::Report(args) => with_log(|| report::run(args)),
        Command::Plot(args) => with_log(|| plot::run(args)),
        Command::Recover(args) => with_log(|| recover::run(args)),
        Command::Settle(args) => with_log(|| settle::run(args)),
        Command::Pages(args) => pages::run(args, command_line()),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn with_log(command: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    log_to_stderr();
    command()
}

/// Turns `h5logfs SRC MNT …`, as mount(8) calls it, into `h5logfs mount SRC MNT …`.
fn with_subcommand(mut args: Vec<OsString>, command_line: &clap::Command) -> Vec<OsString> {
    let is_source = |first| is_source(first, command_line);
    if args.get(1).is_some_and(|first| first == "-o") || args.len() > 2 && is_source(&args[1]) {
        args.insert(1, "mount".into());
    }
    args
}

/// Whether the first argument is a source to mount, and not a command or an option. A word that is almost a command counts as
/// a command if there is no file of that name, and clap then suggests the command. A word with a slash is a path.
fn is_source(first: &OsStr, command_line: &clap::Command) -> bool {
    let shown = command_line.get_subcommands().filter(|c| !c.is_hide_set());
    let names = shown.map(|c| c.get_name()).chain(["help"]);
    let is_command = first == "help" || command_line.find_subcommand(first).is_some();
    let bytes = first.as_encoded_bytes();
    let is_option = bytes.starts_with(b"-");
    let is_mistyped = !bytes.contains(&b'/')
        && nearest(&first.to_string_lossy(), names).is_some()
        && Path::new(first).symlink_metadata().is_err();
    !is_command && !is_option && !is_mistyped
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_log::scan::LAYOUT_OPTIONS;

    fn completed(args: &[&str]) -> Vec<OsString> {
        with_subcommand(args.iter().map(OsString::from).collect(), &command_line())
    }

    #[test]
    fn the_form_of_mount_8_means_mount() {
        let mount = ["h5logfs", "mount", "/src", "/mnt", "-o", "ro"];
        assert_eq!(completed(&["h5logfs", "/src", "/mnt", "-o", "ro"]), mount);
        assert_eq!(completed(&mount), mount);
        assert_eq!(completed(&["h5logfs", "--help"]), ["h5logfs", "--help"]);
        assert_eq!(completed(&["h5logfs", "typo"]), ["h5logfs", "typo"]);
        let mistyped = ["h5logfs", "insepct", "a", "b"];
        assert_eq!(completed(&mistyped), mistyped);
        let absolute = completed(&["h5logfs", "/mount", "/mnt"]);
        assert_eq!(absolute[1], "mount");
        let relative = completed(&["h5logfs", "run42", "mnt"]);
        assert_eq!(relative[1], "mount");
        let options_first = completed(&["h5logfs", "-o", "ro", "/src", "/mnt"]);
        assert_eq!(options_first[1], "mount");
    }

    #[test]
    fn a_mount_option_in_the_wrong_place_is_named() {
        let tip = |arguments: &[&str]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            let error = command_line().try_get_matches_from(&arguments).unwrap_err();
            with_mount_tip(error, &arguments).to_string()
        };
        for (arguments, expected) in [
            (
                &["--cache_size", "1G", "/src", "/mnt"][..],
                Some("-o cache_size=1G`"),
            ),
            (
                &["/src", "/mnt", "--cache-size=1G"],
                Some("-o cache_size=1G`"),
            ),
            (&["/src", "/mnt", "--allow-other"], Some("-o allow_other`")),
            (
                &["/src", "/mnt", "--cache_size"],
                Some("-o cache_size=SIZE`"),
            ),
            (&["/src", "/mnt", "--frobnicate"], None),
        ] {
            let said = tip(&[&["h5logfs", "mount"], arguments].concat());
            match expected {
                Some(expected) => assert!(said.contains(expected), "{said}"),
                None => assert!(!said.contains("-o "), "{said}"),
            }
        }
    }

    #[test]
    fn a_layout_option_in_the_place_of_the_output_is_named() {
        let arguments = ["h5logfs", "export", "log", "out", "-o", "chunk=1"];
        let option = LAYOUT_OPTIONS[0].name;
        for (given, is_named) in [(format!("{option}=dir"), true), ("other".into(), false)] {
            let mut arguments = arguments.map(OsString::from);
            arguments[5] = given.into();
            let error = command_line().try_get_matches_from(&arguments).unwrap_err();
            let said = error.to_string();
            assert_eq!(said.contains("`--option "), is_named, "{said}");
        }
    }

    /// A command's own options come alone. The shared ones are on their page, which the help names.
    #[test]
    fn shared_options_are_described_in_one_place() {
        let mut command_line = command_line();
        command_line.build();
        let mut taking = 0;
        for command in command_line.get_subcommands_mut() {
            let is_page = command.get_name() == shared::NAME;
            let takes = shared::takes_shared(command);
            for help in [command.render_help(), command.render_long_help()] {
                let help = help.to_string();
                assert_eq!(help.contains("--scan-memory"), is_page, "{help}");
                assert!(!takes || help.contains("`h5logfs help options`"), "{help}");
            }
            taking += usize::from(takes);
        }
        assert!(taking >= 8, "{taking}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }
}
