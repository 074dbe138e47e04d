//! The figures: every id that a server made is in one of them, and what it says it issued is what came.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xuid_tests::http::Metrics;
use xuid_tests::{
    Client, ClientError, Frame, Ledger, Order, Received, Rng, Run, Serve, Server, clock, encode, hello_body,
    op, process,
};

/// Ids that a ring, or a queue, holds at most: 4,096 slots of 4,096 ids.
const TIER: u64 = 4_096 * 4_096;

/// Ids of a second of one worker.
const SECOND: u64 = 4_096_000;

/// The sum of the samples of one name.
fn sum(page: &Metrics, name: &str) -> i64 {
    sum_of(page, &[name])
}

/// The sum of the samples with all of these words. Sums of ids are exact up to 2^53.
fn sum_of(page: &Metrics, words: &[&str]) -> i64 {
    page.sum(words) as i64
}

/// What a client got.
#[derive(Default)]
struct Got {
    received: Received,
    /// Before the client was done with its connection.
    in_time: u64,
    /// What it read after that: it was on its way.
    on_way: u64,
    refusals: u64,
}

impl Got {
    /// Takes a reply; says how many ids were in it.
    fn take(&mut self, frame: &Frame) -> Result<u64> {
        if frame.status != 0 {
            self.refusals += 1;
            return Ok(0);
        }
        let word = |at: usize| frame.body[at..at + 8].try_into().map(u64::from_le_bytes);
        let half = |at: usize| frame.body[at..at + 4].try_into().map(u32::from_le_bytes);
        let before = self.received.ids();
        match frame.op & 0x7f {
            op::NEXT => self.received.push(word(0)?),
            op::ARRAY => {
                let ids = (8..frame.body.len()).step_by(8);
                ids.map(word).try_for_each(|id| id.map(|id| self.received.push(id)))?;
            }
            op::RUNS => {
                for at in (8..frame.body.len()).step_by(16) {
                    self.received.push_run(Run {
                        first: word(at)?,
                        count: half(at + 8)?,
                        stride: half(at + 12)?,
                    });
                }
            }
            _ => {}
        }
        Ok(self.received.ids() - before)
    }

    /// Reads so many replies, or to the end of the connection; false if that came first.
    fn read(&mut self, client: &mut Client, replies: usize) -> Result<bool> {
        for _ in 0..replies {
            match client.recv() {
                Ok(frame) => self.in_time += self.take(&frame)?,
                Err(ClientError::Ended(_)) => return Ok(false),
                Err(other) => return Err(other.into()),
            }
        }
        Ok(true)
    }

    /// The client is done, and says so. What comes still was on its way.
    fn leave(&mut self, client: &mut Client) -> Result<()> {
        // The server may have closed it already.
        let _ = client.shut_write();
        loop {
            match client.recv() {
                Ok(frame) => self.on_way += self.take(&frame)?,
                Err(ClientError::Ended(_)) => return Ok(()),
                Err(other) => return Err(other.into()),
            }
        }
    }

    fn add(&mut self, other: &Self, ledger: &mut Ledger) {
        self.in_time += other.in_time;
        self.on_way += other.on_way;
        self.refusals += other.refusals;
        ledger.add_received(&other.received);
    }
}

/// Queues one request of any kind: for one id or many, of any order, some that wait in vain and some that are wrong.
/// Returns how many ids it asks for.
fn ask(client: &mut Client, rng: &mut Rng) -> u64 {
    let order = Order::ALL[rng.below(3) as usize] as u8;
    let wait = [0, 1, 3, 20, 200][rng.below(5) as usize];
    let (op, count) = match rng.below(20) {
        0..9 => {
            client.push(op::NEXT, &[order]);
            return 1;
        }
        9..14 => (op::ARRAY, 1 + rng.below(2_000) as u32),
        14..18 => (op::RUNS, 1 + rng.below(20_000) as u32),
        18 => (op::RUNS, 100_000),
        _ => (op::ARRAY, 0),
    };
    let mut body = [0; 12];
    body[..4].copy_from_slice(&count.to_le_bytes());
    body[4..8].copy_from_slice(&u32::to_le_bytes(wait));
    body[8] = order;
    client.push(op, &body);
    u64::from(count)
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// All replies are read, then BYE.
    Whole,
    /// It says in the middle that nothing more comes.
    HalfClosed,
    /// A frame that closes, behind others that wait.
    Breach,
    /// Closed with replies unread, which resets it.
    Reset,
    /// It goes on until the server says goodbye.
    Never,
}

