//! Attributes.

use super::*;

/// The names of an object's attributes: in creation order if the object tracks it, otherwise in the order of the
/// object header.
pub fn attribute_names(object: &Id) -> Result<Vec<CString>> {
    unsafe extern "C" fn visit(
        _: hid_t,
        name: *const c_char,
        _: *const H5A_info_t,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: libhdf5 passes a C string, and the pointer to `names` that it was given.
        unsafe {
            let names = &mut *data.cast::<Vec<CString>>();
            names.push(CStr::from_ptr(name).to_owned());
        }
        0
    }
    let mut names: Vec<CString> = Vec::new();
    let mut position = 0;
    h5!(H5Aiterate2(
        object.0,
        H5_index_t::H5_INDEX_CRT_ORDER,
        H5_iter_order_t::H5_ITER_INC,
        &mut position,
        Some(visit),
        (&raw mut names).cast()
    ))?;
    Ok(names)
}

pub fn open_attribute(object: &Id, name: &CStr) -> Result<Id> {
    Id::new(h5!(H5Aopen(object.0, name.as_ptr(), DEFAULT)))
}

/// Opens an attribute by its name, if there is one.
pub fn find_attribute(object: &Id, name: &CStr) -> Result<Option<Id>> {
    match h5!(H5Aexists(object.0, name.as_ptr()))? {
        0 => Ok(None),
        _ => open_attribute(object, name).map(Some),
    }
}

/// Renames an attribute of an object. The new name must be free.
pub fn rename_attribute(object: &Id, old: &CStr, new: &CStr) -> Result<()> {
    h5!(H5Arename(object.0, old.as_ptr(), new.as_ptr())).map(drop)
}

fn attribute_info(attribute: &Id) -> Result<H5A_info_t> {
    let mut info = H5A_info_t::default();
    h5!(H5Aget_info(attribute.0, &mut info))?;
    Ok(info)
}

pub fn attribute_is_utf8(attribute: &Id) -> Result<bool> {
    Ok(attribute_info(attribute)?.cset == H5T_cset_t::H5T_CSET_UTF8)
}

/// Whether the object of an attribute tracks the order of its attributes.
pub fn attribute_has_order(attribute: &Id) -> Result<bool> {
    Ok(attribute_info(attribute)?.corder_valid > 0)
}

pub fn attribute_storage(attribute: &Id) -> Result<u64> {
    unless_failed!(H5Aget_storage_size(attribute.0), 0)
}

/// The dataspace of an attribute, as a new object. It can then be used in another file: see `unshared` for types.
pub fn attribute_space(attribute: &Id) -> Result<Id> {
    Space::of(&Id::new(h5!(H5Aget_space(attribute.0)))?)?.create()
}

pub fn attribute_type(attribute: &Id) -> Result<Id> {
    Id::new(h5!(H5Aget_type(attribute.0)))
}

/// The values of an attribute, in its own type.
pub fn read_attribute(attribute: &Id) -> Result<Values> {
    let space = attribute_space(attribute)?;
    let datatype = attribute_type(attribute)?;
    let mut values = Values::zeros(datatype, space)?;
    if !values.bytes.is_empty() {
        let buffer = values.bytes.as_mut_ptr().cast();
        h5!(H5Aread(attribute.0, values.datatype.0, buffer))?;
    }
    Ok(values)
}

/// Reads the integers of an attribute, of any width; at most `most` of them.
pub fn read_integers(attribute: &Id, most: usize) -> Result<Vec<i64>> {
    let count = Space::of(&attribute_space(attribute)?)?.elements();
    let count = count
        .filter(|n| *n <= most as u64)
        .ok_or("too many values")?;
    let datatype = attribute_type(attribute)?;
    if type_class(&datatype) != H5T_class_t::H5T_INTEGER {
        return Err("not integers".into());
    }
    let mut values = vec![0i64; count as usize];
    if count > 0 {
        let buffer = values.as_mut_ptr().cast();
        h5!(H5Aread(attribute.0, *H5T_NATIVE_INT64, buffer))?;
    }
    Ok(values)
}

/// The name of an attribute.
#[derive(Debug, Clone, Copy)]
pub struct Name<'a> {
    pub bytes: &'a [u8],
    pub utf8: bool,
}

impl<'a> Name<'a> {
    pub fn ascii(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Name {
            bytes: name.as_ref(),
            utf8: false,
        }
    }
}

