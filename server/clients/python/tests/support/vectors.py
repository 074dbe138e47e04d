"""The golden vectors of the wire: what this client encodes and decodes, and what a server refuses."""

import json
import pathlib
import struct
from typing import Any, Optional

from xuid_client import wire

from . import frames

_ORDERS = {code: order for order, code in wire.ORDERS.items()}


class Mismatch(AssertionError):
    """The first vector that failed."""


def find() -> Optional[pathlib.Path]:
    """The file in the project that this folder is of."""
    for folder in pathlib.Path(__file__).resolve().parents:
        file = folder / "server" / "protocol" / "golden" / "vectors.json"
        if file.exists():
            return file
    return None


def check(file: str) -> dict[str, int]:
    """Checks all, and counts what was encoded, decoded and refused."""
    counts = {"encoded": 0, "decoded": 0, "refused": 0}
    for vector in json.loads(pathlib.Path(file).read_text(encoding="utf-8")):
        try:
            _check(vector, counts)
        except Exception as wrong:
            raise Mismatch(f"{vector['kind']} {vector['name']!r}: {wrong!r}") from wrong
    return counts


def _check(vector: dict[str, Any], counts: dict[str, int]) -> None:
    data, expected = bytes.fromhex(vector["hex"]), vector["frame"]
    head = wire.header(data)
    _same((head.op, str(head.request_id)), (expected["op"], expected["request_id"]))
    if vector["kind"] != "refused":
        _same((head.body_len, head.status), (len(data) - wire.HEADER_LEN, expected["status"]))
    if vector["kind"] == "request":
        asked, length = frames.parse(data, vector["phase"] == "serving") or (None, 0)
        _same((asked.op, str(asked.request_id), asked.fields), _parts(expected))
        _same(length, len(data))
        if vector["encode"]:
            _same(wire.frame(_request(expected), int(expected["request_id"])).hex(), vector["hex"])
            counts["encoded"] += 1
        counts["decoded"] += 1
    elif vector["kind"] == "reply":
        _check_reply(data, expected)
        counts["decoded"] += 1
        if vector["encode"]:
            _same(_reply(expected).hex(), vector["hex"])
            counts["encoded"] += 1
    else:
        try:
            frames.parse(data, vector["phase"] == "serving")
        except frames.Refusal as refusal:
            _same((refusal.status, refusal.closes), (expected["status"], expected["body"]["closes"]))
            counts["refused"] += 1
        else:
            raise Mismatch("it was taken")


def _check_reply(data: bytes, expected: dict[str, Any]) -> None:
    head, body = wire.header(data), data[wire.HEADER_LEN :]
    fields, op = expected["body"], head.op & ~wire.REPLY_BIT
    count = fields.get("count", len(fields.get("ids", ())))
    request = wire.Request(op, fields.get("bytes", "").encode(), count)
    wire.check_header(head, request)
    if head.op == wire.GOAWAY:
        return
    answer = wire.reply(request, head, body)
    if head.status:
        _same((answer.retry_after_ms, answer.text), (fields["retry_after_ms"], fields["text"]))
    else:
        _same(_READ[op](answer), {key: fields[key] for key in fields if key not in _NOT_KEPT})
    # What a later server says behind the fields is not looked at.
    if op not in (wire.PING, wire.INFO, wire.STATS, wire.PROVENANCE) and op < wire.SEQ_INFO:
        _same(wire.reply(request, head, body + b"later"), answer)


#: Fields that the client checks, and does not keep.
_NOT_KEPT = ("version", "features", "count")


def _greeting(served: Any) -> dict[str, Any]:
    layout = served.layout._asdict()
    layout["epoch_ms"] = str(layout["epoch_ms"])
    limits = {key: getattr(served, key) for key in ("max_body", "max_count", "max_in_flight", "idle_ms")}
    return {**layout, **limits, "cluster": served.cluster, "server": served.version}


def _runs(found: Any) -> dict[str, Any]:
    return {"runs": [{**run._asdict(), "first": str(run.first)} for run in found]}


def _json(value: Any) -> dict[str, Any]:
    return {"json": json.dumps(value, separators=(",", ":"))}


