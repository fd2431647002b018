//! The creation of many datasets.

use h5logfs_writer::{DatasetSpec, Fsync, Options, Writer};

use super::report::{DatasetsRow, Spread};
use super::{Bench, Result};

/// Seconds of each step.
#[derive(Clone, Copy, Default)]
struct Times {
    create: f64,
    define: f64,
    flush: f64,
    close: f64,
}

const DIMS: [u64; 2] = [1024, 1024];
const GROUPS: u32 = 16;

fn path(dataset: u32) -> String {
    format!("/group_{:02}/variable_{dataset:05}", dataset % GROUPS)
}

pub fn measure(bench: &Bench, datasets: u32) -> Result<Vec<DatasetsRow>> {
    type Way<'a> = (&'static str, Box<dyn Fn() -> Result<Times> + 'a>);
    let logged = |fsync, attribute| Box::new(move || logged(bench, datasets, fsync, attribute));
    let ways: Vec<Way> = vec![
        ("writer", logged(Fsync::None, false)),
        ("writer, fsync at the close", logged(Fsync::Close, false)),
        ("writer, an attribute each", logged(Fsync::None, true)),
        (
            "libhdf5 on one rank",
            Box::new(move || serial(bench, datasets)),
        ),
    ];
    let mut times = vec![vec![Times::default(); bench.rounds as usize]; ways.len()];
    bench.in_rounds(ways.len(), |round, who| {
        let found = ways[who].1()?;
        if let Some(round) = round {
            times[who][round] = found;
        }
        Ok(())
    })?;
    let row = |((name, _), times): (&Way, &Vec<Times>)| {
        let of = |value: fn(&Times) -> f64| Spread::of(times.iter().map(value));
        DatasetsRow {
            name,
            datasets,
            create_file: of(|t| t.create),
            define: of(|t| t.define),
            first_flush: of(|t| t.flush),
            close: of(|t| t.close),
            total: of(|t| t.create + t.define + t.flush + t.close),
        }
    };
    Ok(ways.iter().zip(&times).map(row).collect())
}

fn logged(bench: &Bench, datasets: u32, fsync: Fsync, attribute: bool) -> Result<Times> {
    let options = Options {
        fsync,
        ..Options::default()
    };
    let file = bench.dir.join("datasets.h5");
    let (create, mut writer) = bench.timed(|| Ok(Writer::create(file, &bench.world, options)?))?;
    let (define, ()) = bench.timed(|| {
        for dataset in 0..datasets {
            writer.dataset(&path(dataset), DatasetSpec::new::<f64>(&DIMS))?;
            if attribute {
                writer.attribute(&path(dataset), "units", "kg m-2 s-1")?;
            }
        }
        Ok(())
    })?;
    let (flush, ()) = bench.timed(|| Ok(writer.flush()?))?;
    let (close, ()) = bench.timed(|| Ok(writer.close()?))?;
    bench.remove("datasets.h5")?;
    Ok(Times {
        create,
        define,
        flush,
        close,
    })
}

/// Creates the same datasets with libhdf5 on the first rank, contiguous and never written. The other
/// ranks are idle.
fn serial(bench: &Bench, datasets: u32) -> Result<Times> {
    let path_of_file = bench.dir.join("datasets.h5");
    let mut file = None;
    let (create, ()) = bench.timed(|| {
        if bench.is_root() {
            file = Some(hdf5::File::create(path_of_file)?);
        }
        Ok(())
    })?;
    let (define, ()) = bench.timed(|| {
        let Some(file) = &file else { return Ok(()) };
        for group in 0..GROUPS.min(datasets) {
            file.create_group(&format!("/group_{group:02}"))?;
        }
        for dataset in 0..datasets {
            let builder = file
                .new_dataset::<f64>()
                .shape(DIMS[..].iter().map(|d| *d as usize).collect::<Vec<_>>());
            builder.create(path(dataset).as_str())?;
        }
        Ok(())
    })?;
    let (close, ()) = bench.timed(|| match file.take() {
        Some(file) => Ok(file.close()?),
        None => Ok(()),
    })?;
    bench.remove("datasets.h5")?;
    Ok(Times {
        create,
        define,
        flush: 0.0,
        close,
    })
}
