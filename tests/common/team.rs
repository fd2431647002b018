//! Ranks that are threads of this process. Each may see the files of the log on another node.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};

use h5logfs_output::ranks::{Communicator, Node};

/// State shared by the ranks of a communicator.
struct Team {
    size: u32,
    barrier: Barrier,
    given: Mutex<HashMap<u32, Vec<u64>>>,
    /// Communicators made by a split, by color.
    parts: Mutex<HashMap<u32, Arc<Team>>>,
}

impl Team {
    fn new(size: u32) -> Arc<Self> {
        Arc::new(Team {
            size,
            barrier: Barrier::new(size as usize),
            given: Mutex::default(),
            parts: Mutex::default(),
        })
    }
}

/// A rank.
pub struct Member {
    team: Arc<Team>,
    rank: u32,
    node: u32,
}

/// The ranks of a job, each on its own node.
pub fn team(size: u32) -> Vec<Member> {
    let team = Team::new(size);
    let member = |rank| Member {
        team: Arc::clone(&team),
        rank,
        node: rank,
    };
    (0..size).map(member).collect()
}

impl Member {
    /// The values of all ranks, in order.
    fn exchange(&self, values: &[u64]) -> Vec<Vec<u64>> {
        let Team { given, barrier, .. } = &*self.team;
        given.lock().unwrap().insert(self.rank, values.to_vec());
        barrier.wait();
        let all = {
            let given = given.lock().unwrap();
            (0..self.team.size)
                .map(|rank| given[&rank].clone())
                .collect()
        };
        barrier.wait();
        all
    }
}

impl Communicator for Member {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.team.size
    }

    fn split(&self, color: u32) -> Box<dyn Communicator> {
        let colors = self.exchange(&[color.into()]);
        let same = |rank: &u32| colors[*rank as usize] == [u64::from(color)];
        let members: Vec<u32> = (0..self.team.size).filter(same).collect();
        let place = members.iter().position(|rank| *rank == self.rank).unwrap() as u32;
        let size = members.len() as u32;
        let part = {
            let mut parts = self.team.parts.lock().unwrap();
            Arc::clone(parts.entry(color).or_insert_with(|| Team::new(size)))
        };
        self.wait();
        self.team.parts.lock().unwrap().clear();
        self.wait();
        Box::new(Member {
            team: part,
            rank: place,
            node: self.node,
        })
    }

    fn node(&self) -> Node {
        let all = self.exchange(&[self.node.into()]);
        let mut nodes: Vec<u64> = Vec::new();
        for node in all.iter().map(|given| given[0]) {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        let own = nodes.iter().position(|node| *node == u64::from(self.node));
        Node {
            number: own.unwrap() as u32,
            of: nodes.len() as u32,
        }
    }

    fn sums_before(&self, values: &[u64]) -> Vec<u64> {
        let all = self.exchange(values);
        let lower = &all[..self.rank as usize];
        let sum = |at: usize| {
            lower
                .iter()
                .fold(0u64, |sum, given| sum.wrapping_add(given[at]))
        };
        (0..values.len()).map(sum).collect()
    }

    fn minima(&self, values: &[u64]) -> Vec<u64> {
        let all = self.exchange(values);
        let least = |at: usize| all.iter().map(|given| given[at]).min().unwrap();
        (0..values.len()).map(least).collect()
    }

    fn gather_bytes(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let bytes: Vec<u64> = bytes.iter().map(|byte| u64::from(*byte)).collect();
        let all = self.exchange(&bytes);
        if self.rank > 0 {
            return Vec::new();
        }
        let given = all.into_iter();
        given
            .map(|bytes| bytes.into_iter().map(|byte| byte as u8).collect())
            .collect()
    }

    fn broadcast(&self, from: u32, value: &mut [u8]) {
        let bytes: Vec<u64> = value.iter().map(|byte| u64::from(*byte)).collect();
        let all = self.exchange(&bytes);
        let sent = all[from as usize].iter();
        value
            .iter_mut()
            .zip(sent)
            .for_each(|(to, byte)| *to = *byte as u8);
    }
}
