// XUID/1 as bytes (docs/protocol.md): what is the same in both directions, and requests. lib/replies.js reads replies.

import { Buffer } from 'node:buffer';

import { UsageError } from './errors.js';

/** The face of a layout whose ids are sealed with a key. */
export const OPAQUE = 2;
export const PREFACE = Buffer.from('89585549440d0a1a', 'hex');
export const VERSION = 1;
export const HEADER_LEN = 16;
/** Set in the op of a reply. */
export const REPLY_BIT = 0x80;
export const PING_MAX = 1_024;
export const LIST_MAX = 1_000;
/** The largest id. */
export const LARGEST_ID = (1n << 63n) - 1n;
/** A longer wait counts as this. */
export const WAIT_CAP_MS = 60_000;
/** What every server allows at least. */
export const LEAST_LIMITS = Object.freeze({ maxBody: 4_096, maxCount: 131_072, maxInFlight: 1, idleMs: 0 });

export const Op = Object.freeze({
  HELLO: 0x01,
  PING: 0x02,
  NEXT: 0x10,
  ARRAY: 0x11,
  RUNS: 0x12,
  DECODE: 0x20,
  INFO: 0x21,
  STATS: 0x22,
  PROVENANCE: 0x23,
  SEQ_NEXT: 0x30,
  SEQ_ARRAY: 0x31,
  SEQ_RUNS: 0x32,
  SEQ_INFO: 0x38,
  SEQ_LIST: 0x39,
  SEQ_CREATE: 0x3a,
  SEQ_ALTER: 0x3b,
  GOAWAY: 0x7e,
  BYE: 0x7f,
});

const OP_NAMES = new Map(Object.entries(Op).map(([name, op]) => [op, name]));

export function opName(op) {
  return OP_NAMES.get(op) ?? `op 0x${op.toString(16)}`;
}

const ORDERS = Object.freeze({ any: 0, fresh: 1, ordered: 2 });

/** The code of an order's name; `without` is refused. */
export function orderCode(name, without) {
  const code = Object.hasOwn(ORDERS, name) ? ORDERS[name] : undefined;
  if (code === undefined || name === without) {
    const allowed = Object.keys(ORDERS).filter((order) => order !== without);
    throw new UsageError(`the order is ${String(name)}, and one of ${allowed.join(', ')} is allowed`);
  }
  return code;
}

/** A whole number within bounds, or an error that names it. */
export function checkInteger(what, found, least, most) {
  if (!Number.isSafeInteger(found) || found < least || found > most) {
    throw new UsageError(`${what} is ${String(found)}, and a whole number of ${least} to ${most} is allowed`);
  }
  return found;
}

/** An id: a BigInt below 2^63. A double would have lost its last digits before it came here. */
export function checkId(id) {
  if (typeof id !== 'bigint' || id < 0n || id > LARGEST_ID) {
    throw new UsageError(`the id is ${String(id)} (${typeof id}), and a BigInt of 0 to 2^63 - 1 is allowed`);
  }
  return id;
}

/** A request for many ids; `without` is an order that it does not have. */
export function bulkRequest(op, count, { order = 'any', waitMs = 50 }, without) {
  return {
    op,
    count: checkInteger('count', count, 1, 2 ** 32 - 1),
    waitMs: Math.min(checkInteger('waitMs', waitMs, 0, Number.MAX_SAFE_INTEGER), WAIT_CAP_MS),
    order: orderCode(order, without),
  };
}

/** The bytes of a text that a length byte stands before. */
function shortText(what, text, most) {
  const bytes = Buffer.isBuffer(text) ? text : Buffer.from(String(text), 'utf8');
  if (bytes.length > most) {
    throw new UsageError(`${what} has ${bytes.length} bytes, and at most ${most} are allowed`);
  }
  return Buffer.concat([Buffer.of(bytes.length), bytes]);
}

