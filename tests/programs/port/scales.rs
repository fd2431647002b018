//! Dimensions with names for netCDF and xarray. The file of `write_open` stays open.

use h5logfs_writer::{Dataset, DatasetSpec, NETCDF_DIMENSION, Selection, Writer};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

use crate::Result;

const CELLS: u64 = 4;
const STEPS: u64 = 3;
const MANY: u32 = 4500;

pub fn write(file: Writer, world: &SimpleCommunicator) -> Result {
    Ok(write_steps(file, world)?.close()?)
}

pub fn write_open(file: Writer, world: &SimpleCommunicator) -> Result {
    write_steps(file, world).map(drop)
}

/// Writes and flushes.
fn write_steps(mut file: Writer, world: &SimpleCommunicator) -> Result<Writer> {
    let (rank, ranks) = (world.rank() as u64, world.size() as u64);
    let cells = ranks * CELLS;
    let spec = DatasetSpec::new::<f64>(&[0, cells]).unlimited(0);
    let pressure = file.dataset("/air/pressure", spec)?;
    let time = file.dataset("/time", DatasetSpec::new::<f64>(&[0]).unlimited(0))?;
    let x = file.dataset("/x", DatasetSpec::new::<f64>(&[cells]))?;
    file.make_scale(time, "time")?;
    file.make_scale(x, "x")?;
    file.attach_scale(pressure, 0, time)?;
    file.attach_scale(pressure, 1, x)?;
    file.attribute("/time", "units", "hours since 2000-01-01")?;

    dimension_without_variable(&mut file)?;
    several_scales(&mut file)?;
    label(&mut file, pressure)?;

    for step in 0..STEPS {
        file.extend(time, &[step + 1])?;
        file.extend(pressure, &[step + 1, cells])?;
        let (start, count) = ([step, rank * CELLS], [1, CELLS]);
        let values = [(100 * step + rank) as f64; CELLS as usize];
        file.write(pressure, Selection::block(&start, &count), &values)?;
        if rank == 0 {
            file.write(time, Selection::block(&[step], &[1]), &[6.0 * step as f64])?;
        }
        if step == 0 {
            let places: Vec<f64> = (0..CELLS)
                .map(|n| (rank * CELLS + n) as f64 / 2.0)
                .collect();
            file.write(x, Selection::block(&[rank * CELLS], &[CELLS]), &places)?;
        }
        file.flush()?;
    }
    Ok(file)
}

fn dimension_without_variable(file: &mut Writer) -> Result {
    let member = file.dataset("/member", DatasetSpec::new::<f32>(&[2]))?;
    file.make_scale(member, NETCDF_DIMENSION)?;
    let seeds = file.dataset("/seeds", DatasetSpec::new::<i32>(&[2]))?;
    file.attach_scale(seeds, 0, member)?;
    Ok(())
}

/// netCDF knows one scale per dimension; HDF5 any number, and scales without names.
fn several_scales(file: &mut Writer) -> Result {
    let line = |file: &mut Writer, path| file.dataset(path, DatasetSpec::new::<f64>(&[3]));
    let (centre, edge) = (line(file, "/hdf5/_centre")?, line(file, "/hdf5/edge")?);
    file.make_scale(centre, "the centre")?;
    file.make_scale(edge, "")?;
    let field = line(file, "/hdf5/field")?;
    file.attach_scale(field, 0, centre)?;
    file.attach_scale(field, 0, edge)?;
    Ok(())
}

/// Too many users of a scale for any object header to list.
pub fn write_many(mut file: Writer) -> Result {
    let scale = file.dataset("/cell", DatasetSpec::new::<f64>(&[2]))?;
    file.make_scale(scale, "cell")?;
    for number in 0..MANY {
        let path = format!("/fields/{number}");
        let field = file.dataset(&path, DatasetSpec::new::<i32>(&[2]))?;
        file.attach_scale(field, 0, scale)?;
    }
    Ok(file.close()?)
}

fn label(file: &mut Writer, dataset: Dataset) -> Result {
    file.set_label(dataset, 1, "place")?;
    Ok(())
}
