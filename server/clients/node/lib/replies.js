// Bytes to replies. What follows the fields of a reply is not looked at: a later server may say more.

import { Buffer } from 'node:buffer';

import { HEADER_LEN, LARGEST_ID, Op, REPLY_BIT, opName } from './wire.js';
import { Run } from './run.js';

/** Room in a reply beside ids and JSON: an error's text of 65,535 bytes, and what a later server may add. */
export const REPLY_ROOM = 128 * 1_024;

const JSON_MAX = 1 << 20;

/** Bytes that are no reply of this protocol, or not the one that was asked for: the connection is of no use any more. */
export class Breach extends Error {}

export function readHeader(view, at) {
  return {
    bodyLen: view.getUint32(at, true),
    op: view.getUint8(at + 4),
    flags: view.getUint8(at + 5),
    status: view.getUint16(at + 6, true),
    // Those of this client are below 2^53; a larger one, though rounded here, equals none of them.
    requestId: view.getUint32(at + 12, true) * 0x1_0000_0000 + view.getUint32(at + 8, true),
  };
}

/** The longest body of the reply to a request. */
export function longestReply(request) {
  switch (request?.op) {
    case Op.ARRAY:
    case Op.SEQ_ARRAY:
      return REPLY_ROOM + 8 * request.count;
    case Op.RUNS:
    case Op.SEQ_RUNS:
      return REPLY_ROOM + 16 * request.count;
    case Op.INFO:
    case Op.STATS:
    case Op.PROVENANCE:
    case Op.SEQ_INFO:
    case Op.SEQ_LIST:
    case Op.SEQ_CREATE:
    case Op.SEQ_ALTER:
      return REPLY_ROOM + JSON_MAX;
    default:
      return REPLY_ROOM;
  }
}

/** Refuses a frame by its header alone, before there is room for its body. */
export function checkHeader({ bodyLen, op, flags }, longest) {
  if (flags !== 0 || ((op & REPLY_BIT) === 0 && op !== Op.GOAWAY)) {
    throw new Breach(`a frame of op 0x${op.toString(16)} and flags 0x${flags.toString(16)} is no reply of version 1`);
  }
  if (bodyLen > longest) {
    throw new Breach(`a reply claims a body of ${bodyLen} bytes, and ${longest} are the most that was asked for`);
  }
}

/** The fields of one body, read in turn. */
class Fields {
  constructor(view, at, length, op) {
    this.view = view;
    this.at = at;
    this.end = at + length;
    this.op = op;
  }

  malformed(what) {
    return new Breach(`the reply to ${opName(this.op)} is malformed: ${what}`);
  }

  skip(length) {
    const at = this.at;
    if (at + length > this.end) throw this.malformed('it ends before its fields do');
    this.at = at + length;
    return at;
  }

  u8() {
    return this.view.getUint8(this.skip(1));
  }

  u16() {
    return this.view.getUint16(this.skip(2), true);
  }

  u32() {
    return this.view.getUint32(this.skip(4), true);
  }

  u64() {
    return this.view.getBigUint64(this.skip(8), true);
  }

  id() {
    const at = this.skip(8);
    if (this.view.getUint8(at + 7) > 0x7f) throw this.malformed('it holds a number of 2^63 or more, which is no id');
    return this.view.getBigUint64(at, true);
  }

  bytes(length = this.end - this.at) {
    const at = this.skip(length);
    return Buffer.from(this.view.buffer, this.view.byteOffset + at, length);
  }
}

function readHello(fields) {
  const version = fields.u16();
  fields.skip(2);
  const features = fields.u32();
  const cluster = fields.bytes(16).toString('hex');
  const epochMs = fields.u64();
  const tickUs = fields.u32();
  const [timeBits, workerBits, sequenceBits, face] = fields.bytes(4);
  const limits = { maxBody: fields.u32(), maxCount: fields.u32(), maxInFlight: fields.u32(), idleMs: fields.u32() };
  const server = fields.bytes(fields.u8()).toString('utf8');
  return { version, features, cluster, layout: { epochMs, tickUs, timeBits, workerBits, sequenceBits, face }, limits, server };
}

