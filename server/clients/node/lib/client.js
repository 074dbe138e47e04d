// The handle that callers hold.

import { Buffer } from 'node:buffer';

import { ConnectionLostError, ProtocolError, TimeoutError, UsageError, XuidError, leadsElsewhere } from './errors.js';
import { Fleet } from './fleet.js';
import { readOptions } from './options.js';
import { Prefetch } from './prefetch.js';
import { Sequence } from './sequence.js';
import { Backoff, Retries, now, pause, within } from './waiting.js';
import { OPAQUE, Op, bulkRequest, checkId, orderCode } from './wire.js';

/** Connects to the servers of one cluster; see index.d.ts. */
export async function connect(servers, options) {
  const read = readOptions(servers, options);
  return new Client(await Fleet.connect(read.servers, read.options));
}

export class Client {
  #fleet;

  /** Made by `connect`. */
  constructor(fleet) {
    this.#fleet = fleet;
  }

  get served() {
    return this.#fleet.served;
  }

  async next({ order = 'any', signal } = {}) {
    return this.call({ op: Op.NEXT, order: orderCode(order) }, signal);
  }

  async array(count, options = {}) {
    return this.call(bulkRequest(Op.ARRAY, count, options), options.signal);
  }

  async runs(count, options = {}) {
    return this.call(bulkRequest(Op.RUNS, count, options), options.signal);
  }

  async decode(id, { signal } = {}) {
    return withDate(await this.call({ op: Op.DECODE, id: checkId(id) }, signal));
  }

  /** The same by the layout that the server told, without a call. */
  timeOf(id) {
    const { epochMs, tickUs, workerBits, sequenceBits, face } = this.served.layout;
    if (face === OPAQUE) throw new UsageError('the ids of this cluster are opaque: take them apart by a call (decode)');
    const [workerAt, sequenceAt] = face === 0 ? [sequenceBits, 0] : [0, workerBits];
    const tick = checkId(id) >> BigInt(workerBits + sequenceBits);
    return withDate({
      unixMs: (tick * BigInt(tickUs)) / 1_000n + epochMs,
      worker: Number(BigInt.asUintN(workerBits, id >> BigInt(workerAt))),
      sequence: Number(BigInt.asUintN(sequenceBits, id >> BigInt(sequenceAt))),
    });
  }

  async info({ signal } = {}) {
    return this.json({ op: Op.INFO }, signal);
  }

  async stats({ signal } = {}) {
    return this.json({ op: Op.STATS }, signal);
  }

  /** What the server knows of where an id came from. */
  async provenance(id, { signal } = {}) {
    return this.json({ op: Op.PROVENANCE, id: checkId(id) }, signal);
  }

  async ping(bytes = '', { signal } = {}) {
    await this.call({ op: Op.PING, bytes: Buffer.from(bytes) }, signal);
  }

  sequence(name) {
    return new Sequence(this, name);
  }

  async sequences({ prefix = '', after = '', limit = 1_000, signal } = {}) {
    return this.json({ op: Op.SEQ_LIST, prefix, after, limit }, signal);
  }

  prefetch(options) {
    return new Prefetch(this, { op: Op.RUNS }, options);
  }

  close() {
    return this.#fleet.close();
  }

  /** A request whose reply is JSON. */
  async json(request, signal) {
    const text = await this.call(request, signal);
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new ProtocolError(this.served.server, `what should be JSON is not: ${error.message}`);
    }
  }

  /** One call: attempts until one succeeds, fails for good, or the time for retries is over. */
  async call(request, signal) {
    signal?.throwIfAborted();
    const { timeoutMs, retryForMs } = this.#fleet.options;
    if (retryForMs === 0) return this.#attempt(request, timeoutMs, signal);
    const begin = now();
    const retries = this.retries();
    for (;;) {
      try {
        return await this.#attempt(request, timeoutMs, signal);
      } catch (error) {
        if (!(error instanceof XuidError) || !error.retryable) throw error;
        const pauseMs = this.pauseMs(retries, error);
        if (now() - begin + pauseMs > retryForMs) throw error;
        await pause(pauseMs, signal, this.#fleet.life);
      }
    }
  }

  /** Runs for a source that prefetches, tried once; `onAsked` is told when the server can be asked. */
  async ahead(request, patienceMs, onAsked) {
    if (this.#fleet.serving() === undefined) await this.#fleet.link();
    onAsked();
    const reply = this.#attempt(request, Math.min(patienceMs, this.#fleet.options.timeoutMs));
    // Who takes ids in a loop gives the event loop no turn in which this would be written.
    this.#fleet.serving()?.flush();
    return reply;
  }

  retries() {
    return new Retries(this.#fleet.options, this.#fleet.size);
  }

  pauseMs(retries, error) {
    return retries.pauseMs(error, leadsElsewhere(error) && !this.#fleet.staysAfter(error));
  }

  /** A signal that a close aborts. */
  get life() {
    return this.#fleet.life;
  }

  /** What changes when ids that are held are void. */
  get generation() {
    return this.#fleet.generation;
  }

  /**
   * One request, answered within `patienceMs` beyond the wait that it asks for itself. It is repeated on another link, at
   * once, if it could not be sent, or if the server said GOAWAY and closed without an answer.
   */
  async #attempt(request, patienceMs, signal) {
    const { options, life } = this.#fleet;
    const begin = now();
    const limitMs = patienceMs + (request.waitMs ?? 0);
    const late = () => TimeoutError.ofServer(this.served.server, limitMs);
    let backoff;
    // A link can end between getting it and using it, but a server that always does so is as good as lost.
    for (let round = 0; round <= options.reconnectRounds; round += 1) {
      if (round > 1) await pause((backoff ??= new Backoff(options)).pauseMs(), signal, life);
      let link = this.#fleet.serving();
      if (link === undefined) {
        link = await within(this.#fleet.link(), Math.max(0, begin + limitMs - now()), signal, late);
      }
      const value = await this.#exchange(link, request, Math.max(0, begin + patienceMs - now()), patienceMs, signal);
      if (value !== undefined) return value;
    }
    throw new ConnectionLostError(this.served.server);
  }

  /** One request on one link, with what is left of its patience; `undefined`: it is to be asked elsewhere, at once. */
  async #exchange(link, request, leftMs, patienceMs, signal) {
    const begin = now();
    try {
      return await link.exchange(request, leftMs, signal, patienceMs);
    } catch (error) {
      if (error instanceof ConnectionLostError && link.wasSentAway) return undefined;
      // One that was repeated here with little time left tells nothing of this server.
      const isLate = error instanceof TimeoutError && leftMs >= patienceMs / 2;
      if (isLate && link.isSilentSince(begin) && this.#fleet.isOtherThere(link)) link.retire();
      else if (leadsElsewhere(error)) this.#fleet.leave(link, error);
      throw error;
    }
  }
}

if (Symbol.asyncDispose !== undefined) {
  Client.prototype[Symbol.asyncDispose] = Client.prototype.close;
}

function withDate({ unixMs, worker, sequence }) {
  return { unixMs, date: new Date(Number(unixMs)), worker, sequence };
}
