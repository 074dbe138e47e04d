package org.xuid.client.internal.wire;

/** The header of a frame, 16 bytes, as it lies in a buffer; and the preface. */
public final class Frame {
    /** Bytes of a header. */
    public static final int HEADER = 16;

    /** The longest name of a sequence, prefix or {@code after}, in bytes. */
    public static final int NAME_MAX = 128;

    /** The longest body of a request that every server takes. */
    public static final int REQUEST_MAX = 4_096;

    /** The most bytes of a PING. */
    public static final int PING_MAX = 1_024;

    /** The longest wait of a request; a longer one counts as this. */
    public static final int WAIT_MAX_MS = 60_000;

    /** What a client is ready for in a reply beside ids and JSON: an error's text of 65,535 bytes, and some growth. */
    private static final long REPLY_ROOM = 128 * 1_024;

    /** The longest JSON of a reply. */
    private static final long JSON_MAX = 1 << 20;

    private static final byte[] PREFACE = {(byte) 0x89, 'X', 'U', 'I', 'D', '\r', '\n', 0x1a};

    private Frame() {}

    /** What a client sends first. */
    public static byte[] preface() {
        return PREFACE.clone();
    }

    /** Bytes behind the header. */
    public static long bodyLength(byte[] buffer, int at) {
        return Integer.toUnsignedLong((int) Bytes.INT.get(buffer, at));
    }

    /** The op, with bit 7 in a reply. */
    public static int op(byte[] buffer, int at) {
        return buffer[at + 4] & 0xff;
    }

    /** Flags; version 1 has none. */
    public static int flags(byte[] buffer, int at) {
        return buffer[at + 5] & 0xff;
    }

    /** The status; 0 in requests and in successful replies. */
    public static int status(byte[] buffer, int at) {
        return (short) Bytes.SHORT.get(buffer, at + 6) & 0xffff;
    }

    /** Which request it is, or which it answers. */
    public static long requestId(byte[] buffer, int at) {
        return (long) Bytes.LONG.get(buffer, at + 8);
    }

    /** Whether a body of that length needs a look at what its request asked for. */
    public static boolean isShort(long bodyLength) {
        return bodyLength <= REPLY_ROOM;
    }

    /** The longest body of a reply to that request; {@code null}: an error, or a reply to nobody. */
    public static long longest(Request request) {
        if (request == null) {
            return REPLY_ROOM;
        }
        switch (request.op()) {
            case Op.ARRAY:
            case Op.SEQ_ARRAY:
                return 8L * request.count() + REPLY_ROOM;
            case Op.RUNS:
            case Op.SEQ_RUNS:
                return 16L * request.count() + REPLY_ROOM;
            case Op.INFO:
            case Op.STATS:
            case Op.PROVENANCE:
            case Op.SEQ_INFO:
            case Op.SEQ_LIST:
            case Op.SEQ_CREATE:
            case Op.SEQ_ALTER:
                return JSON_MAX + REPLY_ROOM;
            default:
                return REPLY_ROOM;
        }
    }
}
