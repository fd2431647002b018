//! Definitions come back from the metadata image and from the closed log. Objects that definitions cannot describe are refused.

use std::collections::{BTreeMap, HashSet};
use std::ffi::CStr;
use std::path::PathBuf;

use h5logfs_hdf5_format::filters::{DEFLATE, Filter, SHUFFLE};
use h5logfs_log::file_id::FileId;
use h5logfs_log::front::{FRONT, unclosed_front};
use h5logfs_log::journal::Header;
use h5logfs_log::journal::closed::ClosedLog as LogToClose;
use h5logfs_log::journal::metadata_image::MetadataImage;
use h5logfs_log::window::Piece;
use h5logfs_objects::closed::ClosedObjects;
use h5logfs_objects::defined::{extended, of_definitions, outline};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::closing::{Front, Role, write_objects};
use crate::metadata_image::LoggedObjects;
use crate::reopened::ClosedLog;

const ID: FileId = FileId([7; 16]);

/// A closed log without elements, in a directory of its own.
struct Closed(TempDir);

/// The metadata image of definitions.
fn image(definitions: &[Definition]) -> MetadataImage {
    let mut outline = Outline::default();
    definitions.iter().for_each(|d| outline.add(d).unwrap());
    let changes = |d: &&Definition| !d.changes_dataset();
    let made: Vec<_> = definitions.iter().filter(changes).cloned().collect();
    of_definitions(&made, &outline.datasets).unwrap()
}

/// The definitions that libhdf5 finds in a metadata image.
fn read_image(image: &MetadataImage) -> Vec<Definition> {
    let file = h5::open_image(&image.image).unwrap();
    let layout = LoggedObjects::of(image).unwrap();
    of_file(&file, &layout, image.ids() as i64).unwrap()
}

const NOTHING: Piece = Piece {
    offset: FRONT,
    len: 0,
};

impl Closed {
    fn begin() -> Self {
        let closed = Closed(tempfile::tempdir().unwrap());
        std::fs::write(closed.path(), unclosed_front(&ID)).unwrap();
        closed
    }

    /// A log that libhdf5 closes.
    fn of(definitions: &[Definition]) -> Self {
        let closed = Closed::begin();
        closed.close(&image(definitions));
        closed
    }

    fn close(&self, image: &MetadataImage) {
        let role = Role::Log {
            data: NOTHING,
            table: NOTHING,
        };
        let front = Front {
            header: &Header::new(&ID, 1, 0, 10),
            id: &ID,
            datasets: image.ids(),
            role,
            flush: 1,
            has_seals: false,
        };
        write_objects(&self.path(), front, image, false).unwrap();
    }

    /// A log that our own code closes.
    fn plainly(image: &MetadataImage) -> Self {
        let closed = Closed::begin();
        let log = LogToClose {
            header: &Header::new(&ID, 1, 0, 10),
            id: &ID,
            data: NOTHING,
            table: NOTHING,
            flush: 1,
            has_seals: false,
        };
        let objects = ClosedObjects::of_image(image).unwrap();
        let metadata = objects.metadata(log, image.ids()).unwrap();
        let file = std::fs::File::options().write(true).open(closed.path());
        metadata.write_to(&file.unwrap()).unwrap();
        closed
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("log.h5")
    }

    fn read(&self) -> CoreResult<Vec<Definition>> {
        let (dir, name) = SourceDir::of_file(&self.path())?;
        of_closed(&dir, &name)
    }

    /// Changes the file as an HDF5 program does.
    fn change(self, change: impl FnOnce(&Id) -> Result<()>) -> Self {
        let path = h5::c_name(self.path().as_os_str().as_encoded_bytes()).unwrap();
        let file = h5::open_to_write(&path, 2048).unwrap();
        change(&file).unwrap();
        h5::close_file(file).unwrap();
        self
    }
}