function readArray(fields) {
  const count = fields.u32();
  fields.skip(4);
  // Compared before there is room for them.
  if (8 * count > fields.end - fields.at) throw fields.malformed('it ends before its fields do');
  const ids = new Array(count);
  for (let at = 0; at < count; at += 1) ids[at] = fields.id();
  return ids;
}

function readRuns(fields) {
  const total = fields.u32();
  const length = fields.u32();
  if (16 * length > fields.end - fields.at) throw fields.malformed('it ends before its fields do');
  const runs = new Array(length);
  let sum = 0;
  for (let at = 0; at < length; at += 1) {
    const run = new Run(fields.u64(), fields.u32(), BigInt(fields.u32()));
    if (run.count === 0 || run.last > LARGEST_ID) throw fields.malformed('a run is empty, or leaves the 63 bits of an id');
    // Else one id would come as often as it counts.
    if (run.stride === 0n && run.count > 1) throw fields.malformed('a run of more than one id has a stride of 0');
    sum += run.count;
    runs[at] = run;
  }
  if (sum !== total) throw fields.malformed(`its runs hold ${sum} ids, and it says ${total}`);
  return runs;
}

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function readText(fields) {
  try {
    return UTF8.decode(fields.bytes());
  } catch {
    throw fields.malformed('it is not UTF-8');
  }
}

const READERS = {
  [Op.HELLO]: readHello,
  // A copy: the bytes around it are used again.
  [Op.PING]: (fields) => Buffer.from(fields.bytes()),
  [Op.NEXT]: (fields) => fields.id(),
  [Op.SEQ_NEXT]: (fields) => fields.id(),
  [Op.ARRAY]: readArray,
  [Op.SEQ_ARRAY]: readArray,
  [Op.RUNS]: readRuns,
  [Op.SEQ_RUNS]: readRuns,
  [Op.DECODE]: (fields) => ({ unixMs: fields.u64(), worker: fields.u32(), sequence: fields.u32() }),
  [Op.INFO]: readText,
  [Op.STATS]: readText,
  [Op.PROVENANCE]: readText,
  [Op.SEQ_INFO]: readText,
  [Op.SEQ_LIST]: readText,
  [Op.SEQ_CREATE]: readText,
  [Op.SEQ_ALTER]: readText,
  [Op.BYE]: () => undefined,
};

/** The value of a successful reply whose header was checked. */
export function readReply(header, view, at) {
  const op = header.op & ~REPLY_BIT;
  const reader = READERS[op];
  if (reader === undefined) throw new Breach(`a frame of op 0x${header.op.toString(16)} is no reply of version 1`);
  return reader(new Fields(view, at + HEADER_LEN, header.bodyLen, op));
}

/** The body of an error reply. */
export function readError(header, view, at) {
  const fields = new Fields(view, at + HEADER_LEN, header.bodyLen, header.op & ~REPLY_BIT);
  const retryAfterMs = fields.u32();
  return { retryAfterMs, text: fields.bytes(fields.u16()).toString('utf8') };
}

/** Refuses a reply that is not what its request asked for. */
export function checkAnswer(request, value) {
  switch (request.op) {
    case Op.ARRAY:
    case Op.SEQ_ARRAY:
      if (value.length !== request.count) throw wrongCount(request.count, value.length);
      break;
    case Op.RUNS:
    case Op.SEQ_RUNS: {
      const count = value.reduce((sum, run) => sum + run.count, 0);
      if (count !== request.count) throw wrongCount(request.count, count);
      if (request.contiguous && value.length !== 1) throw new Breach(`one run was asked for, and ${value.length} came`);
      break;
    }
    case Op.PING:
      if (!value.equals(request.bytes)) throw new Breach('a PING came back with other bytes');
      break;
    default:
  }
}

function wrongCount(asked, answered) {
  return new Breach(`${asked} ids were asked for, and ${answered} came: it is all or nothing`);
}
