//! The objects of a file according to the crate `h5logfs-objects`, in the form in which `tests/tools/objects.py` prints
//! h5py's view.

use std::collections::{BTreeMap, VecDeque};

use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::HeaderBytes;
use h5logfs_hdf5_format::{
    Bits, Class, DatasetInfo, Dataspace, Datatype, Layout, Link, LinkTarget, ObjectKind, Objects,
    Padding, ReferenceKind, Value,
};
use serde_json::{Map, Value as Json, json};

type Result<T> = std::result::Result<T, Fault>;

/// The content to show besides metadata.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Elements {
    /// Chunks, and the elements of datasets without chunks.
    Shown,
    /// Nothing: only metadata is available.
    Absent,
}

/// All objects of a file that have a path. Each is one value.
pub fn objects<B: HeaderBytes>(objects: &Objects<B>, elements: Elements) -> Result<Vec<Json>> {
    let shown = Shown {
        objects,
        paths: paths(objects)?,
        elements,
    };
    let mut in_order: Vec<_> = shown.paths.iter().collect();
    in_order.sort_by_key(|(_, (number, _))| *number);
    let each = in_order
        .iter()
        .map(|(address, (_, path))| shown.object(**address, path));
    each.collect()
}

/// The path of each object, and the object's number in a walk by name.
fn paths<B: HeaderBytes>(objects: &Objects<B>) -> Result<BTreeMap<u64, (usize, String)>> {
    let root = objects.root();
    let mut found = BTreeMap::from([(root, (0, "/".to_owned()))]);
    let mut groups = VecDeque::from([(root, String::new())]);
    while let Some((group, path)) = groups.pop_front() {
        for link in objects.links(group)? {
            let LinkTarget::Hard(address) = link.target else {
                continue;
            };
            if found.contains_key(&address) {
                continue;
            }
            let path = format!("{path}/{}", text(&link.name));
            found.insert(address, (found.len(), path.clone()));
            if objects.kind(address)? == ObjectKind::Group {
                groups.push_back((address, path));
            }
        }
    }
    Ok(found)
}

/// At most 100 of many items, from all parts of the list.
fn some<T>(items: &[T]) -> impl Iterator<Item = &T> {
    items.iter().step_by(items.len().div_ceil(100).max(1))
}

/// A string with one character for each byte.
fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

struct Shown<'a, B> {
    objects: &'a Objects<B>,
    paths: BTreeMap<u64, (usize, String)>,
    elements: Elements,
}

