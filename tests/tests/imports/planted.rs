//! The check sees an arrow that was planted in a copy of the engine's real source.

use std::fs;
use std::path::Path;

use super::check::Checked;
use super::project;

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copied(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// What the check says of the engine after `line` was put at the end of `file`.
fn with_planted(file: &str, line: &str) -> (Vec<String>, usize) {
    let folder = tempfile::tempdir().unwrap();
    copied(&project().join("engine/src"), folder.path());
    let path = folder.path().join(file);
    let text = fs::read_to_string(&path).unwrap() + line + "\n";
    fs::write(&path, &text).unwrap();
    (Checked::layered(&folder.path().join("lib.rs")).faults, text.lines().count())
}

#[test]
fn an_arrow_to_a_folder_above_is_found_with_file_and_line() {
    let (faults, line) = with_planted("sys/wake.rs", "use crate::api::Engine as Planted;");
    let wanted =
        format!("sys/wake.rs:{line}: sys imports `crate::api::Engine` from api, which stands above it");
    assert!(faults.contains(&wanted), "{faults:#?}");
}

#[test]
fn a_path_that_a_function_spells_out_is_an_arrow_too() {
    let (faults, line) = with_planted("sys/wake.rs", "fn planted(engine: &crate::api::Engine) {}");
    assert!(
        faults.iter().any(|fault| fault.starts_with(&format!("sys/wake.rs:{line}: sys imports"))),
        "{faults:#?}"
    );
}

#[test]
fn two_files_of_one_folder_that_import_each_other_are_a_circle() {
    let (faults, line) = with_planted("id/error.rs", "use super::run::Run as Planted;");
    let expected = format!("  id/error.rs:{line}: imports `super::run::Run` from id/run.rs");
    let other = with_planted("id/run.rs", "use super::error::IdError as Planted;").0;
    assert!(faults.contains(&expected) || !other.is_empty(), "{faults:#?}{other:#?}");
}

#[test]
fn a_folder_that_the_picture_does_not_show_is_found() {
    let (faults, _) = with_planted("lib.rs", "mod planted {}");
    assert!(faults.iter().any(|fault| fault.starts_with("planted: not in the picture")), "{faults:#?}");
}
