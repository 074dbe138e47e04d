// Several servers: which is asked, when it is left, and when it is come back to.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout } from 'node:timers/promises';

import {
  ClosedError, ConnectionLostError, RefusedError, TimeoutError, UnreachableError, WrongClusterError, connect,
} from 'xuid-client';
import { Retries } from '../lib/waiting.js';
import { reply } from './support/codec.js';
import { begin, fleet, serveIds, soon, standStill, until } from './support/fake.js';

test('clients begin at different servers of one list', async (t) => {
  const fakes = await fleet(t, 2);
  const begun = new Set();
  for (let times = 0; times < 64 && begun.size < 2; times += 1) {
    const { client, peer } = await begin(fakes);
    begun.add(client.served.server);
    peer.socket.destroy();
  }
  assert.equal(begun.size, 2);
});

test('a list in one text is read as several servers', async (t) => {
  const fakes = await fleet(t, 2);
  const connecting = connect(fakes.map(({ address }) => address).join(', '));
  // Both are greeted.
  await Promise.all(fakes.map((fake) => fake.greet()));
  const { server } = (await soon(connecting)).served;
  assert.ok(fakes.some(({ address }) => address === server), server);
});

test('a connection to a server that is not used is closed, also a late one', async (t) => {
  const fakes = await fleet(t, 3);
  const connecting = connect(fakes.map(({ address }) => address), { connectTimeoutMs: 60_000 });
  const peers = [await fakes[0].greet(), await fakes[1].greet(), await fakes[2].accept()];
  const { server } = (await soon(connecting)).served;
  await peers[2].welcome();
  for (const [at, { address }] of fakes.entries()) if (address !== server) await peers[at].expectEnd();
});

test('servers of two clusters are refused together, with both named', async (t) => {
  const fakes = await fleet(t, 2);
  fakes[1].hello.cluster = 'cd'.repeat(16);
  await assert.rejects(begin(fakes), (error) => {
    assert.ok(error instanceof WrongClusterError);
    return error.message.includes('cd'.repeat(16)) && error.message.includes('07'.repeat(16));
  });
});

test('a server that is away when the client begins is passed over', async (t) => {
  const [there, away] = await fleet(t, 2);
  await away.close();
  const connecting = connect([away.address, there.address]);
  await there.greet();
  assert.equal((await soon(connecting)).served.server, there.address);
});

test('where none can be reached, that is said after every server was tried', async (t) => {
  const fakes = await fleet(t, 2);
  await Promise.all(fakes.map((fake) => fake.close()));
  await assert.rejects(connect(fakes.map(({ address }) => address)), UnreachableError);
});

test('a call whose connection is lost is repeated at the other server', async (t) => {
  const { client, peer, others: [other] } = await begin(await fleet(t, 2));
  const call = client.next();
  await peer.ask();
  peer.socket.destroy();
  const second = await other.greet();
  second.answer(await second.ask(), { id: 5 });
  assert.equal(await soon(call), 5n);
});

test('without retryForMs the caller sees the loss, and the next call goes to the other server', async (t) => {
  const { client, peer, others: [other] } = await begin(await fleet(t, 2), { retryForMs: 0 });
  const call = client.next();
  await peer.ask();
  peer.socket.destroy();
  await assert.rejects(soon(call), ConnectionLostError);
  const next = client.next();
  const second = await other.greet();
  second.answer(await second.ask(), { id: 6 });
  assert.equal(await soon(next), 6n);
});

test('GOAWAY: what is in flight is read, what is not answered is asked elsewhere at once', async (t) => {
  const { client, peer, others: [other] } = await begin(await fleet(t, 2), { retryForMs: 0 });
  const answered = client.next();
  const crossed = client.next();
  const first = await peer.ask();
  await peer.ask();
  peer.goaway();
  peer.answer(first, { id: 1 });
  assert.equal(await soon(answered), 1n);
  const after = client.next();
  const second = await other.greet();
  second.answer(await second.ask(), { id: 2 });
  assert.equal(await soon(after), 2n, 'new requests go elsewhere while the old one is waited for');
  peer.socket.end();
  second.answer(await second.ask(), { id: 3 });
  assert.equal(await soon(crossed), 3n);
});

