/**
 * A client of xuid servers: 64-bit ids that are never issued twice, and numbers of named sequences.
 *
 * <pre>{@code
 *   callers ---> XuidClient        one connection for all threads, many requests in flight on it
 *                  Sequence        the numbers of one name
 *                  Prefetch        ids that are there before they are asked for
 * }</pre>
 *
 * <p>Every call that can wait exists twice: one that blocks, and one with {@code Async} behind its name that returns a
 * {@link java.util.concurrent.CompletableFuture}. What goes wrong between a caller and its ids is a
 * {@link org.xuid.client.XuidException}; an argument that no server would take is an
 * {@link java.lang.IllegalArgumentException}, before anything is sent.
 */
package org.xuid.client;
