//! The proxy proves itself: what it says it lost was lost, and what landed unheard has landed.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use xuid_tests::proxy::{Fault, FaultBurst, Proxy, Target, Way};
use xuid_tests::zookeeper::{Ensemble, Tamper};
use xuid_tests::{Rng, clock};

const SOON: Duration = Duration::from_secs(10);

/// A server, a hand beside the proxy, and one that reaches through it.
fn both_sides() -> Result<(Ensemble, Proxy, Tamper, Tamper)> {
    let ensemble = Ensemble::start(1)?;
    let proxy = Proxy::start(ensemble.addr(0))?;
    let (beside, through) =
        (Tamper::connect(&ensemble.connect_string())?, Tamper::connect(&proxy.addr().to_string())?);
    through.create("/n", b"0")?;
    Ok((ensemble, proxy, beside, through))
}

#[test]
fn a_write_whose_reply_is_lost_has_landed_and_its_writer_is_not_told() -> Result<()> {
    let (_ensemble, proxy, beside, through) = both_sides()?;
    proxy.set(Way::LoseReplies);
    let told = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| -> Result<()> {
            through.write("/n", b"1")?;
            told.store(true, Ordering::Release);
            Ok(())
        });
        clock::wait_until("the write lands", SOON, || Ok(beside.expect("/n")?.data == b"1"))?;
        clock::wait_until("the reply is lost", SOON, || Ok(proxy.landed_unheard() == 1))?;
        ensure!(!told.load(Ordering::Acquire), "the writer was told of a write whose reply was lost");
        ensure!(beside.expect("/n")?.stat.version == 1);
        proxy.set(Way::Pass);
        // The cut tells the writer that it does not know, and this writer then writes again.
        writer.join().expect("a writer that does not panic")
    })?;
    ensure!((proxy.cuts(), proxy.cuts_in_flight()) == (1, 1), "{proxy:?}");
    ensure!(beside.expect("/n")?.stat.version == 2, "one write unheard, one heard");
    Ok(())
}

#[test]
fn each_fault_strikes_one_write_and_cuts_its_connection() -> Result<()> {
    let (_ensemble, proxy, beside, through) = both_sides()?;
    // What was lost on its way in never happens; what was cut right after it may.
    let faults = [
        (Fault::LoseReply, 2..=2),
        (Fault::Stall(Duration::from_millis(100)), 2..=2),
        (Fault::LoseRequest, 1..=1),
        (Fault::Cut, 1..=2),
        (Fault::Reset, 1..=2),
    ];
    for (fault, writes) in faults {
        let (version, cuts) = (beside.expect("/n")?.stat.version, proxy.cuts_in_flight());
        proxy.arm(fault, Target::Write);
        // A read is not what it waits for.
        through.read("/n")?;
        through.write("/n", b"x")?;
        ensure!(proxy.wait_struck(Duration::ZERO), "{fault:?} met a write and did not strike");
        let written = beside.expect("/n")?.stat.version - version;
        println!(
            "proxy: {fault:?}: {written} writes landed, {} cut in flight",
            proxy.cuts_in_flight() - cuts
        );
        ensure!(writes.contains(&written), "{fault:?}: {written} writes landed, not {writes:?}");
        ensure!(proxy.cuts_in_flight() == cuts + 1, "{fault:?} cuts once: {proxy:?}");
    }
    ensure!(proxy.landed_unheard() == 2, "{proxy:?}");
    Ok(())
}

#[test]
fn held_frames_go_on_in_the_end_and_delayed_ones_in_time() -> Result<()> {
    let (_ensemble, proxy, beside, through) = both_sides()?;
    let connections = proxy.connections();
    proxy.set(Way::Delay(Duration::from_millis(100)));
    let begin = clock::now();
    through.read("/n")?;
    ensure!(begin.elapsed() >= Duration::from_millis(200), "there and back took {:?}", begin.elapsed());
    proxy.set(Way::Hold);
    thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| through.write("/n", b"1"));
        // Nothing to wait for: what is to be shown is that nothing happens.
        clock::idle(Duration::from_millis(300));
        ensure!(!writer.is_finished() && beside.expect("/n")?.stat.version == 0, "a held request arrived");
        proxy.set(Way::Pass);
        writer.join().expect("a writer that does not panic")?;
        Ok(())
    })?;
    ensure!(beside.expect("/n")?.stat.version == 1);
    ensure!(
        proxy.connections() == connections && proxy.cuts() == 0,
        "holding costs no connection: {proxy:?}"
    );
    Ok(())
}

