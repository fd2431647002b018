//! Turns the entries of one dataset into records.

use super::chain::EntryPosition;
use super::entry::{ByteOrder, Entry, EntrySelection, NO_FILTER, ZLIB};
use super::table::EntryTable;
use super::{DATA_LOG, METADATA_LOG};
use crate::layout::DatasetRecords;
use crate::model::Logged;
use crate::model::{Encoding, Selection, Selections, StoredBytes};
use crate::records::RecordList;
use crate::source_file::SourceFile;
use crate::window::Window;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::deflate::largest_inflated;

/// Bytes of points that are read together.
const STEP: u64 = 1 << 20;
/// The most bytes of points in one entry.
const MOST_POINTS: u64 = 2 << 30;

/// The context for decoding a dataset.
pub(super) struct Decoder<'a> {
    pub task: &'a Task,
    pub metadata: &'a SourceFile,
    pub data: &'a SourceFile,
    /// Number of the source of the data log.
    pub data_number: u16,
    pub entries: &'a EntryTable,
    pub dataset: &'a Logged<'a>,
    pub selections: &'a Selections,
}

/// The stored bytes of an entry, and the reason if they cannot be read.
type Located = (StoredBytes, Option<String>);

impl Decoder<'_> {
    /// The records of a dataset. `stub_dataset` is the index of its stub dataset.
    ///
    /// Fails when memory is short or the task stops, but not on damage.
    pub fn records(&self, stub_dataset: usize) -> Result<DatasetRecords, Fault> {
        let entries = &self.entries.by_stub_dataset[stub_dataset];
        let places = &entries.places;
        let mut found = DatasetRecords {
            records: RecordList::new(self.task, self.dataset.dims.len(), places.len())?,
            diagnostics: entries.unreadable.iter().cloned().collect(),
            decoded: 0,
        };
        let mut window = Window::over(self.metadata);
        for place in places {
            self.task.check()?;
            if let Err(fault) = self.add(place, &mut window, &mut found) {
                let reason = fault.into_damage()?;
                let place = entry_name(place.at);
                found.add_diagnostic(Diagnostic::unreadable(reason).at(place));
            }
        }
        found.records.put_in_order()?;
        Ok(found)
    }

    /// Adds the record of an entry. Fails if its selection is unknown.
    fn add(
        &self,
        place: &EntryPosition,
        window: &mut Window<'_>,
        found: &mut DatasetRecords,
    ) -> Result<(), Fault> {
        let rank = self.dataset.dims.len();
        let entry = Entry::read(window, place.at, |_| Some(rank as u64))?;
        let list = &mut found.records;
        let fault = match entry.selection {
            EntrySelection::Subarray => {
                let sides = self.block(&entry, window.bytes(entry.coordinates, entry.len)?)?;
                let (start, count) = sides.split_at(rank);
                let elements = product(count)?;
                if elements == 0 {
                    return Ok(());
                }
                let (stored, fault) = self.stored(&entry, elements)?;
                list.push_block(stored, entry.at, start, count)?;
                fault
            }
            EntrySelection::Points(0) => return Ok(()),
            EntrySelection::Points(number) => {
                let (stored, fault) = self.stored(&entry, number)?;
                let selection = match self.selections.get(entry.at) {
                    Some(known) => known,
                    None => {
                        let points = self.points(&entry, number)?;
                        let (kept, is_new) = self.selections.keep(entry.at, points);
                        found.decoded += if is_new { kept.bytes() } else { 0 };
                        kept
                    }
                };
                list.push_selection(stored, entry.at, (entry.at, selection), None)?;
                fault
            }
        };
        if let Some(reason) = fault {
            list.spoil_last(format!("{}: {reason}", entry_name(entry.at)))?;
        }
        Ok(())
    }

    /// Starts and counts of the entry's block. Fails if the block is outside of the dataset.
    fn block(&self, entry: &Entry, bytes: &[u8]) -> Result<Vec<u64>, Fault> {
        let sides = numbers(entry.order, bytes)?;
        let rank = self.dataset.dims.len();
        for (d, dim) in self.dataset.dims.iter().enumerate() {
            let (start, count) = (sides[d], sides[rank + d]);
            if start.checked_add(count).is_none_or(|end| end > *dim) {
                return Err(format!(
                    "{count} from {start} on are outside of dimension {d}, which has {dim}"
                )
                .into());
            }
        }
        Ok(sides)
    }

    /// The points of an entry. Fails if one is outside of the dataset.
    fn points(&self, entry: &Entry, number: u64) -> Result<Reserved<Selection>, Fault> {
        let dims = self.dataset.dims;
        let rank = dims.len();
        if entry.len > MOST_POINTS {
            return Err(format!("{number} points are more than can be held").into());
        }
        // The points are read step by step, because the log may claim more bytes than the file has.
        let mut reservation = self.task.reserve(2 * STEP)?;
        let mut coordinates = Vec::new();
        let mut step = Vec::new();
        let mut done = 0;
        while done < entry.len {
            step.resize(STEP.min(entry.len - done) as usize, 0);
            self.metadata
                .read_exact_at(&mut step, entry.coordinates + done)?;
            self.task.check()?;
            reservation.extend(&mut coordinates, &numbers(entry.order, &step)?)?;
            done += step.len() as u64;
        }
        for point in coordinates.chunks_exact(rank.max(1)) {
            if point.iter().zip(dims).any(|(at, dim)| at >= dim) {
                return Err(format!("the point {point:?} is outside of {dims:?}").into());
            }
        }
        let number = usize::try_from(number)?;
        let at = |point: usize, d: usize| coordinates[point * rank + d];
        Selection::new(self.task, rank, number, at, |_, _| 1)
    }

    /// The stored bytes of an entry with `elements` elements.
    fn stored(&self, entry: &Entry, elements: u64) -> Result<Located, Fault> {
        let raw = elements.checked_mul(self.dataset.element_size);
        let raw = raw.ok_or("more bytes than can be counted")?;
        let log = self.data.len();
        let offset = u64::try_from(entry.data).unwrap_or(0);
        let to_next = self.entries.end_of_data(offset, self.data);
        let to_next = to_next.saturating_sub(offset);
        let left = log.saturating_sub(offset);
        let (encoding, len) = match entry.filter {
            ZLIB => (Encoding::DeflateStream, to_next.min(largest_deflated(raw))),
            _ => (Encoding::Raw, raw),
        };
        let fault = match entry.filter {
            _ if entry.invalid_field().is_some() => entry.invalid_field(),
            NO_FILTER if raw > left => Some(format!(
                "its data ({raw} bytes at {offset}) end past /{DATA_LOG}, which has {log} bytes"
            )),
            NO_FILTER if !self.data.has(offset, raw) => Some(format!(
                "its data ({raw} bytes at {offset}) lie in a chunk of /{DATA_LOG} that is not allocated"
            )),
            ZLIB if raw > largest_inflated(left) => Some(format!(
                "{left} bytes at {offset} of /{DATA_LOG} cannot hold {raw} bytes"
            )),
            _ => None,
        };
        let stored = StoredBytes {
            source: self.data_number,
            offset,
            len,
            encoding,
        };
        Ok((stored, fault))
    }
}

