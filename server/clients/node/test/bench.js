// How fast the client is, beside what bounds it: `node test/bench.js [SECONDS]`, with a server at XUID_SERVER or
// 127.0.0.1:7654, which needs land to spare. Each figure takes so many seconds, 2 by default. `server/clients/bench` runs those
// of all clients in turn.

import net from 'node:net';
import process from 'node:process';

import { connect } from 'xuid-client';

const SECONDS = Number(process.argv[2] ?? 2);
const IN_FLIGHT = 100;

/** Turns between two looks at the clock, and between two turns of the event loop, in which refills come. */
const TURNS = 100_000;

/** What is not counted. */
const WARM_UP_MS = 500;

/** Numbers a second of `turn`, which says how many it took. */
async function perSecond(turn) {
  const begin = performance.now() + WARM_UP_MS;
  while (performance.now() < begin) await turn();
  let taken = 0;
  const end = performance.now() + SECONDS * 1_000;
  while (performance.now() < end) taken += await turn();
  return taken / ((performance.now() - (end - SECONDS * 1_000)) / 1_000);
}

let counter = 1n << 50n;

function count() {
  for (let turn = 0; turn < TURNS; turn += 1) counter = BigInt.asUintN(64, counter + 1n);
  return TURNS;
}

async function oneByOne(ids) {
  await ids.next();
  let taken = 1;
  while (taken < TURNS && ids.take() !== undefined) taken += 1;
  return taken;
}

async function inLists(ids) {
  await ids.next();
  let taken = 1;
  for (let more = 1; more > 0 && taken < TURNS; taken += more) more = ids.takeMany(1_000).length;
  return taken;
}

/** A frame of this op, with a body of so many bytes. */
function frame(op, length) {
  const bytes = Buffer.alloc(16 + length);
  bytes.writeUInt32LE(length);
  bytes[4] = op;
  return bytes;
}

/**
 * Frames that come back as they were sent: written and counted by a bare socket, and not looked at. With the eight bytes of its
 * body a frame is as long as the reply that brings an id.
 */
async function echo(address) {
  const colon = address.lastIndexOf(':');
  const socket = net.connect({ host: address.slice(0, colon), port: Number(address.slice(colon + 1)), noDelay: true });
  const hello = frame(1, 26);
  hello[16] = 1;
  hello[18] = 1;
  socket.write(Buffer.concat([Buffer.from('\x89XUID\r\n\x1a', 'latin1'), hello]));
  // A greeting on loopback is one piece.
  await new Promise((resolve, reject) => socket.once('data', resolve).once('error', reject));
  const ping = frame(2, 8);
  const many = Buffer.concat(Array(IN_FLIGHT).fill(ping));
  const begin = performance.now() + WARM_UP_MS;
  const end = begin + SECONDS * 1_000;
  let part = 0;
  let done = 0;
  socket.write(many);
  await new Promise((resolve) => {
    socket.on('data', (bytes) => {
      part += bytes.length;
      const whole = Math.floor(part / ping.length);
      part %= ping.length;
      const now = performance.now();
      if (now >= begin) done += whole;
      if (now >= end) resolve();
      else if (whole > 0) socket.write(many.subarray(0, whole * ping.length));
    });
  });
  socket.destroy();
  return done / ((performance.now() - begin) / 1_000);
}

async function nextInFlight(client) {
  const begin = performance.now() + WARM_UP_MS;
  const end = begin + SECONDS * 1_000;
  let done = 0;
  const caller = async () => {
    for (let now = 0; now < end; now = performance.now()) {
      await client.next();
      if (now >= begin) done += 1;
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, caller));
  return done / ((performance.now() - begin) / 1_000);
}

function show(what, figure) {
  console.log(`${what.padEnd(28)}${Math.round(figure).toString().padStart(16)} /s`);
}

const client = await connect();
const ids = client.prefetch();
show('a loop over a counter', await perSecond(count));
show('prefetched, one by one', await perSecond(() => oneByOne(ids)));
show('prefetched, lists of 1,000', await perSecond(() => inLists(ids)));
show('a raw echo, 100 in flight', await echo(client.served.server));
show('NEXT, 100 in flight', await nextInFlight(client));
await client.close();
