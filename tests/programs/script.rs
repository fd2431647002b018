//! A program of the writer that does what its arguments say, one after the other.
//!
//! ```text
//! writer-script FILE STEP…
//! ```
//!
//! An underscore in a word stands for a space, but not in the name of a FILE.
//!
//! | step | what it does |
//! |---|---|
//! | `create`, `open` | the file |
//! | `group PATH` | a group |
//! | `new PATH` | a dataset of 0 x 4 `f64`, whose rows grow |
//! | `list PATH` | a dataset of 0 `f64`, which grows |
//! | `rows PATH NUMBER` | a row of each dataset PATH0, PATH1, …, with the value of its number |
//! | `row PATH VALUE` | one more row of a dataset of `f64`: VALUE, VALUE + 1, …, each rank a share of it |
//! | `append PATH VALUE` | the same by [`Writer::append`], one row of the first rank |
//! | `text PATH NAME VALUE` | an attribute |
//! | `scale PATH NAME`, `attach PATH DIMENSION SCALE`, `label PATH DIMENSION TEXT` | of dimensions |
//! | `refused PATH WORDS` | fails unless the elements of a dataset cannot be written, for a reason with these words |
//! | `flush`, `close` | the file |
//! | `kill` | the process kills itself |
//! | `wait FILE` | waits until there is such a file |

use std::path::Path;
use std::time::Duration;

use h5logfs_writer::{DatasetSpec, Options, Selection, Writer};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() {
    // Otherwise a failing rank would wait for the others in MPI_Finalize.
    std::panic::set_hook(Box::new(|why| {
        eprintln!("{why}");
        std::process::exit(1);
    }));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, steps) = arguments.split_first().expect("writer-script FILE STEP…");
    let universe = mpi::initialize().unwrap();
    let world = universe.world();
    let mut file = None;
    for step in steps {
        let words = step.split(' ');
        let words: Vec<String> = if step.starts_with("wait ") {
            words.map(str::to_owned).collect()
        } else {
            words.map(|word| word.replace('_', " ")).collect()
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let done = begin_or_do(&mut file, path, &world, &words);
        done.unwrap_or_else(|e| panic!("{step}: {e}"));
    }
}

fn begin_or_do(
    file: &mut Option<Writer>,
    path: &str,
    world: &SimpleCommunicator,
    words: &[&str],
) -> Result {
    match words {
        ["create"] => *file = Some(Writer::create(path, world, Options::default())?),
        ["open"] => *file = Some(Writer::open(path, world, Options::default())?),
        ["kill"] => {
            world.barrier();
            // SAFETY: it ends this process.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        ["wait", other] => {
            while !Path::new(other).exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        words => step(file.as_mut().ok_or("no file")?, world, words)?,
    }
    Ok(())
}

fn step(file: &mut Writer, world: &SimpleCommunicator, words: &[&str]) -> Result {
    match words {
        ["group", path] => file.group(path)?,
        ["new", path] => {
            let spec = DatasetSpec::new::<f64>(&[0, 4]).unlimited(0);
            file.dataset(path, spec)?;
        }
        ["list", path] => {
            file.dataset(path, DatasetSpec::new::<f64>(&[0]).unlimited(0))?;
        }
        ["rows", path, count] => {
            for number in 0..count.parse()? {
                row(file, world, &format!("{path}{number}"), f64::from(number))?;
            }
        }
        ["row", path, value] => row(file, world, path, value.parse()?)?,
        ["append", path, value] => {
            let dataset = file.open_dataset::<f64>(path)?;
            let columns = file.dims(dataset)?.get(1).copied().unwrap_or(1);
            if world.rank() == 0 {
                file.append(dataset, &numbers(value.parse()?, 0..columns))?;
            }
        }
        ["text", path, name, value] => file.attribute(path, name, *value)?,
        ["scale", path, name] => {
            let dataset = file.open_dataset::<f64>(path)?;
            file.make_scale(dataset, name)?;
        }
        ["attach", path, dimension, scale] => {
            let dataset = file.open_dataset::<f64>(path)?;
            let scale = file.open_dataset::<f64>(scale)?;
            file.attach_scale(dataset, dimension.parse()?, scale)?;
        }
        ["label", path, dimension, label] => {
            let dataset = file.open_dataset::<f64>(path)?;
            file.set_label(dataset, dimension.parse()?, label)?;
        }
        ["refused", path, rest @ ..] => {
            let refused = file.open_dataset::<f64>(path).err();
            let refused = refused.ok_or("it was not refused")?.to_string();
            if !refused.contains(&rest.join(" ")) {
                return Err(refused.into());
            }
        }
        ["flush"] => file.flush()?,
        ["close"] => file.close()?,
        other => return Err(format!("no step {other:?}").into()),
    }
    Ok(())
}

fn numbers(first: f64, columns: std::ops::Range<u64>) -> Vec<f64> {
    columns.map(|column| first + column as f64).collect()
}

/// Adds a row, of which each rank writes a share.
fn row(file: &mut Writer, world: &SimpleCommunicator, path: &str, value: f64) -> Result {
    let dataset = file.open_dataset::<f64>(path)?;
    let mut dims = file.dims(dataset)?.to_vec();
    let (at, columns) = (dims[0], dims.get(1).copied());
    dims[0] += 1;
    file.extend(dataset, &dims)?;
    let (rank, ranks) = (world.rank() as u64, world.size() as u64);
    let all = columns.unwrap_or(1);
    let (from, to) = (all * rank / ranks, all * (rank + 1) / ranks);
    if from == to {
        return Ok(());
    }
    let data = numbers(value, from..to);
    let (start, count) = match columns {
        Some(_) => (vec![at, from], vec![1, to - from]),
        None => (vec![at], vec![1]),
    };
    let selection = Selection::block(&start, &count);
    Ok(file.write(dataset, selection, &data)?)
}
