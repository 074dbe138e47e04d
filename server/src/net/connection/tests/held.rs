//! What a connection holds of memory, of which there is no more than its account has, whatever its client does not read or end.

use std::task::Context;

use super::*;
use crate::net::connection::held::{TLS_BUFFER, UNREAD_PACE, UNREAD_SPAN};
use crate::net::stream::Pushed;
use crate::state::unread::{Unread, UnreadPart};

/// What it holds is memory that others need.
#[test]
fn a_client_that_reads_nothing_is_closed_soon_where_all_hold_too_much_and_has_its_time_where_not() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let ago = |span| Instant::now().checked_sub(span).unwrap();
    for (most, is_closed) in [(usize::MAX, false), (24_000_000, true), (1_000_000, true)] {
        runtime.block_on(async {
            let (_client, mut stream, newcomer) = connected().await;
            let (reader, writer) = stream.split();
            let times = (Instant::now(), Duration::from_mins(5));
            let mut connection = of_resp(reader, writer, newcomer, times);
            connection.held.unread = UnreadPart::new(Arc::new(Unread::up_to(most, 1)));
            connection.outbox.widen();
            connection.outbox.append(|out| out.resize(20_000_000, b'x'));
            // Until the sockets are full.
            connection.write_now().unwrap();
            assert!(connection.outbox.len() > 1_000_000);
            connection.note_unread();
            assert!(connection.due() <= Instant::now() + UNREAD_LOOK, "it is looked at");
            assert!(!connection.time_is_over(), "not at once");
            let mut ring = |active| {
                (connection.active, connection.held.looked) = (active, ago(UNREAD_LOOK));
                let is_over = connection.time_is_over();
                assert!(is_over || connection.due() > Instant::now(), "it rings again and again");
                is_over
            };
            assert_eq!((0..100).any(|_| ring(ago(UNREAD_LOOK))), is_closed, "it takes nothing");
            assert!(!ring(Instant::now()), "it takes some");
            for (written, is_slow) in [(UNREAD_PACE, false), (UNREAD_PACE - 1, true)] {
                (connection.held.since, connection.held.written) = (Some(ago(UNREAD_SPAN)), written);
                (connection.active, connection.held.looked) = (Instant::now(), ago(UNREAD_LOOK));
                assert_eq!(connection.time_is_over(), is_closed && is_slow, "{written} bytes in a span");
            }
            // A look that comes late says nothing of the client: this process stood.
            (connection.held.since, connection.held.written) = (Some(ago(UNREAD_SPAN)), 0);
            (connection.active, connection.held.looked) = (Instant::now(), ago(3 * UNREAD_LOOK));
            assert!(!connection.time_is_over(), "it was not looked at meanwhile");
            let has_its_time = connection.held.since > Some(ago(UNREAD_LOOK));
            assert_eq!(has_its_time, is_closed, "from now on, where it would be closed");
            // What it has read takes no part.
            let left = connection.outbox.len() - 1_000;
            connection.outbox.consume(left);
            (connection.active, connection.held.looked) = (ago(UNREAD_LOOK), ago(UNREAD_LOOK));
            assert!(!connection.time_is_over(), "a thousand bytes are left");
            assert_eq!(connection.held.unread.counts(), !is_closed, "and no more memory, where it is wanted");
            connection.outbox.append(|out| out.resize(20_000_000, b'x'));
            // One that is to go has its own time.
            connection.need = Need::End;
            let mut rings = (0..100).map(|_| {
                connection.active = ago(LAST_WRITE);
                connection.time_is_over()
            });
            assert!(rings.any(|is_over| is_over));
        });
    }
}

/// One that reads all may have as many waiting as ever while others leave their replies unread, but where very many wait.
#[test]
fn few_requests_wait_of_those_who_do_not_read_and_of_all_where_very_many_do() {
    let server = Home::shared();
    let unread = Arc::new(Unread::up_to(1_000_000, 1));
    let waits = Arc::new(Unread::up_to(1_000_000, 1_000));
    let new = || {
        let mut held = Held::new(&server, Instant::now());
        held.unread = UnreadPart::new(Arc::clone(&unread));
        held.waits = UnreadPart::new(Arc::clone(&waits));
        held
    };
    let (mut one, mut other, reads) = (new(), new(), new());
    one.note_unread(700_000, true);
    assert!(!one.lets_few_wait(false), "there is room for more");
    other.note_unread(100_000, true);
    assert!(one.lets_few_wait(true) && reads.lets_few_wait(false) && !reads.lets_few_wait(true));
    one.note_unread(0, true);
    assert!(!other.lets_few_wait(false));
    one.note_waits(1_024 * 512);
    other.note_waits(512 * 512);
    assert!(!reads.lets_few_wait(true));
    other.note_waits(1_024 * 512);
    assert!(reads.lets_few_wait(true));
    drop(other);
    assert!(!reads.lets_few_wait(true));
}

