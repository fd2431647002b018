//! The result of a scan for everything in a log file except logged data. libhdf5 reads it from the view's bytes.

use std::ffi::c_char;
use std::fs;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;

use crate::common::clock::next_second;
use crate::common::encoder::raw::{self, Id, call};
use crate::common::encoder::*;
use h5logfs_view::View;
use hdf5_metno_sys::h5d::*;
use hdf5_metno_sys::h5g::*;
use hdf5_metno_sys::h5l::*;
use hdf5_metno_sys::h5o::*;
use hdf5_metno_sys::h5p::*;
use hdf5_metno_sys::h5r::*;
use hdf5_metno_sys::h5s::*;
use hdf5_metno_sys::h5t::*;
use tempfile::TempDir;

/// A log file and its view as a file opened by libhdf5.
struct Shown {
    dir: TempDir,
    path: PathBuf,
    view: Arc<View>,
    file: Id,
}

/// A log with two datasets, `a` and `g/b`. `add` adds further objects.
fn log_file() -> LogFile {
    let a = Dataset::new("a", 0, Type::I32, &[6, 5]);
    let entry = Entry::one(0, &[0, 0], &[6, 5], (0..120).collect());
    LogFile::with(vec![a], vec![entry])
}

fn show(add: impl FnOnce(&Id)) -> Shown {
    show_file(&log_file(), add)
}

fn show_file(log: &LogFile, add: impl FnOnce(&Id)) -> Shown {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    log.write_with(&path, add);
    let view = open_view(&path).unwrap();
    let exported = dir.path().join("view.h5");
    export(&view, &exported);
    let file = raw::open_file(&exported);
    Shown {
        dir,
        path,
        view,
        file,
    }
}

// --- references ----------------------------------------------------------------------------------

fn object_reference(file: &Id, target: &str) -> [u8; 8] {
    let (mut reference, target) = ([0; 8], raw::text(target));
    call!(H5Rcreate(
        reference.as_mut_ptr().cast(),
        file.get(),
        target.as_ptr(),
        H5R_type_t::H5R_OBJECT,
        -1
    ));
    reference
}

fn region_reference(file: &Id, target: &str, space: &Id) -> [u8; 12] {
    let (mut reference, target) = ([0; 12], raw::text(target));
    call!(H5Rcreate(
        reference.as_mut_ptr().cast(),
        file.get(),
        target.as_ptr(),
        H5R_type_t::H5R_DATASET_REGION,
        space.get()
    ));
    reference
}

fn kind_of(bytes: &[u8]) -> H5R_type_t {
    match bytes.len() {
        8 => H5R_type_t::H5R_OBJECT,
        _ => H5R_type_t::H5R_DATASET_REGION,
    }
}

/// The address of a reference's target.
fn target_of(file: &Id, reference: &[u8]) -> u64 {
    let kind = kind_of(reference);
    let object = Id::own(call!(H5Rdereference2(
        file.get(),
        H5P_DEFAULT,
        kind,
        reference.as_ptr().cast()
    )));
    raw::address(&object)
}

#[track_caller]
fn assert_points_at(file: &Id, reference: &[u8], target: &str) {
    assert_eq!(
        target_of(file, reference),
        raw::address(&raw::open(file, target))
    );
}

fn region_of(file: &Id, reference: &[u8]) -> Id {
    let kind = H5R_type_t::H5R_DATASET_REGION;
    Id::own(call!(H5Rget_region(
        file.get(),
        kind,
        reference.as_ptr().cast()
    )))
}

/// Corners of the blocks of a hyperslab selection.
fn blocks_of(space: &Id) -> Vec<u64> {
    let blocks = call!(H5Sget_select_hyper_nblocks(space.get())) as u64;
    let (dims, _) = raw::extent(space);
    let mut corners = vec![0; blocks as usize * dims.len() * 2];
    call!(H5Sget_select_hyper_blocklist(
        space.get(),
        0,
        blocks,
        corners.as_mut_ptr()
    ));
    corners
}

