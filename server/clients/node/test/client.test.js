// Requests, replies and refusals, against a server in the hands of the test.

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';

import {
  ClosedError, ConnectionLostError, ProtocolError, RefusedError, Run, TimeoutError, UnreachableError, UsageError,
  WrongClusterError, connect,
} from 'xuid-client';
import { readOptions } from '../lib/options.js';
import { Op } from '../lib/wire.js';
import { reply } from './support/codec.js';
import { Fake, pair, soon } from './support/fake.js';

test('HELLO carries token, cluster and name, and the reply is told', async (t) => {
  const cluster = '07'.repeat(16);
  const { client, fake, peer } = await pair(t, { token: 'secret', cluster, clientName: 'billing' });
  assert.deepEqual(
    [peer.said.token, peer.said.cluster, peer.said.client, peer.said.min_version, peer.said.max_version],
    ['secret', cluster, 'billing', 1, 1],
  );
  assert.equal(client.served.server, fake.address);
  assert.equal(client.served.cluster, cluster);
  assert.equal(client.served.layout.epochMs, 1_524_153_600_000n);
  assert.equal(client.served.limits.maxCount, 131_072);
});

test('a token of bytes is sent as these bytes, and PEM of bytes is no file', async (t) => {
  const token = new Uint8Array(Buffer.from('.secret.')).subarray(1, 7);
  const { peer } = await pair(t, { token });
  assert.equal(peer.said.token, 'secret');
  const { options } = readOptions('a:1', { tls: { ca: new Uint8Array(Buffer.from('of a test')) } });
  assert.equal(String(options.tls.ca), 'of a test');
});

test('each request is written as its arguments say, and each reply comes back as a value', async (t) => {
  const { client, peer } = await pair(t);
  const exchange = async (call, op, body, value) => {
    const asked = await peer.ask();
    assert.deepEqual([asked.op, asked.body], [op, body]);
    peer.answer(asked, value);
    return soon(call);
  };
  const big = (1n << 63n) - 1n;
  assert.equal(await exchange(client.next(), Op.NEXT, { order: 0 }, { id: big }), big);
  assert.equal(await exchange(client.next({ order: 'fresh' }), Op.NEXT, { order: 1 }, { id: 5 }), 5n);
  const bulk = { count: 2, wait_ms: 50, order: 0 };
  assert.deepEqual(await exchange(client.array(2), Op.ARRAY, bulk, { ids: [big, 7n] }), [big, 7n]);
  const ordered = client.runs(3, { order: 'ordered', waitMs: 90_000 });
  const stepped = { count: 3, runs: [{ first: 10n, count: 3, stride: 4 }] };
  const [run] = await exchange(ordered, Op.RUNS, { count: 3, wait_ms: 60_000, order: 2 }, stepped);
  assert.ok(run instanceof Run);
  assert.deepEqual([run.last, ...run], [18n, 10n, 14n, 18n]);
  const decoded = await exchange(client.decode(9n), Op.DECODE, { id: '9' }, { unix_ms: 12n, worker: 3, sequence: 4 });
  assert.deepEqual(decoded, { unixMs: 12n, date: new Date(12), worker: 3, sequence: 4 });
  assert.deepEqual(await exchange(client.info(), Op.INFO, {}, { json: '{"a":"1"}' }), { a: '1' });
  assert.deepEqual(await exchange(client.stats(), Op.STATS, {}, { json: '{}' }), {});
  await exchange(client.ping('there?'), Op.PING, { bytes: 'there?' }, { bytes: 'there?' });
});

