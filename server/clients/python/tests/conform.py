"""The conformance program: one JSON object a line on stdin, one a line on stdout. server/clients/README.md says which.

Calls are those of :class:`AsyncClient`; with ``--sync`` those of :class:`Client`, a thread each. ``fork`` and
``prefetch_rate`` are the business of :class:`Client` in either case.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import json
import os
import pathlib
import struct
import sys
import threading
import time
from typing import Any, Callable

_HERE = pathlib.Path(__file__).resolve()
sys.path[:0] = [str(_HERE.parents[1]), str(_HERE.parents[1] / "src")]

import xuid_client as xuid  # noqa: E402
from tests.support import vectors  # noqa: E402

_KINDS = {
    xuid.Refused: "refused",
    xuid.Timeout: "timeout",
    xuid.ConnectionLost: "lost",
    xuid.Unreachable: "unreachable",
    xuid.ProtocolError: "protocol",
    xuid.WrongCluster: "wrong_cluster",
    xuid.Closed: "closed",
    xuid.UsageError: "usage",
    vectors.Mismatch: "vectors",
    asyncio.CancelledError: "cancelled",
    NotImplementedError: "unsupported",
}


class Blocking:
    """A :class:`Client` behind coroutines: each call has a thread."""

    def __init__(self, **options: Any) -> None:
        self._client = xuid.Client(**options)
        self._threads = concurrent.futures.ThreadPoolExecutor(256)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._behind(found) if callable(found) else found

    def sequence(self, name: str) -> Any:
        return _Part(self, self._client.sequence(name))

    def prefetch(self) -> Any:
        return _Part(self, self._client.prefetch())

    def time_of(self, number: int) -> Any:
        return self._client.time_of(number)

    def _behind(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def called(*args: Any, **named: Any) -> Any:
            return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*args, **named))

        return called


class _Part:
    """A sequence or a prefetch of it."""

    def __init__(self, client: Blocking, part: Any) -> None:
        self._client = client
        self._part = part

    def __getattr__(self, name: str) -> Any:
        if name == "next" and isinstance(self._part, xuid.Prefetch):
            return self._client._behind(self._part.__next__)
        if name == "held":
            return self._part.held
        return self._client._behind(getattr(self._part, name))


class Program:
    """What the lines of one run share."""

    def __init__(self, blocks: bool) -> None:
        self._blocks = blocks
        self._client: Any = None
        self._ids: Any = None
        self._options: dict[str, Any] = {}
        #: A client for threads, where one is needed, and its prefetch.
        self._sync: Any = None
        self._running: dict[Any, asyncio.Task[None]] = {}

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[str] = asyncio.Queue()

        def read() -> None:
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, "")

        threading.Thread(target=read, daemon=True).start()
        while True:
            line = await lines.get()
            if not line:
                break
            if line.strip():
                asked = json.loads(line)
                task = asyncio.create_task(self._answer(asked))
                self._running[asked.get("id")] = task
                # It is begun before the next line is read.
                await asyncio.sleep(0)
        await asyncio.gather(*self._running.values(), return_exceptions=True)
        for client in (self._client, self._sync):
            if client:
                closing = client.close()
                if asyncio.iscoroutine(closing):
                    await closing

    async def _answer(self, asked: dict[str, Any]) -> None:
        answer = {"id": asked.get("id")}
        try:
            do = getattr(self, "do_" + str(asked.get("do")), None)
            if do is None:
                raise NotImplementedError(f"there is no {asked.get('do')!r}")
            if self._client is None and asked["do"] not in ("connect", "vectors"):
                raise xuid.UsageError("nothing is connected: connect first")
            answer.update(await do(asked))
        except (Exception, asyncio.CancelledError) as wrong:
            answer["error"] = _error(wrong)
        finally:
            self._running.pop(asked.get("id"), None)
        # In one write, so that lines never mix.
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()

    async def do_connect(self, asked: dict[str, Any]) -> dict[str, Any]:
        options = {"servers": asked["servers"], "token": asked.get("token", "")}
        for option in ("timeout", "connect_timeout", "retry_for", "return_after"):
            if option + "_ms" in asked:
                options[option] = asked[option + "_ms"] / 1_000
        options.update({key: asked[key] for key in ("cluster", "max_in_flight") if key in asked})
        if "tls" in asked:
            options["tls"] = xuid.Tls(**asked["tls"])
        client = Blocking(**options) if self._blocks else xuid.AsyncClient(**options)
        await client.connect()
        self._client, self._options, self._ids, self._sync = client, options, None, None
        served = client.served
        layout = {**served.layout._asdict(), "epoch_ms": str(served.layout.epoch_ms)}
        return {"cluster": served.cluster, "server": served.server, "layout": layout}

    async def do_next(self, asked: dict[str, Any]) -> dict[str, Any]:
        return await self._many(asked, lambda: self._client.next(asked.get("order", "any")))

    async def do_array(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"ids": _texts(await self._client.array(asked["count"], **_bulk(asked)))}

    async def do_runs(self, asked: dict[str, Any]) -> dict[str, Any]:
        return _runs(await self._client.runs(asked["count"], **_bulk(asked)))

    async def do_seq_next(self, asked: dict[str, Any]) -> dict[str, Any]:
        return await self._many(asked, self._sequence(asked).next)

    async def do_seq_array(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"ids": _texts(await self._sequence(asked).array(asked["count"], **_bulk(asked)))}

    async def do_seq_runs(self, asked: dict[str, Any]) -> dict[str, Any]:
        sequence = self._sequence(asked)
        if asked.get("contiguous"):
            return _runs([await sequence.contiguous(asked["count"], **_bulk(asked))])
        return _runs(await sequence.runs(asked["count"], **_bulk(asked)))

    async def do_seq_create(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"info": await self._sequence(asked).create(asked.get("settings"))}

    async def do_seq_alter(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"info": await self._sequence(asked).alter(asked.get("settings"))}

    async def do_seq_info(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"info": await self._sequence(asked).info()}

    async def do_seq_list(self, asked: dict[str, Any]) -> dict[str, Any]:
        limit = asked.get("limit", 1_000)
        return {"list": await self._client.sequences(asked.get("prefix", ""), asked.get("after", ""), limit)}

    async def do_decode(self, asked: dict[str, Any]) -> dict[str, Any]:
        return _decoded(await self._client.decode(int(asked["number"])))

    async def do_time_of(self, asked: dict[str, Any]) -> dict[str, Any]:
        return _decoded(self._client.time_of(int(asked["number"])))

    async def do_info(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"info": await self._client.info()}

    async def do_stats(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"stats": await self._client.stats()}

    async def do_ping(self, asked: dict[str, Any]) -> dict[str, Any]:
        await self._client.ping(b"there?")
        return {}

    async def do_prefetch(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self._ids is None:
            self._ids = self._client.prefetch()
        ids = [str(await self._ids.next()) for _ in range(asked["times"])]
        return {"ids": ids, "held": self._ids.held}

    async def do_prefetch_rate(self, asked: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(None, self._rate, asked["seconds"])

    async def do_fork(self, asked: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(None, self._fork, asked["children"], asked["each"])

    async def do_cancel(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self._blocks:
            raise NotImplementedError("a call that blocks is ended by its timeout only")
        running = self._running.get(asked["of"])
        if running:
            running.cancel()
        return {}

    async def do_vectors(self, asked: dict[str, Any]) -> dict[str, Any]:
        return vectors.check(asked["file"])

    async def do_close(self, asked: dict[str, Any]) -> dict[str, Any]:
        await self._client.close()
        if self._sync:
            self._sync.close()
        return {}

    def _sequence(self, asked: dict[str, Any]) -> Any:
        return self._client.sequence(asked["name"])

    async def _many(self, asked: dict[str, Any], call: Callable[[], Any]) -> dict[str, Any]:
        """So many calls, some of them at once."""
        ids: list[str] = []
        left = iter(range(asked.get("times", 1)))

        async def some() -> None:
            for _ in left:
                ids.append(str(await call()))

        calling = [asyncio.ensure_future(some()) for _ in range(asked.get("in_flight", 1))]
        try:
            await asyncio.gather(*calling)
        finally:
            for call_ in calling:
                call_.cancel()
        return {"ids": ids}

    def _prefetch(self) -> xuid.Prefetch:
        """That of a client for threads."""
        if self._sync is None:
            self._sync = xuid.Client(**self._options)
            self._sync_ids = self._sync.prefetch()
        return self._sync_ids

    def _rate(self, seconds: float) -> dict[str, Any]:
        ids = self._prefetch()
        taken = _a_second(seconds, lambda: next(ids))
        # In lists of 1,000, and a counter beside both.
        lists = _a_second(seconds, lambda: ids.take(1_000))
        counter = itertools.count()
        loop = _a_second(seconds, lambda: next(counter))
        return {
            "ids_per_second": str(taken),
            "ids_per_second_in_lists": str(1_000 * lists),
            "loop_per_second": str(loop),
        }

    def _fork(self, children: int, each: int) -> dict[str, Any]:
        ids = self._prefetch()
        mine = [next(ids)]
        while not ids.held:
            mine.append(next(ids))
        pipes = [_child(ids, each) for _ in range(children)]
        mine += [next(ids) for _ in range(each)]
        found: list[str] = []
        for read, child in pipes:
            with os.fdopen(read, "rb") as pipe:
                data = pipe.read()
            if os.waitpid(child, 0)[1]:
                raise RuntimeError("a child failed")
            found += map(str, struct.unpack(f"<{len(data) // 8}Q", data))
        return {"ids": found, "parents": _texts(mine)}


def _child(ids: xuid.Prefetch, each: int) -> tuple[int, int]:
    """A child that draws from what it inherited, and the pipe that it writes to."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return read, child
    status = 1
    try:
        with os.fdopen(write, "wb") as pipe:
            pipe.write(struct.pack(f"<{each}Q", *(next(ids) for _ in range(each))))
        status = 0
    finally:
        os._exit(status)


