//! Checks a snapshot's description of a netCDF file and its logs. The bytes are checked when they are read.

use super::{Tables, Variable};
use crate::numbers::NumberType;
use h5logfs_common::fault::Fault;

/// The most logs. Their numbers share 64 bits with the numbers of entries.
const MOST_LOGS: usize = 1 << 23;

impl Tables {
    /// Fails with the reason if the parts contradict each other. `sources` is the number of source files.
    pub fn check(&self, sources: usize) -> Result<(), Fault> {
        if !matches!(self.version, 1 | 2 | 5) {
            return Err(format!("version {} of netCDF", self.version).into());
        }
        if sources == 0 || self.logs.len() > MOST_LOGS {
            return Err(format!("{} logs in {sources} source files", self.logs.len()).into());
        }
        let named = self
            .logs
            .iter()
            .flat_map(|log| [Some(log.metadata), log.data]);
        // Source 0 is the netCDF file itself.
        let mut strange = named.flatten();
        if let Some(source) = strange.find(|n| *n == 0 || usize::from(*n) >= sources) {
            return Err(format!("a log in source file {source} of {sources}").into());
        }
        let mut metadata: Vec<u16> = self.logs.iter().map(|log| log.metadata).collect();
        metadata.sort_unstable();
        if metadata.windows(2).any(|pair| pair[0] == pair[1]) {
            // A small file could demand any number of entries.
            return Err("two logs with the same entries".into());
        }
        check_file_end(Some(self.record_size))?;
        self.variables.iter().try_for_each(Variable::check)
    }
}

impl Variable {
    /// Bytes of one index of the first dimension; `None` on overflow.
    pub(super) fn row_bytes(&self) -> Option<u64> {
        let mut inner = self.dims.iter().skip(1).copied();
        inner.try_fold(self.kind.size() as u64, u64::checked_mul)
    }

    fn check(&self) -> Result<(), Fault> {
        if self.is_text && self.kind != NumberType::U8 {
            return Err("text of numbers".into());
        }
        if self.is_record && self.dims.first() != Some(&0) {
            return Err("a record variable without records".into());
        }
        let rows = match (self.is_record, self.dims.first()) {
            (false, Some(rows)) => *rows,
            _ => 1,
        };
        let bytes = self.row_bytes().and_then(|row| row.checked_mul(rows));
        check_file_end(bytes.and_then(|bytes| bytes.checked_add(self.begin)))?;
        self.dims
            .iter()
            .try_for_each(|dim| check_file_end(Some(*dim)))
    }
}

fn check_file_end(end: Option<u64>) -> Result<(), Fault> {
    if end.is_some_and(|end| end <= i64::MAX as u64) {
        Ok(())
    } else {
        Err("numbers of a netCDF file that are in no file".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netcdf::ProcessLog;

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let fixed = Variable {
            kind: NumberType::F64,
            is_text: false,
            is_record: false,
            dims: vec![4, 5],
            begin: 100,
            fill: [0; 8],
        };
        let record = Variable {
            is_record: true,
            dims: vec![0, 5],
            ..fixed.clone()
        };
        let log = ProcessLog {
            metadata: 1,
            data: Some(2),
            generation: 0,
            rank: 0,
        };
        let sound = Tables {
            version: 5,
            record_size: 40,
            variables: vec![fixed, record],
            logs: vec![log],
        };
        assert_eq!(sound.check(3), Ok(()));
        assert!(sound.check(2).is_err());
        let damaged = |damage: &dyn Fn(&mut Tables)| {
            let mut tables = sound.clone();
            damage(&mut tables);
            tables.check(3)
        };
        assert_eq!(damaged(&|t| t.logs[0].data = None), Ok(()));
        assert!(damaged(&|t| t.version = 3).is_err());
        assert!(damaged(&|t| t.logs[0].metadata = 3).is_err());
        assert!(damaged(&|t| t.logs[0].data = Some(0)).is_err());
        assert!(damaged(&|t| t.record_size = u64::MAX).is_err());
        assert!(damaged(&|t| t.variables[0].is_text = true).is_err());
        assert!(damaged(&|t| t.variables[0].begin = i64::MAX as u64).is_err());
        assert!(damaged(&|t| t.variables[0].dims[0] = 1 << 62).is_err());
        assert!(damaged(&|t| t.variables[0].dims = vec![0, u64::MAX, 0]).is_err());
        assert!(damaged(&|t| t.variables[1].dims.clear()).is_err());
        assert!(damaged(&|t| t.variables[1].dims[0] = 1).is_err());
    }
}
