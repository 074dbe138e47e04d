//! What is not XUID/1, or is it badly: each gets its error, and nobody else is disturbed.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use xuid_tests::{
    Client, ClientError, Job, Ledger, Load, Order, PREFACE, Rng, Serve, Server, Work, clock, encode,
    hello_body, op, process, status,
};

/// The first byte of a TLS handshake, and what answers it: fatal, `handshake_failure`.
const ALERTED: u8 = 0x16;
const ALERT: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x28];

/// The most anonymous memory a server may use, whatever is thrown at it.
const MEMORY: u64 = 96 << 20;

/// A connection that keeps getting ids while others misbehave.
fn bystander(server: &Server) -> Load {
    Load::start(server.addr, &[Job::gently(Work::Next(4), Order::Any, Duration::from_millis(2))])
}

/// The bystander was served without a single refusal, and memory is bounded.
fn undisturbed(server: &Server, load: Load) -> Result<()> {
    let before = load.ids();
    clock::wait_until("the bystander is served", Duration::from_secs(5), || Ok(load.ids() > before + 100))?;
    load.ask_to_stop();
    let mut ledger = Ledger::default();
    for result in load.join()? {
        ensure!(result.refusals == 0, "the bystander was refused: {:?}", result.last_refusal);
        ledger.add_received(&result.received);
    }
    ledger.check()?;
    let memory = process::rss_anon(server.pid())?;
    println!("rubbish: {} KiB of anonymous memory", memory >> 10);
    ensure!(memory < MEMORY, "{memory} bytes of anonymous memory\n{server}");
    Ok(())
}

/// Sends bytes and reads to the end.
fn answer(server: &Server, bytes: &[u8]) -> Result<String> {
    let mut client = Client::silent(server.addr)?;
    client.set_read_limit(Duration::from_secs(8))?;
    client.push_raw(bytes);
    client.flush()?;
    Ok(String::from_utf8_lossy(&client.read_to_end()?).into_owned())
}

#[test]
fn another_protocol_gets_a_sentence_that_helps() -> Result<()> {
    let mut rng = Rng::from_env("rubbish");
    let server = Serve::fresh()?.start()?;
    let load = bystander(&server);
    let tls =
        [&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03][..], &rng.bytes(500)].concat();
    let http = b"GET / HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n".to_vec();
    let long = [b"POST / HTTP/1.1\r\n\r\n".to_vec(), vec![b'x'; 40_000]].concat();
    for tls in [&tls[..], &tls[..1]] {
        let said = answer(&server, tls)?;
        ensure!(said.as_bytes() == ALERT, "a fatal alert in a record of its own, not {said:?}");
    }
    for (rubbish, is_http) in [
        (http, true),
        (long, true),
        (b"PING\r\n".to_vec(), false),
        (b"\n".to_vec(), false),
        (vec![0; 64], false),
    ] {
        let mut said = answer(&server, &rubbish)?;
        if is_http {
            let (head, body) = said.split_once("\r\n\r\n").context("a head")?;
            ensure!(head.starts_with("HTTP/1.0 400 "), "{said:?}");
            said = body.to_owned();
        }
        ensure!(said.is_ascii() && said.trim_end().lines().count() == 1, "one ASCII line, not {said:?}");
        let admin = server.admin.port().to_string();
        ensure!(
            said.contains("XUID") && said.contains(&admin),
            "what speaks here, and where HTTP is: {said:?}"
        );
    }
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "5", &format!("http://{}/", server.addr)]);
    let (code, stdout, stderr) = process::run(curl, Duration::from_secs(10))?;
    println!("rubbish: curl ({code:?}) reads: {}", stdout.trim());
    ensure!(code == Some(0) && stdout.starts_with("This port speaks XUID/1"), "{stdout} {stderr}");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "5", &format!("https://{}/", server.addr)]);
    let (code, _, stderr) = process::run(curl, Duration::from_secs(10))?;
    println!("rubbish: curl ({code:?}) of TLS says: {}", stderr.trim());
    // 35: the handshake failed. An alert is why, and not a record that is none.
    ensure!(code == Some(35) && stderr.contains("alert"), "{code:?}: {stderr}");
    for _ in 0..200 {
        let len = 1 + rng.below(3_000) as usize;
        let mut bytes = rng.bytes(len);
        bytes[0] |= u8::from(bytes[0] == PREFACE[0]);
        bytes[0] ^= u8::from(bytes[0] == PREFACE[0]);
        let said = answer(&server, &bytes)?;
        ensure!(said.contains("XUID") || bytes[0] == ALERTED && said.as_bytes() == ALERT, "{said:?}");
    }
    let mut torn = PREFACE;
    torn[7] = 0;
    answer(&server, &torn)?;
    undisturbed(&server, load)
}