fn points_of(space: &Id) -> Vec<u64> {
    let points = call!(H5Sget_select_elem_npoints(space.get())) as u64;
    let (dims, _) = raw::extent(space);
    let mut coordinates = vec![0; points as usize * dims.len()];
    call!(H5Sget_select_elem_pointlist(
        space.get(),
        0,
        points,
        coordinates.as_mut_ptr()
    ));
    coordinates
}

#[test]
fn object_references_in_compounds_arrays_and_sequences() {
    let shown = show(|file| {
        let group = raw::create_group(file, "z");
        let reference = raw::standard(H5T_STD_REF_OBJ);
        let number = raw::standard(H5T_STD_I32LE);
        let pair = raw::array_type(&reference, &[2]);
        let members = [
            ("n", 0, &number),
            ("pair", 8, &pair),
            ("one", 24, &reference),
        ];
        let compound = raw::compound_type(32, &members);
        let (to_a, to_z) = (object_reference(file, "a"), object_reference(file, "z"));
        let value = [&7u64.to_le_bytes()[..], &to_a, &to_z, &to_a].concat();
        raw::attribute(file, "compound", &compound, &raw::space(&[1]), &value);
        raw::attribute(&group, "array", &pair, &raw::scalar_space(), &value[8..24]);

        let sequence = raw::sequence_type(&compound);
        let twice = value.repeat(2);
        let lists = [
            hvl_t {
                len: 2,
                p: twice.as_ptr().cast_mut().cast(),
            },
            hvl_t {
                len: 0,
                p: ptr::null_mut(),
            },
        ];
        // SAFETY: two lists in libhdf5's memory layout.
        let bytes =
            unsafe { std::slice::from_raw_parts(lists.as_ptr().cast::<u8>(), size_of_val(&lists)) };
        raw::attribute(file, "lists", &sequence, &raw::space(&[2]), bytes);
    });
    let check = |value: &[u8]| {
        assert_eq!(value[..4], 7u32.to_le_bytes());
        assert_points_at(&shown.file, &value[8..16], "a");
        assert_points_at(&shown.file, &value[16..24], "z");
        assert_points_at(&shown.file, &value[24..32], "a");
    };
    check(&raw::read_attribute(&shown.file, "compound"));
    let array = raw::read_attribute(&raw::open(&shown.file, "z"), "array");
    assert_points_at(&shown.file, &array[..8], "a");
    assert_points_at(&shown.file, &array[8..], "z");

    let lists = raw::read_attribute(&shown.file, "lists");
    let len = |at: usize| u64::from_le_bytes(lists[at..at + 8].try_into().unwrap());
    assert_eq!((len(0), len(16)), (2, 0));
    // SAFETY: libhdf5 has filled the first list with two elements of 32 bytes.
    let elements = unsafe { std::slice::from_raw_parts(len(8) as *const u8, 64) };
    check(&elements[..32]);
    check(&elements[32..]);
}

#[test]
fn references_to_nothing_become_null_and_are_told() {
    let shown = show(|file| {
        let reference = raw::standard(H5T_STD_REF_OBJ);
        let value = [[0; 8], 0x7777u64.to_le_bytes()].concat();
        raw::attribute(file, "lost", &reference, &raw::space(&[2]), &value);
    });
    assert_eq!(raw::read_attribute(&shown.file, "lost"), [0; 16]);
    let diagnostics = &shown.view.snapshot().diagnostics;
    assert!(
        diagnostics.iter().any(|d| d.what.contains("references")),
        "{diagnostics:?}"
    );
}

