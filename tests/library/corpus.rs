//! The corpus without clients. The view of each dataset equals, byte for byte, the data that the program wrote.
//! `tests/clients`, `tests/driver` and `tests/connector` read some of these logs with users' programs.

use std::path::Path;

use crate::common::encoder::{export, open_view, raw};
use crate::common::readers::{all_sound_cases, check_all, corpus, whole_corpus};

/// Number of equal datasets in a case. Elements with pointers differ between files, and are left to clients.
fn same_datasets(corpus: &Path, name: &str, dir: &Path) -> Result<usize, String> {
    let shown = dir.join(name);
    let log = corpus.join(format!("{name}.log.h5"));
    let view = open_view(&log).map_err(|e| format!("{name}: {e}"))?;
    export(&view, &shown);
    let (shown, expected) = (
        raw::open_file(&shown),
        raw::open_file(&corpus.join(format!("{name}.expected.h5"))),
    );
    let mut same = 0;
    for dataset in &view.snapshot().datasets {
        let [shown, expected] = [&shown, &expected].map(|file| raw::open(file, &dataset.name));
        if raw::has_pointers(&raw::dataset_type(&expected)) {
            continue;
        }
        let dims = [&shown, &expected].map(|dataset| raw::extent(&raw::dataset_space(dataset)).0);
        if dims[0] != dims[1] || raw::read(&shown) != raw::read(&expected) {
            return Err(format!("{name}: {} differs", dataset.name));
        }
        same += 1;
    }
    Ok(same)
}

#[test]
fn every_sound_case_is_as_expected_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    for corpus in [Some(corpus()), whole_corpus()].into_iter().flatten() {
        check_all(all_sound_cases(&corpus), |name| {
            let same = same_datasets(&corpus, &name, dir.path())?;
            eprintln!("{name}: {same} datasets");
            Ok(())
        });
    }
}
