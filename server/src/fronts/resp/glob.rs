//! Patterns of keys, as Redis has them: `?`, `*`, `[a-c]`, `[^a]`, and `\` before a character that means itself.

use std::str::Chars;

/// What every text begins with that fits.
pub(super) fn prefix(pattern: &str) -> &str {
    let end = pattern.find(['?', '*', '[', '\\']).unwrap_or(pattern.len());
    &pattern[..end]
}

/// A pattern, read.
pub(super) struct Pattern(Vec<Part>);

/// What one character of a text fits, or many.
enum Part {
    Many,
    Any,
    Itself(char),
    /// Ranges, ascending and apart.
    Class {
        is_not: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Pattern {
    pub(super) fn new(pattern: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = pattern.chars();
        while let Some(first) = rest.next() {
            parts.push(match first {
                '*' => Part::Many,
                '?' => Part::Any,
                '[' => class(&mut rest),
                // At the end it means itself.
                '\\' => Part::Itself(rest.next().unwrap_or('\\')),
                itself => Part::Itself(itself),
            });
        }
        Self(parts)
    }

    /// Whether a text fits. Its time is bounded by the product of both lengths: a `*` that does not lead on is forgotten for
    /// the next one.
    pub(super) fn fits(&self, text: &str) -> bool {
        let (parts, text): (&[Part], Vec<char>) = (&self.0, text.chars().collect());
        let (mut at, mut read) = (0, 0);
        // The last `*`, and how much of the text it takes.
        let mut star = None;
        while read < text.len() {
            match parts.get(at) {
                Some(Part::Many) => {
                    star = Some((at, read));
                    at += 1;
                }
                Some(part) if part.fits(text[read]) => (at, read) = (at + 1, read + 1),
                _ => {
                    let Some((from, taken)) = star else { return false };
                    star = Some((from, taken + 1));
                    (at, read) = (from + 1, taken + 1);
                }
            }
        }
        parts[at..].iter().all(|left| matches!(left, Part::Many))
    }
}

impl Part {
    fn fits(&self, found: char) -> bool {
        match self {
            Self::Many | Self::Any => true,
            Self::Itself(itself) => *itself == found,
            Self::Class { is_not, ranges } => {
                // The last range that does not begin above it.
                let below = ranges.partition_point(|(first, _)| *first <= found);
                let is_in = below.checked_sub(1).is_some_and(|at| found <= ranges[at].1);
                is_in != *is_not
            }
        }
    }
}

/// A class, up to its `]` or the end.
fn class(rest: &mut Chars<'_>) -> Part {
    let is_not = rest.as_str().starts_with('^');
    if is_not {
        rest.next();
    }
    let mut found = Vec::new();
    while let Some(first) = rest.next().filter(|first| *first != ']') {
        let mut ahead = rest.clone();
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                *rest = ahead;
                last
            }
            _ => first,
        };
        found.push((first.min(last), first.max(last)));
    }
    found.sort_unstable();
    let mut ranges: Vec<(char, char)> = Vec::new();
    for (first, last) in found {
        match ranges.last_mut().filter(|before| first <= before.1) {
            Some(before) => before.1 = before.1.max(last),
            None => ranges.push((first, last)),
        }
    }
    Part::Class { is_not, ranges }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern).fits(text)
    }

    #[test]
    fn patterns_fit_as_in_redis() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "orders"),
            ("order*", "orders"),
            ("*:2026*", "order:2026-11"),
            ("h?llo", "hällo"),
            ("h[ae]llo", "hello"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("h[c-a]llo", "hbllo"),
            ("a\\*b", "a*b"),
            ("**a**", "bab"),
            ("[a", "a"),
            ("[a-c0-9]", "5"),
            ("[^a-c0-9]", "d"),
            ("[a-]", "-"),
            ("[aab-dc]x", "dx"),
            ("a\\", "a\\"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("order", "orders"),
            ("?", ""),
            ("h[^e]llo", "hello"),
            ("a\\*b", "axb"),
            ("*a", "ab"),
            ("[a-c]", "d"),
            ("[]", "a"),
            ("[a-c0-9]", "d"),
            ("[^a-c0-9]", "b"),
        ] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
        assert_eq!((prefix("order:*"), prefix("a?b"), prefix("plain")), ("order:", "a", "plain"));
    }

    #[test]
    fn a_pattern_of_many_stars_does_not_take_for_ever() {
        assert!(!fits(&("*a".repeat(60) + "b"), &"a".repeat(128)));
    }
}
