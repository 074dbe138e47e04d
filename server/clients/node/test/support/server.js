// A real server, of the binary that XUID_BIN names.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';

import { soon } from './fake.js';

const { XUID_BIN } = process.env;

/** Why tests with a real server are skipped, if they are. */
export const skip = XUID_BIN === undefined ? 'XUID_BIN names no server' : false;

/** A server on any free port and a folder of its own; `stop` ends both. */
export async function startServer(extra = []) {
  const folder = mkdtempSync(join(tmpdir(), 'xuid-node-'));
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('XUID_')));
  const child = spawn(
    XUID_BIN,
    ['serve', '--listen', '127.0.0.1:0', '--admin', 'off', '--data-dir', folder, '--sequences', 'registry', ...extra],
    { env, stdio: ['ignore', 'pipe', 'ignore'] },
  );
  const closed = new Promise((resolve) => {
    child.once('close', resolve);
  });
  const stop = async (signal = 'SIGTERM') => {
    child.kill(signal);
    await soon(closed);
    rmSync(folder, { recursive: true, force: true });
  };
  const address = await soon(new Promise((resolve, reject) => {
    let printed = '';
    child.stdout.on('data', (chunk) => {
      printed += chunk;
      const found = /\b127\.0\.0\.1:[1-9]\d*/.exec(printed);
      if (found) resolve(found[0]);
    });
    child.once('close', () => reject(new Error(`the server ended and printed: ${printed}`)));
  }));
  return { address, child, stop };
}
