package org.xuid.client.internal.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

class GoldenTest {
    private static final Path FILE = Path.of("../../protocol/golden/vectors.json");

    @Test
    void every_golden_vector_is_written_read_and_refused_as_it_says() throws Exception {
        Assumptions.assumeTrue(Files.exists(FILE), "the golden vectors are beside the protocol's crate only");
        Vectors counts = Vectors.check(FILE);
        assertTrue(counts.encoded > 60 && counts.decoded > counts.encoded && counts.refused > 50,
                counts.encoded + " " + counts.decoded + " " + counts.refused);
    }

    @Test
    void what_no_server_takes_is_refused_before_it_is_written() {
        for (String name : new String[] {"", " a", "a ", "a\u3000", "@any", "a\nb", "a\u0085", "x".repeat(129), "\ud800"}) {
            assertThrows(IllegalArgumentException.class, () -> Request.sequenceNext(name), name);
        }
        for (int count : new int[] {0, -1, Integer.MIN_VALUE, Request.COUNT_MAX + 1}) {
            assertThrows(IllegalArgumentException.class, () -> Request.array(count, 0, 0));
            assertThrows(IllegalArgumentException.class, () -> Request.sequenceRuns("a", count, 0, 0, true));
        }
        assertThrows(IllegalArgumentException.class, () -> Request.sequenceArray("a", 1, 1, 0));
        assertThrows(IllegalArgumentException.class, () -> Request.array(1, 0, -1));
        assertThrows(IllegalArgumentException.class, () -> Request.decode(-1));
        assertThrows(IllegalArgumentException.class, () -> Request.sequenceList(0, "", ""));
        assertThrows(IllegalArgumentException.class, () -> Request.sequenceList(1_001, "", ""));
        assertThrows(IllegalArgumentException.class, () -> Request.ping(new byte[1_025]));
        assertEquals(16 + 4_096, Request.sequenceCreate("a", "x".repeat(4_094)).frameLength());
        assertThrows(IllegalArgumentException.class, () -> Request.sequenceCreate("a", "x".repeat(4_095)));
        assertThrows(IllegalArgumentException.class, () -> Request.sequenceAlter("a", "x".repeat(4_095)));
        assertThrows(IllegalArgumentException.class, () -> Request.hello(new byte[16], new byte[256], ""));
        assertEquals(60_000, Request.array(1, 0, Integer.MAX_VALUE).waitMs());
    }

    @Test
    void a_reply_that_lies_about_its_ids_is_none() {
        Bytes none = new Bytes();
        refused(Op.NEXT, new Bytes().u64(Long.MIN_VALUE));
        refused(Op.NEXT, new Bytes().u32(1));
        refused(Op.ARRAY, new Bytes().u32(2).u32(0).u64(1));
        refused(Op.ARRAY, new Bytes().u32(2).u32(0).u64(1).u64(-1));
        refused(Op.ARRAY, new Bytes().u32(-1).u32(0).u64(1));
        refused(Op.RUNS, new Bytes().u32(3).u32(1).u64(1).u32(2).u32(1));
        refused(Op.RUNS, new Bytes().u32(0).u32(1).u64(1).u32(0).u32(1));
        refused(Op.RUNS, new Bytes().u32(2).u32(1).u64(1).u32(2).u32(0));
        refused(Op.RUNS, new Bytes().u32(2).u32(1).u64(Long.MAX_VALUE).u32(2).u32(1));
        refused(Op.RUNS, new Bytes().u32(-1).u32(1).u64(Long.MAX_VALUE).u32(-1).u32(-1));
        refused(Op.RUNS, new Bytes().u32(1).u32(-1).u64(1).u32(1).u32(1));
        refused(Op.INFO, new Bytes().u8(0xff));
        refused(0x55, none);
        refused(Op.GOAWAY, none);
    }

    private static void refused(int op, Bytes body) {
        byte[] frame = ServerSide.frame(op | Op.REPLY_BIT, 0, 7, body.toArray());
        assertThrows(BadReply.class, () -> Reply.parse(frame, 0), () -> "op " + op);
    }
}
