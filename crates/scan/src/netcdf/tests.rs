use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

use super::model::model;
use super::*;
use crate::shown::ShownObjects;
use h5logfs_common::fault::Fault;
use h5logfs_log::netcdf::header::{Dimension, Type, Variable};
use h5logfs_log::numbers::NumberType;
use h5logfs_log::scan::Choice;
use h5logfs_log::snapshot::Storage;

type Result<T> = std::result::Result<T, Fault>;
use h5logfs_hdf5_format::Image;
use h5logfs_log::Tables;
use h5logfs_log::netcdf::header::Attribute;
use h5logfs_log::scan::Chunking;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;

#[allow(dead_code)]
#[path = "../../../../tests/common/amount.rs"]
mod amount;

#[allow(dead_code)]
#[path = "../../../../tests/common/readers.rs"]
mod readers;

use amount::part;
use readers::{Python, check_all, project, said};

fn header_of(path: &Path) -> (Header, u64) {
    let (dir, name) = SourceDir::of_file(path).unwrap();
    let file = SourceFile::open(&dir, &name).unwrap();
    let header = Header::read(&file).unwrap();
    let records = header.records_in(file.len());
    (header, records)
}

fn image_of(header: &Header, records: u64) -> Result<ShownObjects> {
    incomplete_image_of(header, records, None)
}

fn incomplete_image_of(header: &Header, records: u64, text: Option<&str>) -> Result<ShownObjects> {
    let tables = Tables::default();
    let chooser = Chooser::new(Chunking::default(), tables.layout(), &[]);
    netcdf4::make(&model(header, records), &chooser, &Choice::default(), text)
}

/// Writes the image of a netCDF file to a file.
fn write_image(of: &Path, at: &Path) -> ShownObjects {
    let (header, records) = header_of(of);
    let made = image_of(&header, records).unwrap();
    std::fs::write(at, &made.image).unwrap();
    made
}

/// Makes a netCDF classic file of the version `kind`; `None` if ncgen is not installed.
fn generate(dir: &TempDir, name: &str, kind: &str, cdl: &str) -> Option<PathBuf> {
    let (text, file) = (dir.path().join(format!("{name}.cdl")), dir.path());
    let file = file.join(format!("{name}.nc"));
    std::fs::write(&text, cdl).unwrap();
    let mut ncgen = Command::new("ncgen");
    let made = ncgen.args(["-k", kind, "-o"]).arg(&file).arg(&text);
    match made.output() {
        Ok(output) => assert!(output.status.success(), "{name}: {}", said(&output)),
        Err(e) => {
            eprintln!("skipped: ncgen: {e}");
            return None;
        }
    }
    Some(file)
}

/// Checks that all readers see the same structure in a netCDF file and in its image. Data are not compared.
fn check_structures(files: Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let pairs: Vec<_> = files
        .into_iter()
        .enumerate()
        .map(|(number, file)| (dir.path().join(format!("image-{number}.nc")), file))
        .collect();
    check_all(pairs.iter().collect(), |(image, file)| {
        Ok(check_with_ncdump(image, file)?)
    });
    if let Some(python) = Python::new() {
        python.assert_same_as_netcdf(&["--structure"], &pairs);
    }
}

/// Makes the image of a netCDF file, and checks that `ncdump` prints the same for both.
fn check_with_ncdump(image: &Path, file: &Path) -> Result<()> {
    let made = write_image(file, image);
    let mut addressed = Image::new(made.image);
    for dataset in &made.datasets {
        let chunked = matches!(dataset.storage, Storage::Chunked(_));
        addressed.set_layout_address(dataset.header, 4096, chunked)?;
    }
    let shown = |file: &Path| {
        let mut ncdump = Command::new("ncdump");
        ncdump.args(["-h", "-n", "a"]).arg(file).output().ok()
    };
    if let (Some(got), Some(expected)) = (shown(image), shown(file)) {
        let (got, expected) = (said(&got), said(&expected));
        if got != expected {
            return Err(format!("{}: {got}\nexpected {expected}", file.display()).into());
        }
    }
    Ok(())
}

