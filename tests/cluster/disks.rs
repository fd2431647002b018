//! The disk of one node, with its subfile, is read-only or full; the others are not.

use std::fs::{self, File};
use std::path::PathBuf;

use crate::common::bound::Bound;
use crate::common::jobs::faults::{Disk, Run};
use crate::common::nodes::{Nodes, Place};
use crate::common::{User, can_mount};

#[test]
fn the_disk_of_a_node_is_read_only_or_full() {
    let Some(disk) = Disk::new().filter(|_| can_mount(User::Caller)) else {
        return;
    };
    // Nodes see what was mounted before.
    let Some(nodes) = Nodes::new(2) else { return };
    let dir = tempfile::tempdir().unwrap();
    let subfiles = dir.path().join("own.h5.subfiles");
    fs::create_dir(&subfiles).unwrap();
    let mount = |arguments: &[&str]| {
        let mut mount = nodes.on(1, "mount");
        let mounted = mount.args(arguments).arg(&subfiles).output().unwrap();
        assert!(mounted.status.success(), "{mounted:?}");
    };
    mount(&["--bind", disk.dir.path().to_str().unwrap()]);
    mount(&["-o", "remount,bind,ro"]);
    let place = Place::Nodes(nodes);
    let mut run = Run::start(&place, "disk-of-a-node", dir.path());
    run.at("create");
    run.go("create");
    run.at("write");
    // Nothing of the file remains on either node.
    for dir in [dir.path(), &subfiles, disk.dir.path()] {
        let left = fs::read_dir(dir).unwrap().flatten().map(|f| f.path());
        let left: Vec<PathBuf> = left.filter(|path| *path != subfiles).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    let mut writable = place.nodes().on(1, "mount");
    writable.args(["-o", "remount,bind,rw"]).arg(&subfiles);
    assert!(writable.status().unwrap().success());
    run.go("write");
    run.at("fill");
    // The reader sees all files.
    let own = disk.dir.path().join("own.h5.1");
    let name = subfiles.join("own.h5.1");
    File::create(&name).unwrap();
    let seen = Bound::new(&own, &name);
    run.flush_again(|| disk.fill(1), || disk.free());
    drop(seen);
}