#[test]
fn lost_requests_black_holes_and_refusals_keep_a_client_out() -> Result<()> {
    let (_ensemble, proxy, beside, through) = both_sides()?;
    for way in [Way::LoseRequests, Way::BlackHole, Way::Refuse] {
        let version = beside.expect("/n")?.stat.version;
        proxy.set(way);
        thread::scope(|scope| -> Result<()> {
            let writer = scope.spawn(|| through.write("/n", b"1"));
            clock::idle(Duration::from_millis(200));
            ensure!(!writer.is_finished(), "{way:?} let a write through");
            ensure!(beside.expect("/n")?.stat.version == version, "{way:?} let a write through");
            proxy.set(Way::Pass);
            writer.join().expect("a writer that does not panic")?;
            Ok(())
        })?;
        ensure!(beside.expect("/n")?.stat.version == version + 1, "{way:?}: one write in the end");
    }
    Ok(())
}

#[test]
fn a_cut_is_an_end_and_a_reset_is_a_reset_on_the_wire() -> Result<()> {
    let ensemble = Ensemble::start(1)?;
    let proxy = Proxy::start(ensemble.addr(0))?;
    for reset in [false, true] {
        let mut stream = TcpStream::connect(proxy.addr())?;
        stream.set_read_timeout(Some(SOON))?;
        // A whole frame, so that the server has the connection too; it answers with a session.
        let mut hello = vec![0, 0, 0, 45];
        hello.resize(4 + 45, 0);
        hello[18] = 39; // some 10,000 ms of timeout
        hello[4 + 27] = 16; // the length of a password
        stream.write_all(&hello)?;
        stream.read_exact(&mut [0; 4])?;
        if reset {
            proxy.reset();
        } else {
            proxy.cut();
        }
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest).map_err(|error| error.kind());
        println!("proxy: reset {reset}: {end:?}");
        ensure!(end.err() == reset.then_some(ErrorKind::ConnectionReset), "reset {reset}");
    }
    ensure!((proxy.cuts(), proxy.cuts_in_flight()) == (2, 0), "nothing was in flight: {proxy:?}");
    Ok(())
}

#[test]
fn a_burst_of_faults_hits_writes_and_its_toll_adds_up() -> Result<()> {
    let (_ensemble, proxy, beside, through) = both_sides()?;
    let mut rng = Rng::from_env("fault burst");
    let (target, patience, calm) = (Target::Write, Duration::from_secs(2), Duration::from_millis(20));
    let burst = FaultBurst { faults: 60, target, patience, calm };
    let over = AtomicBool::new(false);
    let (toll, heard) = thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<i32> {
            let mut told = 0;
            while !over.load(Ordering::Acquire) {
                through.write("/n", b"1")?;
                told += 1;
            }
            Ok(told)
        });
        let begin = clock::now();
        let toll = burst.run(std::slice::from_ref(&proxy), &mut rng);
        println!("fault burst: {toll} in {:?}", begin.elapsed());
        over.store(true, Ordering::Release);
        (toll, writer.join().expect("a writer that does not panic"))
    });
    let (heard, landed) = (i64::from(heard?), i64::from(beside.expect("/n")?.stat.version));
    let unheard = i64::try_from(proxy.landed_unheard())?;
    println!(
        "fault burst: {landed} writes landed, {heard} were heard of, {unheard} of the others were seen by the proxy"
    );
    ensure!(toll.total() == 60 && toll.plain < 6, "{toll}");
    ensure!(proxy.cuts_in_flight() >= 50, "{proxy:?}");
    ensure!(unheard > 25 && landed - heard >= unheard, "{landed} landed, {heard} heard, {unheard} unheard");
    Ok(())
}
