//! HTTP for probes, Prometheus and people.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::metrics::Page;
use crate::node::{Node, VERSION};
use crate::wall::grouped;

/// The media type of the OpenMetrics text format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
struct Shared {
    node: Arc<Node>,
    page: Arc<Page>,
}

/// Serves until the process ends, so that a probe can see a server that drains.
pub(crate) async fn run(listener: TcpListener, node: Arc<Node>) -> Result<()> {
    let page = Arc::new(Page::new(Arc::clone(&node)));
    let router = Router::new()
        .route("/", get(people))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Shared { node, page });
    axum::serve(listener, router).await.context("the admin port failed")
}

async fn livez() -> &'static str {
    "alive\n"
}

/// 200 and what is not as it should be, or 503 and why.
async fn readyz(State(Shared { node, .. }): State<Shared>) -> impl IntoResponse {
    let (ready, notes) = node.readiness();
    let (status, word) =
        if ready { (StatusCode::OK, "ready") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready") };
    let mut text = format!("{word}\n");
    for note in notes {
        let _ = writeln!(text, "{note}");
    }
    (status, text)
}

async fn metrics(State(Shared { page, .. }): State<Shared>) -> impl IntoResponse {
    let rendered = page.render().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR);
    rendered.map(|text| ([(header::CONTENT_TYPE, OPEN_METRICS)], text))
}

/// What a person wants to know first, without a script or a style from anywhere else.
async fn people(State(Shared { node, .. }): State<Shared>) -> Html<String> {
    let (ready, notes) = node.readiness();
    let stats = node.engine.stats();
    let mut rows = vec![
        ("listening on", node.places.listen.to_string()),
        ("ready", if ready { "yes".to_owned() } else { "no".to_owned() }),
        ("cluster", node.genesis.cluster.to_string()),
        ("layout", node.genesis.layout.to_string()),
        ("registry", node.engine.registry().to_owned()),
        ("workers held", workers_held(&stats.windows.held)),
        ("clock", stats.clock.verdict.name().to_owned()),
        ("ids issued", grouped(stats.issued)),
        ("ids in the spill", grouped(stats.spill.ids)),
        ("connections open", grouped(node.traffic.open())),
        ("up for", format!("{} s", grouped(node.uptime().as_secs()))),
    ];
    rows.extend(notes.into_iter().map(|note| ("note", note)));
    let mut table = String::new();
    for (name, value) in rows {
        let _ = writeln!(table, "<tr><th align=left>{name}</th><td>{}</td></tr>", escaped(&value));
    }
    Html(format!(
        "<!doctype html><meta charset=utf-8><title>xuid</title>\n<h1>xuid {VERSION}</h1>\n<table>\n{table}</table>\n\
         <p><a href=/readyz>/readyz</a> <a href=/livez>/livez</a> <a href=/metrics>/metrics</a></p>\n"
    ))
}

/// Each worker, and how long its window lasts.
fn workers_held(held: &[(u32, u64)]) -> String {
    let each = held.iter().map(|(worker, left)| format!("{worker} (window: {} ms left)", grouped(*left)));
    let all = each.collect::<Vec<_>>().join(", ");
    if all.is_empty() { "none".to_owned() } else { all }
}

/// Text that HTML shows as it is.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