fn create_attribute(object: &Id, name: Name<'_>, datatype: &Id, space: &Id) -> Result<Id> {
    let acpl = name_properties(Named::Attribute, name.utf8)?;
    let name = c_name(name.bytes)?;
    Id::new(h5!(H5Acreate2(
        object.0,
        name.as_ptr(),
        datatype.0,
        space.0,
        acpl,
        DEFAULT
    )))
}

/// Makes an attribute with these values. `datatype` is their type, or its committed form.
pub fn write_attribute(object: &Id, name: Name<'_>, datatype: &Id, values: &Values) -> Result<()> {
    let attribute = create_attribute(object, name, datatype, &values.space)?;
    if values.bytes.is_empty() {
        return Ok(());
    }
    let buffer = values.bytes.as_ptr().cast();
    h5!(H5Awrite(attribute.0, values.datatype.0, buffer)).map(drop)
}

/// The type and the space of an attribute of elements without pointers.
#[derive(Debug)]
pub struct PlainForm {
    datatype: Id,
    space: Id,
    /// Bytes of all elements.
    len: u64,
}

impl PlainForm {
    pub fn new(datatype: &Id, space: &Id) -> Result<Self> {
        let elements = Space::of(space)?.elements();
        let size = type_size(datatype)? as u64;
        let len = elements.and_then(|n| n.checked_mul(size));
        Ok(PlainForm {
            datatype: datatype.clone(),
            space: space.clone(),
            len: len.ok_or("an attribute of too many elements")?,
        })
    }

    /// Makes an attribute of this form. `bytes` are its elements.
    pub fn write(&self, object: &Id, name: Name<'_>, bytes: &[u8]) -> Result<()> {
        if self.len != bytes.len() as u64 {
            let (len, needed) = (bytes.len(), self.len);
            return Err(format!("{len} bytes for an attribute of {needed}").into());
        }
        let attribute = create_attribute(object, name, &self.datatype, &self.space)?;
        match bytes {
            [] => Ok(()),
            bytes => {
                let buffer = bytes.as_ptr().cast();
                h5!(H5Awrite(attribute.0, self.datatype.0, buffer)).map(drop)
            }
        }
    }
}

/// Makes an attribute of elements without pointers. `bytes` are the elements of `space`.
pub fn write_plain_attribute(
    object: &Id,
    name: Name<'_>,
    datatype: &Id,
    space: &Id,
    bytes: &[u8],
) -> Result<()> {
    PlainForm::new(datatype, space)?.write(object, name, bytes)
}

/// Makes an attribute of variable-length texts.
pub fn write_texts(object: &Id, name: Name<'_>, space: &Id, texts: &[CString]) -> Result<()> {
    let pointers: Vec<*const c_char> = texts.iter().map(|t| t.as_ptr()).collect();
    if Space::of(space)?.elements() != Some(pointers.len() as u64) {
        return Err("fewer or more texts than elements".into());
    }
    let datatype = variable_text_type()?;
    let attribute = create_attribute(object, name, &datatype, space)?;
    if pointers.is_empty() {
        Ok(())
    } else {
        h5!(H5Awrite(attribute.0, datatype.0, pointers.as_ptr().cast())).map(drop)
    }
}

/// Makes an attribute of sequences of type `datatype`. Each item holds the bytes of one sequence.
pub fn write_sequences(
    object: &Id,
    name: Name<'_>,
    datatype: &Id,
    space: &Id,
    items: &[&[u8]],
) -> Result<()> {
    let size = type_size(&Id::new(h5!(H5Tget_super(datatype.0)))?)?;
    if Space::of(space)?.elements() != Some(items.len() as u64) {
        return Err("fewer or more sequences than elements".into());
    }
    if items.iter().any(|item| !item.len().is_multiple_of(size)) {
        return Err(format!("a sequence of elements that are not of {size} bytes").into());
    }
    // libhdf5 only reads through these mutable pointers.
    let sequences = items.iter().map(|item| hvl_t {
        len: item.len() / size,
        p: item.as_ptr().cast_mut().cast(),
    });
    let sequences: Vec<hvl_t> = sequences.collect();
    let attribute = create_attribute(object, name, datatype, space)?;
    if sequences.is_empty() {
        Ok(())
    } else {
        h5!(H5Awrite(attribute.0, datatype.0, sequences.as_ptr().cast())).map(drop)
    }
}