/// One connection, from its beginning to its end. Returns how many ids it asked for.
fn converse(server: &Server, rng: &mut Rng, end: End, got: &mut Got) -> Result<u64> {
    let mut client = match server.client() {
        Ok(client) => client,
        // The server stops.
        Err(_) if end == End::Never => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut asked = 0;
    for _ in 0..if end == End::Never { usize::MAX } else { 1 + rng.below(4) as usize } {
        let requests = 1 + rng.below(40) as usize;
        asked += (0..requests).map(|_| ask(&mut client, rng)).sum::<u64>();
        if client.flush().is_err() || !got.read(&mut client, requests)? || client.is_going_away() {
            ensure!(end == End::Never, "the server ended a connection that is {end:?}\n{server}");
            break;
        }
    }
    let last = 1 + rng.below(40) as usize;
    match end {
        End::Never => {}
        End::Whole => {
            client.push(op::BYE, &[]);
            client.flush()?;
        }
        End::HalfClosed | End::Reset => {
            asked += (0..last).map(|_| ask(&mut client, rng)).sum::<u64>();
            client.flush()?;
            let read = rng.below(last as u64 / 2 + 1) as usize;
            ensure!(got.read(&mut client, read)?, "it answers what was asked\n{server}");
        }
        End::Breach => {
            asked += (0..last).map(|_| ask(&mut client, rng)).sum::<u64>();
            let mut hello = Vec::new();
            encode(&mut hello, op::HELLO, 0, u64::MAX, &hello_body(1, 1, [0; 16]));
            client.push_raw(&hello);
            client.flush()?;
        }
    }
    if end != End::Reset {
        got.leave(&mut client)?;
    }
    Ok(asked)
}

/// Reads the figures while others make them, and holds each page against what must be so.
struct Watch<'a> {
    server: &'a Server,
    pages: AtomicU64,
    most_moving: AtomicU64,
}

impl Watch<'_> {
    fn look(&self, before: &mut Option<Metrics>) -> Result<Metrics> {
        let page = self.server.metrics()?;
        let of = |name: &str| sum(&page, name);
        let came = of("xuid_minted_ids_total") + of("xuid_spill_replayed_ids_total");
        let gone = of("xuid_issued_ids_total") + of("xuid_spilled_ids_total") + of("xuid_wasted_ids_total");
        ensure!(came - gone == of("xuid_held_ids"), "came {came}, gone {gone}:\n{}", page.show("_ids"));
        ensure!(came >= gone, "more went than came:\n{}", page.show("_ids"));
        ensure!(of("xuid_served_ids_total") == of("xuid_issued_ids_total"), "{}", page.show("_ids"));
        for (tier, most) in [("ring", TIER), ("queue", TIER), ("threads", SECOND), ("reserve", 64 * SECOND)] {
            let held = page.sum(&["xuid_held_ids", tier]);
            ensure!(held >= 0.0 && held <= most as f64, "{tier} holds {held}");
        }
        let moving = sum_of(&page, &["xuid_held_ids", "moving"]).unsigned_abs();
        ensure!(moving <= 4 * SECOND, "{moving} moved while they were read:\n{}", page.show("_ids"));
        for (name, value) in page.counters() {
            let was = before.as_ref().and_then(|before| before.value(name)).unwrap_or(0.0);
            ensure!(value >= was, "{name} fell from {was} to {value}");
        }
        self.pages.fetch_add(1, Relaxed);
        self.most_moving.fetch_max(moving, Relaxed);
        *before = Some(page.clone());
        Ok(page)
    }

    /// Until nobody moves anything: then each figure is what it says, counted for itself.
    fn at_rest(&self) -> Result<Metrics> {
        let mut last = None;
        clock::wait_until("nothing moves", Duration::from_secs(20), || {
            let page = self.look(&mut last)?;
            Ok(page.sum(&["xuid_held_ids", "moving"]) == 0.0)
        })?;
        last.context("a page")
    }
}

/// The number behind a key of the last line of a log.
fn of_last_line(log: &str, key: &str) -> Result<i64> {
    let line = log.lines().rfind(|line| line.contains("stopped")).context("no last line")?;
    let word = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    Ok(word.with_context(|| format!("no {key} in {line}"))?.parse()?)
}

