//! Which numbers there are.

use xuid_engine::Order;
use xuid_engine::stats::{ClockStats, ConnectionState, RegistryStats, Stats, Windows, whole_ms};

use super::family::{Family, Kind, Samples, counter, counter_by, family, gauge, gauge_by, times_by};
use super::process;
use super::sequences;
use crate::state::server::Server;
use crate::state::traffic::Traffic;
use crate::text::logs;

/// All of them, read now.
pub(super) fn families(server: &Server) -> Vec<Family> {
    let stats = server.engine.stats();
    let mut all = ids(&stats);
    all.extend(windows(&stats.windows));
    all.extend(registry(&stats.registry));
    all.extend(spill(&stats));
    all.extend(clock(&stats.clock));
    all.extend(traffic(&server.traffic));
    all.extend(server.sequences.iter().flat_map(sequences::families));
    let limited: Vec<_> = server.traffic.limited().collect();
    all.push(counter_by(
        "xuid_limited_requests",
        "Requests refused because their token or their address took more ids a second than it may",
        "by",
        &limited,
    ));
    all.push(gauge(
        "xuid_limited_addresses",
        "Addresses whose ids are counted now, where address_ids_per_second is set",
        server.access.limited_addresses() as u64,
    ));
    all.push(gauge(
        "xuid_unread_reply_bytes",
        "Bytes of memory that connections hold whose clients do not read their replies, or not as fast as they come",
        server.unread.held() as u64,
    ));
    all.push(counter_by(
        "xuid_panics",
        "Panics that the server survived, by where: each is a bug",
        "where",
        &[("request", server.traffic.panics()), ("engine", stats.panics)],
    ));
    all.push(counter(
        "xuid_log_dropped_lines",
        "Lines of the log that were dropped, because what reads standard error was too slow",
        logs::dropped(),
    ));
    let now = server.readiness();
    all.push(gauge(
        "xuid_ready",
        "1 if the server wants requests: calls of order any are served",
        u64::from(now.ready),
    ));
    all.push(gauge_by(
        "xuid_serves",
        "1 if calls of this order are served now",
        "order",
        &Order::ALL.map(|order| (order.name(), u64::from(now.serves(order)))),
    ));
    all.push(gauge("xuid_uptime_seconds", "Seconds since it began to serve", server.uptime().as_secs()));
    all.push(gauge(
        "xuid_producer_silent_seconds",
        "Seconds since the engine's producer began its last turn: at most one while all is well",
        server.engine.producer_silent().as_secs(),
    ));
    all.extend(process::families());
    all
}

fn ids(stats: &Stats) -> Vec<Family> {
    let (wasted, held, served, refused) = (&stats.wasted, &stats.held, &stats.served, &stats.refused);
    vec![
        counter("xuid_minted_ids", "Ids cut out of granted windows", stats.minted),
        counter(
            "xuid_issued_ids",
            "Ids returned to callers: copied into replies, read or not, and the one of the banner. The sum of \
             xuid_served_ids_total",
            stats.issued,
        ),
        counter(
            "xuid_spilled_ids",
            "Ids put into the spill, those included that were overwritten there unused",
            stats.spilled,
        ),
        counter(
            "xuid_spill_replayed_ids",
            "Ids taken back out of the spill, those of records included that could not be read any more",
            stats.replayed,
        ),
        counter_by(
            "xuid_wasted_ids",
            "Ids that nobody will ever get, by cause: the rest of a thread's run, too old, scraps, a spill that failed, granted and \
             not to be read, a leap of the clock, a panic",
            "cause",
            &[
                ("thread", wasted.thread),
                ("expired", wasted.expired),
                ("trimmed", wasted.trimmed),
                ("spill", wasted.spill),
                ("grant", wasted.grant),
                ("step", wasted.step),
                ("panic", wasted.panic),
            ],
        ),
        family(
            "xuid_held_ids",
            "Ids between: minted + replayed = issued + spilled + wasted + the sum of these. ring, queue, reserve and threads \
             are counted; moving is the difference, what moved while they were read: 0 at rest, negative for ids \
             seen twice",
            Kind::Gauge,
            Samples::SignedBy(
                "tier",
                vec![
                    ("ring", held.ring.cast_signed()),
                    ("queue", held.queue.cast_signed()),
                    ("reserve", held.reserve.cast_signed()),
                    ("threads", held.threads.cast_signed()),
                    ("moving", stats.moving()),
                ],
            ),
        ),
        counter_by(
            "xuid_served_ids",
            "Ids issued, by the tier that had them",
            "tier",
            &[
                ("ring", served.ring),
                ("queue", served.queue),
                ("minter", served.minter),
                ("reserve", served.reserve),
            ],
        ),
        family(
            "xuid_order_ids",
            "Ids issued, by the order that was asked for and the tier that had them: the sum is xuid_issued_ids_total",
            Kind::Counter,
            Samples::ByTwo(
                ["order", "tier"],
                vec![
                    (["any", "ring"], served.ring),
                    (["any", "queue"], served.queue),
                    (["any", "minter"], served.minter - served.fresh - served.ordered),
                    (["any", "reserve"], served.reserve),
                    (["fresh", "minter"], served.fresh),
                    (["ordered", "minter"], served.ordered),
                ],
            ),
        ),
        counter_by(
            "xuid_refused_calls",
            "Calls that could wait for ids and got none; xuid_errors_total counts what clients were told, tries included",
            "reason",
            &[
                ("not_ready", refused.not_ready),
                ("overloaded", refused.overloaded),
                ("clock_behind", refused.clock_behind),
                ("window_lost", refused.window_lost),
                ("exhausted", refused.exhausted),
                ("shutting_down", refused.shutting_down),
            ],
        ),
        counter("xuid_ring_refills", "Partitions of the ring refilled", stats.refills),
        gauge("xuid_waiting_calls", "Calls that wait for ids now", stats.waiting),
        gauge(
            "xuid_reserve_oldest_seconds",
            "Age of the oldest id of the reserve, in memory or in the spill; 0 without one",
            stats.oldest.as_secs(),
        ),
    ]
}

