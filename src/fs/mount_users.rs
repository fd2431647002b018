//! The processes that use a mount, for the message that the mount is in use.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::mounts::MountId;

/// Most processes named; the others are counted.
const NAMED: usize = 5;

/// A text with the processes that have a file or their working directory in the mount, as far as this user can see them.
/// Empty if none is known.
pub fn describe(mount: MountId, mount_point: &Path) -> String {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let users: Vec<String> = processes
        .filter(|process| is_number(process.file_name().as_encoded_bytes()))
        // The asking command may be in the mount itself, like its user's shell.
        .filter(|process| process.file_name() != *std::process::id().to_string())
        .map(|process| process.path())
        .filter(|process| stands_in(process, mount_point) || has_open(process, mount))
        .map(|process| describe_one(&process))
        .collect();
    let mut text = users[..users.len().min(NAMED)].join(", ");
    if users.len() > NAMED {
        let _ = write!(text, ", and {} more", users.len() - NAMED);
    }
    text
}

fn is_number(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_digit)
}

fn describe_one(process: &Path) -> String {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    let number = process.file_name().unwrap_or_default().to_string_lossy();
    format!("process {number} ({})", name.trim_end())
}

fn stands_in(process: &Path, mount_point: &Path) -> bool {
    let links = ["cwd", "root"].map(|name| fs::read_link(process.join(name)));
    links
        .iter()
        .flatten()
        .any(|path| path.starts_with(mount_point))
}

fn has_open(process: &Path, mount: MountId) -> bool {
    let open = fs::read_dir(process.join("fdinfo")).into_iter().flatten();
    open.flatten().any(|descriptor| {
        let about = fs::read_to_string(descriptor.path()).unwrap_or_default();
        let lines = about.lines();
        let mut number = lines.filter_map(|line| line.strip_prefix("mnt_id:"));
        number.any(|number| number.trim().parse() == Ok(mount.number()))
    })
}
