//! The load against a server made of a thread, which can be told to stall.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use xuid_protocol::{
    ClusterId, Header, HelloReply, Limits, Op, PREFACE, ParsedRequest, Phase, Refusal, Request, Status,
    goaway, parse_request, reply_error, reply_hello, reply_id, reply_sequence, seq_id_reply,
};

use crate::commands::bench::drive::Outcome;
use crate::commands::bench::plan::{Plan, Target};
use crate::commands::bench::{Args, network};

/// How long it stalls, once.
const STALL: Duration = Duration::from_millis(300);

/// How a fake server behaves.
#[derive(Debug, Clone, Copy, Default)]
struct Manner {
    cluster: u8,
    /// At this reply, all connections wait for [`STALL`].
    stalls_at: Option<u64>,
    /// Every so many replies, an id comes that came before.
    repeats: Option<u64>,
    /// Every so many replies are refusals.
    refuses: Option<u64>,
    /// After so many replies it tells everybody to leave.
    leaves_after: Option<u64>,
    /// After so many replies it answers nothing more.
    mute_after: Option<u64>,
    /// Every so many replies, an id comes that has this bit set too.
    beyond: Option<(u64, u64)>,
    /// Every so many replies claim a body of 1 GiB.
    claims: Option<u64>,
    /// Every so many replies, a run comes that has far more ids than were asked for.
    overfills: Option<u64>,
    /// It has no sequence.
    is_nameless: bool,
    /// Every so many replies about a sequence, a number comes that is below others, and never came before.
    falls: Option<u64>,
}

#[derive(Debug)]
struct Fake {
    manner: Manner,
    replies: AtomicU64,
    stalled: AtomicBool,
}

fn fake(manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let fake = Arc::new(Fake { manner, replies: AtomicU64::new(0), stalled: AtomicBool::new(false) });
    // Both threads end with their sockets, and at the latest with the test.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let fake = Arc::clone(&fake);
            thread::spawn(move || fake.serve(stream));
        }
    });
    addr
}

impl Fake {
    fn serve(&self, mut stream: TcpStream) {
        let (mut input, mut output, mut piece) = (Vec::new(), Vec::new(), vec![0; 64 * 1024]);
        let mut phase = Phase::Greeting;
        stream.set_nodelay(true).unwrap();
        stream.read_exact(&mut [0; PREFACE.len()]).unwrap();
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            input.extend_from_slice(&piece[..count]);
            let mut used = 0;
            while let ParsedRequest::Frame { consumed, request_id, request, .. } =
                parse_request(&input[used..], phase, 4_096)
            {
                used += consumed;
                if matches!(request, Ok(Request::Hello(_))) {
                    phase = Phase::Serving;
                    self.greet(&mut output, request_id);
                } else {
                    self.answer(&mut output, request_id, request.as_ref().ok());
                }
            }
            input.drain(..used);
            if stream.write_all(&output).is_err() {
                return;
            }
            output.clear();
        }
    }

    fn greet(&self, output: &mut Vec<u8>, request_id: u64) {
        let reply = HelloReply {
            version: 1,
            features: 0,
            cluster: ClusterId::from_bytes([self.manner.cluster; 16]),
            epoch_ms: 0,
            tick_us: 1_000,
            time_bits: 41,
            worker_bits: 10,
            sequence_bits: 12,
            face: 0,
            limits: Limits::default(),
            server: "fake",
        };
        reply_hello(output, request_id, &reply);
    }

    fn answer(&self, output: &mut Vec<u8>, request_id: u64, request: Option<&Request<'_>>) {
        let Manner {
            stalls_at, repeats, refuses, leaves_after, mute_after, beyond, claims, overfills, ..
        } = self.manner;
        let number = self.replies.fetch_add(1, Relaxed);
        let every = |period: Option<u64>| period.is_some_and(|period| number % period == period - 1);
        if stalls_at == Some(number) {
            self.stalled.store(true, Relaxed);
            thread::sleep(STALL);
            self.stalled.store(false, Relaxed);
        }
        while self.stalled.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        if mute_after.is_some_and(|after| number >= after) {
            return;
        }
        if leaves_after == Some(number) {
            goaway(output);
        }
        let bit = beyond.filter(|(period, _)| every(Some(*period))).map_or(0, |(_, bit)| bit);
        if every(claims) {
            output.extend(Header::reply(Op::Next, 1 << 30, request_id).encode());
        } else if let Some(Request::Array(bulk)) = request {
            let ids = (0..u64::from(bulk.count))
                .map(|place| (number * u64::from(bulk.count) + place) | if place == 1 { bit } else { 0 });
            output.extend(Header::reply(Op::Array, 8 + 8 * bulk.count, request_id).encode());
            output.extend(u64::from(bulk.count).to_le_bytes());
            output.extend(ids.flat_map(u64::to_le_bytes));
        } else if let Some(Request::Runs(bulk)) = request {
            let (count, stride) = if every(overfills) { (u32::MAX, 2) } else { (bulk.count, 1) };
            let first = (number * u64::from(bulk.count)) | bit;
            let run = u128::from(first) | u128::from(count) << 64 | stride << 96;
            output.extend(Header::reply(Op::Runs, 24, request_id).encode());
            output.extend((u64::from(count) | 1 << 32).to_le_bytes());
            output.extend(run.to_le_bytes());
        } else if let Some(Request::SeqInfo { .. }) = request {
            if self.manner.is_nameless {
                let refusal = Refusal::new(Status::NO_SEQUENCE, "there is no such sequence");
                reply_error(output, request_id, Op::SeqInfo.code(), &refusal);
            } else {
                reply_sequence(output, Op::SeqInfo, request_id, "{}");
            }
        } else if let Some(Request::SeqNext { .. }) = request {
            // Far above those that are in flight at once.
            let down = if every(self.manner.falls) { 999 } else { 0 };
            output.extend(seq_id_reply(request_id, 2 * (number + 1_000) - down));
        } else if every(refuses) {
            let refusal = Refusal::new(Status::OVERLOADED, "nothing left");
            reply_error(output, request_id, Op::Next.code(), &refusal);
        } else {
            reply_id(output, request_id, (number - u64::from(every(repeats))) | bit);
        }
    }
}