fn windows(windows: &Windows) -> Vec<Family> {
    let (switches, times) = (&windows.switches, &windows.switched);
    let left = windows.held.iter().map(|(worker, left)| (worker.to_string(), *left)).collect();
    vec![
        gauge("xuid_workers_held", "Workers held now", windows.held.len() as u64),
        family(
            "xuid_worker_window_left_ms",
            "Milliseconds to the end of what is reserved of a worker",
            Kind::Gauge,
            Samples::By("worker", left),
        ),
        gauge(
            "xuid_window_left_ms",
            "Milliseconds to the end of the window that ends first",
            windows.left_ms,
        ),
        counter("xuid_windows_reserved", "Windows reserved, renewals included", windows.reserved),
        counter_by(
            "xuid_worker_switches",
            "Workers left for another, by cause: the clock went back, somebody else took it, its record cannot be \
             believed, the machine may have been resumed from a snapshot, or a copy of it was met in the registry",
            "cause",
            &[
                ("clock", switches.clock),
                ("lost", switches.lost),
                ("unreadable", switches.unreadable),
                ("resumed", switches.resumed),
                ("copied", switches.copied),
            ],
        ),
        family(
            "xuid_worker_switch_seconds",
            "From the reading of a clock that went back to the first id of another worker",
            Kind::Histogram,
            Samples::Times(*times),
        ),
        gauge(
            "xuid_worker_switch_last_ms",
            "The last of these times, in milliseconds, rounded up",
            whole_ms(times.last()),
        ),
        gauge(
            "xuid_worker_switch_max_ms",
            "The longest of these times, in milliseconds, rounded up",
            whole_ms(times.longest()),
        ),
    ]
}

fn registry(registry: &RegistryStats) -> Vec<Family> {
    let unknown = &registry.unknown;
    let is = |state: ConnectionState| u64::from(registry.state == state);
    vec![
        times_by(
            "xuid_registry_reserve_seconds",
            "How long it took to take a worker, to renew a window, and to move a spill's mark, failures included",
            "op",
            &[("claim", registry.claims), ("renew", registry.renewals), ("mark", registry.marks)],
        ),
        gauge_by(
            "xuid_registry_state",
            "1 for how it stands with the registry: it answers, the connection is lost, the session ended, or it \
             answers and may not be used",
            "state",
            &[
                ("connected", is(ConnectionState::Connected)),
                ("away", is(ConnectionState::Away)),
                ("expired", is(ConnectionState::Expired)),
                ("refused", is(ConnectionState::Refused)),
            ],
        ),
        gauge(
            "xuid_registry_away_seconds",
            "Seconds since the registry answered, rounded up; 0 while it does",
            whole_ms(registry.away).div_ceil(1_000),
        ),
        counter("xuid_registry_sessions", "Sessions made with the registry", registry.sessions),
        counter("xuid_registry_expirations", "Sessions that the registry ended", registry.expirations),
        counter(
            "xuid_registry_disconnects",
            "Times the connection to the registry was lost",
            registry.disconnects,
        ),
        counter("xuid_registry_conflicts", "Compare-and-sets lost to somebody else", registry.conflicts),
        counter(
            "xuid_registry_unknown",
            "Writes to the registry whose outcome was unknown at first",
            unknown.total(),
        ),
        gauge_by(
            "xuid_registry_unknown_resolved",
            "The same by what came out: stored, not stored, or nobody could look yet",
            "outcome",
            &[("ours", unknown.ours), ("not_ours", unknown.not_ours), ("doubt", unknown.doubt)],
        ),
    ]
}

