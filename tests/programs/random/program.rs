//! A program: the definitions of all ranks, the writes of each, and the flushes.

use std::collections::{HashMap, HashSet};

use h5logfs_writer::{Datatype, Value, elements_value};
use serde::{Serialize, Serializer};

use crate::element::{Bytes, Element, draw_elements};
use crate::region::Region;
use crate::rng::Random;

#[derive(Debug, Serialize)]
pub struct Program {
    pub seed: u64,
    pub ranks: u32,
    /// Number of subfiles; 0 if the log lies in the file itself.
    pub subfiles: u32,
    pub share: bool,
    pub encode: bool,
    /// Otherwise the last round is not flushed, and the file stays open.
    pub closed: bool,
    pub rounds: Vec<Round>,
}

/// The work between two flushes. The first step may be [`Step::Reopen`].
#[derive(Debug, Serialize)]
pub struct Round {
    pub steps: Vec<Step>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    Group {
        path: String,
    },
    Dataset(Box<NewDataset>),
    Attribute {
        object: String,
        name: String,
        value: Content,
    },
    Extend {
        dataset: usize,
        dims: Vec<u64>,
    },
    /// The file is left, closed or not, and reopened by the first `ranks` ranks.
    Reopen {
        ranks: u32,
        closed: bool,
    },
    /// Writes by rank.
    Writes(Vec<Writes>),
    /// Appends by rank.
    Appends(Vec<Appends>),
}

#[derive(Debug, Serialize)]
pub struct Appends {
    /// Lent to the writer, not copied.
    pub batch: bool,
    pub list: Vec<Append>,
}

/// Rows appended to a dataset.
#[derive(Debug, Serialize)]
pub struct Append {
    pub dataset: usize,
    /// Extent of the rows.
    pub dims: Vec<u64>,
    pub data: Bytes,
}

#[derive(Debug, Clone, Serialize)]
pub struct NewDataset {
    pub path: String,
    #[serde(serialize_with = "as_datatype")]
    pub element: Element,
    pub dims: Vec<u64>,
    /// `None`: unlimited.
    pub max_dims: Vec<Option<u64>>,
    pub chunk: Option<Vec<u64>>,
    pub shuffle: bool,
    pub deflate: Option<u32>,
    pub fletcher32: bool,
    pub fill: Option<Bytes>,
}

fn as_datatype<S: Serializer>(element: &Element, to: S) -> Result<S::Ok, S::Error> {
    element.datatype().serialize(to)
}

/// The value of an attribute.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    Elements {
        datatype: Datatype,
        dims: Vec<u64>,
        data: Bytes,
        #[serde(skip)]
        value: Value,
    },
    Text(String),
    Texts(Vec<String>),
}

#[derive(Debug, Serialize)]
pub struct Writes {
    /// Lent to the writer, not copied.
    pub batch: bool,
    pub list: Vec<Write>,
}

#[derive(Debug, Serialize)]
pub struct Write {
    pub dataset: usize,
    pub region: Region,
    pub data: Bytes,
}

/// Limit of the elements of a new dataset, and of the bytes of a write.
const MOST_ELEMENTS: u64 = 4000;
const MOST_BYTES: u64 = 64 << 10;

impl Program {
    /// Draws a program for `ranks` ranks.
    pub fn draw(seed: u64, ranks: u32) -> Self {
        let mut random = Random::new(seed.wrapping_mul(64) + u64::from(ranks));
        let subfiles = if random.percent(35) {
            random.between(1, u64::from(ranks)) as u32
        } else {
            0
        };
        let (share, encode) = (random.percent(75), random.percent(75));
        let closed = random.percent(55);
        let rounds = random.below(6) + u64::from(!closed);
        let mut drawing = Drawing {
            random,
            ranks,
            writers: ranks,
            subfiles,
            paths: vec!["/".into()],
            names: HashSet::new(),
            datasets: Vec::new(),
            owners: HashMap::new(),
            earlier: vec![Vec::new(); ranks as usize],
        };
        let rounds = (0..rounds).map(|number| drawing.round(number)).collect();
        Program {
            seed,
            ranks,
            subfiles,
            share,
            encode,
            closed,
            rounds,
        }
    }
}