/// A request that breaks a rule, and what it must be told.
struct Breach {
    name: &'static str,
    greets: bool,
    bytes: Vec<u8>,
    status: u16,
    closes: bool,
}

fn frame(op: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes, op, flags, 99, body);
    bytes
}

fn claim(op: u8, body_len: u32) -> Vec<u8> {
    let mut bytes = frame(op, 0, &[]);
    bytes[..4].copy_from_slice(&body_len.to_le_bytes());
    bytes
}

fn bulk(count: u32, order: u8) -> Vec<u8> {
    let mut body = count.to_le_bytes().to_vec();
    body.extend([1, 0, 0, 0, order, 0, 0, 0]);
    body
}

fn breaches(max_body: u32, max_count: u32) -> Vec<Breach> {
    let breach = |name, greets, bytes, status, closes| Breach { name, greets, bytes, status, closes };
    vec![
        breach("NEXT before HELLO", false, frame(op::NEXT, 0, &[0]), status::BAD_REQUEST, true),
        breach("INFO before HELLO", false, frame(op::INFO, 0, &[]), status::BAD_REQUEST, true),
        breach("a HELLO of 3 bytes", false, frame(op::HELLO, 0, &[1, 0, 1]), status::BAD_REQUEST, true),
        breach("a HELLO with a token longer than itself", false, lying_hello(), status::BAD_REQUEST, true),
        breach(
            "a second HELLO",
            true,
            frame(op::HELLO, 0, &hello_body(1, 1, [0; 16])),
            status::BAD_REQUEST,
            true,
        ),
        breach("a frame above max_body", true, claim(op::PING, max_body + 1), status::TOO_LARGE, true),
        breach("a frame of 4 GiB", true, claim(op::ARRAY, u32::MAX), status::TOO_LARGE, true),
        breach("a frame of 4 GiB before HELLO", false, claim(op::HELLO, u32::MAX), status::TOO_LARGE, true),
        breach("flags", true, frame(op::NEXT, 1, &[0]), status::BAD_REQUEST, false),
        breach("bit 7 of the op", true, frame(op::NEXT | 0x80, 0, &[0]), status::BAD_REQUEST, false),
        breach("order 3", true, frame(op::NEXT, 0, &[3]), status::BAD_REQUEST, false),
        breach("ARRAY of order 9", true, frame(op::ARRAY, 0, &bulk(10, 9)), status::BAD_REQUEST, false),
        breach(
            "an ARRAY body of 4 bytes",
            true,
            frame(op::ARRAY, 0, &[1, 0, 0, 0]),
            status::BAD_REQUEST,
            false,
        ),
        breach("a RUNS body of 0 bytes", true, frame(op::RUNS, 0, &[]), status::BAD_REQUEST, false),
        breach("a DECODE body of 7 bytes", true, frame(op::DECODE, 0, &[0; 7]), status::BAD_REQUEST, false),
        breach("ARRAY of 0", true, frame(op::ARRAY, 0, &bulk(0, 0)), status::COUNT, false),
        breach(
            "RUNS above max_count",
            true,
            frame(op::RUNS, 0, &bulk(max_count + 1, 0)),
            status::COUNT,
            false,
        ),
        breach("ARRAY of 4 billion", true, frame(op::ARRAY, 0, &bulk(u32::MAX, 0)), status::COUNT, false),
        breach("an op that does not exist", true, frame(0x55, 0, &[]), status::UNKNOWN_OP, false),
        breach("op 0", true, frame(0, 0, &[1, 2]), status::UNKNOWN_OP, false),
    ]
}

/// A HELLO whose token claims 255 bytes that are not there.
fn lying_hello() -> Vec<u8> {
    let mut body = hello_body(1, 1, [0; 16]);
    body[24] = 255;
    frame(op::HELLO, 0, &body)
}

#[test]
fn every_breach_of_the_protocol_gets_its_error_and_closes_or_not_as_specified() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let load = bystander(&server);
    let (_, hello) = Client::hello(server.addr)?;
    for breach in breaches(hello.max_body, hello.max_count) {
        let mut client = if breach.greets { server.client()? } else { Client::preface(server.addr)? };
        client.set_read_limit(Duration::from_secs(8))?;
        client.push_raw(&breach.bytes);
        client.flush()?;
        let reply = match client.recv() {
            Ok(reply) => reply,
            Err(error) => bail!("{}: no error reply: {error}\n{server}", breach.name),
        };
        ensure!(reply.status == breach.status, "{}: {reply:?}", breach.name);
        ensure!(reply.request_id == 99, "{}: the request id is echoed: {reply:?}", breach.name);
        let text = String::from_utf8_lossy(reply.body.get(6..).unwrap_or_default()).into_owned();
        ensure!(text.len() > 10, "{}: an error says what to do: {text:?}", breach.name);
        println!("rubbish: {}: {:04x} {text}", breach.name, reply.status);
        if breach.closes {
            ensure!(client.read_to_end()?.is_empty(), "{}: closes after the error", breach.name);
        } else {
            ensure!(client.next(Order::Any)? > 0, "{}: keeps the connection", breach.name);
        }
    }
    undisturbed(&server, load)
}

