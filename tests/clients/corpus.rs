//! Files of the real Log VOL connector, read through a real mount by the tools of HDF5. `table.rs` compares their elements.

use std::process::Command;

use crate::common::readers::{check_all, corpus, project, said, sound_cases};
use crate::common::{Mounted, User, can_mount};

/// h5dump reads all, without a complaint, and h5diff finds no difference.
#[test]
fn tools_of_hdf5_read_what_the_program_meant() {
    if !can_mount(User::Caller) {
        return;
    }
    let corpus = corpus();
    let mounted = Mounted::new(&corpus, "");
    check_all(sound_cases(&corpus), |name| {
        let got = mounted.join(format!("{name}.log.h5"));
        let dump = Command::new("h5dump").arg(&got).output().unwrap();
        if !dump.status.success() || !dump.stderr.is_empty() {
            let text = String::from_utf8_lossy(&dump.stderr);
            return Err(format!("h5dump {name}: {text}"));
        }
        // According to the corpus, object references and null dataspaces cannot be compared.
        if ["objref", "objref_dset", "nullspace"].contains(&name.as_str()) {
            return Ok(());
        }
        let mut diff = Command::new("h5diff");
        diff.arg(&got)
            .arg(corpus.join(format!("{name}.expected.h5")));
        let diff = diff.output().unwrap();
        let same = diff.status.success().then_some(());
        same.ok_or_else(|| format!("h5diff {name}: {}", said(&diff)))
    });
    let adios = Mounted::new(&project().join("tests/corpus-adios"), "");
    let mut dump = Command::new("h5dump");
    let output = dump.arg("-H").arg(adios.join("b5_types.bp")).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", said(&output));
}
