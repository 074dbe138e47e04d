// Types of the client of the X-UID server. Ids and numbers of sequences are BigInt everywhere, times are milliseconds.

/**
 * Where an id may come from. `any`: the server's reserve, the fastest. `fresh`: of a tick of now. `ordered`: greater than
 * every ordered id that the same server answered with before.
 */
export type Order = 'any' | 'fresh' | 'ordered';

/** Cancels one call: it is rejected with the signal's reason. Ids that were on their way are wasted, never repeated. */
export interface CallOptions {
  signal?: AbortSignal;
}

export interface BulkOptions extends CallOptions {
  /** Defaults to `any`; for a sequence, to `ordered`. */
  order?: Order;
  /** How long the ids may take at the server. Above 60,000 counts as that. Defaults to 50. */
  waitMs?: number;
}

export interface SequenceBulkOptions extends BulkOptions {
  order?: 'any' | 'ordered';
}

/** How a client talks TLS. Certificates and keys are PEM, or the names of files that hold it, which are read once. */
export interface TlsOptions {
  /** Who vouches for the servers. Defaults to those whom Node trusts. */
  ca?: string | Uint8Array;
  /** What this client shows to a server that asks for a certificate; with `key`. */
  cert?: string | Uint8Array;
  key?: string | Uint8Array;
  /** The name that a server's certificate must be of. Defaults to the host with which it is connected to. */
  serverName?: string;
}

export interface Options {
  /** What proves this client's right, at most 255 bytes. Defaults to nothing. */
  token?: string | Uint8Array;
  /** The cluster that the servers must be of, 32 hexadecimal digits. Defaults to that of the first one that answers. */
  cluster?: string;
  /** Talks TLS to all servers; `true` with the defaults. Defaults to plain TCP. */
  tls?: boolean | TlsOptions;
  /** What this client calls itself in the server's logs, at most 255 bytes. */
  clientName?: string;
  /** Requests in flight at once; further calls wait. The server's own limit holds too. Defaults to 1,024. */
  maxInFlight?: number;
  /** How long connecting and HELLO may take, for each server. Defaults to 5,000. */
  connectTimeoutMs?: number;
  /**
   * How long a call may take beyond the wait that it asks for itself. A call that gives up ends alone. When nothing at all
   * came for so long, though a reply was due, and a PING sent after half of it was not answered either, the connection
   * ends. Defaults to 10,000.
   */
  timeoutMs?: number;
  /**
   * How long a call goes on trying after errors that are `retryable`. It never repeats an id. Defaults to 0: the caller
   * sees every error.
   */
  retryForMs?: number;
  /** How often all servers are tried before a call that needs a connection fails. Defaults to 6. */
  reconnectRounds?: number;
  /** The first pause after a failure, doubled each time; each is shortened at random. Defaults to 20. */
  firstPauseMs?: number;
  /** The longest of these pauses. Defaults to 2,000. */
  longestPauseMs?: number;
  /**
   * After so long, and up to half more, a client that had to leave the server with which it began tries that one again.
   * Defaults to 180,000.
   */
  returnAfterMs?: number;
}

/**
 * Connects to servers of one cluster: `host:port`, several in a list or with commas between. The client begins at a random
 * one, and goes to another when that one is lost or leaves. All that answer are greeted, and refused together if their
 * clusters differ.
 *
 * Without `servers` it reads the variables XUID_SERVER (else 127.0.0.1:7654) and XUID_TOKEN.
 *
 * Rejects with UsageError for an option out of range, else as the calls do, if no server answers. Each is tried once.
 */
export function connect(servers?: string | readonly string[], options?: Options): Promise<Client>;

export interface Layout {
  /** Tick 0, in milliseconds since the Unix epoch. */
  readonly epochMs: bigint;
  /** The length of a tick, in microseconds. */
  readonly tickUs: number;
  readonly timeBits: number;
  readonly workerBits: number;
  readonly sequenceBits: number;
  /** 0 where the sequence lies lowest, 1 where the worker does, 2 where ids are opaque. */
  readonly face: number;
}

export interface Limits {
  readonly maxBody: number;
  readonly maxCount: number;
  readonly maxInFlight: number;
  readonly idleMs: number;
}

