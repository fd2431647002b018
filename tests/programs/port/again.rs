//! A log written by three jobs in turn, on different numbers of ranks. Before the last one closes it, its files are
//! copied, so that another program can close the copy.

use std::path::Path;
use std::process::Command;

use h5logfs_writer::{DatasetSpec, Options, Selection, Subfiles, Writer};
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;

use crate::Result;

/// Elements of a rank's row.
const WIDTH: u64 = 800;
const FLUSHES: u64 = 4;

pub fn write(path: &str, world: &SimpleCommunicator, subfiles: u32) -> Result {
    let ranks = world.size() as u64;
    let options = Options {
        subfiles: match subfiles {
            0 => Subfiles::None,
            number => Subfiles::Number(number),
        },
        ..Options::default()
    };
    let mut file = Writer::create(path, world, options)?;
    let spec = DatasetSpec::new::<u16>(&[0, ranks * WIDTH]).unlimited(0);
    file.dataset("/rows", spec)?;
    advance(&mut file, world)?;
    file.close()?;
    // The log is not closed.
    on_some(world, ranks.div_ceil(2), |writers| {
        let mut file = Writer::open(path, writers, Options::default())?;
        advance(&mut file, writers)
    })?;
    on_some(world, ranks - 1, |writers| {
        let mut file = Writer::open(path, writers, Options::default())?;
        advance(&mut file, writers)?;
        if writers.rank() == 0 {
            copy(path)?;
        }
        writers.barrier();
        Ok(file.close()?)
    })
}

/// Lets the first ranks act while the others wait.
fn on_some(
    world: &SimpleCommunicator,
    number: u64,
    job: impl Fn(&SimpleCommunicator) -> Result,
) -> Result {
    let color = if (world.rank() as u64) < number {
        Color::with_value(0)
    } else {
        Color::undefined()
    };
    let writers = world.split_by_color(color);
    let done = writers.map_or(Ok(()), |writers| job(&writers));
    world.barrier();
    done
}

/// Copies the log into a directory beside it.
fn copy(path: &str) -> Result {
    let log = Path::new(path);
    let to = log.with_file_name("copy");
    std::fs::create_dir(&to)?;
    for suffix in ["", ".subfiles", ".h5logfs-journal"] {
        let from = format!("{path}{suffix}");
        if Path::new(&from).exists() {
            let mut copying = Command::new("cp");
            let copied = copying.args(["-r", &from]).arg(&to).status()?;
            assert!(copied.success());
        }
    }
    Ok(())
}

/// Some flushes. In some of them a rank writes nothing, in the others every second element, in as many blocks as its
/// number.
fn advance(file: &mut Writer, writers: &SimpleCommunicator) -> Result {
    let rank = writers.rank() as u64;
    let rows = file.open_dataset::<u16>("/rows")?;
    for _ in 0..FLUSHES {
        let [row, width] = *file.dims(rows)? else {
            return Err("another dataset".into());
        };
        file.extend(rows, &[row + 1, width])?;
        if !(row + rank).is_multiple_of(3) {
            let count = 1 + rank * 60;
            let selection = Selection::Hyperslab {
                start: &[row, rank * WIDTH],
                stride: &[1, 2],
                count: &[1, count],
                block: &[1, 1],
            };
            file.write(rows, selection, &vec![row as u16; count as usize])?;
        }
        file.flush()?;
    }
    Ok(())
}
