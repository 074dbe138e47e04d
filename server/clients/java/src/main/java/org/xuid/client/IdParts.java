package org.xuid.client;

import java.time.Instant;

/** What an id says: when, where and as which it was made. Immutable. */
public final class IdParts {
    private final long unixMs;
    private final long worker;
    private final long sequence;

    /**
     * What an id says.
     *
     * @param unixMs the beginning of its tick, in milliseconds since the Unix epoch
     * @param worker the worker that made it
     * @param sequence which one of its worker and tick it is
     */
    public IdParts(long unixMs, long worker, long sequence) {
        this.unixMs = unixMs;
        this.worker = worker;
        this.sequence = sequence;
    }

    /**
     * The beginning of its tick.
     *
     * @return milliseconds since the Unix epoch
     */
    public long unixMs() {
        return unixMs;
    }

    /**
     * The beginning of its tick.
     *
     * @return the same as {@link #unixMs}
     */
    public Instant time() {
        return Instant.ofEpochMilli(unixMs);
    }

    /**
     * The worker that made it.
     *
     * @return a number within the worker bits
     */
    public long worker() {
        return worker;
    }

    /**
     * Which one of its worker and tick it is.
     *
     * @return a number within the sequence bits
     */
    public long sequence() {
        return sequence;
    }

    @Override
    public boolean equals(Object other) {
        if (!(other instanceof IdParts)) {
            return false;
        }
        IdParts parts = (IdParts) other;
        return unixMs == parts.unixMs && worker == parts.worker && sequence == parts.sequence;
    }

    @Override
    public int hashCode() {
        return Long.hashCode(unixMs * 31 + worker) * 31 + Long.hashCode(sequence);
    }

    @Override
    public String toString() {
        return time() + ", worker " + worker + ", sequence " + sequence;
    }
}
