//! Virtual datasets. Their elements lie in other datasets: in the same file, in other logs, or in plain HDF5 files.
//!
//! As in HDF5, an element without a source reads as the fill value. An element has no source if no mapping covers it,
//! or if the source file or dataset does not exist. A source that exists but cannot be read is an error. Where
//! selections are unlimited, the sources decide the extent (`H5D_VDS_LAST_AVAILABLE`). `walk` pairs elements; `sources`
//! finds the other datasets.

mod sources;
mod walk;

use std::cell::Cell;

use super::Dataset;
use crate::reading::Reading;
use crate::selection::{Axis, Selection};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::{Mapping, Picked, Steps, Value};
use h5logfs_log::boxes::Bounds;
use h5logfs_log::stored::bytes_of;
use sources::{Names, Sources};
use walk::{Indices, Walk, walk};

/// The mappings of a virtual dataset.
pub(crate) struct Virtual {
    parts: Vec<Part>,
    sources: Sources,
}

/// A mapping of the virtual dataset.
struct Part {
    names: Names,
    source: Picked,
    target: Picked,
}

/// A source, and its elements paired with those of the virtual dataset.
struct Pair {
    source: Walk,
    target: Walk,
}

impl Virtual {
    /// A virtual dataset with these mappings.
    pub fn new(mappings: Vec<Mapping>) -> std::result::Result<Self, Fault> {
        let part = |mapping: Mapping| {
            Ok(Part {
                names: Names::of(&mapping)?,
                source: mapping.source,
                target: mapping.target,
            })
        };
        let parts = mappings.into_iter().map(part);
        Ok(Virtual {
            parts: parts.collect::<std::result::Result<_, Fault>>()?,
            sources: Sources::default(),
        })
    }

    /// The extent: the file's, unless selections are unlimited.
    pub fn dims(&self, own: &Dataset) -> Result<Vec<u64>> {
        let mut dims = own.shape().to_vec();
        let endless = |part: &&Part| part.endless().is_some();
        if !self.parts.iter().any(|part| endless(&part)) {
            return Ok(dims);
        }
        let mut ends: Vec<Option<u64>> = vec![None; dims.len()];
        let _looks = Looks::begin();
        for part in &self.parts {
            let Picked::Regular(steps) = &part.target else {
                continue;
            };
            if steps.len() != dims.len() {
                return Err(own.failed("a mapping of another rank".into()));
            }
            if let Some(d) = part.endless() {
                let end = self.end_of(own, part, steps, d)?;
                ends[d] = Some(ends[d].unwrap_or(0).max(end));
            }
        }
        for (d, end) in ends.iter().enumerate() {
            let Some(end) = end else { continue };
            // Sources with limited selections count whether they exist or not.
            let others = self.parts.iter().filter(|part| part.endless().is_none());
            let others = others.filter_map(|part| part.least_end(d)).max();
            dims[d] = (*end).max(others.unwrap_or(0));
        }
        Ok(dims)
    }

    /// The end of an unlimited mapping along dimension `d`.
    fn end_of(&self, own: &Dataset, part: &Part, steps: &[Steps], d: usize) -> Result<u64> {
        if !part.names.are_numbered() {
            let pair = self.with_source(own, part, 0, |source| {
                part.pair(source.shape(), own.shape())
            })?;
            let pair = pair.transpose().map_err(|fault| own.failed(fault))?;
            let bounds = pair.and_then(|pair| pair.target.bounds());
            return Ok(bounds.map_or(0, |bounds| bounds.end[d]));
        }
        /// A name may lead to the same file for every number.
        const MOST: u64 = 1 << 20;
        let mut number = 0;
        // The first missing source ends the series.
        while number < MOST && self.with_source(own, part, number, |_| ())?.is_some() {
            number += 1;
        }
        let last = number.checked_sub(1).map(|last| nth(steps, d, last));
        let bounds = last.and_then(|steps| Walk::of_slices(&steps, 0).bounds());
        Ok(bounds.map_or(0, |bounds| bounds.end[d]))
    }

    /// Passes a source of a mapping to `call`; `None` if it does not exist. An error names the source.
    fn with_source<T>(
        &self,
        own: &Dataset,
        part: &Part,
        number: u64,
        call: impl FnOnce(&Dataset) -> T,
    ) -> Result<Option<T>> {
        Looks::count().map_err(|fault| own.failed(fault))?;
        let name = part.names.numbered(number);
        let found = self.sources.find(own, &name)?;
        Ok(found.map(|source| call(&source)))
    }