#[test]
fn files_of_the_corpus_keep_their_structure() {
    let corpus = project().join("tests/corpus-pnetcdf");
    let Ok(cases) = std::fs::read_dir(&corpus) else {
        eprintln!("skipped: {} is not there", corpus.display());
        return;
    };
    let files = cases.flatten().map(|case| case.path().join("expected.nc"));
    let mut files: Vec<_> = files.filter(|file| file.is_file()).collect();
    files.sort();
    assert!(!files.is_empty());
    check_structures(part(files, 4));
}

const ODD: [(&str, &str, &str); 7] = [
    (
        "names",
        "1",
        r#"netcdf a {
        dimensions: x = 3 ; t = UNLIMITED ; unused = 5 ; y = 2 ; s = 4 ; n = 7 ; é = 2 ;
        variables:
          int a(x, x) ; a:_FillValue = -5 ;
          double t(t, x) ; t:units = "s" ;
          short y(x, y) ;
          float x(x) ; x:last = 1 ; x:first = 2. ;
          int s ;
          char c(t, x) ; c:_FillValue = "q" ;
          char d ;
          byte r(t) ; r:v = 1b, 2b ;
          int é(é) ; é:ü = "ä" ;
          float u(n) ;
        :z = 1, 2 ; :h = "hällo" ; :b = "" ;
        data: t = 1, 2, 3, 4, 5, 6 ;
        }"#,
    ),
    ("nothing", "2", "netcdf a { :x = 1 ; }"),
    (
        "scalars",
        "2",
        "netcdf a { variables: int a ; double b ; char c ; }",
    ),
    (
        "only-records",
        "1",
        "netcdf a { dimensions: t = UNLIMITED ; }",
    ),
    (
        "no-records",
        "5",
        "netcdf a { dimensions: t = UNLIMITED ; x = 2 ; variables: ubyte b(t, x) ; double t(t) ; }",
    ),
    (
        "types",
        "5",
        r#"netcdf a {
        dimensions: x = 2000000000 ; y = 3 ;
        variables:
          byte a(y) ; a:_FillValue = 1b ; ubyte b(y) ; b:_FillValue = 2ub ;
          short c(y) ; c:_FillValue = 3s ; ushort d(y) ; d:_FillValue = 4us ;
          int e(y) ; e:_FillValue = 5 ; uint f(y) ; f:_FillValue = 6u ;
          int64 g(y) ; g:_FillValue = 7ll ; uint64 h(y) ; h:_FillValue = 8ull ;
          float i(y) ; i:_FillValue = 9.f ; double j(y) ; j:_FillValue = 10. ;
          char k(y) ; k:_FillValue = "k" ;
        :a = 1b, 2b ; :b = 1ub ; :c = 1s ; :d = 1us ; :e = 1 ; :f = 1u ; :g = 1ll ; :h = 18446744073709551615ull ;
        :i = 1.5f ; :j = 1.5 ;
        }"#,
    ),
    (
        "twice",
        "1",
        r#"netcdf a {
        dimensions: b = 2 ; a = 3 ;
        variables: int z(a, b, a) ; int b(b, a) ; int y(b, b) ; float a(b) ; double q(a) ;
        }"#,
    ),
];

#[test]
fn odd_files_keep_their_structure() {
    let dir = tempfile::tempdir().unwrap();
    let made = ODD.map(|(name, kind, cdl)| generate(&dir, name, kind, cdl));
    let files = made.into_iter().flatten().collect();
    check_structures(files);
}

// --- headers that other programs rarely write ------------------------------------------------------

fn dimension(name: &str, len: u64) -> Dimension {
    Dimension {
        name: name.into(),
        len,
    }
}

fn attribute(name: &[u8], kind: Type, values: &[u8]) -> Attribute {
    Attribute {
        name: name.into(),
        kind,
        len: (values.len() / kind.size()) as u64,
        values: values.into(),
    }
}

