// The servers that a client may use: one link at a time, dialed on demand.
//
// Invariants
// - I1 every link is of the cluster of the first one;
// - I2 one dial at a time, whatever the number of callers; those that waited for it share its outcome;
// - I3 a close ends every link that has not ended, also one that was left with calls in flight.

import { Away } from './away.js';
import { ClosedError, WrongClusterError } from './errors.js';
import { dial } from './dial.js';
import { Link } from './link.js';
import { Backoff, now, pause } from './waiting.js';

/** How long the other servers may still take to answer when one has. Who is later counts as away until it answers. */
const STRAGGLERS_MS = 1_000;

/**
 * After a refusal a server is left for another one that was not dialed for so long, or for as long as the refusal says to
 * wait, up to the most, and that costs no long dial in vain. Else, where all refuse, each call would go from server to
 * server, with a dial for each.
 */
const LEAST_STAY_MS = 1_000;
const MOST_STAY_MS = 10_000;

export class Fleet {
  options;
  /** Counts the moments at which ids that are held become void: the end, and a server of another cluster. */
  generation = 0;
  #servers;
  /** Index of the server that this client prefers, chosen at random so that clients spread. */
  #home;
  #pinned;
  #link;
  /** Those that have not ended, and some that have (I3). */
  #links = [];
  /** Index of the server that is dialed next, and when each was dialed last. */
  #next;
  #dialed;
  /** Which were not there when they were dialed last. */
  #away = new Away();
  #dialing;
  #isClosed = false;
  /** Aborted by a close: what pauses, dials or waits for ids is told. */
  #end = new AbortController();
  /** When the home is to be tried again, while the link is to another server; and whether it is being tried. */
  #returnAt = Infinity;
  #isReturning = false;

  static async connect(servers, options) {
    const fleet = new Fleet(servers, options);
    await fleet.#greetAll();
    return fleet;
  }

  constructor(servers, options) {
    this.#servers = servers;
    this.options = options;
    this.#home = Math.floor(Math.random() * servers.length);
    this.#next = this.#home;
    this.#dialed = servers.map(() => -Infinity);
  }

  /** What the server of the last connection said about itself. */
  get served() {
    return this.#link.served;
  }

  /** A signal that a close aborts, with ClosedError. */
  get life() {
    return this.#end.signal;
  }

  /** How many servers there are to choose from. */
  get size() {
    return this.#servers.length;
  }

  /** The link, if one takes requests. */
  serving() {
    if (this.#isClosed) throw new ClosedError();
    if (!this.#link.isServing) return undefined;
    if (now() >= this.#returnAt && !this.#isReturning) this.#goHome();
    return this.#link;
  }

  /** A link that takes requests; dials if there is none. */
  link() {
    const link = this.serving();
    if (link !== undefined) return Promise.resolve(link);
    this.#dialing ??= this.#redial().finally(() => {
      this.#dialing = undefined;
    });
    return this.#dialing;
  }

  /**
   * A server has refused over this link with what may take it long. Leaves it, if there is another server that was not
   * dialed of late, and costs no long dial in vain; what is in flight is still answered.
   */
  leave(link, error) {
    const stayMs = Math.min(Math.max(error.retryAfterMs ?? 0, LEAST_STAY_MS), MOST_STAY_MS);
    const time = now();
    const isDue = (at) => time - this.#dialed[at] >= stayMs && !this.#away.costs(at, time);
    if (this.#servers.some((server, at) => server.name !== link.served.server && isDue(at))) link.retire();
  }

  /**
   * Whether there is another server than that of the link, and one that was not away a moment ago. Who is silent for a moment
   * is not left for one that is away: all calls would wait for that.
   */
  isOtherThere(link) {
    const time = now();
    return this.#servers.some((server, at) => server.name !== link.served.server && !this.#away.isAway(at, time));
  }

  /** Whether the server that this is an error of is still the one in use. */
  staysAfter(error) {
    return this.#link.isServing && this.#link.served.server === error.server;
  }

  /** Says BYE and closes. Whoever waits is told ClosedError: for a reply behind BYE, for anything else at once. */
  async close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.generation += 1;
    this.#end.abort(new ClosedError());
    await this.#link.bye();
    for (const link of this.#links) link.end(new ClosedError());
  }

  /** Greets all servers at once, compares their clusters, and keeps the home, or else the first after it that answers. */
  async #greetAll() {
    const count = this.#servers.length;
    const order = this.#servers.map((_, at) => (this.#home + at) % count);
    const begin = now();
    const dials = order.map((at) => this.#dial(at));
    const done = new AbortController();
    const late = stragglers(dials, done.signal);
    const outcomes = await Promise.all(
      dials.map((each) => Promise.race([each, late]).then((greeted) => ({ greeted }), (error) => ({ error }))),
    );
    // Ends the pause, which would keep the process running.
    done.abort();
    const answers = outcomes.map(({ greeted }) => greeted);
    // Who is late has not failed yet, and was waited for.
    outcomes.forEach(({ greeted, error }, place) => {
      if (greeted === undefined && error === undefined) this.#away.note(order[place], begin, now());
    });
    // Those that come later are not needed.
    dials.forEach((each, at) => answers[at] ?? each.then(({ stream }) => stream.destroy(), () => {}));
    const place = answers.findIndex((answer) => answer !== undefined);
    if (place < 0) throw worstOf(outcomes.map(({ error }) => error));
    const kept = answers[place];
    for (const answer of answers) if (answer !== undefined && answer !== kept) answer.stream.destroy();
    const stranger = answers.find((answer) => answer !== undefined && answer.served.cluster !== kept.served.cluster);
    if (stranger !== undefined) {
      kept.stream.destroy();
      throw clustersDiffer(stranger.served, kept.served);
    }
    this.#pinned = kept.served;
    this.#use(new Link(kept, this.options), order[place]);
  }

  /** Tries the servers, each once a round, for as many rounds as allowed. */
  async #redial() {
    const backoff = new Backoff(this.options);
    for (let round = 1; ; round += 1) {
      const errors = [];
      for (const at of this.#turn()) {
        // Before the dial: the next caller must not begin at the same silent server.
        this.#next = (at + 1) % this.#servers.length;
        try {
          return this.#use(new Link(await this.#dial(at), this.options), at);
        } catch (error) {
          errors.push(error);
        }
      }
      if (round >= this.options.reconnectRounds || errors.every((error) => !error.retryable)) throw worstOf(errors);
      await pause(backoff.pauseMs(), this.life);
    }
  }

  /** Indices of the servers, from the one after the last tried; those that cost a long dial in vain come last. */
  #turn() {
    const time = now();
    const all = this.#servers.map((_, place) => (this.#next + place) % this.#servers.length);
    const isLast = (at) => this.#away.costs(at, time);
    return [...all.filter((at) => !isLast(at)), ...all.filter(isLast)];
  }