impl<B: HeaderBytes> Shown<'_, B> {
    fn object(&self, address: u64, path: &str) -> Result<Json> {
        let mut shown = Map::new();
        shown.insert("path".to_owned(), json!(path));
        shown.insert("attributes".to_owned(), self.attributes(address)?);
        match self.objects.kind(address)? {
            ObjectKind::Group => {
                shown.insert("links".to_owned(), self.links(address)?);
            }
            ObjectKind::Dataset => self.dataset(&self.objects.dataset(address)?, &mut shown)?,
            ObjectKind::Datatype => {
                let datatype = self.objects.named_type(address)?;
                shown.insert("type".to_owned(), datatype_of(&datatype));
            }
        }
        Ok(Json::Object(shown))
    }

    /// All links. In large groups some are also looked up by name.
    fn links(&self, group: u64) -> Result<Json> {
        let links = self.objects.links(group)?;
        let mut shown = Vec::new();
        for link in &links {
            shown.push(self.link(link));
        }
        for link in some(&links) {
            let found = self.objects.link(group, &link.name)?;
            assert_eq!(found.as_ref(), Some(link));
        }
        for absent in ["", "no such name", "zzzzzzzz", "\u{1}"] {
            assert_eq!(self.objects.link(group, absent)?, None);
        }
        Ok(json!(shown))
    }

    fn link(&self, link: &Link) -> Json {
        let mut shown = vec![json!(text(&link.name)), json!(link.order)];
        shown.extend(match &link.target {
            LinkTarget::Hard(address) => vec![json!("hard"), json!(self.path(*address))],
            LinkTarget::Soft(path) => vec![json!("soft"), json!(text(path))],
            LinkTarget::External { file, path } => {
                vec![json!("external"), json!(text(file)), json!(text(path))]
            }
            LinkTarget::Other(class) => vec![json!(class)],
        });
        Json::Array(shown)
    }

    fn path(&self, address: u64) -> &str {
        self.paths.get(&address).map_or("?", |(_, path)| path)
    }

    /// All attributes. Of many, some are also looked up by name.
    fn attributes(&self, object: u64) -> Result<Json> {
        let mut shown = Vec::new();
        let attributes = self.objects.attributes(object)?;
        for attribute in some(&attributes) {
            let found = self.objects.attribute(object, &attribute.name)?;
            assert_eq!(found.as_ref(), Some(attribute));
        }
        for attribute in attributes {
            let values = self.objects.values(&attribute.datatype, &attribute.bytes)?;
            shown.push(json!([
                text(&attribute.name),
                datatype_of(&attribute.datatype),
                space_of(&attribute.space),
                self.values(&attribute.datatype, &values),
            ]));
        }
        assert_eq!(self.objects.attribute(object, "no such name")?, None);
        Ok(json!(shown))
    }

    fn dataset(&self, dataset: &DatasetInfo, shown: &mut Map<String, Json>) -> Result<()> {
        let mut add = |name: &str, value| shown.insert(name.to_owned(), value);
        let datatype = &dataset.datatype;
        add("type", datatype_of(datatype));
        add("space", space_of(&dataset.space));
        let filters = dataset.filters.iter();
        let filters = filters.map(|f| json!([f.id, f.flags, f.values]));
        add("filters", filters.collect());
        let fill = dataset.fill.as_ref().filter(|_| !has_variable(datatype));
        let fill = fill
            .map(|fill| self.objects.values(datatype, fill))
            .transpose()?;
        add(
            "fill",
            fill.map_or(Json::Null, |fill| self.value(datatype, &fill[0])),
        );
        let (layout, elements) = match &dataset.layout {
            Layout::Compact(bytes) => ("compact", Some(bytes.clone())),
            Layout::Contiguous { address, len } => {
                ("contiguous", self.contiguous(*address, *len, dataset)?)
            }
            Layout::Chunked { chunk, .. } => {
                add("chunk", json!(chunk));
                ("chunked", None)
            }
            Layout::Virtual(_) | Layout::Other(_) => ("other", None),
        };
        add("layout", json!(layout));
        if self.elements == Elements::Absent {
            return Ok(());
        }
        if let Some(elements) = elements {
            let values = self.objects.values(datatype, &elements)?;
            add("values", self.values(datatype, &values));
        }
        if matches!(dataset.layout, Layout::Chunked { .. }) {
            add("chunks", self.chunks(dataset)?);
        }
        Ok(())
    }

    /// The elements of a contiguous dataset. Unwritten elements are the fill value.
    fn contiguous(
        &self,
        address: Option<u64>,
        len: u64,
        dataset: &DatasetInfo,
    ) -> Result<Option<Vec<u8>>> {
        if self.elements == Elements::Absent {
            return Ok(None);
        }
        let size = dataset.datatype.size as usize;
        let count = dataset.space.elements().unwrap() as usize;
        let Some(address) = address else {
            let fill = dataset.fill.clone().unwrap_or(vec![0; size]);
            return Ok(Some(fill.repeat(count)));
        };
        assert_eq!(len, (count * size) as u64);
        let mut bytes = vec![0; count * size];
        self.objects.bytes().read(address, &mut bytes)?;
        Ok(Some(bytes))
    }

    fn chunks(&self, dataset: &DatasetInfo) -> Result<Json> {
        let mut chunks = self.objects.chunk_addresses(dataset)?;
        chunks.sort_by(|a, b| a.offset.cmp(&b.offset));
        let each = chunks
            .iter()
            .map(|c| json!([c.offset, c.address, c.size, c.filter_mask]));
        Ok(each.collect())
    }

    fn values(&self, datatype: &Datatype, values: &[Value]) -> Json {
        values
            .iter()
            .map(|value| self.value(datatype, value))
            .collect()
    }

    fn value(&self, datatype: &Datatype, value: &Value) -> Json {
        match value {
            Value::Integer(number) => json!(number.to_string()),
            Value::Float(number) if number.is_nan() => json!("nan"),
            Value::Float(number) => json!(format!("{:016x}", number.to_bits())),
            Value::Text(bytes) | Value::Bytes(bytes) => json!(text(bytes)),
            Value::Reference(address) => json!(address.map(|address| self.path(address))),
            Value::Region(region) => json!(region.as_ref().map(|region| self.path(region.dataset))),
            Value::List(values) => {
                let mut flat = Vec::new();
                flatten(datatype, values, &mut flat);
                flat.iter()
                    .map(|value| self.value(innermost(datatype), value))
                    .collect()
            }
            Value::Compound(values) => match &datatype.class {
                Class::Compound { members } => {
                    let each = members.iter().zip(values);
                    each.map(|(member, value)| self.value(&member.datatype, value))
                        .collect()
                }
                _ => values
                    .iter()
                    .map(|value| self.value(datatype, value))
                    .collect(),
            },
        }
    }
}