/// Several connections at a time, each with one of these ends, again and again.
fn load(server: &Server, seed: u64, ends: &[End], rounds: u64, ledger: &mut Ledger) -> Result<(Got, u64)> {
    let mut all = (Got::default(), 0);
    let work = |n: u64| {
        let mut rng = Rng::new(seed + n);
        let (mut got, mut asked) = (Got::default(), 0);
        for round in 0..rounds {
            asked += converse(server, &mut rng, ends[(n + round) as usize % ends.len()], &mut got)?;
        }
        anyhow::Ok((got, asked))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || work(n))).collect();
        for thread in threads {
            let (got, asked) = thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
            all.0.add(&got, ledger);
            all.1 += asked;
        }
        Ok(all)
    })
}

/// What is asked of it, by all that clients do, is in its figures to the id.
fn every_id_is_accounted_for(threads: &str) -> Result<()> {
    let seed = Rng::from_env("figures").below(1 << 40);
    let serve = Serve::fresh()?;
    let server = serve.arg("--threads").arg(threads).env("XUID_WAIT", "5ms").start()?;
    let watch = Watch { server: &server, pages: AtomicU64::new(0), most_moving: AtomicU64::new(0) };
    let (over, mut ledger) = (AtomicBool::new(false), Ledger::default());
    let (mixed, resets, unread) = thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut before = None;
            while !over.load(Relaxed) {
                watch.look(&mut before)?;
                // The others shall have a processor, too.
                thread::sleep(Duration::from_millis(2));
            }
            anyhow::Ok(())
        });
        let loaded = (|| {
            let ends = [End::Whole, End::HalfClosed, End::Breach];
            let (mixed, _) = load(&server, seed, &ends, 60, &mut ledger)?;
            let before = watch.at_rest()?;
            let counted = sum(&before, "xuid_replied_ids_total");
            ensure!(
                counted.cast_unsigned() == mixed.in_time + mixed.on_way,
                "{counted} in replies: {}",
                mixed.said()
            );
            // One went into the banner.
            ensure!(sum(&before, "xuid_issued_ids_total") == counted + 1, "{}", before.show("_ids"));
            let (resets, asked) = load(&server, seed + 100, &[End::Reset], 30, &mut ledger)?;
            clock::wait_until("they are gone", Duration::from_secs(20), || {
                Ok(server.metrics()?.sum(&["xuid_connections_open"]) == 0.0)
            })?;
            let after = sum(&watch.at_rest()?, "xuid_replied_ids_total");
            let unread = u64::try_from(after - counted - resets.in_time.cast_signed())?;
            ensure!(resets.in_time + unread <= asked, "{unread} of {asked} on their way: {}", resets.said());
            anyhow::Ok((mixed, resets, unread))
        })();
        over.store(true, Relaxed);
        let watched = watching.join().map_err(|_| anyhow::anyhow!("the watch panicked"))?;
        let loaded = loaded?;
        watched?;
        anyhow::Ok(loaded)
    })?;
    let (pages, moving) = (watch.pages.into_inner(), watch.most_moving.into_inner());
    // The stop comes while they ask and wait.
    let (last, log) = stop_under_load(server, seed + 200, &mut ledger)?;
    ledger.check()?;
    let of = |key: &str| of_last_line(&log, key);
    let got = [&mixed, &resets, &last].map(|got| got.in_time + got.on_way).iter().sum::<u64>();
    println!(
        "figures: {threads} threads: mixed {}; reset {}, and {unread} unread; at the stop {}; {pages} pages, at most {moving} \
         moving",
        mixed.said(),
        resets.said(),
        last.said()
    );
    ensure!(
        mixed.refusals > 0 && mixed.on_way > 0 && last.on_way + last.refusals > 0 && unread > 0 && pages > 20
    );
    ensure!(of("issued")? == (got + unread + 1).cast_signed(), "{got} and {unread} and the banner's\n{log}");
    let (came, gone) = (of("minted")? + of("replayed")?, of("issued")? + of("spilled")? + of("wasted")?);
    ensure!(came == gone && of("held")? == 0, "came {came}, gone {gone}\n{log}");
    Ok(())
}

impl Got {
    fn said(&self) -> String {
        format!("{} received, {} on their way, {} refusals", self.in_time, self.on_way, self.refusals)
    }
}

