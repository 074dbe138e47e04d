//! What somebody meant who wrote a name that there is not.

/// Less alike than this is another word. The measure and the number are those with which clap finds the nearest flag.
const ALIKE: f64 = 0.7;

/// The known name that `word` is most like, if it is like one at all.
pub(in crate::config) fn nearest<'k>(
    word: &str,
    known: impl IntoIterator<Item = &'k str>,
) -> Option<&'k str> {
    let rated = known.into_iter().map(|name| (strsim::jaro(word, name), name));
    let alike = rated.filter(|(alike, _)| *alike > ALIKE);
    alike.max_by(|(left, _), (right, _)| left.total_cmp(right)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::KEYS;

    #[test]
    fn a_slip_finds_the_name_that_was_meant_and_another_word_finds_none() {
        let key = |word| nearest(word, KEYS.iter().map(|key| key.name));
        assert_eq!(key("lisen"), Some("listen"));
        assert_eq!(key("data-dir"), Some("data_dir"));
        assert_eq!(key("maxage"), Some("max_age"));
        assert_eq!(key("max_connection"), Some("max_connections"));
        for word in ["port", "kubernetes", "xyzzy", ""] {
            assert_eq!(key(word), None, "{word}");
        }
    }
}
