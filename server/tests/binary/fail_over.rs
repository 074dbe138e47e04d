//! What `xuid next` makes of servers that end in the middle of a list, and of one whose clock is behind.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use xuid_protocol::{ClusterId, Header, HelloReply, Limits, Op, Refusal, Status, reply_error, reply_hello};

use crate::support::{failure, run, stdout};

/// What a server answers on one connection before it ends it: ids, two a request.
type Answers = &'static [[u64; 2]];

/// A server whose ids are these, a list for each connection.
fn server(connections: &'static [Answers]) -> SocketAddr {
    server_that_waits(connections, Duration::ZERO)
}

/// The same, which takes its time before it ends a connection on which there is a request still.
fn server_that_waits(connections: &'static [Answers], wait: Duration) -> SocketAddr {
    server_that_ends(connections, wait, false)
}

/// The same, which says there that it stops, if it is stopping.
fn server_that_ends(connections: &'static [Answers], wait: Duration, is_stopping: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        connections.iter().try_for_each(|answers| serve(&listener, answers, wait, is_stopping))
    });
    address
}

fn serve(listener: &TcpListener, answers: Answers, wait: Duration, is_stopping: bool) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    // Each is one write of a client that waits for the reply.
    let mut request = [0; 4096];
    let _preface_and_hello = stream.read(&mut request)?;
    let mut out = Vec::new();
    let reply = HelloReply {
        version: 1,
        features: 0,
        cluster: ClusterId::ANY,
        epoch_ms: 0,
        tick_us: 1_000,
        time_bits: 41,
        worker_bits: 10,
        sequence_bits: 12,
        face: 0,
        limits: Limits { max_count: 2, ..Limits::default() },
        server: "a fake",
    };
    reply_hello(&mut out, 1, &reply);
    stream.write_all(&out)?;
    for (request_id, ids) in (2..).zip(answers) {
        let _array = stream.read(&mut request)?;
        out.clear();
        out.extend(Header::reply(Op::Array, 8 + 8 * 2, request_id).encode());
        out.extend([2, 0, 0, 0, 0, 0, 0, 0]);
        out.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
        stream.write_all(&out)?;
    }
    let _array = stream.read(&mut request)?;
    if is_stopping {
        out.clear();
        let refusal = Refusal::new(Status::SHUTTING_DOWN, "it stops");
        reply_error(&mut out, 2 + answers.len() as u64, Op::Array.code(), &refusal);
        stream.write_all(&out)?;
    }
    std::thread::sleep(wait);
    Ok(())
}

/// After a lost connection, and without one.
const LOWER: [&[Answers]; 2] = [&[&[[10, 11]], &[[12, 9], [13, 14]]], &[&[[10, 11], [12, 12]]]];

#[test]
fn an_ordered_list_ends_with_a_reason_where_another_connection_answers_with_less() {
    let list = |connections: &'static [Answers], order, more: &[&str]| {
        let address = server(connections).to_string();
        run(&[&["next", "-n", "6", "--order", order, "--server", &address], more].concat())
    };
    for lower in LOWER {
        let output = list(lower, "ordered", &[]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "10\n11\n12\n");
        let (code, said) = failure(&output);
        let words = ["which is not above 12", "one server only"];
        assert!(code == Some(1) && words.iter().all(|word| said.contains(word)), "{code:?}: {said}");
    }
    // Where they rise it goes on, and any other order asks nothing of the kind.
    let risen: &'static [Answers] = &[&[[10, 11]], &[[12, 13], [14, 15]]];
    assert_eq!(stdout(&list(risen, "ordered", &[])).lines().count(), 6);
    let json = stdout(&list(risen, "ordered", &["--json"]));
    assert_eq!(json, "[\"10\", \"11\", \"12\", \"13\", \"14\", \"15\"]\n");
    assert_eq!(stdout(&list(&[&[[10, 11]], &[[1, 2], [3, 4]]], "any", &[])).lines().count(), 6);
}

/// As what stands between ends connections on which nothing comes for some seconds, in front of a server that has no ids yet.
#[test]
fn a_question_that_is_ended_without_an_answer_is_not_asked_for_ever() {
    // One that was answered is asked for once more, and no oftener.
    let cases: [&'static [Answers]; 2] = [&[&[], &[], &[], &[]], &[&[[10, 11]], &[], &[], &[]]];
    for connections in cases {
        // Longer than the shortest idle time of a server.
        let address = server_that_waits(connections, Duration::from_millis(1_200)).to_string();
        let (code, said) = failure(&run(&["next", "-n", "4", "--server", &address]));
        let words = format!("{address} closed the connection");
        assert!(code == Some(1) && said.contains(&words), "{code:?}: {said}");
    }
}

#[test]
fn a_list_goes_on_at_the_next_server_where_one_says_that_it_stops() {
    let stops = || server_that_ends(&[&[[10, 11]]], Duration::from_secs(1), true).to_string();
    let both = format!("{},{}", stops(), server(&[&[[12, 13]]]));
    assert_eq!(stdout(&run(&["next", "-n", "4", "--server", &both])), "10\n11\n12\n13\n");
    // Before anything was answered, too.
    let leaves = || server_that_ends(&[&[]], Duration::from_secs(1), true).to_string();
    let both = format!("{},{}", leaves(), server(&[&[[12, 13]]]));
    assert_eq!(stdout(&run(&["next", "-n", "2", "--server", &both])), "12\n13\n");
    let (code, said) = failure(&run(&["next", "--server", &format!("{},{}", leaves(), leaves())]));
    assert!(code == Some(1) && said.contains("it stops"), "{code:?}: {said}");
    // There is no other one.
    let (code, said) = failure(&run(&["next", "-n", "4", "--server", &stops()]));
    assert!(code == Some(1) && said.contains("it stops"), "{code:?}: {said}");
}
