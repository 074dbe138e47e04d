// Ids that are there before they are asked for: each once, none too old, none after the end.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ClosedError, RefusedError, UsageError, WrongClusterError } from 'xuid-client';
import { Op } from '../lib/wire.js';
import { RefillSize } from '../lib/refill_size.js';
import { pair, serveIds, soon, standStill, until } from './support/fake.js';

/** Answers a RUNS with one run. */
function put(peer, asked, first, stride = 1) {
  const { count } = asked.body;
  peer.answer(asked, { count, runs: [{ first, count, stride }] });
}

test('whatever way ids are taken, each comes out once', async (t) => {
  const { client, peer } = await pair(t);
  const counter = { next: 1n };
  serveIds(peer, counter);
  const source = client.prefetch();
  const seen = new Set();
  const add = (id) => {
    assert.equal(typeof id, 'bigint');
    assert.ok(!seen.has(id), `${id} twice`);
    seen.add(id);
  };
  for (let round = 0; seen.size < 50_000; round += 1) {
    add(await soon(source.next()));
    for (let id = source.take(); id !== undefined && round % 3 === 0; id = source.take()) add(id);
    for (const id of source.takeMany(round % 977)) add(id);
  }
  let left = 100;
  for await (const id of source) {
    add(id);
    left -= 1;
    if (left === 0) break;
  }
  const many = await soon(Promise.all(Array.from({ length: 10_000 }, () => source.next())));
  many.forEach(add);
  assert.ok(BigInt(seen.size) <= counter.next - 1n);
});

test('the stride of a run is kept, over the border of the low half of an id too', async (t) => {
  const { client, peer } = await pair(t);
  const source = client.prefetch({ least: 16, most: 16 });
  const first = (1n << 32n) - 5n;
  put(peer, await peer.ask(), first, 1_000_003);
  assert.equal(await soon(source.next()), first);
  assert.equal(source.take(), first + 1_000_003n);
  const rest = [];
  while (source.held > 0) rest.push(...source.takeMany(4));
  assert.deepEqual(rest, Array.from({ length: 14 }, (_, at) => first + BigInt(at + 2) * 1_000_003n));
});

/** What the clock of the wall says until the test is over, where it would say so much. */
function setWall(t, says) {
  const { now } = Date;
  t.after(() => {
    Date.now = now;
  });
  Date.now = () => says(now());
}

test('no id is handed out at its age, though the loop stood still', async (t) => {
  const { client, peer } = await pair(t);
  const counter = { next: 1n };
  serveIds(peer, counter);
  const source = client.prefetch({ least: 8, most: 8, maxAgeMs: 60 });
  await soon(source.next());
  await until(() => source.held > 0);
  const before = counter.next;
  standStill(60);
  assert.equal(source.take(), undefined);
  assert.equal(source.takeMany(10).length, 0);
  assert.ok((await soon(source.next())) >= before);
});

test('a reply that lay in the socket past the age of its ids yields none of them', async (t) => {
  const { client, peer } = await pair(t);
  // As within one millisecond of the last look at what is held.
  const wall = Date.now();
  setWall(t, () => wall);
  const source = client.prefetch({ least: 4, most: 4, maxAgeMs: 60 });
  const call = source.next();
  const asked = await peer.ask();
  standStill(60);
  put(peer, asked, 1);
  put(peer, await peer.ask(), 100);
  assert.equal(await soon(call), 100n);
});

test('the clock of the wall counts as well, which goes on while the machine is suspended', async (t) => {
  const { client, peer } = await pair(t);
  const source = client.prefetch({ least: 4, most: 4 });
  put(peer, await peer.ask(), 1);
  assert.equal(await soon(source.next()), 1n);
  setWall(t, (ms) => ms + 1_000);
  assert.equal(source.take(), undefined);
});

test('nothing gets younger by a clock of the wall that is set back', async (t) => {
  const { client, peer } = await pair(t);
  const source = client.prefetch({ least: 4, most: 4, maxAgeMs: 500 });
  put(peer, await peer.ask(), 1);
  assert.equal(await soon(source.next()), 1n);
  setWall(t, (ms) => ms - 60_000);
  standStill(500);
  assert.equal(source.take(), undefined);
});

test('an idle source asks for nothing', async (t) => {
  const { client, peer } = await pair(t);
  const source = client.prefetch({ least: 4, most: 4, maxAgeMs: 20 });
  put(peer, await peer.ask(), 1);
  await until(() => source.held === 4);
  await until(() => source.held === 0);
  const call = client.next();
  const asked = await peer.ask();
  assert.equal(asked.op, Op.NEXT, 'the ids that grew old were not asked for again');
  peer.answer(asked, { id: 5 });
  assert.equal(await soon(call), 5n);
});

