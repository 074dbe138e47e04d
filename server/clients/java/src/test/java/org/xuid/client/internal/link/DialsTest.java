package org.xuid.client.internal.link;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class DialsTest {
    @Test
    void a_server_has_few_dials_at_once_and_one_that_stands_still_counts_for_some_minutes() {
        var dials = new Dials();
        Thread first = new Thread();
        assertTrue(dials.begin("a", first, 0));
        for (int i = 1; i < Dials.MOST; i++) {
            assertTrue(dials.begin("a", new Thread(), 1));
        }
        assertFalse(dials.begin("a", new Thread(), Dials.COUNTS_FOR - 1));
        assertTrue(dials.begin("b", new Thread(), 1), "each server has its own");
        Thread next = new Thread();
        assertTrue(dials.begin("a", next, Dials.COUNTS_FOR), "the first counts no more");
        assertFalse(dials.begin("a", new Thread(), Dials.COUNTS_FOR));
        dials.end("a", first);
        assertFalse(dials.begin("a", new Thread(), Dials.COUNTS_FOR), "it counted no more");
        dials.end("a", next);
        assertTrue(dials.begin("a", new Thread(), Dials.COUNTS_FOR));
    }
}
