"""The server's side of the frames: what the fake server reads and writes, and what a server refuses."""

import struct
import unicodedata
from typing import Any, NamedTuple, Optional

from xuid_client import wire

CLUSTER = bytes(range(0x10, 0x20))
MAX_BODY = 4_096
MAX_COUNT = 131_072

BAD_REQUEST, UNKNOWN_OP, TOO_LARGE, COUNT = 1, 3, 4, 5


class Asked(NamedTuple):
    """A request as a server reads it."""

    op: int
    request_id: int
    fields: dict[str, Any]


class Refusal(Exception):
    """What a server answers to a bad request."""

    def __init__(self, status: int, closes: bool = False):
        super().__init__(status, closes)
        self.status = status
        self.closes = closes


class _Body:
    """Fields from the front; too few are a refusal."""

    def __init__(self, body: bytes):
        self.rest = body

    def take(self, count: int) -> bytes:
        if len(self.rest) < count:
            raise Refusal(BAD_REQUEST)
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

    def short(self) -> bytes:
        return self.take(self.number(1))

    def text(self, most: int) -> str:
        part = self.short()
        if len(part) > most:
            raise Refusal(BAD_REQUEST)
        try:
            return part.decode()
        except UnicodeDecodeError:
            raise Refusal(BAD_REQUEST) from None

    def name(self) -> str:
        name = self.text(wire.NAME_MAX)
        controls = any(unicodedata.category(char) == "Cc" for char in name)
        if not name or controls or name != name.strip() or name.startswith("@"):
            raise Refusal(BAD_REQUEST)
        return name

    def order(self) -> int:
        order = self.number(1)
        if order > 2:
            raise Refusal(BAD_REQUEST)
        return order


def parse(data: bytes, greeted: bool) -> Optional[tuple[Asked, int]]:
    """The request at the front and its length; None: there is more to come. In the order in which a server checks."""
    if len(data) < wire.HEADER_LEN:
        return None
    body_len, op, flags, _, request_id = struct.unpack_from("<IBBHQ", data)
    if body_len > MAX_BODY:
        raise Refusal(TOO_LARGE, True)
    end = wire.HEADER_LEN + body_len
    if len(data) < end:
        return None
    out_of_turn = op == wire.HELLO if greeted else op not in (wire.HELLO, wire.PING)
    if out_of_turn:
        raise Refusal(BAD_REQUEST, True)
    try:
        if flags or op & wire.REPLY_BIT:
            raise Refusal(BAD_REQUEST)
        if op not in _FIELDS:
            raise Refusal(UNKNOWN_OP)
        body = _Body(data[wire.HEADER_LEN : end])
        fields = _FIELDS[op](body)
        if body.rest:
            raise Refusal(BAD_REQUEST)
    except Refusal as refusal:
        raise Refusal(refusal.status, op == wire.HELLO) from None
    count = fields.get("count", 1)
    if not 1 <= count <= MAX_COUNT or not 1 <= fields.get("limit", 1) <= 1_000:
        raise Refusal(COUNT)
    return Asked(op, request_id, fields), end


def _hello(body: _Body) -> dict[str, Any]:
    lowest, highest, features = body.number(2), body.number(2), body.number(4)
    cluster, token, client = body.take(16).hex(), body.short().decode(), body.short().decode()
    return {
        "min_version": lowest,
        "max_version": highest,
        "features": features,
        "cluster": cluster,
        "token": token,
        "client": client,
    }


def _ping(body: _Body) -> dict[str, Any]:
    if len(body.rest) > wire.PING_MAX:
        raise Refusal(BAD_REQUEST)
    return {"bytes": body.take(len(body.rest)).decode()}


def _bulk(body: _Body) -> dict[str, Any]:
    fields = {"count": body.number(4), "wait_ms": body.number(4), "order": body.order()}
    body.take(3)
    return fields