fn spill(stats: &Stats) -> Vec<Family> {
    let spill = &stats.spill;
    vec![
        gauge("xuid_spill_active", "1 if unused ids go to a file", u64::from(spill.active)),
        gauge("xuid_spill_extents", "Extents in the file that may still be granted", spill.extents),
        gauge("xuid_spill_ids", "Ids in them", spill.ids),
        gauge("xuid_spill_inherited_ids", "Ids found at the start, left by an earlier life", spill.inherited),
        counter(
            "xuid_spill_overwritten_ids",
            "Ids overwritten there unused because the file was full",
            spill.overwritten,
        ),
        counter("xuid_spill_granted_extents", "Extents granted since the start", spill.granted),
        counter("xuid_spill_damaged_records", "Records found damaged and skipped", spill.damaged),
        counter(
            "xuid_spill_refused_files",
            "Spill files set aside because they could not be trusted",
            spill.refused,
        ),
        counter("xuid_spill_failures", "Appends and syncs that failed", spill.failures),
    ]
}

fn clock(clock: &ClockStats) -> Vec<Family> {
    let entered = clock.entered.named();
    let present = entered.map(|(name, _)| (name, u64::from(name == clock.verdict.name())));
    vec![
        gauge_by("xuid_clock_verdict", "1 for what is thought of the clock now", "verdict", &present),
        counter_by(
            "xuid_clock_verdicts",
            "How often each verdict on the clock was come to, the one at the start not counted",
            "verdict",
            &entered,
        ),
        gauge(
            "xuid_clock_lead_us",
            "How far the engine's clock is ahead of the wall, in microseconds",
            clock.lead_us,
        ),
        counter("xuid_clock_rollbacks", "Steps back of the wall clock that were seen", clock.rollbacks),
        counter(
            "xuid_clock_jumps",
            "Leaps forward against the boot clock: what was in memory was dropped",
            clock.jumps,
        ),
        gauge(
            "xuid_clock_behind_registry_ms",
            "How far the wall clock was behind the registry's when that was last read, in milliseconds",
            clock.behind_registry_ms,
        ),
        gauge("xuid_layout_days_left", "Days until the layout's time bits run out", clock.days_left),
    ]
}

fn traffic(traffic: &Traffic) -> Vec<Family> {
    let requests = traffic.requests().filter(|(op, _)| *op != xuid_protocol::Op::GoAway);
    let requests = requests.map(|(op, count)| (op.name().to_ascii_lowercase(), count)).collect();
    let ids = traffic.ids().map(|(op, count)| (op.name().to_ascii_lowercase(), count)).collect();
    let times = traffic.times().map(|(op, times)| (op.name().to_ascii_lowercase(), times)).collect();
    let errors = traffic.errors();
    let errors = errors.map(|(status, count)| (status.to_string().to_ascii_lowercase(), count)).collect();
    let open: Vec<_> = traffic.open_by_front().map(|(front, open)| (front.name(), open)).collect();
    vec![
        gauge("xuid_connections_open", "Connections of clients open now", traffic.open()),
        gauge_by(
            "xuid_front_connections_open",
            "Connections open now, by the front that they came in by",
            "front",
            &open,
        ),
        counter_by(
            "xuid_connections",
            "Connections so far: accepted, those included that turned out foreign, which speak another protocol; and refused, \
             beyond max_connections",
            "kind",
            &traffic.connections(),
        ),
        counter(
            "xuid_rejected_tokens",
            "Tokens that are none of this server's, at whatever port; missing ones of HELLO and of requests over HTTP, too",
            traffic.rejected_tokens(),
        ),
        counter(
            "xuid_failed_handshakes",
            "TLS handshakes that failed for what was said, as by a client whose certificate is missing, expired or of another CA, \
             or that trusts another CA than ours",
            traffic.failed_handshakes(),
        ),
        family("xuid_requests", "Requests that could be read", Kind::Counter, Samples::By("op", requests)),
        family(
            "xuid_request_seconds",
            "From the read of a request to the write of its reply, waits included; a batch of NEXT counts once for each \
             request in it",
            Kind::Histogram,
            Samples::RequestTimes("op", times),
        ),
        family(
            "xuid_replied_ids",
            "Ids copied into replies, by what they were asked by",
            Kind::Counter,
            Samples::By("op", ids),
        ),
        family(
            "xuid_errors",
            "Error replies, by status, those included to what could not be read",
            Kind::Counter,
            Samples::By("status", errors),
        ),
    ]
}
