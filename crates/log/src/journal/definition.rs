//! The definitions of a program: groups, datasets, attributes, extents, and dimension scales. An [`Outline`] accepts one
//! definition after another, and refuses definitions that a close could not carry out.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::datatype::Datatype;
use super::hex;
use super::limits::{LARGEST_CHUNK, LARGEST_FILE, LARGEST_VALUE, LONGEST_NAME, LONGEST_PATH};
use super::scales::Scales;
use super::value::Value;
use super::words::{dimensions, largest_extent, shortened};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::MAX_RANK;
use h5logfs_hdf5_format::filters::Filter;

type Result<T> = std::result::Result<T, Fault>;

/// A definition. Paths are absolute, with the names that users see.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Definition {
    /// A group.
    Group {
        /// The path of the group.
        path: String,
    },
    /// A dataset. IDs count from 0, in the order of definition.
    Dataset {
        /// The path of the dataset.
        path: String,
        /// All other properties of the dataset.
        layout: Box<DatasetLayout>,
    },
    /// An attribute.
    Attribute {
        /// The path of its object; `/` is the root group.
        object: String,
        /// The name of the attribute.
        name: String,
        /// The value of the attribute.
        value: Value,
    },
    /// A new extent of the dataset with this ID.
    Extent {
        /// The ID of the dataset.
        dataset: u32,
        /// The new extent.
        dims: Vec<u64>,
    },
    /// A dimension scale made of a dataset.
    Scale {
        /// The ID of the dataset.
        dataset: u32,
        /// The name of the scale; it may be empty.
        name: String,
    },
    /// The attachment of a scale to a dimension of a dataset.
    Attachment {
        /// The ID of the dataset.
        dataset: u32,
        /// The dimension, from 0.
        dimension: u32,
        /// The ID of the scale.
        scale: u32,
    },
    /// The label of a dimension of a dataset.
    Label {
        /// The ID of the dataset.
        dataset: u32,
        /// The dimension, from 0.
        dimension: u32,
        /// The label.
        label: String,
    },
}

impl Definition {
    /// Whether the definition changes a dataset. The datasets of an [`Outline`] reflect such definitions.
    pub fn changes_dataset(&self) -> bool {
        match self {
            Definition::Group { .. }
            | Definition::Dataset { .. }
            | Definition::Attribute { .. } => false,
            Definition::Extent { .. }
            | Definition::Scale { .. }
            | Definition::Attachment { .. }
            | Definition::Label { .. } => true,
        }
    }
}

/// The properties of a dataset, without its name and elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DatasetLayout {
    /// The element type in the file, without gaps.
    pub datatype: Datatype,
    /// The extent; empty for a scalar.
    pub dims: Vec<u64>,
    /// The maximum extent; `None` for an unlimited dimension.
    pub max_dims: Vec<Option<u64>>,
    /// The chunk shape; `None` leaves the choice to the view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Vec<u64>>,
    /// The filter pipeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
    /// The fill value, one element; empty for zeros.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "hex")]
    pub fill: Vec<u8>,
}

impl DatasetLayout {
    /// A dataset of fixed extent without filters. The view chooses its chunk shape.
    pub fn fixed(datatype: Datatype, dims: &[u64]) -> Self {
        DatasetLayout {
            datatype,
            dims: dims.to_vec(),
            max_dims: dims.iter().map(|d| Some(*d)).collect(),
            chunk: None,
            filters: Vec::new(),
            fill: Vec::new(),
        }
    }
}

/// A dataset of an [`Outline`].
#[derive(Debug, Clone)]
pub struct Defined {
    /// The path of the dataset.
    pub path: String,
    /// The definition of the dataset, with the current extent.
    pub layout: DatasetLayout,
    /// The dimension scales of the dataset, and the labels of its dimensions.
    pub scales: Scales,
    /// The reason why the writer cannot write elements of the dataset, if it cannot: an HDF5 program may make any kind of
    /// dataset. In that case `layout` has the size of an element, but not its type.
    pub foreign: Option<Box<str>>,
}

