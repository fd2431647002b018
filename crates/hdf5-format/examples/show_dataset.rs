//! Prints the extent and the attributes of a dataset.

use h5logfs_hdf5_format::Objects;

fn main() -> Result<(), h5logfs_common::fault::Fault> {
    let bytes = std::fs::read("output.h5")?;
    let objects = Objects::open(bytes)?;
    if let Some(dataset) = objects.find("/group/temperature")? {
        println!("{:?}", objects.dataset(dataset)?.space);
        for attribute in objects.attributes(dataset)? {
            println!(
                "{:?}",
                objects.values(&attribute.datatype, &attribute.bytes)?
            );
        }
    }
    Ok(())
}
