//! The worked examples of section 13, and the contradictions of section 10 that attributes alone show.

use std::ffi::OsStr;

use super::*;
use crate::netcdf::header::Type;
use crate::numbers::NumberType;
use crate::tiles::FileKind;
use crate::tiles::member::{Dimension, Value, Variable};

fn numbers(name: &str, numbers: &[i32]) -> Attribute {
    Attribute {
        name: name.into(),
        value: Value::Numbers(
            NumberType::I32,
            numbers.iter().flat_map(|n| n.to_le_bytes()).collect(),
        ),
    }
}

fn text(name: &str, text: &str) -> Attribute {
    Attribute {
        name: name.into(),
        value: Value::Text(text.into()),
    }
}

/// A header with these dimensions, each with a coordinate variable.
fn header(dimensions: &[(&str, u64)], attributes: Vec<Attribute>) -> MemberHeader {
    let dimension = |(name, len): &(&str, u64)| Dimension {
        name: (*name).into(),
        len: *len,
        is_unlimited: false,
    };
    let coordinate = |number: usize| Variable {
        name: dimensions[number].0.into(),
        kind: Type::Number(NumberType::F32),
        is_big_endian: true,
        dimensions: vec![number],
        attributes: Vec::new(),
        place: 0,
    };
    MemberHeader {
        kind: FileKind::Hdf5,
        is_classic: true,
        dimensions: dimensions.iter().map(dimension).collect(),
        attributes,
        variables: (0..dimensions.len()).map(coordinate).collect(),
        reach: None,
    }
}

/// The decomposed dimensions of members with these numbers and headers.
fn placed(family: Family, headers: &[(u32, MemberHeader)]) -> Result<Vec<Cut>, String> {
    let dimensions = headers[0].1.dimensions.iter();
    let dimensions: Vec<Vec<u8>> = dimensions.map(|dimension| dimension.name.clone()).collect();
    let mut members = Vec::new();
    for (number, header) in headers {
        let marks = marks(family, header, *number).map_err(|unfit| match unfit {
            Unfit::Other(reason) | Unfit::Kind(reason) => format!("member {number}: {reason}"),
        })?;
        members.push(Marked {
            name: format!("member {number}"),
            number: *number,
            lens: header
                .dimensions
                .iter()
                .map(|dimension| Some(dimension.len))
                .collect(),
            marks,
        });
    }
    let total = members[0].marks.total;
    let members = Members {
        dimensions: &dimensions,
        members: &members,
        are_all: total.is_none_or(|total| total == headers.len() as u64),
    };
    place(family, &members)
}

fn span(at: u64, len: u64) -> Span {
    Span {
        at,
        len,
        before: 0,
        all: len,
    }
}

#[track_caller]
fn assert_fails(family: Family, headers: &[(u32, MemberHeader)], expected: &str) {
    let error = placed(family, headers).unwrap_err();
    assert!(error.contains(expected), "{error}");
}

// --- FMS -----------------------------------------------------------------------------------------

fn fms(parts: &[(&str, [i32; 4])]) -> MemberHeader {
    let dimensions = parts
        .iter()
        .map(|(name, [_, _, a, b])| (*name, (b - a + 1) as u64));
    let dimensions: Vec<(&str, u64)> = dimensions.collect();
    let mut header = header(&dimensions, vec![numbers("NumFilesInSet", &[4])]);
    for (variable, (_, part)) in header.variables.iter_mut().zip(parts) {
        variable.attributes = vec![numbers("domain_decomposition", part)];
    }
    header
}

#[test]
fn fms_regional_and_symmetric() {
    let region = [
        (
            37,
            fms(&[("xt", [41, 53, 41, 49]), ("yt", [17, 25, 17, 21])]),
        ),
        (
            38,
            fms(&[("xt", [41, 53, 50, 53]), ("yt", [17, 25, 17, 21])]),
        ),
    ];
    let cuts = placed(Family::Fms, &region).unwrap();
    assert_eq!((cuts[0].whole, cuts[0].spans[1]), (13, span(9, 4)));
    assert_eq!((cuts[1].whole, cuts[1].spans[1]), (9, span(0, 5)));
    let symmetric = fms(&[("xh", [1, 40, 11, 20]), ("xq", [1, 41, 11, 21])]);
    let cuts = placed(Family::Fms, &[(1, symmetric)]).unwrap();
    assert_eq!(cuts[0].spans, [span(10, 10)]);
    assert_eq!((cuts[1].whole, cuts[1].spans[0]), (41, span(10, 11)));
}