impl Defined {
    /// A placeholder for an ID whose dataset no path leads to.
    fn gone() -> Self {
        Defined {
            path: String::new(),
            layout: DatasetLayout::fixed(Datatype::integer(1, false), &[0]),
            scales: Scales::default(),
            foreign: Some("it is gone".into()),
        }
    }

    /// Whether a path leads to the dataset.
    pub fn is_there(&self) -> bool {
        !self.path.is_empty()
    }
}

/// An object that the log has already, without a definition.
#[derive(Debug)]
pub enum Existing {
    /// A group.
    Group,
    /// A dataset whose elements are in the log, and its ID.
    Logged(u32, Box<Defined>),
    /// Any other object. It occupies its name, and may have attributes.
    Other(Other),
}

/// A kind of object or link that no definition makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Other {
    CommittedDatatype,
    DatasetNotLogged,
    DatasetWithoutExtent,
    Link,
}

impl Other {
    fn word(self) -> &'static str {
        match self {
            Other::CommittedDatatype => "committed datatype",
            Other::DatasetNotLogged => "dataset whose elements are not in the log",
            Other::DatasetWithoutExtent => "dataset without an extent",
            Other::Link => "link",
        }
    }
}

/// The definitions so far. They decide whether the next definition is valid. Every process of a job has an outline, and reaches
/// the same decision without communication.
#[derive(Debug, Default)]
pub struct Outline {
    /// Objects by path, without the root group.
    objects: HashMap<String, Kind>,
    pub(super) attributes: HashSet<(String, String)>,
    /// Datasets by ID, with their current extents.
    pub datasets: Vec<Defined>,
    /// Links to objects with other paths, by their own paths. The values are the paths of the objects.
    links: HashMap<String, String>,
    /// The total size of all datasets in the canonical file, in bytes.
    laid_out: u128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Group,
    /// A dataset and its ID.
    Dataset(u32),
    /// An object or link that an HDF5 program made.
    Other(Other),
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Group => "group",
            Kind::Dataset(_) => "dataset",
            Kind::Other(other) => other.word(),
        }
    }
}

impl Outline {
    /// Adds a definition. Fails with the reason if the definition is invalid.
    pub fn add(&mut self, definition: &Definition) -> Result<()> {
        match definition {
            Definition::Group { path } => self.add_object(path, Kind::Group),
            Definition::Dataset { path, layout } => {
                check_layout(layout).map_err(|e| e.at(format_args!("dataset {path}")))?;
                if self.datasets.len() >= i32::MAX as usize {
                    return Err(format!(
                        "dataset {path}: a file cannot have more than {} datasets",
                        i32::MAX
                    )
                    .into());
                }
                let room = with_room(self.laid_out, 0, laid_out(layout, &layout.dims));
                let laid_out = room.ok_or_else(|| {
                    format!("dataset {path}: {}", too_large(layout, &layout.dims))
                })?;
                self.add_object(path, Kind::Dataset(self.datasets.len() as u32))?;
                self.laid_out = laid_out;
                self.datasets.push(Defined {
                    path: path.clone(),
                    layout: (**layout).clone(),
                    scales: Scales::default(),
                    foreign: None,
                });
                Ok(())
            }
            Definition::Attribute {
                object,
                name,
                value,
            } => self
                .add_attribute(object, name, value)
                .map_err(|e| e.at(format_args!("attribute {} of {object}", shortened(name)))),
            Definition::Extent { dataset, dims } => self.set_extent(*dataset, dims),
            Definition::Scale { dataset, name } => self.make_scale(*dataset, name),
            Definition::Attachment {
                dataset,
                dimension,
                scale,
            } => self.attach_scale(*dataset, *dimension, *scale),
            Definition::Label {
                dataset,
                dimension,
                label,
            } => self.set_label(*dataset, *dimension, label),
        }
    }