/** What the server of the last connection said about itself. */
export interface Served {
  /** Its address, as it was given. */
  readonly server: string;
  readonly version: string;
  /** 32 hexadecimal digits. */
  readonly cluster: string;
  readonly layout: Layout;
  readonly limits: Limits;
}

/** The fields of an id. */
export interface Fields {
  /** The beginning of its tick, in milliseconds since the Unix epoch. */
  unixMs: bigint;
  /** The same, as far as a Date goes. */
  date: Date;
  worker: number;
  sequence: number;
}

/**
 * A client. Any number of calls may run at once; they share one connection, and a lost one is made again by the next call.
 * While no call runs, a client does not keep the process running.
 *
 * Every call may reject with a {@link XuidError}.
 */
export class Client {
  private constructor();
  readonly served: Served;
  /** One id. The server decides how long it waits for one. */
  next(options?: CallOptions & { order?: Order }): Promise<bigint>;
  /** Exactly `count` ids, or an error. */
  array(count: number, options?: BulkOptions): Promise<bigint[]>;
  /** Exactly `count` ids as runs, or an error. The fastest for many ids. */
  runs(count: number, options?: BulkOptions): Promise<Run[]>;
  /** The fields of an id, by a call. */
  decode(id: bigint, options?: CallOptions): Promise<Fields>;
  /** The fields of an id, by the layout that the server told, without a call. Opaque ids only the server takes apart: a `UsageError`. */
  timeOf(id: bigint): Fields;
  /** What the server is. Ids and other numbers of 64 bits in it are strings. */
  info(options?: CallOptions): Promise<Record<string, unknown>>;
  /** What the server counted. */
  stats(options?: CallOptions): Promise<Record<string, unknown>>;
  /** What the server knows of where an id came from, and whether it may have been issued. */
  provenance(id: bigint, options?: CallOptions): Promise<Record<string, unknown>>;
  /** Sends bytes, at most 1,024, there and back. */
  ping(bytes?: string | Uint8Array, options?: CallOptions): Promise<void>;
  /** The sequence of that name. It need not exist, and nothing is sent. Throws UsageError where no sequence can be called so. */
  sequence(name: string): Sequence;
  /** Up to `limit` (1 to 1,000) sequences whose names begin with `prefix` and are greater than `after`. */
  sequences(options?: CallOptions & { prefix?: string; after?: string; limit?: number }): Promise<SequenceInfo[]>;
  /** A source of ids, of order `any`, that are there before they are asked for. */
  prefetch(options?: PrefetchOptions): Prefetch;
  /** Says BYE and closes. Calls that still run are rejected with ClosedError, and what is held ahead is void at once. */
  close(): Promise<void>;
}

/** `count` ids from `first` on, at a distance of `stride`. Iterating over it yields each of them. */
export class Run implements Iterable<bigint> {
  constructor(first: bigint, count: number, stride: bigint);
  readonly first: bigint;
  readonly count: number;
  readonly stride: bigint;
  readonly last: bigint;
  [Symbol.iterator](): Iterator<bigint>;
}

export interface PrefetchOptions {
  /** How many ids are held ahead at least. Too few, and the first calls after a pause wait. Defaults to 16. */
  least?: number;
  /** How many at most. Too few, and a hot loop waits for round trips. Defaults to 1,048,576. */
  most?: number;
  /** How long after it was asked for an id may be handed out; up to 1,900. Older ones are wasted. Defaults to 1,000. */
  maxAgeMs?: number;
  /** How long `next` may wait when nothing is held. Defaults to 1,000. */
  waitMs?: number;
}

/**
 * Ids that are there before they are asked for. How many are held follows the use; a source that is not used asks for none.
 *
 * Ids that are held do not survive a copy of the process's memory (the snapshot of a virtual machine): both copies would
 * hand them out. Close the client before such a snapshot is made.
 */
export class Prefetch implements AsyncIterable<bigint> {
  private constructor();
  /** How many ids could be taken now. */
  readonly held: number;
  /** Why the last refill failed, if none succeeded since. */
  readonly failure: Error | undefined;
  /** One id of those that are held, or `undefined`. What is held grows only between two turns of the event loop. */
  take(): bigint | undefined;
  /** Up to `count` ids of those that are held; the fastest for many at once. */
  takeMany(count: number): BigUint64Array;
  /** One id, waited for where none is held. It is young when the promise gets it: other code may run before yours goes on. */
  next(options?: CallOptions): Promise<bigint>;
  /** Ids without end. Leaving the loop leaves the source as it is. */
  [Symbol.asyncIterator](): AsyncIterableIterator<bigint>;
}

