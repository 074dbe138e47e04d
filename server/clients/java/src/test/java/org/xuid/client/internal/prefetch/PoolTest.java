package org.xuid.client.internal.prefetch;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.xuid.client.Run;
import org.xuid.client.internal.base.Time;

class PoolTest {
    @Test
    void of_a_refill_that_could_not_all_be_put_the_rest_is_wasted_and_asked_for_again() {
        Pool pool = new Pool(16, 64, Time.ms(10_000), 0);
        pool.lock.lock();
        try {
            pool.ask(30, 16);
            // What throws in the middle of it.
            List<Run> came = Arrays.asList(new Run(100, 10, 1), null, new Run(500, 10, 1));
            assertThrows(
                    NullPointerException.class, () -> pool.put(30, came, Time.now(), System.currentTimeMillis()));
            Pool.Counts counts = pool.counts();
            assertEquals(List.of(30L, 10L, 20L), List.of(counts.received, counts.held, counts.wasted));
            assertEquals(100, pool.take(1, 0, 0).next);
            assertTrue(pool.isDemanded());
        } finally {
            pool.lock.unlock();
        }
    }
}
