//! The directory in which the documents' samples run, with the files that they name.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::guide_program;
use crate::COMPACT_MPI;
use crate::common::make::{built_connector, built_driver};
use crate::common::mpirun::{self, Mpi, program};
use crate::common::readers::{Python, project, said};
use crate::common::{PROGRAM, User, is_root, mount, unmount_by_force};

/// Commands that would build, install or change something. The tests have these results already, so their replacements
/// do less: make only checks whether the targets exist. `python` is the interpreter with current packages.
const REPLACED: [(&str, &str); 4] = [
    ("python", "exec \"$PYTHON\" \"$@\""),
    ("cargo", "exit 0"),
    ("sudo", "exec \"$@\""),
    (
        "make",
        "PATH=${PATH#*:} exec make --dry-run --directory=\"$PROJECT\" \"$@\" >/dev/null",
    ),
];

/// The package's directory of the file driver.
const PLUGINS: &str = "/usr/lib/h5logfs/plugins";

/// Time limit of a sample in seconds.
const DEADLINE: &str = "120";

/// The directory is also the home of the user who runs the samples.
pub struct Place {
    dir: TempDir,
}

impl Place {
    /// A directory with everything that `sample` names.
    pub fn of(sample: &str) -> Self {
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
        };
        let sources = project().join("examples/sample");
        place.run(&format!(
            "mkdir bin view data && cp -r '{}' run42 && ln -s ../run42 data/run42",
            sources.display()
        ));
        for (name, source) in [
            ("steps.h5", sources.join("steps.h5")),
            ("output.h5", sources.join("weather.nc")),
            ("run42/output.h5", sources.join("weather.nc")),
            ("bad.h5", project().join("tests/corpus/bad_foff.log.h5")),
        ] {
            fs::copy(source, place.path(name)).unwrap();
        }
        if sample.contains("job7") {
            let striped = project().join("tests/corpus-striped");
            let copied = place.run(&format!(
                "cp -r '{0}/contig_2' job7 && cp -r '{0}/prefix_dir' job8",
                striped.display()
            ));
            assert!(copied.status.success(), "{}", said(&copied));
        }
        if sample.contains("run.bp") {
            let directory = project().join("tests/corpus-adios/b5_steps.bp");
            let copied = place.run(&format!("cp -r '{}' run.bp", directory.display()));
            assert!(copied.status.success(), "{}", said(&copied));
        }
        if sample.contains("ocean.nc") {
            let members = project().join("tests/corpus-tiles/fms_scatter");
            let copy = format!(
                "for dir in . run42; do cp '{}'/* $dir; done",
                members.display()
            );
            let copied = place.run(&copy);
            assert!(copied.status.success(), "{}", said(&copied));
        }
        if sample.contains("case.eam.h0.nc") {
            let directory = project().join("tests/corpus-scorpio/eam_h0_gaussian_15x30.nc.bp");
            let copied = place.run(&format!(
                "for dir in . run42; do cp -r '{}' $dir/case.eam.h0.nc.bp && ln -s case.eam.h0.nc.bp/md.0 $dir/case.eam.h0.nc; done",
                directory.display()
            ));
            assert!(copied.status.success(), "{}", said(&copied));
        }
        let options = "[defaults]\ncache_size = \"1G\"\n";
        fs::write(place.path("h5logfs.toml"), options).unwrap();
        for (name, script) in REPLACED {
            let path = place.path("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for program in [PROGRAM, COMPACT_MPI] {
            let name = Path::new(program).file_name().unwrap();
            symlink(program, place.path("bin").join(name)).unwrap();
        }
        fs::create_dir(place.path("plugins")).unwrap();
        for plugin in [built_driver(), built_connector()] {
            let name = plugin.file_name().unwrap();
            symlink(&plugin, place.path("plugins").join(name)).unwrap();
        }
        for name in ["run.h5", "killed.h5"] {
            if sample.contains(name) && !sample.contains("mpirun") {
                guide_program::leave_unclosed(&place.path(name));
            }
        }
        let sample = place.with_names(sample);
        if sample.contains("view/") && !sample.contains("mount") {
            let (source, point) = (place.path("run42"), place.path("view"));
            let output = mount(User::Caller, &source, &point, "");
            assert!(output.status.success(), "{}", said(&output));
        }
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a bash script, with these names in place of those in the documents.
    pub fn run(&self, script: &str) -> Output {
        // An ordinary user cannot umount.
        let umount = "umount() { fusermount3 -u \"$@\"; }";
        let umount = if is_root() { "" } else { umount };
        let script = format!("{umount}\n{}", self.with_names(script));
        let mut command = Command::new("timeout");
        command.args([DEADLINE, "bash", "-c", &script]);
        self.at(&mut command).output().unwrap()
    }

    pub fn run_python(&self, python: &Python, script: &str) -> Output {
        let mut command = python.command();
        command.args(["-c", script]);
        self.at(&mut command).output().unwrap()
    }

    fn at<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let path = Mpi::of_build().search_path();
        mpirun::configure(command, self.dir.path());
        command
            .current_dir(&self.dir)
            .env("HOME", self.dir.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("PROJECT", project())
            .envs(Python::new().map(|python| ("PYTHON", python.command().get_program().to_owned())))
            .env("LC_ALL", "C.UTF-8")
            .env(
                "PATH",
                format!("{}:{}", self.path("bin").display(), path.display()),
            )
    }

    fn with_names(&self, script: &str) -> String {
        let examples = program("heat");
        let examples = examples.parent().unwrap().display().to_string();
        let data = self.path("data").display().to_string();
        script
            .replace("target/release/examples", &examples)
            .replace("/data/", &format!("{data}/"))
            .replace("/data ", &format!("{data} "))
            .replace("MNT/", "view/")
            .replace("DIR/", "./")
            .replace(PLUGINS, &self.path("plugins").display().to_string())
    }

    /// The output of a command as documents shorten it: without the directory, and without a mount's remark about a
    /// missing system log.
    pub fn shortened(&self, output: &Output) -> String {
        let dir = format!("{}/", self.dir.path().display());
        let text = said(output).replace(&dir, "");
        let lines = text.split_inclusive('\n');
        lines
            .filter(|line| !line.contains("no system log"))
            .collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let is_mounted = |dir: &Path| crate::common::mount_type(dir).is_some();
        let view = self.path("view");
        if is_mounted(&view) {
            unmount_by_force(User::Caller, &view);
        }
    }
}
