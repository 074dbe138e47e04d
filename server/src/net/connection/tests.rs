//! A connection with a socket.

use std::pin::pin;

use rustix::net::sockopt::{set_socket_linger, set_socket_send_buffer_size};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use xuid_protocol::{
    Bulk, Hello, Order, PREFACE, SequenceName, request_array, request_hello, request_seq_info,
};

use super::*;
use crate::config::Tokens;
use crate::fronts::buffers::STRANGER_HIGH;
use crate::fronts::fixture::{Home, PATIENCE};
use crate::net::newcomers::Newcomers;

/// As many questions as may wait.
fn questions(server: &Server) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    request_hello(&mut bytes, 1, &Hello::new("test")).unwrap();
    for request_id in 0..server.limits.protocol.max_in_flight {
        request_seq_info(&mut bytes, request_id.into(), SequenceName::new(b"orders").unwrap());
    }
    bytes
}

/// Both ends of a connection, and what the listener knows of it.
async fn connected() -> (TcpStream, TcpStream, Arc<Newcomer>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, peer) = listener.accept().await.unwrap();
    (client, stream, Newcomers::new(16).welcome(peer.ip()))
}

#[test]
fn a_client_that_has_reset_its_connection_is_not_waited_for_and_one_that_only_sends_no_more_is() {
    let (home, asked, may) = Home::with_watched_store();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let http = b"GET /v1/sequences/orders HTTP/1.1\r\nHost: x\r\n\r\n";
    let requests = [
        (Front::Xuid, questions(&home.server)),
        (Front::Resp, b"KEYS *\r\n".to_vec()),
        (Front::Http, http.to_vec()),
    ];
    for (front, request) in requests {
        runtime.block_on(async {
            let (mut client, stream, newcomer) = connected().await;
            client.write_all(&request).await.unwrap();
            client.shutdown().await.unwrap();
            let mut served = pin!(serve(stream, front, Arc::clone(&home.server), newcomer));
            while asked.lock().unwrap().is_empty() {
                assert!(timeout(Duration::from_millis(1), served.as_mut()).await.is_err(), "{front:?}");
            }
            assert!(timeout(2 * FAILURE_LOOK, served.as_mut()).await.is_err(), "{front:?}");
            set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
            drop(client);
            assert!(timeout(PATIENCE, served).await.is_ok(), "{front:?}");
            may.send(()).unwrap();
            asked.lock().unwrap().clear();
        });
    }
}

#[test]
fn a_deadline_closes_nothing_before_what_was_read_in_time_is_answered() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_client, mut stream, newcomer) = connected().await;
        let (reader, writer) = stream.split();
        let session = xuid::Session::new(Home::shared(), None);
        let opened = Instant::now().checked_sub(GREETING_DEADLINE).unwrap();
        let mut connection = Connection::new(reader, writer, session, newcomer, (opened, GREETING_DEADLINE));
        connection.need = Need::Turn;
        assert!(!connection.time_is_over());
        connection.need = Need::Input;
        assert!(connection.time_is_over());
    });
}

#[test]
fn a_client_that_has_shown_no_token_and_reads_nothing_has_little_memory() {
    let home = Home::new(Tokens::of("open sesame"));
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, mut stream, newcomer) = connected().await;
        set_socket_send_buffer_size(&stream, 4096).unwrap();
        let (reader, writer) = stream.split();
        let session = resp::Session::new(Arc::clone(&home.server), None);
        let times = (Instant::now(), GREETING_DEADLINE);
        let mut connection = Connection::new(reader, writer, session, newcomer, times);
        let commands = b"a\n".repeat(8_192);
        // Until the sockets are full.
        let mut last = Instant::now();
        while last.elapsed() < Duration::from_millis(100) {
            if client.try_write(&commands).is_ok() {
                last = Instant::now();
            }
            assert!(timeout(Duration::from_millis(1), connection.run(&home.server)).await.is_err());
        }
        let held = connection.outbox.len();
        assert!((STRANGER_HIGH..STRANGER_HIGH + 1_000).contains(&held), "{held} bytes");
    });
}

#[test]
fn what_lies_behind_a_long_first_reply_is_answered_at_once() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut xuid = PREFACE.to_vec();
    request_hello(&mut xuid, 1, &Hello::new("test")).unwrap();
    for request_id in [2, 3] {
        request_array(&mut xuid, request_id, Bulk::new(1_000, Order::Any, PATIENCE));
    }
    let http = "POST /v1/ids HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n\
                {\"count\":1000}";
    let requests = [
        (Front::Xuid, xuid),
        (Front::Resp, b"XUID.BATCH 1000 @any\r\n".repeat(2)),
        (Front::Http, http.repeat(2).into_bytes()),
    ];
    for (front, requests) in requests {
        runtime.block_on(async {
            let (mut client, stream, newcomer) = connected().await;
            client.write_all(&requests).await.unwrap();
            client.shutdown().await.unwrap();
            let mut replies = Vec::new();
            let served = serve(stream, front, Home::shared(), newcomer);
            let both = async { tokio::join!(served, client.read_to_end(&mut replies)) };
            // Less than the time to greet, behind which a timer would have looked.
            let in_time = timeout(GREETING_DEADLINE / 2, both).await.is_ok();
            assert!(in_time, "{front:?}: {} bytes", replies.len());
            assert!(replies.len() > 2 * STRANGER_HIGH, "{front:?}: {} bytes", replies.len());
        });
    }
}
