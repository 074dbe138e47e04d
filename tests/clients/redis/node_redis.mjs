// Numbers by node-redis, with its default options: a window of promises at once, which it pipelines by itself.
//
//     node_redis.mjs PORT KEY COUNT
//
// Prints each number of the counter in a line of its own, in the order in which they came.
import { createClient } from 'redis'

const WINDOW = 100
const [port, key, count] = process.argv.slice(2)
const client = await createClient({ url: `redis://127.0.0.1:${port}` }).connect()
const numbers = []
while (numbers.length < count) {
  const window = Array.from({ length: Math.min(WINDOW, count - numbers.length) }, () => client.incr(key))
  numbers.push(...(await Promise.all(window)))
}
const all = await client.multi().incr(key).incr(key).exec()
numbers.push(...all)
const [one, other] = await client.sendCommand(['XUID.BATCH', '2', '@ordered'])
if (BigInt(one) >= BigInt(other)) throw new Error(`${one} ${other}`)
await client.close()
console.log(numbers.join('\n'))
