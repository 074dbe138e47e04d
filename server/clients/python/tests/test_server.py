"""The client against a real server."""

import asyncio
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from xuid_client import AsyncClient, Client, Refused

from .support.fake import PATIENCE
from .support.server import Server, needed

HERE = pathlib.Path(__file__).parents[1]


@needed
class Served(unittest.TestCase):
    def server(self, *options, **named):
        server = Server(*options, **named)
        self.addCleanup(server.close)
        return server

    def test_ids_of_every_call_are_distinct_and_decoded_as_the_server_does(self):
        server = self.server()
        with Client(server.address) as client:
            ids = [client.next() for _ in range(100)] + [client.next("fresh")] + client.array(1_000)
            ids += [number for run in client.runs(100_000) for number in run.ids]
            prefetched = client.prefetch()
            ids += [next(prefetched) for _ in range(10_000)] + prefetched.take(1_000)
            self.assertEqual(len(set(ids)), 112_101)
            for number in ids[:: len(ids) // 50]:
                self.assertEqual(client.decode(number), client.time_of(number))
            self.assertLess(abs(client.time_of(client.next("fresh")).unix_ms - time.time() * 1_000), PATIENCE * 1_000)
            ordered = [client.next("ordered") for _ in range(50)] + client.array(50, "ordered")
            self.assertEqual(ordered, sorted(ordered))
            self.assertEqual(client.info()["cluster"], client.served.cluster)
            self.assertIsInstance(client.stats(), dict)
            client.ping(b"x" * 1_024)
            with self.assertRaises(Refused) as raised:
                client.array(client.served.max_count + 1)
            self.assertEqual(raised.exception.name, "COUNT")

    def test_numbers_of_a_sequence_are_those_that_it_was_made_for(self):
        server = self.server()
        with Client(server.address) as client:
            orders = client.sequence("orders")
            with self.assertRaises(Refused) as raised:
                orders.next()
            self.assertEqual(raised.exception.name, "NO_SEQUENCE")
            made = orders.create(start=100, strict=True)
            self.assertEqual((made["next"], made["strict"]), ("100", True))
            numbers = [orders.next(), *orders.array(3), *orders.contiguous(2).ids]
            self.assertGreaterEqual(numbers[0], 100)
            self.assertEqual((numbers, numbers[5] - numbers[4]), (sorted(set(numbers)), 1))
            with self.assertRaises(Refused) as raised:
                orders.create(start=5)
            self.assertEqual(raised.exception.name, "EXISTS")
            odd = client.sequence("odd")
            odd.create(increment=3, remainder=1)
            [run] = odd.runs(4)
            self.assertEqual((list(run.ids), run.stride), ([1, 4, 7, 10], 3))
            self.assertEqual([found["name"] for found in client.sequences()], ["odd", "orders"])
            self.assertEqual([found["name"] for found in client.sequences("o", after="odd")], ["orders"])
            self.assertEqual(orders.alter(step=5_000)["step"], "5000")

    def test_tasks_in_flight_together_get_distinct_ids(self):
        server = self.server()

        async def many():
            async with AsyncClient(server.address) as client:
                ids = await asyncio.gather(*(client.next() for _ in range(3_000)))
                prefetched = client.prefetch()
                ids += [await prefetched.next() for _ in range(5_000)]
                return ids

        self.assertEqual(len(set(asyncio.run(many()))), 8_000)

    def test_a_server_that_is_stopped_and_started_again_costs_no_error_where_retries_are_allowed(self):
        server = self.server()
        client = Client(server.address, retry_for=PATIENCE)
        ids = [client.next() for _ in range(10)]
        for how in (signal.SIGTERM, signal.SIGKILL):
            server.stop(how)
            server = self.server(folder=server.folder, address=server.address)
            ids += [client.next() for _ in range(10)]
        self.assertEqual(len(set(ids)), 30)
        client.close()

    def test_a_token_is_asked_for(self):
        server = self.server("--tokens", self.tokens())
        with self.assertRaises(Refused) as raised:
            Client(server.address).connect()
        self.assertEqual(raised.exception.name, "UNAUTHENTICATED")
        with Client(server.address, token="long enough to be a secret") as client:
            client.next()

    def tokens(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name) / "tokens.toml"
        file.write_text('[token.test]\nsecrets = ["long enough to be a secret"]\n')
        file.chmod(0o600)
        return str(file)

    def test_the_quick_start_of_the_readme_runs_as_it_stands(self):
        # On a busy machine ids may take longer than usual.
        server = self.server("--wait", "5s")
        blocks = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(encoding="utf-8"), re.S)
        environment = {**os.environ, "XUID_SERVER": server.address, "PYTHONPATH": str(HERE / "src")}
        Client(server.address).sequence("orders").create()
        for block in blocks:
            with self.subTest(block):
                done = subprocess.run(
                    [sys.executable, "-W", "error", "-c", block],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                )
                self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertGreater(int(subprocess.check_output([sys.executable, "-c", blocks[0]], env=environment)), 0)


if __name__ == "__main__":
    unittest.main()
