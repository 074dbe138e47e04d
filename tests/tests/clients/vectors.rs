//! The golden vectors, by the codec of each client.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::conform::Program;
use crate::languages::Language;

/// The same vectors with a byte of the last one of that kind changed: the lowest of its request id.
fn changed(vectors: &Value, kind: &str) -> Result<Value> {
    let mut changed = vectors.clone();
    let all = changed.as_array_mut().context("no vectors")?;
    let vector = all.iter_mut().rfind(|vector| vector["kind"] == kind).context("no such vector")?;
    let hex = vector["hex"].as_str().context("no bytes")?;
    let digit = if hex.as_bytes()[16] == b'0' { "1" } else { "0" };
    vector["hex"] = format!("{}{digit}{}", &hex[..16], &hex[17..]).into();
    Ok(changed)
}

pub(crate) fn every_vector_holds_and_a_changed_byte_is_found(language: Language) -> Result<()> {
    // Its codec is the server's, whose own tests read them.
    if language == Language::Rust {
        return Ok(());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/protocol/golden/vectors.json");
    let vectors: Value = serde_json::from_slice(&fs::read(&path)?)?;
    let count = |kind: &str| -> u64 {
        vectors.as_array().into_iter().flatten().filter(|vector| vector["kind"] == kind).count() as u64
    };
    let mut program = Program::start(language)?;
    let counts = program.ask(&json!({ "do": "vectors", "file": path }))?;
    println!("{language:?}: {counts}");
    let counted = |name: &str| counts[name].as_u64().unwrap_or_default();
    ensure!(counted("encoded") >= count("request") - 1, "{counts}");
    ensure!(counted("decoded") >= count("reply"), "{counts}");
    ensure!(counted("refused") == count("refused"), "{counts}");
    for kind in ["request", "reply"] {
        let file = NamedTempFile::new()?;
        serde_json::to_writer(file.as_file(), &changed(&vectors, kind)?)?;
        program.refused(&json!({ "do": "vectors", "file": file.path() }))?.is_any(&["vectors"])?;
    }
    program.finish()
}
