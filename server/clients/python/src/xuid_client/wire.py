"""The frames of XUID/1: values to bytes, and bytes to values. No sockets, no clock.

A reply is checked against the request that it answers. :class:`Breach` says how a server broke the protocol: no id of
such a connection is believed any more.
"""

from __future__ import annotations

import json
import struct
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import UsageError
from .values import LARGEST_ID, Decoded, Layout, Run, Served

PREFACE = b"\x89XUID\r\n\x1a"
VERSION = 1
ANY_CLUSTER = bytes(16)

HELLO, PING = 0x01, 0x02
NEXT, ARRAY, RUNS = 0x10, 0x11, 0x12
DECODE, INFO, STATS, PROVENANCE = 0x20, 0x21, 0x22, 0x23
SEQ_NEXT, SEQ_ARRAY, SEQ_RUNS = 0x30, 0x31, 0x32
SEQ_INFO, SEQ_LIST, SEQ_CREATE, SEQ_ALTER = 0x38, 0x39, 0x3A, 0x3B
GOAWAY, BYE = 0x7E, 0x7F
REPLY_BIT = 0x80

ORDERS = {"any": 0, "fresh": 1, "ordered": 2}

#: The longest that a request may wait, in seconds; the server takes more for as much.
WAIT_CAP = 60.0
PING_MAX = 1_024
#: The body of a request that every server takes.
REQUEST_MAX = 4_096
NAME_MAX = 128
#: Of a token, and of a client's name.
SHORT_MAX = 255

#: What a reader is ready for in a reply beside ids and JSON: an error's text of 65,535 bytes, and what a later server adds.
REPLY_ROOM = 128 * 1_024
JSON_MAX = 1 << 20

_HEADER = struct.Struct("<IBBHQ")
HEADER_LEN = _HEADER.size
_BULK = struct.Struct("<IIBBH")
_HELLO = struct.Struct("<HHI16s")
_GREETING = struct.Struct("<HHI16sQIBBBBIIII")
_ERROR = struct.Struct("<IH")
_TWO = struct.Struct("<II")
_ID = struct.Struct("<Q")
_RUN = struct.Struct("<QII")
_DECODED = struct.Struct("<QII")

_COUNTED = {ARRAY: 8, SEQ_ARRAY: 8, RUNS: 16, SEQ_RUNS: 16}
_JSON = frozenset({INFO, STATS, PROVENANCE, SEQ_INFO, SEQ_LIST, SEQ_CREATE, SEQ_ALTER})


class Breach(Exception):
    """How a server broke the protocol."""


class Header(NamedTuple):
    body_len: int
    op: int
    flags: int
    status: int
    request_id: int


class ErrorReply(NamedTuple):
    """The body of a reply with a status."""

    status: int
    retry_after_ms: int
    text: str


class Request(NamedTuple):
    """A request, and what its reply must be."""

    op: int
    body: bytes = b""
    #: Ids asked for by number; 0: none are.
    count: int = 0  # type: ignore[assignment]  # not the method of a tuple
    #: They are to be one run.
    contiguous: bool = False
    #: How long the server may wait for them, in seconds.
    wait: float = 0.0


def frame(request: Request, request_id: int) -> bytes:
    """A whole request."""
    return _HEADER.pack(len(request.body), request.op, 0, 0, request_id) + request.body


# Requests


def hello(cluster: bytes, token: bytes, client: str) -> Request:
    name = client.encode()
    for what, part in (("token", token), ("client_name", name)):
        if len(part) > SHORT_MAX:
            raise UsageError(f"{what} has {len(part)} bytes, and at most {SHORT_MAX} are allowed")
    front = _HELLO.pack(VERSION, VERSION, 0, cluster)
    return Request(HELLO, front + bytes([len(token)]) + token + bytes([len(name)]) + name)


def ping(payload: bytes = b"") -> Request:
    if len(payload) > PING_MAX:
        raise UsageError(f"a ping has {len(payload)} bytes, and at most {PING_MAX} are allowed")
    return Request(PING, bytes(payload))


def next_id(order: str = "any") -> Request:
    code = _order(order)
    return Request(NEXT, bytes([code]) if code else b"")


def array(count: int, order: str, wait: float) -> Request:
    return _bulk(ARRAY, count, _order(order), wait)


def runs(count: int, order: str, wait: float) -> Request:
    return _bulk(RUNS, count, _order(order), wait)


def decode_id(number: int) -> Request:
    return Request(DECODE, _id(number))


def provenance(number: int) -> Request:
    return Request(PROVENANCE, _id(number))


def _id(number: int) -> bytes:
    if not isinstance(number, int) or not 0 <= number <= LARGEST_ID:
        raise UsageError(f"{number!r} is no id: an id is an integer from 0 to 2^63 - 1")
    return _ID.pack(number)


def info() -> Request:
    return Request(INFO)


def stats() -> Request:
    return Request(STATS)


def bye() -> Request:
    return Request(BYE)


