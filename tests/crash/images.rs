//! The crash states that a test tries: all states of a kind, or a random choice.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::common::numbers::Numbers;
use super::history::{Disk, History, Item, Operation};

/// Units of writing of a file system and of a disk.
const PAGE: u64 = 4096;
const SECTOR: u64 = 512;

/// The data that a crash loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// All processes are killed. Nothing is lost.
    Killed,
    /// All processes are killed during the last write, of which only the first bytes are written.
    KilledWithin(usize),
    /// Power failure. Everything not synced is lost.
    All,
    /// Everything not synced, except names.
    AllButNames,
    /// Bytes not synced, but not sizes or names.
    Bytes,
    /// Names not synced.
    Names,
    /// The changes of this operation, and later ones of the same items.
    From(usize),
    /// Everything not synced, except the changes of this operation.
    AllBut(usize),
    /// A random time for each item.
    Chance { seed: u64, piece: u64 },
}

/// The state after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    /// Number of operations before the crash.
    pub end: usize,
    pub loss: Loss,
}

impl Image {
    /// Whether processes were killed without a power failure.
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
                // Some crashes lose nearly everything, and some nearly nothing.
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

/// All systematic images of a history, and `chances` random ones for each time.
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

/// The numbers of operations before which a crash may come. Reports made before it are known.
fn moments(history: &History) -> impl Iterator<Item = usize> {
    let is_said = |at: usize| matches!(history.0.get(at), Some(Operation::Say(_)));
    (0..=history.0.len()).filter(move |at| !is_said(*at))
}

/// At most `most` images, chosen randomly, in the order of time.
pub fn some(mut images: Vec<Image>, most: usize, seed: u64) -> Vec<Image> {
    let mut numbers = Numbers(seed);
    while images.len() > most {
        let at = numbers.index(images.len());
        images.swap_remove(at);
    }
    images.sort_unstable();
    images
}

/// A set of hashes of things seen before.
#[derive(Default)]
pub struct Seen(BTreeSet<u64>);

impl Seen {
    /// Adds something. Returns whether it is new.
    pub fn add(&mut self, what: impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        self.0.insert(hasher.finish())
    }
}
