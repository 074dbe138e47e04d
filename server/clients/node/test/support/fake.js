// A server in the hands of a test: it accepts, greets, reads and answers when the test says so.

import { Buffer } from 'node:buffer';
import net from 'node:net';
import { performance } from 'node:perf_hooks';

import { connect } from 'xuid-client';
import { HEADER_LEN, Op } from '../../lib/wire.js';
import { PREFACE, goaway, header, readRequest, reply } from './codec.js';

/** A test that waits longer than this has failed. */
const PATIENCE_MS = 20_000;

/** Fails instead of hanging. */
export function soon(what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error('this should have happened by now')), PATIENCE_MS);
  });
  return Promise.race([what, late]).finally(() => clearTimeout(timer));
}

/** Waits until a condition holds. */
export async function until(condition) {
  const end = Date.now() + PATIENCE_MS;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`this should hold by now: ${condition}`);
    await new Promise((resolve) => {
      setTimeout(resolve, 1);
    });
  }
}

/** The loop stands still, as in a long computation or a process that was stopped: no timer can run meanwhile. */
export function standStill(ms) {
  for (const end = performance.now() + ms; performance.now() < end;);
}

/** Sets the clock of the client on, until the test ends. */
export function clockOf(t) {
  const now = performance.now.bind(performance);
  const before = Object.getOwnPropertyDescriptor(performance, 'now');
  t.after(() => {
    delete performance.now;
    if (before !== undefined) Object.defineProperty(performance, 'now', before);
  });
  return (ms) => Object.defineProperty(performance, 'now', { configurable: true, value: () => now() + ms });
}

export const HELLO = Object.freeze({
  version: 1, features: 0, cluster: '07'.repeat(16), epoch_ms: '1524153600000', tick_us: 1_000, time_bits: 41,
  worker_bits: 10, sequence_bits: 12, max_body: 4_096, max_count: 131_072, max_in_flight: 1_024, idle_ms: 300_000,
  server: 'fake',
});

/** A listener on any free port; `hello` is what it says of itself. */
export class Fake {
  static async start(hello = {}) {
    const fake = new Fake();
    fake.hello = { ...HELLO, ...hello };
    fake.server = net.createServer((socket) => fake.#arrived(new Peer(socket, fake)));
    await new Promise((resolve) => {
      fake.server.listen(0, '127.0.0.1', resolve);
    });
    fake.address = `127.0.0.1:${fake.server.address().port}`;
    return fake;
  }

  peers = [];
  #waiting = [];
  #queue = [];

  #arrived(peer) {
    this.peers.push(peer);
    const waiter = this.#waiting.shift();
    if (waiter) waiter(peer);
    else this.#queue.push(peer);
  }

