use super::testing::*;
use super::{LeftOut, Loss, Presence, Summary, Tree, Values};
use crate::Bytes;
use crate::model::{Attribute, Kind, Place, Step, Type, Value, Variable};

#[test]
fn slashes_make_groups_and_a_variable_that_is_a_group_becomes_its_value() {
    let names = ["/lead/slash", "a//b", "a/b", "a/b/c", "trail/", "./rel"];
    let tree = tree_of(&[step(names.map(value).into())]);
    let expected = [
        "/a",
        "/a/b",
        "/a/b/_value I32[]",
        "/a/b/_value@adios2_name=a/b",
        "/a/b/_value_2 I32[]",
        "/a/b/_value_2@adios2_name=a//b",
        "/a/b/c I32[]",
        "/lead",
        "/lead/slash I32[]",
        "/rel I32[]",
        "/trail I32[]",
    ];
    assert_eq!(lines(&tree), expected);
}

#[test]
fn names_without_parts_are_shown_in_words() {
    let names = ["", "/", "//", ".", "_slash", "x"];
    let attributes = vec![
        text("/", "1"),
        text("", "2"),
        text("/of root", "3"),
        text("//u", "4"),
    ];
    let tree = tree_of(&[with_attributes(names.map(value).into(), attributes)]);
    let expected = [
        "/@_empty=2",
        "/@_slash=1",
        "/@of root=3",
        "/_dot I32[]",
        "/_dot@adios2_name=.",
        "/_empty I32[]",
        "/_empty@adios2_name=",
        "/_slash I32[]",
        "/_slash_2 I32[]",
        "/_slash_2@adios2_name=/",
        "/_slash_2@u=4",
        "/_slash_slash I32[]",
        "/_slash_slash@adios2_name=//",
        "/x I32[]",
    ];
    assert_eq!(lines(&tree), expected);
    assert!(tree.problems.is_empty());
}

#[test]
fn names_with_one_path_are_numbered_after_the_exact_one() {
    let names = ["/a", "a/", "a", "a_2", "a_3/x"];
    let tree = tree_of(&[step(names.map(value).into())]);
    let of = |path: &str| {
        let mut objects = tree.objects.iter();
        let object = objects.find(|object| object.path == path).unwrap();
        object.dataset.as_ref().unwrap().source.variable.to_string()
    };
    let found = ["/a", "/a_2", "/a_3/x", "/a_4", "/a_5"].map(of);
    assert_eq!(found, ["a", "a_2", "a_3/x", "/a", "a/"]);
}

#[test]
fn several_steps_make_a_dimension() {
    let all = || vec![global("x", &[4]), value("n")];
    let steps = [
        step(vec![global("x", &[4]), value("n"), value("once")]),
        step(vec![value("n")]),
        step(all()),
    ];
    let tree = tree_of(&steps);
    let expected = [
        "/n I32[3]*",
        "/once I32[]",
        "/once@adios2_steps=[0]",
        "/x F64[2, 4]*",
        "/x@adios2_steps=[0, 2]",
    ];
    assert_eq!(lines(&tree), expected);
    assert_eq!(lines(&tree_of(&[step(all())])), ["/n I32[]", "/x F64[4]"]);
}

#[test]
fn what_changes_is_in_groups_of_steps() {
    let other_type = variable("t", Kind::GlobalArray, Type::F32, &[1]);
    let steps = [
        step(vec![global("x", &[4]), global("t", &[1])]),
        step(vec![global("x", &[5]), other_type]),
        step(vec![global("x", &[5]), local("t", &[3])]),
    ];
    let expected = [
        "/t",
        "/t@adios2_shape=changes with the step",
        "/t/step_00000 F64[1]",
        "/t/step_00001 F32[1]",
        "/t/step_00002",
        "/t/step_00002@adios2_shape=local array",
        "/t/step_00002/block_00000 I16[3]",
        "/x",
        "/x@adios2_shape=changes with the step",
        "/x/step_00000 F64[4]",
        "/x/step_00001 F64[5]",
        "/x/step_00002 F64[5]",
    ];
    let tree = tree_of(&steps);
    assert_eq!(lines(&tree), expected);
    let last = tree.objects.last().unwrap().dataset.as_ref().unwrap();
    assert_eq!(last.source.steps.iter().collect::<Vec<_>>(), [2]);
}

