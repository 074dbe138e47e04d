package org.xuid.client.internal.wire;

/** The ops of XUID/1. A reply has bit 7 set beside its request's op. */
public final class Op {
    /** To be let in. */
    public static final int HELLO = 0x01;
    /** The same bytes. */
    public static final int PING = 0x02;
    /** One id. */
    public static final int NEXT = 0x10;
    /** Ids, one by one. */
    public static final int ARRAY = 0x11;
    /** Ids as runs. */
    public static final int RUNS = 0x12;
    /** The fields of an id. */
    public static final int DECODE = 0x20;
    /** What the server is. */
    public static final int INFO = 0x21;
    /** What the server counted. */
    public static final int STATS = 0x22;
    /** What is known of where an id came from. */
    public static final int PROVENANCE = 0x23;
    /** One number of a sequence. */
    public static final int SEQ_NEXT = 0x30;
    /** Numbers of a sequence, one by one. */
    public static final int SEQ_ARRAY = 0x31;
    /** Numbers of a sequence as runs. */
    public static final int SEQ_RUNS = 0x32;
    /** What a sequence is. */
    public static final int SEQ_INFO = 0x38;
    /** The sequences that exist. */
    public static final int SEQ_LIST = 0x39;
    /** A new sequence. */
    public static final int SEQ_CREATE = 0x3a;
    /** Other settings of a sequence. */
    public static final int SEQ_ALTER = 0x3b;
    /** From the server only: leave. */
    public static final int GOAWAY = 0x7e;
    /** The server is to close. */
    public static final int BYE = 0x7f;
    /** What a reply's op has beside the request's. */
    public static final int REPLY_BIT = 0x80;

    private Op() {}
}
