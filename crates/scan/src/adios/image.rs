//! The image of a directory: its objects in memory, without the elements that its files hold.

use super::alike::{Copies, is_in_one_piece, is_model};
use super::attributes::{Attributes, are_outside, c_text};
use super::types::Types;
use crate::hdf5_sys::{self as h5, Id, Link, Target};
use crate::shown::{DatasetPlan, ShownObjects};
use h5logfs_adios::Type;
use h5logfs_adios::tree::{self, Object};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_log::scan::Choice;
use h5logfs_log::scan::incomplete::INCOMPLETE;
use h5logfs_log::scan::shape::Chooser;
use h5logfs_log::snapshot::{Content, Dataset, Storage};

type Result<T> = std::result::Result<T, Fault>;

/// The most diagnostics about objects left out.
const MOST_DIAGNOSTICS: usize = 1000;

/// Makes the image of `objects`. The first object is the root. Datasets are numbered in their order. Datasets of texts
/// get no number, because the image holds their elements. `incomplete` names what is missing, for its attribute.
pub(super) fn make<'a>(
    objects: &[&'a Object],
    is_big_endian: bool,
    chooser: &'a Chooser<'a>,
    choice: &'a Choice,
    incomplete: Option<&str>,
) -> Result<ShownObjects> {
    let creation = h5::new_file_creation()?;
    let (root, others) = objects.split_first().ok_or("a directory without a root")?;
    set_properties(&creation, are_outside(root))?;
    let image = h5::create_in_memory(&creation)?;
    let mut maker = Maker {
        root: h5::open_group(&image, c"/")?,
        root_address: 0,
        parent: None,
        model: None,
        copies: Copies::default(),
        chooser,
        choice,
        types: Types::new(is_big_endian),
        attributes: Attributes::new(root)?,
        next: 0,
        out: ShownObjects::default(),
    };
    maker.root_address = h5::address(&maker.root)?;
    maker.root_attributes(root, incomplete)?;
    for object in others {
        maker.object(object)?;
    }
    let Maker {
        mut out, copies, ..
    } = maker;
    out.image = h5::file_image(&image)?;
    copies.make(&mut out)?;
    Ok(out)
}

/// Whether the image holds the elements of a dataset.
pub(super) fn has_elements(dataset: &tree::Dataset) -> bool {
    dataset.ty == Type::Text
}

struct Maker<'a> {
    root: Id,
    root_address: u64,
    /// The group that contains the last object.
    parent: Option<Parent>,
    /// The last dataset that libhdf5 made.
    model: Option<Model>,
    copies: Copies<'a>,
    chooser: &'a Chooser<'a>,
    choice: &'a Choice,
    types: Types,
    attributes: Attributes,
    /// The number of the next dataset.
    next: i64,
    out: ShownObjects,
}

/// A group and its path.
struct Parent {
    path: String,
    group: Id,
    address: u64,
}

/// The properties of a dataset, without its elements and attributes.
#[derive(PartialEq)]
struct Form {
    ty: Type,
    plan: DatasetPlan,
    is_in_image: bool,
    /// The attributes do not fit into the header.
    are_outside: bool,
}

/// A dataset that libhdf5 made, as a model for the next ones. Most datasets are like the one before.
struct Model {
    form: Form,
    datatype: Id,
    space: Id,
    creation: Id,
    /// Set once the first dataset has been made.
    described: Option<Described>,
}

/// The snapshot's description of a dataset.
struct Described {
    datatype: String,
    filters: Vec<Filter>,
    /// The address of the header, if other datasets may have copies of it.
    header: Option<u64>,
}

