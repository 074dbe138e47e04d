//! From SIGTERM to the exit: a lame duck serves on, a drain ends, and a stop calls exit in time on a disk that hangs.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use tempfile::TempDir;
use xuid_tests::{Client, Ledger, LoopDisk, Order, Serve, Server, clock, http, op, process};

/// What a stop has after its drain.
const LAST_SECOND: Duration = Duration::from_secs(1);
/// How much later a busy machine may run what is due.
const SLACK: Duration = Duration::from_secs(2);
/// A process that the kernel lets go of ends within this.
const LIMIT: Duration = Duration::from_secs(20);

/// Asks for many times what is minted within a minute, and reads nothing of it.
fn ask_for_too_much(server: &Server) -> Result<Client> {
    let mut client = server.client()?;
    for _ in 0..400 {
        let (count, wait) = (131_072_u32.to_le_bytes(), 60_000_u32.to_le_bytes());
        client.push(op::RUNS, &[&count[..], &wait, &[1, 0, 0, 0]].concat());
    }
    client.flush()?;
    client.recv()?;
    Ok(client)
}

#[test]
fn a_lame_duck_is_unready_and_serves_old_and_new_clients_until_its_time_is_over() -> Result<()> {
    let lame_duck = Duration::from_millis(1_500);
    let mut server = Serve::fresh()?.arg("--lame-duck").arg("1500ms").start()?;
    let mut before = server.client()?;
    before.next(Order::Any)?;
    let begin = clock::now();
    process::terminate(server.child())?;
    let is_unready = || Ok(http::get(server.admin, "/readyz")?.0 == 503);
    clock::wait_until("it is unready", SLACK, is_unready)?;
    let (_, why) = http::get(server.admin, "/readyz")?;
    ensure!(why.contains("shutting down"), "{why}");
    ensure!(http::get(server.admin, "/livez")?.0 == 200, "a lame duck is alive");
    let mut asked = 0;
    while begin.elapsed() < lame_duck / 2 {
        before.next(Order::Any)?;
        server.client()?.next(Order::Any)?;
        asked += 1;
    }
    println!("lame duck: {asked} new clients served after the signal");
    ensure!(asked > 0, "this machine took {:?} to say that it is unready", begin.elapsed());
    before.goaway()?;
    let sent_away = begin.elapsed();
    ensure!(sent_away >= lame_duck, "sent away after {sent_away:?}");
    let closed = || Ok(TcpStream::connect(server.addr).is_err());
    clock::wait_until("its port is closed", SLACK, closed)?;
    let status = process::wait_exit(server.child_mut(), LAST_SECOND + SLACK)?;
    ensure!(status.code() == Some(0), "a clean stop ended with {status:?}\n{server}");
    Ok(())
}

/// Sends each request to the first server while `/readyz` of it is 200, looked at every so often, else to the second.
struct Balancer {
    first: SocketAddr,
    second: SocketAddr,
    is_ready: AtomicBool,
    is_over: AtomicBool,
}

impl Balancer {
    fn watch(&self, admin: SocketAddr, every: Duration) {
        while !self.is_over.load(Ordering::Relaxed) {
            let is_ready = http::get(admin, "/readyz").is_ok_and(|(status, _)| status == 200);
            self.is_ready.store(is_ready, Ordering::Relaxed);
            clock::idle(every);
        }
    }

    /// Requests on a connection each, until it is over; how many the two servers had.
    fn ask(&self) -> Result<[u64; 2]> {
        let mut had = [0; 2];
        while !self.is_over.load(Ordering::Relaxed) {
            let is_ready = self.is_ready.load(Ordering::Relaxed);
            let addr = if is_ready { self.first } else { self.second };
            Client::connect(addr)?
                .next(Order::Any)
                .with_context(|| format!("ready: {is_ready}, after {had:?}"))?;
            had[usize::from(!is_ready)] += 1;
        }
        Ok(had)
    }
}

