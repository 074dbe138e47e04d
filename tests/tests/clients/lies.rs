//! A server that answers with lies, or not at all.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use xuid_tests::{Serve, clock};

use crate::conform::{Program, connecting, next};
use crate::languages::Language;
use crate::liar::{Liar, Lie};

const LIMIT: Duration = Duration::from_secs(30);

fn bulk(deed: &str) -> Value {
    json!({ "do": deed, "count": 10, "order": "any", "wait_ms": 50 })
}

pub(crate) fn a_lie_ends_the_connection_and_yields_no_id(language: Language) -> Result<()> {
    let mut program = Program::start(language)?;
    let lies = [
        Lie::Longer,
        Lie::OtherOp,
        Lie::OtherRequest,
        Lie::NoId,
        Lie::NotAReply,
        Lie::Count(1),
        Lie::Count(-1),
    ];
    for lie in lies {
        let liar = Liar::start(lie)?;
        // NEXT has no count.
        let single = if matches!(lie, Lie::Count(_)) { None } else { Some(next(1, 1)) };
        for asked in single.into_iter().chain([bulk("array"), bulk("runs")]) {
            program.connect(&[liar.addr], &json!({ "timeout_ms": 5_000 }))?;
            let failure = program.refused(&asked)?;
            failure
                .is_any(&["protocol"])
                .map_err(|error| error.context(format!("{lie:?}, asked {asked}")))?;
        }
    }
    program.finish()
}

pub(crate) fn a_port_that_speaks_http_is_told_by_its_words(language: Language) -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let mut program = Program::start(language)?;
    let failure = program.refused(&connecting(&[server.admin], &json!({})))?;
    failure.is_any(&["protocol"])?;
    for word in ["HTTP/1.1 400", &server.admin.to_string()] {
        ensure!(failure.whole.contains(word), "{word} is not named: {}", failure.whole);
    }
    program.finish()?;
    server.stop().map(drop)
}

pub(crate) fn a_server_that_hangs_up_before_hello_is_told_of(language: Language) -> Result<()> {
    let liar = Liar::start(Lie::HangsUp)?;
    let mut program = Program::start(language)?;
    let failure = program.refused(&connecting(&[liar.addr], &json!({})))?;
    failure.is_any(&["lost"])?;
    for word in ["HELLO", &liar.addr.to_string()] {
        ensure!(failure.whole.contains(word), "{word} is not named: {}", failure.whole);
    }
    program.finish()
}

pub(crate) fn a_silent_server_is_given_up_and_a_call_to_it_can_be_cancelled(
    language: Language,
) -> Result<()> {
    let liar = Liar::start(Lie::Silence)?;
    let mut program = Program::connected(language, &[liar.addr], &json!({ "timeout_ms": 20_000 }))?;
    let waits = program.begin(next(1, 1))?;
    clock::wait_until("the request is there", LIMIT, || Ok(liar.asked() > 0))?;
    program.ask(&json!({ "do": "cancel", "of": waits.0 }))?;
    program.failure(waits)?.is_any(&["cancelled"])?;
    program.connect(&[liar.addr], &json!({ "timeout_ms": 300 }))?;
    let begin = clock::now();
    program.refused(&next(1, 1))?.is_any(&["timeout"])?;
    ensure!(begin.elapsed() >= Duration::from_millis(290), "given up after {:?}", begin.elapsed());
    drop(program);
    Ok(())
}