struct Drawing {
    random: Random,
    ranks: u32,
    /// Number of ranks that have the file open.
    writers: u32,
    subfiles: u32,
    /// Objects that can have attributes.
    paths: Vec<String>,
    /// Paths, and attributes after an `@`.
    names: HashSet<String>,
    /// Datasets with their present extents.
    datasets: Vec<NewDataset>,
    /// The subfile that each element of a subfiled log belongs to. The layout defines no order among writes of
    /// several subfiles.
    owners: HashMap<(usize, Vec<u64>), u32>,
    /// Regions that each rank wrote: programs repeat themselves.
    earlier: Vec<Vec<Region>>,
}

impl Drawing {
    fn round(&mut self, round: u64) -> Round {
        let reopened = round > 0 && self.random.percent(30);
        let reopened = reopened.then(|| self.reopen());
        let number = if self.random.percent(10) {
            0
        } else {
            self.random.between(2, 10)
        };
        let mut steps = vec![reopened];
        if self.datasets.is_empty() {
            for _ in 0..self.random.between(1, 4) {
                steps.push(self.dataset());
            }
        }
        for _ in 0..number {
            let step = match self.random.below(20) {
                0 | 1 => self.group(),
                2..=4 => self.dataset(),
                5..=7 => self.attribute(),
                8..=10 => self.extend(),
                11..=13 => Some(self.appends()),
                _ => Some(self.writes()),
            };
            steps.push(step);
        }
        let steps: Vec<Step> = steps.into_iter().flatten().collect();
        self.place_rows(&steps);
        Round { steps }
    }

    fn reopen(&mut self) -> Step {
        self.writers = self.random.between(1, u64::from(self.ranks)) as u32;
        Step::Reopen {
            ranks: self.writers,
            closed: self.random.percent(60),
        }
    }

    fn appends(&mut self) -> Step {
        let ranks = 0..self.ranks;
        Step::Appends(ranks.map(|rank| self.appends_of_rank(rank)).collect())
    }

    fn appends_of_rank(&mut self, rank: u32) -> Appends {
        let number = if rank < self.writers {
            self.random.below(4)
        } else {
            0
        };
        Appends {
            batch: self.random.percent(35),
            list: (0..number).filter_map(|_| self.append()).collect(),
        }
    }

    /// Some rows, perhaps none, for a dataset that takes them.
    fn append(&mut self) -> Option<Append> {
        let number = self.random.below(self.datasets.len() as u64) as usize;
        let dataset = self.datasets.get(number)?;
        let mut dims = dataset.dims.clone();
        let takes_rows = dataset.max_dims.first() == Some(&None) && !dims[1..].contains(&0);
        if !takes_rows {
            return None;
        }
        let datatype = dataset.element.datatype();
        dims[0] = self.random.below(5);
        let count = dims.iter().product::<u64>();
        if count * u64::from(datatype.size()) > MOST_BYTES {
            return None;
        }
        Some(Append {
            dataset: number,
            data: draw_elements(&datatype, count, 3, &mut self.random),
            dims,
        })
    }

    /// The effect of the flush: rows get their places after the extents of the round's end.
    fn place_rows(&mut self, steps: &[Step]) {
        for rank in 0..self.ranks {
            let steps = steps.iter().filter_map(|step| match step {
                Step::Appends(appends) => Some(&appends[rank as usize].list),
                _ => None,
            });
            for append in steps.flatten() {
                let mut start = vec![0; append.dims.len()];
                start[0] = self.datasets[append.dataset].dims[0];
                self.datasets[append.dataset].dims[0] += append.dims[0];
                let count = append.dims.clone();
                let region = Region::Block { start, count };
                let is_new = self.own(append.dataset, rank, &region);
                assert!(is_new, "no rank has written rows that did not exist");
            }
        }
    }

    /// A free path, mostly in an existing group.
    fn path(&mut self) -> Option<String> {
        const NAMES: &[&str] = &[
            "a",
            "b",
            "temperature",
            "_private",
            "__twice",
            "_LOG",
            "_ID",
            "données",
            "温度",
            "two words",
            "x.y",
            "...",
            "quote\"d",
            "_int_att",
        ];
        let mut path = String::new();
        let groups: Vec<&String> = self.paths.iter().filter(|p| self.is_group(p)).collect();
        if self.random.percent(60) {
            let parent = self.random.pick(&groups).as_str();
            path.push_str(parent.trim_end_matches('/'));
        }
        for _ in 0..self.random.between(1, 2) {
            path.push('/');
            let name = *self.random.pick(NAMES);
            path.push_str(name);
            if self.random.percent(30) {
                path.push_str(&self.random.below(100).to_string());
            }
            if self.random.percent(2) {
                path.push_str(&"long ".repeat(180));
            }
        }
        self.claim(&path).then_some(path)
    }

