package org.xuid.client.internal.wire;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** One request, ready to be sent any number of times. Immutable, and only ever legal: the factories refuse the rest. */
public final class Request {
    /** Ids of any age, as most calls ask for. */
    private static final int ANY = 0;
    private static final int ORDERED = 2;
    private static final byte[] EMPTY = {};

    /**
     * The most that may be asked for at once: the buffer of a longer reply could not be doubled. Servers allow less,
     * 131,072 by default.
     */
    public static final int COUNT_MAX = 1 << 25;

    private static final Request[] NEXT = {
        new Request(Op.NEXT, EMPTY), new Request(Op.NEXT, new byte[] {1}), new Request(Op.NEXT, new byte[] {2})
    };

    private final int op;
    private final byte[] body;
    private int count;
    private int waitMs;
    private boolean contiguous;

    private Request(int op, byte[] body) {
        this.op = op;
        this.body = body;
    }

    /** HELLO of version 1, with no feature. {@code cluster}: 16 bytes, zeros for any. */
    public static Request hello(byte[] cluster, byte[] token, String client) {
        return hello(1, 1, 0, cluster, token, client);
    }

    static Request hello(int min, int max, int features, byte[] cluster, byte[] token, String client) {
        if (cluster.length != 16) {
            throw new IllegalArgumentException("a cluster id has 16 bytes, and this one has " + cluster.length);
        }
        byte[] name = utf8("the name of the client", client);
        atMost("the token", token.length, 255);
        atMost("the name of the client", name.length, 255);
        Bytes bytes = new Bytes().u16(min).u16(max).u32(features).raw(cluster).shortRaw(token).shortRaw(name);
        return new Request(Op.HELLO, bytes.toArray());
    }

    /** PING with at most 1,024 bytes. */
    public static Request ping(byte[] bytes) {
        atMost("a PING", bytes.length, Frame.PING_MAX);
        return new Request(Op.PING, bytes.clone());
    }

    /** NEXT. */
    public static Request next(int order) {
        return NEXT[order];
    }

    /** ARRAY. */
    public static Request array(int count, int order, int waitMs) {
        return bulk(Op.ARRAY, count, order, waitMs, false, null);
    }

    /** RUNS. */
    public static Request runs(int count, int order, int waitMs) {
        return bulk(Op.RUNS, count, order, waitMs, false, null);
    }

    /** DECODE of an id below 2^63. */
    public static Request decode(long id) {
        return ofId(Op.DECODE, id);
    }

    /** PROVENANCE of an id below 2^63. */
    public static Request provenance(long id) {
        return ofId(Op.PROVENANCE, id);
    }

    private static Request ofId(int op, long id) {
        if (id < 0) {
            throw new IllegalArgumentException(
                    "an id is below 2^63, and this is " + Long.toUnsignedString(id));
        }
        return new Request(op, new Bytes().u64(id).toArray());
    }

    /** INFO. */
    public static Request info() {
        return new Request(Op.INFO, EMPTY);
    }

    /** STATS. */
    public static Request stats() {
        return new Request(Op.STATS, EMPTY);
    }

    /** BYE. */
    public static Request bye() {
        return new Request(Op.BYE, EMPTY);
    }

    /** SEQ_NEXT. */
    public static Request sequenceNext(String name) {
        return new Request(Op.SEQ_NEXT, new Bytes().shortRaw(name(name)).toArray());
    }

    /** SEQ_ARRAY. */
    public static Request sequenceArray(String name, int count, int order, int waitMs) {
        return bulk(Op.SEQ_ARRAY, count, order, waitMs, false, name);
    }

    /** SEQ_RUNS. */
    public static Request sequenceRuns(String name, int count, int order, int waitMs, boolean contiguous) {
        return bulk(Op.SEQ_RUNS, count, order, waitMs, contiguous, name);
    }

    /** SEQ_INFO. */
    public static Request sequenceInfo(String name) {
        return new Request(Op.SEQ_INFO, new Bytes().shortRaw(name(name)).toArray());
    }

    /** SEQ_LIST. */
    public static Request sequenceList(int limit, String prefix, String after) {
        if (limit < 1 || limit > 1_000) {
            throw new IllegalArgumentException("a list has 1 to 1,000 sequences, and the limit is " + limit);
        }
        byte[] begin = utf8("the prefix", prefix);
        byte[] behind = utf8("the name to go on after", after);
        atMost("the prefix", begin.length, Frame.NAME_MAX);
        atMost("the name to go on after", behind.length, Frame.NAME_MAX);
        return new Request(Op.SEQ_LIST, new Bytes().u32(limit).shortRaw(begin).shortRaw(behind).toArray());
    }

