// Why a call failed. Each text says what was found, and what to do.

/** The ancestor of all errors of this client; a cancelled call is rejected with its signal's own reason instead. */
export class XuidError extends Error {
  constructor(message, { server, retryable = false, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.server = server;
    this.retryable = retryable;
  }
}

/** Bit 15 of a status: the same request may be tried again. */
const RETRYABLE_BIT = 0x8000;

const STATUS_NAMES = new Map([
  [0x0001, 'BAD_REQUEST'],
  [0x0002, 'VERSION'],
  [0x0003, 'UNKNOWN_OP'],
  [0x0004, 'TOO_LARGE'],
  [0x0005, 'COUNT'],
  [0x0006, 'UNAUTHENTICATED'],
  [0x0007, 'WRONG_CLUSTER'],
  [0x0008, 'EXHAUSTED'],
  [0x0009, 'NO_SEQUENCE'],
  [0x000a, 'EXISTS'],
  [0x000b, 'FORBIDDEN'],
  [0x000c, 'NO_ORDER'],
  [0x8010, 'NOT_READY'],
  [0x8011, 'OVERLOADED'],
  [0x8012, 'CLOCK_BEHIND'],
  [0x8013, 'WINDOW_LOST'],
  [0x8014, 'SHUTTING_DOWN'],
  [0x8015, 'INTERNAL'],
  [0x8016, 'STORE_AWAY'],
  [0x8017, 'STORE_BEHIND'],
  [0x801a, 'RATE'],
]);

/** The name of a status; that of one which a later server added is its number. */
export function statusName(code) {
  return STATUS_NAMES.get(code) ?? `0x${code.toString(16).padStart(4, '0')}`;
}

/** The server answered with an error. */
export class RefusedError extends XuidError {
  constructor(server, code, retryAfterMs, text) {
    // The text stands in one line, whatever the server sent.
    const line = text.replace(/\p{Cc}+/gu, ' ');
    super(`${server} refused: ${statusName(code)}: ${line}`, { server, retryable: (code & RETRYABLE_BIT) !== 0 });
    this.status = statusName(code);
    this.code = code;
    this.retryAfterMs = retryAfterMs;
    this.text = line;
  }
}

/** No reply in time. */
export class TimeoutError extends XuidError {
  constructor(message, server) {
    super(message, { server, retryable: true });
  }

  static ofServer(server, limitMs) {
    return new TimeoutError(
      `${server} did not answer within ${Math.round(limitMs)} ms: ask again, or allow more with timeoutMs`,
      server,
    );
  }
}

/** The connection ended with the request in flight: ids that were on their way are wasted, and come to no caller. */
export class ConnectionLostError extends XuidError {
  constructor(server, cause) {
    const why = cause?.message ? ` (${cause.message})` : '';
    super(`the connection to ${server} ended before its reply${why}: ask again`, { server, retryable: true, cause });
  }
}

/** A server could not be connected to, or there is no TLS with it. */
export class UnreachableError extends XuidError {
  constructor(server, cause, { tls = false } = {}) {
    const what = tls
      ? `no TLS with ${server}: check that it speaks TLS, who vouches for it under that name, and what it asks of clients`
      : `${server} cannot be reached: check the address, and that the server runs`;
    super(`${what} (${cause?.message?.trim() || cause?.code || 'no answer'})`, { server, retryable: !tls, cause });
  }
}

/** The server is not what it should be, and the connection was ended. */
export class ProtocolError extends XuidError {
  constructor(server, what) {
    super(`${server} does not speak XUID/1 as it should: ${what}; check the address and the versions`, { server });
  }
}

/** A server of another cluster, which could issue the same ids. */
export class WrongClusterError extends XuidError {
  constructor(server, found, expected, otherwise) {
    super(
      otherwise ?? `${server} is of cluster ${found}, and ${expected} is expected: two clusters can issue the same id, ` +
        'so give only servers of one, and check the address',
      { server },
    );
    this.found = found;
    this.expected = expected;
  }
}

/** `close()` was called. */
export class ClosedError extends XuidError {
  constructor() {
    super('this client was closed: connect another one');
  }
}

/** An argument or an option that no server would take; nothing was sent. */
export class UsageError extends XuidError {}

/** Statuses of what a server lacks alone, and for long: another server is asked next. */
const OWN_TROUBLE = new Set(['NOT_READY', 'WINDOW_LOST', 'SHUTTING_DOWN', 'INTERNAL', 'STORE_AWAY', 'STORE_BEHIND']);

/** A clock that is behind by less than this is waited for; ticks last a millisecond. */
const CLOCK_PATIENCE_MS = 100;

/**
 * Whether another server, if there is one, is the next to be asked. One that is merely busy is stayed with: all its
 * clients moving on would only carry the load to the next one.
 */
export function leadsElsewhere(error) {
  if (error instanceof ConnectionLostError) return true;
  if (!(error instanceof RefusedError)) return false;
  return OWN_TROUBLE.has(error.status) || (error.status === 'CLOCK_BEHIND' && error.retryAfterMs > CLOCK_PATIENCE_MS);
}
