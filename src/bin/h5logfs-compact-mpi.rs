//! The program `h5logfs-compact-mpi`: `h5logfs compact` with all processes of an MPI job. It is a separate program, so that
//! `h5logfs` needs no MPI.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::{FromArgMatches, Parser};
use h5logfs::cli::compact::ranks::{JobArgs, NAME, check_arguments, command_line, run};
use h5logfs::cli::compact::watch;
use h5logfs::cli::environment::forget_hdf5;
use h5logfs::cli::missing::{self, LostData};
use h5logfs::cli::output::{log_to_stderr, print_error};
use h5logfs::cli::{pages, scan_server};
use h5logfs_mpi::MpiRanks;
use h5logfs_output::ranks::Ranks;
use mpi::Threading;
use mpi::traits::Communicator;

/// Hidden subcommands.
#[derive(Debug, Parser)]
enum Hidden {
    /// Started by the first rank.
    ScanZygote(scan_server::ScanArgs),
    /// Started by each rank.
    RemoveAtEnd(watch::WatchArgs),
    /// Started by `make install-writer`.
    ManualPage(pages::PagesArgs),
}

/// Names of [`Hidden`].
const HIDDEN: [&str; 3] = ["scan-zygote", watch::NAME, "manual-page"];

/// Exit status for an invalid command line.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    forget_hdf5();
    let first = std::env::args_os().nth(1);
    if first.is_some_and(|first| HIDDEN.iter().any(|name| first == *name)) {
        return ended(match Hidden::parse() {
            Hidden::ScanZygote(args) => scan_server::zygote(&args),
            Hidden::RemoveAtEnd(args) => watch::run(&args),
            Hidden::ManualPage(args) => pages::of_program(&args, &command_line()),
        });
    }
    let matches = command_line().try_get_matches();
    let args = matches.and_then(|matches| JobArgs::from_arg_matches(&matches));
    if let Err(help) = &args
        && !help.use_stderr()
    {
        help.exit();
    }
    log_to_stderr();
    // Only the main thread calls MPI.
    let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
        return ended(Err(anyhow::anyhow!("MPI is already running")));
    };
    let world = universe.world();
    let job = || in_job(args, &Ranks::new(MpiRanks::duplicate(&world)));
    // A rank that ends by a panic would leave the others waiting.
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|_| world.abort(1))
}

/// Runs the job. All ranks end with the same status; the first one prints the reason.
fn in_job(args: Result<JobArgs, clap::Error>, ranks: &Ranks) -> ExitCode {
    let outcome = check_arguments(ranks).and_then(|()| match &args {
        Ok(args) => run(args, ranks).map(|made| match made {
            Ok(()) => ExitCode::SUCCESS,
            Err(LostData) => ExitCode::from(missing::STATUS),
        }),
        Err(misuse) => {
            if ranks.is_root() {
                // A failure to print cannot be reported, either.
                let _ = misuse.print();
            }
            Ok(ExitCode::from(MISUSED))
        }
    });
    let status = outcome.unwrap_or_else(|error| {
        if ranks.is_root() {
            print_error(NAME, &error.into());
        }
        ExitCode::FAILURE
    });
    // mpirun may kill the others as soon as one rank has failed.
    ranks.wait();
    status
}

fn ended(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(NAME, &error);
            ExitCode::FAILURE
        }
    }
}
