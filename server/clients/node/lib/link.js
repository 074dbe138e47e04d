// One connection: many callers append requests, replies find them by request id.
//
// Invariants
// - I1 each call is settled once: by its reply, by the end of the link, by its time, or by its signal;
// - I2 calls in flight never exceed the room that client and server allow; more wait in line, first come, first served;
// - I3 after the end, or after GOAWAY, no request is taken; after GOAWAY those in flight are still answered;
// - I4 a caller that gives up leaves its request in flight, with the room that it takes, until the reply or the end of
//   the link. No caller's patience ends the link; a silence does, when it has lasted `timeoutMs` beyond the time at which
//   a reply was due, and a PING of the link's own was not answered in the second half of that;
// - I5 a request id is never used twice on one connection.

import { Buffer } from 'node:buffer';
import process from 'node:process';

import { ClosedError, ConnectionLostError, ProtocolError, RefusedError, TimeoutError } from './errors.js';
import { Breach, checkAnswer, checkHeader, longestReply, readError, readHeader, readReply } from './replies.js';
import { now, onAbort } from './waiting.js';
import { HEADER_LEN, Op, REPLY_BIT, WAIT_CAP_MS, encodeRequest, opName } from './wire.js';

/** How long a link may take to look for a reply whose time is over. */
const LAST_LOOK_MS = 1_000;

/** How long a link may live after GOAWAY, besides the timeout of its calls: the longest wait of a request, and some. */
const LEAVING_MAX_MS = WAIT_CAP_MS + 5_000;

/** Behind so long without a word a link may be over. A server that says GOAWAY leaves more time than that. */
const QUIET_MS = 100;

