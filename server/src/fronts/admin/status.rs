//! The page for people, at `/`: a table that needs no script, and a script that polls `/status.json` and draws.
//!
//! The page is one file without anything from elsewhere, and its policy allows nothing else: the script and the style
//! run because they carry a number that is drawn anew for each reply.
//!
//! # Invariants
//! - I1 every text that the server puts into the page is escaped, and the script writes text only.

use std::fmt::Write as _;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use serde_json::{Value, json};
use xuid_engine::Order;
use xuid_engine::registry::printable;
use xuid_engine::stats::{Stats, Status};
use xuid_protocol::Op;

use crate::state::sequences::ServedSequences;
use crate::state::server::{Server, VERSION};
use crate::text::human_time::{grouped, now_ns};

const TEMPLATE: &str = include_str!("status.html");

/// Sequences that the page shows.
const BUSIEST: usize = 20;

/// How many bars of a tier that holds ids of the last moment are a second of all ids: ring and queue hold one between
/// them.
const MOMENTS: u64 = 2;

/// The page, as it is without a script.
pub(super) fn page(server: &Server) -> Response {
    // Without randomness there is no number, and the page stays a table.
    let nonce = nonce().unwrap_or_default();
    let sequences = server.sequences.as_ref().map(section).unwrap_or_default();
    let mut table = String::new();
    for (name, value) in rows(server, &server.engine.stats()) {
        let _ = writeln!(table, "<tr><th>{}</th><td>{}</td></tr>", escaped(name), escaped(&value));
    }
    let page = TEMPLATE
        .replace("{{NONCE}}", &nonce)
        .replace("{{VERSION}}", VERSION)
        .replace("{{SEQUENCES}}", &sequences)
        .replace("{{ROWS}}", &table);
    (headers(&policy(&nonce)), Html(page)).into_response()
}

/// Named sequences: where they are kept, and the busiest of them. Nothing where none was asked for.
fn section(sequences: &ServedSequences) -> String {
    let (status, busiest) = (sequences.all.status(), sequences.all.busiest(BUSIEST));
    if busiest.is_empty() {
        return String::new();
    }
    let mut html = format!(
        "  <section class=\"card\"><h2>Sequences <span class=\"faint\">{}, the {BUSIEST} busiest names</span></h2>\n    <table>\n",
        escaped(&status.store)
    );
    html.push_str("<tr><th>name</th><td>issued</td><td>held</td><td>a second</td><td>state</td></tr>\n");
    for (name, here) in busiest {
        let (issued, held) = (grouped(here.figures.issued), grouped(here.figures.held));
        let _ = writeln!(
            html,
            "<tr><th>{}</th><td>{issued}</td><td>{held}</td><td>{:.1}</td><td>{}</td></tr>",
            escaped(&printable(name.as_str())),
            here.rate,
            here.state.as_str()
        );
    }
    html.push_str("    </table>\n  </section>\n");
    html
}

/// What the script polls.
pub(super) fn figures(server: &Server) -> Response {
    let mut headers = headers("default-src 'none'");
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (headers, status(server).to_string()).into_response()
}

fn status(server: &Server) -> Value {
    let stats = server.engine.stats();
    let (layout, held) = (server.genesis.layout, &stats.held);
    let ready = server.readiness().ready;
    let a_second = u64::from(layout.sequences()) * (1_000_000 / u64::from(layout.tick_us())).max(1);
    let a_second = a_second * stats.windows.held.len().max(1) as u64;
    let (moment, age) = (a_second / MOMENTS, a_second.saturating_mul(server.engine.max_age().as_secs()));
    let (mut counts, mut bounds) = (Vec::new(), Vec::new());
    for (_, times) in server.traffic.times().filter(|(op, _)| *op != Op::Ping) {
        counts.resize(times.buckets().count(), 0);
        bounds = times.buckets().map(|(bound, _)| bound.map(|bound| bound.as_micros() as u64)).collect();
        for (sum, (_, count)) in counts.iter_mut().zip(times.buckets()) {
            *sum += count;
        }
    }
    json!({
        "version": VERSION,
        "now_ms": now_ns() / 1_000_000,
        "uptime_ms": server.uptime().as_millis() as u64,
        "ready": ready,
        "rows": rows(server, &stats),
        "layout": server.info()["layout"],
        "issued": stats.issued,
        "tiers": {
            "ring": held.ring, "queue": held.queue, "threads": held.threads, "memory": held.reserve,
            "spill": stats.spill.ids,
        },
        // A full bar: what of a second each of the first holds, and for the others what is not too old yet.
        "full": { "ring": moment, "queue": moment, "threads": moment, "memory": age, "spill": age },
        "oldest_s": stats.oldest.as_secs(),
        "windows": stats.windows.held,
        "window_max_ms": server.engine.window_max().as_millis() as u64,
        "bounds_us": bounds,
        "times": counts,
    })
}