  /** The home is tried, while calls go on where they are, and the turns as if nothing had been tried. */
  async #goHome() {
    this.#isReturning = true;
    this.#returnAt = now() + this.options.returnAfterMs;
    try {
      this.#use(new Link(await this.#dial(this.#home), this.options), this.#home);
    } catch {
      // It is tried again after the same time.
    } finally {
      this.#isReturning = false;
    }
  }

  /** Dials a server, refuses one of another cluster (I1), and notes whether it was there. */
  async #dial(at) {
    const begin = now();
    this.#dialed[at] = begin;
    try {
      const greeted = await dial(this.#servers[at], this.options, this.life);
      // At the connect all are compared when they have answered.
      const known = this.#pinned ?? greeted.served;
      if (greeted.served.cluster !== known.cluster) {
        greeted.stream.destroy();
        throw clustersDiffer(greeted.served, known);
      }
      this.#away.clear(at);
      return greeted;
    } catch (error) {
      this.#away.note(at, begin, now());
      // Nothing tells which of them the ids that are held belong with.
      if (error instanceof WrongClusterError) this.generation += 1;
      throw error;
    }
  }

  #use(link, at) {
    if (this.#isClosed) {
      link.end(new ClosedError());
      throw new ClosedError();
    }
    const left = this.#link;
    this.#link = link;
    this.#links = [link, ...this.#links.filter((other) => !other.isOver)];
    // What is in flight on it is still answered; if it has not ended, it was found again beside this dial.
    left?.retire();
    this.#next = (at + 1) % this.#servers.length;
    // Half of it at random: those who left a server together do not come back together.
    const afterMs = this.options.returnAfterMs * (1 + Math.random() / 2);
    this.#returnAt = at === this.#home ? Infinity : now() + afterMs;
    return link;
  }
}

/** Settled some time after the first of these succeeded, and never before. */
function stragglers(dials, signal) {
  return Promise.any(dials).then(
    () => pause(STRAGGLERS_MS, signal),
    () => new Promise(() => {}),
  );
}

function clustersDiffer(found, known) {
  const message = `${found.server} is of cluster ${found.cluster}, and ${known.server} of ${known.cluster}: two clusters ` +
    'can issue the same id, so give only servers of one';
  return new WrongClusterError(found.server, found.cluster, known.cluster, message);
}

/** What will not pass by waiting says more than "not reached". */
function worstOf(errors) {
  return errors.find((error) => error !== undefined && !error.retryable) ?? errors.findLast((error) => error !== undefined);
}