fn variable(name: &[u8], dimensions: &[usize]) -> Variable {
    Variable {
        name: name.into(),
        dimensions: dimensions.into(),
        attributes: Vec::new(),
        kind: INT,
        begin: 0,
    }
}

const INT: Type = Type::Number(NumberType::I32);

fn header(dimensions: Vec<Dimension>, variables: Vec<Variable>) -> Header {
    Header {
        version: 5,
        records: Some(0),
        dimensions,
        attributes: Vec::new(),
        variables,
    }
}

/// The view that a current netCDF reader has of an image. `code` prints it from the open dataset `f`.
fn seen(made: &ShownObjects, code: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image.nc");
    std::fs::write(&path, &made.image).unwrap();
    let code = format!("import sys, netCDF4; f = netCDF4.Dataset(sys.argv[1]); {code}");
    Some(Python::new()?.run(&code, &[&path]).trim().to_owned())
}

#[test]
fn what_netcdf4_has_no_name_for_is_left_out_with_a_warning() {
    let mut odd = header(
        vec![
            dimension("x", 2),
            dimension("_nc4_non_coord_y", 3),
            dimension("y", 4),
        ],
        vec![
            variable(b"_nc4_non_coord_x", &[0]),
            variable(b"x", &[]),
            variable(b"y", &[0]),
            variable(b"z", &[1]),
        ],
    );
    odd.variables[3].attributes = vec![
        attribute(b"CLASS", Type::Char, b"mine"),
        attribute(b"other", Type::Char, b"shown"),
    ];
    odd.attributes = vec![attribute(b"_nc3_strict", INT, &[0, 0, 0, 7])];
    let made = image_of(&odd, 0).unwrap();
    let names: Vec<_> = made.datasets.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["/_nc4_non_coord_x", "/z"]);
    let ids = made.datasets.iter().map(|d| d.logged().unwrap().id);
    assert_eq!(ids.collect::<Vec<_>>(), [0, 3]);
    let warned: Vec<String> = made.diagnostics.iter().map(|d| d.to_string()).collect();
    let warned = warned.join("\n");
    assert_eq!(made.diagnostics.len(), 4, "{warned}");
    for text in [
        "variable x is",
        "variable y is",
        "CLASS of z",
        "_nc3_strict of the file",
    ] {
        assert!(warned.contains(text), "{warned}");
    }
    if let Some(seen) = seen(&made, "print(f['z'].ncattrs(), f.ncattrs(), f.data_model)") {
        assert_eq!(seen, "['other'] [] NETCDF4");
    }
}

#[test]
fn the_attribute_of_what_is_missing_takes_the_place_of_one_of_its_name() {
    let own = [
        attribute(b"_h5logfs_incomplete", Type::Char, b"own"),
        attribute(b"title", Type::Char, b"t"),
    ];
    let mut copied = header(vec![], vec![]);
    copied.attributes = own.into();
    for (text, shown, notes) in [
        (None, "own t", 0),
        (Some("2 of 3 \u{e9}"), "2 of 3 \u{e9} t", 1),
    ] {
        let made = incomplete_image_of(&copied, 0, text).unwrap();
        assert_eq!(made.diagnostics.len(), notes);
        let code = "print(f.getncattr('_h5logfs_incomplete'), f.title)";
        if let Some(seen) = seen(&made, code) {
            assert_eq!(seen, shown);
        }
    }
}

#[test]
fn names_that_hdf5_cannot_have_are_refused() {
    let slash = header(vec![], vec![variable(b"a/b", &[])]);
    let error = image_of(&slash, 0).unwrap_err();
    assert!(error.to_string().contains("variable a/b: "), "{error}");
    let dot = header(vec![dimension(".", 1)], vec![]);
    let error = image_of(&dot, 0).unwrap_err();
    assert!(error.to_string().contains("dimension .: "), "{error}");
}