/// The dimension of steps would be the 33rd.
#[test]
fn steps_of_32_dimensions_are_datasets_of_their_own() {
    let shape = |rank| vec![1; rank];
    let blocks = || Variable {
        rank: 32,
        starts: shape(32),
        counts: shape(32),
        ..local("l", &[1])
    };
    let each = || vec![global("x", &shape(32)), global("y", &shape(31)), blocks()];
    let (ones, more) = (
        format!("{:?}", shape(32)),
        format!("{:?}", [&[2][..], &shape(31)].concat()),
    );
    let expected = [
        "/l".to_owned(),
        "/l@adios2_shape=local array".to_owned(),
        "/l/step_00000".to_owned(),
        format!("/l/step_00000/block_00000 I16{ones}"),
        "/l/step_00001".to_owned(),
        format!("/l/step_00001/block_00000 I16{ones}"),
        "/x".to_owned(),
        "/x@adios2_shape=32 dimensions in each step".to_owned(),
        format!("/x/step_00000 F64{ones}"),
        format!("/x/step_00001 F64{ones}"),
        format!("/y F64{more}*"),
    ];
    let tree = tree_of(&[step(each()), step(each())]);
    assert_eq!(lines(&tree), expected);
    assert!(tree.problems.is_empty());
    let alone = lines(&tree_of(&[
        step(vec![global("x", &shape(32))]),
        step(vec![]),
    ]));
    assert_eq!(
        alone,
        [format!("/x F64{ones}"), "/x@adios2_steps=[0]".to_owned()]
    );
    let deep = tree_of(&[
        step(vec![global("x", &shape(33))]),
        step(vec![global("x", &shape(33))]),
    ]);
    assert_eq!((lines(&deep).len(), deep.problems.len()), (0, 1));
}

#[test]
fn local_values_are_one_array_and_local_arrays_a_group_of_blocks() {
    let ranks = || variable("rank", Kind::LocalValue, Type::I32, &[2]);
    let steps = [
        step(vec![ranks(), local("a", &[2, 3]), local("b", &[1])]),
        step(vec![ranks(), local("a", &[2, 3]), local("b", &[1, 1])]),
        step(vec![local("a", &[2, 3])]),
    ];
    let tree = tree_of(&steps);
    let expected = [
        "/a",
        "/a@adios2_shape=local array",
        "/a/block_00000 I16[3, 2]*",
        "/a/block_00001 I16[3, 3]*",
        "/b",
        "/b@adios2_shape=local array",
        "/b/step_00000",
        "/b/step_00000/block_00000 I16[1]",
        "/b/step_00001",
        "/b/step_00001/block_00000 I16[1]",
        "/b/step_00001/block_00001 I16[1]",
        "/rank I32[2, 2]*",
        "/rank@adios2_steps=[0, 1]",
    ];
    assert_eq!(lines(&tree), expected);
}

#[test]
fn texts_are_kept() {
    let note = |text| texts("note", Kind::GlobalValue, &[text]);
    let host = |names: &[&str]| texts("host", Kind::LocalValue, names);
    let steps = [
        step(vec![note("a"), host(&["x", "y"])]),
        step(vec![note("b"), host(&["z", "w"])]),
        step(vec![note("c"), host(&["v"])]),
    ];
    let tree = tree_of(&steps);
    let found: Vec<String> = tree
        .objects
        .iter()
        .filter_map(|object| Some((object, object.dataset.as_ref()?)))
        .map(|(object, dataset)| format!("{} {}", object.path, dataset.texts.join("")))
        .collect();
    let expected = [
        "/host/step_00000 xy",
        "/host/step_00001 zw",
        "/host/step_00002 v",
        "/note abc",
    ];
    assert_eq!(found, expected);
}

