//! Datasets.

use std::ffi::{c_char, c_void};
use std::slice;
use std::sync::Arc;

use h5logfs_host::Kind;
use h5logfs_host::lists::BlockList;
use h5logfs_host::types::{Id, SUCCESS, Status};

use crate::arguments::{
    DatasetGet, DatasetSpecific, Handle, Location, Optional, Requests, dataset_optional, kind,
};
use crate::library::Functions;
use crate::log::dataset::Dataset;
use crate::log::transfer::{Selected, Transfer};
use crate::object::{Changed, Effect, Object, pass};
use crate::session::Session;
use h5logfs_common::fault::Fault;
use h5logfs_output::automatic;

passed_child! {
    /// `H5Dopen`.
    Reads open = H5VLdataset_open(name: *const c_char, dapl: Id) at name by dapl, kind::DATASET, Dataset;
}

/// `H5Dcreate`.
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C-unwind" fn create(
    handle: Handle,
    location: *const Location,
    name: *const c_char,
    lcpl: Id,
    datatype: Id,
    space: Id,
    dcpl: Id,
    dapl: Id,
    dxpl: Id,
    requests: Requests,
) -> Handle {
    // SAFETY: see the head of `callbacks`.
    let parent = unsafe { Object::of_handle(handle) };
    let create = || {
        // SAFETY: the library gives a location, and a name or null.
        let session = unsafe { parent.changed_at(Changed::link(name), (*location).from, dapl)? };
        let new = match &session {
            Some(session) => session.prepare_dataset(datatype, space, dcpl)?,
            None => None,
        };
        let dcpl = new.as_ref().map_or(dcpl, |new| new.dcpl);
        // SAFETY: see the head of `callbacks`.
        let under = parent.below.quietly(|f, under, vol| unsafe {
            (f.H5VLdataset_create)(
                under, location, vol, name, lcpl, datatype, space, dcpl, dapl, dxpl, requests,
            )
        });
        let (Some(session), Some(new)) = (session, new) else {
            return parent.opened(under, requests, || kind::DATASET);
        };
        if under.is_null() {
            return Ok(std::ptr::null_mut());
        }
        let mut object = Object::new(under, &parent.below.info, Some(&session));
        object.dataset = session.dataset_made(&object.below, new)?;
        Ok(object.into_handle())
    };
    // Printing stays off for the creation: among the program's functions, only those of its filters run within.
    let library = parent.library();
    let created = library.all_quietly(|| library.caught(Kind::Dataset, create));
    created.unwrap_or(std::ptr::null_mut())
}

/// Arrays of a read or a write, with a member for each dataset. They belong to the program and are never changed.
#[derive(Clone, Copy)]
struct Arrays<B> {
    memory_types: *mut Id,
    memory_spaces: *mut Id,
    file_spaces: *mut Id,
    bufs: *mut B,
}

/// Arguments of a read or a write.
#[derive(Clone, Copy)]
struct Call<B> {
    effect: Effect,
    arrays: Arrays<B>,
    dxpl: Id,
    requests: Requests,
}

