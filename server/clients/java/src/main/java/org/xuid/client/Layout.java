package org.xuid.client;

/** How a cluster's ids are made of bits: from the highest down a tick, below it a worker and a sequence. Immutable. */
public final class Layout {
    private static final int OPAQUE = 2;

    private final long epochMs;
    private final long tickUs;
    private final int timeBits;
    private final int workerBits;
    private final int sequenceBits;
    private final int face;

    /**
     * A layout with the sequence lowest.
     *
     * @param epochMs tick 0, in milliseconds since the Unix epoch
     * @param tickUs the length of a tick, in microseconds
     * @param timeBits the width of the tick
     * @param workerBits the width of the worker
     * @param sequenceBits the width of the sequence
     */
    public Layout(long epochMs, long tickUs, int timeBits, int workerBits, int sequenceBits) {
        this(epochMs, tickUs, timeBits, workerBits, sequenceBits, 0);
    }

    /**
     * A layout.
     *
     * @param epochMs tick 0, in milliseconds since the Unix epoch
     * @param tickUs the length of a tick, in microseconds
     * @param timeBits the width of the tick
     * @param workerBits the width of the worker
     * @param sequenceBits the width of the sequence
     * @param face 0 where the sequence lies lowest, 1 where the worker does, 2 where ids are opaque
     */
    public Layout(long epochMs, long tickUs, int timeBits, int workerBits, int sequenceBits, int face) {
        this.epochMs = epochMs;
        this.tickUs = tickUs;
        this.timeBits = timeBits;
        this.workerBits = workerBits;
        this.sequenceBits = sequenceBits;
        this.face = face;
    }

    /**
     * Tick 0.
     *
     * @return milliseconds since the Unix epoch
     */
    public long epochMs() {
        return epochMs;
    }

    /**
     * The length of a tick.
     *
     * @return microseconds
     */
    public long tickUs() {
        return tickUs;
    }

    /**
     * The width of the tick.
     *
     * @return bits; the three widths add up to 63 at most
     */
    public int timeBits() {
        return timeBits;
    }

    /**
     * The width of the worker.
     *
     * @return bits
     */
    public int workerBits() {
        return workerBits;
    }

    /**
     * The width of the sequence.
     *
     * @return bits
     */
    public int sequenceBits() {
        return sequenceBits;
    }

    /**
     * What callers see of the fields.
     *
     * @return 0 where the sequence lies lowest, 1 where the worker does, 2 where ids are opaque
     */
    public int face() {
        return face;
    }

    /**
     * The fields of an id, by arithmetic alone. It says nothing about whether the id was ever issued.
     *
     * @param id 0 to 2^63 - 1
     * @return its time, worker and sequence
     * @throws IllegalArgumentException for a negative number
     * @throws UnsupportedOperationException where ids are opaque: only the server, which has the key, can take them apart
     */
    public IdParts parts(long id) {
        if (face == OPAQUE) {
            throw new UnsupportedOperationException(
                    "the ids of this cluster are opaque: take them apart by a call, XuidClient.decode");
        }
        if (id < 0) {
            throw new IllegalArgumentException("an id is below 2^63, and this is " + Long.toUnsignedString(id));
        }
        long tick = id >>> workerBits + sequenceBits;
        // In two parts: the product of all ticks and microseconds may be above 2^63.
        long sinceEpochMs = tick / 1_000 * tickUs + tick % 1_000 * tickUs / 1_000;
        int workerAt = face == 0 ? sequenceBits : 0;
        int sequenceAt = face == 0 ? 0 : workerBits;
        long worker = id >>> workerAt & (1L << workerBits) - 1;
        long sequence = id >>> sequenceAt & (1L << sequenceBits) - 1;
        return new IdParts(epochMs + sinceEpochMs, worker, sequence);
    }

    @Override
    public String toString() {
        return timeBits + "/" + workerBits + "/" + sequenceBits + " bits, ticks of " + tickUs + " us since "
                + java.time.Instant.ofEpochMilli(epochMs);
    }
}
