//! What a server still owes a connection that it closes: answers to what was asked in time, and the reason.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::{
    Client, ClientError, Order, PREFACE, Serve, Server, clock, encode, hello_body, op, process, status,
};

/// Preface and HELLO must be whole within this.
const GREETING: Duration = Duration::from_secs(10);
/// How much later than it should something may be seen on a busy machine.
const SLACK: Duration = Duration::from_secs(4);

/// A server that sends a connection away after a second.
fn impatient(home: &TempDir) -> Result<Server> {
    Serve::new(&home.path().join("data"))?.arg("--idle").arg("1s").start()
}

#[test]
fn a_request_that_crosses_the_goaway_of_an_idle_connection_is_answered() -> Result<()> {
    let home = TempDir::new()?;
    let server = impatient(&home)?;
    for round in 0..5 {
        let mut client = server.client()?;
        client.goaway().context("an idle connection is sent away")?;
        // On its way when the GOAWAY came: as far as the server can tell, that is the same.
        let id = client.next(Order::Any).with_context(|| format!("round {round}\n{server}"))?;
        ensure!(id > 0 && client.read_to_end()?.is_empty(), "it is closed then, without another word");
    }
    Ok(())
}

#[test]
fn what_lies_in_the_socket_of_a_stopped_server_is_answered_when_it_goes_on() -> Result<()> {
    let home = TempDir::new()?;
    let server = impatient(&home)?;
    for round in 0..5 {
        let mut client = server.client()?;
        client.next(Order::Any)?;
        process::freeze(server.child())?;
        let asked = client.push(op::NEXT, &[0]);
        client.flush()?;
        // Past the end of its patience, of which it knows nothing yet.
        clock::idle(Duration::from_millis(1_500));
        process::thaw(server.child())?;
        let reply = client.recv().with_context(|| format!("round {round}\n{server}"))?;
        ensure!((reply.request_id, reply.status) == (asked, 0), "{reply:?}");
        // Nor is it told to go: it has just asked.
        ensure!(client.next(Order::Any)? > 0 && !client.is_going_away());
    }
    Ok(())
}

#[test]
fn many_requests_that_cross_a_goaway_are_all_answered_beside_another_connection() -> Result<()> {
    const REQUESTS: usize = 3_000;
    let home = TempDir::new()?;
    let data = home.path().join("data");
    let server = Serve::new(&data)?.arg("--idle").arg("1s").arg("--threads").arg("1").start()?;
    for round in 0..3 {
        let (mut client, mut other) = (server.client()?, server.client()?);
        client.next(Order::Any)?;
        client.goaway()?;
        process::freeze(server.child())?;
        // More than one turn of its thread answers where others ask.
        for _ in 0..REQUESTS {
            client.push(op::NEXT, &[0]);
        }
        client.flush()?;
        other.push(op::NEXT, &[0]);
        other.flush()?;
        // Past the end of the time that is left after a GOAWAY.
        clock::idle(Duration::from_millis(600));
        process::thaw(server.child())?;
        for request in 0..REQUESTS {
            let reply =
                client.recv().with_context(|| format!("round {round}, request {request}\n{server}"))?;
            ensure!(reply.status == 0, "{reply:?}");
        }
    }
    Ok(())
}

#[test]
fn a_greeting_that_came_in_time_is_answered_by_a_server_that_was_stopped_past_the_deadline() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let mut client = Client::preface(server.addr)?;
    client.flush()?;
    let is_open = || Ok(server.metrics()?.sum(&["xuid_connections_open"]) > 0.0);
    clock::wait_until("it is accepted", SLACK, is_open)?;
    process::freeze(server.child())?;
    client.push(op::HELLO, &hello_body(1, 1, [0; 16]));
    client.flush()?;
    clock::idle(GREETING + Duration::from_millis(500));
    process::thaw(server.child())?;
    let reply = client.recv().with_context(|| format!("{server}"))?;
    ensure!(reply.status == 0, "{reply:?}");
    client.next(Order::Any)?;
    Ok(())
}

#[test]
fn requests_before_a_frame_that_closes_are_answered() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let mut client = server.client()?;
    // Far more than is minted at once: the first are answered, and the others wait.
    let array = [&131_072_u32.to_le_bytes()[..], &1_000_u32.to_le_bytes(), &[1, 0, 0, 0]].concat();
    let asked: Vec<u64> = (0..7).map(|_| client.push(op::ARRAY, &array)).collect();
    let closing = client.push(op::HELLO, &hello_body(1, 1, [0; 16]));
    client.flush()?;
    let mut answered = Vec::new();
    for _ in 0..=asked.len() {
        let reply =
            client.recv().with_context(|| format!("after answers to {answered:?}, {asked:?} asked"))?;
        let wanted = if reply.request_id == closing { status::BAD_REQUEST } else { 0 };
        ensure!(reply.status == wanted, "{:x} to {}", reply.status, reply.request_id);
        answered.push(reply.request_id);
    }
    answered.sort_unstable();
    ensure!(answered.iter().eq(asked.iter().chain(&[closing])), "{answered:?} to {asked:?}");
    ensure!(client.read_to_end()?.is_empty(), "and it is closed");
    Ok(())
}

