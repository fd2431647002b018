//! Headers of members in netCDF's classic formats.

use super::FileKind;
use super::member::{Attribute, Dimension, MemberHeader, Reach, Value, Variable};
use crate::netcdf::header::{self, Header, Type};
use crate::source_file::SourceFile;
use h5logfs_common::error::Error;
use h5logfs_common::fault::Fault;

/// Reads the header of a classic file.
pub(super) fn header(file: &SourceFile) -> Result<MemberHeader, Fault> {
    let header = Header::read(file).map_err(|error| match error {
        // The caller names the file.
        Error::BadFile { reason, .. } => Fault::Damage(reason),
        other => other.into(),
    })?;
    let records = header.records_in(file.len());
    let dimension = |dimension: &header::Dimension| Dimension {
        name: dimension.name.clone(),
        len: if dimension.len == 0 {
            records
        } else {
            dimension.len
        },
        is_unlimited: dimension.len == 0,
    };
    let variable = |variable: &header::Variable| Variable {
        name: variable.name.clone(),
        kind: variable.kind,
        is_big_endian: true,
        dimensions: variable.dimensions.clone(),
        attributes: variable.attributes.iter().map(attribute).collect(),
        place: variable.begin,
    };
    Ok(MemberHeader {
        kind: FileKind::Classic {
            record_size: header.record_size(),
        },
        // CDF-5 has types that the classic model lacks.
        is_classic: header.version != 5,
        dimensions: header.dimensions.iter().map(dimension).collect(),
        attributes: header.attributes.iter().map(attribute).collect(),
        variables: header.variables.iter().map(variable).collect(),
        reach: Some(reach(&header, records, file.len())),
    })
}

fn attribute(attribute: &header::Attribute) -> Attribute {
    let value = match attribute.kind {
        Type::Char => Value::Text(attribute.values.clone()),
        Type::Number(kind) => Value::Numbers(kind, attribute.little_endian()),
    };
    Attribute {
        name: attribute.name.clone(),
        value,
    }
}

/// `len`: bytes of the file.
fn reach(header: &Header, records: u64, len: u64) -> Reach {
    let record_size = header.record_size();
    let behind = |records: u64| {
        let end = |variable: &header::Variable| {
            let first = match (header.is_record(variable), records) {
                (false, _) => Some(0),
                (true, records) => records.checked_sub(1),
            }?;
            let skipped = first.saturating_mul(record_size);
            let bytes = header.bytes(variable);
            Some(variable.begin.saturating_add(skipped).saturating_add(bytes))
        };
        header.variables.iter().filter_map(end).max().unwrap_or(0)
    };
    let begins = header
        .variables
        .iter()
        .filter(|variable| header.is_record(variable));
    let begin = begins.map(|variable| variable.begin).min().unwrap_or(0);
    let begun = len
        .saturating_sub(begin)
        .div_ceil(record_size.max(1))
        .max(1);
    Reach {
        records: if record_size == 0 { records } else { begun },
        all: behind(records),
        before_last_record: behind(records.saturating_sub(1)),
    }
}
