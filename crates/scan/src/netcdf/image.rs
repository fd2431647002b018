//! The netCDF-4 form of a netCDF classic file, in memory and without its elements
//! (`docs/formats/pnetcdf-burst-buffer.md`, section 9).
//!
//! Every dimension is a dataset, a *scale*: a coordinate variable, or a placeholder that nobody reads.
//! What refers to other objects is written when all of them have their addresses.
//!
//! Names have ASCII as their character set, whatever they are: so netCDF-C writes them, every reader takes them
//! for UTF-8, and a name that is none can be shown too.

mod attributes;
mod names;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use attributes::Attributes;
use names::{Plan, Shown};

use crate::hdf5_sys::{self as h5, Id, Link, Space, Target};
use crate::tree::Copied;
use h5logfs_core::log::netcdf::header::{Dimension, Header, Type, Variable};
use h5logfs_core::log::numbers::NumberType;
use h5logfs_core::scan::shape::Chooser;
use h5logfs_core::snapshot::{Content, Dataset, Storage};

type Result<T> = std::result::Result<T, String>;

/// Makes the image of a file with so many records. The datasets have the numbers of their variables, and read
/// as zeros where nothing was written; libhdf5 alone knows the fill values of netCDF.
pub fn make(header: &Header, records: u64, chunks: &Chooser<'_>) -> Result<Copied> {
    let creation = h5::new_file_creation()?;
    h5::order_links(&creation)?;
    h5::order_attributes(&creation)?;
    h5::track_times(&creation, false)?;
    let image = h5::create_in_memory(&creation)?;
    let plan = Plan::of(header);
    let mut maker = Maker {
        header,
        records,
        chunks,
        root: h5::open_group(&image, c"/")?,
        attributes: Attributes::new()?,
        scales: vec![0; header.dimensions.len()],
        users: Vec::new(),
        out: Copied {
            diagnostics: plan.diagnostics,
            ..Copied::default()
        },
    };
    // Some readers have dimensions in the order of their scales: it is kept as far as that of the variables
    // allows.
    let mut placeholders = plan.placeholders.into_iter().peekable();
    for shown in &plan.variables {
        let scale = shown.scale_of.unwrap_or(0);
        while let Some(number) = placeholders.next_if(|number| *number < scale) {
            maker.placeholder(number)?;
        }
        maker.variable(shown)?;
    }
    for number in placeholders {
        maker.placeholder(number)?;
    }
    maker.references(&image)?;
    maker.file()?;
    let Maker { mut out, .. } = maker;
    out.image = h5::file_image(&image)?;
    Ok(out)
}

struct Maker<'a> {
    header: &'a Header,
    records: u64,
    chunks: &'a Chooser<'a>,
    root: Id,
    attributes: Attributes,
    /// Addresses of the scales, by the numbers of their dimensions.
    scales: Vec<u64>,
    /// Variables that are no scale, and their addresses.
    users: Vec<(u64, &'a Variable)>,
    out: Copied,
}

impl<'a> Maker<'a> {
    // --- dimensions ------------------------------------------------------------------------------

    /// The scale of a dimension without a coordinate variable: a dataset without storage. Who reads it
    /// nevertheless reads zeros.
    fn placeholder(&mut self, number: usize) -> Result<()> {
        let dimension = &self.header.dimensions[number];
        let made = self.make_placeholder(number, dimension);
        made.map_err(|e| format!("dimension {}: {e}", lossy(&dimension.name)))
    }

    fn make_placeholder(&mut self, number: usize, dimension: &Dimension) -> Result<()> {
        let datatype = h5::float_type(4, true)?;
        let creation = new_creation()?;
        let extent = match dimension.len {
            0 => Extent {
                dims: vec![self.records],
                max_dims: vec![None],
            },
            len => Extent::fixed(vec![len]),
        };
        let storage = match dimension.len {
            0 => Storage::Chunked(self.chunks.plain(&extent.dims, &extent.max_dims, 4)),
            _ => Storage::Contiguous,
        };
        let name = (dimension.name.as_slice(), &datatype);
        let id = self.create(name, &creation, &extent, &storage)?;
        let title = format!(
            "This is a netCDF dimension but not a netCDF variable.{:>10}",
            dimension.len
        );
        self.make_scale(&id, number, title.as_bytes())
    }

    fn make_scale(&mut self, id: &Id, dimension: usize, title: &[u8]) -> Result<()> {
        self.scales[dimension] = h5::address(id)?;
        self.attributes.title(id, "CLASS", b"DIMENSION_SCALE")?;
        self.attributes.title(id, "NAME", title)?;
        let number = i32::try_from(dimension).map_err(|e| e.to_string())?;
        self.attributes.number(id, "_Netcdf4Dimid", number)
    }

    // --- variables -------------------------------------------------------------------------------

    fn variable(&mut self, shown: &Shown) -> Result<()> {
        let variable = &self.header.variables[shown.number];
        let made = self.make_variable(shown, variable);
        made.map_err(|e| format!("variable {}: {e}", lossy(&variable.name)))
    }

