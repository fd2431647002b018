//! The record tables of each layout. The data that they point to do not exist.

use h5logfs_log::arrangement::Arrangement;
use h5logfs_log::classic::StubDataset;
use h5logfs_log::logvol::LogDataset;
use h5logfs_log::netcdf::{ProcessLog, Variable, channels};
use h5logfs_log::numbers::NumberType;
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::{Logged, Tables, classic as classic_log, logvol as logvol_log, netcdf};

use super::Seeds;
use super::input::{Input, Output};
use super::samples::{SAMPLES, Scanned};
use super::tables::check_tables;
use super::test_dir::TestDir;

/// The offset of the table in a Log VOL file. The data would be below it.
const TABLE_AT: u64 = 1 << 20;
const MOST_DATASETS: usize = 16;

/// A dataset from the input.
struct Shape {
    id: i64,
    dims: Vec<u64>,
    element: u64,
    filtered: bool,
}

impl Shape {
    fn read(input: &mut Input<'_>) -> Self {
        let rank = usize::from(input.u8() % 6);
        Shape {
            id: input.u64() as i64,
            element: 1 + u64::from(input.u8() & 0x7f),
            filtered: input.u8() & 1 != 0,
            dims: (0..rank).map(|_| input.u64()).collect(),
        }
    }

    fn write(out: Output, logged: &Logged<'_>) -> Output {
        let out = out.u8(logged.dims.len());
        let out = out.u64(logged.id as u64);
        let out = out.u8(logged.element_size as usize - 1);
        let out = out.u8(logged.filtered.into());
        logged.dims.iter().fold(out, |out, dim| out.u64(*dim))
    }

    fn logged(&self) -> Logged<'_> {
        Logged {
            id: self.id,
            dims: &self.dims,
            element_size: self.element,
            filtered: self.filtered,
        }
    }
}

fn shapes(input: &mut Input<'_>) -> Vec<Shape> {
    let number = usize::from(input.u8()) % (MOST_DATASETS + 1);
    (0..number).map(|_| Shape::read(input)).collect()
}

fn put_shapes(out: Output, snapshot: &Snapshot) -> Output {
    let datasets = snapshot.datasets.iter().filter_map(|d| d.logged());
    let datasets: Vec<_> = datasets.take(MOST_DATASETS).collect();
    let out = out.u8(datasets.len());
    datasets.iter().fold(out, Shape::write)
}

fn seeds(of: impl Fn(&Scanned) -> Option<Vec<u8>>) -> Seeds {
    let named = |scanned: &Scanned| Some((scanned.sample.name.to_owned(), of(scanned)?));
    SAMPLES.iter().filter_map(named).collect()
}

fn file(scanned: &Scanned, number: u16) -> &[u8] {
    let path = &scanned.snapshot.sources[usize::from(number)].place.path;
    let mut files = scanned.sample.files.iter();
    let found = files.find(|(name, _)| path.as_os_str() == *name);
    &found.expect("a file of the sample").1
}

/// All bytes of a source, in its arrangement.
fn bytes(scanned: &Scanned, number: u16) -> Vec<u8> {
    let test_dir = TestDir::new();
    test_dir.write("file", file(scanned, number));
    let arrangement = scanned.snapshot.sources[usize::from(number)]
        .arrangement
        .clone();
    let source = test_dir.open("file").arranged(arrangement);
    let source = source.expect("the arrangement of the sample");
    let mut bytes = vec![0; source.len() as usize];
    let read = source.read_exact_at(&mut bytes, 0);
    read.expect("the bytes of the sample");
    bytes
}

// --- Log VOL -------------------------------------------------------------------------------------

pub fn logvol(bytes: &[u8]) {
    let mut input = Input(bytes);
    let config = i32::from(input.u8());
    let shapes = shapes(&mut input);
    let data = (u64::from(input.u32()), u64::from(input.u32()));
    let table = input.0;
    let test_dir = TestDir::new();
    let len = TABLE_AT + table.len() as u64;
    test_dir.sparse("log", &[], TABLE_AT);
    test_dir.append("log", table);
    let log = |offset, len| LogDataset {
        source: 0,
        number: 0,
        offset,
        len,
    };
    let tables = Tables::LogVol(logvol_log::Tables {
        config,
        metadata: vec![log(TABLE_AT, len - TABLE_AT)],
        data: vec![log(data.0, data.1)],
        ..logvol_log::Tables::default()
    });
    let datasets: Vec<_> = shapes.iter().map(Shape::logged).collect();
    check_tables(&tables, &[test_dir.open("log")], &datasets);
}

pub fn logvol_seeds() -> Seeds {
    seeds(|scanned| {
        let Tables::LogVol(tables) = &scanned.snapshot.log else {
            return None;
        };
        let table = tables.metadata.first()?;
        let file = file(scanned, table.source);
        let mut own = tables.data.iter().filter(|e| e.source == table.source);
        let data = own.next()?;
        let out = Output::default().u8(tables.config as usize);
        let out = put_shapes(out, &scanned.snapshot);
        let out = out.u32(data.offset).u32(data.len);
        Some(
            out.put(&file[table.offset as usize..][..table.len as usize])
                .0,
        )
    })
}

// --- classic -------------------------------------------------------------------------------------