fn entry_name(at: u64) -> String {
    format!("/{METADATA_LOG}: entry at byte {at}")
}

/// The largest size to which zlib deflates `raw` bytes.
fn largest_deflated(raw: u64) -> u64 {
    raw.saturating_add(raw >> 10).saturating_add(64)
}

/// Decodes coordinates. Fails if one is negative.
fn numbers(order: ByteOrder, bytes: &[u8]) -> Result<Vec<u64>, Fault> {
    let number = |bytes: &[u8]| {
        let number = order.i64_at(bytes, 0);
        u64::try_from(number).map_err(|_| format!("a coordinate of {number}").into())
    };
    bytes.chunks_exact(8).map(number).collect()
}

fn product(counts: &[u64]) -> Result<u64, Fault> {
    if counts.contains(&0) {
        return Ok(0);
    }
    let product = counts.iter().try_fold(1u64, |n, c| n.checked_mul(*c));
    product.ok_or_else(|| "more elements than can be counted".into())
}

#[cfg(test)]
mod tests {
    use super::super::{StubDataset, Tables};
    use super::*;
    use crate::layout::{Layout, RecordTable};
    use crate::model::Record;
    use crate::source_dir::SourceDir;
    use h5logfs_common::diagnostic::Severity;

    /// A field of an entry, in either byte order.
    enum Word {
        Int(i32),
        Long(i64),
    }
    use Word::{Int, Long};

