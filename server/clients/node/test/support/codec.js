// The server's side of XUID/1, for tests: requests to values, values to replies, and what a server refuses. It shares
// with the client what is the same in both directions, and no judgement.

import { Buffer } from 'node:buffer';

import { Op, HEADER_LEN, PREFACE, REPLY_BIT, frame } from '../../lib/wire.js';

const BAD_REQUEST = 1;
const UNKNOWN_OP = 3;
const TOO_LARGE = 4;
const COUNT = 5;

/** A request that a server refuses. */
export class Refusal extends Error {
  constructor(status, closes = false) {
    super(`status ${status}`);
    this.status = status;
    this.closes = closes;
  }
}

export function header(bytes) {
  return {
    bodyLen: bytes.readUInt32LE(0),
    op: bytes[4],
    flags: bytes[5],
    status: bytes.readUInt16LE(6),
    requestId: bytes.readBigUInt64LE(8),
  };
}

/** One after the other, the fields of a body; a body that is too short or too long is BAD_REQUEST. */
class Reader {
  constructor(bytes) {
    this.rest = bytes;
  }

  bytes(length = this.rest.length) {
    if (length > this.rest.length) throw new Refusal(BAD_REQUEST);
    const front = this.rest.subarray(0, length);
    this.rest = this.rest.subarray(length);
    return front;
  }

  u8() {
    return this.bytes(1)[0];
  }

  u16() {
    return this.bytes(2).readUInt16LE();
  }

  u32() {
    return this.bytes(4).readUInt32LE();
  }

  text(length) {
    const bytes = this.bytes(length);
    const text = bytes.toString('utf8');
    if (!Buffer.from(text).equals(bytes)) throw new Refusal(BAD_REQUEST);
    return text;
  }

  name() {
    const name = this.text(this.u8());
    const isBad = Buffer.byteLength(name) > 128 || name === '' || name.startsWith('@') || name.trim() !== name;
    if (isBad || /[\u0000-\u001f\u007f-\u009f]/.test(name)) throw new Refusal(BAD_REQUEST);
    return name;
  }

  part() {
    const length = this.u8();
    if (length > 128) throw new Refusal(BAD_REQUEST);
    return this.text(length);
  }

  end() {
    if (this.rest.length > 0) throw new Refusal(BAD_REQUEST);
  }
}

function atMost(value, most) {
  if (value > most) throw new Refusal(BAD_REQUEST);
  return value;
}

function bulk(reader) {
  const read = { count: reader.u32(), wait_ms: reader.u32(), order: atMost(reader.u8(), 2) };
  reader.bytes(3);
  return read;
}

function seqBulk(reader, hasContiguous) {
  const read = { count: reader.u32(), wait_ms: reader.u32(), order: atMost(reader.u8(), 2) };
  if (read.order === 1) throw new Refusal(BAD_REQUEST);
  const contiguous = reader.u8();
  reader.bytes(2);
  if (hasContiguous) read.contiguous = atMost(contiguous, 1) === 1;
  return { ...read, name: reader.name() };
}

const idOf = (reader) => {
  const id = reader.bytes(8).readBigUInt64LE();
  return { id: String(atMost(id, (1n << 63n) - 1n)) };
};

const REQUESTS = {
  [Op.HELLO]: (reader) => {
    const read = { min_version: reader.u16(), max_version: reader.u16(), features: reader.u32() };
    const cluster = reader.bytes(16).toString('hex');
    return { ...read, cluster, token: reader.bytes(reader.u8()).toString(), client: reader.bytes(reader.u8()).toString() };
  },
  [Op.PING]: (reader) => ({ bytes: atMost(reader.rest.length, 1_024) >= 0 && reader.bytes().toString() }),
  [Op.NEXT]: (reader) => ({ order: reader.rest.length === 0 ? 0 : atMost(reader.u8(), 2) }),
  [Op.ARRAY]: bulk,
  [Op.RUNS]: bulk,
  [Op.DECODE]: idOf,
  [Op.INFO]: () => ({}),
  [Op.STATS]: () => ({}),
  [Op.PROVENANCE]: idOf,
  [Op.SEQ_NEXT]: (reader) => ({ name: reader.name() }),
  [Op.SEQ_ARRAY]: (reader) => seqBulk(reader, false),
  [Op.SEQ_RUNS]: (reader) => seqBulk(reader, true),
  [Op.SEQ_INFO]: (reader) => ({ name: reader.name() }),
  [Op.SEQ_LIST]: (reader) => ({ limit: reader.u32(), prefix: reader.part(), after: reader.part() }),
  [Op.SEQ_CREATE]: (reader) => ({ name: reader.name(), json: reader.text() }),
  [Op.SEQ_ALTER]: (reader) => ({ name: reader.name(), json: reader.text() }),
  [Op.BYE]: () => ({}),
};

