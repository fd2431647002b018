//! Attributes that differ between ranks, and are left out. A flush without differences does none of this.

use std::collections::HashSet;

use super::differences::{Compared, Differences, DifferentAttribute};
use h5logfs_common::fault::Fault;
use h5logfs_log::journal::definition::{Defined, Definition, Outline};
use h5logfs_output::{GlobalOutcome, Ranks};

/// Attributes that all ranks leave out, because they differ.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// The first rank that differs.
    rank: u32,
    attributes: Vec<DifferentAttribute>,
}

impl LeftOut {
    /// Compares the definitions since the last flush. If more than attributes differ, fails with the outcome of the flush: a
    /// record names its dataset by a number, which must mean the same dataset on all ranks. Collective.
    pub fn find(
        ranks: &Ranks,
        defined: &[Definition],
        datasets: &[Defined],
    ) -> Result<Self, GlobalOutcome> {
        let own = differences(ranks, defined, datasets);
        if let Some(rank) = ranks.first(own.objects.is_some()) {
            let how = ranks.broadcast_text(rank, own.objects.unwrap_or_default());
            let reason = Fault::Refused(format!(
                "{how}. All ranks must define the same groups, datasets and extents, in the same order"
            ));
            return Err(GlobalOutcome::Failed { rank, reason });
        }
        let mut found = LeftOut::default();
        let mut pending = own.attributes;
        // Most differences are the same on many ranks. So the first rank with differences broadcasts its own, and the others
        // drop these.
        while let Some(rank) = ranks.first(!pending.is_empty()) {
            let text = serde_json::to_string(&pending).unwrap_or_default();
            let text = ranks.broadcast_text(rank, text);
            let told: Vec<DifferentAttribute> = serde_json::from_str(&text).unwrap_or_default();
            if ranks.rank() == rank {
                pending.clear();
            }
            let names: HashSet<_> = told.iter().map(|a| (&a.object, &a.name)).collect();
            pending.retain(|a| !names.contains(&(&a.object, &a.name)));
            found.add(LeftOut {
                rank,
                attributes: told,
            });
        }
        Ok(found)
    }

    /// Adds attributes that were left out later.
    pub fn add(&mut self, later: LeftOut) {
        if self.attributes.is_empty() {
            self.rank = later.rank;
        }
        self.attributes.extend(later.attributes);
    }

    /// Removes the attributes from the definitions of this rank. Their names are free again.
    pub fn remove_from(&self, defined: &mut Vec<Definition>, outline: &mut Outline) {
        for left_out in &self.attributes {
            outline.remove_attribute(&left_out.object, &left_out.name);
        }
        let names = self.attributes.iter().map(|a| (&a.object, &a.name));
        let names: HashSet<_> = names.collect();
        defined.retain(|d| match d {
            Definition::Attribute { object, name, .. } => !names.contains(&(object, name)),
            _ => true,
        });
    }

    /// The outcome of a complete flush, with a report of the attributes left out.
    pub fn added_to(&self, outcome: GlobalOutcome) -> GlobalOutcome {
        let Some(lacking) = self.words() else {
            return outcome;
        };
        match outcome {
            GlobalOutcome::Good => GlobalOutcome::Refused {
                rank: self.rank,
                reason: Fault::Refused(lacking),
            },
            GlobalOutcome::Refused { rank, reason } => GlobalOutcome::Refused {
                rank,
                reason: reason.told(format!("{reason}; and without {lacking}")),
            },
            failed => failed,
        }
    }

    fn words(&self) -> Option<String> {
        let DifferentAttribute { object, name, how } = self.attributes.first()?;
        Some(match self.attributes.len() {
            1 => format!(
                "attribute {name} of {object} ({how}): all ranks must define it with the same value"
            ),
            number => format!(
                "{number} attributes, the first of them {name} of {object} ({how}): all ranks must define them with \
                 the same values"
            ),
        })
    }
}

/// Differences between this rank and the first one. Collective.
fn differences(ranks: &Ranks, defined: &[Definition], datasets: &[Defined]) -> Differences {
    let text = match ranks.rank() {
        0 => serde_json::to_string(defined).unwrap_or_default(),
        _ => String::new(),
    };
    let text = ranks.broadcast_text(0, text);
    if ranks.is_root() {
        return Differences::default();
    }
    let compare = |first: Vec<Definition>| {
        let compared = Compared {
            first: &first,
            rank: ranks.rank(),
            own: defined,
            datasets,
        };
        compared.differences()
    };
    // This library has written the text, so it can be parsed.
    serde_json::from_str(&text).map_or_else(|_| Differences::default(), compare)
}