/// A client that has read all for a moment, and has as much unread again, is no faster for that.
#[test]
fn a_span_goes_on_over_moments_at_which_all_was_read() {
    let server = Home::shared();
    let all = Arc::new(Unread::up_to(1_000_000, 1_000));
    let mut held = Held::new(&server, Instant::now());
    held.unread = UnreadPart::new(Arc::clone(&all));
    held.note_unread(900_000, true);
    let began = Instant::now().checked_sub(UNREAD_SPAN + Duration::from_secs(1)).unwrap();
    held.since = Some(began);
    for bytes in [0, 900_000, 0, 900_000] {
        held.note_unread(bytes, true);
    }
    assert!(held.since.is_some_and(|since| since >= began && since < began + Duration::from_secs(1)));
    assert!(held.is_slow(Instant::now(), false));
    // A pause in which all was read is none of it.
    held.since = Some(began);
    held.note_unread(0, true);
    held.clear = held.clear.map(|clear| clear.checked_sub(Duration::from_secs(5)).unwrap());
    held.note_unread(900_000, true);
    assert!(!held.is_slow(Instant::now(), false));
}

/// What TLS is while its client reads nothing: it takes so much, and the socket has none of it.
struct Clogged {
    is_flushed: bool,
}

impl Writing for Clogged {
    fn is_flushed(&self) -> bool {
        self.is_flushed
    }

    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.try_write(bytes))
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<Pushed> {
        Ok(Pushed { taken: bytes.len(), moved: false })
    }
}

#[test]
fn what_tls_keeps_of_replies_is_memory_that_counts() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let times = (Instant::now(), Duration::from_mins(5));
        let all = Arc::new(Unread::up_to(1_000_000, 1_000));
        let (_client, mut stream, newcomer) = connected().await;
        let (reader, _) = stream.split();
        let writer = Clogged { is_flushed: false };
        let mut clogged = of_resp(reader, writer, newcomer, times);
        clogged.held.unread = UnreadPart::new(Arc::clone(&all));
        for (taken, counted) in [(5_000, 0), (20_000, 25_000), (100_000, TLS_BUFFER)] {
            clogged.outbox.append(|out| out.resize(taken, b'x'));
            clogged.write_now().unwrap();
            clogged.note_unread();
            assert_eq!(all.held(), counted);
        }
        clogged.writer.is_flushed = true;
        clogged.note_unread();
        assert_eq!(all.held(), 0);
    });
}

/// Requests that were read, and that wait until the client reads the replies before them.
#[test]
fn what_was_read_behind_unread_replies_is_memory_that_counts() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let times = (Instant::now(), Duration::from_mins(5));
        let all = Arc::new(Unread::up_to(1_000_000, 1_000));
        let (_client, mut stream, newcomer) = connected().await;
        let (reader, _) = stream.split();
        let mut blocked = of_resp(reader, Clogged { is_flushed: false }, newcomer, times);
        blocked.held.unread = UnreadPart::new(Arc::clone(&all));
        blocked.inbox.room(INBOX_MOST).resize(40_000, b'x');
        for (need, flushed, counted) in [
            (Need::Room, false, 40_000),
            (Need::Turn, false, 0),
            (Need::Room, false, 40_000),
            (Need::Room, true, 0),
        ] {
            blocked.need = need;
            blocked.writer.is_flushed = flushed;
            blocked.note_unread();
            assert_eq!(all.held(), counted, "{need:?}");
        }
    });
}

