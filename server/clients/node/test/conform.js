// Speaks JSON lines for the suite that drives the clients of all languages: a request is begun when its line is read,
// and answers are written in the order in which they are done. Numbers of 64 bits are decimal strings.

import process from 'node:process';
import { createInterface } from 'node:readline';

import { connect } from 'xuid-client';
import { VectorError, checkVectors } from './support/vectors.js';

const KINDS = {
  RefusedError: 'refused', TimeoutError: 'timeout', ConnectionLostError: 'lost', UnreachableError: 'unreachable',
  ProtocolError: 'protocol', WrongClusterError: 'wrong_cluster', ClosedError: 'closed', UsageError: 'usage',
  AbortError: 'cancelled',
};

let client;
let prefetch;
/** What cancels each running request. */
const running = new Map();

const strings = (ids) => Array.from(ids, String);
const runsOf = (runs) => runs.map(({ first, count, stride }) => ({ first: String(first), count, stride: String(stride) }));
const fields = ({ unixMs, worker, sequence }) => ({ unix_ms: String(unixMs), worker, sequence });
const bulk = ({ order, wait_ms: waitMs }, signal) => ({ order, waitMs, signal });

/** So many ids, so many of them asked for at once, in the order in which they came. */
async function repeat(times, inFlight, one) {
  const ids = [];
  let begun = 0;
  const taker = async () => {
    while (begun < times) {
      begun += 1;
      ids.push(String(await one()));
    }
  };
  await Promise.all(Array.from({ length: Math.min(inFlight ?? 1, times) }, taker));
  return { ids };
}

async function draw(times, signal) {
  prefetch ??= client.prefetch();
  const ids = [];
  for (let left = times; left > 0; left -= 1) ids.push(String(await prefetch.next({ signal })));
  return { ids, held: prefetch.held };
}

/** Takes as fast as it can; a counter for comparison, of BigInt as ids are. */
async function rate(seconds) {
  prefetch ??= client.prefetch();
  let taken = 0;
  let begin = performance.now();
  const end = begin + seconds * 1_000;
  while (performance.now() < end) {
    await prefetch.next();
    taken += 1;
    for (let turn = 0; turn < 100_000 && prefetch.take() !== undefined; turn += 1) taken += 1;
  }
  const idsPerSecond = taken / ((performance.now() - begin) / 1_000);
  let counter = 0n;
  begin = performance.now();
  while (counter < 5_000_000n) counter = BigInt.asUintN(64, counter + 1n);
  const loopPerSecond = Number(counter) / ((performance.now() - begin) / 1_000);
  return { ids_per_second: String(Math.round(idsPerSecond)), loop_per_second: String(Math.round(loopPerSecond)) };
}

async function begin(asked) {
  const { tls } = asked;
  client = await connect(asked.servers, {
    token: asked.token, cluster: asked.cluster, timeoutMs: asked.timeout_ms, connectTimeoutMs: asked.connect_timeout_ms,
    retryForMs: asked.retry_for_ms, maxInFlight: asked.max_in_flight, returnAfterMs: asked.return_after_ms,
    tls: tls && { ca: tls.ca, cert: tls.cert, key: tls.key, serverName: tls.server_name },
  });
  prefetch = undefined;
  const { cluster, server, layout } = client.served;
  return {
    cluster,
    server,
    layout: {
      epoch_ms: String(layout.epochMs), tick_us: layout.tickUs, time_bits: layout.timeBits,
      worker_bits: layout.workerBits, sequence_bits: layout.sequenceBits,
    },
  };
}

const DEEDS = {
  connect: begin,
  next: (asked, signal) => repeat(asked.times ?? 1, asked.in_flight, () => client.next({ order: asked.order, signal })),
  array: async (asked, signal) => ({ ids: strings(await client.array(asked.count, bulk(asked, signal))) }),
  runs: async (asked, signal) => ({ runs: runsOf(await client.runs(asked.count, bulk(asked, signal))) }),
  seq_next: (asked, signal) => {
    const sequence = client.sequence(asked.name);
    return repeat(asked.times ?? 1, asked.in_flight, () => sequence.next({ signal }));
  },
  seq_array: async (asked, signal) => {
    const { order = 'ordered', ...rest } = asked;
    return { ids: strings(await client.sequence(asked.name).array(asked.count, bulk({ order, ...rest }, signal))) };
  },
  seq_runs: async (asked, signal) => {
    const sequence = client.sequence(asked.name);
    const { order = 'ordered', ...rest } = asked;
    const options = bulk({ order, ...rest }, signal);
    if (asked.contiguous) return { runs: runsOf([await sequence.contiguous(asked.count, options)]) };
    return { runs: runsOf(await sequence.runs(asked.count, options)) };
  },
  seq_create: async ({ name, settings }, signal) => ({ info: await client.sequence(name).create(settings, { signal }) }),
  seq_alter: async ({ name, settings }, signal) => ({ info: await client.sequence(name).alter(settings, { signal }) }),
  seq_info: async ({ name }, signal) => ({ info: await client.sequence(name).info({ signal }) }),
  seq_list: async ({ prefix, after, limit }, signal) => ({
    list: await client.sequences({ prefix, after, limit, signal }),
  }),
  decode: async ({ number }, signal) => fields(await client.decode(BigInt(number), { signal })),
  time_of: async ({ number }) => fields(client.timeOf(BigInt(number))),
  info: async (asked, signal) => ({ info: await client.info({ signal }) }),
  ping: async (asked, signal) => {
    await client.ping('there?', { signal });
    return {};
  },
  prefetch: ({ times }, signal) => draw(times, signal),
  prefetch_rate: ({ seconds }) => rate(seconds),
  cancel: async ({ of }) => {
    running.get(of)?.abort();
    return {};
  },
  vectors: async ({ file }) => checkVectors(file),
  close: async () => {
    await client.close();
    return {};
  },
};

function describe(error) {
  if (error instanceof VectorError) return { kind: 'vectors', text: error.message };
  const kind = KINDS[error.name];
  if (kind === undefined) throw error;
  const described = { kind, text: error.text ?? error.message };
  if (kind !== 'refused') return described;
  return { ...described, status: error.status, code: error.code, retry_after_ms: error.retryAfterMs };
}

async function perform(asked) {
  const { id, do: deed } = asked;
  const controller = new AbortController();
  running.set(id, controller);
  try {
    if (!Object.hasOwn(DEEDS, deed)) return { id, error: { kind: 'unsupported', text: `there is no ${deed} here` } };
    return { id, ...(await DEEDS[deed](asked, controller.signal)) };
  } catch (error) {
    return { id, error: describe(error) };
  } finally {
    running.delete(id);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim() === '') continue;
  perform(JSON.parse(line)).then((answer) => process.stdout.write(`${JSON.stringify(answer)}\n`));
}
await client?.close();
// What still waits for a reply is of no use any more.
process.exit(0);