#[test]
fn attributes_belong_to_the_longest_name_in_front_of_them() {
    let first = vec![
        text("title", "first"),
        text("g/x/unit", "m"),
        text("/g/x//deep/er", "d"),
        text("g/about", "group"),
        text("new/group/a", "b"),
        text("g/x", "beside"),
    ];
    let steps = [
        with_attributes(vec![global("g/x", &[1]), global("g", &[1])], first),
        with_attributes(vec![], vec![text("title", "last")]),
    ];
    let expected = [
        "/@title=last",
        "/g",
        "/g/_value F64[1]",
        "/g/_value@about=group",
        "/g/_value@adios2_name=g",
        "/g/_value@adios2_steps=[0]",
        "/g/_value@x=beside",
        "/g/x F64[1]",
        "/g/x@adios2_steps=[0]",
        "/g/x@deep/er=d",
        "/g/x@unit=m",
        "/new",
        "/new/group",
        "/new/group@a=b",
    ];
    assert_eq!(lines(&tree_of(&steps)), expected);
}

#[test]
fn attributes_of_one_name_are_all_kept() {
    let attributes = vec![text("/a", "1"), text("a", "2"), text("a/", "3")];
    let mut own = attributes.clone();
    own.push(text("x/adios2_steps", "mine"));
    own.push(text("x/DIMENSION_LABELS", "mine"));
    let steps = [
        with_attributes(vec![value("x")], own),
        step(vec![value("x")]),
        step(vec![]),
    ];
    let expected = [
        "/@a=1",
        "/@a_2=2",
        "/@a_3=3",
        "/x I32[2]*",
        "/x@DIMENSION_LABELS_2=mine",
        "/x@adios2_steps=[0, 1]",
        "/x@adios2_steps_2=mine",
    ];
    assert_eq!(lines(&tree_of(&steps)), expected);
}

#[test]
fn flattened_steps_are_one() {
    let ranks = || variable("rank", Kind::LocalValue, Type::I32, &[2]);
    let each = || vec![global("x", &[6, 3]), value("n"), local("l", &[2]), ranks()];
    let tree = flattened(&[step(each()), step(each())]);
    let expected = [
        "/l",
        "/l@adios2_shape=local array",
        "/l/block_00000 I16[2]",
        "/l/block_00001 I16[2]",
        "/n I32[]",
        "/rank I32[2, 2]*",
        "/x F64[6, 3]",
    ];
    assert_eq!(lines(&tree), expected);
    let steps = |path: &str| {
        let object = tree.objects.iter().find(|object| object.path == path);
        let dataset = object.unwrap().dataset.as_ref().unwrap();
        dataset.source.steps.iter().collect::<Vec<_>>()
    };
    assert_eq!(steps("/x"), [0, 1]);
    assert_eq!(steps("/n"), [0]);
}

/// All that is missing.
fn told(tree: &Tree) -> Vec<String> {
    let left_out = tree.left_out.iter().map(LeftOut::to_string);
    let lost = tree.lost_blocks.iter().cloned().chain(left_out);
    lost.chain(tree.problems.iter().cloned()).collect()
}

#[test]
fn steps_with_missing_bytes_are_left_out() {
    let rho = || global("rho", &[5]);
    let steps = [
        step(vec![rho(), missing(value("n"))]),
        step(vec![missing(rho())]),
        step(vec![missing(rho())]),
    ];
    let tree = tree_of(&steps);
    assert_eq!(lines(&tree), ["/rho F64[1, 5]*", "/rho@adios2_steps=[0]"]);
    let expected = [
        "data.0 ends at byte 100: 3 blocks of 2 variables in 3 steps from 0 to 2 cannot be read",
        "variable n: step 0 is left out, because its bytes are not there",
        "variable rho: 2 steps from 1 to 2 are left out, because its bytes are not there",
    ];
    assert_eq!(told(&tree), expected);
    let left_out = |lost: &LeftOut| (lost.path.clone(), lost.elements);
    let left_out: Vec<_> = tree.left_out.iter().map(left_out).collect();
    assert_eq!(left_out, [("/n".to_owned(), 1), ("/rho".to_owned(), 10)]);
}

