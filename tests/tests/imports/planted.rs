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

/// What the check says of the engine after each line was put at the end of its file, and which lines of the files they
/// are.
fn with_planted<const N: usize>(planted: [(&str, &str); N]) -> (Vec<String>, [usize; N]) {
    let folder = tempfile::tempdir().unwrap();
    copied(&project().join("engine/src"), folder.path());
    let lines = planted.map(|(file, line)| {
        let path = folder.path().join(file);
        let text = fs::read_to_string(&path).unwrap() + line + "\n";
        fs::write(&path, &text).unwrap();
        text.lines().count()
    });
    (Checked::layered(&folder.path().join("lib.rs")).faults, lines)
}

#[test]
fn an_arrow_to_a_folder_above_is_found_with_file_and_line() {
    let (faults, [line]) = with_planted([("sys/wake.rs", "use crate::api::engine::Engine as Planted;")]);
    let wanted = format!(
        "sys/wake.rs:{line}: sys imports `crate::api::engine::Engine` from api, which stands above it"
    );
    assert!(faults.contains(&wanted), "{faults:#?}");
}

#[test]
fn an_arrow_to_what_the_root_hands_on_is_one_to_the_folder_that_defines_it() {
    let (faults, [line]) = with_planted([("sys/wake.rs", "use crate::Engine as Planted;")]);
    let wanted = format!("sys/wake.rs:{line}: sys imports `crate::Engine` from api, which stands above it");
    assert!(faults.contains(&wanted), "{faults:#?}");
}

#[test]
fn a_path_that_a_function_spells_out_is_an_arrow_too() {
    let (faults, [line]) =
        with_planted([("sys/wake.rs", "fn planted(engine: &crate::api::engine::Engine) {}")]);
    assert!(
        faults.iter().any(|fault| fault.starts_with(&format!("sys/wake.rs:{line}: sys imports"))),
        "{faults:#?}"
    );
}

#[test]
fn two_files_of_one_folder_that_import_each_other_are_a_circle() {
    let (faults, [error, run]) = with_planted([
        ("id/error.rs", "use crate::id::run::Run as Planted;"),
        ("id/run.rs", "use super::error::IdError as Planted;"),
    ]);
    let wanted = [
        "a circle of 2 files:".to_owned(),
        format!("  id/error.rs:{error}: imports `crate::id::run::Run` from id/run.rs"),
        format!("  id/run.rs:{run}: imports `super::error::IdError` from id/error.rs"),
    ];
    assert_eq!(faults, wanted);
}

#[test]
fn test_code_may_import_what_it_likes() {
    let (faults, _) =
        with_planted([("sys/wake.rs", "#[cfg(test)]\nuse crate::api::engine::Engine as Planted;")]);
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn a_folder_that_the_picture_does_not_show_is_found() {
    let (faults, _) = with_planted([("lib.rs", "mod planted {}")]);
    assert!(faults.iter().any(|fault| fault.starts_with("planted: not in the picture")), "{faults:#?}");
}