/// Definitions in an order that does not depend on their creation. The order of attributes may change when HDF5 moves them.
fn sorted(definitions: &[Definition]) -> Vec<Definition> {
    let mut sorted = definitions.to_vec();
    sorted.sort_by_key(|definition| match definition {
        Definition::Group { path } => (0, path.clone(), [0; 2]),
        Definition::Attribute { object, name, .. } => (2, format!("{object} {name}"), [0; 2]),
        Definition::Scale { dataset, .. } => (3, String::new(), [*dataset, 0]),
        Definition::Attachment {
            dataset, dimension, ..
        } => (4, String::new(), [*dataset, *dimension]),
        Definition::Label {
            dataset, dimension, ..
        } => (5, String::new(), [*dataset, *dimension]),
        // The order of these definitions is the order of IDs.
        Definition::Dataset { .. } | Definition::Extent { .. } => (1, String::new(), [0; 2]),
    });
    sorted
}

fn number() -> impl Strategy<Value = Datatype> {
    let size = prop::sample::select(vec![1u32, 2, 4, 8]);
    (0..3, size, any::<bool>(), any::<bool>()).prop_map(|(class, size, signed, big_endian)| {
        match class {
            0 => Datatype::Integer {
                size,
                signed,
                big_endian,
            },
            1 => Datatype::Float {
                size: size.max(4),
                big_endian,
            },
            _ => Datatype::Bitfield { size, big_endian },
        }
    })
}

fn leaf() -> impl Strategy<Value = Datatype> {
    let text = (1u32..9, any::<bool>()).prop_map(|(size, utf8)| Datatype::Text { size, utf8 });
    let opaque = (1u32..9, "[a-zé ]{0,9}").prop_map(|(size, tag)| Datatype::Opaque { size, tag });
    let enumeration = (0..4u32, any::<bool>(), any::<bool>(), 0..5usize).prop_map(
        |(size, signed, big_endian, members)| {
            let size = 1 << size;
            let all = 64 - 8 * size;
            let least = if signed { i64::MIN >> all } else { 0 };
            // In eight bytes, -1 stands for the largest unsigned number.
            let most = if signed {
                !least
            } else {
                (u64::MAX >> all) as i64
            };
            let members = [
                ("low", least),
                ("one", 1),
                ("hôch", most),
                ("two", 2),
                ("_x", 3),
            ]
            .into_iter()
            .skip(members)
            .map(|(name, value)| (name.to_owned(), value));
            Datatype::Enumeration {
                base: Box::new(Datatype::Integer {
                    size,
                    signed,
                    big_endian,
                }),
                members: members.collect(),
            }
        },
    );
    prop_oneof![number(), text, opaque, enumeration]
}

fn datatype() -> impl Strategy<Value = Datatype> {
    leaf().prop_recursive(2, 8, 3, |inner| {
        let members = prop::collection::vec((inner.clone(), 0u32..4), 1..4);
        let compound = members.prop_map(|members| {
            let (mut end, mut listed) = (0, Vec::new());
            for (number, (datatype, gap)) in members.into_iter().enumerate() {
                let offset = end + gap;
                end = offset + datatype.size();
                listed.push((format!("m{number}_é"), offset, datatype));
            }
            // The members are not listed in the order of their offsets.
            listed.reverse();
            Datatype::compound(end, listed)
        });
        let dims = prop::collection::vec(1u32..4, 1..3);
        let array = (inner, dims).prop_map(|(base, dims)| Datatype::Array {
            base: Box::new(base),
            dims,
        });
        prop_oneof![compound, array]
    })
}

fn bytes_of(datatype: &Datatype, elements: u64) -> Vec<u8> {
    let len = u64::from(datatype.size()) * elements;
    (0..len).map(|n| (n * 37 + 11) as u8).collect()
}

fn any_value() -> impl Strategy<Value = Value> {
    let dims = prop::collection::vec(0u64..4, 0..3);
    let elements = (datatype(), dims).prop_map(|(datatype, dims)| Value::Elements {
        bytes: bytes_of(&datatype, dims.iter().product()),
        datatype,
        dims,
    });
    let texts = prop::collection::vec("[a-zµ ]{0,5}", 0..4).prop_map(Value::Texts);
    prop_oneof![elements, texts, "[a-zµ ]{0,5}".prop_map(Value::Text)]
}