/** Numbers of 64 bits may be BigInt, strings of digits, or numbers below 2^53. */
export type Integer = bigint | number | string;

/** What a new sequence is to be; what is not said is the server's default. */
export interface SequenceSettings {
  /** No number is below. Defaults to 1. */
  start?: Integer;
  /** The least that a server is granted at once. */
  step?: Integer;
  /** Issued are numbers that leave `remainder` when they are divided by `increment`. Defaults to all. */
  increment?: Integer;
  remainder?: Integer;
  /** No number is above. Defaults to 2^63 - 1. */
  last?: Integer;
  /** Whether it ascends over all servers. Defaults to false. */
  strict?: boolean;
  description?: string;
}

/** What is to change; what is not said stays. */
export interface SequenceChanges {
  step?: Integer;
  /** Upwards; or `retired`, which ends the sequence. */
  last?: Integer | 'retired';
  description?: string;
}

/** What a server knows of a sequence, in the words of the protocol: numbers of 64 bits are strings. */
export interface SequenceInfo {
  name: string;
  next: string;
  last: string;
  step: string;
  increment: string;
  remainder: string;
  strict: boolean;
  description: string | null;
  held: string;
  issued: string;
  wasted: string;
  rate: string;
  hold_ms: string;
  store: string;
  state: string;
  [later: string]: unknown;
}

/** The numbers of one name. Those of one server ascend; of several they interleave, unless the sequence is strict. */
export class Sequence {
  private constructor();
  readonly name: string;
  /** One number, greater than every one that this server answered an ordered request with before. */
  next(options?: CallOptions): Promise<bigint>;
  /** Exactly `count` numbers, or an error. */
  array(count: number, options?: SequenceBulkOptions): Promise<bigint[]>;
  /** Exactly `count` numbers as runs, or an error. */
  runs(count: number, options?: SequenceBulkOptions): Promise<Run[]>;
  /** Exactly `count` numbers in one run; the refusal COUNT where the server cannot put so many into one. */
  contiguous(count: number, options?: SequenceBulkOptions): Promise<Run>;
  /** What the server knows of it. */
  info(options?: CallOptions): Promise<SequenceInfo>;
  /** Begins it. The same once more changes nothing; other settings are the refusal EXISTS. */
  create(settings?: SequenceSettings, options?: CallOptions): Promise<SequenceInfo>;
  /** Changes what is said. */
  alter(changes: SequenceChanges, options?: CallOptions): Promise<SequenceInfo>;
  /** Numbers ahead of need, in no order. What is held when the process ends is a gap. */
  prefetch(options?: PrefetchOptions): Prefetch;
}

/** The ancestor of all errors of this client. A cancelled call is rejected with its signal's own reason instead. */
export class XuidError extends Error {
  /** Whether the same call may succeed later, or at another server. Repeating it never brings an id twice. */
  readonly retryable: boolean;
  /** Whose error it is, where it is a server's. */
  readonly server: string | undefined;
}

/** The server answered with an error. */
export class RefusedError extends XuidError {
  /** Its name, as OVERLOADED; the number in hexadecimal of one that this version has no name for. */
  readonly status: string;
  readonly code: number;
  /** When it is worth trying again; 0: the server does not say. */
  readonly retryAfterMs: number;
  /** What the server says about it. */
  readonly text: string;
}

/** No reply in time. */
export class TimeoutError extends XuidError {}

/** The connection ended before the reply. */
export class ConnectionLostError extends XuidError {}

/** No server could be connected to, or there is no TLS with it. */
export class UnreachableError extends XuidError {}

/** The server is not what it should be. */
export class ProtocolError extends XuidError {}

/** A server of another cluster, which could issue the same ids. */
export class WrongClusterError extends XuidError {
  /** The cluster of that server; unknown where it refused by itself, and then the message has it. */
  readonly found: string | undefined;
  readonly expected: string | undefined;
}

/** The client was closed. */
export class ClosedError extends XuidError {}

/** An argument or an option that no server would take; nothing was sent. */
export class UsageError extends XuidError {}
