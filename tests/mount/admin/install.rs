//! Installation by administrators: the files of `make install` and their use, `make uninstall`, and the Debian package,
//! which is installed, used, removed and purged.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::make::make;
use crate::common::readers::{Python, corpus, project, said};
use crate::common::{User, can_act, can_mount, is_root, messages, mount};
use h5logfs_catalog::options;
use h5logfs_vol_connector::options::NAMES as OPTIONS;
use tempfile::TempDir;

const PREFIX: &str = "/opt/logs";
const SBINDIR: &str = "/usr/sbin";

/// Runs a command, which must succeed.
#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output();
    let output = output.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a program is installed. Prints a message if not.
fn there_is(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: there is no {program}");
    }
    found
}

/// A root directory with everything installed.
struct Installed {
    root: TempDir,
}

impl Installed {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let installed = Installed { root };
        installed.make("install");
        installed
    }

    /// Runs make as root with a umask that makes files private by default.
    fn make(&self, target: &str) {
        let mut command = make(target);
        command
            .arg(format!("DESTDIR={}", self.root.path().display()))
            .arg(format!("PREFIX={PREFIX}"))
            .arg(format!("SBINDIR={SBINDIR}"));
        run(Command::new("sh")
            .args(["-c", "umask 077; exec \"$@\"", "sh"])
            .arg(command.get_program())
            .args(command.get_args())
            .envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .current_dir(project()));
    }

    fn path(&self, below: &str) -> PathBuf {
        let prefix = PREFIX.trim_start_matches('/');
        self.root.path().join(prefix).join(below)
    }

    /// The manual pages.
    fn pages(&self) -> Vec<PathBuf> {
        let sections = ["man1", "man7", "man8"];
        let sections = sections.map(|s| files(&self.path("share/man").join(s)));
        sections.into_iter().flatten().collect()
    }
}

/// All files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()))
        } else {
            found.push(entry.path())
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    let attributes = fs::symlink_metadata(path);
    let attributes = attributes.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    attributes.permissions().mode() & 0o7777
}