def seq_next(name: str) -> Request:
    return Request(SEQ_NEXT, _name(name))


def seq_array(name: str, count: int, order: str, wait: float) -> Request:
    return _bulk(SEQ_ARRAY, count, _sequence_order(order), wait, _name(name))


def seq_runs(name: str, count: int, order: str, wait: float, contiguous: bool = False) -> Request:
    return _bulk(SEQ_RUNS, count, _sequence_order(order), wait, _name(name), bool(contiguous))


def seq_info(name: str) -> Request:
    return Request(SEQ_INFO, _name(name))


def seq_list(prefix: str, after: str, limit: int) -> Request:
    body = _u32("limit", limit)
    for what, part in (("prefix", prefix), ("after", after)):
        text = _utf8(what, part)
        if len(text) > NAME_MAX:
            raise UsageError(f"{what} has {len(text)} bytes, and at most {NAME_MAX} are allowed")
        body += bytes([len(text)]) + text
    return Request(SEQ_LIST, body)


def seq_create(name: str, settings: str | Mapping[str, Any]) -> Request:
    return Request(SEQ_CREATE, _fits(_name(name) + (_settings(settings) if settings else b"")))


def seq_alter(name: str, changes: str | Mapping[str, Any]) -> Request:
    return Request(SEQ_ALTER, _fits(_name(name) + _settings(changes)))


def _bulk(op: int, count: int, order: int, wait: float, name: bytes = b"", contiguous: bool = False) -> Request:
    seconds = _wait(wait)
    # Whether the count is one the server has is the server's to say: its limit may change.
    _u32("count", count)
    body = _BULK.pack(count, round(seconds * 1_000), order, contiguous, 0) + name
    return Request(op, body, count, contiguous, seconds)


def _u32(what: str, number: int) -> bytes:
    if not isinstance(number, int) or not 0 <= number < 1 << 32:
        raise UsageError(f"{what} is {number!r}, and an integer from 0 to 2^32 - 1 is allowed")
    return number.to_bytes(4, "little")


def _wait(wait: float) -> float:
    # Not written as wait < 0: a NaN is refused, too.
    if not wait >= 0:
        raise UsageError(f"wait is {wait!r}, and 0 or more seconds are allowed")
    return min(float(wait), WAIT_CAP)


def _order(order: str) -> int:
    try:
        return ORDERS[order]
    except (KeyError, TypeError):
        raise UsageError(f"order is {order!r}, and 'any', 'fresh' or 'ordered' is allowed") from None


def _sequence_order(order: str) -> int:
    code = _order(order)
    if code == ORDERS["fresh"]:
        raise UsageError("order is 'fresh', and a sequence has 'any' or 'ordered' only")
    return code