#[test]
fn region_references_to_logged_datasets() {
    for user_block in [0, 1024] {
        let mut log = log_file();
        log.user_block = vec![0; user_block];
        let shown = show_file(&log, |file| {
            let slab = raw::space(&[6, 5]);
            raw::select_block(&slab, &[1, 2], &[2, 3], false);
            raw::select_block(&slab, &[5, 0], &[1, 1], true);
            let points = raw::space(&[6, 5]);
            raw::select_points(&points, 3, &[5, 4, 0, 0, 2, 3]);
            let none = raw::space(&[6, 5]);
            call!(H5Sselect_none(none.get()));
            let spaces = [&slab, &points, &none, &raw::space(&[6, 5])];
            let values = spaces.map(|s| region_reference(file, "a", s)).concat();
            let datatype = raw::standard(H5T_STD_REF_DSETREG);
            raw::attribute(file, "regions", &datatype, &raw::space(&[4]), &values);
        });
        let values = raw::read_attribute(&shown.file, "regions");
        for value in values.chunks(12) {
            assert_points_at(&shown.file, value, "a");
        }
        let region = |n: usize| region_of(&shown.file, &values[12 * n..12 * n + 12]);
        assert_eq!(blocks_of(&region(0)), [1, 2, 2, 4, 5, 0, 5, 0]);
        assert_eq!(points_of(&region(1)), [5, 4, 0, 0, 2, 3]);
        assert_eq!(call!(H5Sget_select_npoints(region(2).get())), 0);
        assert_eq!(call!(H5Sget_select_npoints(region(3).get())), 30);
        assert_eq!(raw::extent(&region(3)).0, [6, 5]);
    }
}

#[test]
fn references_in_datasets_that_were_never_logged() {
    let shown = show(|file| {
        let default = raw::dataset_properties();
        let slab = raw::space(&[6, 5]);
        raw::select_block(&slab, &[0, 1], &[6, 2], false);
        let value = region_reference(file, "a", &slab);
        let datatype = raw::standard(H5T_STD_REF_DSETREG);
        let regions = raw::create_dataset(file, "regions", &datatype, &raw::space(&[2]), &default);
        raw::write(&regions, &[value, [0; 12]].concat());
        let datatype = raw::standard(H5T_STD_REF_OBJ);
        let objects = raw::create_dataset(file, "objects", &datatype, &raw::space(&[2]), &default);
        // References to an object that the walk meets later.
        let later = [
            object_reference(file, "a"),
            object_reference(file, "regions"),
        ];
        raw::write(&objects, &later.concat());
    });
    let values = raw::read(&raw::open(&shown.file, "regions"));
    assert_points_at(&shown.file, &values[..12], "a");
    assert_eq!(
        blocks_of(&region_of(&shown.file, &values[..12])),
        [0, 1, 5, 2]
    );
    assert_eq!(values[12..], [0; 12]);
    let values = raw::read(&raw::open(&shown.file, "objects"));
    assert_points_at(&shown.file, &values[..8], "a");
    assert_points_at(&shown.file, &values[8..], "regions");
}

// --- plain datasets ------------------------------------------------------------------------------

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 249 + 1) as u8).collect()
}

#[test]
fn plain_datasets_of_every_layout() {
    let (small, large) = (pattern(1000), pattern(300_000));
    for (user_block, latest) in [(0, false), (512, false), (512, true)] {
        let mut log = log_file();
        log.user_block = vec![2; user_block];
        log.latest = latest;
        let shown = show_file(&log, |file| {
            let bytes = raw::standard(H5T_STD_U8LE);
            let make = |name: &str, data: &[u8], creation: &Id| {
                let space = raw::space(&[data.len() as u64]);
                raw::write(
                    &raw::create_dataset(file, name, &bytes, &space, creation),
                    data,
                );
            };
            make("small", &small, &raw::dataset_properties());
            make("large", &large, &raw::dataset_properties());
            let compact = raw::dataset_properties();
            call!(H5Pset_layout(compact.get(), H5D_layout_t::H5D_COMPACT));
            make("compact", &small, &compact);
            let chunked = raw::dataset_properties();
            call!(H5Pset_chunk(chunked.get(), 1, [700u64].as_ptr()));
            make("chunked", &large, &chunked);
            call!(H5Pset_shuffle(chunked.get()));
            call!(H5Pset_deflate(chunked.get(), 6));
            make("deflated", &large, &chunked);
            let space = raw::space(&[9]);
            raw::create_dataset(
                file,
                "unwritten",
                &bytes,
                &space,
                &raw::dataset_properties(),
            );
            raw::create_dataset(file, "unwritten chunks", &bytes, &space, {
                call!(H5Pset_chunk(chunked.get(), 1, [3u64].as_ptr()));
                &chunked
            });
        });
        let read = |name: &str| raw::read(&raw::open(&shown.file, name));
        assert!(read("small") == small && read("compact") == small);
        assert!(read("large") == large, "large");
        assert!(read("chunked") == large && read("deflated") == large);
        assert_eq!(read("unwritten"), [0; 9]);
        assert_eq!(read("unwritten chunks"), [0; 9]);
        assert_eq!(raw::filter_ids(&raw::open(&shown.file, "deflated")), [2, 1]);
        assert_eq!(read("a"), (0..120).collect::<Vec<u8>>());
    }
}