    /// Adds an object that the log has already, with the names of its attributes. The object may be anything that HDF5 allows.
    pub fn add_existing(
        &mut self,
        path: &str,
        object: Existing,
        attributes: impl IntoIterator<Item = String>,
    ) {
        let kind = match object {
            Existing::Group => Kind::Group,
            Existing::Other(other) => Kind::Other(other),
            Existing::Logged(id, defined) => {
                self.set_ids(id as usize + 1);
                let laid_out = laid_out(&defined.layout, &defined.layout.dims);
                self.laid_out = self.laid_out.saturating_add(laid_out);
                self.datasets[id as usize] = *defined;
                Kind::Dataset(id)
            }
        };
        let attributes = attributes.into_iter().map(|name| (path.to_owned(), name));
        self.attributes.extend(attributes);
        if path != "/" {
            self.objects.insert(path.to_owned(), kind);
        }
    }

    /// Sets the least number of IDs in use. IDs without a known dataset become placeholders for datasets that are gone.
    pub fn set_ids(&mut self, ids: usize) {
        if ids > self.datasets.len() {
            self.datasets.resize_with(ids, Defined::gone);
        }
    }

    /// Adds a link at the path `link` to an object with another path. `None` stands for a link that leads to no such object.
    pub fn add_link(&mut self, link: String, object: Option<String>) {
        match object {
            Some(object) => self.links.insert(link, object).map(drop),
            None => self
                .objects
                .insert(link, Kind::Other(Other::Link))
                .map(drop),
        };
    }

