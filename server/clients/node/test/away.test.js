// Servers that were not there: which are left for, when, and what callers wait for them.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RefusedError, connect } from 'xuid-client';
import { Away } from '../lib/away.js';
import { Op } from '../lib/wire.js';
import { begin, clockOf, fleet, soon } from './support/fake.js';

const NOT_READY = 0x8010;

test('a server is away until it is there, or nobody looked for half a minute', () => {
  const away = new Away();
  assert.ok(!away.isAway(1, 0) && !away.costs(1, 0));
  away.note(1, 0, 1_000);
  assert.ok(away.isAway(1, 30_999) && !away.isAway(0, 30_999) && !away.isAway(1, 31_000));
  away.clear(1);
  assert.ok(!away.isAway(1, 1_000) && !away.costs(1, 1_000));
});

test('a server that is silent is dialed less often than one that refuses at once', () => {
  const away = new Away();
  away.note(0, 0, 0);
  away.note(1, 0, 5_000);
  assert.ok(!away.costs(0, 1));
  assert.ok(away.costs(1, 34_999) && !away.costs(1, 35_000));
});

/** A call is answered by that server over a new connection, which is returned. */
async function answersAnew(client, fake) {
  const call = client.next();
  const peer = await fake.greet();
  peer.answer(await peer.ask(), { id: 1 });
  assert.equal(await soon(call), 1n);
  return peer;
}

/** A call is answered over this connection. */
async function answersStill(client, peer) {
  const call = client.next();
  let asked = await peer.ask();
  while (asked.op !== Op.NEXT) asked = await peer.ask();
  peer.answer(asked, { id: 2 });
  assert.equal(await soon(call), 2n);
}

/** A call is refused for so long. */
async function refuses(client, peer, retryAfterMs) {
  const call = client.next();
  peer.refuse(await peer.ask(), NOT_READY, retryAfterMs);
  await assert.rejects(soon(call), RefusedError);
}

/** Refills are given up, and the server is stayed with. */
async function staysInSilence(client, peer) {
  const ids = client.prefetch({ maxAgeMs: 100, waitMs: 60_000 });
  ids.next().catch(() => {});
  for (let refills = 0; refills < 3; refills += 1) assert.equal((await peer.ask()).op, Op.RUNS);
  await answersStill(client, peer);
  // Who waits for an id would keep the process running. The end of the connections comes with that of the test.
  client.close().catch(() => {});
}

/** Answers PINGs and nothing else. */
async function answersPings(peer) {
  for (let asked = await peer.frame(); asked !== undefined; asked = await peer.frame()) {
    if (asked.op === Op.PING) peer.answer(asked, asked.body);
  }
}

/** This server ends the next connection at once. */
async function endsNext(fake) {
  const { socket } = await fake.accept();
  socket.destroy();
}

test('a server that did not answer at the connect is gone to for no silence and no refusal', async (t) => {
  const [there, silent] = await fleet(t, 2);
  const setOn = clockOf(t);
  const connecting = connect([there.address, silent.address], { timeoutMs: 60_000, firstPauseMs: 1, longestPauseMs: 20 });
  // The other one takes the connection, and says nothing.
  const peer = await there.greet();
  const client = await soon(connecting);
  // Longer than a refusal keeps a client from a server that was dialed.
  setOn(1_000);
  await refuses(client, peer, 0);
  await answersStill(client, peer);
  await staysInSilence(client, peer);
  assert.equal(silent.peers.length, 1);
});

test('no refusal leads again soon to a server that was silent for long', async (t) => {
  const options = { retryForMs: 0, connectTimeoutMs: 1_500 };
  const { client, first, peer, others: [other] } = await begin(await fleet(t, 2), options);
  const setOn = clockOf(t);
  setOn(2_000);
  await refuses(client, peer, 1_000);
  // It is left once. The other one takes the connection, and says nothing.
  const back = answersAnew(client, first);
  await other.accept();
  const second = await back;
  await refuses(client, second, 1_000);
  await answersStill(client, second);
  assert.equal(other.peers.length, 2);
  // More than six times as long as it was waited for.
  setOn(22_000);
  await refuses(client, second, 1_000);
  await answersAnew(client, other);
});

