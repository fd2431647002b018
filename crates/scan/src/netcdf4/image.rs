//! The objects of the netCDF-4 form.
//!
//! Every dimension is a dataset, a *scale*: a coordinate variable, or a placeholder that has no elements. References
//! are written last, when all objects have their addresses.
//!
//! All names have the character set ASCII, whatever their bytes are. netCDF-C does this, too, and every reader takes
//! them for UTF-8. So names that are not UTF-8 can be shown.

use std::borrow::Cow;

use super::attributes::{Attributes, ordered};
use super::model::{Attribute, Dimension, Model, Variable};
use super::names::{Plan, ShownVariable};
use crate::hdf5_sys::{self as h5, Id, Link, Target};
use crate::scales::{ScaleAttributes, ScaleUse};
use crate::shown::{DatasetPlan, ShownObjects};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_log::netcdf::header::Type;
use h5logfs_log::numbers::NumberType;
use h5logfs_log::scan::Choice;
use h5logfs_log::scan::incomplete::INCOMPLETE;
use h5logfs_log::scan::shape::Chooser;
use h5logfs_log::snapshot::{Content, Dataset, Storage};

type Result<T> = std::result::Result<T, Fault>;

/// Makes the image of a file. The ID of a dataset is the number of its variable. `incomplete` names what the view lacks,
/// for its attribute.
pub fn make(
    model: &Model,
    chooser: &Chooser<'_>,
    choice: &Choice,
    incomplete: Option<&str>,
) -> Result<ShownObjects> {
    let creation = h5::new_file_creation()?;
    h5::order_links(&creation)?;
    h5::order_attributes(&creation)?;
    h5::track_times(&creation, false)?;
    let image = h5::create_in_memory(&creation)?;
    let plan = Plan::of(model);
    let mut maker = Maker {
        model,
        chooser,
        choice,
        incomplete,
        root: h5::open_group(&image, c"/")?,
        attributes: Attributes::new(model.is_big_endian)?,
        scale_attributes: ScaleAttributes::new()?,
        scales: vec![0; model.dimensions.len()],
        variables: Vec::new(),
        out: ShownObjects {
            diagnostics: plan.diagnostics,
            ..ShownObjects::default()
        },
    };
    // Some readers list dimensions in the order of their scales. So this keeps the order of the dimensions as far as
    // the order of the variables allows.
    let mut placeholders = plan.placeholders.into_iter().peekable();
    let shown_path = |shown: &ShownVariable| format!("/{}", lossy(&shown.name));
    choice.check_found(|path| plan.variables.iter().any(|shown| shown_path(shown) == path))?;
    // The remaining variables need their dimensions.
    let is_copied =
        |shown: &&ShownVariable| shown.scale_of.is_some() || choice.has(&shown_path(shown));
    for shown in plan.variables.iter().filter(is_copied) {
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
    maker.file_attributes()?;
    let Maker { mut out, .. } = maker;
    out.image = h5::file_image(&image)?;
    Ok(out)
}

struct Maker<'a> {
    model: &'a Model,
    chooser: &'a Chooser<'a>,
    choice: &'a Choice,
    incomplete: Option<&'a str>,
    root: Id,
    attributes: Attributes,
    scale_attributes: ScaleAttributes,
    /// Addresses of the scales, by the numbers of their dimensions.
    scales: Vec<u64>,
    /// The variables that are not scales, and their addresses.
    variables: Vec<(u64, &'a Variable)>,
    out: ShownObjects,
}

impl<'a> Maker<'a> {
    // --- dimensions ------------------------------------------------------------------------------

    /// Makes the scale of a dimension without a coordinate variable: a dataset without storage that reads as zeros.
    fn placeholder(&mut self, number: usize) -> Result<()> {
        let dimension = &self.model.dimensions[number];
        let made = self.make_placeholder(number, dimension);
        made.map_err(|e| e.at(format_args!("dimension {}", lossy(&dimension.name))))
    }

    fn make_placeholder(&mut self, number: usize, dimension: &Dimension) -> Result<()> {
        let datatype = h5::float_type(4, true)?;
        let creation = new_creation()?;
        let mut plan = DatasetPlan::fixed(vec![dimension.len]);
        if dimension.is_unlimited {
            plan.max_dims = vec![None];
            plan.storage = Storage::Chunked(self.chooser.plain(&plan.dims, &plan.max_dims, 4));
        }
        let id = self.create(&dimension.name, &datatype, &creation, &plan)?;
        let title = format!(
            "This is a netCDF dimension but not a netCDF variable.{:>10}",
            if dimension.is_unlimited {
                0
            } else {
                dimension.len
            }
        );
        self.make_scale(&id, number, title.as_bytes())
    }

    fn make_scale(&mut self, id: &Id, dimension: usize, title: &[u8]) -> Result<()> {
        self.scales[dimension] = h5::address(id)?;
        self.scale_attributes.make_scale(id, title)?;
        let number = i32::try_from(dimension)?;
        self.attributes.number(id, "_Netcdf4Dimid", number)
    }

    // --- variables -------------------------------------------------------------------------------

    fn variable(&mut self, shown: &ShownVariable) -> Result<()> {
        let variable = &self.model.variables[shown.number];
        let made = self.make_variable(shown, variable);
        made.map_err(|e| e.at(format_args!("variable {}", lossy(&variable.name))))
    }

    fn make_variable(&mut self, shown: &ShownVariable, variable: &'a Variable) -> Result<()> {
        let (kind, is_big_endian) = (variable.kind, variable.is_big_endian);
        let datatype = self.attributes.datatype(kind, is_big_endian)?;
        let element = kind.size();
        let creation = new_creation()?;
        let fill = ordered(&variable.fill[..element], kind, is_big_endian);
        h5::set_fill_value(&creation, &datatype, &fill)?;
        let mut plan = self.plan(variable);
        let id = i64::try_from(shown.number)?;
        if !plan.dims.is_empty() {
            let DatasetPlan { dims, max_dims, .. } = &plan;
            plan.storage =
                Storage::Chunked(self.chooser.logged(id, dims, max_dims, element as u64));
        }
        if let (Storage::Chunked(_), Some(filters)) = (&plan.storage, &self.choice.filters) {
            h5::set_storage(&creation, &plan.storage)?;
            for filter in filters {
                h5::add_filter(&creation, filter)?;
            }
        }
        let object = self.create(&shown.name, &datatype, &creation, &plan)?;
        self.variable_attributes(&object, shown, variable)?;
        self.out.datasets.push(Dataset {
            name: format!("/{}", lossy(&shown.name)),
            header: h5::address(&object)?,
            datatype: h5::describe_type(&datatype),
            element_size: element as u64,
            dims: plan.dims,
            max_dims: plan.max_dims,
            storage: plan.storage,
            fill: fill_of(&variable.unwritten[..element]),
            filters: h5::filters(&h5::dataset_creation(&object)?)?,
            references: Vec::new(),
            content: match &variable.unreadable {
                Some(reason) => Content::Unreadable(reason.clone()),
                None => Content::Logged {
                    id,
                    filtered: false,
                },
            },
        });
        Ok(())
    }

    /// Writes the attributes of a variable, except references to other objects.
    fn variable_attributes(
        &mut self,
        object: &Id,
        shown: &ShownVariable,
        variable: &'a Variable,
    ) -> Result<()> {
        match shown.scale_of {
            Some(dimension) => self.make_scale(object, dimension, &variable.name)?,
            None => self.variables.push((h5::address(object)?, variable)),
        }
        if !variable.dimensions.is_empty() {
            let numbers = &variable.dimensions;
            self.attributes
                .numbers(object, "_Netcdf4Coordinates", numbers)?;
        }
        let of = lossy(&variable.name);
        let diagnostics = &mut self.out.diagnostics;
        self.attributes
            .user_attributes(object, variable.attributes.iter(), &of, diagnostics)
    }

    fn plan(&self, variable: &Variable) -> DatasetPlan {
        DatasetPlan {
            max_dims: self.model.max_dims(variable),
            ..DatasetPlan::fixed(self.model.dims(variable))
        }
    }

    /// Makes a dataset without storage.
    fn create(&self, name: &[u8], datatype: &Id, creation: &Id, plan: &DatasetPlan) -> Result<Id> {
        h5::set_storage(creation, &plan.storage)?;
        let space = plan.space().create()?;
        h5::create_dataset(&self.root, &link(name)?, datatype, &space, creation)
    }

    // --- references ------------------------------------------------------------------------------

    /// Writes the references from variables to the scales of their dimensions, and back.
    fn references(&mut self, image: &Id) -> Result<()> {
        let mut uses = vec![Vec::new(); self.scales.len()];
        for (address, variable) in &self.variables {
            let mut scales = Vec::new();
            for (position, dimension) in (0u32..).zip(&variable.dimensions) {
                scales.push(vec![self.scales[*dimension]]);
                uses[*dimension].push(ScaleUse {
                    dataset: *address,
                    dimension: position,
                });
            }
            if !scales.is_empty() {
                let object = h5::open_object(image, *address)?;
                self.scale_attributes.dimension_list(&object, &scales)?;
            }
        }
        for (scale, uses) in self.scales.iter().zip(&uses) {
            if !uses.is_empty() {
                let object = h5::open_object(image, *scale)?;
                self.scale_attributes.reference_list(&object, uses)?;
            }
        }
        Ok(())
    }

    /// Writes the attributes of the file.
    fn file_attributes(&mut self) -> Result<()> {
        let (major, minor, release) = hdf5::library_version();
        let made_by = format!(
            "version=2,h5logfs={},hdf5={major}.{minor}.{release}",
            env!("CARGO_PKG_VERSION")
        );
        let (root, model) = (&self.root, self.model);
        self.attributes
            .text(root, b"_NCProperties", made_by.as_bytes())?;
        if model.is_classic {
            self.attributes.number(root, "_nc3_strict", 1)?;
        }
        let diagnostics = &mut self.out.diagnostics;
        let (name, incomplete) = (INCOMPLETE.as_bytes(), self.incomplete);
        let is_replaced = |a: &Attribute| incomplete.is_some() && a.name == name;
        let shown = model.attributes.iter().filter(|a| !is_replaced(a));
        self.attributes
            .user_attributes(root, shown, "the file", diagnostics)?;
        if model.attributes.iter().any(is_replaced) {
            let text = "is not shown: the view needs its name to say what is missing";
            let text = format!("attribute {INCOMPLETE} of the file {text}");
            diagnostics.push(Diagnostic::note(text));
        }
        let write = |text: &str| self.attributes.text(root, name, text.as_bytes());
        incomplete.map_or(Ok(()), write)
    }
}

fn new_creation() -> Result<Id> {
    let creation = h5::new_dataset_creation()?;
    h5::order_attributes(&creation)?;
    // Two images of one file must be equal.
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

/// A fill value as a dataset has it: no bytes stand for zeros.
fn fill_of(element: &[u8]) -> Vec<u8> {
    if element.iter().all(|byte| *byte == 0) {
        return Vec::new();
    }
    element.to_vec()
}

/// The HDF5 type of a netCDF type.
pub(super) fn new_datatype(kind: Type, is_big_endian: bool) -> Result<Id> {
    let Type::Number(kind) = kind else {
        return h5::terminated_text_type(1, false);
    };
    let size = kind.size() as u32;
    match kind {
        NumberType::F32 | NumberType::F64 => h5::float_type(size, is_big_endian),
        NumberType::I8 | NumberType::I16 | NumberType::I32 | NumberType::I64 => {
            h5::integer_type(size, true, is_big_endian)
        }
        NumberType::U8 | NumberType::U16 | NumberType::U32 | NumberType::U64 => {
            h5::integer_type(size, false, is_big_endian)
        }
    }
}
