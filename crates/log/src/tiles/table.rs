//! The layout: the records of each variable.

use super::Tables;
use crate::layout::{Layout, RecordTable};
use crate::model::Logged;
use crate::source_file::SourceFile;
use crate::tiling::Tilings;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;

impl Layout for Tables {
    fn name(&self) -> &'static str {
        "netCDF tiles"
    }

    fn read_tables(
        &self,
        _: &Task,
        _: &[SourceFile],
        _: &[Logged<'_>],
    ) -> Result<Box<dyn RecordTable>, Fault> {
        Err("not yet".into())
    }

    fn tables_len(&self, _: &[SourceFile]) -> u64 {
        0
    }

    fn tilings(&self, _: &[SourceFile]) -> Tilings {
        Tilings::default()
    }
}