fn load(servers: &[SocketAddr], args: &Args) -> anyhow::Result<Outcome> {
    let server = servers.iter().map(ToString::to_string).collect();
    let args = Args { server, seconds: Some(1), warmup: Some(0), verify: true, ..args.clone() };
    let plan = Plan::new(&args)?;
    let Target::Network(net) = &plan.target else { panic!("no network in {plan:?}") };
    network::run(&plan, net).map(|(_, outcome)| outcome)
}

fn small() -> Args {
    Args { connections: Some(2), pipeline: Some(4), ..Args::default() }
}

#[test]
fn a_stall_counts_for_every_request_that_was_due_during_it() {
    let rate = 2_000;
    let server = fake(Manner { stalls_at: Some(400), ..Manner::default() });
    let outcome = load(&[server], &Args { rate: Some(rate), ..small() }).unwrap();
    let open = outcome.total.open.as_ref().unwrap();
    let stall = STALL.as_nanos() as u64;
    let latency = &outcome.total.latency;
    assert!(latency.max() >= stall * 95 / 100, "{} ns", latency.max());
    assert!(latency.value_at_quantile(0.999) >= stall * 9 / 10, "{} ns", latency.value_at_quantile(0.999));
    // Due in the first 200 ms of the stall: those waited 100 ms and more.
    let slow = |histogram: &hdrhistogram::Histogram<u64>| histogram.count_between(100_000_000, u64::MAX);
    assert!(slow(latency) >= rate * 15 / 100, "{} delayed", slow(latency));
    // Whoever measures from the sending sees the few that were in flight, and calls the rest fast. A host that takes
    // the processor away for 100 ms delays another eight at most, so a share is asked for, not eight.
    let service = slow(&open.service);
    assert!((1..slow(latency) / 2).contains(&service), "{service} delayed of {}", slow(latency));
    let due = outcome.total.latency.len();
    assert!(due.abs_diff(rate) <= 2, "every request of the timetable is counted: {due}");
}

#[test]
fn a_load_that_is_never_answered_is_as_slow_as_it_was_long() {
    let server = fake(Manner { mute_after: Some(100), ..Manner::default() });
    let outcome = load(&[server], &Args { rate: Some(1_000), ..small() }).unwrap();
    let total = &outcome.total;
    assert_eq!((total.requests, total.unanswered), (100, 8));
    let unsent = total.open.as_ref().unwrap().unsent;
    assert!(unsent.abs_diff(892) <= 2 && total.latency.len().abs_diff(1_000) <= 2, "{unsent} unsent");
    assert!(total.latency.value_at_quantile(0.5) > 300_000_000, "the median is one that was never answered");
}

#[test]
fn a_closed_loop_gets_different_ids_and_finds_those_that_came_twice() {
    let (good, bad) = (fake(Manner::default()), fake(Manner { repeats: Some(1_000), ..Manner::default() }));
    let outcome = load(&[good], &small()).unwrap();
    let verdict = outcome.verdict.unwrap();
    assert!(
        verdict.duplicates == 0 && verdict.ids >= outcome.total.ids && outcome.total.ids > 100,
        "{verdict:?}"
    );
    assert!(outcome.total.received >= 24 * outcome.total.ids && outcome.total.sent > 0);
    let verdict = load(&[bad], &small()).unwrap().verdict.unwrap();
    assert!(verdict.duplicates > 0 && !verdict.shown.is_empty(), "{verdict:?}");
}