impl<'a> Maker<'a> {
    fn root_attributes(&mut self, root: &Object, incomplete: Option<&str>) -> Result<()> {
        let id = self.root.clone();
        let Some(text) = incomplete else {
            return self.attributes(&id, root);
        };
        let is_other = |(name, _): &&(String, tree::Content)| name != INCOMPLETE;
        let others = Object {
            attributes: root.attributes.iter().filter(is_other).cloned().collect(),
            ..root.clone()
        };
        if others.attributes.len() < root.attributes.len() {
            let text = "is not shown: the view needs its name to say what is missing";
            let text = format!("attribute {INCOMPLETE} of the root {text}");
            self.out.diagnostics.push(Diagnostic::note(text));
        }
        self.attributes(&id, &others)?;
        self.attributes.text(&id, INCOMPLETE, text)
    }

    /// Makes an object. Objects that libhdf5 cannot make are left out.
    fn object(&mut self, object: &'a Object) -> Result<()> {
        let id = match &object.dataset {
            None => self.group(object).map(Some),
            Some(dataset) => {
                let number = self.next;
                self.next += i64::from(!has_elements(dataset));
                self.dataset(object, dataset, number)
            }
        };
        match id {
            Ok(Some(id)) => self.attributes(&id, object),
            Ok(None) => Ok(()),
            Err(fault) => {
                self.lose(&object.path, fault.into_damage()?);
                Ok(())
            }
        }
    }

    fn group(&mut self, object: &Object) -> Result<Id> {
        let creation = h5::new_group_creation()?;
        set_properties(&creation, are_outside(object))?;
        let (_, name) = parent_and_name(&object.path)?;
        let parent = self.parent_of(&object.path)?;
        let group = h5::create_group(&parent.group, &link(name), &creation)?;
        let around = parent.address;
        self.copies.add_group(h5::address(&group)?, around);
        Ok(group)
    }

    /// Makes a dataset. `None`: the dataset is made later, and has no attributes.
    fn dataset(
        &mut self,
        object: &'a Object,
        dataset: &tree::Dataset,
        number: i64,
    ) -> Result<Option<Id>> {
        let is_in_image = has_elements(dataset);
        // The image holds pointers to texts.
        let element = if is_in_image {
            16
        } else {
            dataset.ty.shown_size()
        };
        let form = Form {
            ty: dataset.ty.clone(),
            plan: self.plan(dataset, number, element),
            is_in_image,
            are_outside: are_outside(object),
        };
        let (mut model, plan) = self.model_of(form)?;
        let (_, name) = parent_and_name(&object.path)?;
        let parent = self.parent_of(&object.path)?;
        let header = model
            .described
            .as_ref()
            .and_then(|described| described.header);
        if let Some(header) = header
            && is_model(object, dataset)
        {
            let group = parent.address;
            self.copies
                .add(self.out.datasets.len(), header, group, name);
            self.describe(object, &model, plan, number, header);
            self.model = Some(model);
            return Ok(None);
        }
        let link = link(name);
        let Model {
            datatype,
            space,
            creation,
            ..
        } = &model;
        let id = h5::create_dataset(&parent.group, &link, datatype, space, creation)?;
        if dataset.has_steps {
            self.attributes
                .label_steps(&id, model.form.plan.dims.len())?;
        }
        if is_in_image {
            let texts: Vec<_> = dataset.texts.iter().map(|text| c_text(text)).collect();
            h5::write_text_elements(&id, &texts)?;
            return Ok(Some(id));
        }
        let info = h5::object_info(&id)?;
        let header = info.address;
        if model.described.is_none() {
            model.described = Some(Described {
                datatype: h5::describe_type(&model.datatype),
                filters: h5::filters(&h5::dataset_creation(&id)?)?,
                header: None,
            });
        }
        if let Some(described) = &mut model.described
            && described.filters.is_empty()
            && is_model(object, dataset)
            && is_in_one_piece(&info)
        {
            described.header = Some(header);
        }
        self.describe(object, &model, plan, number, header);
        self.model = Some(model);
        Ok(Some(id))
    }

