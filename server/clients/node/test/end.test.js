// What a close, a silence and a caller that gives up end: calls, connections and the process, in time and not too early.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import dns from 'node:dns';
import net from 'node:net';
import process from 'node:process';
import { test } from 'node:test';

import { ClosedError, TimeoutError, UnreachableError, connect } from 'xuid-client';
import { Op } from '../lib/wire.js';
import { Fake, clockOf, pair, serveIds, soon, standStill } from './support/fake.js';

/** Pauses of up to 24 days: one that is shorter than a test is drawn once in a million. */
const ENDLESS = { firstPauseMs: 2 ** 31 - 1, longestPauseMs: 2 ** 31 - 1 };

test('a close ends the pause before the next attempt', async (t) => {
  const { client, peer } = await pair(t, { retryForMs: 60_000 });
  const call = client.next();
  peer.refuse(await peer.ask(), 0x8011, 30_000);
  const closed = client.close();
  peer.answer(await peer.ask());
  await soon(closed);
  await assert.rejects(soon(call), ClosedError);
});

test('a close ends a dial that is not answered', async (t) => {
  const { client, fake, peer } = await pair(t, { connectTimeoutMs: 60_000 });
  const call = client.next();
  await peer.ask();
  peer.goaway();
  peer.socket.end();
  const silent = await fake.accept();
  await silent.ask();
  await soon(client.close());
  await assert.rejects(soon(call), ClosedError);
  await silent.expectEnd();
});

/** Until the test is over each socket that the client opens is shown before it is used. */
function onDial(t, show) {
  const { connect: open } = net;
  t.after(() => {
    net.connect = open;
  });
  net.connect = (address) => {
    const socket = open(address);
    show(socket);
    return socket;
  };
}

test('a close ends the pause before the servers are tried again', async (t) => {
  const { client, fake, peer } = await pair(t, ENDLESS);
  onDial(t, (socket) => socket.once('close', () => setImmediate(() => client.close())));
  const call = client.next();
  await peer.ask();
  peer.goaway();
  await fake.close();
  await assert.rejects(soon(call), ClosedError);
});

test('a connection that stands only when the client is closed is closed', async (t) => {
  const { client, fake, peer } = await pair(t);
  // In the turn in which the greeting comes, before the client goes on with it.
  onDial(t, (socket) => socket.once('data', () => queueMicrotask(() => client.close())));
  const call = client.next();
  await peer.ask();
  peer.goaway();
  peer.socket.end();
  const second = await fake.greet();
  await assert.rejects(soon(call), ClosedError);
  await second.expectEnd();
});

test('a server that sends every call away is dialed after a pause', async (t) => {
  const { client, fake, peer } = await pair(t, ENDLESS);
  const call = client.next({ signal: AbortSignal.timeout(1_000) });
  await peer.ask();
  peer.goaway();
  peer.socket.end();
  const second = await fake.greet();
  await second.ask();
  second.goaway();
  second.socket.end();
  await assert.rejects(soon(call), { name: 'TimeoutError' });
  assert.equal(fake.peers.length, 2);
});

test('a connection that was sent away ends in any case', async (t) => {
  const { client, fake, peer } = await pair(t);
  const call = client.array(2, { waitMs: 60_000 });
  await peer.ask();
  const { setTimeout: after } = globalThis;
  t.after(() => {
    globalThis.setTimeout = after;
  });
  // It may live for the longest wait of a request, and some.
  globalThis.setTimeout = (callback, ms) => after(callback, ms > 60_000 ? 1 : ms);
  peer.goaway();
  await peer.expectEnd();
  globalThis.setTimeout = after;
  const second = await fake.greet();
  second.answer(await second.ask(), { ids: [1, 2] });
  assert.deepEqual(await soon(call), [1n, 2n]);
});

test('what is in flight is answered behind GOAWAY, however long a call may take', async (t) => {
  // The most that is allowed.
  const { client, peer } = await pair(t, { timeoutMs: 2 ** 31 - 1 - 60_000 });
  t.after(() => client.close());
  const call = client.next();
  const asked = await peer.ask();
  peer.goaway();
  await new Promise((resolve) => {
    setTimeout(resolve, 100);
  });
  peer.answer(asked, { id: 7 });
  assert.equal(await soon(call), 7n);
});