/// A layout for any path.
fn any_layout() -> impl Strategy<Value = DatasetLayout> {
    let dims = prop::collection::vec((0u64..5, prop::option::of(0u64..5)), 0..4);
    let options = (any::<bool>(), any::<bool>(), any::<bool>());
    (datatype(), dims, options).prop_map(|(datatype, dims, (chunked, filtered, filled))| {
        let datatype = datatype.packed();
        let (dims, more): (Vec<u64>, Vec<_>) = dims.into_iter().unzip();
        let max_dims: Vec<_> = dims.iter().zip(more).map(|(d, m)| Some(d + m?)).collect();
        let side = |max: &Option<u64>| max.unwrap_or(7).clamp(1, 7);
        let chunk = (chunked && !dims.is_empty()).then(|| max_dims.iter().map(side).collect());
        let filter = |id, values| Filter {
            id,
            flags: 1,
            values,
        };
        let element = datatype.size();
        let filters = vec![filter(SHUFFLE, vec![element]), filter(DEFLATE, vec![6])];
        DatasetLayout {
            filters: if filtered && chunk.is_some() {
                filters
            } else {
                Vec::new()
            },
            fill: if filled {
                bytes_of(&datatype, 1)
            } else {
                Vec::new()
            },
            datatype,
            dims,
            max_dims,
            chunk,
        }
    })
}

/// Any definition. Paths, names and the meaning of scales decide which ones are possible.
fn any_definition() -> impl Strategy<Value = Definition> {
    let path = || {
        let names = prop::sample::select(vec!["a", "_b", "__c", "_LOG", "dé", "CLASS"]);
        prop::collection::vec(names, 1..3).prop_map(|names| format!("/{}", names.join("/")))
    };
    let name = prop::sample::select(vec!["_dims", "_int_att", "units", "NAME", "_ID", "µ", "x"]);
    let object = prop_oneof![path(), Just("/".to_owned())];
    let attribute = (object, name, any_value()).prop_map(|(object, name, value)| {
        let name = name.to_owned();
        Definition::Attribute {
            object,
            name,
            value,
        }
    });
    let dataset = (path(), any_layout()).prop_map(|(path, layout)| {
        let layout = Box::new(layout);
        Definition::Dataset { path, layout }
    });
    let text = || "[a-zé]{0,3}";
    let scale = (0u32..6, text()).prop_map(|(dataset, name)| Definition::Scale { dataset, name });
    let label =
        (0u32..6, 0u32..3, text()).prop_map(|(dataset, dimension, label)| Definition::Label {
            dataset,
            dimension,
            label,
        });
    let attachment = (0u32..6, 0u32..3, 0u32..6).prop_map(|(dataset, dimension, scale)| {
        Definition::Attachment {
            dataset,
            dimension,
            scale,
        }
    });
    prop_oneof![
        2 => path().prop_map(|path| Definition::Group { path }),
        5 => dataset,
        3 => attribute,
        2 => scale,
        3 => attachment,
        1 => label,
    ]
}

