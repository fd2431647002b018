//! Prints the sum of a hyperslab of the last time step.

use h5logfs_arrays::{Log, Options, Selection};

fn main() -> Result<(), h5logfs_common::error::Error> {
    let log = Log::open("run42/output.h5", &Options::default())?;
    let temperature = log.dataset("/T")?;
    println!(
        "{:?} in chunks of {:?}",
        temperature.shape(),
        temperature.chunk()
    );
    let last = temperature.shape()[0] - 1;
    let slab = temperature.read::<f64>(&Selection::hyperslab(&[last, 0, 0], &[1, 64, 64]))?;
    println!("{}", slab.sum());
    Ok(())
}