test('a server that was silent for long is dialed behind the others', async (t) => {
  const fakes = await fleet(t, 3);
  const { client, first, peer } = await begin(fakes, { connectTimeoutMs: 500 });
  const [second, third] = [1, 2].map((step) => fakes[(fakes.indexOf(first) + step) % 3]);
  peer.socket.destroy();
  const moved = answersAnew(client, third);
  await second.accept();
  const there = await moved;
  // From the third to the first, and from there to the third again: the turn is that of the second.
  there.socket.destroy();
  const home = await answersAnew(client, first);
  home.socket.destroy();
  await answersAnew(client, third);
  assert.equal(second.peers.length, 2);
});

test('a server that is silent for a moment is not left for one that was not there', async (t) => {
  const { client, first, peer, others: [other] } = await begin(await fleet(t, 2), { timeoutMs: 60_000 });
  // Nobody is there when it loses its server, and looks for another one.
  await other.close();
  peer.socket.destroy();
  const second = await answersAnew(client, first);
  await staysInSilence(client, second);
});

test('a server that is silent for a moment is not left for one of another cluster', async (t) => {
  const { client, first, peer, others: [other] } = await begin(await fleet(t, 2), { timeoutMs: 60_000 });
  other.hello.cluster = 'cd'.repeat(16);
  const stranger = other.greet();
  peer.socket.destroy();
  const second = await answersAnew(client, first);
  await stranger;
  await staysInSilence(client, second);
  assert.equal(other.peers.length, 2);
});

test('a server that is silent for a moment is not left for a home that was tried in vain', async (t) => {
  const options = { timeoutMs: 60_000, returnAfterMs: 0 };
  const { client, first, peer, others: [other] } = await begin(await fleet(t, 2), options);
  first.server.on('connection', (socket) => socket.destroy());
  const before = first.peers.length;
  peer.socket.destroy();
  const second = await answersAnew(client, other);
  // The second try begins when the first one has failed.
  for (let calls = 0; calls < 10_000 && first.peers.length < before + 2; calls += 1) await answersStill(client, second);
  assert.ok(first.peers.length >= before + 2);
  await staysInSilence(client, second);
});

test('a server that answers nothing but PINGs is left for one that was away long ago', async (t) => {
  const { client, first, peer, others: [other] } = await begin(await fleet(t, 2), { timeoutMs: 500 });
  const setOn = clockOf(t);
  const away = endsNext(other);
  peer.socket.destroy();
  const second = await answersAnew(client, first);
  await away;
  setOn(31_000);
  void answersPings(second);
  await answersAnew(client, other);
});

test('a server that answers nothing but PINGs is left for one that was away, and is there again', async (t) => {
  const { client, first, peer, others: [other] } = await begin(await fleet(t, 2), { timeoutMs: 500 });
  const setOn = clockOf(t);
  const away = endsNext(other);
  peer.socket.destroy();
  const second = await answersAnew(client, first);
  await away;
  // Its turn comes again, and soon enough that it would still count as away.
  setOn(5_000);
  second.socket.destroy();
  const there = await answersAnew(client, other);
  there.socket.destroy();
  const third = await answersAnew(client, first);
  void answersPings(third);
  await answersAnew(client, other);
});

test('a search beside a return trip does not begin at the server that was lost', async (t) => {
  const fakes = await fleet(t, 3);
  const options = { returnAfterMs: 0, connectTimeoutMs: 60_000 };
  const { client, first, peer } = await begin(fakes, options);
  const [lost, third] = [1, 2].map((step) => fakes[(fakes.indexOf(first) + step) % 3]);
  peer.socket.destroy();
  const second = await answersAnew(client, lost);
  // The home takes the connection, and says nothing.
  await answersStill(client, second);
  await first.accept();
  const before = lost.peers.length;
  second.socket.destroy();
  await answersAnew(client, third);
  assert.equal(lost.peers.length, before);
});