#[test]
fn half_a_record_is_memory_that_counts_and_has_the_time_of_half_a_request() {
    let (home, trusted) = Home::new(Tokens::default()).within_tls();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, stream, newcomer) = connected().await;
        let config = home.server.access.tls_for_clients().unwrap();
        let shaking = handshake::accept(stream, config, |_| Vec::new());
        let (tls, (mut client, bytes)) = tokio::join!(shaking, within_tls(client, &trusted));
        let Ok(tls) = tls else { panic!("no TLS") };
        let tls = Mutex::new(tls);
        let times = (Instant::now(), Duration::from_mins(5));
        let session = http::Session::new(Arc::clone(&home.server), None);
        let mut half = Connection::new(TlsHalf(&tls), TlsHalf(&tls), session, newcomer, times);
        half.newcomer.greeted();
        client.get_mut().0.write_all(&bytes[..bytes.len() - 1]).await.unwrap();
        let found = read(&mut half.reader, &mut half.inbox, (4_096, false), half.below).await.unwrap();
        assert_eq!(found, None, "it is told once");
        half.below = half.reader.half();
        let again = read(&mut half.reader, &mut half.inbox, (4_096, false), half.below);
        assert!(timeout(Duration::from_millis(50), again).await.is_err());
        let (below, since) = half.reader.half().unwrap();
        assert!((bytes.len() - 1..=bytes.len() + 1_024).contains(&below), "{below}");
        assert_eq!(half.begun(), Some(since));
        half.held.half = UnreadPart::new(Arc::new(Unread::of_begun(1_000_000, 1_000_000)));
        assert!(!half.has_too_much_begun());
        client.get_mut().0.write_all(&bytes[bytes.len() - 1..]).await.unwrap();
        let found = read(&mut half.reader, &mut half.inbox, (4_096, false), half.below).await.unwrap();
        assert!(
            found.is_some_and(|count| count > 0) && half.reader.half().is_none() && half.begun().is_none()
        );
        // Behind a time in which this process stood: half of a request lies in the socket.
        half.session.receive(&mut half.inbox, &mut half.outbox, usize::MAX);
        half.outbox.consume(half.outbox.len());
        let bytes = request_within(&mut client);
        half.active = Instant::now().checked_sub(Duration::from_mins(6)).unwrap();
        client.get_mut().0.write_all(&bytes[..bytes.len() - 1]).await.unwrap();
        sleep(Duration::from_millis(50)).await;
        assert!(!half.time_is_over() && half.sent_away.is_none(), "it has begun");
        assert!(half.begun().is_some_and(|since| since.elapsed() < PATIENCE));
        assert!(half.due() > Instant::now());
        // While it is our turn nothing counts, nor does the time.
        half.held.half = UnreadPart::new(Arc::new(Unread::of_begun(0, 1_000_000)));
        half.need = Need::Room;
        assert!(half.begun().is_none() && !half.has_too_much_begun());
    });
}

/// A command waits for ids, its client reads all, and has sent far more behind it.
#[test]
fn what_was_read_behind_a_request_that_waits_is_memory_that_counts_and_little_is_read_where_that_is_too_much()
{
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let times = (Instant::now(), Duration::from_mins(5));
        let all = Arc::new(Unread::up_to(100_000, 1_000));
        let (client, mut stream, newcomer) = connected().await;
        let (reader, _) = stream.split();
        let mut waits = of_resp(reader, Clogged { is_flushed: true }, newcomer, times);
        waits.outbox.widen();
        waits.held.waits = UnreadPart::new(Arc::clone(&all));
        waits.inbox.room(INBOX_MOST).resize(60_000, b'x');
        waits.need = Need::Room;
        waits.note_unread();
        assert!((60_000..=70_000).contains(&all.held()), "{}", all.held());
        assert!(!waits.is_tight());
        let mut other = UnreadPart::new(Arc::clone(&all));
        other.set(60_000);
        waits.outbox.let_few_wait(waits.held.lets_few_wait(true));
        assert!(waits.is_tight());
        // A few bytes count nowhere, and have no more memory, however much of it there is.
        drop(other);
        waits.outbox.let_few_wait(false);
        waits.inbox.consume(59_000);
        waits.note_unread();
        assert_eq!((waits.inbox.room(1).capacity(), all.held()), (1_000, 0));
        waits.inbox.consume(1_000);
        waits.outbox.let_few_wait(true);
        client.writable().await.unwrap();
        client.try_write("x".repeat(60_000).as_bytes()).unwrap();
        let longest = waits.session.longest_request();
        let is_tight = waits.is_tight();
        let count = read(&mut waits.reader, &mut waits.inbox, (longest, is_tight), None).await.unwrap();
        let count = count.expect("plain bytes");
        assert!(count <= longest, "{count} bytes, of {longest} for the longest request");
    });
}

