//! Attributes of new objects, with elements in the message or in a heap. Also the attributes of dimension scales (HDF5 Dimension
//! Scale Specification 1.0).

use super::{HeapValue, Made, Stored, datatype, header};

/// The size of an element of `REFERENCE_LIST` in bytes: a reference, a dimension, and the padding of a C structure.
const USE: usize = 16;

impl Made {
    /// Adds an attribute whose elements lie in a heap. `values` are the lengths of the elements, with their contents.
    pub fn in_heap(
        &mut self,
        name: &str,
        datatype: &[u8],
        space: &[u8],
        values: Vec<(u32, Stored)>,
    ) -> Option<()> {
        let elements = values.iter().flat_map(|(len, _)| {
            let mut element = [0; 16];
            element[..4].copy_from_slice(&len.to_le_bytes());
            element
        });
        let elements: Vec<u8> = elements.collect();
        let at = self.elements(name, datatype, space, &elements)?;
        for (number, (len, stored)) in values.into_iter().enumerate() {
            // An empty list has no heap object. An empty text has one: without it, readers find no text at all.
            if len > 0 || matches!(stored, Stored::Bytes(_)) {
                let at = at + 16 * number + 4;
                self.heap_values.push(HeapValue { at, stored });
            }
        }
        Some(())
    }

    /// Adds an attribute. Returns the position of its elements.
    pub fn elements(
        &mut self,
        name: &str,
        datatype: &[u8],
        space: &[u8],
        elements: &[u8],
    ) -> Option<usize> {
        let data = header::attribute(name, datatype, space, elements)?;
        let at = self.push_attribute(name.as_bytes(), 0, &data)?;
        Some(at + data.len() - elements.len())
    }

    /// Adds a text that ends with a zero, the form that readers expect of dimension scales.
    pub fn terminated_text(&mut self, name: &str, text: &str) -> Option<()> {
        let text = [text.as_bytes(), &[0]].concat();
        let datatype = datatype::text(
            u32::try_from(text.len()).ok()?,
            datatype::ZERO_TERMINATED,
            !text.is_ascii(),
        );
        self.elements(name, &datatype, &header::SCALAR, &text)
            .map(|_| ())
    }

    /// Makes a dataset a dimension scale. An empty `name` means a scale without a name.
    pub fn scale(&mut self, name: &str) -> Option<()> {
        self.terminated_text("CLASS", "DIMENSION_SCALE")?;
        if !name.is_empty() {
            self.terminated_text("NAME", name)?;
        }
        Some(())
    }

    /// Removes an attribute of an existing object, if it has one of this name, so that a new one can replace it.
    pub fn replace(&mut self, name: &str) {
        if let Some(existing) = &mut self.existing {
            existing.replaced.insert(name.as_bytes().to_vec());
        }
    }

    /// Adds the list of the dimensions that use a scale. `uses` are numbers of datasets with dimensions. `signed` tells whether
    /// the integer type of dimensions is signed: a list that grows keeps its type.
    pub fn reference_list(&mut self, uses: &[(usize, u32)], signed: bool) -> Option<()> {
        let members = [
            ("dataset", 0, datatype::reference()),
            ("dimension", 8, datatype::integer(4, signed).to_vec()),
        ];
        let datatype = datatype::compound(1, USE as u32, &members)?;
        let elements = uses.iter().flat_map(|(_, dimension)| {
            let mut element = [0; USE];
            element[8..12].copy_from_slice(&dimension.to_le_bytes());
            element
        });
        let elements: Vec<u8> = elements.collect();
        let space = header::list(uses.len() as u64);
        let at = self.elements("REFERENCE_LIST", &datatype, &space, &elements)?;
        for (number, (dataset, _)) in uses.iter().enumerate() {
            self.references.push((at + USE * number, *dataset));
        }
        Some(())
    }

    /// Adds the list of the scales of each dimension. Scales are numbers of objects.
    pub fn dimension_list(&mut self, attached: Vec<Vec<usize>>) -> Option<()> {
        let attached = attached
            .into_iter()
            .map(|scales| Some((u32::try_from(scales.len()).ok()?, Stored::Objects(scales))));
        let attached: Vec<_> = attached.collect::<Option<_>>()?;
        let datatype = datatype::list_of(&datatype::reference());
        let space = header::list(attached.len() as u64);
        self.in_heap("DIMENSION_LIST", &datatype, &space, attached)
    }
}