test('sequences are asked for by name, and settings keep all their digits', async (t) => {
  const { client, peer } = await pair(t);
  const orders = client.sequence('orders');
  const exchange = async (call, op, body, value) => {
    const asked = await peer.ask();
    assert.deepEqual([asked.op, asked.body], [op, body]);
    peer.answer(asked, value);
    return soon(call);
  };
  const name = 'orders';
  const bulk = { name, count: 2, wait_ms: 50, order: 2 };
  assert.equal(await exchange(orders.next(), Op.SEQ_NEXT, { name }, { id: 1 }), 1n);
  assert.deepEqual(await exchange(orders.array(2), Op.SEQ_ARRAY, bulk, { ids: [2, 3] }), [2n, 3n]);
  const one = { count: 2, runs: [{ first: 4, count: 2, stride: 3 }] };
  const any = orders.runs(2, { order: 'any', waitMs: 7 });
  assert.deepEqual(
    [...(await exchange(any, Op.SEQ_RUNS, { ...bulk, wait_ms: 7, order: 0, contiguous: false }, one))[0]],
    [4n, 7n],
  );
  const run = await exchange(orders.contiguous(2), Op.SEQ_RUNS, { ...bulk, contiguous: true }, one);
  assert.deepEqual([run.first, run.count, run.stride], [4n, 2, 3n]);
  const settings = { start: 9_007_199_254_740_993n, step: 10, strict: true };
  const json = '{"start":"9007199254740993","step":10,"strict":true}';
  const info = { json: '{"name":"orders","next":"9007199254740993"}' };
  const created = await exchange(orders.create(settings), Op.SEQ_CREATE, { name, json }, info);
  assert.equal(created.next, '9007199254740993');
  await exchange(orders.alter({ last: 'retired' }), Op.SEQ_ALTER, { name, json: '{"last":"retired"}' }, info);
  await exchange(orders.info(), Op.SEQ_INFO, { name }, info);
  const list = client.sequences({ prefix: 'o', limit: 5 });
  assert.deepEqual(await exchange(list, Op.SEQ_LIST, { limit: 5, prefix: 'o', after: '' }, { json: '[]' }), []);
});

test('what no server would take is refused before anything is sent', async (t) => {
  const { client, peer } = await pair(t);
  const refused = [
    client.array(0), client.array(1.5), client.runs(131_073), client.next({ order: 'best' }), client.decode(5),
    client.decode(1n << 63n), client.decode(-1n), client.ping(Buffer.alloc(1_025)), client.runs(1, { waitMs: -1 }),
    client.sequences({ limit: 1_001 }), client.sequence('a').array(1, { order: 'fresh' }),
    client.sequence('a').create({ start: 2 ** 53 }), client.sequence('a').create({ description: 'x'.repeat(5_000) }),
  ];
  for (const call of refused) await assert.rejects(soon(call), UsageError);
  for (const name of ['', '@any', ' a', 'a\u3000', 'a\nb', 'x'.repeat(129), 7, '\ud800']) {
    assert.throws(() => client.sequence(name), UsageError, String(name));
  }
  const call = client.next();
  peer.answer(await peer.ask(), { id: 1 });
  assert.equal(await soon(call), 1n, 'and the connection is as it was');
});

test('options that make no sense are refused with what is allowed', async () => {
  const wrong = [
    ['localhost'], ['localhost:0'], ['localhost:65536'], [''], [[]], ['a:1', { cluster: 'x' }], ['a:1', { timeoutMs: 0 }],
    ['a:1', { token: 'x'.repeat(256) }], ['a:1', { maxInFlight: 0 }], ['a:1', { timeout: 5 }], ['a:1', { tls: { cert: 'a' } }],
    ['a:1', { tls: { ca: '/nowhere/ca.pem' } }],
  ];
  for (const args of wrong) await assert.rejects(connect(...args), UsageError, JSON.stringify(args));
});

test('without servers the environment names them, and one that is empty does not', async () => {
  const before = process.env.XUID_SERVER;
  try {
    for (const [said, port] of [['', 7654], ['127.0.0.1:1,127.0.0.1:1', 1]]) {
      process.env.XUID_SERVER = said;
      const { servers } = readOptions();
      assert.deepEqual(servers, [{ name: `127.0.0.1:${port}`, host: '127.0.0.1', port }]);
    }
  } finally {
    if (before === undefined) delete process.env.XUID_SERVER;
    else process.env.XUID_SERVER = before;
  }
});