/// While its client reads none of the replies before them, the connection does not look what became of them.
#[test]
fn requests_that_wait_behind_unread_replies_are_memory_that_counts() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let times = (Instant::now(), Duration::from_mins(5));
        let all = Arc::new(Unread::up_to(1_000_000, 1_000));
        let (_client, mut stream, newcomer) = connected().await;
        let (reader, _) = stream.split();
        let (home, _asked, _may) = Home::with_watched_store();
        let session = xuid::Session::new(Arc::clone(&home.server), None);
        let mut waits = Connection::new(reader, Clogged { is_flushed: false }, session, newcomer, times);
        waits.held.unread = UnreadPart::new(Arc::clone(&all));
        let questions = questions(&home.server);
        waits.inbox.room(questions.len()).extend_from_slice(&questions);
        waits.advance();
        waits.outbox.consume(waits.outbox.len());
        waits.note_unread();
        assert!(waits.session.in_flight() > 100);
        assert_eq!(all.held(), waits.session.in_flight() * 512);
        waits.writer.is_flushed = true;
        waits.note_unread();
        assert_eq!(all.held(), 0, "it waits for us");
    });
}

/// A connection that has begun little is not closed, however much the others hold.
#[test]
fn half_a_request_is_memory_that_counts_and_who_holds_much_of_too_much_goes() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let times = (Instant::now(), Duration::from_mins(5));
        let all = Arc::new(Unread::of_begun(100_000, 1_000));
        let mut others = UnreadPart::new(Arc::clone(&all));
        for (of_others, len, need, goes) in [
            (0, 40_000, Need::Input, false),
            (60_001, 40_000, Need::Input, true),
            (60_001, 40_000, Need::Turn, false),
            (60_001, 40_000, Need::Room, false),
            (200_000, 8_000, Need::Input, false),
        ] {
            let (_client, mut stream, newcomer) = connected().await;
            let (reader, writer) = stream.split();
            let mut half = of_resp(reader, writer, newcomer, times);
            half.held.half = UnreadPart::new(Arc::clone(&all));
            others.set(of_others);
            half.inbox.room(INBOX_MOST).resize(len, b'x');
            half.need = need;
            assert_eq!(half.has_too_much_begun(), goes, "{of_others} {len}");
        }
    });
}

/// Its client reads all replies, so none of it counts as unread.
#[test]
fn what_is_queued_behind_multi_counts_with_half_requests() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let times = (Instant::now(), Duration::from_mins(5));
        let (_client, mut stream, newcomer) = connected().await;
        let (reader, writer) = stream.split();
        let mut connection = of_resp(reader, writer, newcomer, times);
        let begun = Arc::new(Unread::of_begun(1_000_000, 1_000));
        connection.held.half = UnreadPart::new(Arc::clone(&begun));
        let commands = [b"MULTI\r\n".to_vec(), b"INCR orders\r\n".repeat(2_000)].concat();
        connection.inbox.room(commands.len()).extend_from_slice(&commands);
        while connection.need != Need::Input || !connection.inbox.rest().is_empty() {
            connection.advance();
            connection.outbox.consume(connection.outbox.len());
        }
        connection.note_unread();
        assert!(!connection.held.unread.counts());
        assert!(!connection.has_too_much_begun() && begun.held() > 20_000, "{}", begun.held());
    });
}

#[test]
fn a_connection_that_holds_half_a_request_is_closed_where_there_is_too_much_of_them() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    for (of_others, is_closed) in [(0, false), (1 << 40, true)] {
        let (home, _asked, _may) = Home::with_watched_store();
        let mut others = UnreadPart::new(Arc::clone(&home.server.begun));
        others.set(of_others);
        runtime.block_on(async {
            let (mut client, stream, newcomer) = connected().await;
            client.write_all(b"*2\r\n$4\r\nECHO\r\n$20000\r\n").await.unwrap();
            client.write_all(&[b'x'; 15_000]).await.unwrap();
            let served = serve(stream, Front::Resp, Arc::clone(&home.server), newcomer);
            let patience = if is_closed { PATIENCE } else { Duration::from_millis(200) };
            assert_eq!(timeout(patience, served).await.is_ok(), is_closed);
        });
    }
}