    fn is_group(&self, path: &str) -> bool {
        self.datasets.iter().all(|d| d.path != path)
    }

    /// Claims a path and its missing parent groups, unless something is in the way.
    fn claim(&mut self, path: &str) -> bool {
        let parents = path.match_indices('/').skip(1).map(|(end, _)| &path[..end]);
        let parents: Vec<String> = parents.map(str::to_owned).collect();
        if self.names.contains(path) || parents.iter().any(|p| !self.is_group(p)) {
            return false;
        }
        for object in parents.into_iter().chain([path.to_owned()]) {
            if self.names.insert(object.clone()) {
                self.paths.push(object);
            }
        }
        true
    }

    fn group(&mut self) -> Option<Step> {
        self.path().map(|path| Step::Group { path })
    }

    fn dataset(&mut self) -> Option<Step> {
        let path = self.path()?;
        let random = &mut self.random;
        let element = Element::draw(random);
        let rank = *random.pick(&[0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4]);
        let most = [0, 200, 24, 10, 6][rank];
        let most = if rank == 1 && random.percent(10) {
            MOST_ELEMENTS
        } else {
            most
        };
        let side = |random: &mut Random| {
            if random.percent(8) {
                0
            } else {
                random.between(1, most)
            }
        };
        let dims: Vec<u64> = (0..rank).map(|_| side(random)).collect();
        let max_dims: Vec<Option<u64>> = dims.iter().map(|d| room(*d, random)).collect();
        let growing = max_dims.iter().zip(&dims).any(|(m, d)| *m != Some(*d));
        let chunked = rank > 0 && random.percent(if growing { 70 } else { 40 });
        let chunk = chunked.then(|| {
            let side = |max: &Option<u64>| random.between(1, max.unwrap_or(30).clamp(1, 30));
            max_dims.iter().map(side).collect()
        });
        let filtered = rank > 0 && random.percent(40);
        let fill = random.percent(35);
        let fill = fill.then(|| draw_elements(&element.datatype(), 1, 256, random));
        let new = NewDataset {
            path,
            element,
            dims,
            max_dims,
            chunk,
            shuffle: filtered && random.percent(50),
            deflate: (filtered && random.percent(70)).then(|| random.below(10) as u32),
            fletcher32: filtered && random.percent(30),
            fill,
        };
        self.datasets.push(new.clone());
        Some(Step::Dataset(Box::new(new)))
    }

    fn attribute(&mut self) -> Option<Step> {
        const NAMES: &[&str] = &[
            "units",
            "_FillValue",
            "_dims",
            "_mdims",
            "_ID",
            "_int_att",
            "__x",
            "naïve",
            "长",
            "two words",
            "_h5logfs_chunk",
            "_h5logfs_writer",
        ];
        let random = &mut self.random;
        let object = random.pick(&self.paths).clone();
        let name = format!(
            "{}{}",
            random.pick(NAMES),
            ["", "1", "2"][random.below(3) as usize]
        );
        if !self.names.insert(format!("{object}@{name}")) {
            return None;
        }
        let text = |random: &mut Random| {
            let texts = [
                "",
                "K",
                "m s⁻¹",
                "a longer text, of several words",
                "two\nlines",
            ];
            (*random.pick(&texts)).to_owned()
        };
        let value = match random.below(5) {
            0 => Content::Text(text(random)),
            1 => Content::Texts((0..random.below(4)).map(|_| text(random)).collect()),
            _ => elements(random),
        };
        Some(Step::Attribute {
            object,
            name,
            value,
        })
    }

    fn extend(&mut self) -> Option<Step> {
        let random = &mut self.random;
        let number = random.below(self.datasets.len() as u64) as usize;
        let dataset = self.datasets.get_mut(number)?;
        let limits = dataset.max_dims.clone();
        for (dim, max) in dataset.dims.iter_mut().zip(limits) {
            let more = *dim + random.below(4);
            *dim = more.min(max.unwrap_or(u64::MAX));
        }
        Some(Step::Extend {
            dataset: number,
            dims: dataset.dims.clone(),
        })
    }

