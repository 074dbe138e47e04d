//! Tells the binary what it is built from: the commit, where this is a checkout of git, its date, and the compiler.
//!
//! `SOURCE_DATE_EPOCH`, where it is set, is the date instead. Without git there is no commit, and the build goes on.

use std::env;
use std::path::Path;
use std::process::Command;

/// What the binary is made of: a change of any of it makes the binary anew, and may make the tree a modified one.
const SOURCES: [&str; 8] = [
    "build.rs",
    "src",
    "protocol/src",
    "load/src",
    "../engine/src",
    "../engine/id/src",
    "../spill/src",
    "../Cargo.lock",
];

/// Which commit is checked out: each of these changes with it, or may.
const HEADS: [&str; 2] = ["HEAD", "logs/HEAD"];

fn main() {
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    SOURCES.into_iter().for_each(watch);
    let commit = commit();
    if let Some(commit) = &commit {
        println!("cargo::rustc-env=XUID_COMMIT={commit}");
    }
    let given = env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.trim().parse().ok());
    let committed = || commit.and_then(|_| git(&["log", "-1", "--format=%ct"])?.parse().ok());
    if let Some(seconds) = given.or_else(committed) {
        let seconds: u64 = seconds;
        println!("cargo::rustc-env=XUID_DATE={seconds}");
    }
    let compiler = env::var("RUSTC").ok().and_then(|rustc| said(Command::new(rustc).arg("--version")));
    if let Some(version) = compiler.as_deref().and_then(|line| line.split_whitespace().nth(1)) {
        println!("cargo::rustc-env=XUID_RUSTC={version}");
    }
}

/// The commit of this checkout, and whether it was changed since.
fn commit() -> Option<String> {
    // A folder of sources that was unpacked within some other checkout is no part of that one.
    if git(&["rev-parse", "--show-prefix"])? != "server/" {
        return None;
    }
    for path in HEADS {
        watch(&git(&["rev-parse", "--git-path", path])?);
    }
    if let Some(branch) = git(&["symbolic-ref", "-q", "HEAD"]) {
        watch(&git(&["rev-parse", "--git-path", &branch])?);
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit}-modified") })
}

/// What git says in one line, or in none; `None` if there is no git, or it refuses.
fn git(args: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    // In a hook they name another folder.
    git.args(args).env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
    // It writes nothing: a build may run where it must not.
    said(git.env("GIT_OPTIONAL_LOCKS", "0"))
}

/// What a program prints.
fn said(program: &mut Command) -> Option<String> {
    let output = program.output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned())
}

/// Builds again when that changes. What is not there would make cargo build every time.
fn watch(path: &str) {
    if Path::new(path).exists() {
        println!("cargo::rerun-if-changed={path}");
    }
}
