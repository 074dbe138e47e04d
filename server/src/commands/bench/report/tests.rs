use xuid_load::{Results, Sent, Verdict};

use super::*;
use crate::commands::bench::Args;

/// 1,000 requests answered after 1 to 1,000 us, in 2 s.
fn outcome(is_open: bool) -> Outcome {
    let mut total = Results::new(is_open).unwrap();
    for index in 1..=1_000 {
        total.answered(1, Sent { start: 5, at: 5 + index * 100 }, 5 + index * 1_000);
    }
    (total.ids, total.requests, total.received, total.sent) = (1_000, 1_000, 24_000_000, 16_000_000);
    Outcome { total, verdict: None, time: Duration::from_secs(2), interrupted: false, cut_short: false }
}

fn report(args: &Args, outcome: Outcome) -> Report {
    let args = Args {
        server: vec!["127.0.0.1:7654".into()],
        connections: Some(50),
        pipeline: Some(100),
        ..args.clone()
    };
    Report::new(&Plan::new(&args).unwrap(), Some("cluster 00ff".into()), outcome)
}

#[test]
fn a_closed_loop_is_told_with_what_its_latency_is() {
    let mut outcome = outcome(false);
    outcome.verdict = Some(Verdict { ids: 1_500, spans: 3, ..Verdict::default() });
    let told = report(&Args::default(), outcome).text().join("\n");
    assert_eq!(told, include_str!("closed.txt").trim_end());
}

#[test]
fn an_open_loop_that_fell_behind_says_so() {
    let mut outcome = outcome(true);
    outcome.interrupted = true;
    outcome.total.refused(Some("OVERLOADED"), "OVERLOADED: nothing left within 50 ms");
    outcome.total.gave_up(Sent { start: 0, at: 10_000_000 }, 50_000_000);
    outcome.total.open.as_mut().unwrap().unsent = 1_234;
    let args = Args { rate: Some(1_000), ..Args::default() };
    let told = report(&args, outcome).text().join("\n");
    assert_eq!(told, include_str!("open.txt").trim_end());
}

#[test]
fn json_has_the_figures_the_mode_and_the_settings() {
    let args = Args { rate: Some(500), ..Args::default() };
    let json = report(&args, outcome(true)).json();
    for (key, wanted) in [
        ("ids", json!(1_000)),
        ("requests_per_second", json!(500)),
        ("bytes_received_per_second", json!(12_000_000)),
        ("mode", json!("open")),
        ("asked_rate", json!(500)),
        ("fell_behind", json!(false)),
        ("unsent", json!(0)),
        ("duplicates", Value::Null),
        ("refusals", json!({})),
        ("samples", json!(1_000)),
    ] {
        assert_eq!(json[key], wanted, "{key}");
    }
    for key in ["p50_us", "p90_us", "p99_us", "p999_us", "p9999_us", "max_us", "mean_us"] {
        assert!(json[key].as_f64().is_some_and(|us| us > 0.0) && json["late"][key].is_f64(), "{key}: {json}");
    }
    assert!((json["p50_us"].as_f64().unwrap() - 500.0).abs() < 1.0, "{json}");
    assert_eq!(json["settings"]["connections"], 50);
    assert_eq!(json["settings"]["request"], "NEXT");
}

#[test]
fn load_that_was_sent_away_is_told_in_text_and_json() {
    let mut outcome = outcome(false);
    outcome.total.sent_away = 3;
    let report = report(&Args::default(), outcome);
    assert!(report.text().iter().any(|line| line.contains("3 connections sent away")), "{:?}", report.text());
    assert_eq!(report.json()["sent_away"], 3);
}

#[test]
fn a_batch_is_told_by_the_call_and_its_max_whole() {
    let mut outcome = outcome(false);
    outcome.total.latency.reset();
    outcome.total.latency.record_n(2_560, 99).unwrap();
    outcome.total.latency.record(256_000).unwrap();
    let plan = Plan::new(&Args { embedded: true, threads: Some(1), ..Args::default() }).unwrap();
    let json = Report::new(&plan, None, outcome).json();
    let near =
        |key: &str, us: f64| assert!((json[key].as_f64().unwrap() / us - 1.0).abs() < 0.01, "{key}: {json}");
    assert_eq!(json["calls_per_sample"], 256);
    near("p50_us", 0.01);
    near("max_us", 256.0);
}

#[test]
fn a_run_fails_for_its_worst_reason() {
    let fails = |change: fn(&mut Outcome)| {
        let mut outcome = outcome(false);
        change(&mut outcome);
        report(&Args { verify: true, ..Args::default() }, outcome).judge().unwrap_err().to_string()
    };
    let twice = |outcome: &mut Outcome| {
        outcome.verdict = Some(Verdict { duplicates: 2, shown: vec![77], unseen: 1, ..Verdict::default() });
        outcome.total.ids = 0;
    };
    assert!(fails(twice).contains("2 ids came twice, such as [77]"));
    let full = |outcome: &mut Outcome| outcome.verdict = Some(Verdict { unseen: 9, ..Verdict::default() });
    assert!(fails(full).contains("--verify-memory"));
    assert!(fails(|outcome| outcome.total.failed("it broke".into())).contains("it broke"));
    assert!(fails(|outcome| outcome.total.ids = 0).contains("no id came"));
    let gone = |outcome: &mut Outcome| (outcome.total.sent_away, outcome.cut_short) = (1, true);
    assert!(fails(gone).contains("went away"));
    assert!(fails(|outcome| outcome.total.sent_away = 3).contains("3 of the load's connections"));
    assert!(fails(|outcome| outcome.total.unanswered = 4).contains("4 requests"));
    let mut interrupted = Outcome { interrupted: true, ..outcome(false) };
    interrupted.total.sent_away = 1;
    assert!(report(&Args::default(), interrupted).judge().is_ok(), "whoever stopped it wanted that");
}