def _a_second(seconds: float, call: Callable[[], Any]) -> int:
    """How often a call is done a second."""
    done, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        for _ in range(1_000):
            call()
        done += 1_000
    return round(done / (time.monotonic() - begin))


def _bulk(asked: dict[str, Any]) -> dict[str, Any]:
    given = {"order": asked["order"]} if "order" in asked else {}
    return {**given, "wait": asked["wait_ms"] / 1_000} if "wait_ms" in asked else given


def _texts(ids: list[int]) -> list[str]:
    return [str(number) for number in ids]


def _runs(found: list[xuid.Run]) -> dict[str, Any]:
    return {"runs": [{"first": str(run.first), "count": run.count, "stride": str(run.stride)} for run in found]}


def _decoded(found: xuid.Decoded) -> dict[str, Any]:
    return {"unix_ms": str(found.unix_ms), "worker": found.worker, "sequence": found.sequence}


def _error(wrong: BaseException) -> dict[str, Any]:
    kind = next((name for known, name in _KINDS.items() if isinstance(wrong, known)), "usage")
    error: dict[str, Any] = {"kind": kind, "text": str(wrong)}
    if isinstance(wrong, xuid.Refused):
        error.update(status=wrong.name, code=wrong.status, retry_after_ms=wrong.retry_after_ms, text=wrong.text)
    return error


if __name__ == "__main__":
    asyncio.run(Program("--sync" in sys.argv[1:]).run())
