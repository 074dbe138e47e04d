use super::*;
use crate::jmh::plan::Figure;
use crate::jmh::samples::{SUBJECTS, entry, scored};
use crate::subject::Supply;

const BURST: Supply = Supply::Burst;
const SUSTAINED: Supply = Supply::Sustained;

/// The cells of the table's row of that benchmark at that number of threads.
fn row<'a>(table: &'a str, benchmark: &str, threads: &str) -> Vec<&'a str> {
    let cells =
        |line: &'a str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>();
    let rows: Vec<_> = table.lines().map(cells).filter(|row| row.first() == Some(&benchmark)).collect();
    rows.into_iter().find(|row| row[1] == threads).unwrap()
}

#[test]
fn ours_is_as_many_times_better_as_its_rate_is_higher_or_its_time_shorter() {
    assert_eq!(ratio(Mode::Throughput, 100.0, 25.0), Some(4.0));
    assert_eq!(ratio(Mode::Sample, 25.0, 100.0), Some(4.0));
    assert_eq!(ratio(Mode::Throughput, 100.0, 0.0), None);
    assert_eq!(ratio(Mode::Throughput, f64::NAN, 1.0), None);
}

#[test]
fn each_row_is_compared_with_ours_at_the_same_number_of_threads() {
    let entries = [
        scored("xuid/next_id", Kind::Ours, BURST, 1, 1e9),
        scored("xuid/next_id", Kind::Ours, BURST, 2, 2e9),
        scored("peer/slow", Kind::Peer, BURST, 1, 1e7),
        scored("peer/slow", Kind::Peer, BURST, 2, 1e7),
    ];
    let table = table(&entries);
    assert_eq!(row(&table, "xuid.bench.peer.slow", "1").last(), Some(&"100"));
    assert_eq!(row(&table, "xuid.bench.peer.slow", "2").last(), Some(&"200"));
    assert_eq!(row(&table, "xuid.bench.xuid.next_id", "1").last(), Some(&"1.00"));
}

#[test]
fn burst_and_sustained_never_meet_in_a_section() {
    let entries = [
        scored("xuid/next_id", Kind::Ours, BURST, 1, 1e9),
        scored("peer/slow-sustained", Kind::Peer, SUSTAINED, 1, 1e6),
        scored("xuid/handle-sustained", Kind::Ours, SUSTAINED, 1, 5e6),
        scored("xuid/next_id-sustained", Kind::Ours, SUSTAINED, 1, 4e6),
        scored("peer/slow", Kind::Peer, BURST, 1, 1e8),
    ];
    let table = table(&entries);
    let (burst, sustained) = table.split_once("\n\n").unwrap();
    assert!(burst.starts_with("# Burst") && sustained.starts_with("# Sustained"), "{table}");
    assert!(!burst.contains("-sustained"), "{burst}");
    assert_eq!(row(burst, "xuid.bench.peer.slow", "1").last(), Some(&"10.0"));
    assert_eq!(row(sustained, "xuid.bench.peer.slow-sustained", "1").last(), Some(&"4.00"));
}

#[test]
fn a_void_figure_is_marked_and_nothing_is_compared_with_it() {
    let mut ours = scored("xuid/next_id", Kind::Ours, BURST, 1, 1e9);
    ours.subject.objections.push("the land ran out".to_owned());
    let table = table(&[ours, scored("peer/slow", Kind::Peer, BURST, 1, 1e7)]);
    assert_eq!(row(&table, "xuid.bench.xuid.next_id", "1").last(), Some(&"VOID"));
    assert_eq!(row(&table, "xuid.bench.peer.slow", "1").last(), Some(&"-"));
    assert!(table.contains("VOID xuid.bench.xuid.next_id at 1 thread(s): the land ran out"), "{table}");
}

#[test]
fn duplicates_have_a_column_and_ours_a_line() {
    let mut ours = scored("xuid/next_id", Kind::Ours, BURST, 2, 1e9);
    ours.subject.duplicates = 1_234;
    let table = table(&[ours]);
    assert!(row(&table, "xuid.bench.xuid.next_id", "2").contains(&"1,234 of 2,000"), "{table}");
    assert!(table.contains("BROKEN xuid.bench.xuid.next_id"), "{table}");
}

#[test]
fn timed_calls_have_a_row_a_percentile_with_ratios_of_their_own() {
    let times = |fast, slow| vec![Figure::Times(vec![(fast, 9_980), (slow, 20)])];
    let entries = [
        entry(&SUBJECTS[0], 1, [times(20, 100), times(20, 100)]),
        entry(&SUBJECTS[3], 1, [times(40, 5_000), times(40, 5_000)]),
    ];
    let table = table(&entries);
    assert_eq!(row(&table, "xuid.bench.limit.alone:p0.50", "1").last(), Some(&"2.00"));
    assert_eq!(row(&table, "xuid.bench.limit.alone:p0.999", "1").last(), Some(&"50.0"));
    assert!(row(&table, "xuid.bench.limit.alone", "1").contains(&"20000"), "{table}");
    assert!(table.contains("Reading the clock"), "{table}");
    let result = result(&entries[1]);
    assert!(result.contains("p(99.9000) =     5000.000 ns/op"), "{result}");
    assert!(result.contains("p99.9 is 125.0 x the median"), "{result}");
}

#[test]
fn times_of_different_operations_are_not_compared() {
    let times = || vec![Figure::Times(vec![(20, 100)])];
    let ours = entry(&SUBJECTS[0], 1, [times(), times()]);
    let mut arrays = entry(&SUBJECTS[3], 1, [times(), times()]);
    arrays.subject.ids_per_call = 1_024;
    let mut batches = ours.clone();
    batches.batch = 64;
    let table = table(&[ours, arrays, batches]);
    let (single, grouped) = table.split_once("\n\n").unwrap();
    assert!(single.contains("time of a call") && grouped.contains("time of 64 calls"), "{table}");
    assert_eq!(row(single, "xuid.bench.limit.alone:p0.50", "1").last(), Some(&"-"));
    assert!(!grouped.contains("limit"), "{grouped}");
}

#[test]
fn a_result_is_told_as_jmh_does() {
    let text = result(&scored("xuid/next_id", Kind::Ours, BURST, 1, 1e9));
    assert!(text.starts_with("Result \"xuid.bench.xuid.next_id\":\n  1000.000 \u{b1}(99.9%) "), "{text}");
    assert!(text.contains("(min, avg, max) = (990.000, 1000.000, 1010.000), median = 1000.000"), "{text}");
    assert!(text.contains("  CI (99.9%): ["), "{text}");
}

#[test]
fn columns_stand_under_their_heads() {
    let entries = [
        scored("xuid/next_id", Kind::Ours, BURST, 1, 1e9),
        scored("peer/of-a-longer-name", Kind::Peer, BURST, 1, 1e3),
    ];
    let table = table(&entries);
    let lines: Vec<&str> = table.lines().skip(2).collect();
    let end = lines[0].find("Score").unwrap() + "Score".len();
    for line in &lines[1..] {
        let cell: String = line.chars().take(end).collect();
        assert!(cell.chars().last().unwrap().is_ascii_digit(), "{table}");
    }
}