    /// The two logs of a test.
    struct Logs {
        metadata: Vec<u8>,
        entries: i64,
        data: Vec<u8>,
    }

    impl Logs {
        fn new() -> Self {
            Logs {
                metadata: b"logvol_metadata1\x01\0\0\0".to_vec(),
                entries: 0,
                data: b"logvol_data1\0\0\0\x01".to_vec(),
            }
        }

        fn put(&mut self, big: bool, words: &[Word]) {
            for word in words {
                let bytes = match (word, big) {
                    (Int(n), false) => n.to_le_bytes().to_vec(),
                    (Int(n), true) => n.to_be_bytes().to_vec(),
                    (Long(n), false) => n.to_le_bytes().to_vec(),
                    (Long(n), true) => n.to_be_bytes().to_vec(),
                };
                self.metadata.extend(bytes);
            }
        }

        /// Adds an entry of dataset 7: kind, coordinates, filter and place of the data. Returns its offset.
        fn entry(&mut self, big: bool, kind: i32, coordinates: &[i64], tail: (i32, i64)) -> u64 {
            if self.entries == 0 {
                self.metadata.extend([0; 8]);
            }
            self.entries += 1;
            self.metadata[20..28].copy_from_slice(&self.entries.to_le_bytes());
            let at = self.metadata.len() as u64;
            self.put(big, &[Int(big.into()), Long(7), Int(kind)]);
            for coordinate in coordinates {
                self.put(big, &[Long(*coordinate)]);
            }
            self.put(big, &[Int(tail.0), Long(tail.1), Long(-1)]);
            at
        }

        fn table(&self, rank: u8) -> (Vec<SourceFile>, Tables, Box<dyn RecordTable>) {
            let dir = tempfile::tempdir().unwrap();
            let held = SourceDir::open(dir.path()).unwrap();
            let source = |name: &str, bytes: &[u8]| {
                std::fs::write(dir.path().join(name), bytes).unwrap();
                SourceFile::open(&held, name.as_ref()).unwrap()
            };
            let sources = vec![
                source("metadata", &self.metadata),
                source("data", &self.data),
            ];
            let stub_dataset = StubDataset {
                id: 7,
                rank,
                first: None,
            };
            let tables = Tables {
                metadata: 0,
                data: 1,
                stub_datasets: vec![stub_dataset],
            };
            let table = tables
                .read_tables(&Task::unlimited(), &sources, &[])
                .unwrap();
            (sources, tables, table)
        }

        /// The records of dataset 7. Its elements have four bytes.
        fn records(&self, dims: &[u64]) -> DatasetRecords {
            let (sources, _, table) = self.table(dims.len() as u8);
            assert_eq!(unreadable(&*table), [""; 0]);
            let logged = Logged {
                id: 7,
                dims,
                element_size: 4,
                filtered: false,
            };
            let found = table.records(
                &Task::unlimited(),
                &sources,
                &logged,
                &Selections::default(),
            );
            found.unwrap()
        }

        fn fault_of_table(&self) -> String {
            let (_, _, table) = self.table(2);
            let mut said = unreadable(&*table);
            assert_eq!(said.len(), 1, "{said:?}");
            said.remove(0)
        }
    }

    fn unreadable(table: &dyn RecordTable) -> Vec<String> {
        let diagnostics = table.diagnostics().iter();
        let unreadable = diagnostics.filter(|d| d.severity == Severity::Unreadable);
        unreadable.map(Diagnostic::to_string).collect()
    }

