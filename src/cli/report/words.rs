//! Texts and numbers of the page. Text from files passes [`Text`], because users choose names, which may contain commands to
//! a browser.

use std::fmt::{self, Display, Write};

use indicatif::BinaryBytes;
use jiff::tz::TimeZone;

use super::super::output::{percent, plain};
use super::{DatasetReport, LogReport};
use h5logfs_log::origins::Timeline;
use h5logfs_view::coverage::CoverageMap;

/// Text from files, escaped for HTML.
pub struct Text<'a>(pub &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in plain(self.0).chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A number with thin spaces between thousands.
pub struct Grouped<N>(pub N);

impl<N: ToString> Display for Grouped<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_char('\u{2009}')?;
            }
            f.write_char(digit)?;
        }
        Ok(())
    }
}

pub fn bytes(n: u128) -> String {
    BinaryBytes(u64::try_from(n).unwrap_or(u64::MAX)).to_string()
}

/// The text of a written share, which may be an estimate.
pub fn covered(share: f64, is_estimate: bool) -> String {
    let about = if is_estimate { "at most " } else { "" };
    format!("{about}{}", percent(share))
}

pub fn shape(dims: &[u64]) -> String {
    if dims.is_empty() {
        return "scalar".to_owned();
    }
    let dims: Vec<String> = dims.iter().map(|d| Grouped(*d).to_string()).collect();
    dims.join(" × ")
}

/// Mean number of pieces of the chunks that have any.
pub fn mean_pieces(map: &CoverageMap) -> Option<f64> {
    let pieces = map.pieces.as_ref()?;
    (pieces.touched > 0).then(|| pieces.all as f64 / pieces.touched as f64)
}

/// The text of a range of flushes or ranks.
pub fn range(one: &str, several: &str, ends: Option<(u64, u64)>) -> String {
    match ends {
        None => format!("{one} not known"),
        Some((first, last)) if first == last => format!("{one} {first}"),
        Some((first, last)) => format!("{several} {first} to {last}"),
    }
}

/// The text of a size class: from 2^(n-1) to less than 2^n.
pub fn size_class(n: usize) -> String {
    match n {
        0 => "0 B".to_owned(),
        1 => "1 B".to_owned(),
        n => {
            let first = 1u64 << (n - 1);
            format!(
                "{} to {}",
                BinaryBytes(first),
                BinaryBytes(first.saturating_mul(2))
            )
        }
    }
}

pub fn imbalance(timeline: &Timeline) -> String {
    let (most, mean) = (timeline.most_of_a_rank, timeline.mean_of_ranks);
    let factor = most as f64 / mean.max(1) as f64;
    format!(
        "{} ranks wrote {} each on average. The rank that wrote most wrote {}, {factor:.2} times as much.",
        Grouped(timeline.known_ranks),
        bytes(mean.into()),
        bytes(most.into()),
    )
}

/// The description of a cell of a map.
pub fn cell_text(map: &CoverageMap) -> String {
    let mut sides: Vec<String> = Vec::new();
    for axis in [map.grid.row_axis(), map.grid.column_axis()]
        .into_iter()
        .flatten()
    {
        sides.push(format!(
            "{} of dimension {}",
            Grouped(axis.side),
            axis.dimension
        ));
    }
    let rank = map.grid.dims().len();
    let mut text = match sides.len() {
        0 => "The cell is the whole dataset.".to_owned(),
        _ => format!("A cell is {}", sides.join(" by ")),
    };
    if sides.len() == rank && rank > 0 {
        text += ".";
    } else if !sides.is_empty() {
        text += ", with all of the other dimensions.";
    }
    if map.is_estimate() {
        text += " There are too many pieces to count all that is written: pale cells are estimates, at most so much.";
    }
    text
}