/** The values of a request's frame, by the checks of docs/protocol.md in their order; else a Refusal. */
export function readRequest(bytes, phase = 'serving') {
  const { bodyLen, op, flags } = header(bytes);
  const isGreeting = phase === 'greeting';
  if (bodyLen > 4_096) throw new Refusal(TOO_LARGE, true);
  if (isGreeting ? op !== Op.HELLO && op !== Op.PING : op === Op.HELLO) throw new Refusal(BAD_REQUEST, true);
  const closes = op === Op.HELLO;
  if (flags !== 0 || (op & REPLY_BIT) !== 0) throw new Refusal(BAD_REQUEST, closes);
  const read = REQUESTS[op];
  if (read === undefined) throw new Refusal(UNKNOWN_OP);
  try {
    const reader = new Reader(bytes.subarray(HEADER_LEN, HEADER_LEN + bodyLen));
    const body = read(reader);
    reader.end();
    const most = op === Op.SEQ_LIST ? 1_000 : 131_072;
    const count = body.count ?? body.limit ?? 1;
    if (count < 1 || count > most) throw new Refusal(COUNT);
    return body;
  } catch (refusal) {
    if (refusal instanceof Refusal) refusal.closes = closes;
    throw refusal;
  }
}

function u16(number) {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16LE(number);
  return bytes;
}

function u32(number) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(number);
  return bytes;
}

function u64(number) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(number));
  return bytes;
}

const json = ({ json: text }) => Buffer.from(text);
const id = (body) => u64(body.id);
const array = ({ ids }) => Buffer.concat([u32(ids.length), u32(0), ...ids.map(u64)]);
const runs = (body) =>
  Buffer.concat([
    u32(body.count),
    u32(body.runs.length),
    ...body.runs.flatMap(({ first, count, stride }) => [u64(first), u32(count), u32(stride)]),
  ]);

const REPLIES = {
  [Op.HELLO]: (body) =>
    Buffer.concat([
      u16(body.version), u16(0), u32(body.features), Buffer.from(body.cluster, 'hex'), u64(body.epoch_ms), u32(body.tick_us),
      Buffer.of(body.time_bits, body.worker_bits, body.sequence_bits, body.face ?? 0),
      u32(body.max_body), u32(body.max_count), u32(body.max_in_flight), u32(body.idle_ms),
      Buffer.of(Buffer.byteLength(body.server)), Buffer.from(body.server),
    ]),
  [Op.PING]: ({ bytes }) => Buffer.from(bytes),
  [Op.NEXT]: id,
  [Op.SEQ_NEXT]: id,
  [Op.ARRAY]: array,
  [Op.SEQ_ARRAY]: array,
  [Op.RUNS]: runs,
  [Op.SEQ_RUNS]: runs,
  [Op.DECODE]: ({ unix_ms: unixMs, worker, sequence }) => Buffer.concat([u64(unixMs), u32(worker), u32(sequence)]),
  [Op.INFO]: json,
  [Op.STATS]: json,
  [Op.PROVENANCE]: json,
  [Op.SEQ_INFO]: json,
  [Op.SEQ_LIST]: json,
  [Op.SEQ_CREATE]: json,
  [Op.SEQ_ALTER]: json,
  [Op.BYE]: () => Buffer.alloc(0),
};

/** The bytes of a reply; `op` without bit 7. A status other than 0 is an error's. */
export function reply(op, requestId, body, status = 0) {
  const number = BigInt(requestId);
  const low = Number(BigInt.asUintN(32, number));
  const high = Number(number >> 32n);
  if (status === 0) return frame(op | REPLY_BIT, low, high, REPLIES[op](body));
  const text = Buffer.from(body.text);
  return frame(op | REPLY_BIT, low, high, Buffer.concat([u32(body.retry_after_ms), u16(text.length), text]), status);
}

export function goaway() {
  return frame(Op.GOAWAY, 0, 0, Buffer.alloc(0));
}

export { PREFACE };