type Native<B> = fn(&Functions, &mut [*mut c_void], Id, &Call<B>) -> Status;
type LogCall<B> = fn(&Session, &[Transfer<'_, B>]) -> Result<Status, Fault>;

/// The place of a dataset's elements in memory.
trait Buffer: Copy {
    /// The place as a buffer to read into.
    fn place(self) -> *mut c_void;
}

impl Buffer for *mut c_void {
    fn place(self) -> *mut c_void {
        self
    }
}

impl Buffer for *const c_void {
    fn place(self) -> *mut c_void {
        self.cast_mut()
    }
}

impl<B: Buffer> Call<B> {
    /// Asks the logs for the logged datasets, and the connector below for all others.
    ///
    /// # Safety
    ///
    /// All arrays have `count` members, and the handles belong to this connector.
    unsafe fn answer(
        &self,
        count: usize,
        handles: *const Handle,
        log: LogCall<B>,
        native: Native<B>,
    ) -> Status {
        if count == 0 {
            return SUCCESS;
        }
        if count == 1
            // SAFETY: guaranteed by the caller.
            && let Some(status) = unsafe { self.log_one(Object::of_handle(*handles), log) }
        {
            return status;
        }
        // SAFETY: guaranteed by the caller.
        let objects: Vec<&Object> = unsafe {
            let handles = slice::from_raw_parts(handles, count).iter();
            handles.map(|handle| Object::of_handle(*handle)).collect()
        };
        objects[0].answer(Kind::Dataset, || {
            if objects.iter().all(|object| object.dataset.is_none()) {
                return self.pass(&objects, native);
            }
            let session = one_session(&objects)?;
            // SAFETY: guaranteed by the caller.
            let status = log(session, &unsafe { self.logged(&objects) })?;
            if status < 0 {
                return Ok(status);
            }
            // SAFETY: guaranteed by the caller.
            unsafe { self.pass_others(&objects, native) }
        })
    }

    /// Asks the log, if the only dataset of the call is logged. This is the usual call, and programs make very many of them.
    ///
    /// # Safety
    ///
    /// All arrays have a member.
    unsafe fn log_one(&self, object: &Object, log: LogCall<B>) -> Option<Status> {
        let (session, dataset) = (object.session.as_ref()?, object.dataset.as_ref()?);
        let arrays = &self.arrays;
        // SAFETY: guaranteed by the caller.
        let transfer = unsafe {
            Transfer {
                below: &object.below,
                dataset,
                memory_type: *arrays.memory_types,
                selected: Selected::Spaces {
                    memory: *arrays.memory_spaces,
                    file: *arrays.file_spaces,
                },
                dxpl: self.dxpl,
                buf: *arrays.bufs,
            }
        };
        Some(object.answer(Kind::Dataset, || log(session, &[transfer])))
    }

    /// Selects the logged datasets.
    ///
    /// # Safety
    ///
    /// All arrays are as long as `objects`.
    unsafe fn logged<'a>(&self, objects: &[&'a Object]) -> Vec<Transfer<'a, B>> {
        let arrays = &self.arrays;
        let logged = objects.iter().enumerate().filter_map(|(at, object)| {
            let dataset = object.dataset.as_ref()?;
            // SAFETY: guaranteed by the caller.
            Some(unsafe {
                Transfer {
                    below: &object.below,
                    dataset,
                    memory_type: *arrays.memory_types.add(at),
                    selected: Selected::Spaces {
                        memory: *arrays.memory_spaces.add(at),
                        file: *arrays.file_spaces.add(at),
                    },
                    dxpl: self.dxpl,
                    buf: *arrays.bufs.add(at),
                }
            })
        });
        logged.collect()
    }

    /// The call reduced to the dataset at `at`.
    fn only(&self, at: usize) -> Self {
        let arrays = &self.arrays;
        let arrays = Arrays {
            memory_types: arrays.memory_types.wrapping_add(at),
            memory_spaces: arrays.memory_spaces.wrapping_add(at),
            file_spaces: arrays.file_spaces.wrapping_add(at),
            bufs: arrays.bufs.wrapping_add(at),
        };
        Call { arrays, ..*self }
    }

    /// Asks the connector below for all datasets. A virtual dataset with elements in a log is read from a file opened for it,
    /// every other dataset from its own file.
    fn pass(&self, objects: &[&Object], native: Native<B>) -> Result<Status, Fault> {
        if self.effect == Effect::Writes {
            for object in objects {
                if let Some(session) = own_session(object) {
                    let Object {
                        below,
                        virtual_dataset,
                        ..
                    } = object;
                    virtual_dataset.check_write(session, below)?;
                }
            }
            return self.pass_to_files(objects, native);
        }
        if objects.len() == 1 {
            let arrays = &self.arrays;
            // SAFETY: all arrays have a member, and the buffer belongs to the program and has room.
            let read = |f: &Functions, dataset| unsafe {
                (f.H5Dread)(
                    dataset,
                    *arrays.memory_types,
                    *arrays.memory_spaces,
                    *arrays.file_spaces,
                    self.dxpl,
                    (*arrays.bufs).place(),
                )
            };
            let Object {
                below,
                virtual_dataset,
                ..
            } = objects[0];
            return match own_session(objects[0]) {
                Some(session) if virtual_dataset.is_wanted(below)? => {
                    virtual_dataset.with(session, below, read)
                }
                _ => self.pass_to_files(objects, native),
            };
        }
        if !has_virtual(objects)? {
            return self.pass_to_files(objects, native);
        }
        for (at, object) in objects.iter().enumerate() {
            let status = self.only(at).pass(&[object], native)?;
            if status < 0 {
                return Ok(status);
            }
        }
        Ok(SUCCESS)
    }

    /// Asks the connector below for all datasets, in their own files.
    fn pass_to_files(&self, objects: &[&Object], native: Native<B>) -> Result<Status, Fault> {
        let Some(first) = objects.first() else {
            return Ok(SUCCESS);
        };
        for other in objects {
            first.below.check_like(&other.below)?;
            if self.effect == Effect::Writes {
                other.check_writable()?;
                if let Some(session) = &other.session {
                    session.check_unlogged_write(&other.below)?;
                    session.begin_call(automatic::Call::Own);
                    session.touch();
                }
            }
        }
        let mut unders: Vec<_> = objects.iter().map(|object| object.below.under).collect();
        let mut pass = || {
            pass(&first.below.info, self.requests, |f, vol| {
                native(f, &mut unders, vol, self)
            })
        };
        match first.session {
            // Each rank opens the native file of a log by itself.
            Some(_) => first.below.info.independently(self.dxpl, pass),
            None => Ok(pass()),
        }
    }

    /// Asks the connector below for the datasets that are not logged.
    ///
    /// # Safety
    ///
    /// All arrays are as long as `objects`.
    unsafe fn pass_others(&self, objects: &[&Object], native: Native<B>) -> Result<Status, Fault> {
        let others = objects.iter().enumerate();
        let others = others.filter(|(_, object)| object.dataset.is_none());
        let (places, objects): (Vec<usize>, Vec<&Object>) = others.unzip();
        // SAFETY: guaranteed by the caller.
        let gather = |from: *mut Id| -> Vec<Id> {
            places.iter().map(|at| unsafe { *from.add(*at) }).collect()
        };
        let mut memory_types = gather(self.arrays.memory_types);
        let mut memory_spaces = gather(self.arrays.memory_spaces);
        let mut file_spaces = gather(self.arrays.file_spaces);
        let bufs = places.iter();
        // SAFETY: guaranteed by the caller.
        let mut bufs: Vec<B> = bufs
            .map(|at| unsafe { *self.arrays.bufs.add(*at) })
            .collect();
        let call = Call {
            arrays: Arrays {
                memory_types: memory_types.as_mut_ptr(),
                memory_spaces: memory_spaces.as_mut_ptr(),
                file_spaces: file_spaces.as_mut_ptr(),
                bufs: bufs.as_mut_ptr(),
            },
            ..*self
        };
        call.pass(&objects, native)
    }
}

