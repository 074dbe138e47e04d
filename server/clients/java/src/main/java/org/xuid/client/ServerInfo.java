package org.xuid.client;

/** What a server said about itself when it was connected to. Immutable. */
public final class ServerInfo {
    private final String address;
    private final String version;
    private final String cluster;
    private final Layout layout;
    private final long maxCount;
    private final long maxInFlight;

    /**
     * What a server said.
     *
     * @param address {@code host:port}
     * @param version its version
     * @param cluster 32 hexadecimal digits
     * @param layout how its ids are made
     * @param maxCount the most ids of one request
     * @param maxInFlight requests that it takes before it answers some
     */
    public ServerInfo(
            String address, String version, String cluster, Layout layout, long maxCount, long maxInFlight) {
        this.address = address;
        this.version = version;
        this.cluster = cluster;
        this.layout = layout;
        this.maxCount = maxCount;
        this.maxInFlight = maxInFlight;
    }

    /**
     * Its address, as it was given.
     *
     * @return {@code host:port}
     */
    public String address() {
        return address;
    }

    /**
     * Its version, for people.
     *
     * @return a text such as {@code 0.1.0}
     */
    public String version() {
        return version;
    }

    /**
     * Its cluster. Two clusters can issue the same ids.
     *
     * @return 32 hexadecimal digits
     */
    public String cluster() {
        return cluster;
    }

    /**
     * How its ids are made.
     *
     * @return the layout
     */
    public Layout layout() {
        return layout;
    }

    /**
     * The most ids of one request.
     *
     * @return 131,072 or more
     */
    public long maxCount() {
        return maxCount;
    }

    /**
     * How many requests of one connection it takes before it answers some.
     *
     * @return 1 or more
     */
    public long maxInFlight() {
        return maxInFlight;
    }

    @Override
    public String toString() {
        return address + " (xuid " + version + ", cluster " + cluster + ")";
    }
}
