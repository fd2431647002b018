//! The unflushed data that a view shows of a log that is not closed, if the user asks for them.
//!
//! The extents of a rank lie in its data file, and then in its spill file. Each section of the table lies in one file.
//! An extent of a spill file is therefore shown only if it needs no entry of the data file.

use std::collections::BTreeMap;

use super::extents;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_log::front::FRONT;
use h5logfs_log::journal::unflushed::{Extent, Summary};
use h5logfs_log::journal::{Recorded, Unflushed};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::logvol::extent::sections;
use h5logfs_log::logvol::{LogDataset, Section, Tables};
use h5logfs_log::scan::ScanRequest;
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::window::Piece;

/// The unflushed data that a view shows.
#[derive(Debug, Default)]
pub struct Shown {
    /// The extents behind the last flush, by data file.
    pub behind: BTreeMap<usize, Vec<RankShown>>,
    /// The extents in spill files.
    pub spilled: Vec<(SourcePath, Vec<RankShown>)>,
    /// The extents of datasets that are larger than the journal says, by dataset ID.
    pub growth: BTreeMap<u32, Vec<u64>>,
    summary: Summary,
    /// Bytes of data that are not shown.
    left_out: u64,
}

/// The shown extents of one rank.
#[derive(Debug)]
pub struct RankShown {
    pub rank: u32,
    pub pieces: Vec<ExtentShown>,
}

/// The place of an extent's entries, and the end of the extent.
#[derive(Debug)]
pub struct ExtentShown {
    pub entries: Piece,
    pub end: u64,
}

impl ExtentShown {
    fn of(extent: &Extent) -> Self {
        ExtentShown {
            entries: extent.loose.place.entries(),
            end: extent.loose.place.bytes().end,
        }
    }
}

impl Shown {
    /// Finds the unflushed data to show; `None` if there are none.
    pub fn of(
        request: ScanRequest<'_>,
        master: &SourceFile,
        journal: &Recorded,
    ) -> Result<Option<Self>> {
        let files = LogFiles::of(request.dir, request.relative, master);
        let unflushed = Unflushed::of(&files, journal, true)?;
        if unflushed.is_empty() {
            return Ok(None);
        }
        let mut shown = Shown {
            summary: unflushed.summary(),
            ..Shown::default()
        };
        let mut spilled: BTreeMap<usize, Vec<RankShown>> = BTreeMap::new();
        for (rank, extents) in &unflushed.ranks {
            let mut add = |number: usize, extents: &[Extent]| {
                let file = &unflushed.files[number];
                let list = if file.is_data_file {
                    shown.behind.entry(file.data_file as usize).or_default()
                } else {
                    spilled.entry(number).or_default()
                };
                let pieces = extents.iter().map(ExtentShown::of).collect();
                list.push(RankShown {
                    rank: *rank,
                    pieces,
                });
            };
            let there = extents
                .iter()
                .take_while(|extent| unflushed.files[extent.file].is_data_file);
            let (there, others) = extents.split_at(there.count());
            if let Some(first) = there.first() {
                add(first.file, there);
            }
            let alone = alone(others);
            if let Some(first) = alone.first() {
                add(first.file, alone);
            }
            let left_out = others[alone.len()..].iter();
            shown.left_out += left_out
                .map(|extent| extent.loose.place.header.data)
                .sum::<u64>();
        }
        shown.set_growth(&unflushed, journal, &spilled)?;
        let place = |number: usize| unflushed.files[number].place.clone();
        shown.spilled = spilled
            .into_iter()
            .map(|(number, ranks)| (place(number), ranks))
            .collect();
        Ok(Some(shown))
    }

    fn set_growth(
        &mut self,
        unflushed: &Unflushed,
        journal: &Recorded,
        spilled: &BTreeMap<usize, Vec<RankShown>>,
    ) -> Result<()> {
        let mut tables = Tables {
            config: journal.header.config,
            ..Tables::default()
        };
        let mut sources = Vec::new();
        for (number, holder) in unflushed.files.iter().enumerate() {
            let source = number as u16;
            let path = holder.file.path().to_owned();
            let file = holder.file.to_file();
            let file = file.and_then(|file| SourceFile::new(file, path));
            let file = file.map_err(|e| Error::io(holder.file.path(), e))?;
            let (offset, shown) = if holder.is_data_file {
                let found = sections(&file, source, journal.ends(number))?;
                tables.sections.extend(found.sections);
                (FRONT, self.behind.get(&number))
            } else {
                (0, spilled.get(&number))
            };
            for rank in shown.into_iter().flatten() {
                let pieces = rank.pieces.iter().map(|piece| piece.entries);
                Section::add(&mut tables.sections, source, rank.rank, pieces);
            }
            tables.data.push(LogDataset {
                source,
                number: 0,
                offset,
                len: file.len().saturating_sub(offset),
            });
            sources.push(file);
        }
        let is_new = |source: u16, offset| {
            let holder = &unflushed.files[usize::from(source)];
            !holder.is_data_file || offset >= journal.end(usize::from(source))
        };
        let find = || {
            let datasets = extents::logged(journal)?;
            let larger = extents::larger(&tables, &sources, &datasets, is_new)?;
            let of = |(dataset, dims): (&extents::Extended, Vec<u64>)| (dataset.id, dims);
            Ok(larger.into_iter().map(of).collect())
        };
        let log = unflushed.files.first().map(|holder| holder.file.path());
        self.growth =
            find().map_err(|fault: Fault| Error::of(log.unwrap_or("".as_ref()), fault))?;
        Ok(())
    }

    /// The diagnostic that tells the user of the shown data.
    pub fn diagnostic(&self) -> Diagnostic {
        let mut text = format!("{}: shown, too", self.summary);
        if self.left_out > 0 {
            text += &format!(
                ", except {} bytes that can be shown only after `recover --unflushed`",
                self.left_out
            );
        }
        Diagnostic::note(text)
    }
}

/// The leading extents that lie in the file of the first one, and share selections only with each other.
fn alone(extents: &[Extent]) -> &[Extent] {
    let Some(first) = extents.first() else {
        return extents;
    };
    let mut len = 0;
    let good = extents.iter().take_while(|extent| {
        let is_alone = extent.file == first.file && extent.loose.reach <= len;
        len += extent.loose.place.header.entries;
        is_alone
    });
    &extents[..good.count()]
}
