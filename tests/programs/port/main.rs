//! Programs ported to the writer, each run by its name. `tests/writer/port.rs` checks the content of the file.
//!
//! ```text
//! writer-port WHAT FILE
//! ```

mod again;
mod appends;
mod attributes;
mod ghosts;
mod reopening;
mod scales;

use h5logfs_writer::{Options, Writer};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() {
    // Without this, a failing rank would wait for the others in MPI_Finalize.
    std::panic::set_hook(Box::new(|why| {
        eprintln!("{why}");
        std::process::exit(1);
    }));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, path] = &arguments[..] else {
        panic!("writer-port WHAT FILE");
    };
    let universe = mpi::initialize().unwrap();
    let world = universe.world();
    let reopened = match what.as_str() {
        "reopening" => Some(reopening::write(path, &world)),
        "again" => Some(again::write(path, &world, 0)),
        "again-subfiles" => Some(again::write(path, &world, 4)),
        "open" => Some(reopening::open(path, &world)),
        "leave" => Some(reopening::leave(path, &world)),
        _ => None,
    };
    if let Some(reopened) = reopened {
        return reopened.unwrap_or_else(|e| panic!("{e}"));
    }
    let file = Writer::create(path, &world, Options::default()).unwrap();
    let written = match what.as_str() {
        "appends" => appends::write(file, &world),
        "attributes" => attributes::write(file),
        "ghosts" => ghosts::write(file, &world),
        "scales" => scales::write(file, &world),
        "many-scales" => scales::write_many(file),
        "open-scales" => scales::write_open(file, &world),
        other => panic!("writer-port does not know {other}"),
    };
    written.unwrap();
}

/// Ignores SIGXFSZ, which would end the process. The write then fails instead.
///
/// # Safety
/// No other thread may handle signals.
unsafe fn ignore_file_size_signal() {
    // SAFETY: the caller's promise.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
