//! Compares the chain of a dataset's entries with their order in the log.

/// The position of an entry of a dataset, and of the next entry according to the entry itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryPosition {
    pub at: u64,
    pub next: i64,
}

/// The end of a chain.
pub(super) const END: i64 = -1;

/// A fault of a chain.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChainError {
    /// The order differs from that of the log, or entries are missing.
    Disagrees(String),
    /// The chain never ends.
    Cycle(String),
    /// The chain contains a negative position.
    Negative(String),
}

/// Bytes of memory that [`follow`] needs.
pub(super) fn memory(places: &[EntryPosition]) -> u64 {
    size_of_val(places) as u64 / 2
}

/// Follows a chain from its first position through the entries of its dataset. `places` are in the order of the log.
pub(super) fn follow(first: i64, places: &[EntryPosition]) -> Result<(), ChainError> {
    let negative = places.iter().find(|place| place.next < END);
    if let Some(place) = negative {
        let text = format!(
            "entry at byte {}: the next one is at {}",
            place.at, place.next
        );
        return Err(ChainError::Negative(text));
    }
    // The number of the walk that met each entry. Walk 1 starts at the stub dataset.
    let mut met = vec![0; places.len()];
    // The entry that points to the next one; `None` is the stub dataset.
    let mut from = None;
    let (mut next, mut disagreement) = (first, None);
    for number in 0.. {
        let expected = places.get(number).map(|place| place.at);
        let position = u64::try_from(next).ok();
        if position != expected {
            let wrong = || disagrees(&named(from), next, expected);
            disagreement.get_or_insert_with(wrong);
        }
        let Some(found) = find(next, places) else {
            break;
        };
        if std::mem::replace(&mut met[found], 1) != 0 {
            return Err(cycle(&named(from), next));
        }
        from = position;
        next = places[found].next;
    }
    let Some(text) = disagreement else {
        return Ok(());
    };
    // Entries outside the stub dataset's chain may form a cycle, too.
    for start in 0..places.len() {
        let mut at = start;
        while met[at] == 0 {
            met[at] = start + 2;
            let Some(next) = find(places[at].next, places) else {
                break;
            };
            if met[next] == start + 2 {
                return Err(cycle(&named(Some(places[at].at)), places[at].next));
            }
            at = next;
        }
    }
    Err(ChainError::Disagrees(text))
}

/// The index of the entry at a position.
fn find(position: i64, places: &[EntryPosition]) -> Option<usize> {
    let position = u64::try_from(position).ok()?;
    places
        .binary_search_by_key(&position, |place| place.at)
        .ok()
}

fn cycle(from: &str, to: i64) -> ChainError {
    ChainError::Cycle(format!(
        "{from} names the one at byte {to} as the next: a chain with a cycle"
    ))
}

fn named(entry: Option<u64>) -> String {
    entry.map_or("its stub dataset".into(), |at| {
        format!("entry at byte {at}")
    })
}

fn disagrees(from: &str, next: i64, expected: Option<u64>) -> String {
    let next = match next {
        END => "none".to_owned(),
        next => format!("byte {next}"),
    };
    let expected = expected.map_or("none".to_owned(), |at| format!("byte {at}"));
    format!("{from} names {next} as the next entry, in the order of the log it is {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(first: i64, places: &[(u64, i64)]) -> Result<(), ChainError> {
        let places = places.iter().map(|(at, next)| EntryPosition {
            at: *at,
            next: *next,
        });
        follow(first, &places.collect::<Vec<_>>())
    }

    fn complaint(first: i64, places: &[(u64, i64)]) -> String {
        match chain(first, places) {
            Err(ChainError::Disagrees(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn chains_in_the_order_of_the_log_are_good() {
        assert_eq!(chain(-1, &[]), Ok(()));
        assert_eq!(chain(28, &[(28, 100), (100, 300), (300, -1)]), Ok(()));
    }

    #[test]
    fn other_chains_disagree_or_have_a_cycle() {
        assert!(complaint(28, &[]).contains("its stub dataset names byte 28"));
        assert!(complaint(-1, &[(28, -1)]).contains("it is byte 28"));
        // A different order, an early end, and a position without an entry.
        assert!(complaint(100, &[(28, -1), (100, 28)]).contains("names byte 100"));
        assert!(complaint(28, &[(28, -1), (100, -1)]).contains("entry at byte 28 names none"));
        assert!(complaint(28, &[(28, 50), (100, -1)]).contains("names byte 50"));
        for places in [
            &[(28, 28)][..],
            &[(28, 100), (100, 28)],
            &[(28, 100), (100, 200), (200, 100)],
        ] {
            assert!(matches!(chain(28, places), Err(ChainError::Cycle(_))));
            // The stub dataset may or may not lead to the cycle.
            assert!(matches!(chain(-1, places), Err(ChainError::Cycle(_))));
        }
        let behind = [(28, -1), (100, 200), (200, 300), (300, 200)];
        assert!(matches!(chain(28, &behind), Err(ChainError::Cycle(_))));
        assert!(complaint(28, &[(28, -1), (100, 200), (200, 28)]).contains("names none"));
        assert!(matches!(
            chain(28, &[(28, -2)]),
            Err(ChainError::Negative(_))
        ));
    }
}
