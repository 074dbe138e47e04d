package org.xuid.client.internal.link;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.xuid.client.internal.base.Time;

class AwayTest {
    private static final long NOW = Time.ms(100_000);

    private static long in(int seconds) {
        return NOW + Time.ms(seconds * 1_000L);
    }

    @Test
    void a_server_is_away_until_it_is_there_or_nobody_looked_for_long() {
        Away away = new Away();
        assertFalse(away.isAway("b", NOW) || away.costs("b", NOW));
        away.note("b", NOW, NOW);
        assertTrue(away.isAway("b", in(29)));
        assertFalse(away.isAway("a", in(29)) || away.isAway("b", in(31)));
        away.clear("b");
        assertFalse(away.isAway("b", NOW));
    }

    @Test
    void one_that_is_silent_is_dialed_less_often_than_one_that_refuses_at_once() {
        Away away = new Away();
        away.note("a", NOW, NOW);
        away.note("b", in(-5), NOW);
        assertFalse(away.costs("a", in(1)));
        assertTrue(away.costs("b", in(29)));
        assertFalse(away.costs("b", in(31)));
        away.clear("b");
        assertFalse(away.costs("b", in(1)));
    }
}
