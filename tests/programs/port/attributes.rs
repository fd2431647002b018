//! Attributes from all containers in which a program may hold values.

use h5logfs_writer::{Writer, array_value};

use crate::Result;

pub fn write(mut file: Writer) -> Result {
    let levels = vec![1.0, 2.5];
    let units = String::from("Pa");
    let pair = [7u8, 8];
    let names = vec![units.clone(), units.clone()];
    file.attribute("/", "vec", &levels)?;
    file.attribute("/", "slice", &levels[1..])?;
    file.attribute("/", "array", [1i32, 2, 3])?;
    file.attribute("/", "pair", pair)?;
    file.attribute("/", "moved", levels)?;
    file.attribute("/", "none", Vec::<f32>::new())?;
    file.attribute("/", "yes", true)?;
    file.attribute("/", "flags", [true, false])?;
    file.attribute("/", "text", &units)?;
    file.attribute("/", "texts", ["K", "m s⁻¹"])?;
    file.attribute("/", "borrowed", &names)?;
    file.attribute("/", "owned", names)?;

    file.group("/air")?;
    file.attribute("/air", "levels", vec![1000.0, 850.0, 500.0])?;
    file.attribute("/air", "axes", ["time", "cell"])?;
    file.attribute("/air", "box", array_value(&[0u32, 0, 9, 9], &[2, 2])?)?;
    Ok(file.close()?)
}
