package org.xuid.client.internal.wire;

/** The reply to HELLO. */
public final class Hello {
    /** The version that was picked. */
    public int version;
    /** 32 hexadecimal digits. */
    public String cluster;
    /** Tick 0, in milliseconds since the Unix epoch. */
    public long epochMs;
    /** A tick in microseconds. */
    public long tickUs;
    /** Highest bits of an id. */
    public int timeBits;
    /** Bits below. */
    public int workerBits;
    /** Lowest bits. */
    public int sequenceBits;
    /** 0 where the sequence lies lowest, 1 where the worker does. */
    public int face;
    /** The longest body of a request. */
    public long maxBody;
    /** The most ids of one request. */
    public long maxCount;
    /** Requests without a reply at which the server stops reading. */
    public long maxInFlight;
    /** A connection this long without a byte is closed, in milliseconds. */
    public long idleMs;
    /** The server's version, for people. */
    public String server;

    Hello() {}
}
