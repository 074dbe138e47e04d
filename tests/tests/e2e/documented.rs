//! The table of faults in docs/reliability.md: each test, each campaign and each bench that it names is there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xuid_tests::campaigns::SIZES;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where the tests of a suite's module lie.
fn folder(suite: &str, module: &str) -> Option<PathBuf> {
    let folder = match (suite, module) {
        ("e2e", _) => "tests/tests/e2e",
        // In an executable of its own.
        ("zookeeper", "clock_steps") => "tests/tests/clock_steps",
        ("zookeeper", _) => "tests/tests/zookeeper",
        ("binary", _) => "server/tests/binary",
        ("server", _) => "server/src",
        ("engine", _) => "engine",
        ("spill", _) => "spill/src",
        _ => return None,
    };
    Some(root().join(folder))
}

/// The files of a folder, and of those in it, whose path ends with this name: `strangers.rs`, `sharing/tests.rs`.
fn sources(dir: &Path, module: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("{}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path, module)?);
        } else if path.file_stem().is_some_and(|stem| stem == module)
            || (path
                .file_name()
                .is_some_and(|name| name == "tests.rs" || name == "mod.rs" || name == "main.rs")
                && dir.ends_with(module))
        {
            found.push(path);
        }
    }
    Ok(found)
}

/// Whether there is a test of this name in a module of a suite.
fn exists(suite: &str, module: &str, test: &str) -> Result<bool> {
    let dir = folder(suite, module).with_context(|| format!("`{suite}` is no suite"))?;
    let is_test = |text: &str| {
        let Some(at) = text.find(&format!("fn {test}(")) else { return false };
        let before = &text[..at];
        // Its attributes and comments begin behind an empty line.
        let own = before.rsplit_once("\n\n").map_or(before, |(_, own)| own);
        own.contains("#[test]") || own.contains("::test")
    };
    for path in sources(&dir, module)? {
        if is_test(&fs::read_to_string(path)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn each_test_that_the_table_of_faults_names_is_there() -> Result<()> {
    let docs = fs::read_to_string(root().join("docs/reliability.md"))?;
    let (_, rest) = docs.split_once("## What one server stands").context("no such chapter")?;
    let (chapter, _) = rest.split_once("\n## ").context("no chapter after it")?;
    let rows = chapter.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| fault "));
    let (mut faults, mut tests) = (0, 0);
    for row in rows {
        let last = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        let mut named = 0;
        for name in last.split('`').skip(1).step_by(2) {
            let parts: Vec<&str> = name.split("::").collect();
            let is_there = match parts[..] {
                [name] => {
                    let bench = root().join("benches/benches").join(name).with_extension("rs");
                    SIZES.iter().any(|(campaign, ..)| *campaign == name) || bench.exists()
                }
                [suite, module, test] => exists(suite, module, test)?,
                _ => false,
            };
            ensure!(
                is_there,
                "docs/reliability.md names `{name}`, which is no campaign, no bench and no test: {row}"
            );
            named += 1;
        }
        ensure!(named > 0, "docs/reliability.md names no test of this fault: {row}");
        (faults, tests) = (faults + 1, tests + named);
    }
    println!("documented: {faults} faults, {tests} names of tests and campaigns");
    ensure!(faults > 40, "only {faults} faults were found in docs/reliability.md");
    Ok(())
}
