// Time, pauses and cancellation.

import { setTimeout as after, clearTimeout } from 'node:timers';
import { performance } from 'node:perf_hooks';

/** Milliseconds of a clock that is never set. */
export function now() {
  return performance.now();
}

/** Calls that listen to one signal: it gets one listener, because Node warns of a leak at the eleventh. */
const listeners = new WeakMap();

/** Calls `callback` once when the signal aborts, or has; the answer is a function that takes this back. */
export function onAbort(signal, callback) {
  if (signal.aborted) {
    let isWanted = true;
    queueMicrotask(() => isWanted && callback());
    return () => {
      isWanted = false;
    };
  }
  let callbacks = listeners.get(signal);
  if (callbacks === undefined) {
    callbacks = new Set();
    listeners.set(signal, callbacks);
  }
  if (callbacks.size === 0) {
    const notify = () => {
      const all = [...callbacks];
      callbacks.clear();
      for (const each of all) each();
    };
    callbacks.off = () => signal.removeEventListener('abort', notify);
    signal.addEventListener('abort', notify, { once: true });
  }
  callbacks.add(callback);
  return () => {
    if (callbacks.delete(callback) && callbacks.size === 0) callbacks.off();
  };
}

/** The outcome of `promise`, or an error when the time is over or the signal aborts; the promise itself goes on. */
export function within(promise, limitMs, signal, lateError) {
  return new Promise((resolve, reject) => {
    const timer = after(() => end(reject, lateError()), limitMs);
    const off = signal && onAbort(signal, () => end(reject, signal.reason));
    const end = (settle, value) => {
      clearTimeout(timer);
      off?.();
      settle(value);
    };
    promise.then(
      (value) => end(resolve, value),
      (error) => end(reject, error),
    );
  });
}

/** A pause that an abort of any of these signals ends with its reason. */
export function pause(ms, ...signals) {
  return new Promise((resolve, reject) => {
    const timer = after(() => end(resolve), ms);
    const offs = signals.map((signal) => signal && onAbort(signal, () => end(reject, signal.reason)));
    const end = (settle, value) => {
      clearTimeout(timer);
      for (const off of offs) off?.();
      settle(value);
    };
  });
}

/** Pauses that double, each anywhere from nothing to all of it, so that no two clients come back at once. */
export class Backoff {
  #next;
  #longest;

  constructor({ firstPauseMs, longestPauseMs }) {
    this.#next = Math.min(firstPauseMs, longestPauseMs);
    this.#longest = longestPauseMs;
  }

  pauseMs() {
    const full = this.#next;
    this.#next = Math.min(2 * full, this.#longest);
    return full * Math.random();
  }
}

/** The longest that a server's word is believed: a wrong number of milliseconds would stop a client for weeks. */
const LONGEST_WORD_MS = 60_000;

/** The pauses between the attempts of one caller. */
export class Retries {
  #backoff;
  /** Servers besides the one in use, and how many of them may still be gone to without a pause. */
  #others;
  #left;

  constructor(options, servers) {
    this.#backoff = new Backoff(options);
    this.#others = servers - 1;
    this.#left = this.#others;
  }

  /**
   * How long to wait before the next attempt; `moves`: it is made at another server. What a server says about itself
   * does not hold for another one, so there is no pause until all had their turn.
   */
  pauseMs(error, moves) {
    if (moves && this.#left > 0) {
      this.#left -= 1;
      return 0;
    }
    this.#left = this.#others;
    return this.#backoff.pauseMs() + Math.min(error.retryAfterMs ?? 0, LONGEST_WORD_MS);
  }
}
