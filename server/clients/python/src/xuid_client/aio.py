"""The client for tasks of asyncio. What the arguments mean is said at :class:`.client.Client`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from . import wire
from .client import WAIT, Base, merged
from .errors import Closed
from .link.tasks import Tasks
from .prefetch import AsyncPrefetch
from .process import own, settle
from .values import Decoded, Run


class AsyncClient(Base):
    """Ids for the tasks of one event loop: any number of them share one connection.

        async with AsyncClient() as client:
            print(await client.next())

    A task may be cancelled at any time: its call ends alone, and its ids are wasted. It is as :class:`Client` otherwise. A
    client that is used in another event loop than before, as in a forked child, connects anew there.
    """

    def _port(self) -> Callable[[], Any]:
        return Tasks

    async def connect(self) -> AsyncClient:
        """Connects now, and says what is wrong with the servers."""
        await self._fleet.link(max(self._fleet.options.timeout, self._fleet.options.connect_timeout))
        return self

    async def close(self) -> None:
        """Says goodbye and closes, for all tasks. Prefetched ids are dropped."""
        await self._fleet.close()

    async def __aenter__(self) -> AsyncClient:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(self, request: wire.Request, make: Callable[[Any], Any] | None = None) -> Any:
        """What is made of the answer."""
        while True:
            settle()
            process = self._fleet.process
            answer = await self._fleet.call(request)
            if make:
                answer = make(answer)
            # Last: another task, or a signal's handler, may have forked since it came, and in the child it is the parent's.
            if own[0] and process is self._fleet.process:
                return answer

    async def next(self, order: str = "any") -> int:
        """As :meth:`Client.next`."""
        return await self._call(wire.next_id(order))  # type: ignore[no-any-return]

    async def array(self, count: int, order: str = "any", wait: float = WAIT) -> list[int]:
        """As :meth:`Client.array`."""
        return await self._call(wire.array(count, order, wait), list)  # type: ignore[no-any-return]

    async def runs(self, count: int, order: str = "any", wait: float = WAIT) -> list[Run]:
        """As :meth:`Client.runs`."""
        return await self._call(wire.runs(count, order, wait), list)  # type: ignore[no-any-return]

    async def decode(self, number: int) -> Decoded:
        """As :meth:`Client.decode`."""
        return await self._call(wire.decode_id(number))  # type: ignore[no-any-return]

    async def info(self) -> dict[str, Any]:
        """As :meth:`Client.info`."""
        return await self._call(wire.info())  # type: ignore[no-any-return]

    async def stats(self) -> dict[str, Any]:
        """As :meth:`Client.stats`."""
        return await self._call(wire.stats())  # type: ignore[no-any-return]

    async def provenance(self, number: int) -> dict[str, Any]:
        """As :meth:`Client.provenance`."""
        return await self._call(wire.provenance(number))  # type: ignore[no-any-return]

    async def ping(self, payload: bytes = b"") -> None:
        """As :meth:`Client.ping`."""
        await self._call(wire.ping(payload))

    def sequence(self, name: str) -> AsyncSequence:
        """As :meth:`Client.sequence`."""
        return AsyncSequence(self, name)

    async def sequences(self, prefix: str = "", after: str = "", limit: int = 1_000) -> list[dict[str, Any]]:
        """As :meth:`Client.sequences`."""
        return await self._call(wire.seq_list(prefix, after, limit))  # type: ignore[no-any-return]

    def prefetch(
        self, least: int = 16, most: int = 1 << 20, max_age: float = 2.0, wait: float = 1.0
    ) -> AsyncPrefetch:
        """As :meth:`Client.prefetch`, for the tasks of one event loop."""
        if self._fleet.is_closed:
            raise Closed
        return AsyncPrefetch(self, self._fleet, least, most, max_age, wait)


class AsyncSequence:
    """The numbers of one name, made by :meth:`AsyncClient.sequence`. As :class:`Sequence`."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        # Says what is wrong with it.
        wire.seq_next(name)
        self._client = client
        self.name = name

    async def _call(self, request: wire.Request, make: Callable[[Any], Any] | None = None) -> Any:
        return await self._client._call(request, make)

    async def next(self) -> int:
        """As :meth:`Sequence.next`."""
        return await self._call(wire.seq_next(self.name))  # type: ignore[no-any-return]

    async def array(self, count: int, order: str = "ordered", wait: float = WAIT) -> list[int]:
        """As :meth:`Sequence.array`."""
        return await self._call(wire.seq_array(self.name, count, order, wait), list)  # type: ignore[no-any-return]

    async def runs(self, count: int, order: str = "ordered", wait: float = WAIT) -> list[Run]:
        """As :meth:`Sequence.runs`."""
        return await self._call(wire.seq_runs(self.name, count, order, wait), list)  # type: ignore[no-any-return]

    async def contiguous(self, count: int, order: str = "ordered", wait: float = WAIT) -> Run:
        """As :meth:`Sequence.contiguous`."""
        return (await self._call(wire.seq_runs(self.name, count, order, wait, True)))[0]  # type: ignore[no-any-return]

    async def info(self) -> dict[str, Any]:
        """As :meth:`Sequence.info`."""
        return await self._call(wire.seq_info(self.name))  # type: ignore[no-any-return]

    async def create(self, settings: str | Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """As :meth:`Sequence.create`."""
        return await self._call(wire.seq_create(self.name, merged(settings, fields)))  # type: ignore[no-any-return]

    async def alter(self, changes: str | Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """As :meth:`Sequence.alter`."""
        return await self._call(wire.seq_alter(self.name, merged(changes, fields)))  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"{self._client!r}.sequence({self.name!r})"