#[test]
fn names_and_texts_that_are_no_utf8_are_shown() {
    let mut latin = header(vec![], vec![variable(b"caf\xe9", &[])]);
    latin.attributes = vec![attribute(b"n\xe9e", Type::Char, b"\xe0 \x00 la")];
    let made = image_of(&latin, 0).unwrap();
    assert_eq!(made.datasets[0].name, "/caf\u{fffd}");
    let python = Python::new();
    let Some(python) = python else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image.h5");
    std::fs::write(&path, &made.image).unwrap();
    let code = "import sys, h5py; f = h5py.File(sys.argv[1]); print([*f], h5py.h5a.exists(f.id, b'n\\xe9e'))";
    assert_eq!(python.run(code, &[&path]).trim(), "[b'caf\\xe9'] True");
}

#[test]
fn empty_and_large_attributes_are_shown() {
    let mut odd = header(vec![], vec![variable(b"v", &[])]);
    let large = vec![0; 4 * 30_000];
    odd.variables[0].attributes = vec![
        attribute(b"large", INT, &large),
        attribute(b"none", INT, &[]),
        attribute(b"text", Type::Char, &[b'x'; 100_000]),
        attribute(b"empty", Type::Char, &[]),
    ];
    odd.attributes = odd.variables[0].attributes.clone();
    let made = image_of(&odd, 0).unwrap();
    assert!(made.diagnostics.is_empty());
    let code = "print([[a, len(o.getncattr(a))] for o in (f, f['v']) for a in o.ncattrs()])";
    if let Some(seen) = seen(&made, code) {
        let one = "['large', 30000], ['none', 0], ['text', 100000], ['empty', 0]";
        assert_eq!(seen, format!("[{one}, {one}]"));
    }
}

#[test]
fn dimensions_past_2_to_the_32_have_chunks() {
    let large = header(
        vec![dimension("x", 5 << 32), dimension("t", 0)],
        vec![variable(b"a", &[0]), variable(b"b", &[1, 0])],
    );
    let made = image_of(&large, 7 << 32).unwrap();
    assert_eq!(made.datasets[1].dims, [7 << 32, 5 << 32]);
    assert_eq!(made.datasets[1].max_dims, [None, Some(5 << 32)]);
    let code = "print(f['a'].shape, f['b'].shape, len(f.dimensions['t']))";
    if let Some(seen) = seen(&made, code) {
        assert_eq!(
            seen,
            "(21474836480,) (30064771072, 21474836480) 30064771072"
        );
    }
}

#[test]
fn many_variables_keep_their_order() {
    let variables = (0..8000).map(|n| {
        let mut one = variable(format!("v{n}").as_bytes(), &[0, 1]);
        let names = (0..4).map(|a| format!("attribute {a}"));
        one.attributes = names
            .map(|name| attribute(name.as_bytes(), Type::Char, b"some text"))
            .collect();
        one
    });
    let dimensions = vec![dimension("t", 0), dimension("x", 100)];
    let made = image_of(&header(dimensions, variables.collect()), 10).unwrap();
    let code = "print([*f.variables] == [f'v{n}' for n in range(8000)], f['v7999'].dimensions)";
    if let Some(seen) = seen(&made, code) {
        assert_eq!(seen, "True ('t', 'x')");
    }
}

#[test]
fn an_image_made_again_is_the_same() {
    let header = || {
        header(
            vec![dimension("x", 3)],
            vec![variable(b"x", &[0]), variable(b"y", &[0])],
        )
    };
    let (first, second) = (image_of(&header(), 0), image_of(&header(), 0));
    assert_eq!(first.unwrap().image, second.unwrap().image);
}