#[test]
fn no_request_fails_behind_a_balancer_when_a_server_stops_under_load() -> Result<()> {
    let mut stopping = Serve::fresh()?.arg("--lame-duck").arg("4s").start()?;
    let staying = Serve::fresh()?.start()?;
    let balancer = Balancer {
        first: stopping.addr,
        second: staying.addr,
        is_ready: AtomicBool::new(true),
        is_over: AtomicBool::new(false),
    };
    let admin = stopping.admin;
    thread::scope(|scope| {
        scope.spawn(|| balancer.watch(admin, Duration::from_secs(1)));
        let askers: Vec<_> = (0..4).map(|_| scope.spawn(|| balancer.ask())).collect();
        clock::idle(Duration::from_secs(1));
        let ended = process::terminate(stopping.child())
            .and_then(|()| process::wait_exit(stopping.child_mut(), LIMIT));
        balancer.is_over.store(true, Ordering::Relaxed);
        for asker in askers {
            let had = asker.join().map_err(|_| anyhow!("a client panicked"))??;
            println!("balancer: {had:?} requests to the server that stopped and to the other");
            ensure!(had[0] > 0 && had[1] > 0, "it shows nothing: {had:?}");
        }
        ensure!(ended?.code() == Some(0), "{stopping}");
        Ok(())
    })
}

#[test]
fn a_drain_ends_after_its_time_and_the_stop_is_a_clean_one() -> Result<()> {
    for (drain, time) in [("0", Duration::ZERO), ("1s", Duration::from_secs(1))] {
        let mut server = Serve::fresh()?.arg("--drain").arg(drain).start()?;
        let greedy = ask_for_too_much(&server)?;
        let begin = clock::now();
        process::terminate(server.child())?;
        let status = process::wait_exit(server.child_mut(), time + LAST_SECOND + SLACK)?;
        let took = begin.elapsed();
        println!("drain of {drain}: exit after {took:?}");
        ensure!(took >= time, "it ended {took:?} after the signal, and had {time:?} to drain");
        ensure!(status.code() == Some(0), "a clean stop ended with {status:?}\n{server}");
        let log = server.log();
        ensure!(log.contains("some connections did not finish") && log.contains("stopped issued="), "{log}");
        drop(greedy);
    }
    Ok(())
}

#[test]
fn a_stop_on_a_frozen_disk_closes_every_socket_says_what_may_be_lost_and_calls_exit_in_time() -> Result<()> {
    let home = TempDir::new()?;
    let Some(disk) = LoopDisk::new("a stop on a frozen disk", home.path())? else { return Ok(()) };
    let data = disk.dir().join("data");
    let drain = Duration::from_secs(1);
    let mut ledger = Ledger::default();
    let serve = |threads: &str| {
        Serve::new(&data).map(|serve| serve.arg("--drain").arg("1s").arg("--threads").arg(threads))
    };
    for threads in ["1", "2"] {
        let mut server = serve(threads)?.start()?;
        server.drain(100_000, &mut ledger)?;
        let mut clients = vec![server.client()?, server.client()?, ask_for_too_much(&server)?];
        let frozen = disk.freeze()?;
        let begin = clock::now();
        process::terminate(server.child())?;
        let has_exited = || process::has_called_exit(server.pid());
        clock::wait_until("it has called exit", drain + LAST_SECOND + SLACK, has_exited)?;
        let took = begin.elapsed();
        println!("frozen disk, {threads} threads: exit after {took:?}");
        let log = server.log();
        let last = log.lines().last().unwrap_or_default();
        ensure!(last.starts_with("xuid: the engine did not stop within 2s"), "{server}");
        ensure!(last.contains("may be lost, and no id repeats"), "{server}");
        // The process is still there, held by a thread in the kernel; its sockets are not.
        for client in &mut clients {
            client.set_read_limit(Duration::from_secs(5))?;
            client.read_to_end()?;
        }
        ensure!(TcpStream::connect(server.addr).is_err() && TcpStream::connect(server.admin).is_err());
        drop(frozen);
        let status = process::wait_exit(server.child_mut(), LIMIT)?;
        ensure!(status.code() == Some(1), "it ended with {status:?}");
    }
    let server = serve("2")?.start()?;
    server.drain(100_000, &mut ledger)?;
    server.stop()?;
    println!("frozen disk: {}", ledger.check()?);
    Ok(())
}
