//! The MPI that the process runs. Handles of one MPI are invalid in another, and a launcher starts only its own.
//!
//! Handles of Open MPI are pointers; those of MPICH and its derivatives are numbers. A library compiled for one of them may
//! be loaded into a program of the other. The dynamic linker then binds it to the program's functions, and the first call
//! with a handle would crash. The functions that this module calls take no handles, and are the same in both.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use h5logfs_common::fault::Fault;
use mpi::ffi;

/// Name and version of the MPI of this build. Empty if its compiler did not tell.
const COMPILED_FOR: &str = env!("H5LOGFS_MPI");

/// The name in the bindings, which are not regenerated when another MPI is chosen.
const _: () = assert!(
    match COMPILED_FOR.as_bytes() {
        [b'O', ..] => matches!(Handles::compiled_for(), Handles::Pointers),
        [b'M', ..] => matches!(Handles::compiled_for(), Handles::Numbers),
        _ => true,
    },
    "this target directory has a build for another MPI: give each MPI its own (CARGO_TARGET_DIR)"
);

/// The kind of MPI handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handles {
    /// As in Open MPI.
    Pointers,
    /// As in MPICH.
    Numbers,
}

impl Handles {
    /// The handles of the MPI of this build.
    const fn compiled_for() -> Self {
        if size_of::<ffi::MPI_Comm>() == size_of::<c_int>() {
            Handles::Numbers
        } else {
            Handles::Pointers
        }
    }

    /// The handles of an MPI with this version text; `None` for an unknown MPI.
    fn of(version: &str) -> Option<Self> {
        let is_one_of = |names: &[&str]| names.iter().any(|name| version.contains(name));
        if is_one_of(&["Open MPI", "Spectrum MPI"]) {
            Some(Handles::Pointers)
        } else if is_one_of(&["MPICH", "MVAPICH", "Intel(R) MPI"]) {
            Some(Handles::Numbers)
        } else {
            None
        }
    }

    /// The most common MPI with these handles.
    fn name(self) -> &'static str {
        match self {
            Handles::Pointers => "Open MPI",
            Handles::Numbers => "MPICH",
        }
    }
}

/// Fails if the process runs an MPI with other handles than the MPI of this build. Callable at any time.
pub fn check() -> Result<(), Fault> {
    static CHECKED: OnceLock<Result<(), Fault>> = OnceLock::new();
    CHECKED.get_or_init(|| compare(&version())).clone()
}

/// Fails if an MPI with the version text `version` has other handles.
fn compare(version: &str) -> Result<(), Fault> {
    let own = Handles::compiled_for();
    match Handles::of(version) {
        Some(found) if found != own => Err(Fault::Refused(format!(
            "h5logfs was built for {}, and this program runs {}: use an h5logfs that was built for that MPI (the variable \
             MPICC names its compiler: MPICC=… make build-writer)",
            compiled_for(),
            short(version)
        ))),
        _ => Ok(()),
    }
}

/// Name and version of the MPI of this build.
fn compiled_for() -> &'static str {
    match COMPILED_FOR {
        "" => Handles::compiled_for().name(),
        name => name,
    }
}

/// The version text of the process's MPI.
fn version() -> String {
    // MPICH asks for 8192 bytes, Open MPI for 256.
    const MOST: usize = 16384;
    let mut text = vec![0u8; MOST];
    let mut len: c_int = 0;
    // SAFETY: the buffer is larger than any MPI requires. All allow the call at any time.
    unsafe { ffi::MPI_Get_library_version(text.as_mut_ptr().cast::<c_char>(), &mut len) };
    text.truncate(len.max(0) as usize);
    String::from_utf8_lossy(&text).into_owned()
}

/// Name and version from a version text, which may be pages long.
fn short(version: &str) -> String {
    let line = version.lines().next().unwrap_or_default();
    let words = line
        .split(',')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    words
        .filter(|word| *word != "Version:")
        .collect::<Vec<_>>()
        .join(" ")
}

