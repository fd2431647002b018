//! `h5logfs config`: checks a configuration file, or shows the options that it gives a mount.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{Config, Setting, usual_file};
use crate::cli::mount::options::{self, MountOption, Value};
use crate::cli::output::Output;

/// Check the configuration file, or show which options apply to a mount
#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "h5logfs config --check [FILE]\n       h5logfs config [--config FILE] [SRC] MNT"
)]
pub struct ConfigArgs {
    /// The mount whose options are shown, each with the line that it comes from; SRC is optional if the file names it for MNT
    #[arg(value_name = "SRC MNT", num_args = 1..=2, required_unless_present = "check")]
    pub places: Vec<PathBuf>,

    /// Only check FILE, or the usual configuration file
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with_all = ["places", "config"])]
    pub check: Option<Option<PathBuf>>,

    /// Use FILE in place of the usual configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Runs the command. The error lists all errors of the file.
pub fn run(args: ConfigArgs) -> Result<()> {
    if let Some(file) = args.check {
        return check(file);
    }
    let (source, point) = match args.places.as_slice() {
        [source, point] => (Some(source.as_path()), point),
        [point] => (None, point),
        _ => bail!("expected one mount: [SRC] MNT"),
    };
    let config = super::read(args.config.as_deref())?;
    let found = config.as_ref().and_then(|config| config.source_of(point));
    let source = source.or(found).with_context(|| no_source(point))?;
    let settings = config.iter().flat_map(|c| c.settings(source, point));
    show(config.as_ref(), &settings.collect::<Vec<_>>())
}

/// The error message for a mount without a source.
pub(in crate::cli) fn no_source(point: &Path) -> String {
    format!(
        "{}: no source was given, and the configuration has none for this mount point",
        point.display()
    )
}

fn check(file: Option<PathBuf>) -> Result<()> {
    let Some(path) = file.or_else(usual_file) else {
        bail!("you have no configuration file to check");
    };
    Config::read(&path)?;
    writeln!(Output::stdout(), "{}: ok", path.display())?;
    Ok(())
}

/// Prints a line for each option: its value, and the line of the file that sets it.
fn show(config: Option<&Config>, settings: &[&Setting]) -> Result<()> {
    let out = &mut Output::stdout();
    for option in options::all() {
        let given: Vec<_> = settings.iter().filter(|s| sets(s, &option)).collect();
        let adds_up = matches!(option.value, Value::Given { adds_up: true, .. });
        let overridden = if adds_up {
            0
        } else {
            given.len().saturating_sub(1)
        };
        for setting in &given[overridden..] {
            let file = config.map(|c| c.path().display().to_string());
            let (text, line) = (setting.option.display(), setting.line);
            writeln!(out, "{text}  # {}:{line}", file.unwrap_or_default())?;
        }
        if given.is_empty() {
            writeln!(out, "# {}: {}", option.name, option.default)?;
        }
    }
    Ok(())
}

fn sets(setting: &Setting, option: &MountOption) -> bool {
    let text = setting.option.to_string_lossy();
    let name = text.split('=').next().unwrap_or_default();
    let is_flag = matches!(option.value, Value::Flag(_));
    name == option.name || is_flag && name.strip_prefix("no") == Some(option.name)
}
