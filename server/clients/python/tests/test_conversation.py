"""A connection without its socket, told what time it is."""

import unittest

from xuid_client import ConnectionLost, ProtocolError, Refused, Timeout, wire
from xuid_client.link.conversation import Conversation, Greeting, NotSent
from xuid_client.options import check

from .support import frames


def options(**named):
    given = {"token": "", "cluster": None, "tls": None, "client_name": "test", "timeout": 10.0}
    given.update(connect_timeout=5.0, retry_for=0.0, max_in_flight=1_024, return_after=180.0)
    given.update(named)
    return check("a:1", **given)


class Caller:
    """A waiter that keeps what it is told, which is one thing."""

    def __init__(self):
        self.told = []

    def resolve(self, value):
        self.told.append(value)

    def reject(self, error):
        self.told.append(error)


class Talk(unittest.TestCase):
    def begin_talk(self, **named):
        greeting = Greeting("a:1", options(**named))
        served = greeting.receive(frames.welcome(1))
        return Conversation(served, options(**named), 0.0)

    def ask(self, talk, request=None, now=0.0):
        """Caller, entry and what is sent."""
        caller = Caller()
        entry = talk.begin(request or wire.next_id(), caller, now)
        return caller, entry, self.sent(talk)

    def sent(self, talk):
        data, found = bytes(talk.take_outbox()), []
        while data:
            asked, length = frames.parse(data, True)
            found.append(asked)
            data = data[length:]
        return found