test('GOAWAY: who stands in line is asked for elsewhere, and nothing more is sent', async (t) => {
  const [fake] = await fleet(t, 1);
  fake.hello.max_in_flight = 1;
  const { client, peer } = await begin([fake], { timeoutMs: 300, retryForMs: 0 });
  const slow = client.next();
  const inLine = client.next();
  await peer.ask();
  peer.goaway();
  const rejected = assert.rejects(soon(slow), TimeoutError);
  const second = await fake.greet();
  second.answer(await second.ask(), { id: 2 });
  assert.equal(await soon(inLine), 2n);
  // Neither a PING nor a BYE.
  assert.equal(await peer.frame(), undefined);
  await rejected;
});

test('a close ends what is in flight at a server that was left', async (t) => {
  const { client, peer, others: [other] } = await begin(await fleet(t, 2), { retryForMs: 0 });
  const left = client.array(2, { waitMs: 30_000 });
  const crossed = client.next();
  await peer.ask();
  const asked = await peer.ask();
  peer.goaway();
  peer.answer(asked, { id: 1 });
  await soon(crossed);
  const after = client.next();
  const second = await other.greet();
  second.answer(await second.ask(), { id: 2 });
  await soon(after);
  const closed = client.close();
  second.answer(await second.ask(), {});
  await soon(closed);
  await assert.rejects(soon(left), ClosedError);
  await peer.expectEnd();
});

test('a server that is not ready is left for another one, and what is in flight there is still read', async (t) => {
  const { client, peer, others: [other] } = await begin(await fleet(t, 2));
  const slow = client.next();
  const held = await peer.ask();
  // The other server was not dialed within the second that a refusal keeps a client.
  const call = client.next();
  let asked = await peer.ask();
  let second;
  const greeting = other.accept().then((accepted) => {
    second = accepted;
  });
  while (second === undefined) {
    peer.refuse(asked, 0x8010, 1);
    await Promise.race([greeting, peer.ask().then((next) => {
      asked = next;
    })]);
  }
  await second.welcome();
  second.answer(await second.ask(), { id: 8 });
  assert.equal(await soon(call), 8n);
  peer.answer(held, { id: 7 });
  assert.equal(await soon(slow), 7n);
});

test('a server that is merely busy is stayed with', async (t) => {
  const { client, peer, others: [other] } = await begin(await fleet(t, 2), { retryForMs: 0 });
  for (let times = 0; times < 3; times += 1) {
    const call = client.next();
    peer.refuse(await peer.ask(), 0x8011, 5_000);
    await assert.rejects(soon(call), RefusedError);
  }
  assert.equal(other.peers.length, 1, 'only the greeting at the beginning');
});

test('a server that names a pause of weeks is asked again in a minute', () => {
  const retries = new Retries({ firstPauseMs: 1, longestPauseMs: 1 }, 1);
  const pauseMs = retries.pauseMs({ retryAfterMs: 2 ** 32 - 1 }, false);
  assert.ok(pauseMs >= 60_000 && pauseMs <= 60_001, `${pauseMs}`);
});

test('a server that refuses is stayed with where there is no other that was not dialed of late', async (t) => {
  for (const count of [1, 2]) {
    const { client, peer } = await begin(await fleet(t, count), { retryForMs: 0 });
    // A server alone was dialed so long ago that it would be due.
    if (count === 1) standStill(1_010);
    const call = client.next();
    peer.refuse(await peer.ask(), 0x8010, count === 1 ? 0 : 10_000);
    await assert.rejects(soon(call), RefusedError);
    const next = client.next();
    peer.answer(await peer.ask(), { id: 3 });
    assert.equal(await soon(next), 3n);
  }
});

test('a server that answers others is stayed with when a call gives up', async (t) => {
  const { client, peer } = await begin(await fleet(t, 2), { timeoutMs: 500, retryForMs: 0 });
  const slow = client.next();
  await peer.ask();
  const other = client.next();
  peer.answer(await peer.ask(), { id: 2 });
  assert.equal(await soon(other), 2n);
  const third = peer.askBesidePings();
  await assert.rejects(soon(slow), TimeoutError);
  const next = client.next();
  peer.answer(await soon(third), { id: 3 });
  assert.equal(await soon(next), 3n);
});

test('a silent server is left when a call gives up, if there is another one', async (t) => {
  const { client, peer, others: [other] } = await begin(await fleet(t, 2), { timeoutMs: 500, retryForMs: 0 });
  const call = client.next();
  await peer.ask();
  await assert.rejects(soon(call), TimeoutError);
  const next = client.next();
  const second = await other.greet();
  second.answer(await second.ask(), { id: 4 });
  assert.equal(await soon(next), 4n);
});

