// Numbers of one name: 1, 2, 3 ..

import { UsageError } from './errors.js';
import { Prefetch } from './prefetch.js';
import { Op, bulkRequest, sequenceName } from './wire.js';

/** A sequence whose requests may be of any order but `fresh`. */
const NO_ORDER = 'fresh';

export class Sequence {
  #client;
  #name;

  /** Made by `Client.sequence`. */
  constructor(client, name) {
    sequenceName(name);
    this.#client = client;
    this.#name = name;
  }

  get name() {
    return this.#name;
  }

  async next({ signal } = {}) {
    return this.#client.call({ op: Op.SEQ_NEXT, name: this.#name }, signal);
  }

  async array(count, options = {}) {
    return this.#client.call(this.#bulk(Op.SEQ_ARRAY, count, options), options.signal);
  }

  async runs(count, options = {}) {
    return this.#client.call(this.#bulk(Op.SEQ_RUNS, count, options), options.signal);
  }

  async contiguous(count, options = {}) {
    const [run] = await this.#client.call({ ...this.#bulk(Op.SEQ_RUNS, count, options), contiguous: true }, options.signal);
    return run;
  }

  async info({ signal } = {}) {
    return this.#client.json({ op: Op.SEQ_INFO, name: this.#name }, signal);
  }

  async create(settings = {}, { signal } = {}) {
    return this.#client.json({ op: Op.SEQ_CREATE, name: this.#name, json: toJson(settings) }, signal);
  }

  async alter(changes, { signal } = {}) {
    return this.#client.json({ op: Op.SEQ_ALTER, name: this.#name, json: toJson(changes) }, signal);
  }

  prefetch(options) {
    return new Prefetch(this.#client, { op: Op.SEQ_RUNS, name: this.#name }, options);
  }

  #bulk(op, count, options) {
    return { ...bulkRequest(op, count, { order: 'ordered', ...options }, NO_ORDER), name: this.#name };
  }
}

/** Numbers go as strings: many readers keep them in 53 bits. */
function toJson(settings) {
  return JSON.stringify(settings, (key, value) => {
    if (typeof value === 'bigint') return value.toString();
    if (typeof value === 'number' && !Number.isSafeInteger(value)) {
      throw new UsageError(`${key} is ${value}, and a BigInt or a whole number below 2^53 is allowed`);
    }
    return value;
  });
}
