//! `h5logfs scan-zygote`, the process that forks scan workers, and `h5logfs scan-worker`, one worker without it. Readers of
//! logs start them by themselves.

use clap::Args;
use h5logfs_scan::worker::{self, Confinement};

/// Serves scans for the process at the other end of standard input.
#[derive(Debug, Clone, Args)]
pub struct ScanArgs {
    /// Bytes of address space
    #[arg(long)]
    memory: u64,
    /// Seconds of processor time, for each worker
    #[arg(long)]
    cpu: u64,
    /// User and group to become, as UID:GID
    #[arg(long, value_parser = parse_user)]
    user: Option<(u32, u32)>,
}

/// Serves one scan for the process at the other end of standard input.
#[derive(Debug, Clone, Args)]
pub struct OneScanArgs {
    #[command(flatten)]
    scan: ScanArgs,
    /// The release of h5logfs that the other end is of
    #[arg(long)]
    release: String,
}

impl ScanArgs {
    fn confinement(&self) -> Confinement {
        Confinement {
            memory: self.memory,
            cpu: self.cpu,
            user: self.user,
            ends_with_parent: false,
        }
    }
}

pub fn zygote(args: &ScanArgs) -> anyhow::Result<()> {
    Ok(worker::serve(&args.confinement())?)
}

pub fn worker(args: &OneScanArgs) -> anyhow::Result<()> {
    let own = env!("CARGO_PKG_VERSION");
    if args.release == own {
        return Ok(worker::serve_one(&Confinement {
            ends_with_parent: true,
            ..args.scan.confinement()
        })?);
    }
    let (program, other) = (std::env::current_exe()?, &args.release);
    let program = program.display();
    let reason = format!("{program} is h5logfs {own}, and its caller is of release {other}");
    Ok(worker::refuse(reason)?)
}

fn parse_user(text: &str) -> Result<(u32, u32), String> {
    let pair = text.split_once(':');
    let pair = pair.and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    pair.ok_or_else(|| format!("`{text}` is not UID:GID"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_two_numbers() {
        assert_eq!(parse_user("7:8"), Ok((7, 8)));
        for bad in ["", "7", ":", "7:", "-1:0", "nobody:nogroup"] {
            assert!(parse_user(bad).is_err(), "{bad}");
        }
    }
}