test('a server is stayed with when a call gives up that came to it with little time left', async (t) => {
  const { client, peer, others: [other] } = await begin(await fleet(t, 2), { timeoutMs: 1_000, retryForMs: 0 });
  const call = client.next();
  await peer.ask();
  await setTimeout(800);
  const greeting = other.greet();
  peer.goaway();
  peer.socket.end();
  const second = await greeting;
  await second.ask();
  await assert.rejects(soon(call), (error) => error instanceof TimeoutError && error.message.includes('within 1000 ms'));
  const next = client.next();
  second.answer(await second.askBesidePings(), { id: 4 });
  assert.equal(await soon(next), 4n);
});

test('a server whose long reply comes slowly is not left for a call that gives up meanwhile', async (t) => {
  const { client, peer } = await begin(await fleet(t, 2), { timeoutMs: 400, retryForMs: 0 });
  const long = client.array(50_000, { waitMs: 20_000 });
  const asked = await peer.ask();
  const bytes = reply(asked.op, asked.requestId, { ids: Array.from({ length: 50_000 }, (_, at) => at) });
  peer.socket.write(bytes.subarray(0, 65_536));
  await setTimeout(50);
  const call = client.next();
  let isOver = false;
  const giving = assert.rejects(soon(call), TimeoutError).then(() => {
    isOver = true;
  });
  let at = 65_536;
  for (; !isOver; at += 10_240) {
    peer.socket.write(bytes.subarray(at, at + 10_240));
    await setTimeout(20);
  }
  await giving;
  const next = client.next();
  peer.socket.write(bytes.subarray(at));
  // The one that was given up.
  await peer.askBesidePings();
  peer.answer(await peer.askBesidePings(), { id: 5 });
  assert.equal(await soon(next), 5n);
  assert.equal((await soon(long)).length, 50_000);
});

test('a client that had to leave its first server comes back, and reads what is in flight on the way', async (t) => {
  const { client, first, peer, others: [other] } = await begin(await fleet(t, 2), { returnAfterMs: 40 });
  peer.socket.destroy();
  // Notice the loss before the next call.
  const moved = client.next();
  const second = await other.greet();
  second.answer(await second.ask(), { id: 1 });
  assert.equal(await soon(moved), 1n);
  const slow = client.next();
  const held = await second.ask();
  const left = serveIds(second, { next: 100n });
  const back = first.greet().then((home) => serveIds(home, { next: 1_000n }));
  await until(() => {
    client.next().catch(() => {});
    return client.served.server === first.address;
  });
  second.answer(held, { id: 2 });
  assert.equal(await soon(slow), 2n);
  assert.ok((await soon(client.next())) >= 1_000n);
  // The connection that was left ends when its last reply has come.
  await soon(left);
  void back;
});

test('a home that does not answer is tried by one dial at a time', async (t) => {
  const options = { returnAfterMs: 0, connectTimeoutMs: 60_000 };
  const { client, first, peer, others: [other] } = await begin(await fleet(t, 2), options);
  peer.socket.destroy();
  const moved = client.next();
  const second = await other.greet();
  second.answer(await second.ask(), { id: 1 });
  assert.equal(await soon(moved), 1n);
  void serveIds(second, { next: 10n });
  // It takes connections, and says nothing.
  const before = first.peers.length;
  for (let times = 0; times < 50; times += 1) await soon(client.next());
  await until(() => first.peers.length > before);
  // Those that were begun would have come by now.
  for (let times = 0; times < 50; times += 1) await soon(client.next());
  assert.equal(first.peers.length - before, 1);
});

test('a server that was replaced by one of another cluster is refused, and yields no id', async (t) => {
  const [fake] = await fleet(t, 1);
  const { client, peer } = await begin([fake], { retryForMs: 0, reconnectRounds: 1 });
  fake.hello.cluster = 'cd'.repeat(16);
  peer.socket.destroy();
  const greeting = fake.greet().then((stranger) => stranger.expectEnd());
  let error;
  await until(() => {
    client.next().catch((caught) => {
      if (caught instanceof WrongClusterError) error = caught;
    });
    return error !== undefined;
  });
  assert.ok(error.message.includes('cd'.repeat(16)) && error.message.includes('07'.repeat(16)));
  await soon(greeting);
});

test('many callers share one dial', async (t) => {
  const [fake] = await fleet(t, 1);
  const { client, peer } = await begin([fake]);
  peer.socket.destroy();
  const calls = Promise.all(Array.from({ length: 100 }, () => client.next()));
  const second = await fake.greet();
  serveIds(second, { next: 1n });
  assert.equal(new Set(await soon(calls)).size, 100);
  assert.equal(fake.peers.length, 2);
});
