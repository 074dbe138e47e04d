package org.xuid.client.internal.wire;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * One reply, checked: ids are below 2^63, runs add up, and nothing is longer than the frame that carries it. Only the
 * fields of its op are set.
 */
public final class Reply {
    /** The op of its request. */
    public final int op;
    /** 0, or why not. */
    public final int status;
    /** NEXT and SEQ_NEXT. */
    public long id;
    /** ARRAY and SEQ_ARRAY. */
    public long[] ids;
    /** RUNS and SEQ_RUNS: ids in all runs together. */
    public long count;
    /** RUNS and SEQ_RUNS: first ids. */
    public long[] firsts;
    /** RUNS and SEQ_RUNS: ids a run, unsigned. */
    public int[] counts;
    /** RUNS and SEQ_RUNS: distances, unsigned. */
    public int[] strides;
    /** DECODE. */
    public long unixMs;
    /** DECODE. */
    public long worker;
    /** DECODE. */
    public long sequence;
    /** JSON, or the text of an error. */
    public String text;
    /** PING. */
    public byte[] bytes;
    /** HELLO. */
    public Hello hello;
    /** An error: when it is worth trying again, in milliseconds; 0: not said. */
    public long retryAfterMs;

    private final byte[] buffer;
    private final int end;
    private int at;

    private Reply(int op, int status, byte[] buffer, int at, int end) {
        this.op = op;
        this.status = status;
        this.buffer = buffer;
        this.at = at;
        this.end = end;
    }

    /** Whether it says that the server wants this client to leave. */
    public boolean isGoaway() {
        return op == Op.GOAWAY;
    }

    /** Checks a header before its body is there. */
    public static void checkHeader(byte[] buffer, int at) throws BadReply {
        int op = Frame.op(buffer, at);
        int flags = Frame.flags(buffer, at);
        if (flags != 0 || (op & Op.REPLY_BIT) == 0 && op != Op.GOAWAY) {
            throw new BadReply(String.format("op %02x with flags %02x is no reply", op, flags));
        }
    }

    /** Checks the length that a header claims against what was asked for. */
    public static void checkLength(long bodyLength, long longest) throws BadReply {
        if (bodyLength > longest) {
            throw new BadReply("the header claims a body of " + bodyLength + " bytes, and what was asked for has "
                    + longest + " at most");
        }
    }

    /** The frame at {@code at}, whose header was checked, and which is there as a whole. */
    public static Reply parse(byte[] buffer, int at) throws BadReply {
        int op = Frame.op(buffer, at);
        int body = at + Frame.HEADER;
        int end = Math.addExact(body, Math.toIntExact(Frame.bodyLength(buffer, at)));
        Reply reply = new Reply(op & ~Op.REPLY_BIT, Frame.status(buffer, at), buffer, body, end);
        if (op == Op.GOAWAY) {
            return reply;
        }
        if (reply.op == Op.GOAWAY) {
            throw new BadReply("op fe is no reply");
        }
        if (reply.status != 0) {
            reply.parseError();
        } else {
            reply.parseBody();
        }
        return reply;
    }

    /** Checks it against what was asked: the op, and exactly as many ids, in one run if that was asked for. */
    public void checkFits(Request request) throws BadReply {
        if (op != request.op()) {
            throw new BadReply(String.format("a request of op %02x was answered with op %02x", request.op(), op));
        }
        if (status != 0) {
            return;
        }
        long answered = ids != null ? ids.length : firsts != null ? count : request.count();
        if (answered != request.count()) {
            throw new BadReply(request.count() + " ids were asked for, and " + answered + " came: it is all or nothing");
        }
        if (request.contiguous() && firsts.length != 1) {
            throw new BadReply("one run was asked for, and " + firsts.length + " came");
        }
        if (op == Op.PING && !request.isEcho(bytes)) {
            throw new BadReply("a PING came back with other bytes");
        }
    }