/// Only a step of which nothing is there is left out, and one that may still be completed.
#[test]
fn steps_with_some_of_their_bytes_are_shown() {
    let each = || {
        vec![
            half_missing(global("x", &[4])),
            half_missing(local("l", &[2])),
        ]
    };
    let steps = [
        step(each()),
        step(vec![global("x", &[4]), awaited(global("y", &[1]))]),
    ];
    let tree = tree_of(&steps);
    let expected = [
        "/l",
        "/l@adios2_shape=local array",
        "/l/block_00000 I16[2]",
        "/l/block_00000@adios2_steps=[0]",
        "/l/block_00001 I16[2]",
        "/l/block_00001@adios2_steps=[0]",
        "/x F64[2, 4]*",
    ];
    assert_eq!(lines(&tree), expected);
    let expected = [
        "data.0 ends at byte 100: 2 blocks of 2 variables in step 0 cannot be read",
        "variable y: step 1 is left out, because its bytes are not there",
    ];
    assert_eq!(told(&tree), expected);
    assert_eq!(tree.lost_blocks.len(), 1);
    // A part of one array cannot be left out.
    let tree = flattened(&[
        step(vec![global("x", &[4])]),
        step(vec![missing(global("x", &[4]))]),
    ]);
    assert_eq!(lines(&tree), ["/x F64[4]"]);
    assert_eq!(told(&tree).len(), 1);
}

#[test]
fn what_hdf5_cannot_have_is_told() {
    let mut odd = number("odd", 1);
    if let crate::model::Value::Numbers { bytes, .. } = &mut odd.value {
        bytes.pop();
    }
    let variables = vec![
        global("deep", &[1; 33]),
        global("large", &[1 << 40, 1 << 40]),
        texts("few", Kind::LocalValue, &[]),
    ];
    let mut damaged = with_attributes(variables, vec![odd]);
    damaged.variables[2].shape = vec![2];
    damaged.problems = vec!["writer 3: its record is cut".into()];
    let tree = tree_of(&[damaged]);
    assert!(lines(&tree).is_empty());
    let told = tree.problems.join("\n");
    for of in ["writer 3", "/deep ", "/large ", "few", "odd"] {
        assert!(told.contains(of), "{told}");
    }
}

#[test]
fn very_many_names_of_one_path_and_long_names_are_bounded() {
    let long = "a/".repeat(100_000);
    let same = (0..20_000).map(|n| value(&format!("x{}", "/".repeat(n % 300))));
    let mut variables: Vec<_> = same.collect();
    variables.push(value(&long));
    let tree = tree_of(&[step(variables)]);
    let deepest = tree.objects.iter().map(|object| object.path.len()).max();
    assert_eq!(deepest, Some(2 * 64));
    let cut = tree
        .objects
        .iter()
        .find(|object| object.path.len() == 2 * 64);
    assert_eq!(cut.unwrap().attributes[0].0, "adios2_name");
}

/// Attributes of the root of an openPMD file.
fn openpmd(encoding: &str) -> Vec<Attribute> {
    vec![
        text("/openPMD", "1.1.0"),
        text("/iterationEncoding", encoding),
        text("/basePath", "/data"),
        text("__openPMD_internal/useSteps", "1"),
    ]
}

#[test]
fn openpmd_of_groups_has_no_dimension_of_steps() {
    let mut attributes = openpmd("groupBased");
    attributes.push(number("__openPMD_groups/data/0/empty", 0));
    attributes.push(number("__openPMD_groups/data/0/E", 0));
    attributes.push(number("/data/snapshot", 0));
    let steps = [
        with_attributes(vec![global("/data/0/E/x", &[2])], attributes),
        step(vec![global("/data/0/E/x", &[3])]),
    ];
    let expected = [
        "/@basePath=/data",
        "/@iterationEncoding=groupBased",
        "/@openPMD=1.1.0",
        "/data",
        "/data/0",
        "/data/0/E",
        "/data/0/E/x F64[3]",
        "/data/0/empty",
    ];
    assert_eq!(lines(&tree_of(&steps)), expected);
}

