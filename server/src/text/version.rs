//! What this binary is: its version, what it was built from, and the formats that it reads and writes.

use std::sync::LazyLock;

use jiff::Timestamp;
use xuid_engine::registry::{NODE_VERSION, local, zookeeper};

/// The version this binary tells to clients and people.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, where that was a checkout of git; `-modified` where the checkout was.
const COMMIT: Option<&str> = option_env!("XUID_COMMIT");

/// When that was, in seconds since the Unix epoch: `SOURCE_DATE_EPOCH` of the build, else the commit's time.
const DATE: Option<&str> = option_env!("XUID_DATE");

/// `0.1.0 (641dce9a1b2c 2026-11-23)`.
pub(crate) fn short() -> &'static str {
    static SHORT: LazyLock<String> = LazyLock::new(|| format!("{VERSION} ({})", origin(COMMIT, DATE)));
    &SHORT
}

/// The same in lines, with the formats.
pub(crate) fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        format!(
            "{VERSION}\n\
             commit    {}\n\
             speaks    XUID/{}\n\
             formats   spill {}, local registry {}, ZooKeeper registry {}, node.json {NODE_VERSION}",
            origin(COMMIT, DATE),
            xuid_protocol::VERSION,
            xuid_spill::FORMAT_VERSION,
            local::FORMAT_VERSION,
            zookeeper::FORMAT_VERSION,
        )
    });
    &LONG
}

/// Commit and day, as far as they are known.
fn origin(commit: Option<&str>, seconds: Option<&str>) -> String {
    let commit = commit.unwrap_or("unknown");
    let time = seconds.and_then(|text| Timestamp::from_second(text.parse().ok()?).ok());
    time.map_or_else(|| commit.to_owned(), |time| format!("{commit} {}", time.strftime("%Y-%m-%d")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_git_says_so_and_one_with_a_date_says_that() {
        assert_eq!(origin(None, None), "unknown");
        assert_eq!(origin(None, Some("951782400")), "unknown 2000-02-29");
        assert_eq!(origin(Some("641dce9"), Some("951868799")), "641dce9 2000-02-29");
        assert_eq!(origin(Some("641dce9-modified"), Some("not a number")), "641dce9-modified");
    }
}
