// Ids asked for ahead of need.
//
//   server --- RUNS, several in flight ---> #put: replies, oldest first, of some runs each
//                                             |  #open: as many as leave something for the next look at the level
//                                           the open piece: a hit is one look at the clock and one addition
//                                             |
//                                           take, takeMany, next, for await
//
// Invariants
// - P1 an id is in one place: in flight, in #replies, in the open piece, handed out or wasted;
// - P2 no id is handed out at `maxAgeMs` or later after it was asked for, by the clock that is never set and by that of
//   the wall, which also counts the time in which the machine was suspended; so none is 2 s after its reply arrived;
// - P3 what is held is void at once when the client is closed, or meets a server of another cluster.

import { RefusedError, TimeoutError, UsageError, XuidError } from './errors.js';
import { RefillSize } from './refill_size.js';
import { now, onAbort } from './waiting.js';
import { checkInteger } from './wire.js';

/** How long the server may wait for the ids of a refill. */
const REFILL_WAIT_MS = 50;

/** Refills in flight at once. */
const IN_FLIGHT = 8;

/** How long after a failure that will not pass by itself the server is asked again, if ids are still taken. */
const STOPPED_MS = 1_000;

const BOUNDS = {
  least: [1, 1 << 20],
  most: [1, 1 << 28],
  // Up to 2 s; the rest is for a caller that takes many at once.
  maxAgeMs: [1, 1_900],
  waitMs: [0, 3_600_000],
};

const DEFAULTS = Object.freeze({ least: 16, most: 1 << 20, maxAgeMs: 1_000, waitMs: 1_000 });

function readPrefetchOptions(given = {}) {
  const options = { ...DEFAULTS };
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(BOUNDS, name)) {
      throw new UsageError(`there is no prefetch option ${name}; there are ${Object.keys(BOUNDS).join(', ')}`);
    }
    if (value !== undefined) options[name] = checkInteger(`prefetch ${name}`, value, ...BOUNDS[name]);
  }
  if (options.most < options.least) {
    throw new UsageError(`prefetch most is ${options.most}, and least (${options.least}) or more is allowed`);
  }
  return options;
}

export class Prefetch {
  // The open piece: `#left` ids from `#id` on. The wall's clock at the last look: within its millisecond nothing ages.
  #id = 0n;
  #stride = 1n;
  #left = 0;
  #asked = 0;
  #askedWall = 0;
  #looked = -1;
  #generation;
  /** Replies behind the open piece, oldest first, and how many ids they hold. One of opaque ids has a run for each. */
  #replies = [];
  #held = 0;
  /** Ids asked for and not answered yet, refills of them, and the number below which more are asked for. */
  #coming = 0;
  #refills = 0;
  #low = 1;
  #taken = 0;
  #grewOld = false;
  #client;
  #request;
  #options;
  #size;
  #retries;
  #failure;
  #failures = 0;
  /** Nothing is asked for before; a timer then asks, for those who wait. */
  #resumeAt = 0;
  #resume;
  #waiters = new Set();

  /** Made by `Client.prefetch` and `Sequence.prefetch`. */
  constructor(client, request, options) {
    this.#client = client;
    this.#request = request;
    this.#options = readPrefetchOptions(options);
    this.#size = new RefillSize(this.#options, now());
    this.#retries = client.retries();
    this.#generation = client.generation;
    this.#refill();
  }

  /** Ids that could be taken now. */
  get held() {
    this.#look(Date.now());
    return this.#left + this.#held;
  }

  /** Why the last refill failed, if none succeeded since. */
  get failure() {
    return this.#failure;
  }

