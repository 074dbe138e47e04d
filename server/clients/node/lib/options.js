// What a caller may choose about a client, checked once.

import { readFileSync } from 'node:fs';
import { Buffer } from 'node:buffer';
import process from 'node:process';

import { UsageError } from './errors.js';
import { checkInteger } from './wire.js';

const DEFAULTS = Object.freeze({
  token: '',
  cluster: undefined,
  tls: undefined,
  clientName: 'xuid-client-node/0.1.0',
  maxInFlight: 1_024,
  connectTimeoutMs: 5_000,
  timeoutMs: 10_000,
  retryForMs: 0,
  reconnectRounds: 6,
  firstPauseMs: 20,
  longestPauseMs: 2_000,
  returnAfterMs: 180_000,
});

/** The longest that a timer of Node can wait. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Whole numbers, with the least and the most of each. */
const BOUNDS = {
  maxInFlight: [1, 2 ** 32 - 1],
  connectTimeoutMs: [1, LONGEST_TIMER_MS],
  // The longest wait of a request comes on top.
  timeoutMs: [1, LONGEST_TIMER_MS - 60_000],
  retryForMs: [0, LONGEST_TIMER_MS],
  reconnectRounds: [1, 1_000_000],
  firstPauseMs: [0, LONGEST_TIMER_MS],
  longestPauseMs: [0, LONGEST_TIMER_MS],
  returnAfterMs: [0, Number.MAX_SAFE_INTEGER],
};

/** Servers and options of `connect`, as the rest of the client uses them. */
export function readOptions(servers, given = {}) {
  // A token goes where the same environment says, and to no address that the program names.
  const fromEnvironment = servers === undefined ? { token: process.env.XUID_TOKEN ?? '' } : {};
  const options = { ...DEFAULTS, ...fromEnvironment, ...dropUndefined(given) };
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(DEFAULTS, name)) {
      throw new UsageError(`there is no option ${name}; there are ${Object.keys(DEFAULTS).join(', ')}`);
    }
  }
  for (const [name, [least, most]] of Object.entries(BOUNDS)) checkInteger(name, options[name], least, most);
  for (const name of ['token', 'clientName']) {
    const bytes = Buffer.byteLength(options[name]);
    if (bytes > 255) throw new UsageError(`${name} has ${bytes} bytes, and at most 255 are allowed`);
  }
  if (options.cluster !== undefined && !/^[0-9a-f]{32}$/i.test(options.cluster)) {
    throw new UsageError(`the cluster is ${String(options.cluster)}, and 32 hexadecimal digits are allowed`);
  }
  if (ArrayBuffer.isView(options.token)) options.token = asBuffer(options.token);
  options.cluster = options.cluster?.toLowerCase();
  options.tls = readTls(options.tls);
  return { servers: readServers(servers ?? (process.env.XUID_SERVER || '127.0.0.1:7654')), options };
}

/** The same bytes: of a Uint8Array, a DataView, or a Buffer. */
function asBuffer(view) {
  return Buffer.from(view.buffer, view.byteOffset, view.byteLength);
}

function dropUndefined(given) {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

/** Each server as it was given, with the host and the port in it. */
function readServers(servers) {
  const list = (Array.isArray(servers) ? servers : String(servers).split(',')).map((server) => String(server).trim());
  // Twice the same would count as two that can take each other's place.
  const read = [...new Set(list)].filter((server) => server !== '').map((server) => {
    const match = /^(?:\[([^\]]+)\]|([^:\s]+)):(\d{1,5})$/.exec(server);
    const port = Number(match?.[3]);
    if (match === null || port < 1 || port > 65_535) {
      throw new UsageError(`${JSON.stringify(server)} is no address of a server: write host:port, as in 127.0.0.1:7654`);
    }
    return { name: server, host: match[1] ?? match[2], port };
  });
  if (read.length === 0) throw new UsageError('no server is given: write host:port, and several with commas between');
  return read;
}

/** What `tls.connect` of Node takes; `true` trusts who the system trusts. */
function readTls(tls) {
  if (tls === undefined || tls === false) return undefined;
  const { ca, cert, key, serverName, ...unknown } = tls === true ? {} : dropUndefined(tls);
  const [stray] = Object.keys(unknown);
  if (stray !== undefined) throw new UsageError(`there is no TLS option ${stray}; there are ca, cert, key, serverName`);
  if ((cert === undefined) !== (key === undefined)) {
    throw new UsageError('of cert and key only one is given: a client shows both or none');
  }
  return dropUndefined({ ca: pem('ca', ca), cert: pem('cert', cert), key: pem('key', key), servername: serverName });
}

/** PEM itself, or the file that holds it. */
function pem(what, value) {
  if (ArrayBuffer.isView(value)) return asBuffer(value);
  if (value === undefined || String(value).includes('-----BEGIN')) return value;
  try {
    return readFileSync(value);
  } catch (cause) {
    throw new UsageError(`${what} cannot be read: check that the file is there, and who may read it (${cause.message})`, {
      cause,
    });
  }
}
