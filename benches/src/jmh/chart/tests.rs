use roxmltree::{Document, Node};

use super::*;
use crate::jmh::plan::Figure;
use crate::jmh::samples::{SUBJECTS, entry, scored};
use crate::subject::Supply;

const BURST: Supply = Supply::Burst;

fn of_class<'a>(document: &'a Document<'_>, class: &str) -> Vec<Node<'a, 'a>> {
    let has = |node: &Node<'_, '_>| {
        node.attribute("class").is_some_and(|found| found.split(' ').any(|c| c == class))
    };
    document.descendants().filter(has).collect()
}

fn number(node: Node<'_, '_>, attribute: &str) -> f64 {
    node.attribute(attribute).unwrap().parse().unwrap()
}

fn entries() -> Vec<Entry> {
    let mut void = scored("peer/<void> & \"odd\"", Kind::Peer, BURST, 2, 3e7);
    void.subject.objections.push("refused".to_owned());
    let times = || vec![Figure::Times(vec![(20, 990), (9_000, 10)])];
    vec![
        scored("peer/slow", Kind::Peer, BURST, 1, 1e7),
        scored("xuid/next_id", Kind::Ours, BURST, 1, 1e9),
        scored("limit/local", Kind::Limit, BURST, 1, 2e9),
        scored("xuid/next_id", Kind::Ours, BURST, 2, 2e9),
        void,
        scored("xuid/next_id-sustained", Kind::Ours, Supply::Sustained, 1, 4.096e6),
        entry(&SUBJECTS[0], 1, [times(), times()]),
    ]
}

#[test]
fn the_chart_is_well_formed_and_has_one_bar_a_row() {
    let entries = entries();
    let text = svg(&entries);
    let document = Document::parse(&text).unwrap();
    for class in ["bar", "name", "value"] {
        assert_eq!(of_class(&document, class).len(), entries.len(), "{class}");
    }
    assert_eq!(of_class(&document, "title").len(), 3, "burst, sustained, and timed calls are panels");
    let headings: Vec<_> = of_class(&document, "heading").iter().map(|node| node.text().unwrap()).collect();
    assert_eq!(headings, ["1 thread", "2 threads", "1 thread", "1 thread"]);
}

#[test]
fn ten_times_as_much_is_as_much_longer_wherever_it_begins() {
    let scores = [1e6, 1e7, 1e8];
    let entries = scores.map(|score| scored("peer/x", Kind::Peer, BURST, 1, score));
    let text = svg(&entries);
    let document = Document::parse(&text).unwrap();
    let bars: Vec<f64> = of_class(&document, "bar").into_iter().map(|bar| number(bar, "width")).collect();
    assert!(bars.is_sorted_by(|a, b| a > b), "the best comes first: {bars:?}");
    assert!(((bars[0] - bars[1]) - (bars[1] - bars[2])).abs() <= 0.2, "{bars:?}");
    assert!(bars[2] > 0.0);
}

#[test]
fn a_void_bar_is_hollow_and_says_so() {
    let text = svg(&entries());
    let document = Document::parse(&text).unwrap();
    let void = of_class(&document, "void");
    assert_eq!(void.len(), 1);
    let labels: Vec<_> = of_class(&document, "value").iter().filter_map(Node::text).collect();
    assert_eq!(labels.iter().filter(|label| label.ends_with("(void)")).count(), 1, "{labels:?}");
    assert!(labels.contains(&"4.10 M"), "{labels:?}");
    assert!(labels.contains(&"20.0 ns ... 9.00 us"), "{labels:?}");
}

#[test]
fn nothing_is_drawn_outside_the_picture() {
    let text = svg(&entries());
    let document = Document::parse(&text).unwrap();
    let root = document.root_element();
    let (width, height) = (number(root, "width"), number(root, "height"));
    for node in document.descendants().filter(|node| node.has_attribute("x")) {
        let (x, y) = (number(node, "x"), number(node, "y"));
        assert!((0.0..=width).contains(&x) && (0.0..=height).contains(&y), "{x} {y}");
    }
}

#[test]
fn no_results_make_a_picture_that_says_so() {
    let text = svg(&[]);
    assert!(
        Document::parse(&text)
            .unwrap()
            .descendants()
            .any(|node| node.text() == Some("Nothing was measured."))
    );
}

#[test]
fn a_scale_is_of_whole_decades_and_its_smallest_bar_can_be_seen() {
    let scale = Scale::around([4e6, 1.1e9].into_iter());
    assert_eq!(scale, Scale { low: 6, high: 10 });
    assert!((scale.across(1e8) - f64::midpoint(LEFT, RIGHT)).abs() < 1e-9);
    assert!((scale.across(1.0) - LEFT).abs() < 1e-9 && (scale.across(1e30) - RIGHT).abs() < 1e-9);
    assert!(Scale::around([1e6].into_iter()).across(1e6) > LEFT);
}

#[test]
fn labels_have_three_digits_and_a_prefix() {
    let rates = [1_053e6, 744.2e6, 4.096e6, 12_345.0, 999_999.0, 3.0].map(|n| unit_text(Mode::Throughput, n));
    assert_eq!(rates, ["1.05 G", "744 M", "4.10 M", "12.3 k", "1.00 M", "3.00"]);
    let times = [0.5, 23.0, 1_200.0, 3.4e6].map(|n| unit_text(Mode::Sample, n));
    assert_eq!(times, ["0.50 ns", "23.0 ns", "1.20 us", "3.40 ms"]);
}
