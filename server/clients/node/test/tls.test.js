// TLS, against a server of Node's with certificates that openssl makes.

import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import tls from 'node:tls';

import { UnreachableError, connect } from 'xuid-client';
import { HELLO, Peer, serveIds, soon } from './support/fake.js';

const skip = spawnSync('openssl', ['version']).status === 0 ? false : 'no openssl is at hand';

let folder;
let port;
let server;
const file = (name) => join(folder, name);

/** A certificate that vouches for itself, and its key. */
function certificate(name, subject) {
  const names = ['-addext', `subjectAltName=DNS:${subject}`];
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', file(`${name}-key.pem`)];
  const args = ['req', '-x509', ...key, '-out', file(`${name}.pem`), '-days', '2', '-subj', `/CN=${subject}`, ...names];
  execFileSync('openssl', args, { stdio: 'ignore' });
}

before(async () => {
  if (skip) return;
  folder = mkdtempSync(join(tmpdir(), 'xuid-tls-'));
  certificate('server', 'ids.test');
  certificate('client', 'billing.test');
  const [cert, key, ca] = ['server.pem', 'server-key.pem', 'client.pem'].map((name) => readFileSync(file(name)));
  server = tls.createServer({ cert, key, ca, requestCert: true, rejectUnauthorized: true }, async (socket) => {
    const peer = new Peer(socket, { hello: HELLO });
    await peer.welcome();
    await serveIds(peer, { next: 1n });
  });
  server.on('tlsClientError', () => {});
  await new Promise((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  port = server.address().port;
});

after(() => {
  server?.close();
  if (folder) rmSync(folder, { recursive: true });
});

const identity = () => ({ cert: file('client.pem'), key: file('client-key.pem') });
const trusted = () => ({ ca: file('server.pem'), serverName: 'ids.test', ...identity() });

test('a server with a certificate of the name serves a client that shows its own', { skip }, async () => {
  const client = await soon(connect(`127.0.0.1:${port}`, { tls: trusted() }));
  const ids = await soon(Promise.all(Array.from({ length: 1_000 }, () => client.next())));
  assert.equal(new Set(ids).size, 1_000);
  assert.equal((await soon(client.array(100_000))).length, 100_000);
  await soon(client.close());
});

const REFUSED = {
  'a server that nobody vouches for': () => ({ serverName: 'ids.test', ...identity() }),
  'a server of another name': () => ({ ...trusted(), serverName: 'other.test' }),
  'a client without a certificate': () => ({ ca: file('server.pem'), serverName: 'ids.test' }),
};

for (const [what, options] of Object.entries(REFUSED)) {
  test(`${what} is an error that trying again does not help`, { skip }, async () => {
    await assert.rejects(soon(connect(`127.0.0.1:${port}`, { tls: options() })), (error) => {
      assert.ok(error instanceof UnreachableError, String(error));
      assert.match(error.message, /^no TLS with/);
      return !error.retryable;
    });
  });
}
