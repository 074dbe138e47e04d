// From an address to a connection that said HELLO and was answered.

import dns from 'node:dns';
import net from 'node:net';
import tls from 'node:tls';
import { Buffer } from 'node:buffer';

import {
  ConnectionLostError, ProtocolError, RefusedError, UnreachableError, WrongClusterError, statusName,
} from './errors.js';
import { Breach, REPLY_ROOM, checkHeader, readError, readHeader, readReply } from './replies.js';
import { now, onAbort } from './waiting.js';
import { HEADER_LEN, OPAQUE, Op, PREFACE, REPLY_BIT, VERSION, encodeRequest } from './wire.js';

/** The request id of HELLO; those of a link are above. */
const HELLO_ID = 1;

const ANY_CLUSTER = '0'.repeat(32);

/**
 * A socket, and what was received and not read yet. It grows with what arrives, whatever a header claims: chunks are
 * joined when as many bytes are there as the front of the input needs.
 */
export class Stream {
  /** Called when something came, and when the connection is over. */
  onRead;
  onEnd;
  isOver = false;
  failure;
  #socket;
  #chunks = [];
  #length = 0;
  #needed = HEADER_LEN;

  constructor(socket) {
    this.#socket = socket;
    socket.on('data', (chunk) => {
      this.#chunks.push(chunk);
      this.#length += chunk.length;
      this.onRead?.();
    });
    socket.on('error', (error) => {
      this.failure ??= error;
    });
    // The server has said all; a half open connection is of no use to this client.
    socket.on('end', () => this.#end());
    socket.on('close', () => this.#end());
  }

  #end() {
    if (this.isOver) return;
    this.isOver = true;
    this.onEnd?.();
  }

  /** What was received, once the front of it can be whole; else nothing. */
  take() {
    if (this.#length < this.#needed) return undefined;
    const [first] = this.#chunks;
    const bytes = this.#chunks.length === 1 ? first : Buffer.concat(this.#chunks, this.#length);
    this.#chunks = [];
    this.#length = 0;
    return bytes;
  }

  /** Gives back what is no whole frame yet; `needed` bytes are, the given ones included. */
  giveBack(bytes, needed) {
    if (bytes.length > 0) this.#chunks.unshift(bytes);
    this.#length += bytes.length;
    this.#needed = needed;
  }

  write(bytes) {
    this.#socket.write(bytes);
  }

  /** From now on it does not keep the process running: each call that waits has a timer that does. */
  release() {
    this.#socket.unref();
  }

  destroy() {
    this.#socket.destroy();
  }
}

/**
 * Connects and says HELLO, within `connectTimeoutMs` and before `signal` aborts: the stream, and what the server said of
 * itself.
 */
export function dial(server, options, signal) {
  return new Promise((resolve, reject) => {
    const socket = open(server, options);
    // Without it a small request waits for the acknowledgement of the one before, 40 ms and more.
    socket.setNoDelay(true);
    const stream = new Stream(socket);
    const settle = (how, value) => {
      clearTimeout(timer);
      off();
      stream.onRead = undefined;
      stream.onEnd = undefined;
      if (how === reject) stream.destroy();
      how(value);
    };
    const timer = setTimeout(() => {
      const cause = new Error(`it did not answer within ${options.connectTimeoutMs} ms`);
      settle(reject, new UnreachableError(server.name, cause));
    }, options.connectTimeoutMs);
    const off = onAbort(signal, () => settle(reject, signal.reason));
    let connected = false;
    socket.once(options.tls ? 'secureConnect' : 'connect', () => {
      connected = true;
      stream.write(Buffer.concat([PREFACE, encodeRequest(hello(options), HELLO_ID, 0)]));
    });
    stream.onEnd = () => settle(reject, endOfGreeting(server, stream, connected));
    stream.onRead = () => {
      try {
        const served = readGreeting(server, stream, options);
        if (served !== undefined) settle(resolve, { stream, served });
      } catch (error) {
        settle(reject, error instanceof Breach ? new ProtocolError(server.name, error.message) : error);
      }
    };
  });
}

/**
 * A look-up that takes longer is not joined, since it may never end: glibc waits without an end for a DNS server that it
 * asks over TCP, and that is gone behind the handshake. All others end within some 30 s.
 */
const AGAIN_MS = 60_000;

/**
 * Names that are being looked up, since when, and who still wants to know. The system does it in its own time, by one of two
 * threads that the whole program has for that, and cannot be interrupted: each name takes one, however often it is dialed. One
 * whose look-up does not end within a minute takes the other one, too.
 */
const lookups = new Map();

/** Calls `callback` with what is found; the answer is a function that takes this back. */
function lookUp(host, options, callback) {
  const key = JSON.stringify([host, options]);
  const underWay = lookups.get(key);
  if (underWay !== undefined && (underWay.isSecond || now() - underWay.begun < AGAIN_MS)) {
    underWay.callbacks.add(callback);
    return () => underWay.callbacks.delete(callback);
  }
  const own = { begun: now(), isSecond: underWay !== undefined, callbacks: new Set([callback]) };
  const forget = () => {
    if (lookups.get(key) === own) lookups.delete(key);
  };
  lookups.set(key, own);
  try {
    dns.lookup(host, options, (...outcome) => {
      forget();
      for (const each of own.callbacks) each(...outcome);
    });
  } catch (error) {
    // It was not begun, as where it is not permitted.
    forget();
    process.nextTick(callback, error);
  }
  return () => own.callbacks.delete(callback);
}

function open({ host, port }, options) {
  let takeBack = () => {};
  const lookup = (...asked) => {
    takeBack = lookUp(...asked);
  };
  const socket = connectTo({ host, port, lookup }, options);
  // Its look-up may never end, and would keep it.
  socket.once('close', () => takeBack());
  return socket;
}

function connectTo(address, options) {
  if (options.tls === undefined) return net.connect(address);
  // No server name for an address: TLS has none, and the certificate is compared with the address then.
  const named = net.isIP(address.host) === 0 ? { servername: address.host } : {};
  return tls.connect({ ...address, ...named, ...options.tls });
}

function hello({ cluster, token, clientName }) {
  const versions = { minVersion: VERSION, maxVersion: VERSION, features: 0 };
  return { op: Op.HELLO, ...versions, cluster: cluster ?? ANY_CLUSTER, token, client: clientName };
}

/** The end of a connection that was not greeted. A server that refuses a certificate says so behind the handshake. */
function endOfGreeting(server, stream, connected) {
  const { failure } = stream;
  const code = String(failure?.code ?? '');
  const isTls = /SSL|TLS|CERT|SELF_SIGNED|VERIFY|UNABLE_TO|DEPTH_ZERO|HOSTNAME/.test(code);
  if (isTls) return new UnreachableError(server.name, failure, { tls: true });
  if (!connected) return new UnreachableError(server.name, failure);
  return new ConnectionLostError(server.name, failure ?? new Error('it was closed before HELLO was answered'));
}

/** What the server said to HELLO; `undefined`: there is more to come. */
function readGreeting(server, stream, options) {
  const bytes = stream.take();
  if (bytes === undefined) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const header = readHeader(view, 0);
  try {
    checkHeader(header, REPLY_ROOM);
  } catch (breach) {
    throw withLine(breach, bytes);
  }
  const length = HEADER_LEN + header.bodyLen;
  if (bytes.length < length) {
    stream.giveBack(bytes, length);
    return undefined;
  }
  stream.giveBack(bytes.subarray(length), HEADER_LEN);
  // It leaves before this client came.
  if (header.op === Op.GOAWAY) throw new ConnectionLostError(server.name);
  if (header.status !== 0) throw refusal(server, header.status, readError(header, view, 0), options);
  if (header.op !== (Op.HELLO | REPLY_BIT) || header.requestId !== HELLO_ID) {
    throw new Breach(`HELLO was answered with op 0x${header.op.toString(16)} for request ${header.requestId}`);
  }
  return greeted(server, readReply(header, view, 0), options);
}

/** Something else than XUID/1 may say in a line of text what it is. */
function withLine(breach, bytes) {
  const [line] = bytes.toString('latin1').split(/[\r\n]/, 1);
  return /^[\x20-\x7e]{8,}$/.test(line) ? new Breach(`it says ${JSON.stringify(line.slice(0, 200))}`) : breach;
}

function refusal(server, status, { retryAfterMs, text }, { cluster }) {
  if (statusName(status) !== 'WRONG_CLUSTER') return new RefusedError(server.name, status, retryAfterMs, text);
  return new WrongClusterError(server.name, undefined, cluster, `${server.name} refused: ${text}`);
}

/** A server refuses by itself the cluster that HELLO names. One that does not is not believed either. */
function greeted(server, { version, cluster, layout, limits, server: serverVersion }, options) {
  if (version !== VERSION) throw new Breach(`version ${version} was picked, and only version ${VERSION} was offered`);
  if (options.cluster !== undefined && cluster !== options.cluster) {
    throw new WrongClusterError(server.name, cluster, options.cluster);
  }
  const { timeBits, workerBits, sequenceBits, face } = layout;
  const bits = timeBits + workerBits + sequenceBits;
  if (bits < 40 || bits > 63) {
    throw new Breach(`the layout has ${timeBits} + ${workerBits} + ${sequenceBits} bits, and an id has 40 to 63`);
  }
  if (face > OPAQUE) throw new Breach(`the layout has face ${face}, and this client knows 0 to ${OPAQUE}`);
  return Object.freeze({
    server: server.name, version: serverVersion, cluster, layout: Object.freeze(layout), limits: Object.freeze(limits),
  });
}
