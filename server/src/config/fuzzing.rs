//! What must hold for a file of settings of any text. One body serves the property test here and the fuzz target
//! `settings`.

use std::time::Duration;

use xuid_engine::sequence::store::database::DatabaseUrl;

use super::sequences::{SequenceSettings, SequenceStore};
use super::settings::Settings;
use super::sources::Merged;
use crate::text::exit::Usage;

/// A file is taken whole, with every value within its bounds, or it is wrong usage that says so.
pub(crate) fn file(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    // Those files would be read, wherever they are.
    if ["auth_file", "url_file", "tokens", "tls_"].iter().any(|key| text.contains(key)) {
        return;
    }
    let loaded = Merged::of_file(text).and_then(|merged| {
        let settings = Settings::from_merged(&merged)?;
        settings.check_together().map(|()| settings)
    });
    match loaded {
        Err(error) => assert!(error.is::<Usage>() && !error.to_string().is_empty(), "{error:?}"),
        Ok(settings) => within_bounds(&settings),
    }
}

/// What the table of keys allows.
fn within_bounds(settings: &Settings) {
    let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
    let century = Duration::from_hours(100 * 366 * 24);
    let Settings { max_age, wait, backfill, window_max, rollback_wait, drift, max_forward, idle, .. } =
        *settings;
    assert!((2 * second..=century).contains(&max_age) && wait <= minute && backfill <= max_age);
    assert!((second..=100 * second).contains(&window_max) && rollback_wait <= drift && drift <= minute);
    assert!(
        (second / 10..=100 * second).contains(&max_forward)
            && idle >= second
            && idle <= Duration::from_hours(24)
    );
    assert!((second..=minute).contains(&settings.access.session));
    assert!(settings.drain <= 60 * minute && settings.lame_duck <= 60 * minute);
    assert!((1..=64).contains(&settings.workers) && settings.worker.is_none_or(|worker| worker < 1 << 20));
    assert!(settings.worker.is_none() || settings.workers == 1);
    assert!((1..=256).contains(&settings.threads) || settings.threads == super::values::cores());
    assert!(settings.max_connections.is_none_or(|count| (1..=1_000_000).contains(&count)));
    of_sequences(&settings.sequences);
    assert!(settings.tokens.each().len() <= 1);
    assert!(settings.listen.contains(':') && settings.admin.as_ref().is_none_or(|admin| admin.contains(':')));
}

fn of_sequences(sequences: &SequenceSettings) {
    let SequenceSettings { store, create, strict, step, step_max, hold, idle, limit, .. } = sequences;
    let day = Duration::from_secs(1)..=Duration::from_hours(24);
    assert!((1..=1 << 32).contains(step) && (1..=1 << 32).contains(step_max));
    assert!(day.contains(hold) && day.contains(idle) && (1..=100_000_000).contains(limit));
    assert!(create.iter().chain(strict).all(|pattern| !pattern.to_string().is_empty()));
    if let SequenceStore::Database(url) = store {
        let shown = url.to_string();
        assert!(
            shown.parse::<DatabaseUrl>().is_ok_and(|url| url.to_string() == shown && !url.has_password())
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use crate::config::keys::KEYS;

    fn lines() -> impl Strategy<Value = String> {
        let name = prop_oneof![
            9 => prop::sample::select(KEYS.iter().map(|key| key.name.to_owned()).collect::<Vec<_>>()),
            1 => "[a-z_]{1,8}",
        ];
        let value = prop_oneof![
            4 => (0u64..200, prop::sample::select(vec!["ms", "s", "m", "h", " days", "", "y"]))
                .prop_map(|(number, unit)| format!("\"{number}{unit}\"")),
            2 => any::<i64>().prop_map(|number| number.to_string()),
            1 => "\"[-0-9a-z:/., ]{0,20}\"",
            1 => "\"(postgres|mysql)://[a-z:@,/?0-9]{0,20}\"",
            1 => prop::sample::select(vec!["true", "[1]", "[\"a*\"]", "\"now\"", "\"off\"", "\"local\"", "\"41/10/12\""])
                .prop_map(str::to_owned),
        ];
        vec((name, value).prop_map(|(name, value)| format!("{name} = {value}\n")), 0..4)
            .prop_map(|lines| lines.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn a_file_of_settings_is_taken_within_bounds_or_refused_as_wrong_usage(text in lines(), noise in ".{0,60}") {
            super::file(text.as_bytes());
            super::file(noise.as_bytes());
        }
    }
}