    /// Fills `out` with a box of the dataset.
    pub fn read(&self, own: &Dataset, task: &Task, wanted: &Bounds, out: &mut [u8]) -> Result<()> {
        own.fill(out);
        let _looks = Looks::begin();
        self.each(own, task, wanted, &mut |source, pair| {
            let reader = Reader {
                own,
                source,
                pair,
                wanted,
            };
            reader.read(task, out)
        })
    }

    /// Passes on each source that has elements in a box, in the order of the mappings.
    fn each(
        &self,
        own: &Dataset,
        task: &Task,
        wanted: &Bounds,
        see: &mut dyn FnMut(&Dataset, &Pair) -> Result<()>,
    ) -> Result<()> {
        for part in &self.parts {
            task.check().map_err(|stop| own.failed(stop.into()))?;
            for (number, target) in part
                .targets(own.shape(), wanted)
                .map_err(|e| own.failed(e))?
            {
                let part = Part {
                    names: part.names.clone(),
                    source: part.source.clone(),
                    target,
                };
                let done = self.with_source(own, &part, number, |source| {
                    let pair = part.pair(source.shape(), own.shape());
                    see(source, &pair.map_err(|fault| own.failed(fault))?)
                })?;
                done.unwrap_or(Ok(()))?;
            }
        }
        Ok(())
    }

    /// All elements as plain values; those without a source are `fill`.
    pub fn values(&self, own: &Dataset, fill: &Value, reading: Reading<'_>) -> Result<Vec<Value>> {
        let dims = own.shape();
        let _looks = Looks::begin();
        let count = bytes_of(dims, 1).and_then(|count| usize::try_from(count).ok());
        let count = count.ok_or_else(|| own.failed("more elements than can be counted".into()))?;
        let mut values = vec![fill.clone(); count];
        let whole = Bounds {
            start: vec![0; dims.len()],
            end: dims.to_vec(),
        };
        let task = reading.stopping(own.task());
        self.each(own, &task, &whole, &mut |source, pair| {
            if source.info().datatype != own.info().datatype {
                return Err(own.failed(OTHER_TYPE.into()));
            }
            let found = source.values(reading)?;
            let place = |element: &[u64], dims: &[u64]| {
                element
                    .iter()
                    .zip(dims)
                    .fold(0, |n, (at, side)| n * side + at) as usize
            };
            let copied = pair.target.each_row(&whole, &mut |first, len| {
                let (mut to, number) = (first.to_vec(), pair.target.number(first));
                for behind in 0..len {
                    let (from, _) = pair.source.element(number + behind);
                    values[place(&to, dims)].clone_from(&found[place(&from, source.shape())]);
                    if let Some(last) = to.last_mut() {
                        *last += 1;
                    }
                }
                Ok(())
            });
            copied.map_err(|fault| own.failed(fault))
        })?;
        Ok(values)
    }
}

/// Number of sources that one call of this thread has visited, including sources of sources. Without this limit a few
/// virtual datasets built on each other could go on for ever.
struct Looks;

impl Looks {
    const MOST: u64 = 1 << 20;

    fn begin() -> Self {
        LOOKS.with(|looks| {
            let (calls, count) = looks.get();
            looks.set((calls + 1, if calls == 0 { 0 } else { count }));
        });
        Looks
    }

    fn count() -> std::result::Result<(), Fault> {
        LOOKS.with(|looks| {
            let (calls, count) = looks.get();
            looks.set((calls, count + 1));
            if count < Looks::MOST {
                return Ok(());
            }
            Err("virtual datasets that are made of too many others".into())
        })
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        LOOKS.with(|looks| {
            let (calls, count) = looks.get();
            looks.set((calls - 1, count));
        });
    }
}

thread_local! {
    /// Depth of nested calls, and visits since the outermost one.
    static LOOKS: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
}

const OTHER_TYPE: &str = "its source has elements of another type";

impl Part {
    /// The dimension along which the selection in the dataset is unlimited.
    fn endless(&self) -> Option<usize> {
        match &self.target {
            Picked::Regular(steps) => steps.iter().position(Steps::has_no_end),
            _ => None,
        }
    }

