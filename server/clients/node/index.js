// A client of the X-UID server: unique ids and named sequences as BigInt, over XUID/1. README.md is its manual,
// index.d.ts describes each public name.
//
//   connect() -> Client -> Fleet   the servers, one link at a time
//                            Link  one connection, many requests in flight
//   Client.prefetch() -> Prefetch  ids that are there before they are asked for
//   Client.sequence() -> Sequence  numbers of one name

export { connect, Client } from './lib/client.js';
export { Prefetch } from './lib/prefetch.js';
export { Run } from './lib/run.js';
export { Sequence } from './lib/sequence.js';
export {
  XuidError,
  RefusedError,
  TimeoutError,
  ConnectionLostError,
  UnreachableError,
  ProtocolError,
  WrongClusterError,
  ClosedError,
  UsageError,
} from './lib/errors.js';
