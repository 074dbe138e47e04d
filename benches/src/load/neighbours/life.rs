//! What a server costs that is asked nothing, and how soon after its start it answers.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;

use super::watch::first_id;
use crate::load::process::Server;
use crate::measure::now;
use crate::rows::{Row, at_most, figure, median};

/// Starts in new folders, and in those of a server that was killed.
const STARTS: usize = 20;

/// The first seconds are those of a start: windows grow, threads settle.
const SETTLED: Duration = Duration::from_secs(5);

/// Spans in which it is asked nothing. The kernel counts processor time in hundredths of a second.
const SPANS: usize = 5;
const SPAN: Duration = Duration::from_secs(10);

pub(super) fn rows() -> Result<Vec<Row>> {
    let (mut first_ids, mut first_again) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let begun = now();
        let server = Server::by_default(&[], &[])?;
        first_id(server.address, Ipv4Addr::LOCALHOST)?;
        first_ids.push(begun.elapsed().as_secs_f64() * 1e3);
        let folder = server.kill()?;
        let begun = now();
        let server = Server::in_folder(folder, &[], &[])?;
        first_id(server.address, Ipv4Addr::LOCALHOST)?;
        first_again.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let server = Server::by_default(&[], &[])?;
    first_id(server.address, Ipv4Addr::LOCALHOST)?;
    std::thread::sleep(SETTLED);
    let (mut shares, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..SPANS {
        let (begun, before) = (now(), server.cpu_time()?);
        std::thread::sleep(SPAN);
        let used = server.cpu_time()?.saturating_sub(before);
        shares.push(used.as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0);
        memory.push(server.anonymous_memory()? as f64 / f64::from(1 << 20));
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let largest = memory.iter().copied().fold(0.0, f64::max);
    Ok(vec![
        at_most("exec to first id in a new folder", figure(&first_ids, "ms"), median(&first_ids), 50.0, "ms"),
        at_most(
            "the same where one was killed",
            figure(&first_again, "ms"),
            median(&first_again),
            50.0,
            "ms",
        ),
        at_most("CPU of an idle server, mean", figure(&shares, "%"), mean, 0.3, "% of a core"),
        at_most("anonymous memory of an idle server", figure(&memory, "MiB"), largest, 15.2, "MiB"),
    ])
}