    /// The end of a limited selection along dimension `d`.
    fn least_end(&self, d: usize) -> Option<u64> {
        match &self.target {
            Picked::Regular(steps) => {
                let Steps {
                    start,
                    stride,
                    count,
                    block,
                } = steps.get(d)?;
                let last = (count - 1).saturating_mul(*stride);
                Some(start.saturating_add(last).saturating_add(*block))
            }
            Picked::Blocks(blocks) => blocks
                .iter()
                .filter_map(|(_, last)| Some(last.get(d)? + 1))
                .max(),
            Picked::Nothing | Picked::All => None,
        }
    }

    /// The selections that may touch a box. A numbered source has one per number.
    fn targets(
        &self,
        dims: &[u64],
        wanted: &Bounds,
    ) -> std::result::Result<Vec<(u64, Picked)>, Fault> {
        let one = || vec![(0, self.target.clone())];
        let (Some(d), Picked::Regular(steps)) = (self.endless(), &self.target) else {
            let is_met = walk(&self.target, dims)?.bounds();
            let is_met = is_met.is_some_and(|bounds| bounds.intersection(wanted).is_some());
            return Ok(if is_met { one() } else { Vec::new() });
        };
        if !self.names.are_numbered() {
            return Ok(one());
        }
        let (Some(start), Some(end)) = (wanted.start.get(d), wanted.end.get(d)) else {
            return Err("a mapping of another rank".into());
        };
        let Steps {
            start: first,
            stride,
            block,
            ..
        } = steps[d];
        if stride == 0 {
            return Err("a mapping whose blocks lie in the same place".into());
        }
        let from = (start
            .saturating_sub(first)
            .saturating_sub(block.saturating_sub(1)))
        .div_ceil(stride);
        let to = end.saturating_sub(first).div_ceil(stride);
        Ok((from..to)
            .map(|number| (number, Picked::Regular(nth(steps, d, number))))
            .collect())
    }

    /// Pairs the elements of a source with places in the dataset, given both extents.
    fn pair(&self, source: &[u64], dims: &[u64]) -> std::result::Result<Pair, Fault> {
        let found = walk(&self.source, source)?;
        let target = match (&self.target, &self.source, &found) {
            (Picked::Regular(steps), Picked::Regular(of_source), Walk::Grid(along))
                if self.endless().is_some() =>
            {
                let endless = of_source.iter().position(Steps::has_no_end);
                let slices = endless.and_then(|d| along.get(d));
                let slices = slices.ok_or("an unlimited mapping of a limited source")?;
                Walk::of_slices(steps, slices.len)
            }
            (_, _, _) if self.endless().is_some() => {
                return Err("an unlimited mapping of a limited source".into());
            }
            _ => walk(&self.target, dims)?,
        };
        let (from, to) = (found.len()?, target.len()?);
        if from != to {
            return Err(format!("a mapping of {from} elements to {to}").into());
        }
        Ok(Pair {
            source: found,
            target,
        })
    }
}

/// Steps reduced to one block along dimension `d`.
fn nth(steps: &[Steps], d: usize, number: u64) -> Vec<Steps> {
    let mut steps = steps.to_vec();
    let Steps { start, stride, .. } = steps[d];
    steps[d].start = start.saturating_add(number.saturating_mul(stride));
    steps[d].count = 1;
    steps
}

/// Reads the elements of a box that come from one source.
struct Reader<'a> {
    own: &'a Dataset,
    source: &'a Dataset,
    pair: &'a Pair,
    wanted: &'a Bounds,
}

