//! A connection with a socket: what ends it, and when.

mod held;

use std::pin::pin;

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpListener;
use tokio::net::tcp::ReadHalf;
use tokio::runtime::Builder;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
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

/// Sends a request, within TLS where something is trusted, and sends no more. What keeps the connection comes back.
async fn ask(client: TcpStream, trusted: Option<&Arc<ClientConfig>>, request: &[u8]) -> Box<dyn AsyncWrite> {
    let socket = rustix::io::dup(&client).unwrap();
    let mut client: Box<dyn AsyncWrite + Unpin> = match trusted {
        None => Box::new(client),
        Some(trusted) => {
            let name = ServerName::try_from("127.0.0.1").unwrap();
            Box::new(TlsConnector::from(Arc::clone(trusted)).connect(name, client).await.unwrap())
        }
    };
    client.write_all(request).await.unwrap();
    client.flush().await.unwrap();
    shutdown(&socket, Shutdown::Write).unwrap();
    client
}

/// A connection of RESP, of which nothing was read.
fn of_resp<W: Writing>(
    reader: ReadHalf<'_>,
    writer: W,
    newcomer: Arc<Newcomer>,
    times: (Instant, Duration),
) -> Connection<ReadHalf<'_>, W, resp::Session> {
    Connection::new(reader, writer, resp::Session::new(Home::shared(), None), newcomer, times)
}

#[test]
fn a_client_that_has_reset_its_connection_is_not_waited_for_and_one_that_only_sends_no_more_is() {
    for is_tls in [false, true] {
        let (home, asked, may) = Home::with_watched_store();
        let (home, trusted) = if is_tls {
            let (home, trusted) = home.within_tls();
            (home, Some(trusted))
        } else {
            (home, None)
        };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let http = b"GET /v1/sequences/orders HTTP/1.1\r\nHost: x\r\n\r\n";
        let requests = [
            (Front::Xuid, questions(&home.server)),
            (Front::Resp, b"KEYS *\r\n".to_vec()),
            (Front::Http, http.to_vec()),
        ];
        for (front, request) in requests {
            runtime.block_on(async {
                let (client, stream, newcomer) = connected().await;
                let socket = rustix::io::dup(&client).unwrap();
                let mut served = pin!(serve(stream, front, Arc::clone(&home.server), newcomer));
                let client = tokio::select! {
                    client = ask(client, trusted.as_ref(), &request) => client,
                    () = served.as_mut() => panic!("{front:?}, TLS {is_tls}: it is closed"),
                };
                while asked.lock().unwrap().is_empty() {
                    let turn = timeout(Duration::from_millis(1), served.as_mut()).await;
                    assert!(turn.is_err(), "{front:?}, TLS {is_tls}");
                }
                assert!(timeout(2 * FAILURE_LOOK, served.as_mut()).await.is_err(), "{front:?}, TLS {is_tls}");
                set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
                drop((client, socket));
                assert!(timeout(PATIENCE, served).await.is_ok(), "{front:?}, TLS {is_tls}");
                may.send(()).unwrap();
                asked.lock().unwrap().clear();
            });
        }
    }
}

/// What ends the connection of a stranger who never ends the handshake.
#[derive(Debug, Clone, Copy)]
enum Ends {
    Deadline,
    Newcomer,
    Stop,
}

#[test]
fn a_handshake_that_never_ends_is_given_up() {
    for ends in [Ends::Deadline, Ends::Newcomer, Ends::Stop] {
        // Its clock leaps to the next timer when nothing else is to be done.
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (home, _) = Home::new(Tokens::default()).within_tls();
        runtime.block_on(async {
            let (client, stream, _) = connected().await;
            let mut newcomers = Newcomers::new(16);
            let newcomer = newcomers.welcome(client.local_addr().unwrap().ip());
            // The head of a record that does not come.
            client.try_write(&[0x16, 3, 1, 1, 0]).unwrap();
            let mut served = pin!(serve(stream, Front::Xuid, Arc::clone(&home.server), newcomer));
            let before = GREETING_DEADLINE.saturating_sub(Duration::from_secs(1));
            assert!(timeout(before, served.as_mut()).await.is_err(), "{ends:?}");
            let soon = match ends {
                Ends::Deadline => Duration::from_secs(2),
                Ends::Newcomer => {
                    assert!(newcomers.make_room());
                    Duration::from_millis(1)
                }
                Ends::Stop => {
                    home.server.begin_draining();
                    2 * GO_AWAY_GRACE
                }
            };
            assert!(timeout(soon, served).await.is_ok(), "{ends:?}");
        });
    }
}

/// Else the client that its place is for waits in vain, and is refused.
#[test]
fn a_stranger_whose_wrong_token_is_not_answered_yet_makes_room_at_once() {
    let home = Home::new(Tokens::of("open sesame"));
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (client, stream, _) = connected().await;
        let mut newcomers = Newcomers::new(16);
        let newcomer = newcomers.welcome(client.local_addr().unwrap().ip());
        let mut served = pin!(serve(stream, Front::Resp, Arc::clone(&home.server), newcomer));
        assert!(timeout(Duration::from_secs(2), served.as_mut()).await.is_err());
        client.try_write(b"AUTH open-barley\r\n").unwrap();
        assert!(timeout(REJECTION_PAUSE / 10, served.as_mut()).await.is_err());
        assert!(newcomers.make_room());
        assert!(timeout(Duration::from_millis(1), served).await.is_ok());
    });
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
    let mut session = resp::Session::new(Arc::clone(&home.server), None);
    let (mut inbox, mut outbox) = (Inbox::default(), Outbox::of_stranger());
    inbox.room(INBOX_MOST).extend_from_slice(&b"a bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n".repeat(1_024));
    assert_eq!(session.receive(&mut inbox, &mut outbox, usize::MAX), Need::Room);
    let held = outbox.len();
    assert!((STRANGER_HIGH..STRANGER_HIGH + 1_000).contains(&held), "{held} bytes");
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

