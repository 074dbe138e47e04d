//! The harness proves itself: ensembles that live and die as they are told, a hand in their tree, faults on the way.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xuid_tests::zookeeper::{Ensemble, Mode, Tamper};
use xuid_tests::{Rng, clock};

const SOON: Duration = Duration::from_secs(15);
/// Makes [`a_server_dies_with_a_test_process_that_is_killed`] the process that is killed.
const VICTIM: &str = "XUID_VICTIM";

#[test]
fn a_lone_server_keeps_its_data_over_a_kill_and_goes_back_to_a_backup() -> Result<()> {
    let begin = clock::now();
    let mut ensemble = Ensemble::start(1)?;
    println!("harness: one server serves after {:?}", begin.elapsed());
    ensure!(ensemble.leader() == Some(0) && ensemble.mode(0) == Some(Mode::Standalone));
    let tamper = Tamper::connect(&ensemble.connect_string())?;
    tamper.create("/old", b"1")?;
    ensemble.stop_all()?;
    ensure!(ensemble.leader().is_none(), "a stopped server answers");
    let backup = ensemble.backup()?;
    ensemble.start_all()?;
    ensemble.wait_serving(SOON)?;
    tamper.create("/new", b"2")?;
    tamper.write("/old", b"3")?;
    ensemble.kill(0)?;
    ensemble.restart(0)?;
    ensemble.wait_serving(SOON)?;
    ensure!(tamper.expect("/new")?.data == b"2" && tamper.expect("/old")?.data == b"3");
    ensemble.kill_all()?;
    ensemble.restore(&backup)?;
    ensemble.start_all()?;
    ensemble.wait_serving(SOON)?;
    ensure!(tamper.read("/new")?.is_none(), "a backup holds what came after it");
    ensure!(tamper.expect("/old")?.data == b"1");
    Ok(())
}

#[test]
fn three_servers_elect_another_leader_when_theirs_is_killed_or_frozen() -> Result<()> {
    let begin = clock::now();
    let mut ensemble = Ensemble::start(3)?;
    println!("harness: three servers serve after {:?}", begin.elapsed());
    let tamper = Tamper::connect(&ensemble.connect_string())?;
    tamper.create("/kept", b"yes")?;
    let first = ensemble.leader().context("no leader")?;
    ensemble.kill(first)?;
    let begin = clock::now();
    let second = ensemble.wait_leader(SOON)?;
    println!("harness: leader {first} killed, {second} leads after {:?}", begin.elapsed());
    ensure!(second != first);
    tamper.write("/kept", b"still")?;
    ensemble.restart(first)?;
    ensemble.wait_serving(SOON)?;
    ensure!(ensemble.mode(first) == Some(Mode::Follower), "{ensemble}");
    ensemble.freeze(second)?;
    let begin = clock::now();
    let third = ensemble.wait_leader(SOON)?;
    println!("harness: leader {second} frozen, {third} leads after {:?}", begin.elapsed());
    ensure!(third != second);
    ensemble.thaw(second)?;
    ensemble.wait_serving(SOON)?;
    ensure!(tamper.expect("/kept")?.data == b"still");
    Ok(())
}

#[test]
fn what_is_dumped_damaged_and_written_back_is_as_it_was() -> Result<()> {
    let ensemble = Ensemble::start(1)?;
    let tamper = Tamper::connect(&ensemble.connect_string())?;
    let mut rng = Rng::from_env("tamper");
    tamper.create("/t", b"root")?;
    tamper.create("/t/w", b"")?;
    for number in 0..20 {
        tamper.create(&format!("/t/w/{number}"), &rng.bytes(512))?;
    }
    let dump = tamper.dump("/t")?;
    ensure!(dump.nodes().count() == 22);
    tamper.write("/t/w/3", b"damage")?;
    ensure!(tamper.delete("/t/w/4")? && !tamper.delete("/t/w/4")?);
    ensure!(tamper.children("/t/w")?.len() == 19);
    ensure!(tamper.expect("/t/w/3")?.stat.version == 1);
    let again = |dump: &xuid_tests::zookeeper::Tree| -> Result<()> {
        tamper.write_back(dump)?;
        let new = tamper.dump("/t")?;
        ensure!(dump.nodes().eq(new.nodes()), "another tree came back");
        Ok(())
    };
    again(&dump)?;
    ensure!(tamper.delete_tree("/t")? == 22 && tamper.read("/t")?.is_none());
    again(&dump)
}

#[test]
fn a_session_that_is_ended_takes_its_ephemeral_node_along() -> Result<()> {
    let ensemble = Ensemble::start(3)?;
    let tamper = Tamper::connect(&ensemble.connect_string())?;
    let holder = Tamper::connect(&ensemble.connect_string())?;
    holder.create_ephemeral("/here")?;
    let before = tamper.expect("/here")?;
    ensure!(before.stat.ephemeral_owner != 0);
    tamper.expire_owner("/here")?;
    ensure!(tamper.read("/here")?.is_none());
    // Its owner has to begin anew, and can.
    holder.create_ephemeral("/here")?;
    ensure!(tamper.expect("/here")?.stat.ephemeral_owner != before.stat.ephemeral_owner);
    Ok(())
}

#[test]
fn a_server_dies_with_a_test_process_that_is_killed() -> Result<()> {
    if std::env::var_os(VICTIM).is_some() {
        let ensemble = Ensemble::start(1)?;
        println!("serving {}", ensemble.connect_string());
        clock::idle(Duration::from_mins(1));
        return Ok(());
    }
    let name = "harness::a_server_dies_with_a_test_process_that_is_killed";
    let mut victim = Command::new(std::env::current_exe()?);
    // It can't clean up after itself.
    let home = TempDir::new()?;
    victim.args(["--exact", name, "--nocapture"]).env(VICTIM, "1").env("TMPDIR", home.path());
    victim.stdout(Stdio::piped());
    let mut victim = victim.spawn()?;
    let lines = BufReader::new(victim.stdout.take().context("no pipe")?).lines().map_while(Result::ok);
    // The harness of tests may have written something on the same line.
    let addr = lines.into_iter().find_map(|line| line.split_once("serving ").map(|(_, addr)| addr.parse()));
    let addr: SocketAddr = addr.context("the victim says nothing")??;
    TcpStream::connect(addr)?;
    victim.kill()?;
    victim.wait()?;
    clock::wait_until("the server is gone too", SOON, || Ok(TcpStream::connect(addr).is_err()))?;
    Ok(())
}
