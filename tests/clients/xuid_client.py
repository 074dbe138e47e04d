#!/usr/bin/env python3
"""A client of XUID/1 in another language, written from docs/protocol.md alone. Standard library only.

    xuid_client.py take --server 127.0.0.1:7654 --op next|array|runs --order any|fresh|ordered \
        --count 1000000 --connections 4 --out ids.u64
    xuid_client.py manners --server 127.0.0.1:7654

`take` gets exactly `count` ids and writes them as little-endian u64; it ends with 1 and a sentence when the
server broke a rule: a count that differs, an id twice, an ordered id below an earlier one, a stale fresh id.
`manners` tries every other op once.
"""

import argparse
import array
import json
import socket
import struct
import sys
import time

PREFACE = b"\x89XUID\r\n\x1a"
HEADER = struct.Struct("<IBBHQ")
HELLO, PING, NEXT, ARRAY, RUNS, DECODE, INFO, STATS, GOAWAY, BYE = (
    0x01, 0x02, 0x10, 0x11, 0x12, 0x20, 0x21, 0x22, 0x7E, 0x7F)
ORDERS = {"any": 0, "fresh": 1, "ordered": 2}
OVERLOADED = 0x8011
COUNT = 0x0005
UNKNOWN_OP = 0x0003
# Requests of one pipelined window, ids of one ARRAY, ids of one RUNS.
WINDOW, ARRAY_COUNT, RUNS_COUNT = 1000, 10_000, 50_000
# A fresh id is at most 10 ms old at arrival; ticks and clock readings add one each.
FRESH_MS = 12


class Broken(Exception):
    """The server broke a rule of the protocol."""


class Refused(Exception):
    """An error reply."""

    def __init__(self, status, body):
        self.status = status
        self.retry_after_ms, length = struct.unpack_from("<IH", body)
        self.text = body[6:6 + length].decode("utf-8")
        super().__init__(f"status {status:04x}: {self.text}")


def require(condition, sentence):
    if not condition:
        raise Broken(sentence)


class Connection:
    """One connection: preface and HELLO on the way in, frames in both directions afterwards."""

    def __init__(self, server):
        host, _, port = server.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.inbox = b""
        self.at = 0
        self.last_request = 0
        name = b"python"
        hello = struct.pack("<HHI16sBB", 1, 1, 0, bytes(16), 0, len(name)) + name
        self.socket.sendall(PREFACE)
        body = self.call(HELLO, hello)
        (self.version, _, self.features, self.cluster, self.epoch_ms, self.tick_us, self.time_bits,
         self.worker_bits, self.sequence_bits, _, self.max_body, self.max_count, self.max_in_flight,
         self.idle_ms, length) = struct.unpack_from("<HHI16sQIBBBBIIIIB", body)
        self.server_version = body[-length:].decode("utf-8") if length else ""
        require(self.version == 1, "only version 1 was offered")
        require(self.features == 0, "no feature was offered")
        require(self.time_bits + self.worker_bits + self.sequence_bits == 63, "63 bits of layout")
        require(self.max_count >= 131_072, "max_count is at least 131,072")
        require(self.max_body >= 4_096, "max_body is at least 4,096")

    def request(self, op, body=b""):
        """The bytes of a request, and its id."""
        self.last_request += 1
        return HEADER.pack(len(body), op, 0, 0, self.last_request) + body

    def receive(self):
        """The next frame: op, status, request id, body."""
        while True:
            if len(self.inbox) - self.at >= HEADER.size:
                length, op, flags, status, request_id = HEADER.unpack_from(self.inbox, self.at)
                begin = self.at + HEADER.size
                if len(self.inbox) >= begin + length:
                    self.at = begin + length
                    require(flags == 0, "flags are 0 in version 1")
                    if op == GOAWAY:
                        continue
                    require(op & 0x80, "bit 7 of a reply's op is set")
                    return op, status, request_id, self.inbox[begin:begin + length]
            more = self.socket.recv(1 << 18)
            if not more:
                raise Broken("the server closed the connection")
            self.inbox = self.inbox[self.at:] + more
            self.at = 0

    def call(self, op, body=b""):
        self.socket.sendall(self.request(op, body))
        reply_op, status, request_id, reply = self.receive()
        require(request_id == self.last_request, "a reply to another request")
        require(reply_op == op | 0x80, "the op of the reply is the request's with bit 7")
        if status:
            raise Refused(status, reply)
        return reply

    def next_window(self, count, order):
        """`count` NEXT requests in flight at once."""
        first = self.last_request + 1
        body = bytes([order]) if order else b""
        self.socket.sendall(b"".join(self.request(NEXT, body) for _ in range(count)))
        ids, refused, waiting = [], 0, set(range(first, first + count))
        for _ in range(count):
            op, status, request_id, reply = self.receive()
            require(op == NEXT | 0x80, "a reply to NEXT")
            require(request_id in waiting, "each request is answered once")
            waiting.remove(request_id)
            if status == 0:
                ids.append(struct.unpack_from("<Q", reply)[0])
            elif status & 0x8000:
                refused += 1
            else:
                raise Refused(status, reply)
        return ids, refused

    def many(self, op, count, order):
        """The reply to ARRAY or RUNS, asked again while the refusal says it may be."""
        for _ in range(100):
            try:
                return self.call(op, struct.pack("<IIB3x", count, 1_000, order))
            except Refused as refusal:
                if not refusal.status & 0x8000:
                    raise
                time.sleep(refusal.retry_after_ms / 1000)
        raise Broken(f"{count} ids were refused 100 times")

    def array(self, count, order):
        reply = self.many(ARRAY, count, order)
        said, zero = struct.unpack_from("<II", reply)
        require((said, zero) == (count, 0), f"ARRAY of {count} said {said}, {zero}")
        require(len(reply) >= 8 + 8 * count, "ARRAY carries what it says")
        return list(struct.unpack_from(f"<{count}Q", reply, 8))

    def runs(self, count, order):
        reply = self.many(RUNS, count, order)
        said, length = struct.unpack_from("<II", reply)
        require(said == count, f"RUNS of {count} said {said}")
        require(len(reply) >= 8 + 16 * length, "RUNS carries what it says")
        ids = []
        for first, run, stride in struct.iter_unpack("<QII", reply[8:8 + 16 * length]):
            ids.extend(range(first, first + run * stride, stride) if run else ())
        require(len(ids) == count, f"the runs add up to {len(ids)} instead of {count}")
        require(len(set(ids)) == count, "runs of one reply never overlap")
        if order == 2:
            require(all(a < b for a, b in zip(ids, ids[1:])), "ordered runs ascend")
        return ids


