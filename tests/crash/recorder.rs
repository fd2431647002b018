//! A file system in memory that records the operations of programs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use super::common::served::{Answer, Attributes, Found, Place, ROOT, Refusal, Served, ServedMount};
use super::history::{Disk, History, Operation};

/// Lines written to this file become part of the history.
pub const SAID: &str = ".said";
const SAID_NUMBER: u64 = 2;

/// The file system, mounted until it is dropped.
pub struct Recorder {
    state: Arc<Mutex<State>>,
    mount: ServedMount,
}

struct State {
    disk: Disk,
    history: History,
    known: BTreeMap<u64, Known>,
    /// Requests that could have failed.
    asked: usize,
    failing: Option<Failing>,
}

/// Requests that fail, of those that open or change files.
#[derive(Debug, Clone)]
pub struct Failing {
    /// Counted from the first request to the file system.
    pub requests: Range<usize>,
    pub with: Refusal,
}

/// Further attributes of a file.
struct Known {
    mode: u16,
    owner: (u32, u32),
    modified: SystemTime,
}

impl Recorder {
    pub fn new() -> Self {
        let mut state = State {
            disk: Disk::default(),
            history: History::default(),
            known: BTreeMap::new(),
            asked: 0,
            failing: None,
        };
        let owner = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        state.know(ROOT, 0o755, owner);
        state.know(SAID_NUMBER, 0o644, owner);
        let state = Arc::new(Mutex::new(state));
        Recorder {
            mount: ServedMount::new(Requests(Arc::clone(&state))),
            state,
        }
    }

    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Adds a line to the history, as programs do.
    pub fn say(&self, line: impl Into<String>) {
        let said = Operation::Say(line.into());
        self.state.lock().unwrap().history.0.push(said);
    }

    /// Number of requests that could have failed.
    pub fn asked(&self) -> usize {
        self.state.lock().unwrap().asked
    }

    /// Lets requests fail, or none any more.
    pub fn fail(&self, failing: Option<Failing>) {
        self.state.lock().unwrap().failing = failing;
    }

    /// The history so far.
    pub fn history(&self) -> History {
        self.state.lock().unwrap().history.clone()
    }
}

struct Requests(Arc<Mutex<State>>);

impl Requests {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

fn owned((directory, name): Place<'_>) -> super::history::Place {
    (directory, name.to_vec())
}

impl State {
    fn know(&mut self, inode: u64, mode: u16, owner: (u32, u32)) {
        let modified = SystemTime::now();
        let known = Known {
            mode,
            owner,
            modified,
        };
        self.known.insert(inode, known);
    }

    fn place(&self, (directory, name): Place<'_>) -> Option<u64> {
        if directory == ROOT && name == SAID.as_bytes() {
            return Some(SAID_NUMBER);
        }
        self.disk.directories.get(&directory)?.get(name).copied()
    }

    /// Counts a request, and fails where it is to.
    fn admit(&mut self) -> Answer<()> {
        let number = self.asked;
        self.asked += 1;
        match &self.failing {
            Some(failing) if failing.requests.contains(&number) => Err(failing.with),
            _ => Ok(()),
        }
    }

    fn done(&mut self, operation: Operation) {
        self.disk.follow(&operation);
        self.history.0.push(operation);
    }

    fn changed(&mut self, inode: u64) {
        if let Some(known) = self.known.get_mut(&inode) {
            known.modified = SystemTime::now();
        }
    }

    fn file(&self, inode: u64) -> Answer<&Vec<u8>> {
        self.disk.files.get(&inode).ok_or(Refusal::NoEntry)
    }

    /// Fails where a directory has files.
    fn check_empty(&self, inode: u64) -> Answer<()> {
        match self.disk.directories.get(&inode) {
            Some(names) if !names.is_empty() => Err(Refusal::NotEmpty),
            _ => Ok(()),
        }
    }
}

impl Served for Requests {
    fn find(&self, inode: u64) -> Answer<Found> {
        let state = self.state();
        let known = state.known.get(&inode).ok_or(Refusal::NoEntry)?;
        let disk = &state.disk;
        let names = disk.directories.values().flatten();
        let links = names.filter(|(_, to)| **to == inode).count();
        Ok(Found {
            inode,
            is_directory: disk.directories.contains_key(&inode),
            mode: known.mode,
            owner: known.owner,
            // A deleted file that is still open has no links.
            links: links as u32,
            attributes: Attributes {
                size: disk.files.get(&inode).map_or(0, |file| file.len() as u64),
                modified: known.modified,
            },
        })
    }