/// numpy has no arrays of arrays.
fn flatten<'a>(datatype: &Datatype, values: &'a [Value], flat: &mut Vec<&'a Value>) {
    let base = base_of(datatype);
    for value in values {
        match (&base.class, value) {
            (Class::Array { .. }, Value::List(values)) => flatten(base, values, flat),
            _ => flat.push(value),
        }
    }
}

fn base_of(datatype: &Datatype) -> &Datatype {
    match &datatype.class {
        Class::Array { base, .. } | Class::VariableList { base } => base,
        _ => datatype,
    }
}

fn innermost(datatype: &Datatype) -> &Datatype {
    let base = base_of(datatype);
    match base.class {
        Class::Array { .. } => innermost(base),
        _ => base,
    }
}

fn has_variable(datatype: &Datatype) -> bool {
    match &datatype.class {
        Class::VariableList { .. } | Class::VariableText { .. } => true,
        Class::Array { base, .. } => has_variable(base),
        Class::Compound { members } => members.iter().any(|m| has_variable(&m.datatype)),
        _ => false,
    }
}

fn space_of(space: &Dataspace) -> Json {
    match space {
        Dataspace::Null => Json::Null,
        Dataspace::Simple { dims, max_dims } => {
            let most = max_dims
                .iter()
                .map(|dim| (*dim != u64::MAX).then_some(*dim));
            json!([dims, most.collect::<Vec<_>>()])
        }
    }
}

fn bits_of(bits: &Bits) -> Json {
    json!([bits.offset, bits.precision])
}

fn padding_of(padding: Padding) -> u8 {
    match padding {
        Padding::NullTerminated => 0,
        Padding::NullPadded => 1,
        Padding::SpacePadded => 2,
    }
}

fn datatype_of(datatype: &Datatype) -> Json {
    let size = datatype.size;
    match &datatype.class {
        Class::Integer {
            signed,
            big_endian,
            bits,
        } => {
            json!(["integer", size, signed, big_endian, bits_of(bits)])
        }
        Class::Float {
            big_endian,
            format: f,
        } => {
            let fields = [
                f.sign,
                f.exponent_at,
                f.exponent_bits,
                f.mantissa_at,
                f.mantissa_bits,
            ];
            json!(["float", size, big_endian, bits_of(&f.bits), fields, f.bias])
        }
        // h5py reports nothing further.
        Class::Bitfield { .. } => json!(["bits", size]),
        Class::Text { padding, utf8 } => json!(["text", size, padding_of(*padding), utf8]),
        Class::VariableText { padding, utf8 } => json!(["text", null, padding_of(*padding), utf8]),
        Class::Opaque { tag } => json!(["opaque", size, text(tag)]),
        Class::Compound { members } => {
            // Values of variable length have another size in memory. libhdf5 reports that size.
            let known = |number: u32| (!has_variable(datatype)).then_some(number);
            let members = members
                .iter()
                .map(|m| json!([text(&m.name), known(m.offset), datatype_of(&m.datatype)]));
            json!(["compound", known(size), members.collect::<Vec<_>>()])
        }
        Class::Enumeration { base, members } => {
            let signed = matches!(base.class, Class::Integer { signed: true, .. });
            let big_endian = matches!(
                base.class,
                Class::Integer {
                    big_endian: true,
                    ..
                }
            );
            let members = members
                .iter()
                .map(|(name, value)| json!([text(name), integer(value, signed, big_endian)]));
            json!(["enum", datatype_of(base), members.collect::<Vec<_>>()])
        }
        Class::Array { base, dims } => json!(["array", dims, datatype_of(base)]),
        Class::VariableList { base } => json!(["list", datatype_of(base)]),
        Class::Reference(ReferenceKind::Object | ReferenceKind::Region) => {
            json!(["reference", size])
        }
        other => json!(["other", format!("{other:?}")]),
    }
}

fn integer(bytes: &[u8], signed: bool, big_endian: bool) -> String {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    if big_endian {
        wide[..bytes.len()].reverse();
    }
    let unused = 64 - 8 * bytes.len();
    let number = u64::from_le_bytes(wide) << unused;
    if signed {
        ((number as i64) >> unused).to_string()
    } else {
        (number >> unused).to_string()
    }
}
