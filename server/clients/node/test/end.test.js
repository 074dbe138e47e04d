// What a client keeps running, and until when.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { test } from 'node:test';

import { Fake, serveIds, soon } from './support/fake.js';

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
