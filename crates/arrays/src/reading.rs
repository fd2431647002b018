//! Reading a selection: several threads read its parts into memory of the caller.
//!
//! ```text
//! read ─┬ axes ── Parts ─┬ in order: each thread takes the next part with its piece of the array ─┐
//!       │                └ else: each thread reads parts into memory of its own, and copies rows ─┴ read_part ── Source::read
//!       └ points: sorted by cell, read as boxes, put in their order
//! ```

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::parts::{Layout, Part, Parts};
use super::points;
use super::selection::{Axis, Selection};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::{Fault, Stop};
use h5logfs_common::memory::Reservation;
use h5logfs_common::parallel;
use h5logfs_common::task::{StopFlag, Task};
use h5logfs_log::boxes::Bounds;
use h5logfs_log::boxes::rows::{Place, copy_box, next};

/// A source of elements.
pub(crate) trait Source: Sync {
    /// The properties that determine the parts.
    fn layout(&self) -> Layout<'_>;

    /// A task for reading.
    fn task(&self) -> Task;

    /// Fills `out` with the elements of a box. Runs within [`Task::retry`].
    fn read(&self, task: &Task, wanted: &Bounds, out: &mut [u8]) -> Result<()>;

    /// The error for a fault of a selection.
    fn failed(&self, fault: Fault) -> Error;
}

/// Options of a read.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// Number of threads, including the calling one.
    pub threads: usize,
    /// The calling thread reports the number of bytes read now and then. Reading stops where this breaks.
    pub progress: Option<&'a (dyn Fn(u64) -> ControlFlow<()> + Sync)>,
    /// Reading stops soon after this is set, with an error.
    pub stop: Option<&'a StopFlag>,
}

impl Reading<'_> {
    /// A read with `threads` threads; 0 stands for one per core that this thread may use.
    pub fn of(threads: usize) -> Self {
        let threads = match threads {
            0 => parallel::cores(),
            _ => threads,
        };
        Reading {
            threads,
            progress: None,
            stop: None,
        }
    }

    /// A task that stops with the read.
    pub(crate) fn stopping(&self, task: Task) -> Task {
        match self.stop {
            Some(stop) => task.stopped_by(stop.clone()),
            None => task,
        }
    }
}

impl Default for Reading<'_> {
    /// One thread per core that this thread may use.
    fn default() -> Self {
        Reading::of(0)
    }
}

/// Fills `out` with a selection that fits the source, in row-major order. `out` has the length of its elements.
pub(crate) fn read(
    source: &impl Source,
    selection: &Selection,
    reading: Reading<'_>,
    out: &mut [u8],
) -> Result<()> {
    let all;
    let axes = match selection {
        Selection::Points { rank, coordinates } => {
            return points::read(source, *rank, coordinates, reading, out);
        }
        Selection::Axes(axes) => axes,
        Selection::All => {
            all = source
                .layout()
                .dims
                .iter()
                .map(|side| Axis::range(0, *side))
                .collect();
            &all
        }
    };
    if out.is_empty() {
        return Ok(());
    }
    let parts = Parts::new(source.layout(), axes, reading.threads);
    let work = Work::new(source, reading);
    if parts.are_in_order() {
        work.in_order(&parts, axes, out)
    } else {
        let shape: Vec<u64> = axes.iter().map(Axis::len).collect();
        work.out_of_order(&parts, axes, &shape, out)
    }
}

/// A read shared by threads.
pub(crate) struct Work<'a, S> {
    source: &'a S,
    reading: Reading<'a>,
    stop: StopFlag,
    /// Bytes read so far.
    done: AtomicU64,
}

impl<'a, S: Source> Work<'a, S> {
    pub fn new(source: &'a S, reading: Reading<'a>) -> Self {
        Work {
            source,
            reading,
            stop: reading.stop.map(StopFlag::within).unwrap_or_default(),
            done: AtomicU64::new(0),
        }
    }

    /// Reads parts that follow each other in the array.
    fn in_order(&self, parts: &Parts, axes: &[Axis], out: &mut [u8]) -> Result<()> {
        let element = self.source.layout().element;
        self.each_in_order(
            parts.len(),
            out,
            |number| parts.part(number).len() * element,
            |task, number, out| self.read_part(task, &parts.part(number), axes, out),
        )
    }

