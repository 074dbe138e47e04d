/**
 * The bytes of XUID/1, without sockets and without a clock: requests are encoded, replies are checked and decoded. The
 * package is not exported.
 */
package org.xuid.client.internal.wire;
