//! Texts of strangers.

/// A stranger's text as it may stand on a terminal and in one line of a log: without control characters.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect()
}