    /// Calls `read` for each number below `count` with the next `len` bytes of `out`.
    pub fn each_in_order(
        &self,
        count: u64,
        out: &mut [u8],
        len: impl Fn(u64) -> u64 + Sync,
        read: impl Fn(&Task, u64, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<()> {
        let rest = Mutex::new((0, out));
        let next = || {
            let (number, rest) = &mut *rest.lock();
            if *number == count {
                return None;
            }
            let len = len(*number) as usize;
            let (now, later) = std::mem::take(rest).split_at_mut_checked(len)?;
            *rest = later;
            *number += 1;
            Some((*number - 1, now))
        };
        self.share(count, |task, told| {
            while let Some((number, out)) = next() {
                task.retry(|| read(task, number, &mut *out))?;
                told(out.len())?;
            }
            Ok(())
        })
    }

    /// Reads parts whose elements are scattered in the array.
    fn out_of_order(
        &self,
        parts: &Parts,
        axes: &[Axis],
        shape: &[u64],
        out: &mut [u8],
    ) -> Result<()> {
        let element = self.source.layout().element as usize;
        let (next, out) = (AtomicU64::new(0), Mutex::new(out));
        self.share(parts.len(), |task, told| {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= parts.len() {
                    return Ok(());
                }
                let part = parts.part(number);
                let len = part.len() * element as u64;
                task.retry(|| {
                    let (mut own, _reservation) = self.room(task, Some(len))?;
                    self.read_part(task, &part, axes, &mut own)?;
                    copy_part(&own, &part, shape, element, &mut out.lock());
                    Ok(())
                })?;
                told(len as usize)?;
            }
        })
    }

    /// Fills `out` with the elements of a part, in array order.
    fn read_part(&self, task: &Task, part: &Part<'_>, axes: &[Axis], out: &mut [u8]) -> Result<()> {
        let bounds = part.bounds();
        if part.is_dense() {
            return self.source.read(task, &bounds, out);
        }
        let element = self.source.layout().element;
        self.with_box(task, &bounds, |all| {
            let lists = part.groups.iter().zip(axes).map(|(group, axis)| {
                let first = group.indices.start;
                group
                    .positions
                    .clone()
                    .map(|at| axis.at(at) - first)
                    .collect()
            });
            let lists: Vec<Vec<u64>> = lists.collect();
            gather(
                all,
                &bounds.count().collect::<Vec<_>>(),
                &lists,
                element as usize,
                out,
            );
        })
    }

    /// Reads a box into temporary memory, and passes it to `take`.
    pub fn with_box(&self, task: &Task, bounds: &Bounds, take: impl FnOnce(&[u8])) -> Result<()> {
        let element = self.source.layout().element;
        let bytes = bounds.count().try_fold(element, u64::checked_mul);
        let (mut all, _reservation) = self.room(task, bytes)?;
        self.source.read(task, bounds, &mut all)?;
        take(&all);
        Ok(())
    }

    /// Memory of `bytes` bytes; `None` stands for a number that overflowed.
    fn room(&self, task: &Task, bytes: Option<u64>) -> Result<(Vec<u8>, Reservation)> {
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let mut reservation = task.reservation();
        let room = match bytes {
            Some(bytes) => reservation.filled(bytes).map_err(Fault::from),
            None => Err("a box of more bytes than can be counted".into()),
        };
        Ok((
            room.map_err(|fault| self.source.failed(fault))?,
            reservation,
        ))
    }

    /// Runs `work` in several threads, at most `most`. The first failure stops all threads. `told` takes the number of
    /// bytes read.
    fn share(
        &self,
        most: u64,
        work: impl Fn(&Task, &dyn Fn(usize) -> Result<()>) -> Result<()> + Sync,
    ) -> Result<()> {
        let threads = self
            .reading
            .threads
            .clamp(1, most.clamp(1, 1 << 10) as usize);
        let failed = Mutex::new(None);
        parallel::share(threads, |thread| {
            let task = self.source.task().stopped_by(self.stop.clone());
            let told = |bytes: usize| {
                let done = self.done.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
                let tell = self.reading.progress.filter(|_| thread == 0);
                if tell.is_some_and(|tell| tell(done).is_break()) {
                    self.stop.stop(Stop::CallerGone);
                }
                task.check().map_err(|stop| self.source.failed(stop.into()))
            };
            if let Err(error) = work(&task, &told) {
                // Errors after the first come from the stop.
                failed.lock().get_or_insert(error);
                self.stop.stop(Stop::CallerGone);
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }
}

/// Copies the elements of a part to their places in the array.
fn copy_part(from: &[u8], part: &Part<'_>, shape: &[u64], element: usize, to: &mut [u8]) {
    let count: Vec<u64> = part.groups.iter().map(|group| group.len()).collect();
    let start: Vec<u64> = part.groups.iter().map(|g| g.positions.start).collect();
    let own = Place {
        sides: &count,
        start: &vec![0; count.len()],
    };
    let target = Place {
        sides: shape,
        start: &start,
    };
    copy_box(&count, element, (from, own), (to, target));
}

/// Copies the elements at all combinations of indices from a box to `to`, in row-major order.
fn gather(from: &[u8], sides: &[u64], indices: &[Vec<u64>], element: usize, to: &mut [u8]) {
    let Some((last, outer)) = indices.split_last() else {
        return to.copy_from_slice(from);
    };
    let row = sides[sides.len() - 1] as usize * element;
    let counts: Vec<u64> = outer.iter().map(|list| list.len() as u64).collect();
    let mut at = vec![0; outer.len()];
    for to in to.chunks_exact_mut(last.len() * element) {
        let along = at.iter().zip(outer).zip(sides);
        let number = along.fold(0, |n, ((at, list), side)| n * side + list[*at as usize]) as usize;
        let from = &from[number * row..(number + 1) * row];
        match element {
            4 => take::<4>(from, last, to),
            8 => take::<8>(from, last, to),
            _ => {
                for (to, index) in to.chunks_exact_mut(element).zip(last) {
                    let start = *index as usize * element;
                    to.copy_from_slice(&from[start..start + element]);
                }
            }
        }
        next(&mut at, &counts);
    }
}

/// Gathers elements of a common size. Each element takes one load and one store.
fn take<const SIZE: usize>(from: &[u8], indices: &[u64], to: &mut [u8]) {
    let from = from.as_chunks::<SIZE>().0;
    for (to, index) in to.as_chunks_mut::<SIZE>().0.iter_mut().zip(indices) {
        *to = from[*index as usize];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An array in memory. The value of each element is its place.
    #[derive(Debug)]
    struct Known {
        dims: Vec<u64>,
        chunk: Vec<u64>,
        is_whole: bool,
        has_small_records: bool,
    }

    impl Known {
        fn value(&self, at: &[u64]) -> u64 {
            at.iter()
                .zip(&self.dims)
                .fold(1, |n, (at, side)| n * side + at)
        }
    }

    impl Source for Known {
        fn layout(&self) -> Layout<'_> {
            Layout {
                dims: &self.dims,
                chunk: &self.chunk,
                is_whole: self.is_whole,
                has_small_records: self.has_small_records,
                element: 8,
            }
        }

        fn task(&self) -> Task {
            Task::unlimited()
        }

        fn read(&self, _: &Task, wanted: &Bounds, out: &mut [u8]) -> Result<()> {
            let axes: Vec<Axis> = wanted
                .start
                .iter()
                .zip(wanted.count())
                .map(|(start, count)| Axis::range(*start, count))
                .collect();
            let values = all(&axes).into_iter().map(|at| self.value(&at));
            let bytes: Vec<u8> = values.flat_map(u64::to_ne_bytes).collect();
            out.copy_from_slice(&bytes);
            Ok(())
        }

        fn failed(&self, fault: Fault) -> Error {
            Error::of("known", fault)
        }
    }

    /// The coordinates of all elements of a selection, in order.
    fn all(axes: &[Axis]) -> Vec<Vec<u64>> {
        axes.iter().fold(vec![Vec::new()], |before, axis| {
            let longer = before.iter().flat_map(|at| {
                (0..axis.len()).map(move |position| {
                    let mut at = at.clone();
                    at.push(axis.at(position));
                    at
                })
            });
            longer.collect()
        })
    }

    fn axis(side: u64) -> impl Strategy<Value = Axis> {
        let range =
            (0..side, 1u64..5, 0u64..40).prop_map(move |(start, step, count)| Axis::Range {
                start,
                count: count.min((side - start).div_ceil(step)),
                step,
            });
        prop_oneof![3 => range, 1 => prop::collection::vec(0..side, 0..9).prop_map(Axis::List)]
    }

    fn known() -> impl Strategy<Value = (Known, Selection)> {
        prop::collection::vec((1u64..40, 1u64..60), 0..4).prop_flat_map(|sides| {
            let (dims, chunk): (Vec<u64>, Vec<u64>) = sides.into_iter().unzip();
            let axes: Vec<_> = dims.iter().map(|side| axis(*side)).collect();
            let axes = axes.prop_map(Selection::Axes);
            let rank = dims.len();
            let points: Vec<_> = dims.iter().map(|side| 0..*side).collect();
            let points =
                prop::collection::vec(points, 0..30).prop_map(move |points| Selection::Points {
                    rank,
                    coordinates: points.concat(),
                });
            let selection = match rank {
                0 => Just(Selection::All).boxed(),
                _ => prop_oneof![4 => axes, 1 => points, 1 => Just(Selection::All)].boxed(),
            };
            (Just(dims), Just(chunk), any::<(bool, bool)>(), selection).prop_map(
                |(dims, chunk, (is_whole, has_small_records), selection)| {
                    let known = Known {
                        dims,
                        chunk,
                        is_whole,
                        has_small_records,
                    };
                    (known, selection)
                },
            )
        })
    }

    proptest! {
        #[test]
        fn every_selection_is_what_it_says((known, selection) in known(), threads in 1usize..4) {
            let places = match &selection {
                Selection::All => {
                    let sides: Vec<Axis> = known.dims.iter().map(|side| Axis::range(0, *side)).collect();
                    all(&sides)
                }
                Selection::Axes(axes) => all(axes),
                Selection::Points { rank, coordinates } => coordinates.chunks(*rank).map(<[u64]>::to_vec).collect(),
            };
            let shape = selection.shape(&known.dims).unwrap();
            prop_assert_eq!(shape.iter().product::<u64>(), places.len() as u64);
            let mut out = vec![0; places.len() * 8];
            let reading = Reading { threads, progress: None, stop: None };
            read(&known, &selection, reading, &mut out).unwrap();
            let found: Vec<u64> = out.as_chunks().0.iter().map(|b| u64::from_ne_bytes(*b)).collect();
            let wanted: Vec<u64> = places.iter().map(|at| known.value(at)).collect();
            prop_assert_eq!(found, wanted);
        }
    }
}
