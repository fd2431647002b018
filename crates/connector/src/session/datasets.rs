//! Hooks for datasets of a log. The native file holds the elements of datasets that are not logged.

use std::ffi::c_void;
use std::slice;
use std::sync::Arc;

use h5logfs_host::types::{Id, SUCCESS, Status};

use super::Session;
use crate::arguments::{DatasetGet, DatasetSpecific, Optional, dataset_optional};
use crate::below::Below;
use crate::library::{Functions, is_version_2};
use crate::log::WrittenLog;
use crate::log::dataset::Dataset;
use crate::log::making::{NewDataset, has_extent};
use crate::log::transfer::Transfer;
use h5logfs_common::fault::Fault;
use h5logfs_output::automatic::{Call, Cause};

impl Session {
    /// Prepares the creation of a dataset. `None`: the native file takes it unchanged.
    pub fn prepare_dataset(
        &self,
        datatype: Id,
        space: Id,
        dcpl: Id,
    ) -> Result<Option<NewDataset>, Fault> {
        let log = self.log();
        log.map(|log| log.datasets().prepare(datatype, space, dcpl))
            .transpose()
    }

    /// Registers a new dataset. Returns the logged dataset, if it is one.
    pub fn dataset_made(
        &self,
        below: &Below,
        new: NewDataset,
    ) -> Result<Option<Arc<Dataset>>, Fault> {
        self.log()
            .map_or(Ok(None), |log| log.datasets().made(below, new))
    }

    /// The logged dataset behind an object. `None` if its elements are in the native file.
    pub fn dataset(&self, below: &Below) -> Result<Option<Arc<Dataset>>, Fault> {
        self.log()
            .map_or(Ok(None), |log| log.datasets().find(below))
    }

    /// Reads all logged datasets of one call.
    pub fn read(&self, transfers: &[Transfer<'_, *mut c_void>]) -> Result<Status, Fault> {
        let log = self.records()?;
        // If ranks run on several nodes, a collective call lets them flush first, and so see each other's elements.
        if let Some(Transfer { below, dxpl, .. }) = transfers.first()
            && !log.sees_all()
            && !log.is_default_transfer(*dxpl)
            && below.info.is_collective(*dxpl)
        {
            self.flush_for(Cause::Automatic)?;
        }
        for transfer in transfers {
            log.transfers()
                .read(transfer)
                .map_err(|e| self.about(transfer.below, e))?;
        }
        Ok(SUCCESS)
    }

    /// Writes all logged datasets of one call.
    pub fn write(&self, transfers: &[Transfer<'_, *const c_void>]) -> Result<Status, Fault> {
        let log = self.records()?;
        let is_collective = transfers
            .first()
            .is_some_and(|Transfer { below, dxpl, .. }| {
                log.is_automatic()
                    && log.is_parallel()
                    && !log.is_default_transfer(*dxpl)
                    && below.info.is_collective(*dxpl)
            });
        let call = if is_collective {
            Call::Collective
        } else {
            Call::Own
        };
        let (kept, flushed) = log.transfers().begin(call, &self.is_changed);
        self.warn_of_flush(log, flushed);
        let written = match transfers {
            [one] => log.transfers().write(one, kept).map_err(|e| (0, e)),
            all => log.transfers().write_all(all, kept),
        };
        if written.map_err(|(at, e)| self.about(transfers[at].below, e))? {
            log.transfers().warn_of_spill();
        }
        Ok(SUCCESS)
    }

    /// The log of a dataset that [`Session::dataset`] has found.
    fn records(&self) -> Result<&WrittenLog, Fault> {
        let log = self.log();
        Ok(log.ok_or_else(|| format!("{}: a dataset that is not logged", self.path.display()))?)
    }

    /// Fails if the native file would take elements, and each rank has its own native file.
    pub fn check_unlogged_write(&self, below: &Below) -> Result<(), Fault> {
        let is_parallel = self.log().is_some_and(WrittenLog::is_parallel);
        if !is_parallel || !has_extent(below) {
            return Ok(());
        }
        Err(self.about(
            below,
            "several ranks cannot write its elements, which are not logged (variable length, references, virtual or \
             external storage)",
        ))
    }

    /// `H5Dget_*` of a logged dataset.
    pub fn dataset_get(
        &self,
        below: &Below,
        dataset: &Dataset,
        args: &mut DatasetGet,
    ) -> Result<Option<Status>, Fault> {
        self.records()?.questions().get(below, dataset, args)
    }

    /// `H5Dset_extent` and `H5Drefresh` of a logged dataset. `H5Dflush` is [`Session::flush`].
    pub fn dataset_specific(
        &self,
        below: &Below,
        dataset: &Dataset,
        args: &mut DatasetSpecific,
    ) -> Result<Option<Status>, Fault> {
        if args.operation != DatasetSpecific::SET_EXTENT {
            return Ok(None);
        }
        self.check_writable()?;
        self.begin_call(Call::Collective);
        self.touch();
        // SAFETY: the operation selects this part of the union, and it has a number for each dimension.
        let dims = unsafe { slice::from_raw_parts(args.arguments.extent, dataset.max_dims.len()) };
        let extent = self.records()?.prepare_extent(dataset, dims);
        let extent = extent.map_err(|e| self.about(below, e))?;
        let can_have = dataset.can_have(dims);
        // SAFETY: the arguments come from the library.
        let set = |f: &Functions, under, vol| unsafe {
            (f.H5VLdataset_specific)(under, vol, args, 0, std::ptr::null_mut())
        };
        let status = if can_have {
            below.call(set)
        } else {
            below.quietly(set)
        };
        if status >= 0 {
            dataset.set_extent(extent);
        }
        Ok(Some(status))
    }

    /// Operations of the native connector on a logged dataset, mostly on chunks.
    pub fn dataset_optional(
        &self,
        below: &Below,
        dataset: &Dataset,
        args: &mut Optional,
    ) -> Result<Option<Status>, Fault> {
        let log = self.records()?;
        if args.operation == dataset_optional::CHUNK_WRITE {
            self.begin_call(Call::Own);
        }
        // SAFETY: the library gives the arguments of an operation.
        let answered = unsafe {
            log.questions()
                .optional(dataset, args, is_version_2(below.library()))
        };
        answered.map_err(|e| self.about(below, e))
    }
}