    /// Adds a dataset to the snapshot.
    fn describe(
        &mut self,
        object: &Object,
        model: &Model,
        plan: DatasetPlan,
        number: i64,
        header: u64,
    ) {
        let (ty, described) = (&model.form.ty, model.described.as_ref());
        self.out.datasets.push(Dataset {
            name: object.path.clone(),
            header,
            datatype: described
                .map(|described| described.datatype.clone())
                .unwrap_or_default(),
            element_size: ty.shown_size(),
            dims: plan.dims,
            max_dims: plan.max_dims,
            storage: plan.storage,
            fill: Vec::new(),
            filters: described
                .map(|described| described.filters.clone())
                .unwrap_or_default(),
            references: Vec::new(),
            content: Content::Logged {
                id: number,
                filtered: false,
            },
        });
    }

    /// The model for datasets of this form, and the plan of the form. libhdf5 takes longer to make a model than to make
    /// a dataset.
    fn model_of(&mut self, form: Form) -> Result<(Model, DatasetPlan)> {
        if let Some(known) = self.model.take_if(|known| known.form == form) {
            return Ok((known, form.plan));
        }
        let storage = &form.plan.storage;
        let creation = h5::new_dataset_creation()?;
        set_properties(&creation, form.are_outside)?;
        h5::set_storage(&creation, storage)?;
        if let (Storage::Chunked(_), Some(filters)) = (storage, &self.choice.filters)
            && !form.is_in_image
        {
            for filter in filters {
                h5::add_filter(&creation, filter)?;
            }
        }
        let plan = form.plan.clone();
        let model = Model {
            datatype: self.types.get(&form.ty)?,
            space: plan.space().create()?,
            creation,
            described: None,
            form,
        };
        Ok((model, plan))
    }

    fn plan(&self, dataset: &tree::Dataset, number: i64, element: u64) -> DatasetPlan {
        let mut plan = DatasetPlan::fixed(dataset.shape.clone());
        if dataset.has_steps
            && let Some(steps) = plan.max_dims.first_mut()
        {
            *steps = None;
        }
        let DatasetPlan { dims, max_dims, .. } = &plan;
        if !dims.is_empty() {
            plan.storage = Storage::Chunked(if has_elements(dataset) {
                self.chooser.plain(dims, max_dims, element)
            } else {
                self.chooser.logged(number, dims, max_dims, element)
            });
        }
        plan
    }

    fn attributes(&mut self, id: &Id, object: &Object) -> Result<()> {
        for (name, content) in &object.attributes {
            let written = self.attributes.write(id, name, content, &mut self.types);
            if let Err(fault) = written {
                let path = format!("{}: attribute {name}", object.path);
                self.lose(&path, fault.into_damage()?);
            }
        }
        Ok(())
    }

    fn lose(&mut self, what: &str, reason: String) {
        let diagnostics = &mut self.out.diagnostics;
        if diagnostics.len() < MOST_DIAGNOSTICS {
            diagnostics.push(Diagnostic::lost(format!("{what} is left out: {reason}")));
        }
    }

    /// The group of the object at `path`.
    fn parent_of(&mut self, path: &str) -> Result<&Parent> {
        let (path, _) = parent_and_name(path)?;
        let known = self.parent.take_if(|known| known.path == path);
        let parent = match known {
            Some(known) => known,
            None => self.open_parent(path)?,
        };
        Ok(self.parent.insert(parent))
    }

    fn open_parent(&self, path: &str) -> Result<Parent> {
        let (group, address) = if path.is_empty() {
            (self.root.clone(), self.root_address)
        } else {
            let group = h5::open_path(&self.root, &h5::c_name(path.as_bytes())?)?;
            let address = h5::address(&group)?;
            (group, address)
        };
        Ok(Parent {
            path: path.to_owned(),
            group,
            address,
        })
    }
}

/// Splits the path of an object into the path of its group and its name.
fn parent_and_name(path: &str) -> Result<(&str, &str)> {
    Ok(path.rsplit_once('/').ok_or("a path without a group")?)
}

/// A link for an object that is about to be made.
fn link(name: &str) -> Link {
    Link {
        name: name.as_bytes().to_vec(),
        utf8: !name.is_ascii(),
        target: Target::Hard(0),
    }
}