/// Random headers with few names, so that dimensions and variables often share names.
fn headers() -> impl Strategy<Value = Header> {
    let names =
        || prop::sample::subsequence(vec!["a", "b", "c", "d", "e", "f"], 0..=6).prop_shuffle();
    let picks = prop::collection::vec((any::<usize>(), 0..4usize, any::<bool>()), 6);
    let kinds = [
        Type::Char,
        INT,
        Type::Number(NumberType::F64),
        Type::Number(NumberType::I8),
    ];
    (
        names(),
        names(),
        picks,
        0..6usize,
        prop::sample::select(kinds.to_vec()),
    )
        .prop_map(|(dimensions, variables, picks, record, kind)| {
            let dimensions = dimensions.iter().enumerate();
            let len = |number| {
                if number == record {
                    0
                } else {
                    number as u64 + 2
                }
            };
            let dimensions: Vec<_> = dimensions
                .map(|(n, name)| dimension(name, len(n)))
                .collect();
            let variables = variables
                .iter()
                .zip(picks)
                .map(|(name, (first, rank, more))| {
                    let rank = if dimensions.is_empty() { 0 } else { rank };
                    let shape = (0..rank).map(|r| first.wrapping_add(r) % dimensions.len());
                    let shape = shape.enumerate().filter(|(at, d)| *at == 0 || *d != record);
                    let mut one =
                        variable(name.as_bytes(), &shape.map(|(_, d)| d).collect::<Vec<_>>());
                    let values = vec![1; if more { kind.size() } else { 0 }];
                    one.attributes = vec![
                        attribute(b"_FillValue", kind, &values),
                        attribute(b"x", INT, &[]),
                    ];
                    Variable { kind, ..one }
                });
            header(dimensions.clone(), variables.collect())
        })
}

#[test]
fn readers_see_the_dimensions_and_variables_of_any_header() {
    let dir = tempfile::tempdir().unwrap();
    let mut runner = TestRunner::deterministic();
    let mut expected = String::new();
    for number in 0..100 {
        let header = headers().new_tree(&mut runner).unwrap().current();
        let made = image_of(&header, 7).unwrap();
        assert!(
            made.diagnostics.is_empty(),
            "{header:?}: {:?}",
            made.diagnostics
        );
        assert_eq!(made.datasets.len(), header.variables.len());
        std::fs::write(dir.path().join(format!("{number:03}.nc")), &made.image).unwrap();
        let name = |d: &usize| String::from_utf8_lossy(&header.dimensions[*d].name).into_owned();
        let all: Vec<_> = (0..header.dimensions.len()).map(|d| name(&d)).collect();
        expected += &format!("{}:", all.join(""));
        for variable in &header.variables {
            let own: Vec<_> = variable.dimensions.iter().map(name).collect();
            let dims = header
                .dims(variable)
                .into_iter()
                .map(|d| if d == 0 { 7 } else { d });
            let dims: Vec<_> = dims.map(|d| d.to_string()).collect();
            expected += &format!(
                " {}({}){}",
                String::from_utf8_lossy(&variable.name),
                own.join(""),
                dims.join("x")
            );
        }
        expected.push('\n');
    }
    let Some(python) = Python::new() else { return };
    // h5netcdf lists dimensions in the order of their scales. This order depends on the order of the variables.
    for (open, in_order) in [("netCDF4.Dataset", true), ("h5netcdf.File", false)] {
        let code = format!(
            "import glob, h5netcdf, netCDF4, sys
for path in sorted(glob.glob(sys.argv[1] + '/*.nc')):
    f = {open}(path, 'r')
    shown = [f\" {{n}}({{''.join(v.dimensions)}}){{'x'.join(map(str, v.shape))}}\" for n, v in f.variables.items()]
    print(''.join(f.dimensions) + ':' + ''.join(shown))"
        );
        let seen = python.run(&code, &[dir.path()]);
        assert_eq!(seen.lines().count(), 100);
        for (seen, expected) in seen.lines().zip(expected.lines()) {
            let [(dimensions, rest), (all, variables)] =
                [seen, expected].map(|line| line.split_once(':').unwrap());
            assert_eq!(rest, variables, "{open}");
            let [mut dimensions, mut all] =
                [dimensions, all].map(|d| d.chars().collect::<Vec<_>>());
            if !in_order {
                dimensions.sort();
                all.sort();
            }
            assert_eq!(dimensions, all, "{open}");
        }
    }
}