#[test]
fn fms_members_that_contradict_each_other() {
    let first = fms(&[("xt", [1, 8, 1, 4])]);
    let pair = |second: MemberHeader| [(0, first.clone()), (1, second)];
    let mixed = "member 1: xt has 10 points in all, and 8 in member 0: two sets are mixed";
    assert_fails(Family::Fms, &pair(fms(&[("xt", [1, 10, 5, 8])])), mixed);
    let shifted = "xt has 8 points in all from 3, and 8 from 1 in member 0";
    assert_fails(Family::Fms, &pair(fms(&[("xt", [3, 10, 5, 8])])), shifted);
    let backwards = "domain_decomposition 1, 8, 6, 5 of xt is not a part";
    assert_fails(Family::Fms, &pair(fms(&[("xt", [1, 8, 6, 5])])), backwards);
    let other = fms(&[("xt", [1, 8, 5, 8]), ("yt", [1, 8, 1, 4])]);
    assert_fails(Family::Fms, &pair(other), "other dimensions are decomposed");
    let mut large = first.clone();
    large.variables[0].attributes = vec![Attribute {
        name: "domain_decomposition".into(),
        value: Value::Numbers(
            NumberType::I64,
            [1i64, 1 << 40, 1, 4]
                .iter()
                .flat_map(|n| n.to_le_bytes())
                .collect(),
        ),
    }];
    assert_fails(Family::Fms, &pair(large), "integers below 2^31");
}

#[test]
fn fms_files_that_are_no_members() {
    let name = OsStr::new("x.nc.0000");
    let name = MemberName::parse(name).unwrap();
    let whole = fms(&[("xt", [1, 40, 1, 40])]);
    assert_eq!(recognize(&name, &whole), Recognized::No);
    let mut unmarked = fms(&[("xt", [1, 40, 1, 20])]);
    unmarked.attributes.clear();
    assert_eq!(recognize(&name, &unmarked), Recognized::Set);
    let mut plain = header(&[("x", 3)], vec![]);
    assert_eq!(recognize(&name, &plain), Recognized::No);
    plain.attributes = vec![numbers("NumFilesInSet", &[0])];
    assert!(matches!(recognize(&name, &plain), Recognized::Refused(_)));
}

// --- NEMO ----------------------------------------------------------------------------------------

/// A member: number, size_global, size_local, position_first, halo_size_start and _end, along x and y.
fn nemo(
    number: i32,
    whole: [i32; 2],
    local: [i32; 2],
    first: [i32; 2],
    halo: [[i32; 2]; 2],
) -> MemberHeader {
    let last = [0, 1].map(|k| first[k] + local[k] - 1);
    let attributes = vec![
        numbers("DOMAIN_number_total", &[6]),
        numbers("DOMAIN_number", &[number]),
        numbers("DOMAIN_dimensions_ids", &[1, 2]),
        numbers("DOMAIN_size_global", &whole),
        numbers("DOMAIN_size_local", &local),
        numbers("DOMAIN_position_first", &first),
        numbers("DOMAIN_position_last", &last),
        numbers("DOMAIN_halo_size_start", &halo[0]),
        numbers("DOMAIN_halo_size_end", &halo[1]),
        text("DOMAIN_type", "BOX"),
    ];
    let [x, y] = local.map(|n| n as u64);
    header(&[("x", x), ("y", y), ("z", 3)], attributes)
}

#[test]
fn nemo_with_a_halo() {
    let member = nemo(3, [20, 15], [11, 7], [10, 5], [[1, 1], [0, 1]]);
    let cuts = placed(Family::Nemo, &[(3, member)]).unwrap();
    let of = |at, len, all| Span {
        at,
        len,
        before: 1,
        all,
    };
    assert_eq!((cuts[0].whole, cuts[0].spans[0]), (20, of(10, 10, 11)));
    assert_eq!((cuts[1].whole, cuts[1].spans[0]), (15, of(5, 5, 7)));
    // The halo may lie behind the whole, the interior may not.
    placed(
        Family::Nemo,
        &[(3, nemo(3, [20, 15], [11, 7], [12, 5], [[1, 1], [2, 1]]))],
    )
    .unwrap();
    let outside = nemo(3, [20, 15], [11, 7], [12, 5], [[1, 1], [1, 1]]);
    assert_fails(
        Family::Nemo,
        &[(3, outside)],
        "points 12 to 22 with a halo of 1 and 1 are not 11 points of 20",
    );
}