/// The definitions that are possible after the ones before them.
fn possible(definitions: Vec<Definition>) -> Vec<Definition> {
    let mut outline = Outline::default();
    let is_possible = |definition: &Definition| outline.add(definition).is_ok();
    definitions.into_iter().filter(is_possible).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn what_was_defined_comes_back(drawn in prop::collection::vec(any_definition(), 0..40)) {
        let definitions = possible(drawn);
        let image = image(&definitions);
        prop_assert_eq!(sorted(&read_image(&image)), sorted(&definitions));
        let read = Closed::plainly(&image).read().unwrap();
        prop_assert_eq!(sorted(&read), sorted(&definitions));
        let read = Closed::of(&definitions).read().unwrap();
        prop_assert_eq!(sorted(&read), sorted(&definitions));
        let again = Closed::of(&read).read().unwrap();
        prop_assert_eq!(sorted(&again), sorted(&read));
    }

    #[test]
    fn what_is_added_to_an_image_comes_back(
        drawn in prop::collection::vec(any_definition(), 0..60),
        cut in 0..60usize,
        again in 0..60usize,
    ) {
        let definitions = possible(drawn);
        let cut = cut.min(definitions.len());
        let again = again.clamp(cut, definitions.len());
        let mut made = image(&definitions[..cut]);
        for new in [&definitions[cut..again], &definitions[again..]] {
            let mut outline = outline(&made).unwrap();
            for definition in new {
                let added = outline.add(definition);
                prop_assert!(added.is_ok(), "{definition:?}: {added:?}");
            }
            made = extended(&made, new, &outline.datasets).unwrap();
        }
        prop_assert_eq!(sorted(&read_image(&made)), sorted(&definitions));
        let read = Closed::plainly(&made).read().unwrap();
        prop_assert_eq!(sorted(&read), sorted(&definitions));
    }
}

/// A dataset of the root group.
fn dataset(number: u32) -> Definition {
    Definition::Dataset {
        path: format!("/{number}"),
        layout: Box::new(DatasetLayout::fixed(Datatype::float(4), &[4])),
    }
}

/// Datasets with the IDs 1 to `count`, each of which uses dataset 0 as its scale.
fn datasets_with_scale(count: u32) -> impl Iterator<Item = Definition> {
    (1..=count).flat_map(|id| {
        let attachment = Definition::Attachment {
            dataset: id,
            dimension: 0,
            scale: 0,
        };
        [dataset(id), attachment]
    })
}

/// Opens the scale of an image, whose first dataset it is, and checks that all other datasets use it. Reading definitions
/// ignores the uses.
fn scale_of_all(image: &MetadataImage) -> h5::Id {
    let datasets: Vec<u64> = image.logged.values().flatten().copied().collect();
    let file = h5::open_image(&image.image).unwrap();
    let scale = h5::open_object(&file, datasets[0]).unwrap();
    let uses = h5::open_attribute(&scale, c"REFERENCE_LIST").unwrap();
    let uses = h5::read_attribute(&uses).unwrap();
    let found = uses.bytes().as_chunks::<16>().0.iter();
    let found: Vec<u64> = found
        .map(|used| u64::from_le_bytes(*used.first_chunk().unwrap()))
        .collect();
    assert!(found == datasets[1..]);
    scale
}

/// The list of thousands of uses does not fit into the object header of a scale.
#[test]
fn a_scale_with_many_uses_comes_back() {
    const USES: u32 = 5000;
    let text = |name: &str, text: &str| Definition::Attribute {
        object: "/0".into(),
        name: name.into(),
        value: Value::from(text),
    };
    let mut definitions = vec![dataset(0), text("units", "K"), text("_größe", "many")];
    definitions.push(Definition::Scale {
        dataset: 0,
        name: "x".into(),
    });
    definitions.extend(datasets_with_scale(USES));
    let image = image(&definitions);
    assert_eq!(sorted(&read_image(&image)), sorted(&definitions));
    assert!(ClosedObjects::of_image(&image).is_none());
    let closed = Closed::of(&definitions);
    assert_eq!(sorted(&closed.read().unwrap()), sorted(&definitions));
    let scale = scale_of_all(&image);
    // Other programs may add to the scale.
    let number = h5::integer_type(1, true, false).unwrap();
    let scalar = Space::scalar().create().unwrap();
    let name = h5::Name::ascii("more");
    h5::write_plain_attribute(&scale, name, &number, &scalar, &[7]).unwrap();
    assert_eq!(h5::attribute_names(&scale).unwrap().len(), 6);
}