/** Looks up by that, until the test ends; what has not been answered by then is told an error. */
function looksUpBy(t, find) {
  const { lookup } = dns;
  const asked = [];
  t.after(() => {
    dns.lookup = lookup;
    for (const callback of asked) callback(new Error('of a test'));
  });
  dns.lookup = (host, options, callback) => {
    asked.push(callback);
    find?.(options, callback);
  };
  return asked;
}

/** What a look-up finds that ends. */
function found(options, callback) {
  const addresses = options.all ? [[{ address: '127.0.0.1', family: 4 }]] : ['127.0.0.1', 4];
  setImmediate(() => callback(null, ...addresses));
}

test('a name that is looked up for long is looked up once', async (t) => {
  const asked = looksUpBy(t);
  for (let dialed = 0; dialed < 3; dialed += 1) {
    await assert.rejects(soon(connect('ids.test:1', { connectTimeoutMs: 50 })), UnreachableError);
  }
  assert.equal(asked.length, 1);
});

test('a name whose look-up never ends is looked up again', async (t) => {
  // It looks up where it is to listen.
  const fake = await Fake.start();
  t.after(() => fake.close());
  const asked = looksUpBy(t, (options, callback) => asked.length > 1 && found(options, callback));
  const setOn = clockOf(t);
  const name = `ids.test:${fake.server.address().port}`;
  await assert.rejects(soon(connect(name, { connectTimeoutMs: 50 })), UnreachableError);
  // Longer than any takes that ends.
  setOn(60_000);
  const [client, peer] = await soon(Promise.all([connect(name), fake.greet()]));
  peer.socket.destroy();
  await soon(client.close());
  assert.equal(asked.length, 2);
});

test('of look-ups of one name that never end there are two at most', async (t) => {
  const asked = looksUpBy(t);
  const setOn = clockOf(t);
  for (let minutes = 0; minutes < 4; minutes += 1) {
    setOn(minutes * 60_000);
    await assert.rejects(soon(connect('for-ever.test:1', { connectTimeoutMs: 50 })), UnreachableError);
  }
  assert.equal(asked.length, 2);
});

test('who gave up is told nothing by a look-up that ends later, and not kept by one that never ends', async (t) => {
  const asked = looksUpBy(t);
  const { connect: open } = net;
  t.after(() => {
    net.connect = open;
  });
  let told = 0;
  net.connect = ({ lookup, ...address }) => open({
    ...address,
    lookup: (host, options, callback) => lookup(host, options, (...outcome) => {
      told += 1;
      callback(...outcome);
    }),
  });
  for (let dialed = 0; dialed < 3; dialed += 1) {
    await assert.rejects(soon(connect('ids.test:1', { connectTimeoutMs: 50 })), UnreachableError);
  }
  // The last socket is closed by then.
  await new Promise((resolve) => {
    setTimeout(resolve, 100);
  });
  assert.equal(asked.length, 1, 'they shared it');
  asked[0](new Error('of a test'));
  assert.equal(told, 0);
});

test('a look-up that cannot be begun is told, and keeps no later one from being begun', async (t) => {
  const asked = looksUpBy(t, () => {
    throw new Error('not permitted');
  });
  for (let dialed = 1; dialed <= 2; dialed += 1) {
    await assert.rejects(soon(connect('ids.test:1')), UnreachableError);
    assert.equal(asked.length, dialed);
  }
});

test('a name is looked up again for each connection', async (t) => {
  // It looks up where it is to listen.
  const fake = await Fake.start();
  t.after(() => fake.close());
  const asked = looksUpBy(t, found);
  const name = `ids.test:${fake.server.address().port}`;
  for (let dialed = 1; dialed <= 2; dialed += 1) {
    const [client, peer] = await soon(Promise.all([connect(name), fake.greet()]));
    peer.socket.destroy();
    await soon(client.close());
    assert.equal(asked.length, dialed);
  }
});

test('a call that gives up in line is not sent', async (t) => {
  const { client, peer } = await pair(t, { timeoutMs: 300 }, { max_in_flight: 1 });
  const calls = [client.next(), client.next()];
  const late = await peer.ask();
  const asked = peer.askBesidePings();
  await Promise.all(calls.map((call) => assert.rejects(soon(call), TimeoutError)));
  const call = client.next();
  peer.answer(late, { id: 1 });
  peer.answer(await asked, { id: 2 });
  assert.equal(await soon(call), 2n);
});

