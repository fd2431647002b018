//! The objects of a directory, in memory and without the elements that its files have.

use super::attributes::{Attributes, are_outside, c_text};
use super::types::Types;
use crate::hdf5_sys::{self as h5, Id, Link, Target};
use crate::shown::{DatasetPlan, ShownObjects};
use h5logfs_adios::Type;
use h5logfs_adios::tree::{self, Object};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_log::scan::Choice;
use h5logfs_log::scan::incomplete::INCOMPLETE;
use h5logfs_log::scan::shape::Chooser;
use h5logfs_log::snapshot::{Content, Dataset, Storage};

type Result<T> = std::result::Result<T, Fault>;

/// Texts about what is left out that are kept.
const MOST_DIAGNOSTICS: usize = 1000;

/// Makes the image of these objects, of which the first is the root. The datasets are numbered in their order, those of texts
/// left out: the image has their elements. `incomplete`: what is missing, for its attribute.
pub(super) fn make(
    objects: &[&Object],
    is_big_endian: bool,
    chooser: &Chooser<'_>,
    choice: &Choice,
    incomplete: Option<&str>,
) -> Result<ShownObjects> {
    let creation = h5::new_file_creation()?;
    let (root, others) = objects.split_first().ok_or("a directory without a root")?;
    set_properties(&creation, are_outside(root))?;
    let image = h5::create_in_memory(&creation)?;
    let mut maker = Maker {
        root: h5::open_group(&image, c"/")?,
        parent: None,
        creation: None,
        chooser,
        choice,
        types: Types::new(is_big_endian),
        attributes: Attributes::new(root)?,
        next: 0,
        out: ShownObjects::default(),
    };
    maker.root_attributes(root, incomplete)?;
    for object in others {
        maker.object(object)?;
    }
    let mut out = maker.out;
    out.image = h5::file_image(&image)?;
    Ok(out)
}

/// Whether the elements of a dataset are in the image.
pub(super) fn has_elements(dataset: &tree::Dataset) -> bool {
    dataset.ty == Type::Text
}

struct Maker<'a> {
    root: Id,
    /// The group that the last object is in, and its path.
    parent: Option<(String, Id)>,
    /// The creation properties of the last dataset.
    creation: Option<(Form, Id)>,
    chooser: &'a Chooser<'a>,
    choice: &'a Choice,
    types: Types,
    attributes: Attributes,
    /// The number of the next dataset.
    next: i64,
    out: ShownObjects,
}

/// What the creation properties of a dataset depend on.
#[derive(PartialEq)]
struct Form {
    storage: Storage,
    is_in_image: bool,
    /// Its attributes do not fit into its header.
    are_outside: bool,
}

impl Maker<'_> {
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

    /// Makes an object. What libhdf5 cannot make is left out.
    fn object(&mut self, object: &Object) -> Result<()> {
        let id = match &object.dataset {
            None => self.group(object),
            Some(dataset) => {
                let number = self.next;
                self.next += i64::from(!has_elements(dataset));
                self.dataset(object, dataset, number)
            }
        };
        match id {
            Ok(id) => self.attributes(&id, object),
            Err(fault) => {
                self.lose(&object.path, fault.into_damage()?);
                Ok(())
            }
        }
    }

    fn group(&mut self, object: &Object) -> Result<Id> {
        let creation = h5::new_group_creation()?;
        set_properties(&creation, are_outside(object))?;
        let (parent, link) = self.place(&object.path)?;
        h5::create_group(&parent, &link, &creation)
    }

    fn dataset(&mut self, object: &Object, dataset: &tree::Dataset, number: i64) -> Result<Id> {
        let datatype = self.types.get(&dataset.ty)?;
        let element = h5::type_size(&datatype)? as u64;
        let plan = self.plan(dataset, number, element);
        let is_in_image = has_elements(dataset);
        let creation = self.creation(Form {
            storage: plan.storage.clone(),
            is_in_image,
            are_outside: are_outside(object),
        })?;
        let space = plan.space().create()?;
        let (parent, link) = self.place(&object.path)?;
        let id = h5::create_dataset(&parent, &link, &datatype, &space, &creation)?;
        if dataset.has_steps {
            self.attributes.label_steps(&id, plan.dims.len())?;
        }
        if is_in_image {
            let texts: Vec<_> = dataset.texts.iter().map(|text| c_text(text)).collect();
            h5::write_text_elements(&id, &texts)?;
            return Ok(id);
        }
        self.out.datasets.push(Dataset {
            name: object.path.clone(),
            header: h5::address(&id)?,
            datatype: h5::describe_type(&datatype),
            element_size: element,
            dims: plan.dims,
            max_dims: plan.max_dims,
            storage: plan.storage,
            fill: Vec::new(),
            filters: h5::filters(&h5::dataset_creation(&id)?)?,
            references: Vec::new(),
            content: Content::Logged {
                id: number,
                filtered: false,
            },
        });
        Ok(id)
    }

    /// The creation properties of a dataset. Most datasets have those of the one before: libhdf5 takes longer to make them
    /// than for the dataset.
    fn creation(&mut self, form: Form) -> Result<Id> {
        if let Some((known, creation)) = &self.creation
            && *known == form
        {
            return Ok(creation.clone());
        }
        let creation = h5::new_dataset_creation()?;
        set_properties(&creation, form.are_outside)?;
        h5::set_storage(&creation, &form.storage)?;
        if let (Storage::Chunked(_), Some(filters)) = (&form.storage, &self.choice.filters)
            && !form.is_in_image
        {
            for filter in filters {
                h5::add_filter(&creation, filter)?;
            }
        }
        self.creation = Some((form, creation.clone()));
        Ok(creation)
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

    /// The group that the object at a path is in, and its link there.
    fn place(&mut self, path: &str) -> Result<(Id, Link)> {
        let (parent, name) = path.rsplit_once('/').ok_or("a path without a group")?;
        let link = Link {
            name: name.as_bytes().to_vec(),
            utf8: !name.is_ascii(),
            target: Target::Hard(0),
        };
        if parent.is_empty() {
            return Ok((self.root.clone(), link));
        }
        if let Some((known, id)) = &self.parent
            && known == parent
        {
            return Ok((id.clone(), link));
        }
        let id = h5::open_path(&self.root, &h5::c_name(parent.as_bytes())?)?;
        self.parent = Some((parent.to_owned(), id.clone()));
        Ok((id, link))
    }
}

/// `are_outside`: the attributes do not fit into the header.
fn set_properties(creation: &Id, are_outside: bool) -> Result<()> {
    if are_outside {
        h5::order_attributes(creation)?;
    }
    // Two images of the same directory must be equal.
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

    #[test]
    fn what_cannot_be_made_is_left_out() {
        let objects = [
            group("/", vec![]),
            // There is no group for it.
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