    fn look_up(&self, place: Place<'_>) -> Answer<u64> {
        self.state().place(place).ok_or(Refusal::NoEntry)
    }

    fn names(&self, directory: u64) -> Vec<(u64, Vec<u8>)> {
        let state = self.state();
        let names = state.disk.directories.get(&directory).into_iter().flatten();
        names.map(|(name, inode)| (*inode, name.clone())).collect()
    }

    fn create(
        &self,
        place: Place<'_>,
        is_directory: bool,
        mode: u16,
        owner: (u32, u32),
    ) -> Answer<u64> {
        let mut state = self.state();
        state.admit()?;
        if state.place(place).is_some() {
            return Err(Refusal::Exists);
        }
        let last = state.known.last_key_value();
        let inode = last.map_or(SAID_NUMBER, |(last, _)| *last) + 1;
        state.know(inode, mode, owner);
        let place = owned(place);
        state.done(Operation::Create {
            inode,
            is_directory,
            place,
        });
        Ok(inode)
    }

    fn link(&self, inode: u64, place: Place<'_>) -> Answer<()> {
        let mut state = self.state();
        state.admit()?;
        if state.place(place).is_some() {
            return Err(Refusal::Exists);
        }
        let place = owned(place);
        state.done(Operation::Link { inode, place });
        Ok(())
    }

    fn remove(&self, place: Place<'_>) -> Answer<()> {
        let mut state = self.state();
        state.admit()?;
        let inode = state.place(place).ok_or(Refusal::NoEntry)?;
        state.check_empty(inode)?;
        let place = owned(place);
        state.done(Operation::Remove { place });
        Ok(())
    }

    fn rename(&self, from: Place<'_>, to: Place<'_>, replaces: bool) -> Answer<()> {
        let mut state = self.state();
        state.admit()?;
        let inode = state.place(from).ok_or(Refusal::NoEntry)?;
        match state.place(to) {
            Some(_) if !replaces => return Err(Refusal::Exists),
            // As in POSIX, two names of one file both stay.
            Some(there) if there == inode => return Ok(()),
            Some(there) => state.check_empty(there)?,
            None => {}
        }
        let (from, to) = (owned(from), owned(to));
        state.done(Operation::Rename { inode, from, to });
        Ok(())
    }

    fn open(&self, inode: u64) -> Answer<u64> {
        let mut state = self.state();
        if inode != SAID_NUMBER {
            state.admit()?;
        }
        let is_known = state.known.contains_key(&inode);
        is_known.then_some(0).ok_or(Refusal::NoEntry)
    }

    fn read(&self, inode: u64, _: u64, offset: u64, len: u64) -> Answer<Vec<u8>> {
        let state = self.state();
        let file = state.file(inode)?;
        let from = file.len().min(offset as usize);
        let to = file.len().min(offset.saturating_add(len) as usize);
        Ok(file[from..to].to_vec())
    }

    fn write(&self, inode: u64, _: u64, offset: u64, data: &[u8]) -> Answer<()> {
        let mut state = self.state();
        if inode == SAID_NUMBER {
            let said = String::from_utf8_lossy(data);
            let lines = said.lines().map(|line| Operation::Say(line.to_owned()));
            state.history.0.extend(lines);
            return Ok(());
        }
        state.admit()?;
        state.file(inode)?;
        state.changed(inode);
        let data = data.to_vec();
        state.done(Operation::Write {
            inode,
            offset,
            data,
        });
        Ok(())
    }

    fn set_len(&self, inode: u64, len: u64) -> Answer<()> {
        let mut state = self.state();
        if inode == SAID_NUMBER {
            return Ok(());
        }
        state.admit()?;
        state.file(inode)?;
        state.changed(inode);
        state.done(Operation::Resize { inode, len });
        Ok(())
    }

    fn set_mode(&self, inode: u64, mode: u16) -> Answer<()> {
        let mut state = self.state();
        let known = state.known.get_mut(&inode).ok_or(Refusal::NoEntry)?;
        known.mode = mode;
        Ok(())
    }

    fn sync(&self, inode: u64, _: u64) -> Answer<()> {
        let mut state = self.state();
        state.admit()?;
        state.done(Operation::Sync { inode });
        Ok(())
    }

    fn sync_directory(&self, directory: u64) -> Answer<()> {
        self.sync(directory, 0)
    }
}
