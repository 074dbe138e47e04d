package org.xuid.client.internal.wire;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.xuid.client.Json;

/** The golden vectors of the protocol, held against this codec and, for a server's half of it, against the tests'. */
public final class Vectors {
    public int encoded;
    public int decoded;
    public int refused;

    /** Checks all of a file; the first that fails is an {@link AssertionError} with its name. */
    public static Vectors check(Path file) throws IOException {
        Vectors counts = new Vectors();
        for (Object each : (List<?>) Json.read(Files.readString(file))) {
            Map<String, Object> vector = Json.object(each);
            try {
                counts.check(vector);
            } catch (AssertionError | BadReply | ServerSide.Refusal | RuntimeException failed) {
                throw new AssertionError(vector.get("kind") + " '" + vector.get("name") + "': " + failed, failed);
            }
        }
        return counts;
    }

    private void check(Map<String, Object> vector) throws BadReply, ServerSide.Refusal {
        byte[] bytes = ServerSide.unhex((String) vector.get("hex"));
        Map<String, Object> frame = Json.object(vector.get("frame"));
        boolean isServing = vector.get("phase").equals("serving");
        Map<String, Object> body = Json.object(frame.get("body"));
        int op = (int) (long) frame.get("op");
        int status = (int) (long) frame.get("status");
        long requestId = Long.parseUnsignedLong((String) frame.get("request_id"));
        same(Frame.op(bytes, 0), op);
        same(Frame.requestId(bytes, 0), requestId);
        if (vector.get("kind").equals("refused")) {
            checkRefused(bytes, isServing, status, (boolean) body.get("closes"));
            return;
        }
        same(Frame.bodyLength(bytes, 0), (long) bytes.length - Frame.HEADER);
        same(Frame.status(bytes, 0), status);
        boolean isRequest = vector.get("kind").equals("request");
        same(isRequest ? ServerSide.request(bytes, isServing) : read(bytes, status), body);
        decoded++;
        if ((boolean) vector.get("encode")) {
            byte[] made = isRequest ? write(op, requestId, body) : ServerSide.reply(op, status, requestId, body);
            same(hex(made), vector.get("hex"));
            encoded++;
        }
    }

    private void checkRefused(byte[] bytes, boolean isServing, int status, boolean closes) {
        try {
            throw new AssertionError("taken for " + ServerSide.request(bytes, isServing));
        } catch (ServerSide.Refusal refusal) {
            same(refusal.status, status);
            same(refusal.closes, closes);
            refused++;
        }
    }

    /** A request as this client writes it. */
    private static byte[] write(int op, long requestId, Map<String, Object> body) {
        Bytes out = new Bytes();
        request(op, body).encode(out, requestId);
        return out.toArray();
    }

    private static Request request(int op, Map<String, Object> body) {
        String name = (String) body.get("name");
        int order = number(body, "order");
        int count = number(body, "count");
        int waitMs = number(body, "wait_ms");
        switch (op) {
            case Op.HELLO:
                byte[] token = ((String) body.get("token")).getBytes(StandardCharsets.UTF_8);
                return Request.hello(
                        number(body, "min_version"),
                        number(body, "max_version"),
                        number(body, "features"),
                        ServerSide.unhex((String) body.get("cluster")),
                        token,
                        (String) body.get("client"));
            case Op.PING:
                return Request.ping(((String) body.get("bytes")).getBytes(StandardCharsets.UTF_8));
            case Op.NEXT:
                return Request.next(order);
            case Op.ARRAY:
                return Request.array(count, order, waitMs);
            case Op.RUNS:
                return Request.runs(count, order, waitMs);
            case Op.DECODE:
                return Request.decode(Long.parseLong((String) body.get("id")));
            case Op.INFO:
                return Request.info();
            case Op.STATS:
                return Request.stats();
            case Op.PROVENANCE:
                return Request.provenance(Long.parseLong((String) body.get("id")));
            case Op.SEQ_NEXT:
                return Request.sequenceNext(name);
            case Op.SEQ_ARRAY:
                return Request.sequenceArray(name, count, order, waitMs);
            case Op.SEQ_RUNS:
                return Request.sequenceRuns(name, count, order, waitMs, (boolean) body.get("contiguous"));
            case Op.SEQ_INFO:
                return Request.sequenceInfo(name);
            case Op.SEQ_LIST:
                return Request.sequenceList(
                        number(body, "limit"), (String) body.get("prefix"), (String) body.get("after"));
            case Op.SEQ_CREATE:
                return Request.sequenceCreate(name, (String) body.get("json"));
            case Op.SEQ_ALTER:
                return Request.sequenceAlter(name, (String) body.get("json"));
            case Op.BYE:
                return Request.bye();
            default:
                throw new AssertionError("no request of op " + op);
        }
    }