#[test]
fn strings_of_variable_length() {
    let texts = [raw::text("one"), raw::text(""), raw::text("Grüße")];
    let pointers = [texts[0].as_ptr(), texts[1].as_ptr(), texts[2].as_ptr()];
    // SAFETY: an array of pointers, as libhdf5 expects.
    let bytes = unsafe {
        std::slice::from_raw_parts(pointers.as_ptr().cast::<u8>(), size_of_val(&pointers))
    };
    let shown = show(|file| {
        let datatype = raw::standard(H5T_C_S1);
        call!(H5Tset_size(datatype.get(), usize::MAX));
        let space = raw::space(&[3]);
        raw::attribute(file, "texts", &datatype, &space, bytes);
        let creation = raw::dataset_properties();
        let dataset = raw::create_dataset(file, "texts", &datatype, &space, &creation);
        raw::write(&dataset, bytes);
    });
    let dataset = raw::read(&raw::open(&shown.file, "texts"));
    for values in [raw::read_attribute(&shown.file, "texts"), dataset] {
        for (value, text) in values.chunks(8).zip(&texts) {
            let pointer = u64::from_le_bytes(value.try_into().unwrap()) as *const c_char;
            // SAFETY: libhdf5 has put a pointer to a string there, or null for an empty one.
            let found = if pointer.is_null() {
                raw::text("")
            } else {
                unsafe { std::ffi::CStr::from_ptr(pointer) }.to_owned()
            };
            assert_eq!(found, *text);
        }
    }
}

// --- attributes ----------------------------------------------------------------------------------

#[test]
fn large_dense_and_many_attributes() {
    let large = pattern(200_000);
    for latest in [false, true] {
        let mut log = log_file();
        log.latest = latest;
        let shown = show_file(&log, |file| {
            let bytes = raw::standard(H5T_STD_U8LE);
            let space = raw::space(&[large.len() as u64]);
            let group = raw::create_group(file, "g");
            for object in [file, &group, &raw::open(file, "a")] {
                if latest {
                    raw::attribute(object, "large", &bytes, &space, &large);
                }
                for number in 0..200i64 {
                    raw::attribute_i64(object, &format!("n{number}"), &[number]);
                }
            }
        });
        for name in ["/", "g", "a"] {
            let object = raw::open(&shown.file, name);
            let extra = u64::from(latest);
            assert_eq!(raw::info(&object).num_attrs, 200 + extra, "{name}");
            if latest {
                assert!(raw::read_attribute(&object, "large") == large);
            }
            for number in 0..200i64 {
                let value = raw::read_attribute(&object, &format!("n{number}"));
                assert_eq!(value, number.to_le_bytes());
            }
        }
        assert_eq!(
            raw::read(&raw::open(&shown.file, "a")),
            (0..120).collect::<Vec<u8>>()
        );
    }
}

