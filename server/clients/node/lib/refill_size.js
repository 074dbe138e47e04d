// How many ids to hold ahead: what was used lately, for as long as it takes to get more.

/** What is held shall last this long, though round trips be shorter: a turn of the event loop must not be noticed. */
const LEAD_MS = 10;

/** Round trips that it shall last. Half of it is used up when more is asked for. */
const ROUND_TRIPS = 4;

/** How much the level may grow from one look to the next. One greedy moment must not fetch ids for an hour. */
const GROWTH = 4;

/** The level of what is held. It knows the clock only by what it is told. */
export class RefillSize {
  #least;
  #most;
  #maxAgeMs;
  #level;
  /** The shortest lately: what waits in line at a busy server is no reason to ask it for more. */
  #roundTripMs = 0;
  #looked;
  #taken = 0;
  /** The most ids of one request, which a server that has not so many lowers. */
  #request;

  constructor({ least, most, maxAgeMs }, time) {
    this.#least = least;
    this.#most = most;
    this.#maxAgeMs = maxAgeMs;
    this.#level = least;
    this.#looked = time;
    this.#request = most;
  }

  /** The level to refill to, where `taken` is the number of ids ever taken. */
  look(time, taken) {
    const elapsedMs = Math.max(time - this.#looked, 0);
    const leadMs = Math.min(Math.max(LEAD_MS, ROUND_TRIPS * this.#roundTripMs), this.#maxAgeMs / 4);
    // A microsecond at least, so that two looks at once do not make an endless rate.
    const wanted = Math.ceil(((taken - this.#taken) * leadMs) / Math.max(elapsedMs, 0.001));
    // Who was away for long is a new user; who only pauses between bursts is not.
    const least = elapsedMs >= this.#maxAgeMs ? 0 : Math.floor(this.#level / 2);
    const level = Math.min(Math.max(wanted, least), this.#level * GROWTH);
    this.#level = Math.min(Math.max(level, this.#least), this.#most);
    this.#looked = time;
    this.#taken = taken;
    return this.#level;
  }

  /** The most to ask for at once. */
  get request() {
    return this.#request;
  }

  /** A refill came after that time. */
  answered(roundTripMs) {
    // It may get longer, slowly: by an eighth a refill.
    const slower = this.#roundTripMs * 1.125 + 0.001;
    this.#roundTripMs = this.#roundTripMs === 0 ? roundTripMs : Math.min(roundTripMs, slower);
    this.#request = Math.min(this.#request * 2, this.#most);
  }

  /** A refill of `count` ids was refused: fewer may be had. */
  refused(count) {
    this.#request = Math.max(Math.floor(count / 2), this.#least);
  }

  /** Something grew old: it was too much. */
  wasted() {
    this.#level = Math.max(Math.floor(this.#level / 2), this.#least);
  }
}