test('replies find their request in any order, and in pieces of any size', async (t) => {
  const { client, peer } = await pair(t);
  const calls = [client.next(), client.array(2), client.next()];
  const asked = [await peer.ask(), await peer.ask(), await peer.ask()];
  const bytes = Buffer.concat([
    reply(Op.NEXT, asked[2].requestId, { id: 30 }),
    reply(Op.ARRAY, asked[1].requestId, { ids: [20, 21] }),
    reply(Op.NEXT, asked[0].requestId, { id: 10 }),
  ]);
  for (const byte of bytes) peer.socket.write(Buffer.of(byte));
  assert.deepEqual(await soon(Promise.all(calls)), [10n, [20n, 21n], 30n]);
});

test('ten thousand promises at once are all answered, with no more in flight than the server allows', async (t) => {
  const { client, peer } = await pair(t, {}, { max_in_flight: 7 });
  const calls = Promise.all(Array.from({ length: 10_000 }, () => client.next()));
  const asked = [];
  while (asked.length < 7) asked.push(await peer.ask());
  let answered = 0;
  // Nothing more is sent until something is answered.
  while (answered < 10_000) {
    peer.answer(asked.shift(), { id: answered });
    answered += 1;
    if (answered + asked.length < 10_000) asked.push(await peer.ask());
  }
  assert.equal(new Set(await soon(calls)).size, 10_000);
});

test('a refusal says its status, its pause and its text, and leaves the connection', async (t) => {
  const { client, peer } = await pair(t);
  const call = client.next();
  peer.refuse(await peer.ask(), 0x8011, 250, 'nothing\nleft');
  await assert.rejects(soon(call), (error) => {
    assert.ok(error instanceof RefusedError);
    assert.deepEqual(
      [error.status, error.code, error.retryAfterMs, error.text, error.retryable],
      ['OVERLOADED', 0x8011, 250, 'nothing left', true],
    );
    return true;
  });
  const later = client.array(5);
  peer.refuse(await peer.ask(), 0x7001);
  await assert.rejects(soon(later), { status: '0x7001', retryable: false });
  const next = client.next();
  peer.answer(await peer.ask(), { id: 3 });
  assert.equal(await soon(next), 3n);
});

test('a call is repeated exactly where its status says so, and as long as retryForMs allows', async (t) => {
  const { client, peer } = await pair(t, { retryForMs: 10_000 });
  const call = client.next();
  for (let times = 0; times < 3; times += 1) peer.refuse(await peer.ask(), 0x8011, 1);
  peer.answer(await peer.ask(), { id: 4 });
  assert.equal(await soon(call), 4n);
  const stays = client.next();
  peer.refuse(await peer.ask(), 0x0008);
  await assert.rejects(soon(stays), { status: 'EXHAUSTED' });
  const tooLate = client.next();
  peer.refuse(await peer.ask(), 0x8011, 60_000);
  await assert.rejects(soon(tooLate), { status: 'OVERLOADED' }, 'the pause would end too late');
});

const LIES = {
  'a reply longer than what was asked for': (peer, asked) => {
    const claim = Buffer.alloc(16);
    claim.writeUInt32LE(1 << 20, 0);
    claim[4] = asked.op | 0x80;
    claim.writeBigUInt64LE(asked.requestId, 8);
    peer.socket.write(claim);
  },
  'the reply to another op': (peer, asked) => peer.reply(Op.PING, asked.requestId, { bytes: '12345678' }),
  'the reply to a request that is not in flight': (peer, asked) => peer.reply(Op.NEXT, asked.requestId + 1n, { id: 1 }),
  'an id of 2^63': (peer, asked) => peer.reply(Op.NEXT, asked.requestId, { id: 1n << 63n }),
};

for (const [lie, tell] of Object.entries(LIES)) {
  test(`a server that sends ${lie} is left with a protocol error`, async (t) => {
    const { client, peer } = await pair(t);
    const other = client.next();
    await peer.ask();
    const call = client.next();
    tell(peer, await peer.ask());
    await assert.rejects(soon(call), ProtocolError);
    await assert.rejects(soon(other), ProtocolError, 'and what else was in flight with it');
    await peer.expectEnd();
  });
}

