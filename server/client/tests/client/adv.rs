//! Adversary B: what the mends of the fork, of endless durations and of strangers' texts leave open.

use std::process::Command;
use std::time::Duration;

use xuid_client::{Client, ClientError, Options, Order, PrefetchOptions};
use xuid_protocol::{Refusal, Status};

use crate::fake::{Asked, Fake, quick, soon};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

#[tokio::test]
async fn pauses_without_an_end_are_no_panic() {
    let fake = Fake::start(1).await;
    let forever = Duration::MAX;
    let options =
        Options::new().backoff(forever, forever).retry_for(forever).connect_timeout(forever).timeout(forever);
    let (client, mut peer) = fake.pair(options).await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.next(Order::Any).await }
    });
    peer.overload(Duration::from_millis(1)).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!call.is_finished(), "it waits for ever, as it was told: {:?}", call.await);
}

#[tokio::test]
async fn a_prefetch_with_pauses_without_an_end_is_not_closed() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(Options::new().backoff(Duration::MAX, Duration::MAX)).await;
    let source = client.prefetch(PrefetchOptions::new().wait(Duration::from_millis(300))).unwrap();
    peer.overload(Duration::from_millis(1)).await;
    let error = soon(source.ids().next()).await.unwrap_err();
    assert!(!matches!(error, ClientError::Closed), "{error:?}");
}

#[tokio::test]
async fn a_text_of_a_server_stands_in_one_line_of_a_log() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick()).await;
    let text = "\u{1b}[2J\n2026-11-23T00:00:00Z ERROR billing: forged";
    let refusal = Refusal::new(Status::EXHAUSTED, text);
    let (next, ()) = tokio::join!(client.next(Order::Any), peer.refuse(&refusal));
    let said = next.unwrap_err().to_string();
    assert!(!said.contains(char::is_control), "{said:?}");
}

/// A server with `--wait 30s` and a client with the default timeout of 10 s, a hundred times as fast. The server lives,
/// waits with NEXT as it was told to, and would answer a PING at once.
#[tokio::test]
async fn a_next_that_the_server_waits_with_ends_no_call_that_may_wait_longer() {
    let fake = Fake::start(1).await;
    let (client, mut peer) = fake.pair(quick().timeout(Duration::from_millis(100))).await;
    let wait = Duration::from_secs(5);
    let long = tokio::spawn({
        let client = client.clone();
        async move { client.array(1, Order::Any, wait).await }
    });
    let array = peer.expect(Asked::Array(xuid_protocol::Bulk::new(1, Order::Any, wait))).await;
    let next = tokio::spawn({
        let client = client.clone();
        async move { client.next(Order::Any).await }
    });
    let request_id = peer.expect(Asked::Next(Order::Any)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    // The link is free to ask whether anybody is there.
    let _ = peer.try_send(|out| xuid_protocol::reply_id(out, request_id, 8)).await;
    let _ = peer
        .try_send(|out| {
            let mut writer = xuid_protocol::ArrayWriter::begin(out, array, 1);
            writer.run(7, 1);
            writer.finish();
        })
        .await;
    let _gave_up = next.await;
    let long = soon(long).await.unwrap();
    assert!(matches!(&long, Ok(ids) if ids[..] == [7]), "0.3 s of its 5 s were over: {long:?}");
}

/// A process that was stopped wakes with replies in its socket.
#[test]
fn a_stopped_process_with_several_threads_wakes_to_replies_and_no_errors() {
    const NAME: &str = "adv::a_stopped_process_with_several_threads_wakes_to_replies_and_no_errors";
    // The control: one thread, and no error.
    let runtime = if std::env::var("XUID_ADV_SINGLE").is_ok() && std::env::var("XUID_ADV_ADDR").is_ok() {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    } else {
        runtime()
    };
    if let Ok(addr) = std::env::var("XUID_ADV_ADDR") {
        runtime.block_on(async {
            let client = Client::connect(addr, quick().timeout(Duration::from_millis(200))).await.unwrap();
            let calls: Vec<_> = (0..32)
                .map(|_| {
                    let client = client.clone();
                    tokio::spawn(async move {
                        let begin = tokio::time::Instant::now();
                        let (mut good, mut bad, mut last) = (0_u32, 0_u32, String::new());
                        while begin.elapsed() < Duration::from_secs(12) {
                            match client.next(Order::Any).await {
                                Ok(_) => good += 1,
                                Err(error) => {
                                    bad += 1;
                                    last = error.to_string();
                                }
                            }
                        }
                        (good, bad, last)
                    })
                })
                .collect();
            let (mut good, mut bad, mut last) = (0, 0, String::new());
            for call in calls {
                let one = call.await.unwrap();
                good += one.0;
                bad += one.1;
                if !one.2.is_empty() {
                    last = one.2;
                }
            }
            println!("RESULT {good} good, {bad} bad, {last}");
        });
        return;
    }
    let output = runtime.block_on(async {
        let fake = Fake::start(1).await;
        let addr = fake.addr.to_string();
        // Each reply takes 30 ms, so that nearly every request is on its way when the client is stopped, and is answered then.
        let links = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = std::sync::Arc::clone(&links);
        tokio::spawn(async move {
            loop {
                let Ok(mut peer) = fake.try_accept().await else { continue };
                let (cluster, limits) = (fake.cluster, fake.limits);
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                tokio::spawn(async move {
                    let Some((request_id, _)) = peer.try_hello().await else { return };
                    let _ = peer.try_welcome(request_id, cluster, limits).await;
                    loop {
                        let mut asked = Vec::new();
                        match tokio::time::timeout(Duration::from_secs(15), peer.ask()).await {
                            Ok(Some((request_id, _))) => asked.push(request_id),
                            _ => return,
                        }
                        tokio::time::sleep(Duration::from_millis(30)).await;
                        while let Ok(Some((request_id, _))) =
                            tokio::time::timeout(Duration::ZERO, peer.ask()).await
                        {
                            asked.push(request_id);
                        }
                        let send = peer
                            .try_send(|out| asked.iter().for_each(|id| xuid_protocol::reply_id(out, *id, 1)));
                        if send.await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", NAME])
            .env("XUID_ADV_ADDR", addr)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id().to_string();
        tokio::time::sleep(Duration::from_millis(500)).await;
        for _ in 0..24 {
            Command::new("kill").args(["-STOP", &pid]).status().unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            Command::new("kill").args(["-CONT", &pid]).status().unwrap();
            tokio::time::sleep(Duration::from_millis(80)).await;
        }
        let output = tokio::task::spawn_blocking(|| child.wait_with_output().unwrap()).await.unwrap();
        println!("{links:?} links");
        output
    });
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = told.lines().find(|line| line.contains("RESULT")).unwrap_or_default().to_owned();
    assert!(told.contains(" 0 bad"), "24 stops: {told}");
}
