package org.xuid.client.internal.link;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.xuid.client.internal.base.Time;

class DialsTest {
    private final Dials dials = new Dials();

    private boolean begin(String server, long seconds) {
        return dials.begin(server, new Thread(), Time.ms(seconds * 1_000));
    }

    @Test
    void a_server_has_few_dials_at_once_and_another_one_is_tried_now_and_then() {
        Thread first = new Thread();
        assertTrue(dials.begin("a", first, 0));
        for (int i = 1; i < Dials.MOST; i++) {
            assertTrue(begin("a", 0));
        }
        assertFalse(begin("a", 29));
        assertTrue(begin("b", 29), "each server has its own");
        assertTrue(begin("a", 31));
        assertFalse(begin("a", 62));
        assertTrue(begin("a", 92));
        assertFalse(begin("a", 92 + 119));
        dials.end("a", first);
        assertFalse(begin("a", 92 + 119), "more than a few stand still");
        assertTrue(begin("a", 92 + 120));
    }

    @Test
    void dials_that_end_keep_none_from_beginning_whatever_stands_still_since_long() {
        for (int i = 0; i < Dials.MOST; i++) {
            assertTrue(begin("a", 0));
        }
        for (int second = 31; second < 1_000; second++) {
            Thread dial = new Thread();
            assertTrue(dials.begin("a", dial, Time.ms(second * 1_000L)));
            dials.end("a", dial);
        }
    }
}