/// What a person wants to know first.
fn rows(server: &Server, stats: &Stats) -> Vec<(&'static str, String)> {
    let now = server.readiness();
    let refused = refused(&now);
    let ready = match (now.ready, refused.is_empty()) {
        (true, true) => "yes".to_owned(),
        (true, false) => format!("yes, but for {}", refused.join(" and ")),
        (false, _) => "no".to_owned(),
    };
    let clock = &stats.clock;
    let verdict = match clock.lead_us {
        0 => clock.verdict.name().to_owned(),
        lead => format!("{}, {} us ahead of the wall", clock.verdict.name(), grouped(lead)),
    };
    let errors: u64 = server.traffic.errors().map(|(_, count)| count).sum();
    let mut rows = vec![
        ("listening on", server.places.listen.to_string()),
        ("ready", ready),
        ("cluster", server.genesis.cluster.to_string()),
        ("layout", server.genesis.layout.to_string()),
        ("registry", server.engine.registry().to_owned()),
        ("workers held", workers_held(&stats.windows.held)),
        ("clock", verdict),
        ("ids issued", grouped(stats.issued)),
        ("ids in the spill", grouped(stats.spill.ids)),
        ("connections open", connections(server)),
        ("calls that wait", grouped(stats.waiting)),
        ("error replies", grouped(errors)),
        ("up for", format!("{} s", grouped(server.uptime().as_secs()))),
    ];
    rows.extend(now.notes.into_iter().map(|note| ("note", note)));
    rows
}

/// The names of the orders that are not served.
pub(super) fn refused(status: &Status) -> Vec<&'static str> {
    Order::ALL.into_iter().filter(|order| !status.serves(*order)).map(Order::name).collect()
}

/// How many there are, by front where there are several.
fn connections(server: &Server) -> String {
    let [(_, accepted), ..] = server.traffic.connections();
    let mut told = format!("{} (", grouped(server.traffic.open()));
    if server.places.resp.is_some() || server.places.http.is_some() {
        let by_front = server.traffic.open_by_front();
        let each: Vec<_> =
            by_front.map(|(front, open)| format!("{} {}", front.name(), grouped(open))).collect();
        let _ = write!(told, "{}; ", each.join(", "));
    }
    let _ = write!(told, "{} so far)", grouped(accepted));
    told
}

/// Each worker, and how long its window lasts.
fn workers_held(held: &[(u32, u64)]) -> String {
    let each = held.iter().map(|(worker, left)| format!("{worker} (window: {} ms left)", grouped(*left)));
    let all = each.collect::<Vec<_>>().join(", ");
    if all.is_empty() { "none".to_owned() } else { all }
}

/// A number that a page elsewhere cannot guess.
fn nonce() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Nothing from elsewhere, and no script or style but those of the page.
fn policy(nonce: &str) -> String {
    let own = if nonce.is_empty() { "'none'".to_owned() } else { format!("'nonce-{nonce}'") };
    format!(
        "default-src 'none'; script-src {own}; style-src {own}; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    )
}

fn headers(policy: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(policy) = HeaderValue::from_str(policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    let others: [(HeaderName, &str); 3] = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    headers.extend(others.map(|(name, value)| (name, HeaderValue::from_static(value))));
    headers
}

/// Text that HTML shows as it is, between tags and in a quoted attribute.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Else it could be one of the template's places.
            '{' => safe.push_str("&#123;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_are_shown_as_they_are() {
        let text = "<script>alert('&\"')</script>";
        assert_eq!(escaped(text), "&lt;script&gt;alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;");
    }

    #[test]
    fn the_page_has_nothing_from_elsewhere_and_all_of_it_has_the_nonce() {
        assert!(
            !TEMPLATE.contains("http://") && !TEMPLATE.contains("https://") && !TEMPLATE.contains("@import")
        );
        for sink in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", " style=", " on"]
        {
            let found =
                TEMPLATE.match_indices(sink).any(|(at, _)| sink != " on" || is_handler(&TEMPLATE[at..]));
            assert!(!found, "{sink} is in the page");
        }
        let opened = TEMPLATE.matches("<script").count() + TEMPLATE.matches("<style").count();
        assert_eq!(TEMPLATE.matches("nonce=\"{{NONCE}}\"").count(), opened);
    }

    /// ` onclick="..."` and its like.
    fn is_handler(text: &str) -> bool {
        let word = text[1..].split(|char: char| !char.is_ascii_alphabetic()).next().unwrap_or_default();
        text[1 + word.len()..].starts_with("=\"")
    }

    #[test]
    fn a_policy_names_a_number_that_is_never_the_same_or_allows_no_script() {
        let (one, other) = (nonce().unwrap(), nonce().unwrap());
        assert!(one != other && one.len() == 32);
        assert!(policy(&one).contains(&format!("script-src 'nonce-{one}'")));
        assert!(policy("").contains("script-src 'none'"));
    }
}