/// `H5Dread`, `H5Dread_multi`.
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C-unwind" fn read(
    count: usize,
    handles: *mut Handle,
    memory_types: *mut Id,
    memory_spaces: *mut Id,
    file_spaces: *mut Id,
    dxpl: Id,
    bufs: *mut *mut c_void,
    requests: Requests,
) -> Status {
    let call = Call {
        effect: Effect::Reads,
        arrays: Arrays {
            memory_types,
            memory_spaces,
            file_spaces,
            bufs,
        },
        dxpl,
        requests,
    };
    // SAFETY: see the head of `callbacks`.
    unsafe {
        call.answer(count, handles, Session::read, |f, unders, vol, call| {
            (f.H5VLdataset_read)(
                unders.len(),
                unders.as_mut_ptr(),
                vol,
                call.arrays.memory_types,
                call.arrays.memory_spaces,
                call.arrays.file_spaces,
                call.dxpl,
                call.arrays.bufs,
                call.requests,
            )
        })
    }
}

/// `H5Dwrite`, `H5Dwrite_multi`.
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C-unwind" fn write(
    count: usize,
    handles: *mut Handle,
    memory_types: *mut Id,
    memory_spaces: *mut Id,
    file_spaces: *mut Id,
    dxpl: Id,
    bufs: *mut *const c_void,
    requests: Requests,
) -> Status {
    let call = Call {
        effect: Effect::Writes,
        arrays: Arrays {
            memory_types,
            memory_spaces,
            file_spaces,
            bufs,
        },
        dxpl,
        requests,
    };
    // SAFETY: see the head of `callbacks`.
    unsafe {
        call.answer(count, handles, Session::write, |f, unders, vol, call| {
            (f.H5VLdataset_write)(
                unders.len(),
                unders.as_mut_ptr(),
                vol,
                call.arrays.memory_types,
                call.arrays.memory_spaces,
                call.arrays.file_spaces,
                call.dxpl,
                call.arrays.bufs,
                call.requests,
            )
        })
    }
}

