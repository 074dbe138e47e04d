// The client, its package and its README against a real server.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

import { RefusedError, connect } from 'xuid-client';
import { skip, startServer } from './support/server.js';

const run = promisify(execFile);
const PACKAGE = fileURLToPath(new URL('..', import.meta.url));

let server;
let client;

before(async () => {
  if (skip) return;
  server = await startServer();
  client = await connect(server.address);
});

after(async () => {
  await client?.close();
  await server?.stop();
});

test('ids of every call and order come once', { skip }, async () => {
  const seen = new Set();
  const add = (id) => assert.ok(seen.size < seen.add(id).size, `${id} twice`);
  const single = await Promise.all(Array.from({ length: 10_000 }, () => client.next()));
  single.forEach(add);
  for (const order of ['any', 'fresh', 'ordered']) {
    add(await client.next({ order }));
    (await client.array(1_000, { order, waitMs: 2_000 })).forEach(add);
    for (const each of await client.runs(10_000, { order, waitMs: 2_000 })) for (const id of each) add(id);
  }
  const source = client.prefetch();
  for (let times = 0; times < 50; times += 1) {
    add(await source.next());
    for (let id = source.take(); id !== undefined; id = source.take()) add(id);
    source.takeMany(5_000).forEach(add);
  }
});

test('the time of an id is the same by a call and by the layout', { skip }, async () => {
  const id = await client.next({ order: 'fresh' });
  assert.deepEqual(await client.decode(id), client.timeOf(id));
  assert.ok(Math.abs(client.timeOf(id).date - Date.now()) < 5_000);
});

test('a sequence counts, and says what it is', { skip }, async () => {
  const orders = client.sequence('orders');
  await assert.rejects(orders.next(), (error) => error instanceof RefusedError && error.status === 'NO_SEQUENCE');
  await orders.create({ start: 1_000n, step: 50 });
  assert.equal(await orders.next(), 1_000n);
  assert.deepEqual(await orders.array(3), [1_001n, 1_002n, 1_003n]);
  const block = await orders.contiguous(100, { waitMs: 2_000 });
  assert.equal(block.last, block.first + 99n);
  assert.equal((await orders.info()).name, 'orders');
  assert.deepEqual((await client.sequences({ prefix: 'ord' })).map(({ name }) => name), ['orders']);
  assert.equal((await orders.alter({ step: 77n })).step, '77');
});

test('what the server is and counted comes as an object', { skip }, async () => {
  assert.equal((await client.info()).cluster, client.served.cluster);
  assert.ok(Object.keys(await client.stats()).length > 0);
  await client.ping('there?');
});

/** The code of the README's first block. */
function quickStart() {
  const readme = readFileSync(join(PACKAGE, 'README.md'), 'utf8');
  return /```js\n([\s\S]*?)```/.exec(readme)[1];
}

test('the quick start of the README runs from the package as it is installed', { skip }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'xuid-package-'));
  try {
    const { stdout: packed } = await run('npm', ['pack', '--silent', '--pack-destination', folder], { cwd: PACKAGE });
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    const archive = join(folder, packed.trim());
    const flags = ['--silent', '--no-audit', '--no-fund', '--offline', '--ignore-scripts'];
    await run('npm', ['install', ...flags, archive], { cwd: folder });
    writeFileSync(join(folder, 'main.js'), quickStart());
    const env = { ...process.env, XUID_SERVER: server.address };
    const { stdout } = await run(process.execPath, ['main.js'], { cwd: folder, env });
    assert.match(stdout, /^\d{15,19} /);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