def _utf8(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except (AttributeError, UnicodeEncodeError):
        raise UsageError(f"{what} is {text!r}, and a text in Unicode is allowed") from None


def _name(name: str) -> bytes:
    text = _utf8("the name of a sequence", name)
    if not 1 <= len(text) <= NAME_MAX:
        raise UsageError(f"the name of a sequence has {len(text)} bytes, and 1 to {NAME_MAX} are allowed")
    if name != name.strip():
        raise UsageError(f"{name!r} begins or ends with a space, and the name of a sequence may not")
    if name.startswith("@"):
        raise UsageError(f"{name!r} begins with @, which is kept for the servers' own names")
    if any(unicodedata.category(char) == "Cc" for char in name):
        raise UsageError(f"{name!r} has a control character, and the name of a sequence may not")
    return bytes([len(text)]) + text


def _fits(body: bytes) -> bytes:
    """A body that every server takes. A longer one would end the connection, for all its callers."""
    if len(body) > REQUEST_MAX:
        raise UsageError(f"name and settings have {len(body)} bytes, and at most {REQUEST_MAX} are allowed")
    return body


def _settings(settings: str | Mapping[str, Any]) -> bytes:
    """A JSON object. Numbers go as strings, because many readers keep numbers in 53 bits. A text is one already."""
    if isinstance(settings, str):
        return _utf8("settings", settings)

    def plain(value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    fields = {key: plain(value) for key, value in settings.items()}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


# Replies


def header(buffer: bytes | bytearray, at: int = 0) -> Header | None:
    """The header that begins there; None: it is not whole yet."""
    if len(buffer) - at < HEADER_LEN:
        return None
    return Header._make(_HEADER.unpack_from(buffer, at))


def check_header(head: Header, request: Request | None) -> None:
    """Refuses by its header alone what is no reply, or a longer one than the request asked for."""
    if head.flags or not (head.op & REPLY_BIT or head.op == GOAWAY):
        raise Breach(f"a frame of op {head.op:02x} and flags {head.flags:02x} is no reply")
    limit = REPLY_ROOM
    if request is not None and not head.status:
        limit += JSON_MAX if request.op in _JSON else request.count * _COUNTED.get(request.op, 0)
    if head.body_len > limit:
        raise Breach(f"a reply claims {head.body_len} bytes, and at most {limit} were asked for")


def reply(request: Request, head: Header, body: bytes) -> Any:
    """What the reply holds: an :class:`ErrorReply`, or the value of its op. Bytes behind its fields are not looked at."""
    op = head.op & ~REPLY_BIT
    if op != request.op:
        raise Breach(f"a request of op {request.op:02x} was answered with op {op:02x}")
    if head.status:
        return error(head.status, body)
    try:
        return _READERS[op](request, body)
    except struct.error:
        raise Breach(f"a reply to op {op:02x} has {len(body)} bytes: it ends before its fields do") from None
    except UnicodeDecodeError:
        raise Breach(f"a reply to op {op:02x} is not UTF-8") from None


def error(status: int, body: bytes) -> ErrorReply:
    try:
        retry_after_ms, length = _ERROR.unpack_from(body)
    except struct.error:
        length = len(body)
    if len(body) < _ERROR.size + length:
        raise Breach(f"an error of {len(body)} bytes ends before its fields do")
    text = body[_ERROR.size : _ERROR.size + length].decode(errors="replace")
    return ErrorReply(status, retry_after_ms, printable(text))


def greeting(server: str, body: bytes) -> Served:
    """The reply to HELLO."""
    fields = _GREETING.unpack_from(body)
    version, _, _, cluster, epoch_ms, tick_us, time_bits, worker_bits, sequence_bits, face = fields[:10]
    if version != VERSION:
        raise Breach(f"version {version} was picked, and only version {VERSION} was offered")
    if not 40 <= time_bits + worker_bits + sequence_bits <= 63 or not tick_us or face > 2:
        what = f"{time_bits}/{worker_bits}/{sequence_bits} bits, ticks of {tick_us} us and face {face}"
        raise Breach(f"a layout of {what} is none")
    layout = Layout(epoch_ms, tick_us, time_bits, worker_bits, sequence_bits, face)
    at = _GREETING.size
    length = struct.unpack_from("<B", body, at)[0]
    (text,) = struct.unpack_from(f"<{length}s", body, at + 1)
    return Served(server, printable(text.decode(errors="replace")), cluster.hex(), layout, *fields[10:])


def printable(text: str) -> str:
    """A text of somebody else's in one line of a log."""
    return "".join(char if char.isprintable() else " " for char in text)


def _read_greeting(_: Request, body: bytes) -> Served:
    return greeting("", body)


def _read_ping(request: Request, body: bytes) -> bytes:
    if body != request.body:
        raise Breach("a PING came back with other bytes")
    return body


def _read_id(_: Request, body: bytes) -> int:
    (number,) = _ID.unpack_from(body)
    if number > LARGEST_ID:
        raise Breach(f"{number} is no id: an id is below 2^63")
    return int(number)


def _read_array(request: Request, body: bytes) -> tuple[int, ...]:
    count, _ = _TWO.unpack_from(body)
    _same_count(request, count)
    ids = struct.unpack_from(f"<{count}Q", body, _TWO.size)
    if ids and max(ids) > LARGEST_ID:
        raise Breach(f"{max(ids)} is no id: an id is below 2^63")
    return ids


def _read_runs(request: Request, body: bytes) -> tuple[Run, ...]:
    count, length = _TWO.unpack_from(body)
    _same_count(request, count)
    end = _TWO.size + length * _RUN.size
    if end > len(body):
        raise struct.error
    found = tuple(map(Run._make, _RUN.iter_unpack(body[_TWO.size : end])))
    for run in found:
        if not run.count or run.first + (run.count - 1) * run.stride > LARGEST_ID:
            raise Breach(f"{run} is empty, or leaves the 63 bits of an id")
        if not run.stride and run.count > 1:
            raise Breach(f"{run} has more than one id, and a stride of 0")
    if sum(run.count for run in found) != count:
        raise Breach(f"the runs of a reply do not add up to its {count} ids")
    if request.contiguous and length != 1:
        raise Breach(f"one run was asked for, and {length} came")
    return found


def _same_count(request: Request, count: int) -> None:
    if count != request.count:
        raise Breach(f"{request.count} ids were asked for, and {count} came: it is all or nothing")


def _read_decoded(_: Request, body: bytes) -> Decoded:
    return Decoded._make(_DECODED.unpack_from(body))


def _read_json(_: Request, body: bytes) -> Any:
    try:
        return json.loads(body.decode())
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as wrong:
        raise Breach(f"a reply is no JSON: {wrong}") from None


def _read_nothing(_: Request, body: bytes) -> None:
    return None


_READERS = {
    HELLO: _read_greeting,
    PING: _read_ping,
    NEXT: _read_id,
    ARRAY: _read_array,
    RUNS: _read_runs,
    DECODE: _read_decoded,
    BYE: _read_nothing,
    SEQ_NEXT: _read_id,
    SEQ_ARRAY: _read_array,
    SEQ_RUNS: _read_runs,
    **{op: _read_json for op in _JSON},
}