def take(options):
    order = ORDERS[options.order]
    connections = [Connection(options.server) for _ in range(options.connections)]
    shift = connections[0].worker_bits + connections[0].sequence_bits
    ids, refused, turn, highest = array.array("Q"), 0, 0, 0
    begin = time.monotonic()
    while len(ids) < options.count:
        left = options.count - len(ids)
        connection = connections[turn % len(connections)]
        turn += 1
        asked_ms = int(time.time() * 1000)
        if options.op == "next":
            batch, more = connection.next_window(min(left, WINDOW), order)
            refused += more
        elif options.op == "array":
            batch = connection.array(min(left, ARRAY_COUNT), order)
        else:
            batch = connection.runs(min(left, RUNS_COUNT), order)
        if not batch:
            continue
        if order == 1:
            oldest = (min(batch) >> shift) * connection.tick_us // 1000 + connection.epoch_ms
            require(oldest >= asked_ms - FRESH_MS, f"a fresh id is {asked_ms - oldest} ms old at arrival")
        if order == 2:
            # All earlier replies were read, on whatever connection, before this batch was asked for.
            require(min(batch) > highest, f"ordered id {min(batch)} came after {highest}")
            highest = max(batch)
        ids.extend(batch)
    seconds = time.monotonic() - begin
    require(len(ids) == options.count, f"{len(ids)} ids instead of {options.count}")
    require(len(set(ids)) == options.count, "an id came twice")
    if sys.byteorder == "big":
        ids.byteswap()
    with open(options.out, "wb") as out:
        ids.tofile(out)
    print(json.dumps({"ids": len(ids), "refused": refused, "seconds": round(seconds, 2)}))


def manners(options):
    connection = Connection(options.server)
    text = bytes(range(256)) * 4
    require(connection.call(PING, text) == text, "PING comes back as it was sent")
    before_ms = int(time.time() * 1000)
    one = struct.unpack_from("<Q", connection.call(NEXT, b"\x01"))[0]
    unix_ms, worker, sequence = struct.unpack_from("<QII", connection.call(DECODE, struct.pack("<Q", one)))
    low = connection.worker_bits + connection.sequence_bits
    require(unix_ms == (one >> low) * connection.tick_us // 1000 + connection.epoch_ms, "DECODE: the time")
    require(worker == (one >> connection.sequence_bits) & ((1 << connection.worker_bits) - 1), "DECODE: worker")
    require(sequence == one & ((1 << connection.sequence_bits) - 1), "DECODE: the sequence")
    require(abs(unix_ms - before_ms) < 1_000, "a fresh id is of now")
    info, stats = json.loads(connection.call(INFO)), json.loads(connection.call(STATS))
    require(isinstance(info, dict) and isinstance(stats, dict), "INFO and STATS are objects")
    for op, body, status in (
            (0x33, b"", UNKNOWN_OP),
            (ARRAY, struct.pack("<IIB3x", 0, 0, 0), COUNT),
            (RUNS, struct.pack("<IIB3x", connection.max_count + 1, 0, 0), COUNT)):
        try:
            connection.call(op, body)
            raise Broken(f"op {op:#x} should have been refused")
        except Refused as refusal:
            require(refusal.status == status, f"op {op:#x}: {refusal}")
            require(refusal.text, "an error says what to do")
    require(connection.call(BYE) == b"", "BYE is answered")
    require(connection.socket.recv(1) == b"", "the server closes after BYE")
    print(json.dumps({"info": info, "stats": stats}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    taking = commands.add_parser("take")
    taking.add_argument("--op", choices=("next", "array", "runs"), default="next")
    taking.add_argument("--order", choices=tuple(ORDERS), default="any")
    taking.add_argument("--count", type=int, default=1_000_000)
    taking.add_argument("--connections", type=int, default=4)
    taking.add_argument("--out", required=True)
    polite = commands.add_parser("manners")
    for command, function in ((taking, take), (polite, manners)):
        command.add_argument("--server", default="127.0.0.1:7654")
        command.set_defaults(function=function)
    options = parser.parse_args()
    try:
        options.function(options)
    except (Broken, Refused, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
