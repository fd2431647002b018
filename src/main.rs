//! The program `h5logfs`: parses the command line and calls [`h5logfs::cli`].

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use h5logfs::cli::mount::helper;
use h5logfs::cli::output::{log_to_stderr, print_error};
use h5logfs::cli::suggest::nearest;
use h5logfs::cli::{
    check, compact, doctor, examples, export, follow, inspect, ls, pages, recover, report,
    scan_server, settle,
};

/// Shows log-layout files as canonical HDF5, without conversion.
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
    Ls(ls::LsArgs),
    Inspect(inspect::InspectArgs),
    Export(export::ExportArgs),
    Follow(follow::FollowArgs),
    Compact(compact::CompactArgs),
    Check(check::CheckArgs),
    Doctor(doctor::DoctorArgs),
    Report(report::ReportArgs),
    Recover(recover::RecoverArgs),
    Settle(settle::SettleArgs),
    #[command(hide = true)]
    Pages(pages::PagesArgs),
    #[command(hide = true)]
    UnmountWatch(h5logfs::cli::mount::WatchArgs),
    #[command(hide = true)]
    ScanZygote(scan_server::ScanArgs),
    #[command(hide = true)]
    ScanWorker(scan_server::OneScanArgs),
    #[command(hide = true)]
    CloseLog(scan_server::CloseArgs),
    #[command(hide = true)]
    ProbeHdf5(doctor::ProbeArgs),
    UnmountDead(h5logfs::cli::mount::UnmountDeadArgs),
    Config(h5logfs::cli::config::ConfigArgs),
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.first().is_some_and(|name| helper::is_name(name)) {
        return ExitCode::from(helper::main(arguments));
    }
    let matches = command_line().get_matches_from(with_subcommand(arguments));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            print_error("h5logfs", &error);
            match error.downcast_ref() {
                Some(follow::JobEnded(_)) => ExitCode::from(3),
                None => ExitCode::FAILURE,
            }
        }
    }
}

/// The command line, with the examples.
fn command_line() -> clap::Command {
    examples::add_to(Cli::command())
}

/// Whether the reader of the output has closed it, as `head` does.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Mount(args) => h5logfs::cli::mount::run(args),
        Command::UnmountWatch(args) => h5logfs::cli::mount::watch(args),
        Command::ScanZygote(args) => scan_server::zygote(&args),
        Command::ScanWorker(args) => scan_server::worker(&args),
        Command::CloseLog(args) => scan_server::close(&args),
        Command::ProbeHdf5(args) => doctor::probe(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Umount(args) => h5logfs::cli::mount::umount(args),
        Command::UnmountDead(args) => h5logfs::cli::mount::unmount_dead(args),
        Command::Config(args) => h5logfs::cli::config::run(args),
        Command::Ls(args) => with_log(|| ls::run(args)),
        Command::Inspect(args) => with_log(|| inspect::run(args)),
        Command::Follow(args) => with_log(|| follow::run(args)),
        Command::Export(args) => with_log(|| export::run(args)),
        Command::Compact(args) => with_log(|| compact::run(args)),
        Command::Check(args) => with_log(|| check::run(args)),
        Command::Report(args) => with_log(|| report::run(args)),
        Command::Recover(args) => with_log(|| recover::run(args)),
        Command::Settle(args) => with_log(|| settle::run(args)),
        Command::Pages(args) => pages::run(args, command_line()),
    }
}

fn with_log(command: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    log_to_stderr();
    command()
}

/// `h5logfs SRC MNT …`, as mount(8) calls it, becomes `h5logfs mount SRC MNT …`.
fn with_subcommand(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_some_and(|first| first == "-o") || args.len() > 2 && is_source(&args[1]) {
        args.insert(1, "mount".into());
    }
    args
}

/// Whether the first argument is what to mount, and not a command or an option. A word that is almost a command counts as
/// one if there is no file of that name. Then clap suggests the command. A word with a slash is a path.
fn is_source(first: &OsStr) -> bool {
    let command = Cli::command();
    let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
    let names = shown.map(|c| c.get_name()).chain(["help"]);
    let is_command = first == "help" || command.find_subcommand(first).is_some();
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

    fn completed(args: &[&str]) -> Vec<OsString> {
        with_subcommand(args.iter().map(OsString::from).collect())
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
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }
}
