//! What the log lets through: levels, and levels of modules.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::sources::nearest::nearest;

/// Words for a level.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The crates of this binary that log.
const MODULES: [&str; 3] = ["xuid", "xuid_engine", "zookeeper_client"];

/// The filter, if every part of it can be understood; else why not, as far as more can be said than what is allowed.
///
/// A bare word that is no level would let everything of a module of that name through, and nothing else: a slip such as
/// `inf` would silence the log. So the module has to be ours; `module=level` may name any.
pub(super) fn log_filter(text: &str) -> Result<String, String> {
    // Behind a comma, a space would be taken for a part of the name.
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    for word in parts.iter().filter(|part| !part.contains(['=', '['])) {
        let is_level = word.is_empty() || word.parse::<LevelFilter>().is_ok();
        let module = word.split("::").next().unwrap_or(word);
        if !is_level && !MODULES.contains(&module) {
            return Err(stranger(word));
        }
    }
    let text = parts.join(",");
    EnvFilter::try_new(&text).map(|_| text).map_err(|_| String::new())
}

fn stranger(word: &str) -> String {
    let known = || LEVELS.into_iter().chain(MODULES);
    let lower = word.to_ascii_lowercase();
    let known_are = || format!("known are {}", known().collect::<Vec<_>>().join(", "));
    let hint = nearest(&lower, known()).map_or_else(known_are, |near| format!("the nearest is {near}"));
    format!("{word:?} is neither a level nor a module of xuid; {hint}")
}

/// `RUST_LOG` where it says something that can be understood, else `default`. Other programs are told by that variable,
/// too, so a module of theirs is no mistake.
pub(crate) fn log_of_environment(default: &str) -> String {
    let asked = std::env::var("RUST_LOG").ok();
    asked.filter(|text| EnvFilter::try_new(text).is_ok()).unwrap_or_else(|| default.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_our_modules_and_levels_of_any_module_are_taken() {
        for text in [
            "info",
            "OFF",
            "warn,xuid_engine=debug",
            "xuid_engine",
            "xuid_engine::registry",
            "hyper=trace,error",
            "xuid[{span}]",
            "",
        ] {
            assert_eq!(log_filter(text).as_deref(), Ok(text), "{text:?}");
        }
        assert_eq!(log_filter(" info, xuid_engine=debug").as_deref(), Ok("info,xuid_engine=debug"));
    }

    #[test]
    fn a_bare_word_that_is_neither_is_refused_with_the_nearest() {
        for (text, near) in [
            ("inf", "info"),
            ("warning", "warn"),
            ("info,xuid_engin", "xuid_engine"),
            ("Debugg", "debug"),
            ("hyper", "known are off, error"),
        ] {
            let why = log_filter(text).unwrap_err();
            assert!(why.contains(near) && why.contains("neither"), "{text}: {why}");
        }
        assert_eq!(log_filter("xuid=loud"), Err(String::new()), "what is allowed is said with every refusal");
    }
}
