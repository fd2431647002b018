//! The examples at the end of `h5logfs COMMAND --help` and of each manual page. A test runs them.

use clap::Command;

use super::compact::ranks;

/// A call of a command.
pub struct Example {
    /// Description of the example.
    pub purpose: &'static str,
    pub call: &'static str,
}

const fn example(purpose: &'static str, call: &'static str) -> Example {
    Example { purpose, call }
}

/// Examples by command.
const EXAMPLES: [(&str, &[Example]); 17] = [
    (
        "mount",
        &[
            example(
                "Mount a directory of logs:",
                "h5logfs mount /data/run42 ~/view",
            ),
            example(
                "With more memory for chunks, and without an index directory:",
                "h5logfs mount /data/run42 ~/view -o cache_size=2G,index_dir=none",
            ),
            example("A single log:", "h5logfs mount steps.h5 ~/view"),
        ],
    ),
    (
        "umount",
        &[example(
            "Mount, look, and unmount again:",
            "h5logfs mount /data/run42 ~/view && ls -l ~/view && h5logfs umount ~/view",
        )],
    ),
    (
        "run",
        &[
            example(
                "A program that sees the logs of a directory as HDF5 in place, in a mount that ends with it:",
                "h5logfs run /data/run42 /data/run42 -- h5dump -H /data/run42/steps.h5",
            ),
            example(
                "Several commands:",
                "h5logfs run run42 data -- sh -c 'ls -l data && h5dump -H data/steps.h5'",
            ),
        ],
    ),
    (
        "ls",
        &[
            example("The logs of a run:", "h5logfs ls /data/run42"),
            example(
                "Logs that need attention first, also in directories below:",
                "h5logfs ls --recursive --sort state /data/run42",
            ),
        ],
    ),
    (
        "inspect",
        &[
            example("The content of the log:", "h5logfs inspect steps.h5"),
            example(
                "Incomplete time steps:",
                "h5logfs inspect --incomplete steps.h5",
            ),
            example(
                "The bytes of the log in each chunk of a dataset:",
                "h5logfs inspect --map /field steps.h5",
            ),
            example(
                "Every record, for other programs:",
                "h5logfs inspect --records --json steps.h5 >records.json",
            ),
        ],
    ),
    (
        "export",
        &[
            example("An HDF5 file to keep:", "h5logfs export steps.h5 plain.h5"),
            example(
                "With chunks of about 1 MiB, to be read row by row:",
                "h5logfs export --chunk 1M steps.h5 plain.h5",
            ),
            example(
                "Compressed, to be sent elsewhere:",
                "h5logfs export steps.h5 - | gzip >plain.h5.gz",
            ),
        ],
    ),
    (
        "follow",
        &[
            example(
                "The flushes of a log until it is closed:",
                "h5logfs follow --until closed steps.h5",
            ),
            example(
                "The flushes as JSON, for other programs:",
                "h5logfs follow --until closed --json steps.h5",
            ),
        ],
    ),
    (
        "compact",
        &[
            example(
                "A compressed HDF5 file to send, compared with the log:",
                "h5logfs compact --deflate 4 --shuffle --verify steps.h5 small.h5",
            ),
            example(
                "One dataset, and the groups above it:",
                "h5logfs compact --dataset /field steps.h5 field.h5",
            ),
            example(
                "The readable part of a damaged log:",
                "h5logfs compact --skip-damaged steps.h5 rest.h5",
            ),
        ],
    ),
    (
        "check",
        &[
            example("All logs of a job:", "h5logfs check /data/run42/*.h5"),
            example(
                "A log with large datasets:",
                "h5logfs check --cache-size 2G --scan-cpu 600 steps.h5",
            ),
        ],
    ),
    (
        "doctor",
        &[
            example("Why a program writes no logs here:", "h5logfs doctor"),
            example(
                "With a libhdf5 that neither the linker nor Python knows:",
                "h5logfs doctor /opt/hdf5/lib/libhdf5.so",
            ),
        ],
    ),
    (
        "report",
        &[
            example(
                "A page with pictures of the written elements:",
                "h5logfs report steps.h5 -o steps.html",
            ),
            example(
                "All logs of a job, with dimensions 0 and 1 of each dataset:",
                "h5logfs report --axes 0,1 -o run42.html /data/run42/*.h5",
            ),
            example(
                "A page about the progress of a running job, until the log is closed:",
                "h5logfs report --watch steps.h5 -o steps.html",
            ),
        ],
    ),
    (
        "plot",
        &[
            example(
                "A dataset in the terminal; of three dimensions its last step:",
                "h5logfs plot steps.h5 field",
            ),
            example(
                "A part of it, as an image for a talk:",
                "h5logfs plot steps.h5 'field[0,:,::2]' -o field.png",
            ),
            example(
                "Two images with the same colours:",
                "h5logfs plot steps.h5 'field[0]' --range 0,1 -o 0.svg && h5logfs plot steps.h5 'field[1]' --range 0,1 -o 1.svg",
            ),
        ],
    ),
    (
        "recover",
        &[
            example("Keep all complete flushes:", "h5logfs recover killed.h5"),
            example(
                "Keep the first three flushes, and drop the others for good:",
                "h5logfs recover --last-flush 3 killed.h5",
            ),
        ],
    ),
    (
        "settle",
        &[
            example(
                "The bytes that would be appended to a log, and the time for that:",
                "h5logfs settle --dry-run steps.h5",
            ),
            example(
                "An ordinary file, and back:",
                "h5logfs settle steps.h5 && h5logfs settle --undo steps.h5",
            ),
        ],
    ),
    (
        "unmount-dead",
        &[example(
            "Before a new mount, in a script:",
            "h5logfs unmount-dead ~/view",
        )],
    ),
    (
        "config",
        &[
            example("Check a file:", "h5logfs config --check h5logfs.toml"),
            example(
                "The options that a file gives to one mount:",
                "h5logfs config --config h5logfs.toml /data/run42 /mnt/run42",
            ),
        ],
    ),
    (
        "options",
        &[
            example(
                "A check with more memory and time:",
                "h5logfs check --cache-size 2G --scan-cpu 600 steps.h5",
            ),
            example(
                "An HDF5 file without the attribute that lists missing data:",
                "h5logfs export --option incomplete_attribute=off steps.h5 plain.h5",
            ),
        ],
    ),
];