_READ: dict[int, Any] = {
    wire.HELLO: _greeting,
    wire.PING: lambda echo: {"bytes": echo.decode()},
    wire.DECODE: lambda found: {**found._asdict(), "unix_ms": str(found.unix_ms)},
    wire.BYE: lambda nothing: {},
    **{op: lambda number: {"id": str(number)} for op in (wire.NEXT, wire.SEQ_NEXT)},
    **{op: lambda ids: {"ids": [str(number) for number in ids]} for op in (wire.ARRAY, wire.SEQ_ARRAY)},
    **{op: _runs for op in (wire.RUNS, wire.SEQ_RUNS)},
    **{op: _json for op in (wire.INFO, wire.STATS, wire.PROVENANCE, *range(wire.SEQ_INFO, wire.SEQ_ALTER + 1))},
}


def _request(expected: dict[str, Any]) -> wire.Request:
    """The client's request of these fields."""
    fields, op = expected["body"], expected["op"]
    order = _ORDERS[fields.get("order", 0)]
    bulk = (fields.get("count"), order, fields.get("wait_ms", 0) / 1_000)
    if op == wire.HELLO:
        hello = wire.hello(bytes.fromhex(fields["cluster"]), fields["token"].encode(), fields["client"])
        # This client offers one version and no feature.
        offer = b"".join(fields[key].to_bytes(size, "little") for key, size in _OFFER)
        return hello._replace(body=offer + hello.body[len(offer) :])
    named = {
        wire.PING: lambda: wire.ping(fields["bytes"].encode()),
        wire.NEXT: lambda: wire.next_id(order),
        wire.ARRAY: lambda: wire.array(*bulk),
        wire.RUNS: lambda: wire.runs(*bulk),
        wire.DECODE: lambda: wire.decode_id(int(fields["id"])),
        wire.INFO: wire.info,
        wire.STATS: wire.stats,
        wire.PROVENANCE: lambda: wire.provenance(int(fields["id"])),
        wire.BYE: wire.bye,
        wire.SEQ_NEXT: lambda: wire.seq_next(fields["name"]),
        wire.SEQ_ARRAY: lambda: wire.seq_array(fields["name"], *bulk),
        wire.SEQ_RUNS: lambda: wire.seq_runs(fields["name"], *bulk, fields["contiguous"]),
        wire.SEQ_INFO: lambda: wire.seq_info(fields["name"]),
        wire.SEQ_LIST: lambda: wire.seq_list(fields["prefix"], fields["after"], fields["limit"]),
        wire.SEQ_CREATE: lambda: wire.seq_create(fields["name"], fields["json"]),
        wire.SEQ_ALTER: lambda: wire.seq_alter(fields["name"], fields["json"]),
    }
    return named[op]()


def _reply(expected: dict[str, Any]) -> bytes:
    """The reply of these fields, as the tests' own server writes it."""
    fields, op, request_id = expected["body"], expected["op"] & ~wire.REPLY_BIT, int(expected["request_id"])
    if expected["op"] == wire.GOAWAY:
        return frames.goaway()
    if expected["status"]:
        return frames.error(op, request_id, expected["status"], fields["retry_after_ms"], fields["text"])
    if "id" in fields:
        return frames.number(op, request_id, int(fields["id"]))
    if "ids" in fields:
        return frames.ids(op, request_id, [int(number) for number in fields["ids"]])
    if "runs" in fields:
        runs = [(int(run["first"]), run["count"], run["stride"]) for run in fields["runs"]]
        return frames.runs(op, request_id, runs, fields["count"])
    if "cluster" in fields:
        return frames.reply(op, request_id, _hello(fields))
    if "unix_ms" in fields:
        decoded = struct.pack("<QII", int(fields["unix_ms"]), fields["worker"], fields["sequence"])
        return frames.reply(op, request_id, decoded)
    return frames.reply(op, request_id, fields.get("bytes", fields.get("json", "")).encode())


def _hello(fields: dict[str, Any]) -> bytes:
    bits = (fields[key] for key in ("time_bits", "worker_bits", "sequence_bits", "face"))
    limits = (fields[key] for key in ("max_body", "max_count", "max_in_flight", "idle_ms"))
    front = struct.pack("<HHI", fields["version"], 0, fields["features"]) + bytes.fromhex(fields["cluster"])
    layout = struct.pack("<QIBBBB", int(fields["epoch_ms"]), fields["tick_us"], *bits)
    server = fields["server"].encode()
    return front + layout + struct.pack("<IIII", *limits) + bytes([len(server)]) + server


_OFFER = (("min_version", 2), ("max_version", 2), ("features", 4))


def _parts(expected: dict[str, Any]) -> Any:
    return expected["op"], expected["request_id"], expected["body"]


def _same(found: Any, expected: Any) -> None:
    if found != expected:
        raise Mismatch(f"{found!r} is not {expected!r}")
