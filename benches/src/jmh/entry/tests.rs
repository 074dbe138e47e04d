use super::*;
use crate::jmh::samples::{SUBJECTS, written};

fn rates() -> Value {
    let forks = [[1e6, 3e6], [2e6, 2e6]].map(|fork| fork.map(Figure::Rate).to_vec());
    written(&SUBJECTS[0], 2, forks)
}

fn times() -> Value {
    let first = vec![Figure::Times(vec![(20, 900), (40, 90), (5_000, 10)])];
    let second = vec![Figure::Times(vec![(20, 1_000)])];
    written(&SUBJECTS[0], 1, [first, second])
}

#[test]
fn an_entry_has_each_field_that_jmh_writes() {
    let value = rates();
    for (field, expected) in [
        ("benchmark", json!("xuid.bench.xuid.next_id")),
        ("mode", json!("thrpt")),
        ("threads", json!(2)),
        ("forks", json!(2)),
        ("warmupIterations", json!(1)),
        ("warmupTime", json!("2 ms")),
        ("warmupBatchSize", json!(1)),
        ("measurementIterations", json!(2)),
        ("measurementTime", json!("5 ms")),
        ("measurementBatchSize", json!(1)),
        ("params", json!({"threads": "2", "supply": "burst"})),
    ] {
        assert_eq!(value[field], expected, "{field}");
    }
    for field in ["jmhVersion", "jvm", "jdkVersion", "vmName", "vmVersion"] {
        assert!(value[field].is_string(), "{field}");
    }
    assert!(value["jvmArgs"].is_array());
}

#[test]
fn the_primary_metric_of_rates_is_their_mean_with_its_error_and_all_of_them() {
    let value = rates();
    let metric = &value["primaryMetric"];
    assert_eq!(metric["score"], json!(2e6));
    assert_eq!(metric["scoreUnit"], "ids/s");
    assert_eq!(metric["rawData"], json!([[1e6, 3e6], [2e6, 2e6]]));
    assert!(metric.get("rawDataHistogram").is_none());
    // t of 3 degrees at 99.9 % is 12.924; the standard deviation is sqrt(2/3) M.
    let error = 12.924 * (2e12f64 / 3.0).sqrt() / 2.0;
    assert!((metric["scoreError"].as_f64().unwrap() / error - 1.0).abs() < 1e-4);
    assert_eq!(metric["scoreConfidence"].as_array().unwrap().len(), 2);
    let percentiles: Vec<&str> =
        metric["scorePercentiles"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = ["0.0", "50.0", "90.0", "95.0", "99.0", "99.9", "99.99", "99.999", "99.9999", "100.0"];
    expected.sort_unstable();
    assert_eq!(percentiles, expected);
    assert_eq!(metric["scorePercentiles"]["100.0"], json!(3e6));
}

#[test]
fn timed_calls_are_pairs_of_a_time_and_a_count() {
    let value = times();
    let metric = &value["primaryMetric"];
    assert_eq!(value["mode"], "sample");
    assert_eq!(metric["scoreUnit"], "ns/op");
    assert_eq!(metric["rawDataHistogram"], json!([[[[20, 900], [40, 90], [5_000, 10]]], [[[20, 1_000]]]]));
    assert!(metric.get("rawData").is_none());
    assert_eq!(metric["scorePercentiles"]["50.0"], json!(20.0));
    assert_eq!(metric["scorePercentiles"]["99.0"], json!(40.0));
    assert_eq!(metric["scorePercentiles"]["99.9"], json!(5_000.0));
    assert_eq!(value["subject"]["clock"]["p50Ns"], json!(20.0));
}

#[test]
fn duplicates_are_a_secondary_metric() {
    let mut raw = Raw { duplicates: 3, checked: 10, ..Raw::default() };
    raw.iterations = vec![Figure::Rate(1.0)];
    let plan = crate::jmh::samples::plan("xuid/next_id", 1, Mode::Throughput);
    let value = result(&plan, &SUBJECTS[0], &[raw.clone(), raw]);
    let entry = Entry::try_from(&value).unwrap();
    assert!(entry.is_broken());
    assert_eq!((entry.subject.duplicates, entry.subject.checked_ids), (6, 20));
    let metric = &value["secondaryMetrics"]["duplicates"];
    assert_eq!(metric["score"], json!(6.0));
    assert_eq!(metric["rawData"], json!([[3.0], [3.0]]));
    assert_eq!((&metric["scoreError"], &metric["scoreConfidence"]), (&json!("NaN"), &json!([6.0, 6.0])));
}

#[test]
fn what_was_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("results.json");
    let results = [rates(), times()];
    write(&path, &results).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2 + results.len());
    for (back, result) in read(&path).unwrap().iter().zip(&results) {
        let entry = Entry::try_from(result).unwrap();
        assert_eq!((&back.sample, back.threads, back.batch), (&entry.sample, entry.threads, entry.batch));
        assert_eq!(serde_json::to_value(&back.subject).unwrap(), result["subject"]);
    }
}

#[test]
fn another_file_is_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.json");
    std::fs::write(&path, "[{\"benchmark\":1}]").unwrap();
    assert!(read(&path).unwrap_err().to_string().contains("other.json"));
}

#[test]
fn times_are_written_as_jmh_writes_them() {
    assert_eq!(time_text(Duration::from_millis(300)), "300 ms");
    assert_eq!(time_text(Duration::from_secs(10)), "10 s");
    assert_eq!(time_text(Duration::from_micros(1_500)), "1500 us");
}
