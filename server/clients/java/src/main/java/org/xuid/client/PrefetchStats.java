package org.xuid.client;

/**
 * What a {@link Prefetch} counted. A handle settles what it issued when it is done with a run, so {@link #issued} lags by
 * what is in the handles. When no handle is left: {@code received = issued + wasted + held}. Immutable.
 */
public final class PrefetchStats {
    private final long received;
    private final long issued;
    private final long wasted;
    private final long held;
    private final long refills;
    private final long failedRefills;
    private final long waits;

    PrefetchStats(
            long received, long issued, long wasted, long held, long refills, long failedRefills, long waits) {
        this.received = received;
        this.issued = issued;
        this.wasted = wasted;
        this.held = held;
        this.refills = refills;
        this.failedRefills = failedRefills;
        this.waits = waits;
    }

    /**
     * Ids that came from servers.
     *
     * @return a count since the source was made
     */
    public long received() {
        return received;
    }

    /**
     * Ids handed out.
     *
     * @return a count since the source was made
     */
    public long issued() {
        return issued;
    }

    /**
     * Ids that grew too old, or were held when the source was closed.
     *
     * @return a count since the source was made
     */
    public long wasted() {
        return wasted;
    }

    /**
     * Ids held now, without those in handles.
     *
     * @return a count of now
     */
    public long held() {
        return held;
    }

    /**
     * Refills that brought ids.
     *
     * @return a count since the source was made
     */
    public long refills() {
        return refills;
    }

    /**
     * Refills that failed.
     *
     * @return a count since the source was made
     */
    public long failedRefills() {
        return failedRefills;
    }

    /**
     * Calls that found nothing and had to wait.
     *
     * @return a count since the source was made
     */
    public long waits() {
        return waits;
    }

    @Override
    public String toString() {
        return "received " + received + ", issued " + issued + ", wasted " + wasted + ", held " + held + ", refills "
                + refills + ", failed refills " + failedRefills + ", waits " + waits;
    }
}