    /** SEQ_CREATE with a JSON object, or an empty text for the defaults. */
    public static Request sequenceCreate(String name, String json) {
        return new Request(Op.SEQ_CREATE, named(name, json));
    }

    /** SEQ_ALTER with a JSON object. */
    public static Request sequenceAlter(String name, String json) {
        return new Request(Op.SEQ_ALTER, named(name, json));
    }

    /** The op. */
    public int op() {
        return op;
    }

    /** Ids asked for; 0 where the op has no count. */
    public int count() {
        return count;
    }

    /** How long the server may take because the request says so. */
    public int waitMs() {
        return waitMs;
    }

    /** Whether the reply is to be one run. */
    public boolean contiguous() {
        return contiguous;
    }

    /** Bytes of the frame. */
    public int frameLength() {
        return Frame.HEADER + body.length;
    }

    /** Whether a PING comes back as it was sent. */
    public boolean isEcho(byte[] bytes) {
        return Arrays.equals(body, bytes);
    }

    /** Appends the frame. */
    public void encode(Bytes out, long requestId) {
        // Flags and status are zeros above the op.
        out.u64(body.length | (long) op << 32).u64(requestId).raw(body);
    }

    /**
     * Checks a name of a sequence: 1 to 128 bytes of UTF-8, no control characters, no space at either end, and no
     * {@code @} at its beginning.
     */
    public static byte[] name(String name) {
        byte[] bytes = utf8("the name of a sequence", name);
        if (bytes.length < 1 || bytes.length > Frame.NAME_MAX) {
            throw noName(name, "it has " + bytes.length + " bytes, and 1 to 128 are allowed");
        }
        if (name.codePoints().anyMatch(Character::isISOControl)) {
            throw noName(name, "it has a control character: leave that out");
        }
        if (Character.isSpaceChar(name.codePointAt(0))
                || Character.isSpaceChar(name.codePointBefore(name.length()))) {
            throw noName(name, "it begins or ends with a space: leave that out");
        }
        if (name.startsWith("@")) {
            throw noName(name, "it begins with @, which is kept for ids that belong to no sequence");
        }
        return bytes;
    }

    private static Request bulk(int op, int count, int order, int waitMs, boolean contiguous, String name) {
        if (count < 1 || count > COUNT_MAX) {
            throw new IllegalArgumentException("the count is " + count + ", and 1 to " + COUNT_MAX
                    + " are allowed: ask more often for fewer");
        }
        if (name != null && order != ANY && order != ORDERED) {
            throw new IllegalArgumentException("numbers of a sequence are ANY or ORDERED: FRESH is for ids");
        }
        if (waitMs < 0) {
            throw new IllegalArgumentException("the wait is negative: 0 ms to 60 s are allowed");
        }
        int wait = Math.min(waitMs, Frame.WAIT_MAX_MS);
        Bytes bytes = new Bytes().u32(count).u32(wait).u8(order).u8(contiguous ? 1 : 0).u16(0);
        if (name != null) {
            bytes.shortRaw(name(name));
        }
        Request request = new Request(op, bytes.toArray());
        request.count = count;
        request.waitMs = wait;
        request.contiguous = contiguous;
        return request;
    }

    private static byte[] named(String name, String json) {
        byte[] body = new Bytes().shortRaw(name(name)).raw(utf8("the settings", json)).toArray();
        // A longer one would end the connection, for all its callers.
        atMost("a request with these settings", body.length, Frame.REQUEST_MAX);
        return body;
    }

    /** Other than {@link String#getBytes}, it refuses half a surrogate pair, which would become another text. */
    private static byte[] utf8(String what, String text) {
        try {
            ByteBuffer bytes = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] array = new byte[bytes.remaining()];
            bytes.get(array);
            return array;
        } catch (CharacterCodingException half) {
            throw new IllegalArgumentException(what + " has half a surrogate pair, which is no UTF-8", half);
        }
    }

    private static void atMost(String what, int length, int limit) {
        if (length > limit) {
            throw new IllegalArgumentException(what + " has " + length + " bytes, and " + limit + " are allowed");
        }
    }

    private static IllegalArgumentException noName(String name, String why) {
        return new IllegalArgumentException("'" + Text.printable(name) + "' is no name of a sequence: " + why);
    }
}