/** The longest that a timer of Node can wait: beyond that it does not wait at all. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

const PROBE = Object.freeze({ op: Op.PING, bytes: Buffer.alloc(0) });

export class Link {
  served;
  #stream;
  #timeoutMs;
  #room;
  #state = 'serving';
  /** Calls in flight by request id, those that were given up included; the link's own PING is the one without a caller. */
  #pending = new Map();
  /** Calls that wait for room. */
  #line = new Set();
  #inFlight = 0;
  #lastId = 1;
  #outbox = [];
  /** The socket is looked into before what is in the outbox is written. */
  #isLooking = false;
  #wasSentAway = false;
  /** How often something was received, when that was last, and when something else than the PING's reply was. */
  #reads = 0;
  #heard = now();
  #answered = now();
  /** When the PING in flight was sent; until when the silence is not looked after. */
  #asked;
  #watch;
  #watchedUntil = Infinity;
  #leaving;

  constructor({ stream, served }, options) {
    this.served = served;
    this.#stream = stream;
    this.#timeoutMs = options.timeoutMs;
    this.#room = Math.min(options.maxInFlight, Math.max(1, served.limits.maxInFlight));
    stream.onRead = () => this.#read();
    stream.onEnd = () => this.end(new ConnectionLostError(served.server, stream.failure));
    stream.release();
    // What came behind the greeting.
    this.#read();
    if (stream.isOver) stream.onEnd();
  }

  /** Whether requests are taken. */
  get isServing() {
    return this.#state === 'serving';
  }

  /** Whether nothing more comes of it. */
  get isOver() {
    return this.#state === 'ended';
  }

  /** Whether the server said GOAWAY. */
  get wasSentAway() {
    return this.#wasSentAway;
  }

  /** Whether no request was answered after that time: a server that answers nothing but PINGs is silent as well. */
  isSilentSince(time) {
    return this.#answered <= time;
  }

  /**
   * The value of the reply, or `undefined` where the link does not serve and nothing was sent. The time in line counts. A
   * call that is late says how long it had in all, which is more than what is left where it is repeated.
   */
  exchange(request, leftMs, signal, patienceMs = leftMs) {
    return new Promise((resolve, reject) => {
      const waitMs = request.waitMs ?? 0;
      const limitMs = patienceMs + waitMs;
      const call = { request, waitMs, limitMs, resolve, reject, timer: undefined, off: undefined, isSettled: false };
      if (!this.isServing) {
        resolve(undefined);
        return;
      }
      call.timer = setTimeout(() => this.#late(call), leftMs + waitMs);
      if (signal) {
        call.off = onAbort(signal, () => {
          this.#line.delete(call);
          settle(call, call.reject, signal.reason);
        });
      }
      if (this.#inFlight < this.#room) this.#send(call);
      else this.#line.add(call);
    });
  }

  /** Writes what is in the outbox now, and not at the end of this turn; what waits for a look into the socket waits on. */
  flush() {
    if (this.#outbox.length === 0 || this.#state === 'ended' || this.#isLooking) return;
    const frames = this.#outbox;
    this.#outbox = [];
    this.#stream.write(frames.length === 1 ? frames[0] : Buffer.concat(frames));
  }

  /** Takes no more requests, as after GOAWAY; those in flight are still answered. */
  retire() {
    if (!this.isServing) return;
    this.#state = 'leaving';
    // Those in line look for another link now.
    for (const call of this.#line) settle(call, call.resolve, undefined);
    this.#line.clear();
    const longestMs = Math.min(LEAVING_MAX_MS + this.#timeoutMs, LONGEST_TIMER_MS);
    this.#leaving = setTimeout(() => this.end(this.#lost()), longestMs);
    this.#leaving.unref();
    this.#endIfLeft();
  }

  /** Says BYE, and ends when the server has answered it, or after `timeoutMs`. */
  async bye() {
    if (!this.isServing) return;
    try {
      await this.exchange({ op: Op.BYE }, this.#timeoutMs);
    } catch {
      // The answer changes nothing: closed it is in any case.
    }
  }

  /** Ends the link: whoever waits is told `error`. The first end counts. */
  end(error) {
    if (this.#state === 'ended') return;
    this.#state = 'ended';
    clearTimeout(this.#watch);
    clearTimeout(this.#leaving);
    this.#outbox = [];
    this.#stream.destroy();
    for (const call of this.#pending.values()) settle(call, call.reject, error);
    this.#pending.clear();
    for (const call of this.#line) {
      if (error instanceof ClosedError) settle(call, call.reject, error);
      else settle(call, call.resolve, undefined);
    }
    this.#line.clear();
  }

  #lost() {
    return new ConnectionLostError(this.served.server, this.#stream.failure);
  }

  /** Sends a call for which there is room. */
  #send(call) {
    let bytes;
    this.#lastId += 1;
    const id = this.#lastId;
    try {
      bytes = encodeRequest(call.request, id % 0x1_0000_0000, Math.floor(id / 0x1_0000_0000), this.served.limits);
    } catch (error) {
      settle(call, call.reject, error);
      return;
    }
    this.#inFlight += 1;
    this.#append(id, call, bytes);
  }

  #append(id, call, bytes) {
    call.due = now() + call.waitMs;
    this.#pending.set(id, call);
    if (this.#outbox.length === 0) this.#flushSoon();
    this.#outbox.push(bytes);
    if (call.due + this.#timeoutMs / 2 < this.#watchedUntil) this.#watchUntil(call.due + this.#timeoutMs / 2);
  }

  /**
   * One read wakes many callers: those that ask again in the same turn share the write. Behind a time without a word the socket is
   * looked into before: a GOAWAY may lie there, and the end of the connection behind it. A write into that would be answered by
   * a reset, and the next one would fail before anything was read.
   */
  #flushSoon() {
    if (now() - this.#heard < QUIET_MS) {
      process.nextTick(() => this.flush());
      return;
    }
    this.#isLooking = true;
    turn().then(() => {
      this.#isLooking = false;
      this.flush();
    });
  }

  /** Its time is over. A process that was stopped wakes with the reply in its socket: it counts. */
  async #late(call) {
    if (!this.#line.delete(call)) await this.#readUp();
    settle(call, call.reject, TimeoutError.ofServer(this.served.server, call.limitMs));
  }

  /** Ends when everything was read that lay in the socket: a turn of the loop has passed that brought nothing. */
  async #readUp() {
    const begin = now();
    let reads;
    do {
      reads = this.#reads;
      await turn();
    } while (reads !== this.#reads && this.#state !== 'ended' && now() - begin < LAST_LOOK_MS);
  }

  #read() {
    this.#reads += 1;
    this.#heard = now();
    const bytes = this.#stream.take();
    if (bytes === undefined || this.#state === 'ended') {
      // A piece of a long reply is no silence.
      this.#answered = this.#heard;
      return;
    }
    try {
      this.#deliver(bytes);
    } catch (error) {
      this.end(error instanceof Breach ? new ProtocolError(this.served.server, error.message) : error);
    }
    if (this.#state === 'ended') return;
    this.#admit();
    this.#endIfLeft();
  }

  /** Hands out every whole reply. */
  #deliver(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    let at = 0;
    let needed = HEADER_LEN;
    while (bytes.length - at >= HEADER_LEN && this.#state !== 'ended') {
      const header = readHeader(view, at);
      const call = this.#pending.get(header.requestId);
      checkHeader(header, longestReply(header.status === 0 ? call?.request : undefined));
      needed = HEADER_LEN + header.bodyLen;
      if (bytes.length - at < needed) break;
      this.#handOut(header, call, view, at);
      at += needed;
      needed = HEADER_LEN;
    }
    this.#stream.giveBack(bytes.subarray(at), needed);
    // A long reply on its way is no silence.
    if (at < bytes.length) this.#answered = this.#heard;
  }

  /** One frame. Whatever is wrong with it ends the link, and its call with it. */
  #handOut(header, call, view, at) {
    if (header.op === Op.GOAWAY) {
      this.#wasSentAway = true;
      this.retire();
      return;
    }
    if (call === undefined) throw this.#toNobody(header, view, at);
    if ((header.op & ~REPLY_BIT) !== call.request.op) {
      throw new Breach(`a request of ${opName(call.request.op)} was answered with op 0x${header.op.toString(16)}`);
    }
    let error;
    let value;
    if (header.status !== 0) {
      const { retryAfterMs, text } = readError(header, view, at);
      error = new RefusedError(this.served.server, header.status, retryAfterMs, text);
    } else {
      value = readReply(header, view, at);
      checkAnswer(call.request, value);
    }
    this.#pending.delete(header.requestId);
    if (call.isProbe) {
      this.#asked = undefined;
      return;
    }
    this.#answered = this.#heard;
    this.#inFlight -= 1;
    if (error) settle(call, call.reject, error);
    else settle(call, call.resolve, value ?? null);
  }

  /** An error to no request is about the connection as a whole. */
  #toNobody(header, view, at) {
    if (header.status === 0) return new Breach(`a reply to request ${header.requestId}, which is not in flight`);
    const { retryAfterMs, text } = readError(header, view, at);
    return new RefusedError(this.served.server, header.status, retryAfterMs, text);
  }

  /** Sends calls from the line as long as there is room. */
  #admit() {
    for (const call of this.#line) {
      if (this.#inFlight >= this.#room || !this.isServing) return;
      this.#line.delete(call);
      this.#send(call);
    }
  }

  #endIfLeft() {
    if (this.#state === 'leaving' && this.#pending.size === 0) this.end(this.#lost());
  }

  #watchUntil(time) {
    clearTimeout(this.#watch);
    this.#watchedUntil = time;
    this.#watch = setTimeout(() => this.#judgeSilence(false), Math.max(0, time - now()));
    this.#watch.unref();
  }

  /** Asks whether the server is there when a reply is late by half, and ends the link when that brought nothing. */
  async #judgeSilence(hasRead) {
    this.#watchedUntil = Infinity;
    if (this.#state === 'ended' || this.#pending.size === 0) return;
    const since = Math.max(this.#firstDue(), this.#heard);
    const half = this.#timeoutMs / 2;
    // A process that was stopped finds its whole timeout over, and nothing asked.
    const end = this.#asked === undefined ? since + half : Math.max(since + this.#timeoutMs, this.#asked + half);
    if (now() < end) {
      this.#watchUntil(end);
    } else if (this.#asked === undefined) {
      this.#probe();
      this.#watchUntil(this.#asked + half);
    } else if (hasRead) {
      // What a server leaves unanswered behind GOAWAY is repeated elsewhere.
      this.end(this.#wasSentAway ? this.#lost() : TimeoutError.ofServer(this.served.server, this.#timeoutMs));
    } else {
      await this.#readUp();
      await this.#judgeSilence(true);
    }
  }

  #firstDue() {
    let first = Infinity;
    for (const { due } of this.#pending.values()) first = Math.min(first, due);
    return first;
  }

  /** A PING waits behind no ids, and this one takes no room. After GOAWAY nothing is sent, and silence is judged alone. */
  #probe() {
    this.#asked = now();
    if (this.#wasSentAway) return;
    this.#lastId += 1;
    const id = this.#lastId;
    const call = { request: PROBE, waitMs: 0, isProbe: true, isSettled: true };
    this.#append(id, call, encodeRequest(PROBE, id % 0x1_0000_0000, Math.floor(id / 0x1_0000_0000)));
  }
}

/** The rest of this turn of the event loop, and a whole one in which sockets are read. */
function turn() {
  return new Promise((resolve) => {
    setImmediate(() => setImmediate(resolve));
  });
}

function settle(call, how, value) {
  if (call.isSettled) return;
  call.isSettled = true;
  clearTimeout(call.timer);
  call.off?.();
  how(value);
}
