//! Patterns of keys, as Redis has them: `?`, `*`, `[a-c]`, `[^a]`, and `\` before a character that means itself.

/// What every text begins with that fits.
pub(super) fn prefix(pattern: &str) -> &str {
    let end = pattern.find(['?', '*', '[', '\\']).unwrap_or(pattern.len());
    &pattern[..end]
}

/// Whether a text fits a pattern. Its time is bounded by the product of both lengths: a `*` that does not lead on is
/// forgotten for the next one.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut read) = (0, 0);
    // The last `*`, and how much of the text it takes.
    let mut star = None;
    while read < text.len() {
        if pattern.get(at) == Some(&'*') {
            star = Some((at, read));
            at += 1;
            continue;
        }
        if let Some(len) = pattern.get(at..).and_then(|rest| one(rest, text[read])) {
            (at, read) = (at + len, read + 1);
        } else {
            let Some((from, taken)) = star else { return false };
            star = Some((from, taken + 1));
            (at, read) = (from + 1, taken + 1);
        }
    }
    pattern[at..].iter().all(|left| *left == '*')
}

/// How much of the pattern's front one character fits; `None`: it does not.
fn one(pattern: &[char], found: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', itself, ..] => (*itself == found).then_some(2),
        ['[', class @ ..] => {
            let (is_not, class) = match class {
                ['^', rest @ ..] => (true, rest),
                _ => (false, class),
            };
            let before = pattern.len() - class.len();
            let (mut at, mut is_in) = (0, false);
            while let Some(first) = class.get(at).filter(|first| **first != ']') {
                let range = match class.get(at + 1..at + 3) {
                    Some(['-', last]) if *last != ']' => (*first.min(last), *first.max(last)),
                    _ => (*first, *first),
                };
                at += if class.get(at + 1) == Some(&'-') && class.get(at + 2).is_some_and(|last| *last != ']')
                {
                    3
                } else {
                    1
                };
                is_in |= (range.0..=range.1).contains(&found);
            }
            (is_in != is_not).then_some((before + at + 1).min(pattern.len()))
        }
        [itself, ..] => (*itself == found).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
