"""The codec against the golden vectors, and against rubbish."""

import pickle
import random
import struct
import unittest

from xuid_client import Refused, Timeout, UsageError, WrongCluster, XuidError, wire
from xuid_client.values import Layout, Run

from .support import frames, vectors


class GoldenVectors(unittest.TestCase):
    def test_every_vector_is_encoded_decoded_or_refused_as_it_says(self):
        file = vectors.find()
        if file is None:
            self.skipTest("server/protocol/golden/vectors.json is not beside this package")
        counts = vectors.check(str(file))
        self.assertGreaterEqual(min(counts.values()), 28, counts)


class Requests(unittest.TestCase):
    def test_what_no_server_would_take_is_never_encoded(self):
        refused = [
            lambda: wire.next_id("newest"),
            lambda: wire.next_id(3),
            lambda: wire.ping(bytes(1_025)),
            lambda: wire.decode_id(1 << 63),
            lambda: wire.decode_id(-1),
            lambda: wire.decode_id(1.5),
            lambda: wire.array(-1, "any", 0),
            lambda: wire.array(1 << 32, "any", 0),
            lambda: wire.array(1, "any", -1),
            lambda: wire.array(1, "any", float("nan")),
            lambda: wire.seq_array("orders", 1, "fresh", 0),
            lambda: wire.seq_list("x" * 129, "", 1),
            lambda: wire.seq_list("", "\ud800", 1),
            lambda: wire.seq_create("a", {"description": "x" * 4_096}),
            lambda: wire.seq_alter("a", "x" * 4_095),
            lambda: wire.hello(bytes(16), bytes(256), ""),
        ]
        names = ["", "x" * 129, " orders", "orders\u3000", "or\nders", "or\x85ders", "@any", "\ud800", None]
        refused += [lambda name=name: wire.seq_next(name) for name in names]
        for make in refused:
            with self.assertRaises(UsageError):
                self.fail(make())

    def test_a_wait_is_told_in_milliseconds_and_capped_as_servers_cap_it(self):
        for wait, wait_ms, seconds in ((0.05, 50, 0.05), (0.07, 70, 0.07), (61, 60_000, 60.0), (float("inf"), 60_000, 60.0)):
            request = wire.runs(1, "any", wait)
            self.assertEqual((struct.unpack_from("<I", request.body, 4)[0], request.wait), (wait_ms, seconds))

    def test_numbers_of_settings_go_as_texts(self):
        request = wire.seq_create("a", {"start": (1 << 63) - 1, "strict": True, "description": "ä"})
        self.assertEqual(
            request.body[2:].decode(), '{"start":"9223372036854775807","strict":true,"description":"ä"}'
        )
        self.assertEqual(len(wire.seq_alter("a", "x" * 4_094).body), 4_096)


def answered(request, data):
    """What the client makes of a whole reply."""
    head = wire.header(data)
    wire.check_header(head, request)
    return wire.reply(request, head, data[wire.HEADER_LEN :])


