//! The pages for machines: what `/metrics` and `/readyz` say, and the settings of the clock.

use crate::support::{Server, failure, get, run};

/// The value of one sample.
fn sample(page: &str, name: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn the_clock_and_the_registry_have_figures() {
    let home = tempfile::tempdir().unwrap();
    let clock = ["--rollback-wait", "20ms", "--drift", "2s"];
    let server = Server::start(home.path(), &clock, &[("XUID_MAX_FORWARD", "10s")]);
    let (status, page) = get(server.admin, "/metrics");
    assert_eq!(status, 200);
    let has = |name: &str, value: f64| {
        assert_eq!(sample(&page, name), Some(value), "{name}");
    };
    for (verdict, now) in
        [("steady", 1.0), ("stand", 0.0), ("catch_up", 0.0), ("behind", 0.0), ("ahead", 0.0)]
    {
        has(&format!("xuid_clock_verdict{{verdict=\"{verdict}\"}}"), now);
        assert!(sample(&page, &format!("xuid_clock_verdicts_total{{verdict=\"{verdict}\"}}")).is_some());
    }
    for cause in ["clock", "lost", "unreadable", "resumed", "copied"] {
        has(&format!("xuid_worker_switches_total{{cause=\"{cause}\"}}"), 0.0);
    }
    for state in ["connected", "away", "expired", "refused"] {
        has(&format!("xuid_registry_state{{state=\"{state}\"}}"), f64::from(u8::from(state == "connected")));
    }
    has("xuid_registry_away_seconds", 0.0);
    has("xuid_worker_switch_max_ms", 0.0);
    has("xuid_worker_switch_seconds_count", 0.0);
    let worker = page.lines().find_map(|line| line.strip_prefix("xuid_worker_window_left_ms{worker=\""));
    assert!(worker.is_some_and(|rest| !rest.ends_with(" 0")), "{page}");
}

#[test]
fn a_histogram_rises_to_its_count() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(home.path(), &[], &[]);
    let page = get(server.admin, "/metrics").1;
    assert!(page.contains("# TYPE xuid_registry_reserve_seconds histogram"), "{page}");
    let buckets: Vec<f64> = page
        .lines()
        .filter(|line| {
            line.starts_with("xuid_registry_reserve_seconds_bucket") && line.contains("op=\"claim\"")
        })
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(buckets.len() == 15 && buckets.is_sorted(), "{buckets:?}");
    let of =
        |what: &str| sample(&page, &format!("xuid_registry_reserve_seconds_{what}{{op=\"claim\"}}")).unwrap();
    assert_eq!((buckets[14], of("count")), (1.0, 1.0), "one worker was taken");
    assert!(of("sum") > 0.0 && of("sum") < 10.0);
    let last = sample(&page, "xuid_registry_reserve_seconds_bucket{le=\"+Inf\",op=\"claim\"}");
    assert_eq!(last, Some(1.0));
}

#[test]
fn thresholds_of_the_clock_are_checked() {
    for (args, words) in [
        (&["--rollback-wait", "3s"][..], &["rollback_wait", "3s", "drift", "1s"][..]),
        (&["--drift", "61s"], &["drift", "61s", "0 to 60s"]),
        (&["--max-forward", "50ms"], &["max_forward", "50ms", "100ms to 100s"]),
    ] {
        let (code, said) = failure(&run(&[&["serve"], args].concat()));
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
    }
}