    /** A reply as this client reads it. */
    private static Map<String, Object> read(byte[] bytes, int status) throws BadReply {
        Reply.checkHeader(bytes, 0);
        Reply reply = Reply.parse(bytes, 0);
        same(reply.status, status);
        Map<String, Object> fields = new LinkedHashMap<>();
        if (status != 0) {
            fields.put("retry_after_ms", reply.retryAfterMs);
            fields.put("text", reply.text);
            return fields;
        }
        switch (reply.op) {
            case Op.HELLO:
                hello(reply.hello, fields);
                break;
            case Op.PING:
                fields.put("bytes", new String(reply.bytes, StandardCharsets.UTF_8));
                break;
            case Op.NEXT:
            case Op.SEQ_NEXT:
                fields.put("id", Long.toString(reply.id));
                break;
            case Op.ARRAY:
            case Op.SEQ_ARRAY:
                List<Object> ids = new ArrayList<>();
                for (long id : reply.ids) {
                    ids.add(Long.toString(id));
                }
                fields.put("ids", ids);
                break;
            case Op.RUNS:
            case Op.SEQ_RUNS:
                List<Object> runs = new ArrayList<>();
                for (int i = 0; i < reply.firsts.length; i++) {
                    runs.add(Map.of(
                            "first", Long.toString(reply.firsts[i]),
                            "count", (long) reply.counts[i],
                            "stride", (long) reply.strides[i]));
                }
                fields.put("runs", runs);
                fields.put("count", reply.count);
                break;
            case Op.DECODE:
                fields.put("unix_ms", Long.toString(reply.unixMs));
                fields.put("worker", reply.worker);
                fields.put("sequence", reply.sequence);
                break;
            case Op.BYE:
            case Op.GOAWAY:
                break;
            default:
                fields.put("json", reply.text);
        }
        return fields;
    }

    private static void hello(Hello hello, Map<String, Object> fields) {
        fields.put("version", (long) hello.version);
        // This client offers no feature, and does not look at those that a server agrees to.
        fields.put("features", 0L);
        fields.put("cluster", hello.cluster);
        fields.put("epoch_ms", Long.toString(hello.epochMs));
        fields.put("tick_us", hello.tickUs);
        fields.put("time_bits", (long) hello.timeBits);
        fields.put("worker_bits", (long) hello.workerBits);
        fields.put("sequence_bits", (long) hello.sequenceBits);
        fields.put("face", (long) hello.face);
        fields.put("max_body", hello.maxBody);
        fields.put("max_count", hello.maxCount);
        fields.put("max_in_flight", hello.maxInFlight);
        fields.put("idle_ms", hello.idleMs);
        fields.put("server", hello.server);
    }

    private static int number(Map<String, Object> body, String key) {
        return (int) (long) (Long) body.getOrDefault(key, 0L);
    }

    private static String hex(byte[] bytes) {
        StringBuilder hex = new StringBuilder();
        for (byte each : bytes) {
            hex.append(String.format("%02x", each));
        }
        return hex.toString();
    }

    private static void same(Object found, Object expected) {
        if (!expected.equals(found)) {
            throw new AssertionError("found " + found + ", expected " + expected);
        }
    }
}