    fn writes(&mut self) -> Step {
        let ranks = 0..self.ranks;
        Step::Writes(ranks.map(|rank| self.writes_of(rank)).collect())
    }

    fn writes_of(&mut self, rank: u32) -> Writes {
        let number = if rank >= self.writers || self.random.percent(25) {
            0
        } else {
            self.random.between(1, 5)
        };
        Writes {
            batch: self.random.percent(35),
            list: (0..number).filter_map(|_| self.write(rank)).collect(),
        }
    }

    fn write(&mut self, rank: u32) -> Option<Write> {
        let number = self.random.below(self.datasets.len() as u64) as usize;
        let (dims, datatype) = {
            let dataset = self.datasets.get(number)?;
            (dataset.dims.clone(), dataset.element.datatype())
        };
        let region = self.region(number, rank, &dims)?;
        let count = region.elements();
        if count * u64::from(datatype.size()) > MOST_BYTES {
            return None;
        }
        let alphabet = *self.random.pick(&[2, 3, 256]);
        Some(Write {
            dataset: number,
            data: draw_elements(&datatype, count, alphabet, &mut self.random),
            region,
        })
    }

    /// A region that the rank may write; none if a few attempts fail.
    fn region(&mut self, dataset: usize, rank: u32, dims: &[u64]) -> Option<Region> {
        for _ in 0..12 {
            let earlier = &self.earlier[rank as usize];
            let repeated = if earlier.is_empty() || !self.random.percent(40) {
                None
            } else {
                let again = self.random.pick(earlier).clone();
                again.moved_into(dims, &mut self.random)
            };
            let region = repeated.unwrap_or_else(|| Region::draw(dims, &mut self.random));
            if self.own(dataset, rank, &region) {
                self.earlier[rank as usize].push(region.clone());
                return Some(region);
            }
        }
        None
    }

    /// Whether no other subfile has elements of the region; if so, they belong to this one from now on.
    fn own(&mut self, dataset: usize, rank: u32, region: &Region) -> bool {
        if self.subfiles < 2 {
            return true;
        }
        let subfile = rank * self.subfiles / self.writers;
        let elements = region.listed();
        let key = |at: &Vec<u64>| (dataset, at.clone());
        let free = |at: &Vec<u64>| self.owners.get(&key(at)).is_none_or(|o| *o == subfile);
        if !elements.iter().all(free) {
            return false;
        }
        self.owners
            .extend(elements.iter().map(|at| (key(at), subfile)));
        true
    }
}

fn room(dim: u64, random: &mut Random) -> Option<u64> {
    match random.below(6) {
        0 | 1 => None,
        2 => Some(dim + random.between(1, 12)),
        _ => Some(dim),
    }
}

/// The elements of an attribute, through each way to make a value of them.
fn elements(random: &mut Random) -> Content {
    let rank = random.below(4);
    let side = |random: &mut Random| {
        if random.percent(5) {
            0
        } else {
            random.between(1, 4)
        }
    };
    let mut dims: Vec<u64> = (0..rank).map(|_| side(random)).collect();
    let (datatype, value, data);
    match Element::draw(random) {
        Element::Native(_) if random.percent(40) => {
            if random.percent(5) {
                dims = vec![60_000 / 8];
            }
            dims.truncate(1);
            datatype = Datatype::float(8);
            data = draw_elements(&datatype, dims.iter().product(), 256, random);
            // SAFETY: any bytes are floating-point numbers.
            let numbers = unsafe { data.values::<f64>() };
            value = Ok(if dims.is_empty() {
                numbers[0].into()
            } else {
                numbers.into()
            });
        }
        Element::Native(native) => {
            datatype = native.datatype();
            data = draw_elements(&datatype, dims.iter().product(), 256, random);
            value = native.value(&data, &dims);
        }
        Element::Described(described) => {
            datatype = described;
            data = draw_elements(&datatype, dims.iter().product(), 256, random);
            value = elements_value(datatype.clone(), &dims, data.as_bytes());
        }
    }
    let value = value.expect("a value of drawn elements");
    Content::Elements {
        datatype,
        dims,
        data,
        value,
    }
}