/// The uses no longer fit into the header of a scale in an image, so its attributes move out of the header.
#[test]
fn a_scale_of_an_image_gets_many_uses() {
    let mut definitions = vec![dataset(0)];
    definitions.push(Definition::Scale {
        dataset: 0,
        name: "x".into(),
    });
    definitions.extend(datasets_with_scale(6000));
    let mut made = image(&definitions[..6002]);
    // The uses fit into the header at first, then move out of it, then grow.
    for new in [
        &definitions[6002..6402],
        &definitions[6402..11002],
        &definitions[11002..],
    ] {
        let mut outline = outline(&made).unwrap();
        new.iter().for_each(|d| outline.add(d).unwrap());
        made = extended(&made, new, &outline.datasets).unwrap();
    }
    assert_eq!(sorted(&read_image(&made)), sorted(&definitions));
    scale_of_all(&made);
}

/// Two scans of one state of an unclosed log make the same bytes.
#[test]
fn objects_of_an_image_have_no_times() {
    let image = image(&definitions());
    let file = h5::open_image(&image.image).unwrap();
    for path in [c"g", c"g/d", c"e"] {
        let object = object(&file, path).unwrap();
        assert_eq!(h5::object_info(&object).unwrap().times, [0; 4]);
    }
}

#[test]
fn names_are_marked_as_utf8() {
    let group = |path: &str| Definition::Group { path: path.into() };
    let of = |group: &Id| {
        let links = h5::links(group).unwrap().into_iter();
        let links = links.map(|link| (String::from_utf8(link.name).unwrap(), link.utf8));
        links.collect::<Vec<_>>()
    };
    let image = image(&["/größe", "/größe/a", "/größe/é", "/plain", "/plain/a"].map(group));
    let wanted = |names: [(&str, bool); 2]| names.map(|(name, utf8)| (name.to_owned(), utf8));
    let file = h5::open_image(&image.image).unwrap();
    let root = h5::open_group(&file, c"/").unwrap();
    assert_eq!(of(&root), wanted([("größe", true), ("plain", false)]));
    let group = h5::open_group(&file, c"/größe").unwrap();
    assert_eq!(of(&group), wanted([("a", false), ("é", true)]));
    let closed = Closed::plainly(&image);
    let path = h5::c_name(closed.path().as_os_str().as_encoded_bytes()).unwrap();
    let file = h5::open_to_write(&path, 2048).unwrap();
    let links = of(&h5::open_group(&file, c"/").unwrap());
    assert_eq!(links[1..], wanted([("größe", true), ("plain", false)]));
}

fn definitions() -> Vec<Definition> {
    let dataset = |path: &str, dims: &[u64]| Definition::Dataset {
        path: path.into(),
        layout: Box::new(DatasetLayout::fixed(Datatype::float(8), dims)),
    };
    vec![
        Definition::Group { path: "/g".into() },
        dataset("/g/d", &[3]),
        dataset("/e", &[]),
    ]
}

/// The contents of a file: for each path the kind of the object, its comment, and the names of its attributes.
fn listing(file: &Id) -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    let mut groups = vec![(h5::open_group(file, c"/").unwrap(), String::new())];
    let mut seen = HashSet::new();
    while let Some((group, path)) = groups.pop() {
        for link in h5::links(&group).unwrap() {
            let path = format!("{path}/{}", text(&link.name).unwrap());
            let Target::Hard(address) = link.target else {
                all.insert(path, vec![format!("{:?}", link.target)]);
                continue;
            };
            let object = h5::open_object(file, address).unwrap();
            let kind = h5::object_info(&object).unwrap().kind;
            let mut facts = vec![format!("{kind:?} {:?}", h5::comment(&object).unwrap())];
            let names = h5::attribute_names(&object).unwrap().into_iter();
            facts.extend(names.map(|name| name.into_string().unwrap()));
            facts.sort();
            all.insert(path.clone(), facts);
            if matches!(kind, Kind::Group) && seen.insert(address) {
                groups.push((object, path));
            }
        }
    }
    all
}