/// A text about loaded libraries of another MPI, which explain why MPI seems not to run although the program has initialised
/// it.
pub fn others_loaded() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps
        .lines()
        .filter_map(|line| line.split_once('/').map(|(_, path)| path));
    let other = paths.into_iter().find(|path| is_of_other(path))?;
    Some(format!(
        "h5logfs was built for {}, and the process has /{other}, too: if it runs that MPI, use an h5logfs that was \
         built for that MPI",
        compiled_for()
    ))
}

/// Whether a file is the library of an MPI with other handles than the MPI of this build.
fn is_of_other(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    match Handles::compiled_for() {
        // Intel MPI, and MPICH as its authors install it, have the second name.
        Handles::Pointers => name.starts_with("libmpich.so.") || name.starts_with("libmpi.so.12"),
        Handles::Numbers => name.starts_with("libmpi.so.40"),
    }
}

/// Fails if a launcher has started several processes, but each of them is alone. The launcher then belongs to another MPI,
/// and all processes would act as the first rank of one job. MPI must be running.
pub fn check_launch() -> Result<(), Fault> {
    let mut size = 0;
    // SAFETY: MPI is running.
    unsafe { ffi::MPI_Comm_size(ffi::RSMPI_COMM_WORLD, &mut size) };
    if size != 1 {
        return Ok(());
    }
    // Variables that Open MPI, MPICH and MVAPICH set in the processes that they start.
    let variables = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"];
    for variable in variables {
        let value = std::env::var(variable).ok();
        let started: Option<u64> = value.and_then(|value| value.parse().ok());
        if let Some(started) = started.filter(|started| *started > 1) {
            return Err(Fault::Refused(format!(
                "{started} processes were started together ({variable}={started}), but for MPI each of them is alone: the \
                 program runs {}, and was started by the mpirun of another MPI. Start it by that of its own. If each \
                 process is meant to be alone, unset {variable}",
                short(&version())
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_MPI: &str =
        "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022";
    const MPICH: &str =
        "MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\n";
    const OTHERS: [(&str, Handles); 4] = [
        (
            "Intel(R) MPI Library 2021.10 for Linux* OS\n",
            Handles::Numbers,
        ),
        ("MVAPICH2 Version      :\t2.3.7\n", Handles::Numbers),
        (
            "MPI VERSION    : CRAY MPICH version 8.1.27.26 (ANL base 3.4a2)\n",
            Handles::Numbers,
        ),
        ("IBM Spectrum MPI v10.4.0.3", Handles::Pointers),
    ];

    #[test]
    fn the_mpi_that_this_was_compiled_for_is_known() {
        let name = Handles::compiled_for().name();
        assert!(compiled_for().starts_with(name), "{COMPILED_FOR}");
        assert!(
            compiled_for().len() > name.len(),
            "no version: {COMPILED_FOR}"
        );
        assert_eq!(check(), Ok(()));
        assert_eq!(others_loaded(), None);
    }

    #[test]
    fn an_mpi_with_other_handles_is_refused() {
        let (own, other) = match Handles::compiled_for() {
            Handles::Pointers => (OPEN_MPI, MPICH),
            Handles::Numbers => (MPICH, OPEN_MPI),
        };
        assert_eq!(compare(own), Ok(()));
        let refused = compare(other).unwrap_err().to_string();
        assert!(refused.contains(compiled_for()), "{refused}");
        for (version, handles) in OTHERS {
            assert_eq!(Handles::of(version), Some(handles), "{version}");
            assert_eq!(compare(version).is_ok(), handles == Handles::compiled_for());
        }
        assert_eq!(compare("Some MPI of the future"), Ok(()));
    }

    #[test]
    fn versions_are_shortened() {
        assert_eq!(short(OPEN_MPI), "Open MPI v4.1.4");
        assert_eq!(short(MPICH), "MPICH 4.0.2");
        assert_eq!(short(""), "");
    }
}
