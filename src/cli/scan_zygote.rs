//! `h5logfs scan-zygote`: the process that forks scan workers. The program starts it by itself.

use clap::Args;
use h5logfs_scan::worker::{self, Confinement};

/// Serves scans for the process at the other end of standard input.
#[derive(Debug, Clone, Args)]
pub struct ScanZygoteArgs {
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

pub fn run(args: &ScanZygoteArgs) -> anyhow::Result<()> {
    let confinement = Confinement {
        memory: args.memory,
        cpu: args.cpu,
        user: args.user,
    };
    Ok(worker::serve(&confinement)?)
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