#[test]
fn a_stranger_that_has_begun_a_command_has_no_more_than_its_time_to_greet_when_the_server_goes() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_client, mut stream, newcomer) = connected().await;
        let (reader, writer) = stream.split();
        let now = Instant::now();
        let opened = now.checked_sub(GREETING_DEADLINE).unwrap();
        let mut connection = of_resp(reader, writer, newcomer, (opened, GREETING_DEADLINE));
        (connection.sent_away, connection.begun) = (Some(opened), Some(now));
        assert!(connection.time_is_over(), "its deadline is over, and would ring at once again and again");
    });
}

/// What it asks for as it is sent away is not looked at before there is room for the reply.
#[test]
fn who_is_sent_away_and_reads_nothing_is_closed_though_a_request_of_it_waits() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let ago = |span| Instant::now().checked_sub(span).unwrap();
    let (home, _asked, _may) = Home::with_watched_store();
    runtime.block_on(async {
        let (_client, mut stream, newcomer) = connected().await;
        let (reader, writer) = stream.split();
        let session = xuid::Session::new(Arc::clone(&home.server), None);
        let times = (Instant::now(), Duration::from_mins(5));
        let mut connection = Connection::new(reader, writer, session, newcomer, times);
        connection.inbox.room(INBOX_MOST).extend_from_slice(&questions(&home.server)[..200]);
        connection.advance();
        assert!(connection.session.in_flight() > 0);
        connection.send_away();
        connection.outbox.append(|out| out.resize(20_000_000, b'x'));
        connection.write_now().unwrap();
        connection.need = Need::Room;
        let mut ring = |active| {
            (connection.active, connection.sent_away) = (active, Some(ago(GO_AWAY_GRACE)));
            connection.time_is_over() || connection.session.is_leaving()
        };
        assert!(!ring(Instant::now()), "it reads");
        assert!((0..100).any(|_| ring(ago(LAST_WRITE))));
    });
}

/// What a client within TLS would write of a request of HTTP.
fn request_within(client: &mut tokio_rustls::client::TlsStream<TcpStream>) -> Vec<u8> {
    let session = client.get_mut().1;
    io::Write::write_all(&mut session.writer(), b"GET /v1/decode/1 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    while session.wants_write() {
        session.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// A client within TLS, and the bytes of a request of HTTP that it has not sent yet.
async fn within_tls(
    client: TcpStream,
    trusted: &Arc<ClientConfig>,
) -> (tokio_rustls::client::TlsStream<TcpStream>, Vec<u8>) {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut client = TlsConnector::from(Arc::clone(trusted)).connect(name, client).await.unwrap();
    let bytes = request_within(&mut client);
    (client, bytes)
}

/// Its record is cut in two on the way, and TLS tells nothing of it before it is whole.
#[test]
fn a_request_that_has_begun_within_tls_is_answered_though_the_server_goes() {
    for is_stopping in [true, false] {
        let (home, trusted) = Home::new(Tokens::default()).within_tls();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, stream, newcomer) = connected().await;
            let served = tokio::spawn(serve(stream, Front::Http, Arc::clone(&home.server), newcomer));
            let (mut client, bytes) = within_tls(client, &trusted).await;
            let (half, rest) = bytes.split_at(bytes.len() - 1);
            client.get_mut().0.write_all(half).await.unwrap();
            sleep(Duration::from_millis(50)).await;
            if is_stopping {
                home.server.begin_draining();
                sleep(3 * GO_AWAY_GRACE).await;
            }
            client.get_mut().0.write_all(rest).await.unwrap();
            let mut said = Vec::new();
            let mut read = async |said: &mut Vec<u8>| {
                while !said.ends_with(b"}") && client.read_buf(said).await.is_ok_and(|count| count > 0) {}
            };
            timeout(PATIENCE, read(&mut said)).await.unwrap();
            let said = String::from_utf8_lossy(&said);
            assert!(said.starts_with("HTTP/1.1 200 "), "stopping: {is_stopping}: {said}");
            assert_eq!(said.contains("Connection: close"), is_stopping, "{said}");
            drop(client);
            timeout(PATIENCE, served).await.unwrap().unwrap();
        });
    }
}

/// Protocols that have no GOAWAY are told nothing, so a byte would keep the connection.
#[test]
fn half_a_command_whose_time_is_over_is_given_no_other_by_one_more_byte() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let ago = |span| Instant::now().checked_sub(span).unwrap();
    for (begun, is_kept) in [(None, true), (Some(ago(FRAME_DEADLINE)), false)] {
        runtime.block_on(async {
            let (_client, mut stream, newcomer) = connected().await;
            let (reader, writer) = stream.split();
            let times = (ago(FRAME_DEADLINE), Duration::from_secs(5));
            let mut connection = of_resp(reader, writer, newcomer, times);
            connection.inbox.room(INBOX_MOST).extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
            connection.advance();
            assert!(connection.session.was_greeted());
            (connection.begun, connection.active) = (begun, ago(FRAME_DEADLINE));
            connection.outbox.consume(connection.outbox.len());
            assert!(!connection.time_is_over(), "it is sent away");
            assert!(connection.sent_away.is_some());
            connection.was_read(1);
            assert_eq!(connection.sent_away.is_none(), is_kept);
        });
    }
}