/// The session of all datasets of a call, some of which are logged. Fails for datasets of several files, as libhdf5 does.
fn one_session<'a>(objects: &[&'a Object]) -> Result<&'a Session, Fault> {
    let sessions = objects.iter().map(|object| object.session.as_ref());
    let mut sessions = sessions.collect::<Option<Vec<_>>>().into_iter().flatten();
    let first = sessions.next();
    let one = first.filter(|first| sessions.all(|other| Arc::ptr_eq(other, first)));
    Ok(one.ok_or("different files detected in multi dataset I/O request")?)
}

/// The session of a dataset, if its elements are not logged.
fn own_session(object: &Object) -> Option<&Session> {
    let session = object.session.as_deref();
    session.filter(|_| object.dataset.is_none())
}

/// Whether a dataset is virtual and is read from a file opened for it.
fn has_virtual(objects: &[&Object]) -> Result<bool, Fault> {
    for object in objects {
        if own_session(object).is_some() && object.virtual_dataset.is_wanted(&object.below)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `H5Dget_*`.
pub unsafe extern "C-unwind" fn get(
    handle: Handle,
    args: *mut DatasetGet,
    dxpl: Id,
    requests: Requests,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let object = unsafe { Object::of_handle(handle) };
    object.answer(Kind::Dataset, || {
        let below = &object.below;
        // SAFETY: the library gives the arguments of an operation.
        let asked = unsafe { &mut *args };
        let answered = match (&object.session, &object.dataset) {
            (Some(session), Some(dataset)) => session.dataset_get(below, dataset, asked)?,
            (Some(session), None) => object.virtual_dataset.get(session, below, asked)?,
            (None, _) => None,
        };
        if let Some(status) = answered {
            return Ok(status);
        }
        // SAFETY: see the head of `callbacks`.
        object.pass(Effect::Reads, requests, |f, under, vol| unsafe {
            (f.H5VLdataset_get)(under, vol, args, dxpl, requests)
        })
    })
}

/// Operations of the native connector, mostly on chunks, and operations on lists of blocks.
pub unsafe extern "C-unwind" fn optional(
    handle: Handle,
    args: *mut Optional,
    dxpl: Id,
    requests: Requests,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let (object, operation) = unsafe { (Object::of_handle(handle), (*args).operation) };
    let effect = match operation {
        dataset_optional::CHUNK_WRITE | dataset_optional::FORMAT_CONVERT => Effect::Writes,
        dataset_optional::CHUNK_ITER => Effect::Runs,
        _ => Effect::Reads,
    };
    object.answer(Kind::Dataset, || {
        if object.below.info.operations.has(operation) {
            // SAFETY: a caller of this operation passes a list.
            return unsafe { transfer_list(object, &*args, dxpl) };
        }
        if let (Some(session), Some(dataset)) = (&object.session, &object.dataset)
            // SAFETY: the library gives the arguments of an operation.
            && let Some(status) =
                session.dataset_optional(&object.below, dataset, unsafe { &mut *args })?
        {
            return Ok(status);
        }
        // SAFETY: see the head of `callbacks`.
        object.pass(effect, requests, |f, under, vol| unsafe {
            (f.H5VLdataset_optional)(under, vol, args, dxpl, requests)
        })
    })
}

/// `H5Dwrite_n`, `H5Dread_n`: transfers blocks of a logged dataset.
///
/// # Safety
///
/// The arguments are a list of blocks. Its arrays have the sizes that its type documents for this dataset.
unsafe fn transfer_list(object: &Object, args: &Optional, dxpl: Id) -> Result<Status, Fault> {
    let (Some(session), Some(dataset)) = (&object.session, &object.dataset) else {
        return Err(
            "lists of blocks are only for datasets of a log that is open for writing".into(),
        );
    };
    // SAFETY: guaranteed by the caller.
    let list = unsafe { args.arguments.cast::<BlockList>().as_ref() };
    let list = list.filter(|list| list.size == size_of::<BlockList>());
    let list = list.ok_or("the list of blocks has an unknown version")?;
    let is_write = args.operation == object.below.info.operations.write;
    if is_write {
        return session.write(&[list_of(object, dataset, list, dxpl, list.buf.cast_const())]);
    }
    session.read(&[list_of(object, dataset, list, dxpl, list.buf)])
}

fn list_of<'a, B>(
    object: &'a Object,
    dataset: &'a Dataset,
    list: &'a BlockList,
    dxpl: Id,
    buf: B,
) -> Transfer<'a, B> {
    Transfer {
        below: &object.below,
        dataset,
        memory_type: list.memory_type,
        selected: Selected::List(list),
        dxpl,
        buf,
    }
}

