// The golden vectors of the protocol, and that no changed byte is overlooked.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { checkVectors, VectorError } from './support/vectors.js';

const FILE = fileURLToPath(new URL('../../../protocol/golden/vectors.json', import.meta.url));

test('every vector is encoded, decoded or refused as it says', () => {
  const vectors = JSON.parse(readFileSync(FILE, 'utf8'));
  const counts = checkVectors(FILE);
  const refused = vectors.filter(({ kind }) => kind === 'refused').length;
  assert.equal(counts.refused, refused);
  assert.equal(counts.decoded, vectors.length - refused);
  assert.equal(counts.encoded, vectors.filter(({ encode }) => encode).length);
});

test('a changed byte of a vector is found, and the vector named', () => {
  const folder = mkdtempSync(join(tmpdir(), 'xuid-vectors-'));
  try {
    const changed = join(folder, 'changed.json');
    for (const kind of ['request', 'reply', 'refused']) {
      const vectors = JSON.parse(readFileSync(FILE, 'utf8'));
      const vector = vectors.findLast((each) => each.kind === kind);
      const bytes = Buffer.from(vector.hex, 'hex');
      bytes[8] ^= 1;
      vector.hex = bytes.toString('hex');
      writeFileSync(changed, JSON.stringify(vectors));
      assert.throws(() => checkVectors(changed), (error) => {
        assert.ok(error instanceof VectorError);
        assert.match(error.message, new RegExp(`^${kind} "${vector.name}"`));
        return true;
      });
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});