  /** The next connection, not greeted yet. */
  accept() {
    const peer = this.#queue.shift();
    return soon(peer ?? new Promise((resolve) => this.#waiting.push(resolve)));
  }

  /** The next connection, greeted. */
  async greet() {
    const peer = await this.accept();
    await peer.welcome();
    return peer;
  }

  close() {
    for (const { socket } of this.peers) socket.destroy();
    return new Promise((resolve) => {
      this.server.close(resolve);
    });
  }
}

/** A client of a fake server, the server and its end of the connection; all are closed after the test. */
export async function pair(t, options = {}, hello = {}) {
  const fake = await Fake.start(hello);
  t.after(() => fake.close());
  const quick = { firstPauseMs: 1, longestPauseMs: 20 };
  const [client, peer] = await Promise.all([connect(fake.address, { ...quick, ...options }), fake.greet()]);
  return { client, fake, peer };
}

const QUICK = { firstPauseMs: 1, longestPauseMs: 20, retryForMs: 10_000 };

/** So many servers, closed after the test. */
export async function fleet(t, count) {
  const fakes = await Promise.all(Array.from({ length: count }, () => Fake.start()));
  t.after(() => Promise.all(fakes.map((fake) => fake.close())));
  return fakes;
}

/** A client of these, and its first server with the connection to it; the others follow. */
export async function begin(fakes, options = {}) {
  const connecting = connect(fakes.map(({ address }) => address), { ...QUICK, ...options });
  const peers = await Promise.all(fakes.map((fake) => fake.greet()));
  const client = await soon(connecting);
  const at = fakes.findIndex(({ address }) => address === client.served.server);
  const others = fakes.filter((_, place) => place !== at);
  return { client, first: fakes[at], peer: peers[at], others };
}

/** The server's end of a connection. */
export class Peer {
  #inbox = Buffer.alloc(0);
  #isOver = false;
  #changed = () => {};
  #hasPreface = false;

  constructor(socket, fake) {
    this.socket = socket;
    this.fake = fake;
    socket.setNoDelay(true);
    socket.on('data', (chunk) => {
      this.#inbox = Buffer.concat([this.#inbox, chunk]);
      this.#changed();
    });
    const end = () => {
      this.#isOver = true;
      this.#changed();
    };
    socket.on('end', end).on('error', end).on('close', end);
  }

  /** The next frame, or `undefined` when the client closed. */
  async frame() {
    for (;;) {
      if (!this.#hasPreface && this.#inbox.length >= PREFACE.length) {
        if (!this.#inbox.subarray(0, PREFACE.length).equals(PREFACE)) throw new Error('no preface');
        this.#inbox = this.#inbox.subarray(PREFACE.length);
        this.#hasPreface = true;
      }
      const frame = this.#hasPreface && this.#front();
      if (frame) return frame;
      if (this.#isOver) return undefined;
      await soon(new Promise((resolve) => {
        this.#changed = resolve;
      }));
    }
  }

  #front() {
    if (this.#inbox.length < HEADER_LEN) return undefined;
    const { bodyLen, op, requestId } = header(this.#inbox);
    const bytes = this.#inbox.subarray(0, HEADER_LEN + bodyLen);
    if (bytes.length < HEADER_LEN + bodyLen) return undefined;
    this.#inbox = this.#inbox.subarray(bytes.length);
    return { op, requestId, body: readRequest(bytes, op === Op.HELLO ? 'greeting' : 'serving') };
  }

  /** The next request, which there must be. */
  async ask() {
    const frame = await this.frame();
    if (frame === undefined) throw new Error('the client closed, and a request was expected');
    return frame;
  }

  /** The next request that is no PING of the link's own; those are answered. */
  async askBesidePings() {
    let asked = await this.ask();
    while (asked.op === Op.PING) {
      this.answer(asked, asked.body);
      asked = await this.ask();
    }
    return asked;
  }

  /** Reads HELLO and answers it. */
  async welcome(hello = this.fake.hello) {
    const { op, requestId, body } = await this.ask();
    if (op !== Op.HELLO) throw new Error(`op ${op} instead of HELLO`);
    this.said = body;
    this.reply(op, requestId, hello);
  }

  reply(op, requestId, body, status = 0) {
    this.socket.write(reply(op, requestId, body, status));
  }

  /** Answers a request that was read. */
  answer({ op, requestId }, body, status) {
    this.reply(op, requestId, body, status);
  }

  refuse(asked, status, retryAfterMs = 0, text = 'no') {
    this.reply(asked.op, asked.requestId, { retry_after_ms: retryAfterMs, text }, status);
  }

  goaway() {
    this.socket.write(goaway());
  }

  /** Waits until the client closed, without another request but BYE. */
  async expectEnd() {
    const frame = await this.frame();
    if (frame !== undefined && frame.op !== Op.BYE) throw new Error(`op ${frame.op} instead of the end`);
  }
}

/** Answers every NEXT, ARRAY and RUNS with consecutive ids, until the client closes. */
export async function serveIds(peer, counter) {
  for (let asked = await peer.frame(); asked !== undefined; asked = await peer.frame()) {
    const count = asked.body.count ?? 1;
    const first = counter.next;
    counter.next += BigInt(count);
    const ids = () => Array.from({ length: count }, (_, at) => first + BigInt(at));
    if (asked.op === Op.RUNS) peer.answer(asked, { count, runs: [{ first, count, stride: 1 }] });
    else if (asked.op === Op.ARRAY) peer.answer(asked, { ids: ids() });
    else if (asked.op === Op.NEXT) peer.answer(asked, { id: first });
    else peer.answer(asked, { bytes: asked.body.bytes });
  }
}