#[test]
fn nemo_dimensions_are_those_that_fit() {
    let none = [[0, 0], [0, 0]];
    let at = |mut header: MemberHeader, dimensions: &[(&str, u64)]| {
        header.dimensions = super::tests::header(dimensions, vec![]).dimensions;
        header
    };
    let first = || nemo(0, [8, 6], [2, 6], [1, 1], none);
    let second = || nemo(1, [8, 6], [6, 6], [3, 1], none);
    // The first dimension fits only in the first member.
    let members = [
        (0, at(first(), &[("bounds", 2), ("x", 2), ("y", 6)])),
        (1, at(second(), &[("bounds", 2), ("x", 6), ("y", 6)])),
    ];
    let cuts = placed(Family::Nemo, &members).unwrap();
    assert_eq!([cuts[0].dimension, cuts[1].dimension], [1, 2]);
    // No dimension begins with x, or two do.
    for (names, lens) in [(["b", "u", "y"], [2, 6, 6]), (["b", "x", "x2"], [2, 6, 6])] {
        let of = |lens: [u64; 3]| names.into_iter().zip(lens).collect::<Vec<_>>();
        let [_, second_len, last] = lens;
        let of_first = of([2, 2, if names[2] == "y" { last } else { 2 }]);
        let members = [
            (0, at(first(), &of_first)),
            (1, at(second(), &of([2, second_len, last]))),
        ];
        assert_fails(Family::Nemo, &members, "DOMAIN_dimensions_ids is 1, 2");
    }
}

#[test]
fn nemo_numbers_are_those_of_the_names() {
    let none = [[0, 0], [0, 0]];
    let member = nemo(1, [8, 6], [2, 6], [1, 1], none);
    assert_fails(
        Family::Nemo,
        &[(2, member.clone())],
        "DOMAIN_number is 1: it was renamed",
    );
    let name = MemberName::parse(OsStr::new("a_0001.nc")).unwrap();
    assert_eq!(recognize(&name, &member), Recognized::Set);
    let mut odd = member.clone();
    odd.attributes[9] = text("DOMAIN_type", "points");
    assert!(matches!(recognize(&name, &odd), Recognized::Refused(_)));
    let mut alone = member;
    alone.attributes[0] = numbers("DOMAIN_number_total", &[1]);
    assert_eq!(recognize(&name, &alone), Recognized::No);
}

// --- ROMS ----------------------------------------------------------------------------------------

fn roms(partition: [i32; 4], lens: [u64; 4], more: &[Attribute]) -> MemberHeader {
    let names = ["xi_rho", "xi_u", "eta_rho", "eta_v"];
    let dimensions: Vec<_> = names.into_iter().zip(lens).collect();
    let mut attributes = vec![numbers("partition", &partition)];
    attributes.extend_from_slice(more);
    header(&dimensions, attributes)
}

#[test]
fn croco_members_are_placed_by_those_before_them() {
    let members: Vec<(u32, MemberHeader)> = (0..6)
        .map(|n| {
            let (ii, jj) = (n % 3, n / 3);
            let (xi, u) = ([7, 6, 7][ii], [6, 6, 7][ii]);
            let (eta, v) = ([7, 7][jj], [6, 7][jj]);
            (
                n as u32,
                roms([ii as i32, jj as i32, 3, 2], [xi, u, eta, v], &[]),
            )
        })
        .collect();
    let cuts = placed(Family::Roms, &members).unwrap();
    let of_4 = cuts.iter().map(|cut| cut.spans[4]).collect::<Vec<_>>();
    assert_eq!(of_4, [span(7, 6), span(6, 6), span(7, 7), span(6, 7)]);
    assert_eq!(
        cuts.iter().map(|cut| cut.whole).collect::<Vec<_>>(),
        [20, 19, 14, 13]
    );
    // Boundary data come from the members at the edge.
    let dimensions: Vec<Vec<u8>> = members[0]
        .1
        .dimensions
        .iter()
        .map(|d| d.name.clone())
        .collect();
    let marked = members.iter().map(|(number, header)| Marked {
        name: String::new(),
        number: *number,
        lens: Vec::new(),
        marks: marks(Family::Roms, header, *number).unwrap(),
    });
    let of = Members {
        dimensions: &dimensions,
        members: &marked.collect::<Vec<_>>(),
        are_all: true,
    };
    for (name, cut, expected) in [
        ("temp_west", 2, Some(vec![0, 3])),
        ("temp_east", 2, Some(vec![2, 5])),
        ("temp_south", 0, Some(vec![0, 1, 2])),
        ("temp_north", 0, Some(vec![3, 4, 5])),
        ("temp_north", 2, None),
        ("lat", 2, None),
    ] {
        let got = holders(Family::Roms, name.as_bytes(), &[Axis::Cut(cut)], &of, &cuts);
        assert_eq!(got, expected.map_or(Holders::All, Holders::Some), "{name}");
    }
    // A whole column is lost.
    let lost: Vec<_> = members
        .into_iter()
        .filter(|(number, _)| number % 3 != 1)
        .collect();
    assert_fails(Family::Roms, &lost, "no member of column 1 can be read");
}

