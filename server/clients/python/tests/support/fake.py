"""A server in the hands of a test: it accepts, greets, reads and answers when the test says so."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import socket
import threading
import time
import unittest
from typing import Any, Callable

from xuid_client import AsyncClient, wire

from . import frames

#: A test that waits longer than this has failed.
PATIENCE = 20.0


def until(condition: Callable[[], Any], what: str = "it") -> None:
    """Waits for a condition."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come about")
        time.sleep(0.002)


class Peer:
    """The server's end of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(PATIENCE)
        self._inbox = b""
        self._greeted = False

    def hello(self) -> frames.Asked:
        """Reads preface and HELLO."""
        while len(self._inbox) < len(wire.PREFACE):
            self._more()
        assert self._inbox.startswith(wire.PREFACE), self._inbox
        self._inbox = self._inbox[len(wire.PREFACE) :]
        asked = self.asked()
        assert asked.op == wire.HELLO
        self._greeted = True
        return asked

    def asked(self) -> frames.Asked:
        """The next request."""
        while True:
            parsed = frames.parse(self._inbox, self._greeted)
            if parsed:
                self._inbox = self._inbox[parsed[1] :]
                return parsed[0]
            self._more()

    def asks(self, op: int) -> frames.Asked:
        """The next request, which is of that op. A PING of the client's own, if the test is slow, is answered."""
        asked = self.asked()
        while asked.op == wire.PING != op:
            self.send(frames.reply(wire.PING, asked.request_id, b""))
            asked = self.asked()
        assert asked.op == op, asked
        return asked

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def answer(self, number: int) -> frames.Asked:
        """Answers the next request, which asks for one id."""
        asked = self.asks(wire.NEXT)
        self.send(frames.number(asked.op, asked.request_id, number))
        return asked

    def is_quiet(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        self.sock.settimeout(seconds)
        try:
            return not self._inbox and not self.sock.recv(1, socket.MSG_PEEK)
        except socket.timeout:
            return True
        finally:
            self.sock.settimeout(PATIENCE)

    def is_closed(self) -> None:
        """Waits until the client has closed."""
        with contextlib.suppress(ConnectionResetError):
            while True:
                if not self.sock.recv(65_536):
                    return

    def close(self) -> None:
        self.sock.close()

    def _more(self) -> None:
        data = self.sock.recv(65_536)
        if not data:
            raise ConnectionError("the client has closed")
        self._inbox += data


class Fake:
    """A listener on any free port."""

    def __init__(self, cluster: bytes = frames.CLUSTER, receives: int = 0) -> None:
        self.cluster = cluster
        self._peers: list[Peer] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        if receives:
            # About so many bytes that are not read yet: its connections inherit that.
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        self._listener.settimeout(PATIENCE)
        self.address = "{}:{}".format(*self._listener.getsockname())

    def accept(self) -> Peer:
        peer = Peer(self._listener.accept()[0])
        self._peers.append(peer)
        return peer

    def greet(self, **limits: int) -> Peer:
        """The next connection, greeted."""
        peer = self.accept()
        self.welcome(peer, **limits)
        return peer

    def welcome(self, peer: Peer, **limits: int) -> None:
        """Answers its HELLO."""
        peer.send(frames.welcome(peer.hello().request_id, self.cluster, **limits))

    def has_caller(self) -> bool:
        """Whether somebody knocks."""
        self._listener.settimeout(0.0)
        try:
            self._listener.accept()[0].close()
            return True
        except OSError:
            return False
        finally:
            self._listener.settimeout(PATIENCE)

    def close(self) -> None:
        """Takes no connection any more."""
        self._listener.close()

    def end(self) -> None:
        self.close()
        for peer in self._peers:
            peer.close()


class Mill:
    """A server that answers everything by itself, with ids that never come twice."""

    def __init__(self, cluster: bytes = frames.CLUSTER, first: int = 1) -> None:
        self.fake = Fake(cluster)
        self.address = self.fake.address
        self.next = first
        #: Requests for ids that were answered.
        self.answered = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Ends it, and its connections."""
        self.fake.close()
        for peer in self.fake._peers:
            with contextlib.suppress(OSError):
                peer.sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer = self.fake.accept()
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: Peer) -> None:
        with contextlib.suppress(OSError), peer.sock:
            peer.send(frames.welcome(peer.hello().request_id, self.cluster))
            while True:
                asked = peer.asked()
                peer.send(self._reply(asked))

    @property
    def cluster(self) -> bytes:
        return self.fake.cluster

    def _reply(self, asked: frames.Asked) -> bytes:
        count = asked.fields.get("count", 1)
        with self._lock:
            first, self.next = self.next, self.next + count
            self.answered += asked.op in (wire.NEXT, wire.ARRAY, wire.RUNS)
        if asked.op in (wire.NEXT, wire.SEQ_NEXT):
            return frames.number(asked.op, asked.request_id, first)
        if asked.op in (wire.ARRAY, wire.SEQ_ARRAY):
            return frames.ids(asked.op, asked.request_id, list(range(first, first + count)))
        if asked.op in (wire.RUNS, wire.SEQ_RUNS):
            return frames.runs(asked.op, asked.request_id, [(first, count, 1)])
        return frames.reply(asked.op, asked.request_id, asked.fields.get("bytes", "").encode())


class InLoop:
    """An object with coroutines, for callers that block: they run in an event loop of its own thread."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.target = self.run(self._made(make))

    async def _made(self, make: Callable[[], Any]) -> Any:
        return make()

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def call(self, name: str, *args: Any, **named: Any) -> Any:
        async def called() -> Any:
            outcome = getattr(self.target, name)(*args, **named)
            return await outcome if asyncio.iscoroutine(outcome) else outcome

        return self.run(called())

    async def _over(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        # A turn for the transports that were closed.
        await asyncio.sleep(0)

    def stop(self) -> None:
        self.run(self._over())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()


class Blocking:
    """An :class:`AsyncClient` as a :class:`Client` is called."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self._inner = InLoop(lambda: AsyncClient(*args, **named))

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner.target, name)
        if not callable(value):
            return value
        return lambda *args, **named: self._inner.call(name, *args, **named)

    @property
    def client(self) -> AsyncClient:
        return self._inner.target

    def in_loop(self, coroutine: Any) -> Any:
        return self._inner.run(coroutine)

    def close(self) -> None:
        self._inner.call("close")

    def stop(self) -> None:
        """Ends client and loop, without a goodbye: a fake server may not answer it."""
        self._inner.loop.call_soon_threadsafe(self.client._fleet.end)
        self._inner.stop()


class Stories(unittest.TestCase):
    """A base of stories about clients of either kind."""

    kind: Any = None

    def setUp(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(32)
        self.addCleanup(self._pool.shutdown, wait=False)

    def fake(self, **named: Any) -> Fake:
        fake = Fake(**named)
        self.addCleanup(fake.end)
        return fake

    def mill(self, **named: Any) -> Mill:
        mill = Mill(**named)
        self.addCleanup(mill.close)
        return mill

    def client(self, servers: Any, **options: Any) -> Any:
        """A client that is not connected yet."""
        client = self.kind(servers, token="", **options)
        self.addCleanup(client.stop if isinstance(client, Blocking) else client._fleet.end)
        return client

    def begin(self, call: Callable[..., Any], *args: Any, **named: Any) -> concurrent.futures.Future[Any]:
        """A call that goes on beside the test."""
        return self._pool.submit(call, *args, **named)

    def pair(self, fake: Fake, limits: Any = None, **options: Any) -> Any:
        """A connected client of this server, and the other end."""
        client = self.client(fake.address, **options)
        connecting = self.begin(client.connect)
        peer = fake.greet(**(limits or {}))
        connecting.result(PATIENCE)
        return client, peer