/// Sets the creation properties of an object. `are_outside`: its attributes do not fit into the header.
fn set_properties(creation: &Id, are_outside: bool) -> Result<()> {
    if are_outside {
        h5::order_attributes(creation)?;
    }
    // Two images of one directory must be equal.
    h5::track_times(creation, false)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::hdf5_sys::Space;
    use h5logfs_adios::model::Value;
    use h5logfs_adios::tree::{Source, Steps};
    use h5logfs_log::Tables;
    use h5logfs_log::scan::Chunking;

    fn group(path: &str, attributes: Vec<(&str, Value)>) -> Object {
        let content = |value| tree::Content::Value(Arc::new(value));
        let attributes = attributes.into_iter();
        Object {
            path: path.to_owned(),
            attributes: attributes
                .map(|(name, value)| (name.to_owned(), content(value)))
                .collect(),
            dataset: None,
        }
    }

    fn dataset(path: &str, ty: Type, shape: &[u64], has_steps: bool, texts: &[&str]) -> Object {
        let dataset = tree::Dataset {
            ty,
            shape: shape.to_vec(),
            has_steps,
            source: Source {
                variable: "v".into(),
                steps: Arc::new(Steps::default()),
                block: None,
            },
            texts: texts.iter().map(|text| Arc::from(*text)).collect(),
        };
        Object {
            dataset: Some(dataset),
            ..group(path, Vec::new())
        }
    }

    fn image_of(objects: &[Object], incomplete: Option<&str>) -> ShownObjects {
        let tables = Tables::default();
        let chooser = Chooser::new(Chunking::default(), tables.layout(), &[]);
        let objects: Vec<&Object> = objects.iter().collect();
        make(&objects, false, &chooser, &Choice::default(), incomplete).unwrap()
    }

    fn texts_at(image: &Id, path: &str, name: &str) -> Vec<String> {
        let object = h5::open_path(image, &h5::c_name(path.as_bytes()).unwrap()).unwrap();
        let name = h5::c_name(name.as_bytes()).unwrap();
        let attribute = h5::open_attribute(&object, &name).unwrap();
        h5::read_attribute(&attribute).unwrap().texts().unwrap()
    }

    #[test]
    fn objects_have_their_places_types_and_attributes() {
        let long = "x".repeat(100_000);
        let many: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
        let objects = [
            group(
                "/",
                vec![
                    ("long", Value::Text(long.clone())),
                    ("é", Value::Texts(many.clone())),
                ],
            ),
            group("/g", vec![]),
            dataset("/g/x", Type::F64, &[3, 4], true, &[]),
            dataset("/note", Type::Text, &[3], true, &["a", "", "c\0d\0"]),
            dataset("/n", Type::I32, &[], false, &[]),
        ];
        let made = image_of(&objects, Some("half of it"));
        assert!(made.diagnostics.is_empty(), "{:?}", made.diagnostics);
        let names: Vec<_> = made
            .datasets
            .iter()
            .map(|d| (&*d.name, d.content.clone()))
            .collect();
        let logged = |id| Content::Logged {
            id,
            filtered: false,
        };
        assert_eq!(names, [("/g/x", logged(0)), ("/n", logged(1))]);
        let image = h5::open_image(&made.image).unwrap();
        assert_eq!(texts_at(&image, "/", "long"), [long]);
        assert_eq!(texts_at(&image, "/", "é"), many);
        assert_eq!(texts_at(&image, "/", INCOMPLETE), ["half of it"]);
        assert_eq!(texts_at(&image, "/g/x", "DIMENSION_LABELS"), ["step", ""]);
        let x = h5::open_path(&image, c"/g/x").unwrap();
        let expected = Space::with_limits(&[3, 4], &[None, Some(4)]);
        assert_eq!(h5::dataset_space(&x).unwrap(), expected);
        let note = h5::open_path(&image, c"/note").unwrap();
        let space = h5::dataset_space(&note).unwrap().create().unwrap();
        let datatype = h5::dataset_type(&note).unwrap();
        let mut values = h5::Values::zeros(datatype, space.clone()).unwrap();
        h5::read_elements(&note, &mut values, &space, &space).unwrap();
        assert_eq!(values.texts().unwrap(), ["a", "", "c\u{fffd}d"]);
    }

    /// The numbers of datasets give the tables of their groups one, two and three levels.
    #[test]
    fn datasets_that_are_alike_are_made_without_libhdf5() {
        let alike = |prefix: &'static str, many: usize| {
            let path = move |number| format!("{prefix}{number:04}");
            (0..many).map(move |number| dataset(&path(number), Type::F64, &[3, 4], false, &[]))
        };
        let mut objects = vec![group("/", vec![])];
        objects.extend(alike("/a", 5));
        objects.push(group("/g", vec![]));
        objects.extend(alike("/g/b", 300));
        objects.push(group("/g/h", vec![]));
        objects.extend(alike("/g/h/c", 2100));
        objects.push(dataset("/g/h/d", Type::F64, &[4], false, &[]));
        let made = image_of(&objects, None);
        assert!(made.diagnostics.is_empty(), "{:?}", made.diagnostics);
        let image = h5::open_image(&made.image).unwrap();
        let open = |path: &str| h5::open_path(&image, &h5::c_name(path.as_bytes()).unwrap());
        let mut headers = std::collections::HashSet::new();
        for found in &made.datasets {
            let id = open(&found.name).unwrap();
            assert_eq!(h5::address(&id).unwrap(), found.header, "{}", found.name);
            assert!(headers.insert(found.header));
            let Space::Simple { dims, .. } = h5::dataset_space(&id).unwrap() else {
                panic!("{}: no dataspace", found.name);
            };
            assert_eq!(dims, found.dims);
            assert_eq!(
                h5::describe_type(&h5::dataset_type(&id).unwrap()),
                found.datatype
            );
        }
        assert_eq!(headers.len(), 5 + 300 + 2100 + 1);
        for (path, links) in [("/", 6), ("/g", 301), ("/g/h", 2101)] {
            let found = h5::links(&open(path).unwrap()).unwrap();
            assert_eq!(found.len(), links);
            assert!(found.is_sorted_by_key(|link| link.name.clone()));
        }
        assert!(open("/g/h/c2100").is_err());
    }

    /// Attributes that do not fit into an old header split it into several pieces.
    #[test]
    fn a_header_in_several_pieces_is_no_model() {
        let many = (0..20).map(|number| (number.to_string(), Value::Text("x".repeat(100))));
        let many: Vec<_> = many.collect();
        let attributes = many.iter().map(|(name, value)| (&**name, value.clone()));
        let objects = [
            group("/", vec![]),
            dataset("/a", Type::F64, &[3, 4], false, &[]),
            Object {
                attributes: group("", attributes.collect()).attributes,
                ..dataset("/b", Type::F64, &[3, 4], false, &[])
            },
        ];
        let made = image_of(&objects, None);
        let image = h5::open_image(&made.image).unwrap();
        let is_in_one_piece = |path: &std::ffi::CStr| {
            let object = h5::open_path(&image, path).unwrap();
            is_in_one_piece(&h5::object_info(&object).unwrap())
        };
        assert!(is_in_one_piece(c"/a") && !is_in_one_piece(c"/b"));
    }

    #[test]
    fn what_cannot_be_made_is_left_out() {
        let objects = [
            group("/", vec![]),
            // The group of this dataset is missing.
            dataset("/none/x", Type::F64, &[1], false, &[]),
            dataset("/few", Type::Text, &[3], false, &["a"]),
            dataset("/y", Type::F32, &[2], false, &[]),
        ];
        let made = image_of(&objects, None);
        let told: Vec<String> = made.diagnostics.iter().map(Diagnostic::to_string).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("/none/x is left out") && told[1].starts_with("/few"));
        assert_eq!(made.datasets.len(), 1);
        assert!(matches!(
            made.datasets[0].content,
            Content::Logged { id: 1, .. }
        ));
    }
}