#[test]
fn attributes_without_values_and_the_layouts_own() {
    let shown = show(|file| {
        let bytes = raw::standard(H5T_STD_U8LE);
        raw::attribute(file, "null", &bytes, &raw::null_space(), &[]);
        raw::attribute(file, "empty", &bytes, &raw::space(&[0]), &[]);
        raw::attribute_i32(file, "_h5logfs_writer", &[1]);
        raw::attribute_i32(file, "__FillValue", &[5]);
        let group = raw::create_group(file, "g");
        // The name is internal on stub datasets only.
        raw::attribute_i32(&group, "_dims", &[3]);
        raw::attribute_i32(&raw::open(file, "a"), "__ID", &[8]);
    });
    let root = raw::open(&shown.file, "/");
    for name in ["_int_att", "_h5logfs_writer", "__FillValue"] {
        assert!(!raw::has_attribute(&root, name), "{name}");
    }
    for name in ["null", "empty", "_FillValue"] {
        assert!(raw::has_attribute(&root, name), "{name}");
    }
    assert!(raw::has_attribute(&raw::open(&shown.file, "g"), "_dims"));
    let a = raw::open(&shown.file, "a");
    assert_eq!(raw::read_attribute(&a, "_ID"), 8i32.to_le_bytes());
    assert!(!raw::has_attribute(&a, "_dims"));
    assert_eq!(raw::info(&a).num_attrs, 1);
}

fn comment_of(object: &Id) -> String {
    let mut text = [0u8; 100];
    let len = call!(H5Oget_comment(
        object.get(),
        text.as_mut_ptr().cast::<c_char>(),
        text.len()
    ));
    String::from_utf8(text[..len as usize].to_vec()).unwrap()
}

#[test]
#[allow(deprecated)] // Comments are what old files have.
fn comments_and_times() {
    for latest in [false, true] {
        let mut log = log_file();
        log.latest = latest;
        let shown = show_file(&log, |file| {
            let creation = raw::group_properties();
            call!(H5Pset_obj_track_times(creation.get(), 1));
            let group = raw::create_group_with(file, "g", creation.get());
            for (object, text) in [
                (&group, "a group"),
                (&raw::open(file, "a"), "a stub dataset"),
            ] {
                let text = raw::text(text);
                call!(H5Oset_comment(object.get(), text.as_ptr()));
            }
        });
        let original = raw::open_file(&shown.path);
        for (name, comment) in [("g", "a group"), ("a", "a stub dataset")] {
            let (old, new) = (raw::open(&original, name), raw::open(&shown.file, name));
            assert_eq!(comment_of(&new), comment);
            let (old, new) = (raw::info(&old), raw::info(&new));
            // Groups of the oldest form, which the view has, keep no times.
            if name == "a" {
                assert_eq!(new.ctime, old.ctime, "{name}, latest: {latest}");
            }
        }
        assert_ne!(raw::info(&raw::open(&shown.file, "a")).ctime, 0);
    }
}

/// Whether an object's creation properties say that it has times.
fn tracks_times(object: &Id) -> bool {
    let list = match raw::info(object).type_ {
        H5O_type_t::H5O_TYPE_GROUP => call!(H5Gget_create_plist(object.get())),
        H5O_type_t::H5O_TYPE_DATASET => call!(H5Dget_create_plist(object.get())),
        _ => call!(H5Tget_create_plist(object.get())),
    };
    let (list, mut tracks) = (Id::own(list), 0);
    call!(H5Pget_obj_track_times(list.get(), &mut tracks));
    tracks != 0
}

