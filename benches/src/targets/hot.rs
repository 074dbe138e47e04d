//! `next_id` and handles, beside what bounds them and beside the peers, in bursts.

use anyhow::Result;

use super::field::Field;
use crate::peers;
use crate::rows::{Row, SHORT_ROUNDS, at_least, at_most, figure, median};
use crate::subject::{Kind, Supply};

const NEXT: &str = "xuid/next_id";
const HANDLE: &str = "xuid/handle";
const COUNTER: &str = "limit/thread-local";
const ADD: &str = "limit/fetch_add";
/// A handle whose state is in memory.
const KEPT: &str = "xuid/handle-in-box";
const SEED: &str = "seed/ring";
const ATOMIC: &str = "ferroid/atomic";
/// A counter that the compiler keeps in a register.
const REGISTER: &str = "rs-snowflake/per-thread";
/// Ferroid's one generator a thread, in each way there is.
const MONO: [&str; 3] = ["ferroid/per-thread", "ferroid/per-thread-own-clock", "ferroid/ulid-thread-local"];

/// The prototype's ring must reach so many M ids/s on one thread, or it was crippled and the comparison is void.
const SEED_LEAST: f64 = 10.0;

/// Everybody else is held against this.
const FACTOR: f64 = 8.0;

/// Other peers than those with a row of their own.
fn others() -> Vec<&'static str> {
    let bursts = peers::all()
        .into_iter()
        .filter(|subject| subject.kind == Kind::Peer && subject.supply == Supply::Burst);
    bursts
        .map(|subject| subject.name)
        .filter(|name| ![SEED, ATOMIC].contains(name) && !MONO.contains(name))
        .collect()
}

/// The rows of `next_id` and handles.
pub(super) fn rows() -> Result<Vec<Row>> {
    let others = others();
    let mut names = vec![NEXT, HANDLE, KEPT, COUNTER, ADD, SEED, ATOMIC];
    names.extend(MONO);
    names.extend(&others);
    let mut field = Field::new(&names)?;
    for _ in 0..SHORT_ROUNDS {
        field.round(1);
        field.round(2);
    }
    let beside = |name, threads| -> Result<(f64, String)> {
        let (ours, theirs) = (field.figures(NEXT, threads)?, field.figures(name, threads)?);
        let text = format!("{}, {name} {}", figure(ours, "M/s"), figure(theirs, "M/s"));
        Ok((median(ours) / median(theirs), text))
    };
    let mut rows = Vec::new();
    let (ratio, text) = beside(COUNTER, 1)?;
    rows.push(at_most("next_id, 1 thread", text, 1.0 / ratio, 4.0, "x a thread-local increment's time"));
    let (ratio, text) = beside(ADD, 1)?;
    rows.push(at_least("next_id, 1 thread", text, ratio, 6.0, "x a bare fetch_add"));

    let (one, two) = (field.figures(NEXT, 1)?, field.figures(NEXT, 2)?);
    let text = format!("{}, one thread {}", figure(two, "M/s"), figure(one, "M/s"));
    rows.push(at_least("next_id, 2 threads", text, median(two) / median(one), 1.7, "x one thread"));
    let bounds = [(ADD, 20.0), (SEED, 150.0), (ATOMIC, 60.0)].into_iter().chain(MONO.map(|name| (name, 1.1)));
    for (name, bound) in bounds {
        let (ratio, mut text) = beside(name, 2)?;
        let mut valid = true;
        if name == SEED {
            let alone = field.figures(SEED, 1)?;
            valid = median(alone) >= SEED_LEAST;
            text = format!("{text} (1 thread {})", figure(alone, "M/s"));
        }
        let mut row = at_least("next_id, 2 threads", text, ratio, bound, &format!("x {name}"));
        row.met &= valid;
        rows.push(row);
    }
    for name in others {
        let (ratio, mut text) = beside(name, 2)?;
        if name == REGISTER {
            let (most, theirs) = (field.figures(COUNTER, 2)?, field.figures(name, 2)?);
            let most_times = median(most) / median(theirs);
            text = format!("{text}; {COUNTER} {} would be {most_times:.2} x", figure(most, "M/s"));
        }
        rows.push(at_least("next_id, 2 threads", text, ratio, FACTOR, &format!("x {name}")));
    }
    for threads in [1, 2] {
        let (handle, next) = (field.figures(HANDLE, threads)?, field.figures(NEXT, threads)?);
        let kept = field.figures(KEPT, threads)?;
        let text = format!(
            "{}, next_id {}; behind a pointer {}, {:.2} x",
            figure(handle, "M/s"),
            figure(next, "M/s"),
            figure(kept, "M/s"),
            median(kept) / median(next)
        );
        let path = format!("handle, {threads} thread{}", if threads == 1 { "" } else { "s" });
        rows.push(at_least(
            &path,
            text,
            median(handle) / median(next),
            1.5,
            "x next_id of the shared engine",
        ));
    }
    Ok(rows)
}
