//! Starts `client.py` and talks to it.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::generate::Dataset;

/// One block of one dataset.
#[derive(Debug, Clone, Serialize)]
pub struct Read {
    pub dataset: String,
    #[serde(rename = "type")]
    pub element: String,
    pub start: Vec<u64>,
    pub count: Vec<u64>,
}

impl Read {
    pub fn block(dataset: &Dataset, start: &[u64], count: &[u64]) -> Result<Self> {
        Ok(Read {
            dataset: dataset.name.clone(),
            element: serde_json::from_value(serde_json::to_value(dataset.element)?)?,
            start: start.to_vec(),
            count: count.to_vec(),
        })
    }

    pub fn whole(dataset: &Dataset) -> Result<Self> {
        Read::block(dataset, &vec![0; dataset.dims.len()], &dataset.dims)
    }
}

/// A dataset as a reader sees it.
#[derive(Debug, Clone, Deserialize)]
pub struct Described {
    pub dataset: String,
    #[serde(rename = "type")]
    pub element: String,
    pub count: Vec<u64>,
}

impl Described {
    pub fn read(&self, start: &[u64], count: &[u64]) -> Read {
        Read {
            dataset: self.dataset.clone(),
            element: self.element.clone(),
            start: start.to_vec(),
            count: count.to_vec(),
        }
    }

    pub fn whole(&self) -> Read {
        self.read(&vec![0; self.count.len()], &self.count)
    }
}

/// Times in seconds. `begun` and `ended` are times of the clock that all processes share.
#[derive(Debug, Clone, Deserialize)]
pub struct Timed {
    pub begun: f64,
    pub ended: f64,
    /// Seconds to open the file.
    pub open: f64,
    pub each: Vec<f64>,
    /// First element of the first read.
    pub first: Vec<f64>,
}

impl Timed {
    /// Seconds from before the opening of the file to the end of the last read.
    pub fn seconds(&self) -> f64 {
        self.ended - self.begun
    }
}

/// How clients open files.
#[derive(Debug, Clone)]
pub enum Way {
    /// By their paths.
    Path,
    /// Logs by their own paths, with the file driver.
    Driver {
        /// The directory with the driver.
        plugins: PathBuf,
        /// The program that scans for it.
        program: PathBuf,
        options: String,
    },
    /// As file objects, with the Python package.
    FileObject { options: String },
    /// As arrays of numpy: by the Python package with this number of threads (0: one on each core), or by the library
    /// of this name.
    Arrays {
        options: String,
        reader: &'static str,
    },
}

impl Way {
    fn set_up(&self, command: &mut Command) {
        match self {
            Way::Path => {}
            Way::Driver {
                plugins,
                program,
                options,
            } => {
                command.env("HDF5_DRIVER", "h5logfs");
                command.env("HDF5_DRIVER_CONFIG", options);
                command.env("HDF5_PLUGIN_PATH", plugins);
                command.env("H5LOGFS_PROGRAM", program);
            }
            Way::FileObject { options } => {
                command.arg(options);
            }
            Way::Arrays { options, reader } => {
                command.args([options, *reader]);
            }
        }
    }
}

/// A Python process that reads.
#[derive(Debug)]
pub struct Client {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Whether the answer to the last request is outstanding.
    busy: bool,
}

