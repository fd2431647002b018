//! scripts/setup.sh while another program installs packages.
//!
//! apt-get has its own directories here, with its own lock and no package source. Only lists are really requested:
//! installations are recorded instead.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::common::is_root;
use crate::common::readers::project;

/// Locks a file as apt does, reports it, and ends with its input.
const HOLDER: &str = "
import fcntl, sys
file = open(sys.argv[1], 'w')
fcntl.lockf(file, fcntl.LOCK_EX)
print('locked', flush=True)
sys.stdin.read()
";

/// Tells the script that no package is installed.
const DPKG_QUERY: &str = "exit 1";

const APT_GET: &str = r#"
case $1 in
update)
    exec /usr/bin/apt-get -o Dir::State="$APT/state" -o Dir::State::Lists="$APT/lists" -o Dir::Cache="$APT/cache" \
        -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null "$@"
    ;;
install) echo "$@" >"$APT/installed" ;;
esac
"#;

struct Place {
    dir: TempDir,
}

impl Place {
    /// The setup; prints the reason if it is impossible.
    fn new() -> Option<Self> {
        if !is_root() || !Path::new("/usr/bin/apt-get").exists() {
            eprintln!("skipped: only root can run apt-get, on a Debian system");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for (program, script) in [("dpkg-query", DPKG_QUERY), ("apt-get", APT_GET)] {
            let path = dir.path().join(program);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for below in ["lists/partial", "state", "cache/archives/partial"] {
            fs::create_dir_all(dir.path().join(below)).unwrap();
        }
        Some(Place { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts another program that holds the lock of the lists.
    fn lock(&self) -> Child {
        let mut holder = Command::new("python3");
        holder.args(["-c", HOLDER]).arg(self.path("lists/lock"));
        holder.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().unwrap();
        let line = first_line(holder.stdout.take().unwrap());
        assert_eq!(line, "locked\n");
        holder
    }

    fn setup(&self) -> Command {
        self.setup_for("build")
    }

    fn setup_for(&self, purpose: &str) -> Command {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new(project().join("scripts/setup.sh"));
        command
            .arg(purpose)
            .env("PATH", format!("{}:{path}", self.dir.path().display()))
            .env("APT", self.dir.path());
        command
    }
}

fn first_line(output: impl Read) -> String {
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).unwrap();
    line
}

#[test]
fn setup_waits_for_the_lock_of_another_program() {
    let Some(place) = Place::new() else { return };
    let mut holder = place.lock();
    let mut setup = place.setup().stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(setup.stdout.take().unwrap()).lines();
    let said = output.find(|line| line.as_ref().unwrap().contains("waiting"));
    let said = said.expect("it does not wait").unwrap();
    assert!(said.contains("lists/lock"), "{said}");
    assert_eq!(setup.try_wait().unwrap(), None);
    assert!(!place.path("installed").exists());
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert!(setup.wait().unwrap().success());
    let installed = fs::read_to_string(place.path("installed")).unwrap();
    assert!(installed.contains("pkg-config"), "{installed}");
}

#[test]
fn setup_does_not_wait_for_ever() {
    let Some(place) = Place::new() else { return };
    let mut holder = place.lock();
    let mut setup = place.setup();
    let output = setup.env("H5LOGFS_SETUP_SECONDS", "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("for 1 seconds"),
        "{said}"
    );
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

/// The benchmarks compile an HDF5 and programs for it.
#[test]
fn the_benchmarks_of_writing_get_what_they_compile_with() {
    let Some(place) = Place::new() else { return };
    assert!(place.setup_for("bench-mpi").status().unwrap().success());
    let installed = fs::read_to_string(place.path("installed")).unwrap();
    for package in ["cmake", "make", "python3", "libopenmpi-dev"] {
        assert!(
            installed.split_whitespace().any(|p| p == package),
            "{package}: {installed}"
        );
    }
}

/// Any other failure is reported at once.
#[test]
fn setup_tells_what_apt_says() {
    let Some(place) = Place::new() else { return };
    let failing = "#!/bin/sh\necho 'E: no space left' >&2\nexit 100\n";
    let mut file = fs::File::create(place.path("apt-get")).unwrap();
    file.write_all(failing.as_bytes()).unwrap();
    drop(file);
    let output = place.setup().output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("E: no space left"),
        "{said}"
    );
}