class Replies(Talk):
    def test_replies_find_their_requests_byte_by_byte_and_in_any_order(self):
        talk = self.begin_talk()
        callers = [self.ask(talk) for _ in range(3)]
        data = b""
        for at, (_, _, [asked]) in reversed(list(enumerate(callers))):
            data += frames.number(wire.NEXT, asked.request_id, 100 + at)
        for byte in data:
            talk.receive(bytes([byte]), 1.0)
        self.assertEqual([caller.told for caller, _, _ in callers], [[100], [101], [102]])

    def test_a_request_id_is_never_used_twice(self):
        talk, seen = self.begin_talk(), set()
        for _ in range(100):
            _, _, [asked] = self.ask(talk)
            talk.receive(frames.number(wire.NEXT, asked.request_id, 1), 0.0)
            seen.add(asked.request_id)
        self.assertEqual(len(seen), 100)

    def test_callers_that_gave_up_in_line_are_not_kept(self):
        talk = self.begin_talk(max_in_flight=1)
        [asked] = self.ask(talk)[2]
        waiting = [self.ask(talk)[0]]
        for turn in range(10_000):
            _, entry, _ = self.ask(talk)
            entry.waiter = None
            if turn % 1_000 == 0:
                waiting.append(self.ask(talk)[0])
        self.assertLess(len(talk._in_line), 200)
        # The others have their turn, in their order.
        for number in range(len(waiting) + 1):
            talk.receive(frames.number(wire.NEXT, asked.request_id, number), 0.0)
            [asked] = self.sent(talk) or [None]
        self.assertEqual([caller.told for caller in waiting], [[number] for number in range(1, len(waiting) + 1)])

    def test_what_waits_above_the_bound_is_sent_when_a_reply_makes_room(self):
        talk = self.begin_talk(max_in_flight=2)
        first, second, third = (self.ask(talk) for _ in range(3))
        self.assertEqual([len(first[2]), len(second[2]), len(third[2])], [1, 1, 0])
        talk.receive(frames.number(wire.NEXT, second[2][0].request_id, 5), 0.0)
        [asked] = self.sent(talk)
        talk.receive(frames.number(wire.NEXT, asked.request_id, 6), 0.0)
        self.assertEqual((second[0].told, third[0].told), ([5], [6]))

    def test_the_servers_bound_holds_too(self):
        served = Greeting("a:1", options()).receive(frames.welcome(1, max_in_flight=1))
        talk = Conversation(served, options(), 0.0)
        self.assertEqual([len(self.ask(talk)[2]) for _ in range(2)], [1, 0])

    def test_a_caller_that_gives_up_leaves_its_request_in_flight_with_its_room(self):
        talk = self.begin_talk(max_in_flight=1)
        caller, entry, [asked] = self.ask(talk)
        entry.waiter = None
        waiting, in_line, _ = self.ask(talk)
        in_line.waiter = None
        later, _, sent = self.ask(talk)
        self.assertEqual(sent, [])
        talk.receive(frames.number(wire.NEXT, asked.request_id, 5), 0.0)
        [asked] = self.sent(talk)
        talk.receive(frames.number(wire.NEXT, asked.request_id, 6), 0.0)
        self.assertEqual((caller.told, waiting.told, later.told), ([], [], [6]))

    def test_an_error_is_its_callers_alone_and_one_to_no_request_is_the_end(self):
        talk = self.begin_talk()
        caller, _, [asked] = self.ask(talk)
        talk.receive(frames.error(wire.NEXT, asked.request_id, 0x8011, 5, "too few\nids"), 0.0)
        [refused] = caller.told
        self.assertEqual((refused.name, refused.retry_after_ms, refused.text), ("OVERLOADED", 5, "too few ids"))
        with self.assertRaises(Refused):
            talk.receive(frames.error(0, 0, 0x8011), 0.0)

    def test_what_breaks_the_protocol_ends_it_and_tells_every_waiter_once(self):
        lies = [
            lambda asked: frames.number(wire.SEQ_NEXT, asked.request_id, 1),
            lambda asked: frames.number(wire.NEXT, asked.request_id + 1_000, 1),
            lambda asked: frames.number(wire.NEXT, asked.request_id, 1 << 63),
            lambda asked: frames.error(wire.ARRAY, asked.request_id, 0x8011),
            lambda asked: wire.frame(wire.next_id(), asked.request_id),
            lambda asked: wire._HEADER.pack(wire.REPLY_ROOM + 1, wire.NEXT | 0x80, 0, 0, asked.request_id),
            lambda asked: wire._HEADER.pack(8, wire.NEXT | 0x80, 1, 0, asked.request_id) + bytes(8),
            lambda asked: frames.reply(wire.HELLO, asked.request_id, bytes(100)),
        ]
        for at, lie in enumerate(lies):
            with self.subTest(at):
                talk = self.begin_talk()
                caller, _, [asked] = self.ask(talk)
                other, _, _ = self.ask(talk)
                with self.assertRaises(ProtocolError) as raised:
                    talk.receive(lie(asked), 0.0)
                talk.end(raised.exception)
                talk.end(ConnectionLost("a:1"))
                for told in (caller.told, other.told):
                    self.assertEqual([type(error) for error in told], [ProtocolError])
                with self.assertRaises(NotSent):
                    self.ask(talk)

    def test_the_buffer_grows_with_what_arrives_and_not_with_what_is_claimed(self):
        talk = self.begin_talk()
        caller, _, [asked] = self.ask(talk, wire.array(131_072, "any", 0))
        whole = frames.ids(wire.ARRAY, asked.request_id, list(range(131_072)))
        talk.receive(whole[:100], 0.0)
        self.assertLess(talk._inbox.__sizeof__(), 4_096)
        talk.receive(whole[100:], 0.0)
        self.assertEqual(len(caller.told[0]), 131_072)


class Leaving(Talk):
    def test_after_goaway_what_is_in_flight_is_answered_and_what_waits_in_line_goes_elsewhere(self):
        talk = self.begin_talk(max_in_flight=1)
        caller, _, [asked] = self.ask(talk)
        in_line, _, _ = self.ask(talk)
        talk.receive(frames.goaway(), 0.0)
        self.assertTrue(talk.was_sent_away)
        self.assertEqual([type(error) for error in in_line.told], [NotSent])
        with self.assertRaises(NotSent):
            self.ask(talk)
        self.assertFalse(talk.has_left)
        talk.receive(frames.number(wire.NEXT, asked.request_id, 7), 0.0)
        self.assertEqual((caller.told, talk.has_left, self.sent(talk)), ([7], True, []))

    def test_a_server_that_does_not_finish_after_goaway_is_not_waited_for_without_an_end(self):
        talk = self.begin_talk()
        self.ask(talk, wire.array(1, "any", 60.0))
        talk.receive(frames.goaway(), 0.0)
        now = 0.0
        with self.assertRaises((Timeout, ConnectionLost)):
            while now < 100.0:
                now = talk.look_at
                talk.look(now)


