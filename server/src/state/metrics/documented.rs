//! Holds `docs/metrics.md` against the page: a metric that one of them lacks, or has otherwise, fails a test.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use xuid_engine::Engine;
use xuid_engine::registry::local::sequences::LocalSequences;
use xuid_engine::sequence::Sequences;
use xuid_engine::sequence::store::NewSequence;
use xuid_engine::sequence::store::registry::RegistryStore;

use super::Page;
use crate::config::Tokens;
use crate::state::access::AccessRules;
use crate::state::sequences::ServedSequences;
use crate::state::server::{Limits, Places, Server};

const DOCS: &str = include_str!("../../../../docs/metrics.md");

/// Type, and what each label may say; nothing, where that is not told.
type Metric = (String, BTreeMap<String, BTreeSet<String>>);

/// The words in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = String> + '_ {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// Rows `| name | type | label: values; label: values | ...`.
fn documented() -> BTreeMap<String, Metric> {
    let mut metrics = BTreeMap::new();
    for row in DOCS.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = quoted(cells[1]).next().unwrap();
        let mut labels = BTreeMap::new();
        for label in cells[3].split(';').filter(|cell| !cell.is_empty()) {
            let mut words = quoted(label);
            labels.insert(words.next().expect(row), words.collect());
        }
        let before = metrics.insert(name.clone(), (cells[2].to_owned(), labels));
        assert!(before.is_none(), "{name} has two rows");
    }
    metrics
}

/// What the page has, by the names that a reader of samples sees.
fn shown(page: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for line in page.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').unwrap();
            let suffix = if kind == "counter" { "_total" } else { "" };
            metrics.insert(format!("{name}{suffix}"), (kind.to_owned(), BTreeMap::new()));
        }
        let Some((sample, rest)) = line.split_once('{').filter(|_| !line.starts_with('#')) else { continue };
        let of_histogram =
            ["_bucket", "_sum", "_count"].iter().find_map(|suffix| sample.strip_suffix(suffix));
        let name = if metrics.contains_key(sample) { sample } else { of_histogram.unwrap_or(sample) };
        let (_, labels) = metrics.get_mut(name).unwrap_or_else(|| panic!("{line} has no type"));
        let pieces: Vec<&str> = rest.split('"').collect();
        for pair in pieces.chunks_exact(2) {
            let label = pair[0].trim_matches([',', '=']);
            if label != "le" {
                labels.entry(label.to_owned()).or_default().insert(pair[1].to_owned());
            }
        }
    }
    metrics
}

fn page() -> String {
    let home = tempfile::tempdir().unwrap();
    let engine = Engine::builder().data_dir(home.path()).build().unwrap();
    let records = || Box::new(LocalSequences::open_or_create(home.path(), None).unwrap());
    let store = Box::new(RegistryStore::new(records()));
    let all = Sequences::builder(store).records(records()).data_dir(home.path()).build().unwrap();
    let name = "orders".parse().unwrap();
    all.create(&name, NewSequence::default()).wait().unwrap();
    // A rate, without which nothing is said of how long it lasts.
    for _ in 0..1_000 {
        all.sequence(&name).unwrap().next_ordered().unwrap();
    }
    let sequences = Some(ServedSequences { all, step: 1_000, tiny_tokens: None });
    let limits = Limits {
        unread: usize::MAX,
        connections: 1,
        wait: Duration::from_millis(50),
        protocol: xuid_protocol::Limits::default(),
    };
    let places = Places { listen: "127.0.0.1:7654".parse().unwrap(), admin: None, resp: None, http: None };
    let server = Server::new(engine, limits, AccessRules::new(Tokens::default(), None), places);
    Page::new(Arc::new(server.with_sequences(sequences))).render().unwrap()
}

#[test]
fn every_metric_is_documented_as_it_is_and_nothing_else_is() {
    let (mut documented, shown) = (documented(), shown(&page()));
    for (name, (kind, labels)) in shown {
        let Some((told_kind, told)) = documented.remove(&name) else {
            panic!("docs/metrics.md has no row for {name}")
        };
        assert_eq!(told_kind, kind, "the type of {name} in docs/metrics.md");
        let names = |labels: &BTreeMap<String, BTreeSet<String>>| labels.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&told), names(&labels), "the labels of {name} in docs/metrics.md");
        for (label, values) in labels {
            assert!(told[&label].is_empty() || told[&label] == values, "{name}: {label} is {values:?}");
        }
    }
    let unknown: Vec<_> = documented.keys().collect();
    assert!(unknown.is_empty(), "docs/metrics.md has rows for what no page shows: {unknown:?}");
}

#[test]
fn what_is_shown_is_read_from_samples_of_every_kind() {
    let page = "# TYPE a counter\na_total{x=\"1\",y=\"2\"} 5\n# TYPE b histogram\nb_bucket{le=\"0.5\",op=\"z\"} 1\nb_sum{op=\"z\"} 1\n";
    let shown = shown(page);
    assert_eq!(shown["a_total"].1["y"], BTreeSet::from(["2".to_owned()]));
    assert_eq!(shown["b"].1.keys().collect::<Vec<_>>(), ["op"]);
}