/// Objects of all kinds, some of them with times. Headers of the oldest format cannot record that there are no times.
#[test]
fn objects_have_times_as_in_the_log() {
    for (latest, tracked) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let mut log = log_file();
        log.latest = latest;
        let mut names = vec!["a".to_owned()];
        let shown = show_file(&log, |file| {
            let set = |list: Id| {
                call!(H5Pset_obj_track_times(list.get(), tracked));
                list
            };
            let number = raw::standard(H5T_STD_I32LE);
            let named = raw::standard(H5T_STD_I32LE);
            let (name, list) = (raw::text("named"), set(raw::type_properties()));
            let (at, named_id) = (file.get(), named.get());
            call!(H5Tcommit2(at, name.as_ptr(), named_id, 0, list.get(), 0));
            names.push("named".into());
            let group = raw::create_group_with(file, "g", set(raw::group_properties()).get());
            names.push("g".into());
            raw::create_group(&group, "timed");
            names.push("g/timed".into());
            for (parent, path) in [(file, ""), (&group, "g/")] {
                for (kind, datatype) in [
                    ("contiguous", &number),
                    ("compact", &number),
                    ("chunked", &number),
                    ("variable", &raw::sequence_type(&number)),
                    ("of a committed type", &named),
                ] {
                    let list = set(raw::dataset_properties());
                    match kind {
                        "compact" => {
                            call!(H5Pset_layout(list.get(), H5D_layout_t::H5D_COMPACT));
                        }
                        "chunked" => {
                            call!(H5Pset_chunk(list.get(), 1, [2].as_ptr()));
                        }
                        _ => {}
                    }
                    let space = raw::space(&[3]);
                    let dataset = raw::create_dataset(parent, kind, datatype, &space, &list);
                    if !raw::has_pointers(datatype) {
                        raw::write(&dataset, &[7; 12]);
                    }
                    names.push(format!("{path}{kind}"));
                }
                // The second is made like the first.
                for (id, name) in [(1, "logged"), (2, "logged too")] {
                    let list = set(raw::dataset_properties());
                    let stub_dataset =
                        raw::create_dataset(parent, name, &number, &raw::null_space(), &list);
                    Dataset::new(name, id, Type::I32, &[6, 5]).mark(&stub_dataset);
                    names.push(format!("{path}{name}"));
                }
            }
        });
        let original = raw::open_file(&shown.path);
        for name in &names {
            let (old, new) = (raw::open(&original, name), raw::open(&shown.file, name));
            let has_none = latest && tracked == 0 && !["a", "g/timed"].contains(&name.as_str());
            assert_eq!(tracks_times(&old), !has_none, "{name}, latest: {latest}");
            assert_eq!(tracks_times(&new), !has_none, "{name}, latest: {latest}");
        }
    }
}

/// The times are old, so the view cannot have made them itself.
#[test]
fn old_times_stay_old() {
    for latest in [false, true] {
        let mut log = log_file();
        log.latest = latest;
        let shown = show_file(&log, |_| {});
        let time = raw::info(&raw::open(&raw::open_file(&shown.path), "a")).ctime;
        next_second();
        let view = open_view(&shown.path).unwrap();
        let exported = shown.dir.path().join("later.h5");
        export(&view, &exported);
        let info = raw::info(&raw::open(&raw::open_file(&exported), "a"));
        assert_eq!(info.ctime, time);
    }
}

// --- names and links -----------------------------------------------------------------------------

#[test]
fn links_of_every_kind() {
    let shown = show(|file| {
        let group = raw::create_group(file, "g");
        let inner = raw::create_group(&group, "inner");
        // Cycles: to the parent, to the root, to itself.
        raw::hard_link(file, "g", &inner, "up");
        raw::hard_link(file, "/", &inner, "root");
        raw::hard_link(file, "g/inner", &inner, "self");
        raw::hard_link(file, "a", &inner, "a again");
        raw::soft_link("/a", &inner, "soft");
        raw::soft_link("/nowhere", &inner, "dangling");
        raw::external_link("other.h5", "/x/y", &inner, "external");
    });
    let open = |path: &str| raw::address(&raw::open(&shown.file, path));
    assert_eq!(open("g/inner/up"), open("g"));
    assert_eq!(open("g/inner/root"), open("/"));
    assert_eq!(open("g/inner/self/self"), open("g/inner"));
    assert_eq!(open("g/inner/a again"), open("a"));
    assert_eq!(open("g/inner/soft"), open("a"));
    assert_eq!(raw::info(&raw::open(&shown.file, "a")).rc, 2);
    let inner = raw::open(&shown.file, "g/inner");
    assert!(raw::link_exists(&inner, "dangling"));
    let (mut value, name) = ([0u8; 32], raw::text("external"));
    call!(H5Lget_val(
        inner.get(),
        name.as_ptr(),
        value.as_mut_ptr().cast(),
        value.len(),
        H5P_DEFAULT
    ));
    assert_eq!(&value[1..15], b"other.h5\0/x/y\0");
    assert_eq!(shown.view.snapshot().datasets.len(), 1);
}