test('a reply that lies in the socket when its time is over counts', async (t) => {
  const { client, peer } = await pair(t, { timeoutMs: 200 });
  const call = client.next();
  peer.answer(await peer.ask(), { id: 5 });
  standStill(300);
  assert.equal(await soon(call), 5n);
});

test('the reply to a PING that lies in the socket when the silence is over keeps the connection', async (t) => {
  const { client, fake, peer } = await pair(t, { timeoutMs: 400 });
  const call = client.next();
  const late = await peer.ask();
  const ping = await peer.ask();
  assert.equal(ping.op, Op.PING);
  peer.answer(ping, ping.body);
  standStill(400);
  await assert.rejects(soon(call), TimeoutError);
  peer.answer(late, { id: 1 });
  const next = client.next();
  peer.answer(await peer.askBesidePings(), { id: 2 });
  assert.equal(await soon(next), 2n);
  assert.equal(fake.peers.length, 1);
});

/** What is printed by a process that makes `c`, a client, and runs this, when it has ended. */
async function printed(t, code, serve) {
  const fake = await Fake.start();
  t.after(() => fake.close());
  const program = `import { connect } from 'xuid-client';
    const c = await connect(process.argv[1], { timeoutMs: 60_000, retryForMs: 60_000 });
    ${code}`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program, fake.address], {
    cwd: new URL('..', import.meta.url), stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.after(() => child.kill());
  let text = '';
  child.stdout.on('data', (chunk) => {
    text += chunk;
  });
  const ended = new Promise((resolve) => {
    child.once('close', resolve);
  });
  serve(await fake.greet());
  assert.equal(await soon(ended), 0);
  return text.trim();
}

test('a client without use does not keep its process running', async (t) => {
  assert.equal(await printed(t, 'console.log(await c.next());', (peer) => serveIds(peer, { next: 77n })), '77n');
});

test('a call that gave up does not keep its process running, on a connection that was sent away neither', async (t) => {
  const code = 'await c.next({ signal: AbortSignal.timeout(200) }).catch((error) => console.log(error.name));';
  for (const away of [false, true]) {
    const serve = async (peer) => {
      await peer.ask();
      if (away) peer.goaway();
    };
    assert.equal(await printed(t, code, serve), 'TimeoutError');
  }
});

test('a client that is closed does not keep its process running, whatever it waited for', async (t) => {
  const code = `const ids = c.prefetch({ waitMs: 60_000 });
    const waiting = [ids.next(), c.next()].map((call) => call.catch((error) => console.log(error.name)));
    while (ids.failure === undefined) await new Promise((resolve) => setTimeout(resolve, 1));
    await c.close();
    await Promise.all(waiting);`;
  const refuse = async (peer) => {
    for (let asked = await peer.frame(); asked !== undefined; asked = await peer.frame()) {
      if (asked.op === Op.BYE) peer.answer(asked);
      else peer.refuse(asked, 0x8011, 30_000);
    }
  };
  assert.equal(await printed(t, code, refuse), 'ClosedError\nClosedError');
});

test('a goaway that lies unread behind a time without a word is seen before two writes end the connection', async (t) => {
  const { client, fake, peer } = await pair(t);
  standStill(150);
  peer.goaway();
  peer.socket.destroy();
  const calls = [client.next()];
  process.nextTick(() => calls.push(client.next()));
  serveIds(await soon(fake.greet()), { next: 1n });
  assert.deepEqual(await soon(Promise.all(calls)), [1n, 2n]);
});

test('what waits at a server that said GOAWAY and vanished is asked for elsewhere', async (t) => {
  const { client, fake, peer } = await pair(t, { timeoutMs: 200 });
  const array = client.array(1, { waitMs: 60_000 });
  const next = assert.rejects(soon(client.next()), TimeoutError);
  await peer.ask();
  await peer.ask();
  peer.goaway();
  serveIds(await soon(fake.greet()), { next: 7n });
  assert.deepEqual([...(await soon(array))], [7n]);
  await next;
});