/// Examples of the program for MPI jobs.
const OF_JOBS: (&str, &[Example]) = (
    ranks::NAME,
    &[
        example(
            "A compressed HDF5 file, by four processes:",
            "mpirun -n 4 h5logfs-compact-mpi --deflate 4 --shuffle steps.h5 small.h5",
        ),
        example(
            "By two processes with two threads each:",
            "mpirun -n 2 h5logfs-compact-mpi --jobs 2 --verify steps.h5 small.h5",
        ),
    ],
);

/// The examples of a command; empty if it has none.
pub fn of(command: &str) -> &'static [Example] {
    let mut all = EXAMPLES.iter().chain([&OF_JOBS]);
    let found = all.find(|(name, _)| *name == command);
    found.map_or(&[], |(_, examples)| examples)
}

/// Adds the examples to the long help of each command.
pub fn add_to(command: Command) -> Command {
    let names = EXAMPLES.iter().map(|(name, _)| name);
    names.fold(command, |command, name| {
        command.mut_subcommand(name, add_own_to)
    })
}

/// Adds the examples of a command to its long help.
pub fn add_own_to(command: Command) -> Command {
    let mut help = match command.get_after_help() {
        Some(help) => format!("{help}\n\n"),
        None => String::new(),
    };
    help += "Examples:";
    for Example { purpose, call } in of(command.get_name()) {
        help += &format!("\n  {purpose}\n    {call}");
    }
    command.after_long_help(help)
}
