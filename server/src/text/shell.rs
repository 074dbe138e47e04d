//! What is told to be pasted into a shell.

/// As one word.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "_.:/-".contains(char);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_shell_whatever_is_in_it() {
        let words = [("orders:2026", "orders:2026"), ("two words", "'two words'"), ("it's", r"'it'\''s'")];
        for (name, word) in words {
            assert_eq!(quoted(name), word);
        }
    }
}