  /** One id of those that are held, or `undefined`. */
  take() {
    const wall = Date.now();
    if (wall !== this.#looked || this.#client.generation !== this.#generation) this.#look(wall);
    if (this.#left === 0 && !this.#open()) return undefined;
    const id = this.#id;
    // A sum that stays below 2^64, which spares the engine numbers of any length.
    this.#id = BigInt.asUintN(64, id + this.#stride);
    this.#left -= 1;
    return id;
  }

  /** Up to `count` ids of those that are held. */
  takeMany(count) {
    checkInteger('count', count, 0, 1 << 28);
    this.#look(Date.now());
    const ids = new BigUint64Array(Math.min(count, this.#left + this.#held));
    let filled = 0;
    while (filled < ids.length && (this.#left > 0 || this.#open())) {
      const part = Math.min(this.#left, ids.length - filled);
      fill(ids, filled, part, this.#id, this.#stride);
      this.#id = BigInt.asUintN(64, this.#id + BigInt(part) * this.#stride);
      this.#left -= part;
      filled += part;
    }
    return filled === ids.length ? ids : ids.slice(0, filled);
  }

  /** One id, waited for where none is held, or others wait already. */
  next({ signal } = {}) {
    const id = this.#waiters.size > 0 ? undefined : this.take();
    return id === undefined ? this.#wait(signal) : Promise.resolve(id);
  }

  async *[Symbol.asyncIterator]() {
    for (;;) yield (this.#waiters.size > 0 ? undefined : this.take()) ?? (await this.#wait());
  }

  /** Drops what is void or grew old. */
  #look(wall) {
    const time = now();
    this.#looked = wall;
    if (this.#client.generation !== this.#generation) {
      this.#generation = this.#client.generation;
      this.#drop(this.#replies.length);
      this.#left = 0;
      return;
    }
    if (this.#left > 0 && this.#isOld(this.#asked, this.#askedWall, time, wall)) {
      this.#left = 0;
      this.#grewOld = true;
    }
    let old = 0;
    for (const { asked, wall: askedWall } of this.#replies) {
      if (!this.#isOld(asked, askedWall, time, wall)) break;
      old += 1;
    }
    if (old > 0) {
      this.#drop(old);
      this.#grewOld = true;
    }
  }

  #isOld(asked, askedWall, time, wall) {
    return time - asked >= this.#options.maxAgeMs || wall - askedWall >= this.#options.maxAgeMs;
  }

  #drop(count) {
    for (const { left } of this.#replies.splice(0, count)) this.#held -= left;
  }

  /** Opens a piece of the oldest run, up to where more is to be asked for; asks for it there. */
  #open() {
    const reply = this.#replies[0];
    if (reply !== undefined) {
      const { first, count, stride } = reply.runs[reply.at];
      const left = count - reply.used;
      const piece = this.#held > this.#low ? Math.min(left, this.#held - this.#low + 1) : left;
      this.#id = first + BigInt(reply.used) * stride;
      this.#stride = stride;
      this.#left = piece;
      this.#asked = reply.asked;
      this.#askedWall = reply.wall;
      reply.used += piece;
      reply.left -= piece;
      if (reply.used === count) {
        reply.at += 1;
        reply.used = 0;
      }
      if (reply.left === 0) this.#replies.shift();
      this.#held -= piece;
      this.#taken += piece;
    }
    if (this.#held + this.#coming < this.#low) this.#refill();
    return reply !== undefined;
  }

  /** Asks for as much as is missing. */
  #refill() {
    const time = now();
    if (time < this.#resumeAt) {
      this.#resumeLater(time);
      return;
    }
    if (this.#refills >= IN_FLIGHT) return;
    if (this.#grewOld) {
      this.#grewOld = false;
      this.#size.wasted();
    }
    const level = this.#size.look(time, this.#taken);
    this.#low = Math.ceil(level / 2);
    let missing = level - this.#held - this.#coming;
    while (missing > 0 && this.#refills < IN_FLIGHT) {
      const count = Math.min(missing, this.#size.request, Math.max(1, this.#client.served.limits.maxCount));
      missing -= count;
      this.#ask(count);
    }
  }

  async #ask(count) {
    const failures = this.#failures;
    const { generation } = this.#client;
    const dated = { time: now(), wall: Date.now() };
    const request = { ...this.#request, count, order: 0, waitMs: REFILL_WAIT_MS };
    this.#coming += count;
    this.#refills += 1;
    let runs;
    try {
      // What takes longer than an id may be old is of no use.
      runs = await this.#client.ahead(request, this.#options.maxAgeMs, () => {
        dated.time = now();
        dated.wall = Date.now();
      });
    } catch (error) {
      this.#settled(count);
      this.#fail(count, error, failures === this.#failures);
      this.#serve();
      return;
    }
    this.#settled(count);
    this.#size.answered(now() - dated.time);
    this.#retries = this.#client.retries();
    this.#failure = undefined;
    if (generation === this.#client.generation) this.#put(runs, dated);
    this.#serve();
  }

  #settled(count) {
    this.#coming -= count;
    this.#refills -= 1;
  }

  /** In the order in which they were asked for, which is not always that in which they come. */
  #put(runs, { time, wall }) {
    let place = this.#replies.length;
    while (place > 0 && this.#replies[place - 1].asked > time) place -= 1;
    const left = runs.reduce((sum, { count }) => sum + count, 0);
    this.#replies.splice(place, 0, { runs, at: 0, used: 0, left, asked: time, wall });
    this.#held += left;
    // They may be old already.
    this.#looked = -1;
  }

  /** `isFirst`: the others that were in flight with it failed alike, and are no reason to pause again. */
  #fail(count, error, isFirst) {
    this.#failure = error;
    if (error instanceof RefusedError) this.#size.refused(count);
    // Too many for the server that took the place of another, whether it was asked or its greeting said so: its limits are
    // known by now.
    const isTooMany = error instanceof UsageError || error.status === 'COUNT';
    const mayPass = error instanceof XuidError && (error.retryable || isTooMany);
    if (isFirst) {
      this.#failures += 1;
      this.#resumeAt = now() + (mayPass ? this.#client.pauseMs(this.#retries, error) : STOPPED_MS);
    }
    if (!mayPass) for (const waiter of this.#waiters) waiter.end(waiter.reject, error);
  }

  /**
   * Gives those who wait what came, one after the other, and asks for more where that was not enough. What one does with its id comes
   * before the next one is given any: ids may grow old meanwhile, and are looked at again.
   */
  #serve() {
    for (const waiter of this.#waiters) {
      const id = this.take();
      if (id === undefined) return;
      waiter.end(waiter.resolve, id);
      if (this.#waiters.size > 0) queueMicrotask(() => this.#serve());
      return;
    }
  }

  #resumeLater(time) {
    if (this.#resume !== undefined || this.#waiters.size === 0) return;
    this.#resume = setTimeout(() => {
      this.#resume = undefined;
      if (this.#waiters.size > 0) this.#open();
    }, this.#resumeAt - time);
    // Those who wait keep the process running.
    this.#resume.unref();
  }

  #wait(signal) {
    return new Promise((resolve, reject) => {
      const { life } = this.#client;
      const waiter = { resolve, reject };
      waiter.end = (settle, value) => {
        clearTimeout(timer);
        off?.();
        offLife();
        this.#waiters.delete(waiter);
        settle(value);
      };
      const timer = setTimeout(() => this.#giveUp(waiter), this.#options.waitMs);
      const off = signal && onAbort(signal, () => waiter.end(reject, signal.reason));
      const offLife = onAbort(life, () => waiter.end(reject, life.reason));
      // What was given up is tried again for somebody who waits.
      if (this.#failure?.retryable === false) this.#resumeAt = 0;
      this.#waiters.add(waiter);
      if (this.#coming === 0) this.#refill();
    });
  }

  /** After what lies in the socket was read: a process that was stopped wakes with both. */
  #giveUp(waiter) {
    setImmediate(() => {
      if (!this.#waiters.has(waiter)) return;
      const late = new TimeoutError(
        `no id came within ${this.#options.waitMs} ms: ask again, or allow more with waitMs of the prefetch`,
      );
      waiter.end(waiter.reject, this.#failure ?? late);
    });
  }
}

const IS_LITTLE_ENDIAN = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1;

/** Writes `count` ids from `first` on. Halves of ids are added: a BigInt each would cost ten times as much. */
function fill(ids, at, count, first, stride) {
  if (!IS_LITTLE_ENDIAN) {
    for (let done = 0; done < count; done += 1) ids[at + done] = first + BigInt(done) * stride;
    return;
  }
  const halves = new Uint32Array(ids.buffer, ids.byteOffset + 8 * at, 2 * count);
  const step = Number(stride);
  let low = Number(BigInt.asUintN(32, first));
  let high = Number(first >> 32n);
  for (let half = 0; half < 2 * count; half += 2) {
    halves[half] = low;
    halves[half + 1] = high;
    low += step;
    // Both summands are below 2^32.
    if (low >= 0x1_0000_0000) {
      low -= 0x1_0000_0000;
      high += 1;
    }
  }
}
