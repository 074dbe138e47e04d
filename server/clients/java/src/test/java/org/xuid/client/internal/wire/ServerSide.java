package org.xuid.client.internal.wire;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The other side of the wire, for tests: reads requests as a server does, with its checks in its order, and writes
 * replies. Fields have the names of the golden vectors, and numbers of 64 bits are strings.
 */
public final class ServerSide {
    private static final int MAX_BODY = 4_096;
    private static final long MAX_COUNT = 131_072;

    /** A request that a server refuses. */
    public static final class Refusal extends Exception {
        private static final long serialVersionUID = 1;
        public final int status;
        public final boolean closes;

        Refusal(int status, boolean closes) {
            super(Status.name(status));
            this.status = status;
            this.closes = closes;
        }
    }

    private final int op;
    private final ByteBuffer body;

    private ServerSide(int op, ByteBuffer body) {
        this.op = op;
        this.body = body;
    }

    /** The fields of a whole frame. */
    public static Map<String, Object> request(byte[] frame, boolean isServing) throws Refusal {
        int op = Frame.op(frame, 0);
        boolean isHello = op == Op.HELLO;
        if (Frame.bodyLength(frame, 0) > MAX_BODY) {
            throw new Refusal(0x0004, true);
        }
        if (isServing ? isHello : !isHello && op != Op.PING) {
            throw new Refusal(0x0001, true);
        }
        if (Frame.flags(frame, 0) != 0 || (op & Op.REPLY_BIT) != 0) {
            throw new Refusal(0x0001, isHello);
        }
        ByteBuffer body = ByteBuffer.wrap(frame, Frame.HEADER, frame.length - Frame.HEADER).order(ByteOrder.LITTLE_ENDIAN);
        try {
            ServerSide side = new ServerSide(op, body);
            Map<String, Object> fields = side.fields();
            side.check(!body.hasRemaining());
            side.checkCount(fields);
            return fields;
        } catch (java.nio.BufferUnderflowException | CharacterCodingException | IllegalArgumentException wrong) {
            throw new Refusal(0x0001, isHello);
        }
    }

    /** A reply, of the fields of a vector. */
    public static byte[] reply(int op, int status, long requestId, Map<String, Object> fields) {
        Bytes out = new Bytes();
        if (status != 0) {
            byte[] text = bytes(fields, "text");
            out.u32(number(fields, "retry_after_ms")).u16(text.length).raw(text);
        } else {
            body(op & ~Op.REPLY_BIT, fields, out);
        }
        return frame(op, status, requestId, out.toArray());
    }

    public static byte[] frame(int op, int status, long requestId, byte[] body) {
        return new Bytes().u32(body.length).u8(op).u8(0).u16(status).u64(requestId).raw(body).toArray();
    }

    private static void body(int op, Map<String, Object> fields, Bytes out) {
        switch (op) {
            case Op.HELLO:
                out.u16(number(fields, "version")).u16(0).u32(number(fields, "features"));
                out.raw(unhex((String) fields.get("cluster")));
                out.u64(id(fields.get("epoch_ms"))).u32(number(fields, "tick_us"));
                out.u8(number(fields, "time_bits")).u8(number(fields, "worker_bits"));
                out.u8(number(fields, "sequence_bits")).u8(number(fields, "face"));
                out.u32(number(fields, "max_body")).u32(number(fields, "max_count"));
                out.u32(number(fields, "max_in_flight")).u32(number(fields, "idle_ms"));
                out.shortRaw(bytes(fields, "server"));
                break;
            case Op.PING:
                out.raw(bytes(fields, "bytes"));
                break;
            case Op.NEXT:
            case Op.SEQ_NEXT:
                out.u64(id(fields.get("id")));
                break;
            case Op.ARRAY:
            case Op.SEQ_ARRAY:
                List<?> ids = (List<?>) fields.get("ids");
                out.u32(ids.size()).u32(0);
                ids.forEach(id -> out.u64(id(id)));
                break;
            case Op.RUNS:
            case Op.SEQ_RUNS:
                List<?> runs = (List<?>) fields.get("runs");
                out.u32(number(fields, "count")).u32(runs.size());
                for (Object each : runs) {
                    Map<?, ?> run = (Map<?, ?>) each;
                    out.u64(id(run.get("first"))).u32(number(run, "count")).u32(number(run, "stride"));
                }
                break;
            case Op.DECODE:
                out.u64(id(fields.get("unix_ms"))).u32(number(fields, "worker")).u32(number(fields, "sequence"));
                break;
            case Op.BYE:
            case Op.GOAWAY:
                break;
            default:
                out.raw(bytes(fields, "json"));
        }
    }