    fn blocks(record: &Record<'_>) -> Vec<(Vec<u64>, u64)> {
        let mut found = Vec::new();
        let _ = record.visit_back(&record.bounds(), |block| {
            found.push((block.start.to_vec(), block.elements_before));
            std::ops::ControlFlow::<()>::Continue(())
        });
        found.reverse();
        found
    }

    #[test]
    fn blocks_and_points_in_both_orders() {
        let mut logs = Logs::new();
        logs.data.extend([0; 100]);
        logs.entry(false, 0, &[1, 2, 3, 4], (0, 16));
        logs.entry(true, 1, &[3, 5, 6, 0, 1, 5, 6], (0, 64));
        logs.entry(true, 0, &[0, 0, 0, 4], (0, 0));
        logs.entry(false, 1, &[0], (0, 0));
        let found = logs.records(&[6, 7]);
        assert_eq!(found.diagnostics, []);
        let mut cells = [Vec::new(), Vec::new()];
        let [a, b] = &mut cells;
        let records = [found.records.get(0, a), found.records.get(1, b)];
        assert_eq!(found.records.len(), 2);
        assert_eq!(
            (records[0].start, records[0].count),
            (&[1, 2][..], &[3, 4][..])
        );
        let stored = StoredBytes {
            source: 1,
            offset: 16,
            len: 48,
            encoding: Encoding::Raw,
        };
        assert_eq!((records[0].stored, records[0].fault), (stored, None));
        let points = [(vec![5, 6], 0), (vec![0, 1], 1), (vec![5, 6], 2)];
        let mut found = blocks(&records[1]);
        found.sort_by_key(|(_, before)| *before);
        assert_eq!(found, points);
        assert_eq!(records[1].stored.len, 12);
    }

    #[test]
    fn later_entries_override_earlier_ones_wherever_their_data_lie() {
        let mut logs = Logs::new();
        logs.data.extend([0; 8]);
        logs.entry(false, 0, &[0, 1], (0, 20));
        logs.entry(false, 0, &[0, 1], (0, 16));
        let offsets: Vec<_> = logs
            .records(&[1])
            .records
            .map(|r| r.stored.offset)
            .collect();
        assert_eq!(offsets, [20, 16]);
    }

    #[test]
    fn streams_may_reach_to_the_next_data() {
        let mut logs = Logs::new();
        logs.data.extend([0; 100]);
        for at in [16, 30, 30, 90] {
            logs.entry(false, 0, &[0, 9], (1, at));
        }
        let found = logs.records(&[9]);
        let lens: Vec<_> = found.records.map(|r| r.stored.len).collect();
        assert_eq!(lens, [14, 60, 60, 26]);
        assert!(
            found
                .records
                .map(|r| r.stored.encoding)
                .all(|encoding| encoding == Encoding::DeflateStream)
        );
    }

    #[test]
    fn a_scalar_keeps_the_last_of_its_points() {
        let mut logs = Logs::new();
        logs.data.extend([0; 12]);
        logs.entry(false, 0, &[], (0, 16));
        logs.entry(false, 1, &[3], (0, 16));
        // This entry claims more points than there are bytes.
        logs.entry(false, 1, &[i64::MAX / 8], (1, 16));
        let found = logs.records(&[]);
        let mut cells: [Vec<u64>; 3] = Default::default();
        let [a, b, c] = &mut cells;
        let get = |number, cells| found.records.get(number, cells);
        let records = [get(0, a), get(1, b), get(2, c)];
        assert_eq!(records[0].elements(), 1);
        assert_eq!(blocks(&records[1]), [(vec![], 2)]);
        assert!(records[2].fault.unwrap().contains("cannot hold"));
    }

