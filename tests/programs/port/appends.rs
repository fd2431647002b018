//! Particles: each rank appends its own number of rows, and asks for their places. One flush fails on one rank, some
//! ranks do not know one dataset at first, and some appends are refused.

use h5logfs_writer::{Dataset, DatasetSpec, Error, Writer};
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Result;

const ROUNDS: u64 = 5;
/// In this round the data of rank 1 does not reach the file at first.
const FAILING: u64 = 3;

struct Particles<'c> {
    file: Writer,
    world: &'c SimpleCommunicator,
    /// Rows of three numbers: rank, round, index of the row in the round.
    particles: Dataset,
    /// Number of rows so far.
    rows: u64,
}

pub fn write(file: Writer, world: &SimpleCommunicator) -> Result {
    // SAFETY: no other thread handles signals, and the system ignores this one.
    unsafe { crate::ignore_file_size_signal() };
    let mut file = file;
    let spec = DatasetSpec::new::<f64>(&[0, 3]).unlimited(0);
    let particles = file.dataset("/particles", spec.chunk(&[4, 3]).shuffle().deflate(6))?;
    let plain = file.dataset("/plain", DatasetSpec::new::<u32>(&[0]).unlimited(0))?;
    let mut run = Particles {
        file,
        world,
        particles,
        rows: 0,
    };
    for round in 0..ROUNDS {
        run.append(round)?;
        // Only rank 1 ever appends to it, and at first all ranks have written to it.
        run.file.extend(plain, &[10 + 2 * round])?;
        if world.rank() == 1 {
            run.file.append(plain, &[round as u32, 7])?;
        }
        if round == FAILING {
            run.fail()?;
        }
        run.file.flush()?;
        run.check(round)?;
    }
    track(&mut run.file, world.rank() as u64)?;
    refuse(&mut run.file, particles)?;
    differ(&mut run.file, world)?;
    Ok(run.file.close()?)
}

impl Particles<'_> {
    /// Copied rows in two calls, and lent rows; none on some ranks.
    fn append(&mut self, round: u64) -> Result {
        let (file, particles) = (&mut self.file, self.particles);
        let rows = rows(self.world.rank() as u64, round);
        let (first, second) = rows.split_at(rows.len() / 3 / 2 * 3);
        file.append(particles, first)?;
        file.append(particles, second)?;
        Ok(())
    }

    /// A failed flush leaves its rows to the next one. Meanwhile another rank gets more.
    fn fail(&mut self) -> Result {
        let rank = self.world.rank();
        let limit = getrlimit(Resource::Fsize);
        if rank == 1 {
            let current = Some(8 << 10);
            setrlimit(Resource::Fsize, Rlimit { current, ..limit })?;
        }
        let lent = extra(rank as u64);
        let mut batch = self.file.batch();
        batch.append(self.particles, &lent)?;
        let failed = batch.flush();
        assert!(
            matches!(failed, Err(Error::Failed { rank: 1, .. })),
            "{failed:?}"
        );
        setrlimit(Resource::Fsize, limit)?;
        Ok(())
    }

    /// The rows lie where the library says, after the rows of lower ranks.
    fn check(&mut self, round: u64) -> Result {
        let rank = self.world.rank() as u64;
        let mut number = number(rank, round);
        if round == FAILING {
            number += extra(rank).len() as u64 / 3;
        }
        let (mut before, mut all) = (0u64, 0u64);
        let (sum, world) = (SystemOperation::sum(), self.world);
        world.exclusive_scan_into(&number, &mut before, sum);
        world.all_reduce_into(&number, &mut all, sum);
        let start = self.rows + if rank == 0 { 0 } else { before };
        let mine = self.file.appended(self.particles)?;
        if number > 0 {
            assert_eq!(mine, start..start + number, "rank {rank} in round {round}");
        }
        self.rows += all;
        assert_eq!(self.file.dims(self.particles)?, [self.rows, 3]);
        Ok(())
    }
}

fn number(rank: u64, round: u64) -> u64 {
    (3 * rank + 5 * round) % 7
}

fn rows(rank: u64, round: u64) -> Vec<f64> {
    let row = |n| [rank as f64, round as f64, n as f64];
    (0..number(rank, round)).flat_map(row).collect()
}

/// Rows of the rank in the failing flush.
fn extra(rank: u64) -> Vec<f64> {
    (0..rank)
        .flat_map(|n| [rank as f64, -1.0, n as f64])
        .collect()
}

/// The sample of the user guide.
fn track(file: &mut Writer, rank: u64) -> Result {
    let mine = vec![rank as f64; 3 * (rank as usize + 1)];
    let spec = DatasetSpec::new::<f64>(&[0, 3]).unlimited(0);
    let particles = file.dataset("/tracked", spec)?;
    file.append(particles, &mine)?;
    file.flush()?;
    let rows = file.appended(particles)?;
    assert_eq!(rows.end - rows.start, rank + 1);
    Ok(())
}

/// Data that is no row is refused, and reported at the flush.
fn refuse(file: &mut Writer, particles: Dataset) -> Result {
    let fixed = file.dataset("/fixed", DatasetSpec::new::<f64>(&[4]))?;
    let refused = |outcome: h5logfs_writer::Result<()>, words: &str| match outcome {
        Err(e @ Error::Write { .. }) => assert!(e.to_string().contains(words), "{e}"),
        other => panic!("{other:?}"),
    };
    refused(file.append(particles, &[1.0; 4]), "no whole number of rows");
    refused(file.append(particles, &[1u8; 3]), "u8");
    refused(
        file.append(fixed, &[1.0]),
        "the first dimension is unlimited",
    );
    assert!(matches!(file.flush(), Err(Error::Refused { .. })));
    Ok(())
}

/// A rank appends to a dataset that the others have not defined. It gets an error, and so do they. No rank waits.
fn differ(file: &mut Writer, world: &SimpleCommunicator) -> Result {
    let spec = || DatasetSpec::new::<u8>(&[0]).unlimited(0);
    let early = match world.rank() {
        1 => Some(file.dataset("/late", spec())?),
        _ => None,
    };
    if let Some(early) = early {
        file.append(early, &[1u8, 2, 3])?;
    }
    assert!(matches!(file.flush(), Err(Error::Failed { .. })));
    let late = match early {
        Some(early) => early,
        None => file.dataset("/late", spec())?,
    };
    if world.rank() == 0 {
        file.append(late, &[9u8])?;
    }
    Ok(file.flush()?)
}
