//! The structure of the source: folders import downwards only, no files import each other in a circle, and no folder has
//! more entries than a reader takes in at a glance.
//!
//! The order of a crate's folders is the picture in the docs of its root file, so the picture is always true: a folder
//! that it does not show, or an arrow against it, fails here with file and line. Test code may import what it likes.

#![expect(clippy::expect_used, reason = "a test: what it can't read fails it")]

mod check;
mod folders;
mod resolve;
mod source;

#[cfg(test)]
mod planted;

use std::path::{Path, PathBuf};

use check::Checked;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Says each fault of `checked`; one line a fault.
fn assert_sound(checked: &Checked) {
    assert!(checked.faults.is_empty(), "\n{}\n", checked.faults.join("\n"));
}

#[test]
fn the_engine_s_folders_import_downwards_and_no_files_in_a_circle() {
    let checked = Checked::layered(&project().join("engine/src/lib.rs"));
    assert!(checked.arrows > 100, "{} arrows: the check reads nothing", checked.arrows);
    assert_sound(&checked);
}

#[test]
fn the_server_s_folders_import_downwards_and_no_files_in_a_circle() {
    let checked = Checked::layered(&project().join("server/src/main.rs"));
    assert!(checked.arrows > 50, "{} arrows: the check reads nothing", checked.arrows);
    assert_sound(&checked);
}

#[test]
fn no_folder_of_engine_server_and_spill_has_more_than_fourteen_entries() {
    for root in ["engine", "server", "spill"] {
        let crowded = folders::crowded(&project().join(root));
        assert!(crowded.is_empty(), "\n{}\n", crowded.join("\n"));
    }
}

#[test]
fn no_other_crate_has_a_circle_of_files() {
    for root in [
        "engine/id/src/lib.rs",
        "spill/src/lib.rs",
        "server/protocol/src/lib.rs",
        "server/clients/rust/src/lib.rs",
        "server/load/src/lib.rs",
        "benches/src/lib.rs",
        "tests/src/lib.rs",
    ] {
        assert_sound(&Checked::any_order(&project().join(root)));
    }
}
