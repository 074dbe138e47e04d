// Uses each public name as index.d.ts describes it; compiled, and never run.

import { Client, Prefetch, RefusedError, Run, Sequence, XuidError, connect } from 'xuid-client';

export async function use(): Promise<bigint[]> {
  const client: Client = await connect(['a:7654', 'b:7654'], {
    token: 'secret', tls: { ca: 'ca.pem', serverName: 'ids' }, retryForMs: 2_000,
  });
  const { signal } = new AbortController();
  const id: bigint = await client.next({ order: 'fresh', signal });
  const many: bigint[] = await client.array(1_000, { waitMs: 50 });
  const runs: Run[] = await client.runs(1_000);
  for (const each of runs[0]) many.push(each + runs[0].stride);
  const orders: Sequence = client.sequence('orders');
  await orders.create({ start: 1n, step: 1_000, strict: true });
  await orders.alter({ last: 'retired' });
  const block: Run = await orders.contiguous(100);
  const source: Prefetch = client.prefetch({ maxAgeMs: 500 });
  const taken: bigint | undefined = source.take();
  const filled: BigUint64Array = source.takeMany(10);
  for await (const one of source) {
    many.push(one);
    break;
  }
  try {
    await client.ping();
  } catch (error) {
    if (error instanceof RefusedError) many.push(BigInt(error.retryAfterMs));
    else if (error instanceof XuidError && error.retryable) throw error;
  }
  const date: Date = client.timeOf(id).date;
  const ms: bigint = (await client.decode(id)).unixMs;
  // @ts-expect-error a double is no id
  await client.decode(5);
  // @ts-expect-error there is no such order
  await client.next({ order: 'best' });
  // @ts-expect-error a sequence has no fresh numbers
  await orders.array(5, { order: 'fresh' });
  await client.close();
  return [...many, ...filled, block.last, taken ?? ms, BigInt(date.getTime())];
}