/// SIGTERM while connections ask and wait: what they got until they were told to leave, and the log.
fn stop_under_load(mut server: Server, seed: u64, ledger: &mut Ledger) -> Result<(Got, String)> {
    let mut got = Got::default();
    thread::scope(|scope| {
        let work = |n: u64| {
            let (server, mut got) = (&server, Got::default());
            move || converse(server, &mut Rng::new(seed + n), End::Never, &mut got).map(|_| got)
        };
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(work(n))).collect();
        let replied = || Ok::<_, anyhow::Error>(sum(&server.metrics()?, "xuid_replied_ids_total"));
        let before = replied()?;
        clock::wait_until("the load is on", Duration::from_secs(20), || Ok(replied()? > before + 100_000))?;
        process::terminate(server.child())?;
        for thread in threads {
            let one = thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
            got.add(&one, ledger);
        }
        anyhow::Ok(())
    })?;
    clock::wait_until("it ends", Duration::from_secs(20), || Ok(server.ended()?.is_some()))?;
    ensure!(server.ended()?.is_some_and(|status| status.success()), "no clean stop\n{server}");
    Ok((got, server.log()))
}

#[test]
fn every_id_of_a_server_with_two_threads_is_accounted_for_at_every_scrape_and_after_its_stop() -> Result<()> {
    every_id_is_accounted_for("2")
}

#[test]
fn every_id_of_a_server_with_one_thread_is_accounted_for_at_every_scrape_and_after_its_stop() -> Result<()> {
    every_id_is_accounted_for("1")
}

#[test]
fn what_a_client_has_was_counted_before_it_could_ask() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let mut client = server.client()?;
    for round in 1..=200 {
        let mut ids = 0;
        if round % 3 == 0 {
            client.next_pipelined(7, Order::Any, |_| ids += 1)?;
        } else {
            client.next(Order::Any)?;
        }
        let (page, expected) = (server.metrics()?, 1 + round + round / 3 * 6);
        let issued = sum(&page, "xuid_issued_ids_total");
        ensure!(issued == expected, "{issued} issued, {expected} came, in round {round}: {ids}");
        ensure!(sum(&page, "xuid_served_ids_total") == issued, "{}", page.show("_ids"));
        ensure!(sum(&page, "xuid_replied_ids_total") == issued - 1, "{}", page.show("_ids"));
        let told: serde_json::Value = serde_json::from_str(&client.text(op::STATS)?)?;
        ensure!(told["xuid_issued_ids_total"].as_i64() == Some(issued), "{told}");
    }
    let log = server.stop()?;
    ensure!(of_last_line(&log, "issued")? == 1 + 200 + 200 / 3 * 6, "{log}");
    ensure!(of_last_line(&log, "held")? == 0, "{log}");
    Ok(())
}

#[test]
fn a_client_that_does_not_take_its_ids_keeps_none_from_others_and_nothing_is_held_after_the_stop()
-> Result<()> {
    let mut server = Serve::fresh()?.arg("--threads").arg("1").start()?;
    let mut client = server.client()?;
    // 4,096 fresh ids within a minute, 32 KiB: so many times more than the buffers of two sockets hold.
    let body = [&4_096_u32.to_le_bytes()[..], &60_000_u32.to_le_bytes(), &[1, 0, 0, 0]].concat();
    for _ in 0..900 {
        client.push(op::ARRAY, &body);
    }
    client.flush()?;
    clock::wait_until("its calls wait", Duration::from_secs(20), || {
        Ok(sum_of(&server.metrics()?, &["xuid_waiting_calls"]) > 500)
    })?;
    // A second's ids are enough for all of them.
    clock::idle(Duration::from_secs(2));
    let metrics = server.metrics()?;
    let (waiting, held) =
        (sum_of(&metrics, &["xuid_waiting_calls"]), sum_of(&metrics, &["xuid_held_ids", "threads"]));
    ensure!(
        waiting > 500 && held < 500_000,
        "{held} ids are gathered for {waiting} calls of a client that reads nothing"
    );
    process::terminate(server.child())?;
    clock::wait_until("it ends", Duration::from_secs(20), || Ok(server.ended()?.is_some()))?;
    ensure!(server.ended()?.is_some_and(|status| status.success()), "no clean stop\n{server}");
    let log = server.log();
    ensure!(of_last_line(&log, "held")? == 0, "{log}");
    drop(client);
    Ok(())
}
