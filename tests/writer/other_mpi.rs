//! Two MPIs on one machine: a library built for one in a program of the other, and a launcher of the other.

use crate::capi::Installed;
use crate::common::mpirun::{Job, Mpi, program};
use crate::common::names_in;
use crate::common::readers::{Python, said};

const RANKS: u32 = 2;

#[track_caller]
fn check_says(said: &str, words: &[&str]) {
    for words in words {
        assert!(said.contains(words), "{words:?} is not in: {said}");
    }
}

/// The library's message in a program with another MPI.
fn refusal(other: Mpi) -> [String; 3] {
    [
        format!("h5logfs was built for {} ", Mpi::of_build().name()),
        format!("this program runs {} ", other.name()),
        "MPICC=… make build-writer".to_owned(),
    ]
}

#[test]
fn a_program_of_another_mpi_is_told() {
    let Some(other) = Mpi::other() else { return };
    let dir = tempfile::tempdir().unwrap();
    let logs = tempfile::tempdir().unwrap();
    let program = Installed::get().compile_for(other, "tests/c/other_mpi.c", dir.path());
    let mut mpirun = other.run(RANKS, &program);
    mpirun.arg(logs.path());
    let said = Job::launch(mpirun).succeed();
    let refusal = refusal(other);
    check_says(&said, &refusal.each_ref().map(String::as_str));
    for rank in 0..RANKS {
        check_says(&said, &[&format!("rank {rank} of {RANKS}: 8 ")]);
    }
    assert_eq!(names_in(logs.path()), [""; 0]);
}

/// Extension modules of Python see only their own libraries. Each MPI gets its own calls, except those that a library
/// exports to all, as Open MPI does.
#[test]
fn a_process_in_which_another_mpi_runs_aside_is_told() {
    let Some(other) = Mpi::other() else { return };
    let library = if other.is_mpich() {
        "libmpich.so.12"
    } else {
        "libmpi.so.40"
    };
    let Some(python) = Python::all().into_iter().next() else {
        return;
    };
    let script = "
import ctypes, os, sys
mpi = ctypes.CDLL(sys.argv[1], mode=os.RTLD_LOCAL)
assert mpi.MPI_Init(None, None) == 0
writer = ctypes.CDLL(sys.argv[2], mode=os.RTLD_LOCAL)
writer.h5logfs_last_error.restype = ctypes.c_char_p
file = ctypes.c_int64(7)
print(writer.h5logfs_create_f(0, sys.argv[3].encode(), None, ctypes.byref(file)), file.value)
print(writer.h5logfs_last_error().decode())
sys.stdout.flush()
os._exit(0)
";
    let dir = tempfile::tempdir().unwrap();
    let writer = Installed::get().path("lib/libh5logfs_writer.so");
    let mut command = python.command();
    command.args(["-c", script, library]).arg(writer);
    command.arg(dir.path().join("log.h5"));
    crate::common::mpirun::configure(&mut command, dir.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    check_says(&printed, &["8 0\n", &refusal(other)[0], "for that MPI"]);
}

/// Runs the example with the launcher of another MPI. Returns its output, and whether a log exists.
fn launched_by(other: Mpi) -> (bool, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut mpirun = other.run(RANKS, &program("heat"));
    mpirun.arg("heat.h5").current_dir(&dir);
    let mut job = Job::launch(mpirun);
    let status = job.wait();
    assert_eq!(names_in(dir.path()).is_empty(), !status.success());
    (status.success(), job.said())
}

#[test]
fn ranks_that_another_mpi_has_started_are_told_that_they_are_alone() {
    let Some(other) = Mpi::other() else { return };
    let variable = if other.is_mpich() {
        "PMI_SIZE=2"
    } else {
        "OMPI_COMM_WORLD_SIZE=2"
    };
    let (succeeded, said) = launched_by(other);
    assert!(!succeeded, "{said}");
    let runs = format!("the program runs {} ", Mpi::of_build().name());
    let words = [
        "2 processes were started together",
        variable,
        &runs,
        "mpirun of another MPI",
    ];
    check_says(&said, &words);
}
