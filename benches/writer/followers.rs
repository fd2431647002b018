//! The flushes of a job whose log others follow.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use h5logfs_writer::{DatasetSpec, Fsync, Options, Selection, Writer};

use super::report::{FollowersRow, Spread};
use super::{Bench, Result};

const FOLLOWERS: [usize; 3] = [0, 1, 32];
/// Elements of each rank in a flush: 1 MiB.
const ROW: u64 = (1 << 20) / 8;
const FLUSHES: u64 = 40;
/// Time between two flushes, for the computation of a job.
const STEP: Duration = Duration::from_millis(50);

/// Processes that follow a log. They end on drop.
struct Followers(Vec<Child>);

impl Followers {
    fn start(program: &Path, log: &Path, number: usize) -> Result<Self> {
        let mut followers = Followers(Vec::new());
        for _ in 0..number {
            let mut command = Command::new(program);
            let command = command.args(["follow", "--json"]).arg(log);
            followers.0.push(command.stdout(Stdio::null()).spawn()?);
        }
        Ok(followers)
    }
}

impl Drop for Followers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn measure(bench: &Bench) -> Result<Vec<FollowersRow>> {
    let program = program()?;
    let mut times = vec![Vec::new(); FOLLOWERS.len()];
    bench.in_rounds(FOLLOWERS.len(), |round, who| {
        let found = job(bench, &program, FOLLOWERS[who])?;
        if round.is_some() {
            times[who].extend(found);
        }
        Ok(())
    })?;
    let none = Spread::of(times[0].iter().copied()).median;
    let row = |(followers, times): (&usize, &Vec<f64>)| {
        let flush = Spread::of(times.iter().copied());
        FollowersRow {
            followers: *followers,
            flush,
            time_to_none: flush.median / none,
        }
    };
    Ok(FOLLOWERS.iter().zip(&times).map(row).collect())
}

/// The program that follows. Cargo builds it together with this example.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let built = own
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("."));
    let program = built.join("h5logfs");
    if !program.exists() {
        return Err(format!("{} is not there: build it, too", program.display()).into());
    }
    Ok(program)
}

/// Seconds of each flush of a job. A flush lasts from the start of the first rank to the end of the last rank.
fn job(bench: &Bench, program: &Path, followers: usize) -> Result<Vec<f64>> {
    let options = Options {
        fsync: Fsync::None,
        ..Options::default()
    };
    let log = bench.dir.join("followed.h5");
    let mut writer = Writer::create(&log, &bench.world, options)?;
    let ranks = bench.ranks();
    let rows = DatasetSpec::new::<f64>(&[0, ranks, ROW]).max_dims(&[None, Some(ranks), Some(ROW)]);
    let field = writer.dataset("/field", rows)?;
    writer.flush()?;
    let own = if bench.is_root() { followers } else { 0 };
    let _followers = Followers::start(program, &log, own)?;
    let values = vec![1.0; ROW as usize];
    let mut times = Vec::new();
    for step in 0..FLUSHES {
        std::thread::sleep(STEP);
        writer.extend(field, &[step + 1, ranks, ROW])?;
        let (start, count) = ([step, bench.rank(), 0], [1, 1, ROW]);
        writer.write(field, Selection::block(&start, &count), &values)?;
        let (seconds, ()) = bench.timed(|| Ok(writer.flush()?))?;
        times.push(seconds);
    }
    writer.close()?;
    bench.remove("followed.h5")?;
    Ok(times)
}
