//! Which of the states that crashes can leave are tried: all of a kind, or some by chance.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::common::numbers::Numbers;
use super::history::{Disk, History, Item, Operation};

/// What a file system writes at once, and what a disk does.
const PAGE: u64 = 4096;
const SECTOR: u64 = 512;

/// What a crash takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// All processes are killed: nothing.
    Killed,
    /// The same, but of the last write all behind so many bytes.
    KilledWithin(usize),
    /// The power is lost, and with it all that was not forced to the disk.
    All,
    /// What was forced to the disk, and names.
    AllButNames,
    /// What was forced to the disk, names, and sizes.
    Bytes,
    /// Names that were not forced to the disk.
    Names,
    /// What this operation has changed, and what followed there.
    From(usize),
    /// All that was not forced to the disk but what this operation has changed.
    AllBut(usize),
    /// Each item at a moment of its own, by chance.
    Chance { seed: u64, piece: u64 },
}

/// What a crash at a moment leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    /// So many operations came before it.
    pub end: usize,
    pub loss: Loss,
}

impl Image {
    /// Whether processes were killed, and the power was not lost.
    pub fn is_of_kill(&self) -> bool {
        matches!(self.loss, Loss::Killed | Loss::KilledWithin(_))
    }

    pub fn disk(&self, history: &History, changes: &Changes) -> Disk {
        let end = self.end;
        let by = |choose: &mut dyn FnMut(Item, usize) -> usize, piece| {
            history.after_loss(end, piece, choose)
        };
        let touches = |at: usize, item: Item| changes.0[at].iter().any(|(it, _)| *it == item);
        let is_name = |item| matches!(item, Item::Names(_));
        let is_piece = |item| matches!(item, Item::Piece(..));
        let where_not = |lost: &dyn Fn(Item) -> bool| {
            by(
                &mut |item, first| if lost(item) { first } else { end },
                PAGE,
            )
        };
        match self.loss {
            Loss::Killed => history.at(end),
            Loss::KilledWithin(bytes) => history.cut(end, bytes),
            Loss::All => where_not(&|_| true),
            Loss::AllButNames => where_not(&|item| !is_name(item)),
            Loss::Bytes => where_not(&is_piece),
            Loss::Names => where_not(&is_name),
            Loss::From(at) => by(
                &mut |item, _| if touches(at, item) { at } else { end },
                PAGE,
            ),
            Loss::AllBut(at) => by(
                &mut |item, first| if touches(at, item) { at + 1 } else { first },
                PAGE,
            ),
            Loss::Chance { seed, piece } => {
                let mut numbers = Numbers(seed);
                // Some crashes lose nearly all, and some nearly nothing.
                let (early, late) = (numbers.below(4), numbers.below(4));
                by(
                    &mut |_, first| match numbers.below(2 + early + late) {
                        n if n < 1 + early => first,
                        n if n < 1 + early + late => end,
                        _ => first + numbers.index(end - first + 1),
                    },
                    piece,
                )
            }
        }
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after operation {}: {:?}", self.end, self.loss)
    }
}

/// The items that each operation changes.
pub struct Changes(Vec<Vec<(Item, u64)>>);

impl Changes {
    pub fn of(history: &History) -> Self {
        Changes(history.changes(PAGE))
    }
}

/// All images of a history that are not made by chance, and so many besides for each moment.
pub fn all(history: &History, changes: &Changes, chances: u64, seed: u64) -> Vec<Image> {
    let mut images = Vec::new();
    for end in moments(history) {
        let mut add = |loss| images.push(Image { end, loss });
        add(Loss::Killed);
        if let Some(Operation::Write { offset, data, .. }) = history.0[..end].last() {
            let pages = (PAGE - offset % PAGE) as usize..data.len();
            let pages = pages.step_by(PAGE as usize);
            pages.for_each(|bytes| add(Loss::KilledWithin(bytes)));
        }
        let loose = history.loose(end, &changes.0);
        if loose.is_empty() {
            continue;
        }
        [Loss::All, Loss::AllButNames, Loss::Bytes, Loss::Names]
            .into_iter()
            .for_each(&mut add);
        for at in loose {
            add(Loss::From(at));
            add(Loss::AllBut(at));
        }
        for chance in 0..chances {
            let piece = if chance % 2 == 0 { SECTOR } else { PAGE };
            let seed = seed + 1_000_000 * end as u64 + chance;
            add(Loss::Chance { seed, piece });
        }
    }
    images
}

/// The moments before something is done: what is said before that is known.
fn moments(history: &History) -> impl Iterator<Item = usize> {
    let is_said = |at: usize| matches!(history.0.get(at), Some(Operation::Say(_)));
    (0..=history.0.len()).filter(move |at| !is_said(*at))
}

/// At most so many, by chance, in the order of moments.
pub fn some(mut images: Vec<Image>, most: usize, seed: u64) -> Vec<Image> {
    let mut numbers = Numbers(seed);
    while images.len() > most {
        let at = numbers.index(images.len());
        images.swap_remove(at);
    }
    images.sort_unstable();
    images
}

/// What was seen.
#[derive(Default)]
pub struct Seen(BTreeSet<u64>);

impl Seen {
    /// Whether this is new.
    pub fn add(&mut self, what: impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        self.0.insert(hasher.finish())
    }
}