    private Map<String, Object> fields() throws Refusal, CharacterCodingException {
        Map<String, Object> fields = new LinkedHashMap<>();
        switch (op) {
            case Op.HELLO:
                hello(fields);
                break;
            case Op.PING:
                check(body.remaining() <= Frame.PING_MAX);
                fields.put("bytes", text(body.remaining()));
                break;
            case Op.NEXT:
                fields.put("order", body.hasRemaining() ? order(2) : 0L);
                break;
            case Op.ARRAY:
            case Op.RUNS:
            case Op.SEQ_ARRAY:
            case Op.SEQ_RUNS:
                bulk(fields);
                break;
            case Op.DECODE:
            case Op.PROVENANCE:
                long id = body.getLong();
                check(id >= 0);
                fields.put("id", Long.toString(id));
                break;
            case Op.INFO:
            case Op.STATS:
            case Op.BYE:
                break;
            case Op.SEQ_NEXT:
            case Op.SEQ_INFO:
                fields.put("name", name());
                break;
            case Op.SEQ_LIST:
                fields.put("limit", u32());
                fields.put("prefix", shortText(Frame.NAME_MAX));
                fields.put("after", shortText(Frame.NAME_MAX));
                break;
            case Op.SEQ_CREATE:
            case Op.SEQ_ALTER:
                fields.put("name", name());
                fields.put("json", text(body.remaining()));
                break;
            default:
                throw new Refusal(0x0003, false);
        }
        return fields;
    }

    private void hello(Map<String, Object> fields) throws CharacterCodingException {
        fields.put("min_version", (long) body.getShort());
        fields.put("max_version", (long) body.getShort());
        fields.put("features", u32());
        StringBuilder cluster = new StringBuilder();
        for (int i = 0; i < 16; i++) {
            cluster.append(String.format("%02x", body.get()));
        }
        fields.put("cluster", cluster.toString());
        fields.put("token", shortText(255));
        fields.put("client", shortText(255));
    }

    private void bulk(Map<String, Object> fields) throws Refusal, CharacterCodingException {
        fields.put("count", u32());
        fields.put("wait_ms", u32());
        long order = order(2);
        fields.put("order", order);
        byte contiguous = body.get();
        body.getShort();
        if (op == Op.SEQ_ARRAY || op == Op.SEQ_RUNS) {
            check(order != 1);
            fields.put("name", name());
        }
        if (op == Op.SEQ_RUNS) {
            check(contiguous == 0 || contiguous == 1);
            fields.put("contiguous", contiguous == 1);
        }
    }

    private void checkCount(Map<String, Object> fields) throws Refusal {
        Object count = fields.containsKey("limit") ? fields.get("limit") : fields.get("count");
        long most = fields.containsKey("limit") ? 1_000 : MAX_COUNT;
        if (count != null && ((long) count < 1 || (long) count > most)) {
            throw new Refusal(Status.COUNT, false);
        }
    }

    private void check(boolean isGood) {
        if (!isGood) {
            throw new IllegalArgumentException();
        }
    }

    private long order(int most) {
        int order = body.get() & 0xff;
        check(order <= most);
        return order;
    }

    private long u32() {
        return Integer.toUnsignedLong(body.getInt());
    }

    private String name() throws CharacterCodingException {
        String name = shortText(255);
        Request.name(name);
        return name;
    }

    private String shortText(int most) throws CharacterCodingException {
        int length = body.get() & 0xff;
        check(length <= most);
        return text(length);
    }

    private String text(int length) throws CharacterCodingException {
        byte[] bytes = new byte[length];
        body.get(bytes);
        return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
    }

    private static byte[] bytes(Map<String, Object> fields, String key) {
        return ((String) fields.get(key)).getBytes(StandardCharsets.UTF_8);
    }

    private static int number(Map<?, ?> fields, String key) {
        return ((Number) fields.get(key)).intValue();
    }

    private static long id(Object text) {
        return Long.parseUnsignedLong(text.toString());
    }

    /** Bytes of hexadecimal digits. */
    public static byte[] unhex(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }
}