/// Names that other programs treat in a special way.
fn strange_names() -> Vec<String> {
    let names = ["a b", "..", "100 %d", "back\\slash", "new\nline"].map(str::to_owned);
    names.into_iter().chain(["long".repeat(250)]).collect()
}

#[test]
fn names_that_are_escaped_hidden_or_not_ascii() {
    let shown = show(|file| {
        for name in ["__plain", "_odd", "__odd", "__LOG", "___three", "日本"] {
            raw::create_group(file, name);
        }
        for name in strange_names() {
            raw::create_group(file, &name);
        }
        let group = raw::create_group(file, "g");
        raw::create_group(&group, "_LOG");
        raw::attribute_i32(&group, "größe", &[1]);
        let utf8 = raw::property_list(hdf5::sync::sync(|| *H5P_CLS_LINK_CREATE));
        call!(H5Pset_char_encoding(utf8.get(), H5T_cset_t::H5T_CSET_UTF8));
        let name = raw::text("Ωmega");
        drop(Id::own(call!(H5Gcreate2(
            group.get(),
            name.as_ptr(),
            utf8.get(),
            H5P_DEFAULT,
            H5P_DEFAULT
        ))));
    });
    let exists = |name: &str| raw::link_exists(&shown.file, name);
    // The unescaped name where it is free, otherwise the stored one.
    for name in ["_plain", "_odd", "__odd", "__three", "日本"] {
        assert!(exists(name), "{name}");
    }
    for name in ["__plain", "___three"] {
        assert!(!exists(name), "{name}");
    }
    for name in strange_names() {
        assert!(exists(&name), "{name}");
    }
    // The user's own group, not the layout's.
    assert!(exists("_LOG"));
    assert!(!raw::link_exists(&raw::open(&shown.file, "_LOG"), "_ld_0"));
    let group = raw::open(&shown.file, "g");
    assert!(raw::link_exists(&group, "_LOG"));
    assert!(raw::has_attribute(&group, "größe"));
    let (name, mut info) = (raw::text("Ωmega"), H5L_info1_t::default());
    call!(H5Lget_info1(
        group.get(),
        name.as_ptr(),
        &mut info,
        H5P_DEFAULT
    ));
    assert_eq!(info.cset, H5T_cset_t::H5T_CSET_UTF8);
}

// --- types ---------------------------------------------------------------------------------------

#[test]
fn committed_types_of_datasets_and_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let dataset = Dataset::new("typed", 1, Type::Padded, &[3]);
    let mut log = log_file();
    let data: Vec<u8> = pattern(48);
    log.logs[0].tables[0][0].push(Entry::one(1, &[0], &[3], data.clone()));
    log.write_with(&path, |file| {
        let datatype = Type::Padded.create();
        raw::commit(file, "type", &datatype);
        raw::attribute_i32(&raw::open(file, "type"), "of the type", &[4]);
        let creation = raw::dataset_properties();
        let null = raw::null_space();
        let stub_dataset = raw::create_dataset(file, "typed", &datatype, &null, &creation);
        dataset.mark(&stub_dataset);
        raw::attribute(
            &stub_dataset,
            "typed",
            &datatype,
            &raw::space(&[1]),
            &pattern(16),
        );
        // A type that has no name. Only its users refer to it.
        let nameless = raw::enum_type();
        raw::commit(file, "nameless", &nameless);
        raw::attribute(file, "of it", &nameless, &raw::space(&[1]), &[1, 0]);
        raw::delete_link(file, "nameless");
    });
    let view = open_view(&path).unwrap();
    let exported = dir.path().join("view.h5");
    export(&view, &exported);
    let file = raw::open_file(&exported);
    let (committed, typed) = (raw::open(&file, "type"), raw::open(&file, "typed"));
    assert_eq!(
        raw::read_attribute(&committed, "of the type"),
        4i32.to_le_bytes()
    );
    let attribute = raw::open_attribute(&typed, "typed");
    for datatype in [raw::dataset_type(&typed), raw::attribute_type(&attribute)] {
        assert!(raw::is_committed(&datatype));
        assert_eq!(raw::address(&datatype), raw::address(&committed));
    }
    assert_eq!(raw::read(&typed), data);
    let nameless = raw::attribute_type(&raw::open_attribute(&file, "of it"));
    assert!(raw::is_committed(&nameless));
    assert!(raw::same_type(&nameless, &raw::enum_type()));
}

