// The types, by a compiler that is at hand; nothing is downloaded for it.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import * as library from 'xuid-client';

const PACKAGE = fileURLToPath(new URL('..', import.meta.url));
const COMMANDS = [['tsc'], ['npx', '--no-install', 'tsc']];
const tsc = COMMANDS.find(([program, ...flags]) => spawnSync(program, [...flags, '--version'], { cwd: PACKAGE }).status === 0);
const skip = tsc === undefined ? 'no tsc is at hand' : false;

test('the types fit their use', { skip }, () => {
  const flags = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'nodenext', '--moduleResolution', 'nodenext'];
  const [program, ...before] = tsc;
  // Of AbortSignal the types of a browser will do: those of Node are another package.
  const { status, stdout } = spawnSync(program, [...before, ...flags, '--lib', 'es2022,dom', 'test/support/use.ts'], {
    cwd: PACKAGE, encoding: 'utf8',
  });
  assert.equal(status, 0, stdout);
});

test('every public name has a type, and every class its methods', () => {
  const types = readFileSync(new URL('../index.d.ts', import.meta.url), 'utf8');
  const inner = new Set(['constructor', 'call', 'json', 'ahead', 'retries', 'pauseMs', 'generation', 'life']);
  for (const [name, value] of Object.entries(library)) {
    const [, declared] = types.split(new RegExp(`export (?:class|function) ${name}\\b`));
    assert.ok(declared, `${name} has no type`);
    const [body] = declared.split('\n}');
    for (const method of Object.getOwnPropertyNames(value.prototype ?? {})) {
      const isTyped = new RegExp(`\\b${method}(\\(|:)`).test(body);
      assert.ok(isTyped || inner.has(method) || name.endsWith('Error'), `${name}.${method} has no type`);
    }
  }
});