    /// A path with each link on the way replaced by the path of its object.
    pub fn resolved<'p>(&self, path: &'p str) -> Cow<'p, str> {
        if self.links.is_empty() {
            return path.into();
        }
        let mut found = String::new();
        for name in path.split('/').skip(1) {
            found.push('/');
            found.push_str(name);
            if let Some(object) = self.links.get(&found) {
                found.clone_from(object);
                if found == "/" {
                    found.clear();
                }
            }
        }
        if found.is_empty() {
            found.push('/');
        }
        found.into()
    }

    /// Whether there is a group at `path`. The root group counts.
    pub fn has_group(&self, path: &str) -> bool {
        path == "/" || self.objects.get(path) == Some(&Kind::Group)
    }

    /// Whether there is a group or a dataset at `path`.
    pub fn has_object(&self, path: &str) -> bool {
        path == "/" || self.objects.contains_key(path)
    }

    /// The ID of the dataset at `path`. Fails if there is no dataset.
    pub fn dataset_at(&self, path: &str) -> Result<u32> {
        match self.objects.get(path) {
            Some(Kind::Dataset(id)) => Ok(*id),
            Some(Kind::Group) => Err(format!("{path} is a group, and no dataset").into()),
            Some(Kind::Other(other)) => {
                let word = other.word();
                Err(format!("{path} is a {word}, and no dataset of the log").into())
            }
            None if path == "/" => Err("/ is a group, and no dataset".into()),
            None => Err(format!("there is no dataset {path} in this file").into()),
        }
    }

    /// The missing parent groups of `path`, outermost first.
    pub fn missing_groups(&self, path: &str) -> Vec<String> {
        let slashes = path.match_indices('/').skip(1);
        let parents = slashes.map(|(end, _)| &path[..end]);
        let missing = parents.filter(|p| !self.objects.contains_key(*p));
        missing.map(str::to_owned).collect()
    }

    fn add_object(&mut self, path: &str, kind: Kind) -> Result<()> {
        check_path(path)?;
        if let Some(there) = self.objects.get(path) {
            return Err(format!(
                "{path}: a {} of that name cannot be made: there is a {} already",
                kind.word(),
                there.word()
            )
            .into());
        }
        let parent = path.rfind('/').map_or("", |end| &path[..end]);
        match self.objects.get(parent) {
            _ if parent.is_empty() => {}
            Some(Kind::Group) => {}
            Some(kind) => return Err(format!("{path}: {parent} is a {}", kind.word()).into()),
            None => return Err(format!("{path}: there is no group {parent}").into()),
        }
        self.objects.insert(path.to_owned(), kind);
        Ok(())
    }

    fn add_attribute(&mut self, object: &str, name: &str, value: &Value) -> Result<()> {
        if object != "/" && !self.objects.contains_key(object) {
            return Err("there is no such object: create it first".into());
        }
        check_name(name)?;
        value.check()?;
        let key = (object.to_owned(), name.to_owned());
        if self.attributes.insert(key) {
            Ok(())
        } else {
            Err("it exists already: an attribute is defined once, and does not change".into())
        }
    }

    /// Removes an attribute. Its name can be defined again afterwards.
    pub fn remove_attribute(&mut self, object: &str, name: &str) {
        self.attributes
            .remove(&(object.to_owned(), name.to_owned()));
    }

    fn set_extent(&mut self, dataset: u32, dims: &[u64]) -> Result<()> {
        self.laid_out = self.extended(self.laid_out, dataset, dims)?;
        self.datasets[dataset as usize].layout.dims = dims.to_vec();
        Ok(())
    }

    /// Fails with the reason if these extents cannot be set together. Each belongs to another dataset.
    pub fn check_extents(&self, extents: &[Definition]) -> Result<()> {
        let mut all = self.laid_out;
        for extent in extents {
            if let Definition::Extent { dataset, dims } = extent {
                all = self.extended(all, *dataset, dims)?;
            }
        }
        Ok(())
    }

    /// The total size of all datasets after one of them gets a new extent, in bytes.
    fn extended(&self, all: u128, dataset: u32, dims: &[u64]) -> Result<u128> {
        let Defined { path, layout, .. } = self.dataset(dataset)?;
        let fault = |what: String| {
            let old = &layout.dims;
            Err(format!("dataset {path}: the extent {old:?} cannot become {dims:?}: {what}").into())
        };
        if dims.len() != layout.dims.len() {
            return fault(format!("the dataset has {}", dimensions(layout.dims.len())));
        }
        for (d, (new, old)) in dims.iter().zip(&layout.dims).enumerate() {
            if new < old {
                return fault(format!("dimension {d} cannot shrink from {old} to {new}"));
            }
            if let Some(max) = layout.max_dims[d].filter(|max| new > max) {
                return fault(format!(
                    "dimension {d} can grow to {max} at most, as the dataset was created"
                ));
            }
            if *new > i64::MAX as u64 {
                return fault(format!("dimension {d} cannot be longer than 2^63-1"));
            }
        }
        let (old, new) = (laid_out(layout, &layout.dims), laid_out(layout, dims));
        let room = with_room(all, old, new);
        Ok(room.ok_or_else(|| format!("dataset {path}: {}", too_large(layout, dims)))?)
    }
}

/// The total size of all datasets after one of them grows from `old` to `new` bytes. `None` if no file can be so large.
fn with_room(all: u128, old: u128, new: u128) -> Option<u128> {
    let all = all.saturating_sub(old).saturating_add(new);
    (all <= LARGEST_FILE).then_some(all)
}

fn too_large(layout: &DatasetLayout, dims: &[u64]) -> String {
    format!(
        "with an extent of {dims:?} ({}) the datasets are larger than a file can be",
        layout.datatype.short()
    )
}

fn check_path(path: &str) -> Result<()> {
    let fault = |what: &str| Err(format!("{path:?}: {what}").into());
    if path.len() > LONGEST_PATH {
        let (path, len) = (shortened(path), path.len());
        return Err(
            format!("{path:?}: the path has {len} bytes; {LONGEST_PATH} are possible").into(),
        );
    }
    let Some(names) = path.strip_prefix('/') else {
        return fault("the path does not begin with a slash");
    };
    for name in names.split('/') {
        if let "." | ".." = name {
            return fault("no object can be named \".\" or \"..\" in HDF5");
        }
        check_name(name).or_else(|e| fault(&e.to_string()))?;
    }
    Ok(())
}