/// Opens a log again that an HDF5 program has changed. All objects must be there, and definitions must add to them.
#[track_caller]
fn goes_on(change: impl FnOnce(&Id) -> Result<()>) -> MetadataImage {
    let closed = Closed::of(&definitions()).change(change);
    let (dir, name) = SourceDir::of_file(&closed.path()).unwrap();
    let found = ClosedLog::read(&dir, &name).unwrap().image;
    let mut outline = outline(&found).unwrap();
    let before = listing(&h5::open_image(&found.image).unwrap());
    let groups = before.keys().map(|path| Definition::Group {
        path: format!("{path}/new"),
    });
    let attributes = before.keys().map(|path| Definition::Attribute {
        object: path.clone(),
        name: "new".into(),
        value: Value::from("text"),
    });
    let layout = Box::new(DatasetLayout {
        max_dims: vec![None],
        ..DatasetLayout::fixed(Datatype::float(8), &[3])
    });
    let path = "/new".to_owned();
    let dataset = std::iter::once(Definition::Dataset { path, layout });
    let wanted = groups.chain(attributes).chain(dataset);
    let new: Vec<_> = wanted.filter(|d| outline.add(d).is_ok()).collect();
    let id = found.ids() as u32;
    let dims = vec![9];
    outline
        .add(&Definition::Extent { dataset: id, dims })
        .unwrap();
    let image = extended(&found, &new, &outline.datasets).unwrap();
    let file = h5::open_image(&image.image).unwrap();
    let mut expected = before;
    for definition in &new {
        match definition {
            Definition::Attribute { object, name, .. } => {
                let facts = expected.get_mut(object).unwrap();
                facts.push(name.clone());
                facts.sort();
            }
            Definition::Group { path } => {
                expected.insert(path.clone(), vec!["Group None".into()]);
            }
            _ => {}
        }
    }
    expected.insert("/new".into(), vec!["Dataset None".into()]);
    // An attribute that an object has gained is visible through each of its hard links.
    let paths: Vec<String> = expected.keys().cloned().collect();
    for path in paths {
        let is_soft = expected[&path].iter().any(|fact| fact.starts_with("Soft"));
        let object = outline.resolved(&path);
        if !is_soft && *object != path {
            expected.insert(path.clone(), expected[&*object].clone());
        }
    }
    // A second path of a group leads to its new members, too.
    let mut after = listing(&file);
    after.retain(|path, _| expected.contains_key(path));
    assert_eq!(after, expected);
    let dataset = h5::open_object(&file, image.logged[&id].unwrap()).unwrap();
    assert!(matches!(
        h5::dataset_space(&dataset).unwrap(),
        Space::Simple { dims, .. } if dims == [9]
    ));
    // Closes the log, by libhdf5 if need be, and opens it again.
    let again = Closed::begin();
    again.close(&image);
    let (dir, name) = SourceDir::of_file(&again.path()).unwrap();
    let read = ClosedLog::read(&dir, &name).unwrap().image;
    assert_eq!(
        listing(&h5::open_image(&read.image).unwrap()),
        listing(&file)
    );
    image
}

fn object(file: &Id, path: &CStr) -> Result<Id> {
    h5::open_path(&h5::open_group(file, c"/")?, path)
}

#[test]
fn objects_that_definitions_do_not_have_stay() {
    let link = |name: &str, target| Link {
        target,
        ..Link::ascii(name)
    };
    goes_on(|file| {
        let link = link("away", Target::Soft(c"/g/d".into()));
        h5::create_symbolic_link(&h5::open_group(file, c"/g")?, &link)
    });
    goes_on(|file| {
        h5::link_object(
            &object(file, c"/e")?,
            &h5::open_group(file, c"/g")?,
            &Link::ascii("f"),
        )
    });
    goes_on(|file| {
        let committed = h5::integer_type(4, true, false)?;
        h5::commit(file, &committed)?;
        h5::link_object(
            &committed,
            &h5::open_group(file, c"/")?,
            &Link::ascii("type"),
        )
    });
    goes_on(|file| h5::set_comment(&object(file, c"/g/d")?, c"a remark"));
    goes_on(|file| {
        let creation = h5::group_creation(&h5::open_group(file, c"/g")?)?;
        h5::order_links(&creation)?;
        let root = h5::open_group(file, c"/")?;
        h5::create_group(&root, &Link::ascii("ordered"), &creation).map(drop)
    });
    goes_on(|file| h5::delete_link(&h5::open_group(file, c"/")?, &Link::ascii("e")));
}