impl Reader<'_> {
    fn read(&self, task: &Task, out: &mut [u8]) -> Result<()> {
        match self.alike() {
            Some(axes) => self.read_grid(task, &axes, out),
            None => self.read_rows(task, out),
        }
    }

    /// For each dimension of the dataset the matching one of the source, where both selections are grids with the
    /// same sides. Sides of one index need no match.
    fn alike(&self) -> Option<Vec<Option<usize>>> {
        let (Walk::Grid(source), Walk::Grid(target)) = (&self.pair.source, &self.pair.target)
        else {
            return None;
        };
        let long = |along: &[Indices]| -> Vec<usize> {
            (0..along.len()).filter(|d| along[*d].len != 1).collect()
        };
        let (from, to) = (long(source), long(target));
        let is_same = from.len() == to.len()
            && from
                .iter()
                .zip(&to)
                .all(|(a, b)| source[*a].len == target[*b].len);
        is_same.then(|| {
            let of = |d| to.iter().position(|long| *long == d).map(|at| from[at]);
            (0..target.len()).map(of).collect()
        })
    }

    /// Reads all in one call.
    fn read_grid(&self, task: &Task, alike: &[Option<usize>], out: &mut [u8]) -> Result<()> {
        let (Walk::Grid(source), Walk::Grid(target)) = (&self.pair.source, &self.pair.target)
        else {
            return Ok(());
        };
        let ranges = target.iter().zip(&self.wanted.start).zip(&self.wanted.end);
        let ranges = ranges.map(|((one, start), end)| (one.before(*start), one.before(*end)));
        let ranges: Vec<(u64, u64)> = ranges.collect();
        if ranges.iter().any(|(first, end)| first >= end) {
            return Ok(());
        }
        let mut axes: Vec<Axis> = source
            .iter()
            .map(|one| Axis::range(one.at(0), one.len.min(1)))
            .collect();
        for (of_source, (first, end)) in alike.iter().zip(&ranges) {
            if let Some(d) = of_source {
                axes[*d] = axis(&source[*d], *first, *end);
            }
        }
        let count: Vec<u64> = ranges.iter().map(|(first, end)| end - first).collect();
        let mut reservation = task.reservation();
        let element = self.element();
        let bytes = bytes_of(&count, element as u64).and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| self.failed("more bytes than can be counted".into()))?;
        let read = reservation.filled(bytes);
        let mut read: Vec<u8> = read.map_err(|e| self.failed(e.into()))?;
        self.read_source(task, &Selection::Axes(axes), &mut read)?;
        let mut from = 0;
        let copied = self.pair.target.each_row(self.wanted, &mut |first, len| {
            let (to, len) = (self.place(first), len as usize * element);
            out[to..to + len].copy_from_slice(&read[from..from + len]);
            from += len;
            Ok(())
        });
        copied.map_err(|fault| self.failed(fault))
    }

    /// Reads row by row.
    fn read_rows(&self, task: &Task, out: &mut [u8]) -> Result<()> {
        let element = self.element();
        let mut failed = None;
        let seen = self.pair.target.each_row(self.wanted, &mut |first, len| {
            let to = self.place(first);
            let (mut number, mut done) = (self.pair.target.number(first), 0);
            while done < len {
                let (from, run) = self.pair.source.element(number);
                let run = run.min(len - done);
                let mut count = vec![1; from.len()];
                if let Some(last) = count.last_mut() {
                    *last = run;
                }
                let at = to + done as usize * element;
                let part = &mut out[at..at + run as usize * element];
                if let Err(error) =
                    self.read_source(task, &Selection::hyperslab(&from, &count), part)
                {
                    failed = Some(error);
                    return Err("".into());
                }
                (number, done) = (number + run, done + run);
            }
            task.check()?;
            Ok(())
        });
        match (failed, seen) {
            (Some(error), _) => Err(error),
            (None, seen) => seen.map_err(|fault| self.failed(fault)),
        }
    }

    fn read_source(&self, task: &Task, selection: &Selection, out: &mut [u8]) -> Result<()> {
        let reading = Reading {
            stop: Some(task.stop_flag()),
            ..Reading::of(1)
        };
        self.source
            .read_as(&self.own.info().datatype, selection, reading, out)
    }

    /// The byte offset in the box of an element of the dataset.
    fn place(&self, element: &[u64]) -> usize {
        let within = element
            .iter()
            .zip(&self.wanted.start)
            .zip(self.wanted.count());
        let number = within.fold(0, |n, ((at, start), side)| n * side + (at - start));
        number as usize * self.element()
    }

    fn element(&self) -> usize {
        self.own.info().datatype.size as usize
    }

    fn failed(&self, fault: Fault) -> Error {
        self.own.failed(fault)
    }
}

/// The indices from position `first` to `end`.
fn axis(indices: &Indices, first: u64, end: u64) -> Axis {
    match indices.step() {
        Some(step) => Axis::Range {
            start: indices.at(first),
            count: end - first,
            step,
        },
        None => Axis::List((first..end).map(|position| indices.at(position)).collect()),
    }
}