impl Client {
    /// A client that is ready to read.
    fn start(python: &Path, way: &Way) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/reading/client.py");
        let mut command = Command::new(python);
        command.arg(script);
        for other in [
            "PYTHONPATH",
            "PYTHONHOME",
            "HDF5_DRIVER",
            "HDF5_DRIVER_CONFIG",
            "HDF5_PLUGIN_PATH",
        ] {
            command.env_remove(other);
        }
        way.set_up(&mut command);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", python.display()))?;
        let requests = process.stdin.take().context("no way to ask the client")?;
        let answers = process.stdout.take().context("no way to hear the client")?;
        let mut client = Client {
            process,
            requests,
            answers: BufReader::new(answers),
            busy: false,
        };
        client.versions()?;
        Ok(client)
    }

    pub fn time(&mut self, path: &Path, reads: &[Read]) -> Result<Timed> {
        self.ask(&json!({"do": "time", "path": path, "reads": reads}))
    }

    /// Times the reads as [`Client::time`] does. The opening includes a request for the names of all datasets.
    pub fn time_with_names(&mut self, path: &Path, reads: &[Read]) -> Result<Timed> {
        self.ask(&json!({"do": "time", "path": path, "reads": reads, "names": true}))
    }

    /// Starts the reads at a time of the shared clock. `fetch` returns the answer.
    pub fn time_from(&mut self, begin: f64, path: &Path, reads: &[Read]) -> Result<()> {
        self.send(&json!({"do": "time", "path": path, "reads": reads, "begin": begin}))
    }

    pub fn fetch<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        ensure!(
            !line.is_empty(),
            "the client has ended; it is a Python with h5py and numpy"
        );
        self.busy = false;
        let answer: Value = serde_json::from_str(&line)?;
        if let Some(error) = answer.get("error") {
            bail!("the client: {error}");
        }
        Ok(serde_json::from_value(answer)?)
    }

    pub fn describe(&mut self, path: &Path) -> Result<Vec<Described>> {
        #[derive(Deserialize)]
        struct Answer {
            datasets: Vec<Described>,
        }
        let answer: Answer = self.ask(&json!({"do": "describe", "path": path}))?;
        Ok(answer.datasets)
    }

    /// Digests of the contents of all datasets.
    pub fn digests(&mut self, path: &Path) -> Result<Value> {
        self.ask(&json!({"do": "digest", "path": path}))
    }

    /// Describes each dataset that does not hold the generated values.
    pub fn check(&mut self, path: &Path, datasets: &[Dataset], seed: u64) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Answer {
            wrong: Vec<String>,
        }
        let wanted = |d: &Dataset| {
            let values = d.values(seed);
            json!({"dataset": d.name, "pattern": values.pattern, "key": values.key()})
        };
        let wanted: Vec<Value> = datasets.iter().map(wanted).collect();
        let answer: Answer = self.ask(&json!({"do": "check", "path": path, "datasets": wanted}))?;
        Ok(answer.wrong)
    }

    /// Versions of h5py and libhdf5.
    pub fn versions(&mut self) -> Result<String> {
        #[derive(Deserialize)]
        struct Answer {
            versions: String,
        }
        let answer: Answer = self.ask(&json!({"do": "versions"}))?;
        Ok(answer.versions)
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &Value) -> Result<T> {
        self.send(request)?;
        self.fetch()
    }

    fn send(&mut self, request: &Value) -> Result<()> {
        self.busy = true;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.requests.write_all(&line)?;
        Ok(self.requests.flush()?)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The process may be waiting for a mount that does not answer.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Clients that open files in the same way. Idle clients are kept, because starting one takes longer than most
/// requests.
#[derive(Debug)]
pub struct Clients {
    python: PathBuf,
    way: Way,
    idle: RefCell<Vec<Client>>,
}

impl Clients {
    pub fn new(python: PathBuf, way: Way) -> Self {
        Clients {
            python,
            way,
            idle: RefCell::new(Vec::new()),
        }
    }

    /// New clients with the same interpreter, and another way to open files.
    pub fn with_way(&self, way: Way) -> Self {
        Clients::new(self.python.clone(), way)
    }

    /// The interpreter.
    pub fn python(&self) -> &Path {
        &self.python
    }

    pub fn with<T>(&self, work: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
        let mut client = self.take()?;
        let outcome = work(&mut client);
        self.give_back(client);
        outcome
    }

    pub fn take(&self) -> Result<Client> {
        let idle = self.idle.borrow_mut().pop();
        idle.map_or_else(|| Client::start(&self.python, &self.way), Ok)
    }

    /// Keeps the client for later use, unless it still owes an answer.
    pub fn give_back(&self, client: Client) {
        if !client.busy {
            self.idle.borrow_mut().push(client);
        }
    }
}