    #[test]
    fn an_entry_with_an_impossible_selection_is_a_fault_of_its_dataset() {
        for (kind, coordinates) in [
            (0, &[0, -1, 1, 1][..]),
            (0, &[0, 0, i64::MAX, 1]),
            (0, &[i64::MAX, 0, i64::MAX, 1]),
            (0, &[6, 0, 1, 1]),
            (1, &[1, 5, 7]),
            (1, &[2, 0, 0, 0, -1]),
        ] {
            let mut logs = Logs::new();
            logs.data.extend([0; 8]);
            logs.entry(false, 0, &[0, 0, 1, 1], (0, 16));
            let at = logs.entry(true, kind, coordinates, (0, 16));
            logs.entry(false, 0, &[1, 1, 1, 1], (0, 16));
            let found = logs.records(&[6, 7]);
            assert_eq!(found.records.len(), 2);
            let said: Vec<String> = found
                .diagnostics
                .iter()
                .map(Diagnostic::to_string)
                .collect();
            assert_eq!(said.len(), 1);
            let wanted = format!("/_metadata_log: entry at byte {at}: ");
            assert!(said[0].starts_with(&wanted), "{said:?}");
        }
    }

    #[test]
    fn an_entry_without_its_data_is_a_spoiled_record() {
        for tail in [(2, 16), (0, 15), (0, -1), (0, 17), (0, i64::MAX), (1, 15)] {
            let mut logs = Logs::new();
            logs.data.extend([0; 4]);
            let at = logs.entry(false, 0, &[0, 1], tail);
            let found = logs.records(&[1]);
            assert_eq!((found.diagnostics.len(), found.records.len()), (0, 1));
            let mut cells = Vec::new();
            let fault = found.records.get(0, &mut cells).fault;
            let wanted = format!("/_metadata_log: entry at byte {at}: ");
            assert!(fault.unwrap().starts_with(&wanted), "{tail:?} {fault:?}");
        }
    }

    #[test]
    fn what_may_hide_entries_is_a_fault_of_the_table() {
        let with = |change: &dyn Fn(&mut Logs)| {
            let mut logs = Logs::new();
            logs.data.extend([0; 8]);
            logs.entry(false, 0, &[0, 0, 1, 1], (0, 16));
            change(&mut logs);
            logs.fault_of_table()
        };
        let at_28 = |fault: String, reason: &str| {
            let wanted = format!("/_metadata_log: entry at byte 28: {reason}");
            assert!(fault.starts_with(&wanted), "{fault}");
        };
        at_28(with(&|l| l.metadata[28] = 2), "its byte order");
        at_28(
            with(&|l| l.metadata[32] = 8),
            "no stub dataset has the id 8",
        );
        at_28(with(&|l| l.metadata[40] = 3), "unknown selection 3");
        at_28(
            with(&|l| l.metadata.truncate(95)),
            "byte 96 is past its end",
        );
        // The entry claims as many points as its first start says.
        for points in [-1, 1 << 40, i64::MAX] {
            let fault = with(&|l| {
                l.metadata[40] = 1;
                l.metadata[44..52].copy_from_slice(&i64::to_le_bytes(points));
            });
            at_28(fault, "");
        }
        assert!(with(&|l| l.metadata[0] = 0).contains("/_metadata_log: byte 0"));
        assert!(with(&|l| l.metadata[16] = 0).contains("/_metadata_log: byte 16"));
        assert!(with(&|l| l.metadata[27] = 0x80).contains("/_metadata_log: byte 20"));
        assert!(with(&|l| l.metadata[20] = 2).contains("entry at byte 96"));
        assert!(with(&|l| l.data[11] = b'x').contains("/_data_log: byte 0"));
        assert!(with(&|l| l.data[15] = 2).contains("/_data_log: byte 12"));
    }

    #[test]
    fn tiles_are_found() {
        let mut logs = Logs::new();
        for at in [0, 50, 100] {
            logs.entry(at == 50, 0, &[0, at, 80, 50], (0, 16));
        }
        let (sources, tables, _) = logs.table(2);
        let tile = |logs: &Tables| logs.tilings(&sources).by_dataset[&7].tile(&[80, 150]);
        assert_eq!(tile(&tables), Some(vec![80, 50]));
        logs.entry(false, 1, &[1, 0, 0], (0, 16));
        let (sources, tables, _) = logs.table(2);
        assert_eq!(
            tables.tilings(&sources).by_dataset[&7].tile(&[80, 150]),
            None
        );
    }
}