    private void parseBody() throws BadReply {
        switch (op) {
            case Op.HELLO:
                parseHello();
                break;
            case Op.PING:
                bytes = Arrays.copyOfRange(buffer, at, end);
                break;
            case Op.NEXT:
            case Op.SEQ_NEXT:
                id = checkedId(u64());
                break;
            case Op.ARRAY:
            case Op.SEQ_ARRAY:
                parseArray();
                break;
            case Op.RUNS:
            case Op.SEQ_RUNS:
                parseRuns();
                break;
            case Op.DECODE:
                unixMs = u64();
                worker = u32();
                sequence = u32();
                break;
            case Op.INFO:
            case Op.STATS:
            case Op.PROVENANCE:
            case Op.SEQ_INFO:
            case Op.SEQ_LIST:
            case Op.SEQ_CREATE:
            case Op.SEQ_ALTER:
                text = utf8();
                break;
            case Op.BYE:
                break;
            default:
                throw new BadReply(String.format("op %02x is no reply", op | Op.REPLY_BIT));
        }
    }

    private void parseError() throws BadReply {
        retryAfterMs = u32();
        int length = u16();
        need(length);
        text = Text.printable(new String(buffer, at, length, StandardCharsets.UTF_8));
    }

    private void parseHello() throws BadReply {
        Hello read = new Hello();
        read.version = u16();
        need(22);
        at += 6;
        StringBuilder cluster = new StringBuilder(32);
        for (int i = 0; i < 16; i++) {
            cluster.append(String.format("%02x", u8()));
        }
        read.cluster = cluster.toString();
        read.epochMs = u64();
        read.tickUs = u32();
        read.timeBits = u8();
        read.workerBits = u8();
        read.sequenceBits = u8();
        read.face = u8();
        read.maxBody = u32();
        read.maxCount = u32();
        read.maxInFlight = u32();
        read.idleMs = u32();
        int length = u8();
        need(length);
        read.server = Text.printable(new String(buffer, at, length, StandardCharsets.UTF_8));
        hello = read;
    }

    private void parseArray() throws BadReply {
        long length = u32();
        u32();
        // Before the memory: a count that its frame does not carry is only a claim.
        need(8 * length);
        long[] read = new long[(int) length];
        long allBits = 0;
        for (int i = 0; i < read.length; i++) {
            read[i] = (long) Bytes.LONG.get(buffer, at + 8 * i);
            allBits |= read[i];
        }
        checkedId(allBits);
        ids = read;
    }

    private void parseRuns() throws BadReply {
        count = u32();
        long length = u32();
        need(16 * length);
        firsts = new long[(int) length];
        counts = new int[(int) length];
        strides = new int[(int) length];
        long sum = 0;
        for (int i = 0; i < firsts.length; i++) {
            firsts[i] = checkedId(u64());
            counts[i] = (int) u32();
            strides[i] = (int) u32();
            long many = Integer.toUnsignedLong(counts[i]);
            long stride = Integer.toUnsignedLong(strides[i]);
            // Neither product nor sum wraps unseen: (2^32 - 1)^2 is below 2^64, and a negative number is refused.
            long distance = (many - 1) * stride;
            if (many == 0 || distance < 0 || firsts[i] + distance < 0) {
                throw new BadReply("a run is empty, or leaves the 63 bits of an id");
            }
            if (many > 1 && stride == 0) {
                throw new BadReply("a run of more than one id has a stride of 0");
            }
            sum += many;
        }
        if (sum != count) {
            throw new BadReply("the runs have " + sum + " ids, and their reply says " + count);
        }
    }

    private static long checkedId(long id) throws BadReply {
        if (id < 0) {
            throw new BadReply("a number of 2^63 or more is in the place of an id");
        }
        return id;
    }

    private String utf8() throws BadReply {
        try {
            ByteBuffer body = ByteBuffer.wrap(buffer, at, end - at);
            return StandardCharsets.UTF_8.newDecoder().decode(body).toString();
        } catch (CharacterCodingException other) {
            throw new BadReply("a text is not UTF-8");
        }
    }

    private void need(long length) throws BadReply {
        if (length > end - at) {
            throw new BadReply(String.format("the body of op %02x ends before its fields", op | Op.REPLY_BIT));
        }
    }

    private int u8() throws BadReply {
        need(1);
        return buffer[at++] & 0xff;
    }

    private int u16() throws BadReply {
        need(2);
        at += 2;
        return (short) Bytes.SHORT.get(buffer, at - 2) & 0xffff;
    }

    private long u32() throws BadReply {
        need(4);
        at += 4;
        return Integer.toUnsignedLong((int) Bytes.INT.get(buffer, at - 4));
    }

    private long u64() throws BadReply {
        need(8);
        at += 8;
        return (long) Bytes.LONG.get(buffer, at - 8);
    }
}