#[test]
fn a_client_that_never_says_hello_holds_a_connection_for_ten_seconds_and_no_more() -> Result<()> {
    let server = Serve::fresh()?.env("XUID_TOKEN", "open sesame").start()?;
    let open = || -> Result<f64> { Ok(server.metrics()?.sum(&["xuid_connections_open"])) };
    let mut streams = Vec::new();
    let begin = clock::now();
    // One reads nothing, and asks until the socket is full; one asks now and then; one asked for a while and went
    // silent.
    for pings in [10_000, 1, 12] {
        let mut stream = TcpStream::connect(server.addr)?;
        stream.set_nonblocking(true)?;
        let mut bytes = PREFACE.to_vec();
        (0..pings).for_each(|request_id| encode(&mut bytes, op::PING, 0, request_id, &[7; 1_000]));
        let written = bytes.chunks(16 * 1_024).map_while(|piece| stream.write(piece).ok()).sum::<usize>();
        println!("last words: {written} bytes before HELLO");
        streams.push(stream);
    }
    clock::wait_until("they are accepted", SLACK, || Ok(open()? > 0.0))?;
    let closed = clock::wait_until("all are closed", GREETING + SLACK, || Ok(open()? < 1.0))?;
    println!("last words: {:?} until no connection without HELLO was open", begin.elapsed());
    ensure!(closed + Duration::from_secs(1) > GREETING, "closed after {closed:?}: before the deadline");
    Ok(())
}

/// Reads to the end of a connection; a reset is an error.
fn read_all(stream: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    stream.set_read_timeout(Some(SLACK))?;
    stream.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[test]
fn a_connection_too_many_is_told_so_whatever_it_sends_meanwhile() -> Result<()> {
    let server = Serve::fresh()?.arg("--max-connections").arg("1").start()?;
    let mut first = server.client()?;
    let mut hello = Vec::new();
    encode(&mut hello, op::HELLO, 0, 1, &hello_body(1, 1, [0; 16]));
    for round in 0..50 {
        let mut stream = TcpStream::connect(server.addr)?;
        stream.set_nodelay(true)?;
        stream.write_all(&PREFACE)?;
        // In two writes, the second after the refusal was written.
        thread::sleep(Duration::from_millis(2));
        stream.write_all(&hello).with_context(|| format!("round {round}"))?;
        let said = read_all(&mut stream).with_context(|| format!("round {round}"))?;
        ensure!(said.contains("max_connections"), "round {round}: {said:?}");
    }
    ensure!(first.next(Order::Any)? > 0);
    Ok(())
}

#[test]
fn a_flood_of_connections_too_many_holds_few_of_them_open() -> Result<()> {
    let server = Serve::fresh()?.arg("--max-connections").arg("1").start()?;
    let mut first = server.client()?;
    let files = || -> Result<usize> { Ok(fs::read_dir(format!("/proc/{}/fd", server.pid()))?.count()) };
    let before = files()?;
    let mut connections = (0..400).map(|_| TcpStream::connect(server.addr)).collect::<Result<Vec<_>, _>>()?;
    let refused = || -> Result<f64> { Ok(server.metrics()?.sum(&["xuid_connections_total", "refused"])) };
    let (mut most, mut turned_away) = (0, 0.0);
    clock::wait_until("all are refused", SLACK, || {
        most = most.max(files()?);
        turned_away = refused()?;
        Ok(turned_away >= 400.0)
    })?;
    println!("last words: {before} files before, {most} at most while {turned_away} were refused");
    ensure!(most <= before + 64 + 8, "{most} files, {before} before");
    clock::wait_until("none is held for long", SLACK, || Ok(files()? <= before + 2))?;
    for stream in &mut connections {
        ensure!(
            read_all(stream)?.contains("max_connections"),
            "each is told why: it sent nothing that could reset it"
        );
    }
    ensure!(first.next(Order::Any)? > 0);
    Ok(())
}

#[test]
fn a_greeting_with_too_many_pings_is_told_so() -> Result<()> {
    let server = Serve::fresh()?.start()?;
    let mut client = Client::preface(server.addr)?;
    let pings: Vec<u64> = (0..40).map(|_| client.push(op::PING, b"let me in")).collect();
    client.flush()?;
    let mut echoes = 0;
    let refused = loop {
        match client.recv() {
            Ok(reply) if reply.status == 0 => echoes += 1,
            Ok(reply) => break reply,
            Err(error) => return Err(error.into()),
        }
    };
    ensure!(
        (refused.status, echoes) == (status::BAD_REQUEST, 16),
        "{refused:?} after {echoes} of {}",
        pings.len()
    );
    match client.recv() {
        Err(ClientError::Ended(error)) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
        other => Err(anyhow::anyhow!("it is closed then, not {other:?}")),
    }
}
