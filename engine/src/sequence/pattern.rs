//! Patterns of names, as in `sequence_create = ["order:*"]`.

use std::fmt;

/// A pattern: a text in which `*` stands for any number of characters, none included.
///
/// ```
/// use xuid_engine::sequence::NamePattern;
///
/// let pattern = NamePattern::new("order:*");
/// assert!(pattern.fits("order:2026") && !pattern.fits("orders"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(Box<str>);

impl NamePattern {
    /// Every text is a pattern.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Whether it stands for a name. Names are compared byte by byte.
    #[must_use]
    pub fn fits(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
        let mut last = None;
        for part in parts {
            // Each part but the last may as well stand where it is found first.
            if let Some(part) = last.replace(part) {
                let Some(at) = rest.find(part) else { return false };
                rest = &rest[at + part.len()..];
            }
        }
        last.map_or(rest.is_empty(), |end| rest.ends_with(end))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_star_stands_for_any_characters_and_nothing_else_does() {
        for (pattern, fits, does_not) in [
            ("a", vec!["a"], vec!["", "b", "ab", "A"]),
            ("*", vec!["", "a", "a*b"], vec![]),
            ("a*", vec!["a", "ab", "aa"], vec!["", "ba"]),
            ("*a", vec!["a", "ba", "aa"], vec!["", "ab"]),
            ("a*a", vec!["aa", "aba", "aaa"], vec!["a", "ab"]),
            ("a*b*c", vec!["abc", "axbxc", "abbcc"], vec!["ac", "acb", "abcx"]),
            ("?", vec!["?"], vec!["a"]),
        ] {
            let pattern = NamePattern::new(pattern);
            assert!(fits.iter().all(|name| pattern.fits(name)), "{pattern} fits {fits:?}");
            assert!(!does_not.iter().any(|name| pattern.fits(name)), "{pattern} fits none of {does_not:?}");
        }
    }

    fn naive(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|skipped| naive(rest, &name[skipped..])),
            Some((byte, rest)) => name.first() == Some(byte) && naive(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn a_pattern_fits_as_one_that_tries_everything(pattern in "[ab*]{0,6}", name in "[ab]{0,8}") {
            prop_assert_eq!(NamePattern::new(&pattern).fits(&name), naive(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
