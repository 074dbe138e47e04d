package org.xuid.client.internal.link;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.xuid.client.internal.wire.Request;

class PendingTest {
    @Test
    void a_request_id_is_answered_once_and_never_comes_again() {
        Pending pending = new Pending();
        Set<Long> seen = new HashSet<>();
        long open = pending.insert(Request.next(0), null, 0);
        for (int round = 0; round < 10_000; round++) {
            long id = pending.insert(Request.next(0), null, round);
            assertTrue(seen.add(id) && id >>> 32 != 0);
            Pending.Slot slot = pending.find(id);
            assertEquals(round, slot.due);
            pending.release(slot);
            assertEquals(null, pending.find(id));
        }
        assertEquals(1, pending.size());
        assertTrue(pending.find(open) != null);
        assertEquals(null, pending.find(0));
        assertEquals(null, pending.find(-1));
    }
}
