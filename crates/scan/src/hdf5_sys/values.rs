//! Values in memory during their copy from one file to another.

use h5logfs_common::buffers::zeroed;

use super::*;

/// Values in memory in the layout of libhdf5, which allocates their variable-length parts.
#[derive(Debug)]
pub struct Values {
    pub(super) datatype: Id,
    pub(super) space: Id,
    pub(super) bytes: Vec<u8>,
    shape: Shape,
    size: usize,
}

/// The most bytes that are copied at once: an attribute, or a part of a dataset. A stored chunk is smaller, but its
/// elements may be longer in memory.
const LARGEST_VALUES: u64 = 8 << 30;

impl Values {
    /// Zeros for the elements of `space`.
    pub fn zeros(datatype: Id, space: Id) -> Result<Self> {
        let size = type_size(&datatype)?;
        let bytes = Space::of(&space)?
            .elements()
            .and_then(|n| n.checked_mul(size as u64))
            .filter(|n| *n <= LARGEST_VALUES)
            .ok_or("too many values")?;
        Ok(Values {
            shape: Shape::of(&datatype)?,
            datatype,
            space,
            size,
            bytes: zeroed(usize::try_from(bytes)?)?,
        })
    }

    pub fn datatype(&self) -> &Id {
        &self.datatype
    }

    /// The elements in memory. Elements without pointers have the form of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The approximate bytes that a file holds for these values outside their dataset or attribute. Each text or
    /// sequence of variable length is an object of a heap.
    pub fn bytes_elsewhere(&self) -> u64 {
        if !self.shape.has_pointers() {
            return 0;
        }
        let elements = self.bytes.chunks_exact(self.size);
        elements.fold(0, |n, element| {
            n.saturating_add(bytes_elsewhere(&self.shape, element))
        })
    }

    /// The texts of variable-length strings.
    #[cfg(test)]
    pub fn texts(&self) -> Result<Vec<String>> {
        if self.shape != Shape::VariableString {
            return Err("not texts of variable length".into());
        }
        let text = |element: &[u8]| {
            let text = text_of(element).to_vec();
            String::from_utf8(text).map_err(|_| Fault::from("a text is not UTF-8"))
        };
        self.bytes.chunks_exact(self.size).map(text).collect()
    }

    /// The references in each element. The elements are sequences of object references.
    pub fn sequences_of_references(&mut self) -> Result<Vec<Vec<u64>>> {
        let mut sequences = Vec::new();
        for element in self.bytes.chunks_exact_mut(self.size) {
            let mut references = Vec::new();
            change_in(&self.shape, element, &mut |reference| {
                let number = <[u8; 8]>::try_from(&*reference);
                let number = number.map_err(|e| e.to_string())?;
                references.push(u64::from_ne_bytes(number));
                Ok(())
            })?;
            sequences.push(references);
        }
        Ok(sequences)
    }

    /// Drops the elements of a list with references that `keeps` does not allow. A list whose elements have pointers stays
    /// unchanged.
    pub fn retain(&mut self, keeps: &dyn Fn(&[u8]) -> bool) -> Result<()> {
        if self.shape.has_pointers() || !self.shape.has_references() {
            return Ok(());
        }
        let mut kept = Vec::new();
        for element in self.bytes.chunks_exact_mut(self.size) {
            let mut is_kept = true;
            change_in(&self.shape, element, &mut |reference| {
                is_kept &= keeps(reference);
                Ok(())
            })?;
            if is_kept {
                kept.extend_from_slice(element);
            }
        }
        self.space = Space::fixed(&[(kept.len() / self.size) as u64]).create()?;
        self.bytes = kept;
        Ok(())
    }

    /// Calls `change` with every reference: 8 bytes for an object reference, 12 for a region reference.
    pub fn change_references(
        &mut self,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        if !self.shape.has_references() {
            return Ok(());
        }
        for element in self.bytes.chunks_exact_mut(self.size) {
            change_in(&self.shape, element, change)?;
        }
        Ok(())
    }
}

/// The text of a variable-length string that libhdf5 has read.
fn text_of(element: &[u8]) -> &[u8] {
    // SAFETY: a string in memory is a pointer. libhdf5 set it when it read the value: it leads to a C string, or is
    // null.
    unsafe {
        let text = element.as_ptr().cast::<*const c_char>().read_unaligned();
        if text.is_null() {
            &[]
        } else {
            CStr::from_ptr(text).to_bytes()
        }
    }
}

