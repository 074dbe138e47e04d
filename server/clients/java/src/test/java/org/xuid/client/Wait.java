package org.xuid.client;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.fail;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/** Waiting for conditions, with an end. */
final class Wait {
    private Wait() {}

    static void until(String what, BooleanSupplier condition) {
        long end = System.nanoTime() + 10_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > end) {
                fail("not within 10 s: " + what);
            }
            Thread.onSpinWait();
        }
    }

    static <T> T soon(CompletableFuture<T> future) throws Exception {
        return future.get(10, TimeUnit.SECONDS);
    }

    /** The failure of that kind with which a future ends. */
    static <E extends Throwable> E failure(Class<E> kind, CompletableFuture<?> future) {
        var ended = assertThrows(ExecutionException.class, () -> soon(future));
        if (!kind.isInstance(ended.getCause())) {
            fail("another failure than " + kind.getSimpleName(), ended.getCause());
        }
        return kind.cast(ended.getCause());
    }
}
