"""The conformance program, line by line."""

import json
import pathlib
import queue
import subprocess
import sys
import threading
import unittest

from .support import frames, vectors
from .support.fake import PATIENCE, Fake, Mill
from .support.server import Server, needed

PROGRAM = pathlib.Path(__file__).with_name("conform.py")


class Talk:
    """A run of the program."""

    def __init__(self, *flags):
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._answers = queue.Queue()
        self._last = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self._answers.put(json.loads(line))

    def send(self, do, **asked):
        self._last += 1
        print(json.dumps({"id": self._last, "do": do, **asked}), file=self._process.stdin)
        return self._last

    def answer(self):
        return self._answers.get(timeout=PATIENCE)

    def ask(self, do, **asked):
        sent, answer = self.send(do, **asked), self.answer()
        assert answer.pop("id") == sent, answer
        return answer

    def end(self):
        """What it exits with."""
        self._process.stdin.close()
        return self._process.wait(PATIENCE)

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdin.close()
        self._process.stdout.close()


class Lines(unittest.TestCase):
    flags = ()

    def talk(self, server=None):
        talk = Talk(*self.flags)
        self.addCleanup(talk.kill)
        if server:
            connected = talk.ask("connect", servers=[server.address], timeout_ms=10_000)
            self.assertEqual((connected["server"], connected["layout"]["worker_bits"]), (server.address, 10))
        return talk

    def test_every_line_is_answered_and_the_end_of_input_is_the_end(self):
        mill = Mill()
        self.addCleanup(mill.close)
        talk = self.talk(mill)
        self.assertEqual(len(set(talk.ask("next", times=100, in_flight=16)["ids"])), 100)
        self.assertEqual(len(talk.ask("array", count=10, order="ordered", wait_ms=50)["ids"]), 10)
        [run] = talk.ask("runs", count=10)["runs"]
        self.assertEqual((run["count"], run["stride"]), (10, "1"))
        self.assertEqual(len(set(talk.ask("seq_next", name="orders", times=10, in_flight=4)["ids"])), 10)
        self.assertEqual(len(talk.ask("seq_runs", name="orders", count=10, contiguous=True)["runs"]), 1)
        self.assertEqual(len(set(talk.ask("prefetch", times=2_000)["ids"])), 2_000)
        self.assertEqual(talk.ask("ping"), {})
        decoded = talk.ask("time_of", number="1128275363336683521")
        self.assertEqual(decoded, {"unix_ms": "1793155408962", "worker": 32, "sequence": 1})
        self.assertEqual(len(set(talk.ask("fork", children=3, each=100)["ids"])), 300)
        for rate in talk.ask("prefetch_rate", seconds=0.1).values():
            self.assertGreater(int(rate), 0)
        self.assertEqual(talk.ask("close"), {})
        self.assertEqual(talk.ask("next")["error"]["kind"], "closed")
        self.assertEqual(talk.end(), 0)

    def test_an_error_says_its_kind(self):
        other = Mill(cluster=bytes([9]) * 16)
        self.addCleanup(other.close)
        talk = self.talk(other)
        self.assertEqual(talk.ask("next", order="newest")["error"]["kind"], "usage")
        self.assertEqual(talk.ask("sing")["error"]["kind"], "unsupported")
        wrong = talk.ask("connect", servers=[other.address], cluster=frames.CLUSTER.hex())
        self.assertEqual(wrong["error"]["kind"], "wrong_cluster")
        self.assertEqual(talk.ask("connect", servers=["127.0.0.1:1"])["error"]["kind"], "unreachable")

    def test_the_vectors_are_checked(self):
        file = vectors.find()
        if file is None:
            self.skipTest("server/protocol/golden/vectors.json is not beside this package")
        talk = self.talk()
        self.assertEqual(set(talk.ask("vectors", file=str(file))), {"encoded", "decoded", "refused"})

    def test_requests_overlap_and_one_of_them_is_cancelled(self):
        fake = Fake()
        self.addCleanup(fake.end)
        talk = Talk(*self.flags)
        self.addCleanup(talk.kill)
        talk.send("connect", servers=[fake.address])
        peer = fake.greet()
        talk.answer()
        first = talk.send("array", count=2)
        asked = peer.asked()
        second = talk.send("next")
        peer.answer(7)
        self.assertEqual(talk.answer(), {"id": second, "ids": ["7"]})
        cancel = talk.send("cancel", of=first)
        answers = {answer["id"]: answer for answer in (talk.answer(),)}
        if self.flags:
            self.assertEqual(answers[cancel]["error"]["kind"], "unsupported")
            peer.send(frames.ids(asked.op, asked.request_id, [1, 2]))
            self.assertEqual(talk.answer(), {"id": first, "ids": ["1", "2"]})
            return
        answers.update({answer["id"]: answer for answer in (talk.answer(),)})
        self.assertEqual(answers[cancel], {"id": cancel})
        self.assertEqual(answers[first]["error"]["kind"], "cancelled")

    @needed
    def test_a_real_server_answers_the_lines_of_sequences(self):
        server = Server()
        self.addCleanup(server.close)
        talk = self.talk(server)
        refused = talk.ask("seq_next", name="orders")["error"]
        self.assertEqual((refused["kind"], refused["status"], refused["code"]), ("refused", "NO_SEQUENCE", 9))
        self.assertEqual(talk.ask("seq_create", name="orders", settings={"start": "5"})["info"]["next"], "5")
        self.assertEqual(talk.ask("seq_array", name="orders", count=3, order="ordered", wait_ms=500)["ids"], ["5", "6", "7"])
        self.assertEqual(talk.ask("seq_alter", name="orders", settings={"step": "9"})["info"]["step"], "9")
        self.assertEqual(talk.ask("seq_info", name="orders")["info"]["name"], "orders")
        self.assertEqual(len(talk.ask("seq_list", prefix="o", after="", limit=10)["list"]), 1)
        [number] = talk.ask("next", order="fresh")["ids"]
        self.assertEqual(talk.ask("decode", number=number), talk.ask("time_of", number=number))
        self.assertIn("cluster", talk.ask("info")["info"])
        self.assertEqual(talk.end(), 0)


class LinesOfThreads(Lines):
    flags = ("--sync",)


if __name__ == "__main__":
    unittest.main()