#[test]
fn an_id_of_2_to_the_63_and_above_ends_the_connection_and_is_told() {
    for (count, runs) in [(1, false), (100, false), (100, true)] {
        let ask =
            Args { connections: Some(1), pipeline: Some(1), count: Some(count), runs, ..Args::default() };
        let good = load(&[fake(Manner::default())], &ask).unwrap();
        assert!(good.total.failures.is_empty() && good.total.requests > 100, "{ask:?}: {good:?}");
        let outcome =
            load(&[fake(Manner { beyond: Some((50, 1 << 63)), ..Manner::default() })], &ask).unwrap();
        let (failures, verdict) = (&outcome.total.failures, outcome.verdict.as_ref().unwrap());
        assert!(
            failures.len() == 1 && failures.keys().all(|why| why.contains("2^63") || why.contains("63 bits")),
            "{failures:?}"
        );
        // The 49 replies before it, and none of it.
        assert_eq!(
            (outcome.total.requests, verdict.ids),
            (49, 49 * u64::from(count)),
            "{ask:?}: {verdict:?}"
        );
    }
}

#[test]
fn a_reply_longer_than_what_was_asked_for_ends_the_connection() {
    let outcome = load(&[fake(Manner { claims: Some(50), ..Manner::default() })], &small()).unwrap();
    let failures = &outcome.total.failures;
    assert!(!failures.is_empty() && failures.keys().all(|why| why.contains("1073741824")), "{failures:?}");
}

/// Each of them would be looked at, and would count among those that came twice.
#[test]
fn a_run_of_more_ids_than_were_asked_for_ends_the_connection_and_none_of_them_counts() {
    let ask =
        Args { connections: Some(1), pipeline: Some(1), count: Some(100), runs: true, ..Args::default() };
    let outcome = load(&[fake(Manner { overfills: Some(50), ..Manner::default() })], &ask).unwrap();
    let (failures, verdict) = (&outcome.total.failures, outcome.verdict.as_ref().unwrap());
    assert!(failures.len() == 1 && failures.keys().all(|why| why.contains("4294967295")), "{failures:?}");
    assert_eq!((outcome.total.requests, verdict.ids), (49, 4_900), "{verdict:?}");
}

#[test]
fn servers_of_two_clusters_are_refused_with_both_shown() {
    let servers = [1, 2].map(|cluster| fake(Manner { cluster, ..Manner::default() }));
    let error = load(&servers, &small()).unwrap_err().to_string();
    assert!(error.contains(&"01".repeat(16)) && error.contains(&"02".repeat(16)), "{error}");
    assert!(servers.iter().all(|server| error.contains(&server.to_string())), "{error}");
    let both = [fake(Manner::default()), fake(Manner::default())];
    // Two counters from 0 on, so the check sees one cluster's worth of duplicates: both were asked.
    assert!(load(&both, &small()).unwrap().verdict.unwrap().duplicates > 0);
}

#[test]
fn a_number_of_a_sequence_that_does_not_ascend_fails_the_run() {
    let of_orders = Args { sequence: Some("orders".to_owned()), ..small() };
    let good = load(&[fake(Manner::default())], &of_orders).unwrap();
    assert!(good.total.failures.is_empty() && good.total.requests > 100, "{good:?}");
    let falls = fake(Manner { falls: Some(100), ..Manner::default() });
    let outcome = load(&[falls], &of_orders).unwrap();
    let (failures, verdict) = (&outcome.total.failures, outcome.verdict.as_ref().unwrap());
    assert!(!failures.is_empty() && failures.keys().all(|why| why.contains("ascend")), "{failures:?}");
    assert_eq!(verdict.duplicates, 0, "{verdict:?}");
}

#[test]
fn a_server_without_the_sequence_gets_no_load_and_the_command_that_makes_it_is_told() {
    let servers = [false, true].map(|is_nameless| fake(Manner { is_nameless, ..Manner::default() }));
    let args = Args { sequence: Some("new orders".to_owned()), ..small() };
    let error = format!("{:#}", load(&servers, &args).unwrap_err());
    let command = format!("`xuid sequence create 'new orders' --server {}`", servers[1]);
    assert!(error.contains(&command) && error.contains("NO_SEQUENCE"), "{error}");
}

#[test]
fn refusals_are_counted_and_the_load_goes_on() {
    let server = fake(Manner { refuses: Some(10), ..Manner::default() });
    let total = load(&[server], &Args { rate: Some(500), ..small() }).unwrap().total;
    let (refused, answered) = (total.refusals["OVERLOADED"], total.requests);
    assert!((refused * 9).abs_diff(answered) <= 2 * 9, "{refused} refused, {answered} answered");
    // What a slow host leaves unsent at the end belongs to the timetable as well; up to eight are answered after it.
    let rest = total.unanswered + total.open.as_ref().unwrap().unsent;
    assert!((refused + answered + rest).abs_diff(500) <= 2 + 8, "{refused} + {answered} + {rest}");
    assert_eq!(total.refusal.as_deref(), Some("OVERLOADED: nothing left"));
}

#[test]
fn a_server_that_says_goaway_ends_the_load_early() {
    let server = fake(Manner { leaves_after: Some(200), ..Manner::default() });
    let outcome = load(&[server], &Args { connections: Some(1), ..small() }).unwrap();
    assert!(
        outcome.cut_short && outcome.total.sent_away == 1 && outcome.total.unanswered == 0,
        "{outcome:?}"
    );
}
