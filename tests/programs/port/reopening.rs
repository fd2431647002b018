//! A program that continues the file of an earlier job. One such file was closed; the other was not, and is continued
//! on fewer ranks. Definitions that do not fit the file are refused.

use h5logfs_writer::{Dataset, DatasetSpec, Error, Options, Selection, Writer};
use hdf5::H5Type;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;

use crate::Result;

/// A type with a gap in memory.
#[derive(H5Type, Clone, Copy)]
#[repr(C)]
struct Event {
    rank: u8,
    step: f64,
}

/// The members of [`Event`] at other offsets in memory.
#[derive(H5Type, Clone, Copy)]
#[repr(C, packed)]
struct Packed {
    rank: u8,
    step: f64,
}

const STEPS: u64 = 3;

/// Opens the file, and closes it.
pub fn open(path: &str, world: &SimpleCommunicator) -> Result {
    Ok(Writer::open(path, world, Options::default())?.close()?)
}

/// Opens the file, and ends without a close.
pub fn leave(path: &str, world: &SimpleCommunicator) -> Result {
    drop(Writer::open(path, world, Options::default())?);
    Ok(())
}

pub fn write(path: &str, world: &SimpleCommunicator) -> Result {
    let (rank, ranks) = (world.rank() as u64, world.size() as u64);
    let mut file = Writer::create(path, world, Options::default())?;
    let series = DatasetSpec::new::<f64>(&[0, ranks]).unlimited(0);
    let series = file.dataset("/air/series", series)?;
    let events = DatasetSpec::new::<Event>(&[0]).unlimited(0);
    let events = file.dataset("/events", events.chunk(&[8]).shuffle().deflate(6))?;
    file.make_scale(events, "event")?;
    file.attribute("/", "title", "begun")?;
    advance(&mut file, rank, series, events)?;
    // This holds for a dataset just created, too.
    assert_eq!(file.open_dataset::<Event>("/events")?, events);
    file.close()?;

    go_on(path, world)?;
    let mut file = Writer::open(path, world, Options::default())?;
    refuse(&mut file, path, world)?;
    advance_opened(&mut file, rank)?;
    // The file is not closed, and the next job has half of the ranks.
    drop(file);
    world.barrier();
    let half = rank < ranks.div_ceil(2);
    let color = if half {
        Color::with_value(0)
    } else {
        Color::undefined()
    };
    if let Some(writers) = world.split_by_color(color) {
        let mut file = Writer::open(path, &writers, Options::default())?;
        advance_opened(&mut file, rank)?;
        file.close()?;
    }
    Ok(())
}

/// The example of the user guide.
fn go_on(path: &str, world: &SimpleCommunicator) -> Result {
    let mut file = Writer::open(path, world, Options::default())?;
    let series = file.open_dataset::<f64>("/air/series")?;
    let steps = file.dims(series)?[0];
    if !file.exists("/air/limits") {
        let spec = DatasetSpec::new::<f64>(&[2]);
        file.dataset("/air/limits", spec)?;
        file.attribute("/air/limits", "units", "Pa")?;
    }
    assert_eq!(steps, STEPS);
    file.close()?;
    Ok(())
}

fn advance_opened(file: &mut Writer, rank: u64) -> Result {
    let series = file.open_dataset::<f64>("/air/series")?;
    let events = file.open_dataset::<Event>("/events")?;
    advance(file, rank, series, events)
}

/// Writes a few steps. In each step, a rank writes one value, and as many events as its number.
fn advance(file: &mut Writer, rank: u64, series: Dataset, events: Dataset) -> Result {
    let [first, ranks] = *file.dims(series)? else {
        return Err("another series".into());
    };
    for step in first..first + STEPS {
        file.extend(series, &[step + 1, ranks])?;
        let value = (step * 100 + rank) as f64;
        file.write(series, Selection::block(&[step, rank], &[1, 1]), &[value])?;
        let event = Event {
            rank: rank as u8,
            step: step as f64,
        };
        file.append(events, &vec![event; rank as usize])?;
        file.flush()?;
    }
    Ok(())
}

fn refuse(file: &mut Writer, path: &str, world: &SimpleCommunicator) -> Result {
    let refused = |outcome: h5logfs_writer::Result<Dataset>, words: &str| match outcome {
        Err(e @ Error::Definition { .. }) => assert!(e.to_string().contains(words), "{e}"),
        other => panic!("{other:?}"),
    };
    refused(
        file.open_dataset::<f32>("/air/series"),
        "dataset /air/series: its elements are f64, and it was opened with f32",
    );
    refused(file.open_dataset::<f64>("/none"), "no dataset /none");
    refused(file.open_dataset::<f64>("air"), "/air is a group");
    refused(
        file.dataset("/events", DatasetSpec::new::<Event>(&[1])),
        "there is a dataset already",
    );
    let again = file.attribute("/", "title", "again");
    refused(again.map(|()| Dataset::from_id(0)), "exists already");
    file.open_dataset::<Event>("/events")?;
    refused(
        file.open_dataset::<Packed>("/events"),
        "other places in memory",
    );
    // The journal of this job is locked.
    let second = Writer::open(path, world, Options::default()).map(drop);
    let second = second.unwrap_err().to_string();
    assert!(
        second.contains("another job writes it: process "),
        "{second}"
    );
    let options = Options {
        overwrite: true,
        ..Options::default()
    };
    let of_new_files = Writer::open(path, world, options).map(drop);
    let of_new_files = of_new_files.unwrap_err().to_string();
    assert!(
        of_new_files.contains("`overwrite` is for new files"),
        "{of_new_files}"
    );
    Ok(())
}