pub fn classic(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut shapes = shapes(&mut input);
    shapes.sort_by_key(|shape| shape.id);
    let stub_dataset = |shape: &Shape| StubDataset {
        id: shape.id,
        rank: shape.dims.len() as u8,
        first: None,
    };
    let mut stub_datasets: Vec<StubDataset> = shapes.iter().map(stub_dataset).collect();
    for stub_dataset in &mut stub_datasets {
        let first = input.u64() as i64;
        stub_dataset.first = (first >= -1).then_some(first);
    }
    let (metadata, data) = input.two_parts();
    let test_dir = TestDir::new();
    test_dir.write("metadata", metadata);
    test_dir.write("data", data);
    let tables = Tables::Classic(classic_log::Tables {
        metadata: 0,
        data: 1,
        stub_datasets,
    });
    let datasets: Vec<_> = shapes.iter().map(Shape::logged).collect();
    check_tables(
        &tables,
        &[test_dir.open("metadata"), test_dir.open("data")],
        &datasets,
    );
}

pub fn classic_seeds() -> Seeds {
    seeds(|scanned| {
        let Tables::Classic(tables) = &scanned.snapshot.log else {
            return None;
        };
        let mut snapshot = scanned.snapshot.clone();
        snapshot.datasets.sort_by_key(|d| d.logged().map(|l| l.id));
        snapshot.datasets.retain(|d| d.logged().is_some());
        snapshot.datasets.truncate(MOST_DATASETS);
        let mut out = put_shapes(Output::default(), &snapshot);
        for dataset in &snapshot.datasets {
            let id = dataset.logged().map(|l| l.id);
            let stub_dataset = tables.stub_datasets.iter().find(|a| Some(a.id) == id);
            let first = stub_dataset.and_then(|a| a.first);
            out = out.u64(first.unwrap_or(-2) as u64);
        }
        Some(out.two_parts(
            &bytes(scanned, tables.metadata),
            &bytes(scanned, tables.data),
        ))
    })
}

// --- netCDF --------------------------------------------------------------------------------------

const KINDS: [NumberType; 10] = [
    NumberType::I8,
    NumberType::U8,
    NumberType::I16,
    NumberType::U16,
    NumberType::I32,
    NumberType::U32,
    NumberType::I64,
    NumberType::U64,
    NumberType::F32,
    NumberType::F64,
];

pub fn netcdf_log(bytes: &[u8]) {
    let mut input = Input(bytes);
    let version = input.u8();
    let record_size = input.u64();
    let number = usize::from(input.u8()) % (MOST_DATASETS + 1);
    let variables = (0..number).map(|_| variable(&mut input)).collect();
    let records = u64::from(input.u32());
    let data = u64::from(input.u32());
    let test_dir = TestDir::new();
    test_dir.sparse("file.nc", &[], 1 << 16);
    test_dir.write("metadata", input.0);
    test_dir.sparse("data", b"PnetCDF0", data);
    let tables = netcdf::Tables {
        version,
        record_size,
        variables,
        logs: vec![ProcessLog {
            metadata: 1,
            data: Some(2),
            generation: 0,
            rank: 0,
        }],
    };
    let master = test_dir.open("file.nc").arranged(Arrangement::ZerosAfter);
    let master = master.expect("zeros are always there");
    let metadata = test_dir.open("metadata");
    let _ = channels::channels(&metadata);
    let sources = [master, metadata, test_dir.open("data")];
    if tables.check(sources.len()).is_err() {
        return;
    }
    let survey = netcdf::summarize(&sources, &tables);
    let all = survey.map_or(records, |survey| survey.records.max(records));
    check_netcdf(tables, &sources, all);
}

fn check_netcdf(tables: netcdf::Tables, sources: &[SourceFile], records: u64) {
    let shape = |(number, variable): (usize, &Variable)| {
        let mut dims = variable.dims.clone();
        if variable.is_record {
            dims[0] = records;
        }
        Shape {
            id: number as i64,
            dims,
            element: variable.kind.size() as u64,
            filtered: false,
        }
    };
    let shapes: Vec<Shape> = tables.variables.iter().enumerate().map(shape).collect();
    let datasets: Vec<_> = shapes.iter().map(Shape::logged).collect();
    check_tables(&Tables::Netcdf(tables), sources, &datasets);
}

fn variable(input: &mut Input<'_>) -> Variable {
    let kind = KINDS[usize::from(input.u8()) % KINDS.len()];
    let rank = usize::from(input.u8() % 6);
    let begin = u64::from(input.u32());
    let is_text = input.u8() & 1 != 0;
    let dims: Vec<u64> = (0..rank).map(|_| input.u64()).collect();
    Variable {
        kind,
        is_text,
        is_record: dims.first() == Some(&0),
        dims,
        begin,
        fill: [0xee; 8],
    }
}

pub fn netcdf_log_seeds() -> Seeds {
    seeds(|scanned| {
        let Tables::Netcdf(tables) = &scanned.snapshot.log else {
            return None;
        };
        let log = tables.logs.first()?;
        let variables = &tables.variables[..tables.variables.len().min(MOST_DATASETS)];
        let out = Output::default().u8(tables.version.into());
        let out = out.u64(tables.record_size).u8(variables.len());
        let put = |out: Output, variable: &Variable| {
            let kind = KINDS.iter().position(|kind| *kind == variable.kind);
            let out = out.u8(kind.expect("one of all")).u8(variable.dims.len());
            let out = out.u32(variable.begin).u8(variable.is_text.into());
            variable.dims.iter().fold(out, |out, dim| out.u64(*dim))
        };
        let out = variables.iter().fold(out, put);
        let data = file(scanned, log.data?).len() as u64;
        Some(out.u32(0).u32(data).put(file(scanned, log.metadata)).0)
    })
}