const FALSE_BULKS = {
  'an ARRAY of another count': ['array', { ids: [1, 2] }],
  'an ARRAY with a number of 2^63': ['array', { ids: [1, 2, 1n << 63n] }],
  'RUNS of another count': ['runs', { count: 2, runs: [{ first: 1, count: 2, stride: 1 }] }],
  'RUNS that do not add up': ['runs', { count: 3, runs: [{ first: 1, count: 2, stride: 1 }] }],
  'an empty run': ['runs', { count: 3, runs: [{ first: 1, count: 3, stride: 1 }, { first: 9, count: 0, stride: 1 }] }],
  'a run that leaves the 63 bits': ['runs', { count: 3, runs: [{ first: (1n << 63n) - 2n, count: 3, stride: 1 }] }],
  'a run without a stride': ['runs', { count: 3, runs: [{ first: 1, count: 3, stride: 0 }] }],
};

for (const [lie, [method, body]] of Object.entries(FALSE_BULKS)) {
  test(`${lie} yields no id`, async (t) => {
    const { client, peer } = await pair(t);
    const call = client[method](3);
    peer.answer(await peer.ask(), body);
    await assert.rejects(soon(call), ProtocolError);
    await peer.expectEnd();
  });
}

test('a contiguous request that is answered with two runs yields no number', async (t) => {
  const { client, peer } = await pair(t);
  const call = client.sequence('orders').contiguous(2);
  const runs = [{ first: 1, count: 1, stride: 1 }, { first: 5, count: 1, stride: 1 }];
  peer.answer(await peer.ask(), { count: 2, runs });
  await assert.rejects(soon(call), ProtocolError);
});

test('a connection that ends in the middle of a reply is lost, and the next call makes another', async (t) => {
  const { client, fake, peer } = await pair(t);
  const call = client.array(2);
  const asked = await peer.ask();
  const bytes = reply(asked.op, asked.requestId, { ids: [1, 2] });
  peer.socket.end(bytes.subarray(0, bytes.length - 1));
  await assert.rejects(soon(call), ConnectionLostError);
  const next = client.next();
  const second = await fake.greet();
  second.answer(await second.ask(), { id: 9 });
  assert.equal(await soon(next), 9n);
});

test('something that speaks another protocol is shown by its own words', async (t) => {
  const fake = await Fake.start();
  t.after(() => fake.close());
  const call = connect(fake.address);
  (await fake.accept()).socket.end('this port serves something else; HTTP is at :80\r\n');
  await assert.rejects(soon(call), (error) => error instanceof ProtocolError && /HTTP is at :80/.test(error.message));
});

test('a server that cannot be reached is named', async (t) => {
  const fake = await Fake.start();
  await fake.close();
  await assert.rejects(connect(fake.address), (error) => {
    assert.ok(error instanceof UnreachableError && error.message.includes(fake.address));
    return error.retryable;
  });
});

test('a server that says nothing to HELLO is given up after connectTimeoutMs', async (t) => {
  const fake = await Fake.start();
  t.after(() => fake.close());
  await assert.rejects(soon(connect(fake.address, { connectTimeoutMs: 30 })), UnreachableError);
});

test('a server of another cluster than the one asked for is refused with both', async (t) => {
  const fake = await Fake.start();
  t.after(() => fake.close());
  const call = connect(fake.address, { cluster: 'ab'.repeat(16) });
  await fake.greet();
  await assert.rejects(soon(call), (error) => {
    assert.ok(error instanceof WrongClusterError);
    return error.message.includes('ab'.repeat(16)) && error.message.includes('07'.repeat(16));
  });
});

test('after close every call says so, also those in flight, and the server is told BYE', async (t) => {
  const { client, peer } = await pair(t);
  const call = client.next();
  const asked = await peer.ask();
  const closed = client.close();
  const bye = await peer.ask();
  assert.equal(bye.op, Op.BYE);
  peer.answer(bye);
  await soon(closed);
  await assert.rejects(soon(call), ClosedError);
  await assert.rejects(soon(client.next()), ClosedError);
  assert.equal(asked.op, Op.NEXT);
});