// --- the whole file ------------------------------------------------------------------------------

#[test]
fn user_blocks_are_kept() {
    let mut log = log_file();
    log.user_block = pattern(2048);
    let shown = show_file(&log, |_| {});
    let exported = fs::read(shown.dir.path().join("view.h5")).unwrap();
    assert_eq!(exported[..2048], pattern(2048));
    let a = raw::open(&shown.file, "a");
    assert_eq!(raw::read(&a), (0..120).collect::<Vec<u8>>());
}

/// A file with everything that might differ between scans.
fn show_variety(latest: bool) -> Shown {
    let mut log = log_file();
    log.latest = latest;
    show_file(&log, |file| {
        let group = raw::create_group(file, "g");
        let creation = raw::dataset_properties();
        let bytes = raw::standard(H5T_STD_U8LE);
        let plain = raw::create_dataset(&group, "d", &bytes, &raw::space(&[9]), &creation);
        raw::write(&plain, &pattern(9));
        let reference = raw::standard(H5T_STD_REF_OBJ);
        let value = object_reference(file, "g/d");
        raw::attribute(file, "ref", &reference, &raw::space(&[1]), &value);
        for number in 0..30 {
            raw::attribute_i32(&group, &format!("n{number}"), &[number]);
        }
    })
}

/// Two daemons, or a restarted one, must serve the same file.
#[test]
fn opening_twice_gives_the_same_view() {
    for latest in [false, true] {
        let shown = show_variety(latest);
        next_second();
        let again = open_view(&shown.path).unwrap();
        assert!(read_whole(&again).unwrap() == read_whole(&shown.view).unwrap());
    }
}

#[test]
fn scanning_twice_gives_the_same_bytes() {
    for latest in [false, true] {
        let shown = show_variety(latest);
        // The scans lie a second apart, which must not matter.
        let first = scan_file(&shown.path).unwrap().to_bytes().unwrap();
        next_second();
        let second = scan_file(&shown.path).unwrap().to_bytes().unwrap();
        let at = first.iter().zip(&second).position(|(a, b)| a != b);
        assert!(first == second, "they differ from byte {at:?} on");
    }
}

/// Parallel scans in one process do not interfere.
#[test]
fn scans_run_in_parallel() {
    let files: Vec<Shown> = (0..4).map(|_| show(|_| {})).collect();
    std::thread::scope(|scope| {
        for shown in &files {
            scope.spawn(|| {
                for _ in 0..20 {
                    let view = open_view(&shown.path).unwrap();
                    assert_eq!(view.len(), shown.view.len());
                }
            });
        }
    });
}

/// One underscore is removed from each escaped name, however many it has. If the result clashes with a name that was
/// never escaped, the stored name stays.
#[test]
fn names_with_several_underscores() {
    let shown = show(|file| {
        for name in ["__x", "___x", "__y", "_y"] {
            raw::create_group(file, name);
            let bytes = raw::standard(H5T_STD_U8LE);
            raw::attribute(file, name, &bytes, &raw::space(&[1]), &[name.len() as u8]);
        }
    });
    for (name, stored) in [("_x", "__x"), ("__x", "___x"), ("__y", "__y"), ("_y", "_y")] {
        assert!(raw::link_exists(&shown.file, name), "{name}");
        let value = raw::read_attribute(&shown.file, name);
        assert_eq!(value, [stored.len() as u8], "{name}");
    }
    assert!(!raw::link_exists(&shown.file, "___x"));
    assert!(!raw::has_attribute(&shown.file, "___x"));
}