#[test]
fn ucla_members_tell_their_places() {
    let members = |more: &[Attribute]| {
        [
            (0, [1, 1], [7, 6, 7, 6]),
            (1, [8, 1], [6, 6, 7, 6]),
            (2, [1, 8], [7, 6, 7, 7]),
            (3, [8, 8], [6, 6, 7, 7]),
        ]
        .map(|(n, [xi, eta], lens)| (n as u32, roms([n, 4, xi, eta], lens, more)))
    };
    let cuts = placed(Family::Roms, &members(&[])).unwrap();
    assert_eq!(
        cuts.iter().map(|cut| cut.whole).collect::<Vec<_>>(),
        [13, 12, 14, 13]
    );
    assert_eq!(
        (cuts[1].spans[1], cuts[3].spans[2]),
        (span(6, 6), span(6, 7))
    );
    // The last column is land, and the length is known by an attribute.
    let land = [
        numbers("ij_nodes", &[3, 2]),
        numbers("globaldims", &[20, 14]),
    ];
    let cuts = placed(Family::Roms, &members(&land)).unwrap();
    assert_eq!(
        cuts.iter().map(|cut| cut.whole).collect::<Vec<_>>(),
        [20, 19, 14, 13]
    );
    // One member less, or a column less.
    placed(Family::Roms, &members(&[])[..3]).unwrap();
    let column = [members(&[])[0].clone(), members(&[])[2].clone()];
    assert_fails(Family::Roms, &column, "unknown without globaldims");
    let mut gap = members(&[]);
    gap[3].1.dimensions[2].len = 3;
    assert_fails(Family::Roms, &gap, "without ij_nodes");
    let mut odd = members(&[]);
    odd[1].1.dimensions[1].len = 7;
    assert_fails(Family::Roms, &odd, "which no rule explains");
    let mut other = members(&[]);
    other[3].1 = roms([3, 4, 8, 8], [6, 6, 7, 7], &land);
    assert_fails(
        Family::Roms,
        &other,
        "member 3: partition, ij_nodes and globaldims do not fit",
    );
}

#[test]
fn a_partition_of_another_number_is_no_member() {
    let name = MemberName::parse(OsStr::new("data.2020.nc")).unwrap();
    for (partition, expected) in [
        ([2020, 3000, 1, 1], Recognized::Set),
        ([0, 4, 1, 1], Recognized::No),
        ([2020, 2020, 1, 1], Recognized::No),
        ([20, 20, 100, 21], Recognized::Set),
    ] {
        assert_eq!(
            recognize(&name, &roms(partition, [2, 2, 2, 2], &[])),
            expected,
            "{partition:?}"
        );
    }
}

// --- MITgcm --------------------------------------------------------------------------------------

fn mitgcm(tile: i32) -> MemberHeader {
    let counts = [
        ("tile_number", tile),
        ("sNx", 8),
        ("sNy", 6),
        ("nSx", 3),
        ("nSy", 2),
        ("nPx", 1),
        ("nPy", 1),
        ("Nx", 24),
        ("Ny", 12),
    ];
    let attributes = counts.map(|(name, count)| numbers(name, &[count]));
    header(
        &[("T", 2), ("X", 8), ("Xp1", 9), ("Y", 6), ("Yp1", 7)],
        attributes.into(),
    )
}

#[test]
fn mitgcm_tiles_are_placed_by_their_numbers() {
    let cuts = placed(Family::Mitgcm, &[(5, mitgcm(5))]).unwrap();
    let spans: Vec<_> = cuts
        .iter()
        .map(|cut| (cut.dimension, cut.whole, cut.spans[0]))
        .collect();
    let expected = [
        (1, 24, span(8, 8)),
        (2, 25, span(8, 9)),
        (3, 12, span(6, 6)),
        (4, 13, span(6, 7)),
    ];
    assert_eq!(spans, expected);
    let name = MemberName::parse(OsStr::new("state.0000000000.t005.nc")).unwrap();
    assert_eq!(recognize(&name, &mitgcm(5)), Recognized::Set);
    assert_eq!(recognize(&name, &mitgcm(4)), Recognized::No);
    let mut faces = mitgcm(5);
    faces.attributes.push(numbers("exch2_myFace", &[1]));
    let mut overlap = mitgcm(5);
    overlap.dimensions[1].name = b"Xwh".to_vec();
    for refused in [faces, overlap] {
        assert!(matches!(recognize(&name, &refused), Recognized::Refused(_)));
    }
}