/// Checks the name of an object or an attribute.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err("a name is empty".into());
    }
    if name.contains('\0') {
        return Err("a name has a zero byte".into());
    }
    match name.len() {
        len if len > LONGEST_NAME => {
            Err(format!("a name has {len} bytes; {LONGEST_NAME} are possible").into())
        }
        _ => Ok(()),
    }
}

fn check_layout(layout: &DatasetLayout) -> Result<()> {
    layout.datatype.check()?;
    let (dims, max) = (&layout.dims, &layout.max_dims);
    let largest = largest_extent(max);
    if dims.len() != max.len() {
        return Err(format!(
            "the extent {dims:?} has {}, the largest extent {largest} has {}",
            dimensions(dims.len()),
            dimensions(max.len())
        )
        .into());
    }
    if dims.len() > MAX_RANK {
        let number = dims.len();
        return Err(format!("{number} dimensions; HDF5 has {MAX_RANK} at most").into());
    }
    for (d, (dim, max)) in dims.iter().zip(max).enumerate() {
        if let Some(max) = max.filter(|max| dim > max) {
            return Err(format!(
                "the extent {dims:?} is larger than the largest extent {largest}: {dim} and {max} in dimension {d}"
            ).into());
        }
        if *dim > i64::MAX as u64 || max.is_some_and(|m| m > i64::MAX as u64) {
            return Err(format!(
                "dimension {d} is longer than 2^63-1: extent {dims:?}, largest extent {largest}"
            )
            .into());
        }
    }
    let element = u64::from(layout.datatype.size());
    let fill = layout.fill.len() as u64;
    if fill > 0 && fill != element {
        return Err(format!(
            "the fill value has {fill} bytes, an element ({}) has {element}",
            layout.datatype.short()
        )
        .into());
    }
    if fill > LARGEST_VALUE {
        return Err(
            format!("the fill value has {fill} bytes; {LARGEST_VALUE} are possible").into(),
        );
    }
    let Some(chunk) = &layout.chunk else {
        return if layout.filters.is_empty() {
            Ok(())
        } else {
            Err("filters need a chunk shape".into())
        };
    };
    if dims.is_empty() {
        return Err("a scalar has no chunks".into());
    }
    if chunk.len() != dims.len() {
        return Err(format!(
            "the chunk shape {chunk:?} has {}, the extent {dims:?} has {}",
            dimensions(chunk.len()),
            dimensions(dims.len())
        )
        .into());
    }
    if let Some(d) = chunk.iter().position(|side| *side == 0) {
        return Err(format!("the chunk shape {chunk:?} is 0 in dimension {d}").into());
    }
    if let Some(d) = (0..dims.len()).find(|d| max[*d].is_some_and(|max| chunk[*d] > max.max(1))) {
        return Err(format!(
            "the chunk shape {chunk:?} is longer in dimension {d} than the largest extent {largest}"
        )
        .into());
    }
    let bytes = chunk.iter().try_fold(element, |n, d| n.checked_mul(*d));
    match bytes {
        Some(bytes) if bytes <= LARGEST_CHUNK => Ok(()),
        _ => Err(format!(
            "a chunk of shape {chunk:?} ({}) has 4 GiB or more: choose a smaller chunk shape",
            layout.datatype.short()
        )
        .into()),
    }
}

