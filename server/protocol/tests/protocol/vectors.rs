//! Reads the files of golden vectors.

use std::collections::BTreeMap;

/// The vectors of a file by name.
pub(crate) fn vectors(file: &str) -> BTreeMap<String, Vec<u8>> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut vectors = BTreeMap::new();
    let mut name = "";
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        if line.starts_with(' ') {
            let vector: &mut Vec<u8> = vectors.get_mut(name).expect("a name comes first");
            vector.extend(bytes(line));
        } else {
            name = line;
            assert!(vectors.insert(name.to_owned(), Vec::new()).is_none(), "{file}: {name} twice");
        }
    }
    vectors
}

fn bytes(line: &str) -> Vec<u8> {
    let digits: Vec<_> = line.chars().filter(|sign| !sign.is_whitespace()).collect();
    assert!(digits.len().is_multiple_of(2), "half a byte: {line}");
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}