/// `H5Dset_extent`, `H5Dflush`, `H5Drefresh`.
pub unsafe extern "C-unwind" fn specific(
    handle: Handle,
    args: *mut DatasetSpecific,
    dxpl: Id,
    requests: Requests,
) -> Status {
    // SAFETY: see the head of `callbacks`.
    let (object, operation) = unsafe { (Object::of_handle(handle), (*args).operation) };
    let is_flush = operation == DatasetSpecific::FLUSH;
    let effect = match operation {
        DatasetSpecific::SET_EXTENT => Effect::Writes,
        _ => Effect::Reads,
    };
    object.answer(Kind::Dataset, || {
        if let (Some(session), Some(dataset)) = (&object.session, &object.dataset)
            // SAFETY: the library gives the arguments of an operation.
            && let Some(status) =
                session.dataset_specific(&object.below, dataset, unsafe { &mut *args })?
        {
            return Ok(status);
        }
        // SAFETY: see the head of `callbacks`.
        let status = object.pass(effect, requests, |f, under, vol| unsafe {
            (f.H5VLdataset_specific)(under, vol, args, dxpl, requests)
        })?;
        if is_flush {
            return object.flushed(status);
        }
        Ok(status)
    })
}

/// `H5Dclose`.
pub unsafe extern "C-unwind" fn close(handle: Handle, dxpl: Id, requests: Requests) -> Status {
    // SAFETY: see the head of `callbacks`.
    unsafe {
        super::close(handle, requests, |f, under, vol| {
            (f.H5VLdataset_close)(under, vol, dxpl, requests)
        })
    }
}