#[test]
fn everything_is_installed_in_its_place() {
    let installed = Installed::new();
    assert_eq!(mode(&installed.path("bin/h5logfs")), 0o755);
    for file in [
        "include/h5logfs/H5VL_log.h",
        "include/h5logfs_vol_api.h",
        "lib/h5logfs/plugins/libh5logfs_connector.so",
        "lib/h5logfs/plugins/libh5logfs_driver.so",
        "lib/pkgconfig/h5logfs_vol_api.pc",
        "lib/sysusers.d/h5logfs.conf",
        "share/bash-completion/completions/h5logfs",
        "share/doc/h5logfs/LICENSE",
        "share/doc/h5logfs/README.md",
        "share/doc/h5logfs/decisions/0002-the-table-is-a-second-copy.md",
        "share/doc/h5logfs/examples/fstab.example",
        "share/doc/h5logfs/formats/logvol.md",
        "share/doc/h5logfs/operations.md",
        "share/fish/vendor_completions.d/h5logfs.fish",
        "share/man/man1/h5logfs-check.1",
        "share/man/man1/h5logfs-export.1",
        "share/man/man1/h5logfs-inspect.1",
        "share/man/man1/h5logfs-mount.1",
        "share/man/man1/h5logfs-recover.1",
        "share/man/man1/h5logfs-settle.1",
        "share/man/man1/h5logfs.1",
        "share/man/man7/h5logfs_connector.7",
        "share/man/man7/h5logfs_driver.7",
        "share/man/man8/mount.h5logfs.8",
        "share/zsh/site-functions/_h5logfs",
    ] {
        assert_eq!(mode(&installed.path(file)), 0o644, "{file}");
    }
    for file in files(installed.root.path()) {
        // A user who cannot enter a directory can use nothing in it.
        let dirs = file.ancestors().skip(1);
        for dir in dirs.take_while(|dir| *dir != installed.root.path()) {
            let used = ["share", "lib/h5logfs"].map(|used| installed.path(used));
            let wanted = used.iter().any(|used| dir.starts_with(used));
            assert!(!wanted || mode(dir) == 0o755, "{}", dir.display());
        }
    }
    // The place where mount(8) looks, with the path relative to the real root.
    let helper = installed.root.path().join("usr/sbin/mount.h5logfs");
    let target = fs::read_link(helper).unwrap();
    assert_eq!(target, Path::new(PREFIX).join("bin/h5logfs"));
    let version = run(Command::new(installed.path("bin/h5logfs")).arg("--version"));
    assert_eq!(
        text(&version),
        concat!("h5logfs ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

/// Without the writer library, `make install` installs the rest, and reports the omission.
#[test]
fn what_was_not_built_is_told() {
    let root = tempfile::tempdir().unwrap();
    let mut install = make("install");
    install
        .arg(format!("DESTDIR={}", root.path().display()))
        .args(["SBINDIR=", "WRITER_FILE=was-not-built"]);
    let said = text(&run(&mut install));
    for left_out in [
        "C library",
        "parallel programs",
        "h5logfs-compact-mpi",
        "make build-writer",
    ] {
        assert!(said.contains(left_out), "{said}");
    }
}

/// An ordinary user writes nothing outside of the home, and hears what root can add.
#[test]
fn an_ordinary_user_installs_below_the_home() {
    if !can_act(User::Nobody) {
        return;
    }
    let home = User::Nobody.dir();
    let prefix = home.path().join(".local");
    let as_nobody = |target: &str, prefix: &Path| {
        let usual = make(target);
        let variables = usual.get_envs().filter_map(|(k, v)| Some((k, v?)));
        let mut command = User::Nobody.command("make");
        command.args(usual.get_args()).envs(variables);
        command.arg(format!("PREFIX={}", prefix.display()));
        let output = command
            .env("HOME", home.path())
            .current_dir(project())
            .output();
        output.unwrap()
    };
    let output = as_nobody("install", &prefix);
    assert!(output.status.success(), "{}", said(&output));
    let bin = prefix.join("bin");
    let helper = format!("ln -s {}/h5logfs /sbin/mount.h5logfs", bin.display());
    let path = format!("add {} to PATH", bin.display());
    for told in [helper, path] {
        assert!(text(&output).contains(&told), "{told}: {}", said(&output));
    }
    run(User::Nobody
        .command(bin.join("h5logfs").to_str().unwrap())
        .arg("--version"));
    assert!(
        files(home.path())
            .iter()
            .all(|file| file.starts_with(&prefix))
    );
    let output = as_nobody("uninstall", &prefix);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(files(home.path()), Vec::<PathBuf>::new());
    let output = as_nobody("install", Path::new("/usr/local"));
    let refused = said(&output);
    assert!(
        !output.status.success() && refused.contains("may not write to /usr/local"),
        "{refused}"
    );
}

/// The project's units name the program; the installed ones have its path.
#[test]
fn units_start_the_program_that_was_installed() {
    let installed = Installed::new();
    for (from, to) in [("systemd", "system"), ("systemd/user", "user")] {
        let Ok(units) = fs::read_dir(project().join(from)) else {
            continue;
        };
        let units = units.map(|unit| unit.unwrap().path());
        for unit in units.filter(|unit| unit.extension().is_some_and(|e| e == "service")) {
            let name = unit.file_name().unwrap();
            let unit = installed.path("lib/systemd").join(to).join(name);
            assert_eq!(mode(&unit), 0o644);
            let content = fs::read_to_string(&unit).unwrap();
            let start = format!("\nExecStart={PREFIX}/bin/h5logfs mount ");
            assert!(content.contains(&start), "{content}");
            assert!(!content.contains("=h5logfs "), "{content}");
        }
    }
}

#[test]
fn uninstalling_leaves_nothing() {
    let installed = Installed::new();
    installed.make("uninstall");
    assert_eq!(files(installed.root.path()), Vec::<PathBuf>::new());
    assert!(!installed.path("share/doc/h5logfs").exists());
    assert!(!installed.path("lib/h5logfs").exists());
    // `make uninstall` also succeeds when nothing is installed.
    installed.make("uninstall");
}

/// Opens a log with the file driver, and prints whether its values are those of an ordinary file.
const COMPARE: &str = "
import sys, h5py
with h5py.File(sys.argv[1]) as log, h5py.File(sys.argv[2]) as plain:
    names = []
    plain.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    assert names and all((log[name][()] == plain[name][()]).all() for name in names)
print('equal')
";

/// The driver finds the program installed with it, without any variable.
#[test]
fn a_program_reads_a_log_with_the_installed_driver() {
    let Some(python) = Python::new() else { return };
    let installed = Installed::new();
    let home = tempfile::tempdir().unwrap();
    let output = python
        .command()
        .env("HDF5_DRIVER", "h5logfs")
        .env("HDF5_PLUGIN_PATH", installed.path("lib/h5logfs/plugins"))
        .env("HDF5_DRIVER_CONFIG", "index_dir=none")
        .env("HOME", home.path())
        .env("PATH", "/usr/bin:/bin")
        .env_remove("H5LOGFS_PROGRAM")
        .args(["-c", COMPARE])
        .args(["nd.log.h5", "nd.expected.h5"].map(|file| corpus().join(file)))
        .output()
        .unwrap();
    assert_eq!(text(&output), "equal\n", "{}", said(&output));
}

#[test]
fn manual_pages_are_well_formed() {
    let installed = Installed::new();
    let pages = installed.pages();
    assert!(pages.len() > 6, "{pages:?}");
    for page in &pages {
        if there_is("man") {
            let output = run(Command::new("man").args(["--warnings", "-l"]).arg(page));
            assert!(text(&output).contains("SEE ALSO"), "{}", page.display());
            assert!(output.stderr.is_empty(), "{}", said(&output));
        }
        let roff = fs::read_to_string(page).unwrap();
        assert!(
            !roff.contains(r"\-o \fR]"),
            "{}: an option without its value",
            page.display()
        );
        if Command::new("mandoc").output().is_ok() {
            run(Command::new("mandoc").args(["-Tlint", "-Werror"]).arg(page));
        } else {
            eprintln!("skipped: there is no mandoc");
        }
    }
}

/// Each command has a page, and each page belongs to a command.
#[test]
fn pages_are_those_of_the_commands() {
    let help = text(&run(Command::new(crate::common::PROGRAM).arg("--help")));
    let list = help.split("Commands:\n").nth(1).unwrap();
    let list = list.split("\n\n").next().unwrap();
    // Continuation lines are indented further.
    let lines = list.lines().filter(|l| !l.starts_with("   "));
    let commands = lines.filter_map(|line| line.split_whitespace().next());
    let commands = commands.filter(|command| *command != "help");
    let mut expected: BTreeSet<String> = commands.map(|c| format!("h5logfs-{c}.1")).collect();
    assert!(expected.len() > 4, "{help}");
    let written = [
        "h5logfs.1",
        "h5logfs_connector.7",
        "h5logfs_driver.7",
        "mount.h5logfs.8",
    ];
    expected.extend(written.map(String::from));
    let installed = Installed::new();
    // The page is installed with the writer library, if that was built.
    let for_jobs = installed.path("bin/h5logfs-compact-mpi").exists();
    expected.extend(for_jobs.then(|| "h5logfs-compact-mpi.1".to_owned()));
    let pages = installed.pages();
    let name = |page: &PathBuf| page.file_name().unwrap().to_str().unwrap().to_owned();
    let pages: BTreeSet<String> = pages.iter().map(name).collect();
    assert_eq!(pages, expected);
}

/// The names of the options in the table of docs/operations.md.
fn documented_options() -> BTreeSet<String> {
    let text = fs::read_to_string(project().join("docs/operations.md")).unwrap();
    let section = text.split("\n## Options\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let name = |row: &str| row.split(['`', '=', ' ']).next().unwrap().to_owned();
    let names: BTreeSet<String> = rows.map(name).collect();
    assert!(names.len() > 10, "{names:?}");
    names
}

/// The page is written by hand. It must have exactly the existing options.
#[test]
fn the_page_of_mount_8_has_every_option() {
    let page = fs::read_to_string(project().join("packaging/man/mount.h5logfs.8")).unwrap();
    let section = page.split("\n.SH OPTIONS\n").nth(1).unwrap();
    let section = section.split("\n.SH ").next().unwrap();
    // The line after `.TP` has the option, in some cases after a font macro.
    let entries = section.split("\n.TP\n").skip(1);
    let name = |entry: &str| {
        let line = entry.lines().next().unwrap();
        let word = line.split(' ').find(|word| !word.starts_with('.'));
        word.unwrap().split('=').next().unwrap().to_owned()
    };
    let described: BTreeSet<String> = entries.map(name).collect();
    let missing: Vec<_> = documented_options()
        .difference(&described)
        .cloned()
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    for option in described {
        let output = mount(User::Caller, "/-".as_ref(), "/-".as_ref(), &option);
        let complaint = messages(&output);
        assert!(
            !output.status.success() && !complaint.contains("unknown"),
            "{complaint}"
        );
    }
}

/// The manual page of the driver, and the table in docs/operations.md.
#[test]
fn all_options_of_the_driver_are_described() {
    let names: BTreeSet<String> = options::all().map(|o| o.name.to_owned()).collect();
    let page = fs::read_to_string(project().join("packaging/man/h5logfs_driver.7")).unwrap();
    let described = page.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix(".BI ")?.split_once("= ")?;
        Some(name.to_owned())
    });
    assert_eq!(described.collect::<BTreeSet<_>>(), names);
    let text = fs::read_to_string(project().join("docs/operations.md")).unwrap();
    let section = text.split("\n## The file driver\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let documented = cells.flat_map(|cell| cell.split(", "));
    let documented = documented.map(|name| name.trim().trim_matches('`').to_owned());
    assert_eq!(documented.collect::<BTreeSet<_>>(), names);
}

/// The manual page of the connector, the table in docs/writing.md, and the options in its code.
#[test]
fn all_options_of_the_connector_are_described() {
    let names: BTreeSet<String> = OPTIONS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let page = fs::read_to_string(project().join("packaging/man/h5logfs_connector.7")).unwrap();
    let described = page.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix(".BI ")?.split_once("= ")?;
        Some(name.to_owned())
    });
    let under = ["under_vol", "under_info"].map(String::from);
    let described: BTreeSet<_> = described.filter(|name| !under.contains(name)).collect();
    assert_eq!(described, names);
    let text = fs::read_to_string(project().join("docs/writing.md")).unwrap();
    for (name, variable) in OPTIONS {
        let row = format!("| `{name}=");
        let row = text.lines().find(|line| line.starts_with(&row));
        let row = row.unwrap_or_else(|| panic!("{name} is not in the guide"));
        assert!(row.contains(&format!("`{variable}`")), "{row}");
        assert!(page.contains(variable), "{variable}");
    }
}

#[test]
fn completions_complete() {
    let installed = Installed::new();
    let bash = installed.path("share/bash-completion/completions/h5logfs");
    let script = r#"
        set -e
        source "$1"
        complete -p h5logfs >/dev/null
        COMP_WORDS=(h5logfs "") COMP_CWORD=1
        _h5logfs h5logfs "" h5logfs
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let offered = text(&run(Command::new("bash")
        .args(["-c", script, "bash"])
        .arg(&bash)));
    let offered: Vec<&str> = offered.lines().collect();
    for command in [
        "mount",
        "inspect",
        "check",
        "export",
        "recover",
        "settle",
        "--version",
    ] {
        assert!(offered.contains(&command), "{command}: {offered:?}");
    }
    for hidden in ["unmount-watch", "pages"] {
        assert!(!offered.contains(&hidden), "{hidden}: {offered:?}");
    }
    let script = fs::read_to_string(&bash).unwrap();
    assert!(script.contains("--foreground") && !script.contains("--daemon-child"));
    let others = [
        ("zsh", "share/zsh/site-functions/_h5logfs"),
        ("fish", "share/fish/vendor_completions.d/h5logfs.fish"),
    ];
    for (shell, path) in others.into_iter().filter(|(shell, _)| there_is(shell)) {
        run(Command::new(shell).arg("-n").arg(installed.path(path)));
    }
}

/// The options after -o are completed one by one.
#[test]
fn completions_of_mount_options() {
    let installed = Installed::new();
    let bash = installed.path("share/bash-completion/completions/h5logfs");
    // The words into which bash splits the line.
    let script = r#"
        source "$1"; shift
        COMP_LINE=$1 COMP_POINT=${#1}; shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        cd /usr
        _h5logfs_and_options h5logfs "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let offered = |line: &str, words: &[&str]| {
        let mut command = Command::new("bash");
        command.args(["-c", script, "bash"]).arg(&bash);
        let output = text(&run(command.arg(line).args(words)));
        output.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mount = ["h5logfs", "mount", "a", "b", "-o"];
    let after = |words: &[&'static str]| [&mount, words].concat();
    for (typed, words, expected) in [
        ("al", &["al"][..], &["allow_other"][..]),
        (
            "allow_other,cac",
            &["allow_other,cac"],
            &["allow_other,cache_size="],
        ),
        (
            "chunk=8M,index_",
            &["chunk", "=", "8M,index_"],
            &["8M,index_memory=", "8M,index_dir=", "8M,index_dir_size="],
        ),
        ("netcdf=", &["netcdf", "="], &["hdf5", "plain"]),
        (
            "threads=1,chunk=a",
            &["threads", "=", "1,chunk", "=", "a"],
            &["auto"],
        ),
        ("log_file=shar", &["log_file", "=", "shar"], &["share"]),
        ("threads=", &["threads", "="], &[""]),
    ] {
        let line = format!("h5logfs mount a b -o {typed}");
        assert_eq!(offered(&line, &after(words)), expected, "{typed}");
    }
    let all = offered("h5logfs mount a b -o ", &after(&[""]));
    let names: BTreeSet<String> = all.iter().map(|o| o.trim_end_matches('=').into()).collect();
    assert_eq!(names, documented_options());
    let reading = offered("h5logfs check -o b", &["h5logfs", "check", "-o", "b"]);
    assert_eq!(reading, ["burst_dir="]);
    // The syntax of mount(8).
    let helper = offered("h5logfs a b -o thr", &["h5logfs", "a", "b", "-o", "thr"]);
    assert_eq!(helper, ["threads="]);

    let zsh = fs::read_to_string(installed.path("share/zsh/site-functions/_h5logfs")).unwrap();
    for function in ["_h5logfs_mount_options", "_h5logfs_layout_options"] {
        assert!(zsh.matches(function).count() > 1, "{function}");
    }
    if there_is("fish") {
        let fish = installed.path("share/fish/vendor_completions.d/h5logfs.fish");
        let script = "source $argv[1]; complete -C 'h5logfs mount a b -o allow_other,cac'";
        let offered = run(Command::new("fish").args(["-c", script]).arg(fish));
        let offered = text(&offered);
        assert!(offered.starts_with("allow_other,cache_size="), "{offered}");
    }
}

// --- the Debian package --------------------------------------------------------------------------

/// Runs in its own mount and process namespaces: `package.sh DEB SOURCE COMPARE [PYTHON]`. The package is installed
/// over the machine's root, in an overlay in memory that disappears with the namespace.
const PACKAGE: &str = r#"
set -eu
top=$1 package=$2 source=$3 compare=$4 python=${5:-}
fail() { echo "FAILED: $*"; exit 1; }
# Mounts of other tests would not end as long as they are here, too.
umount -l -a -t fuse.h5logfs
mount -t tmpfs h5logfs-test "$top"
mkdir "$top/upper" "$top/work" "$top/root"
mount -t overlay h5logfs-test -o "lowerdir=/,upperdir=$top/upper,workdir=$top/work" "$top/root"
mount --rbind /dev "$top/root/dev"
mount -t proc proc "$top/root/proc"
root=$top/root
cp "$package" "$root/package.deb"
mkdir "$root/source" "$root/mount"
cp -r "$source"/. "$root/source"
in_root() { chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

in_root dpkg -i /package.deb
[ "$(in_root sh -c 'command -v h5logfs')" = /usr/bin/h5logfs ] || fail "not the program of the package"
in_root h5logfs --version
in_root getent passwd h5logfs | grep -q nologin || fail "no user for the workers"

in_root mount -t h5logfs /source /mount -o allow_other
in_root findmnt -n -t fuse.h5logfs /mount || fail "nothing is mounted"
in_root cmp /source/file /mount/file
in_root h5logfs export /source/nd.log.h5 /shown.h5
in_root cmp /shown.h5 /mount/nd.log.h5
if [ -n "$python" ]; then
    said=$(in_root env HDF5_DRIVER=h5logfs HDF5_PLUGIN_PATH=/usr/lib/h5logfs/plugins HDF5_DRIVER_CONFIG=index_dir=none \
        "$python" -c "$compare" /source/nd.log.h5 /shown.h5 2>&1) || fail "with the driver: $said"
fi
# Logs are looked at by the user of the package.
scanner=$(in_root sh -c 'grep -l scan-z[y]gote /proc/[0-9]*/cmdline')
uid=$(in_root id -u h5logfs)
in_root grep -q "^Uid:.$uid.$uid.$uid.$uid\$" "${scanner%cmdline}status" || fail "scanned by somebody else"
in_root umount /mount

# Once more: an upgrade to the same version, while something is mounted.
in_root mount -t fuse.h5logfs /source /mount -o index_dir=none
in_root dpkg -i /package.deb
in_root cmp /shown.h5 /mount/nd.log.h5
in_root umount /mount

[ "$(in_root stat -c %a /var/cache/h5logfs)" = 700 ] || fail "nothing was kept, so purging is not tested"

# A purge under a mount cannot remove the user, and says what to do.
in_root mount -t h5logfs /source /mount
said=$(in_root dpkg -P h5logfs 2>&1) || fail "purge under a mount: $said"
case $said in *"still use it:"*/mount*"userdel h5logfs"*) ;; *) fail "purge under a mount said: $said" ;; esac
in_root cmp /shown.h5 /mount/nd.log.h5
in_root umount /mount
for _ in $(seq 100); do ! in_root pgrep -u h5logfs >/dev/null || sleep 0.1; done
in_root userdel h5logfs
in_root dpkg -i /package.deb
in_root mount -t h5logfs /source /mount
in_root cat /mount/nd.log.h5 >/dev/null
in_root umount /mount

in_root dpkg -r h5logfs
in_root sh -c '! command -v h5logfs' || fail "the program is still there"
in_root dpkg -P h5logfs
in_root sh -c '! getent passwd h5logfs' || fail "the user is still there"
# A deletion is kept as a device; what the package manager writes down about it is not named after it.
left=$(find "$top/upper" -name '*h5logfs*' ! -type c)
[ -z "$left" ] || fail "left: $left"
echo COMPLETE
"#;

/// The reason why the package cannot be tried.
fn hindrance() -> Option<&'static str> {
    let works = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    let root_layer = "d=$(mktemp -d); trap 'umount -R $d; rmdir $d' EXIT; mount -t tmpfs t $d && \
        mkdir $d/u $d/w $d/r && mount -t overlay o -o lowerdir=/,upperdir=$d/u,workdir=$d/w $d/r";
    match () {
        () if !works("dpkg", &["--version"]) => Some("not a Debian system"),
        () if !works("dpkg-shlibdeps", &["--version"]) => Some("dpkg-dev is not installed"),
        () if !is_root() => Some("only root can install a package"),
        () if !works("unshare", &["--mount", "sh", "-ec", root_layer]) => {
            Some("no layer over the root directory can be mounted")
        }
        () if !works("dpkg", &["--status", "fuse3"]) => Some("fuse3 is not installed"),
        () => None,
    }
}

/// Name and description of the cargo packages from which Debian packages are made.
fn synopses() -> [(String, String); 2] {
    ["Cargo.toml", "crates/writer/Cargo.toml"].map(|manifest| {
        let text = fs::read_to_string(project().join(manifest)).unwrap();
        let value = |key: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(&format!("{key} = \"")));
            value.unwrap().trim_end_matches('"').to_owned()
        };
        (value("name"), value("description"))
    })
}

