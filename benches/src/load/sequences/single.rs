//! `SEQ_NEXT` beside NEXT of the same server, and beside Redis's INCR.

use std::time::Duration;

use anyhow::Result;
use xuid_load::Shape;

use super::asked::{create, seq_next};
use crate::load::compare::load;
use crate::load::dialect::InOrder;
use crate::load::driver::{Load, ask, drive, witness};
use crate::load::process::Server;
use crate::rows::{Row, SHORT_ROUNDS, at_least, figure, ratio_in_turn};

/// Connections, requests in flight on each, and what `SEQ_NEXT` must be of INCR there.
const SETTINGS: [(usize, u32, f64); 3] = [(1, 100, 1.0), (50, 16, 1.3), (50, 100, 2.5)];

/// A round: short, as there are many.
const WARM_UP: Duration = Duration::from_millis(100);
const SPAN: Duration = Duration::from_millis(250);

/// What `SEQ_NEXT` must be of NEXT.
const OF_NEXT: f64 = 0.9;

pub(super) fn rows() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (connections, in_flight, of_redis) in SETTINGS {
        let xuid = Server::on_land(&["--sequences", "registry"])?;
        create(xuid.address, "{}")?;
        witness(seq_next, xuid.address)?;
        let redis = Server::redis(false)?;
        let next = ask(Shape::Next, 1);
        let load = Load { warm_up: WARM_UP, span: SPAN, ..load(connections, in_flight) };
        let (mut ours, mut ids, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..SHORT_ROUNDS {
            ours.push(drive(seq_next, xuid.address, load)?.rate() / 1e3);
            ids.push(drive(next, xuid.address, load)?.rate() / 1e3);
            if let Some(redis) = &redis {
                theirs.push(drive(|_| Ok(InOrder::incr()), redis.address, load)?.rate() / 1e3);
            }
        }
        let path = format!("TCP, SEQ_NEXT {connections}x{in_flight}");
        let ours_text = figure(&ours, "k/s");
        let text = format!("{ours_text} against {} of NEXT", figure(&ids, "k/s"));
        rows.push(at_least(&path, text, ratio_in_turn(&ours, &ids), OF_NEXT, "x NEXT"));
        if redis.is_some() {
            let text = format!("{ours_text} against {} of Redis INCR", figure(&theirs, "k/s"));
            let ratio = ratio_in_turn(&ours, &theirs);
            rows.push(at_least(&path, text, ratio, of_redis, "x Redis INCR"));
        }
    }
    Ok(rows)
}
