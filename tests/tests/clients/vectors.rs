//! The golden vectors, by the codec of each client.

use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use xuid_tests::Rng;

use crate::conform::Program;
use crate::languages::Language;

const HEADER: usize = 16;

/// The fields of a header by their bytes: length of the body, op, flags, status, request id.
const FIELDS: [Range<usize>; 5] = [0..4, 4..5, 5..6, 6..8, 8..HEADER];

/// Those whose change makes another refused vector of it. The other bytes may differ, and it is refused for the same.
const FIELDS_OF_REFUSED: [Range<usize>; 2] = [4..5, 8..HEADER];

pub(crate) fn every_vector_holds_and_a_changed_byte_is_found(language: Language) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/protocol/golden/vectors.json");
    let vectors: Vec<Value> = serde_json::from_slice(&fs::read(&path)?)?;
    let count = |field: &str, value: Value| vectors.iter().filter(|vector| vector[field] == value).count();
    let (refused, encoded) = (count("kind", "refused".into()), count("encode", true.into()));
    let mut program = Program::start(language)?;
    let counts = program.ask(&json!({ "do": "vectors", "file": path }))?;
    println!("{language:?}: {counts}");
    ensure!(
        counts["encoded"] == encoded && counts["refused"] == refused,
        "{counts}, {encoded} and {refused}"
    );
    ensure!(counts["decoded"] == vectors.len() - refused, "{counts} of {}", vectors.len());
    let mut rng = Rng::from_env("a changed byte");
    for vector in &vectors {
        let text = |field: &str| vector[field].as_str().with_context(|| format!("no {field}"));
        let (name, hex) = (text("name")?, text("hex")?);
        let mut fields =
            if vector["kind"] == "refused" { FIELDS_OF_REFUSED.to_vec() } else { FIELDS.to_vec() };
        if vector["kind"] != "refused" && hex.len() > 2 * HEADER {
            fields.push(HEADER..hex.len() / 2);
        }
        for field in fields {
            let at = field.start + rng.below(field.len() as u64) as usize;
            let mut changed = vector.clone();
            changed["hex"] = other_byte(hex, at, &mut rng)?.into();
            let file = NamedTempFile::new()?;
            serde_json::to_writer(file.as_file(), &[changed])?;
            let failure = program
                .refused(&json!({ "do": "vectors", "file": file.path() }))
                .with_context(|| format!("byte {at} of {vector} is another one"))?;
            failure.is_any(&["vectors"])?;
            ensure!(failure.whole.contains(name), "'{name}' is not named: {}", failure.whole);
        }
    }
    program.finish()
}

/// The same bytes, but for one that differs.
fn other_byte(hex: &str, at: usize, rng: &mut Rng) -> Result<String> {
    let digits = 2 * at..2 * at + 2;
    let byte = u8::from_str_radix(&hex[digits.clone()], 16)?;
    let other = byte ^ (1 + rng.below(255) as u8);
    Ok(format!("{}{other:02x}{}", &hex[..digits.start], &hex[digits.end..]))
}