test('a call that gives up ends alone, and its late reply meets no other call', async (t) => {
  const { client, peer } = await pair(t, { timeoutMs: 1_000 });
  const late = client.next();
  const first = await peer.ask();
  // The link asks whether the server is there, and is told so while the call gives up.
  const second = peer.askBesidePings();
  await assert.rejects(soon(late), TimeoutError);
  const call = client.next();
  peer.answer(first, { id: 1 });
  peer.answer(await second, { id: 2 });
  assert.equal(await soon(call), 2n);
  assert.equal(peer.fake.peers.length, 1, 'on the same connection');
});

test('a link that is silent to its PING ends, and one that answers it stays', async (t) => {
  const { client, fake, peer } = await pair(t, { timeoutMs: 60 });
  // Answered and not: the calls give up alone, and the link goes on as long as PINGs are answered.
  for (let times = 0; times < 3; times += 1) {
    const call = client.next();
    const rejected = assert.rejects(soon(call), TimeoutError);
    let asked = await peer.ask();
    while (asked.op !== Op.PING) asked = await peer.ask();
    peer.answer(asked, asked.body);
    await rejected;
  }
  assert.equal(fake.peers.length, 1);
  const call = client.next();
  await assert.rejects(soon(call), TimeoutError);
  for (let frame = await peer.frame(); frame !== undefined; frame = await peer.frame());
  const next = client.next();
  const second = await fake.greet();
  second.answer(await second.ask(), { id: 8 });
  assert.equal(await soon(next), 8n);
});

test('an aborted call ends with the reason of its signal, wherever it waits', async (t) => {
  const { client, peer } = await pair(t, {}, { max_in_flight: 1 });
  const controller = new AbortController();
  const { signal } = controller;
  const inFlight = client.next({ signal });
  const inLine = Array.from({ length: 20 }, () => client.next({ signal }));
  const asked = await peer.ask();
  const after = client.next();
  controller.abort();
  for (const call of [inFlight, ...inLine]) await assert.rejects(soon(call), { name: 'AbortError' });
  await assert.rejects(soon(client.next({ signal })), { name: 'AbortError' }, 'and one that comes too late');
  peer.answer(asked, { id: 1 });
  peer.answer(await peer.ask(), { id: 2 });
  assert.equal(await soon(after), 2n, 'the id of the aborted call is wasted');
  const { signal: unused } = new AbortController();
  const last = client.next({ signal: unused });
  peer.answer(await peer.ask(), { id: 3 });
  assert.equal(await soon(last), 3n);
  assert.equal(getEventListeners(unused, 'abort').length, 0);
});

test('the fields of an id are told by the layout, without a call', async (t) => {
  const { client } = await pair(t);
  const fields = client.timeOf(1_128_275_363_336_683_521n);
  assert.equal(fields.date.toISOString(), '2026-10-28T02:43:28.962Z');
  assert.deepEqual([fields.worker, fields.sequence, fields.unixMs], [32, 1, 1_793_155_408_962n]);
  assert.throws(() => client.timeOf(5), UsageError);
});

test('the worker lies lowest where the layout says so, and another face is refused', async (t) => {
  const sonyflake = { face: 1, time_bits: 39, worker_bits: 16, sequence_bits: 8, tick_us: 10_000, epoch_ms: '0' };
  const { client } = await pair(t, {}, sonyflake);
  const fields = client.timeOf((7n << 24n) | (5n << 16n) | 3n);
  assert.deepEqual([fields.worker, fields.sequence, fields.unixMs], [3, 5, 70n]);
  await assert.rejects(pair(t, {}, { face: 3 }), /face 3/);
});

test('opaque ids are taken apart by the server alone', async (t) => {
  const { client } = await pair(t, {}, { face: 2 });
  assert.throws(() => client.timeOf(5n), (error) => error instanceof UsageError && /opaque.*decode/.test(error.message));
});
