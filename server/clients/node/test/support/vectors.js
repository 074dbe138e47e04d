// The golden vectors, against the client's codec and the tests' own of the other side.

import { Buffer } from 'node:buffer';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

import { checkHeader, longestReply, readError, readHeader, readReply } from '../../lib/replies.js';
import { encodeRequest, HEADER_LEN, Op, REPLY_BIT } from '../../lib/wire.js';
import { Refusal, goaway, header, readRequest, reply } from './codec.js';

/** Raised by the first vector that fails. */
export class VectorError extends Error {}

/** Checks each vector of the file; how many were encoded, decoded and refused. */
export function checkVectors(file) {
  const counts = { encoded: 0, decoded: 0, refused: 0 };
  for (const vector of JSON.parse(readFileSync(file, 'utf8'))) {
    try {
      check(vector, counts);
    } catch (error) {
      throw new VectorError(`${vector.kind} "${vector.name}": ${error.message}`, { cause: error });
    }
  }
  return counts;
}

function check(vector, counts) {
  const bytes = Buffer.from(vector.hex, 'hex');
  const { op, status, request_id: requestId, body } = vector.frame;
  const head = header(bytes);
  assert.deepEqual([head.op, String(head.requestId)], [op, requestId]);
  if (vector.kind === 'refused') {
    counts.refused += 1;
    checkRefused(bytes, vector);
    return;
  }
  assert.deepEqual([head.status, head.bodyLen], [status, bytes.length - HEADER_LEN]);
  const decoded = vector.kind === 'request' ? readRequest(bytes, vector.phase) : decodeReply(bytes);
  assert.deepEqual(decoded, body);
  counts.decoded += 1;
  if (!vector.encode) return;
  const encoded = vector.kind === 'request' ? encodeAsked(op, requestId, body) : encodeReply(vector.frame);
  assert.equal(encoded.toString('hex'), vector.hex);
  counts.encoded += 1;
}

/** The server's side refuses it as said, and the client's encoder makes no such bytes of the values in it. */
function checkRefused(bytes, { phase, frame: { op, status, body } }) {
  assert.throws(() => readRequest(bytes, phase), (refusal) => {
    assert.ok(refusal instanceof Refusal, String(refusal));
    assert.deepEqual([refusal.status, refusal.closes], [status, body.closes]);
    return true;
  });
  // A count or a limit out of range is all that well formed values can be refused for.
  if (status !== 5) return;
  const seq = bytes.subarray(HEADER_LEN + 12);
  const values = op === Op.SEQ_LIST
    ? { limit: bytes.readUInt32LE(HEADER_LEN), prefix: '', after: '' }
    : { count: bytes.readUInt32LE(HEADER_LEN), wait_ms: 0, order: 0, name: seq.subarray(1).toString() };
  assert.throws(() => encodeAsked(op, '99', values), { name: 'UsageError' });
}

/** A request of the client's encoder, from the values of a vector. */
export function encodeAsked(op, requestId, body) {
  const number = BigInt(requestId);
  const { wait_ms: waitMs, min_version: minVersion, max_version: maxVersion, ...rest } = body;
  const request = { op, ...rest, waitMs, minVersion, maxVersion };
  if (op === Op.DECODE || op === Op.PROVENANCE) request.id = BigInt(body.id);
  if (op === Op.PING) request.bytes = Buffer.from(body.bytes);
  return encodeRequest(request, Number(BigInt.asUintN(32, number)), Number(number >> 32n));
}

function encodeReply({ op, status, request_id: requestId, body }) {
  return op === Op.GOAWAY ? goaway() : reply(op & ~REPLY_BIT, requestId, body, status);
}

/** The values of a reply, by the client's reader, under the names of the vectors. */
function decodeReply(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const head = readHeader(view, 0);
  checkHeader(head, longestReply({ op: head.op & ~REPLY_BIT, count: 131_072 }));
  if (head.op === Op.GOAWAY) return {};
  if (head.status !== 0) {
    const { retryAfterMs, text } = readError(head, view, 0);
    return { retry_after_ms: retryAfterMs, text };
  }
  return named(head.op & ~REPLY_BIT, readReply(head, view, 0));
}

function named(op, value) {
  switch (op) {
    case Op.HELLO:
      return {
        version: value.version, features: value.features, cluster: value.cluster, server: value.server,
        epoch_ms: String(value.layout.epochMs), tick_us: value.layout.tickUs, time_bits: value.layout.timeBits,
        worker_bits: value.layout.workerBits, sequence_bits: value.layout.sequenceBits, face: value.layout.face, max_body: value.limits.maxBody,
        max_count: value.limits.maxCount, max_in_flight: value.limits.maxInFlight, idle_ms: value.limits.idleMs,
      };
    case Op.PING:
      return { bytes: value.toString() };
    case Op.NEXT:
    case Op.SEQ_NEXT:
      return { id: String(value) };
    case Op.ARRAY:
    case Op.SEQ_ARRAY:
      return { ids: value.map(String) };
    case Op.RUNS:
    case Op.SEQ_RUNS:
      return {
        count: value.reduce((sum, run) => sum + run.count, 0),
        runs: value.map(({ first, count, stride }) => ({ first: String(first), count, stride: Number(stride) })),
      };
    case Op.DECODE:
      return { unix_ms: String(value.unixMs), worker: value.worker, sequence: value.sequence };
    case Op.BYE:
      return {};
    default:
      return { json: value };
  }
}