/** Refuses what no sequence can be called; the bytes of the name, its length first. */
export function sequenceName(name) {
  const refuse = (why) => {
    throw new UsageError(`${JSON.stringify(name) ?? String(name)} is no name of a sequence: ${why}`);
  };
  if (typeof name !== 'string' || name === '') refuse('it must be a text of 1 to 128 bytes');
  if (/\p{Surrogate}/u.test(name)) refuse('it is not Unicode');
  if (/\p{Cc}/u.test(name)) refuse('it has a control character');
  if (/^\p{White_Space}|\p{White_Space}$/u.test(name)) refuse('it begins or ends with a space');
  if (name.startsWith('@')) refuse('names that begin with @ are reserved');
  return shortText(`the name ${JSON.stringify(name)}`, name, 128);
}

/** A frame: header and body. The request id is given as its low and high 32 bits. */
export function frame(op, low, high, body, status = 0) {
  const bytes = Buffer.allocUnsafe(HEADER_LEN + body.length);
  bytes.writeUInt32LE(body.length, 0);
  bytes[4] = op;
  bytes[5] = 0;
  bytes.writeUInt16LE(status, 6);
  bytes.writeUInt32LE(low, 8);
  bytes.writeUInt32LE(high, 12);
  bytes.set(body, HEADER_LEN);
  return bytes;
}

const EMPTY = Buffer.alloc(0);

function u32s(...numbers) {
  const bytes = Buffer.allocUnsafe(4 * numbers.length);
  numbers.forEach((number, at) => bytes.writeUInt32LE(number, 4 * at));
  return bytes;
}

function idBody(request) {
  const bytes = Buffer.allocUnsafe(8);
  bytes.writeBigUInt64LE(checkId(request.id));
  return bytes;
}

function bulk(request, limits) {
  checkInteger('count', request.count, 1, limits.maxCount);
  // Three reserved bytes follow the order; SEQ_RUNS has `contiguous` in the first of them.
  const flags = request.order | (request.contiguous ? 1 << 8 : 0);
  return u32s(request.count, request.waitMs, flags);
}

/** What each request carries. The values were checked where the caller gave them; counts also hold the server's limit. */
const BODIES = {
  [Op.HELLO]: (request) =>
    Buffer.concat([
      u32s(request.minVersion | (request.maxVersion << 16), request.features),
      Buffer.from(request.cluster, 'hex'),
      shortText('the token', request.token, 255),
      shortText('the client name', request.client, 255),
    ]),
  [Op.PING]: (request) => {
    checkInteger('the length of a ping', request.bytes.length, 0, PING_MAX);
    return request.bytes;
  },
  [Op.NEXT]: (request) => (request.order === 0 ? EMPTY : Buffer.of(request.order)),
  [Op.ARRAY]: bulk,
  [Op.RUNS]: bulk,
  [Op.DECODE]: idBody,
  [Op.INFO]: () => EMPTY,
  [Op.STATS]: () => EMPTY,
  [Op.PROVENANCE]: idBody,
  [Op.SEQ_NEXT]: (request) => sequenceName(request.name),
  [Op.SEQ_ARRAY]: (request, limits) => Buffer.concat([bulk(request, limits), sequenceName(request.name)]),
  [Op.SEQ_RUNS]: (request, limits) => Buffer.concat([bulk(request, limits), sequenceName(request.name)]),
  [Op.SEQ_INFO]: (request) => sequenceName(request.name),
  [Op.SEQ_LIST]: (request) =>
    Buffer.concat([
      u32s(checkInteger('limit', request.limit, 1, LIST_MAX)),
      shortText('prefix', request.prefix, 128),
      shortText('after', request.after, 128),
    ]),
  [Op.SEQ_CREATE]: (request) => Buffer.concat([sequenceName(request.name), Buffer.from(request.json, 'utf8')]),
  [Op.SEQ_ALTER]: (request) => Buffer.concat([sequenceName(request.name), Buffer.from(request.json, 'utf8')]),
  [Op.BYE]: () => EMPTY,
};

/** The bytes of a request, by the limits that the server told. */
export function encodeRequest(request, low, high, limits = LEAST_LIMITS) {
  const body = BODIES[request.op](request, limits);
  if (body.length > limits.maxBody) {
    throw new UsageError(`the request has ${body.length} bytes, and the server takes at most ${limits.maxBody}`);
  }
  return frame(request.op, low, high, body);
}
