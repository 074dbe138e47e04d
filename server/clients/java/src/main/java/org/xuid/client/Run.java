package org.xuid.client;

import java.util.stream.LongStream;

/** Ids at equal distances: {@code first + i * stride} for {@code 0 <= i < count}. Immutable. */
public final class Run {
    private final long first;
    private final int count;
    private final long stride;

    /**
     * A run.
     *
     * @param first the first id
     * @param count how many ids
     * @param stride the distance of one from the next
     */
    public Run(long first, int count, long stride) {
        this.first = first;
        this.count = count;
        this.stride = stride;
    }

    /**
     * The first id.
     *
     * @return a number of 0 to 2^63 - 1
     */
    public long first() {
        return first;
    }

    /**
     * How many ids.
     *
     * @return 1 or more
     */
    public int count() {
        return count;
    }

    /**
     * The distance of one id from the next. Today it is 1 for ids and the increment for a sequence, but do not rely on
     * it.
     *
     * @return 1 or more; 0 is possible for a run of a single id
     */
    public long stride() {
        return stride;
    }

    /**
     * The last id.
     *
     * @return {@code first + (count - 1) * stride}
     */
    public long last() {
        return first + (count - 1) * stride;
    }

    /**
     * One of the ids.
     *
     * @param index 0 to {@code count - 1}
     * @return {@code first + index * stride}
     * @throws IndexOutOfBoundsException for another index
     */
    public long id(int index) {
        return first + java.util.Objects.checkIndex(index, count) * stride;
    }

    /**
     * All ids, ascending.
     *
     * @return a stream of {@code count} numbers
     */
    public LongStream ids() {
        return LongStream.range(0, count).map(i -> first + i * stride);
    }

    @Override
    public boolean equals(Object other) {
        if (!(other instanceof Run)) {
            return false;
        }
        Run run = (Run) other;
        return first == run.first && count == run.count && stride == run.stride;
    }

    @Override
    public int hashCode() {
        return Long.hashCode(first * 31 + count) * 31 + Long.hashCode(stride);
    }

    @Override
    public String toString() {
        return count + " ids from " + first + ", " + stride + " apart";
    }
}
