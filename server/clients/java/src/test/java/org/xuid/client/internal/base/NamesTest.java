package org.xuid.client.internal.base;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.net.InetAddress;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class NamesTest {
    private final CompletableFuture<Void> ends = new CompletableFuture<>();
    private final AtomicInteger asked = new AtomicInteger();

    /** Of which the first so many look-ups do not end. */
    private Names names(int endless, long again) {
        return new Names(host -> {
            if (asked.incrementAndGet() <= endless) {
                ends.join();
            }
            return new InetAddress[] {InetAddress.getLoopbackAddress()};
        }, again);
    }

    private void isNotFound(Names names) {
        assertThrows(TimeoutException.class, () -> names.addresses("ids.test", Time.ms(50)));
        // A thread may take longer to begin.
        while (asked.get() == 0) {
            Thread.onSpinWait();
        }
    }

    @Test
    void a_name_whose_look_up_never_ends_is_looked_up_again() throws Exception {
        Names names = names(1, 0);
        isNotFound(names);
        assertEquals(1, names.addresses("ids.test", Time.ms(10_000)).length);
        assertEquals(2, asked.get());
        ends.complete(null);
    }

    @Test
    void a_look_up_that_is_not_old_is_joined() {
        Names names = names(1, Time.ms(60_000));
        isNotFound(names);
        isNotFound(names);
        assertEquals(1, asked.get());
        ends.complete(null);
    }

    @Test
    void no_more_than_two_threads_stand_there_for_a_name() {
        Names names = names(9, 0);
        for (int dial = 0; dial < 4; dial++) {
            isNotFound(names);
        }
        while (asked.get() < 2) {
            Thread.onSpinWait();
        }
        assertEquals(2, asked.get());
        ends.complete(null);
    }
}