#[test]
fn random_frames_never_crash_hang_or_disturb() -> Result<()> {
    let mut rng = Rng::from_env("random frames");
    let mut server = Serve::fresh()?.start()?;
    let load = bystander(&server);
    for round in 0..300 {
        let mut client = if round % 4 == 0 { Client::preface(server.addr)? } else { server.client()? };
        client.set_read_limit(Duration::from_secs(8))?;
        for _ in 0..=rng.below(20) {
            let known = [
                op::PING,
                op::NEXT,
                op::ARRAY,
                op::RUNS,
                op::DECODE,
                op::INFO,
                op::STATS,
                op::BYE,
                op::GOAWAY,
            ];
            let op = if rng.below(5) == 0 { rng.word() as u8 } else { known[rng.below(9) as usize] };
            let flags = if rng.below(10) == 0 { rng.word() as u8 } else { 0 };
            let len = rng.below(40) as usize;
            let mut body = rng.bytes(len);
            // Small counts and short waits, so that the server is not merely busy.
            body.iter_mut().skip(2).for_each(|byte| *byte &= 1);
            let mut bytes = frame(op, flags, &body);
            match rng.below(20) {
                0 => bytes.truncate(rng.below(bytes.len() as u64) as usize),
                1 => bytes[..4].copy_from_slice(&(rng.word() as u32).to_le_bytes()),
                _ => {}
            }
            client.push_raw(&bytes);
        }
        // The server may have closed already: then the write fails, which is as good an end as any.
        let _ = client.flush();
        let _ = client.shut_write();
        match client.read_to_end() {
            Ok(_) | Err(ClientError::Ended(_)) => {}
            Err(error) => bail!("round {round}: {error}"),
        }
    }
    ensure!(server.is_alive()?, "it ended\n{server}");
    undisturbed(&server, load)
}

#[test]
fn a_client_that_reads_nothing_costs_bounded_memory() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let load = bystander(&server);
    let mut deaf = Vec::new();
    for _ in 0..8 {
        let mut client = server.client()?;
        for _ in 0..400 {
            // Replies of 8 x 100,000 bytes: 320 MB a connection, if all of them were made.
            client.push(op::ARRAY, &bulk(100_000, 0));
        }
        client.flush()?;
        deaf.push(client);
    }
    let mut most = 0;
    let begin = clock::now();
    while begin.elapsed() < Duration::from_secs(3) {
        most = most.max(process::rss_anon(server.pid())?);
        clock::idle(Duration::from_millis(50));
    }
    println!("rubbish: {} KiB at most with 8 deaf clients", most >> 10);
    ensure!(most < MEMORY, "{most} bytes of anonymous memory for clients that read nothing\n{server}");
    let (mut client, before) = (server.client()?, load.ids());
    client.call(op::PING, b"still there?")?;
    clock::wait_until("the bystander is served", Duration::from_secs(10), || Ok(load.ids() > before + 10))?;
    drop(deaf);
    load.ask_to_stop();
    load.join()?;
    Ok(())
}

#[test]
fn a_ping_never_waits_behind_a_request_that_waits() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let mut client = server.client()?;
    let (_, hello) = Client::hello(server.addr)?;
    // More fresh ids than one worker mints in the wait: these requests have to stand in line for the clock.
    for _ in 0..60 {
        let mut body = bulk(hello.max_count.min(131_072), Order::Fresh as u8);
        body[4..8].copy_from_slice(&5_000_u32.to_le_bytes());
        client.push(op::ARRAY, &body);
    }
    let ping = client.push(op::PING, b"x");
    let begin = clock::now();
    client.flush()?;
    let (mut earlier, mut answered) = (0, None);
    while answered.is_none() {
        let frame = client.recv()?;
        if frame.request_id == ping {
            answered = Some(begin.elapsed());
        } else {
            earlier += 1;
        }
    }
    println!("rubbish: PING answered after {answered:?}, {earlier} replies before it");
    ensure!(answered.is_some_and(|after| after < Duration::from_secs(1)), "PING took {answered:?}");
    Ok(())
}