class Silence(Talk):
    def test_a_silent_link_is_asked_at_half_of_the_timeout_and_ended_at_its_end(self):
        talk = self.begin_talk(timeout=10.0)
        self.ask(talk, now=100.0)
        self.assertEqual(talk.look_at, 105.0)
        talk.look(105.0)
        [ping] = self.sent(talk)
        self.assertEqual((ping.op, talk.look_at), (wire.PING, 110.0))
        with self.assertRaises(Timeout):
            talk.look(110.0)

    def test_a_link_that_answers_its_ping_lives_on_though_a_request_is_not_answered(self):
        talk = self.begin_talk(timeout=10.0)
        caller, _, _ = self.ask(talk, now=100.0)
        for _ in range(20):
            now = talk.look_at
            talk.look(now)
            for ping in self.sent(talk):
                talk.receive(frames.reply(wire.PING, ping.request_id, b""), now + 0.1)
        self.assertEqual(caller.told, [])
        self.assertTrue(talk.is_serving)
        self.assertTrue(talk.is_silent_since(100.0), "nothing but PINGs came")

    def test_the_wait_of_a_request_is_no_silence(self):
        talk = self.begin_talk(timeout=10.0)
        self.ask(talk, wire.array(1, "any", 60.0), now=100.0)
        self.assertEqual(talk.look_at, 165.0)

    def test_a_process_that_was_stopped_asks_before_it_judges(self):
        talk = self.begin_talk(timeout=10.0)
        self.ask(talk, now=100.0)
        talk.look(10_000.0)
        self.assertEqual((len(self.sent(talk)), talk.look_at), (1, 10_005.0))

    def test_a_request_that_is_due_sooner_brings_the_look_forward(self):
        talk = self.begin_talk(timeout=10.0)
        self.ask(talk, wire.array(1, "any", 60.0), now=100.0)
        self.ask(talk, now=101.0)
        self.assertEqual(talk.look_at, 106.0)


class Greetings(unittest.TestCase):
    def test_a_server_of_another_protocol_is_shown_with_what_it_says(self):
        for said in (b"this port speaks XUID/1, HTTP is at 7655\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR no\r\n"):
            with self.assertRaises(ProtocolError) as raised:
                Greeting("a:1", options()).receive(said)
            self.assertIn(said.decode().split("\r")[0].strip(), str(raised.exception))

    def test_a_lying_greeting_is_refused(self):
        whole = frames.welcome(1)
        lies = [
            whole[:16] + b"\x02" + whole[17:],  # version 2
            whole[:53] + b"\x0b" + whole[54:],  # 41, 11 and 12 bits
            frames.number(wire.NEXT, 1, 5),
            wire._HEADER.pack(wire.REPLY_ROOM + 1, wire.HELLO | 0x80, 0, 0, 1),
            frames.reply(wire.HELLO, 1, bytes(20)),
        ]
        for lie in lies:
            with self.subTest(lie[:70].hex()), self.assertRaises(ProtocolError):
                self.fail(Greeting("a:1", options()).receive(lie))

    def test_what_comes_behind_the_greeting_is_kept(self):
        greeting = Greeting("a:1", options())
        data = frames.welcome(1) + frames.goaway()
        self.assertIsNone(greeting.receive(data[:30]))
        self.assertEqual(greeting.receive(data[30:]).cluster, frames.CLUSTER.hex())
        self.assertEqual(greeting.rest(), frames.goaway())


if __name__ == "__main__":
    unittest.main()