pub fn log_facts(log: &LogReport) -> Vec<(&'static str, String)> {
    let stored: u128 = log.maps().map(|(_, map)| u128::from(map.stored)).sum();
    let records: u128 = log.maps().map(|(_, map)| u128::from(map.records)).sum();
    let mut facts = vec![
        ("Layout", log.layout.to_owned()),
        ("State", log.state.to_owned()),
        ("Datasets", Grouped(log.datasets.len()).to_string()),
        (
            "Written",
            log.covered()
                .map_or("–".into(), |share| covered(share, log.is_estimate())),
        ),
        ("Records", Grouped(records).to_string()),
        ("Bytes of records", bytes(stored)),
        ("Size as HDF5", bytes(log.canonical_bytes.into())),
    ];
    if log.lost() > 0 {
        facts.push(("Lost elements", Grouped(log.lost()).to_string()));
    }
    if let Some(less) = log.bytes_without_unwritten() {
        facts.push((
            "Without unwritten chunks",
            format!("about {}", bytes(less.into())),
        ));
    }
    let hidden: Option<u128> = log
        .maps()
        .map(|(dataset, map)| dataset.hidden_bytes(map))
        .sum();
    if let Some(hidden) = hidden {
        facts.push(("Hidden by later writes", bytes(hidden)));
    }
    if log.files > 1 {
        facts.push(("Files", Grouped(log.files).to_string()));
    }
    if log.timeline.known_flushes > 0 {
        facts.push((
            "Flushes with data",
            Grouped(log.timeline.known_flushes).to_string(),
        ));
    }
    if log.timeline.known_ranks > 0 {
        facts.push((
            "Ranks with data",
            Grouped(log.timeline.known_ranks).to_string(),
        ));
    }
    if let Some(flush) = log.flush {
        facts.push(("Last complete flush", flush.to_string()));
    }
    if let Some(written) = log.written {
        let local = written.to_zoned(TimeZone::system());
        facts.push(("Last write", local.strftime("%Y-%m-%d %H:%M").to_string()));
    }
    facts
}

pub fn dataset_facts(dataset: &DatasetReport, map: &CoverageMap) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("Type", dataset.datatype.clone()),
        (
            "Elements",
            Grouped(map.total(|cell| cell.elements)).to_string(),
        ),
        (
            "Elements written",
            format!(
                "{}{}",
                if map.is_estimate() { "at most " } else { "" },
                Grouped(map.total(|cell| cell.written))
            ),
        ),
        ("Records", Grouped(map.records).to_string()),
        ("Blocks", Grouped(map.blocks).to_string()),
        ("Bytes of records", bytes(map.stored.into())),
    ];
    if map.lost() > 0 {
        facts.push(("Elements lost", Grouped(map.lost()).to_string()));
    }
    if let Some(hidden) = dataset.hidden_bytes(map) {
        facts.push(("Hidden by later writes", bytes(hidden)));
    }
    if map.has_base {
        facts.push((
            "Below the records",
            "elements in the file itself".to_owned(),
        ));
    }
    if let Some(chunk) = &dataset.chunk {
        facts.push((
            "Chunks",
            format!("{} of {}", Grouped(dataset.chunks), shape(chunk)),
        ));
    }
    match (&map.pieces, mean_pieces(map)) {
        (Some(pieces), Some(mean)) => {
            facts.push(("Chunks with records", Grouped(pieces.touched).to_string()));
            let most = Grouped(pieces.most);
            facts.push((
                "Pieces a chunk",
                format!("{mean:.1} on average, at most {most}"),
            ));
        }
        (None, _) => facts.push(("Pieces a chunk", "too many to count".to_owned())),
        _ => {}
    }
    facts
}

/// The facts about a dataset that no record wrote.
pub fn stored_facts(dataset: &DatasetReport) -> Vec<(&'static str, String)> {
    let elements = dataset.dims.iter().map(|side| u128::from(*side));
    let elements = elements.fold(1, u128::saturating_mul);
    let mut facts = vec![
        ("Type", dataset.datatype.clone()),
        ("Elements", Grouped(elements).to_string()),
        (
            "Size",
            bytes(elements.saturating_mul(dataset.element_size.into())),
        ),
    ];
    if let Some(chunk) = &dataset.chunk {
        facts.push((
            "Chunks",
            format!("{} of {}", Grouped(dataset.chunks), shape(chunk)),
        ));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        let hostile = "</b><script>alert('x')</script>\" onload=\"&amp;\u{202e}\u{0}\n";
        let text = Text(hostile).to_string();
        let expected = "&lt;/b&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot; onload=&quot;&amp;amp;\\u{202e}\\u{0}\\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn numbers_are_grouped_and_shares_rounded_down() {
        assert_eq!(Grouped(1234567).to_string(), "1\u{2009}234\u{2009}567");
        assert_eq!(Grouped(123).to_string(), "123");
        assert_eq!(percent(0.99999), "99.9 %");
        assert_eq!(percent(1.0), "100.0 %");
        assert_eq!(size_class(11), "1.00 KiB to 2.00 KiB");
        assert!(!size_class(64).is_empty());
    }
}