/// The elements of a sequence that libhdf5 has read, each of `size` bytes, and their total number of bytes.
fn sequence_of(value: &[u8], size: usize) -> (*mut u8, usize) {
    let mut sequence = hvl_t {
        len: 0,
        p: ptr::null_mut(),
    };
    // SAFETY: a sequence in memory is one `hvl_t`. libhdf5 filled it when it read the value: `p` leads to `len`
    // elements of `size` bytes, or is null.
    unsafe {
        ptr::copy_nonoverlapping(
            value.as_ptr(),
            (&raw mut sequence).cast(),
            size_of::<hvl_t>(),
        );
    }
    if sequence.p.is_null() {
        return (ptr::dangling_mut(), 0);
    }
    (sequence.p.cast(), sequence.len.saturating_mul(size))
}

fn bytes_elsewhere(shape: &Shape, value: &[u8]) -> u64 {
    /// The size of the description of an object in a heap.
    const OBJECT: u64 = 16;
    let sum = |n: u64, more: u64| n.saturating_add(more);
    match shape {
        Shape::Compound(members) => (members.iter())
            .map(|(offset, member)| bytes_elsewhere(member, &value[*offset..]))
            .fold(0, sum),
        Shape::Array { count, size, base } => (value.chunks_exact(*size).take(*count))
            .map(|element| bytes_elsewhere(base, element))
            .fold(0, sum),
        Shape::VariableString => match text_of(value).len() {
            0 => 0,
            len => OBJECT + len as u64,
        },
        Shape::Sequence { size, base } => {
            let (elements, len) = sequence_of(value, *size);
            if len == 0 {
                return 0;
            }
            // SAFETY: as in `sequence_of`. Nobody changes the elements meanwhile.
            let elements = unsafe { std::slice::from_raw_parts(elements.cast_const(), len) };
            let own = OBJECT + len as u64;
            if !base.has_pointers() {
                return own;
            }
            (elements.chunks_exact(*size))
                .map(|element| bytes_elsewhere(base, element))
                .fold(own, sum)
        }
        Shape::Plain | Shape::ObjectReference | Shape::RegionReference => 0,
    }
}

fn change_in(
    shape: &Shape,
    value: &mut [u8],
    change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
) -> Result<()> {
    match shape {
        Shape::ObjectReference => change(&mut value[..8]),
        Shape::RegionReference => change(&mut value[..12]),
        Shape::Compound(members) => members
            .iter()
            .try_for_each(|(offset, member)| change_in(member, &mut value[*offset..], change)),
        Shape::Array { count, size, base } => value
            .chunks_exact_mut(*size)
            .take(*count)
            .try_for_each(|element| change_in(base, element, change)),
        Shape::Sequence { size, base } if base.has_references() => {
            let (elements, len) = sequence_of(value, *size);
            // SAFETY: as in `sequence_of`. Nobody else uses the elements.
            let elements = unsafe { std::slice::from_raw_parts_mut(elements, len) };
            elements
                .chunks_exact_mut(*size)
                .try_for_each(|element| change_in(base, element, change))
        }
        Shape::Plain | Shape::VariableString | Shape::Sequence { .. } => Ok(()),
    }
}

#[cfg(test)]
impl Values {
    /// Sets all elements to one text. Their type must be texts of variable length.
    pub fn set_text(&mut self, text: &CStr) -> Result<()> {
        if self.shape != Shape::VariableString {
            return Err("not texts of variable length".into());
        }
        for element in self.bytes.chunks_exact_mut(self.size) {
            // SAFETY: `strdup` and libhdf5, which frees the elements, use one allocator; an element is a pointer.
            unsafe {
                let copy = libc::strdup(text.as_ptr());
                element
                    .as_mut_ptr()
                    .cast::<*mut c_char>()
                    .write_unaligned(copy);
            }
        }
        Ok(())
    }

    /// Sets all elements to these bytes. Their type must have no pointers.
    pub fn set_bytes(&mut self, bytes: &[u8]) {
        assert!(!self.shape.has_pointers());
        for element in self.bytes.chunks_exact_mut(self.size) {
            element.copy_from_slice(bytes);
        }
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        if self.shape.has_pointers() && !self.bytes.is_empty() {
            let buffer = self.bytes.as_mut_ptr().cast();
            // libhdf5 frees what it allocated. A destructor cannot report an error.
            #[allow(deprecated)] // libhdf5 1.10 has no other.
            let _ = h5!(H5Dvlen_reclaim(
                self.datatype.0,
                self.space.0,
                DEFAULT,
                buffer
            ));
        }
    }
}
