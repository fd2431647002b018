//! The hooks for datasets of a log. Those that are not logged have their elements in the native file.

use std::ffi::c_void;
use std::slice;
use std::sync::Arc;

use h5logfs_host::types::{Id, SUCCESS, Status};

use super::Session;
use crate::arguments::{DatasetGet, DatasetSpecific, Optional, dataset_optional};
use crate::below::Below;
use crate::library::{Functions, is_version_2};
use crate::log::Log;
use crate::log::dataset::Dataset;
use crate::log::making::{NewDataset, has_extent};
use crate::log::transfer::Transfer;
use h5logfs_common::fault::Fault;
use h5logfs_output::automatic::{Call, Cause};

impl Session {
    /// A dataset is about to be made. `None`: the native file takes it as it is.
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

    /// A dataset was made. Returns the logged dataset that it is.
    pub fn dataset_made(
        &self,
        below: &Below,
        new: NewDataset,
    ) -> Result<Option<Arc<Dataset>>, Fault> {
        self.log()
            .map_or(Ok(None), |log| log.datasets().made(below, new))
    }

    /// The logged dataset that an object is. `None` for one whose elements are in the native file.
    pub fn dataset(&self, below: &Below) -> Result<Option<Arc<Dataset>>, Fault> {
        self.log()
            .map_or(Ok(None), |log| log.datasets().find(below))
    }

    /// Logged datasets are read: all that one call names.
    pub fn read(&self, transfers: &[Transfer<'_, *mut c_void>]) -> Result<Status, Fault> {
        let log = self.records()?;
        // All ranks of several nodes make a collective call, so they can tell each other what they have written.
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

    /// Logged datasets are written: all that one call names.
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
    fn records(&self) -> Result<&Log, Fault> {
        let log = self.log();
        Ok(log.ok_or_else(|| format!("{}: a dataset that is not logged", self.path.display()))?)
    }

    /// Fails where the native file would take elements that are not logged, and each rank has one of its own.
    pub fn check_unlogged_write(&self, below: &Below) -> Result<(), Fault> {
        let is_parallel = self.log().is_some_and(Log::is_parallel);
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

    /// `H5Dset_extent`, `H5Drefresh` of a logged dataset. `H5Dflush` is [`Session::flush`].
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
        // SAFETY: the part of this operation, with a number for each dimension.
        let dims = unsafe { slice::from_raw_parts(args.arguments.extent, dataset.max_dims.len()) };
        let extent = self.records()?.prepare_extent(dataset, dims);
        let extent = extent.map_err(|e| self.about(below, e))?;
        let can_have = dataset.can_have(dims);
        // SAFETY: these are the arguments of the library.
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

    /// Operations on a logged dataset that only the native connector has: of chunks, above all.
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