#[test]
fn openpmd_of_variables_has_a_group_for_each_iteration() {
    let mut first = openpmd("variableBased");
    first.extend([
        number("__openPMD_groups/data", 0),
        number("__openPMD_groups/data/E", 0),
        number("__openPMD_groups/data/gone", 0),
        number("/data/snapshot", 100),
        number("/data/time", 7),
        number("/data/E/x/unit", 3),
        number("/data/gone/unit", 4),
    ]);
    let second = vec![
        number("__openPMD_groups/data", 1),
        number("__openPMD_groups/data/E", 1),
        number("/data/snapshot", 200),
        number("/data/time", 8),
    ];
    let x = || vec![global("/data/E/x", &[2])];
    let steps = [with_attributes(x(), first), with_attributes(x(), second)];
    let tree = tree_of(&steps);
    let expected = [
        "/@basePath=/data/%T/",
        "/@iterationEncoding=groupBased",
        "/@iterationFormat=/data/%T/",
        "/@openPMD=1.1.0",
        "/data",
        "/data/100",
        "/data/100@time=7",
        "/data/100/E",
        "/data/100/E/x F64[2]",
        "/data/100/E/x@unit=3",
        "/data/100/gone",
        "/data/100/gone@unit=4",
        "/data/200",
        "/data/200@time=8",
        "/data/200/E",
        "/data/200/E/x F64[2]",
        "/data/200/E/x@unit=3",
    ];
    assert_eq!(lines(&tree), expected);
    let last = tree.objects.last().unwrap().dataset.as_ref().unwrap();
    assert_eq!(&*last.source.variable, "/data/E/x");
    assert_eq!(last.source.steps.iter().collect::<Vec<_>>(), [1]);
}

/// An attribute of one `uint8`, as openPMD stores a boolean.
fn byte(name: &str, value: u8) -> Attribute {
    let value = Value::Numbers {
        ty: Type::U8,
        is_single: true,
        bytes: vec![value],
    };
    let name = name.to_owned();
    Attribute { name, value }
}

#[test]
fn booleans_of_openpmd_are_those_that_are_marked() {
    let own = [
        byte("/flag", 1),
        byte("/off", 0),
        byte("/small", 1),
        byte("/data/0/done", 2),
        number("/large", 1),
        text("/text", "1"),
    ];
    let marked = ["flag", "off", "data/0/done", "large", "text"];
    let marks = marked.map(|path| byte(&format!("__is_boolean__/{path}"), 1));
    let older = byte("__openPMD_internal/is_boolean/small", 1);
    let all = |more: Vec<Attribute>| own.iter().chain(&marks).cloned().chain(more).collect();
    let steps = [with_attributes(vec![], all(openpmd("groupBased")))];
    let expected = [
        "/@basePath=/data",
        "/@flag=true",
        "/@iterationEncoding=groupBased",
        "/@large=1",
        "/@off=false",
        "/@openPMD=1.1.0",
        "/@small=1",
        "/@text=1",
        "/data",
        "/data/0",
        "/data/0@done=true",
    ];
    assert_eq!(lines(&tree_of(&steps)), expected);
    let with_older = all([openpmd("groupBased"), vec![older]].concat());
    let tree = tree_of(&[with_attributes(vec![], with_older)]);
    assert!(lines(&tree).contains(&"/@small=true".to_owned()));
    // Another file may have such a group.
    let tree = tree_of(&[with_attributes(vec![], all(vec![]))]);
    let others = lines(&tree);
    for line in ["/@flag=1", "/__is_boolean__@flag=1"] {
        assert!(others.contains(&line.to_owned()), "{others:?}");
    }
}

#[test]
fn a_series_without_an_iteration_has_an_empty_group_of_iterations() {
    for (encoding, group) in [("groupBased", None), ("variableBased", Some(0))] {
        let mut attributes = openpmd(encoding);
        attributes.extend(group.map(|step| number("__openPMD_groups/data", step)));
        let tree = tree_of(&[with_attributes(vec![], attributes)]);
        let groups = tree.objects.iter().map(|object| &*object.path);
        assert_eq!(groups.collect::<Vec<_>>(), ["/", "/data"], "{encoding}");
    }
}

