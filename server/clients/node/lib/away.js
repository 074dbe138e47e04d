// Which servers were not there when they were dialed last.

/** So long behind a dial that failed a server counts as away: it may be back since, and nobody looked. */
const AWAY_MS = 30_000;

/**
 * A server is dialed again before others, or for want of better, when so many times as long as the dial took have passed:
 * what callers wait for one that is silent is a small part of the time. Never later than it counts as away: this process itself
 * may have been stopped while it dialed.
 */
const TIMES = 6;

/** By their indices; times are those of `now`. */
export class Away {
  #failed = new Map();

  /** A dial that began then has failed. */
  note(at, begin, end) {
    this.#failed.set(at, { end, tookMs: end - begin });
  }

  /** It is there. */
  clear(at) {
    this.#failed.delete(at);
  }

  /** Whether it was not there a moment ago. */
  isAway(at, time) {
    const failed = this.#failed.get(at);
    return failed !== undefined && time - failed.end < AWAY_MS;
  }

  /** Whether it took long to find that out, and that was not long ago compared with it. */
  costs(at, time) {
    const failed = this.#failed.get(at);
    return failed !== undefined && time - failed.end < Math.min(AWAY_MS, TIMES * failed.tookMs);
  }
}