/// Debian uses the description of the crate as the synopsis.
#[test]
fn synopses_of_debian_packages_are_one_line() {
    for (name, synopsis) in synopses() {
        assert!(synopsis.len() < 80, "{name}: {synopsis}");
    }
}

#[test]
#[ignore = "make test-deb"]
fn the_debian_package_is_installed_used_and_removed() {
    if let Some(why) = hindrance() {
        eprintln!("skipped: {why}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let made = make("deb")
        .arg(format!("DEBDIR={}", dir.path().display()))
        .env("DEB_COMPRESSION", "none")
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let version = env!("CARGO_PKG_VERSION");
    let packages = files(dir.path());
    let name = |p: &PathBuf| p.file_name().unwrap().to_str().unwrap().to_owned();
    let package = packages
        .iter()
        .find(|p| name(p).starts_with(&format!("h5logfs_{version}-1_")));
    let package = package.unwrap_or_else(|| panic!("{packages:?}"));

    for package in &packages {
        let named =
            |manifest: &&(String, String)| name(package).starts_with(&format!("{}_", manifest.0));
        let synopses = synopses();
        let (_, synopsis) = synopses.iter().find(named).unwrap();
        let field = run(Command::new("dpkg-deb")
            .arg("-f")
            .arg(package)
            .arg("Description"));
        let field = text(&field);
        assert_eq!(field.lines().next(), Some(&**synopsis), "{field}");
        assert!(field.lines().count() > 2, "{field}");
    }
    let fields = text(&run(Command::new("dpkg-deb").arg("--info").arg(package)));
    for needed in ["fuse3", "libhdf5", "libc6", "passwd"] {
        let depends = fields
            .lines()
            .find(|line| line.trim().starts_with("Depends:"));
        assert!(depends.unwrap().contains(needed), "{fields}");
    }
    let list = text(&run(Command::new("dpkg-deb")
        .arg("--contents")
        .arg(package)));
    for (mode, path) in [
        ("-rwxr-xr-x", "./usr/bin/h5logfs"),
        ("lrwxrwxrwx", "./usr/sbin/mount.h5logfs -> ../bin/h5logfs"),
        (
            "-rw-r--r--",
            "./usr/lib/h5logfs/plugins/libh5logfs_connector.so",
        ),
        (
            "-rw-r--r--",
            "./usr/lib/h5logfs/plugins/libh5logfs_driver.so",
        ),
        ("-rw-r--r--", "./usr/include/h5logfs/H5VL_log.h"),
        ("-rw-r--r--", "./usr/include/h5logfs_vol_api.h"),
        (
            "lrwxrwxrwx",
            concat!(
                "./usr/lib/libh5logfs_vol_api.so.0 -> libh5logfs_vol_api.so.",
                env!("CARGO_PKG_VERSION")
            ),
        ),
        ("-rw-r--r--", "./usr/share/man/man1/h5logfs.1.gz"),
        ("-rw-r--r--", "./usr/share/man/man8/mount.h5logfs.8.gz"),
        ("-rw-r--r--", "./usr/share/zsh/vendor-completions/_h5logfs"),
        ("-rw-r--r--", "./usr/share/doc/h5logfs/copyright"),
        ("-rw-r--r--", "./usr/share/doc/h5logfs/operations.md"),
    ] {
        let line = list
            .lines()
            .find(|line| line.ends_with(&format!(" {path}")));
        let line = line.unwrap_or_else(|| panic!("{path}: {list}"));
        assert!(line.starts_with(mode), "{line}");
    }
    if !can_mount(User::Caller) {
        return;
    }
    let (top, source) = (
        tempfile::tempdir().unwrap(),
        crate::common::source(User::Caller),
    );
    let log = project().join("tests/corpus/nd.log.h5");
    fs::copy(log, source.path().join("nd.log.h5")).unwrap();
    let said = run(Command::new("timeout")
        .args([
            "300",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
        ])
        .args(["bash", "-c", PACKAGE, "package.sh"])
        .arg(top.path())
        .arg(package)
        .arg(source.path())
        .arg(COMPARE)
        .args(Python::new().map(|python| python.command().get_program().to_owned())));
    assert!(text(&said).ends_with("COMPLETE\n"), "{}", text(&said));
}