def _decode(body: _Body) -> dict[str, Any]:
    number = body.number(8)
    if number >> 63:
        raise Refusal(BAD_REQUEST)
    return {"id": str(number)}


def _seq_bulk(body: _Body) -> dict[str, Any]:
    count, wait_ms, order, contiguous, _ = body.number(4), body.number(4), body.order(), body.number(1), body.number(2)
    if order == 1:
        raise Refusal(BAD_REQUEST)
    return {"count": count, "wait_ms": wait_ms, "order": order, "contiguous": contiguous, "name": body.name()}


def _seq_array(body: _Body) -> dict[str, Any]:
    fields = _seq_bulk(body)
    del fields["contiguous"]
    return fields


def _seq_runs(body: _Body) -> dict[str, Any]:
    fields = _seq_bulk(body)
    if fields["contiguous"] > 1:
        raise Refusal(BAD_REQUEST)
    return {**fields, "contiguous": bool(fields["contiguous"])}


def _seq_list(body: _Body) -> dict[str, Any]:
    return {"limit": body.number(4), "prefix": body.text(wire.NAME_MAX), "after": body.text(wire.NAME_MAX)}


def _seq_settings(body: _Body) -> dict[str, Any]:
    name, rest = body.name(), body.take(len(body.rest))
    try:
        return {"name": name, "json": rest.decode()}
    except UnicodeDecodeError:
        raise Refusal(BAD_REQUEST) from None


_FIELDS = {
    wire.HELLO: _hello,
    wire.PING: _ping,
    wire.NEXT: lambda body: {"order": body.order() if body.rest else 0},
    wire.ARRAY: _bulk,
    wire.RUNS: _bulk,
    wire.DECODE: _decode,
    wire.INFO: lambda body: {},
    wire.STATS: lambda body: {},
    wire.PROVENANCE: _decode,
    wire.SEQ_NEXT: lambda body: {"name": body.name()},
    wire.SEQ_ARRAY: _seq_array,
    wire.SEQ_RUNS: _seq_runs,
    wire.SEQ_INFO: lambda body: {"name": body.name()},
    wire.SEQ_LIST: _seq_list,
    wire.SEQ_CREATE: _seq_settings,
    wire.SEQ_ALTER: _seq_settings,
    wire.BYE: lambda body: {},
}


# Replies


def reply(op: int, request_id: int, body: bytes, status: int = 0) -> bytes:
    return struct.pack("<IBBHQ", len(body), op | wire.REPLY_BIT, 0, status, request_id) + body


def goaway() -> bytes:
    return struct.pack("<IBBHQ", 0, wire.GOAWAY, 0, 0, 0)


def error(op: int, request_id: int, status: int, retry_after_ms: int = 0, text: str = "so it is") -> bytes:
    body = struct.pack("<IH", retry_after_ms, len(text.encode())) + text.encode()
    return reply(op, request_id, body, status)


def welcome(request_id: int, cluster: bytes = CLUSTER, max_in_flight: int = 1_024) -> bytes:
    limits = (MAX_BODY, MAX_COUNT, max_in_flight, 300_000)
    body = struct.pack("<HHI16sQIBBBBIIII", 1, 0, 0, cluster, 1_524_153_600_000, 1_000, 41, 10, 12, 0, *limits)
    return reply(wire.HELLO, request_id, body + b"\x040.1f")


def number(op: int, request_id: int, value: int) -> bytes:
    return reply(op, request_id, struct.pack("<Q", value))


def ids(op: int, request_id: int, values: list[int]) -> bytes:
    return reply(op, request_id, struct.pack(f"<II{len(values)}Q", len(values), 0, *values))


def runs(op: int, request_id: int, found: list[tuple[int, int, int]], count: Optional[int] = None) -> bytes:
    total = sum(run[1] for run in found) if count is None else count
    body = struct.pack("<II", total, len(found)) + b"".join(struct.pack("<QII", *run) for run in found)
    return reply(op, request_id, body)