#[test]
fn datasets_that_the_writer_does_not_make_stay() {
    let make = |file: &Id, name: &str, datatype: Id, creation: &Id| {
        let (root, space) = (h5::open_group(file, c"/")?, Space::fixed(&[4]).create()?);
        h5::create_dataset(&root, &Link::ascii(name), &datatype, &space, creation).map(drop)
    };
    goes_on(|file| {
        make(
            file,
            "plain",
            h5::float_type(8, false)?,
            &h5::new_dataset_creation()?,
        )
    });
}

#[test]
fn attributes_that_definitions_do_not_have_stay() {
    let plain = |file: &Id, datatype: Id, space: Space, bytes: &[u8]| {
        let name = h5::Name::ascii("odd");
        h5::write_plain_attribute(
            &object(file, c"/g/d")?,
            name,
            &datatype,
            &space.create()?,
            bytes,
        )
    };
    goes_on(|file| {
        let address = h5::address(&object(file, c"/e")?)?.to_le_bytes();
        plain(
            file,
            h5::object_reference_type()?,
            Space::scalar(),
            &address,
        )
    });
    goes_on(|file| {
        plain(
            file,
            h5::terminated_text_type(3, false)?,
            Space::scalar(),
            b"ab\0",
        )
    });
    goes_on(|file| plain(file, h5::integer_type(4, true, false)?, Space::Null, &[]));
    goes_on(|file| {
        let committed = h5::integer_type(1, true, false)?;
        h5::commit(file, &committed)?;
        plain(file, committed, Space::scalar(), &[1])
    });
    goes_on(|file| {
        let sequence = h5::sequence_type(&h5::integer_type(1, true, false)?)?;
        let scalar = Space::scalar().create()?;
        let name = h5::Name::ascii("odd");
        h5::write_sequences(
            &object(file, c"/g/d")?,
            name,
            &sequence,
            &scalar,
            &[&[1, 2]],
        )
    });
    // An attribute with the name of a scale's attribute, but of another type.
    goes_on(|file| {
        let name = h5::Name::ascii("CLASS");
        let text = h5::terminated_text_type(6, false)?;
        let scalar = Space::scalar().create()?;
        h5::write_plain_attribute(&object(file, c"/e")?, name, &text, &scalar, b"other\0")
    });
}

/// The log records no chunks for such a dataset, so the next reader chooses them for the extent of that time.
#[test]
fn datasets_without_chunks_stay_without() {
    let layout = Box::new(DatasetLayout {
        max_dims: vec![None, Some(5)],
        fill: vec![7; 8],
        ..DatasetLayout::fixed(Datatype::float(8), &[3, 5])
    });
    let path = "/free".to_owned();
    let definitions = [definitions(), vec![Definition::Dataset { path, layout }]].concat();
    let closed = Closed::plainly(&image(&definitions));
    let (dir, name) = SourceDir::of_file(&closed.path()).unwrap();
    let found = ClosedLog::read(&dir, &name).unwrap().image;
    assert_eq!(sorted(&read_image(&found)), sorted(&definitions));
    let outline = outline(&found).unwrap();
    let chunks = |number: usize| outline.datasets[number].layout.chunk.clone();
    assert_eq!([chunks(0), chunks(1), chunks(2)], [None, None, None]);
    assert_eq!(outline.datasets[2].layout.fill, [7; 8]);
}

/// Scans disable plug-ins for files of other users. The program may need its own plug-ins.
#[test]
fn plugins_of_the_program_stay_allowed() {
    let state = h5::PluginState::keep().unwrap();
    let closed = Closed::of(&definitions());
    let (dir, name) = SourceDir::of_file(&closed.path()).unwrap();
    ClosedLog::read(&dir, &name).unwrap();
    assert_eq!(h5::PluginState::keep().unwrap(), state);
}