/// An upper bound of the size of a dataset of extent `dims` in the canonical file: its chunks and their index, in bytes. Without
/// a chunk shape, the bound holds for any shape that the view may choose.
fn laid_out(layout: &DatasetLayout, dims: &[u64]) -> u128 {
    const INDEX: u128 = 128;
    let element = u128::from(layout.datatype.size());
    let bytes = match &layout.chunk {
        Some(chunk) => {
            let chunks = product(dims.iter().zip(chunk).map(|(d, c)| d.div_ceil(*c)));
            let one = product(chunk.iter().copied()).and_then(|n| n.checked_mul(2 * element));
            chunks.zip(one.and_then(|n| n.checked_add(INDEX)))
        }
        None => product(dims.iter().copied()).zip(Some(4 * element + INDEX)),
    };
    let bytes = bytes.and_then(|(number, each)| number.checked_mul(each));
    bytes.unwrap_or(u128::MAX)
}

fn product(mut values: impl Iterator<Item = u64>) -> Option<u128> {
    values.try_fold(1, |n: u128, v| n.checked_mul(u128::from(v)))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn grid(dims: &[u64]) -> Box<DatasetLayout> {
        Box::new(DatasetLayout::fixed(Datatype::float(8), dims))
    }

    fn dataset(path: &str, layout: Box<DatasetLayout>) -> Definition {
        let path = path.to_owned();
        Definition::Dataset { path, layout }
    }

    fn group(path: &str) -> Definition {
        let path = path.to_owned();
        Definition::Group { path }
    }

    #[test]
    fn names_have_their_places() {
        let mut outline = Outline::default();
        assert_eq!(outline.missing_groups("/a/b/c"), ["/a", "/a/b"]);
        assert!(outline.add(&group("/a/b")).is_err());
        outline.add(&group("/a")).unwrap();
        outline.add(&group("/a/b")).unwrap();
        assert!(outline.add(&group("/a")).is_err());
        outline.add(&dataset("/a/b/c", grid(&[3]))).unwrap();
        assert!(outline.add(&group("/a/b/c/d")).is_err());
        let long = "/x".repeat(LONGEST_PATH);
        for bad in ["", "x", "/", "/a//b", "/a/.", "/..", "/\0", &long] {
            assert!(outline.add(&group(bad)).is_err(), "{bad:?}");
        }
        assert_eq!(outline.missing_groups("/a/b/c"), [""; 0]);
        let groups = ["/", "/a", "/a/b", "/a/b/c", "/b"].map(|path| outline.has_group(path));
        assert_eq!(groups, [true, true, true, false, false]);
    }

    #[test]
    fn extents_only_grow_and_only_to_their_limits() {
        let mut outline = Outline::default();
        let mut layout = grid(&[2, 5]);
        layout.max_dims[0] = None;
        outline.add(&dataset("/d", layout)).unwrap();
        let extent = |dims: &[u64]| Definition::Extent {
            dataset: 0,
            dims: dims.to_vec(),
        };
        outline.add(&extent(&[9, 5])).unwrap();
        assert_eq!(outline.datasets[0].layout.dims, [9, 5]);
        for bad in [&[8, 5][..], &[9, 6], &[9], &[1 << 63, 5]] {
            assert!(outline.add(&extent(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn extents_are_checked_together() {
        let mut outline = Outline::default();
        for path in ["/a", "/b"] {
            let mut layout = grid(&[0, 1 << 20]);
            layout.max_dims[0] = None;
            layout.chunk = Some(vec![1, 1 << 20]);
            outline.add(&dataset(path, layout)).unwrap();
        }
        let extent = |dataset, rows| Definition::Extent {
            dataset,
            dims: vec![rows, 1 << 20],
        };
        let rows = 1 << 36;
        assert!(outline.check_extents(&[extent(0, rows)]).is_ok());
        assert!(outline.check_extents(&[extent(1, rows)]).is_ok());
        let both = [extent(0, rows), extent(1, rows)];
        assert!(outline.check_extents(&both).is_err());
        // The check has not changed the outline.
        assert_eq!(outline.datasets[0].layout.dims, [0, 1 << 20]);
        outline.add(&both[0]).unwrap();
        assert!(outline.add(&both[1]).is_err());
    }

    #[test]
    fn what_no_file_could_hold_is_refused() {
        let mut outline = Outline::default();
        assert!(
            outline
                .add(&dataset("/a", grid(&[1 << 40, 1 << 40])))
                .is_err()
        );
        let mut unlimited = grid(&[2, 5]);
        unlimited.max_dims[0] = None;
        unlimited.chunk = Some(vec![1, 1]);
        outline.add(&dataset("/b", unlimited)).unwrap();
        let extent = |rows| Definition::Extent {
            dataset: 0,
            dims: vec![rows, 5],
        };
        assert!(outline.add(&extent(1 << 62)).is_err());
        assert_eq!(outline.datasets[0].layout.dims, [2, 5]);
        outline.add(&extent(1 << 50)).unwrap();
        outline.add(&extent(1 << 51)).unwrap();
    }

    #[test]
    fn layouts_that_libhdf5_would_refuse_are_refused() {
        let mut outline = Outline::default();
        let mut attempt = |change: &dyn Fn(&mut DatasetLayout)| {
            let mut layout = grid(&[4, 4]);
            change(&mut layout);
            outline.add(&dataset("/d", layout))
        };
        assert!(attempt(&|l| l.chunk = Some(vec![4])).is_err());
        assert!(attempt(&|l| l.chunk = Some(vec![4, 0])).is_err());
        assert!(attempt(&|l| l.chunk = Some(vec![5, 4])).is_err());
        assert!(attempt(&|l| l.fill = vec![0; 4]).is_err());
        assert!(attempt(&|l| l.max_dims = vec![Some(3), Some(4)]).is_err());
        let deflate = Filter {
            id: 1,
            flags: 0,
            values: vec![6],
        };
        assert!(attempt(&|l| l.filters = vec![deflate.clone()]).is_err());
        assert!(attempt(&|l| l.chunk = Some(vec![4, 2])).is_ok());
    }

    #[test]
    fn attributes_belong_to_objects_and_come_once() {
        let mut outline = Outline::default();
        let attribute = |object: &str, value| Definition::Attribute {
            object: object.into(),
            name: "units".into(),
            value,
        };
        let text = |text: &str| Value::Text(text.into());
        outline.add(&attribute("/", text("K"))).unwrap();
        assert!(outline.add(&attribute("/", text("K"))).is_err());
        assert!(outline.add(&attribute("/x", text("K"))).is_err());
        outline.add(&group("/x")).unwrap();
        assert!(outline.add(&attribute("/x", text("a\0b"))).is_err());
        assert!(
            outline
                .add(&attribute("/x", text(&"x".repeat(70_000))))
                .is_err()
        );
        let members = (0..450).map(|i| (format!("m{i}"), i, Datatype::integer(1, true)));
        let wide = Value::Elements {
            datatype: Datatype::compound(450, members),
            dims: vec![130],
            bytes: vec![0; 450 * 130],
        };
        assert!(outline.add(&attribute("/x", wide)).is_err());
        let short = Value::Elements {
            datatype: Datatype::float(8),
            dims: vec![2],
            bytes: vec![0; 8],
        };
        assert!(outline.add(&attribute("/x", short)).is_err());
    }

    /// Messages for the users of a job's log: the object, the fault, and a way out.
    #[test]
    fn messages_name_the_object_and_what_is_wrong() {
        let attribute = |object: &str, name: &str, value: Value| Definition::Attribute {
            object: object.into(),
            name: name.into(),
            value,
        };
        let changed = |change: &dyn Fn(&mut DatasetLayout)| {
            let mut layout = grid(&[4, 4]);
            change(&mut layout);
            dataset("/new", layout)
        };
        let extent = |dims: &[u64]| Definition::Extent {
            dataset: 0,
            dims: dims.to_vec(),
        };
        let deflate = Filter {
            id: 1,
            flags: 1,
            values: vec![6],
        };
        let elements = Value::Elements {
            datatype: Datatype::integer(4, true),
            dims: vec![3],
            bytes: vec![0; 8],
        };
        let mut unlimited = grid(&[2, 5]);
        unlimited.max_dims[0] = None;
        let begin = [
            group("/g"),
            dataset("/d", unlimited),
            attribute("/", "title", "a".into()),
        ];
        let cases = [
            (
                group("/d"),
                "/d: a group of that name cannot be made: there is a dataset already",
            ),
            (group("/d/x"), "/d/x: /d is a dataset"),
            (group("/x/y"), "/x/y: there is no group /x"),
            (group("/g/"), "\"/g/\": a name is empty"),
            (
                group("/g/.."),
                "\"/g/..\": no object can be named \".\" or \"..\" in HDF5",
            ),
            (
                attribute("/x", "units", "K".into()),
                "attribute units of /x: there is no such object: create it first",
            ),
            (
                attribute("/", "title", "b".into()),
                "attribute title of /: it exists already: an attribute is defined once, and does not change",
            ),
            (
                attribute("/", "", "b".into()),
                "attribute  of /: a name is empty",
            ),
            (
                attribute("/g", "map", elements),
                "attribute map of /g: the value has 8 bytes; the shape [3] of i32 needs 12",
            ),
            (
                attribute("/g", "map", "x".repeat(70_000).into()),
                "attribute map of /g: the value has 70000 bytes; 60000 are possible: use a dataset",
            ),
            (
                extent(&[1, 5]),
                "dataset /d: the extent [2, 5] cannot become [1, 5]: dimension 0 cannot shrink from 2 to 1",
            ),
            (
                extent(&[2, 6]),
                "dataset /d: the extent [2, 5] cannot become [2, 6]: dimension 1 can grow to 5 at most, as the dataset was created",
            ),
            (
                extent(&[9]),
                "dataset /d: the extent [2, 5] cannot become [9]: the dataset has 2 dimensions",
            ),
            (
                extent(&[1 << 61, 5]),
                "dataset /d: with an extent of [2305843009213693952, 5] (f64) the datasets are larger than a file can be",
            ),
            (
                changed(&|l| l.max_dims[1] = Some(3)),
                "dataset /new: the extent [4, 4] is larger than the largest extent [4, 3]: 4 and 3 in dimension 1",
            ),
            (
                changed(&|l| l.max_dims = vec![None]),
                "dataset /new: the extent [4, 4] has 2 dimensions, the largest extent [unlimited] has 1 dimension",
            ),
            (
                changed(&|l| l.chunk = Some(vec![4])),
                "dataset /new: the chunk shape [4] has 1 dimension, the extent [4, 4] has 2 dimensions",
            ),
            (
                changed(&|l| l.chunk = Some(vec![4, 0])),
                "dataset /new: the chunk shape [4, 0] is 0 in dimension 1",
            ),
            (
                changed(&|l| l.chunk = Some(vec![4, 5])),
                "dataset /new: the chunk shape [4, 5] is longer in dimension 1 than the largest extent [4, 4]",
            ),
            (
                changed(&|l| l.filters = vec![deflate.clone()]),
                "dataset /new: filters need a chunk shape",
            ),
            (
                changed(&|l| l.fill = vec![0; 4]),
                "dataset /new: the fill value has 4 bytes, an element (f64) has 8",
            ),
            (
                changed(&|l| l.datatype = Datatype::integer(3, true)),
                "dataset /new: an integer or bitfield of 3 bytes: 1, 2, 4 and 8 are possible",
            ),
            (
                changed(&|l| l.datatype = Datatype::compound(8, [])),
                "dataset /new: the compound has no members",
            ),
        ];
        let mut outline = Outline::default();
        begin.iter().for_each(|d| outline.add(d).unwrap());
        for (definition, words) in cases {
            assert_eq!(outline.add(&definition).unwrap_err().to_string(), words);
        }
    }
}