class Replies(unittest.TestCase):
    def test_a_reply_that_is_not_what_was_asked_for_is_a_breach(self):
        nine, runs = wire.array(9, "any", 0), wire.runs(9, "any", 0)
        one_run = wire.seq_runs("a", 9, "ordered", 0, True)
        lies = [
            (nine, frames.ids(wire.ARRAY, 7, list(range(8)))),
            (nine, frames.ids(wire.ARRAY, 7, [1 << 63] * 9)),
            (nine, frames.ids(wire.ARRAY, 7, list(range(9)))[:-1]),
            (nine, frames.runs(wire.RUNS, 7, [(1, 9, 1)])),
            (runs, frames.runs(wire.RUNS, 7, [(1, 8, 1)])),
            (runs, frames.runs(wire.RUNS, 7, [(1, 8, 1)], count=9)),
            (runs, frames.runs(wire.RUNS, 7, [(1, 9, 1), (20, 0, 1)])),
            (runs, frames.runs(wire.RUNS, 7, [(1, 9, 0)])),
            (runs, frames.runs(wire.RUNS, 7, [((1 << 63) - 8, 9, 1)])),
            (runs, frames.runs(wire.RUNS, 7, [(1, 9, 1)])[:-1]),
            (one_run, frames.runs(wire.SEQ_RUNS, 7, [(1, 4, 1), (9, 5, 1)])),
            (wire.next_id(), frames.number(wire.NEXT, 7, 1 << 63)),
            (wire.next_id(), frames.reply(wire.NEXT, 7, bytes(7))),
            (wire.next_id(), frames.reply(wire.NEXT, 7, bytes(2), status=1)),
            (wire.next_id(), frames.reply(wire.NEXT, 7, struct.pack("<IH", 0, 9) + b"short", status=1)),
            (wire.ping(b"a"), frames.reply(wire.PING, 7, b"b")),
            (wire.info(), frames.reply(wire.INFO, 7, b"\xff")),
            (wire.info(), frames.reply(wire.INFO, 7, b"{")),
            (wire.info(), frames.reply(wire.INFO, 7, b"[" * 500_000)),
            (wire.decode_id(1), frames.reply(wire.DECODE, 7, bytes(15))),
        ]
        for request, data in lies:
            with self.subTest(data[:64].hex()), self.assertRaises(wire.Breach):
                self.fail(answered(request, data))

    def test_a_reply_longer_than_what_was_asked_for_is_refused_by_its_header(self):
        limits = [
            (wire.next_id(), wire.REPLY_ROOM),
            (wire.array(1_000, "any", 0), 8_000 + wire.REPLY_ROOM),
            (wire.runs(1_000, "any", 0), 16_000 + wire.REPLY_ROOM),
            (wire.info(), wire.JSON_MAX + wire.REPLY_ROOM),
            (None, wire.REPLY_ROOM),
        ]
        for request, limit in limits:
            op = wire.NEXT if request is None else request.op
            wire.check_header(wire.Header(limit, op | 0x80, 0, 0, 7), request)
            with self.assertRaises(wire.Breach):
                wire.check_header(wire.Header(limit + 1, op | 0x80, 0, 0, 7), request)
        with self.assertRaises(wire.Breach):
            # An error is short, whatever was asked for.
            wire.check_header(wire.Header(wire.REPLY_ROOM + 1, 0x91, 0, 0x8011, 7), wire.array(131_072, "any", 0))

    def test_rubbish_is_a_breach_or_a_value_and_nothing_else(self):
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        requests = [wire.array(3, "any", 0), wire.runs(3, "any", 0), wire.info(), wire.decode_id(1), wire.next_id()]
        requests += [wire.Request(wire.HELLO), wire.ping(b"abc"), wire.seq_list("", "", 9)]
        for _ in range(20_000):
            request = rng.choice(requests)
            body = bytes(rng.choice((0, 1, 3, 255, rng.randrange(256))) for _ in range(rng.randrange(70)))
            head = wire.Header(len(body), request.op | 0x80, 0, rng.choice((0, 0, 0x8011)), 7)
            try:
                wire.reply(request, head, body)
            except wire.Breach:
                pass
            except Exception as wrong:
                self.fail(f"seed {seed}: {request} {body.hex()}: {wrong!r}")


class Values(unittest.TestCase):
    def test_the_ids_of_a_run_are_as_far_apart_as_it_says(self):
        self.assertEqual(list(Run(100, 3, 4_096).ids), [100, 4_196, 8_292])
        self.assertEqual(list(Run(100, 1, 0).ids), [100])
        self.assertEqual(len(Run(1, (1 << 32) - 1, 1).ids), (1 << 32) - 1)

    def test_an_id_has_the_time_worker_and_sequence_of_the_worked_example(self):
        found = Layout(1_524_153_600_000, 1_000, 41, 10, 12).decode(1_128_275_363_336_683_521)
        self.assertEqual(found, (1_793_155_408_962, 32, 1))
        self.assertEqual(found.time.isoformat(), "2026-10-28T02:43:28.962000+00:00")

    def test_a_face_says_which_of_the_two_low_fields_is_the_lowest(self):
        found = Layout(0, 10_000, 39, 16, 8, 1).decode(7 << 24 | 5 << 16 | 3)
        self.assertEqual(found, (70, 3, 5))

    def test_an_opaque_id_is_taken_apart_by_the_server_alone(self):
        with self.assertRaisesRegex(UsageError, "opaque.*decode"):
            Layout(0, 1_000, 41, 10, 12, 2).decode(7)


class Errors(unittest.TestCase):
    def test_every_error_survives_a_pickle_and_says_what_to_do(self):
        errors = [
            Refused("a:1", 0x8011, 5, "too few ids"),
            Timeout("a:1", 10.0),
            WrongCluster("a:1", "00" * 16, "11" * 16, "by b:1"),
        ]
        for error in errors:
            for copy in (pickle.loads(pickle.dumps(error)), error.again()):
                self.assertEqual((type(copy), copy.args, str(copy)), (type(error), error.args, str(error)))
            self.assertIsInstance(error, XuidError)
        self.assertEqual((errors[0].name, errors[0].retryable, errors[0].retry_after_ms), ("OVERLOADED", True, 5))
        self.assertIn("00" * 16, str(errors[2]))
        self.assertIn("11" * 16, str(errors[2]))

    def test_bit_15_of_a_status_without_a_name_says_that_it_may_be_tried_again(self):
        self.assertTrue(Refused("a:1", 0x80FF, 0, "").retryable)
        self.assertFalse(Refused("a:1", 0x00FF, 0, "").retryable)
        self.assertEqual(Refused("a:1", 0x80FF, 0, "").name, "80ff")


if __name__ == "__main__":
    unittest.main()