test('a close makes void what is held, at once', async (t) => {
  const { client, peer } = await pair(t);
  // As within one millisecond of the last look at what is held.
  const wall = Date.now();
  setWall(t, () => wall);
  const source = client.prefetch();
  put(peer, await peer.ask(), 1);
  assert.equal(await soon(source.next()), 1n);
  const closing = client.close();
  assert.equal(source.take(), undefined);
  assert.equal(source.takeMany(5).length, 0);
  await assert.rejects(soon(source.next()), ClosedError);
  let asked = await peer.ask();
  while (asked.op !== Op.BYE) asked = await peer.ask();
  peer.answer(asked);
  await soon(closing);
});

test('a server of another cluster makes void what is held', async (t) => {
  const { client, fake, peer } = await pair(t);
  const source = client.prefetch({ least: 64, most: 64, maxAgeMs: 1_900 });
  put(peer, await peer.ask(), 1);
  assert.equal(await soon(source.next()), 1n);
  fake.hello.cluster = 'cd'.repeat(16);
  peer.socket.destroy();
  fake.greet();
  let error;
  let before;
  await until(() => {
    if (error === undefined) before = source.held;
    client.next().catch((caught) => {
      if (caught instanceof WrongClusterError) error = caught;
    });
    return error !== undefined;
  });
  assert.ok(before > 0, 'it was held until then');
  assert.equal(source.take(), undefined);
  assert.equal(source.held, 0);
});

test('what is on its way when a server of another cluster is met is void', async (t) => {
  const { client, fake, peer } = await pair(t);
  const source = client.prefetch({ least: 64, most: 64 });
  const refill = await peer.ask();
  const first = client.next();
  const asked = await peer.ask();
  peer.goaway();
  peer.answer(asked, { id: 1 });
  await soon(first);
  fake.hello.cluster = 'cd'.repeat(16);
  const next = client.next();
  await fake.greet();
  await assert.rejects(soon(next), WrongClusterError);
  // The source has noticed by now, and what comes later must not count as asked for after it.
  assert.equal(source.take(), undefined);
  put(peer, refill, 100);
  // The last reply ends the connection, so it was read.
  await peer.expectEnd();
  assert.equal(source.held, 0);
  assert.equal(source.take(), undefined);
});

test('of two refills in flight the one that was asked for first is taken first', async (t) => {
  const { client, peer } = await pair(t, {}, { max_count: 4 });
  const source = client.prefetch({ least: 8, most: 8 });
  const [first, second] = [await peer.ask(), await peer.ask()];
  put(peer, second, 11);
  put(peer, first, 1);
  await until(() => source.held === 8);
  assert.deepEqual([...source.takeMany(8)], [1n, 2n, 3n, 4n, 11n, 12n, 13n, 14n]);
});

test('who waits behind a refusal that stays has the server asked once more', async (t) => {
  const { client, peer } = await pair(t);
  const source = client.prefetch({ waitMs: 500 });
  const refused = source.next();
  peer.refuse(await peer.ask(), 0x000b);
  await assert.rejects(soon(refused), RefusedError);
  const call = source.next();
  const asked = peer.ask();
  await Promise.race([asked, assert.doesNotReject(soon(call))]);
  put(peer, await asked, 7);
  assert.equal(await soon(call), 7n);
});

test('who waits is told of a refusal that stays, and of the time being over', async (t) => {
  const { client, peer } = await pair(t);
  const source = client.prefetch({ waitMs: 10_000 });
  const refused = source.next();
  peer.refuse(await peer.ask(), 0x000b);
  await assert.rejects(soon(refused), RefusedError);
  assert.equal(source.failure.status, 'FORBIDDEN');
  const impatient = client.prefetch({ waitMs: 20 });
  await peer.ask();
  await assert.rejects(soon(impatient.next()), { name: 'TimeoutError' });
  const controller = new AbortController();
  const aborted = client.prefetch().next({ signal: controller.signal });
  controller.abort();
  await assert.rejects(soon(aborted), { name: 'AbortError' });
});

test('who waits is given what lies in the socket when the time is over', async (t) => {
  const { client, peer } = await pair(t);
  const call = client.prefetch({ waitMs: 200 }).next();
  put(peer, await peer.ask(), 1);
  standStill(300);
  assert.equal(await soon(call), 1n);
});

test('a close ends the wait for ids that are asked for later', async (t) => {
  const { client, peer } = await pair(t);
  const source = client.prefetch({ waitMs: 60_000 });
  const call = source.next();
  peer.refuse(await peer.ask(), 0x8011, 60_000);
  await until(() => source.failure !== undefined);
  const closed = client.close();
  await assert.rejects(soon(call), ClosedError);
  peer.answer(await peer.ask());
  await soon(closed);
});

test('a refusal that passes is asked again, and who waits gets its id', async (t) => {
  const { client, peer } = await pair(t);
  const source = client.prefetch({ waitMs: 10_000 });
  const call = source.next();
  peer.refuse(await peer.ask(), 0x8011, 1);
  put(peer, await peer.ask(), 7);
  assert.equal(await soon(call), 7n);
  assert.equal(source.failure, undefined);
});

