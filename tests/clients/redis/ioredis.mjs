// Numbers by ioredis, with its default options: one by one, by its pipeline, and as a transaction.
//
//     ioredis.mjs PORT KEY COUNT
//
// Prints each number of the counter in a line of its own, in the order in which they came.
import { Redis } from 'ioredis'

const PIPELINE = 100
const [port, key, count] = process.argv.slice(2)
const client = new Redis(Number(port))
const numbers = []
while (numbers.length < count / 4) numbers.push(await client.incr(key))
while (numbers.length < count) {
  const pipeline = client.pipeline()
  for (let n = Math.min(PIPELINE, count - numbers.length); n > 0; n--) pipeline.incr(key)
  for (const [error, number] of await pipeline.exec()) {
    if (error) throw error
    numbers.push(number)
  }
}
for (const [error, number] of await client.multi().incr(key).incr(key).exec()) {
  if (error) throw error
  numbers.push(number)
}
const [one, other] = await client.call('XUID.BATCH', 2, '@ordered')
if (BigInt(one) >= BigInt(other)) throw new Error(`${one} ${other}`)
client.disconnect()
console.log(numbers.join('\n'))
