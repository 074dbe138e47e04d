package org.xuid.client.internal.base;

/** A thread of the client's own: replies, deadlines and connections depend on it, so it must not wait for them. */
public final class Worker extends Thread {
    public Worker(String name, Runnable task) {
        // Of the thread that happens to make it nothing is kept.
        super(null, task, name, 0, false);
        setDaemon(true);
    }

    /** Refuses a call that would wait for the thread which makes it. */
    public static void checkMayWait() {
        if (Thread.currentThread() instanceof Worker) {
            throw new IllegalStateException("this thread (" + Thread.currentThread().getName() + ") delivers replies, and "
                    + "a call that waits for one would wait for ever: use the Async method, or thenApplyAsync");
        }
    }
}