test('a server that has fewer takes the place of another, and who waits gets its id', async (t) => {
  const { client, fake, peer } = await pair(t);
  const source = client.prefetch({ least: 2_000, most: 4_000 });
  const waiting = source.next();
  assert.ok((await peer.ask()).body.count > 100);
  fake.hello.max_count = 100;
  // What it leaves without an answer is asked for elsewhere, as it is.
  peer.goaway();
  peer.socket.end();
  const second = await fake.greet();
  const asked = await second.ask();
  assert.ok(asked.body.count <= 100);
  put(second, asked, 7n);
  assert.equal(await soon(waiting), 7n);
});

test('a loop that gives the event loop no turn has its refill under way when it ends', async (t) => {
  const { client, peer } = await pair(t);
  const source = client.prefetch({ least: 8, most: 8 });
  put(peer, await peer.ask(), 1);
  assert.equal(await soon(source.next()), 1n);
  let taken = 1;
  while (source.take() !== undefined) taken += 1;
  assert.equal(taken, 8);
  const asked = await peer.ask();
  assert.equal(asked.op, Op.RUNS);
});

test('a sequence is prefetched only by its own name', async (t) => {
  const { client, peer } = await pair(t);
  const source = client.sequence('orders').prefetch({ least: 4, most: 4 });
  const asked = await peer.ask();
  assert.deepEqual([asked.op, asked.body.name, asked.body.order], [Op.SEQ_RUNS, 'orders', 0]);
  put(peer, asked, 41);
  assert.equal(await soon(source.next()), 41n);
});

test('options out of range are refused', async (t) => {
  const { client } = await pair(t);
  for (const options of [{ least: 0 }, { most: 0 }, { least: 5, most: 4 }, { maxAgeMs: 2_001 }, { age: 5 }]) {
    assert.throws(() => client.prefetch(options), UsageError, JSON.stringify(options));
  }
});

test('the level follows the use up within a dozen refills, and down again', () => {
  const options = { least: 16, most: 1 << 20, maxAgeMs: 1_000 };
  const size = new RefillSize(options, 0);
  let [time, taken, level] = [0, 0, 16];
  const looks = (rate, times) => {
    for (let look = 0; look < times; look += 1) {
      const used = Math.ceil(level / 2);
      taken += used;
      time += (used / rate) * 1_000;
      const next = size.look(time, taken);
      assert.ok(next <= level * 4 && next >= options.least && next <= options.most);
      level = next;
    }
    return level;
  };
  const hot = looks(50e6, 12);
  assert.ok(hot > 450_000 && hot < 550_000, `${hot}`);
  assert.equal(looks(1_000, 3), 16);
});

test('a refill of as many runs as ids, as of a server whose ids are opaque, is held like any other', async (t) => {
  const { client, peer } = await pair(t, {}, { face: 2 });
  const source = client.prefetch({ least: 131_072 });
  const asked = await peer.ask();
  const { count } = asked.body;
  assert.equal(count, 131_072);
  peer.answer(asked, { count, runs: Array.from({ length: count }, (_, at) => ({ first: BigInt(at), count: 1, stride: 1 })) });
  assert.equal(await soon(source.next()), 0n);
  assert.equal(source.held, 131_071);
  assert.equal(source.failure, undefined);
});

test('no id is handed out at its age to one of many who waited, though each of the others computes', async (t) => {
  const { client, peer } = await pair(t);
  const source = client.prefetch({ least: 64, most: 64, maxAgeMs: 200 });
  const asked = new Map();
  (async () => {
    for (let first = 0; ; first += 64) {
      const request = await peer.frame();
      if (request === undefined) return;
      const time = performance.now();
      for (let at = 0; at < request.body.count; at += 1) asked.set(BigInt(first + at), time);
      put(peer, request, first);
    }
  })();
  const ages = [];
  const take = async () => {
    const id = await source.next();
    ages.push(performance.now() - asked.get(id));
    standStill(10);
  };
  await soon(Promise.all(Array.from({ length: 64 }, take)));
  assert.ok(Math.max(...ages) < 230, `${Math.max(...ages)} ms`);
});

test('those who wait are served in their order, whoever asks meanwhile', async (t) => {
  const { client, peer } = await pair(t);
  serveIds(peer, { next: 1n });
  const source = client.prefetch({ least: 16, most: 16 });
  const order = [];
  const take = async (name, more) => {
    await source.next();
    order.push(name);
    if (more > 0) await take(name, more - 1);
  };
  await soon(Promise.all([take('a', 100), take('b', 0), take('c', 0)]));
  assert.ok(order.indexOf('b') < 3 && order.indexOf('c') < 5, order.slice(0, 8).join());
});