/// Steps whose attributes are variables. `bytes` are those of `data.0`.
fn older(steps: &[Step], bytes: &[u8]) -> Tree {
    let mut summary = Summary::new(false, false);
    let mut values = Values::default();
    let presence = |place: &Place| match place.end() {
        Some(end) if end <= bytes.len() as u64 => Presence::There,
        _ => Presence::Lost(Loss::Cut(bytes.len() as u64)),
    };
    for (number, step) in (0..).zip(steps) {
        let mut step = step.clone();
        assert!(summary.has_attributes_as_variables(&step));
        let read = |place: &Place, buffer: &mut [u8]| bytes.read_exact_at(buffer, place.offset);
        values.add(&mut step, &presence, &read).unwrap();
        summary.add(number, &step, &presence);
    }
    summary.finish()
}

/// A variable whose bytes are at this place.
fn stored(name: &str, ty: Type, shape: &[u64], offset: u64) -> Variable {
    let kind = if shape.is_empty() {
        Kind::GlobalValue
    } else {
        Kind::GlobalArray
    };
    let mut variable = variable(name, kind, ty, shape);
    variable.blocks[0].place.offset = offset;
    variable.blocks[0].place.len = variable.ty.size() * shape.iter().product::<u64>();
    variable
}

#[test]
fn attributes_of_older_openpmd_are_variables() {
    let schema = || number("__openPMD_internal/openPMD2_adios2_schema", 20_210_209);
    let mark = |path: &str| byte(&format!("__openPMD_internal/is_boolean/{path}"), 1);
    let first = vec![
        texts("/openPMD", Kind::GlobalValue, &["1.1.0"]),
        texts("/iterationEncoding", Kind::GlobalValue, &["variableBased"]),
        stored("/flag", Type::U8, &[], 16),
        stored("/data/snapshot", Type::U64, &[1], 0),
        stored("/data/once", Type::I16, &[], 8),
        stored("/data/E/axes", Type::Char, &[2, 3], 10),
        stored("/data/E/x/unit", Type::I16, &[2], 8),
        stored("/data/E/x/__data__", Type::I16, &[4], 0),
        stored("/data/E/lost", Type::U8, &[1000], 0),
        stored("/data/E/large", Type::U8, &[1 << 21], 0),
        local("/data/E/local", &[2]),
    ];
    let mut first = with_attributes(first, vec![schema(), mark("flag"), mark("data/done")]);
    let huge = &mut first.variables[9].blocks[0];
    (huge.place.len, huge.has_operator) = (8, true);
    let mut packed = stored("/data/E/packed", Type::U8, &[4], 0);
    packed.blocks[0].has_operator = true;
    let second = step(vec![
        stored("/data/snapshot", Type::U64, &[1], 17),
        stored("/data/done", Type::U8, &[], 16),
        stored("/data/E/x/__data__", Type::I16, &[3], 0),
        packed,
    ]);
    let bytes = b"\x64\0\0\0\0\0\0\0\x07\0a\0\0bcd\x01\x0a\0\0\0\0\0\0\0";
    let tree = older(&[first, second], bytes);
    let expected = [
        "/@basePath=/data/%T/",
        "/@flag=true",
        "/@iterationEncoding=groupBased",
        "/@iterationFormat=/data/%T/",
        "/@openPMD=1.1.0",
        "/data",
        "/data/10",
        "/data/10@done=true",
        "/data/10/E",
        "/data/10/E/x I16[3]",
        "/data/100",
        "/data/100@once=7",
        "/data/100/E",
        "/data/100/E@axes=[\"a\", \"bcd\"]",
        "/data/100/E/x I16[4]",
        "/data/100/E/x@unit=7",
    ];
    assert_eq!(lines(&tree), expected);
    let told = told(&tree).join("\n");
    for of in [
        "E/lost",
        "E/large",
        "E/local",
        "step 1: attribute /data/E/packed",
        "data.0 ends at byte 25: 1 block of 1 variable",
    ] {
        assert!(told.contains(of), "{told}");
    }
    assert_eq!(told.lines().count(), 5, "{told}");
    let x = tree
        .objects
        .iter()
        .rfind(|object| object.path == "/data/10/E/x");
    let source = &x.unwrap().dataset.as_ref().unwrap().source;
    assert_eq!(&*source.variable, "/data/E/x/__data__");
    assert_eq!(source.steps.iter().collect::<Vec<_>>(), [1]);
}
