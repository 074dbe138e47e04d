// Prefetched ids a second, beside a loop over a counter of BigInt: `node test/bench.js [SECONDS]`, with a server at
// XUID_SERVER or 127.0.0.1:7654. Once its reserve is used up, a server issues 4.1 M/s for each of its workers (4,096 ids a
// millisecond): whatever takes faster than that measures the server.

import process from 'node:process';

import { connect } from 'xuid-client';

const SECONDS = Number(process.argv[2] ?? 5);

/** Turns between two looks at the clock, and between two turns of the event loop, in which refills come. */
const TURNS = 100_000;

/** Numbers a second of `turn`, which says how many it took. */
async function perSecond(turn) {
  let taken = 0;
  const begin = performance.now();
  const end = begin + SECONDS * 1_000;
  while (performance.now() < end) taken += await turn();
  return taken / ((performance.now() - begin) / 1_000);
}

async function main() {
  const client = await connect();
  const ids = client.prefetch();
  let counter = 1n << 50n;
  const ways = {
    counter: () => {
      for (let turn = 0; turn < TURNS; turn += 1) counter = BigInt.asUintN(64, counter + 1n);
      return TURNS;
    },
    take: async () => {
      await ids.next();
      let taken = 1;
      while (taken < TURNS && ids.take() !== undefined) taken += 1;
      return taken;
    },
    'takeMany(1000)': async () => {
      await ids.next();
      let taken = 1;
      for (let more = 1; more > 0 && taken < TURNS; taken += more) more = ids.takeMany(1_000).length;
      return taken;
    },
    'await next': async () => {
      for (let turn = 0; turn < 1_000; turn += 1) await ids.next();
      return 1_000;
    },
  };
  for (const [name, turn] of Object.entries(ways)) {
    console.log(`${name}: ${((await perSecond(turn)) / 1e6).toFixed(2)} M/s`);
  }
  await client.close();
}

await main();
