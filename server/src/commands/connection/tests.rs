//! Replies of servers that do not keep to the protocol, and names of servers.

use tokio::net::{TcpListener, TcpSocket};
use xuid_protocol::{Header, HelloReply, Op, Refusal, reply_error, reply_hello};

use super::*;
use crate::fronts::fixture::without_threads;
use crate::net::runtime::runtime;

/// Asks a server that names `max_count` in HELLO for 5 ids, to which it answers `frame`. Returns them, and the memory
/// that the connection has taken to read in.
fn asked(max_count: u32, frame: Vec<u8>) -> (Result<Vec<u64>>, usize) {
    asked_of(1, max_count, frame)
}

/// The same of a server that says that it speaks that version.
fn asked_of(version: u16, max_count: u32, frame: Vec<u8>) -> (Result<Vec<u64>>, usize) {
    let runtime = runtime(1).unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        // It ends with the runtime.
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            let (mut seen, mut hello) = (vec![0; 4096], Vec::new());
            let _preface_and_hello = stream.read(&mut seen).await?;
            let limits = Limits { max_count, ..Limits::default() };
            let reply = HelloReply {
                version,
                features: 0,
                cluster: ClusterId::ANY,
                epoch_ms: 0,
                tick_us: 1_000,
                time_bits: 41,
                worker_bits: 10,
                sequence_bits: 12,
                face: 0,
                limits,
                server: "a liar",
            };
            reply_hello(&mut hello, 1, &reply);
            stream.write_all(&hello).await?;
            let _request = stream.read(&mut seen).await?;
            stream.write_all(&frame).await?;
            while stream.read(&mut seen).await? > 0 {}
            io::Result::Ok(())
        });
        let mut connection = match Connection::connect(&address, None).await {
            Ok(connection) => connection,
            Err(error) => return (Err(error), 0),
        };
        let ids = connection.ids(5, Order::Any).await;
        (ids, connection.inbox.room(0).capacity())
    })
}

/// The reply to an ARRAY of these ids, whose header claims a body of `body_len` bytes.
fn array(body_len: u32, ids: &[u64]) -> Vec<u8> {
    let mut frame = Header::reply(Op::Array, body_len, 2).encode().to_vec();
    frame.extend((ids.len() as u32).to_le_bytes());
    frame.extend([0; 4]);
    frame.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
    frame
}

#[test]
fn a_reply_is_taken_only_with_as_many_ids_as_were_asked_for() {
    assert_eq!(asked(u32::MAX, array(48, &[1, 2, 3, 4, LAST_ID])).0.unwrap(), [1, 2, 3, 4, LAST_ID]);
    for ids in [&[1, 2, 3, 4][..], &[1, 2, 3, 4, 5, 6]] {
        let error = asked(u32::MAX, array(8 + 8 * ids.len() as u32, ids)).0.unwrap_err().to_string();
        assert!(
            error.contains("asked for 5") && error.contains(&format!("answered {}", ids.len())),
            "{error}"
        );
    }
}

#[test]
fn a_version_that_was_not_offered_is_refused() {
    let error = asked_of(2, 10, array(48, &[1, 2, 3, 4, 5])).0.unwrap_err().to_string();
    assert!(error.contains("version 2") && error.contains("version 1"), "{error}");
}

#[test]
fn an_id_of_2_to_the_63_and_above_is_refused() {
    for id in [LAST_ID + 1, u64::MAX] {
        assert!(asked(10, array(48, &[1, 2, id, 4, 5])).0.is_err(), "{id}");
    }
}

#[test]
fn a_reply_longer_than_what_was_asked_for_is_refused_before_memory_is_taken() {
    for max_count in [131_072, 1 << 28, u32::MAX] {
        for claimed in [1 << 20, u32::MAX] {
            let (ids, memory) = asked(max_count, array(claimed, &[]));
            let error = format!("{:#}", ids.unwrap_err());
            assert!(error.contains(&claimed.to_string()), "{max_count}: {error}");
            assert!(memory <= 256 * 1024, "{max_count}: {memory} bytes for a claim of {claimed}");
        }
    }
}

#[test]
fn a_server_that_gives_nothing_at_a_time_is_not_asked_for_ever() {
    assert!(asked(0, array(8, &[])).0.is_err());
}

#[test]
fn the_time_to_come_back_is_said_once() {
    for text in ["no id is held; try again in 940ms", "too many"] {
        let refusal = Refusal::new(Status::OVERLOADED, text).retry_after(Duration::from_millis(940));
        let mut frame = Vec::new();
        reply_error(&mut frame, 2, Op::Array.code(), &refusal);
        let error = asked(10, frame).0.unwrap_err().to_string();
        assert_eq!(error.matches("try again in 940ms").count(), 1, "{error}");
    }
}

#[tokio::test]
async fn an_address_that_is_silent_leaves_time_for_the_next_one() {
    let listen = |backlog| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        socket.listen(backlog).unwrap()
    };
    let (full, open) = (listen(0), listen(16));
    let silent = full.local_addr().unwrap();
    // What fills its backlog; the next one is not answered.
    let mut filling: Vec<_> = (0..4).map(|_| Box::pin(TcpStream::connect(silent))).collect();
    for one in &mut filling {
        let _ = timeout(Duration::from_millis(20), one).await;
    }
    let begun = Instant::now();
    let addresses = [silent, open.local_addr().unwrap()];
    let found = connect(&addresses, begun + Duration::from_secs(2)).await.unwrap();
    assert_eq!(found.peer_addr().unwrap(), addresses[1]);
    assert!(begun.elapsed() >= Duration::from_millis(900), "the first address was silent");
    let none = connect(&addresses[..1], Instant::now() + Duration::from_millis(50)).await;
    assert_eq!(none.unwrap_err().kind(), io::ErrorKind::TimedOut);
}

#[test]
fn a_name_that_no_thread_can_look_up_is_an_error_that_says_so() {
    let without = without_threads();
    let error = without.block_on(Connection::connect("localhost:1", None)).unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("localhost:1") && error.contains("no more threads"), "{error}");
    let error = without.block_on(Connection::connect("127.0.0.1:1", None)).unwrap_err();
    assert!(!format!("{error:#}").contains("threads"), "an address is not looked up: {error:#}");
}
