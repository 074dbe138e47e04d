"""How fast the client is, beside what bounds it: ``python3 tests/bench.py [SECONDS]``, with a server at XUID_SERVER or
127.0.0.1:7654, which needs land to spare. Each figure takes so many seconds, 2 by default. ``server/clients/bench`` runs those
of all clients in turn."""

from __future__ import annotations

import asyncio
import os
import pathlib
import socket
import struct
import sys
import time
from typing import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "src"))

import xuid_client as xuid  # noqa: E402

IN_FLIGHT = 100

#: Turns between two looks at the clock.
TURNS = 10_000

PREFACE = b"\x89XUID\r\n\x1a"
HELLO = struct.pack("<IBBHQ HHI16sBB", 26, 1, 0, 0, 1, 1, 1, 0, b"", 0, 0)
#: With the eight bytes of its body it is as long as the reply that brings an id, and so is its echo.
PING = struct.pack("<IBBHQ Q", 8, 2, 0, 0, 2, 7)


def per_second(seconds: float, some: Callable[[], int]) -> float:
    """Of ``some``, which says how many it did. The first half second is not counted."""
    warm = time.perf_counter() + 0.5
    while time.perf_counter() < warm:
        some()
    done, begin = 0, time.perf_counter()
    while time.perf_counter() < begin + seconds:
        done += some()
    return done / (time.perf_counter() - begin)


def counter() -> Callable[[], int]:
    count = 0

    def some() -> int:
        nonlocal count
        for _ in range(TURNS):
            count += 1
        return TURNS

    return some


def one_by_one(ids: xuid.Prefetch) -> int:
    for _ in range(TURNS):
        next(ids)
    return TURNS


def in_lists(ids: xuid.Prefetch) -> int:
    for _ in range(TURNS // 1_000):
        ids.take(1_000)
    return TURNS


def echo(address: tuple[str, int]) -> tuple[socket.socket, Callable[[], int]]:
    """Frames that come back as they were sent: written and counted by a bare socket, and not looked at."""
    link = socket.create_connection(address)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(PREFACE + HELLO)
    (length,) = struct.unpack("<I", link.recv(16, socket.MSG_WAITALL)[:4])
    link.recv(length, socket.MSG_WAITALL)
    many, part = PING * IN_FLIGHT, 0
    link.sendall(many)

    def some() -> int:
        nonlocal part
        done, part = divmod(part + len(link.recv(len(many))), len(PING))
        link.sendall(many[: done * len(PING)])
        return done

    return link, some


async def next_in_flight(seconds: float) -> float:
    async with xuid.AsyncClient() as client:
        done, begin = 0, time.perf_counter() + 0.5
        end = begin + seconds

        async def caller() -> None:
            nonlocal done
            while (now := time.perf_counter()) < end:
                await client.next()
                done += now >= begin

        await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
        return done / (time.perf_counter() - begin)


def show(what: str, figure: float) -> None:
    print(f"{what:<28}{figure:>16.0f} /s", flush=True)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    host, _, port = os.environ.get("XUID_SERVER", "127.0.0.1:7654").rpartition(":")
    show("a loop over a counter", per_second(seconds, counter()))
    with xuid.Client() as client, client.prefetch() as ids:
        show("prefetched, one by one", per_second(seconds, lambda: one_by_one(ids)))
        show("prefetched, lists of 1,000", per_second(seconds, lambda: in_lists(ids)))
    link, some = echo((host, int(port)))
    with link:
        show("a raw echo, 100 in flight", per_second(seconds, some))
    show("NEXT, 100 in flight", asyncio.run(next_in_flight(seconds)))


if __name__ == "__main__":
    main()