    fn make_variable(&mut self, shown: &Shown, variable: &'a Variable) -> Result<()> {
        let datatype = self.attributes.datatype(variable.kind)?;
        let element = variable.kind.size();
        let creation = new_creation()?;
        let fill = self.header.fill_of(variable);
        h5::set_fill_value(&creation, &datatype, &fill[..element])?;
        let extent = self.extent(variable);
        let id = i64::try_from(shown.number).map_err(|e| e.to_string())?;
        let storage = match (&extent.dims, &extent.max_dims) {
            (dims, _) if dims.is_empty() => Storage::Contiguous,
            (dims, max) => Storage::Chunked(self.chunks.logged(id, dims, max, element as u64)),
        };
        let object = self.create((&shown.name, &datatype), &creation, &extent, &storage)?;
        self.describe(&object, shown, variable)?;
        self.out.datasets.push(Dataset {
            name: format!("/{}", lossy(&shown.name)),
            header: h5::address(&object)?,
            datatype: h5::describe_type(&datatype),
            element_size: element as u64,
            dims: extent.dims,
            max_dims: extent.max_dims,
            storage,
            // Not that of netCDF: what was never written lies as zeros in the netCDF file.
            fill: Vec::new(),
            filters: Vec::new(),
            references: Vec::new(),
            content: Content::Logged {
                id,
                filtered: false,
            },
        });
        Ok(())
    }

    /// The attributes of a variable, but for those that refer to other objects.
    fn describe(&mut self, object: &Id, shown: &Shown, variable: &'a Variable) -> Result<()> {
        match shown.scale_of {
            Some(dimension) => self.make_scale(object, dimension, &variable.name)?,
            None => self.users.push((h5::address(object)?, variable)),
        }
        if !variable.dimensions.is_empty() {
            let numbers = &variable.dimensions;
            self.attributes
                .numbers(object, "_Netcdf4Coordinates", numbers)?;
        }
        let of = lossy(&variable.name);
        let diagnostics = &mut self.out.diagnostics;
        self.attributes
            .own(object, &variable.attributes, &of, diagnostics)
    }

    fn extent(&self, variable: &Variable) -> Extent {
        let mut extent = Extent::fixed(self.header.dims(variable));
        if self.header.is_record(variable)
            && let (Some(dim), Some(max)) = (extent.dims.first_mut(), extent.max_dims.first_mut())
        {
            (*dim, *max) = (self.records, None);
        }
        extent
    }

    /// Makes a dataset without storage.
    fn create(
        &self,
        (name, datatype): (&[u8], &Id),
        creation: &Id,
        extent: &Extent,
        storage: &Storage,
    ) -> Result<Id> {
        match storage {
            Storage::Contiguous => h5::set_contiguous(creation)?,
            Storage::Chunked(chunk) => h5::set_chunked(creation, chunk)?,
        }
        let space = extent.space().create()?;
        h5::create_dataset(&self.root, &link(name)?, datatype, &space, creation)
    }

    // --- what refers to other objects ------------------------------------------------------------

    /// Variables refer to the scales of their dimensions, and the scales to their users.
    fn references(&mut self, image: &Id) -> Result<()> {
        let mut uses = vec![Vec::new(); self.scales.len()];
        for (address, variable) in &self.users {
            let mut scales = Vec::new();
            for (position, dimension) in (0u32..).zip(&variable.dimensions) {
                scales.push(self.scales[*dimension]);
                uses[*dimension].push((*address, position));
            }
            if !scales.is_empty() {
                let object = h5::open_object(image, *address)?;
                self.attributes.dimension_list(&object, &scales)?;
            }
        }
        for (scale, uses) in self.scales.iter().zip(&uses) {
            if !uses.is_empty() {
                let object = h5::open_object(image, *scale)?;
                self.attributes.reference_list(&object, uses)?;
            }
        }
        Ok(())
    }

    /// The attributes of the file.
    fn file(&mut self) -> Result<()> {
        let (major, minor, release) = hdf5::library_version();
        let made_by = format!(
            "version=2,h5logfs={},hdf5={major}.{minor}.{release}",
            env!("CARGO_PKG_VERSION")
        );
        let (root, header) = (&self.root, self.header);
        self.attributes
            .text(root, b"_NCProperties", made_by.as_bytes())?;
        // The types of CDF-5 are more than the classic data model has.
        if header.version != 5 {
            self.attributes.number(root, "_nc3_strict", 1)?;
        }
        let diagnostics = &mut self.out.diagnostics;
        self.attributes
            .own(root, &header.attributes, "the file", diagnostics)
    }
}

/// Current and maximum extent of a dataset.
struct Extent {
    dims: Vec<u64>,
    max_dims: Vec<Option<u64>>,
}

impl Extent {
    fn fixed(dims: Vec<u64>) -> Self {
        let max_dims = dims.iter().map(|d| Some(*d)).collect();
        Extent { dims, max_dims }
    }

    fn space(&self) -> Space {
        let max = self.max_dims.iter().map(|m| m.unwrap_or(h5::UNLIMITED));
        Space::Simple {
            dims: self.dims.clone(),
            max: max.collect(),
        }
    }
}

fn new_creation() -> Result<Id> {
    let creation = h5::new_dataset_creation()?;
    h5::order_attributes(&creation)?;
    // An image made again is the same.
    h5::track_times(&creation, false)?;
    Ok(creation)
}

fn lossy(name: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(name)
}

fn link(name: &[u8]) -> Result<Link> {
    if name.contains(&b'/') || name == b"." {
        return Err("neither netCDF-4 nor HDF5 can have such a name".into());
    }
    Ok(Link {
        name: name.to_vec(),
        utf8: false,
        target: Target::Hard(0),
    })
}

/// The HDF5 type of a netCDF type.
fn new_datatype(kind: Type) -> Result<Id> {
    let Type::Number(kind) = kind else {
        return h5::terminated_text_type(1, false);
    };
    let size = kind.size() as u32;
    match kind {
        NumberType::F32 | NumberType::F64 => h5::float_type(size, false),
        NumberType::I8 | NumberType::I16 | NumberType::I32 | NumberType::I64 => {
            h5::integer_type(size, true, false)
        }
        NumberType::U8 | NumberType::U16 | NumberType::U32 | NumberType::U64 => {
            h5::integer_type(size, false, false)
        }
    }
}
